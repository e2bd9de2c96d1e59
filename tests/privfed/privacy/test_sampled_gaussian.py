"""What private training costs by its settings: held to its exact loss distribution, and to plain Gaussian noise."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant
from scipy.special import logsumexp
from scipy.stats import norm

from privfed.errors import InputError
from privfed.privacy.conversion import to_epsilon
from privfed.privacy.sampled_gaussian import sampled_gaussian

SETTINGS = [(2.5, 1 / 24, 24), (0.8, 0.05, 10), (4.0, 1.0, 10)]
DELTA = 1e-6


def exact_epsilons(noise: float, rate: float, steps: int, deltas: list[float]) -> list[float]:
    """Of so many steps, by their loss distribution."""
    one = from_gaussian_mechanism(noise, value_discretization_interval=3e-4, sampling_prob=rate)
    composed = one.self_compose(steps)
    return [composed.get_epsilon_for_delta(delta) for delta in deltas]


def stated(rho: float, rounds: int, delta: float) -> float:
    """What so many trainings of a rho are stated to cost at a delta, of which each takes its own."""
    return to_epsilon(rounds * rho, delta - rounds * DELTA)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("rounds", [1, 9])
def test_rounds_cost_no_more_than_is_stated(
    settings: tuple[float, float, int], rounds: int
) -> None:
    """At deltas from barely above what the rounds take; and half of the rho is found out somewhere."""
    noise, rate, steps = settings
    rho = float(sampled_gaussian(noise, rate, steps, DELTA)[0])
    deltas = [rounds * DELTA * times for times in (1.001, 1.5, 10, 1e3)]
    exactly = exact_epsilons(noise, rate, steps * rounds, deltas)
    for delta, right in zip(deltas, exactly, strict=True):
        assert right <= stated(rho, rounds, delta) + 1e-9
    if rate == 1:
        pairs = zip(deltas, exactly, strict=True)
        assert any(right > stated(rho / 2, rounds, delta) for delta, right in pairs)


def brute_force(noise: float, rate: float, steps: int, delta: float) -> float:
    """The rho by densities on a fine grid: of one step, or of many of a rate of 1, which are one of less noise."""
    mean = np.sqrt(steps) / noise if rate == 1 else 1 / noise
    at = np.linspace(-12, 12 + mean, 40_001)
    with_it, without = norm.logpdf(at, mean), norm.logpdf(at)
    if rate < 1:
        with_it = np.logaddexp(np.log1p(-rate) + without, np.log(rate) + with_it)
    p, q = (
        with_it - logsumexp(with_it),
        without - logsumexp(without),
    )  # the loss grows with the place
    above = np.append(np.cumsum(np.exp(p[::-1]))[::-1][1:], 0.0)
    below = np.append(0.0, np.cumsum(np.exp(q))[:-1])
    kept = (above <= delta / 2).argmax(), np.flatnonzero(below <= delta / 2)[-1]
    p, q = (x[kept[1] : kept[0] + 1] for x in (p, q))
    pairs = [(p - logsumexp(p), q - logsumexp(q)), (q - logsumexp(q), p - logsumexp(p))]
    orders = 1 + np.geomspace(1e-3, 1e4, 60)
    return float(
        max(logsumexp(a * x + (1 - a) * y) / (a - 1) / a for x, y in pairs for a in orders)
    )


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta"),
    [
        (4.0, 1.0, 10, 1e-6),
        (1.0, 1.0, 1, 1e-9),
        (0.3, 1.0, 10, 1e-6),
        (2.5, 0.04, 1, 1e-5),
        (1.0, 0.1, 1, 1e-6),
        (0.3, 0.5, 1, 1e-9),
    ],
)
def test_rho_is_that_of_the_densities(noise: float, rate: float, steps: int, delta: float) -> None:
    """Never below, at most a twentieth above; where a record is nearly certain to show, too."""
    ours = float(sampled_gaussian(noise, rate, steps, delta)[0])
    assert 1 <= ours / brute_force(noise, rate, steps, delta) <= 1.05


def test_without_sampling_it_is_the_gaussian_mechanism_s_own() -> None:
    """T steps of sigma cost T / (2 sigma^2), to a few hundredths."""
    rho, epsilon = sampled_gaussian(4.0, 1.0, 10, DELTA)
    assert 10 / 32 <= float(rho) <= 10 / 32 * 1.05
    assert epsilon == pytest.approx(exact_epsilons(4.0, 1.0, 10, [DELTA])[0], abs=2e-3)


def test_many_rounds_are_near_what_their_own_accountant_says() -> None:
    """Four rounds of little noise lost: within a quarter of Renyi accounting's figure; basic composition doubles it."""
    noise, rate, steps = SETTINGS[0]
    rho, one = sampled_gaussian(noise, rate, steps, DELTA)
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    theirs = RdpAccountant().compose(SelfComposedDpEvent(event, 4 * steps)).get_epsilon(1e-5)
    assert stated(float(rho), 4, 1e-5) <= 1.25 * theirs < 4 * one


def test_a_delta_below_arithmetic_is_refused() -> None:
    """In one line, with what to write."""
    with pytest.raises(InputError, match="write 1e-9 or more"):
        sampled_gaussian(2.5, 0.04, 24, 1e-300)
