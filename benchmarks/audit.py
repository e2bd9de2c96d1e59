"""What audits prove, how fast, and how surely they convict: python benchmarks/audit.py

Medians over seeds at 95 % confidence; the peer in each line is the true epsilon.
"""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np

from privfed.attacks.audit import audit_mechanism, audit_one_run
from privfed.attacks.bounds import gaussian_epsilon
from privfed.mechanism import Mechanism
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.noise import SecureNoise, TestNoise
from privfed.testing.audit import audit, outputs
from privfed.testing.faulty import FloatLaplace

SEEDS, STEPS = 20, 64


def tightness(mechanism: Mechanism, spend: str, delta: float, trials: int, steps: int) -> None:
    found, started = [], time.perf_counter()
    for seed in range(SEEDS):
        noise = TestNoise(seed)
        found.append(audit(mechanism, spend, delta=delta, trials=trials, steps=steps, noise=noise))
    spent = (time.perf_counter() - started) / SEEDS
    proven, true = np.median([f.value for f in found]), found[0].of or 0.0
    print(
        f"{mechanism.name:20} N={trials:>9,} true {true:.3f} proven {proven:.3f} "
        f"ratio {proven / true:.3f} {spent:.3f} s"
    )


def one_run(canaries: int) -> None:
    proven = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        coins = rng.random(canaries) < 0.5
        scores = np.where(rng.random(canaries) < 1 / (1 + np.exp(-1)), coins, ~coins)
        proven.append(audit_one_run(coins, scores.astype(float), 1.0).value)
    print(f"{'one run, response':20} m={canaries:>9,} true 1.000 proven {np.median(proven):.3f}")


def power(mechanism: Mechanism, trials: int, games: int = 100) -> None:
    convicted = 0
    for seed in range(games):
        noise, spend = TestNoise(seed), Fraction(5, 4)
        found = audit_mechanism(
            lambda runs, n=noise, s=spend: outputs(mechanism, 1, runs, s, n),
            lambda runs, n=noise, s=spend: outputs(mechanism, 0, runs, s, n),
            1.0,
            trials=trials,
        )
        convicted += found.severity == "breach"
    print(f"{mechanism.name:20} N={trials:>9,} true 1.25, claimed 1: convicted {convicted}/{games}")


def floating_point(trials: int = 200_000) -> None:
    started = time.perf_counter()
    naive = audit(FloatLaplace(), "1", trials=trials)
    honest = audit(Laplace(), "1", trials=trials, noise=SecureNoise())
    spent = time.perf_counter() - started
    print(
        f"floating point: naive proven {naive.value:.2f} ({naive.severity}), "
        f"integer {honest.value:.3f} ({honest.severity}), {spent:.1f} s"
    )


if __name__ == "__main__":
    rho = "0.06"  # sigma 185 grid units at 64 steps
    print(f"gaussian: epsilon at delta 1e-5 is {gaussian_epsilon((2 * 0.06) ** 0.5, 1e-5):.3f}")
    for trials in (10_000, 100_000, 1_000_000):
        tightness(Laplace(), "1", 0.0, trials, 1)
        tightness(RandomizedResponse(), "1", 0.0, trials, 1)
        tightness(Gaussian(), rho, 1e-5, trials, STEPS)
        one_run(trials)
    for mechanism in (Laplace(), RandomizedResponse()):
        power(mechanism, 10_000)
    floating_point()
