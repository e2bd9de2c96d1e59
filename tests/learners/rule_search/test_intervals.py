"""Exact limits cover the truth where the normal law does not, and agree with it where it does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privfed.errors import InputError
from privfed.learners.rule_search.estimate import SupportEstimate, at_most, exact_limits


def _answers(people: int, holders: int, flip: float, draws: int) -> np.ndarray:
    rng = np.random.default_rng(people + holders)
    yes = rng.binomial(holders, 1 - flip, draws) + rng.binomial(people - holders, flip, draws)
    return np.asarray(yes)


def _coverage(people: int, holders: int, flip: float, level: float) -> tuple[float, float]:
    """Shares of 2,000 exact and normal intervals that hold the truth; limits once per answer."""
    drawn, times = np.unique(_answers(people, holders, flip, 2000), return_counts=True)
    std = float(np.sqrt(people * flip * (1 - flip)) / (1 - 2 * flip))
    estimate = (drawn - people * flip) / (1 - 2 * flip)
    counts = SupportEstimate(estimate, std, people, flip)
    shares = []
    for low, high in (counts.exact_interval(level), counts.interval(level)):
        shares.append(float(times[(low <= holders) & (holders <= high)].sum() / 2000))
    return shares[0], shares[1]


@pytest.mark.parametrize("holders", [0, 1, 12, 60])
@pytest.mark.parametrize("flip", [0.018, 0.27, 0.45])
def test_exact_limits_cover_at_least_at_their_level(holders: int, flip: float) -> None:
    """Sixty individuals, from epsilon 4 to 0.2: at 90 %, no fewer than 88 of 100 cover."""
    exact, _ = _coverage(60, holders, flip, 0.9)
    assert exact >= 0.88


def test_the_normal_law_fails_where_the_exact_limits_hold() -> None:
    """The power twin: at 30 individuals and epsilon 6 the same test convicts normal intervals.

    Nobody lies about 93 times in 100, and then the normal interval is too narrow for a lie.
    """
    exact, normal = _coverage(30, 1, 1 / (1 + np.exp(6)), 0.99)
    assert normal < 0.95
    assert exact > 0.985


def test_many_individuals_give_the_normal_limits() -> None:
    """At 40,000 the exact limits are the normal ones, to a few hundredths of their width."""
    people, flip = 40_000, 0.27
    std = float(np.sqrt(people * flip * (1 - flip)) / (1 - 2 * flip))
    counts = SupportEstimate(np.array([400.0]), std, people, flip)
    exact, normal = np.array(counts.exact_interval())[:, 0], np.array(counts.interval())[:, 0]
    assert exact == pytest.approx(normal, abs=0.05 * std)


@pytest.mark.parametrize(("people", "holders", "flip"), [(7, 3, 0.2), (12, 0, 0.4), (9, 9, 0.1)])
def test_the_mixture_s_law_is_the_convolution(people: int, holders: int, flip: float) -> None:
    """At every value, against a sum over both binomials."""
    ours = [at_most(most, holders, people, flip) for most in range(-1, people + 1)]
    one = stats.binom.pmf(np.arange(people + 1), holders, 1 - flip)
    other = stats.binom.pmf(np.arange(people + 1), people - holders, flip)
    whole = np.convolve(one, other)[: people + 1]
    assert ours == pytest.approx([0.0, *np.cumsum(whole)], abs=1e-12)


def test_without_noise_the_limits_are_the_count() -> None:
    """Flips that never happen leave nothing to doubt."""
    assert exact_limits(7, 20, 0.0) == (7, 7)


@pytest.mark.parametrize(
    ("yes", "people", "flip", "level"),
    [(5, 4, 0.1, 0.95), (-1, 4, 0.1, 0.95), (0, 0, 0.1, 0.95), (1, 4, 0.5, 0.95),
     (1, 4, float("nan"), 0.95), (1, 4, 0.1, 1.0)],
)  # fmt: skip
def test_limits_of_nonsense(yes: int, people: int, flip: float, level: float) -> None:
    """More answers than people, flips of a fair coin, or certainty: one clear error."""
    with pytest.raises(InputError, match="interval needs"):
        exact_limits(yes, people, flip, level)


def test_two_questions_have_no_exact_limits() -> None:
    """A combined estimate says that the normal interval is the one to take."""
    one = SupportEstimate(np.array([3.0]), 1.0, 10, 0.2)
    with pytest.raises(InputError, match="one question"):
        one.combined(SupportEstimate(np.array([4.0]), 1.0, 10, 0.2)).exact_interval()
