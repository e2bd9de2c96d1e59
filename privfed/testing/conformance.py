"""Running a kit of checks: every one by its name, the skipped ones with a reason."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar

Subject = TypeVar("Subject")
#: Raises AssertionError where its subject breaks the rule in its docstring.
Check = Callable[[Subject], None]


def checks_of(module: str) -> tuple[Check[Any], ...]:
    """A module's functions of one argument whose names begin with ``check_``, in order."""
    return tuple(
        each
        for name, each in vars(sys.modules[module]).items()
        if name.startswith("check_") and isinstance(each, FunctionType)
        if each.__code__.co_argcount == 1 and each.__module__ == module
    )


def run_checks(
    checks: Sequence[Check[Any]], subject: Any, skip: Mapping[str, str] | None = None
) -> list[str]:
    """Run the checks on a subject, in order.

    Args:
        checks: functions whose names begin with ``check_``.
        subject: what is checked.
        skip: names of checks that do not apply (without ``check_``), each with the reason.

    Returns:
        The names of the checks that ran.

    Raises:
        AssertionError: a check failed; the message holds its name, its rule and what was found.
        ValueError: ``skip`` names no check, or gives no reason.
    """
    skipped = dict(skip or {})
    names = [check.__name__.removeprefix("check_") for check in checks]
    for name, why in skipped.items():
        if name not in names or not why.strip():
            raise ValueError(f"skip needs a reason for one of {', '.join(names)}; not {name!r}")
    ran = []
    for name, check in zip(names, checks, strict=True):
        if name not in skipped:
            _run(name, check, subject)
            ran.append(name)
    return ran


def _run(name: str, check: Check[Any], subject: Any) -> None:
    try:
        check(subject)
    except AssertionError as error:
        rule = (check.__doc__ or "").strip().splitlines()[0]
        raise AssertionError(f"{name}: {rule} {error}".rstrip()) from error
