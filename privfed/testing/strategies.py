"""Strategies for Hypothesis: tables, neighbours, divisions, schedules, hostile schemas and tables.

They draw small things with awkward values: bounds, duplicates, constant columns, empty clients.
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
    """Sound schemas: numbers, whole numbers and categories, with a target or without."""
    columns = st.one_of(_numbers(), _categories())
    several = st.lists(columns, min_size=1, max_size=max_features, unique_by=lambda one: one.name)
    target = st.none() | _numbers().map(
        lambda one: Column("target", one.kind, one.lower, one.upper)
    )
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
    """DataFrames of a schema: values within its bounds, the bounds themselves among them."""
    record = st.tuples(*(_value(column) for column in schema.columns))
    names = [column.name for column in schema.columns]
    rows = st.lists(record, min_size=min_records, max_size=max_records)
    return rows.map(lambda listed: pd.DataFrame(listed, columns=names))


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
    """Pairs of tables that differ in one unit, at any place in the table.

    Args:
        schema: the public data dictionary.
        relation: a unit more or less, as (larger, smaller); or another one in its place.
        unit: a record, or an individual with up to ``cap`` records.
        cap: most records of an individual.
        max_records: most records of the smaller table.
    """
    most = 1 if unit == "record" else cap
    common, place = tables(schema, 0, max_records), st.integers(0, max_records)
    if relation == "add-or-remove":
        units = tables(schema, 1, most)
        return st.builds(lambda rest, own, at: (_joined(rest, own, at), rest), common, units, place)
    pairs = st.integers(1, most).flatmap(
        lambda size: st.tuples(tables(schema, size, size), tables(schema, size, size))
    )

    def both(rest: pd.DataFrame, pair: tuple[Any, Any], at: int) -> tuple[Any, Any]:
        return _joined(rest, pair[0], at), _joined(rest, pair[1], at)

    return st.builds(both, common, pairs, place)


def _joined(rest: pd.DataFrame, own: pd.DataFrame, at: int) -> pd.DataFrame:
    parts = [part for part in (rest.iloc[:at], own, rest.iloc[at:]) if len(part)]
    return pd.concat(parts, ignore_index=True)


def divisions(records: int, max_clients: int = 4) -> st.SearchStrategy[list[np.ndarray]]:
    """Ways to divide records among clients: positions for each; some clients may hold none."""

    def divided(owners: list[int], clients: int) -> list[np.ndarray]:
        of = np.array(owners, dtype=int) % clients
        return [np.flatnonzero(of == client) for client in range(clients)]

    owners = st.lists(st.integers(0, max_clients - 1), min_size=records, max_size=records)
    return st.builds(divided, owners, st.integers(1, max_clients))


def schedules(
    questions: Sequence[Question], max_size: int = 12
) -> st.SearchStrategy[list[Question]]:
    """Orders of questions, with repeats: a server may ask anything, again and again."""
    return st.lists(st.sampled_from(list(questions)), max_size=max_size)


def hostile_tables(schema: Schema, max_records: int = 6) -> st.SearchStrategy[Any]:
    """Tables that break a schema: missing and infinite values, unknown categories, wild sizes.

    Each holds at least one such value; what reads tables must clip it, fill it or refuse it, and say
    nothing of it in its error.
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
    """Schemas as plain data that nobody may accept: each has one fault, and is sound but for it."""
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
        listed = fault["column"]
        if not isinstance(listed, list) or not listed:
            return fault
        return {**fault, "column": [*listed, *extra]}

    extras = st.lists(st.sampled_from(more), max_size=2, unique_by=lambda column: column["name"])
    return st.builds(with_more, st.sampled_from(faults), extras)
