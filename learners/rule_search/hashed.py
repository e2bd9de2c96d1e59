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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from privfed.errors import QueryError
from privfed.learners.rule_search.estimate import AnswerError, Counts, flip_of
from privfed.learners.rule_search.queries import (
    Asked,
    RuleQuery,
    check_siblings,
    sampled_templates,
)
from privfed.learners.stl.grammar import Symbols
from privfed.part import Bound, Part, PartType, Sensitivity
from privfed.query import View
from privfed.release import Answer
from privfed.schema import Schema

#: How a frequency oracle's answer is written.
Encoding = Literal["unary", "hashed"]


@dataclass(frozen=True)
class HashedRule(RuleQuery):
    """Each individual draws one of its rules in secret, and gives a public hash of its template.

    Who drew a rule that matches no template, or an empty place, gives the hash of code 0.

    Sensitivity: one bit for each individual, whatever it holds: L1 = 1, over one rule as well as
    over anything.
    """

    who: Asked
    grammar: str
    templates: tuple[Symbols, ...]
    slots: int
    kind: ClassVar[str] = "rule_search.hashed"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``bits``, shape (1, individuals asked)."""
        self.who.check()
        check_siblings(self.templates)
        if self.slots < 1:
            raise QueryError("malformed", "sampling needs at least one slot")
        one = Bound(1, 1)
        shape = (1, self.who.size)
        sensitivity = Sensitivity(one, one, one)
        return {"bits": Part(PartType.BITS, ("hash", "individual"), shape, sensitivity)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The parity of each individual's mask and its template's code."""
        book = self._book(view)
        asked = self.asked(len(book))
        codes = 1 + sampled_templates(book, view, self.templates, self.slots, self.who.seed)
        return {"bits": parity(self.masks() & codes[asked].astype(np.uint32))[None]}

    def masks(self) -> np.ndarray:
        """The public mask of each individual asked, shape (individuals,)."""
        return _masks(self.digest, self.who.size, self.width)

    @property
    def width(self) -> int:
        """Bits of a mask, enough for all codes."""
        return len(self.templates).bit_length()


@lru_cache(maxsize=4)
def _masks(digest: str, size: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(int(digest[:16], 16))
    return rng.integers(0, 2**width, size, dtype=np.uint32)


def parity(numbers: np.ndarray) -> np.ndarray:
    """Whether each number has an odd number of set bits."""
    return np.asarray(np.bitwise_count(numbers) % 2 == 1)


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
