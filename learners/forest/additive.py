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
        shares = self.shares[:, None]
        sums, squares = shares * self.values, shares * self.values**2
        for node in np.flatnonzero(self.tree.feature >= 0)[::-1]:  # children come after their node
            below = self.tree.children[node, :2]
            sums[node], squares[node] = sums[below].sum(axis=0), squares[below].sum(axis=0)
        held = np.maximum(shares, 1e-300)
        return np.asarray(np.maximum(squares / held - (sums / held) ** 2, 0))

    def explained(self, features: int) -> np.ndarray:
        """Return the variance decrease by feature, as in scikit-learn's importances; shape (features,)."""
        inner = np.flatnonzero(self.tree.feature >= 0)
        within = (self.shares[:, None] * self.variances).sum(axis=1)
        less = within[inner] - within[self.tree.children[inner, :2]].sum(axis=1)
        return np.bincount(self.tree.feature[inner], less, minlength=features)


class _Grown:
    """Nodes so far, one row each: feature, cut, left, right, values, share."""

    def __init__(self, outputs: int) -> None:
        self.rows: list[tuple[int, float, int, int]] = []
        self.values: list[np.ndarray] = []
        self.shares: list[float] = []
        self.nothing = np.zeros(outputs)

    def leaf(self, values: np.ndarray, share: float) -> int:
        self.rows.append((-1, 0.0, -1, -1))
        self.values.append(values)
        self.shares.append(share)
        return len(self.rows) - 1

    def open(self) -> int:
        return self.leaf(self.nothing, 0.0)

    def split(self, node: int, feature: int, cut: float, left: int, right: int) -> int:
        self.rows[node] = (feature, cut, left, right)
        self.shares[node] = self.shares[left] + self.shares[right]
        return node

    def done(self) -> AdditiveTree:
        feature, cut, left, right = (np.array(each) for each in zip(*self.rows, strict=True))
        tree = Tree.binary(feature, cut, left, right)
        return AdditiveTree(tree, np.array(self.values), np.array(self.shares))


def trees_of(model: PrivateModel) -> tuple[AdditiveTree, ...]:
    """Return all trees of a model, whose sum is :meth:`.PrivateModel.scores` up to rounding."""
    columns = (
        _of_column(j, *model.steps(j), model.shares[j]) for j in range(len(model.schema.features))
    )
    held = np.split(model.means, model.basis.starts[model.basis.columns :])[1:]
    leaves = (_of_levels(*own, shares) for own, shares in zip(model.trees(), held, strict=True))
    first, *rest = [*columns, *leaves]
    inner = first.tree.feature >= 0
    values = np.where(inner[:, None], 0.0, first.values + model.start)
    return AdditiveTree(first.tree, values, first.shares), *rest


def values_of(model: PrivateModel) -> list[np.ndarray]:
    """Return each tree's node values, shape (nodes, outputs): of classes' scores, or of a number in its unit."""
    trees = trees_of(model)
    if model.outcome.kind != "number":
        return [own.values for own in trees]
    low, high = model.outcome.lower, model.outcome.upper
    moved = [own.values * (high - low) for own in trees]
    moved[0] = np.where(trees[0].tree.feature[:, None] < 0, moved[0] + (low + high) / 2, 0.0)
    return moved


def _of_column(
    column: int, cuts: np.ndarray, heights: np.ndarray, shares: np.ndarray
) -> AdditiveTree:
    """Build a balanced tree over one column, merging intervals of equal height."""
    kept = np.flatnonzero((heights[1:] != heights[:-1]).any(axis=1))
    shares = np.add.reduceat(shares[: len(heights)], np.concatenate([[0], kept + 1]))
    cuts, heights = cuts[kept], np.concatenate([heights[:1], heights[1:][kept]])
    grown = _Grown(heights.shape[1])

    def below(low: int, high: int) -> int:
        if low == high:
            return grown.leaf(heights[low], float(shares[low]))
        node, middle = grown.open(), (low + high) // 2
        left, right = below(low, middle), below(middle + 1, high)
        return grown.split(node, column, float(cuts[middle]), left, right)

    below(0, len(cuts))
    return grown.done()


def _of_levels(
    features: np.ndarray, cuts: np.ndarray, leaves: np.ndarray, shares: np.ndarray
) -> AdditiveTree:
    """Build a tree whose nodes of one level share their split, without unreachable branches."""
    grown = _Grown(leaves.shape[1])

    def below(level: int, leaf: int, spans: dict[int, tuple[float, float]]) -> int:
        if level == len(features):
            return grown.leaf(leaves[leaf], float(shares[leaf]))
        feature, cut = int(features[level]), float(cuts[level])
        low, high = spans.get(feature, (-np.inf, np.inf))
        bit = 1 << level
        if cut <= low:
            return below(level + 1, leaf | bit, spans)
        if cut >= high:
            return below(level + 1, leaf, spans)
        node = grown.open()
        left = below(level + 1, leaf, spans | {feature: (low, cut)})
        right = below(level + 1, leaf | bit, spans | {feature: (cut, high)})
        return grown.split(node, feature, cut, left, right)

    below(0, 0, {})
    return grown.done()


def to_sklearn(
    model: PrivateModel, classes: np.ndarray
) -> GradientBoostingClassifier | GradientBoostingRegressor:
    """Convert to scikit-learn's gradient boosting, for rows of :func:`single_apart`; numbers are not clipped to their limits."""
    _check_apart(model)
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    number, features = model.outcome.kind == "number", len(model.schema.features)
    kind = GradientBoostingRegressor if number else GradientBoostingClassifier
    few = max(2, len(classes))
    blank = kind(n_estimators=1, max_depth=1, learning_rate=1.0)
    target = np.zeros(few) if number else np.arange(few)  # initial scores of zero
    blank.fit(np.zeros((few, features)), target)
    if not number:
        blank.classes_ = classes
    trees, moved = trees_of(model), values_of(model)
    unit = model.outcome.upper - model.outcome.lower if number else 1.0
    blank.estimators_ = np.array(
        [list(_regressors(own, v, unit**2, features)) for own, v in zip(trees, moved, strict=True)],
        dtype=object,
    )
    blank.n_estimators = blank.n_estimators_ = len(trees)
    return blank


def single_apart(x: np.ndarray, grid: BinEdges) -> np.ndarray:
    """Return encoded rows as the nearest 32-bit floats on the same side of every threshold."""
    found, wanted = single(x), grid.codes(x).T.astype(int)
    step = np.sign(wanted - grid.codes(found.astype(float)).T)
    return np.where(
        step, np.nextafter(found, np.where(step > 0, np.inf, -np.inf).astype(np.float32)), found
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
    grown: AdditiveTree, values: np.ndarray, unit: float, features: int
) -> Iterator[DecisionTreeRegressor]:
    """Yield a scikit-learn regression tree for each output; impurities are variances times ``unit``."""
    from sklearn.tree import DecisionTreeRegressor
    from sklearn.tree._tree import NODE_DTYPE
    from sklearn.tree._tree import Tree as ArrayTree

    tree = grown.tree
    inner, count = tree.feature >= 0, len(tree.feature)
    nodes = np.zeros(count, NODE_DTYPE)
    nodes["left_child"], nodes["right_child"] = tree.children[:, :2].T
    nodes["feature"] = np.where(inner, tree.feature, -2)
    nodes["threshold"] = np.where(inner, np.nextafter(tree.cuts[:, 0], -np.inf), -2.0)
    nodes["n_node_samples"], nodes["weighted_n_node_samples"] = 1, grown.shares
    for output, variance in zip(values.T, grown.variances.T, strict=True):
        nodes["impurity"] = unit * variance
        built = ArrayTree(features, np.array([1], dtype=np.intp), 1)
        state = {"max_depth": tree.depth, "node_count": count, "nodes": nodes.copy()}
        built.__setstate__({**state, "values": np.ascontiguousarray(output.reshape(-1, 1, 1))})
        own = DecisionTreeRegressor(max_depth=max(tree.depth, 1))
        own.tree_, own.n_features_in_, own.n_outputs_ = built, features, 1
        own.max_features_ = features
        yield own
