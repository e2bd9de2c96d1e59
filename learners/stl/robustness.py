"""Robustness over discrete time (Donze and Maler 2010): positive where a formula holds.

Beyond a trajectory's end there is nothing: an empty ``F`` or ``U`` gives minus infinity, an empty
``G`` plus infinity.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from privfed.errors import InputError
from privfed.learners.stl.formula import Atom, Formula, Hole, Not, RuleError, Temporal, Until

_INCOMPLETE = "a template has no robustness; give a complete rule"


def check_signals(signals: np.ndarray, variables: Sequence[str]) -> np.ndarray:
    """Hold trajectories to the shape (samples, steps, variables) and finite numbers (InputError)."""
    array = np.asarray(signals, dtype=float)
    if array.ndim != 3 or array.shape[1] < 1 or array.shape[2] != len(variables):
        raise InputError(
            f"trajectories need the shape (samples, steps, {len(variables)}), one column for each "
            f"of {', '.join(variables)}"
        )
    if not np.isfinite(array).all():
        raise InputError("trajectories hold a value that is no finite number; fill it in first")
    return array


def robustness(formula: Formula, signals: np.ndarray, variables: Sequence[str]) -> np.ndarray:
    """Robustness of a complete formula at the first step, shape (samples,).

    ``variables`` names the last axis of the trajectories, shape (samples, steps, variables).
    Infinite where an interval lies beyond the end.
    """
    columns = {name: index for index, name in enumerate(variables)}
    return np.asarray(trace(formula, check_signals(signals, variables), columns)[:, 0])


def trace(formula: Formula, signals: np.ndarray, columns: Mapping[str, int]) -> np.ndarray:
    """Robustness at every step, shape (samples, steps); ``columns`` by the name of a variable."""
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


def _temporal(formula: Temporal, inside: np.ndarray) -> np.ndarray:
    if formula.interval is None:
        raise RuleError(_INCOMPLETE)
    eventually = formula.operator == "F"
    fill = -np.inf if eventually else np.inf
    best = np.full(inside.shape, fill)
    first, last = formula.interval
    for ahead in range(first, min(last, inside.shape[1] - 1) + 1):
        shifted = _ahead(inside, ahead, fill)
        best = np.maximum(best, shifted) if eventually else np.minimum(best, shifted)
    return best


def _until(formula: Until, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """max over k in [a, b] of min(right at t + k, min of left over t .. t + k - 1)."""
    if formula.interval is None:
        raise RuleError(_INCOMPLETE)
    first, last = formula.interval
    best = np.full(left.shape, -np.inf)
    kept = np.full(left.shape, np.inf)
    for ahead in range(min(last, left.shape[1] - 1) + 1):
        if ahead >= first:
            best = np.maximum(best, np.minimum(_ahead(right, ahead, -np.inf), kept))
        kept = np.minimum(kept, _ahead(left, ahead, -np.inf))
    return best


def _ahead(values: np.ndarray, steps: int, fill: float) -> np.ndarray:
    shifted = np.full(values.shape, fill)
    if steps < values.shape[1]:
        shifted[:, : values.shape[1] - steps] = values[:, steps:]
    return shifted
