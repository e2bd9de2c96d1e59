"""Schema templates: a table's column names and kinds, without values unless categories are requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from privfed.errors import NO_HEADER, InputError, may_be_a_record, no_column
from privfed.tables.csv_text import PLAIN, WRITTEN, Text, looks_european, proposed
from privfed.tables.schema import Kind, label, no_category
from privfed.tables.sources import columns, read_table

_ABOUT = """\
# The public data dictionary of {table}.
# Fill in what is known without looking at the records: what the instrument can show, what the form
# allows. Leave out columns that are no features, such as the one that names each record's owner.
"""
_REVEALED = """\
# The categories below were read off the records: a release without any guarantee. Put those of the
# form in their place, and remove the line after next.
"""


@dataclass(frozen=True)
class ColumnSummary:
    """A column of a file, without any record's values."""

    name: str
    kind: Kind  #: by its data type
    fault: str | None  #: why a column of text is not categorical
    two_values: bool = False  #: whether it has at most two distinct integers


def column_summaries(path: Path, text: Text) -> list[ColumnSummary]:
    """Return a table's columns (InputError: it cannot be read, or has another decimal separator)."""
    frame = _read_named(path, text)
    return [_summarise(frame[name], str(name)) for name in _check_decimals(frame, path).columns]


def _read_named(path: Path, text: Text) -> pd.DataFrame:
    """Read a table with a header (InputError: its first row may be a record, whose values would be written)."""
    if may_be_a_record(columns(path, text=text)):
        raise InputError(
            f"data file {path}: {NO_HEADER}; a column that is called by a number, call otherwise"
        )
    return read_table(path, text=text)


def form_of(path: Path) -> Text:
    """Detect a file's format from its first lines."""
    return proposed(path) if path.name.endswith(WRITTEN) and path.is_file() else PLAIN


def schema_text(
    path: Path, target: str | None, *, text: Text | None = None, categories: bool = False
) -> str:
    """Return a table's schema without bounds, as TOML; reading it reports the missing ones.

    ``text`` is the format of a CSV file; by default it is detected from the first lines. With
    ``categories``, those of the records are included, and the schema is marked as inferred.
    """
    text = form_of(path) if text is None else text
    frame = _check_decimals(_read_named(path, text), path)
    names = [str(name) for name in frame.columns]
    if target is not None and target not in names:
        raise InputError(f"data file {path}: {no_column(target, names, 'for the target; its')}")
    blocks = []
    for name in frame.columns:
        column = _summarise(frame[name], str(name))
        values: list[str] = []
        if categories and column.kind == "category":
            if column.fault:
                raise InputError(f"column {str(name)!r} {column.fault}")
            values = sorted({label(value) for value in frame[name].dropna()})
        blocks.append(column_text(column, categories=values))
    about = _ABOUT.format(table=path.name) + read_as(text) + (_REVEALED if categories else "")
    head = [line("name", path.name.split(".")[0]), *(["inferred = true"] if categories else [])]
    head.append(
        '# target = "..."            # the column to predict'
        if target is None
        else line("target", target)
    )
    return about + "\n".join([*head, "", "\n\n".join(blocks)]) + "\n"


def column_text(
    column: ColumnSummary, bounds: tuple[float, float] | None = None, categories: Sequence[str] = ()
) -> str:
    """Format one column of a schema, with comments to fill in for unknown values."""
    lines = [f"# This column {column.fault}."] if column.fault else []
    lines += ["[[column]]", line("name", column.name), f'kind = "{column.kind}"']
    if categories:
        lines.append(line("categories", list(categories)))
    elif column.kind == "category":
        lines.append('# categories = ["...", "..."]   # all that the form allows')
    elif bounds:
        lines += [line("lower", bounds[0]), line("upper", bounds[1])]
    else:
        lines.append("# lower = ...               # the least and the most that a value can be")
        lines.append("# upper = ...")
    return "\n".join(lines)


def read_as(text: Text) -> str:
    """Return the study's keys that reproduce a format, as comments."""
    other = format_keys(text)
    lines = "".join(f"#   {line(key, value)}\n" for key, value in other.items())
    return (
        f"# Its text was read as follows; write the same under [data] of the study:\n{lines}"
        * bool(other)
    )


def format_keys(text: Text) -> dict[str, str]:
    """Return the keys of a study's ``[data]`` for a format, without defaults."""
    return {key: value for key, value in vars(text).items() if value != getattr(PLAIN, key)}


def line(key: str, value: Any) -> str:
    """Return one line of TOML."""
    return tomli_w.dumps({key: value}).strip()


def _check_decimals(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    if commas := [
        str(name)
        for name in frame.columns
        if not pd.api.types.is_numeric_dtype(frame[name])
        and looks_european(frame[name].dropna().astype(str))
    ]:
        raise InputError(
            f"data file {path}: the numbers of {', '.join(map(repr, commas))} have commas before their decimals; "
            'write --decimal "," (and under [data], decimal = ",")'
        )
    return frame


def _summarise(series: pd.Series[Any], name: str) -> ColumnSummary:
    if pd.api.types.is_bool_dtype(series) or not pd.api.types.is_numeric_dtype(series):
        return ColumnSummary(name, "category", no_category(series))
    values = series.dropna().to_numpy(dtype=float)
    whole = len(values) > 0 and bool(np.all(np.isfinite(values) & (np.floor(values) == values)))
    two = whole and len(np.unique(values)) <= 2
    return ColumnSummary(name, "integer" if whole else "number", None, two_values=two)
