"""Runs a list of checks by name; skipped ones need a reason."""

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import isfunction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Subject = TypeVar("Subject")
#: Raises AssertionError if its subject violates the rule in its docstring.
Check = Callable[[Subject], None]
#: Fewest digits that distinguish a raw value from public figures.
DIGITS = 5


def checks_of(module: str) -> tuple[Check[Any], ...]:
    """Return a module's functions of one argument whose names begin with ``check_``, in order."""
    functions = [f for f in vars(sys.modules[module]).values() if isfunction(f)]
    return tuple(
        f
        for f in functions
        if f.__name__.startswith("check_") and f.__module__ == module
        if f.__code__.co_argcount == 1
    )


def run_checks(
    checks: Sequence[Check[Any]], subject: Any, skip: Mapping[str, str] | None = None
) -> list[str]:
    """Run checks on a subject, in order; returns the names of those that ran, without ``check_``.

    Args:
        checks: functions whose names begin with ``check_``.
        subject: the object under test.
        skip: names of checks that do not apply, each with the reason.

    Raises:
        AssertionError: a check failed or raised; the message holds its name, its rule and the error.
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
            told = str(error) or f"(fails: {_failing_line(error)})"
            raise AssertionError(f"{name}: {rule} {kind}{told}") from error
        ran.append(name)
    return ran


def _failing_line(error: Exception) -> str:
    """Return the line of code at which an error was raised, and its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.line}, {Path(last.filename).name}:{last.lineno}"


def distinctive(table: Any) -> Iterator[float]:
    """Yield the cells of a table with at least ``DIGITS`` digits."""
    columns = [column for name in "xy" if (column := getattr(table, name, None)) is not None]
    for value in np.concatenate([np.empty(0), *(column.ravel() for column in columns)]).tolist():
        if sum(digit.isdigit() for digit in f"{value:.12g}".strip("0.")) >= DIGITS:
            yield float(value)


def numbers(data: Any) -> Iterator[float]:
    """Yield every number in JSON-like data, including those in its texts."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from (*numbers(key), *numbers(value))
    elif isinstance(data, list | tuple):
        for value in data:
            yield from numbers(value)
    elif isinstance(data, str):
        for word in data.replace(",", " ").split():
            try:
                yield float(word)
            except ValueError:
                continue
    elif isinstance(data, int | float):
        yield float(data)
