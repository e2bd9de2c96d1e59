"""A kit is every check of its module, in order, and no entrance or helper."""

from __future__ import annotations

from types import ModuleType

import pytest

from privfed.testing import (
    check_accountant,
    check_attack,
    check_learner,
    check_query,
    check_sharing,
)


@pytest.mark.parametrize(
    ("kit", "number", "first", "last"),
    [
        (check_accountant, 11, "check_composes_something", "check_any_moment"),
        (check_attack, 9, "check_says_what_it_asks", "check_time"),
        (check_learner, 18, "check_parameters", "check_queries"),
        (check_query, 13, "check_fields", "check_hostile_fields"),
        (check_sharing, 6, "check_nothing_raw", "check_order"),
    ],
)
def test_no_check_is_lost(kit: ModuleType, number: int, first: str, last: str) -> None:
    """A check that is written runs, without being listed."""
    names = [check.__name__ for check in kit.CHECKS]
    assert (len(names), names[0], names[-1]) == (number, first, last)
