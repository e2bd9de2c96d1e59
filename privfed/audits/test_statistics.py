"""Test statistics: functions of a mechanism's outputs that may distinguish two neighbouring inputs.

A decision rule is a threshold on one of them (:mod:`privfed.audits.threshold_tests`). Statistics
are learned from outputs that are not used for evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

CELLS = 32  #: Most cells of an output that are examined one by one
#: Most pairs of cells that are compared, and the correlation of their noise from which they are.
PAIRS, TOGETHER = 4, 0.5
RIDGE = 1e-9  #: Added to the correlation matrix: the remainder of cancelled common noise
FEATURES = 16  #: Most features of cells that the learned distinguisher weighs
TOLD = 10.0  #: Power of a feature that separates the samples without variance, in stds
LEVELS = 200  #: Most distinct values of a learned score
DECIMALS = 12  #: Most decimals that are examined


@dataclass(frozen=True)
class Statistic:
    """A number of each output, from (runs, cells) to (runs,); one family detects faults of one kind."""

    name: str
    family: str
    of: Callable[[np.ndarray], np.ndarray]
    #: whether it was trained on every second output, including the first: the others choose its threshold
    trained: bool = False


@dataclass(frozen=True)
class Truths:
    """The exact values of two neighbouring inputs."""

    present: np.ndarray  #: present, absent: with the record and without it, shape (cells,)
    absent: np.ndarray
    #: the log-likelihood ratio of outputs, shape (runs,), if the law of the noise is known
    ratio: Callable[[np.ndarray], np.ndarray] | None = None
    #: cells that a linear rule weighs, if there are too many for it; all by default
    near: np.ndarray | None = None

    @property
    def moved(self) -> np.ndarray:
        """The cells in which they differ."""
        return np.flatnonzero(self.present != self.absent)


def statistics(
    present: np.ndarray, absent: np.ndarray, truths: Truths | None = None
) -> list[Statistic]:
    """Candidate statistics of outputs with and without the record, shape (runs, cells).

    Without `truths`, the exact inputs, only values, direction and bits are tried.
    """
    samples = TwoSamples.of(present, absent, truths)
    half = TwoSamples.of(present[::2], absent[::2], truths)
    cells = samples.informative(truths)
    result = [*_values(cells), *_bits(samples, cells)]
    if present.shape[1] > 1:
        near = None if truths is None else truths.near
        result.append(_direction(samples, np.arange(present.shape[1]) if near is None else near))
    if truths is not None:
        result += [*_exact(truths), *_differences(samples, truths)]
        if present.shape[1] > 1:
            result.append(_learned(half, truths))
        if len(truths.moved) > 1:
            result.append(_clipped(samples, truths))
            shift = truths.present - truths.absent
            ratio = truths.ratio or learned_ratio(shift, half.absent, half.present)
            trained = truths.ratio is None
            result.append(Statistic("likelihood ratio", "likelihood", ratio, trained))
    return result


@dataclass(frozen=True)
class TwoSamples:
    """Outputs of both inputs, shape (runs, cells), each cell's shift, and its std, 1 if 0."""

    present: np.ndarray
    absent: np.ndarray
    shift: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, present: np.ndarray, absent: np.ndarray, truths: Truths | None) -> TwoSamples:
        """Measure shift and std."""
        std = np.sqrt((present.var(axis=0) + absent.var(axis=0)) / 2)
        measured = present.mean(axis=0) - absent.mean(axis=0)
        shift = measured if truths is None else truths.present - truths.absent
        return cls(present, absent, shift, np.where(std > 0, std, 1.0))

    def informative(self, truths: Truths | None) -> np.ndarray:
        """Indices of the cells that move, and of those whose means differ most."""
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
    """Yield lowest bits and decimals of fractions, which reveal naive float noise (Mironov 2012)."""
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

    A cell's features are its value, its distance from the exact value without the record, and its lowest bit:
    they detect noise that depends on a record in cells that the record does not move.
    """

    def read(outputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
        feature, cell = np.divmod(columns, cells)
        values, shift = outputs[:, cell], outputs[:, cell] - truths.absent[cell]
        return np.where(feature == 0, shift, np.where(feature == 1, np.abs(shift), values % 2))

    cells = len(truths.absent)
    features = np.arange(3 * cells)
    p, q = (read(arm, features) for arm in (samples.present, samples.absent))
    gap, variance = p.mean(axis=0) - q.mean(axis=0), p.var(axis=0) + q.var(axis=0)
    power = np.divide(gap, np.sqrt(variance), out=np.sign(gap) * TOLD, where=variance > 0)
    best = np.argsort(-np.abs(power), kind="stable")[:FEATURES]
    weights = power[best] / np.sqrt(np.where(variance > 0, variance, 1.0))[best]
    return Statistic(
        "learned over all cells", "learned", lambda o: read(o, best) @ weights, trained=True
    )


def _direction(samples: TwoSamples, cells: np.ndarray) -> Statistic:
    """Fisher's linear discriminant (1936): the best for two shifted Gaussians.

    The shift is whitened by the noise's covariance: noise common to two cells cancels. With few
    outputs relative to the cells the covariance is shrunk towards independence (Ledoit and Wolf 2004).
    """
    noise, std = samples.residues[:, cells], samples.std[cells]
    runs, size = noise.shape
    shrunk = 0.0 if runs >= 16 * size else size / (size + runs)
    shared = (1 - shrunk) * (noise.T @ noise) / runs + (shrunk + RIDGE) * np.eye(size)
    weights = np.linalg.solve(shared, samples.shift[cells] / std) / std
    weights /= np.abs(weights).max() or 1.0
    return Statistic("direction", "direction", lambda o: np.asarray(o[:, cells] @ weights))


def _clipped(samples: TwoSamples, truths: Truths) -> Statistic:
    """The sum of clipped values, monotone in the likelihood ratio for Laplace noise."""
    moved = truths.moved
    low, high = (
        bound(truths.present[moved], truths.absent[moved]) for bound in (np.minimum, np.maximum)
    )
    weights = np.sign(truths.present - truths.absent)[moved] / samples.std[moved]
    return Statistic("clipped", "direction", lambda o: np.clip(o[:, moved], low, high) @ weights)


def learned_ratio(
    shift: np.ndarray, absent: np.ndarray, present: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Learn the log-likelihood ratio of outputs, shape (runs, cells), with the shift against without.

    Naive Bayes over the cells that move, by `shift` of shape (cells,): frequencies pooled over cells of one shift.
    """
    tables = []
    for step in np.unique(shift[shift != 0]):
        cells = np.flatnonzero(shift == step)
        values = np.unique(np.concatenate([absent[:, cells], present[:, cells]]).round(6))
        few = len(values) <= LEVELS
        edges = values if few else np.quantile(values, np.linspace(0, 1, LEVELS))
        inside, outside = (
            np.bincount(np.searchsorted(edges, arm[:, cells].ravel()), minlength=len(edges) + 1)
            for arm in (present, absent)
        )
        tables.append((cells, edges, np.log((inside + 0.5) / (outside + 0.5))))

    def score(outputs: np.ndarray) -> np.ndarray:
        parts = (log[np.searchsorted(edges, outputs[:, cells])] for cells, edges, log in tables)
        return np.asarray(sum(part.sum(axis=1) for part in parts))

    return score


def _exact(truths: Truths) -> Iterator[Statistic]:
    """Yield whether moved cells equal one input's exact values: noise that is missing at times."""
    for cell in truths.moved[:PAIRS]:
        yield Statistic(f"exact {cell}", "exact", partial(_match_exact, truths, np.array([cell])))
    if len(truths.moved) > 1:
        yield Statistic("exact", "exact", partial(_match_exact, truths, truths.moved))


def _match_exact(truths: Truths, cells: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """1 if the cells equal the exact values with the record, -1 those without it, 0 otherwise."""
    exact = (truths.present[cells], truths.absent[cells])
    present, absent = ((outputs[:, cells] == value).all(axis=1) for value in exact)
    return np.asarray(present.astype(float) - absent.astype(float))


def _differences(samples: TwoSamples, truths: Truths) -> Iterator[Statistic]:
    """Yield whether two cells differ by exactly their exact difference: noise that is used twice."""
    shift = truths.present - truths.absent
    for i, j in _pairs(samples, truths):
        if shift[i] != shift[j]:
            apart = Truths(_apart(truths.present, i, j), _apart(truths.absent, i, j))
            score = partial(_difference, apart, i, j)
            yield Statistic(f"difference {i} and {j}", "together", score)


def _apart(row: np.ndarray, i: int, j: int) -> np.ndarray:
    return np.asarray(row[..., i] - row[..., j])[..., None]


def _difference(truths: Truths, i: int, j: int, outputs: np.ndarray) -> np.ndarray:
    return _match_exact(truths, np.array([0]), _apart(outputs, i, j))


def _pairs(samples: TwoSamples, truths: Truths) -> list[tuple[int, int]]:
    """Pairs of a moved cell and one whose noise correlates most with its."""
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
    """The fewest decimals to which each number can be rounded without changing the float, or :data:`DECIMALS` + 1.

    Noise rounded before the addition gives other floats than noise rounded after it.
    """
    fewest = np.full(len(values), DECIMALS + 1.0)
    for places in range(DECIMALS, -1, -1):
        fewest[np.round(values, places) == values] = places
    return fewest
