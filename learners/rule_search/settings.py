"""What the parameters of a rule search may be: one clear line for each that makes no sense."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from privfed.errors import InputError


@dataclass(frozen=True)
class Allowed:
    """What one parameter may be.

    Args:
        words: the same for people, after "must be".
        holds: whether a number is allowed.
        example: a value to write instead.
        whole: whether only whole numbers are.
        absent: whether none is allowed besides.
    """

    words: str
    holds: Callable[[Any], bool]
    example: str
    whole: bool = False
    absent: bool = False

    def check(self, name: str, value: object) -> None:
        """Refuse another value; raises InputError."""
        if value is None and self.absent:
            return
        number = isinstance(value, Integral if self.whole else Real) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and self.holds(value)):  # type: ignore[arg-type]
            raise InputError(
                f"RuleSearch: {name} must be {self.words}, not {value!r}; "
                f"write for example {name} = {self.example}"
            )


def _at_least(least: int, example: int, absent: bool = False) -> Allowed:
    words = f"a whole number of at least {least}"
    return Allowed(words, lambda value: bool(value >= least), str(example), True, absent)


ALLOWED: Mapping[str, Allowed] = {
    "threshold": Allowed("above 0 and at most 1", lambda value: 0 < value <= 1, "0.1"),
    "error": Allowed("above 0 and below 0.5", lambda value: 0 < value < 0.5, "0.05"),
    "margin": Allowed("above 0", lambda value: value > 0, "1.0"),
    "share": Allowed("from 0 to 1", lambda value: 0 <= value <= 1, "0.25"),
    "percent": Allowed("from 0 to 100", lambda value: 0 <= value <= 100, "50"),
    "expected": _at_least(0, 400),
    "questions": _at_least(1, 1000),
    "levels": _at_least(1, 5),
    "most_templates": _at_least(1, 5000),
    "slots": _at_least(1, 128),
    "most_operators": _at_least(1, 4),
    "horizon": _at_least(1, 10),
    "people": _at_least(1, 400, absent=True),
    "most_questions": _at_least(1, 1000, absent=True),
    "seed": _at_least(0, 1),
}


def check_numbers(values: Mapping[str, object]) -> None:
    """Hold every number to what it may be.

    Args:
        values: by parameter; those that :data:`ALLOWED` does not name are left alone.

    Raises:
        InputError: the first that is not allowed, with its name and what to write.
    """
    for name, allowed in ALLOWED.items():
        allowed.check(name, values[name])


def check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """Hold a name to the known ones; raises InputError, which lists them."""
    if value not in known:
        raise InputError(
            f"RuleSearch: {name} must be one of {', '.join(known)}, not {value!r}; "
            f'write for example {name} = "{known[0]}"'
        )
