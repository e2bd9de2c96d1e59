"""Constraints on learners' parameters, listed by each learner in ``_parameter_constraints``.

An error message has the learner, the parameter, the allowed kinds, the given value, and an example. NumPy's
numbers count as numbers, booleans do not.
"""

from __future__ import annotations

import math
import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from reprlib import Repr
from typing import Any, TypeVar

import numpy as np

from privfed.errors import InputError
from privfed.questions.exact import Number, exact

T = TypeVar("T")
SHOWN = 60  #: Maximum characters of a parameter's value in a message


class Allowed(ABC):
    """An allowed kind of values of a parameter."""

    words: str  #: Description of the kind, for messages
    example: str  #: An allowed value, as in Python and TOML

    @abstractmethod
    def holds(self, value: Any) -> bool:
        """Whether a value is of this kind."""


#: The allowed kinds of values by parameter; the item None allows None.
Constraints = Mapping[str, Sequence[Allowed | None]]


class Integers(Allowed):
    """An integer from `at_least` to `at_most`, or without an upper limit; 2.0 is not allowed."""

    def __init__(self, at_least: int, at_most: int | None = None) -> None:
        self.at_least, self.at_most = at_least, at_most
        ends = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        self.words, self.example = f"a whole number {ends}", str(at_least)

    def holds(self, value: Any) -> bool:
        """See the base."""
        number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return number and self.at_least <= value and (self.at_most is None or value <= self.at_most)


_INSIDE = {
    "of at least": operator.ge,
    "above": operator.gt,
    "at most": operator.le,
    "below": operator.lt,
}


class Reals(Allowed):
    """A finite number; limits are inclusive (`at_least`, `at_most`) or exclusive (`above`, `below`)."""

    def __init__(
        self,
        *,
        at_least: float | None = None,
        above: float | None = None,
        at_most: float | None = None,
        below: float | None = None,
    ) -> None:
        limits = zip(_INSIDE, (at_least, above, at_most, below), strict=True)
        self._ends = {word: end for word, end in limits if end is not None}
        text = " and ".join(f"{word} {end:g}" for word, end in self._ends.items())
        if at_least is not None and at_most is not None:
            text = f"from {at_least:g} to {at_most:g}"
        self.words = f"a number {text}".rstrip()
        high = at_most if at_most is not None else below
        low = at_least if at_least is not None else above
        low = low if low is not None else 0.0 if high is None else high - 2
        self.example = f"{(low + (low + 2 if high is None else high)) / 2:g}"

    def holds(self, value: Any) -> bool:
        """See the base."""
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return number and math.isfinite(value) and self._inside(value)

    def _inside(self, value: Any) -> bool:
        return all(_INSIDE[word](value, end) for word, end in self._ends.items())


class Exact(Reals):
    """An exact number, preferably as decimal text: a fraction of a budget, or an epsilon."""

    def __init__(self, **ends: float) -> None:
        super().__init__(**ends)
        self.words, self.example = f"an exact {self.words[2:]}", f'"{self.example}"'

    def holds(self, value: Any) -> bool:
        """See the base."""
        if isinstance(value, bool):
            return False
        number = int(value) if isinstance(value, numbers.Integral) else value
        try:
            return isinstance(number, Number) and self._inside(exact(number, zero=True))
        except InputError:
            return False


class StrOptions(Allowed):
    """One of several names."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.words, self.example = f"one of {', '.join(names)}", f'"{names[0]}"'

    def holds(self, value: Any) -> bool:
        """See the base."""
        return isinstance(value, str) and value in self.names


class Directions(Allowed):
    """Signs by column name, or one per feature: 1 rises, -1 falls, 0 is free; scikit-learn's ``monotonic_cst``."""

    words = "by column 1 (rises), -1 (falls) or 0"
    example = '{"age": 1}'

    def holds(self, value: Any) -> bool:
        """See the base."""
        signs = value.values() if isinstance(value, Mapping) else value
        if isinstance(signs, str) or not isinstance(signs, Iterable):
            return False
        return all(isinstance(sign, numbers.Integral) and int(sign) in (-1, 0, 1) for sign in signs)


class Boolean(Allowed):
    """True or false."""

    words = "true or false"
    example = "True"

    def holds(self, value: Any) -> bool:
        """See the base."""
        return isinstance(value, bool | np.bool_)


class Names(Allowed):
    """A sequence of names, possibly empty; a single string is not allowed."""

    words = "a list of names"
    example = '["..."]'

    def holds(self, value: Any) -> bool:
        """See the base."""
        listed = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        return listed and all(isinstance(name, str) for name in value)


class Learner(Allowed):
    """An instance of a learner class, as a parameter of another learner."""

    words = "a learner"

    def __init__(self, kind: type) -> None:
        self.kind, self.example = kind, f"{kind.__name__}()"

    def holds(self, value: Any) -> bool:
        """See the base."""
        return isinstance(value, self.kind)


def inherited(*without: str, **defaults: Any) -> Callable[[type[T]], type[T]]:
    """Return a decorator that gives a class its parent's constructor with other defaults or fewer parameters."""

    def changed(cls: type[T]) -> type[T]:
        parent: Callable[..., None] = cls.__init__
        old = signature(parent)
        kept = [p for name, p in old.parameters.items() if name not in without]
        new = old.replace(
            parameters=[p.replace(default=defaults.get(p.name, p.default)) for p in kept]
        )

        @wraps(parent)
        def init(*args: Any, **kwargs: Any) -> None:
            bound = new.bind(*args, **kwargs)
            bound.apply_defaults()
            parent(*bound.args, **bound.kwargs)

        init.__signature__ = new  # type: ignore[attr-defined]
        cls.__init__ = init  # type: ignore[method-assign]
        return cls

    return changed


def check_values(
    learner: str, values: Mapping[str, object], constraints: Constraints, default: Mapping[str, Any]
) -> None:
    """Check every listed parameter of a learner against its constraints.

    Raises:
        InputError: a value is not allowed; names the first such parameter, with an example.
    """
    for name, allowed in constraints.items():
        value = values[name]
        if (value is None and None in allowed) or any(a and a.holds(value) for a in allowed):
            continue
        words = " or ".join("None" if kind is None else kind.words for kind in allowed)
        example = _literal(default[name]) or next(kind.example for kind in allowed if kind)
        short = Repr()
        short.maxstring = short.maxother = SHOWN
        shown = " ".join(short.repr(value).split())
        raise InputError(
            f"{learner}: {name} must be {words}, not {shown} ({type(value).__name__}); "
            f"write for example {name} = {example}"
        )


def _literal(default: Any) -> str:
    """Return a default value as Python text; empty if it is no example."""
    if isinstance(default, str):
        return f'"{default}"'
    return str(default) if isinstance(default, bool | int | float) else ""
