"""Audits of a cohort gate's releases about its individuals.

Half of the individuals, drawn by the auditor, hold a match to every query and the others to none,
the largest difference of two individuals. Each one's answers are one trial.
"""

from collections.abc import Sequence

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.paired_trials import audit_outputs
from privfed.audits.threshold_tests import PrivacyClaim
from privfed.engines.cohort import CohortDisclosure
from privfed.learners.rule_search.queries import CohortSample, TemplateBits
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.privacy.accountant import Budget
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number

#: Seed of the holders; it needs no secret, but must not be the noise's stream.
HOLDERS = 0xC0175


def all_or_nothing(grammar: Grammar, holds: np.ndarray, structures: Sequence[Symbols]) -> RuleIndex:
    """A cohort in which the individuals of ``holds``, bool, hold all structures, the others none."""
    entries: list[tuple[Symbols, int, Sequence[float]]] = [
        (structure, int(person), [])
        for structure in sorted(structures)
        for person in np.flatnonzero(holds)
    ]
    return RuleIndex.indexed(grammar, len(holds), entries)


def complete_structures(grammar: Grammar, number: int) -> list[Symbols]:
    """``number`` structures of the grammar, the shortest first."""
    structures: list[Symbols] = []
    frontier: list[Symbols] = [()]
    while frontier and len(structures) < number:
        longer = [child for template in frontier for child in grammar.continuations(template)]
        structures += [template for template in longer if not grammar.open(template)]
        frontier = [template for template in longer if grammar.open(template)]
    return structures[:number]


def audit_session(
    questions: Sequence[Symbols],
    grammar: Grammar,
    spend: Number,
    people: int,
    mechanism: str | Mechanism = "randomized_response",
    alpha: float = 0.05,
    seed: int | None = None,
) -> Finding:
    """Query a cohort repeatedly through its gate, and audit one individual's answers.

    The score is the number of yes-answers, monotone in the likelihood ratio, as all are flipped with one probability.

    Args:
        questions: structures, one query each.
        spend: epsilon of each query.
        people: size of the cohort; trials of the audit.
        mechanism: protects the bits.
        alpha: probability of rejecting a correct mechanism's claim.
        seed: of the gate's noise; secure by default. The holders are drawn independently of it.

    Returns:
        a finding whose ``of`` is the epsilon that the ledger charged each individual.
    """
    guard = Guard.of(mechanism, spend=spend)
    ceiling = Budget(len(questions) * guard.amount(None))
    policy = Policy({TemplateBits.kind: (guard,)}, unit="individual", budget=ceiling)
    holds = np.random.default_rng(HOLDERS).permutation(people) < people // 2
    book = all_or_nothing(grammar, holds, questions)
    federation = CohortDisclosure.of(book, policy, seed=seed)
    yes = np.zeros(people, dtype=np.int64)
    for question in questions:
        query = TemplateBits(CohortSample.everybody(people), grammar.digest, (question,))
        yes += federation.ask(query).only.total("bits")[0].astype(np.int64)
    return audit_outputs(
        yes[holds],
        yes[~holds],
        claim=PrivacyClaim(float(federation.budget().iloc[0]["spent"])),
        alpha=alpha,
        name=f"{len(questions)} questions",
    )
