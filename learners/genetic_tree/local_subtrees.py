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

    def places(self, x: np.ndarray, level: int) -> np.ndarray:
        """Return the node that each row reaches at a level, or the leaf above it."""
        at = self.tree.reach(x)
        while (deep := self.tree.depths[at] > level).any():
            at = np.where(deep, self._parents[at], at)
        return at


@dataclass(frozen=True, eq=False)
class LocalSubtrees:
    """A shared tree truncated at a level (0: removed), and subtrees grown on a client's records below."""

    shared: Shared
    level: int
    below: dict[int, np.ndarray]

    @classmethod
    def grown(
        cls, shared: Shared, level: int, x: np.ndarray, y: np.ndarray, classes: int, depth: int
    ) -> LocalSubtrees:
        """Grow a subtree below each node that has records."""
        at, expected = shared.places(x, level), shared.values[shared.tree.reach(x)]
        nodes = {}
        for node in np.unique(at):
            here = at == node
            nodes[int(node)] = local.cart(x[here], y[here], classes, depth, expected[here])
        return cls(shared, level, nodes)

    def by_depth(self, x: np.ndarray, depths: range, priors: Sequence[float]) -> np.ndarray:
        """Return predictions by subtree depth (0: released values), shape (priors, depths, rows, values)."""
        at = self.shared.places(x, self.level)
        values = np.tile(self.shared.values[at], (len(priors), len(depths), 1, 1))
        grown = range(max(depths[0], 1), depths[-1] + 1)
        for node, nodes in self.below.items():
            here = at == node
            if len(grown) and here.any():
                reached = local.reached_by_depth(nodes, x[here], grown)
                for by_depth, prior in zip(values, priors, strict=True):
                    by_depth[-len(grown) :, here] = drawn(nodes, prior)[reached]
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
                return grow(nodes, drawn(nodes, prior), 0, depth)
            number = leaf(self.shared.values[node])
            if inner:
                left, right = (top(int(child)) for child in tree.children[node])
                rows[number] = (int(tree.feature[node]), float(tree.cuts[node, 0]), left, right)
            return number

        top(0)
        source = "federation" if self.level else "own"
        columns = [np.array(each) for each in zip(*rows, strict=True)]
        return PersonalTree(Tree.binary(*columns), np.array(values), source, weights)


def drawn(nodes: np.ndarray, prior: float) -> np.ndarray:
    """Return nodes' values, shrunk to those expected there by `prior` records."""
    size = nodes["size"][:, None]
    return np.asarray((size * nodes["values"] + prior * nodes["expected"]) / (size + prior))


def drawn_firmly(nodes: np.ndarray, prior: float) -> np.ndarray:
    """Return class fractions as :func:`drawn`, shrunk only as far as each node's own label is unchanged.

    Between local fractions o and shrunk ones, o + t (e - o) with t up to prior / (size + prior), local label a stays
    ahead of b while t < (o_a - o_b) / ((o_a - o_b) - (e_a - e_b)).
    """
    rows, own = np.arange(len(nodes)), nodes["values"]
    label = own.argmax(axis=1)
    ahead = own[rows, label][:, None] - own
    behind = ahead - (nodes["expected"][rows, label][:, None] - nodes["expected"])
    overtaken = behind > ahead
    ends = np.divide(ahead, behind, out=np.full_like(own, np.inf), where=overtaken).min(axis=1)
    reach = np.minimum(prior / (nodes["size"] + prior), SETTINGS.overtaking * ends)[:, None]
    return np.asarray(own + reach * (nodes["expected"] - own))


def choose_below(
    client: Client, shared: Shared, folds: int, lowest: int, deepest: int
) -> PersonalTree:
    """Choose level, depth and prior by cross-validation, or the client's own tree.

    Trees are compared by log loss or squared error; ties: the smallest prior, then the higher level. Labels are chosen
    by macro F1, with class fractions weighted by a power of the released root's. The client keeps the tree that it
    would grow alone unless the choice is better on the same held-out records by :class:`.SelectionRule`; with fewer
    than two records it uses the shared tree.
    """
    if len(client.y) < 2:
        return LocalSubtrees(shared, int(shared.tree.depth), {}).planted(0, SETTINGS.priors[0])
    levels, depths = range(int(shared.tree.depth) + 1), range(deepest + 1)
    losses = _losses(client, shared, folds, levels, depths)
    losses[:, 0, :lowest] = np.inf  # without a shared level, depths are those of trees grown alone
    number, level, depth = map(int, np.unravel_index(int(losses.argmin()), losses.shape))
    prior = _priors(client)[number]
    alone = client.own_depth(folds, range(lowest, deepest + 1))
    weights, lead = _compared(client, shared, folds, (level, depth, prior), alone)
    rule = SETTINGS.label_rule if client.classes else SETTINGS.number_rule
    if not rule.accepts(lead):
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
    for held, _, grown in _held_out(client, shared, folds, [0], depth):
        at = local.reached_by_depth(grown.below[0], client.x[held], range(depth, depth + 1))[0]
        true = client.y[held].astype(int)
        for number, prior in enumerate(SETTINGS.priors):
            likelihood = drawn_firmly(grown.below[0], prior)[at, true]
            losses[number] -= np.log(np.maximum(likelihood, LEAST)).sum()
    return replace(tree, values=drawn_firmly(nodes, SETTINGS.priors[int(losses.argmin())]))


def _priors(client: Client) -> tuple[float, ...]:
    return SETTINGS.priors if client.classes else SETTINGS.number_priors


def _compared(
    client: Client, shared: Shared, folds: int, chosen: tuple[int, int, float], alone: int
) -> tuple[np.ndarray | None, ScoreDifference]:
    """Return a choice's best class weights (None: equal, or a number), and its score difference."""
    level, depth, prior = chosen
    scoring = Scoring(bool(client.classes), "folds", folds=folds)
    true, local_tree = client.own_held_out(scoring, alone)
    grafts, at = _held_out(client, shared, folds, [level], depth), range(depth, depth + 1)
    values = [graft.by_depth(client.x[held], at, [prior])[0, 0] for held, _, graft in grafts]
    predicted = np.concatenate(values)
    if not client.classes:
        return None, of_numbers(true, local_tree, predicted[:, 0])
    common = np.maximum(shared.values[0], SETTINGS.min_fraction)
    weights = [common**-power for power in SETTINGS.label_powers]
    labels = [local.labels(predicted * weight) for weight in weights]
    best = int(np.argmax([local.f1(true, each, client.classes) for each in labels]))
    lead = of_labels(true, local_tree, labels[best], client.classes)
    return (weights[best] if best else None), lead


def _held_out(
    client: Client, shared: Shared, folds: int, levels: Sequence[int], depth: int
) -> Iterator[tuple[np.ndarray, int, LocalSubtrees]]:
    """Yield, for each fold and level, the held-out records, the level, and subtrees on all others."""
    everyone = np.arange(len(client.y))
    for held in local.folds(client.order, folds):
        rest = np.setdiff1d(everyone, held)
        data = client.x[rest], client.y[rest], client.classes
        for level in levels:
            yield held, level, LocalSubtrees.grown(shared, level, *data, max(depth, 1))


def _losses(client: Client, shared: Shared, folds: int, levels: range, depths: range) -> np.ndarray:
    """Return cross-validated log losses, or squared errors; shape (priors, levels, depths)."""
    priors = _priors(client)
    losses = np.zeros((len(priors), len(levels), len(depths)))
    for held, level, grown in _held_out(client, shared, folds, levels, depths[-1]):
        true = client.y[held]
        predicted = grown.by_depth(client.x[held], depths, priors)
        if client.classes:
            likelihood = predicted[..., np.arange(len(held)), true.astype(int)]
            losses[:, level] -= np.log(np.maximum(likelihood, LEAST)).sum(axis=2)
        else:
            losses[:, level] += ((predicted[..., 0] - true) ** 2).sum(axis=2)
    return losses
