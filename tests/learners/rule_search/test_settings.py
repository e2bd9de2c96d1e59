"""Parameters that make no sense are refused by one line each, whoever uses the learner first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners import RuleSearch
from privfed.tables.schema import Column, Schema

SCHEMA = Schema((Column("hr", lower=20, upper=220),))
POLICY = RuleSearch().published()
WRONG: list[tuple[str, Any]] = [
    *(("min_support", value) for value in (0, -0.1, 1.01, 2, "0.1", float("nan"), True)),
    *(("error", value) for value in (0, 1, 0.5)),
    *(("margin", value) for value in (0, -1, float("inf"))),
    *(("share", value) for value in (-0.1, 1.1)),
    *(("percentile", value) for value in (-1, 101)),
    *((name, 0) for name in ("levels", "slots", "questions", "max_templates")),
    *((name, 0) for name in ("horizon", "max_operators", "n_individuals", "max_queries")),
    *(("levels", value) for value in (2.5, "3", None)),
    *(("confirm", value) for value in (1, "1.5", -1)),
    *(("epsilon", value) for value in (0, "-1", "nan")),
    ("parameter_epsilon", -1),
    ("strategy", "guess"),
    ("strategy", ["levels"]),
    ("encoding", "binary"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_every_use_refuses_it_and_says_what_to_write(name: str, value: Any) -> None:
    """A price, a ceiling and the paper's policy, each before anything is asked."""
    model = RuleSearch(**{name: value})
    uses = (
        lambda: model.check(SCHEMA),
        lambda: model.plan(SCHEMA, POLICY),
        lambda: model.private("1"),
    )
    for use in (*uses, model.published):
        with pytest.raises(InputError, match=rf"{name} must .*write for example") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_the_ends_of_a_range_belong_to_it_where_it_says_so() -> None:
    """Everybody may be the threshold, no share and any percentile."""
    RuleSearch(min_support=1, share=0, percentile=100, expected=0).check(SCHEMA)
    numbers: dict[str, Any] = {"min_support": np.float64(0.5), "levels": np.int64(2)}
    RuleSearch(**numbers).check(SCHEMA)


def test_a_search_that_looks_for_more_than_the_threshold_needs_room_above_it() -> None:
    """Nothing is above everybody."""
    with pytest.raises(InputError, match="min_support between 0 and 1"):
        RuleSearch("adaptive", min_support=1).check(SCHEMA)
