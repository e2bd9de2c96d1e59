"""Prices: what is planned costs what the ledger later says, and no record is needed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from privfed.engines.local import LocalDisclosure
from privfed.errors import PolicyError
from privfed.learners.base import Planned
from privfed.mechanisms.laplace import Laplace
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import accountant_of
from privfed.questions.part import Bound, Unit
from privfed.questions.query import LocalEffect, LocalView
from privfed.study.price import percent_of, price, priced
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram, LevelSums

SCHEMA = Schema((Column("age", lower=0, upper=100),), Column("risk", lower=0, upper=1))
COUNTS = Histogram(0, (0.0, 50.0, 100.0))
PLAN = (Planned(COUNTS, 3),)


def _policy(*guards: Guard, **settings: Any) -> Policy:
    return Policy({COUNTS.kind: guards}, name="own", **settings)


def test_a_plan_costs_its_times() -> None:
    """Three histograms at a tenth are exactly three tenths, and fit a budget of 0.3."""
    policy = _policy(Guard.of("laplace", spend="0.1"), budget=Budget.of("0.3"))
    found = price(PLAN, SCHEMA, policy)
    assert found.epsilon == Fraction(3, 10)
    assert found.fits
    assert not price((Planned(COUNTS, 4),), SCHEMA, policy).fits


def test_the_unit_is_named_once() -> None:
    """A client is no client of a client."""
    settings: dict[str, Any] = {"unit": "client", "cap": 3, "budget": Budget.of("1")}
    text = priced(price(PLAN, SCHEMA, _policy(Guard.of("laplace", spend="0.1"), **settings)))
    assert ", for each client\n" in text


def test_the_price_is_what_the_ledger_says_afterwards() -> None:
    """Running the whole plan spends the price to the last digit."""
    policy = Policy(
        {"small.level": (Guard.of("gaussian", spend="0.02"),)},
        accountant="zcdp",
        budget=Budget.of("2", "1e-5"),
    )
    plan = (Planned(LevelSums(((),)), 2),)
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"site": "a", "age": rng.uniform(0, 100, 30), "risk": rng.random(30)})
    federation = LocalDisclosure.from_frame(
        frame, "risk", client="site", schema=SCHEMA, policy=policy
    )
    for planned in plan:
        for _ in range(planned.times):
            federation.ask(planned.query)
    gate = federation.gates["a"]
    assert gate.ledger.spent(gate.accountant).total == price(plan, SCHEMA, policy).amount


def test_what_one_answer_may_cost_beyond_its_line_is_told() -> None:
    """A guard's cap is the most of one answer, whatever the line of its kind says."""
    policy = _policy(Guard.of("laplace", spend="0.1", cap="0.3"), budget=Budget.of("0.3"))
    assert f"one answer then costs at most: {COUNTS.kind} epsilon 0.3" in priced(
        price(PLAN, SCHEMA, policy)
    )
    fixed = _policy(Guard.of("laplace", spend="0.1"), budget=Budget.of("0.3"))
    assert "what others leave over" not in priced(price(PLAN, SCHEMA, fixed))


def test_what_is_spent_together_is_paid_once() -> None:
    """A budget for as many questions as it buys is the price, and the line says so."""
    policy = _policy(Guard.of("laplace", spend="0.1", cap="2"), budget=Budget.of("2"))
    found = price((Planned(COUNTS, 1, Fraction(2), together=True),), SCHEMA, policy)
    assert found.epsilon == 2
    assert [line["together"] for line in found.to_dict()["lines"]] == [True]
    assert "what others leave over" not in priced(found)


def test_what_is_left_is_rounded_down_and_a_float_s_last_bit_is_nothing() -> None:
    """Never more than there is, and no share such as 7e-12 % of a budget that is spent."""
    whole = (Fraction(1),)
    for taken, told in ((1 - Fraction(1, 10**13), "0 %"), (Fraction(1, 3), "66.6 %")):
        assert percent_of((taken,), whole, rest=True) == told
    assert percent_of((Fraction(1, 3),), whole) == "33.4 %"


def test_unprotected_releases_are_counted_and_have_no_price() -> None:
    """One open guard, and there is no epsilon for any of it."""
    found = price(PLAN, SCHEMA, _policy(Guard.of("open")))
    assert found.epsilon is None
    assert found.unprotected == 3
    assert found.to_dict()["epsilon"] is None


def test_what_a_policy_does_not_name_or_refuses_costs_nothing() -> None:
    """Unknown kinds and explicit refusals are lines without a loss."""
    for policy in (Policy({}), _policy(Guard.of("refuse"))):
        (line,) = price(PLAN, SCHEMA, policy).lines
        assert line.loss is None
        assert price(PLAN, SCHEMA, policy).unprotected == 0


@pytest.mark.parametrize("policy", [Policy({}), _policy(Guard.of("refuse"))])
def test_where_nothing_would_leave_the_price_says_so(policy: Policy) -> None:
    """A refusal is neither a guarantee nor the lack of one."""
    found = price(PLAN, SCHEMA, policy)
    assert found.silent and found.epsilon == 0
    assert "NOTHING WOULD BE RELEASED" in priced(found)
    assert "GUARANTEE" not in priced(found)


def test_what_stays_with_the_client_alone_releases_nothing() -> None:
    """A policy of local effects has no unprotected release to be counted."""

    @dataclass(frozen=True)
    class Keep(LocalEffect):
        kind: ClassVar[str] = "test.keep"

        def take_effect(self, view: LocalView) -> None: ...

    policy = Policy({Keep.kind: (Guard.of("open"),)})
    found = price((Planned(Keep(), 1),), SCHEMA, policy)
    assert found.silent and [line.mechanism for line in found.lines] == ["stays"]
    assert "NOTHING WOULD BE RELEASED" in priced(found)


def test_a_plan_without_a_budget_has_the_epsilon_that_reports_will_state() -> None:
    """It is an odometer's, at its delta, and nothing holds the study to it."""
    policy = _policy(Guard.of("laplace", spend="0.1"))
    found = price(PLAN, SCHEMA, policy)
    stated = accountant_of(policy).stated(found.amount, None)
    assert (found.epsilon, found.delta) == (stated.epsilon, stated.delta)
    assert "if queried as planned: no budget enforces it" in priced(found)


def test_a_guards_limit_limits_the_price() -> None:
    """What is answered twice is paid twice, however often it is planned."""
    found = price(PLAN, SCHEMA, _policy(Guard.of("laplace", spend="0.1", times=2)))
    assert found.amount[0] == Fraction(2, 10)


def test_limits_are_held_against_the_plan() -> None:
    """Three tenths exceed two per kind, and one tenth a round's twentieth; others may not apply."""
    guard = Guard.of("laplace", spend="0.1")
    limits = (
        Limit(("kind",), Budget.of("0.2")),
        Limit(("study", "round"), Budget.of("0.05")),
        Limit(("month",), Budget.of("0.3")),
        Limit(("month",), Budget.of("0.01"), {"study": "another"}),
    )
    found = price(PLAN, SCHEMA, _policy(guard, budget=Budget.of(1), limits=limits))
    assert found.fits
    assert found.over == (
        "its limit of epsilon 0.2 per kind for small.histogram",
        "its limit of epsilon 0.05 per study, round",
    )


def test_an_answer_larger_than_the_policy_allows_is_told() -> None:
    """Two cells where one is allowed: the gate refuses each of the three, and the price says so beforehand."""
    policy = _policy(Guard.of("laplace", spend="0.1"), budget=Budget.of(1), cells=1)
    found = price(PLAN, SCHEMA, policy)
    assert found.over == ("its largest answer, 1 cells (small.histogram has 2)",)
    assert "queries will be refused" in priced(found)


def test_a_limit_that_could_never_apply_is_an_error() -> None:
    """A kind that no guard answers is a slip of the pen."""
    limits = (Limit(("study",), Budget.of("0.2"), {"kind": "small.histogrma"}),)
    with pytest.raises(PolicyError, match=r"'small\.histogrma', which no guard answers"):
        price(PLAN, SCHEMA, _policy(Guard.of("laplace", spend="0.1"), limits=limits))
    with pytest.raises(PolicyError, match='model = "local" or "central"'):
        Limit(("study",), Budget.of("0.2"), {"model": "centrl"})


def test_a_guard_of_a_part_that_does_not_exist_is_an_error() -> None:
    """The parts that there are stand in the message."""
    with pytest.raises(PolicyError, match="names the part 'sums'; its parts are counts"):
        price(PLAN, SCHEMA, _policy(Guard.of("laplace", "sums", spend="0.1")))


def test_a_mechanism_that_cannot_protect_is_an_error() -> None:
    """Randomized response protects bits; counts are none."""
    with pytest.raises(PolicyError, match="cannot protect counts"):
        price(PLAN, SCHEMA, _policy(Guard.of("randomized_response", spend="1")))


def test_an_error_of_a_mechanisms_price_names_it() -> None:
    """A law's parameter that is no number came from a plugin's scale, or from its option."""

    class Vague(Laplace):
        name: ClassVar[str] = "vague"

        def scale(self, bound: Bound, spend: Fraction) -> float:
            return "wide"  # type: ignore[return-value]

    with pytest.raises(PolicyError, match="mechanism 'vague': a law's parameters are finite"):
        price(PLAN, SCHEMA, _policy(Guard.of(Vague(), spend="1")))


def test_a_spend_too_small_for_any_noise_is_an_error() -> None:
    """Bad input with the policy, the mechanism and the kind; no fault of privfed's own."""
    policy = _policy(Guard.of("laplace", spend="1e-30"))
    with pytest.raises(PolicyError, match=r"policy 'own': mechanism 'laplace' has no noise for"):
        price(PLAN, SCHEMA, policy)


def test_an_accountant_that_cannot_compose_is_an_error() -> None:
    """Gaussian noise has no pure epsilon."""
    with pytest.raises(PolicyError, match='write accountant = "zcdp"'):
        price(PLAN, SCHEMA, _policy(Guard.of("gaussian", spend="0.1")))


@pytest.mark.parametrize(("unit", "told"), [("rule", True), ("record", False)])
def test_a_rule_s_price_says_what_a_person_pays(unit: Unit, told: bool) -> None:
    """Ten rules of one person cost ten times what one does."""
    policy = _policy(Guard.of("laplace", spend="0.1"), budget=Budget.of("0.3"), unit=unit)
    text = priced(price(PLAN, SCHEMA, policy))
    assert ("10 rules of one person cost at most epsilon 3" in text) == told
