"""Sums by cell: any rules over any records give what the whole design matrix gives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.rulefit import design as module
from privfed.learners.rulefit import grids as putting
from privfed.learners.rulefit.averaging import Centred, residuals, sigmoid
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.design import CentredOperator, DesignOperator
from privfed.learners.rulefit.grids import Lone, grids_of
from privfed.learners.rulefit.rules import Terms


@pytest.fixture(autouse=True)
def _put_together_anew() -> Iterator[None]:
    """Grids of another size are not remembered from one test to the next."""
    putting._grids.cache_clear()
    yield
    putting._grids.cache_clear()


def drawn(seed: int, rules: int) -> tuple[Terms, np.ndarray]:
    """Random boxes over three covariates, some of them open on all sides, and random records."""
    rng = np.random.default_rng(seed)
    cuts = tuple(tuple(np.sort(rng.uniform(size=size)).tolist()) for size in (9, 4, 0))
    ends = np.ones(3)
    cutoffs = Cutoffs(cuts, 0 * ends, ends, ends)
    low = rng.integers(0, cutoffs.sizes, (rules, 3)) * (rng.random((rules, 3)) < 0.5)
    high = rng.integers(low + 1, cutoffs.sizes + 1)
    high = np.where(rng.random((rules, 3)) < 0.5, cutoffs.sizes, high)
    beyond = rng.integers(0, 12, (rules, 3)) * (rng.random((rules, 3)) < 0.1)  # a stranger's boxes
    boxes = np.stack([low + beyond, high + beyond], axis=-1).astype(np.uint8)
    return Terms(cutoffs, boxes, (0, 2)), rng.uniform(size=(rng.integers(0, 60), 3))


def whole(terms: Terms, x: np.ndarray) -> Centred:
    """The naive twin: the whole design matrix."""
    matrix = terms.design(x)
    means = np.concatenate([[0.0], np.linspace(-1, 1, matrix.shape[1] - 1)])
    return Centred(matrix, means)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rules=st.integers(0, 40),
    most=st.sampled_from([1, 7, 40, 4096]),
    logistic=st.booleans(),
)
def test_gradients_are_those_of_the_design_matrix(
    seed: int, rules: int, most: int, logistic: bool
) -> None:
    """Whatever the rules, how many of them share a grid, and the blocks of records."""
    terms, x = drawn(seed, rules)
    rng, twin = np.random.default_rng(seed), whole(terms, x)
    weights = np.asarray(rng.normal(size=1 + len(terms)))
    target = np.asarray(rng.uniform(size=len(x)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(putting, "LEAST_CELLS", most)
        patch.setattr(putting, "OPEN", 3)
        patch.setattr(module, "BLOCK", 40)
        patch.setattr(module, "KEPT", 80)
        putting._grids.cache_clear()
        own = CentredOperator(DesignOperator(terms, x), twin.means)
        for _ in range(2):  # the second time some blocks are kept
            found = own.gradient(target, weights, logistic)
            assert found == pytest.approx(twin.gradient(target, weights, logistic), abs=1e-11)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([1, 7, 40, 4096]))
def test_runs_of_cells_hold_exactly_the_records_of_their_rule(
    seed: int, rules: int, most: int
) -> None:
    """A record's cells lie in a rule's runs once if it satisfies the rule, and else never."""
    terms, x = drawn(seed, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(putting, "LEAST_CELLS", most)
        putting._grids.cache_clear()
        grids = grids_of(terms, 0)
    held = np.zeros((grids.size, rules))
    for rule in range(rules):
        held[:, rule] = grids.by_cell(np.arange(rules) == rule)
    cells = grids.cells(terms.cutoffs.codes(x))
    assert np.array_equal(held[cells].sum(axis=1), terms.rules(x).astype(float))
    sums = np.bincount(cells.ravel(), minlength=grids.size)
    assert np.array_equal(grids.by_rule(sums.astype(float)), terms.rules(x).sum(axis=0))


def test_rules_of_few_covariates_share_a_grid() -> None:
    """Forty rules need few numbers of a record, fewer where there are more records to share them."""
    terms, _ = drawn(1, 40)
    few, many = grids_of(terms, 100), grids_of(terms, 100_000)
    assert len(many.grids) < len(few.grids) < 10
    assert np.diff(few.starts).max() <= putting.LEAST_CELLS
    assert np.diff(many.starts).max() <= putting.MOST_CELLS


def test_a_rule_of_many_covariates_takes_two_cells() -> None:
    """Thirty conditions would make 3^30 cells; no client is worn out by them."""
    cutoffs = Cutoffs(((0.3, 0.6),) * 30, np.zeros(30), np.ones(30), np.ones(30))
    terms = Terms(cutoffs, np.tile(np.array([1, 2], np.uint8), (1, 30, 1)), ())
    (only,) = grids_of(terms, 1000).grids
    assert isinstance(only, Lone)
    x = np.full((2, 30), 0.5)
    x[1, 7] = 0.1
    assert np.array_equal(only.cells(cutoffs.codes(x)), [1, 0])


def test_chances_are_the_logistic_function() -> None:
    """To within rounding of a number below one, at scores of any size, without a warning."""
    scores = np.array([-1e308, -800.0, -40.0, -1.5, 0.0, 1e-9, 3.0, 40.0, 800.0, 1e308])
    with np.errstate(all="raise"):
        found = sigmoid(scores)
    exact = [0, 0, 4.248354255291589e-18, 0.18242552380635635, 0.5, 0.50000000025]
    assert found == pytest.approx([*exact, 0.9525741268224334, 1, 1, 1], abs=2**-53)
    assert residuals(np.ones(10), scores, True) == pytest.approx(1 - found, abs=2**-53)
