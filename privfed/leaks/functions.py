"""Functions of few raw values that may stand for them: of one, of a column, of two, of a group.

Each gives the sizes of what it computes, ascending, with the cells that they come from. Sizes, for
a sign hides nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from privfed.leaks.table import Cells, RawTable

#: Most cells that are tried in other forms; of larger tables, evenly spaced records are.
SAMPLE = 100_000
#: Most sums of two that are formed; of larger tables, those of neighbours in order or rank.
PAIRS = 250_000
#: How far apart neighbours may be.
NEAR = 2
_EPSILON = float(np.finfo(float).eps)

DIRECT = "release a sum or a mean over many records, with noise, instead of the value itself"
FUNCTION = "a function of one value gives the value away; apply it to a noisy sum over many records"
SCALED = "scale by public bounds, and release a noisy sum over many records"
FEW = "a function of so few records gives them away; pool more records, or add noise"


@dataclass(frozen=True, eq=False)
class Derived:
    """A function's values of one table.

    Args:
        cells: sizes and the cells that they come from.
        slack: by how much rounding on the way may have moved each, an absolute amount.
        through: what is applied to released numbers before they are compared: a rising power.
    """

    cells: Cells
    slack: float = 0.0
    through: Callable[[np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Function:
    """One function of raw values.

    Args:
        family: by which it is switched off.
        rule: what a released number is if it matches.
        of: works out its values of a table; none where the table has no such.
        mend: what to do about it.
        plain: how plain it is.
        main: whether these are the raw values as they are.
    """

    family: str
    rule: str
    of: Callable[[RawTable], Derived | None]
    mend: str
    plain: int
    main: bool = False


def functions(smallest: int) -> list[Function]:
    """Every function, the plainest first.

    Args:
        smallest: groups of so many records are no longer few.
    """
    return [
        Function("values", "a raw value", lambda t: Derived(t.cells), DIRECT, 0, main=True),
        *(
            Function("bounds", f"a raw value scaled by public bounds{name}", of, SCALED, 2)
            for name, of in _BY_BOUNDS.items()
        ),
        *(
            Function("functions", f"{name} of a raw value", partial(_elementwise, f), FUNCTION, 3)
            for name, f in ELEMENTWISE.items()
        ),
        *(
            Function("scalings", f"a raw value {name}", partial(_scaled, f), SCALED, 3)
            for name, f in SCALINGS.items()
        ),
        *(
            Function("few", f"{name} of two raw values", partial(_of_two, name), FEW, 4)
            for name in PAIRWISE
        ),
        *(
            Function("few", f"the {name} of three raw values", partial(_of_three, by), FEW, 4)
            for name, by in (("sum", 1), ("mean", 3))
        ),
        Function("few", "a quantile between two raw values", _quantiles, FEW, 4),
        *(Function("few", f"{name}", partial(_of_a_record, name), FEW, 4) for name in OF_A_RECORD),
        *(
            Function(
                "few",
                f"the {name} of a group of fewer than {smallest} records",
                partial(_of_groups, name, smallest),
                FEW,
                4,
            )
            for name in OF_A_GROUP
        ),
    ]


def _sample(table: RawTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, own numbers and positions of the records to try: all, or evenly spaced ones."""
    if "sample" not in table.memo:
        most = max(1, SAMPLE // max(1, table.numbers.shape[1]))
        rows = np.linspace(0, table.records - 1, min(most, table.records)).astype(np.int64)
        where = np.arange(table.numbers.size).reshape(table.numbers.shape)
        table.memo["sample"] = (table.numbers[rows], table.own[rows], where[rows])
    sample: tuple[np.ndarray, np.ndarray, np.ndarray] = table.memo["sample"]
    return sample


def _elementwise(function: Callable[[np.ndarray], np.ndarray], table: RawTable) -> Derived:
    _, own, where = _sample(table)
    with np.errstate(all="ignore"):
        return Derived(Cells.of(function(own), where))


def _times(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return partial(np.multiply, factor)


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
        name: _times(factor)
        for name, factor in {
            "ten times": 10,
            "a hundred times": 100,
            "a thousand times": 1e3,
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


def _unit(shift: float, by: float, table: RawTable) -> Derived | None:
    """Scaled to [0, 1] by public bounds, then shifted and stretched."""
    if not table.bounds:
        return None
    _, own, where = _sample(table)
    low, high = np.array([table.bounds.get(name, (np.nan, np.nan)) for name in table.names]).T
    unit = (own - low) / (high - low)
    unit[(unit <= 0) | (unit >= 1)] = np.nan
    return Derived(Cells.of(unit * by - shift, where), 8 * _EPSILON)


_BY_BOUNDS = {
    "": partial(_unit, 0.0, 1.0),
    ", less a half": partial(_unit, 0.5, 1.0),
    ", from -1 to 1": partial(_unit, 1.0, 2.0),
}

#: What each scaling by its own column subtracts, and what it divides by, shape (columns,).
SCALINGS: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "less its column's mean": lambda x: (np.nanmean(x, axis=0), _one(x)),
    "standardised": lambda x: (np.nanmean(x, axis=0), np.nanstd(x, axis=0)),
    "standardised (n - 1)": lambda x: (np.nanmean(x, axis=0), np.nanstd(x, axis=0, ddof=1)),
    "scaled to its column's range": lambda x: (np.nanmin(x, axis=0), np.ptp(x, axis=0)),
    "less its column's least": lambda x: (np.nanmin(x, axis=0), _one(x)),
    "less its column's median": lambda x: (np.nanmedian(x, axis=0), _one(x)),
    "scaled by its column's quartiles": lambda x: (
        np.nanmedian(x, axis=0),
        np.nanquantile(x, 0.75, axis=0) - np.nanquantile(x, 0.25, axis=0),
    ),
    "as a share of its column's greatest": lambda x: (0 * _one(x), np.nanmax(np.abs(x), axis=0)),
    "as a share of its column's total": lambda x: (0 * _one(x), np.nansum(x, axis=0)),
    "as a share of its column's length": lambda x: (0 * _one(x), np.sqrt(np.nansum(x**2, axis=0))),
    "divided by the number of records": lambda x: (0 * _one(x), _count(x)),
    "left out of its column's total": lambda x: (np.nansum(x, axis=0), _one(x)),
    "left out of its column's mean": lambda x: (np.nansum(x, axis=0), np.maximum(_count(x) - 1, 1)),
}


def _one(x: np.ndarray) -> np.ndarray:
    return np.ones(x.shape[1])


def _count(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(x).sum(axis=0).astype(float))


def _scaled(
    scaling: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], table: RawTable
) -> Derived | None:
    """Values against their own column."""
    if table.records < 3 or not table.numbers.size:
        return None
    _, own, where = _sample(table)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        shift, scale = scaling(table.numbers)
        scaled = (own - shift) / scale
        far = float(np.nanmax(np.abs(own) / np.abs(scale), initial=0))
    slack = min(16 * _EPSILON * far, 1e-9)
    scaled[np.abs(scaled) <= 4 * slack] = np.nan
    return Derived(Cells.of(scaled, where), slack)


#: Functions of two values: whether of their sum, by what that is multiplied, or what makes a
#: released number the difference.
PAIRWISE: dict[str, tuple[bool, float, Callable[[np.ndarray], np.ndarray] | None]] = {
    "the sum": (True, 1.0, None),
    "the midpoint": (True, 0.5, None),
    "the difference": (False, 1.0, None),
    "the deviation": (False, 0.5, None),
    "the deviation (n - 1)": (False, 1 / np.sqrt(2), None),
    "the variance": (False, 1.0, lambda x: 2 * np.sqrt(x)),
    "the variance (n - 1)": (False, 1.0, lambda x: np.sqrt(2 * x)),
}


def _of_two(name: str, table: RawTable) -> Derived | None:
    """What two records of one column give."""
    added, factor, through = PAIRWISE[name]
    memo = "sums" if added else "differences"
    if memo not in table.memo:
        table.memo[memo] = _pairs(table, np.add if added else np.subtract)
    cells, slack = table.memo[memo]
    return Derived(replace(cells, sizes=cells.sizes * factor), slack * factor, through)


def _pairs(
    table: RawTable, function: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[Cells, float]:
    _, own, where = _sample(table)
    values, cells = [np.empty(0)], [np.empty(0, np.int64)]
    for column, places in zip(own.T, where.T, strict=True):
        present = np.flatnonzero(np.isfinite(column))
        for first, second in _partners(column[present], own.shape[1]):
            values.append(function(column[present[first]], column[present[second]]))
            cells.append(places[present[first]])
    far = float(np.nanmax(np.abs(own), initial=0))
    return Cells.of(np.concatenate(values), np.concatenate(cells)), 4 * _EPSILON * far


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


def _of_three(by: int, table: RawTable) -> Derived | None:
    """Sums and means of any three records, in small tables."""
    numbers, _, where = _sample(table)
    count, columns = numbers.shape
    if count < 4 or count * (count - 1) * (count - 2) // 6 * columns > PAIRS:
        return None
    if "threes" not in table.memo:
        at = np.array(list(combinations(range(count), 3)))
        total = numbers[at[:, 0]] + numbers[at[:, 1]] + numbers[at[:, 2]]
        table.memo["threes"] = Cells.of(total, where[at[:, 0]])
    cells = table.memo["threes"]
    return Derived(replace(cells, sizes=cells.sizes / by))


def _quantiles(table: RawTable) -> Derived | None:
    """Percentiles, each interpolated between two records."""
    numbers, _, where = _sample(table)
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
    return Derived(Cells.of(values, cells))


#: Functions of one record's numbers, shape (records, columns), to one or more of each.
OF_A_RECORD: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the product of two values of one record": lambda x: _products(x),
    "the sum of one record's values": lambda x: x.sum(axis=1),
    "the mean of one record's values": lambda x: x.mean(axis=1),
    "the length of one record": lambda x: np.sqrt((x**2).sum(axis=1)),
    "a raw value as a share of its record's length": lambda x: (
        x / np.sqrt((x**2).sum(axis=1, keepdims=True))
    ),
}


def _products(numbers: np.ndarray) -> np.ndarray:
    pairs = np.array(list(combinations(range(numbers.shape[1]), 2)))
    if len(numbers) * len(pairs) > PAIRS:
        return np.full((len(numbers), 1), np.nan)
    return np.asarray(numbers[:, pairs[:, 0]] * numbers[:, pairs[:, 1]])


def _of_a_record(name: str, table: RawTable) -> Derived | None:
    """Products, sums, means and lengths of a record, as the moments of one record are."""
    numbers, _, where = _sample(table)
    if numbers.shape[1] < 2:
        return None
    with np.errstate(all="ignore"):
        values = OF_A_RECORD[name](numbers).reshape(len(numbers), -1)
    slack = 4 * _EPSILON * float(np.nanmax(np.abs(values), initial=0))
    cells = np.broadcast_to(where[:, :1], values.shape)
    return Derived(Cells.of(values, cells), slack)


OF_A_GROUP: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(axis=0),
    "deviation": lambda x: x.std(axis=0, ddof=1),
}


def _of_groups(name: str, smallest: int, table: RawTable) -> Derived | None:
    """Sums, means and deviations of small groups of records that one or two columns describe."""
    if "groups" not in table.memo:
        table.memo["groups"] = [
            rows for label in _labels(table) for rows in _small(label, smallest)
        ]
    groups = table.memo["groups"]
    if not groups or not table.numbers.size:
        return None
    columns = np.arange(table.numbers.shape[1])
    values = np.array([OF_A_GROUP[name](table.numbers[rows]) for rows in groups])
    where = np.array([int(rows[0]) * len(columns) + columns for rows in groups])
    slack = 16 * _EPSILON * float(np.nanmax(np.abs(table.numbers), initial=0))
    return Derived(Cells.of(values, where), slack)


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


def _small(label: np.ndarray, smallest: int) -> Sequence[np.ndarray]:
    """The records of each group of at least two and fewer than ``smallest``; a bounded number."""
    order = np.argsort(label, kind="stable")
    starts = np.r_[0, np.flatnonzero(np.diff(label[order])) + 1]
    sizes = np.diff(np.r_[starts, len(label)])
    small = np.flatnonzero((sizes >= 2) & (sizes < smallest))[:500]
    return [order[starts[at] : starts[at] + sizes[at]] for at in small]
