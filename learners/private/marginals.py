"""Where each column's mass lies, found in rounds: each looks closer at what the last one saw.

Noisy counts are shrunk towards what the round before expects, by as much as their noise says. So
bounds that are far too wide, or heavy tails, cost a round and not the resolution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privfed.learners.private.grid import Grid, first_cuts, one_bin_each, settled
from privfed.tables.schema import Column

#: Bins of the first round, over the public bounds.
FIRST_BINS = 16


@dataclass(frozen=True, eq=False)
class Marginal:
    """One column's estimated counts.

    Args:
        column: the public column.
        cuts: its cut-offs, strictly inside the bounds.
        counts: estimates by bin, none negative.
        variances: what is still unknown about them; none before this grid was counted.
    """

    column: Column
    cuts: np.ndarray
    counts: np.ndarray
    variances: np.ndarray | None = None

    @classmethod
    def blank(cls, column: Column) -> Marginal:
        """Before anything is known."""
        cuts = first_cuts(column, FIRST_BINS)
        return cls(column, cuts, np.zeros(len(cuts) + 1))

    @property
    def edges(self) -> np.ndarray:
        """Both bounds, and the cut-offs between them."""
        low, high = self.column.bounds
        return np.concatenate([[low], self.cuts, [high]])

    @property
    def shares(self) -> np.ndarray:
        """Estimated shares of the records, by bin; equal ones where the counts say nothing."""
        total = self.counts.sum()
        if total <= 0:
            return np.full(len(self.counts), 1 / len(self.counts))
        return np.asarray(self.counts / total)

    @property
    def reached(self) -> np.ndarray:
        """Shares below each edge, from 0 to 1, shape (bins + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.shares)])

    def quantiles(self, at: np.ndarray) -> np.ndarray:
        """Values at some shares, straight lines within bins."""
        rising = self.reached + 1e-9 * np.arange(len(self.shares) + 1)
        return np.asarray(np.interp(at, rising / rising[-1], self.edges))

    def closer(self, bins: int) -> Marginal:
        """The same, over a grid of bins that are expected to hold equal shares."""
        if one_bin_each(self.column):
            return self
        cuts = settled(self.quantiles(np.linspace(0, 1, bins + 1)), self.column)
        finer = replace(self, cuts=cuts)
        expected = np.diff(np.interp(finer.edges, self.edges, self.reached))
        return replace(finer, counts=expected * self.counts.sum(), variances=None)

    def updated(self, noisy: np.ndarray, noise: float, records: float) -> Marginal:
        """Join noisy counts with what was expected, each by how well it is known.

        Where nothing was expected, counts may be anything of the order of an even share, or of 2 % of
        the records; where a coarser grid told the sum, half the expected count; where the same bins
        were counted before, what that left open.

        Args:
            noisy: counts by bin.
            noise: their standard deviation.
            records: how many there are, about.
        """
        expected = self.counts
        if not expected.any():
            expected = np.full(len(noisy), records / len(noisy))
            spread = expected**2 + (0.02 * records) ** 2
        elif self.variances is None:
            spread = (expected / 2) ** 2 + 1e-9
        else:
            spread = self.variances
        trust = spread / (spread + noise**2)
        counts = np.maximum(expected + trust * (noisy - expected), 0)
        return replace(self, counts=counts, variances=trust * noise**2)


@dataclass(frozen=True, eq=False)
class Marginals:
    """All columns' estimates.

    Args:
        features: of each feature.
        target: of the target.
        records: how many there are, at least one.
        signal: records over the noise of one count that would cost the whole budget, made comparable
            for different numbers of columns.
        rho: the whole budget of a client in zCDP, as the cost of the first round tells; none where
            releases are exact.
    """

    features: tuple[Marginal, ...]
    target: Marginal
    records: float
    signal: float
    rho: float | None

    @property
    def grid(self) -> Grid:
        """Cut-offs of the features."""
        return Grid.of([own.cuts for own in self.features])

    def shares(self) -> np.ndarray:
        """Shares by column and code, padded with zeros, shape (columns, codes)."""
        return padded([own.shares for own in self.features])

    def ranks(self) -> np.ndarray:
        """Mid-rank of each code in [-1, 1], shape (columns, codes)."""
        own = [m.reached[:-1] + m.reached[1:] - 1 for m in self.features]
        return np.asarray(np.clip(padded(own), -1, 1))


def padded(rows: list[np.ndarray]) -> np.ndarray:
    """Rows of different lengths as one matrix that ends in zeros."""
    width = max(len(row) for row in rows)
    return np.array([np.pad(np.asarray(row, float), (0, width - len(row))) for row in rows])


def total_of(counts: list[np.ndarray]) -> float:
    """Records, from noisy counts of several columns: every record is in one bin of each.

    Weighted least squares for equal noise in all counts: each column's sum weighs one over its bins.
    """
    weights = np.array([1 / len(own) for own in counts])
    sums = np.array([own.sum() for own in counts])
    return max(1.0, float(sums @ weights / weights.sum()))


def signal_of(ratio: float, columns: int) -> float:
    """What the table of settings goes by: N sqrt(2 rho / K) sqrt(10 / p) for K clients of one rho.

    Args:
        ratio: records over the noise of one count that cost the whole budget.
        columns: number of features p.
    """
    return ratio * math.sqrt(10 / max(columns, 3))
