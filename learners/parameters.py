"""Constraints on learners' parameters, listed by each learner in ``_parameter_constraints``.

A message names the learner, the parameter, what it must be, what was given, and what to write instead.
Booleans are no numbers; NumPy's numbers are.
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
SHOWN = 60  #: A parameter's value in a message is cut to this many characters


class Allowed(ABC):
    """One kind of value that a parameter may have."""

    words: str  #: What it must be, for people
    example: str  #: A value to write instead, as Python and TOML have it

    @abstractmethod
    def holds(self, value: Any) -> bool:
        """Whether a value is of this kind."""


#: By parameter, the kinds of value it may have; none allows None.
Constraints = Mapping[str, Sequence[Allowed | None]]


class Integers(Allowed):
    """An integer from `at_least` to `at_most`, or without an upper end; 2.0 is none."""

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
    """A finite number; its ends belong to it (`at_least`, `at_most`) or not (`above`, `below`)."""

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
    """An exact number, best written as decimal text: a share of a budget, or an epsilon."""

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
    """One of a few names."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.words, self.example = f"one of {', '.join(names)}", f'"{names[0]}"'

    def holds(self, value: Any) -> bool:
        """See the base."""
        return isinstance(value, str) and value in self.names


class Directions(Allowed):
    """By column's name, or for each feature: 1 rises, -1 falls, 0 is free; scikit-learn's ``monotonic_cst``."""

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
    """A list of names, which may be empty; a single text is none."""

    words = "a list of names"
    example = '["..."]'

    def holds(self, value: Any) -> bool:
        """See the base."""
        listed = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        return listed and all(isinstance(name, str) for name in value)


class Learner(Allowed):
    """A learner inside another, of some class."""

    words = "a learner"

    def __init__(self, kind: type) -> None:
        self.kind, self.example = kind, f"{kind.__name__}()"

    def holds(self, value: Any) -> bool:
        """See the base."""
        return isinstance(value, self.kind)


def inherited(*without: str, **defaults: Any) -> Callable[[type[T]], type[T]]:
    """Give a class its parent's constructor with other defaults, or without some parameters."""

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
    """Hold every listed parameter of a learner to its constraints.

    Raises:
        InputError: names the first that is not allowed, and what to write instead.
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
    """A default as one writes it; empty where that would be no example."""
    if isinstance(default, str):
        return f'"{default}"'
    return str(default) if isinstance(default, bool | int | float) else ""
