"""A cohort's gate: one row for a question, a budget for each individual, answers given once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError, LedgerError, NobodyAnswered, PolicyError
from privfed.exchange.messages import Reason, Refusal, Release, Request
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.queries import CohortSample, Parameters, TemplateBits
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.formula import Formula
from privfed.ledger import Ledger
from privfed.ledger.allowances import in_units
from privfed.owner.cohort_gate import CohortGate
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import Bound, Part, PartType, Sensitivity, Unit
from privfed.questions.query import CohortQuery, Query, View
from privfed.reports.account import read
from privfed.tables.schema import Schema
from privfed.testing.queries import AboveMiddle

BOOK = generate(Profile(20, 200, 80, 3, 1.5, 3, stems=4), 1)
NAMED = RuleIndex.of({"ada": [], "bob": []}, BOOK.grammar)
TEMPLATES = BOOK.grammar.continuations(())
STRUCTURE = next(iter(BOOK.valid(1)))
MIDDLE = [(low + high) / 2 for low, high in BOOK.grammar.ranges(STRUCTURE)]


def _policy(
    budget: str | None = "1", unit: Unit = "individual", times: int | None = None
) -> Policy:
    guard = Guard.of("randomized_response", spend="0.1", cap="5", times=times)
    ceiling = None if budget is None else Budget.of(budget)
    return Policy(
        {TemplateBits.kind: (guard,), AboveMiddle.kind: (guard,)}, unit=unit, budget=ceiling
    )


def _gate(policy: Policy | None = None, ledger: Ledger | None = None, seed: int = 1) -> CohortGate:
    return CohortGate(
        "cohort", BOOK, policy or _policy(), ledger or Ledger(None, "cohort"), noise=TestNoise(seed)
    )


def _question(template: int = 0, first: int = 0, last: int = 20, seed: int = 3) -> TemplateBits:
    return TemplateBits(
        CohortSample(20, first, last, seed), BOOK.grammar.digest, (TEMPLATES[template],)
    )


def _ask(
    gate: CohortGate, query: Query, spend: str | None = None, name: str | None = None
) -> object:
    asked = name or f"q{gate.ledger.head.seq}"
    return gate.answer(
        Request.of(asked, query, spend=None if spend is None else Fraction(spend))
    ).open()


def test_one_vector_and_one_row_for_everybody() -> None:
    """A question to twenty people is one charge and one release of twenty bits."""
    gate = _gate()
    reply = _ask(gate, _question())
    assert isinstance(reply, Release)
    assert reply["bits"].shape == (1, 20)
    events = Counter(entry.event for entry in gate.ledger.entries())
    assert (events["reserved"], events["released"]) == (1, 1)


def test_three_times_a_tenth_fits_in_three_tenths() -> None:
    """Budgets are exact: the fourth question is refused, and the refusal charges nothing."""
    gate = _gate(_policy("0.3"))
    replies = [_ask(gate, _question(template)) for template in range(4)]
    assert [type(reply) for reply in replies] == [Release, Release, Release, Refusal]
    assert gate.allowances()[:, 0].tolist() == [0.3] * 20


def test_a_question_is_charged_to_those_it_asks() -> None:
    """Two disjoint parts have a budget each; a question to both is refused if one is spent."""
    gate = _gate(_policy("1"))
    assert isinstance(_ask(gate, _question(0, 0, 10), "1"), Release)
    assert isinstance(_ask(gate, _question(1, 10, 20), "0.5"), Release)
    over = _ask(gate, _question(2, 5, 15), "0.5")
    assert isinstance(over, Refusal)
    assert over.reason is Reason.BUDGET
    assert sorted(Counter(gate.allowances()[:, 0].tolist()).items()) == [(0.5, 10), (1.0, 10)]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 19), st.integers(1, 20), st.integers(1, 9), st.integers(0, 5)),
        max_size=12,
    )
)
def test_allowances_agree_with_naive_fractions(plan: list[tuple[int, int, int, int]]) -> None:
    """Whatever is asked, each individual's total is the exact sum of what it answered, never over."""
    gate = _gate(_policy("1"))
    naive = [Fraction(0)] * 20
    for number, (first, size, tenths, template) in enumerate(plan):
        last = min(20, first + size)
        query = _question(template, first, last, number)
        spend = Fraction(tenths, 10)
        asked = query.asked(20)
        fits = all(naive[i] + spend <= 1 for i in asked)
        reply = _ask(gate, query, str(spend))
        assert isinstance(reply, Release) == fits
        for individual in asked if fits else []:
            naive[individual] += spend
    assert gate.allowances()[:, 0].tolist() == [float(total) for total in naive]


@dataclass(frozen=True)
class Evading(CohortQuery):
    """Another author's question to all twenty, which says of others, or of fewer, that it asks them."""

    said: tuple[int, ...]
    answers: int = 20
    kind: ClassVar[str] = "test.evading"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One bit each."""
        one = Sensitivity(Bound(1, 1), Bound(1, 1), Bound(1, 1))
        return {"bits": Part(PartType.BITS, ("individual",), (self.answers,), one)}

    def asked(self, people: int) -> np.ndarray:
        """Whom it says."""
        return np.array(self.said, dtype=np.int64)

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Yes."""
        return {"bits": np.ones(self.answers, dtype=bool)}


@pytest.mark.parametrize(
    ("said", "answers", "fine"),
    [
        (range(20), 20, True),
        ((3, 1), 2, True),
        ((), 20, False),
        (range(19), 20, False),
        ((1, 1), 2, False),
        ((-1, 3), 2, False),
        ((20,), 1, False),
    ],
)
def test_nobody_answers_who_is_not_charged(said: Sequence[int], answers: int, fine: bool) -> None:
    """A plugin's word on whom it asks is held to the size of its answer, and names each individual once."""
    guards = {Evading.kind: (Guard.of("randomized_response", spend="0.1"),)}
    policy = Policy(guards, unit="individual", budget=Budget.of("1"))
    gate = CohortGate("cohort", BOOK, policy, Ledger(None, "cohort"), queries=[Evading])
    told = _ask(gate, Evading(tuple(said), answers))
    assert isinstance(told, Release if fine else Refusal)
    charged = sorted(said) if fine else []
    assert np.flatnonzero(gate.allowances()[:, 0]).tolist() == charged


def test_budgets_survive_the_process(tmp_path: Path) -> None:
    """A gate opened again on the ledger knows what each individual has spent."""
    path = tmp_path / "cohort.db"
    first = _gate(ledger=Ledger(path, "cohort"))
    _ask(first, _question(0, 0, 10), "0.7")
    first.ledger.close()
    again = _gate(ledger=Ledger(path, "cohort"))
    assert again.allowances()[:, 0].tolist() == first.allowances()[:, 0].tolist()
    assert isinstance(_ask(again, _question(1, 0, 20), "0.5", "late"), Refusal)


def test_budgets_belong_to_the_individuals_who_spent_them(tmp_path: Path) -> None:
    """A newcomer, a leaver or another order would put a budget under another name."""
    rules = [BOOK.grammar.formula(STRUCTURE, MIDDLE)]
    held = {"ann": rules, "bob": rules, "cy": []}
    path, policy = tmp_path / "ledger.db", _policy()
    question = TemplateBits(CohortSample.everybody(3), BOOK.grammar.digest, (TEMPLATES[0],))

    def opened(people: dict[str, list[Formula]]) -> CohortGate:
        book = RuleIndex.of(people, BOOK.grammar)
        return CohortGate("cohort", book, policy, Ledger(path, "cohort"), noise=TestNoise(1))

    assert isinstance(_ask(opened(held), question), Release)
    assert opened(held).allowances()[:, 0].tolist() == [0.1] * 3
    turned = dict(sorted(held.items(), reverse=True))
    for others in ({**held, "abe": []}, {"ann": rules, "bob": rules}, turned):
        with pytest.raises(LedgerError, match="budgets of another cohort of 3 individuals"):
            opened(others)


def test_a_roster_cannot_be_guessed_without_the_secret_beside_its_ledger(tmp_path: Path) -> None:
    """A gate made by hand keys it too: of a few known names, a bare hash would tell which are in."""
    book = RuleIndex.of({"ann": [], "bob": []}, BOOK.grammar)

    def roster(path: Path) -> str:
        return CohortGate("cohort", book, _policy(), Ledger(path, "cohort")).roster

    first = roster(tmp_path / "one.db")
    assert roster(tmp_path / "one.db") == first
    assert roster(tmp_path / "two.db") != first


def test_without_a_budget_nobody_is_charged_more_than_is_counted() -> None:
    """Totals beyond 64 bits wrapped around, and a gate without a budget asked for nothing."""
    gate = _gate(_policy(budget=None))
    gate._allowances.charge(slice(None), in_units((Fraction(2_305_843), Fraction(0))))
    refused = _ask(gate, _question(), "1")
    assert isinstance(refused, Refusal) and refused.reason is Reason.BUDGET
    assert isinstance(_ask(gate, _question(), "0.001"), Release)


def test_two_gates_on_one_ledger_share_the_budgets() -> None:
    """What another gate charged counts: the state is read off the ledger."""
    ledger = Ledger(None, "cohort")
    one, other = _gate(ledger=ledger), _gate(ledger=ledger, seed=2)
    _ask(one, _question(0), "0.8", "one")
    assert isinstance(_ask(other, _question(1), "0.8", "two"), Refusal)


def test_a_charge_of_another_gate_beside_a_refusal_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One gate reserves in the moment after the other's refusal; nobody is charged twice or missed."""
    one, other = (_gate(ledger=Ledger(tmp_path / "l.db", "cohort"), seed=s) for s in (1, 2))
    assert isinstance(_ask(one, _question(0, 0, 10), "1", "a"), Release)
    reserved, done = threading.Event(), threading.Event()
    late = threading.Thread(target=_ask, args=(other, _question(1, 10, 20), "1", "b"))
    reserve, release = one.ledger.reserve, other.ledger.release

    def reserving(*given: Any) -> Any:
        said = reserve(*given)
        late.start()
        assert reserved.wait(20)
        return said

    def releasing(*given: Any) -> Any:
        reserved.set()
        assert done.wait(20)
        return release(*given)

    monkeypatch.setattr(one.ledger, "reserve", reserving)
    monkeypatch.setattr(other.ledger, "release", releasing)
    assert isinstance(_ask(one, _question(1, 0, 10), "1", "c"), Refusal)
    monkeypatch.setattr(one.ledger, "reserve", reserve)
    over = _ask(one, _question(2, 10, 20), "1", "d")
    done.set()
    late.join(20)
    assert isinstance(over, Refusal) and over.reason is Reason.BUDGET
    assert one.allowances()[:, 0].tolist() == [1.0] * 20 == other.allowances()[:, 0].tolist()
    assert _gate(ledger=Ledger(tmp_path / "l.db", "cohort")).allowances()[:, 0].max() == 1.0


def test_what_a_gate_counted_and_the_ledger_undid_is_forgotten(tmp_path: Path) -> None:
    """A transaction that fails around a question leaves no trace in the budgets either."""
    ledger = Ledger(tmp_path / "l.db", "cohort")
    one, other = _gate(ledger=ledger), _gate(ledger=Ledger(tmp_path / "l.db", "cohort"), seed=2)
    with pytest.raises(ValueError, match="undone"), ledger.together():
        assert isinstance(_ask(one, _question(0, 0, 10), "1", "a"), Release)
        raise ValueError("undone")
    assert isinstance(_ask(other, _question(1, 10, 20), "1", "b"), Release)
    assert isinstance(_ask(one, _question(2, 10, 20), "1", "c"), Refusal)
    assert isinstance(_ask(one, _question(2, 0, 10), "1", "d"), Release)
    assert one.allowances()[:, 0].tolist() == [1.0] * 20


def test_a_request_sent_again_gets_the_same_bits() -> None:
    """Nobody answers a request twice, and another question under its name is refused."""
    gate = _gate()
    first, again = (_ask(gate, _question(), "0.5", "same") for _ in range(2))
    assert isinstance(first, Release)
    assert isinstance(again, Release)
    assert np.array_equal(first["bits"], again["bits"])
    assert gate.allowances()[:, 0].max() == 0.5
    other = _ask(gate, _question(1), "0.5", "same")
    assert isinstance(other, Refusal)
    assert other.reason is Reason.MISMATCH


def test_the_same_question_at_no_greater_epsilon_is_free() -> None:
    """The remembered bits come back under a new name; a sharper question is a new charge."""
    gate = _gate(_policy("2"))
    first = _ask(gate, _question(), "0.5", "a")
    again = _ask(gate, _question(), "0.5", "b")
    less = _ask(gate, _question(), "0.1", "c")
    assert isinstance(first, Release)
    for reply in (again, less):
        assert isinstance(reply, Release)
        assert np.array_equal(reply["bits"], first["bits"])
    assert gate.allowances()[:, 0].max() == 0.5
    sharper = _ask(gate, _question(), "1.5", "d")
    assert isinstance(sharper, Release)
    assert gate.allowances()[:, 0].max() == 2.0
    assert not np.array_equal(sharper["bits"], first["bits"])
    assert isinstance(_ask(gate, _question(), "0.1", "e"), Release)
    assert isinstance(_ask(gate, _question(1), "0.1", "f"), Refusal)


def test_memory_survives_the_process(tmp_path: Path) -> None:
    """After a restart the same question is still the same bits, free."""
    path = tmp_path / "cohort.db"
    first = _gate(_policy("0.5"), Ledger(path, "cohort"))
    told = _ask(first, _question(), "0.5", "a")
    first.ledger.close()
    again = _ask(_gate(_policy("0.5"), Ledger(path, "cohort"), seed=9), _question(), "0.5", "b")
    assert isinstance(told, Release)
    assert isinstance(again, Release)
    assert np.array_equal(again["bits"], told["bits"])


def test_fresh_noise_could_be_averaged_and_memory_cannot() -> None:
    """The power twin: different noise on one truth tells it; the remembered bits never change."""
    truth = BOOK.answers(TEMPLATES[0])[_question().asked(20)]
    fresh = [_ask(_gate(_policy(None), seed=s), _question(), "0.5", "a") for s in range(200)]
    averaged = np.mean([reply["bits"][0] for reply in fresh if isinstance(reply, Release)], axis=0)
    assert np.array_equal(averaged > 0.5, truth)
    gate = _gate(_policy(None))
    repeated = [_ask(gate, _question(), "0.5", f"r{n}") for n in range(5)]
    bits = [reply["bits"] for reply in repeated if isinstance(reply, Release)]
    assert len(bits) == 5
    assert all(np.array_equal(one, bits[0]) for one in bits)


def test_refusals_do_not_depend_on_the_rules_held() -> None:
    """Another cohort's rules give the same sequence of answers and refusals."""
    nothing = RuleIndex.indexed(BOOK.grammar, 20, [])
    kinds = []
    for book in (BOOK, nothing):
        gate = CohortGate(
            "cohort", book, _policy("0.3"), Ledger(None, "cohort"), noise=TestNoise(1)
        )
        kinds.append([type(_ask(gate, _question(t))) for t in range(6)])
    assert kinds[0] == kinds[1]


PLANS = st.lists(
    st.tuples(st.integers(0, 19), st.integers(1, 20), st.integers(1, 9), st.integers(0, 5)),
    max_size=10,
)


@settings(max_examples=25)
@given(PLANS)
def test_who_is_refused_when_some_are_exhausted_is_public(
    plan: list[tuple[int, int, int, int]],
) -> None:
    """Whoever is asked in whatever order, rules held by all or none change no refusal."""
    everything: list[Any] = [(t, person, []) for t in sorted(TEMPLATES[:3]) for person in range(20)]
    seen = []
    for entries in ([], everything):
        book = RuleIndex.indexed(BOOK.grammar, 20, entries)
        gate = CohortGate("cohort", book, _policy("1"), Ledger(None, "cohort"), noise=TestNoise(1))
        replies = [
            _ask(gate, _question(template, first, min(20, first + size), number), f"0.{tenths}")
            for number, (first, size, tenths, template) in enumerate(plan)
        ]
        reasons = [reply.reason if isinstance(reply, Refusal) else None for reply in replies]
        seen.append((reasons, gate.allowances().tolist()))
    assert seen[0] == seen[1]


def test_a_question_of_another_grammar_is_refused_and_costs_nothing() -> None:
    """The grammar is public; a failure would be charged, and counted against everybody."""
    gate = _gate()
    foreign = replace(_question(), grammar="0" * 64)
    refused = _ask(gate, foreign)
    assert isinstance(refused, Refusal) and refused.reason == Reason.MALFORMED
    assert not gate.allowances().any()


def test_only_over_an_individual_s_whole_input_is_the_relation_any_input() -> None:
    """Over one rule or record the ledger says what the policy's relation is."""
    for unit, relation in (("individual", "any-input"), ("rule", "add-or-remove")):
        gate = _gate(_policy(unit=unit))  # type: ignore[arg-type]
        _ask(gate, _question())
        told = [e.body["relation"] for e in gate.ledger.entries() if e.event == "reserved"]
        assert told == [relation]


def test_a_nested_template_is_another_charge() -> None:
    """A template and its extension are two truths about one rule: each costs, none is remembered."""
    gate = _gate(_policy("1"))
    parent = next(t for t in TEMPLATES if BOOK.grammar.open(t))
    who = CohortSample.everybody(20)
    for number, template in enumerate((parent, BOOK.grammar.continuations(parent)[0]), start=1):
        query = TemplateBits(who, BOOK.grammar.digest, (template,))
        assert isinstance(_ask(gate, query, "0.4"), Release)
        assert gate.allowances()[:, 0].tolist() == [0.4 * number] * 20
    both = TemplateBits(who, BOOK.grammar.digest, tuple(sorted(TEMPLATES[:2])))
    assert isinstance(_ask(gate, both, "0.4"), Refusal)


def test_a_structure_that_the_grammar_lacks_is_refused() -> None:
    """Before anything is charged: the grammar is public."""
    guard = Guard.of("laplace", spend="0.3")
    gate = _gate(Policy({Parameters.kind: (guard,)}, unit="individual", budget=Budget.of("0.5")))
    for structure, width in (((999,), 1), (STRUCTURE, len(MIDDLE) + 1), (TEMPLATES[-1], 2)):
        false = Parameters(CohortSample.everybody(20), BOOK.grammar.digest, (structure,), (width,))
        refused = _ask(gate, false, "0.3")
        assert isinstance(refused, Refusal) and refused.reason == Reason.MALFORMED
    assert gate.allowances()[:, 0].tolist() == [0] * 20


def test_a_failed_question_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails after the charge is answered by noise, and it is paid for."""
    monkeypatch.setattr(RuleIndex, "parameters", lambda *_: 1 / 0)
    guard = Guard.of("laplace", spend="0.3")
    gate = _gate(Policy({Parameters.kind: (guard,)}, unit="individual", budget=Budget.of("0.5")))
    false = Parameters(
        CohortSample.everybody(20), BOOK.grammar.digest, (STRUCTURE,), (len(MIDDLE),)
    )
    assert isinstance(_ask(gate, false, "0.3"), Release)
    assert gate.faults == {Parameters.kind: 1}
    assert gate.allowances()[:, 0].tolist() == [0.3] * 20
    assert isinstance(_ask(gate, false, "0.3", "again"), Refusal)


def test_charges_of_a_kind_that_is_gone_are_not_forgotten() -> None:
    """A policy that no longer names a kind still counts what was spent on it."""
    ledger = Ledger(None, "cohort")
    _ask(_gate(_policy("1"), ledger), _question(0, 0, 10), "0.7")
    guard = Guard.of("laplace", spend="0.3", cap="1")
    other = Policy({Parameters.kind: (guard,)}, unit="individual", budget=Budget.of("1"))
    amended = CohortGate("cohort", BOOK, other, ledger, noise=TestNoise(2), amend=True)
    assert sorted(Counter(amended.allowances()[:, 0].tolist()).items()) == [(0.0, 10), (0.7, 10)]


def test_budgets_that_no_individual_could_keep_are_refused() -> None:
    """Charges in blocks, and sub-budgets: one clear error before anything is asked."""
    with pytest.raises(InputError, match="block at 1"):
        CohortGate("cohort", BOOK, _policy(), Ledger(None, "cohort"), block=5)
    limited = replace(_policy(), limits=(Limit(("study",), Budget.of("0.5")),))
    with pytest.raises(PolicyError, match="no sub-budgets"):
        CohortGate("cohort", BOOK, limited, Ledger(None, "cohort"))


def test_the_report_counts_the_one_who_spent_most() -> None:
    """Four questions to a quarter each cost everybody one answer, not four."""
    federation = CohortDisclosure.of(BOOK, _policy("1"), seed=4)
    for quarter in range(4):
        federation.ask(_question(0, 5 * quarter, 5 * quarter + 5), spend=Fraction(1))
    ledger = federation.gates["cohort"].ledger
    account = read(_policy("1"), {"cohort": ledger}, {}).clients[0]
    (line,) = ledger.budget()
    assert (line.epsilon, line.remaining, line.releases) == (1, 0, 4)
    assert (account.epsilon, account.over, account.released) == (1.0, False, 4)
    assert [step.spent for step in account.steps] == [1.0] * 4


def test_a_cohort_under_zcdp_reports_epsilon() -> None:
    """The most spent is turned into epsilon by the policy's own accountant."""
    policy = replace(_policy(), accountant="zcdp", budget=Budget.of("3", "1e-5"))
    federation = CohortDisclosure.of(BOOK, policy, seed=4)
    for part in range(2):
        federation.ask(_question(part, 10 * part, 10 * part + 10), spend=Fraction(1, 5))
    line = federation.budget().iloc[0]
    assert line["least"] == pytest.approx(0.2 * np.tanh(0.1))
    assert 0.2 < line["spent"] < 1.5
    assert (line["ceiling"], line["noise"]) == (3.0, "test")
    assert 3 - line["spent"] < line["remaining"] < 3, "concentrated losses add up by less"


def test_an_empty_cohort_is_refused() -> None:
    """Nobody is no cohort."""
    with pytest.raises(InputError, match="empty"):
        CohortGate("c", RuleIndex.indexed(BOOK.grammar, 0, []), _policy(), Ledger(None, "c"))


def test_two_units_have_two_budgets() -> None:
    """What was charged by rule cannot be continued by individual on the same ledger."""
    ledger = Ledger(None, "cohort")
    _ask(_gate(_policy(unit="rule"), ledger), _question())
    with pytest.raises(PolicyError, match=r"unit"):
        _gate(_policy(unit="individual"), ledger)


def test_questions_to_another_cohort_are_malformed() -> None:
    """A question must know the size of the cohort, and say whom it asks."""
    gate = _gate()
    stranger = TemplateBits(CohortSample(21, 0, 21), BOOK.grammar.digest, (TEMPLATES[0],))
    refused = _ask(gate, stranger)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.MALFORMED
    undirected = _ask(gate, AboveMiddle(0, 20))
    assert isinstance(undirected, Refusal)
    assert undirected.reason is Reason.UNSUPPORTED


def test_nested_templates_are_refused_before_any_charge() -> None:
    """A false partition costs nothing, for nothing was read."""
    gate = _gate()
    template = TEMPLATES[-1]
    longer = BOOK.grammar.continuations(template)[0]
    nested = TemplateBits(CohortSample.everybody(20), BOOK.grammar.digest, (template, longer))
    refused = _ask(gate, nested)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.FALSE_PARTITION
    assert gate.allowances().max() == 0


def test_a_cohort_is_asked_like_any_federation() -> None:
    """The disclosure reports the one who spent most, and its ledger verifies."""
    federation = CohortDisclosure.of(BOOK, _policy("1"), seed=4)
    federation.ask(_question(0, 0, 10), spend=Fraction(1))
    line = federation.budget().iloc[0]
    assert (line["people"], line["spent"], line["least"], line["remaining"]) == (20, 1.0, 0.0, 0.0)
    federation.verify()
    with pytest.raises(NobodyAnswered, match="budget"):
        federation.ask(_question(1, 5, 15), spend=Fraction(1))


def test_a_cohort_offers_by_the_budgets_of_those_asked() -> None:
    """Who has nothing left is offered no fresh question; a repeated one is free, and offered."""
    federation = CohortDisclosure.of(BOOK, _policy("1"), seed=4)
    first, fresh, others = _question(0, 0, 10), _question(1, 5, 15), _question(1, 10, 20)
    federation.ask(first, spend=Fraction(1))
    head = federation.gates["cohort"].ledger.head
    assert federation.offers(fresh, spend=Fraction(1)) == ()
    assert federation.offers(others, spend=Fraction(1)) == ("cohort",)
    assert federation.offers(first, spend=Fraction(1)) == ("cohort",)
    assert federation.gates["cohort"].ledger.head == head
    federation.ask(others, spend=Fraction(1))
    assert federation.budget().iloc[0]["least"] == 1


def test_a_roster_is_told_by_the_cohort_s_own_secret_alone(tmp_path: Path) -> None:
    """A bare hash of guessed names would give them away; the same books know their people again."""
    policy = _policy()
    one, again, other = (
        CohortDisclosure.of(NAMED, policy, ledger=tmp_path / name, name="cohort")
        for name in ("one.db", "one.db", "other.db")
    )
    rosters = [disclosure._gate.roster for disclosure in (one, again, other)]
    assert NAMED.roster and NAMED.roster not in rosters
    assert rosters[0] == rosters[1] != rosters[2]
