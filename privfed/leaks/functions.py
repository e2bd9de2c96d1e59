"""Functions of few raw values that disclose them: of one value, a column, two values, a group.

Each returns absolute values, since a sign hides nothing, with the cells they come from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from privfed.leaks.table import Cells, RawTable

#: Most pairs that are formed; in larger tables, only neighbours in order or rank.
PAIRS = 250_000
NEAR = 2  #: Largest distance of neighbours, in records or ranks
SPARSE = 8  #: Fewest steps of a column between two values whose midpoint is informative
_EPSILON = float(np.finfo(float).eps)

#: A function's values on one table; None if it does not apply.
Values = Callable[[RawTable], Cells | None]


@dataclass(frozen=True, eq=False)
class Function:
    """One function of raw values."""

    family: str  #: by which it is switched off
    complexity: int  #: 0 for the simplest
    remedy: str  #: what to release instead
    #: description of a matching number; ``{k}`` is the number of records that is enough
    rule: str
    values: Values  #: computes its values on a table

    def evaluate(self, table: RawTable) -> Cells | None:
        """Return its values on a table, cached."""
        return table.memoised(self.rule, partial(self.values, table))


def _elementwise(function: Callable[[np.ndarray], np.ndarray], table: RawTable) -> Cells:
    _, values, positions = table.sample
    with np.errstate(all="ignore"):
        return Cells.of(function(values), positions)


#: Public functions of one value. Absolute values only, which covers their negatives too.
ELEMENTWISE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the square": np.square,
    "the square root": lambda x: np.sqrt(np.abs(x)),
    "the reciprocal": np.reciprocal,
    "the logarithm": lambda x: np.log(np.abs(x)),
    "the logarithm of one more": lambda x: np.log1p(np.abs(x)),
    "the logarithm to base 2": lambda x: np.log2(np.abs(x)),
    "the logarithm to base 10": lambda x: np.log10(np.abs(x)),
    "the exponential": np.exp,
    "the difference to one": lambda x: 1 - x,
    "one part in a hundred": lambda x: x / 100,
    "one part in a thousand": lambda x: x / 1000,
    **{
        name: partial(np.multiply, factor)
        for name, factor in {
            "ten times": 10,
            "a hundred times": 100,
            "a thousand times": 1e3,
            **{f"10^{power} times": 10.0**power for power in (4, 5, 7)},
            "a million times": 1e6,
            "a thousand million times": 1e9,
            "half": 0.5,
            "twice": 2,
            "255 times": 255,
            "12 times": 12,
            "60 times": 60,
            "one part in 60": 1 / 60,
            "one part in 86400": 1 / 86400,
            **{f"2^{power} times": 2.0**power for power in (8, 16, 24, 30, 32)},
        }.items()
    },
}


def _by_bounds(shift: float, factor: float, table: RawTable) -> Cells | None:
    """Values scaled to [0, 1] by public bounds, then multiplied and shifted."""
    if not table.bounds:
        return None
    _, values, positions = table.sample
    low, high = np.array([table.bounds.get(name, (np.nan, np.nan)) for name in table.names]).T
    unit = (values - low) / (high - low)
    unit[(unit <= 0) | (unit >= 1)] = np.nan
    return Cells.of(unit * factor - shift, positions, 8 * _EPSILON)


#: Offset and divisor of each scaling by column statistics, shape (columns,).
SCALINGS: dict[str, Callable[[np.ndarray], tuple[np.ndarray | float, np.ndarray | float]]] = {
    "less its column's mean": lambda X: (np.nanmean(X, axis=0), 1.0),
    "standardised": lambda X: (np.nanmean(X, axis=0), np.nanstd(X, axis=0)),
    "standardised (n - 1)": lambda X: (np.nanmean(X, axis=0), np.nanstd(X, axis=0, ddof=1)),
    "scaled to its column's range": lambda X: (np.nanmin(X, axis=0), np.ptp(X, axis=0)),
    "less its column's least": lambda X: (np.nanmin(X, axis=0), 1.0),
    "less its column's median": lambda X: (np.nanmedian(X, axis=0), 1.0),
    "scaled by its column's quartiles": lambda X: (
        np.nanmedian(X, axis=0),
        np.subtract(*np.nanquantile(X, [0.75, 0.25], axis=0)),
    ),
    "as a share of its column's greatest": lambda X: (0.0, np.nanmax(np.abs(X), axis=0)),
    "as a share of its column's total": lambda X: (0.0, np.nansum(X, axis=0)),
    "as a share of its column's length": lambda X: (0.0, np.sqrt(np.nansum(X**2, axis=0))),
    "divided by the number of records": lambda X: (0.0, _count(X)),
    "left out of its column's total": lambda X: (np.nansum(X, axis=0), 1.0),
    "left out of its column's mean": lambda X: (np.nansum(X, axis=0), np.maximum(_count(X) - 1, 1)),
}


def _count(X: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(X).sum(axis=0).astype(float))


def _scaled(name: str, table: RawTable) -> Cells | None:
    if table.records < 3 or not table.numbers.size:
        return None
    _, values, positions = table.sample
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        shift, scale = SCALINGS[name](table.numbers)
        scaled = (values - shift) / scale
        magnitude = float(np.nanmax(np.abs(values) / np.abs(scale), initial=0))
    slack = min(16 * _EPSILON * magnitude, 1e-9)
    # a zero's is a statistic of all records: less the mean, it is the mean itself
    scaled[(np.abs(scaled) <= 4 * slack) | (values == 0)] = np.nan
    return Cells.of(scaled, positions, slack)


#: Functions of two values: multiples of their sum or of their difference d, and of d^2.
PAIRWISE: dict[str, tuple[np.ufunc, float, int]] = {
    "the sum": (np.add, 1.0, 1),
    "the midpoint": (np.add, 0.5, 1),
    "the difference": (np.subtract, 1.0, 1),
    "the deviation": (np.subtract, 0.5, 1),
    "the deviation (n - 1)": (np.subtract, 1 / np.sqrt(2), 1),
    "the variance": (np.subtract, 0.25, 2),
    "the variance (n - 1)": (np.subtract, 0.5, 2),
}


def _of_two(name: str, table: RawTable) -> Cells:
    function, factor, power = PAIRWISE[name]
    sums = table.memoised(function, lambda: _pairs(table, function))
    squared = Cells(sums.sizes**2, sums.sources, 2 * sums.slack * sums.sizes)
    return (squared if power == 2 else sums).times(factor)


def _pairs(table: RawTable, function: np.ufunc) -> Cells:
    """Sums or differences of two records of one column."""
    _, numbers, positions = table.sample
    values, cells = [np.empty(0)], [np.empty(0, np.int64)]
    for column, column_cells in zip(numbers.T, positions.T, strict=True):
        present = np.flatnonzero(np.isfinite(column))
        for first, second in _partners(column[present], numbers.shape[1]):
            values.append(function(column[present[first]], column[present[second]]))
            cells.append(column_cells[present[first]])
    slack = 4 * _EPSILON * float(np.nanmax(np.abs(numbers), initial=0))
    return Cells.of(np.concatenate(values), np.concatenate(cells), slack)


def _partners(column: np.ndarray, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield positions of pairs: all, or in a large table those adjacent in order or rank."""
    count = len(column)
    if count * (count - 1) // 2 * columns <= PAIRS:
        yield np.triu_indices(count, 1)
        return
    ranked = np.argsort(column, kind="stable")
    for apart in range(1, NEAR + 1):
        yield np.arange(count - apart), np.arange(apart, count)
        yield ranked[:-apart], ranked[apart:]


def _midpoints(table: RawTable) -> Cells:
    """Midpoints of adjacent values of a column, as in a tree's thresholds, in 32-bit precision.

    Only of values more than ``SPARSE`` steps apart: on a full lattice every midpoint is one.
    """
    _, numbers, positions = table.sample
    values, cells = [np.empty(0)], [np.empty(0, np.int64)]
    for column, column_cells, step in zip(numbers.T, positions.T, table.steps, strict=True):
        ordered, first = np.unique(column[np.isfinite(column)], return_index=True)
        for apart in range(1, NEAR + 1):
            low, high = ordered[:-apart], ordered[apart:]
            sparse = high - low > SPARSE * step
            values.append((low[sparse] + high[sparse]) / 2)
            cells.append(column_cells[np.isfinite(column)][first[:-apart][sparse]])
    midpoints = Cells.of(np.concatenate(values), np.concatenate(cells))
    with np.errstate(over="ignore"):
        single = np.spacing(midpoints.sizes.astype(np.float32)).astype(float)
    return Cells(midpoints.sizes, midpoints.sources, np.where(np.isfinite(single), single, 0.0))


def _of_triple(factor: float, table: RawTable) -> Cells | None:
    """Multiples of the sums of three records."""
    total = table.memoised("three", lambda: _triple_sums(table))
    return None if total is None else total.times(factor)


def _triple_sums(table: RawTable) -> Cells | None:
    """Sums of any three records of a small table, otherwise of three consecutive ones, as in rolling sums."""
    numbers, _, positions = table.sample
    count, columns = numbers.shape
    if count < 4:
        return None
    if count * (count - 1) * (count - 2) // 6 * columns <= PAIRS:
        first, second, third = _any_three(count)
    else:
        first, second, third = np.arange(3)[:, None] + np.arange(count - 2)
    return Cells.of(numbers[first] + numbers[second] + numbers[third], positions[first])


@lru_cache(maxsize=2)
def _any_three(count: int) -> np.ndarray:
    """All combinations of three of ``count`` records, shape (3, combinations)."""
    return np.array(list(combinations(range(count), 3))).T.copy()


def _quantiles(table: RawTable) -> Cells | None:
    """Percentiles, each interpolated between two records."""
    numbers, _, positions = table.sample
    if not numbers.size:
        return None
    levels = np.unique(np.r_[np.arange(1, 100) / 100, np.arange(1, 40) / 40, np.arange(1, 16) / 16])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        values = np.nanquantile(numbers, levels, axis=0)
    ranked = np.argsort(numbers, axis=0, kind="stable")
    counts = np.isfinite(numbers).sum(axis=0)
    below = np.floor(levels[:, None] * np.maximum(counts - 1, 0)).astype(np.int64)
    cells = np.take_along_axis(positions, np.take_along_axis(ranked, below, axis=0), axis=0)
    return Cells.of(values, cells)


def _products(numbers: np.ndarray) -> np.ndarray:
    pairs = np.array(list(combinations(range(numbers.shape[1]), 2)))
    if len(numbers) * len(pairs) > PAIRS:
        return np.full((len(numbers), 1), np.nan)
    return np.asarray(numbers[:, pairs[:, 0]] * numbers[:, pairs[:, 1]])


#: Functions of records, shape (records, columns), with one or more values per record.
OF_A_RECORD: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the product of two values of one record": _products,
    "the sum of one record's values": lambda X: X.sum(axis=1),
    "the mean of one record's values": lambda X: X.mean(axis=1),
    "the length of one record": lambda X: np.sqrt((X**2).sum(axis=1)),
    "a raw value as a share of its record's length": lambda X: (
        X / np.sqrt((X**2).sum(axis=1, keepdims=True))
    ),
}


def _of_a_record(function: Callable[[np.ndarray], np.ndarray], table: RawTable) -> Cells | None:
    """Values of a function of single records: products, sums, means, lengths."""
    numbers, _, positions = table.sample
    if numbers.shape[1] < 2:
        return None
    with np.errstate(all="ignore"):
        results = function(numbers).reshape(len(numbers), -1)
    slack = 4 * _EPSILON * float(np.nanmax(np.abs(results), initial=0))
    return Cells.of(results, np.broadcast_to(positions[:, :1], results.shape), slack)


OF_A_GROUP: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda X: X.sum(axis=0),
    "mean": lambda X: X.mean(axis=0),
    "deviation": lambda X: X.std(axis=0, ddof=1),
}


def _of_a_group(function: Callable[[np.ndarray], np.ndarray], table: RawTable) -> Cells | None:
    """Sums, means and standard deviations of small groups of records defined by one or two columns."""
    groups = table.memoised("groups", lambda: list(_small_groups(table)))
    if not groups or not table.numbers.size:
        return None
    columns = np.arange(table.numbers.shape[1])
    results = np.array([function(table.numbers[rows]) for rows in groups])
    positions = np.array([int(rows[0]) * len(columns) + columns for rows in groups])
    slack = 16 * _EPSILON * float(np.nanmax(np.abs(table.numbers), initial=0))
    return Cells.of(results, positions, slack)


def _small_groups(table: RawTable) -> Iterator[np.ndarray]:
    """Yield the records of each group of at least two but too few records; at most 500 groups per label."""
    for label in _labels(table):
        order = np.argsort(label, kind="stable")
        starts = np.r_[0, np.flatnonzero(np.diff(label[order])) + 1]
        sizes = np.diff(np.r_[starts, len(label)])
        for group in np.flatnonzero((sizes >= 2) & (sizes < table.shared))[:500]:
            yield order[starts[group] : starts[group] + sizes[group]]


def _labels(table: RawTable) -> Iterator[np.ndarray]:
    """Yield columns that group records, and pairs of them."""
    columns = [column for column in table.codes.T]
    for column in table.numbers.T:
        values, codes = np.unique(column, return_inverse=True)
        if 1 < len(values) <= max(20, table.records // 2) and len(values) < 1000:
            columns.append(codes)
    labels = [column for column in columns if len(np.unique(column)) < table.records][:12]
    yield from labels
    for first, second in combinations(labels, 2):
        yield np.unique(np.column_stack([first, second]), axis=0, return_inverse=True)[1].ravel()


_VALUE = "release a sum or a mean over many records, with noise, instead of the value itself"
_FUNCTION = "a function of one value reveals the value; apply it to a noisy sum over many records"
_SCALED = "scale by public bounds, and release a noisy sum over many records"
_FEW = "a function of so few records reveals them; pool more records, or add noise"

#: Each family's complexity, remedy and rules.
_FAMILIES: Sequence[tuple[str, int, str, Mapping[str, Values]]] = (
    ("values", 0, _VALUE, {"a raw value": lambda table: table.cells}),
    (
        *("bounds", 2, _SCALED),
        {
            "a raw value scaled by public bounds": partial(_by_bounds, 0.0, 1.0),
            "a raw value scaled by public bounds, less a half": partial(_by_bounds, 0.5, 1.0),
            "a raw value scaled by public bounds, from -1 to 1": partial(_by_bounds, 1.0, 2.0),
        },
    ),
    (
        *("functions", 3, _FUNCTION),
        {f"{name} of a raw value": partial(_elementwise, of) for name, of in ELEMENTWISE.items()},
    ),
    (
        *("scalings", 3, _SCALED),
        {f"a raw value {name}": partial(_scaled, name) for name in SCALINGS},
    ),
    (
        *("few", 4, _FEW),
        {
            **{f"{name} of two raw values": partial(_of_two, name) for name in PAIRWISE},
            "the midpoint of two raw values next to each other": _midpoints,
            "the sum of three raw values": partial(_of_triple, 1.0),
            "the mean of three raw values": partial(_of_triple, 1 / 3),
            "a quantile between two raw values": _quantiles,
            **{name: partial(_of_a_record, of) for name, of in OF_A_RECORD.items()},
            **{
                f"the {name} of a group of fewer than {{k}} records": partial(_of_a_group, of)
                for name, of in OF_A_GROUP.items()
            },
        },
    ),
)
#: Every function, the simplest first.
FUNCTIONS = [
    Function(family, complexity, remedy, rule, values)
    for family, complexity, remedy, rules in _FAMILIES
    for rule, values in rules.items()
]
