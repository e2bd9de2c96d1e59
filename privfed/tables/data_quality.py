"""Data quality of one owner's table under a schema, before anything is charged; for the owner only.

A wrong bound (1 for an age) makes every answer useless and still spends a persistent budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from privfed.errors import number_of
from privfed.tables.records import encode_column
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class DataQuality:
    """Counts over one owner's table; they depend on the records and must not be released."""

    records: int  #: number of records
    #: by column, cells outside the schema's bounds, including infinite ones
    clipped: Mapping[str, int] = field(default_factory=dict)
    infinite: Mapping[str, int] = field(default_factory=dict)  #: by column, cells that are infinite
    #: columns with a single value after clipping, in tables of two or more records
    constant: tuple[str, ...] = ()
    #: records that equal an earlier one in every column of the table, including columns not in the
    #: schema
    duplicates: int = 0

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema) -> DataQuality:
        """Compute the counts of a table that :meth:`Records.from_frame` accepts under the same schema."""
        clipped, infinite, constant = {}, {}, []
        for column in schema.columns:
            values, _ = encode_column(frame[column.name], column)
            lower, upper = column.bounds
            if n_clipped := int(((values < lower) | (values > upper)).sum()):
                clipped[column.name] = n_clipped
            if n_infinite := int(np.isinf(values).sum()):
                infinite[column.name] = n_infinite
            if len(frame) > 1 and np.ptp(np.clip(values, lower, upper)) == 0:
                constant.append(column.name)
        return cls(len(frame), clipped, infinite, tuple(constant), int(frame.duplicated().sum()))

    def warnings(self) -> list[str]:
        """Return one sentence per kind of problem, without values of cells; empty if there is none."""
        messages = []
        if not self.records:
            messages.append("the table holds no records: every answer would be noise alone")
        if self.clipped:
            total = sum(self.clipped.values())
            messages.append(
                f"the schema's bounds clip {number_of(total, 'cell')} of {number_of(self.records, 'record')}: "
                f"{_by_column(self.clipped)}"
            )
        if self.infinite:
            messages.append(f"infinite cells, which become a bound: {_by_column(self.infinite)}")
        if self.constant:
            messages.append(
                f"only one value, once clipped, in {'column' if len(self.constant) == 1 else 'columns'} "
                f"{', '.join(map(repr, self.constant))}"
            )
        if self.duplicates:
            messages.append(
                f"{self.duplicates} of {self.records} records repeat an earlier one in every column; "
                "check that no person is listed twice"
            )
        return messages


def _by_column(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {name!r}" for name, count in counts.items())
