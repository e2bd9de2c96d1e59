"""Bits that individuals answered, as evidence of what somebody holds.

Randomized response flips each bit with probability q: an answer is ln((1 - q) / q) nats of
evidence, which adds up over the bits that one person answered.
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

NEVER = 1e-9  #: A bit that left without noise counts as one that is flipped this rarely
IMAGINED = 64  #: How often a secret draw is imagined for what a book would answer


@dataclass(frozen=True, eq=False)
class BitResponses:
    """The bits that some individuals gave to one query."""

    asked: np.ndarray  #: positions of the individuals in the cohort, shape (asked,)
    bits: np.ndarray  #: shape (templates, asked)
    flip: float  #: probability that a bit is flipped, in (0, 1/2)
    drawn: bool = False  #: whether each individual marks at most one template, drawn in secret

    @property
    def epsilon(self) -> float:
        """Of one bit, nats."""
        return math.log((1 - self.flip) / self.flip)

    @cached_property
    def typical(self) -> np.ndarray:
        """Estimated fraction of individuals whose true bit is set, shape (templates,)."""
        share = (self.bits.mean(axis=1) - self.flip) / (1 - 2 * self.flip)
        least = 1 / (2 * self.bits.shape[1])
        return np.asarray(np.clip(share, least, 1 - least))

    def ratios(self, held: csr_array) -> np.ndarray:
        """ln P(answers | book) - ln P(answers | nothing held), shape (asked, books).

        If bits are independent, a book's ratio is the sum of the evidence of the bits that it sets.
        If one template is drawn, it is the log of the mean over draws of e to that of the drawn
        one. ``held``, shape (books, templates), is the probability that a book's holder sets each
        bit.
        """
        if not self.drawn:
            return np.asarray(held @ self._evidence).T
        nothing = 1 - np.asarray(held.sum(axis=1))[:, None]
        return _log(nothing + held @ np.exp(self._evidence)).T

    def own_ratios(self, held: csr_array) -> np.ndarray:
        """The same of each individual's own book, of shape (asked, templates); shape (asked,)."""
        evidence = self._evidence.T
        if not self.drawn:
            return np.asarray(held.multiply(evidence).sum(axis=1)).ravel()
        nothing = 1 - np.asarray(held.sum(axis=1))
        return _log(nothing + np.asarray(held.multiply(np.exp(evidence)).sum(axis=1)).ravel())

    @property
    def turned(self) -> int:
        """Number of bits that one rule more or less of its holder can turn."""
        return 2 if self.drawn else 1

    @property
    def _evidence(self) -> np.ndarray:
        """ln P(answer | set) - ln P(answer | not set) of each bit."""
        return np.where(self.bits, self.epsilon, -self.epsilon).astype(np.float32)

    def of(self, chosen: np.ndarray) -> BitResponses:
        """Those of some individuals, by a mask over those asked."""
        return replace(self, asked=self.asked[chosen], bits=self.bits[:, chosen])


@dataclass(frozen=True, eq=False)
class HashedResponses(BitResponses):
    """One bit of each individual: whether the template that it drew is in a public mask.

    ``mask``, shape (templates, asked), says which templates set the bit.
    """

    mask: np.ndarray = field(default_factory=lambda: np.empty((0, 0), bool))

    def ratios(self, held: csr_array) -> np.ndarray:
        """See :class:`BitResponses`: who holds nothing has the bit unset."""
        return self._ratio(held @ self.mask.astype(np.float32)).T

    def own_ratios(self, held: csr_array) -> np.ndarray:
        """See :class:`BitResponses`."""
        return self._ratio(np.asarray(held.multiply(self.mask.T).sum(axis=1)).ravel())

    @property
    def turned(self) -> int:
        """The one bit that there is."""
        return 1

    def of(self, chosen: np.ndarray) -> HashedResponses:
        """Those of some individuals, by a mask over those asked."""
        some = self.asked[chosen], self.bits[:, chosen], self.mask[:, chosen]
        return replace(self, asked=some[0], bits=some[1], mask=some[2])

    def _ratio(self, chance: np.ndarray) -> np.ndarray:
        """ln P(answer) if the bit is set with some probability, less if it is unset."""
        told, odds = self.bits[0], (1 - self.flip) / self.flip
        return _log(1 + np.asarray(chance) * np.where(told, odds - 1, 1 / odds - 1))


def _log(ratio: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.maximum(ratio, 1e-30)))


def standardised(own: np.ndarray, strangers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of books standardised by those of all others for the same answers, for each individual by itself.

    Of each individual's own book, shape (people,), and of outsiders' books for the same answers, shape
    (people, books), NaN for its own; as shapes (people,) and (outsiders that are not NaN,). The own book is
    among a stranger's others, so that by chance it stands out no more than a stranger's does.
    """
    whole = np.column_stack([own, strangers]).astype(float)
    whole -= np.nanmean(whole, axis=1, keepdims=True)
    others = np.maximum((~np.isnan(whole)).sum(axis=1, keepdims=True) - 1, 1)
    mean = -whole / others
    square = np.nansum(whole**2, axis=1, keepdims=True) - whole**2
    deviation = np.sqrt(np.maximum(square / others - mean**2, 0.0))
    told = (whole - mean) / np.where(deviation > 1e-6 * np.abs(whole), deviation, 1.0)
    return told[:, 0], told[:, 1:][~np.isnan(told[:, 1:])]


@dataclass(frozen=True, eq=False)
class SingleBits:
    """Numbers of holders and others of a template who gave an answer, by score.

    ``score`` are log posterior odds, by the template's frequency and the answer; ``prior`` without
    the answer; ``holders`` and ``others`` weights of the same shape.
    """

    score: np.ndarray
    prior: np.ndarray
    holders: np.ndarray
    others: np.ndarray

    @classmethod
    def of(cls, answers: BitResponses, held: np.ndarray) -> SingleBits:
        """Count released bits; ``held`` are the true ones, shape (templates, asked)."""
        prior = np.log(answers.typical / (1 - answers.typical))
        told = (answers.bits, ~answers.bits)
        score = np.concatenate([prior + answers.epsilon, prior - answers.epsilon])
        holders, others = (
            np.concatenate([(said & side).sum(axis=1) for said in told]).astype(float)
            for side in (held, ~held)
        )
        return cls(score, np.tile(prior, 2), holders, others)

    @classmethod
    def joined(cls, several: Sequence[SingleBits]) -> SingleBits:
        """Those of several queries together."""
        columns = ("score", "prior", "holders", "others")
        return cls(*(np.concatenate([getattr(one, name) for one in several]) for name in columns))

    def curve(self, *, answered: bool = True) -> RocCurve:
        """The ROC curve of the answers, or of the templates' frequencies alone."""
        score = np.round(self.score if answered else self.prior, 9)
        levels, place = np.unique(-score, return_inverse=True)
        sides = (self.holders, self.others)
        return RocCurve.of_masses(*(np.bincount(place, side, len(levels)) for side in sides))


@dataclass(frozen=True, eq=False)
class CohortResponses:
    """A readable query to a cohort, its answers, and the most bits that one individual can change."""

    question: CohortQuery
    answers: BitResponses
    most: int

    @property
    def templates(self) -> int:
        """Number of templates that the query is about."""
        hashed = isinstance(self.answers, HashedResponses)
        return len(self.answers.mask if hashed else self.answers.bits)  # type: ignore[attr-defined]

    def books(self, records: Any, chosen: np.ndarray) -> csr_array:
        """Probability that each chosen book's holder sets each bit, shape (chosen, templates)."""
        everybody = _to_everybody(self.question, len(records))
        times = IMAGINED if self.answers.drawn else 1
        total = np.zeros((len(chosen), self.templates), np.float32)
        for each in range(times):
            view = View(records, records.schema, secret=f"imagined {each}".encode())
            total += np.asarray(everybody.evaluate(view)["bits"]).T[chosen]
        return csr_array(total / times)


def _to_everybody(question: CohortQuery, people: int) -> CohortQuery:
    """The same query put to all holders of books, in their order."""
    who: Any = getattr(question, "who", None)
    if who is None:
        return question
    asked: CohortQuery = replace(question, who=type(who).everybody(people))  # type: ignore[type-var]
    return asked


def read_responses(entry: TranscriptEntry, records: Any) -> CohortResponses | None:
    """Read one entry about a cohort whose records are known; None if it holds no readable bits."""
    question, part = question_of(entry), entry.release.parts.get("bits")
    if not isinstance(question, CohortQuery) or part is None or not question.fits(records):
        return None
    bits, flip = _bits(part), _flip(part)
    declared = question.parts(records.schema)["bits"]
    if bits is None or flip is None or bits.shape != declared.shape or not bits.size:
        return None
    known = declared.sensitivity
    most = known.anything.l1 if known and known.anything else len(bits)
    drawn = known is not None and known.add_or_remove.l1 > 1
    asked, hashed = question.asked(len(records)), question.unhashed()
    if hashed is not None:
        plain, mask = hashed
        return CohortResponses(
            plain, HashedResponses(asked, bits, flip, drawn=True, mask=mask), most
        )
    return CohortResponses(question, BitResponses(asked, bits, flip, drawn), most)


def _bits(part: ReleasedPart) -> np.ndarray | None:
    """A table of bits, none withheld; or None."""
    units = np.asarray(part.units)
    whole = units.dtype == bool or (units.dtype.kind in "iu" and bool(np.isin(units, (0, 1)).all()))
    masked = part.mask is not None and bool(np.any(part.mask))
    return units.astype(bool) if whole and units.ndim == 2 and not masked else None


def _flip(part: ReleasedPart) -> float | None:
    """The flip probability, or None if unknown."""
    if part.noise is None:
        return NEVER
    known = isinstance(part.noise, BitFlips) and part.noise.parameter < 0.5
    return max(part.noise.parameter, NEVER) if known else None
