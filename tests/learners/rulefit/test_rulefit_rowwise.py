"""A record's clipped gradient is its own: whatever else the table holds, and wherever it stands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.queries import Gradient
from privfed.learners.rulefit.rules import Terms
from privfed.query import View
from privfed.records import Records
from privfed.schema import Column, Schema

SCHEMA = Schema(
    (Column("a", "number", 0, 1), Column("b", "number", 0, 1)), Column("y", "integer", 0, 1)
)
BOXES = np.array([[[0, 1], [0, 2]], [[0, 2], [1, 2]], [[0, 2], [0, 2]]], np.uint8)
CUTOFFS = Cutoffs(((0.5,), (0.5,)), np.zeros(2), np.ones(2), np.array([0.3, 0.3]))
TERMS = Terms(CUTOFFS, BOXES, (0, 1))


def _sums(query: Gradient, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(query.evaluate(View(Records(SCHEMA, x, y), SCHEMA))["gradient"])


@pytest.mark.parametrize("logistic", [True, False])
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 40), magnitude=st.integers(0, 4))
def test_the_sum_is_that_of_each_record_alone(
    logistic: bool, seed: int, size: int, magnitude: int
) -> None:
    """Even where scores cancel to their last bits, no record's part depends on another's presence."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((size, 2)), (rng.random(size) < 0.5).astype(float)
    weights = rng.normal(size=1 + len(TERMS)) * 10.0**magnitude
    weights[0] -= TERMS.design(x[:1])[0] @ weights  # the first record's score all but cancels
    query = Gradient(TERMS, weights, np.ones(1 + len(TERMS)), 2.0**10, logistic)
    query.parts(SCHEMA)
    alone = sum(_sums(query, x[[row]], y[[row]]) for row in range(size))
    assert np.array_equal(_sums(query, x, y), alone)
