"""What a client hangs below a tree that all share: nothing that is done here is told to anybody."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.fitness import macro_f1
from privfed.learners.genetic_tree.personal import PersonalTree
from privfed.questions.tree import Tree, cuts_of_thresholds

#: Powers of the classes' shares that labels are tried by, and the least share that counts.
POWERS = (0.0, 0.5, 1.0)
RARE = 0.01


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
        at = shared.places(x, level)
        nodes = {
            int(node): local.cart(x[at == node], y[at == node], classes, depth)
            for node in np.unique(at)
        }
        return cls(shared, level, nodes)

    def by_depth(self, x: np.ndarray, depths: range) -> np.ndarray:
        """What it says when subtrees are cut at each depth; at 0 the released values speak.

        Returns:
            shares of the classes, or means; shape (depths, rows, classes or 1).
        """
        at = self.shared.places(x, self.level)
        said = np.tile(self.shared.values[at], (len(depths), 1, 1))
        grown = range(max(depths[0], 1), depths[-1] + 1)
        for node, nodes in self.below.items():
            here = at == node
            if len(grown) and here.any():
                said[-len(grown) :, here] = local.values_by_depth(nodes, x[here], grown)
        return said

    def planted(self, depth: int, weights: np.ndarray | None = None) -> PersonalTree:
        """The whole tree, subtrees cut at a depth; at 0 there are none.

        Args:
            depth: of the subtrees.
            weights: of the classes, by which the tree's labels are chosen; none for equal ones.
        """
        rows: list[tuple[int, float, int, int]] = []
        values: list[np.ndarray] = []

        def leaf(value: np.ndarray) -> int:
            rows.append((-1, 0.0, -1, -1))
            values.append(value)
            return len(rows) - 1

        def grow(nodes: np.ndarray, cuts: np.ndarray, node: int, left: int) -> int:
            number, row = leaf(nodes["values"][node]), nodes[node]
            if left and row["feature"] >= 0:
                below = [grow(nodes, cuts, int(row[side]), left - 1) for side in ("left", "right")]
                rows[number] = (int(row["feature"]), float(cuts[node]), below[0], below[1])
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
                return grow(nodes, cuts_of_thresholds(nodes["cut"]), 0, depth)
            return leaf(self.shared.values[node])

        top(0)
        source = "federation" if self.level else "own"
        columns = [np.array(each) for each in zip(*rows, strict=True)]
        return PersonalTree(Tree.binary(*columns), np.array(values), source, weights)


def choose_below(
    client: Client, shared: Shared, folds: int, lowest: int, deepest: int
) -> PersonalTree:
    """The best by cross-validation of all levels, depths and labels, its own tree among them.

    Labels need not be the commonest class: where classes are uneven, macro F1 is the better for
    labels by shares that the commoner classes' weigh less in (by the released root's shares, to a
    power). Of equal choices the commonest class wins, then the own tree, then the higher cut. A
    client with fewer than two records has nothing to choose by and takes the shared tree as it is.
    """
    levels, depths = range(int(shared.tree.depth) + 1), range(deepest + 1)
    if len(client.y) < 2:
        return Graft(shared, levels[-1], {}).planted(0)
    weights = _weights(shared, client.classes)
    scores = _scores(client, shared, folds, levels, depths, weights)
    scores[:, 0, :lowest] = -np.inf  # its own tree is as deep as everybody's own
    kind, level, depth = np.unravel_index(int(scores.argmax()), scores.shape)
    data = client.x, client.y, client.classes
    grown = Graft.grown(shared, int(level), *data, max(int(depth), 1))
    return grown.planted(int(depth), weights[kind] if kind else None)


def _weights(shared: Shared, classes: int) -> list[np.ndarray]:
    """What to weigh the classes' shares by; equal weights first."""
    if not classes:
        return [np.ones(1)]
    common = np.maximum(shared.values[0], RARE)
    return [common**-power for power in POWERS]


def _scores(
    client: Client,
    shared: Shared,
    folds: int,
    levels: range,
    depths: range,
    weights: list[np.ndarray],
) -> np.ndarray:
    """Cross-validated scores: macro F1 or minus squared errors; shape (weights, levels, depths)."""
    classes, everyone = client.classes, np.arange(len(client.y))
    width = max(classes, 1)
    cells = np.zeros((len(weights), len(levels), len(depths), width, width))
    for held in local.folds(client.order, folds):
        rest = np.setdiff1d(everyone, held)
        data = client.x[rest], client.y[rest], classes
        for level in levels:
            grown = Graft.grown(shared, level, *data, depths[-1])
            values = grown.by_depth(client.x[held], depths)
            for kind, weight in enumerate(weights):
                for depth, said in enumerate(local.labels(values * weight)):
                    cells[kind, level, depth] += _judged(client.y[held], said, classes)
    if not classes:
        return -cells[..., 0, 0]
    return macro_f1(cells.reshape(-1, width, width)).reshape(cells.shape[:3])


def _judged(true: np.ndarray, said: np.ndarray, classes: int) -> np.ndarray:
    """A confusion matrix, or the sum of squared errors."""
    if not classes:
        return np.array([[((true - said) ** 2).sum()]])
    cells = np.bincount(true.astype(int) * classes + said.astype(int), minlength=classes**2)
    return cells.reshape(classes, classes)
