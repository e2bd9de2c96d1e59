"""Risks in words: against closed forms, and against the library that computes the same otherwise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privfed.accountants import pld
from privfed.accountants.approximate import ApproximateZeroConcentrated
from privfed.accountants.pure import PureEpsilon
from privfed.accountants.risk import Risk, Subject, Tradeoff, largest_epsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import InputError
from privfed.privacy.accountant import Accountant, Amount
from privfed.privacy.laws import BitFlips, Charged, DiscreteGaussian, DiscreteLaplace
from privfed.privacy.loss import Loss

RATES = (0.001, 0.01, 0.1)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)


def curve(*losses: Loss) -> Tradeoff:
    """The trade-off curve of composed releases, from their privacy loss distribution."""
    return Tradeoff.of(pld.distribution(pld.pairs(losses), 1e-3))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_agrees_with_its_closed_form(epsilon: float) -> None:
    """TPR = min(e^eps FPR, 1 - e^-eps (1 - FPR)); advantage tanh(eps / 2)."""
    flip = 1 / (1 + math.exp(epsilon))
    law = Charged(BitFlips(str(int(flip * 2**64)) + f"/{2**64}"), 1)
    for ours in (curve(Loss.pure(str(epsilon), law)), Tradeoff.pure(epsilon)):
        for rate in RATES:
            exact = min(math.exp(epsilon) * rate, 1 - math.exp(-epsilon) * (1 - rate))
            assert ours.found(rate) == pytest.approx(exact, abs=1e-3)
        assert ours.advantage == pytest.approx(math.tanh(epsilon / 2), abs=1e-3)
        assert ours.area == pytest.approx(1 - flip, abs=2e-3) and ours.area >= 1 - flip - 1e-9


@pytest.mark.parametrize("power", range(20))
def test_an_advantage_is_never_stated_below_its_own(power: int) -> None:
    """tanh(eps / 2): of 1e-12 "at most 0 %" was stated."""
    epsilon = 10.0**-power
    assert math.tanh(epsilon / 2) <= Tradeoff.pure(epsilon).advantage <= epsilon / 2 + 1e-14
    assert Tradeoff.pure(0).advantage == 0


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_agrees_with_its_closed_form(epsilon: float) -> None:
    """Of continuous noise: e^eps FPR while that is at most 1/2, then e^-eps / (4 FPR) is missed."""
    law = Charged(DiscreteLaplace(100000 / epsilon), 100000)
    ours = curve(Loss.pure(str(epsilon), law))
    for rate in RATES:
        low = math.exp(epsilon) * rate
        exact = low if low <= 0.5 else 1 - math.exp(-epsilon) / (4 * rate)
        assert ours.found(rate) == pytest.approx(exact, abs=1e-3)
    assert ours.advantage == pytest.approx(1 - math.exp(-epsilon / 2), abs=1e-3)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0])
def test_gaussian_agrees_with_its_closed_form(mu: float) -> None:
    """TPR = Phi(Phi^-1(FPR) + mu); advantage 2 Phi(mu / 2) - 1; ten releases add up in squares."""
    loss = Loss.zcdp(str(mu**2 / 20), Charged(DiscreteGaussian(1000 * math.sqrt(10) / mu), 1000000))
    ours = curve(*pld_bucket(loss, 10))
    for rate in RATES:
        assert ours.found(rate) == pytest.approx(norm.cdf(norm.ppf(rate) + mu), abs=1e-3)
    assert ours.advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1, abs=1e-3)
    assert ours.area == pytest.approx(norm.cdf(mu / math.sqrt(2)), abs=2e-3)


def pld_bucket(loss: Loss, times: int) -> list[Loss]:
    """Equal releases."""
    return [loss] * times


@pytest.mark.parametrize("rho", [0.005, 0.1, 1.0])
def test_zcdp_risks_bound_those_of_the_gaussian(rho: float) -> None:
    """The conversion of a zCDP statement is valid, and so never below Gaussian noise of that rho."""
    bound, mu = Tradeoff.zcdp(rho), math.sqrt(2 * rho)
    for rate in RATES:
        exact = norm.cdf(norm.ppf(rate) + mu)
        assert exact - 1e-9 <= bound.found(rate) < 2 * exact
        assert Tradeoff.zcdp(rho / 4).found(rate) < exact  # a rho stated too small is caught
    assert 2 * norm.cdf(mu / 2) - 1 <= bound.advantage


def test_zcdp_says_far_less_risk_than_its_conversion_to_one_statement() -> None:
    """At epsilon 8 and 1e-5 the curve of all statements and orders, against the single one."""
    total = (Fraction(12, 10), Fraction(0))
    epsilon = float(ZeroConcentrated().guarantee(total, Fraction(1, 10**5))[0])
    assert Tradeoff.of_total(ZeroConcentrated(), total).found(0.01) < 0.4
    assert Tradeoff.approximate(epsilon, 1e-5).found(0.01) > 0.9


@pytest.mark.parametrize(
    ("accountant", "total", "found"),
    [
        (PureEpsilon(), (Fraction(1), Fraction(0)), 0.01 * math.e),
        (ApproximateZeroConcentrated(), (Fraction(0), Fraction(1, 1000)), 0.011),
        (ZeroConcentrated(), (Fraction(0), Fraction(0)), 0.01),
        (ZeroConcentrated(), (Fraction(10**6), Fraction(0)), 1.0),
    ],
)
def test_every_accountants_total_has_a_curve(
    accountant: Accountant, total: Amount, found: float
) -> None:
    """Pure, approximate, nothing at all, and as good as no guarantee."""
    assert Tradeoff.of_total(accountant, total).found(0.01) == pytest.approx(found, abs=1e-6)


@given(st.floats(1e-4, 5), st.floats(0.001, 0.3), st.floats(1.0, 4.0))
@settings(max_examples=25)
def test_more_loss_is_never_less_risk(rho: float, rate: float, factor: float) -> None:
    """The bound rises with rho, and stays above Gaussian noise's."""
    one, other = Tradeoff.zcdp(rho).found(rate), Tradeoff.zcdp(rho * factor).found(rate)
    assert norm.cdf(norm.ppf(rate) + math.sqrt(2 * rho)) - 1e-9 <= one <= other + 1e-7


def test_posteriors_follow_bayes() -> None:
    """From even odds pure epsilon gives e^eps / (1 + e^eps); a smaller prior gives less."""
    for epsilon in EPSILONS:
        ours = Tradeoff.pure(epsilon)
        assert ours.posterior(0.5) == pytest.approx(1 / (1 + math.exp(-epsilon)), abs=1e-6)
        odds = 0.01 / 0.99 * math.exp(epsilon)
        assert ours.posterior(0.01) == pytest.approx(odds / (1 + odds), abs=1e-6)
        assert ours.posterior(0.01, 0.1) <= ours.posterior(0.01) + 1e-12


def test_composed_counts_are_far_from_their_basic_sum() -> None:
    """A hundred counts at epsilon 0.05: basic composition says .99, the curve about .034."""
    ours = Risk.of(curve(*[Loss.pure("0.05", Charged(DiscreteLaplace("20.0"), 1))] * 100))
    assert ours.found[0.01] == pytest.approx(0.034, abs=2e-3)
    assert ours.advantage == pytest.approx(0.197, abs=2e-3)
    assert Risk.of(Tradeoff.pure(5)).found[0.01] > 0.95


def test_no_guarantee_and_no_release_are_the_extremes() -> None:
    """Epsilon 0 is guessing; delta 1 is everything."""
    nothing, all_ = Tradeoff.pure(0), Tradeoff.approximate(0, 1)
    assert nothing.found(0.01) == pytest.approx(0.01) and nothing.advantage == pytest.approx(0)
    assert all_.found(0.01) == 1.0 and all_.reconstructed(0.01) == 1.0


def test_missing_falls_as_accusing_rises() -> None:
    """A trade-off curve is decreasing, convex and below 1 - alpha."""
    alpha = np.linspace(0, 1, 301)
    for ours in (curve(Loss.pure("1", Charged(DiscreteLaplace("9.0"), 9))), Tradeoff.zcdp(0.3)):
        missed = ours.fnr(alpha)
        assert (np.diff(missed) <= 1e-12).all() and (missed <= 1 - alpha + 1e-12).all()
        assert (np.diff(missed, 2) >= -1e-9).all()


def test_sentences_carry_the_figures() -> None:
    """An officer reads percentages."""
    words = " ".join(Risk.of(Tradeoff.pure(1)).sentences())
    assert "flags 1 % of the records that were not used identifies at most 2.72 %" in words
    assert "of any attack is at most 46.3 %" in words


def test_where_nothing_is_told_the_best_attack_finds_as_many_as_it_accuses() -> None:
    """At epsilon 0 one in a hundred is one in a hundred, and not the next figure above."""
    words = " ".join(Risk.of(Tradeoff.pure(0)).sentences())
    assert "flags 1 % of the records that were not used identifies at most 1 % of" in words
    assert "1.01" not in words and "0.101" not in words


def test_sentences_speak_of_what_is_protected() -> None:
    """A person takes part, and a rule is used."""
    risk = Risk.of(Tradeoff.pure(1))
    rules = " ".join(risk.sentences(Subject("rule", "rules")))
    assert "of the rules that were not used identifies" in rules and "record" not in rules
    people = " ".join(risk.sentences(Subject("person", "people", person=True)))
    assert "of the people who took no part identifies" in people and "those who did" in people
    assert "all suspected people took part" in people and "A person's data with" in people


@pytest.mark.parametrize("prior", [0, 1, -0.5, float("nan"), 2])
def test_a_prior_is_a_share(prior: float) -> None:
    """A prior outside of (0, 1) is one clear error."""
    with pytest.raises(InputError, match="prior must lie between 0 and 1"):
        Tradeoff.pure(1).posterior(prior)


def test_two_steps_are_a_person_s_other_answer() -> None:
    """Group privacy: randomized response flipped twice attains it."""
    curve = Tradeoff.approximate(1.0, 1e-3).two()
    assert curve.epsilon[0] == 2 and curve.delta[0] == pytest.approx((1 + np.e) * 1e-3)
    assert Tradeoff.pure(1.0).two().found(0.01) == pytest.approx(Tradeoff.pure(2.0).found(0.01))


@pytest.mark.parametrize("found", [0.02, 0.05, 0.5, 0.9])
def test_the_largest_epsilon_keeps_to_the_odds_and_hardly_more_would(found: float) -> None:
    """There and back, from below."""
    most = largest_epsilon(found, 1e-5, 0.01)
    assert Tradeoff.approximate(most, 1e-5).found(0.01) <= found
    assert Tradeoff.approximate(most + 1e-6, 1e-5).found(0.01) > found


def test_odds_that_guessing_has_are_refused() -> None:
    """One of a hundred is found by accusing one of a hundred."""
    with pytest.raises(InputError, match="by guessing"):
        largest_epsilon(0.01, 1e-5, 0.01)


def test_odds_are_said_of_a_hundred_people() -> None:
    """Membership, one answer with its base rate, and delta once, where there is one."""
    said = Tradeoff.approximate(1.0, 1e-5).in_odds(0.01, 0.1)
    assert "finds at most 2.72 of 100 people" in said[0] and "at most 45.1 times" in said[1]
    # A release of all records with probability delta is (0, delta)-private: whoever is hit, all may be.
    assert "no protection at all on average, or all of them at once" in said[2]
    assert len(said) == 3 and len(Tradeoff.pure(1.0).in_odds(0.01, 0.1)) == 2
