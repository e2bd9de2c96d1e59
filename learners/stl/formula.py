"""Formulas of Signal Temporal Logic over discrete time, as immutable trees.

Grammar (Maler and Nickovic 2004; DP-RuL Section 2.1):
``phi := x <= c | x >= c | x = c | ! phi | phi & phi | phi | phi | phi -> phi | F[a,b] phi |
G[a,b] phi | phi U[a,b] phi``. Intervals count steps. A template's thresholds and intervals may be
open (``None``, written ``?``), and so may whole subformulas (:class:`Hole`), variables and relations
(:data:`ANY`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privfed.errors import InputError

RELATIONS = ("<=", ">=", "=")
ANY = "?"  #: An open variable or relation
CONNECTIVES = ("&", "|", "->")
Interval = tuple[int, int]  #: Steps from now, including both ends
Path = tuple[int, ...]  #: Path to a part of a formula: child indices from the top


class RuleError(InputError):
    """A rule or template outside the grammar; the message has none of its parameters."""


@dataclass(frozen=True)
class Hole:
    """An open part of a template."""


@dataclass(frozen=True)
class Atom:
    """A comparison of one variable with a threshold."""

    variable: str
    relation: str
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.relation not in (*RELATIONS, ANY):
            raise RuleError(f"a relation must be one of {' '.join(RELATIONS)}")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise RuleError("a threshold must be a finite number")


@dataclass(frozen=True)
class Not:
    """Negation."""

    child: Formula


@dataclass(frozen=True)
class Connective:
    """Conjunction, disjunction or implication."""

    operator: str
    left: Formula
    right: Formula

    def __post_init__(self) -> None:
        if self.operator not in CONNECTIVES:
            raise RuleError(f"a connective must be one of {' '.join(CONNECTIVES)}")


@dataclass(frozen=True)
class Temporal:
    """Eventually (``F``) or always (``G``) within an interval."""

    operator: str
    interval: Interval | None
    child: Formula

    def __post_init__(self) -> None:
        if self.operator not in ("F", "G"):
            raise RuleError("a temporal operator must be F or G")
        _check_interval(self.interval)


@dataclass(frozen=True)
class Until:
    """The right part comes true within the interval, and the left part holds until then."""

    interval: Interval | None
    left: Formula
    right: Formula

    def __post_init__(self) -> None:
        _check_interval(self.interval)


Formula = Hole | Atom | Not | Connective | Temporal | Until


def _check_interval(interval: Interval | None) -> None:
    if interval is not None and not 0 <= interval[0] <= interval[1]:
        raise RuleError("an interval needs whole steps [first,last] with 0 <= first <= last")


def children(formula: Formula) -> tuple[Formula, ...]:
    """Return the direct subformulas, left to right."""
    if isinstance(formula, Not | Temporal):
        return (formula.child,)
    if isinstance(formula, Connective | Until):
        return formula.left, formula.right
    return ()


def rebuilt(formula: Formula, parts: Iterable[Formula]) -> Formula:
    """Return the same formula over other subformulas."""
    if isinstance(formula, Not | Temporal):
        (child,) = parts
        return replace(formula, child=child)
    if isinstance(formula, Connective | Until):
        left, right = parts
        return replace(formula, left=left, right=right)
    return formula


def paths(formula: Formula) -> list[Path]:
    """Return the paths to all parts of a formula, including itself, in preorder."""
    numbered = enumerate(children(formula))
    return [(), *((index, *path) for index, child in numbered for path in paths(child))]


def at(formula: Formula, path: Path) -> Formula:
    """Return the part of a formula at a path."""
    for index in path:
        formula = children(formula)[index]
    return formula


def put(formula: Formula, path: Path, part: Formula) -> Formula:
    """Return the formula with another part at a path."""
    if not path:
        return part
    parts = list(children(formula))
    parts[path[0]] = put(parts[path[0]], path[1:], part)
    return rebuilt(formula, parts)


def operators(formula: Formula) -> int:
    """Return the number of connectives, negations and temporal operators."""
    count = 0 if isinstance(formula, Atom | Hole) else 1
    return count + sum(operators(child) for child in children(formula))


def significant(value: float, digits: int = 6) -> float:
    """Round a number to significant digits, for display."""
    return float(f"{value:.{digits}g}")


def rounded(formula: Formula, digits: int = 6) -> Formula:
    """Return the same formula, with thresholds rounded to significant digits."""
    if isinstance(formula, Atom) and formula.threshold is not None:
        return replace(formula, threshold=significant(formula.threshold, digits))
    return rebuilt(formula, (rounded(child, digits) for child in children(formula)))


def rounded_to(formula: Formula, places: Mapping[str, int]) -> Formula:
    """Return the same formula, with thresholds rounded to decimals by their variable."""
    if isinstance(formula, Atom) and formula.threshold is not None:
        return replace(formula, threshold=round(formula.threshold, places[formula.variable]))
    return rebuilt(formula, (rounded_to(child, places) for child in children(formula)))


def show(formula: Formula) -> str:
    """Format a formula as text that :func:`privfed.learners.stl.parser.parse` reads."""
    if isinstance(formula, Hole):
        return "?"
    if isinstance(formula, Atom):
        threshold = "?" if formula.threshold is None else repr(float(formula.threshold))
        return f"{formula.variable} {formula.relation} {threshold}"
    if isinstance(formula, Not):
        return f"!({show(formula.child)})"
    if isinstance(formula, Temporal):
        return f"{formula.operator}{_steps(formula.interval)}({show(formula.child)})"
    middle = f"U{_steps(formula.interval)}" if isinstance(formula, Until) else formula.operator
    return f"({show(formula.left)}) {middle} ({show(formula.right)})"


def _steps(interval: Interval | None) -> str:
    return "[?]" if interval is None else f"[{interval[0]},{interval[1]}]"


# --- robustness over discrete time (Donze and Maler 2010): positive if a formula holds Beyond a
# trajectory's end there are no steps: an empty ``F`` or ``U`` gives minus infinity, an empty ``G``
# plus infinity.

_INCOMPLETE = "a template has no robustness; give a complete rule"


def check_signals(signals: np.ndarray, variables: Sequence[str]) -> np.ndarray:
    """Check trajectories for the shape (samples, steps, variables) and finite numbers (else InputError)."""
    array = np.asarray(signals, dtype=float)
    if array.ndim != 3 or array.shape[1] < 1 or array.shape[2] != len(variables):
        raise InputError(
            f"trajectories need the shape (samples, steps, {len(variables)}), one column for each "
            f"of {', '.join(variables)}"
        )
    if not np.isfinite(array).all():
        raise InputError("trajectories hold a value that is not a finite number; fill it in first")
    return array


def robustness(formula: Formula, signals: np.ndarray, variables: Sequence[str]) -> np.ndarray:
    """Return the robustness of a complete formula at the first step, shape (samples,).

    ``variables`` names the last axis of the trajectories, shape (samples, steps, variables). It is
    infinite if an interval is beyond the end.
    """
    columns = {name: index for index, name in enumerate(variables)}
    return np.asarray(trace(formula, check_signals(signals, variables), columns)[:, 0])


def trace(formula: Formula, signals: np.ndarray, columns: Mapping[str, int]) -> np.ndarray:
    """Return robustness at every step, shape (samples, steps); ``columns`` by the name of a variable."""
    if isinstance(formula, Atom):
        return _atom(formula, signals, columns)
    if isinstance(formula, Not):
        return -trace(formula.child, signals, columns)
    if isinstance(formula, Temporal):
        return _temporal(formula, trace(formula.child, signals, columns))
    if isinstance(formula, Hole):
        raise RuleError(_INCOMPLETE)
    left, right = (trace(part, signals, columns) for part in (formula.left, formula.right))
    if isinstance(formula, Until):
        return _until(formula, left, right)
    if formula.operator == "&":
        return np.asarray(np.minimum(left, right))
    return np.asarray(np.maximum(-left if formula.operator == "->" else left, right))


def _atom(atom: Atom, signals: np.ndarray, columns: Mapping[str, int]) -> np.ndarray:
    if atom.variable not in columns:
        raise RuleError(f"no variable {atom.variable!r} in the trajectories")
    if atom.threshold is None:
        raise RuleError(_INCOMPLETE)
    above = signals[:, :, columns[atom.variable]] - atom.threshold
    if atom.relation == "=":
        return -np.abs(above)
    return above if atom.relation == ">=" else -above


def _temporal(formula: Temporal, values: np.ndarray) -> np.ndarray:
    if formula.interval is None:
        raise RuleError(_INCOMPLETE)
    extreme, fill = (np.maximum, -np.inf) if formula.operator == "F" else (np.minimum, np.inf)
    best, steps = np.full(values.shape, fill), values.shape[1]
    first, last = formula.interval
    for ahead in range(first, min(last, steps - 1) + 1):
        window = best[:, : steps - ahead]
        extreme(window, values[:, ahead:], out=window)
    return best


def _until(formula: Until, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return max over k in [a, b] of min(right at t + k, min of left over t .. t + k - 1)."""
    if formula.interval is None:
        raise RuleError(_INCOMPLETE)
    first, last = formula.interval
    best, left_min = np.full(left.shape, -np.inf), np.full(left.shape, np.inf)
    steps = left.shape[1]
    for ahead in range(min(last, steps - 1) + 1):
        window, window_min = best[:, : steps - ahead], left_min[:, : steps - ahead]
        if ahead >= first:
            np.maximum(window, np.minimum(right[:, ahead:], window_min), out=window)
        np.minimum(window_min, left[:, ahead:], out=window_min)
        left_min[:, steps - ahead :] = -np.inf
    return best
