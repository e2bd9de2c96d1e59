"""Ledgers and budgets: what left has an entry, and beyond the budget nothing is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from privfed import Guard, LocalDisclosure, Policy
from privfed.errors import InputError
from privfed.exchange.messages import Reason, Refusal
from privfed.privacy.accountant import Budget
from privfed.testing import assert_ledger, assert_refuses_over_budget
from privfed.testing.assertions.ledger import BudgetExceeded, NotAccountedFor, is_refusal
from privfed.testing.hospitals import NUMERIC, patients
from privfed.testing.queries import Histogram

FRAME = patients(120)[["age", "GCS", "noise", "sex", "hospital", "days"]]
AGES = Histogram(0, (0.0, 50.0, 100.0))


def federation(budget: int | None = None) -> LocalDisclosure:
    """Three hospitals that count ages with noise."""
    guard = Guard.of("laplace", spend=1)
    policy = Policy(
        {Histogram.kind: (guard,)}, budget=None if budget is None else Budget.of(budget)
    )
    return LocalDisclosure.from_frame(
        FRAME, target="days", client="hospital", schema=NUMERIC, policy=policy, seed=1
    )


def test_whatever_stands_in_privfed_s_ledgers_passes() -> None:
    """A federation, its transcript, its ledgers by owner."""
    fed = federation()
    fed.ask(AGES)
    ledgers = {name: gate.ledger for name, gate in fed.gates.items()}
    for ledger in (fed, fed.transcript(), ledgers):
        assert_ledger(fed.transcript(), ledger)
        with pytest.raises(NotAccountedFor, match=r"left\[1\]\['more'\]"):
            assert_ledger([fed.transcript(), {"more": 47.31}], ledger)


def test_entries_by_path() -> None:
    """Patterns of paths with what they were charged; what has none is told."""
    left = {"sums": np.ones(3), "counts": np.ones(2), "rate": 0.1}
    charged = {"left['sums']": Fraction(1, 2), "left['counts']": 0.5}
    assert_ledger(left, charged, allow=["left['rate']"])
    with pytest.raises(NotAccountedFor, match="rate") as told:
        assert_ledger(left, charged)
    assert "at 1 path:\n- left['rate']: 1 without" in str(told.value)
    assert str(told.value).endswith("patterns of paths: left['sums'], left['counts']")
    with pytest.raises(NotAccountedFor, match="no finite cost"):
        assert_ledger(left, {**charged, "left": float("inf")})


def test_a_ledger_of_everything_is_none() -> None:
    """A pattern that fits every path, nothing that left, and what is no ledger."""
    with pytest.raises(AssertionError, match="planted"):
        assert_ledger({"a": 1.5}, {"*": 1.0})
    with pytest.raises(AssertionError, match="no number"):
        assert_ledger("nothing", {"left*": 1.0})
    with pytest.raises(InputError, match="a ledger is"):
        assert_ledger({"a": 1.5}, 7)


def counting(budget: int, safe: bool = True) -> Callable[[int], object]:
    """A system with a budget of so many questions; an unsafe one checks and reserves in two steps."""
    lock, spent = threading.Lock(), [0]
    both = threading.Barrier(2, timeout=5)

    def ask(number: int) -> object:
        if safe:
            with lock:
                if spent[0] >= budget:
                    raise PermissionError
                spent[0] += 1
                return spent[0]
        if spent[0] >= budget:
            return None
        if spent[0] == budget - 1:
            both.wait()
        spent[0] += 1
        return spent[0]

    return ask


def test_a_budget_that_holds() -> None:
    """One after the other, from many threads, and in privfed itself."""
    assert_refuses_over_budget(counting(3), 3)
    assert_refuses_over_budget(counting(3), 3, threads=4)
    fed = federation(budget=3)
    assert_refuses_over_budget(
        lambda number: fed.ask(Histogram(0, (0.0, 20.0 + number, 100.0))), times=3
    )


def test_budgets_that_do_not_hold() -> None:
    """No budget at all, a race, and one that a restart forgets."""
    with pytest.raises(BudgetExceeded, match="5 more were answered"):
        assert_refuses_over_budget(lambda number: number, 3)
    with pytest.raises(BudgetExceeded, match=r"exclusive.*A refusal is an exception or None"):
        assert_refuses_over_budget(counting(3, safe=False), 3, threads=2, more=2)
    held: list[Any] = [counting(2)]
    with pytest.raises(BudgetExceeded, match="durable"):
        assert_refuses_over_budget(
            lambda number: held[0](number),
            2,
            restart=lambda: held.append(held.pop(0)) or held.insert(0, counting(2)),
        )


def test_a_system_that_always_refuses_is_not_passed() -> None:
    """It would keep any budget."""
    with pytest.raises(AssertionError, match="3 questions, and 0 of them were answered"):
        assert_refuses_over_budget(lambda number: None, 3)
    with pytest.raises(InputError):
        assert_refuses_over_budget(counting(1), 0)


def test_refusals_are_known() -> None:
    """Exceptions, nothing, privfed's own; a number is an answer."""
    assert is_refusal(None) and is_refusal(ValueError())
    assert is_refusal(Refusal("A", "1", Reason.BUDGET))
    assert not is_refusal(0.0) and not is_refusal({"a": 1})
