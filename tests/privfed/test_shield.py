"""What the checks before a release hold: caps on units, sizes that tell, parts that are no parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from privfed import Gate, Guard, Policy, Records, Schema
from privfed.part import Bound, Part, PartType, Sensitivity
from privfed.query import Query, View
from privfed.release import Reason, Release, Request
from privfed.shield import capped
from privfed.testing.gates import Watched, events, reason, reply


@pytest.mark.parametrize(("cap", "kept"), [(1, 1), (20, 20), (50, 50), (60, 50)])
def test_a_client_of_more_records_than_its_cap(
    watched: Callable[..., Gate], cap: int, kept: int
) -> None:
    """Where the unit is a client, no more of its records than the cap are in the view."""
    seen: list[int] = []
    gate = watched(
        behave=lambda view: seen.append(len(view.table)) or np.array([1]), unit="client", cap=cap
    )
    assert reason(gate, Request.of("1", Watched())) is None
    assert seen == [kept]


def test_a_clients_exact_count_stops_at_its_cap(watched: Callable[..., Gate]) -> None:
    """Released as it is, a count of fifty records under a cap of twenty is twenty."""
    guards = {Watched.kind: (Guard.of("open"),)}
    released = reply(watched(guards=guards, unit="client", cap=20), Request.of("1", Watched()))
    assert isinstance(released, Release)
    assert released["counts"].tolist() == [20]


def test_what_is_cut_depends_on_unit_and_cap(records: Records) -> None:
    """Records are a unit each and never cut; clients and persons are, and only under a cap."""
    left = {
        (unit, cap): len(capped(records, Policy({}, unit=unit, cap=cap)))
        for unit in ("client", "individual")
        for cap in (None, 1, 7)
    }
    assert left == {
        ("client", None): 50,
        ("client", 1): 1,
        ("client", 7): 7,
        ("individual", None): 50,
        ("individual", 1): 25,
        ("individual", 7): 50,
    }
    assert len(capped(records, Policy({}))) == 50


@dataclass(frozen=True)
class Sized(Query):
    """A plugin's count whose declared shape a test sets, beside a sensitivity of one.

    Sensitivity: claimed to be one; with a size that follows the data it cannot be true.
    """

    shape: tuple[int, ...]
    kind: ClassVar[str] = "test.sized"
    evaluated: ClassVar[list[int]] = []

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One part of that shape."""
        axes = ("a", "b")[: len(self.shape)]
        return {
            "counts": Part(PartType.COUNTS, axes, self.shape, Sensitivity(Bound(1, 1))),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """As many cells as there are records, where the size is left open."""
        self.evaluated.append(len(view.table))
        return {"counts": np.zeros([len(view.table) if n < 0 else n for n in self.shape])}


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 3), (3, -1), (-1, -1)])
def test_noise_hides_no_size(
    make_gate: Callable[..., Gate],
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
    shape: tuple[int, ...],
) -> None:
    """A part whose size follows the data is refused under noise, uncharged and unevaluated."""
    monkeypatch.setattr(Sized, "evaluated", [])
    guards = {Sized.kind: (Guard.of(mechanism, spend="0.1"),)}
    gate = make_gate(guards, queries=(Sized,), accountant="zcdp")
    assert reason(gate, Request.of("1", Sized(shape))) == Reason.UNSUPPORTED
    assert events(gate) == ["refused"]
    assert Sized.evaluated == []
    assert reason(gate, Request.of("2", Sized(tuple(abs(n) for n in shape)))) is None


def test_an_open_size_is_released_without_a_guarantee(make_gate: Callable[..., Gate]) -> None:
    """The owner may let it out as it is; the ledger then counts a release without a guarantee."""
    gate = make_gate({Sized.kind: (Guard.of("open"),)}, queries=(Sized,))
    assert reason(gate, Request.of("1", Sized((-1,)))) is None
    assert gate.ledger.spent(gate.accountant).unprotected == 1
