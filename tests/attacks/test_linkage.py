"""Individuals are linked to known rule books where many bits left, and not where few did."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_array

from privfed.attacks import linkage
from privfed.attacks.finding import Finding
from privfed.attacks.individuals import BitResponses, HashedResponses, SingleBits, standardise
from privfed.attacks.linkage import BITS, LINKED, Linkage
from privfed.attacks.roc import RocCurve
from privfed.engines.cohort import CohortDisclosure
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.learners import RuleSearch
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.privacy.laws import BitFlips
from privfed.questions.part import PartType

PEOPLE = 300
BOOKS = generate(Profile(2 * PEOPLE, 2 * PEOPLE * 60, 9_000, 12, 2.0, 3, top=0.5, stems=30), 5)


def half(first: int) -> RuleIndex:
    """The rules of so many people from the first on."""
    held = [(s, p - first, v) for s, p, v in BOOKS.entries() if first <= p < first + PEOPLE]
    return RuleIndex.indexed(BOOKS.grammar, PEOPLE, held)


MEMBERS, STRANGERS = half(0), half(PEOPLE)


@cache
def asked(strategy: str, epsilon: str) -> Transcript:
    """What the members answered."""
    search = RuleSearch(strategy, epsilon=epsilon, min_support=0.02, max_operators=3, questions=50)
    return answered(search, epsilon)


def answered(search: RuleSearch, epsilon: str) -> Transcript:
    """What the members answered to a search."""
    cohort = CohortDisclosure.of(MEMBERS, search.private(epsilon), seed=1)
    search.fit(cohort)
    return cohort.transcript()


def attack(transcript: Transcript, **truth: RuleIndex) -> dict[str, Finding]:
    """What the attack finds, by metric."""
    found = Linkage().run(transcript, {"cohort": MEMBERS, **truth})  # type: ignore[dict-item]
    return {finding.metric: finding for finding in found}


@pytest.mark.parametrize("control", [True, False])
def test_levels_hand_individuals_over(control: bool) -> None:
    """At epsilon 8 a rule nearly everybody is linked, with a control group or without one."""
    found = attack(asked("levels", "8"), **({"strangers": STRANGERS} if control else {}))
    assert found[LINKED].value > 0.95
    assert found[LINKED].severity == "some"
    assert found[BITS].value > (found[BITS].baseline or 0)
    assert (
        "one answer" in found[BITS].harm and "answers" in found[LINKED].harm
    )  # of what is counted
    assert found[LINKED].detail["strangers"] == PEOPLE - (not control)


def test_a_rule_s_epsilon_understates_what_a_person_loses() -> None:
    """At epsilon 1 a rule more are linked than e times 1 %; the finding says what a person spent."""
    found = attack(asked("levels", "1"), strangers=STRANGERS)[LINKED]
    assert found.low is not None and found.low > found.detail["links that it suggests"]
    assert found.detail["epsilon of one rule"] == pytest.approx(1, abs=1e-6)
    rules = np.bincount(MEMBERS.holders, minlength=PEOPLE)
    assert found.detail["epsilon of a person, median"] == pytest.approx(np.median(rules), rel=1e-5)


@pytest.mark.parametrize("strategy", ["equal", "sampled"])
def test_protocols_that_protect_individuals_are_not_accused(strategy: str) -> None:
    """At epsilon 1 a person no more are linked than accused by chance, and that epsilon is stated."""
    found = attack(asked(strategy, "1"), strangers=STRANGERS)[LINKED]
    assert found.severity == "none" and found.value < 0.04
    assert found.detail["epsilon of a person, largest"] == pytest.approx(1, abs=0.01)


def test_books_of_people_who_never_answered_are_not_linked() -> None:
    """With the members' books in the strangers' place and theirs as the truth, nobody is found."""
    found = Linkage().run(asked("levels", "8"), {"cohort": STRANGERS, "strangers": MEMBERS})  # type: ignore[dict-item]
    assert found[0].severity == "none" and found[0].value < 0.04


def test_the_ratio_is_the_likelihood_s() -> None:
    """Against brute force over all answers: independent bits, and one template drawn in secret."""
    flip, held = 0.3, csr_array(np.array([[0.5, 0.25, 0.0], [0.0, 0.0, 1.0]]))
    bits = np.array([[1, 0], [0, 0], [1, 1]], bool)

    def chance(truth: np.ndarray, said: np.ndarray) -> float:
        return float(np.prod(np.where(truth == said, 1 - flip, flip)))

    got = BitResponses(np.arange(2), bits, flip, drawn=True).ratios(held)
    nothing, marks = np.zeros(3, bool), np.eye(3, dtype=bool)
    for person in range(2):
        said = bits[:, person]
        for book, marked in enumerate(held.toarray()):
            mixed = sum(m * chance(t, said) for m, t in zip(marked, marks, strict=True))
            mixed += (1 - marked.sum()) * chance(nothing, said)
            assert got[person, book] == pytest.approx(np.log(mixed / chance(nothing, said)), 1e-5)
    whole = csr_array(np.array([[1.0, 1.0, 0.0]]))
    got = BitResponses(np.arange(2), bits, flip).ratios(whole)
    expected = [
        np.log(chance(np.array([1, 1, 0], bool), said) / chance(nothing, said)) for said in bits.T
    ]
    assert got[:, 0] == pytest.approx(expected, 1e-5)


def test_one_s_own_book_is_one_of_all() -> None:
    """The same ratio as in the table of everybody against every book."""
    rng = np.random.default_rng(0)
    held = csr_array((rng.random((6, 9)) < 0.3) / 9.0)
    for drawn in (False, True):
        answers = BitResponses(np.arange(6), rng.random((9, 6)) < 0.5, 0.2, drawn)
        assert answers.own_ratios(held) == pytest.approx(np.diag(answers.ratios(held)), rel=1e-4)


@pytest.mark.parametrize("control", [True, False])
def test_of_a_large_cohort_some_are_judged(control: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many, against as many strangers; what is found is about the same."""
    monkeypatch.setattr(linkage, "JUDGED", 120)
    found = attack(asked("levels", "8"), **({"strangers": STRANGERS} if control else {}))[LINKED]
    assert found.value > 0.9
    assert found.detail["individuals judged"] == 120 < found.detail["individuals"] == PEOPLE


def test_single_bits_of_one_template_meet_the_mechanism_s_own_curve() -> None:
    """A bit flipped once in four finds at most e^epsilon = 3 times what it accuses falsely."""
    rng = np.random.default_rng(0)
    held = rng.random((1, 200_000)) < 0.5
    bits = held ^ (rng.random(held.shape) < 0.25)
    curve = SingleBits.of(BitResponses(np.arange(held.size), bits, 0.25), held).curve()
    assert curve.at(0.01) == pytest.approx(0.03, rel=0.03)
    assert curve.auc == pytest.approx(0.75, abs=0.01)


def test_standing_leaves_a_person_s_own_book_out() -> None:
    """Of the strangers', where NaN marks it; a constant row stands nowhere."""
    own, others = standardise(
        np.array([3.0, 1.0]), np.array([[np.nan, 0.0, 2.0], [1.0, np.nan, 1.0]])
    )
    assert own == pytest.approx([2.0, 0.0])
    assert sorted(others) == pytest.approx([-5.0, 0.0, 0.0, 1 / 3])
    assert 0 <= RocCurve.of(own, others).at(0.01) <= 1


@pytest.mark.parametrize("strangers", [1, 2, 5, 20])
def test_few_strangers_link_nobody_by_chance(strangers: int) -> None:
    """Bits of fair coins; an own book is first among few strangers' more often than at 1 %, and that is the guess."""
    rng, entries = np.random.default_rng(0), []
    for entry in asked("levels", "8"):
        part = entry.release.parts["bits"]
        coins = replace(part, units=(rng.random(part.units.shape) < 0.5).astype(part.units.dtype))
        entries.append(replace(entry, release=replace(entry.release, parts={"bits": coins})))
    few = [(s, p - PEOPLE, v) for s, p, v in BOOKS.entries() if 0 <= p - PEOPLE < strangers]
    outsiders = RuleIndex.indexed(BOOKS.grammar, strangers, few)
    found = attack(Transcript(tuple(entries)), strangers=outsiders)[LINKED]
    assert found.severity == "none" and found.baseline == 1 / (1 + strangers)
    assert found.detail["note"].endswith(f"one in {1 + strangers} is linked by chance")
    told = attack(asked("levels", "8"), strangers=outsiders)[LINKED]
    assert told.severity == "some" and told.value > 0.95


def changed(part: ReleasedPart) -> Transcript:
    """One question whose bits were put in another's place."""
    entry = next(iter(asked("levels", "8")))
    release = replace(entry.release, parts={"bits": part})
    return Transcript((replace(entry, release=release),))


@pytest.mark.parametrize(
    "units",
    [
        np.full((3, 3), "yes"),
        np.full((75, PEOPLE), np.nan),
        np.full((75, PEOPLE), 7),
        np.zeros((0, PEOPLE), bool),
        np.zeros(4, bool),
    ],
)
def test_foreign_bits_are_left_out(units: np.ndarray) -> None:
    """Text, numbers that are no bits, and wrong shapes give no finding and no crash."""
    noise = BitFlips(0.3)
    part = ReleasedPart(PartType.BITS, ("template", "individual"), units, noise=noise)
    assert attack(changed(part)) == {}
    flat = replace(part, units=np.zeros((75, PEOPLE), bool), noise=BitFlips(0.5))
    assert attack(changed(flat)) == {}


def test_nothing_to_read() -> None:
    """Empty transcripts, no truth, foreign fields, and a time that is up."""
    assert Linkage().run(Transcript()) == [] and not Linkage().attackable(Transcript())
    told = asked("levels", "8")
    assert Linkage().run(told) == []
    assert Linkage(time_limit=1e-9).run(told, {"cohort": MEMBERS}) == []  # type: ignore[dict-item]
    first = next(iter(told))
    foreign = TranscriptEntry(first.client, first.kind, b"nonsense", first.release)
    assert not Linkage().attackable(Transcript((foreign,)))
    assert attack(Transcript((foreign,))) == {}


def test_the_ratio_of_a_hashed_bit_is_the_likelihood_s() -> None:
    """Against brute force: a template is drawn by chance, its hash flipped now and then."""
    flip, held = 0.3, csr_array(np.array([[0.5, 0.25, 0.0], [0.0, 0.0, 1.0]]))
    mask, bits = np.array([[1, 0], [0, 0], [1, 1]], bool), np.array([[1, 0]], bool)
    answers = HashedResponses(np.arange(2), bits, flip, drawn=True, mask=mask)
    got, own = answers.ratios(held), answers.own_ratios(held)
    for person in range(2):
        for book, drawn in enumerate(held.toarray()):
            likely = flip + (1 - 2 * flip) * float(drawn @ mask[:, person])
            nothing = flip
            if not bits[0, person]:
                likely, nothing = 1 - likely, 1 - nothing
            assert got[person, book] == pytest.approx(np.log(likely / nothing), 1e-5)
    assert own == pytest.approx(np.diag(got), 1e-5)
    assert answers.of(np.array([False, True])).ratios(held) == pytest.approx(got[1:], 1e-6)


def test_hashes_are_read_for_what_they_say() -> None:
    """One bit of a person: nobody is linked by it, yet whoever was drawn leans to the own book."""
    areas = {}
    for epsilon in ("1", "12"):
        search = RuleSearch(
            "sampled",
            epsilon=epsilon,
            min_support=0.02,
            max_operators=3,
            slots=4,
            encoding="hashed",
        )
        found = attack(answered(search, epsilon), strangers=STRANGERS)[LINKED]
        assert found.releases == ("rule_search.hashed",)
        assert found.detail["epsilon of a person, largest"] == pytest.approx(
            float(epsilon), abs=0.01
        )
        areas[epsilon] = found.detail["area under the curve"]
        assert epsilon != "1" or (found.severity == "none" and found.value < 0.04)
    assert areas["12"] > 0.54 and areas["12"] > areas["1"]
