"""What a cohort's gate lets out about its individuals, as an auditor plays it.

The first half of a cohort holds a match to every question, the second half nothing: all that one
individual could hold against all that another could. Each individual's answers are one trial.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privfed.accountant import Budget
from privfed.attacks.audit import audit_mechanism
from privfed.cohort import CohortDisclosure
from privfed.exact import Number
from privfed.finding import Finding
from privfed.learners.rule_search.queries import Asked, TemplateBits
from privfed.learners.rule_search.rule_book import RuleBook
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.mechanism import Mechanism
from privfed.policy import Guard, Policy


def opposite_halves(grammar: Grammar, people: int, held: Sequence[Symbols]) -> RuleBook:
    """A cohort of which the first half holds all of these structures and the other half none."""
    half = range(people // 2)
    entries: list[tuple[Symbols, int, Sequence[float]]] = [
        (structure, person, []) for structure in sorted(held) for person in half
    ]
    return RuleBook.indexed(grammar, people, entries)


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
    """Ask a cohort question after question through its gate, and audit one individual's answers.

    The auditor's score is the number of yes-answers, which is the likelihood ratio's own order: all
    answers are flipped alike.

    Args:
        questions: structures to ask for, one question each.
        grammar: their grammar.
        spend: epsilon of each question.
        people: size of the cohort; trials of the audit.
        mechanism: what the policy protects bits with.
        alpha: how often an innocent mechanism may be convicted.
        seed: of the gate's noise; secure unless given.

    Returns:
        a finding whose ``of`` is what the ledger charged each individual.
    """
    guard = Guard.of(mechanism, spend=spend)
    ceiling = Budget(len(questions) * guard.amount(None))
    policy = Policy({TemplateBits.kind: (guard,)}, unit="individual", budget=ceiling)
    book = opposite_halves(grammar, people, questions)
    federation = CohortDisclosure.of(book, policy, seed=seed)
    yes = np.zeros(people, dtype=np.int64)
    for question in questions:
        query = TemplateBits(Asked.everybody(people), grammar.digest, (question,))
        yes += federation.ask(query).only.total("bits")[0].astype(np.int64)
    answers = yes.astype(bool) if len(questions) == 1 else yes
    return audit_mechanism(
        lambda runs: answers[:runs],
        lambda runs: answers[people // 2 :][:runs],
        float(federation.budget().iloc[0]["spent"]),
        trials=people,
        alpha=alpha,
        name=f"{len(questions)} questions",
    )
