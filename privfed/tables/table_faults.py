"""All faults of a user's table at once: their positions, never their values.

Rows are numbered as in a spreadsheet: the header is row 1.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from privfed.errors import SchemaError, no_column
from privfed.tables.records import encode_column
from privfed.tables.schema import Schema

NAMED = 5  #: Maximum rows that a message names


def rows(positions: np.ndarray) -> str:
    """Format rows of a file from positions among the records (from 0), shape (rows,)."""
    first = [str(position + 2) for position in positions[:NAMED].tolist()]
    more = len(positions) - len(first)
    text = f"row{'s' * (len(positions) != 1)} {', '.join(first)}"
    return text + (f" and {more} more" if more else "")


def check_table(
    frame: pd.DataFrame,
    schema: Schema,
    where: str = "",
    *,
    owner: str | None = None,
    individual: str | None = None,
) -> None:
    """Check a whole table against a schema, before it is partitioned (SchemaError: all faults).

    ``where`` is its name in messages; ``owner`` and ``individual`` are columns that are not
    features.
    """
    missing = [column.name for column in schema.columns if column.name not in frame.columns]
    messages: list[str] = []
    for column in schema.columns:
        if column.name in missing:  # the first of them lists the existing columns
            listed = column.name == missing[0]
            required = [known.name for known in schema.columns]
            messages.append(no_column(column.name, frame.columns, listed=listed, required=required))
        else:
            faults = encode_column(frame[column.name], column, column is schema.target)[1]
            for fact, positions, remedy in faults:
                location = f" ({rows(positions)})" if len(positions) else ""
                messages.append(f"{fact}{location}; {remedy}")
    for name, who in ((owner, "a client"), (individual, "a person")):
        messages += [] if name is None else _name_faults(frame, name, who)
    if messages:
        raise SchemaError(*(f"{where}: {fault}" if where else fault for fault in messages))


def _name_faults(frame: pd.DataFrame, name: str, who: str) -> list[str]:
    if name not in frame.columns:
        return [no_column(name, frame.columns)]
    empty = np.flatnonzero(frame[name].isna())
    if not len(empty):
        return []
    problem = (
        f"column {name!r} leaves {len(empty)} of {len(frame)} records without {who} ({rows(empty)})"
    )
    return [f"{problem}; name them, or leave those records out"]
