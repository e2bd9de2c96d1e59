"""A client's local learning: its own CART tree (truncated at j, it is the tree of depth j), and votes."""

import threading
from dataclasses import dataclass

import numpy as np
from sklearn import config_context

from privfed.learners.genetic_tree.fitness import macro_f1
from privfed.learners.genetic_tree.structures import DEEPEST, NIL, length, of_tree


@dataclass(frozen=True)
class VoteThresholds:
    """Thresholds of the clients' votes (paper, Eqs. 1 and 2, Table II)."""

    noise: float = 0.25  #: phi*, upper, of the scores' coefficient of variation over folds
    complexity: float = 0.02  #: theta*, lower, of the mean score's variation over depths
    distinct: float = 0.8  #: mu*, lower, of the fraction of distinct targets


def cart(
    X: np.ndarray, y: np.ndarray, classes: int, depth: int, expected: np.ndarray | None = None
) -> np.ndarray:
    """Return the nodes of a CART tree, root first.

    Args:
        X: shape (records, features).
        y: class codes or numbers.
        classes: number of classes; 0 for numbers.
        depth: of the tree.
        expected: each record's expected values, to be averaged over nodes; shape (records,
            values).

    Returns:
        a structured array: feature (-1 at leaves), left, right, cut (up to it goes left), size (in
        records), values (class fractions, or a mean), and expected, 0 if not given.
    """
    # not at the top: it would double the time of importing this learner, as for a price
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
    X = np.ascontiguousarray(X, dtype=np.float32)
    with config_context(skip_parameter_validation=True):  # validation takes as long as a small tree
        model = kind(max_depth=depth, random_state=_seeded()).fit(X, y, check_input=False)
    tree = model.tree_
    numbers = [("feature", int), ("left", int), ("right", int), ("cut", float), ("size", int)]
    values = [(name, float, (classes or 1,)) for name in ("values", "expected")]
    nodes = np.zeros(tree.node_count, [*numbers, *values])
    nodes["feature"], nodes["cut"] = np.maximum(tree.feature, -1), tree.threshold
    nodes["left"], nodes["right"] = tree.children_left, tree.children_right
    columns = model.classes_.astype(int) if classes else [0]
    nodes["size"], nodes["values"][:, columns] = tree.n_node_samples, tree.value[:, 0]
    if expected is not None:
        nodes["expected"] = tree.decision_path(X).T @ expected / nodes["size"][:, None]
    return nodes


_GENERATORS = threading.local()


def _seeded() -> np.random.RandomState:
    """Return this thread's generator, as seeded with 0: a new one takes a third of a small tree's time."""
    if not hasattr(_GENERATORS, "one"):
        _GENERATORS.one = np.random.RandomState(0)
        _GENERATORS.state = _GENERATORS.one.get_state()
    generator: np.random.RandomState = _GENERATORS.one
    generator.set_state(_GENERATORS.state)
    return generator


def structure(X: np.ndarray, y: np.ndarray, classes: int, depth: int) -> np.ndarray:
    """Return the string of a client's own tree; all nil without records, shape (2^depth - 1,)."""
    if not len(y):
        return np.full(length(depth), NIL, dtype=np.int16)
    nodes = cart(X, y, classes, depth)
    return of_tree(nodes["feature"], nodes["left"], nodes["right"], depth)


def folds(order: np.ndarray, count: int) -> list[np.ndarray]:
    """Divide records into folds by a secret order; fewer than requested for few records."""
    return [np.sort(order[number::count]) for number in range(min(count, len(order)))]


def depth_scores(
    X: np.ndarray, y: np.ndarray, classes: int, parts: list[np.ndarray], depths: range
) -> np.ndarray:
    """Return cross-validated macro F1 or R^2 of own trees, shape (folds, depths); no rows below two folds.

    Args:
        X, y, classes: as for :func:`cart`.
        parts: record numbers of each fold.
        depths: to try, increasing.
    """
    if len(parts) < 2:
        return np.zeros((0, len(depths)))
    rows = []
    for fold in parts:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        nodes = cart(X[rest], y[rest], classes, depths[-1])
        by_depth = labels(nodes["values"])[reached_by_depth(nodes, X[fold], depths)]
        rows.append([_score(y[fold], predicted, classes) for predicted in by_depth])
    return np.array(rows)


def predictions(nodes: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return predictions of a whole tree, at most as deep as strings, shape (rows,)."""
    return labels(nodes["values"][reached_by_depth(nodes, X, range(DEEPEST, DEEPEST + 1))[0]])


def reached_by_depth(nodes: np.ndarray, X: np.ndarray, depths: range) -> np.ndarray:
    """Return the nodes that rows reach at each of some increasing depths from 1; shape (depths, rows)."""
    current, by_depth, rows = np.zeros(len(X), dtype=int), [], np.arange(len(X))
    for depth in range(1, depths[-1] + 1):
        feature = nodes["feature"][current]
        inner = feature >= 0
        if inner.any():
            low = X[rows, np.maximum(feature, 0)].astype(np.float32) <= nodes["cut"][current]
            below = np.where(low, nodes["left"][current], nodes["right"][current])
            current = np.where(inner, below, current)
        if depth in depths:
            by_depth.append(current)
    return np.array(by_depth)


def labels(values: np.ndarray) -> np.ndarray:
    """Return the first class with the maximum value along the last axis; a single value is a number."""
    return np.asarray(values.argmax(axis=-1) if values.shape[-1] > 1 else values[..., 0])


def f1(true: np.ndarray, predicted: np.ndarray, classes: int) -> float:
    """Return macro F1 of predicted class codes."""
    cells = np.bincount(true.astype(int) * classes + predicted.astype(int), minlength=classes**2)
    return float(macro_f1(cells.reshape(1, classes, classes).astype(float))[0])


def _score(true: np.ndarray, predicted: np.ndarray, classes: int) -> float:
    if classes:
        return f1(true, predicted, classes)
    total = float(((true - true.mean()) ** 2).sum())
    return 1 - float(((true - predicted) ** 2).sum()) / total if total > 0 else 0.0


def best_depth(scores: np.ndarray, depths: range) -> int:
    """Return the depth of the best mean score; ties, or no scores: the smallest."""
    return depths[int(scores.mean(axis=0).argmax())] if len(scores) else depths[0]


def vote(scores: np.ndarray, y: np.ndarray, index: int, rule: VoteThresholds) -> tuple[bool, bool]:
    """Vote on scoring candidates on all records, and on keeping the clients' own structures.

    Args:
        scores: R^2 of each fold and depth, shape (folds, depths).
        y: the target.
        index: of the federation's depth.
    """
    elitism = len(np.unique(y)) > rule.distinct * len(y)
    if not len(scores):
        return False, elitism
    over_folds = _variation(scores[:, index])
    over_depths = float(np.mean([_variation(row) for row in scores]))
    return over_folds < rule.noise and over_depths > rule.complexity, elitism


def _variation(values: np.ndarray) -> float:
    """Return the coefficient of variation; infinite if the mean is 0."""
    mean = abs(float(values.mean()))
    return float(values.std()) / mean if mean > 0 else float("inf")
