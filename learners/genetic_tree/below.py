"""What a client hangs below a tree that all share: nothing that is done here is told to anybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.fitness import macro_f1
from privfed.learners.genetic_tree.personal import AHEAD, PersonalTree
from privfed.learners.genetic_tree.population import Scoring
from privfed.questions.tree import Tree, cuts_of_thresholds

#: Powers of the classes' shares that labels are tried by, and the least share that counts.
POWERS = (0.0, 0.5, 1.0)
RARE = 0.01
#: What the shared tree's word may weigh in a node below it, in records. That it has a weight, and that
#: trees are chosen by log loss and not by macro F1, was settled on splits 0 and 1 of bank_marketing,
#: electricity, california, default_credit_card, banknote, breast_cancer_wdbc and diabetes_pima.
PRIORS = (1.0, 4.0, 16.0, 64.0)
#: Probabilities are taken for at least this in a log loss.
LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Shared:
    """The tree that all share.

    Args:
        tree: its cuts.
        values: what was released of each node: shares of the classes, or a mean; shape (nodes,
            classes or 1).
    """

    tree: Tree
    values: np.ndarray

    @cached_property
    def _parents(self) -> np.ndarray:
        parents = np.zeros(len(self.tree.feature), dtype=np.int64)
        inner = np.flatnonzero(self.tree.feature >= 0)
        parents[self.tree.children[inner]] = inner[:, None]
        return parents

    def places(self, x: np.ndarray, level: int) -> np.ndarray:
        """The node that each row has reached at a level, or the leaf above it."""
        at = self.tree.reach(x)
        while (deep := self.tree.depths[at] > level).any():
            at = np.where(deep, self._parents[at], at)
        return at


@dataclass(frozen=True, eq=False)
class Graft:
    """A shared tree cut at a level, and subtrees grown on a client's records below it.

    Args:
        shared: the tree that all share.
        level: where it is cut; at 0 nothing of it is left.
        below: subtrees by the node that they hang below.
    """

    shared: Shared
    level: int
    below: dict[int, np.ndarray]

    @classmethod
    def grown(
        cls, shared: Shared, level: int, x: np.ndarray, y: np.ndarray, classes: int, depth: int
    ) -> Graft:
        """Grow a subtree below each node that has records."""
        at, expected = shared.places(x, level), shared.values[shared.tree.reach(x)]
        nodes = {}
        for node in np.unique(at):
            here = at == node
            nodes[int(node)] = local.cart(x[here], y[here], classes, depth, expected[here])
        return cls(shared, level, nodes)

    def by_depth(self, x: np.ndarray, depths: range, priors: Sequence[float]) -> np.ndarray:
        """What it says when subtrees are cut at each depth; at 0 the released values speak.

        Returns:
            shares of the classes, or means; shape (priors, depths, rows, classes or 1).
        """
        at = self.shared.places(x, self.level)
        said = np.tile(self.shared.values[at], (len(priors), len(depths), 1, 1))
        grown = range(max(depths[0], 1), depths[-1] + 1)
        for node, nodes in self.below.items():
            here = at == node
            if len(grown) and here.any():
                reached = local.reached_by_depth(nodes, x[here], grown)
                for tried, prior in zip(said, priors, strict=True):
                    tried[-len(grown) :, here] = drawn(nodes, prior)[reached]
        return said

    def planted(self, depth: int, prior: float, weights: np.ndarray | None = None) -> PersonalTree:
        """The whole tree, subtrees cut at a depth; at 0 there are none.

        Args:
            depth: of the subtrees.
            prior: what the shared tree's word weighs in them, in records.
            weights: of the classes, by which the tree's labels are chosen; none for equal ones.
        """
        rows: list[tuple[int, float, int, int]] = []
        values: list[np.ndarray] = []

        def leaf(value: np.ndarray) -> int:
            rows.append((-1, 0.0, -1, -1))
            values.append(value)
            return len(rows) - 1

        def grow(nodes: np.ndarray, told: np.ndarray, node: int, left: int) -> int:
            number, row = leaf(told[node]), nodes[node]
            if left and row["feature"] >= 0:
                below = [grow(nodes, told, int(row[side]), left - 1) for side in ("left", "right")]
                cut = float(cuts_of_thresholds(nodes["cut"][[node]])[0])
                rows[number] = (int(row["feature"]), cut, below[0], below[1])
            return number

        def top(node: int) -> int:
            tree, nodes = self.shared.tree, self.below.get(node)
            if tree.depths[node] < self.level and tree.feature[node] >= 0:
                number = leaf(self.shared.values[node])
                below = [top(int(child)) for child in tree.children[node]]
                rows[number] = (
                    *(int(tree.feature[node]), float(tree.cuts[node, 0])),
                    *(below[0], below[1]),
                )
                return number
            if depth and nodes is not None:
                return grow(nodes, drawn(nodes, prior), 0, depth)
            return leaf(self.shared.values[node])

        top(0)
        source = "federation" if self.level else "own"
        columns = [np.array(each) for each in zip(*rows, strict=True)]
        return PersonalTree(Tree.binary(*columns), np.array(values), source, weights)


def drawn(nodes: np.ndarray, prior: float) -> np.ndarray:
    """The values of nodes, drawn to what was expected there as if by so many records more."""
    size = nodes["size"][:, None]
    values: np.ndarray = (size * nodes["values"] + prior * nodes["expected"]) / (size + prior)
    return values


def choose_below(
    client: Client, shared: Shared, folds: int, lowest: int, deepest: int
) -> PersonalTree:
    """The best by cross-validation of all levels, depths and priors, its own tree among them.

    Trees are held to one another by log loss, or the squared error: it tells good shares from bad
    ones where macro F1 sees labels alone, and so chooses more steadily. Then labels are chosen, by
    macro F1: where classes are uneven, it is the better for labels by shares that the commoner
    classes' weigh less in (by the released root's shares, to a power). Of equal choices the least
    prior wins, then the own tree, then the higher cut, then the commonest class. Where the tree that
    it would have grown alone is ahead in macro F1 by :data:`~personal.AHEAD` all the same, as it may
    be among few records, a client keeps that one. A client with fewer than two records has nothing to
    choose by and takes the shared tree as it is.
    """
    levels, depths = range(int(shared.tree.depth) + 1), range(deepest + 1)
    if len(client.y) < 2:
        return Graft(shared, levels[-1], {}).planted(0, PRIORS[0])
    losses = _losses(client, shared, folds, levels, depths)
    losses[:, 0, :lowest] = np.inf  # its own tree is as deep as everybody's own
    at, level, depth = map(int, np.unravel_index(int(losses.argmin()), losses.shape))
    prior, weights = PRIORS[at], None
    if client.classes:
        weights, score = _best_weights(client, shared, folds, (level, depth, prior))
        alone = client.own_depth(folds, range(lowest, deepest + 1))
        own = client.own_score(Scoring(classify=True, held="folds", folds=folds), alone)
        if own > score * (1 + AHEAD):
            prior, level, depth, weights = PRIORS[0], 0, alone, None
    data = client.x, client.y, client.classes
    return Graft.grown(shared, level, *data, max(depth, 1)).planted(depth, prior, weights)


def _held_out(
    client: Client, shared: Shared, folds: int, levels: Sequence[int], depth: int
) -> Iterator[tuple[np.ndarray, int, Graft]]:
    """For each fold and level: the records held out, the level, and a graft on all others."""
    everyone = np.arange(len(client.y))
    for held in local.folds(client.order, folds):
        rest = np.setdiff1d(everyone, held)
        data = client.x[rest], client.y[rest], client.classes
        for level in levels:
            yield held, level, Graft.grown(shared, level, *data, max(depth, 1))


def _losses(client: Client, shared: Shared, folds: int, levels: range, depths: range) -> np.ndarray:
    """Cross-validated log losses, or squared errors; shape (priors, levels, depths)."""
    losses = np.zeros((len(PRIORS), len(levels), len(depths)))
    for held, level, grown in _held_out(client, shared, folds, levels, depths[-1]):
        true = client.y[held]
        said = grown.by_depth(client.x[held], depths, PRIORS)
        if client.classes:
            told = said[..., np.arange(len(held)), true.astype(int)]
            losses[:, level] -= np.log(np.maximum(told, LEAST)).sum(axis=2)
        else:
            losses[:, level] += ((said[..., 0] - true) ** 2).sum(axis=2)
    return losses


def _best_weights(
    client: Client, shared: Shared, folds: int, chosen: tuple[int, int, float]
) -> tuple[np.ndarray | None, float]:
    """The weights of the classes by which a chosen level, depth and prior do best in macro F1.

    Returns:
        the weights, none for equal ones; and the macro F1.
    """
    level, depth, prior = chosen
    classes = client.classes
    common = np.maximum(shared.values[0], RARE)
    weights = [common**-power for power in POWERS]
    cells = np.zeros((len(weights), classes, classes))
    for held, _, grown in _held_out(client, shared, folds, [level], depth):
        said = grown.by_depth(client.x[held], range(depth, depth + 1), [prior])[0, 0]
        for kind, weight in enumerate(weights):
            np.add.at(cells[kind], (client.y[held].astype(int), local.labels(said * weight)), 1)
    scores = macro_f1(cells)
    best = int(scores.argmax())
    return (weights[best] if best else None), float(scores[best])
