"""Growth on the server: fuzzy gains from summed statistics, splits and stopping."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from privfed.exchange.disclosure import Answer
from privfed.learners.fuzzy_tree.leaves import shrunken_mean
from privfed.learners.fuzzy_tree.queries import Level
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.questions.cells import Path
from privfed.questions.part import GRID


@dataclass(eq=False)
class FuzzyNode:
    """A node of the grown tree."""

    path: Path  #: path from the root
    mean: float = 0.0  #: fuzzy mean of the target, in [-1/2, 1/2] (paper, Eq. 6).
    weight: float = 0.0  #: summed activation
    feature: int | None = None  #: split feature; None for a leaf
    children: dict[int, FuzzyNode] = field(default_factory=dict)  #: the non-empty branches
    #: an inner node's linear model, in (1, x - 1/2), for rows that reach none of its leaves
    model: np.ndarray | None = None

    @property
    def leaf(self) -> bool:
        """Whether the node does not split."""
        return self.feature is None

    @property
    def split_features(self) -> set[int]:
        """The features of its own split and of those below it."""
        own = set() if self.feature is None else {self.feature}
        return own.union(*(child.split_features for child in self.children.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return the node and its subtree as plain data."""
        return {
            "mean": self.mean,
            "weight": self.weight,
            "feature": self.feature,
            "model": None if self.model is None else self.model.tolist(),
            "children": [[branch, child.to_dict()] for branch, child in self.children.items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], path: Path = ()) -> FuzzyNode:
        """Read the output of :meth:`to_dict`, for a node at ``path``."""
        feature, pairs = data["feature"], data["children"]
        children = {
            int(branch): cls.from_dict(child, (*path, (int(feature), int(branch))))
            for branch, child in pairs
        }
        model = None if data["model"] is None else np.array(data["model"], dtype=float)
        return cls(path, float(data["mean"]), float(data["weight"]), feature, children, model)


@dataclass(frozen=True)
class Stop:
    """Stopping conditions (paper, Section 3.3)."""

    gain: float  #: minimum partition fuzzy gain, for a target scaled to a unit interval
    fraction: float  #: a node must have more than this fraction of the records
    depth: int | None = None  #: maximum splits on a path; None for no limit
    gains: str = "told"  #: ``"told"`` or ``"literal"``, see :meth:`LevelSums.gains`

    def scaled_to(self, root: LevelSums) -> Stop:
        """Return a smaller minimum gain for a target that varies little in its bounds (for exact sums)."""
        variance = float(fuzzy_variance(*root.nodes)[0])
        if root.noise[1].any() or not variance > 0:
            return self
        return replace(self, gain=self.gain * min(1.0, variance / SETTINGS.min_target_variance))


def fuzzy_variance(weights: np.ndarray, linear: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return the fuzzy variance WSS / WS - (WLS / WS)^2 (paper, Eqs. 8 and 14); zero if empty."""
    safe = np.where(weights > 0, weights, 1.0)
    variance = squares / safe - (linear / safe) ** 2
    return np.asarray(np.where(weights > 0, np.maximum(variance, 0.0), 0.0))


class FuzzySums(NamedTuple):
    """WS, WLS and WSS of the same cells or nodes."""

    weights: np.ndarray
    linear: np.ndarray
    squares: np.ndarray


@dataclass(frozen=True, eq=False)
class LevelSums:
    """The summed statistics of a level, by (node, feature, set) and by node."""

    cells: FuzzySums  #: WS, WLS and WSS, each of shape (node, feature, set)
    nodes: FuzzySums  #: the same by node
    present: np.ndarray  #: which branches are nonempty according to the releases
    fraction: np.ndarray  #: each node's fraction of the records
    #: branches withheld by some client, of nodes with more weight than released
    hidden: np.ndarray
    #: standard deviations of the noise in WS and WLS cells, broadcastable to them; zero if exact
    noise: tuple[np.ndarray, np.ndarray] = (np.zeros(()), np.zeros(()))

    @classmethod
    def from_answer(cls, answer: Answer, total_weight: float) -> LevelSums:
        """Read the clients' sums; withheld ones are estimated, fractions by `total_weight`, the weight of all records."""
        cells = FuzzySums(*map(answer.total, FuzzySums._fields))
        noise = np.array(answer.deviation("weights")), np.array(answer.deviation("linear"))
        if "node_weights" in answer and not noise[0]:
            nodes = FuzzySums(*(answer.total(f"node_{n}") for n in FuzzySums._fields))
            fraction = answer.total("node_strong") / max(float(answer.total("records")), 1.0)
            present = answer.total("counts") > 0
            floored = 2 * float(GRID) * answer.total("node_counts")
            withheld = nodes.weights[:, None] - cells.weights.sum(axis=2) > floored[:, None]
            masks = [np.ma.getmaskarray(array) for array in answer.each("weights").values()]
            hidden = np.any(masks, axis=0) & withheld[:, :, None] & ~present
        else:
            query = answer.query
            assert isinstance(query, Level)
            used = [{feature for feature, _ in path} for path in query.nodes]
            open_ = np.array([[feature not in own for feature in query.features] for own in used])
            # every open feature's sets sum to the node's total (strong partition): their mean
            n_open = np.maximum(open_.sum(axis=1), 1)
            totals = (np.where(open_, values.sum(axis=2), 0.0).sum(axis=1) for values in cells)
            nodes = FuzzySums(*(total / n_open for total in totals))
            fraction = nodes.weights / (total_weight or max(float(nodes.weights.sum()), 1.0))
            present = cells.weights > 2 * noise[0]
            hidden = np.zeros_like(present)
        return cls(cells, nodes, present, fraction, hidden, noise)

    def departures(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each cell's WLS is from its WS times the node's mean, and the standard deviation of its noise."""
        weights = self.nodes.weights
        mean = (self.nodes.linear / np.where(weights > 0, weights, 1.0))[:, None, None]
        away = self.cells.linear - mean * self.cells.weights
        return away, np.hypot(self.noise[1], mean * self.noise[0])

    def gains(self, form: str) -> np.ndarray:
        """Return the partition fuzzy gain of each feature at each node (paper, Eq. 18), shape (node, feature).

        ``"told"`` compares the cells with their own sum, ``"literal"`` with the node's, which is never withheld. With
        noise, the gain is the variance of the cells' means about the node's, less what noise adds to it.
        """
        weights, linear, squares = self.cells
        kept = np.where(self.present, weights, 0.0)
        total = kept.sum(axis=2)
        safe = np.where(total > 0, total, 1.0)
        if self.noise[1].any():
            away, deviation = self.departures()
            array = np.where(self.present, away**2 - deviation**2, 0.0)
            gains = (array / np.where(kept > 0, kept, 1.0)).sum(axis=2) / safe
        else:
            within = (fuzzy_variance(kept, linear, squares) * kept).sum(axis=2)
            released = (np.where(self.present, array, 0.0).sum(axis=2) for array in self.cells)
            before = (
                fuzzy_variance(*self.nodes)[:, None]
                if form == "literal"
                else fuzzy_variance(*released)
            )
            gains = before - within / safe
        return np.asarray(np.where(total > 0, gains, -np.inf))


def split_level(
    nodes: list[FuzzyNode], query: Level, sums: LevelSums, stop: Stop
) -> list[FuzzyNode]:
    """Split the open nodes of a level; return the new open nodes, with unused features (Algorithm 1, line 18).

    A withheld branch is grown like any other; only empty ones are dropped.
    """
    gains = sums.gains(stop.gains)
    opened: list[FuzzyNode] = []
    limit = math.inf if stop.depth is None else stop.depth
    for number, node in enumerate(nodes):
        weight, linear, _ = (float(total[number]) for total in sums.nodes)
        _place(node, weight, linear, node.mean, float(sums.noise[1].min()))
        used = {feature for feature, _ in node.path}
        allowed = np.array([feature not in used for feature in query.features])
        if not allowed.any() or len(node.path) >= limit or sums.fraction[number] <= stop.fraction:
            continue
        best = int(np.argmax(np.where(allowed, gains[number], -np.inf)))
        if not gains[number, best] >= stop.gain:
            continue
        branch_out(node, query.features[best], sums, (number, best))
        if allowed.sum() > 1 and len(node.path) + 1 < limit:
            opened.extend(node.children.values())
    return opened


def branch_out(node: FuzzyNode, feature: int, sums: LevelSums, cell: tuple[int, int]) -> None:
    """Add a child for each branch with records, or possibly withheld ones."""
    present, hidden = sums.present[cell], sums.hidden[cell]
    branches = [array[cell] for array in sums.cells[:2]]
    noise = np.broadcast_to(sums.noise[1], sums.present.shape)[cell]
    withheld = [
        total[cell[0]] - array.sum() for total, array in zip(sums.nodes, branches, strict=False)
    ]
    for branch in np.flatnonzero(present | hidden):
        weight, linear = [array[branch] for array in branches] if present[branch] else withheld
        child = FuzzyNode((*node.path, (feature, int(branch))))
        _place(child, float(weight), float(linear), node.mean, float(noise[branch]))
        node.children[int(branch)] = child
    node.feature = feature if node.children else None


def _place(node: FuzzyNode, weight: float, linear: float, prior: float, noise: float) -> None:
    """Set a node's weight and its mean, which noise shrinks towards the prior."""
    node.weight = weight
    if weight > 0:
        sums = (np.asarray(weight), np.asarray(linear), np.asarray(prior))
        node.mean = float(shrunken_mean(*sums, noise))


def drop_empty(node: FuzzyNode, empty: Collection[Path]) -> bool:
    """Remove leaves without records; return whether the node itself is empty."""
    if node.leaf:
        return node.path in empty
    for branch, child in list(node.children.items()):
        if drop_empty(child, empty):
            del node.children[branch]
    return not node.children
