"""What is wrong with a table that people wrote, all at once: where, and never which value.

Rows are numbered as in a spreadsheet: the header is row 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from privfed.errors import SchemaError, did_you_mean
from privfed.tables.records import fractions, label, no_numbers
from privfed.tables.schema import Column, Schema

#: Most rows that a message names.
NAMED = 5


def rows(places: np.ndarray) -> str:
    """Name some rows of a file by their positions among the records (from 0), shape (rows,)."""
    first = [str(place + 2) for place in places[:NAMED].tolist()]
    more = len(places) - len(first)
    told = f"row{'s' * (len(places) != 1)} {', '.join(first)}"
    return told + (f" and {more} more" if more else "")


def check_table(
    frame: pd.DataFrame,
    schema: Schema,
    where: str = "",
    *,
    owner: str | None = None,
    individual: str | None = None,
) -> None:
    """Hold a whole table against a schema, before it is divided among clients.

    Args:
        frame: one row a record, in the file's order.
        schema: the public data dictionary.
        where: what messages call the table.
        owner: the column that names each record's data owner, or ``None``.
        individual: the column that names the person behind each record, or ``None``.

    Raises:
        SchemaError: it tells every fault, by column and row.
    """
    found = [fault for column in schema.columns for fault in _column_faults(frame, column)]
    for name, who in ((owner, "a client"), (individual, "a person")):
        found += [] if name is None else _name_faults(frame, name, who)
    if found:
        raise SchemaError(*(f"{where}: {fault}" if where else fault for fault in found))


def _missing(frame: pd.DataFrame, name: str) -> str | None:
    if name in frame.columns:
        return None
    known = [str(column) for column in frame.columns]
    hint = did_you_mean(name, known)
    return f"no column {name!r} in the table; its columns are {', '.join(known)}{hint}"


def _name_faults(frame: pd.DataFrame, name: str, who: str) -> list[str]:
    missing = _missing(frame, name)
    if missing is not None:
        return [missing]
    empty = np.flatnonzero(frame[name].isna())
    if not len(empty):
        return []
    told = (
        f"column {name!r} leaves {len(empty)} of {len(frame)} records without {who} ({rows(empty)})"
    )
    return [f"{told}; name them, or leave those records out"]


def _column_faults(frame: pd.DataFrame, column: Column) -> Iterator[str]:
    missing = _missing(frame, column.name)
    if missing is not None:
        yield missing
        return
    series = frame[column.name]
    absent = np.flatnonzero(series.isna())
    if len(absent) and column.fill is None:
        yield (
            f"column {column.name!r} has no value in {len(absent)} of {len(series)} records ({rows(absent)}); write fill = ... "
            "for it in the schema, or leave those records out"
        )
    here = series.dropna()
    places = np.flatnonzero(series.notna())
    if column.numeric:
        wrong = no_numbers(series, column)
        if wrong:
            yield wrong
            return
        numbers = pd.to_numeric(here, errors="coerce").to_numpy(dtype=float)
        text = places[np.isnan(numbers)]
        if len(text):
            yield (
                f"column {column.name!r} is numeric but {len(text)} of its cells hold text "
                f'({rows(text)}); clean them, or declare kind = "category" in the schema'
            )
        broken = places[fractions(numbers, column)]
        if len(broken):
            yield (
                f"column {column.name!r} is an integer but {len(broken)} of its cells hold fractions "
                f'({rows(broken)}); round them, or declare kind = "number" in the schema'
            )
    elif column.fill is None:
        known = pd.Index(column.categories)
        unseen = places[known.get_indexer(pd.Index(here.map(label))) < 0]
        if len(unseen):
            yield (
                f"column {column.name!r} has {len(unseen)} cells with a category that the schema does "
                f"not list ({rows(unseen)}); add it to categories, or write fill = ... for such cells"
            )
