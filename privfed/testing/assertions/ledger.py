"""Asserts that all released numbers have been charged."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from privfed.errors import InputError, number_of
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.reading.walk import flatten

SHOWN = 4  #: Most findings in a message
PLANTED = 0.7350918906249998  #: A number that no ledger holds
#: Whether each element of a leaf has an entry.
Accounted = Callable[[Leaf], np.ndarray]


class NotAccountedFor(AssertionError):
    """A released number has no entry in the ledger."""


def assert_ledger(left: object, ledger: Any, *, allow: Sequence[str] = ()) -> None:
    """Assert that every released number has an entry in the ledger.

    Args:
        left: the released objects, in any nesting.
        ledger: a ledger of privfed, or several by owner, a federation or a transcript: every number
            must be among their releases, bit for bit. Or, for other code, the charge of each path: a
            mapping of patterns of paths to finite epsilons, such as ``{"left['sums']*": 0.5}``.
        allow: patterns of paths that need no entry, because they are public.

    Raises:
        NotAccountedFor: numbers without an entry, or with one that states no finite cost; an
            AssertionError.
        AssertionError: no number was released, or a planted number was found to have an entry.
        InputError: the ledger is none of these.
    """
    __tracebackhide__ = True
    accounted = _reader(ledger)
    leaves = [leaf for leaf in flatten(left) if isinstance(leaf.value, np.ndarray)]
    if not leaves:
        raise AssertionError("no number left at all, so that there is nothing to account for")
    if accounted(Leaf("planted", np.array([PLANTED]))).any():
        raise AssertionError(
            "a planted number was taken for one with an entry: a pattern of the ledger fits every "
            "path; name the paths that were charged"
        )
    missing = []
    for leaf in filter(None, (full.less(allow) for full in leaves)):
        entered = accounted(leaf)
        if not entered.all():
            first = leaf.element(int(np.argmin(entered)))
            more = f", and {len(entered) - 1} others" if len(entered) > 1 else ""
            missing.append(f"- {first}{more}: {np.sum(~entered)} without an entry")
    if missing:
        shown = "\n".join(missing[:SHOWN])
        paths = "1 path" if len(missing) == 1 else f"{len(missing)} paths"
        known = f"; entries are patterns of paths: {', '.join(ledger)}" if _patterns(ledger) else ""
        raise NotAccountedFor(
            f"numbers left without an entry in the ledger, at {paths}:\n{shown}\n"
            f"  charge them before the data are read, or leave them out{known}"
        )


def _reader(ledger: Any) -> Accounted:
    if recorded := list(_recorded(ledger)):
        parts = [
            item.value.ravel() for item in flatten(recorded) if isinstance(item.value, np.ndarray)
        ]
        known = np.unique(np.concatenate([np.empty(0), *(part.astype(float) for part in parts)]))
        return lambda leaf: np.isin(np.asarray(leaf.value).ravel().astype(float), known)
    if _patterns(ledger):
        return _by_path(ledger)
    raise InputError(
        "a ledger is one of privfed's (or a federation, a transcript, a mapping of them by owner), or "
        "a mapping of patterns of paths to epsilons, such as {\"left['sums']*\": 0.5}"
    )


def _patterns(ledger: Any) -> bool:
    """Whether a ledger is a mapping of patterns of paths to charges."""
    known = not list(_recorded(ledger)) and isinstance(ledger, Mapping)
    return known and all(isinstance(key, str) for key in ledger)


def _recorded(ledger: Any) -> Iterator[object]:
    """Yield the releases that a ledger of privfed recorded."""
    if isinstance(ledger, Mapping) and any(hasattr(v, "disclosed") for v in ledger.values()):
        for v in ledger.values():
            yield from _recorded(v)
    elif hasattr(ledger, "disclosed"):
        yield [entry for _, entry in ledger.disclosed()]
    elif hasattr(ledger, "transcript"):
        yield ledger.transcript()
    elif hasattr(ledger, "entries") and hasattr(ledger, "clients"):
        yield ledger


def _by_path(ledger: Mapping[str, Any]) -> Accounted:
    for pattern, cost in ledger.items():
        if not isinstance(cost, int | float | Fraction | Decimal) or not 0 <= cost < math.inf:
            raise NotAccountedFor(
                f"the entry for {pattern!r} states no finite cost ({cost!r}); what is unprotected "
                "must not leave, or be left out by allow="
            )

    def accounted(leaf: Leaf) -> np.ndarray:
        remaining = leaf.less(list(ledger))
        if remaining is None or leaf.labels is None:
            return np.full(np.size(leaf.value), remaining is None)
        without = {remaining.element(i) for i in range(np.size(remaining.value))}
        return np.array([leaf.element(i) not in without for i in range(np.size(leaf.value))])

    return accounted


# --- asserts that a system refuses queries beyond its budget


class BudgetExceeded(AssertionError):
    """A query was answered beyond the budget."""


def assert_refuses_over_budget(
    ask: Callable[[int], object],
    times: int,
    *,
    refused: Callable[[object], bool] | None = None,
    restart: Callable[[], None] | None = None,
    more: int = 5,
    threads: int = 1,
) -> None:
    """Assert that a system answers as many queries as its budget allows, and no more.

    Args:
        ask: sends the query with a given number, each at an equal part of the budget. Vary the
            queries: other names, other clients, other fields.
        times: number of such queries that the budget allows.
        refused: whether a reply is a refusal. By default: an exception, ``None``, or a reply of
            privfed without a release.
        restart: closes the system and opens it again; it must still refuse afterwards.
        more: number of queries beyond the budget, before and after the restart.
        threads: number of threads that send queries concurrently.

    Raises:
        BudgetExceeded: it answered more queries; an AssertionError.
        AssertionError: it refused within its budget.
        InputError: an argument is invalid.
    """
    __tracebackhide__ = True
    if times < 1 or more < 1 or threads < 1:
        raise InputError("write times, more and threads of at least 1")
    judge = refused or is_refusal
    answered = _answered(ask, range(times + more), judge, threads)
    if sum(answered) < times:
        early = answered.index(False)
        raise AssertionError(
            f"the budget allows {number_of(times, 'question')}, and {sum(answered)} of them "
            f"{'was' if sum(answered) == 1 else 'were'} answered; question {early} was refused. Pass the number "
            "that fits, or correct the accounting"
        )
    over, remedy = sum(answered) - times, ""
    before = f"the budget allows {number_of(times, 'question')}, and"
    if not over and restart is not None:
        restart()
        over = sum(_answered(ask, range(times + more, times + 2 * more), judge, threads))
        before, remedy = "the budget was used up, and after a restart", "; make it durable"
    if over:
        raise BudgetExceeded(
            f"{before} {over} more {'was' if over == 1 else 'were'} answered; check and reserve in "
            f"one exclusive step before the data are read{remedy}. A refusal is an exception or None, unless refused= "
            "says which reply is one"
        )


def _answered(
    ask: Callable[[int], object], numbers: range, judge: Callable[[object], bool], threads: int
) -> list[bool]:
    def answers(number: int) -> bool:
        try:
            return not judge(ask(number))
        except Exception as error:  # noqa: BLE001  # systems refuse by exceptions of all kinds
            return not judge(error)

    if threads == 1:
        return [answers(number) for number in numbers]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(answers, numbers))


def is_refusal(reply: object) -> bool:
    """Whether a reply is a refusal: an exception, None, or a reply of privfed without a release."""
    if reply is None or isinstance(reply, Exception):
        return True
    if hasattr(reply, "reason") and not hasattr(reply, "parts"):
        return True
    releases = getattr(reply, "releases", None)
    return releases is not None and not (releases() if callable(releases) else releases)
