"""Audits acquit honest mechanisms and convict planted faults."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from privfed.attacks.finding import Finding
from privfed.audits.mechanisms import audit, outputs
from privfed.audits.one_run import audit_one_run
from privfed.audits.paired_trials import audit_mechanism
from privfed.audits.test_statistics import lowest_bit
from privfed.errors import InputError
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.noise import Noise, SecureNoise, TestNoise
from privfed.testing.faulty import (
    FloatLaplace,
    ThinnerGaussian,
    ThinnerLaplace,
    YesLeaningResponse,
)

#: One audit in ten thousand may convict an innocent mechanism; over this module, one in a thousand.
ALPHA = 1e-4
TRIALS = 40_000
#: A record moves a cell by so many grid units: then discrete noise is near the continuous one.
STEPS = 16


def _steps(mechanism: Mechanism) -> int:
    return 1 if isinstance(mechanism, RandomizedResponse) else STEPS


def audited(mechanism: Mechanism, spend: str, delta: float, noise: Noise) -> Finding:
    """An audit with these tests' trials and level."""
    return audit(
        mechanism,
        spend,
        delta=delta,
        steps=_steps(mechanism),
        trials=TRIALS,
        alpha=ALPHA,
        noise=noise,
    )


@pytest.mark.parametrize(
    ("mechanism", "spend", "delta"),
    [
        (Laplace(), "1", 0.0),
        (Laplace(), "0.2", 0.0),
        (RandomizedResponse(), "1", 0.0),
        (Gaussian(), "0.5", 1e-5),
    ],
)
@pytest.mark.parametrize("secure", [True, False])
def test_honest_mechanisms_are_acquitted(
    mechanism: Mechanism, spend: str, delta: float, secure: bool
) -> None:
    """With secure noise and with test noise alike."""
    noise = SecureNoise() if secure else TestNoise(7)
    found = audited(mechanism, spend, delta, noise)
    assert found.severity == "none"
    assert 0 <= found.value <= (found.of or 0)


@pytest.mark.parametrize(
    ("mechanism", "spend", "delta", "least"),
    [
        (ThinnerLaplace(), "1", 0.0, 1.7),
        (ThinnerGaussian(), "0.5", 1e-5, 8.0),
        (FloatLaplace(), "1", 0.0, 5.0),
        (YesLeaningResponse(), "1", 0.0, 2.1),
        (YesLeaningResponse(), "0.1", 0.0, 1.0),
    ],
)
def test_planted_faults_are_convicted(
    mechanism: Mechanism, spend: str, delta: float, least: float
) -> None:
    """The power twin, with what the outputs prove at least."""
    found = audited(mechanism, spend, delta, TestNoise(11))
    assert found.severity == "breach"
    assert found.value > least > (found.of or 0)


def test_gaussian_noise_on_counts_is_not_convicted() -> None:
    """Discrete noise of deviation 0.7 is no Gaussian, and would look worse than it is."""
    for seed in range(5):
        found = audit(Gaussian(), "1", delta=1e-5, trials=TRIALS, noise=TestNoise(seed))
        assert found.severity == "none" and found.value > 0.5 * (found.of or 0)


def test_faulty_response_is_as_bad_as_derived() -> None:
    """Its true epsilon is ln(1 + e^eps + e^(2 eps)), and the audit never proves more."""
    for epsilon in (0.001, 0.1, 0.5, 1.0):
        true = math.log(1 + math.exp(epsilon) + math.exp(2 * epsilon))
        found = audit(YesLeaningResponse(), str(epsilon), trials=400_000, noise=TestNoise(1))
        assert 0.97 * true < found.value <= true


def test_float_noise_is_caught_by_its_low_bits_alone() -> None:
    """No threshold on the value convicts it; the lowest set bit does."""
    found = audit(FloatLaplace(), "1", trials=TRIALS, alpha=ALPHA)
    assert "lowest bit" in found.detail["event"]


def test_figures_at_a_hundred_thousand_outputs() -> None:
    """Laplace at least .96 and randomized response .97 of epsilon 1, in the median of seeds."""
    proven = {
        type(m): np.median(
            [audit(m, "1", trials=100_000, noise=TestNoise(seed)).value for seed in range(9)]
        )
        for m in (Laplace(), RandomizedResponse())
    }
    assert proven[Laplace] >= 0.96
    assert proven[RandomizedResponse] >= 0.97


def test_a_quarter_too_much_is_caught_with_ten_thousand_outputs() -> None:
    """Nine in ten audits convict a mechanism of 1.25 that claims 1."""

    def convicted(mechanism: Mechanism, seed: int) -> bool:
        noise, spend = TestNoise(seed), Fraction(5, 4)
        found = audit_mechanism(
            lambda runs: outputs(mechanism, 1, runs, spend, noise),
            lambda runs: outputs(mechanism, 0, runs, spend, noise),
            1.0,
            trials=10_000,
        )
        return found.severity == "breach"

    for mechanism in (Laplace(), RandomizedResponse()):
        assert np.mean([convicted(mechanism, seed) for seed in range(40)]) >= 0.9


def test_vectors_are_audited_in_the_direction_of_the_means() -> None:
    """Sixteen cells that each move by a sixteenth of the scale: one alone proves .0625 at most."""
    rng = np.random.default_rng(2)
    found = audit_mechanism(
        lambda runs: np.rint(rng.laplace(64, 1024, (runs, 16))),
        lambda runs: np.rint(rng.laplace(0, 1024, (runs, 16))),
        10.0,
        trials=TRIALS,
    )
    assert found.detail["event"] == "direction"
    assert found.value > 2 / 16


def test_one_run() -> None:
    """One release with a thousand canaries: an honest one passes, a halved scale is convicted."""
    rng = np.random.default_rng(4)
    coins = rng.random(5000) < 0.5
    for scale, severity in ((1.0, "none"), (0.5, "breach")):
        scores = coins + rng.laplace(0, scale, len(coins))
        found = audit_one_run(coins, scores, 1.0, alpha=ALPHA)
        assert found.severity == severity
        assert found.value > 0.7


def test_one_run_of_bits() -> None:
    """Randomized response of 50,000 people: whichever answer is the commoner, most of epsilon 1 is proven."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        coins = rng.random(50_000) < 0.5
        answers = np.where(rng.random(50_000) < 1 / (1 + np.exp(-1)), coins, ~coins)
        assert 0.93 < audit_one_run(coins, answers.astype(float), 1.0, alpha=ALPHA).value < 1


def test_lowest_bit() -> None:
    """The largest power of two that divides a number."""
    assert lowest_bit(np.array([0.0, 1.0, 12.0, 0.75, -0.5, 2.0**-53])).tolist() == [
        1023,
        0,
        2,
        -2,
        -1,
        -53,
    ]


def test_nonsense_is_refused() -> None:
    """NaN claims, too few trials, samplers that give too little or no numbers."""

    def zeros(runs: int) -> np.ndarray:
        return np.zeros(runs)

    with pytest.raises(InputError, match="claimed"):
        audit_mechanism(zeros, zeros, math.nan)
    with pytest.raises(InputError, match="trials"):
        audit_mechanism(zeros, zeros, 1.0, trials=10)
    with pytest.raises(InputError, match="asked"):
        audit_mechanism(lambda runs: np.zeros(3), zeros, 1.0)
    with pytest.raises(InputError, match="finite"):
        audit_mechanism(lambda runs: np.full(runs, math.nan), zeros, 1.0)
    with pytest.raises(InputError, match="coin"):
        audit_one_run(np.ones(3, bool), np.array([1.0, 2.0, math.nan]), 1.0)
