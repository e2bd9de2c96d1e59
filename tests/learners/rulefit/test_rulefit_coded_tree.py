"""Trees over cut-off codes: scikit-learn's own, node by node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from privfed.learners.rulefit.boosting import CodedTree, Growing

SIZES = np.array([6, 21, 2, 9])


def data(seed: int, records: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Codes of four covariates, some codes absent, and a target without ties."""
    rng = np.random.default_rng(seed)
    codes = (rng.uniform(size=(records, 4)) ** 2 * SIZES).astype(np.uint8)
    codes[codes == 4] = 3
    signal = (codes[:, 0] >= 3) * 1.0 + (codes[:, 1] < 4) * (codes[:, 2] == 1)
    return codes, signal + rng.normal(size=records)


def grown(codes: np.ndarray, target: np.ndarray, leaves: int, least: int) -> CodedTree:
    """A tree whose ties go to the covariates in their order."""
    return Growing(codes, target, least, np.arange(codes.shape[1])).tree(leaves)


def inside(box: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which records lie in a box, the naive way."""
    held: np.ndarray = np.all((codes >= box[:, 0]) & (codes < box[:, 1]), axis=1)
    return held


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.sampled_from([1, 5, 40]))
def test_nodes_are_those_of_scikit_learn(seed: int, leaves: int, least: int) -> None:
    """The same records, cut midway between the codes that occur, and the same values.

    Where leaves of one record are allowed, covariates tie that set the same one apart: which is taken
    then is rounding's to say, and codes that do not occur are not compared.
    """
    codes, target = data(seed)
    peer = DecisionTreeRegressor(max_leaf_nodes=leaves, min_samples_leaf=least).fit(codes, target)
    own = grown(codes, target, leaves, least)
    passed = peer.decision_path(codes.astype(np.float32)).toarray().astype(bool).T[1:]
    held = np.array([inside(box, codes) for box in own.boxes(SIZES)]).reshape(-1, len(codes))
    assert sorted(map(bytes, held)) == sorted(map(bytes, passed))
    assert own.predict(codes.T) == pytest.approx(peer.predict(codes))
    if least > 1:
        every = np.stack([axis.ravel() for axis in np.meshgrid(*map(np.arange, SIZES))])
        assert own.predict(every) == pytest.approx(peer.predict(every.T))


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_ties_go_to_the_first_of_the_order(order: list[int]) -> None:
    """Of two covariates that tell the same, the one that stands first."""
    codes = np.repeat(np.array([[0, 0], [1, 3]], np.uint8), 10, axis=0)
    target = np.repeat([0.0, 1.0], 10)
    tree = Growing(codes, target, 1, np.array(order)).tree(4)
    assert [split.feature for split in tree.splits] == order[:1]
    assert [split.cut for split in tree.splits] == [[1], [2]][order[0]]


def test_nothing_is_split_that_explains_nothing() -> None:
    """A constant target, constant covariates, too few records for two leaves."""
    codes, target = data(0, 40)
    assert not grown(codes, np.full(40, 1 / 3), 8, 1).splits
    assert not grown(np.zeros_like(codes), target, 8, 1).splits
    assert not grown(codes, target, 8, 21).splits
