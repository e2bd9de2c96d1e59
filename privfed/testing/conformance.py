"""Running a kit of checks: every one by its name, the skipped ones with a reason."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import isfunction
from typing import Any, TypeVar

import numpy as np

Subject = TypeVar("Subject")
#: Raises AssertionError where its subject breaks the rule in its docstring.
Check = Callable[[Subject], None]
#: A raw value is told from a public figure where it takes at least so many digits to write.
DIGITS = 5


def checks_of(module: str) -> tuple[Check[Any], ...]:
    """A module's functions of one argument whose names begin with ``check_``, in order."""
    functions = [each for each in vars(sys.modules[module]).values() if isfunction(each)]
    return tuple(
        each
        for each in functions
        if each.__name__.startswith("check_") and each.__module__ == module
        if each.__code__.co_argcount == 1
    )


def run_checks(
    checks: Sequence[Check[Any]], subject: Any, skip: Mapping[str, str] | None = None
) -> list[str]:
    """Run the checks on a subject, in order; give the names of those that ran, without ``check_``.

    Args:
        checks: functions whose names begin with ``check_``.
        subject: what is checked.
        skip: names of checks that do not apply, each with the reason.

    Raises:
        AssertionError: a check failed, or what is checked raised in it; the message holds the check's name,
            its rule and what was found.
        ValueError: ``skip`` names no check, or gives no reason.
    """
    skipped = dict(skip or {})
    names = [check.__name__.removeprefix("check_") for check in checks]
    for name, why in skipped.items():
        if name not in names or not why.strip():
            raise ValueError(f"skip needs a reason for one of {', '.join(names)}; not {name!r}")
    ran = []
    for name, check in zip(names, checks, strict=True):
        if name in skipped:
            continue
        try:
            check(subject)
        except Exception as error:
            rule = (check.__doc__ or "").strip().splitlines()[0]
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(f"{name}: {rule} {kind}{error}".rstrip()) from error
        ran.append(name)
    return ran


def distinctive(table: Any) -> Iterator[float]:
    """The cells of a table that take many digits to write."""
    columns = [column for name in "xy" if (column := getattr(table, name, None)) is not None]
    for value in np.concatenate([np.empty(0), *(column.ravel() for column in columns)]).tolist():
        if sum(digit.isdigit() for digit in f"{value:.12g}".strip("0.")) >= DIGITS:
            yield float(value)


def numbers(plain: Any) -> Iterator[float]:
    """Every number in plain data, and those that its texts hold."""
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            yield from (*numbers(key), *numbers(value))
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from numbers(value)
    elif isinstance(plain, str):
        for word in plain.replace(",", " ").split():
            try:
                yield float(word)
            except ValueError:
                continue
    elif isinstance(plain, int | float):
        yield float(plain)
