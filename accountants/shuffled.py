"""Privacy amplification by shuffling of randomized yes-or-no answers.

privfed does not shuffle, and a cohort's gate, which knows each individual's answer, is not a shuffler: these figures
supplement the local ones, for a trusted shuffler that forwards answers without senders (:class:`.TrustedShuffler` in a
policy; ``privfed price`` states both).
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import binom

from privfed.accountants.pld import distribution
from privfed.errors import InputError
from privfed.privacy.pairs import DominatingPair, GaussianPair

TAIL = 1e-15  #: Truncated mass on each side, counted as infinite loss


@dataclass(frozen=True)
class ShuffledResponse(DominatingPair):
    """A dominating pair of one shuffled query; ``size`` is the local epsilon of each answer.

    With q = 1 / (e^size + 1), each other honest answer is a fair coin with probability 2 q, and otherwise the truth
    (Feldman, McMillan and Talwar 2021, for binary randomized response). Disclose which ones are coins: with C ~
    Bin(``others``, 2 q) of them, the number of ones reveals no more about one individual than (A + D, C), where A ~
    Bin(C, 1/2) and D is her own answer: 1 with probability 1 - q or q. All else follows from the others' truths. The
    pair is symmetric: (A + D, C) and (C + 1 - A - D, C).
    """

    #: other individuals who answer honestly and hide their answers from the receiver
    others: int

    def __post_init__(self) -> None:
        if not 0 < self.size < math.inf or self.others < 0:
            raise InputError(
                "a shuffled answer needs a local epsilon above 0, and 0 or more others"
            )

    @cached_property
    def atoms(self) -> tuple[np.ndarray, np.ndarray]:
        """Losses in decreasing order, and their probabilities if the truth is 1."""
        lie = 1 / (math.exp(self.size) + 1)
        low, high = (float(binom.ppf(p, self.others, 2 * lie)) for p in (TAIL, 1 - TAIL))
        coins = np.arange(max(low, 0), high + 1)
        reach = 0.5 * np.sqrt(coins.max()) * 9 + 2
        steps = np.arange(-math.ceil(reach), math.ceil(reach) + 1)
        ones = np.floor(coins / 2)[:, None] + steps
        weight = binom.pmf(coins, self.others, 2 * lie)[:, None]
        without, with_one = (binom.pmf(ones - k, coins[:, None], 0.5) * weight for k in (0, 1))
        if_one = (1 - lie) * with_one + lie * without
        if_none = lie * with_one + (1 - lie) * without
        kept = if_one > 0
        losses = np.log(if_one[kept]) - np.log(if_none[kept])
        order = np.argsort(-losses)
        return losses[order], if_one[kept][order]

    def divergence(self, epsilon: np.ndarray) -> np.ndarray:
        """Return the sum of P - e^epsilon Q over larger losses, plus all truncated mass."""
        losses, masses = self.atoms
        ones = np.append(0, np.cumsum(masses))
        none = np.append(0, np.cumsum(masses * np.exp(-losses)))
        above = np.searchsorted(-losses, -np.asarray(epsilon), side="left")
        return np.asarray(ones[above] - np.exp(epsilon) * none[above] + max(0.0, 1 - ones[-1]))


def shuffled_epsilon(local: float, people: int, questions: int = 1, delta: float = 1e-5) -> float:
    """Return the epsilon at a delta of one individual's answers to queries that are shuffled separately.

    Args:
        local: epsilon of each single yes-or-no answer.
        people: minimum number who answer each query honestly and hide their answers from the receiver.
        questions: maximum number of answers, each in its own shuffle; a server may choose queries from earlier
            answers, as each is dominated by the same pair, fixed before the first (Zhu, Dong and Wang 2022).
        delta: the probability with which it may fail.

    Raises:
        InputError: a local epsilon that is not above 0, no people, or no queries.
    """
    return shuffled_total({local: questions}, people, delta)


def shuffled_total(
    answers: Mapping[float, int],
    people: int,
    delta: float = 1e-5,
    unshuffled: Mapping[DominatingPair, int] | None = None,
) -> float:
    """Return the epsilon of numbers of answers by local epsilon; see :func:`shuffled_epsilon`.

    ``unshuffled`` are dominating pairs of releases that are not shuffled, with their multiplicities.
    """
    if people < 1 or not answers or min(answers.values()) < 1:
        raise InputError(
            "a shuffled question needs somebody who answers, and there is at least one"
        )
    pairs: Counter[DominatingPair] = Counter(dict(unshuffled or {}))
    local, interval = sum(p.size * times for p, times in pairs.items()), 1e-3
    for size, times in answers.items():
        pair = ShuffledResponse(size, people - 1)
        losses, masses = pair.atoms
        rms = math.sqrt(float(np.sum(masses * losses**2)))
        interval = min(interval, max(rms / 30, size / 2**17))
        pairs[pair] += times
        local += size * times
    epsilon = float(distribution(pairs, interval).get_epsilon_for_delta(delta))
    return epsilon if any(isinstance(p, GaussianPair) for p in pairs) else min(epsilon, local)
