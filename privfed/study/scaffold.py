"""Schema templates: a table's column names and kinds, without values unless categories are requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from privfed.errors import InputError, did_you_mean
from privfed.tables.csv_text import PLAIN, WRITTEN, Text, looks_european, proposed
from privfed.tables.records import label
from privfed.tables.schema import Kind, no_category
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


def schema_text(
    path: Path, target: str | None, *, text: Text | None = None, categories: bool = False
) -> str:
    """Return a table's schema without bounds, as TOML whose reading lists the missing ones.

    Without a ``text``, the form of a CSV file is proposed from its first lines, and written down. With
    ``categories``, those found in the records are written, and the file marked as inferred.
    """
    proposal = text is None and path.name.endswith(WRITTEN) and path.is_file()
    text = proposed(path) if proposal else text or PLAIN
    columns(path, text=text)
    frame = read_table(path, text=text)
    names = [str(name) for name in frame.columns]
    if target is not None and target not in names:
        raise InputError(
            f"data file {path}: no column {target!r} for the target; its columns are "
            f"{', '.join(names)}{did_you_mean(target, names)}"
        )
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
    head = _ABOUT.format(table=path.name) + _read_as(text) + (_REVEALED if categories else "")
    lines = [_line("name", path.name.split(".")[0])]
    lines += ["inferred = true"] if categories else []
    lines.append(
        '# target = "..."            # the column to predict'
        if target is None
        else _line("target", target)
    )
    for name in frame.columns:
        lines += ["", *_column(frame[name], str(name), categories)]
    return head + "\n".join(lines) + "\n"


def _read_as(text: Text) -> str:
    """What a study writes to read the table alike, as comments."""
    other = {key: value for key, value in vars(text).items() if value != getattr(PLAIN, key)}
    lines = "".join(f"#   {_line(key, value)}\n" for key, value in other.items())
    return (
        f"# Its text was read as follows; write the same under [data] of the study:\n{lines}"
        * bool(other)
    )


def _line(key: str, value: str | list[str]) -> str:
    return tomli_w.dumps({key: value}).strip()


def _column(series: pd.Series[Any], name: str, categories: bool) -> Iterator[str]:
    kind = _kind(series)
    fault = no_category(series) if kind == "category" else None
    if fault and categories:
        raise InputError(f"column {name!r} {fault}")
    if fault:
        yield f"# This column {fault}."
    yield "[[column]]"
    yield _line("name", name)
    yield f'kind = "{kind}"'
    if kind != "category":
        yield "# lower = ...               # the least and the most that a value can be"
        yield "# upper = ..."
    elif categories:
        held = sorted({label(value) for value in series.dropna()})
        yield _line("categories", held)
    else:
        yield '# categories = ["...", "..."]   # all that the form allows'


def _kind(series: pd.Series[Any]) -> Kind:
    """Return a column's kind, by its type alone."""
    if pd.api.types.is_bool_dtype(series) or not pd.api.types.is_numeric_dtype(series):
        return "category"
    held = series.dropna().to_numpy(dtype=float)
    whole = len(held) > 0 and bool(np.all(np.isfinite(held) & (np.floor(held) == held)))
    return "integer" if whole else "number"
