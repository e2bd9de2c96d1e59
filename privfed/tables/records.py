"""A data owner's records, encoded and clipped to the public schema, as queries evaluate them.

Records are clipped here, including NaN, so that queries never see values outside the bounds that
their sensitivities assume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from privfed.errors import SchemaError, no_column, number_of
from privfed.tables.csv_text import comma_remedy
from privfed.tables.schema import DATE, Column, Schema, label

#: NumPy kinds that pandas would convert to numbers, such as nanoseconds.
NO_NUMBERS = {"M": "dates", "m": "spans of time", "c": "complex numbers"}
#: Remedy for dates.
DAYS = "make numbers of them first: days since a public date, say"


@dataclass(frozen=True, eq=False)
class Records:
    """Encoded records of one data owner."""

    schema: Schema  #: the public data dictionary
    x: np.ndarray  #: features, shape (records, features); category codes are integers
    y: np.ndarray | None = None  #: target, shape (records,), or None
    #: code of each record's person, int64, shape (records,), or None; a name has the same code in
    #: every table
    individual: np.ndarray | None = None
    clipped: int = 0  #: number of cells outside the bounds (for the owner only)

    def __post_init__(self) -> None:
        schema = self.schema
        x = np.asarray(self.x, dtype=float)
        if x.ndim != 2 or x.shape[1] != len(schema.features):
            raise SchemaError(f"records need {len(schema.features)} features, one column each")
        object.__setattr__(self, "x", _clip(x, schema.lower, schema.upper))
        if self.y is not None:
            if schema.target is None:
                raise SchemaError("records have a target that the schema does not name")
            bounds = (np.array(bound) for bound in schema.target.bounds)
            object.__setattr__(self, "y", _clip(np.asarray(self.y, dtype=float), *bounds))
        if self.individual is not None:
            object.__setattr__(self, "individual", person_codes(np.asarray(self.individual)))
        for name in ("y", "individual"):
            array = getattr(self, name)
            if array is not None and np.shape(array) != (len(x),):
                raise SchemaError(f"records need one {name} each, in one dimension")

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def target(self) -> np.ndarray:
        """The target, shape (records,); an error if the schema has none."""
        if self.y is None:
            raise SchemaError("these records have no target")
        return self.y

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, schema: Schema, individual: str | None = None, owner: str = ""
    ) -> Records:
        """Encode a table (SchemaError: faults found by :func:`encode_column`, or missing columns)."""
        where = f"client {owner!r}: " if owner else ""
        arrays, n_clipped, required = [], 0, [column.name for column in schema.columns]
        for column in schema.columns:
            series = _pick(frame, column.name, where, required)
            values, faults = encode_column(series, column, column is schema.target)
            for fault in faults:
                raise SchemaError(f"{where}{fault.fact}; {fault.remedy}")
            arrays.append(values)
            lower, upper = column.bounds
            n_clipped += int(((values < lower) | (values > upper)).sum())
        features = len(schema.features)
        x = np.column_stack(arrays[:features]) if len(frame) else np.empty((0, features))
        y = arrays[features] if schema.target is not None else None
        return cls(schema, x, y, _people(frame, individual, where), n_clipped)

    @classmethod
    def from_array(cls, array: ArrayLike, schema: Schema) -> Records:
        """Encode features, shape (records, features), in the schema's order, without its target.

        In a numeric array categories are codes from 0; text, and lists with text, are read like a table's cells.
        SchemaError: wrong shape, no integer code of a category, or see :meth:`from_frame`.
        """
        features, given = Schema(schema.features), array
        array = np.asarray(given)
        if array.dtype.kind in "US" and not isinstance(given, np.ndarray):
            array = np.asarray(given, object)  # numbers are not converted to text
        if array.ndim != 2 or array.shape[1] != len(schema.features):
            raise SchemaError(
                f"an array needs two dimensions and {len(schema.features)} columns: "
                f"{', '.join(schema.names)}"
            )
        frame = pd.DataFrame(array, columns=list(schema.names))
        if array.dtype.kind in "biuf":
            for column in (feature for feature in schema.features if not feature.numeric):
                frame[column.name] = _category_names(
                    array[:, schema.names.index(column.name)], column
                )
        return cls.from_frame(frame, features)

    def capped(self, cap: int) -> Records:
        """Return at most ``cap`` records of each person, the first in the table's order."""
        if self.individual is None:
            raise SchemaError(
                "unit 'individual' needs the person behind each record; name the column with individual="
            )
        rank = pd.Series(self.individual).groupby(self.individual).cumcount().to_numpy()
        return self.take(np.flatnonzero(rank < cap))

    def take(self, index: np.ndarray) -> Records:
        """Return the records at the positions ``index``."""
        subset = object.__new__(Records)  # values within the bounds need no new check
        vars(subset).update(schema=self.schema, clipped=self.clipped)
        for name, array in (("x", self.x), ("y", self.y), ("individual", self.individual)):
            values = None if array is None else array[index]
            if values is not None:
                values.setflags(write=False)
            vars(subset)[name] = values
        return subset


def _clip(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    filled = np.where(np.isnan(values), (lower + upper) / 2, values)
    clipped: np.ndarray = np.clip(filled, lower, upper)
    clipped.setflags(write=False)
    return clipped


def _pick(
    frame: pd.DataFrame, name: str, where: str, required: Sequence[str] = ()
) -> pd.Series[Any]:
    if name not in frame.columns:
        raise SchemaError(where + no_column(name, frame.columns, required=required))
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise SchemaError(f"{where}column {name!r} stands twice in the table; keep one")
    return column


class Fault(NamedTuple):
    """A fault of some cells of a column: the problem, the positions, and the remedy."""

    fact: str
    positions: np.ndarray
    remedy: str


def encode_column(
    series: pd.Series[Any], column: Column, target: bool = False
) -> tuple[np.ndarray, list[Fault]]:
    """Encode a column, shape (records,), and list its faults; a target's remedies never suggest ``fill``."""
    faults = []
    missing = series.isna().to_numpy()
    absent, present = np.flatnonzero(missing), np.flatnonzero(~missing)
    remedy = "leave those records out"
    remedy = remedy if target else f"write fill = ... for it in the schema, or {remedy}"
    if len(absent) and column.fill is None:
        fact = f"column {column.name!r} has no value in {len(absent)} of {len(series)} records"
        faults.append(Fault(fact, absent, remedy))
    if column.numeric:
        values, wrong = _encode_numbers(series, column, present)
    else:
        values, wrong = _encode_categories(
            series, column, present, f"add it to categories, or {remedy}"
        )
    return values, faults + wrong


def encode_target(values: ArrayLike, schema: Schema) -> np.ndarray:
    """Return a target's values as a table's are encoded, shape (records,) (SchemaError: one is missing, or no class)."""
    assert schema.target is not None
    encoded, faults = encode_column(
        pd.Series(np.asarray(values).ravel()), schema.target, target=True
    )
    if faults:
        raise SchemaError(*(f"{fault.fact}; {fault.remedy}" for fault in faults))
    return encoded


def _category_names(codes: np.ndarray, column: Column) -> np.ndarray:
    """Return categories by code, shape (records,); what is not a number is missing."""
    missing = np.isnan(codes.astype(float))
    codes = np.where(missing, 0, codes)
    wrong = int((~np.isin(codes, np.arange(len(column.categories)))).sum())
    if wrong:
        raise SchemaError(
            f"column {column.name!r} has {number_of(wrong, 'cell')} without a code of a category, a whole number "
            f"from 0 to {len(column.categories) - 1}; give a table with the categories themselves"
        )
    names: np.ndarray = np.array(column.categories, dtype=object)[codes.astype(int)]
    names[missing] = None
    return names


def _encode_numbers(
    series: pd.Series[Any], column: Column, present: np.ndarray
) -> tuple[np.ndarray, list[Fault]]:
    values = pd.to_numeric(series, errors="coerce")
    kinds = [kind for kind in (series.dtype.kind, values.dtype.kind) if kind in NO_NUMBERS]
    if kinds:
        fact = f"column {column.name!r} is numeric but holds {NO_NUMBERS[kinds[0]]}"
        return np.zeros(0), [Fault(fact, present[:0], DAYS)]
    faults, numbers = [], values.to_numpy(dtype=float)
    text = present[np.isnan(numbers[present])]
    if len(text):
        fact = (
            f"column {column.name!r} is numeric but text stands in {number_of(len(text), 'cell')}"
        )
        remedy = 'clean them (a missing value is an empty cell), or declare kind = "category" in the schema'
        texts = series.iloc[text].astype(str)
        remedy = comma_remedy(texts) or (DAYS if texts.str.fullmatch(DATE).all() else remedy)
        faults.append(Fault(fact, text, remedy))
    if column.kind == "integer":
        fractional = np.flatnonzero(np.isfinite(numbers) & (numbers != np.floor(numbers)))
        if len(fractional):
            fact = f"column {column.name!r} is an integer but fractions stand in {number_of(len(fractional), 'cell')}"
            remedy = 'round them, or declare kind = "number" in the schema'
            faults.append(Fault(fact, fractional, remedy))
    if column.fill is not None:
        numbers = np.where(np.isnan(numbers), float(column.fill), numbers)
    return numbers, faults


def _encode_categories(
    series: pd.Series[Any], column: Column, present: np.ndarray, remedy: str
) -> tuple[np.ndarray, list[Fault]]:
    filled = series if column.fill is None else series.fillna(column.fill)
    mixed = filled.dtype == object and pd.api.types.infer_dtype(filled) != "string"
    # True, 1 and 1.0 are equal, but their labels differ
    inverse, uniques = (
        (slice(None), pd.Index(filled)) if mixed else pd.factorize(filled, use_na_sentinel=False)
    )
    labels = pd.Index([match_category(label(name), column.categories) for name in uniques])
    codes = pd.Index(column.categories).get_indexer(labels)[inverse]
    if column.fill is not None:
        return np.where(codes < 0, column.categories.index(str(column.fill)), codes) + 0.0, []
    unseen = present[codes[present] < 0]
    cells = f"{number_of(len(unseen), 'cell')} with a category that the schema does not list"
    fact = f"column {column.name!r} has {cells}"
    return codes.astype(float), [Fault(fact, unseen, remedy)] if len(unseen) else []


def match_category(text: str, categories: Collection[str]) -> str:
    """Return the listed category for a text: the text itself, or its value as read from a file."""
    if text in categories:
        return text
    if text.lower() in ("true", "false"):
        forms = text.capitalize(), text.lower(), text.upper()
        return next((form for form in forms if form in categories), text)
    try:
        return label(float(text))
    except ValueError:
        return text


def nearest_class(values: np.ndarray, lowest: float, classes: int) -> np.ndarray:
    """Return the nearest class codes from 0, int64, shape (records,), exactly one per record."""
    nearest = np.clip(np.rint(values - lowest), 0, classes - 1)
    return np.asarray(nearest.astype(np.int64))


def _people(frame: pd.DataFrame, individual: str | None, where: str) -> np.ndarray | None:
    if individual is None:
        return None
    people = _pick(frame, individual, where)
    if people.isna().any():
        raise SchemaError(f"{where}column {individual!r} leaves some records without a person")
    return person_codes(people.to_numpy())


def person_codes(people: np.ndarray) -> np.ndarray:
    """Return a code per person, int64, same shape, independent of others: integers, or hashes of names.

    SchemaError: a record has no person.
    """
    if people.dtype.kind in "iu":
        return people.astype(np.int64)
    inverse, uniques = pd.factorize(people.ravel())
    if (inverse < 0).any():
        raise SchemaError("some records have no person; name one for each")
    codes = np.array([_person_code(label(name)) for name in uniques], np.int64)
    return codes[inverse].reshape(people.shape)


def _person_code(name: str) -> int:
    with suppress(ValueError):
        number = int(name)
        if str(number) == name and abs(number) < 2**63:
            return number
    return int.from_bytes(
        hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True
    )
