"""Linear terms: their deviations from exact sums, and from histograms where those are withheld."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitClassifier
from privfed.learners.rulefit.cutoffs import Cutoffs, read_cutoffs
from privfed.learners.rulefit.pooled import PooledHistogram
from privfed.learners.rulefit.spreads import Spreads, ask_spreads
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.hospitals import BINARY, QUICK, gates, patients


def test_moments_of_linear_terms_are_read_off_the_counts() -> None:
    """Where bins are single values they are the records' own, whatever the server's seed."""
    values = np.random.default_rng(0).integers(0, 10, 500).astype(float)
    schema = Schema((Column("n", "integer", 0, 9),), Column("y", "integer", 0, 1))
    counts = np.bincount(values.astype(int), minlength=10)[None]
    cutoffs = read_cutoffs(counts, schema, 20, 5)
    told = PooledHistogram(counts, {"a": 500.0}, 20).linear_moments(schema, cutoffs)
    terms = cutoffs.linear(values[:, None])[:, 0]
    assert [one[0] for one in told] == pytest.approx([terms.mean(), terms.var()])


def test_sums_are_whole_numbers_beyond_what_floats_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """In floats (2^53 + 1) + 1 - 2^53 is 0, and one record would change it by more or less than it adds."""
    terms = np.array([[2.0**53], [1.0], [1.0], [-(2.0**53)]])
    monkeypatch.setattr(Spreads, "contribution", lambda _query, _view: {"sums": terms})
    schema = Schema((Column("a", lower=0, upper=1),))
    cutoffs = Cutoffs(((),), np.zeros(1), np.ones(1), np.ones(1))
    view = View.of(schema, np.zeros((4, 1)))
    assert Spreads(cutoffs, (0,)).evaluate(view)["sums"].tolist() == [2]


def test_spreads_that_are_withheld_leave_the_histograms_moments() -> None:
    """A policy that refuses them gives deviations near the true ones, and still a model."""
    model = RuleFitClassifier(**(QUICK | {"n_rounds": 2}))
    policy = model.published(1000)
    guards = {kind: own for kind, own in policy.guards.items() if kind != "rulefit.spreads"}
    told = model.fit(gates(patients(), replace(policy, guards=guards))).model_
    exact = RuleFitClassifier(**(QUICK | {"n_rounds": 2}))
    exact.fit(gates(patients(), exact.published(1000)))
    linear = slice(len(told.rules), None)
    true = exact.model_.deviations[linear]
    assert told.deviations[linear] == pytest.approx(true, rel=0.05)
    assert not np.array_equal(told.deviations[linear], true)


@pytest.mark.parametrize("alone", [False, True])
def test_variances_are_within_clients_or_of_all_records_where_each_has_one(alone: bool) -> None:
    """By numpy, over N - K and over N."""
    frame = patients(60)
    model = RuleFitClassifier(**(QUICK | {"n_rounds": 1}))
    model.fit(gates(frame, model.published(1000)))
    cutoffs, linear = model.cutoffs_, model.model_.terms.linear
    own = frame.assign(own=[f"c{number}" for number in range(len(frame))])
    client = "own" if alone else "hospital"
    terms = {
        str(name): cutoffs.linear(Records.from_frame(part, BINARY).x)[:, list(linear)]
        for name, part in own.groupby(client)
    }
    every = np.vstack(list(terms.values()))
    told = ask_spreads(
        UngatedDisclosure.from_frame(own, BINARY, client=client),
        cutoffs,
        linear,
        {name: float(len(x)) for name, x in terms.items()},
        every.mean(axis=0),
    )
    within = sum(((x - x.mean(axis=0)) ** 2).sum(axis=0) for x in terms.values())
    wanted = every.var(axis=0) if alone else within / (len(frame) - len(terms))
    assert told is not None
    assert told == pytest.approx(wanted, rel=1e-5)
