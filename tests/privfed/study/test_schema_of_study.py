"""The schema that a study names, and which of two categories counts as the positive one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privfed.errors import StudyError
from privfed.study.schema_of_study import positive
from privfed.tables.schema import Column, Schema

SCHEMA = Schema(
    (Column("age", lower=0, upper=100),), Column("told", "category", categories=("ill", "well"))
)


def test_the_positive_category_comes_last() -> None:
    """Where learners expect it; a schema without the key stays as it is."""
    chosen = positive(SCHEMA, "ill").target
    assert chosen is not None and chosen.categories == ("well", "ill")
    assert positive(SCHEMA, None) is SCHEMA


def test_another_word_is_refused_and_the_schema_s_are_listed() -> None:
    """They are public."""
    with pytest.raises(StudyError, match=r"one of the categories.*ill, well"):
        positive(SCHEMA, "wel")


def test_categories_that_were_read_off_the_records_are_not_told() -> None:
    """Neither listed nor hinted at: they are values of somebody."""
    with pytest.raises(StudyError, match="none of the two categories") as told:
        positive(replace(SCHEMA, inferred=True), "wel")
    assert "well" not in str(told.value) and "ill" not in str(told.value)
