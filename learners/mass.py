"""Where the mass of a column lies, by noisy counts of its cells; post-processing of releases.

No cell tells by itself, but few runs of neighbouring cells explain all counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

#: Std of a cell's count about an even share of the mass, in such shares, and which fraction of a run's cells is
#: empty, as where values are few or one is frequent; with the logs of their probabilities
STRAYS, EMPTY = (grid.reshape(-1, 1) for grid in np.meshgrid([0.3, 1.0, 3.0], [0.0, 0.5, 0.9]))
PRIOR = np.log(np.where(EMPTY > 0, 1 / 4, 1 / 2))
_LOG_EMPTY = np.log(np.maximum(EMPTY, 1e-300))
TAIL = 0.01  #: Fraction of the records outside of a run: what shows beyond it makes it longer
_LENGTHS = 64  #: Most lengths of runs that are tried: time and memory grow with cells alone
_EXACT = 1e-9  #: Least variance of a count, in squared records: an enormous budget adds no noise


@dataclass(frozen=True, eq=False)
class Mass:
    """Posterior of where the records of each column are."""

    counts: np.ndarray  #: posterior means by cell, none negative, shape (columns, cells)
    begun: np.ndarray  #: probability that the run has begun by a cell, shape (columns, cells)
    ended: np.ndarray  #: probability that it ends at a cell or later, shape (columns, cells)

    @classmethod
    def from_counts(
        cls, counts: np.ndarray, variance: np.ndarray, records: np.ndarray, tail: float = TAIL
    ) -> Mass:
        """Average over all runs of neighbouring cells, each as likely as it makes the counts.

        With N records in a column, a run of L among M cells, a stray k and a fraction w of empty cells, a count with
        noise of variance v is N(t, t^2 + v) outside, t = N tail / (M - L), and inside N(m, (k m)^2 + v),
        m = N (1 - tail) / (L (1 - w)), or, but for the run's ends, N(0, v) with probability w. A run has the prior 1 / L over the
        number of runs of its length. Counts have shape (columns, cells).
        """
        top = np.full((len(counts), 1, 1), -np.inf)
        expected, starts, stops = np.zeros((3, *counts.shape))
        for own in _runs(counts, np.maximum(variance, _EXACT), np.maximum(records, 1), tail):
            former, top = top, np.maximum(top, own.logs.max(axis=(1, 2), keepdims=True))
            chance, scale = np.exp(own.logs - top), np.exp(former - top)[:, :, 0]
            sums = np.cumsum(_padded(chance, own.length, own.length - 1), axis=2)
            # The difference of two sums may round to less than nothing.
            cover = np.maximum(sums[..., own.length :] - sums[..., : counts.shape[1]], 0)
            ends = _padded(chance, 0, own.length - 1)
            ends = ends + _padded(chance, own.length - 1, 0) if own.length > 1 else ends
            beyond = np.maximum(chance.sum(axis=2, keepdims=True) - cover, 0) * own.outside
            within = ends * own.full + np.maximum(cover - ends, 0) * own.inside
            expected = scale * expected + (within + beyond).sum(axis=1)
            each = chance.sum(axis=1)
            starts, stops = scale * starts, scale * stops
            starts[:, : each.shape[1]] += each
            stops[:, own.length - 1 :] += each
        total = starts.sum(axis=1, keepdims=True)
        begun, ended = np.cumsum(starts, axis=1), np.cumsum(stops[:, ::-1], axis=1)[:, ::-1]
        return cls(expected / total, begun / total, ended / total)

    def run(self, column: int, doubt: float) -> tuple[int, int]:
        """The first and last cell beyond which the mass reaches with a probability below ``doubt``."""
        first = int(np.searchsorted(self.begun[column], doubt))
        last = self.ended.shape[1] - 1 - int(np.searchsorted(self.ended[column, ::-1], doubt))
        return (first, last) if first <= last else (last, first)


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
        share = tail if length < cells else 0.0
        m, t = n * (1 - share) / length / (1 - EMPTY), n * share / max(cells - length, 1)
        own, out = (STRAYS * m) ** 2, t**2
        likely = -((c - t) ** 2 / (out + v) + np.log(out + v)) / 2
        gain = -((c - m) ** 2 / (own + v) + np.log(own + v)) / 2 - likely
        empty = -(c**2 / v + np.log(v)) / 2 - likely
        either = np.logaddexp(gain + np.log1p(-EMPTY), empty + _LOG_EMPTY)
        sums = np.pad(np.cumsum(either, axis=2), ((0, 0), (0, 0), (1, 0)))
        logs = likely.sum(axis=2, keepdims=True) + sums[..., length:] - sums[..., :-length]
        at_ends = gain - either
        logs += at_ends[..., : cells - length + 1]
        logs += at_ends[..., length - 1 :] if length > 1 else 0.0
        outside = np.maximum(t + out / (out + v) * (c - t), 0)
        full = np.maximum(m + own / (own + v) * (c - m), 0)
        inside = full * np.exp(gain + np.log1p(-EMPTY) - either)
        yield _Run(
            length, logs + PRIOR - np.log(length * (cells - length + 1)), full, inside, outside
        )


def _padded(chance: np.ndarray, before: int, after: int) -> np.ndarray:
    return np.pad(chance, ((0, 0), (0, 0), (before, after)))
