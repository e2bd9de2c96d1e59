"""Rules are chosen on some outputs and judged on others; what they prove is covered as stated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr

from privfed.audits.bounds import right_guesses, right_guesses_mu
from privfed.audits.paired_trials import Move, audit_moves, audit_outputs
from privfed.audits.test_statistics import Statistic, Truths, statistics
from privfed.audits.threshold_tests import (
    ConfusionCounts,
    DecisionRule,
    PrivacyClaim,
    ScoredOutputs,
    choose,
    judge,
)
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_epsilon

VALUE = Statistic("value 0", "value", lambda outputs: np.asarray(outputs[:, 0]))


def on_grid(noise: np.ndarray) -> np.ndarray:
    """Noise on a fine dyadic grid: in floats its low bits would give its input away."""
    return np.asarray(np.rint(noise * 2**20) / 2**20)


def laplace(shift: float, runs: int, rng: np.random.Generator, cells: int = 1) -> np.ndarray:
    """Outputs whose cells are all moved alike."""
    return shift + on_grid(rng.laplace(0, 1.0, (runs, cells)))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_right_guesses_cover(epsilon: float) -> None:
    """The bound exceeds the true epsilon in at most alpha of all games, and nearly in so many."""
    rng = np.random.default_rng(2)
    right = rng.binomial(3000, 1 / (1 + np.exp(-epsilon)), 5000)
    wrong = (right_guesses(right, np.full(5000, 3000), 0.1) > epsilon).mean()
    assert 0.06 < wrong <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 5000)


@pytest.mark.parametrize("mu", [0.25, 1.0])
def test_right_guesses_of_gaussian_noise_cover(mu: float) -> None:
    """The same for mu, where every output is guessed about."""
    rng = np.random.default_rng(2)
    right = rng.binomial(3000, ndtr(mu / 2), 5000)
    wrong = (right_guesses_mu(right, np.full(5000, 3000), 0.1) > mu).mean()
    assert 0.06 < wrong <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 5000)


def test_no_guess_proves_nothing() -> None:
    """Neither bound stumbles over rules that never fire, or guess no better than a coin."""
    assert right_guesses([0, 50, 0], [0, 100, 10]).tolist() == [0, 0, 0]
    assert right_guesses_mu([40], [100]).tolist() == [0]


@pytest.mark.parametrize("mirrored", [False, True])
def test_both_sides_are_guessed(mirrored: bool) -> None:
    """Laplace noise tells most beyond either centre, whichever input lies above."""
    rng = np.random.default_rng(1)
    outputs = [laplace(0, 40_000, rng), laplace(1, 40_000, rng)]
    present, absent = outputs if mirrored else outputs[::-1]
    claim = PrivacyClaim(1.0)
    rule, strength = ScoredOutputs(VALUE, present, absent).best(claim, 1e-5)
    assert rule.swapped is mirrored
    assert rule.above is not None and rule.below is not None
    assert abs(rule.above - 1) < 0.2 and abs(rule.below) < 0.2
    assert 0.85 < strength < 1.0


def test_hits_of_a_rule_are_those_counted_over_all_thresholds() -> None:
    """The naive twin: what a rule counts by itself is what its choice was based on."""
    rng = np.random.default_rng(3)
    present, absent = (np.rint(laplace(shift, 500, rng) * 3) for shift in (1, 0))
    for claim in (
        PrivacyClaim(1.0),
        PrivacyClaim(1.0, 1e-3),
        PrivacyClaim(1.0, 1e-3, gaussian=True),
    ):
        rule, strength = ScoredOutputs(VALUE, present, absent).best(claim, 0.05)
        assert float(claim.strength(rule.counts(present, absent), 0.05)) == pytest.approx(strength)


def test_hits_are_mirrored_by_a_rule_that_says_the_opposite() -> None:
    """Right guesses become wrong ones, output by output."""
    rng = np.random.default_rng(3)
    present, absent = laplace(1, 300, rng), laplace(0, 200, rng)
    one, other = (
        DecisionRule(VALUE, 1.0, 0.0, swapped).counts(present, absent) for swapped in (False, True)
    )
    assert one.right == other.made - other.right
    assert (one.present, one.absent) == (300, 200)
    assert one.mirrored.mirrored == ConfusionCounts(
        *(getattr(one, f) for f in one.__dataclass_fields__)
    )


@pytest.mark.parametrize(
    "claim",
    [
        PrivacyClaim(1.0),
        PrivacyClaim(1.0, 0.01),
        PrivacyClaim(gaussian_epsilon(1.0, 1e-5), 1e-5, True),
    ],
)
def test_an_honest_mechanism_is_convicted_at_most_as_often_as_stated(claim: PrivacyClaim) -> None:
    """100 audits of all rules together at one in ten; fewer than 21 (one chance in 1,000)."""
    convicted = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        drawn = [
            shift + on_grid(rng.normal(0, 1, (1000, 1)))
            if claim.gaussian
            else laplace(shift, 1000, rng)
            for shift in (1, 0)
        ]
        convicted += audit_outputs(drawn[0], drawn[1], claim=claim, alpha=0.1).severity == "breach"
    assert convicted < 21


def test_a_rare_fault_is_tried_beside_the_surest_rule() -> None:
    """Outputs that are right to the bit once in 200: the value proves little, the point a lot."""
    rng = np.random.default_rng(5)

    def drawn(shift: float, runs: int) -> np.ndarray:
        forgotten = rng.random((runs, 1)) < 0.005
        return np.where(forgotten, shift, laplace(shift, runs, rng))

    truths = Truths(np.array([1.0]), np.array([0.0]))
    claim = PrivacyClaim(1.0)
    present, absent = drawn(1, 4000), drawn(0, 4000)
    rules = choose(statistics(present, absent, truths), present, absent, claim, 0.05)
    assert {rule.statistic.family for rule in rules} >= {"value", "exact"}
    found = judge(rules, drawn(1, 20_000), drawn(0, 20_000), claim, 0.05)
    assert found[0].statistic.family == "exact" and found[1] > 2


def test_noise_that_cells_share_is_whitened_away() -> None:
    """Two cells with one draw of noise, of which one moves: their difference tells all."""
    rng = np.random.default_rng(6)

    def drawn(shift: float, runs: int) -> np.ndarray:
        noise = laplace(0, runs, rng)
        return np.hstack([noise + shift, noise])

    found = audit_outputs(drawn(1, 2000), drawn(0, 2000), claim=PrivacyClaim(1.0))
    assert found.detail["event"] == "direction" and found.value > 5


def test_the_first_move_is_audited_unless_another_proves_more() -> None:
    """Honest noise is judged on the first move, a fault on that which shows it."""
    rng = np.random.default_rng(7)

    def move(name: str, shift: float) -> Move:
        return Move(
            name, lambda runs: laplace(shift, runs, rng), lambda runs: laplace(0, runs, rng)
        )

    honest = audit_moves([move("half", 0.5), move("whole", 1.0)], PrivacyClaim(1.0), trials=4000)
    faulty = audit_moves([move("half", 0.5), move("thrice", 3.0)], PrivacyClaim(1.0), trials=4000)
    assert honest.detail["move"] == "half" and honest.severity == "none"
    assert faulty.detail["move"] == "thrice" and faulty.severity == "breach"


def test_nonsense_is_refused() -> None:
    """Claims that nobody can make, audits of nothing."""
    calls: list[Callable[[], object]] = [
        lambda: PrivacyClaim(float("nan")),
        lambda: PrivacyClaim(1.0, 1.0),
        lambda: PrivacyClaim(1.0, 0.0, gaussian=True),
        lambda: audit_moves([], PrivacyClaim(1.0), trials=1000),
        lambda: audit_outputs(np.zeros(3), np.zeros(3), claim=PrivacyClaim(1.0)),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()
