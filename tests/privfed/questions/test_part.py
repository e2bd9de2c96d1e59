"""Parts and their bounds: norms in whole units, units of privacy, the public grid."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import PolicyError, QueryError
from privfed.questions.part import GRID, Bound, Part, PartType, Sensitivity, on_grid


@pytest.mark.parametrize(
    ("l1", "l2_squared"), [(-1, 0), (0, -1), (1, 2), (float("nan"), 0), (1.5, 1), ("1", 1)]
)
def test_impossible_bounds(l1: object, l2_squared: object) -> None:
    """Negative, fractional, NaN and contradictory norms are refused."""
    with pytest.raises(QueryError) as caught:
        Bound(l1, l2_squared)  # type: ignore[arg-type]
    assert caught.value.reason == "malformed"


def test_numpy_norms_do_not_overflow() -> None:
    """A bound computed by numpy is squared without wrapping around."""
    large = int(np.int64(2**33))
    assert Bound(np.int64(2**33), np.int64(1)).times(2**33).l2_squared == 2**66  # type: ignore[arg-type]
    assert Sensitivity.of(large).add_or_remove.l2_squared == 2**66


@given(st.integers(0, 9), st.integers(1, 9))
def test_groups_of_one_are_the_record(l1: int, cap: int) -> None:
    """A person of one record is a record; the bound grows with the cap."""
    sensitivity = Sensitivity.of(l1)
    record = sensitivity.under("record", "add-or-remove", None)
    assert sensitivity.under("individual", "add-or-remove", 1) == record
    assert sensitivity.under("client", "add-or-remove", cap) == Bound(l1 * cap, (l1 * cap) ** 2)


def test_replacing_defaults_to_twice() -> None:
    """Without a tighter bound a replacement is a removal and an addition."""
    assert Sensitivity.of(3).under("record", "replace-one", None) == Bound(6, 36)
    tighter = Sensitivity(Bound(1, 1), Bound(2, 2))
    assert tighter.under("record", "replace-one", None) == Bound(2, 2)


def test_a_replaced_person_may_have_fewer_records() -> None:
    """The number of records never changes by replacing one, but it does by replacing a person."""
    number = Sensitivity(Bound(1, 1), replace_one=Bound(0, 0))
    assert number.under("individual", "replace-one", 3) == Bound(3, 9)


def test_what_bounds_one_individual_bounds_no_client() -> None:
    """A client may stand for many: it needs a cap, and its bound is that of so many records."""
    told = Sensitivity(Bound(5, 5), anything=Bound(1, 1))
    assert told.under("individual", "add-or-remove", None) == Bound(1, 1)
    assert told.under("client", "add-or-remove", 2) == Bound(10, 20)
    with pytest.raises(PolicyError, match="needs cap"):
        told.under("client", "add-or-remove", None)


@pytest.mark.parametrize("unit", ["individual", "client"])
def test_a_person_needs_a_cap(unit: str) -> None:
    """Nobody covers a person of any number of records."""
    with pytest.raises(PolicyError, match="needs cap"):
        Sensitivity.of(1).under(unit, "add-or-remove", None)  # type: ignore[arg-type]


def test_anything_holds_without_a_cap() -> None:
    """A local bound covers whatever the person holds, and is never loosened by a cap."""
    local = Sensitivity(Bound(5, 5), Bound(5, 5), anything=Bound(1, 1))
    assert local.under("individual", "replace-one", None) == Bound(1, 1)
    assert local.under("individual", "replace-one", 4) == Bound(1, 1)
    assert local.under("record", "replace-one", None) == Bound(5, 5)


def test_axes_name_every_size() -> None:
    """A part has a name for each axis."""
    with pytest.raises(QueryError, match="one axis name"):
        Part(PartType.COUNTS, ("node",), (2, 3))


def test_size_counts_cells() -> None:
    """Data-dependent sizes count as one."""
    assert Part(PartType.COUNTS, ("a", "b"), (4, 3)).size == 12
    assert Part(PartType.VALUES, ("a", "b"), (4, -1)).size == 4


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_grid_never_lengthens(values: list[float]) -> None:
    """Contributions become whole units, and no bound on the values is exceeded."""
    array = np.array(values)
    units = on_grid(array)
    assert np.array_equal(units, np.trunc(units))
    exactly = [abs(Fraction(value)) / GRID for value in values]
    assert all(abs(int(u)) <= e < abs(int(u)) + 1 for u, e in zip(units, exactly, strict=True))
