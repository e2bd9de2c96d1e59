"""Exact confidence limits for counts behind randomized response.

If c of N individuals hold a match and each answer is flipped with probability q, then
Y ~ Bin(c, 1 - q) + Bin(N - c, q) yes-answers come back. Y grows stochastically with c, so that two
one-sided tests at half the error each can be inverted (Clopper and Pearson 1934). The interval
covers at least at its level for every c, also for few individuals and large epsilons.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from privfed.errors import InputError

#: Standard deviations of the first binomial beyond which its terms are left out.
_DEVIATIONS = 12


def at_most(yes: int, holders: int, people: int, flip: float) -> float:
    """P(Y <= yes) if ``holders`` of the people hold a match, exactly."""
    truth = 1 - flip
    reach = _DEVIATIONS * math.sqrt(holders * truth * flip) + _DEVIATIONS
    first = max(0, math.floor(holders * truth - reach))
    last = min(holders, math.ceil(holders * truth + reach))
    yes_of_holders = np.arange(first, last + 1)
    others = _cumulative(yes - yes_of_holders, people - holders, flip)
    return float(np.clip(_mass(yes_of_holders, holders, truth) @ others, 0.0, 1.0))


def exact_limits(yes: int, people: int, flip: float, level: float = 0.95) -> tuple[int, int]:
    """Confidence limits for the number of holders.

    Args:
        yes: yes-answers.
        people: answers.
        flip: probability that an answer is the opposite of the truth, in [0, 1/2).
        level: least probability that the limits hold the truth.

    Returns:
        (low, high), each from 0 to ``people``.

    Raises:
        InputError: counts or probabilities that make no sense.
    """
    if not (0 <= yes <= people and people > 0 and 0 <= flip < 0.5 and 0 < level < 1):
        raise InputError("an interval needs 0 <= yes <= people, flip in [0, 1/2), level in (0, 1)")
    side = (1 - level) / 2

    def likely_above(holders: int) -> bool:
        return 1 - at_most(yes - 1, holders, people, flip) > side

    def unlikely_below(holders: int) -> bool:
        return at_most(yes, holders, people, flip) <= side

    return _first(likely_above, people), max(0, _first(unlikely_below, people + 1) - 1)


def _first(holds: Callable[[int], bool], end: int) -> int:
    """The least number below ``end`` from which on a monotone statement holds, or ``end``."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _cumulative(most: np.ndarray, trials: int, chance: float) -> np.ndarray:
    """P(Bin(trials, chance) <= most)."""
    inside = special.bdtr(np.clip(most, 0, trials), trials, chance)
    return np.where(most < 0, 0.0, np.where(most >= trials, 1.0, inside))


def _mass(successes: np.ndarray, trials: int, chance: float) -> np.ndarray:
    """P(Bin(trials, chance) = successes)."""
    ways = special.gammaln(trials + 1) - special.gammaln(successes + 1)
    ways -= special.gammaln(trials - successes + 1)
    powers = special.xlogy(successes, chance) + special.xlog1py(trials - successes, -chance)
    return np.asarray(np.exp(ways + powers))
