"""What a client learns alone: depths by cross-validation, its tree, its votes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.metrics import f1_score, r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privfed.learners.genetic_tree import local

DEPTHS = range(2, 8)


def _records(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(200, 3))
    signal = x[:, 0] * x[:, 1] + x[:, 2]
    y = np.digitize(signal, np.linspace(-1, 1, classes - 1)) if classes else signal
    return x, y


@pytest.mark.parametrize("classes", [0, 3])
def test_one_deep_tree_tells_all_depths(classes: int) -> None:
    """The scores are those of a tree grown to each depth by itself, whatever its own deeper growth."""
    x, y = _records(classes)
    parts = local.folds(np.random.default_rng(0).permutation(200), 5)
    found = local.depth_scores(x, y, classes, parts, DEPTHS)
    kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
    for fold, held in enumerate(parts):
        rest = np.setdiff1d(np.arange(200), held)
        for column, depth in enumerate(DEPTHS):
            said = kind(max_depth=depth, random_state=0).fit(x[rest], y[rest]).predict(x[held])
            expected = (
                f1_score(y[held], said, average="macro", zero_division=0)
                if classes
                else r2_score(y[held], said)
            )
            assert found[fold, column] == pytest.approx(expected, abs=0.1)
    assert np.ptp(found) > 0.2


def test_a_whole_tree_predicts_as_scikit_learn_does() -> None:
    """Class codes, or means, of the leaves."""
    for classes in (0, 3):
        x, y = _records(classes)
        kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
        said = kind(max_depth=5, random_state=0).fit(x, y).predict(x)
        assert local.predictions(local.cart(x, y, classes, 5), x) == pytest.approx(said)


def test_a_class_that_a_client_lacks_has_no_share() -> None:
    """The columns are the schema's classes, not those that the client happens to have."""
    x = np.arange(4.0)[:, None]
    values = local.cart(x, np.array([0, 0, 2, 2]), 3, 2)["values"]
    assert values.shape[1] == 3
    assert not values[:, 1].any()


def test_too_few_records_give_the_least_depth() -> None:
    """One record, or none, cannot be cross-validated; two can."""
    for count in (0, 1):
        parts = local.folds(np.arange(count), 5)
        scores = local.depth_scores(np.zeros((count, 2)), np.zeros(count), 2, parts, DEPTHS)
        assert local.best_depth(scores, DEPTHS) == 2
    parts = local.folds(np.arange(2), 5)
    assert local.depth_scores(np.zeros((2, 2)), np.array([0, 1]), 2, parts, DEPTHS).shape == (2, 6)
    assert (local.structure(np.zeros((0, 2)), np.zeros(0), 2, 3) == -1).all()


def test_votes_follow_the_paper_s_thresholds() -> None:
    """Steady over folds and rising with depth: all records. Targets mostly distinct: elitism."""
    rule = local.VoteThresholds()
    steady = np.array([[0.5, 0.6, 0.7], [0.5, 0.6, 0.7]])
    flat = np.array([[0.7, 0.7, 0.7], [0.7, 0.7, 0.7]])
    noisy = np.array([[0.1, 0.2, 0.3], [0.5, 0.7, 0.9]])
    few, many = np.repeat(np.arange(5.0), 2), np.arange(10.0)
    assert local.vote(steady, many, 2, rule) == (True, True)
    assert local.vote(flat, few, 2, rule) == (False, False)
    assert local.vote(noisy, many, 2, rule) == (False, True)
    assert local.vote(np.zeros((0, 3)), many, 2, rule) == (False, True)


def test_a_constant_target_scores_nothing() -> None:
    """R squared of a target without spread is 0, and no vote divides by 0."""
    parts = local.folds(np.arange(10), 5)
    scores = local.depth_scores(np.zeros((10, 1)), np.ones(10), 0, parts, DEPTHS)
    assert not scores.any()
    assert local.vote(scores, np.ones(10), 0, local.VoteThresholds()) == (False, False)


@pytest.mark.parametrize("classes", [0, 2])
def test_every_tree_breaks_ties_as_one_of_seed_0(classes: int) -> None:
    """Of equal columns, trees before it change nothing, in any thread."""
    rng = np.random.default_rng(5)
    X = np.repeat(rng.normal(size=(60, 2)).round(1), 3, axis=1)
    y = rng.integers(0, 2, 60) if classes else rng.normal(size=60)
    kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
    wanted = kind(max_depth=4, random_state=0).fit(X.astype(np.float32), y).tree_
    with ThreadPoolExecutor(2) as pool:
        for nodes in pool.map(lambda _: local.cart(X, y, classes, 4), range(6)):
            assert np.array_equal(nodes["feature"], np.maximum(wanted.feature, -1))
            assert np.array_equal(nodes["cut"], wanted.threshold)
