"""Linear terms: their deviations from exact sums, and from histograms where those are withheld."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitClassifier
from privfed.learners.rulefit.cutoffs import read_cutoffs
from privfed.learners.rulefit.histograms import Marginal
from privfed.learners.rulefit.spreads import ask_spreads
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.hospitals import BINARY, QUICK, gates, patients


def test_moments_of_linear_terms_are_read_off_the_counts() -> None:
    """Where bins are single values they are the records' own, whatever the server's seed."""
    values = np.random.default_rng(0).integers(0, 10, 500).astype(float)
    schema = Schema((Column("n", "integer", 0, 9),), Column("y", "integer", 0, 1))
    counts = np.bincount(values.astype(int), minlength=10)[None]
    cutoffs = read_cutoffs(counts, schema, 20, 5)
    told = Marginal(counts, {"a": 500.0}, 20).linear_moments(schema, cutoffs)
    terms = cutoffs.linear(values[:, None])[:, 0]
    assert [one[0] for one in told] == pytest.approx([terms.mean(), terms.var()])


def test_spreads_that_are_withheld_leave_the_histograms_moments() -> None:
    """A policy that refuses them gives deviations near the true ones, and still a model."""
    model = RuleFitClassifier(**(QUICK | {"rounds": 2}))
    policy = model.published(1000)
    guards = {kind: own for kind, own in policy.guards.items() if kind != "rulefit.spreads"}
    told = model.fit(gates(patients(), replace(policy, guards=guards))).model_
    exact = RuleFitClassifier(**(QUICK | {"rounds": 2}))
    exact.fit(gates(patients(), exact.published(1000)))
    linear = slice(len(told.rules), None)
    true = exact.model_.deviations[linear]
    assert told.deviations[linear] == pytest.approx(true, rel=0.05)
    assert not np.array_equal(told.deviations[linear], true)


def test_traces_are_the_distance_of_a_clients_records_to_the_pooled_means() -> None:
    """By client, and the variances of clients with one record each are those of all records."""
    frame = patients(60)
    model = RuleFitClassifier(**(QUICK | {"rounds": 1}))
    model.fit(gates(frame, model.published(1000)))
    cutoffs, linear = model.cutoffs_, model.model_.terms.linear
    for site, sizes in (("hospital", None), ("own", 1.0)):
        own = frame.assign(own=[f"c{number}" for number in range(len(frame))])
        records = {
            str(name): Records.from_frame(part, BINARY).x for name, part in own.groupby(site)
        }
        terms = {name: cutoffs.linear(x)[:, list(linear)] for name, x in records.items()}
        means = np.vstack(list(terms.values())).mean(axis=0)
        told = ask_spreads(
            UngatedDisclosure.from_frame(own, BINARY, client=site),
            cutoffs,
            linear,
            {name: sizes or float(len(x)) for name, x in records.items()},
            means,
        )
        assert told is not None
        expected = {n: float(((x - means) ** 2).sum(axis=1).mean()) for n, x in terms.items()}
        assert told.traces == pytest.approx(expected, rel=1e-6)
        if sizes:
            assert told.variances == pytest.approx(np.vstack(list(terms.values())).var(axis=0))
