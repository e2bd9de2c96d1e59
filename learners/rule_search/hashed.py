"""A frequency oracle of one bit: hashed encoding of one sampled rule.

Unary encoding sends a bit for each template, hashed encoding one bit in all (Bassily and Smith 2015;
binary local hashing in Wang et al. 2017, Section 4.3). The hash is public: individual i has a random
mask m_i, template t a code, and what it answers is the parity of m_i & code. Parities of different
codes are independent over the masks, so that the sum of agreements is an unbiased count, and all
counts together are one Walsh-Hadamard transform.

Which is better? With epsilon per individual, the variance of a count over N answers is
N coth(eps / 2)^2 for one hashed bit and N / (4 sinh(eps / 4)^2) for unary encoding (two bits may
change, each gets eps / 2). Both are about 4 N / eps^2 for small epsilons; unary encoding is better at
every epsilon, and above 3 by far. What hashing saves is the answer's size.
"""

from __future__ import annotations

import numpy as np

from privfed.exchange.disclosure import Answer
from privfed.learners.rule_search.estimate import AnswerError, Counts, flip_of
from privfed.learners.rule_search.queries import HashedRule


def hashed_counts(answer: Answer) -> Counts:
    """Estimate how many drew each template from hashed answers.

    c_hat(t) = sum over i of (-1)^(parity(m_i & code t) + bit i) / (1 - 2 q), unbiased over masks and
    noise. Its variance is N / (1 - 2 q)^2 less the holders, for any one term squared is
    1 / (1 - 2 q)^2; the deviation leaves the holders out, and is never too small.

    Args:
        answer: the cohort's reply to a :class:`HashedRule`.

    Raises:
        AnswerError: no answer, several, or one with gaps or of another size.
    """
    query = answer.query
    parts = [release.parts["bits"] for release in answer.releases.values()]
    if not isinstance(query, HashedRule) or len(parts) != 1 or parts[0].mask is not None:
        raise AnswerError("hashed answers come from one whole cohort, complete")
    if parts[0].units.shape != (1, query.who.size):
        raise AnswerError(
            f"{parts[0].units.size} bits answer a question to {query.who.size}: somebody answered "
            "twice or not at all; count each individual once"
        )
    flip = flip_of(parts[0])
    signs = 1.0 - 2.0 * parts[0].units[0]
    sums = np.bincount(query.masks(), weights=signs, minlength=2**query.width)
    estimate = _transformed(sums)[1 : len(query.templates) + 1] / (1 - 2 * flip)
    deviation = float(np.sqrt(query.who.size) / (1 - 2 * flip))
    return Counts(estimate, deviation, query.who.size)


def _transformed(sums: np.ndarray) -> np.ndarray:
    """The Walsh-Hadamard transform: at t, the sum over m of (-1)^parity(m & t) sums[m]."""
    width, values = len(sums).bit_length() - 1, sums.copy()
    for place in range(width):
        pairs = values.reshape(-1, 2, 2**place)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
    return values
