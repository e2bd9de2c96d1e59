"""Queries: public values with one digest, and what a client's view gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed.errors import WireError
from privfed.questions import wire
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.testing.queries import AboveMiddle, Histogram


def test_equal_questions_have_one_digest() -> None:
    """Whole and broken numbers that are equal ask the same question."""
    assert Histogram(0, (0, 1)).digest == Histogram(0, (0.0, 1.0)).digest
    assert Histogram(0, (0.0, 1.0)).digest != Histogram(1, (0.0, 1.0)).digest


def test_the_kind_is_part_of_the_digest() -> None:
    """Two kinds with the same values are two questions."""

    class Other(Histogram):
        kind = "small.other"

    assert Other(0, (0.0, 1.0)).digest != Histogram(0, (0.0, 1.0)).digest


def test_a_remembered_digest_does_not_travel() -> None:
    """What a query has computed about itself is no public value of it."""
    query = Histogram(0, (0.0, 1.0))
    before = wire.encode(query)
    assert query.digest
    assert wire.encode(query) == before == query.fields


def test_fields_round_trip() -> None:
    """A query read from its fields is equal."""
    query = AboveMiddle(1, 10)
    assert AboveMiddle.from_fields(query.fields) == query


@pytest.mark.parametrize(
    "fields", [{}, {"feature": 0}, {"feature": "0", "people": 1}, {"feature": 0.5, "people": 1}, []]
)
def test_bad_fields(fields: object) -> None:
    """Missing and ill-typed values are refused."""
    with pytest.raises(WireError):
        AboveMiddle.from_fields(wire.encode(fields))


def test_secret_randomness_repeats(records: Records, schema: Schema) -> None:
    """The same secret and purpose draw alike; another secret or purpose does not."""

    def draw(secret: bytes, label: str) -> list[int]:
        view = View(records, schema, secret)
        return list(view.rng(label).integers(0, 2**31, 4))

    assert draw(b"s", "bootstrap") == draw(b"s", "bootstrap")
    assert draw(b"s", "bootstrap") != draw(b"t", "bootstrap")
    assert draw(b"s", "bootstrap") != draw(b"s", "other")


def test_a_table_is_asked_for(schema: Schema) -> None:
    """A query of tables meets something else: a typed error without its content."""
    with pytest.raises(TypeError, match="tabular"):
        _ = View(np.zeros(3), schema).table


def test_a_field_of_another_type_is_named_without_its_value() -> None:
    """Whoever writes a learner finds what to convert."""
    wrong: Any = 4171.5
    with pytest.raises(WireError, match="AboveMiddle: field people has another type") as told:
        _ = AboveMiddle(1, wrong).fields
    assert "4171" not in str(told.value)
    with pytest.raises(WireError, match=r"Histogram: field edges\[1\] has"):
        _ = Histogram(0, (0.0, "b")).fields  # type: ignore[arg-type]
