"""What yes-or-no answers tell whoever gets them shuffled: randomized response amplified by a crowd.

Nothing in privfed shuffles, and a cohort's gate, which knows who answered what, is no shuffler: these
figures stand beside the local ones, for a shuffler that everybody trusts to pass answers on without senders
(:class:`.TrustedShuffler` in a policy; ``privfed price`` states both).
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

TAIL = 1e-15  #: Mass that is left out on each side, and counts as lost


@dataclass(frozen=True)
class ShuffledResponse(DominatingPair):
    """A dominating pair of one shuffled question: ``size`` is the local epsilon of each answer.

    With q = 1 / (e^size + 1), each other honest answer is, with probability 2 q, a fair coin, and otherwise
    the truth (Feldman, McMillan and Talwar 2021, for binary randomized response). Tell which ones are
    coins: with C ~ Bin(``others``, 2 q) of them, the answers' number of ones tells no more of one
    individual than (A + D, C), where A ~ Bin(C, 1/2) and D is her own answer: 1 with probability 1 - q or
    q. All else follows from others' truths. The pair is symmetric: (A + D, C) and (C + 1 - A - D, C).
    """

    #: further individuals who answer honestly and do not tell the receiver their answers
    others: int

    def __post_init__(self) -> None:
        if not 0 < self.size < math.inf or self.others < 0:
            raise InputError(
                "a shuffled answer needs a local epsilon above 0, and 0 or more others"
            )

    @cached_property
    def atoms(self) -> tuple[np.ndarray, np.ndarray]:
        """Losses, falling, and their probabilities if the truth is 1."""
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
        """The sum of P - e^epsilon Q over all that loses more; what is left out counts in full."""
        losses, masses = self.atoms
        ones = np.append(0, np.cumsum(masses))
        none = np.append(0, np.cumsum(masses * np.exp(-losses)))
        above = np.searchsorted(-losses, -np.asarray(epsilon), side="left")
        return np.asarray(ones[above] - np.exp(epsilon) * none[above] + max(0.0, 1 - ones[-1]))


def shuffled_epsilon(local: float, people: int, questions: int = 1, delta: float = 1e-5) -> float:
    """The epsilon at a delta of one individual's answers to so many questions, each shuffled by itself.

    Args:
        local: epsilon of each yes-or-no answer by itself.
        people: who answer each question honestly and keep their own answers from the receiver, at least.
        questions: how many are answered, at most, each under a new shuffling; a server may choose them by
            earlier answers, as each is dominated by the same pair, fixed before the first (Zhu, Dong and
            Wang 2022).
        delta: the probability with which it may fail.

    Raises:
        InputError: a local epsilon that is not above 0, nobody, or no question.
    """
    return shuffled_total({local: questions}, people, delta)


def shuffled_total(
    answers: Mapping[float, int],
    people: int,
    delta: float = 1e-5,
    beside: Mapping[DominatingPair, int] | None = None,
) -> float:
    """The epsilon of answers at several local epsilons, each as often as said; see :func:`shuffled_epsilon`.

    ``beside`` are the dominating pairs of releases that nobody shuffles, with how often each occurs.
    """
    if people < 1 or not answers or min(answers.values()) < 1:
        raise InputError(
            "a shuffled question needs somebody who answers, and there is at least one"
        )
    found: Counter[DominatingPair] = Counter(dict(beside or {}))
    local, interval = sum(each.size * times for each, times in found.items()), 1e-3
    for size, times in answers.items():
        pair = ShuffledResponse(size, people - 1)
        losses, masses = pair.atoms
        spread = math.sqrt(float(np.sum(masses * losses**2)))
        interval = min(interval, max(spread / 30, size / 2**17))
        found[pair] += times
        local += size * times
    epsilon = float(distribution(found, interval).get_epsilon_for_delta(delta))
    return epsilon if any(isinstance(each, GaussianPair) for each in found) else min(epsilon, local)
