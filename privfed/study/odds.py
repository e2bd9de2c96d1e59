"""Conversion of epsilon to odds of an attack, and of odds to epsilon."""

import re

from privfed.accountants.risk import Tradeoff, largest_epsilon
from privfed.errors import InputError
from privfed.privacy.accountant import written_epsilon
from privfed.questions.exact import readable, shown_delta, shown_down


def odds_of(epsilon: str, delta: str, fpr: float, rate: float) -> tuple[str, ...]:
    """Return a guarantee in odds, in sentences; see :meth:`.Tradeoff.in_odds`."""
    _check(fpr, rate)
    value = float(written_epsilon(epsilon, "epsilon"))
    return Tradeoff.approximate(value, _delta(delta)).in_odds(fpr, rate)


def epsilon_for(odds: str, delta: str, fpr: float) -> str:
    """Return the largest epsilon within odds such as ``at most 5 in 100``, in a sentence."""
    _check(fpr, 0.5)
    small = _delta(delta)
    largest = shown_down(largest_epsilon(_share(odds), small, fpr))
    return (
        f"epsilon {largest} at delta {shown_delta(small)}: an attacker who wrongly accuses {100 * fpr:g} of 100 "
        f"others finds at most {odds.removeprefix('at most ')} of those in the data on average"
    )


def _delta(delta: str) -> float:
    small = float(readable(delta, "delta", zero=True))
    if not small < 1:
        raise InputError('delta must be below 1; write --delta "1e-5"')
    return small


def _check(fpr: float, rate: float) -> None:
    for name, value in (("accused", fpr), ("rate", rate)):
        if not 0 < value < 1:
            raise InputError(f"{name} must lie between 0 and 1, not {value:g}; write --{name} 0.01")


def _share(text: str) -> float:
    match = re.fullmatch(
        r"(?:at most )?\s*(\d+(?:\.\d+)?)\s*(?:in|of)\s*(\d+(?:\.\d+)?)", text.strip()
    )
    part, whole = map(float, match.groups()) if match else (0.0, 0.0)
    if not 0 < part < whole:
        raise InputError(f'the risk {text!r} cannot be read; write --risk "at most 5 in 100"')
    return part / whole
