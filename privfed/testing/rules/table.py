"""The raw values, by record and column, in whatever form the table came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.testing.left.walk import numbers_of
from privfed.testing.rules.precision import NO_GRADE, decimals_of

#: Share of different values above which a text column names records instead of describing them.
NAMING = 0.5
#: Shortest text that is looked for.
SHORTEST = 4


@dataclass(frozen=True, eq=False)
class RawTable:
    """One raw table.

    Args:
        numbers: its numeric columns, shape (records, columns); missing cells are NaN.
        names: their names.
        codes: its other columns as codes of their different values, shape (records, others).
        code_names: their names.
        texts: for each column of texts that name single records, those texts.
        owner: whose table it is, if there are several.
        sentinel: whether the values are made up, so that a message may show them.
        bounds: public bounds of numeric columns, by which a release may have scaled them.
        public: values that may leave.
        shared: a value of so many records is nobody's own.
    """

    numbers: np.ndarray
    names: tuple[str, ...]
    codes: np.ndarray
    code_names: tuple[str, ...]
    texts: Mapping[str, Sequence[str]]
    owner: str = ""
    sentinel: bool = False
    bounds: Mapping[str, tuple[float, float]] | None = None
    public: np.ndarray = field(default_factory=lambda: np.empty(0))
    shared: int = 5

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self.numbers)

    @cached_property
    def cells(self) -> Cells:
        """The numeric cells that belong to few records, by size; zeros left out."""
        return Cells.of(self.own)

    @cached_property
    def steps(self) -> np.ndarray:
        """For each numeric column the step of which its values are multiples apart, else 0.

        Days as seconds are 86,400 apart: another day meets one of them far more often than another
        second.
        """
        return np.array([_step(column[np.isfinite(column)]) for column in self.numbers.T])

    def where(self, cell: int) -> str:
        """Record and column of a cell, by its position in the flattened ``numbers``."""
        row, column = divmod(int(cell), self.numbers.shape[1])
        return self.place(row, self.names[column])

    def place(self, row: int, column: str) -> str:
        """Record and column in words."""
        whose = f" of {self.owner}" if self.owner else ""
        return f"record {row}, column {column!r}{whose}"

    @cached_property
    def own(self) -> np.ndarray:
        """The numeric cells that belong to few records; NaN for those that are public or shared."""
        numbers = self.numbers.copy()
        numbers[np.isin(np.abs(numbers), np.abs(self.public))] = np.nan
        for column in numbers.T:
            _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
            column[counts[inverse] >= self.shared] = np.nan
        return numbers


def _step(values: np.ndarray) -> float:
    """The greatest common divisor of the differences between short numbers; 0 for long ones."""
    different = np.unique(values)
    grades = decimals_of(different[different != 0])
    if len(different) < 2 or (grades == NO_GRADE).any():
        return 0.0
    decimals = max(int(grades.max(initial=0)), 0)
    scaled = different * 10.0**decimals
    if not np.abs(scaled).max() < 2.0**53:
        return 0.0
    return float(np.gcd.reduce(np.diff(np.rint(scaled).astype(np.int64))) / 10.0**decimals)


@dataclass(frozen=True, eq=False)
class Cells:
    """Different sizes of numeric cells, ascending.

    Args:
        sizes: absolute values, ascending and all different.
        first: the position in the flattened table of a cell of each size.
    """

    sizes: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, where: np.ndarray | None = None) -> Cells:
        """Of an array of any shape; ``where`` gives positions, if not its own."""
        flat = np.abs(np.asarray(numbers, dtype=float).ravel())
        usable = np.flatnonzero(np.isfinite(flat) & (flat > 0))
        kept = flat[usable]
        order = np.argsort(kept)
        ordered = kept[order]
        new = np.ones(len(ordered), bool)
        new[1:] = ordered[1:] != ordered[:-1]
        chosen = usable[order[new]]
        return cls(ordered[new], chosen if where is None else np.asarray(where).ravel()[chosen])

    def __len__(self) -> int:
        return len(self.sizes)

    def thinned(self, most: int) -> Cells:
        """No more than so many of them, evenly by rank."""
        step = -(-len(self.sizes) // most)
        return Cells(self.sizes[::step], self.first[::step])


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

    Raises:
        InputError: there is no record in it, or it is no table.
    """
    if isinstance(raw, Mapping) and raw and all(_is_table(value) for value in raw.values()):
        tables = [table for owner, one in raw.items() for table in _one(one, str(owner), schema)]
    else:
        tables = list(_one(raw, "", schema))
    known = [np.ravel(list((table.bounds or {}).values())) for table in tables]
    free = np.concatenate([np.empty(0), *known, *([] if public is None else [public])])
    return [replace(table, public=free, shared=shared) for table in tables]


def _is_table(value: object) -> bool:
    return isinstance(value, pd.DataFrame | Mapping) or _has_records(value) or np.ndim(value) == 2  # type: ignore[arg-type]


def _has_records(value: object) -> bool:
    return hasattr(value, "x") and hasattr(value, "y") and not hasattr(value, "columns")


def _one(raw: Any, owner: str, schema: Any) -> Iterator[RawTable]:
    frame = _frame(raw)
    if frame.empty:
        raise InputError("the raw table holds no value; pass the records that must not leave")
    yield _read(frame, owner, bool(getattr(raw, "attrs", {}).get("sentinels")), schema)


def _frame(raw: Any) -> pd.DataFrame:
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
        if not isinstance(raw, Mapping | pd.DataFrame):
            raw = raw if isinstance(raw, list | tuple) and _has_texts(raw) else np.asarray(raw)
            raw = (
                raw.reshape(len(raw), -1) if isinstance(raw, np.ndarray) and raw.ndim != 2 else raw
            )
        return pd.DataFrame(raw)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the raw data are no table ({type(raw).__name__}); pass a DataFrame or an array"
        ) from error


def _has_texts(rows: Sequence[Any]) -> bool:
    return any(isinstance(one, str | list | tuple | dict) for one in rows[:1])


def _read(frame: pd.DataFrame, owner: str, sentinel: bool, schema: Any) -> RawTable:
    numbers: dict[str, np.ndarray] = {}
    codes: dict[str, np.ndarray] = {}
    texts: dict[str, Sequence[str]] = {}
    for place, name in enumerate(map(str, frame.columns)):
        series = frame.iloc[:, place]
        values = _numeric(series)
        if values is not None:
            numbers[name] = values
            continue
        coded, different = pd.factorize(series.astype(str))
        codes[name] = np.asarray(coded)
        named = [str(value) for value in different]
        if len(named) > NAMING * len(frame) or len(named) == len(frame):
            texts[name] = [str(value) for value in series]
    bounds = {c.name: c.bounds for c in schema.columns if c.numeric} if schema is not None else None
    return RawTable(
        _stacked(numbers, len(frame)),
        tuple(numbers),
        _stacked(codes, len(frame)),
        tuple(codes),
        texts,
        owner,
        sentinel,
        bounds,
    )


def _stacked(columns: Mapping[str, np.ndarray], records: int) -> np.ndarray:
    if not columns:
        return np.empty((records, 0))
    return np.column_stack([np.asarray(column, dtype=float) for column in columns.values()])


def _numeric(series: pd.Series[Any]) -> np.ndarray | None:
    """A column as numbers: moments as seconds since 1970; none for texts and categories."""
    if pd.api.types.is_datetime64_any_dtype(series):
        utc = pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy("datetime64[ns]")
        return np.where(np.isnat(utc), np.nan, utc.astype(np.int64) / 1e9)
    if pd.api.types.is_timedelta64_dtype(series):
        return np.asarray(series.dt.total_seconds(), dtype=float)
    if isinstance(series.dtype, pd.CategoricalDtype) or pd.api.types.is_complex_dtype(series):
        return None
    if pd.api.types.is_numeric_dtype(series):
        return np.asarray(series.to_numpy(dtype=float, na_value=np.nan))
    listed = [[np.nan] if _is_missing(one) else numbers_of(one) for one in series]
    known = [one for one in listed if one is not None and len(one) == 1]
    if len(known) < len(listed) or np.isnan(np.array(known)).all():
        return None
    return np.array(known).ravel()


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or value is pd.NaT
