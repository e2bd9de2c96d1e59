"""Asserts that a system refuses what would exceed its budget."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from privfed.errors import InputError


class BudgetExceeded(AssertionError):
    """A question was answered beyond the budget."""


def assert_refuses_over_budget(
    ask: Callable[[int], object],
    times: int,
    *,
    refused: Callable[[object], bool] | None = None,
    restart: Callable[[], None] | None = None,
    more: int = 5,
    threads: int = 1,
) -> None:
    """Assert that a system answers as often as its budget allows, and never again.

    Args:
        ask: asks the question of some number, each at an equal share of the budget. Ask differently
            each time: other names, other clients, other fields.
        times: how many such questions the budget allows.
        refused: whether a reply is a refusal. Unless given: an exception, ``None``, or a reply of
            privfed without a release.
        restart: closes the system and opens it again; it must still refuse afterwards.
        more: how many questions to ask beyond the budget, before and after the restart.
        threads: from how many threads at once to ask.

    Raises:
        BudgetExceeded: it answered more often; an AssertionError.
        AssertionError: it refused within its budget.
        InputError: an argument makes no sense.
    """
    __tracebackhide__ = True
    if times < 1 or more < 1 or threads < 1:
        raise InputError("write times, more and threads of at least 1")
    judge = refused or is_refusal
    answered = _answered(ask, range(times + more), judge, threads)
    if sum(answered) < times:
        early = answered.index(False)
        raise AssertionError(
            f"only {sum(answered)} questions were answered where the budget allows {times}; question "
            f"{early} was refused. Pass the number that fits, or mend the accounting"
        )
    over, mend = sum(answered) - times, ""
    before = f"{times} questions fit the budget, and"
    if not over and restart is not None:
        restart()
        over = sum(_answered(ask, range(times + more, times + 2 * more), judge, threads))
        before, mend = "the budget was used up, and after a restart", "; make it durable"
    if over:
        raise BudgetExceeded(
            f"{before} {over} more {'was' if over == 1 else 'were'} answered; check and reserve in "
            f"one exclusive step before the data are read{mend}"
        )


def _answered(
    ask: Callable[[int], object], numbers: range, judge: Callable[[object], bool], threads: int
) -> list[bool]:
    def one(number: int) -> bool:
        try:
            return not judge(ask(number))
        except Exception as error:  # noqa: BLE001  # systems refuse by exceptions of all kinds
            return not judge(error)

    if threads == 1:
        return [one(number) for number in numbers]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, numbers))


def is_refusal(reply: object) -> bool:
    """Whether a reply refuses: an exception, nothing, or a reply of privfed without a release."""
    if reply is None or isinstance(reply, Exception):
        return True
    if hasattr(reply, "reason") and not hasattr(reply, "parts"):
        return True
    releases = getattr(reply, "releases", None)
    return releases is not None and not (releases() if callable(releases) else releases)
