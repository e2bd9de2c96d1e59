"""Whose answers are these? A cohort's individuals compared with the rule books of known persons.

Who answers thousands of noisy bits is found by them. The attacker knows what some persons hold (a
*book*). A book's score for one individual's answers is their log-likelihood ratio
(:class:`privfed.attacks.individuals.BitResponses`), standardised over this book and those of persons who
never answered: the control group. An own book comes out first among k strangers' by chance once in k + 1
times, which is the guess where they are fewer than a hundred.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from privfed.attacks.base import Attack, PublicSchema, Truth, question_of
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.individuals import CohortResponses, SingleBits, read_responses, standardised
from privfed.attacks.roc import FOUND_AT, RocCurve, interval
from privfed.exchange.transcript import Transcript
from privfed.questions.query import CohortQuery

RATE = 0.01  #: Share of strangers that may be accused
JUDGED = 2500  #: Most individuals whose answers are judged, and most outsiders of a control group
#: What is measured.
LINKED = "share of individuals linked to their own rule book at 1 % false links"
BITS = "share of held templates told by one answered bit at 1 % false accusations"


class Linkage(Attack):
    """Links individuals of a cohort to the rule books of known persons, and reads single bits.

    The truth holds what the cohort's individuals hold, under the cohort's name; an owner of like
    records who released nothing is the control group. Without one, each individual's answers are
    compared with the books of the others.

    It also states each person's loss: an epsilon for one rule covers whoever holds k of them at k
    times that (group privacy).
    """

    name: ClassVar[str] = "linkage"
    risk: ClassVar[Risk] = "linkability"
    harm: ClassVar[str] = "answers can be linked to the person who gave them"
    question: ClassVar[str] = (
        "Knowing some people's rules, can one tell which individual's answers are theirs?"
    )
    kinds: ClassVar[tuple[str, ...]] = (
        "rule_search.templates",
        "rule_search.sampled",
        "rule_search.hashed",
    )

    def attackable(self, transcript: Transcript) -> bool:
        """Whether some individuals answered in bits."""
        return any(
            isinstance(question_of(entry), CohortQuery) and "bits" in entry.release.parts
            for entry in transcript
            if entry.kind in self.kinds
        )

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: individuals linked and bits read, by cohort; none without truth."""
        books: Mapping[str, Any] = truth or {}
        control = [held for owner, held in books.items() if owner not in transcript.clients]
        found: list[Finding] = []
        deadline = self.deadline()
        for client in (client for client in transcript.clients if client in books):
            found += self._cohort(transcript.of(client=client), books[client], control, deadline)
        return found

    def _cohort(
        self, transcript: Transcript, records: Any, control: list[Any], deadline: Deadline
    ) -> list[Finding]:
        entries = [entry for entry in transcript if entry.kind in self.kinds]
        evidence, read = LinkageEvidence(records, control), 0
        for place in deadline.range(len(entries)):
            read += 1
            heard = read_responses(entries[place], records)
            if heard is not None:
                evidence.add(heard)
        if not evidence.read or not evidence.controls:
            return []
        kinds = tuple(sorted({entry.kind for entry in entries}))
        detail = {**evidence.losses(), "questions left out": len(entries) - evidence.read}
        partial = deadline.partial(read, len(entries), "questions")
        told: dict[str, Any] = {"kinds": kinds, "detail": detail, "partial": partial}
        own, strangers = standardised(*evidence.scores())
        guess = max(RATE, 1 / (1 + evidence.controls))
        found = [self._rate(LINKED, RocCurve.of(own, strangers), guess, len(own), **told)]
        if evidence.bits:
            bits = SingleBits.joined(evidence.bits)
            if bits.holders.any() and bits.others.any():
                guess, held = bits.curve(answered=False).at(RATE), int(bits.holders.sum())
                found.append(self._rate(BITS, bits.curve(), guess, held, **told))
        return found

    def _rate(
        self,
        metric: str,
        curve: RocCurve,
        guess: float,
        number: int,
        *,
        kinds: tuple[str, ...],
        detail: Mapping[str, Any],
        partial: str,
    ) -> Finding:
        found = curve.at(RATE)
        low, high = interval(found * number, number)
        return self.finding(
            metric,
            found,
            of=1.0,
            low=low,
            high=high,
            baseline=guess,
            releases=kinds,
            severity="some" if low > guess else "none",
            detail={"area under the curve": curve.auc, FOUND_AT: curve.points, **detail},
            partial=partial,
        )


def _some(number: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of at most :data:`JUDGED`, drawn at random, ascending."""
    return np.sort(rng.permutation(number)[:JUDGED])


@dataclass(eq=False)
class LinkageEvidence:
    """What was read of one cohort so far.

    ``control`` holds groups of outsiders' books; if empty, the cohort's own books stand in.
    """

    records: Any
    control: Sequence[Any]
    read: int = 0
    bits: list[SingleBits] = field(default_factory=list)

    def __post_init__(self) -> None:
        people, rng = len(self.records), np.random.default_rng(0)
        self._judged = _some(people, rng)
        self._groups = [(held, _some(len(held), rng)) for held in self.control]
        if not self.control:
            self._groups = [(self.records, _some(people, rng))]
        self._own, self._answered = np.zeros(len(self._judged)), np.zeros(len(self._judged), bool)
        self._rule, self._most = np.zeros(people), np.zeros(people)
        books = sum(len(chosen) for _, chosen in self._groups)
        self._strangers = np.zeros((len(self._judged), books), np.float32)
        if not self.control:
            self._strangers[self._judged[:, None] == self._groups[0][1][None, :]] = np.nan

    @property
    def controls(self) -> int:
        """Number of outsiders' books that each individual's answers are compared with."""
        return self._strangers.shape[1] - (not self.control)

    def add(self, heard: CohortResponses) -> None:
        """Read one more query."""
        asked = heard.answers.asked
        self._rule[asked] += heard.answers.epsilon * heard.answers.turned
        self._most[asked] += heard.answers.epsilon * heard.most
        self.read += 1
        answers = heard.answers.of(np.isin(asked, self._judged))
        if not len(answers.asked):
            return
        rows = np.searchsorted(self._judged, answers.asked)
        books = heard.books(self.records, answers.asked)
        against = [answers.ratios(heard.books(*group)) for group in self._groups]
        self._own[rows] += answers.own_ratios(books)
        self._strangers[rows] += np.concatenate(against, axis=1)
        self._answered[rows] = True
        if not answers.drawn:
            self.bits.append(SingleBits.of(answers, books.T.toarray() > 0))

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the individuals who answered: their own books' scores, and the outsiders'."""
        return self._own[self._answered], self._strangers[self._answered]

    def persons(self) -> dict[str, float]:
        """Rules that a person holds and the epsilon spent on them: k times one rule's (group privacy), or the bound."""
        holders = getattr(self.records, "holders", None)
        if holders is None:
            return {}
        rules = np.bincount(holders, minlength=len(self.records))
        spent = np.minimum(rules * self._rule, self._most)
        return {
            f"{what} of a person, {name}": float(of(each[self._most > 0]))
            for what, each in (("rules", rules), ("epsilon", spent))
            for name, of in (("median", np.median), ("largest", np.max))
        }

    def losses(self) -> dict[str, Any]:
        """Losses of one rule and of a person, and how many were compared."""
        rule = float(self._rule.max())
        told: dict[str, Any] = {
            "questions read": self.read,
            "individuals": int((self._most > 0).sum()),
            "individuals judged": int(self._answered.sum()),
            "strangers": self.controls,
            "epsilon of one rule": rule,
            "links that it suggests": min(1.0, RATE * math.exp(min(rule, 50.0))),
            **self.persons(),
        }
        if self.controls < 1 / RATE:
            told["note"] = (
                f"fewer than {round(1 / RATE)} strangers: one in {1 + self.controls} is linked by chance"
            )
        return told
