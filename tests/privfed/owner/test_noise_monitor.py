"""What a gate's monitor sums up, and where it keeps it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from privfed.errors import LedgerError
from privfed.mechanisms.gaussian import Gaussian
from privfed.owner.noise_monitor import CELLS, NoiseMonitor, NoiseSums, OtherOwners, read_tally
from privfed.privacy.mechanism import BoundedPart, Protection
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Bound, Part, PartType


def _priced(cells: int) -> Protection:
    part = Part(PartType.SUMS, ("cell",), (cells,))
    return Gaussian().price({"sums": BoundedPart(part, Bound(2**20, 2**40))}, Fraction(1, 10))


def _observe(monitor: NoiseMonitor, cells: int = 50, seed: int = 0) -> None:
    priced, exact = _priced(cells), {"sums": np.arange(cells) * 2**20}
    monitor.observe("a kind", "digest", priced, exact, priced.protect(exact, TestNoise(seed)))


def test_every_cell_of_noise_is_counted() -> None:
    """All, by part and by count; nothing is unread."""
    monitor = NoiseMonitor()
    _observe(monitor)
    assert monitor.tally.cells == 50
    assert monitor.tally["score part a kind sums"][0] == 50
    assert monitor.tally["sign neighbouring cells"][0] == 49
    assert monitor.tally["unread beyond"] == (0.0,)


def test_low_bits_and_tails_are_counted_as_one_by_one() -> None:
    """Of wide noise, and of what is released."""
    monitor, priced, exact = NoiseMonitor(), _priced(50), {"sums": np.arange(50) * 2**20}
    released = priced.protect(exact, TestNoise(0))
    monitor.observe("a kind", "digest", priced, exact, released)
    drawn = {"release": released["sums"].data.astype(int)}
    drawn["noise"] = drawn["release"] - exact["sums"]
    for bit in range(4):
        for of, values in drawn.items():
            ones = sum(int(value) >> bit & 1 for value in values)
            assert monitor.tally[f"count bit {bit} of the {of}"] == (50, ones, 25)
    expected = [monitor.tally[f"count beyond {tail} deviations"][2] / 50 for tail in (2, 3, 4, 5)]
    assert expected == pytest.approx([0.0455, 0.0027, 6.33e-5, 5.73e-7], rel=1e-2)


def test_cells_beyond_the_most_are_said_to_be_unread() -> None:
    """A partial look is told."""
    monitor = NoiseMonitor()
    _observe(monitor, CELLS + 5)
    assert monitor.tally.cells == CELLS and monitor.tally["unread beyond"] == (5.0,)


def test_empty_and_single_cells() -> None:
    """No cell adds nothing, one cell has no neighbour."""
    monitor = NoiseMonitor()
    _observe(monitor, 0)
    assert monitor.tally.cells == 0 and "unread error" not in monitor.tally
    _observe(monitor, 1)
    assert monitor.tally.cells == 1 and "unread error" not in monitor.tally


def test_a_fault_inside_stops_no_answer_and_is_counted() -> None:
    """Arrays that do not fit are unread."""
    monitor, priced = NoiseMonitor(), _priced(3)
    monitor.observe("a kind", "", priced, {"sums": np.zeros(3)}, {})
    assert monitor.tally == {"unread error": (1.0,)}


def test_sums_of_all_runs_are_kept_beside_the_ledger(tmp_path: Path) -> None:
    """Two processes add up; the file is the owner's alone, and no other data set's."""
    ledger = tmp_path / "clinic.db"
    assert read_tally(ledger, "clinic") == {}
    for seed in (1, 2):
        monitor = NoiseMonitor(ledger, "clinic", b"secret")
        _observe(monitor, seed=seed)
        monitor.close()
    assert read_tally(ledger, "clinic").cells == 100
    assert (tmp_path / "clinic.noise").stat().st_mode & 0o077 == 0
    with pytest.raises(LedgerError, match="belongs to data set"):
        read_tally(ledger, "another")


def test_tallies_add_up() -> None:
    """Label by label."""
    both = NoiseSums({"score all": (1.0, 2.0, 3.0)}).add_all(
        {"score all": (1, 1, 1), "unread x": [2]}
    )
    assert both == {"score all": (2.0, 3.0, 4.0), "unread x": (2.0,)}


def test_other_owners_are_compared_by_question_and_size() -> None:
    """The first has nobody before it, another shape begins anew."""
    others, scores = OtherOwners(), np.ones(3)
    assert others.add(("q", "part"), scores) is None
    before = others.add(("q", "part"), 2 * scores)
    assert before is not None and before.tolist() == [1, 1, 1]
    again = others.add(("q", "part"), scores)
    assert again is not None and again.tolist() == [3, 3, 3]
    assert others.add(("q", "part"), np.ones(4)) is None
    assert others.add(("r", "part"), scores) is None
