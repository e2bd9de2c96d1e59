"""Records come back from equations of cells that share them, and nothing is claimed of full ones."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.attacks.joint_equations import joint_records, sharing
from privfed.errors import InputError

RNG = np.random.default_rng(0)
RECORDS = np.column_stack([np.ones(6), RNG.uniform(-0.5, 0.5, (6, 5))])


def gram(*members: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The equations of a cell."""
    rows = RECORDS[list(members)]
    return np.asarray((rows * (1.0 if weights is None else weights[:, None])).T @ rows)


def same(found: np.ndarray, *members: int) -> bool:
    """Whether just these records were found."""
    off = np.abs(found[:, None] - RECORDS[list(members)][None]).max(axis=2)
    return len(found) == len(members) and bool((off.min(axis=0) < 1e-6).all())


def test_one_record_alone_is_read_off() -> None:
    """Of any weight."""
    assert same(joint_records(gram(2)[None] * 0.3), 2)


def test_overlapping_cells_give_all_their_records() -> None:
    """Records 0 and 1 in one study's cell, 1 and 2 in another's: all three follow, and none from one."""
    assert same(joint_records(np.array([gram(0, 1), gram(1, 2)])), 0, 1, 2)
    assert len(joint_records(gram(0, 1)[None])) == 0


def test_fuzzy_cells_give_records_by_their_weights() -> None:
    """The same four records in two cells, weighed differently."""
    light, heavy = RNG.uniform(0.1, 1, (2, 4))
    cells = np.array([gram(0, 1, 2, 3, weights=each) for each in (light, heavy)])
    assert same(joint_records(cells), 0, 1, 2, 3)


def test_as_many_records_as_columns_give_nothing() -> None:
    """And neither do records of the same weights everywhere, nor empty cells."""
    light, heavy = RNG.uniform(0.1, 1, (2, 6))
    cells = np.array([gram(*range(6), weights=each) for each in (light, heavy)])
    assert len(joint_records(cells)) == 0
    assert len(joint_records(np.array([gram(0, 1), gram(0, 1)]))) == 0
    assert len(joint_records(np.zeros((2, 3, 3)))) == 0


def test_three_cells_that_no_records_explain_are_not_claimed() -> None:
    """Random matrices of low rank are not diagonal together."""
    low = RNG.normal(size=(6, 3))
    cells = [low @ (m @ m.T) @ low.T for m in RNG.normal(size=(3, 3, 3))]
    assert len(joint_records(np.array(cells))) == 0


def test_cells_that_share_records_are_found() -> None:
    """A single one, the pair that overlaps, and no pair that does not."""
    cells = np.array([gram(0, 1), gram(1, 2), gram(3), gram(*range(6))])
    assert [group.tolist() for group in sharing(cells)] == [[2], [0, 1]]


def test_foreign_equations() -> None:
    """One clear error."""
    for wrong in (np.ones((2, 3)), np.ones((1, 2, 3)), np.full((1, 2, 2), np.nan)):
        with pytest.raises(InputError, match="normal equations"):
            joint_records(wrong)
