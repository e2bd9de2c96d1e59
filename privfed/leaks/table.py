"""The raw table by columns, in whatever form it came, and re-drawn tables of the same shape."""

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
#: How many tables of the same shape are drawn anew; those of so few cells are kept.
DRAWS, KEPT = 200, 20_000
RECENT = 4  #: How many raw data are known again, with what was worked out of them
#: Most cells that are tried in other forms; of larger tables, evenly spaced records are.
SAMPLE = 250_000
#: In how many tables of its shape a column's values are looked for, from how many nats on others have them too
#: often, and by how many times the shape may be wrong.
MODELS, LISTED, UNLIKE = 4, 7.0, 1.5
SLIP = 2.0**-48  #: By what share equal results of sums in another order may differ
WORDS = 100  #: Most values of a column whose texts are known as words
_DIGIT, _LETTER = re.compile(r"\d"), re.compile(r"[^\W\d_]")


@dataclass(frozen=True, eq=False, repr=False)
class RawTable:
    """One raw table; its repr shows nothing of it."""

    #: its numeric columns, shape (records, columns); missing cells are NaN. Dates are seconds since
    #: 1970
    numbers: np.ndarray
    names: tuple[str, ...]  #: their names
    dates: np.ndarray  #: which of them are dates
    texts: Sequence[TextColumn]  #: its other columns
    owner: str = ""  #: whose table it is, if there are several
    sentinel: bool = False  #: whether the values are synthetic, so that a message may show them
    #: public bounds of numeric columns, by which a release may have scaled them
    bounds: Mapping[str, tuple[float, float]] | None = None
    public: np.ndarray = field(default_factory=lambda: np.empty(0))  #: values that may leave
    shared: int = 5  #: a value of so many records is nobody's own
    #: whether what is worked out of it is let go before the next is looked at, as with many small ones
    bare: bool = False
    #: what rules worked out of it
    memo: dict[object, Any] = field(default_factory=dict, init=False)

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self.numbers)

    @cached_property
    def numbered_words(self) -> list[str]:
        """Texts of few-valued columns that hold digits beside letters, and so numbers that are no cells."""
        told = [
            one for one in self.texts if one.name not in self.names and len(one.values) <= WORDS
        ]
        words = {word for column in told if not column.naming for word in column.values}
        return [one for one in words if _DIGIT.search(one) and _LETTER.search(one)]

    def memoised(self, key: object, make: Callable[[], T]) -> T:
        """What a rule works out of the table, once."""
        if key not in self.memo:
            self.memo[key] = make()
        kept: T = self.memo[key]
        return kept

    @cached_property
    def codes(self) -> np.ndarray:
        """The text columns as codes of their different values, shape (records, text columns)."""
        listed = [text.codes.astype(float) for text in self.texts]
        return np.column_stack(listed) if listed else np.empty((self.records, 0))

    @cached_property
    def cells(self) -> Cells:
        """The numeric cells that belong to few records, by size; zeros left out."""
        return Cells.of(self.own)

    def where(self, cell: int) -> str:
        """Record and column of a cell, by its position in the flattened ``numbers``."""
        row, column = divmod(int(cell), self.numbers.shape[1])
        return self.place(row, self.names[column])

    def dated(self, cell: int) -> bool:
        """Whether a numeric cell is a date."""
        return bool(self.dates[int(cell) % len(self.dates)])

    def shown(self, cell: int) -> str:
        """One numeric cell, a date and a whole number as what they are."""
        value = float(self.numbers.ravel()[cell])
        if not self.dated(cell):
            return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
        return str(np.datetime64(round(value), "s")).removesuffix("T00:00:00")

    def place(self, row: int, column: str) -> str:
        """Record and column in words."""
        return f"record {row}, column {column!r}{self.whose}"

    @property
    def whose(self) -> str:
        """The owner in words."""
        return f" of {self.owner}" if self.owner else ""

    @cached_property
    def own(self) -> np.ndarray:
        """The numeric cells that belong to few records; NaN for those that are public, shared or of a list."""
        if not len(self.listed):
            return self.rare
        numbers = self.rare.copy()
        numbers[:, self.listed] = np.nan
        return numbers

    @cached_property
    def _strata(self) -> np.ndarray:
        each = np.unique(self.groups[: len(self.names)], return_index=True)[1]
        return strata_of(self.numbers[:, each])

    def _mixed(self, rng: np.random.Generator) -> np.ndarray:
        """The records in another order, within their strata."""
        order = np.empty(self.records, dtype=np.int64)
        drawn, strata = rng.random(self.records), self._strata
        mixed = np.lexsort((drawn, strata)) if strata.any() else drawn.argsort(kind="stable")
        order[self._by_strata] = mixed
        return order

    @cached_property
    def _by_strata(self) -> np.ndarray:
        return np.argsort(self._strata, kind="stable")

    @cached_property
    def rare(self) -> np.ndarray:
        """The cells whose value few records have."""
        numbers = self.numbers.copy()
        numbers[np.isin(np.abs(numbers), np.abs(self.public))] = np.nan
        for column in numbers.T:
            _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
            column[counts[inverse] >= self.shared] = np.nan
        return numbers

    @cached_property
    def listed(self) -> np.ndarray:
        """Which numeric columns have their values from a list, so that others may well have the same: prices,
        say, or indices computed of whole numbers. Records that have nothing else that is rare in common share
        them more often than columns of that shape have it."""
        found = [self._repeated(at) for at in range(self.numbers.shape[1])]
        return np.flatnonzero(np.array(found, dtype=bool))

    def _repeated(self, at: int) -> bool:
        """Whether more different values than one are shared than columns of the shape have in common."""
        column = self.rare[:, at]
        order = np.argsort(column, kind="stable")
        same = np.flatnonzero(np.diff(column[order]) == 0)
        shared, records = np.unique(column[order[same]]), np.array(self.records)
        if len(shared) < 2:
            return False
        shape, rng, drawn = (
            Shape.of(column, self.numbers[:, at]),
            np.random.default_rng(2),
            column.copy(),
        )
        met = []
        for _ in range(MODELS):
            shape.redraw(drawn, rng)
            met.append(np.isin(np.unique(drawn[np.isfinite(drawn)]), column).sum())
        # so many values of another such column are met; among the records of one it is half as many
        chance = np.clip(UNLIKE * np.mean(met) / 2 / records, 1e-12, 0.99)
        if chernoff(np.array(len(shared) - 1), records, chance) < LISTED:
            return False
        same = same[~self._akin(at, order[same], order[same + 1])]
        shared = np.unique(column[order[same]])
        return bool(chernoff(np.array(len(shared) - 1), records, chance) >= LISTED)

    def _akin(self, at: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Which pairs of records are rather two of one person than of two, by the columns that do not depend on
        some column: each may be a person's own or not, and equal values tell the more the rarer they are."""
        nats = np.zeros(len(one))
        for column in np.column_stack([self.numbers, self.codes]).T[self.groups != self.groups[at]]:
            _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
            share = counts / self.records
            same = which[one] == which[other]
            apart = -np.log1p(-min(0.99, float((share**2).sum())))
            nats += np.where(same, -np.log(share[which[one]]), apart) - np.log(2)
        return nats > 0

    @cached_property
    def sample(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers, own numbers and cells' positions of all records, or of evenly spaced ones."""
        most = max(1, SAMPLE // max(1, self.numbers.shape[1]))
        rows = np.linspace(0, self.records - 1, min(most, self.records)).astype(np.int64)
        where = np.arange(self.numbers.size).reshape(self.numbers.shape)
        return self.numbers[rows], self.own[rows], where[rows]

    @cached_property
    def steps(self) -> np.ndarray:
        """For each numeric column the step of which its values are multiples apart, else 0."""
        return np.array([step_of(column) for column in self.numbers.T])

    @cached_property
    def ranked(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each numeric column the records that have a value, by value, and these values."""
        orders = [np.argsort(column, kind="stable") for column in self.numbers.T]
        each = zip(orders, self.numbers.T, strict=True)
        present = [(order[np.isfinite(column[order])], column) for order, column in each]
        return [(order, column[order]) for order, column in present]

    @cached_property
    def groups(self) -> np.ndarray:
        """Which columns, texts behind the numeric ones, depend on one another."""
        return dependent([*self.numbers.T, *self.codes.T])

    @cached_property
    def _shapes(self) -> list[Shape]:
        return [Shape.of(*one) for one in zip(self.own.T, self.numbers.T, strict=True)]

    def redraws(self) -> Iterator[RawTable]:
        """The tables of the same shape that every rule is held against; small ones are kept."""
        kept = self.memoised("redraws", list[RawTable])
        for number in range(DRAWS):
            known = number < len(kept)
            drawn = kept[number] if known else self.redraw(np.random.default_rng([1, number]))
            if drawn.bare and not known:
                kept.append(drawn)
            yield drawn
            if drawn.bare:
                drawn.memo.clear()

    def redraw(self, rng: np.random.Generator) -> RawTable:
        """A table of the same shape that what left knows nothing of.

        Each column by itself, or with those that depend on it, is shuffled among the records, or among those of
        like size if columns have a factor in common. Values that few records have are drawn anew, from the
        column's own distribution, decimals and steps (texts: from its own letters, place by place); those that
        many records share stay.
        """
        numbers = self.numbers.copy()
        orders = {int(group): self._mixed(rng) for group in np.unique(self.groups)}
        each = [orders[int(group)] for group in self.groups]
        for column, shape, order in zip(numbers.T, self._shapes, each, strict=False):
            shape.redraw(column, rng)
            column[:] = column[order]
        texts = RedrawnTexts(self.texts, each[len(self.names) :], rng.spawn(1)[0])
        small = self.numbers.size + self.codes.size <= KEPT
        drawn = replace(self, numbers=numbers, texts=texts, bare=small)
        vars(drawn).update(groups=self.groups, steps=self.steps, listed=self.listed)
        return drawn


class RedrawnTexts(Sequence[TextColumn]):
    """Text columns that are drawn anew when a rule asks for them: most never do."""

    def __init__(
        self, texts: Sequence[TextColumn], orders: Sequence[np.ndarray], rng: np.random.Generator
    ) -> None:
        self._texts, self._orders, self._rngs = texts, orders, rng.spawn(len(texts))
        self._drawn: dict[int, TextColumn] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, at: int) -> TextColumn:  # type: ignore[override]
        if not 0 <= at < len(self):
            raise IndexError(at)
        if at not in self._drawn:
            self._drawn[at] = self._texts[at].redrawn(self._orders[at], self._rngs[at])
        return self._drawn[at]


@dataclass(frozen=True, eq=False)
class Cells:
    """Different sizes of numeric cells, or of a function of them, ascending."""

    sizes: np.ndarray  #: absolute values, ascending, set apart by more than rounding
    first: np.ndarray  #: the position in the flattened table of a cell that each comes from
    slack: float | np.ndarray = 0.0  #: by how much rounding may have moved all, or each

    @classmethod
    def of(cls, numbers: np.ndarray, where: np.ndarray | None = None, slack: float = 0.0) -> Cells:
        """Of an array of any shape; ``where`` gives positions, if not its own."""
        flat = np.abs(np.asarray(numbers, dtype=float).ravel())
        usable = np.flatnonzero(np.isfinite(flat) & (flat > 0))
        kept = flat[usable]
        order = np.argsort(kept)
        ordered = kept[order]
        new = np.ones(len(ordered), bool)  # what only rounding sets apart is one
        new[1:] = np.diff(ordered) > SLIP * ordered[1:]
        chosen = usable[order[new]]
        first = chosen if where is None else np.asarray(where).ravel()[chosen]
        return cls(ordered[new], first, slack)

    def __len__(self) -> int:
        return len(self.sizes)

    def times(self, factor: float) -> Cells:
        """The same values, each multiplied."""
        return Cells(self.sizes * factor, self.first, self.slack * factor)

    def thinned(self, most: int) -> Cells:
        """No more than so many of them, evenly by rank."""
        step = -(-len(self.sizes) // most)
        slack = self.slack[::step] if isinstance(self.slack, np.ndarray) else self.slack
        return Cells(self.sizes[::step], self.first[::step], slack)


def raw_tables(
    raw: object, schema: Any = None, public: np.ndarray | None = None, shared: int = 5
) -> list[RawTable]:
    """Read the raw data: one table, or one for each owner.

    Args:
        raw: a DataFrame, an array of one or two dimensions, a sequence of rows, a mapping of column
            names to columns, a mapping of owners to any of these, or records with ``x`` and ``y``.
        schema: the public data dictionary, whose bounds may have scaled values.
        public: values that may leave; bounds of the schema among them anyway.
        shared: a value that so many records of a column have is nobody's own.

    What was worked out of equal data before is still known.

    Raises:
        InputError: there is no record in it, or it is no table.
    """
    try:
        whole = pickle.dumps((raw, schema, public, shared))
    except Exception:  # noqa: BLE001  # what cannot be pickled refuses in its own way
        return _read_tables(raw, schema, public, shared)
    key = hashlib.blake2b(whole).digest()
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
        tables = [table for owner, one in raw.items() for table in _one(one, str(owner), schema)]
    else:
        tables = list(_one(raw, "", schema))
    known = [np.ravel(list((table.bounds or {}).values())) for table in tables]
    free = np.concatenate([np.empty(0), *known, *([] if public is None else [public])])
    return [replace(table, public=free, shared=shared) for table in tables]


def _is_table(value: Any) -> bool:
    frame = hasattr(value, "columns") and hasattr(value, "iloc")
    return isinstance(value, Mapping) or frame or _has_records(value) or np.ndim(value) == 2


def _has_records(value: object) -> bool:
    return hasattr(value, "x") and hasattr(value, "y") and not hasattr(value, "columns")


def _one(raw: Any, owner: str, schema: Any) -> Iterator[RawTable]:
    frame = _frame(raw)
    if frame.empty:
        raise InputError("the raw table holds no value; pass the records that must not leave")
    yield _read(frame, owner, bool(getattr(raw, "attrs", {}).get("sentinels")), schema)


def _frame(raw: Any) -> pd.DataFrame:
    import pandas as pd

    kind = type(raw).__name__
    if isinstance(raw, pd.DataFrame):
        return raw
    if _has_records(raw):
        columns = {f"x{place}": column for place, column in enumerate(np.asarray(raw.x).T)}
        return pd.DataFrame(columns if raw.y is None else {**columns, "y": raw.y})
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    if isinstance(raw, pd.Series):
        return raw.to_frame()
    try:
        if not isinstance(raw, Mapping):
            first = raw[:1] if isinstance(raw, list | tuple) else ()
            rows = any(isinstance(one, str | list | tuple | dict) for one in first)
            raw = raw if rows else np.asarray(raw)
            if isinstance(raw, np.ndarray) and raw.ndim != 2 and not raw.dtype.names:
                raw = raw.reshape(len(raw), -1)
        return pd.DataFrame(raw)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the raw data are no table ({kind}); pass a DataFrame or an array"
        ) from error


def _read(frame: pd.DataFrame, owner: str, sentinel: bool, schema: Any) -> RawTable:
    numbers: list[tuple[str, np.ndarray, bool]] = []
    texts: list[TextColumn] = []
    for name, series in _columns(frame):
        values, dated = _numeric(series)
        if values is not None:
            numbers.append((name, values, dated))
        if values is None or (isinstance(_first(series), str) and not dated):
            listed = hasattr(series, "cat")
            texts.append(TextColumn.of(name, series.isna().to_numpy(), series.astype(str), listed))
    bounds = {c.name: c.bounds for c in schema.columns if c.numeric} if schema is not None else None
    names, columns, dates = zip(*numbers, strict=True) if numbers else ((), (), ())
    stacked = np.column_stack(columns) if numbers else np.empty((len(frame), 0))
    return RawTable(stacked, names, np.array(dates, bool), tuple(texts), owner, sentinel, bounds)


def _columns(frame: pd.DataFrame) -> Iterator[tuple[str, pd.Series[Any]]]:
    """All columns, of whatever names; those of complex numbers in two; and of the index what only counts not."""
    index = frame.index.to_frame(index=False)
    told = [
        name is not None or kind.kind not in "iu"
        for name, kind in zip(frame.index.names, index.dtypes, strict=True)
    ]
    index.columns = ["index" if name is None else name for name in frame.index.names]
    for table in (frame, index.loc[:, told]):
        for place, name in enumerate(map(str, table.columns)):
            series = table.iloc[:, place]
            if getattr(series.dtype, "kind", "O") == "c":
                yield f"{name}.real", series.map(np.real)
                yield f"{name}.imag", series.map(np.imag)
            else:
                yield name, series


def _numeric(series: pd.Series[Any]) -> tuple[np.ndarray | None, bool]:
    """A column as numbers, and whether they are dates; none for texts and categories."""
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
    if isinstance(_first(series), str):
        return _written(series)
    listed = [[np.nan] if _is_missing(one) else numbers_of(one) for one in series]
    known = [one for one in listed if one is not None and len(one) == 1]
    if len(known) < len(listed) or np.isnan(np.array(known)).all():
        return None, False
    return np.array(known).ravel(), hasattr(_first(series), "year")


def _first(series: pd.Series[Any]) -> object:
    """The first value that is there."""
    return next((one for one in series if not _is_missing(one)), None)


def _written(series: pd.Series[Any]) -> tuple[np.ndarray | None, bool]:
    """Texts that are all numbers or all dates, as such; ids with leading zeros count as numbers."""
    import pandas as pd

    texts = [None if pd.isna(one) else str(one) for one in series]
    known = [one for one in texts if one is not None]
    dates = column_of_dates(texts)
    if dates is not None:
        return dates, True
    try:
        plain = np.array([np.nan if one is None else float(one) for one in texts])
    except ValueError:
        return None, False
    short = all(len(one) <= 15 and not one.isalpha() for one in known)
    return (plain, False) if short else (None, False)


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType")
