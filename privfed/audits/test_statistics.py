"""Test statistics: numbers of a mechanism's outputs in which two neighbouring inputs may show.

A decision rule is a threshold on one of them (:mod:`privfed.audits.threshold_tests`). What a
statistic learns, it learns from outputs that judge nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

CELLS = 32  #: Most cells of an output that are looked at one by one
#: Most pairs of cells that are compared, and how far their noise must go together for it.
PAIRS, TOGETHER = 4, 0.5
RIDGE = 1e-9  #: Added to the correlation matrix: what noise that two cells share cancels down to
FEATURES = 16  #: Most features of cells that the learned distinguisher weighs
TOLD = 10.0  #: Power of a feature that tells the samples apart without any spread, in deviations
LEVELS = 200  #: Most values that a learned score tells apart
DECIMALS = 12  #: Most decimals by which a number is looked at


@dataclass(frozen=True)
class Statistic:
    """One number of each output, by (runs, cells) to (runs,); those of one family find faults of one kind."""

    name: str
    family: str
    of: Callable[[np.ndarray], np.ndarray]
    #: whether it learned from every second output, the first included: the others choose its threshold
    taught: bool = False


@dataclass(frozen=True)
class Truths:
    """What two neighbouring inputs hold exactly."""

    present: np.ndarray  #: present, absent: with the record and without it, shape (cells,)
    absent: np.ndarray
    #: the log-likelihood ratio of outputs, shape (runs,), where the law of the noise is known
    ratio: Callable[[np.ndarray], np.ndarray] | None = None
    #: cells that a linear rule weighs, where there are too many for it; all unless given
    near: np.ndarray | None = None

    @property
    def moved(self) -> np.ndarray:
        """The cells in which they differ."""
        return np.flatnonzero(self.present != self.absent)


def statistics(
    present: np.ndarray, absent: np.ndarray, truths: Truths | None = None
) -> list[Statistic]:
    """All statistics worth trying of outputs with and without the record, shape (runs, cells).

    Without `truths`, what the inputs hold, only values, direction and bits are tried.
    """
    samples = TwoSamples.of(present, absent, truths)
    half = TwoSamples.of(present[::2], absent[::2], truths)
    cells = samples.telling(truths)
    found = [*_values(cells), *_bits(samples, cells)]
    if present.shape[1] > 1:
        near = None if truths is None else truths.near
        found.append(_direction(samples, np.arange(present.shape[1]) if near is None else near))
    if truths is not None:
        found += [*_exact(truths), *_together(samples, truths)]
        if present.shape[1] > 1:
            found.append(_learned(half, truths))
        if len(truths.moved) > 1:
            found.append(_clipped(samples, truths))
            shift = truths.present - truths.absent
            ratio = truths.ratio or learned_ratio(shift, half.absent, half.present)
            taught = truths.ratio is None
            found.append(Statistic("likelihood ratio", "likelihood", ratio, taught))
    return found


@dataclass(frozen=True)
class TwoSamples:
    """Outputs of both inputs, shape (runs, cells), each cell's shift, and its std, 1 if 0."""

    present: np.ndarray
    absent: np.ndarray
    shift: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, present: np.ndarray, absent: np.ndarray, truths: Truths | None) -> TwoSamples:
        """Measure them."""
        std = np.sqrt((present.var(axis=0) + absent.var(axis=0)) / 2)
        measured = present.mean(axis=0) - absent.mean(axis=0)
        shift = measured if truths is None else truths.present - truths.absent
        return cls(present, absent, shift, np.where(std > 0, std, 1.0))

    def telling(self, truths: Truths | None) -> np.ndarray:
        """Indices of cells to try: those that move, and those whose means differ most."""
        measured = np.abs(self.present.mean(axis=0) - self.absent.mean(axis=0)) / self.std
        order = np.argsort(-measured, kind="stable")
        if truths is None:
            return np.sort(order[:CELLS])
        return np.unique(np.concatenate([truths.moved[:CELLS], order[:PAIRS]]))

    @property
    def residues(self) -> np.ndarray:
        """Noise in units of its std, both samples together, shape (runs, cells)."""
        samples = (self.present, self.absent)
        return np.concatenate([(arm - arm.mean(axis=0)) / self.std for arm in samples])


def _values(cells: np.ndarray) -> Iterator[Statistic]:
    for cell in cells:
        yield Statistic(f"value {cell}", "value", partial(_read, np.asarray, int(cell)))


def _bits(samples: TwoSamples, cells: np.ndarray) -> Iterator[Statistic]:
    """Lowest bits and decimals of fractions, where naive float noise shows (Mironov 2012)."""
    for cell in cells:
        if any(
            (arm[:, cell] != np.rint(arm[:, cell])).any()
            for arm in (samples.present, samples.absent)
        ):
            for name, read in (("lowest bit", lowest_bit), ("decimals", decimals)):
                yield Statistic(f"{name} {cell}", "bits", partial(_read, read, int(cell)))


def _read(read: Callable[[np.ndarray], np.ndarray], cell: int, outputs: np.ndarray) -> np.ndarray:
    return read(outputs[:, cell])


def _learned(samples: TwoSamples, truths: Truths) -> Statistic:
    """Weigh the features of any cells in which the samples differ most, as if independent.

    A cell's features are its value, its distance from the truth without the record, and its lowest bit:
    noise that tells of a record in a cell that the record does not move.
    """

    def read(outputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
        feature, cell = np.divmod(columns, cells)
        values, shift = outputs[:, cell], outputs[:, cell] - truths.absent[cell]
        return np.where(feature == 0, shift, np.where(feature == 1, np.abs(shift), values % 2))

    cells = len(truths.absent)
    everything = np.arange(3 * cells)
    one, other = (read(arm, everything) for arm in (samples.present, samples.absent))
    gap, spread = one.mean(axis=0) - other.mean(axis=0), one.var(axis=0) + other.var(axis=0)
    power = np.divide(gap, np.sqrt(spread), out=np.sign(gap) * TOLD, where=spread > 0)
    best = np.argsort(-np.abs(power), kind="stable")[:FEATURES]
    weights = power[best] / np.sqrt(np.where(spread > 0, spread, 1.0))[best]
    return Statistic(
        "learned over all cells", "learned", lambda o: read(o, best) @ weights, taught=True
    )


def _direction(samples: TwoSamples, cells: np.ndarray) -> Statistic:
    """Fisher's linear discriminant (1936): the best for two shifted Gaussians.

    The shift is whitened by the noise's covariance: noise that two cells share cancels. With few
    outputs for so many cells the covariance is shrunk towards independence (Ledoit and Wolf 2004).
    """
    noise, std = samples.residues[:, cells], samples.std[cells]
    runs, size = noise.shape
    shrunk = 0.0 if runs >= 16 * size else size / (size + runs)
    shared = (1 - shrunk) * (noise.T @ noise) / runs + (shrunk + RIDGE) * np.eye(size)
    weights = np.linalg.solve(shared, samples.shift[cells] / std) / std
    weights /= np.abs(weights).max() or 1.0
    return Statistic("direction", "direction", lambda o: np.asarray(o[:, cells] @ weights))


def _clipped(samples: TwoSamples, truths: Truths) -> Statistic:
    """The sum of clipped values: the likelihood ratio's own order where noise is Laplace."""
    moved = truths.moved
    low, high = (
        each(truths.present[moved], truths.absent[moved]) for each in (np.minimum, np.maximum)
    )
    weights = np.sign(truths.present - truths.absent)[moved] / samples.std[moved]
    return Statistic("clipped", "direction", lambda o: np.clip(o[:, moved], low, high) @ weights)


def learned_ratio(
    shift: np.ndarray, absent: np.ndarray, present: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Learn a score of outputs, shape (runs, cells): ln of how much likelier they are with the shift than without.

    Naive Bayes over the cells that move, by `shift` of shape (cells,): frequencies pooled over cells of one shift.
    """
    tables = []
    for step in np.unique(shift[shift != 0]):
        cells = np.flatnonzero(shift == step)
        values = np.unique(np.concatenate([absent[:, cells], present[:, cells]]).round(6))
        few = len(values) <= LEVELS
        edges = values if few else np.quantile(values, np.linspace(0, 1, LEVELS))
        one, other = (
            np.bincount(np.searchsorted(edges, arm[:, cells].ravel()), minlength=len(edges) + 1)
            for arm in (present, absent)
        )
        tables.append((cells, edges, np.log((one + 0.5) / (other + 0.5))))

    def score(outputs: np.ndarray) -> np.ndarray:
        each = (log[np.searchsorted(edges, outputs[:, cells])] for cells, edges, log in tables)
        return np.asarray(sum(part.sum(axis=1) for part in each))

    return score


def _exact(truths: Truths) -> Iterator[Statistic]:
    """Whether moved cells hold one input's very truth: noise that is missing now and then."""
    for cell in truths.moved[:PAIRS]:
        yield Statistic(f"exact {cell}", "exact", partial(_hit, truths, np.array([cell])))
    if len(truths.moved) > 1:
        yield Statistic("exact", "exact", partial(_hit, truths, truths.moved))


def _hit(truths: Truths, cells: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """1 where the cells hold the truth with the record, -1 that without it, 0 elsewhere."""
    told = (truths.present[cells], truths.absent[cells])
    present, absent = ((outputs[:, cells] == each).all(axis=1) for each in told)
    return np.asarray(present.astype(float) - absent.astype(float))


def _together(samples: TwoSamples, truths: Truths) -> Iterator[Statistic]:
    """Whether two cells differ as their truths do: noise that is used twice."""
    shift = truths.present - truths.absent
    for one, other in _pairs(samples, truths):
        if shift[one] != shift[other]:
            apart = Truths(_apart(truths.present, one, other), _apart(truths.absent, one, other))
            score = partial(_difference, apart, one, other)
            yield Statistic(f"difference {one} and {other}", "together", score)


def _apart(row: np.ndarray, one: int, other: int) -> np.ndarray:
    return np.asarray(row[..., one] - row[..., other])[..., None]


def _difference(truths: Truths, one: int, other: int, outputs: np.ndarray) -> np.ndarray:
    return _hit(truths, np.array([0]), _apart(outputs, one, other))


def _pairs(samples: TwoSamples, truths: Truths) -> list[tuple[int, int]]:
    """Moved cells with those whose noise correlates most with theirs."""
    noise, moved = samples.residues, truths.moved[:CELLS]
    shared = np.abs(noise[:, moved].T @ noise) / len(noise)
    shared[np.arange(len(moved)), moved] = 0.0
    top = np.argsort(-shared, axis=None, kind="stable")[: 2 * PAIRS]
    rows, columns = np.unravel_index(top, shared.shape)
    close = [
        (int(moved[r]), int(c))
        for r, c in zip(rows, columns, strict=True)
        if shared[r, c] > TOGETHER
    ]
    return list(dict.fromkeys((min(pair), max(pair)) for pair in close))[:PAIRS]


def lowest_bit(values: np.ndarray) -> np.ndarray:
    """Exponent of the lowest set bit of each number: the largest k such that 2^k divides it.

    Numbers on a dyadic grid of unit 2^-g have at least -g; zero counts as 1023.
    """
    mantissa, exponent = np.frexp(np.asarray(values, dtype=float))
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    trailing = np.log2(np.maximum(whole & -whole, 1).astype(float))
    return np.where(whole == 0, 1023.0, exponent - 53 + trailing)


def decimals(values: np.ndarray) -> np.ndarray:
    """The fewest decimals to which each number can be rounded and stays the same float, or :data:`DECIMALS` + 1.

    Noise rounded before it is added leaves another float than noise rounded at last.
    """
    found = np.full(len(values), DECIMALS + 1.0)
    for places in range(DECIMALS, -1, -1):
        found[np.round(values, places) == values] = places
    return found
