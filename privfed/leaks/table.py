"""The raw table by columns, read from any form, and redrawn tables of the same shape."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privfed.errors import InputError
from privfed.leaks.chance import chernoff
from privfed.leaks.dependence import dependent, strata_of
from privfed.leaks.reading.dates import column_of_dates
from privfed.leaks.reading.walk import numbers_of
from privfed.leaks.shape import Shape, step_of
from privfed.leaks.texts import TextColumn

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
#: Number of redrawn tables of the same shape; tables of at most KEPT cells are cached.
DRAWS, KEPT = 200, 20_000
BATCH = 32  #: Most small tables that are redrawn at a time
RECENT = 4  #: Raw data that are cached, with everything computed from them
#: Most cells that are searched in other forms; larger tables are sampled at evenly spaced records.
SAMPLE = 250_000
#: Redrawn columns that estimate how often values coincide, nats from which they coincide too often, and the
#: factor by which the estimate may be wrong.
MODELS, LISTED, UNLIKE = 4, 7.0, 1.5
SLIP = 2.0**-48  #: Relative difference between sums of the same terms in different orders
WORDS = 100  #: Most values of a column whose texts count as words
_DIGIT, _LETTER = re.compile(r"\d"), re.compile(r"[^\W\d_]")


@dataclass(frozen=True, eq=False, repr=False)
class RawTable:
    """One raw table; its repr shows no data."""

    #: numeric columns, shape (records, columns); missing cells are NaN, dates are seconds since 1970
    numbers: np.ndarray
    names: tuple[str, ...]  #: their names
    dates: np.ndarray  #: whether each is a date
    texts: Sequence[TextColumn]  #: the other columns
    owner: str = ""  #: the table's owner, if there are several
    sentinel: bool = False  #: whether the values are synthetic, so that a message may show them
    #: public bounds of numeric columns, by which a release may have scaled them
    bounds: Mapping[str, tuple[float, float]] | None = None
    public: np.ndarray = field(default_factory=lambda: np.empty(0))  #: values that may be released
    shared: int = 5  #: a value of this many records identifies none of them
    #: whether cached results are dropped once the table has been scored, as for many small tables
    bare: bool = False
    #: cached results of rules
    memo: dict[object, Any] = field(default_factory=dict, init=False)

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.numbers)

    @cached_property
    def numbered_words(self) -> list[str]:
        """Texts of few-valued columns that contain both digits and letters: their numbers are no cells."""
        columns = [
            text for text in self.texts if text.name not in self.names and len(text.values) <= WORDS
        ]
        words = {word for column in columns if not column.naming for word in column.values}
        return [text for text in words if _DIGIT.search(text) and _LETTER.search(text)]

    def memoised(self, key: object, compute: Callable[[], T]) -> T:
        """Return a result computed from the table, cached under ``key``."""
        if key not in self.memo:
            self.memo[key] = compute()
        kept: T = self.memo[key]
        return kept

    @cached_property
    def codes(self) -> np.ndarray:
        """Text columns as codes of their distinct values, shape (records, text columns)."""
        columns = [text.codes.astype(float) for text in self.texts]
        return np.column_stack(columns) if columns else np.empty((self.records, 0))

    @cached_property
    def cells(self) -> Cells:
        """Identifying numeric cells by absolute value, without zeros."""
        return Cells.of(self.identifying)

    def where(self, cell: int) -> str:
        """Return record and column of a cell in words, by its position in the flattened ``numbers``."""
        row, column = divmod(int(cell), self.numbers.shape[1])
        return self.location(row, self.names[column])

    def dated(self, cell: int) -> bool:
        """Whether a numeric cell is a date."""
        return bool(self.dates[int(cell) % len(self.dates)])

    def shown(self, cell: int) -> str:
        """Format one numeric cell; dates as dates, integers as integers."""
        value = float(self.numbers.ravel()[cell])
        if not self.dated(cell):
            return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
        return str(np.datetime64(round(value), "s")).removesuffix("T00:00:00")

    def location(self, row: int, column: str) -> str:
        """Return record and column in words."""
        return f"record {row}, column {column!r}{self.whose}"

    @property
    def whose(self) -> str:
        """The owner in words."""
        return f" of {self.owner}" if self.owner else ""

    @cached_property
    def identifying(self) -> np.ndarray:
        """Numeric cells that identify few records; NaN for public values, shared ones and listed columns."""
        if not len(self.listed):
            return self.rare
        numbers = self.rare.copy()
        numbers[:, self.listed] = np.nan
        return numbers

    @cached_property
    def _strata(self) -> np.ndarray:
        first_columns = np.unique(self.groups[: len(self.names)], return_index=True)[1]
        return strata_of(self.numbers[:, first_columns])

    def _shuffled_order(self, rng: np.random.Generator) -> np.ndarray:
        """Random order of the records within their strata."""
        order = np.empty(self.records, dtype=np.int64)
        drawn, strata = rng.random(self.records), self._strata
        shuffled = np.lexsort((drawn, strata)) if strata.any() else drawn.argsort(kind="stable")
        order[self._by_strata] = shuffled
        return order

    @cached_property
    def _by_strata(self) -> np.ndarray:
        return np.argsort(self._strata, kind="stable")

    @cached_property
    def rare(self) -> np.ndarray:
        """Numeric cells whose value fewer than ``shared`` records have; NaN for others and public values."""
        numbers = self.numbers.copy()
        numbers[np.isin(np.abs(numbers), np.abs(self.public))] = np.nan
        for column in numbers.T:
            _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
            column[counts[inverse] >= self.shared] = np.nan
        return numbers

    @cached_property
    def listed(self) -> np.ndarray:
        """Numeric columns whose values come from a list (prices, indices computed from integers), so that anyone
        may have them: unrelated records share values more often than in redrawn columns."""
        is_listed = [self._is_listed(column) for column in range(self.numbers.shape[1])]
        return np.flatnonzero(np.array(is_listed, dtype=bool))

    def _is_listed(self, index: int) -> bool:
        """Whether at least two distinct values are shared, and more than redrawn columns have in common."""
        column = self.rare[:, index]
        order = np.argsort(column, kind="stable")
        same = np.flatnonzero(np.diff(column[order]) == 0)
        shared, records = np.unique(column[order[same]]), np.array(self.records)
        if len(shared) < 2:
            return False
        shape = Shape.of(column, self.numbers[:, index])
        rng = np.random.default_rng(2)
        drawn = column.copy()
        n_matches = []
        for _ in range(MODELS):
            shape.redraw(drawn, rng)
            n_matches.append(np.isin(np.unique(drawn[np.isfinite(drawn)]), column).sum())
        # matches between two columns; within one column, half as many
        probability = np.clip(UNLIKE * np.mean(n_matches) / 2 / records, 1e-12, 0.99)
        if chernoff(np.array(len(shared) - 1), records, probability) < LISTED:
            return False
        same = same[~self._same_individual(index, order[same], order[same + 1])]
        shared = np.unique(column[order[same]])
        return bool(chernoff(np.array(len(shared) - 1), records, probability) >= LISTED)

    def _same_individual(self, i: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Whether each pair of records more likely belongs to one individual than to two, by the columns that are
        independent of a column; equal values weigh more the rarer they are."""
        nats = np.zeros(len(first))
        for column in np.column_stack([self.numbers, self.codes]).T[self.groups != self.groups[i]]:
            _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
            frequency = counts / self.records
            same = inverse[first] == inverse[second]
            nats_apart = -np.log1p(-min(0.99, float((frequency**2).sum())))
            nats += np.where(same, -np.log(frequency[inverse[first]]), nats_apart) - np.log(2)
        return nats > 0

    @cached_property
    def sample(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers, identifying numbers and cell positions of all records, or of evenly spaced ones."""
        max_records = max(1, SAMPLE // max(1, self.numbers.shape[1]))
        rows = np.linspace(0, self.records - 1, min(max_records, self.records)).astype(np.int64)
        positions = np.arange(self.numbers.size).reshape(self.numbers.shape)
        return self.numbers[rows], self.identifying[rows], positions[rows]

    @cached_property
    def steps(self) -> np.ndarray:
        """Step of each numeric column's lattice; 0 if it has none."""
        return np.array([step_of(column) for column in self.numbers.T])

    @cached_property
    def ranked(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each numeric column, the records with a value, sorted by it, and the sorted values."""
        orders = [np.argsort(column, kind="stable") for column in self.numbers.T]
        pairs = zip(orders, self.numbers.T, strict=True)
        present = [(order[np.isfinite(column[order])], column) for order, column in pairs]
        return [(order, column[order]) for order, column in present]

    @cached_property
    def groups(self) -> np.ndarray:
        """Group of dependent columns that each belongs to, numeric columns first, then texts."""
        return dependent([*self.numbers.T, *self.codes.T])

    @cached_property
    def _shapes(self) -> list[Shape]:
        return [Shape.of(*pair) for pair in zip(self.identifying.T, self.numbers.T, strict=True)]

    @property
    def _small(self) -> bool:
        return self.numbers.size + self.codes.size <= KEPT

    def redraws(self) -> Iterator[RawTable]:
        """Yield the redrawn tables that every rule is compared with; small ones are cached."""
        kept = self.memoised("redraws", list[RawTable])
        for number in range(DRAWS):
            if number < len(kept):
                drawn = kept[number]
            else:  # small tables several at a time, the more the more were needed
                count = min(max(1, number), BATCH, DRAWS - number) if self._small else 1
                rngs = [np.random.default_rng([1, number + i]) for i in range(count)]
                drawn, *later = self.redraw(rngs)
                kept += [drawn, *later] if self._small else []
            yield drawn
            if drawn.bare:
                drawn.memo.clear()

    def redraw(self, rngs: Sequence[np.random.Generator]) -> list[RawTable]:
        """Draw tables of the same shape that are independent of the outputs, one with each generator.

        Each group of dependent columns is shuffled among the records, or within strata if columns have a common
        factor. Identifying values are redrawn with the column's distribution, decimals and steps (texts: with
        its letters at each position); values that many records share are kept.
        """
        groups = np.unique(self.groups).tolist()
        orders = [{group: self._shuffled_order(rng) for group in groups} for rng in rngs]
        column_orders = [[order[group] for group in self.groups.tolist()] for order in orders]
        numbers = np.empty((len(rngs), *self.numbers.shape))
        for index, (column, shape) in enumerate(zip(self.numbers.T, self._shapes, strict=True)):
            for table, order, redrawn in zip(
                numbers, column_orders, shape.redraws(column, rngs), strict=True
            ):
                table[:, index] = redrawn[order[index]]
        tables = []
        for table, order, rng in zip(numbers, column_orders, rngs, strict=True):
            texts = RedrawnTexts(self.texts, order[len(self.names) :], rng.spawn(1)[0])
            drawn = replace(self, numbers=table, texts=texts, bare=self._small)
            vars(drawn).update(groups=self.groups, steps=self.steps, listed=self.listed)
            tables.append(drawn)
        return tables


class RedrawnTexts(Sequence[TextColumn]):
    """Text columns that are redrawn on first access."""

    def __init__(
        self, texts: Sequence[TextColumn], orders: Sequence[np.ndarray], rng: np.random.Generator
    ) -> None:
        self._texts, self._orders, self._rngs = texts, orders, rng.spawn(len(texts))
        self._drawn: dict[int, TextColumn] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> TextColumn:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index not in self._drawn:
            self._drawn[index] = self._texts[index].redrawn(self._orders[index], self._rngs[index])
        return self._drawn[index]


@dataclass(frozen=True, eq=False)
class Cells:
    """Distinct absolute values of numeric cells, or of a function of them, ascending."""

    sizes: np.ndarray  #: absolute values, ascending, distinct up to rounding
    sources: Callable[[], np.ndarray]  #: returns :attr:`first`
    slack: float | np.ndarray = 0.0  #: bound of the rounding error of all, or of each

    @classmethod
    def of(cls, numbers: np.ndarray, source: np.ndarray | None = None, slack: float = 0.0) -> Cells:
        """Cells of an array of any shape; ``source`` is the table cell of each number, by default its position."""
        flat = np.abs(np.asarray(numbers, dtype=float).ravel())
        usable = np.isfinite(flat) & (flat > 0)
        kept = flat[usable]
        ordered = np.sort(kept)
        is_new = np.ones(len(ordered), bool)  # equal up to rounding counts as one
        is_new[1:] = np.diff(ordered) > SLIP * ordered[1:]

        def sources() -> np.ndarray:
            chosen = np.flatnonzero(usable)[np.argsort(kept)[is_new]]
            return chosen if source is None else np.asarray(source).ravel()[chosen]

        return cls(ordered[is_new], sources, slack)

    @cached_property
    def first(self) -> np.ndarray:
        """Position in the flattened table of a cell with each value; sought where a value matches."""
        return self.sources()

    def __len__(self) -> int:
        return len(self.sizes)

    def times(self, factor: float) -> Cells:
        """Return the values multiplied by ``factor``."""
        return Cells(self.sizes * factor, self.sources, self.slack * factor)

    def thinned(self, max_cells: int) -> Cells:
        """Return at most ``max_cells`` of them, evenly spaced by rank."""
        step = -(-len(self.sizes) // max_cells)
        slack = self.slack[::step] if isinstance(self.slack, np.ndarray) else self.slack
        return Cells(self.sizes[::step], lambda: self.first[::step], slack)


def raw_tables(
    raw: object, schema: Any = None, public: np.ndarray | None = None, shared: int = 5
) -> list[RawTable]:
    """Read the raw data: one table, or one for each owner.

    Args:
        raw: a DataFrame, an array of one or two dimensions, a sequence of rows, a mapping of column
            names to columns, a mapping of owners to any of these, or records with fields ``x`` and ``y``.
        schema: the public data dictionary, whose bounds may have scaled values.
        public: values that may be released; the schema's bounds are always among them.
        shared: a value that this many records of a column have identifies none of them.

    Equal data return the same tables, with their cached results.

    Raises:
        InputError: there is no record in it, or it is no table.
    """
    try:
        pickled = pickle.dumps((raw, schema, public, shared))
    except Exception:  # noqa: BLE001  # what cannot be pickled refuses in its own way
        return _read_tables(raw, schema, public, shared)
    key = hashlib.blake2b(pickled).digest()
    if key not in _KNOWN:
        _KNOWN[key] = _read_tables(raw, schema, public, shared)
        for old in list(_KNOWN)[:-RECENT]:
            del _KNOWN[old]
    return _KNOWN[key]


_KNOWN: dict[bytes, list[RawTable]] = {}


def _read_tables(
    raw: object, schema: Any, public: np.ndarray | None, shared: int
) -> list[RawTable]:
    if isinstance(raw, Mapping) and raw and all(_is_table(value) for value in raw.values()):
        tables = [table for owner, v in raw.items() for table in _load(v, str(owner), schema)]
    else:
        tables = list(_load(raw, "", schema))
    bounds = [np.ravel(list((table.bounds or {}).values())) for table in tables]
    public_values = np.concatenate([np.empty(0), *bounds, *([] if public is None else [public])])
    return [replace(table, public=public_values, shared=shared) for table in tables]


def _is_table(value: Any) -> bool:
    frame = hasattr(value, "columns") and hasattr(value, "iloc")
    return isinstance(value, Mapping) or frame or _has_records(value) or np.ndim(value) == 2


def _has_records(value: object) -> bool:
    return hasattr(value, "x") and hasattr(value, "y") and not hasattr(value, "columns")


def _load(raw: Any, owner: str, schema: Any) -> Iterator[RawTable]:
    frame = _frame(raw)
    if frame.empty:
        raise InputError("the raw table holds no value; pass the records that must not leave")
    yield _raw_table(frame, owner, bool(getattr(raw, "attrs", {}).get("sentinels")), schema)


def _frame(raw: Any) -> pd.DataFrame:
    import pandas as pd

    kind = type(raw).__name__
    if isinstance(raw, pd.DataFrame):
        return raw
    if _has_records(raw):
        columns = {f"x{index}": column for index, column in enumerate(np.asarray(raw.x).T)}
        return pd.DataFrame(columns if raw.y is None else {**columns, "y": raw.y})
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    if isinstance(raw, pd.Series):
        return raw.to_frame()
    try:
        if not isinstance(raw, Mapping):
            first = raw[:1] if isinstance(raw, list | tuple) else ()
            has_rows = any(isinstance(row, str | list | tuple | dict) for row in first)
            raw = raw if has_rows else np.asarray(raw)
            if isinstance(raw, np.ndarray) and raw.ndim != 2 and not raw.dtype.names:
                raw = raw.reshape(len(raw), -1)
        return pd.DataFrame(raw)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the raw data are not a table ({kind}); pass a DataFrame or an array"
        ) from error


def _raw_table(frame: pd.DataFrame, owner: str, sentinel: bool, schema: Any) -> RawTable:
    numbers: list[tuple[str, np.ndarray, bool]] = []
    texts: list[TextColumn] = []
    for name, series in _columns(frame):
        values, dated = _numeric(series)
        if values is not None:
            numbers.append((name, values, dated))
        if values is None or (isinstance(_first_value(series), str) and not dated):
            listed = hasattr(series, "cat")
            texts.append(TextColumn.of(name, series.isna().to_numpy(), series.astype(str), listed))
    bounds = {c.name: c.bounds for c in schema.columns if c.numeric} if schema is not None else None
    names, columns, dates = zip(*numbers, strict=True) if numbers else ((), (), ())
    stacked = np.column_stack(columns) if numbers else np.empty((len(frame), 0))
    return RawTable(stacked, names, np.array(dates, bool), tuple(texts), owner, sentinel, bounds)


def _columns(frame: pd.DataFrame) -> Iterator[tuple[str, pd.Series[Any]]]:
    """Yield all columns, complex ones as two, and the index levels unless they only count."""
    index = frame.index.to_frame(index=False)
    informative = [
        name is not None or kind.kind not in "iu"
        for name, kind in zip(frame.index.names, index.dtypes, strict=True)
    ]
    index.columns = ["index" if name is None else name for name in frame.index.names]
    for table in (frame, index.loc[:, informative]):
        for position, name in enumerate(map(str, table.columns)):
            series = table.iloc[:, position]
            if getattr(series.dtype, "kind", "O") == "c":
                yield f"{name}.real", series.map(np.real)
                yield f"{name}.imag", series.map(np.imag)
            else:
                yield name, series


def _numeric(series: pd.Series[Any]) -> tuple[np.ndarray | None, bool]:
    """A column as numbers, and whether they are dates; None for texts and categories."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series):
        utc = pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy("datetime64[ns]")
        return np.where(np.isnat(utc), np.nan, utc.astype(np.int64) / 1e9), True
    if pd.api.types.is_timedelta64_dtype(series):
        return np.asarray(series.dt.total_seconds(), dtype=float), False
    if isinstance(series.dtype, pd.CategoricalDtype):
        return None, False
    if pd.api.types.is_numeric_dtype(series):
        return np.asarray(series.to_numpy(dtype=float, na_value=np.nan)), False
    if isinstance(_first_value(series), str):
        return _parse_texts(series)
    readings = [[np.nan] if _is_missing(value) else numbers_of(value) for value in series]
    known = [numbers for numbers in readings if numbers is not None and len(numbers) == 1]
    if len(known) < len(readings) or np.isnan(np.array(known)).all():
        return None, False
    return np.array(known).ravel(), hasattr(_first_value(series), "year")


def _first_value(series: pd.Series[Any]) -> object:
    """The first value that is not missing."""
    return next((value for value in series if not _is_missing(value)), None)


def _parse_texts(series: pd.Series[Any]) -> tuple[np.ndarray | None, bool]:
    """Texts as numbers or dates if all are; ids with leading zeros count as numbers."""
    import pandas as pd

    texts = [None if pd.isna(text) else str(text) for text in series]
    present = [text for text in texts if text is not None]
    dates = column_of_dates(texts)
    if dates is not None:
        return dates, True
    try:
        numbers = np.array([np.nan if text is None else float(text) for text in texts])
    except ValueError:
        return None, False
    short = all(len(text) <= 15 and not text.isalpha() for text in present)
    return (numbers, False) if short else (None, False)


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType")
