"""Sums by leaf: any rules over any records give what the whole design matrix gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.rulefit import design as module
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.design import Design, grids_of
from privfed.learners.rulefit.rules import Terms


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


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(0, 40), st.sampled_from([1, 7, 512]))
def test_scores_and_slopes_are_those_of_the_design_matrix(seed: int, rules: int, most: int) -> None:
    """Whatever the rules, the size of their grids, and the blocks of records."""
    terms, x = drawn(seed, rules)
    rng, matrix = np.random.default_rng(seed), terms.design(x)
    weights = np.asarray(rng.normal(size=matrix.shape[1]))
    residual = np.asarray(rng.normal(size=len(x)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CELLS", most)
        patch.setattr(module, "BLOCK", 40)
        patch.setattr(module, "KEPT", 80)
        module._grids.cache_clear()
        design = Design(terms, x)
        for _ in range(2):  # the second time some blocks are kept
            blocks = list(design.blocks())
            scores = [design.scores(block, weights) for block in blocks]
            slopes = [design.slope(block, residual[block.rows]) for block in blocks]
            assert np.concatenate([[0.0], *scores])[1:] == pytest.approx(matrix @ weights)
            assert sum(slopes, np.zeros(len(weights))) == pytest.approx(residual @ matrix)
        module._grids.cache_clear()


def test_rules_of_the_same_covariates_share_a_grid() -> None:
    """Forty rules need few numbers of a record, and no grid has more cells than it may."""
    terms, _ = drawn(1, 40)
    grids = grids_of(terms)
    assert len(grids.grids) < 10
    assert np.diff(grids.starts).max() <= module.CELLS
