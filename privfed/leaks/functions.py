"""Functions of few raw values that may stand for them: of one, of a column, of two, of a group.

Each gives the sizes of its values, with the cells that they come from. Sizes, for a sign hides nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from privfed.leaks.table import Cells, RawTable

#: Most sums of two that are formed; of larger tables, those of neighbours in order or rank.
PAIRS = 250_000
NEAR = 2  #: How far apart neighbours may be
SPARSE = 8  #: How many of a column's steps lie at least between two whose midpoint tells something
_EPSILON = float(np.finfo(float).eps)

#: A function's values of one table; none where the table has no such.
Values = Callable[[RawTable], Cells | None]


@dataclass(frozen=True, eq=False)
class Function:
    """One function of raw values."""

    family: str  #: by which it is switched off
    plain: int  #: how plain it is
    mend: str  #: what to do about it
    #: what a released number is if it matches; ``{k}`` stands for how many records are enough
    rule: str
    values: Values  #: works out its values of a table

    def of(self, table: RawTable) -> Cells | None:
        """Its values of a table, worked out once."""
        return table.memoised(self.rule, partial(self.values, table))


def _elementwise(function: Callable[[np.ndarray], np.ndarray], table: RawTable) -> Cells:
    _, own, where = table.sample
    with np.errstate(all="ignore"):
        return Cells.of(function(own), where)


#: Public functions of one value. Sizes only, so that minus one times each is covered as well.
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
    """Scaled to [0, 1] by public bounds, then stretched and shifted."""
    if not table.bounds:
        return None
    _, own, where = table.sample
    low, high = np.array([table.bounds.get(name, (np.nan, np.nan)) for name in table.names]).T
    unit = (own - low) / (high - low)
    unit[(unit <= 0) | (unit >= 1)] = np.nan
    return Cells.of(unit * factor - shift, where, 8 * _EPSILON)


#: What each scaling by its own column subtracts, and what it divides by, shape (columns,).
SCALINGS: dict[str, Callable[[np.ndarray], tuple[np.ndarray | float, np.ndarray | float]]] = {
    "less its column's mean": lambda x: (np.nanmean(x, axis=0), 1.0),
    "standardised": lambda x: (np.nanmean(x, axis=0), np.nanstd(x, axis=0)),
    "standardised (n - 1)": lambda x: (np.nanmean(x, axis=0), np.nanstd(x, axis=0, ddof=1)),
    "scaled to its column's range": lambda x: (np.nanmin(x, axis=0), np.ptp(x, axis=0)),
    "less its column's least": lambda x: (np.nanmin(x, axis=0), 1.0),
    "less its column's median": lambda x: (np.nanmedian(x, axis=0), 1.0),
    "scaled by its column's quartiles": lambda x: (
        np.nanmedian(x, axis=0),
        np.subtract(*np.nanquantile(x, [0.75, 0.25], axis=0)),
    ),
    "as a share of its column's greatest": lambda x: (0.0, np.nanmax(np.abs(x), axis=0)),
    "as a share of its column's total": lambda x: (0.0, np.nansum(x, axis=0)),
    "as a share of its column's length": lambda x: (0.0, np.sqrt(np.nansum(x**2, axis=0))),
    "divided by the number of records": lambda x: (0.0, _count(x)),
    "left out of its column's total": lambda x: (np.nansum(x, axis=0), 1.0),
    "left out of its column's mean": lambda x: (np.nansum(x, axis=0), np.maximum(_count(x) - 1, 1)),
}


def _count(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(x).sum(axis=0).astype(float))


def _scaled(name: str, table: RawTable) -> Cells | None:
    if table.records < 3 or not table.numbers.size:
        return None
    _, own, where = table.sample
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        shift, scale = SCALINGS[name](table.numbers)
        scaled = (own - shift) / scale
        far = float(np.nanmax(np.abs(own) / np.abs(scale), initial=0))
    slack = min(16 * _EPSILON * far, 1e-9)
    scaled[np.abs(scaled) <= 4 * slack] = np.nan
    return Cells.of(scaled, where, slack)


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
    one = table.memoised(function, lambda: _pairs(table, function))
    squared = Cells(one.sizes**2, one.first, 2 * one.slack * one.sizes)
    return (squared if power == 2 else one).times(factor)


def _pairs(table: RawTable, function: np.ufunc) -> Cells:
    """Sums or differences of two records of one column."""
    _, own, where = table.sample
    values, cells = [np.empty(0)], [np.empty(0, np.int64)]
    for column, places in zip(own.T, where.T, strict=True):
        present = np.flatnonzero(np.isfinite(column))
        for first, second in _partners(column[present], own.shape[1]):
            values.append(function(column[present[first]], column[present[second]]))
            cells.append(places[present[first]])
    slack = 4 * _EPSILON * float(np.nanmax(np.abs(own), initial=0))
    return Cells.of(np.concatenate(values), np.concatenate(cells), slack)


def _partners(column: np.ndarray, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Positions of pairs: all of them, or in a large table those near in order or in rank."""
    count = len(column)
    if count * (count - 1) // 2 * columns <= PAIRS:
        yield np.triu_indices(count, 1)
        return
    ranked = np.argsort(column, kind="stable")
    for apart in range(1, NEAR + 1):
        yield np.arange(count - apart), np.arange(apart, count)
        yield ranked[:-apart], ranked[apart:]


def _between(table: RawTable) -> Cells:
    """Midpoints of values next to each other in their column, as trees' thresholds are, from 32-bit floats;
    of such as are some steps of the column apart, for in a full lattice any midpoint is one."""
    _, own, where = table.sample
    values, cells = [np.empty(0)], [np.empty(0, np.int64)]
    for column, places, step in zip(own.T, where.T, table.steps, strict=True):
        ordered, at = np.unique(column[np.isfinite(column)], return_index=True)
        for apart in range(1, NEAR + 1):
            low, high = ordered[:-apart], ordered[apart:]
            sparse = high - low > SPARSE * step
            values.append((low[sparse] + high[sparse]) / 2)
            cells.append(places[np.isfinite(column)][at[:-apart][sparse]])
    made = Cells.of(np.concatenate(values), np.concatenate(cells))
    with np.errstate(over="ignore"):
        single = np.spacing(made.sizes.astype(np.float32)).astype(float)
    return Cells(made.sizes, made.first, np.where(np.isfinite(single), single, 0.0))


def _of_three(factor: float, table: RawTable) -> Cells | None:
    """A multiple of the sum of three records."""
    total = table.memoised("three", lambda: _threes(table))
    return None if total is None else total.times(factor)


def _threes(table: RawTable) -> Cells | None:
    """Sums of any three records of a small table, else of three in a row, as rolling sums are."""
    numbers, _, where = table.sample
    count, columns = numbers.shape
    if count < 4:
        return None
    if count * (count - 1) * (count - 2) // 6 * columns <= PAIRS:
        one, two, three = _any_three(count)
    else:
        one, two, three = np.arange(3)[:, None] + np.arange(count - 2)
    return Cells.of(numbers[one] + numbers[two] + numbers[three], where[one])


@lru_cache(maxsize=2)
def _any_three(count: int) -> np.ndarray:
    """Every choice of three of so many, shape (3, choices)."""
    return np.array(list(combinations(range(count), 3))).T.copy()


def _quantiles(table: RawTable) -> Cells | None:
    """Percentiles, each interpolated between two records."""
    numbers, _, where = table.sample
    if not numbers.size:
        return None
    shares = np.unique(np.r_[np.arange(1, 100) / 100, np.arange(1, 40) / 40, np.arange(1, 16) / 16])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        values = np.nanquantile(numbers, shares, axis=0)
    ranked = np.argsort(numbers, axis=0, kind="stable")
    present = np.isfinite(numbers).sum(axis=0)
    below = np.floor(shares[:, None] * np.maximum(present - 1, 0)).astype(np.int64)
    cells = np.take_along_axis(where, np.take_along_axis(ranked, below, axis=0), axis=0)
    return Cells.of(values, cells)


def _products(numbers: np.ndarray) -> np.ndarray:
    pairs = np.array(list(combinations(range(numbers.shape[1]), 2)))
    if len(numbers) * len(pairs) > PAIRS:
        return np.full((len(numbers), 1), np.nan)
    return np.asarray(numbers[:, pairs[:, 0]] * numbers[:, pairs[:, 1]])


#: Functions of one record's numbers, shape (records, columns), to one or more of each.
OF_A_RECORD: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the product of two values of one record": _products,
    "the sum of one record's values": lambda x: x.sum(axis=1),
    "the mean of one record's values": lambda x: x.mean(axis=1),
    "the length of one record": lambda x: np.sqrt((x**2).sum(axis=1)),
    "a raw value as a share of its record's length": lambda x: (
        x / np.sqrt((x**2).sum(axis=1, keepdims=True))
    ),
}


def _of_a_record(function: Callable[[np.ndarray], np.ndarray], table: RawTable) -> Cells | None:
    """Products, sums, means and lengths of a record, as the moments of one record are."""
    numbers, _, where = table.sample
    if numbers.shape[1] < 2:
        return None
    with np.errstate(all="ignore"):
        made = function(numbers).reshape(len(numbers), -1)
    slack = 4 * _EPSILON * float(np.nanmax(np.abs(made), initial=0))
    return Cells.of(made, np.broadcast_to(where[:, :1], made.shape), slack)


OF_A_GROUP: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(axis=0),
    "deviation": lambda x: x.std(axis=0, ddof=1),
}


def _of_a_group(function: Callable[[np.ndarray], np.ndarray], table: RawTable) -> Cells | None:
    """Sums, means and deviations of small groups of records that one or two columns describe."""
    groups = table.memoised("groups", lambda: list(_small_groups(table)))
    if not groups or not table.numbers.size:
        return None
    columns = np.arange(table.numbers.shape[1])
    made = np.array([function(table.numbers[rows]) for rows in groups])
    where = np.array([int(rows[0]) * len(columns) + columns for rows in groups])
    slack = 16 * _EPSILON * float(np.nanmax(np.abs(table.numbers), initial=0))
    return Cells.of(made, where, slack)


def _small_groups(table: RawTable) -> Iterator[np.ndarray]:
    """The records of each group of at least two and too few; a bounded number for each label."""
    for label in _labels(table):
        order = np.argsort(label, kind="stable")
        starts = np.r_[0, np.flatnonzero(np.diff(label[order])) + 1]
        sizes = np.diff(np.r_[starts, len(label)])
        for at in np.flatnonzero((sizes >= 2) & (sizes < table.shared))[:500]:
            yield order[starts[at] : starts[at] + sizes[at]]


def _labels(table: RawTable) -> Iterator[np.ndarray]:
    """Columns that group records, and pairs of them."""
    coded = [column for column in table.codes.T]
    for column in table.numbers.T:
        values, codes = np.unique(column, return_inverse=True)
        if 1 < len(values) <= max(20, table.records // 2) and len(values) < 1000:
            coded.append(codes)
    several = [one for one in coded if len(np.unique(one)) < table.records][:12]
    yield from several
    for one, other in combinations(several, 2):
        yield np.unique(np.column_stack([one, other]), axis=0, return_inverse=True)[1].ravel()


_VALUE = "release a sum or a mean over many records, with noise, instead of the value itself"
_FUNCTION = (
    "a function of one value gives the value away; apply it to a noisy sum over many records"
)
_SCALED = "scale by public bounds, and release a noisy sum over many records"
_FEW = "a function of so few records gives them away; pool more records, or add noise"

#: Each family's plainness, what to do about it, and its rules.
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
            "the midpoint of two raw values next to each other": _between,
            "the sum of three raw values": partial(_of_three, 1.0),
            "the mean of three raw values": partial(_of_three, 1 / 3),
            "a quantile between two raw values": _quantiles,
            **{name: partial(_of_a_record, of) for name, of in OF_A_RECORD.items()},
            **{
                f"the {name} of a group of fewer than {{k}} records": partial(_of_a_group, of)
                for name, of in OF_A_GROUP.items()
            },
        },
    ),
)
#: Every function, the plainest first.
FUNCTIONS = [
    Function(family, plain, mend, rule, values)
    for family, plain, mend, rules in _FAMILIES
    for rule, values in rules.items()
]
