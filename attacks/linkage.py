"""Linkage of a cohort's individuals to the rule books of known persons.

Thousands of noisy bits identify the individual who answers them. The attacker knows which rules some persons
hold (a *book*). A book's score for one individual's answers is their log-likelihood ratio
(:class:`privfed.attacks.individuals.BitResponses`), standardised over this book and those of persons who
never answered: the control group. By chance an own book ranks first among k strangers' with probability
1 / (k + 1), which is the baseline if they are fewer than a hundred.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from privfed.attacks.base import Attack, PublicSchema, Truth, question_of
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.individuals import CohortResponses, SingleBits, read_responses, standardise
from privfed.attacks.roc import FOUND_AT, RocCurve, interval
from privfed.exchange.transcript import Transcript
from privfed.questions.query import CohortQuery

RATE = 0.01  #: FPR among strangers
JUDGED = 2500  #: Most individuals whose answers are scored, and most outsiders of a control group
#: The metrics.
LINKED = "share of individuals linked to their own rule book at 1 % false links"
BITS = "share of held templates revealed by one answered bit at 1 % false accusations"


class Linkage(Attack):
    """Links individuals of a cohort to the rule books of known persons, and reads single bits.

    The truth holds the individuals' books, under the cohort's name; an owner of records of the same kind
    who released nothing is the control group. Without one, each individual's answers are
    compared with the books of the others.

    It also states each person's loss: epsilon for one rule is k epsilon for a holder of k (group privacy).
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
        control = [records for owner, records in books.items() if owner not in transcript.clients]
        findings: list[Finding] = []
        deadline = self.deadline()
        for client in (client for client in transcript.clients if client in books):
            findings += self._cohort(transcript.of(client=client), books[client], control, deadline)
        return findings

    def _cohort(
        self, transcript: Transcript, records: Any, control: list[Any], deadline: Deadline
    ) -> list[Finding]:
        entries = [entry for entry in transcript if entry.kind in self.kinds]
        evidence, read = LinkageEvidence(records, control), 0
        for entry in deadline.each(entries):
            read += 1
            responses = read_responses(entry, records)
            if responses is not None:
                evidence.add(responses)
        if not evidence.read or not evidence.controls:
            return []
        kinds = tuple(sorted({entry.kind for entry in entries}))
        detail = {**evidence.losses(), "questions left out": len(entries) - evidence.read}
        partial = deadline.partial(read, len(entries), "queries")
        fields: dict[str, Any] = {"kinds": kinds, "detail": detail, "partial": partial}
        matched, strangers = standardise(*evidence.scores())
        guess = max(RATE, 1 / (1 + evidence.controls))
        findings = [
            self._rate(LINKED, RocCurve.of(matched, strangers), guess, len(matched), **fields)
        ]
        if evidence.bits:
            bits = SingleBits.concatenate(evidence.bits)
            if bits.holders.any() and bits.others.any():
                guess, n_holders = bits.curve(answered=False).at(RATE), int(bits.holders.sum())
                harm = "one answer of a person can tell that a rule is theirs"
                figures = self._rate(BITS, bits.curve(), guess, n_holders, **fields)
                findings.append(replace(figures, harm=harm))
        return findings

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
        tpr = curve.at(RATE)
        low, high = interval(tpr * number, number)
        return self.finding(
            metric,
            tpr,
            of=1.0,
            low=low,
            high=high,
            baseline=guess,
            releases=kinds,
            severity="some" if low > guess else "none",
            detail={"area under the curve": curve.auc, FOUND_AT: curve.points, **detail},
            partial=partial,
        )


def _sample(number: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of at most :data:`JUDGED`, drawn at random, ascending."""
    return np.sort(rng.permutation(number)[:JUDGED])


@dataclass(eq=False)
class LinkageEvidence:
    """Evidence from one cohort's answers.

    ``control`` holds groups of outsiders' books; if empty, the cohort's own books replace them.
    """

    records: Any
    control: Sequence[Any]
    read: int = 0
    bits: list[SingleBits] = field(default_factory=list)

    def __post_init__(self) -> None:
        n_individuals, rng = len(self.records), np.random.default_rng(0)
        self._judged = _sample(n_individuals, rng)
        self._groups = [(records, _sample(len(records), rng)) for records in self.control]
        if not self.control:
            self._groups = [(self.records, _sample(n_individuals, rng))]
        self._matched = np.zeros(len(self._judged))
        self._answered = np.zeros(len(self._judged), bool)
        self._rule_epsilon, self._max_epsilon = np.zeros(n_individuals), np.zeros(n_individuals)
        books = sum(len(chosen) for _, chosen in self._groups)
        self._strangers = np.zeros((len(self._judged), books), np.float32)
        if not self.control:
            self._strangers[self._judged[:, None] == self._groups[0][1][None, :]] = np.nan

    @property
    def controls(self) -> int:
        """Number of outsiders' books that each individual's answers are compared with."""
        return self._strangers.shape[1] - (not self.control)

    def add(self, responses: CohortResponses) -> None:
        """Add the answers to one query."""
        individuals = responses.answers.individuals
        self._rule_epsilon[individuals] += (
            responses.answers.epsilon * responses.answers.bits_per_rule
        )
        self._max_epsilon[individuals] += responses.answers.epsilon * responses.max_bits
        self.read += 1
        answers = responses.answers.of(np.isin(individuals, self._judged))
        if not len(answers.individuals):
            return
        rows = np.searchsorted(self._judged, answers.individuals)
        books = responses.books(self.records, answers.individuals)
        against = [answers.ratios(responses.books(*group)) for group in self._groups]
        self._matched[rows] += answers.own_ratios(books)
        self._strangers[rows] += np.concatenate(against, axis=1)
        self._answered[rows] = True
        if not answers.drawn:
            self.bits.append(SingleBits.of(answers, books.T.toarray() > 0))

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of the individuals who answered: of their own books, and of outsiders'."""
        return self._matched[self._answered], self._strangers[self._answered]

    def persons(self) -> dict[str, float]:
        """A person's number of rules and the epsilon spent on them: k times one rule's (group privacy), or the bound."""
        holders = getattr(self.records, "holders", None)
        if holders is None:
            return {}
        rules = np.bincount(holders, minlength=len(self.records))
        spent = np.minimum(rules * self._rule_epsilon, self._max_epsilon)
        return {
            f"{what} of a person, {name}": float(statistic(values[self._max_epsilon > 0]))
            for what, values in (("rules", rules), ("epsilon", spent))
            for name, statistic in (("median", np.median), ("largest", np.max))
        }

    def losses(self) -> dict[str, Any]:
        """Losses of one rule and of a person, and the numbers compared."""
        rule = float(self._rule_epsilon.max())
        losses: dict[str, Any] = {
            "questions read": self.read,
            "individuals": int((self._max_epsilon > 0).sum()),
            "individuals judged": int(self._answered.sum()),
            "strangers": self.controls,
            "epsilon of one rule": rule,
            "links that it suggests": min(1.0, RATE * math.exp(min(rule, 50.0))),
            **self.persons(),
        }
        if self.controls < 1 / RATE:
            losses["note"] = (
                f"fewer than {round(1 / RATE)} strangers: one in {1 + self.controls} is linked by chance"
            )
        return losses
