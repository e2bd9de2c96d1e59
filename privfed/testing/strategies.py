"""Strategies for Hypothesis: tables, neighbours, partitions, schedules, hostile schemas and tables.

They draw small examples with edge cases: bounds, duplicates, constant columns, empty clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from privfed.tables.schema import Column, Schema

Question = TypeVar("Question")
_AWKWARD = (float("nan"), float("inf"), float("-inf"), 1e308, -1e308)


def schemas(max_features: int = 4) -> st.SearchStrategy[Schema]:
    """Valid schemas of numbers, integers and categories, with or without a target."""
    columns = st.one_of(_numbers(), _categories())
    several = st.lists(columns, min_size=1, max_size=max_features, unique_by=lambda c: c.name)
    target = st.none() | _numbers().map(lambda c: Column("target", c.kind, c.lower, c.upper))
    return st.builds(lambda features, y: Schema(tuple(features), y), several, target)


def _numbers() -> st.SearchStrategy[Column]:
    kinds = st.sampled_from(("number", "integer"))
    low = st.integers(-1000, 1000)
    width = st.integers(1, 1000)
    names = st.sampled_from(("age", "dose", "weight", "score", "days"))
    return st.builds(lambda n, k, a, w: Column(n, k, a, a + w), names, kinds, low, width)


def _categories() -> st.SearchStrategy[Column]:
    values = st.lists(st.sampled_from("abcdefg"), min_size=2, max_size=5, unique=True)
    names = st.sampled_from(("sex", "ward", "group"))
    return st.builds(lambda n, v: Column(n, "category", categories=tuple(v)), names, values)


def tables(schema: Schema, min_records: int = 0, max_records: int = 8) -> st.SearchStrategy[Any]:
    """DataFrames of a schema, with values within its bounds, bounds included."""
    record = st.tuples(*(_value(column) for column in schema.columns))
    names = [column.name for column in schema.columns]
    rows = st.lists(record, min_size=min_records, max_size=max_records)
    return rows.map(lambda records: pd.DataFrame(records, columns=names))


def _value(column: Column) -> st.SearchStrategy[Any]:
    low, high = column.bounds
    if column.kind == "category":
        return st.sampled_from(column.categories)
    if column.kind == "integer":
        return st.integers(int(np.ceil(low)), int(np.floor(high))).map(float)
    return st.sampled_from((low, high, (low + high) / 2)) | st.floats(low, high)


def neighbouring_tables(
    schema: Schema,
    relation: Literal["add-or-remove", "replace-one"] = "add-or-remove",
    unit: Literal["record", "individual"] = "record",
    cap: int = 3,
    max_records: int = 8,
) -> st.SearchStrategy[tuple[Any, Any]]:
    """Pairs of tables that differ in one unit, at any position in the table.

    Args:
        schema: the public data dictionary.
        relation: one more unit, as (larger, smaller); or one unit replaced by another.
        unit: a record, or an individual with up to ``cap`` records.
        cap: most records of an individual.
        max_records: most records of the smaller table.
    """
    max_size = 1 if unit == "record" else cap
    common, index = tables(schema, 0, max_records), st.integers(0, max_records)
    if relation == "add-or-remove":
        units = tables(schema, 1, max_size)
        return st.builds(lambda rest, new, i: (_insert(rest, new, i), rest), common, units, index)
    pairs = st.integers(1, max_size).flatmap(
        lambda size: st.tuples(tables(schema, size, size), tables(schema, size, size))
    )

    def both(rest: pd.DataFrame, pair: tuple[Any, Any], i: int) -> tuple[Any, Any]:
        return _insert(rest, pair[0], i), _insert(rest, pair[1], i)

    return st.builds(both, common, pairs, index)


def _insert(rest: pd.DataFrame, unit: pd.DataFrame, index: int) -> pd.DataFrame:
    parts = [part for part in (rest.iloc[:index], unit, rest.iloc[index:]) if len(part)]
    return pd.concat(parts, ignore_index=True)


def divisions(records: int, max_clients: int = 4) -> st.SearchStrategy[list[np.ndarray]]:
    """Partitions of records among clients, as positions for each client; some may have none."""

    def divided(owners: list[int], clients: int) -> list[np.ndarray]:
        owner = np.array(owners, dtype=int) % clients
        return [np.flatnonzero(owner == client) for client in range(clients)]

    owners = st.lists(st.integers(0, max_clients - 1), min_size=records, max_size=records)
    return st.builds(divided, owners, st.integers(1, max_clients))


def schedules(
    questions: Sequence[Question], max_size: int = 12
) -> st.SearchStrategy[list[Question]]:
    """Sequences of queries, with repetitions, as any server may send."""
    return st.lists(st.sampled_from(list(questions)), max_size=max_size)


def hostile_tables(schema: Schema, max_records: int = 6) -> st.SearchStrategy[Any]:
    """Tables that violate a schema: missing and infinite values, unknown categories, extreme sizes.

    Each has at least one such value, which readers of tables must clip, fill or refuse without showing it
    in an error.
    """

    def spoilt(table: pd.DataFrame, spots: list[tuple[int, int, Any]]) -> pd.DataFrame:
        frame = table.astype(object)
        for row, column, value in spots:
            category = schema.columns[column].kind == "category"
            frame.iloc[row % len(frame), column] = f"unheard of {value}" if category else value
        return frame.infer_objects()

    columns = st.integers(0, len(schema.columns) - 1)
    spot = st.tuples(st.integers(0, 99), columns, st.sampled_from(_AWKWARD))
    return st.builds(spoilt, tables(schema, 1, max_records), st.lists(spot, min_size=1, max_size=4))


def hostile_schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Invalid schemas as JSON-like data, each with exactly one fault."""
    sound = {"name": "age", "kind": "number", "lower": 0.0, "upper": 100.0}
    category = {"name": "sex", "kind": "category", "categories": ["a", "b"]}
    uppers = (0.0, float("nan"), float("inf"), 1e200, "100")
    faults: list[dict[str, Any]] = [
        {"column": []},
        *({"column": [{**sound, "upper": upper}]} for upper in uppers),
        {"column": [{**sound, "lower": 100.0, "upper": 0.0}]},
        {"column": [{**sound, "kind": "money"}]},
        {"column": [{**sound, "name": ""}]},
        {"column": [sound, sound]},
        {"column": [{**sound, "fill": 1000.0}]},
        {"column": [{**sound, "bounds": [0, 1]}]},
        *({"column": [{**category, "categories": few}]} for few in (["a"], ["a", "a"], "ab")),
        {"column": [{**category, "fill": "c"}]},
        {"column": [{"kind": "number", "lower": 0.0, "upper": 1.0}]},
        {"column": [sound], "target": "nothing"},
        {"column": [sound], "tagret": "age"},
        {"column": {"age": sound}},
    ]
    more: list[dict[str, Any]] = [sound | {"name": "dose"}, category | {"name": "ward"}]

    def with_more(fault: dict[str, Any], extra: list[Any]) -> dict[str, Any]:
        columns = fault["column"]
        if not isinstance(columns, list) or not columns:
            return fault
        return {**fault, "column": [*columns, *extra]}

    extras = st.lists(st.sampled_from(more), max_size=2, unique_by=lambda column: column["name"])
    return st.builds(with_more, st.sampled_from(faults), extras)
