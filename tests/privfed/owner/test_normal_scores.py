"""Draws of a law become standard normal numbers, whatever the law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, norm

from privfed.owner.noise_monitor import normal_scores, silent
from privfed.privacy.laws import BitFlips, DiscreteGaussian, DiscreteLaplace, Law, SumOfGaussians
from privfed.privacy.noise import TestNoise
from tests.own_law import HeavyTails

LAWS: list[Law] = [
    DiscreteLaplace(0.3),
    DiscreteLaplace(7.5),
    DiscreteLaplace(2.0**40),
    DiscreteGaussian(0.4),
    DiscreteGaussian(6.0),
    DiscreteGaussian(2.0**35),
    SumOfGaussians(400.0, 3, 5, 10),
    BitFlips("1/4"),
    HeavyTails(2.0**10),
    HeavyTails(2.0**22),
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_draws_of_the_law_are_standard_normal(law: Law) -> None:
    """By Kolmogorov and Smirnov's distance, at a level of one in a million."""
    drawn = law.draw(TestNoise(3), 20_000)
    scores = normal_scores(law, drawn.astype(np.int64), np.random.default_rng(4))
    assert kstest(scores, norm.cdf).pvalue > 1e-6


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_draws_of_another_law_are_not(law: Law) -> None:
    """Noise that is narrower by a fifth shows; of bits, a coin of 1/5."""
    narrower = (
        BitFlips("1/8")
        if isinstance(law, BitFlips)
        else type(law)(law.parameter / 1.25, *law.parameters[1:])
    )
    drawn = narrower.draw(TestNoise(5), 20_000)
    scores = normal_scores(law, drawn.astype(np.int64), np.random.default_rng(6))
    assert kstest(scores, norm.cdf).pvalue < 1e-6


@pytest.mark.parametrize("law", [DiscreteLaplace(2.0**20), DiscreteGaussian(5.0)], ids=repr)
def test_far_draws_have_finite_scores_in_order(law: Law) -> None:
    """No draw is lost in a tail."""
    far = np.array([-(2**60), -40, 0, 40, 2**60])
    scores = normal_scores(law, far, np.random.default_rng(0))
    assert np.isfinite(scores).all() and (np.diff(scores) >= 0).all()


def test_the_probability_of_no_noise() -> None:
    """By the law's own mass at zero."""
    assert silent(BitFlips("1/4")) == pytest.approx(0.75)
    assert silent(DiscreteLaplace(1.0)) == pytest.approx(np.tanh(0.5))
