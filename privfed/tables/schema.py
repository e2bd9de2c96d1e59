"""The public data dictionary, which describes the columns without reading records.

Bounds come from here and never silently from data: bounds inferred from records are a release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from privfed.errors import Faults, SchemaError, did_you_mean, no_column
from privfed.tables.toml_file import InToml, check_keys, naming, read_toml

Kind = Literal["number", "integer", "category"]
KINDS = ("number", "integer", "category")
MISSING = ("None", "nan", "<NA>", "NaT")  #: How values that are missing are written
LARGEST = 1e100  #: Maximum bound, so that squares and widths do not overflow; its inverse is the minimum width


@dataclass(frozen=True)
class Column:
    """One public column: its kind and its bounds, or its categories."""

    name: str  #: column name in every client's table
    kind: Kind = "number"  #: ``number``, ``integer`` or ``category``; the last if there are categories, no bounds
    lower: float | None = None  #: lower bound, to which values are clipped (numeric kinds)
    upper: float | None = None  #: upper bound
    categories: tuple[str, ...] = ()  #: the public list of values (``category``), in order
    fill: float | str | None = None  #: replaces missing values, which are errors without it
    description: str = ""  #: one line for reports

    if TYPE_CHECKING:  # what __post_init__ converts

        def __init__(
            self,
            name: str,
            kind: Kind = "number",
            lower: float | None = None,
            upper: float | None = None,
            categories: Iterable[object] = (),
            fill: float | str | None = None,
            description: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise SchemaError('a column has no name; write name = "..."')
        if not isinstance(self.description, str):
            raise SchemaError(f"column {self.name!r}: description is text; write it in quotes")
        object.__setattr__(self, "categories", self._texts())
        if self.kind not in KINDS:
            raise SchemaError(f"column {self.name!r}: kind must be one of {', '.join(KINDS)}")
        if self.categories and self.kind == "number" and self.lower is None and self.upper is None:
            object.__setattr__(self, "kind", "category")
        if self.categories and self.kind != "category":
            raise SchemaError(
                f'column {self.name!r}: lists categories; write kind = "category" too'
            )
        if self.kind == "category":
            self._check_categories()
        else:
            self._check_bounds()

    def _texts(self) -> tuple[str, ...]:
        """Return the categories as :func:`.label` writes a table's cells."""
        listed = self.categories
        if hasattr(
            listed, "tolist"
        ):  # an array, a series or an index; pandas is not loaded for this
            listed = tuple(listed.tolist())
        if not isinstance(listed, list | tuple):
            raise SchemaError(
                f'column {self.name!r}: categories are a list; write categories = ["...", "..."]'
            )
        if any(not isinstance(value, str) and str(value) in MISSING for value in listed):
            raise SchemaError(
                f"column {self.name!r}: a category is missing; list texts, and let fill = ... replace missing values"
            )
        return tuple(label(value) for value in listed)

    def _check_categories(self) -> None:
        if len(self.categories) < 2 or len(set(self.categories)) != len(self.categories):
            raise SchemaError(
                f'column {self.name!r}: list at least two different categories = ["...", "..."]'
            )
        if (self.lower, self.upper) != (None, None):
            raise SchemaError(
                f"column {self.name!r}: categories have no lower and upper; leave these out, or write another kind"
            )
        if self.fill is not None:
            object.__setattr__(self, "fill", label(self.fill))
        if self.fill is not None and self.fill not in self.categories:
            raise SchemaError(f"column {self.name!r}: fill must be one of its categories")

    def _check_bounds(self) -> None:
        for name in ("lower", "upper", "fill"):  # NumPy scalars to Python's
            if isinstance(value := getattr(self, name), np.generic):
                object.__setattr__(self, name, value.item())
        lower, upper = self.lower, self.upper
        if lower is None or upper is None:
            raise SchemaError(f"column {self.name!r}: write lower = ... and upper = ...")
        if not (
            _is_number(lower) and _is_number(upper) and (self.fill is None or _is_number(self.fill))
        ):
            raise SchemaError(f"column {self.name!r}: lower, upper and fill are numbers, no text")
        if not lower < upper:
            raise SchemaError(f"column {self.name!r}: lower must be a number below upper")
        if not max(abs(lower), abs(upper)) <= LARGEST:
            raise SchemaError(
                f"column {self.name!r}: bounds beyond {LARGEST:g} overflow; write what values can be"
            )
        if float(lower) == float(upper):  # integers beyond 2^53
            raise SchemaError(
                f"column {self.name!r}: to floats lower and upper are one number; write values less an offset"
            )
        if not upper - lower >= 1 / LARGEST:
            raise SchemaError(
                f"column {self.name!r}: bounds less than {1 / LARGEST:g} apart underflow; write values in another unit"
            )
        if not (self.fill is None or isinstance(self.fill, str) or lower <= self.fill <= upper):
            raise SchemaError(f"column {self.name!r}: fill must lie between lower and upper")
        numbers = [lower, upper] if self.fill is None else [lower, upper, float(self.fill)]
        if self.kind == "integer" and not all(float(number).is_integer() for number in numbers):
            raise SchemaError(
                f"column {self.name!r}: lower, upper and fill of an integer are whole numbers; write "
                'them so, or declare kind = "number"'
            )

    @property
    def numeric(self) -> bool:
        """Whether the column has numbers."""
        return self.kind != "category"

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of the encoded values: the bounds, or the range of category codes."""
        if self.numeric:
            assert self.lower is not None and self.upper is not None
            return float(self.lower), float(self.upper)
        return 0.0, float(len(self.categories) - 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the column as plain data, without defaults."""
        data: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.numeric:
            data |= {"lower": self.lower, "upper": self.upper}
        else:
            data["categories"] = list(self.categories)
        if self.fill is not None:
            data["fill"] = self.fill
        if self.description:
            data["description"] = self.description
        return data


@dataclass(frozen=True)
class Schema(InToml):
    """The columns of every client's table, and the target among them."""

    features: tuple[Column, ...]  #: the inputs, in the order of the encoded matrix
    #: the column to predict, the name of one of ``features``, or None
    target: Column | None = None
    name: str = ""  #: a name for reports
    #: whether the bounds were inferred from data (an unprotected release); written to files
    inferred: bool = field(default=False, compare=False)

    if TYPE_CHECKING:  # what __post_init__ converts

        def __init__(
            self,
            features: Iterable[Column],
            target: Column | str | None = None,
            name: str = "",
            inferred: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        listed = isinstance(self.features, Iterable)
        object.__setattr__(self, "features", tuple(self.features) if listed else ())
        given = (*self.features, *([] if isinstance(self.target, str | None) else [self.target]))
        if not listed or not all(isinstance(column, Column) for column in given):
            raise SchemaError(
                'a schema lists its columns; write Schema([Column("age", lower=0, upper=120), ...], target="...")'
            )
        if not isinstance(self.name, str):
            raise SchemaError("a schema's name is text; write it in quotes")
        if isinstance(self.target, str):
            targets = [column for column in self.features if column.name == self.target]
            if not targets:
                names = [column.name for column in self.features]
                hint = did_you_mean(self.target, names)
                raise SchemaError(f"no column {self.target!r} for the target{hint}")
            features = tuple(column for column in self.features if column is not targets[0])
            object.__setattr__(self, "features", features)
            object.__setattr__(self, "target", targets[0])
        if not self.features:
            raise SchemaError("a schema needs at least one feature")
        names = [column.name for column in self.columns]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise SchemaError(f"column {duplicates[0]!r} is listed twice; keep one")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Features, then the target."""
        return self.features if self.target is None else (*self.features, self.target)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of numeric columns, including the target's."""
        return tuple(column.name for column in self.columns if column.numeric)

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names, in order."""
        return tuple(column.name for column in self.features)

    @property
    def lower(self) -> np.ndarray:
        """Lower bounds of the encoded features, shape (features,)."""
        return np.array([column.bounds[0] for column in self.features], dtype=float)

    @property
    def upper(self) -> np.ndarray:
        """Upper bounds of the encoded features, shape (features,)."""
        return np.array([column.bounds[1] for column in self.features], dtype=float)

    def column(self, name: str) -> Column:
        """Return a column by name; the error lists the known ones."""
        for column in self.columns:
            if column.name == name:
                return column
        known = [column.name for column in self.columns]
        raise SchemaError(no_column(name, known, "in the schema; the"))

    def fill_notes(self) -> list[str]:
        """Return a note for readers of a model on what missing values of features count as, if any may be missing."""
        fills = [(column.name, column.fill) for column in self.features if column.fill is not None]
        parts = [
            f"{shown(name)} {shown(fill) if isinstance(fill, str) else f'{fill:.15g}'}"
            for name, fill in fills
        ]
        return [f"A missing value counts as: {', '.join(parts)}."] * bool(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain data, in the form of its TOML file."""
        data: dict[str, Any] = {"name": self.name}
        if self.target is not None:
            data["target"] = self.target.name
        if self.inferred:
            data["inferred"] = True
        data["column"] = [column.to_dict() for column in self.columns]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "schema") -> Schema:
        """Read plain data; a misspelt key is an error that lists the known ones."""
        faults = Faults()
        with faults.collected():
            check_keys(data, {"name", "target", "inferred", "column"}, where, SchemaError)
        inferred = data.get("inferred", False)
        if not isinstance(inferred, bool):
            faults.add(SchemaError(f"{where}: inferred is true or left out"))
        entries = data.get("column", ())
        if not isinstance(entries, list | tuple):
            faults.add(SchemaError(f"{where}: write each column as a table of its own, [[column]]"))
            faults.tell(SchemaError)
        columns, target = [], data.get("target")
        for entry in entries:
            with faults.collected():
                columns.append(_column(entry, where))
        names = [entry.get("name") for entry in entries if isinstance(entry, Mapping)]
        if target is not None and target not in names:
            hint = did_you_mean(target, [str(name) for name in names])
            fault = f"{where}: target {target!r} has no [[column]] of its own{hint}"
            faults.add(SchemaError(fault))
        faults.tell(SchemaError)
        targets = [column for column in columns if column.name == target]
        features = tuple(column for column in columns if column.name != target)
        title = data.get("name", "")
        return cls(features, targets[0] if targets else None, title, inferred)

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file."""
        where = f"schema file {path}"
        data = read_toml(path, where, SchemaError)
        with naming(where):
            return cls.from_dict(data, where)

    @classmethod
    def infer(cls, frame: pd.DataFrame, target: str | None, name: str = "inferred") -> Schema:
        """Infer bounds and categories from the data, which is an unprotected release.

        A constant feature gets an upper bound above its value.
        """
        duplicates = frame.columns[frame.columns.duplicated()]
        if len(duplicates):
            raise SchemaError(f"column {duplicates[0]!r} stands twice in the table; keep one")
        columns = [_infer_column(frame[name], str(name), target) for name in frame.columns]
        features = tuple(column for column in columns if column.name != target)
        targets = [column for column in columns if column.name == target]
        if target is not None and not targets:
            raise SchemaError(no_column(target, frame.columns, "for the target; the"))
        return cls(features, targets[0] if targets else None, name, inferred=True)


#: Dates: 2021-03-05, 05.03.2021, 3/5/21, with or without a time
DATE = r"\s*(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))(?:[T ]\d{1,2}:\d{2}.*)?"


_READ = re.compile(
    r'[<>={},"]|[;:] | and '
)  #: Separators and quotes of names in rules, lists and sets


def shown(name: str) -> str:
    """Format a name or category: quoted if it would be invisible, break the line, or read as more than a name."""
    readable = name == name.strip() and name.isprintable() and not _READ.search(name)
    return name if name and readable else json.dumps(name, ensure_ascii=not name.isprintable())


def label(value: object) -> str:
    """Format a category as in the schema: 1.0 and 1 are both '1'."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _column(entry: Mapping[str, Any], where: str) -> Column:
    check_keys(entry, set(Column.__dataclass_fields__), where, SchemaError)
    if "name" not in entry:
        raise SchemaError(f'{where}: every [[column]] needs name = "..."')
    return Column(**entry)


def no_category(series: pd.Series[Any]) -> str | None:
    """Return why a column of text is not categorical, with a remedy; None if it may be.

    Dates are not, nor more than 20 distinct texts in over half as many as the records, which may identify people.
    """
    values = series.dropna()
    if pd.api.types.is_datetime64_any_dtype(values) or (
        len(values) and values.astype(str).str.fullmatch(DATE).all()
    ):
        return "holds dates; write an age or a number of days in its place, or leave it out"
    n_unique = values.astype(str).nunique()
    if n_unique > 20 and 2 * n_unique > len(values):
        return (
            "holds a text of its own for most records, as names and numbers of cases do; leave it out, or "
            "list its public categories in a schema"
        )
    return None


def _infer_column(series: pd.Series[Any], name: str, target: str | None) -> Column:
    if pd.api.types.is_bool_dtype(series) or not pd.api.types.is_numeric_dtype(series):
        if fault := no_category(series):
            raise SchemaError(f"column {name!r} {fault}")
        values: list[str] = sorted({str(value) for value in series.dropna()})
        if len(values) == 1:
            raise SchemaError(_constant_message(name, target))
        return Column(name, "category", categories=tuple(values))
    finite = series[np.isfinite(series.to_numpy(dtype=float))]
    if finite.empty:
        raise SchemaError(f"column {name!r} holds no finite number; leave it out")
    lower, upper = float(finite.min()), float(finite.max())
    if lower == upper and name == target:
        raise SchemaError(_constant_message(name, target))
    if lower == upper:
        upper += max(1.0, abs(upper))
    kind: Kind = "integer" if pd.api.types.is_integer_dtype(series) else "number"
    return Column(name, kind, lower, upper)


def _constant_message(name: str, target: str | None) -> str:
    if name == target:
        return f"target {name!r} is constant, so there is nothing to predict; give a public schema with all that it may be"
    return f"column {name!r} is constant; leave it out, or give a public schema"
