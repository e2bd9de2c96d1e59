"""Where the mass of a column lies, by noisy counts of its cells; post-processing of releases.

No cell tells by itself, but few runs of neighbouring cells explain all counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

#: Std of a cell's count about an even share of the mass, in such shares: equally likely factors.
STRAYS = np.array([0.3, 1.0, 3.0])[:, None]
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

        With N records in a column, a run of L among M cells and a stray k, a count with noise of variance v is
        N(m, (k m)^2 + v) inside, m = N (1 - tail) / L, and N(t, t^2 + v) outside, t = N tail / (M - L). A run
        has the prior 1 / L over the number of runs of its length. Counts have shape (columns, cells).
        """
        top = np.full((len(counts), 1, 1), -np.inf)
        expected, starts, ends = np.zeros((3, *counts.shape))
        for own in _runs(counts, np.maximum(variance, _EXACT), np.maximum(records, 1), tail):
            former, top = top, np.maximum(top, own.logs.max(axis=(1, 2), keepdims=True))
            chance, scale = np.exp(own.logs - top), np.exp(former - top)[:, :, 0]
            room = (0, 0), (0, 0), (own.length, own.length - 1)
            sums = np.cumsum(np.pad(chance, room), axis=2)
            cover = np.maximum(sums[..., own.length :] - sums[..., : counts.shape[1]], 0)
            # The difference of two sums may round to less than nothing.
            beyond = np.maximum(chance.sum(axis=2, keepdims=True) - cover, 0) * own.outside
            expected = scale * expected + (cover * own.inside + beyond).sum(axis=1)
            each = chance.sum(axis=1)
            starts, ends = scale * starts, scale * ends
            starts[:, : each.shape[1]] += each
            ends[:, own.length - 1 :] += each
        total = starts.sum(axis=1, keepdims=True)
        begun, ended = np.cumsum(starts, axis=1), np.cumsum(ends[:, ::-1], axis=1)[:, ::-1]
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
    inside: np.ndarray  #: expected counts, shape (columns, strays, cells)
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
        m, t = n * (1 - share) / length, n * share / max(cells - length, 1)
        own, out = (STRAYS * m) ** 2, t**2
        gain = (c - t) ** 2 / (out + v) - (c - m) ** 2 / (own + v) - np.log((own + v) / (out + v))
        sums = np.pad(np.cumsum(gain / 2, axis=2), ((0, 0), (0, 0), (1, 0)))
        base = -((c - t) ** 2 / (out + v) + np.log(out + v)).sum(axis=2, keepdims=True) / 2
        logs = base + sums[..., length:] - sums[..., :-length]
        yield _Run(
            length,
            logs - np.log(length * (cells - length + 1)),
            np.maximum(m + own / (own + v) * (c - m), 0),
            np.maximum(t + out / (out + v) * (c - t), 0),
        )
