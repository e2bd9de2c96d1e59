"""What a client works out alone: local gains, and which features they speak for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from privfed.learners.forest.gains import best_cut, best_subset, decreases
from privfed.learners.forest.level import OpenNodes
from privfed.learners.forest.node_index import NodeIndex
from privfed.learners.forest.statistics import bins, categories, quantiles
from privfed.learners.impurity import sizes
from privfed.questions.query import View


def together(counts: np.ndarray, sums: np.ndarray | None) -> np.ndarray:
    """Counts and sums as one vector of statistics, the last axis: see ``gains``."""
    if sums is None:
        return counts
    both = np.empty((*sums.shape, 2), np.int64)
    both[..., 0], both[..., 1] = counts[..., 0], sums
    return both


def local_gains(found: Mapping[str, np.ndarray], criterion: str) -> np.ndarray:
    """Impurity decrease at each cut from bins; zero where a side would be empty, shape (pairs, cuts)."""
    upto = np.cumsum(together(found["bins"], found.get("bin_sums")), axis=1)
    worth = decreases(upto[:, :-1], upto[:, -1], criterion)  # type: ignore[arg-type]
    size = np.maximum(sizes(upto[:, -1], criterion), 1)[:, None]  # type: ignore[arg-type]
    return np.where(np.isfinite(worth), np.maximum(worth, 0) / size, 0).astype(np.float32)


def shortlist(
    view: View, level: OpenNodes, levels: int, longest: int, width: int, criterion: str
) -> Mapping[str, np.ndarray]:
    """The ``longest`` features of greatest local decrease at each node, and what they gain."""
    bench = NodeIndex.of(view, level)
    cuts = quantiles(bench, view, level, levels, interpolate=False)[:, 1:-1]
    found = {**bins(bench, view, level, cuts), **categories(bench, view, level, width)}
    numeric = together(found["bins"], found.get("bin_sums"))
    grouped = together(found["groups"], found.get("group_sums"))
    worth = np.concatenate(
        [
            best_cut(numeric, criterion, 1).gain,  # type: ignore[arg-type]
            best_subset(grouped, criterion, 1)[0].gain,  # type: ignore[arg-type]
        ]
    )
    node = np.concatenate([level.numeric.nodes, level.grouped.nodes])
    feature = np.concatenate([level.numeric.features, level.grouped.features])
    order = np.lexsort((feature, -worth, node))
    node, feature, worth = node[order], feature[order], worth[order]
    place = np.arange(len(node)) - np.searchsorted(node, node)
    kept = (place < longest) & np.isfinite(worth)
    features = np.full((len(level.nodes), longest), -1)
    gains = np.zeros((len(level.nodes), longest), np.float32)
    features[node[kept], place[kept]] = feature[kept]
    gains[node[kept], place[kept]] = np.maximum(worth[kept], 0)
    return {"features": features, "gains": gains}
