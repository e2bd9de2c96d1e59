"""Local subtrees below a shared tree; everything here stays at the client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.fitness import ScoreDifference, of_labels, of_numbers
from privfed.learners.genetic_tree.personal import PersonalTree
from privfed.learners.genetic_tree.population import Scoring
from privfed.learners.genetic_tree.settings import SETTINGS
from privfed.questions.tree import Tree, cuts_of_thresholds

LEAST = 1e-12  #: Minimum probability in a log loss


@dataclass(frozen=True, eq=False)
class Shared:
    """The shared tree, and its released class fractions or means, shape (nodes, classes or 1)."""

    tree: Tree
    values: np.ndarray

    @cached_property
    def _parents(self) -> np.ndarray:
        parents = np.zeros(len(self.tree.feature), dtype=np.int64)
        inner = np.flatnonzero(self.tree.feature >= 0)
        parents[self.tree.children[inner]] = inner[:, None]
        return parents

    def nodes_at(self, X: np.ndarray, level: int) -> np.ndarray:
        """Return the node that each row reaches at a level, or the leaf above it."""
        node = self.tree.reach(X)
        while (deep := self.tree.depths[node] > level).any():
            node = np.where(deep, self._parents[node], node)
        return node


@dataclass(frozen=True, eq=False)
class LocalSubtrees:
    """A shared tree truncated at a level (0: removed), and subtrees grown on a client's records below."""

    shared: Shared
    level: int
    below: dict[int, np.ndarray]

    @classmethod
    def grown(
        cls, shared: Shared, level: int, X: np.ndarray, y: np.ndarray, classes: int, depth: int
    ) -> LocalSubtrees:
        """Grow a subtree below each node that has records."""
        return next(cls.by_level(shared, [level], X, y, classes, depth))

    @classmethod
    def by_level(
        cls,
        shared: Shared,
        levels: Sequence[int],
        X: np.ndarray,
        y: np.ndarray,
        classes: int,
        depth: int,
    ) -> Iterator[LocalSubtrees]:
        """Yield :meth:`grown` for each level; a leaf that several levels share gets one subtree."""
        nodes: dict[int, np.ndarray] = {}
        expected = shared.values[shared.tree.reach(X)]
        for level in levels:
            reached = shared.nodes_at(X, level)
            used = np.unique(reached).tolist()
            for node in used:
                if node not in nodes:
                    rows = reached == node
                    nodes[node] = local.cart(X[rows], y[rows], classes, depth, expected[rows])
            yield cls(shared, level, {node: nodes[node] for node in used})

    def by_depth(self, X: np.ndarray, depths: range, priors: Sequence[float]) -> np.ndarray:
        """Return predictions by subtree depth (0: released values), shape (priors, depths, rows, values)."""
        at_node = self.shared.nodes_at(X, self.level)
        values = np.tile(self.shared.values[at_node], (len(priors), len(depths), 1, 1))
        grown = range(max(depths[0], 1), depths[-1] + 1)
        for node, nodes in self.below.items():
            rows = at_node == node
            if len(grown) and rows.any():
                leaves = local.reached_by_depth(nodes, X[rows], grown)
                for by_depth, prior in zip(values, priors, strict=True):
                    by_depth[-len(grown) :, rows] = shrunk_values(nodes, prior)[leaves]
        return values

    def planted(self, depth: int, prior: float, weights: np.ndarray | None = None) -> PersonalTree:
        """Return the whole tree, with subtrees truncated at a depth (0: none).

        `prior` is the weight of the shared tree's values in them, in records; `weights` are the classes' in labels.
        """
        rows: list[tuple[int, float, int, int]] = []
        values: list[np.ndarray] = []

        def leaf(value: np.ndarray) -> int:
            rows.append((-1, 0.0, -1, -1))
            values.append(value)
            return len(rows) - 1

        def grow(nodes: np.ndarray, shrunk: np.ndarray, node: int, levels: int) -> int:
            number, row = leaf(shrunk[node]), nodes[node]
            if levels and row["feature"] >= 0:
                left, right = (
                    grow(nodes, shrunk, int(row[side]), levels - 1) for side in ("left", "right")
                )
                cut = float(cuts_of_thresholds(nodes["cut"][[node]])[0])
                rows[number] = (int(row["feature"]), cut, left, right)
            return number

        def top(node: int) -> int:
            tree, nodes = self.shared.tree, self.below.get(node)
            inner = tree.depths[node] < self.level and tree.feature[node] >= 0
            if depth and nodes is not None and not inner:
                return grow(nodes, shrunk_values(nodes, prior), 0, depth)
            number = leaf(self.shared.values[node])
            if inner:
                left, right = (top(int(child)) for child in tree.children[node])
                rows[number] = (int(tree.feature[node]), float(tree.cuts[node, 0]), left, right)
            return number

        top(0)
        source = "federation" if self.level else "own"
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        return PersonalTree(Tree.binary(*columns), np.array(values), source, weights)


def shrunk_values(nodes: np.ndarray, prior: float) -> np.ndarray:
    """Return nodes' values, shrunk to those expected there by `prior` records."""
    size = nodes["size"][:, None]
    return np.asarray((size * nodes["values"] + prior * nodes["expected"]) / (size + prior))


def shrunk_firmly(nodes: np.ndarray, prior: float) -> np.ndarray:
    """Return class fractions as :func:`shrunk_values`, shrunk only as far as each node's own label is unchanged.

    Between local fractions o and shrunk ones, o + t (e - o) with t up to prior / (size + prior), local label a stays
    ahead of b while t < (o_a - o_b) / ((o_a - o_b) - (e_a - e_b)).
    """
    rows, values = np.arange(len(nodes)), nodes["values"]
    label = values.argmax(axis=1)
    ahead = values[rows, label][:, None] - values
    behind = ahead - (nodes["expected"][rows, label][:, None] - nodes["expected"])
    overtaken = behind > ahead
    ends = np.divide(ahead, behind, out=np.full_like(values, np.inf), where=overtaken).min(axis=1)
    fraction = np.minimum(prior / (nodes["size"] + prior), SETTINGS.overtaking * ends)[:, None]
    return np.asarray(values + fraction * (nodes["expected"] - values))


def choose_below(
    client: Client, shared: Shared, folds: int, minimum: int, maximum: int
) -> PersonalTree:
    """Choose level, depth and prior by cross-validation, or the client's own tree.

    Trees are compared by log loss or squared error; ties: the smallest prior, then the higher level. Labels are chosen
    by macro F1, with class fractions weighted by a power of the released root's. The client keeps the tree that it
    would grow alone unless the choice is better on the same held-out records by :class:`.SelectionRule`; with fewer
    than two records it uses the shared tree.
    """
    if len(client.y) < 2:
        return LocalSubtrees(shared, int(shared.tree.depth), {}).planted(0, SETTINGS.priors[0])
    levels, depths = range(int(shared.tree.depth) + 1), range(maximum + 1)
    losses = _losses(client, shared, folds, levels, depths)
    losses[:, 0, :minimum] = np.inf  # without a shared level, depths are those of trees grown alone
    number, level, depth = map(int, np.unravel_index(int(losses.argmin()), losses.shape))
    prior = _priors(client)[number]
    alone = client.local_depth(folds, range(minimum, maximum + 1))
    weights, difference = _compare(client, shared, folds, (level, depth, prior), alone)
    rule = SETTINGS.label_rule if client.classes else SETTINGS.number_rule
    if not rule.accepts(difference):
        return _alone(client, shared, folds, alone)
    data = client.x, client.y, client.classes
    return LocalSubtrees.grown(shared, level, *data, max(depth, 1)).planted(depth, prior, weights)


def _alone(client: Client, shared: Shared, folds: int, depth: int) -> PersonalTree:
    """Return the tree that a client grows alone, with class fractions shrunk to the shared tree's, same labels.

    The shrinkage is chosen by cross-validated log loss, as small leaves of one class exclude all others.
    """
    data = client.x, client.y, client.classes
    nodes = LocalSubtrees.grown(shared, 0, *data, depth).below[0]
    tree = PersonalTree.of_nodes(nodes, "own")
    if not client.classes:
        return tree
    losses = np.zeros(len(SETTINGS.priors))
    for fold, _, model in _held_out(client, shared, folds, [0], depth):
        leaf = local.reached_by_depth(model.below[0], client.x[fold], range(depth, depth + 1))[0]
        true = client.y[fold].astype(int)
        for number, prior in enumerate(SETTINGS.priors):
            likelihood = shrunk_firmly(model.below[0], prior)[leaf, true]
            losses[number] -= np.log(np.maximum(likelihood, LEAST)).sum()
    return replace(tree, values=shrunk_firmly(nodes, SETTINGS.priors[int(losses.argmin())]))


def _priors(client: Client) -> tuple[float, ...]:
    return SETTINGS.priors if client.classes else SETTINGS.number_priors


def _compare(
    client: Client, shared: Shared, folds: int, chosen: tuple[int, int, float], alone: int
) -> tuple[np.ndarray | None, ScoreDifference]:
    """Return a choice's best class weights (None: equal, or a number), and its score difference."""
    level, depth, prior = chosen
    scoring = Scoring(bool(client.classes), "folds", folds=folds)
    true, local_tree = client.held_out_predictions(scoring, alone)
    grafts, depths = _held_out(client, shared, folds, [level], depth), range(depth, depth + 1)
    values = [model.by_depth(client.x[fold], depths, [prior])[0, 0] for fold, _, model in grafts]
    predicted = np.concatenate(values)
    if not client.classes:
        return None, of_numbers(true, local_tree, predicted[:, 0])
    common = np.maximum(shared.values[0], SETTINGS.min_fraction)
    weights = [common**-power for power in SETTINGS.label_powers]
    labels = [local.labels(predicted * weight) for weight in weights]
    best = int(np.argmax([local.f1(true, y_pred, client.classes) for y_pred in labels]))
    difference = of_labels(true, local_tree, labels[best], client.classes)
    return (weights[best] if best else None), difference


def _held_out(
    client: Client, shared: Shared, folds: int, levels: Sequence[int], depth: int
) -> Iterator[tuple[np.ndarray, int, LocalSubtrees]]:
    """Yield, for each fold and level, the held-out records, the level, and subtrees on all others."""
    rows = np.arange(len(client.y))
    for fold in local.folds(client.order, folds):
        rest = np.setdiff1d(rows, fold)
        data = client.x[rest], client.y[rest], client.classes
        models = LocalSubtrees.by_level(shared, levels, *data, max(depth, 1))
        for level, model in zip(levels, models, strict=True):
            yield fold, level, model


def _losses(client: Client, shared: Shared, folds: int, levels: range, depths: range) -> np.ndarray:
    """Return cross-validated log losses, or squared errors; shape (priors, levels, depths)."""
    priors = _priors(client)
    losses = np.zeros((len(priors), len(levels), len(depths)))
    for fold, level, model in _held_out(client, shared, folds, levels, depths[-1]):
        true = client.y[fold]
        predicted = model.by_depth(client.x[fold], depths, priors)
        if client.classes:
            likelihood = predicted[..., np.arange(len(fold)), true.astype(int)]
            losses[:, level] -= np.log(np.maximum(likelihood, LEAST)).sum(axis=2)
        else:
            losses[:, level] += ((predicted[..., 0] - true) ** 2).sum(axis=2)
    return losses
