"""How good single estimates are, by simulation: python benchmarks/rule_search_estimates.py

Percentiles of parameters against epsilon, with the noise's bias removed, as the noisy values give
them (DP-RuL Section 3.4), and without asking (the uniform law's own percentile); coverage of exact
and of normal confidence intervals; and both frequency oracles beside their theory.
"""

from __future__ import annotations

import time

import numpy as np
from result_rows import arguments

from privfed.learners.rule_search.estimate import SupportEstimate, percentile
from privfed.learners.rule_search.queries import parity

PEOPLE, REPEATS = 20_000, 20


def percentiles(share: float, epsilon: float, percent: float) -> None:
    """Root mean squared errors over random beta laws, in units of the public range."""
    rng = np.random.default_rng(1)
    errors, begun = [], time.perf_counter()
    for _ in range(REPEATS):
        held = rng.beta(rng.uniform(2, 10), rng.uniform(2, 10), round(PEOPLE * share))
        values = np.append(held, np.full(PEOPLE - len(held), 0.5))
        noisy = values + rng.laplace(0, 1 / epsilon, PEOPLE)
        truth = np.percentile(held, percent)
        ours = percentile(noisy, 1 / epsilon, share, percent)
        naive = float(np.percentile(noisy, percent))
        errors.append((ours - truth, naive - truth, percent / 100 - truth))
    ours, naive, unasked = np.sqrt(np.mean(np.square(errors), axis=0))
    each = (time.perf_counter() - begun) / REPEATS
    print(
        f"percentile {percent:.0f} held by {share:4.0%} at epsilon {epsilon:4.1f}: ours {ours:.3f} "
        f"noisy {naive:.3f} unasked {unasked:.3f}, {each * 1000:.0f} ms"
    )


def intervals(people: int, holders: int, epsilon: float, level: float = 0.95) -> None:
    """Shares of intervals that hold the truth."""
    rng, flip = np.random.default_rng(2), 1 / (1 + np.exp(epsilon))
    yes = rng.binomial(holders, 1 - flip, 4000) + rng.binomial(people - holders, flip, 4000)
    drawn, times = np.unique(yes, return_counts=True)
    std = float(np.sqrt(people * flip * (1 - flip)) / (1 - 2 * flip))
    counts = SupportEstimate((drawn - people * flip) / (1 - 2 * flip), std, people, float(flip))
    held = [
        float(times[(low <= holders) & (holders <= high)].sum() / 4000)
        for low, high in (counts.exact_interval(level), counts.interval(level))
    ]
    print(
        f"interval at {level:.0%}, {holders:>4} of {people:>6} at epsilon {epsilon}: "
        f"exact {held[0]:.3f} normal {held[1]:.3f}"
    )


def oracles(epsilon: float, people: int = 4000, templates: int = 31, runs: int = 60) -> None:
    """Standard deviations of counts over runs, each beside its theory's, per root of people."""
    rng = np.random.default_rng(3)
    drawn = np.where(np.arange(people) < people // 4, 0, -1)
    single = 1 / (1 + np.exp(epsilon / 2))
    one_bit = 1 / (1 + np.exp(epsilon))
    unary, hashed = [], []
    for _ in range(runs):
        bits = (drawn[None] == np.arange(templates)[:, None]) ^ (
            rng.random((templates, people)) < single
        )
        unary.append((bits.sum(axis=1) - people * single) / (1 - 2 * single))
        masks = rng.integers(0, 32, people, dtype=np.uint32)
        codes = (drawn + 1).astype(np.uint32)
        answer = parity(masks & codes) ^ (rng.random(people) < one_bit)
        agree = [
            np.where(parity(masks & np.uint32(code)) == answer, 1, -1).sum()
            for code in range(1, templates + 1)
        ]
        hashed.append(np.array(agree) / (1 - 2 * one_bit))
    spread = [np.std(estimates, axis=0)[1:].mean() / people**0.5 for estimates in (unary, hashed)]
    print(
        f"oracle at epsilon {epsilon}: unary {spread[0]:.3f} (theory {1 / (2 * np.sinh(epsilon / 4)):.3f}, "
        f"{templates} bits each) hashed {spread[1]:.3f} (theory {1 / np.tanh(epsilon / 2):.3f}, 1 bit)"
    )


if __name__ == "__main__":
    arguments(__doc__).parse_args()
    for percent in (50.0, 85.0):
        for share in (1.0, 0.3, 0.1, 0.03):
            for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
                percentiles(share, epsilon, percent)
    for people, holders, epsilon in ((30, 1, 6), (60, 12, 1), (400, 20, 3), (40_000, 400, 1)):
        intervals(people, holders, epsilon)
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        oracles(epsilon)
