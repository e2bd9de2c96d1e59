"""The private engine's model as an exact forest: one tree per column, and the random trees.

A linear term has values at the shared thresholds only, so a column's linear term and bins are one tree. Trees add up to
the score, as in gradient boosting; the first tree includes the intercept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from privfed.errors import InputError
from privfed.learners.forest.columns import single
from privfed.learners.private import PrivateModel
from privfed.learners.private.grid import BinEdges
from privfed.questions.tree import Tree

if TYPE_CHECKING:  # importing takes a second, needed only for scikit-learn's form
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
    from sklearn.tree import DecisionTreeRegressor


@dataclass(frozen=True, eq=False)
class AdditiveTree:
    """One tree's contribution to the scores."""

    tree: Tree  #: splits, ``x < cut`` to the left
    values: np.ndarray  #: by node, zero at splits; shape (nodes, outputs)
    shares: np.ndarray  #: fraction of the synthetic records by node, shape (nodes,)

    @cached_property
    def variances(self) -> np.ndarray:
        """Variances of the values below each node, over synthetic records, shape (nodes, outputs)."""
        fractions = self.shares[:, None]
        sums, squares = fractions * self.values, fractions * self.values**2
        for node in np.flatnonzero(self.tree.feature >= 0)[::-1]:  # children come after their node
            children = self.tree.children[node, :2]
            sums[node], squares[node] = sums[children].sum(axis=0), squares[children].sum(axis=0)
        totals = np.maximum(fractions, 1e-300)
        return np.asarray(np.maximum(squares / totals - (sums / totals) ** 2, 0))

    def explained(self, features: int) -> np.ndarray:
        """Return the variance decrease by feature, as in scikit-learn's importances; shape (features,)."""
        inner = np.flatnonzero(self.tree.feature >= 0)
        within = (self.shares[:, None] * self.variances).sum(axis=1)
        decrease = within[inner] - within[self.tree.children[inner, :2]].sum(axis=1)
        return np.bincount(self.tree.feature[inner], decrease, minlength=features)


class _TreeBuilder:
    """Nodes so far, one row each: feature, cut, left, right, values, share."""

    def __init__(self, outputs: int) -> None:
        self.rows: list[tuple[int, float, int, int]] = []
        self.values: list[np.ndarray] = []
        self.shares: list[float] = []
        self.nothing = np.zeros(outputs)

    def leaf(self, values: np.ndarray, fraction: float) -> int:
        self.rows.append((-1, 0.0, -1, -1))
        self.values.append(values)
        self.shares.append(fraction)
        return len(self.rows) - 1

    def open(self) -> int:
        return self.leaf(self.nothing, 0.0)

    def split(self, node: int, feature: int, cut: float, left: int, right: int) -> int:
        self.rows[node] = (feature, cut, left, right)
        self.shares[node] = self.shares[left] + self.shares[right]
        return node

    def done(self) -> AdditiveTree:
        feature, cut, left, right = (np.array(column) for column in zip(*self.rows, strict=True))
        tree = Tree.binary(feature, cut, left, right)
        return AdditiveTree(tree, np.array(self.values), np.array(self.shares))


def trees_of(model: PrivateModel) -> tuple[AdditiveTree, ...]:
    """Return all trees of a model, whose sum is :meth:`.PrivateModel.scores` up to rounding."""
    columns = (
        _column_tree(j, *model.steps(j), model.shares[j]) for j in range(len(model.schema.features))
    )
    means = np.split(model.means, model.basis.starts[model.basis.columns :])[1:]
    leaves = (_level_tree(*levels, mean) for levels, mean in zip(model.trees(), means, strict=True))
    first, *rest = [*columns, *leaves]
    inner = first.tree.feature >= 0
    values = np.where(inner[:, None], 0.0, first.values + model.start)
    return AdditiveTree(first.tree, values, first.shares), *rest


def values_of(model: PrivateModel) -> list[np.ndarray]:
    """Return each tree's node values, shape (nodes, outputs): of classes' scores, or of a number in its unit."""
    trees = trees_of(model)
    if model.outcome.kind != "number":
        return [tree.values for tree in trees]
    low, high = model.outcome.lower, model.outcome.upper
    scaled = [tree.values * (high - low) for tree in trees]
    scaled[0] = np.where(trees[0].tree.feature[:, None] < 0, scaled[0] + (low + high) / 2, 0.0)
    return scaled


def _column_tree(
    column: int, cuts: np.ndarray, heights: np.ndarray, fractions: np.ndarray
) -> AdditiveTree:
    """Build a balanced tree over one column, merging intervals of equal height."""
    kept = np.flatnonzero((heights[1:] != heights[:-1]).any(axis=1))
    fractions = np.add.reduceat(fractions[: len(heights)], np.concatenate([[0], kept + 1]))
    cuts, heights = cuts[kept], np.concatenate([heights[:1], heights[1:][kept]])
    builder = _TreeBuilder(heights.shape[1])

    def build(low: int, high: int) -> int:
        if low == high:
            return builder.leaf(heights[low], float(fractions[low]))
        node, middle = builder.open(), (low + high) // 2
        left, right = build(low, middle), build(middle + 1, high)
        return builder.split(node, column, float(cuts[middle]), left, right)

    build(0, len(cuts))
    return builder.done()


def _level_tree(
    features: np.ndarray, cuts: np.ndarray, leaves: np.ndarray, fractions: np.ndarray
) -> AdditiveTree:
    """Build a tree whose nodes of one level share their split, without unreachable branches."""
    builder = _TreeBuilder(leaves.shape[1])

    def build(level: int, leaf: int, spans: dict[int, tuple[float, float]]) -> int:
        if level == len(features):
            return builder.leaf(leaves[leaf], float(fractions[leaf]))
        feature, cut = int(features[level]), float(cuts[level])
        low, high = spans.get(feature, (-np.inf, np.inf))
        bit = 1 << level
        if cut <= low:
            return build(level + 1, leaf | bit, spans)
        if cut >= high:
            return build(level + 1, leaf, spans)
        node = builder.open()
        left = build(level + 1, leaf, spans | {feature: (low, cut)})
        right = build(level + 1, leaf | bit, spans | {feature: (cut, high)})
        return builder.split(node, feature, cut, left, right)

    build(0, 0, {})
    return builder.done()


def to_sklearn(
    model: PrivateModel, classes: np.ndarray
) -> GradientBoostingClassifier | GradientBoostingRegressor:
    """Convert to scikit-learn's gradient boosting, for rows of :func:`single_apart`; numbers are not clipped to their limits."""
    _check_apart(model)
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    number, features = model.outcome.kind == "number", len(model.schema.features)
    kind = GradientBoostingRegressor if number else GradientBoostingClassifier
    n_rows = max(2, len(classes))
    ensemble = kind(n_estimators=1, max_depth=1, learning_rate=1.0)
    target = np.zeros(n_rows) if number else np.arange(n_rows)  # initial scores of zero
    ensemble.fit(np.zeros((n_rows, features)), target)
    if not number:
        ensemble.classes_ = classes
    trees, values = trees_of(model), values_of(model)
    unit = model.outcome.upper - model.outcome.lower if number else 1.0
    ensemble.estimators_ = np.array(
        [
            list(_regressors(tree, v, unit**2, features))
            for tree, v in zip(trees, values, strict=True)
        ],
        dtype=object,
    )
    ensemble.n_estimators = ensemble.n_estimators_ = len(trees)
    return ensemble


def single_apart(X: np.ndarray, grid: BinEdges) -> np.ndarray:
    """Return encoded rows as the nearest 32-bit floats on the same side of every threshold."""
    rounded, codes = single(X), grid.codes(X).T.astype(int)
    step = np.sign(codes - grid.codes(rounded.astype(float)).T)
    return np.where(
        step, np.nextafter(rounded, np.where(step > 0, np.inf, -np.inf).astype(np.float32)), rounded
    )


def _check_apart(model: PrivateModel) -> None:
    """Raise InputError unless a 32-bit float lies between any two thresholds."""
    for column, cuts in zip(model.schema.features, model.basis.grid.cuts, strict=True):
        ends = np.array([*cuts, np.inf])
        with np.errstate(over="ignore"):
            above = ends[:-1].astype(np.float32)
        above = np.where(above < ends[:-1], np.nextafter(above, np.float32(np.inf)), above)
        if not (above < ends[1:]).all():
            low = column.bounds[0]
            raise InputError(
                f"scikit-learn's trees split by 32-bit floats, and none lies between two thresholds of {column.name!r}; "
                f"subtract a public number first, {low:.15g} say, from values and bounds, and learn again"
            )


def _regressors(
    additive: AdditiveTree, values: np.ndarray, unit: float, features: int
) -> Iterator[DecisionTreeRegressor]:
    """Yield a scikit-learn regression tree for each output; impurities are variances times ``unit``."""
    from sklearn.tree import DecisionTreeRegressor
    from sklearn.tree._tree import NODE_DTYPE
    from sklearn.tree._tree import Tree as ArrayTree

    tree = additive.tree
    inner, count = tree.feature >= 0, len(tree.feature)
    nodes = np.zeros(count, NODE_DTYPE)
    nodes["left_child"], nodes["right_child"] = tree.children[:, :2].T
    nodes["feature"] = np.where(inner, tree.feature, -2)
    nodes["threshold"] = np.where(inner, np.nextafter(tree.cuts[:, 0], -np.inf), -2.0)
    nodes["n_node_samples"], nodes["weighted_n_node_samples"] = 1, additive.shares
    for output, variance in zip(values.T, additive.variances.T, strict=True):
        nodes["impurity"] = unit * variance
        array_tree = ArrayTree(features, np.array([1], dtype=np.intp), 1)
        state = {"max_depth": tree.depth, "node_count": count, "nodes": nodes.copy()}
        array_tree.__setstate__({**state, "values": np.ascontiguousarray(output.reshape(-1, 1, 1))})
        regressor = DecisionTreeRegressor(max_depth=max(tree.depth, 1))
        regressor.tree_, regressor.n_features_in_, regressor.n_outputs_ = array_tree, features, 1
        regressor.max_features_ = features
        yield regressor
