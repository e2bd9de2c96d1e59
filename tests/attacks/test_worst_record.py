"""The schema's worst record comes near the charge, and beyond it only where a bound is too small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from privfed import plugins
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.clock import Clock
from privfed.attacks.worst_record import WorstRecord, search
from privfed.exchange.messages import Request
from privfed.exchange.transcript import Transcript
from privfed.federation.local import LocalDisclosure
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("a", lower=0, upper=8), Column("b", "integer", lower=0, upper=3)))
COUNTS = Histogram(0, (0.0, 1.0, 3.0, 8.0))


def ask(query: Query, mechanism: str, spend: str) -> LocalDisclosure:
    """One question to two clients."""
    frame = pd.DataFrame({"a": np.linspace(0, 8, 20), "b": [1] * 20, "owner": ["x", "y"] * 10})
    policy = Policy({query.kind: (Guard.of(mechanism, spend=spend),)}, accountant="zcdp")
    federation = LocalDisclosure.from_frame(
        frame, None, client="owner", schema=SCHEMA, policy=policy, seed=3
    )
    for name, gate in federation.gates.items():
        gate.answer(Request.of(f"request {name}", query))
    return federation


def test_gaussian_counts_come_to_the_whole_charge() -> None:
    """Any record moves one count by one: mu is the square root of twice the ledger's rho."""
    federation = ask(COUNTS, "gaussian", "1/2")
    worst, rate = WorstRecord().run(federation.transcript(), None, SCHEMA)
    (total, *_) = federation.gates["x"].ledger.spent(ZeroConcentrated()).total
    assert worst.value == pytest.approx(worst.of) == pytest.approx(np.sqrt(2 * float(total)))
    assert worst.severity == "none" and not worst.simulation
    assert rate.value == pytest.approx(norm.cdf(norm.ppf(0.01) + worst.value))
    assert rate.limit == "found at 1 %"


def test_laplace_counts_too() -> None:
    """Their distance is an epsilon, of which rates are only bounds."""
    (worst,) = WorstRecord().run(ask(COUNTS, "laplace", "0.7").transcript(), None, SCHEMA)
    assert worst.value == pytest.approx(0.7) == pytest.approx(worst.of)
    told = worst.detail["the schema's worst"]
    assert told["found at 1 % at most"] == pytest.approx(0.01 * np.exp(0.7))
    assert told["area at most"] == pytest.approx(np.exp(0.7) / (1 + np.exp(0.7)))


@dataclass(frozen=True)
class Sum(Query):
    """A sum of a feature up to 8, with a bound that is right, far too large, or too small."""

    bound: int
    kind: ClassVar[str] = "planted.sum"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One sum."""
        return {"sum": Part(PartType.SUMS, ("cell",), (1,), Sensitivity.of(self.bound))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Whole units."""
        return {"sum": np.array([np.floor(view.table.x[:, 0]).sum()])}


@pytest.mark.parametrize(("bound", "severity"), [(8, "none"), (100, "none"), (4, "breach")])
def test_a_bound_too_small_is_a_broken_claim(
    monkeypatch: pytest.MonkeyPatch, bound: int, severity: str
) -> None:
    """And one far too large means more noise than need be."""
    known = plugins.available

    class Point:
        def load(self) -> type[Query]:
            return Sum

    points = {**known("queries"), Sum.kind: Point()}
    monkeypatch.setattr(plugins, "available", lambda g: points if g == "queries" else known(g))
    transcript = ask(Sum(bound), "gaussian", "1/2").transcript()
    worst, _ = WorstRecord().run(transcript, None, SCHEMA)
    assert worst.severity == severity
    assert worst.value == pytest.approx(8 / bound)
    assert ("note" in worst.detail) == (bound == 100)


def test_real_records_and_policies_at_epsilon_8(diabetes) -> None:  # type: ignore[no-untyped-def]
    """A fuzzy tree: the schema's worst reaches nine tenths of the charge, the median half."""
    trained = diabetes("private")
    worst, _ = WorstRecord().run(trained.transcript, trained.truth, trained.schema)
    assert worst.of is not None and 0.9 * worst.of < worst.value <= worst.of
    told = worst.detail
    assert told["median record"]["mu"] < told["largest record"]["mu"] <= worst.value
    assert worst.simulation


def test_the_search_climbs() -> None:
    """The corner of a box of ten columns, of which integers stay whole."""
    columns = tuple(Column(f"c{i}", "integer", lower=-1, upper=5) for i in range(10))
    seen = []

    def distances(x: np.ndarray, y: np.ndarray | None) -> np.ndarray:
        seen.append(x)
        return np.asarray(x.sum(axis=1))

    assert search(distances, Schema(columns), Clock(60)) == 50
    assert all(np.array_equal(x, np.rint(x)) for x in seen) and len(seen) > 20


def test_nothing_to_work_on() -> None:
    """Without a schema there is no box, and of nothing there is nothing to say."""
    assert WorstRecord().run(Transcript(), None, SCHEMA) == []
    assert not WorstRecord().attackable(Transcript())
    transcript = ask(COUNTS, "gaussian", "1/2").transcript()
    assert WorstRecord().run(transcript) == []
    assert WorstRecord().attackable(transcript)
