"""Expected rates in closed form: against draws, on whole numbers, with ties by a coin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privfed.attacks.roc import (
    RATES,
    RocCurve,
    at_most,
    auc_p_value,
    discrete,
    exposure,
    gaussian_auc,
    gaussian_tpr,
    interval,
    mean_points,
)
from privfed.errors import InputError
from privfed.privacy.laws import BitFlips, DiscreteGaussian, DiscreteLaplace, law_of
from privfed.privacy.noise import TestNoise


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_gaussian_rates_are_those_of_draws(mu: float) -> None:
    """200,000 members and others each."""
    rng = np.random.default_rng(1)
    curve = RocCurve.of(rng.normal(mu, 1, 200_000), rng.normal(0, 1, 200_000))
    assert curve.auc == pytest.approx(gaussian_auc(mu), abs=0.004)
    for rate in (0.01, 0.1):
        assert curve.at(rate) == pytest.approx(gaussian_tpr(mu, rate), abs=0.006)


@pytest.mark.parametrize(("law", "size"), [("gaussian", 1.0), ("gaussian", 3.0), ("laplace", 1.0)])
def test_whole_numbers_are_accused_by_a_coin_where_they_tie(law: str, size: float) -> None:
    """What is computed is what an attacker gets, at a rate between two whole numbers too."""
    shift = int(size)
    noise = getattr(TestNoise(3), law)(400_000, size)
    curve = RocCurve.of(noise[:200_000] + shift, noise[200_000:])
    exact = discrete(law_of(law, repr(size)), shift)
    assert exact.auc == pytest.approx(curve.auc, abs=0.004)
    for rate in (0.01, 0.1):
        assert exact.at(rate) == pytest.approx(curve.at(rate), abs=0.006)


def test_a_count_with_noise_of_mu_one_gives_a_twelfth() -> None:
    """.083 at 1 %: a strict threshold would give .058, continuous noise .092."""
    found = discrete(DiscreteGaussian(1.0), 1)
    assert found.at(0.01) == pytest.approx(0.083, abs=0.001)
    assert gaussian_tpr(1.0, 0.01) == pytest.approx(0.092, abs=0.001)


def test_laplace_noise_attains_its_epsilon() -> None:
    """Its curve is e^epsilon steep at the start, whatever the shift."""
    for scale, shift in ((1.0, 1), (5.0, 5), (2.0, 4)):
        ratio = np.exp(shift / scale)
        assert discrete(DiscreteLaplace(scale), shift).at(0.01) == pytest.approx(0.01 * ratio)


def test_wide_noise_is_continuous() -> None:
    """On a fine grid the discrete law's rates are the closed form's."""
    found = discrete(DiscreteGaussian(200.0), 300)
    assert found.auc == pytest.approx(gaussian_auc(1.5), abs=1e-4)
    assert found.at(0.01) == pytest.approx(gaussian_tpr(1.5, 0.01), abs=1e-3)


def test_intervals_are_those_of_clopper_and_pearson() -> None:
    """By their closed form at the ends."""
    assert interval(0, 20) == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert interval(20, 20) == (pytest.approx(0.025 ** (1 / 20)), 1.0)


@pytest.mark.parametrize("trials", [3, 40, 997])
def test_many_bounds_at_once_are_each_alone(trials: int) -> None:
    """To the bit, from none to all; what cannot be counted is refused as before."""
    hits = np.resize(np.arange(trials + 1), 1000)
    alone = [float(at_most(int(each), trials, 0.01)) for each in hits[: trials + 1]]
    assert (at_most(hits, trials, 0.01) == np.resize(alone, 1000)).all()
    assert at_most(hits / 2, trials, 0.01)[1] < alone[1]
    with pytest.raises(InputError, match="0 <= hits <= trials"):
        at_most(hits + 1, trials, 0.01)


def test_ties_and_ends() -> None:
    """Equal scores find as many as they accuse; sure ones find all of them at once."""
    same = RocCurve.of(np.zeros(5), np.zeros(7))
    assert same.auc == 0.5 and same.at(0.3) == pytest.approx(0.3)
    sure = RocCurve.of(np.ones(5), np.zeros(7))
    assert sure.auc == 1.0 and sure.at(0.0) == 1.0


def test_nonsense_is_refused() -> None:
    """No scores, NaN, unknown laws and noise of no size."""
    calls: list[Callable[[], object]] = [
        lambda: RocCurve.of(np.empty(0), np.ones(3)),
        lambda: RocCurve.of(np.ones(3), np.array([np.nan])),
        lambda: discrete(BitFlips(0.3), 1),
        lambda: discrete(DiscreteLaplace(0.0), 1),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()


def test_a_record_is_exposed_by_those_who_score_as_high() -> None:
    """Counted one by one, itself among them; of nobody nothing is known."""
    members, others = np.array([3.0, 1.0, 9.0]), np.array([1.0, 2.0, 3.0, 4.0])
    by_hand = [(1 + sum(other >= member for other in others)) / 5 for member in members]
    assert exposure(members, others).tolist() == by_hand
    assert np.isnan(exposure(members, others[:0])).all()


def test_a_record_like_the_others_is_exposed_at_no_rate_more_often_than_that() -> None:
    """Of exchangeable scores at most a share a of records is found at a."""
    rng = np.random.default_rng(0)
    found = np.concatenate([exposure(rng.normal(size=1), rng.normal(size=99)) for _ in range(4000)])
    for rate in (0.01, 0.05, 0.5):
        assert (found <= rate).mean() == pytest.approx(rate, abs=4 * np.sqrt(rate / 4000))


def test_points_are_the_curve_at_three_rates() -> None:
    """Down to one in a thousand; of several curves their weighted means."""
    low = RocCurve.of(np.arange(1000.0), np.arange(1000.0))
    high = RocCurve.of(np.arange(1000.0) + 2000, np.arange(1000.0))
    assert high.points == {"0.1 %": 1.0, "1 %": 1.0, "10 %": 1.0}
    assert low.points == pytest.approx({"0.1 %": 0.001, "1 %": 0.01, "10 %": 0.1})
    assert mean_points([low, high], [3, 1])["10 %"] == pytest.approx(0.325)


@pytest.mark.parametrize("rate", RATES)
def test_a_step_at_a_rate_is_told_whatever_the_number_of_outsiders(rate: float) -> None:
    """A member above all outsiders but exactly that share of them is found at that rate."""
    for number in range(1000, 9001, 200):
        missed = round(rate * number)
        member = np.array([number - missed - 0.5])
        if missed == pytest.approx(rate * number):
            assert RocCurve.of(member, np.arange(number, dtype=float)).at(rate) == 1


@pytest.mark.parametrize(("members", "outsiders"), [(1, 1), (3, 4), (5, 5), (30, 40)])
def test_chance_gives_so_large_an_area_no_more_often_than_told(
    members: int, outsiders: int
) -> None:
    """At every level that 20,000 draws can show, all pairs told apart among them."""
    scores = np.random.default_rng(0).random((20_000, members + outsiders))
    ranks = scores.argsort(axis=1).argsort(axis=1)[:, :members] + 1
    areas = (ranks.sum(axis=1) - members * (members + 1) / 2) / (members * outsiders)
    told = {area: auc_p_value(area, members, outsiders) for area in np.unique(areas)}
    chances = np.array([told[area] for area in areas])
    for level in (0.3, 0.1, 0.05, 0.01, 0.002):
        assert np.mean(chances <= level) <= level + 5 * np.sqrt(level / 20_000)
