"""Posterior of a column's support from noisy counts of its cells; post-processing of releases.

A single cell is not informative, but few runs of neighbouring cells explain all counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privfed.learners.private.support_posterior import SupportPosterior

#: Std of a cell's count, relative to the mean of a run's cells, and fraction of a run's cells that are empty, as
#: for few distinct values or a frequent one; with the logs of their prior probabilities
STRAYS, EMPTY = (grid.reshape(-1, 1) for grid in np.meshgrid([0.3, 1.0, 3.0], [0.0, 0.5, 0.9]))
PRIOR = np.log(np.where(EMPTY > 0, 1 / 4, 1 / 2))
_LOG_EMPTY = np.log(np.maximum(EMPTY, 1e-300))
TAIL = 0.01  #: Fraction of the records outside of a run; significant counts beyond make it longer
HIDING = 0.05  #: Noise of a cell's count, as a fraction of the records, above which single cells say little
ENDS = 0.05  #: Expected fraction of the probable interval beyond each end of it, then
_LENGTHS = 64  #: Maximum number of lengths of runs: time and memory are linear in the cells
_EXACT = 1e-9  #: Minimum variance of a count, in squared records; a huge budget adds no noise


@dataclass(frozen=True, eq=False)
class Mass:
    """Posterior of each column's distribution over cells."""

    counts: np.ndarray  #: posterior means by cell, nonnegative, shape (columns, cells)
    begun: np.ndarray  #: probability that the run has begun by a cell, shape (columns, cells)
    ended: np.ndarray  #: probability that it ends at a cell or later, shape (columns, cells)

    @classmethod
    def from_counts(
        cls, counts: np.ndarray, variance: np.ndarray, records: np.ndarray, tail: float = TAIL
    ) -> Mass:
        """Average over all runs of neighbouring cells, weighted by prior times likelihood.

        With N records in a column, a run of L among M cells, a stray k and a fraction w of empty cells, a count with
        noise of variance v is N(t, t^2 + v) outside, t = N tail / (M - L), and inside N(m, (k m)^2 + v),
        m = N (1 - tail) / (L (1 - w)), or, but for the run's ends, N(0, v) with probability w. A run has the prior 1 / L over the
        number of runs of its length. Counts have shape (columns, cells).
        """
        top = np.full((len(counts), 1, 1), -np.inf)
        expected, starts, stops = np.zeros((3, *counts.shape))
        for run in _runs(counts, np.maximum(variance, _EXACT), np.maximum(records, 1), tail):
            previous, top = top, np.maximum(top, run.logs.max(axis=(1, 2), keepdims=True))
            weight, scale = np.exp(run.logs - top), np.exp(previous - top)[:, :, 0]
            sums = np.cumsum(_pad(weight, run.length, run.length - 1), axis=2)
            # The difference of two sums may round to less than nothing.
            cover = np.maximum(sums[..., run.length :] - sums[..., : counts.shape[1]], 0)
            ends = _pad(weight, 0, run.length - 1)
            ends = ends + _pad(weight, run.length - 1, 0) if run.length > 1 else ends
            beyond = np.maximum(weight.sum(axis=2, keepdims=True) - cover, 0) * run.outside
            within = ends * run.full + np.maximum(cover - ends, 0) * run.inside
            expected = scale * expected + (within + beyond).sum(axis=1)
            by_run = weight.sum(axis=1)
            starts, stops = scale * starts, scale * stops
            starts[:, : by_run.shape[1]] += by_run
            stops[:, run.length - 1 :] += by_run
        total = starts.sum(axis=1, keepdims=True)
        begun, ended = np.cumsum(starts, axis=1), np.cumsum(stops[:, ::-1], axis=1)[:, ::-1]
        return cls(expected / total, begun / total, ended / total)

    def run(self, column: int, probability: float) -> tuple[int, int]:
        """Return the first and last cell; the support extends beyond with a probability below ``probability``."""
        first = int(np.searchsorted(self.begun[column], probability))
        last = self.ended.shape[1] - 1 - int(np.searchsorted(self.ended[column, ::-1], probability))
        return (first, last) if first <= last else (last, first)


def likely_cells(
    edges: np.ndarray, counts: np.ndarray, variance: float, records: float
) -> tuple[int, int]:
    """Return the first and last cell of a target's probable interval where noise hides single cells; else of all.

    By :class:`.SupportPosterior`: a priori all of the bounds are as likely as all narrower intervals together.

    Args:
        edges: the cells', increasing, shape (cells + 1,).
        counts: noisy ones, shape (cells,).
        variance: of the noise in each.
        records: in all cells together.
    """
    last, records = len(counts) - 1, max(records, 1.0)
    positions = (edges - edges[0]) / (edges[-1] - edges[0])
    if variance <= (HIDING * records) ** 2 or not (np.diff(positions) > 0).all():
        return 0, last
    noisy = counts / records, variance / records**2
    low, high = SupportPosterior.blank(positions).updated(*noisy).ends(*noisy, ENDS)
    first = min(int(np.searchsorted(positions, low, side="right")) - 1, last)
    return first, int(np.clip(np.searchsorted(positions, high) - 1, first, last))


@dataclass(frozen=True, eq=False)
class _Run:
    """Runs of one length."""

    length: int
    logs: np.ndarray  #: log posterior up to a constant, shape (columns, strays, runs)
    full: np.ndarray  #: expected counts at its ends, shape (columns, strays, cells)
    inside: np.ndarray  #: the same between them
    outside: np.ndarray  #: the same outside of the run, shape (columns, 1, cells)


def _runs(
    counts: np.ndarray, variance: np.ndarray, records: np.ndarray, tail: float
) -> Iterator[_Run]:
    cells, c = counts.shape[1], counts[:, None]
    v, n = variance[:, None, None], records[:, None, None]
    lengths = np.arange(1, cells + 1)
    if cells > _LENGTHS:
        lengths = np.unique(np.rint(np.geomspace(1, cells, _LENGTHS)).astype(int))
    for length in lengths.tolist():
        fraction = tail if length < cells else 0.0
        m, t = n * (1 - fraction) / length / (1 - EMPTY), n * fraction / max(cells - length, 1)
        inner_var, outer_var = (STRAYS * m) ** 2, t**2
        outer = -((c - t) ** 2 / (outer_var + v) + np.log(outer_var + v)) / 2
        gain = -((c - m) ** 2 / (inner_var + v) + np.log(inner_var + v)) / 2 - outer
        empty = -(c**2 / v + np.log(v)) / 2 - outer
        mixture = np.logaddexp(gain + np.log1p(-EMPTY), empty + _LOG_EMPTY)
        sums = _pad(np.cumsum(mixture, axis=2), 1, 0)
        logs = outer.sum(axis=2, keepdims=True) + sums[..., length:] - sums[..., :-length]
        ends = gain - mixture
        logs += ends[..., : cells - length + 1]
        logs += ends[..., length - 1 :] if length > 1 else 0.0
        outside = np.maximum(t + outer_var / (outer_var + v) * (c - t), 0)
        full = np.maximum(m + inner_var / (inner_var + v) * (c - m), 0)
        inside = full * np.exp(gain + np.log1p(-EMPTY) - mixture)
        yield _Run(
            length, logs + PRIOR - np.log(length * (cells - length + 1)), full, inside, outside
        )


def _pad(values: np.ndarray, before: int, after: int) -> np.ndarray:
    padded = np.zeros((*values.shape[:2], before + values.shape[2] + after))
    padded[..., before : before + values.shape[2]] = values
    return padded
