"""Individuals' bits as evidence of which rules they hold.

Randomized response flips each bit with probability q: an answer is ln((1 - q) / q) nats of
evidence, which adds up over one person's bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from privfed.attacks.base import question_of
from privfed.attacks.roc import RocCurve
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import TranscriptEntry
from privfed.privacy.laws import BitFlips
from privfed.questions.query import CohortQuery, View

NEVER = 1e-9  #: Flip probability assumed of a bit that was released without noise
IMAGINED = 64  #: Simulations of a secret draw for a book's answers


@dataclass(frozen=True, eq=False)
class BitResponses:
    """The bits that some individuals answered to one query."""

    individuals: np.ndarray  #: indices in the cohort, shape (individuals,)
    bits: np.ndarray  #: shape (templates, individuals)
    flip: float  #: probability that a bit is flipped, in (0, 1/2)
    drawn: bool = False  #: whether each individual marks at most one template, drawn in secret

    @property
    def epsilon(self) -> float:
        """Epsilon of one bit, nats."""
        return math.log((1 - self.flip) / self.flip)

    @cached_property
    def frequency(self) -> np.ndarray:
        """Estimated fraction of individuals whose true bit is set, shape (templates,)."""
        fraction = (self.bits.mean(axis=1) - self.flip) / (1 - 2 * self.flip)
        min_fraction = 1 / (2 * self.bits.shape[1])
        return np.asarray(np.clip(fraction, min_fraction, 1 - min_fraction))

    def ratios(self, books: csr_array) -> np.ndarray:
        """ln P(answers | book) - ln P(answers | nothing held), shape (individuals, books).

        If bits are independent, a book's ratio is the sum of the evidence of the bits that it sets.
        If one template is drawn, it is the log of the mean over draws of e to that of the drawn
        one. ``books``, shape (books, templates), is the probability that a book's holder sets each
        bit.
        """
        if not self.drawn:
            return np.asarray(books @ self._evidence).T
        nothing = 1 - np.asarray(books.sum(axis=1))[:, None]
        return _log(nothing + books @ np.exp(self._evidence)).T

    def own_ratios(self, books: csr_array) -> np.ndarray:
        """The same of each individual's own book, shape (individuals, templates); shape (individuals,)."""
        evidence = self._evidence.T
        if not self.drawn:
            return np.asarray(books.multiply(evidence).sum(axis=1)).ravel()
        nothing = 1 - np.asarray(books.sum(axis=1))
        return _log(nothing + np.asarray(books.multiply(np.exp(evidence)).sum(axis=1)).ravel())

    @property
    def bits_per_rule(self) -> int:
        """Number of bits that adding or removing one rule of a holder can change."""
        return 2 if self.drawn else 1

    @property
    def _evidence(self) -> np.ndarray:
        """ln P(answer | set) - ln P(answer | not set) of each bit."""
        return np.where(self.bits, self.epsilon, -self.epsilon).astype(np.float32)

    def of(self, chosen: np.ndarray) -> BitResponses:
        """Those of some individuals, by a mask."""
        return replace(self, individuals=self.individuals[chosen], bits=self.bits[:, chosen])


@dataclass(frozen=True, eq=False)
class HashedResponses(BitResponses):
    """One bit of each individual: whether the template that it drew is in a public mask.

    ``mask``, shape (templates, individuals), says which templates set the bit.
    """

    mask: np.ndarray = field(default_factory=lambda: np.empty((0, 0), bool))

    def ratios(self, books: csr_array) -> np.ndarray:
        """See :class:`BitResponses`: a holder of nothing has the bit unset."""
        return self._ratio(books @ self.mask.astype(np.float32)).T

    def own_ratios(self, books: csr_array) -> np.ndarray:
        """See :class:`BitResponses`."""
        return self._ratio(np.asarray(books.multiply(self.mask.T).sum(axis=1)).ravel())

    @property
    def bits_per_rule(self) -> int:
        """1, the only bit."""
        return 1

    def of(self, chosen: np.ndarray) -> HashedResponses:
        """Those of some individuals, by a mask."""
        some = self.individuals[chosen], self.bits[:, chosen], self.mask[:, chosen]
        return replace(self, individuals=some[0], bits=some[1], mask=some[2])

    def _ratio(self, probability: np.ndarray) -> np.ndarray:
        """ln P(answer | bit set with this probability) - ln P(answer | bit unset)."""
        bit, odds = self.bits[0], (1 - self.flip) / self.flip
        return _log(1 + np.asarray(probability) * np.where(bit, odds - 1, 1 / odds - 1))


def _log(ratio: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.maximum(ratio, 1e-30)))


def standardise(matched: np.ndarray, strangers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardise each book's score by those of all other books, individual by individual.

    Own books' scores, shape (individuals,), and outsiders' for the same answers, shape (individuals, books),
    NaN for its own; returned in shapes (individuals,) and (outsiders that are not NaN,). The own book is
    among a stranger's others, so that under the null all scores are exchangeable.
    """
    scores = np.column_stack([matched, strangers]).astype(float)
    scores -= np.nanmean(scores, axis=1, keepdims=True)
    others = np.maximum((~np.isnan(scores)).sum(axis=1, keepdims=True) - 1, 1)
    mean = -scores / others
    square = np.nansum(scores**2, axis=1, keepdims=True) - scores**2
    std = np.sqrt(np.maximum(square / others - mean**2, 0.0))
    z_scores = (scores - mean) / np.where(std > 1e-6 * np.abs(scores), std, 1.0)
    return z_scores[:, 0], z_scores[:, 1:][~np.isnan(z_scores[:, 1:])]


@dataclass(frozen=True, eq=False)
class SingleBits:
    """Numbers of holders and others of a template by answer, with the answer's score.

    ``score`` are log posterior odds, by the template's frequency and the answer; ``prior`` without
    the answer; ``holders`` and ``others`` weights of the same shape.
    """

    score: np.ndarray
    prior: np.ndarray
    holders: np.ndarray
    others: np.ndarray

    @classmethod
    def of(cls, answers: BitResponses, true_bits: np.ndarray) -> SingleBits:
        """Count released bits; ``true_bits`` has shape (templates, individuals)."""
        prior = np.log(answers.frequency / (1 - answers.frequency))
        bit_masks = (answers.bits, ~answers.bits)
        score = np.concatenate([prior + answers.epsilon, prior - answers.epsilon])
        holders, others = (
            np.concatenate([(given & side).sum(axis=1) for given in bit_masks]).astype(float)
            for side in (true_bits, ~true_bits)
        )
        return cls(score, np.tile(prior, 2), holders, others)

    @classmethod
    def concatenate(cls, several: Sequence[SingleBits]) -> SingleBits:
        """Concatenate those of several queries."""
        columns = ("score", "prior", "holders", "others")
        return cls(*(np.concatenate([getattr(bits, name) for bits in several]) for name in columns))

    def curve(self, *, answered: bool = True) -> RocCurve:
        """The ROC curve of the answers, or of the templates' frequencies alone."""
        score = np.round(self.score if answered else self.prior, 9)
        levels, index = np.unique(-score, return_inverse=True)
        sides = (self.holders, self.others)
        return RocCurve.of_masses(*(np.bincount(index, side, len(levels)) for side in sides))


@dataclass(frozen=True, eq=False)
class CohortResponses:
    """A readable query to a cohort, its answers, and the most bits that one individual can change."""

    query: CohortQuery
    answers: BitResponses
    max_bits: int

    @property
    def templates(self) -> int:
        """Number of templates that the query is about."""
        hashed = isinstance(self.answers, HashedResponses)
        return len(self.answers.mask if hashed else self.answers.bits)  # type: ignore[attr-defined]

    def books(self, records: Any, chosen: np.ndarray) -> csr_array:
        """Probability that each chosen book's holder sets each bit, shape (chosen, templates)."""
        query = _for_all(self.query, len(records))
        times = IMAGINED if self.answers.drawn else 1
        total = np.zeros((len(chosen), self.templates), np.float32)
        for draw in range(times):
            view = View(records, records.schema, secret=f"imagined {draw}".encode())
            total += np.asarray(query.evaluate(view)["bits"]).T[chosen]
        return csr_array(total / times)


def _for_all(query: CohortQuery, n_individuals: int) -> CohortQuery:
    """The same query to all holders of books, in their order."""
    who: Any = getattr(query, "who", None)
    if who is None:
        return query
    widened: CohortQuery = replace(query, who=type(who).everybody(n_individuals))  # type: ignore[type-var]
    return widened


def read_responses(entry: TranscriptEntry, records: Any) -> CohortResponses | None:
    """Read an entry of a cohort whose records are known; None without readable bits."""
    query, part = question_of(entry), entry.release.parts.get("bits")
    if not isinstance(query, CohortQuery) or part is None or not query.fits(records):
        return None
    bits, flip = _bits(part), _flip(part)
    declared = query.parts(records.schema)["bits"]
    if bits is None or flip is None or bits.shape != declared.shape or not bits.size:
        return None
    known = declared.sensitivity
    max_bits = known.anything.l1 if known and known.anything else len(bits)
    drawn = known is not None and known.add_or_remove.l1 > 1
    individuals, hashed = query.asked(len(records)), query.unhashed()
    if hashed is not None:
        unhashed, mask = hashed
        return CohortResponses(
            unhashed, HashedResponses(individuals, bits, flip, drawn=True, mask=mask), max_bits
        )
    return CohortResponses(query, BitResponses(individuals, bits, flip, drawn), max_bits)


def _bits(part: ReleasedPart) -> np.ndarray | None:
    """A table of bits, none withheld; or None."""
    units = np.asarray(part.units)
    valid = units.dtype == bool or (units.dtype.kind in "iu" and bool(np.isin(units, (0, 1)).all()))
    masked = part.mask is not None and bool(np.any(part.mask))
    return units.astype(bool) if valid and units.ndim == 2 and not masked else None


def _flip(part: ReleasedPart) -> float | None:
    """The flip probability, or None if unknown."""
    if part.noise is None:
        return NEVER
    known = isinstance(part.noise, BitFlips) and part.noise.parameter < 0.5
    return max(part.noise.parameter, NEVER) if known else None
