"""Both frequency oracles are unbiased with the variance that theory says; hashed answers are small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.exchange.disclosure import Answer
from privfed.exchange.messages import Release, ReleasedPart
from privfed.learners import RuleSearch
from privfed.learners.rule_search.estimate import (
    AnswerError,
    SupportEstimate,
    counts,
    hashed_counts,
)
from privfed.learners.rule_search.queries import (
    CohortSample,
    Encoding,
    HashedRule,
    SampledRule,
    parity,
)
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import BitFlips
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import PartType

GRAMMAR = Grammar((("a", 0.0, 1.0), ("b", 0.0, 1.0)), ("&", "F"), most_operators=2, horizon=3)
TEMPLATES = tuple(GRAMMAR.continuations(()))
ATOMS = [template for template in TEMPLATES if not GRAMMAR.open(template)]
PEOPLE, SLOTS, DRAWS = 600, 2, 150
HELD = (200, 100, 0, 40)


def _book() -> RuleIndex:
    """Of each of the four atoms so many holders, who fill both places with it."""
    entries: list[tuple[Symbols, int, list[float]]] = []
    first = 0
    for atom, holders in zip(ATOMS, HELD, strict=True):
        entries += [(atom, person, []) for person in range(first, first + holders) for _ in "12"]
        first += holders
    return RuleIndex.indexed(GRAMMAR, PEOPLE, sorted(entries, key=lambda entry: entry[:2]))


BOOK = _book()
UNARY = SampledRule(CohortSample.everybody(PEOPLE), GRAMMAR.digest, TEMPLATES, SLOTS)
HASHED = HashedRule(CohortSample.everybody(PEOPLE), GRAMMAR.digest, TEMPLATES, SLOTS)


def _drawn(query: SampledRule | HashedRule, epsilon: str) -> list[SupportEstimate]:
    """Estimates from many sessions through a gate; the public order differs, and so the masks."""
    guard = Guard.of("randomized_response", spend=epsilon)
    policy = Policy({query.kind: (guard,)}, unit="individual", budget=Budget.of(epsilon))
    read: Callable[[Answer], SupportEstimate] = (
        hashed_counts if isinstance(query, HashedRule) else counts
    )
    return [
        read(CohortDisclosure.of(BOOK, policy, seed=seed).ask(replaced(query, seed)).only)
        for seed in range(1, DRAWS + 1)
    ]


def replaced(query: SampledRule | HashedRule, seed: int) -> SampledRule | HashedRule:
    """The same question to everybody in another public order."""
    return replace(query, who=CohortSample(PEOPLE, 0, PEOPLE, seed))


@pytest.mark.parametrize("epsilon", ["1", "4"])
@pytest.mark.parametrize("query", [UNARY, HASHED], ids=["unary", "hashed"])
def test_estimates_are_unbiased_with_the_variance_of_theory(
    query: SampledRule | HashedRule, epsilon: str
) -> None:
    """Over 150 sessions the mean is the truth; N / (4 sinh^2(e/4)) and N coth^2(e/2) less holders."""
    drawn = _drawn(query, epsilon)
    estimates = np.array([one.estimate for one in drawn])
    truth = np.array([HELD[ATOMS.index(t)] if t in ATOMS else 0 for t in TEMPLATES])
    e = float(epsilon)
    unary = PEOPLE / (4 * np.sinh(e / 4) ** 2)
    hashed = PEOPLE / np.tanh(e / 2) ** 2
    expected = hashed - truth if isinstance(query, HashedRule) else np.full(len(truth), unary)
    assert drawn[0].std ** 2 == pytest.approx(max(expected), rel=1e-9)
    assert estimates.mean(axis=0) == pytest.approx(truth, abs=4 * np.sqrt(max(expected) / DRAWS))
    assert estimates.var(axis=0).mean() == pytest.approx(expected.mean(), rel=0.15)


def test_the_wrong_masks_read_nothing() -> None:
    """The power twin: read with another question's masks, two hundred holders are not seen."""
    answers = _answered(PEOPLE)
    other = Answer(replaced(HASHED, 9), answers.replies)
    place = TEMPLATES.index(ATOMS[0])
    assert hashed_counts(answers).estimate[place] == pytest.approx(200, abs=90)
    assert abs(hashed_counts(other).estimate[place]) < 90


def _answered(people: int) -> Answer:
    """A noiseless answer of so many people, cut off or repeated."""
    drawn = np.full(PEOPLE, -1)
    start = 0
    for atom, holders in zip(ATOMS, HELD, strict=True):
        drawn[start : start + holders] = TEMPLATES.index(atom)
        start += holders
    bits = parity(HASHED.masks() & (drawn + 1).astype(np.uint32))[None]
    units = np.resize(bits, (1, people))
    part = ReleasedPart(PartType.BITS, ("hash", "individual"), units, noise=BitFlips(0.0))
    release = Release("cohort", "r", HASHED.kind, HASHED.digest, {"bits": part})
    return Answer(HASHED, {"cohort": release})


def test_all_counts_at_once_are_the_naive_sums() -> None:
    """The transform gives, for each template, the sum of agreements one by one."""
    answer = _answered(PEOPLE)
    signs = 1 - 2 * answer.releases["cohort"].parts["bits"].units[0].astype(int)
    naive = [
        float(np.sum(signs * (1 - 2 * parity(HASHED.masks() & np.uint32(code)).astype(int))))
        for code in range(1, len(TEMPLATES) + 1)
    ]
    assert hashed_counts(answer).estimate.tolist() == naive


@pytest.mark.parametrize("people", [PEOPLE - 1, PEOPLE + 1])
def test_one_who_answers_twice_or_not_at_all(people: int) -> None:
    """The number of bits must be the number asked."""
    with pytest.raises(AnswerError, match="twice or not"):
        hashed_counts(_answered(people))


def test_answers_of_another_kind_are_not_hashed() -> None:
    """Unary answers, or none at all, are refused."""
    for answer in (Answer(UNARY, _answered(PEOPLE).replies), Answer(HASHED, {})):
        with pytest.raises(AnswerError, match="one whole cohort"):
            hashed_counts(answer)


def test_one_bit_stands_for_thousands_of_templates() -> None:
    """The answer's size does not depend on the number of templates."""
    (part,) = HASHED.parts(BOOK.schema).values()
    assert part.shape == (1, PEOPLE)
    (unary,) = UNARY.parts(BOOK.schema).values()
    assert unary.shape == (len(TEMPLATES), PEOPLE)


@pytest.mark.parametrize("encoding", ["unary", "hashed"])
def test_a_search_over_sampled_rules_finds_the_common_ones(encoding: Encoding) -> None:
    """Four thousand individuals with one rule each: both held by more than a fifth are found."""
    entries: list[Any] = [(ATOMS[0], person, []) for person in range(1600)]
    entries += [(ATOMS[1], person, []) for person in range(1600, 2800)]
    book = RuleIndex.indexed(GRAMMAR, 4000, entries)
    model = RuleSearch(
        "sampled", epsilon="8", min_support=0.2, levels=1, slots=1, encoding=encoding,
        operators=("&", "F"), max_operators=2, horizon=3,
    )  # fmt: skip
    federation = CohortDisclosure.of(book, model.private("8"), seed=2)
    model.fit(federation)
    shares = {found.structure: found.share for found in model.found_}
    assert shares == pytest.approx({ATOMS[0]: 0.4, ATOMS[1]: 0.3}, abs=0.07)
    assert federation.budget().iloc[0]["spent"] == 8
    kinds = {entry.body["kind"] for entry in federation.gates["cohort"].ledger.entries()
             if entry.event == "reserved"}  # fmt: skip
    assert kinds == {HASHED.kind if encoding == "hashed" else UNARY.kind}


def test_an_unknown_encoding_is_refused() -> None:
    """One clear error before anything is asked."""
    model = RuleSearch("sampled", encoding="morse")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unary, hashed"):
        model.fit(CohortDisclosure.of(BOOK, model.private("1"), seed=1))
