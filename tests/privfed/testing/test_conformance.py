"""A kit is every check of its module, in order, and no entrance or helper."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from privfed.testing import (
    check_accountant,
    check_attack,
    check_learner,
    check_mechanism,
    check_query,
    check_sharing,
)
from privfed.testing.conformance import run_checks


def test_an_assertion_without_a_text_is_told_by_its_code() -> None:
    """The rule alone does not say which of several assertions failed; a text of its own stays."""

    def check_one(subject: int) -> None:
        """It is one."""
        assert subject > 0, "not positive"
        if subject != 1:
            raise AssertionError

    with pytest.raises(AssertionError, match=r"^one: It is one\. not positive"):
        run_checks([check_one], 0)
    place = r"\(fails: raise AssertionError, test_conformance\.py:\d+\)"
    with pytest.raises(AssertionError, match=rf"^one: It is one\. {place}$"):
        run_checks([check_one], 2)


@pytest.mark.parametrize(
    ("kit", "number", "first", "last"),
    [
        (check_accountant, 12, "check_composes_something", "check_any_moment"),
        (check_attack, 9, "check_says_what_it_asks", "check_time"),
        (check_learner, 18, "check_fit_returns_self", "check_queries"),
        (check_query, 13, "check_fields", "check_hostile_fields"),
        (check_sharing, 6, "check_nothing_raw", "check_order"),
    ],
)
def test_no_check_is_lost(kit: ModuleType, number: int, first: str, last: str) -> None:
    """A check that is written runs, without being listed."""
    names = [check.__name__ for check in kit.CHECKS]
    assert (len(names), names[0], names[-1]) == (number, first, last)


@pytest.mark.parametrize(
    "kit", [check_accountant, check_attack, check_learner, check_mechanism, check_query]
)
def test_each_failure_of_a_plugins_kit_is_told_in_words(kit: ModuleType) -> None:
    """Its author reads what is wrong, and not the kit's source."""
    source = inspect.getsource(kit)
    asserts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    silent = [ast.unparse(node) for node in asserts if node.msg is None]
    assert asserts and not silent
