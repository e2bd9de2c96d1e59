"""What a gate remembers: secure bits are never test noise repeated, nor the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from privfed.exchange.messages import Reason, Refusal, Release, Request
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.queries import CohortSample, TemplateBits
from privfed.ledger import Entry, Ledger
from privfed.owner.cohort_gate import CohortGate
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.loss import Loss
from privfed.privacy.noise import Noise, SecureNoise, TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.reports.account import read
from privfed.tables.records import Records
from privfed.testing.queries import AboveMiddle

PEOPLE = 300
BOOK = generate(Profile(PEOPLE, 900, 200, 3, 1.5, 3, stems=4), 1)
QUERY = TemplateBits(
    CohortSample.everybody(PEOPLE), BOOK.grammar.digest, tuple(BOOK.grammar.continuations(())[:2])
)
POLICY = Policy(
    {QUERY.kind: (Guard.of("randomized_response", spend="0.1"),)},
    unit="individual",
    budget=Budget.of("1"),
)


def _ask(ledger: Ledger, noise: Noise, name: str) -> Release:
    """A release to a request of its own, by a gate opened anew over the ledger."""
    reply = CohortGate("cohort", BOOK, POLICY, ledger, noise=noise).answer(Request.of(name, QUERY))
    released = reply.open()
    assert isinstance(released, Release)
    return released


def _remembered(ledger: Ledger) -> list[bool]:
    """Whether each charge was spared because its answer had left before."""
    return ["remembers" in e.body for e in ledger.entries() if e.event == "reserved"]


def test_bits_of_an_interrupted_request_are_repeated_like_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Completed under its charge, which counts each individual once, the same question anew is free."""
    ledger = Ledger(None, "cohort")
    gate = CohortGate("cohort", BOOK, POLICY, ledger, noise=TestNoise(1))

    def killed(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Gate, "_evaluate", killed)
        gate.answer(Request.of("one", QUERY))
    one = gate.answer(Request.of("one", QUERY)).open()
    other = gate.answer(Request.of("other", QUERY)).open()
    assert isinstance(one, Release) and isinstance(other, Release)
    assert np.array_equal(one["bits"], other["bits"])
    assert _remembered(ledger) == [False, True]
    assert gate.most == gate.accountant.cost(Loss.from_dict(next(_charged(ledger)).body["loss"]))


def _charged(ledger: Ledger) -> Iterator[Entry]:
    return ledger.entries(events=("reserved",))


@pytest.mark.parametrize(
    ("first", "then"),
    [(TestNoise(1), SecureNoise()), (SecureNoise(), TestNoise(1))],
    ids=["test noise first", "secure noise first"],
)
def test_one_kind_of_noise_never_stands_for_the_other(first: Noise, then: Noise) -> None:
    """On one ledger, the question asked again under the other noise is drawn and charged anew."""
    ledger = Ledger(None, "cohort")
    one, other = _ask(ledger, first, "one"), _ask(ledger, then, "other")
    assert (one.secure, other.secure) == (first.secure, then.secure)
    assert not np.array_equal(one["bits"], other["bits"])
    assert _remembered(ledger) == [False, False]
    charged = [entry.body["secure"] for entry in ledger.entries() if entry.event == "reserved"]
    assert charged == [first.secure, then.secure]


@pytest.mark.parametrize("noise", [TestNoise(1), SecureNoise()], ids=["test", "secure"])
def test_noise_of_its_own_kind_is_repeated(noise: Noise, tmp_path: Path) -> None:
    """The twin: a gate opened over the same ledger repeats the very bits, free of charge."""
    ledger = Ledger(tmp_path / "cohort.db", "cohort")
    one, other = _ask(ledger, noise, "one"), _ask(ledger, noise, "other")
    assert np.array_equal(one["bits"], other["bits"])
    assert (one.secure, other.secure) == (noise.secure, noise.secure)
    assert _remembered(ledger) == [False, True]
    (client,) = read(POLICY, {"cohort": ledger}, {}).clients
    assert (client.released, client.acknowledged) == (2, 0), "free, and about records all the same"


def test_secure_bits_are_found_behind_test_noise() -> None:
    """Secure, test, secure: the third answer is the first one's, not the one in between."""
    ledger = Ledger(None, "cohort")
    first = _ask(ledger, SecureNoise(), "first")
    between = _ask(ledger, TestNoise(1), "between")
    third = _ask(ledger, SecureNoise(), "third")
    assert third.secure
    assert np.array_equal(first["bits"], third["bits"])
    assert not np.array_equal(between["bits"], third["bits"])


BIT = AboveMiddle(0, 25)


def _asked(records: Records, limit: Limit, ledger: Ledger, *who: str) -> Release | Reason:
    """What a principal gets of a bit in a study, under a limit; the answer, or why there is none."""
    principal, study, name = who
    guards = {BIT.kind: (Guard.of("randomized_response", spend="0.1"),)}
    policy = Policy(guards, unit="individual", budget=Budget.of("1"), limits=(limit,))
    gate = Gate("clinic", records, policy, ledger, noise=TestNoise(1), study=study, amend=True)
    told = gate.answer(Request.of(name, BIT, principal)).open()
    assert isinstance(told, Release | Refusal)
    return told if isinstance(told, Release) else told.reason


@pytest.mark.parametrize("who", [("guest", "study", "2"), ("server", "guest", "2")])
def test_what_one_paid_for_is_no_other_s_to_take(
    who: tuple[str, str, str], records: Records
) -> None:
    """A guest limited to less than the answer cost is refused it, though its bits left before."""
    aspect = "principal" if "guest" in who[:1] else "study"
    limit, ledger = Limit((aspect,), Budget.of("0.01"), {aspect: "guest"}), Ledger(None, "clinic")
    assert isinstance(_asked(records, limit, ledger, "server", "study", "1"), Release)
    assert _asked(records, limit, ledger, *who) == Reason.BUDGET
    assert isinstance(_asked(records, limit, ledger, "server", "study", "3"), Release)
    assert _remembered(ledger) == [False, True]


def test_under_a_limit_for_each_everybody_pays_for_herself(records: Records) -> None:
    """Two principals are charged the same question, each against her own limit; again it is free."""
    limit, ledger = Limit(("principal",), Budget.of("0.15")), Ledger(None, "clinic")
    for principal in ("one", "other"):
        assert isinstance(_asked(records, limit, ledger, principal, "study", "1"), Release)
    assert isinstance(_asked(records, limit, ledger, "one", "study", "2"), Release)
    assert _remembered(ledger) == [False, False, True]


def test_no_greater_epsilon_is_free_and_the_best_bits_are_repeated(records: Records) -> None:
    """Whoever paid for more gets the bits of it again at any less; for still more they are drawn and charged anew."""
    guards = {BIT.kind: (Guard.of("randomized_response", spend="0.1", cap="4"),)}
    policy = Policy(guards, unit="individual", budget=Budget.of("9"))
    gate = Gate("clinic", records, policy, Ledger(None, "clinic"), noise=TestNoise(1))
    bits = {}
    for name, spend in {
        "some": "0.1",
        "more": "3",
        "less": "2",
        "most": "4",
        "any": "0.05",
    }.items():
        told = gate.answer(Request.of(name, BIT, spend=Fraction(spend))).open()
        assert isinstance(told, Release)
        bits[name] = told["bits"].tolist()
    assert _remembered(gate.ledger) == [False, False, True, False, True]
    assert bits["less"] == bits["more"] != bits["some"]
    assert bits["any"] == bits["most"] != bits["more"]
    assert gate.ledger.spent(gate.accountant).total[0] == Fraction("7.1")
