"""Functions of few raw values that may stand for them: of one, of a column, of two, of a group.

Each rule gives the sizes of what it computes, ascending, with the cells that they come from. Sizes,
for a sign hides nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from privfed.testing.rules.table import Cells, RawTable

#: Most cells that are tried in other forms; of larger tables, evenly spaced records are.
SAMPLE = 100_000
#: Most sums of two that are formed; of larger tables, those of neighbours in order or rank.
PAIRS = 2_000_000
#: How far apart neighbours may be.
NEAR = 2
_EPSILON = float(np.finfo(float).eps)

DIRECT = "release a sum or a mean over many records, with noise, instead of the value itself"
FUNCTION = "a function of one value gives the value away; apply it to a noisy sum over many records"
SCALED = "scale by public bounds, and release a noisy sum over many records"
FEW = "a function of so few records gives them away; pool more records, or add noise"


@dataclass(frozen=True, eq=False)
class Derived:
    """What one rule computes from the raw values.

    Args:
        rule: what a released number is if it matches.
        cells: sizes and the cells that they come from.
        mend: what to do about it.
        slack: by how much rounding on the way may have moved each, an absolute amount.
        of_data: whether nobody without the data could get the same from whole numbers; otherwise
            whole-numbered raw values are matched by any table of the function, and by any share.
        main: whether these are the raw values as they are.
    """

    rule: str
    cells: Cells
    mend: str
    slack: float = 0.0
    of_data: bool = False
    main: bool = False


def derived(table: RawTable, smallest: int) -> Iterator[Derived]:
    """Every rule's values, one rule at a time.

    Args:
        table: the raw values.
        smallest: groups of so many records are no longer few.
    """
    if table.numbers.size == 0:
        return
    yield Derived("a raw value", table.cells, DIRECT, main=True)
    rows = _sampled(table)
    own = table.own[rows]
    where = np.arange(table.numbers.size).reshape(table.numbers.shape)[rows]
    for rule, function in ELEMENTWISE.items():
        yield _applied(rule, function, own, where)
    yield from _scaled_by_bounds(table, own, where)
    yield from _by_column(own, table.numbers, where)
    yield from _of_two(own, where)
    yield from _of_a_record(table.numbers[rows], where)
    yield from _of_groups(table, smallest)


def _sampled(table: RawTable) -> np.ndarray:
    """The records to try: all, or evenly spaced ones."""
    most = max(1, SAMPLE // max(1, table.numbers.shape[1]))
    return np.linspace(0, table.records - 1, min(most, table.records)).astype(np.int64)


def _applied(
    rule: str, function: Callable[[np.ndarray], np.ndarray], numbers: np.ndarray, where: np.ndarray
) -> Derived:
    with np.errstate(all="ignore"):
        return Derived(f"{rule} of a raw value", Cells.of(function(numbers), where), FUNCTION)


def _times(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return partial(np.multiply, factor)


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


#: Public functions of one value. Sizes only, so that minus one times each is covered as well.
ELEMENTWISE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the square": np.square,
    "the cube": lambda x: x**3,
    "the square root": lambda x: np.sqrt(np.abs(x)),
    "the reciprocal": np.reciprocal,
    "the logarithm": lambda x: np.log(np.abs(x)),
    "the logarithm of one more": lambda x: np.log1p(np.abs(x)),
    "the logarithm to base 2": lambda x: np.log2(np.abs(x)),
    "the logarithm to base 10": lambda x: np.log10(np.abs(x)),
    "the exponential": np.exp,
    "the exponential of minus one times": lambda x: np.exp(-x),
    "the exponential, less one,": np.expm1,
    "the logistic function": _logistic,
    "the odds' logarithm": lambda x: np.log(x / (1 - x)),
    "the hyperbolic tangent": np.tanh,
    "the sine": np.sin,
    "the cosine": np.cos,
    "the difference to one": lambda x: 1 - x,
    "the sum with one": lambda x: 1 + x,
    "one part in a hundred": lambda x: x / 100,
    "one part in a thousand": lambda x: x / 1000,
    "a hundred times": _times(100),
    "ten times": _times(10),
    "a thousand times": _times(1e3),
    "ten thousand times": _times(1e4),
    "a million times": _times(1e6),
    "a thousand million times": _times(1e9),
    "half": _times(0.5),
    "twice": _times(2),
    "three times": _times(3),
    "255 times": _times(255),
    "2^8 times": _times(2.0**8),
    "2^10 times": _times(2.0**10),
    "2^16 times": _times(2.0**16),
    "2^20 times": _times(2.0**20),
    "2^24 times": _times(2.0**24),
    "2^30 times": _times(2.0**30),
    "2^32 times": _times(2.0**32),
    "60 times": _times(60),
    "24 times": _times(24),
    "one part in 60": lambda x: x / 60,
    "one part in 24": lambda x: x / 24,
    "one part in 12": lambda x: x / 12,
    "12 times": _times(12),
    "one part in 7": lambda x: x / 7,
    "3600 times": _times(3600),
    "one part in 3600": lambda x: x / 3600,
    "one part in 86400": lambda x: x / 86400,
    "one part in 365.25": lambda x: x / 365.25,
    "365.25 times": _times(365.25),
    "inches": lambda x: x / 2.54,
    "2.54 times": _times(2.54),
    "feet": lambda x: x / 0.3048,
    "0.3048 times": _times(0.3048),
    "pounds": lambda x: x / 0.45359237,
    "0.45359237 times": _times(0.45359237),
    "2.20462 times": _times(2.20462),
    "miles": lambda x: x / 1.609344,
    "1.609344 times": _times(1.609344),
    "radians": np.deg2rad,
    "degrees": np.rad2deg,
    "Fahrenheit": lambda x: x * 9 / 5 + 32,
    "Celsius": lambda x: (x - 32) * 5 / 9,
    "Kelvin": lambda x: x + 273.15,
}


def _scaled_by_bounds(table: RawTable, numbers: np.ndarray, where: np.ndarray) -> Iterator[Derived]:
    """Scaled to [0, 1], to [-1/2, 1/2] and to [-1, 1] by public bounds."""
    if not table.bounds:
        return
    known = [table.bounds.get(name, (np.nan, np.nan)) for name in table.names]
    low, high = np.array(known).T
    unit = (numbers - low) / (high - low)
    unit[(unit <= 0) | (unit >= 1)] = np.nan
    for rule, scaled in {"": unit, ", less a half": unit - 0.5, ", doubled": 2 * unit - 1}.items():
        slack = 8 * _EPSILON
        yield Derived(
            f"a raw value scaled by public bounds{rule}", Cells.of(scaled, where), SCALED, slack
        )


def _by_column(own: np.ndarray, numbers: np.ndarray, where: np.ndarray) -> Iterator[Derived]:
    """Values against their own column: centred, standardised, as shares, left out."""
    if len(numbers) < 3:
        return
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        for rule, shift, scale in _scalings(numbers):
            scaled = (own - shift) / scale
            far = np.nanmax(np.abs(own) / np.abs(scale), initial=0)
            slack = min(16 * _EPSILON * float(far), 1e-9)
            scaled[np.abs(scaled) <= 4 * slack] = np.nan
            cells = Cells.of(scaled, where)
            unlike = rule in UNLIKE_COUNTS
            yield Derived(f"a raw value {rule}", cells, SCALED, slack, of_data=unlike)


#: Scalings by roots: no quotient of whole numbers gives their results. Others do: shares of a count.
UNLIKE_COUNTS = ("standardised", "standardised (n - 1)", "as a share of its column's length")


def _scalings(x: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Names of scalings, what each subtracts and what it divides by, shape (columns,)."""
    one, none = np.ones(x.shape[1]), np.zeros(x.shape[1])
    mean, median = np.nanmean(x, axis=0), np.nanmedian(x, axis=0)
    low, high, total = np.nanmin(x, axis=0), np.nanmax(x, axis=0), np.nansum(x, axis=0)
    width, count = high - low, np.isfinite(x).sum(axis=0)
    lower, upper = np.nanquantile(x, 0.25, axis=0), np.nanquantile(x, 0.75, axis=0)
    away = np.nanmedian(np.abs(x - median), axis=0)
    yield "less its column's mean", mean, one
    yield "standardised", mean, np.nanstd(x, axis=0)
    yield "standardised (n - 1)", mean, np.nanstd(x, axis=0, ddof=1)
    yield "scaled to its column's range", low, width
    yield "scaled to its column's range, from -1 to 1,", (low + high) / 2, width / 2
    yield "scaled by its column's mean and range", mean, width
    yield "less its column's least", low, one
    yield "less its column's greatest", high, one
    yield "less its column's median", median, one
    yield "scaled by its column's quartiles", median, upper - lower
    yield "scaled by its column's median deviation", median, away
    yield "scaled by its column's median deviation (normal)", median, away / 0.6744897501960817
    yield "as a share of its column's greatest", none, np.nanmax(np.abs(x), axis=0)
    yield "as a share of its column's total", none, total
    yield "as a share of its column's length", none, np.sqrt(np.nansum(x**2, axis=0))
    yield "as a share of its column's mean", none, mean
    yield "divided by the number of records", none, count.astype(float)
    yield "left out of its column's total", total, one
    yield "left out of its column's mean", total, np.maximum(count - 1.0, 1.0)


def _of_two(numbers: np.ndarray, where: np.ndarray) -> Iterator[Derived]:
    """What two records of one column give: sums, midpoints, differences, deviations, quotients."""
    far = float(np.nanmax(np.abs(numbers), initial=0))
    for rule, function in PAIRWISE.items():
        values, cells = [np.empty(0)], [np.empty(0, np.int64)]
        for column, places in zip(numbers.T, where.T, strict=True):
            for first, second in _partners(column, numbers.shape[1]):
                with np.errstate(all="ignore"):
                    values.append(function(column[first], column[second]))
                cells.append(places[first])
        found = Cells.of(np.concatenate(values), np.concatenate(cells))
        yield Derived(f"{rule} of two raw values", found, FEW, 4 * _EPSILON * far)
    yield from _of_three(numbers, where)
    yield _quantiles(numbers, where)


#: Functions of two values of one column.
PAIRWISE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "the sum": np.add,
    "the midpoint": lambda a, b: (a + b) / 2,
    "the difference": np.subtract,
    "the deviation": lambda a, b: (a - b) / 2,
    "the deviation (n - 1)": lambda a, b: (a - b) / np.sqrt(2),
    "the variance": lambda a, b: (a - b) ** 2 / 4,
    "the variance (n - 1)": lambda a, b: (a - b) ** 2 / 2,
    "the quotient": np.divide,
    "the geometric mean": lambda a, b: np.sqrt(np.abs(a * b)),
}


def _of_three(numbers: np.ndarray, where: np.ndarray) -> Iterator[Derived]:
    """Sums and means of any three records, in small tables."""
    count, columns = numbers.shape
    if count < 4 or count * (count - 1) * (count - 2) // 6 * columns > PAIRS:
        return
    at = np.array(list(combinations(range(count), 3)))
    total = numbers[at[:, 0]] + numbers[at[:, 1]] + numbers[at[:, 2]]
    yield Derived("the sum of three raw values", Cells.of(total, where[at[:, 0]]), FEW)
    yield Derived("the mean of three raw values", Cells.of(total / 3, where[at[:, 0]]), FEW)


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


def _quantiles(numbers: np.ndarray, where: np.ndarray) -> Derived:
    """Percentiles, each interpolated between two records."""
    shares = np.unique(np.r_[np.arange(1, 100) / 100, np.arange(1, 40) / 40, np.arange(1, 16) / 16])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        values = np.nanquantile(numbers, shares, axis=0)
    ranked = np.argsort(numbers, axis=0, kind="stable")
    present = np.isfinite(numbers).sum(axis=0)
    below = np.floor(shares[:, None] * np.maximum(present - 1, 0)).astype(np.int64)
    cells = np.take_along_axis(where, np.take_along_axis(ranked, below, axis=0), axis=0)
    found = Cells.of(values, cells)
    return Derived("a quantile between two raw values", found, FEW, 0.0)


def _of_a_record(numbers: np.ndarray, where: np.ndarray) -> Iterator[Derived]:
    """Products, sums, means and lengths of a record, as the moments of one record are."""
    columns = numbers.shape[1]
    if columns < 2:
        return
    if len(numbers) * columns * (columns - 1) // 2 <= PAIRS:
        pairs = np.array(list(combinations(range(columns), 2)))
        products = numbers[:, pairs[:, 0]] * numbers[:, pairs[:, 1]]
        cells = Cells.of(products, where[:, pairs[:, 0]])
        yield Derived("the product of two values of one record", cells, FEW)
    whole = numbers.sum(axis=1)
    length = np.sqrt((numbers**2).sum(axis=1))
    for rule, values in {"sum": whole, "mean": whole / columns, "length": length}.items():
        cells = Cells.of(values, where[:, 0])
        slack = 4 * _EPSILON * float(np.nanmax(np.abs(numbers), initial=0))
        yield Derived(f"the {rule} of one record's values", cells, FEW, slack)
    with np.errstate(all="ignore"):
        for rule, by in {"sum": whole, "length": length}.items():
            shares = Cells.of(numbers / by[:, None], where)
            yield Derived(f"a raw value as a share of its record's {rule}", shares, SCALED)


def _of_groups(table: RawTable, smallest: int) -> Iterator[Derived]:
    """Sums, means and deviations of small groups of records that one or two columns describe."""
    labels = _labels(table)
    values: dict[str, list[np.ndarray]] = {"sum": [], "mean": [], "deviation": []}
    where: list[np.ndarray] = []
    columns = np.arange(table.numbers.shape[1])
    for label in labels:
        for rows in _small(label, smallest):
            group = table.numbers[rows]
            values["sum"].append(group.sum(axis=0))
            values["mean"].append(group.mean(axis=0))
            values["deviation"].append(group.std(axis=0, ddof=1))
            where.append(int(rows[0]) * len(columns) + columns)
    for rule, found in values.items():
        if found:
            cells = Cells.of(np.concatenate(found), np.concatenate(where))
            slack = 16 * _EPSILON * float(np.nanmax(np.abs(table.numbers), initial=0))
            name = f"the {rule} of a group of fewer than {smallest} records"
            yield Derived(name, cells, FEW, slack)


def _labels(table: RawTable) -> Iterator[np.ndarray]:
    """Columns that group records, and pairs of them."""
    coded = [column for column in table.codes.T]
    for column in table.numbers.T:
        values, codes = np.unique(column, return_inverse=True)
        if 1 < len(values) <= max(20, table.records // 2) and len(values) < 1000:
            coded.append(codes)
    several = [one for one in coded if len(np.unique(one)) < table.records][:24]
    yield from several
    for one, other in combinations(several, 2):
        yield np.unique(np.column_stack([one, other]), axis=0, return_inverse=True)[1].ravel()


def _small(label: np.ndarray, smallest: int) -> Sequence[np.ndarray]:
    """The records of each group of at least two and fewer than ``smallest``; a bounded number."""
    order = np.argsort(label, kind="stable")
    ends = np.flatnonzero(np.diff(label[order])) + 1
    starts = np.r_[0, ends]
    sizes = np.diff(np.r_[starts, len(label)])
    small = np.flatnonzero((sizes >= 2) & (sizes < smallest))[:2000]
    return [order[starts[at] : starts[at] + sizes[at]] for at in small]
