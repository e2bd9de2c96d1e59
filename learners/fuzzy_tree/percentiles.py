"""Percentiles read off histograms that add up over clients."""

from __future__ import annotations

import numpy as np


def percentiles(
    counts: np.ndarray, lower: np.ndarray, upper: np.ndarray, at: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Two percentiles of each feature off histograms over its bounds, linear inside a bin.

    Args:
        counts: by (feature, bin); negative noisy counts count as zero.
        lower: where each feature's first bin begins.
        upper: where its last bin ends.
        at: the two shares, rising.

    Returns:
        the two percentiles, shape (features,) each; the bounds where a feature has no count at all.
    """
    found: list[tuple[float, float]] = []
    for row, low, high in zip(np.maximum(counts, 0), lower, upper, strict=True):
        total = row.sum()
        if total <= 0:
            found.append((float(low), float(high)))
            continue
        edges = np.linspace(low, high, len(row) + 1)
        reached = np.concatenate([[0.0], np.cumsum(row)]) / total
        first, second = (_invert(reached, edges, share) for share in at)
        found.append((first, second))
    pairs = np.array(found)
    return pairs[:, 0], pairs[:, 1]


def _invert(reached: np.ndarray, edges: np.ndarray, share: float) -> float:
    """Where a piecewise-linear distribution function reaches a share."""
    last = int(np.searchsorted(reached, share, side="left"))
    below, above = reached[last - 1], reached[last]
    inside = (share - below) / (above - below)
    return float(edges[last - 1] + inside * (edges[last] - edges[last - 1]))
