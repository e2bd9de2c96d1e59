"""Audits of what a cohort's gate releases about its individuals.

Half of the individuals, drawn by the auditor, hold a match to every query and the others to none:
the most that two individuals can differ by. Each one's answers are one trial.
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

#: Seeds who holds all; it needs no secret, but must not be the noise's own stream.
HOLDERS = 0xC0175


def all_or_nothing(grammar: Grammar, holds: np.ndarray, held: Sequence[Symbols]) -> RuleIndex:
    """A cohort in which those of ``holds``, shape (people,), hold all structures, others none."""
    entries: list[tuple[Symbols, int, Sequence[float]]] = [
        (structure, int(person), [])
        for structure in sorted(held)
        for person in np.flatnonzero(holds)
    ]
    return RuleIndex.indexed(grammar, len(holds), entries)


def complete_structures(grammar: Grammar, number: int) -> list[Symbols]:
    """That many structures of the grammar, the shortest first."""
    found: list[Symbols] = []
    frontier: list[Symbols] = [()]
    while frontier and len(found) < number:
        longer = [child for template in frontier for child in grammar.continuations(template)]
        found += [template for template in longer if not grammar.open(template)]
        frontier = [template for template in longer if grammar.open(template)]
    return found[:number]


def audit_session(
    questions: Sequence[Symbols],
    grammar: Grammar,
    spend: Number,
    people: int,
    mechanism: str | Mechanism = "randomized_response",
    alpha: float = 0.05,
    seed: int | None = None,
) -> Finding:
    """Ask a cohort query after query through its gate, and audit one individual's answers.

    The score is the number of yes-answers: the likelihood ratio's own order, as all are flipped alike.

    Args:
        questions: structures to ask for, one query each.
        spend: epsilon of each query.
        people: size of the cohort; trials of the audit.
        mechanism: what the policy protects bits with.
        alpha: how often an innocent mechanism may be convicted.
        seed: of the gate's noise; secure unless given. Who holds all is drawn apart from it.

    Returns:
        a finding whose ``of`` is what the ledger charged each individual.
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
