"""Checks of RuleFit's parameters: one clear error, before anybody is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privfed.errors import InputError
from privfed.learners.rulefit.cutoffs import MOST_CUTS

#: Least and largest value, both allowed.
RANGES: Mapping[str, tuple[float, float]] = {
    "bins": (2, 100_000),
    "cutoffs": (1, MOST_CUTS),
    "trees": (1, 10_000),
    "leaves": (2, 64),
    "min_leaf": (1, 10**9),
    "rounds": (1, 10**6),
    "local_steps": (1, 1_000),
    "reference_rounds": (0, 10**6),
    "penalty": (0, 10**6),
    "subsample": (0, 1),
    "threshold": (0, 100),
    "clip": (2**-10, 2**10),
}
#: Counts, which must be whole.
WHOLE = ("bins", "cutoffs", "trees", "min_leaf", "rounds", "local_steps", "reference_rounds")
#: Above 0 and at most this.
STEPS: Mapping[str, float] = {"shrinkage": 1, "server_step": 10, "client_step": 10}

#: What the paper prints (Section 3.1) where the defaults differ. Its small step needs the 300 rounds;
#: the defaults' step, the largest that cannot diverge, needs a third of them, and half the penalty
#: keeps more terms at convergence. The paper keeps all rules. Its "mean depth 2" is read as the
#: defaults' four leaves.
PAPER: Mapping[str, Any] = {
    "penalty": 0.01,
    "rounds": 300,
    "client_step": 0.01,
    "max_rules": None,
}


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Hold an estimator's parameters to their ranges; NaN lies in none.

    Raises:
        InputError: names the parameter, its range and the value.
    """
    for name, (low, high) in RANGES.items():
        value = parameters[name]
        if not low <= value <= high:
            raise InputError(f"{name} must lie between {low} and {high}, not {value!r}")
    for name in WHOLE:
        if parameters[name] != int(parameters[name]) or isinstance(parameters[name], float):
            raise InputError(f"{name} must be a whole number, not {parameters[name]!r}")
    for name, high in STEPS.items():
        value = parameters[name]
        if value is not None and not 0 < value <= high:
            raise InputError(f"{name} must be above 0 and at most {high}, not {value!r}")
    ridge = parameters["ridge"]
    if ridge is not None and not 1e-9 <= ridge <= 10**6:
        raise InputError(f"ridge must lie between 1e-9 and 10^6 or be None, not {ridge!r}")
    kept = parameters["max_rules"]
    if kept is not None and not kept >= 1:
        raise InputError(f"max_rules must be at least 1 or None, not {kept!r}")
