"""Audits of whole learners by canary records: below the ledger's figure, and not blind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from privfed.audits.bounds import right_guesses_mu
from privfed.audits.trainings import (
    AIM,
    COINS,
    MOST_COINS,
    SURELY,
    Planted,
    _run_game,
    audit_learner,
    coins_needed,
    detectable_factor,
    farthest,
    plant,
    rehearse,
    roomy_schema,
    scores_of,
)
from privfed.errors import InputError
from privfed.learners import FuzzyTreeRegressor, RuleFitClassifier
from privfed.learners.base import FederatedLearner
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import gaussian_epsilon
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Policy
from privfed.tables.schema import Schema
from privfed.testing.faulty import ThinnerGaussian
from privfed.testing.hospitals import BINARY, NUMERIC


def thinner(policy: Policy, factor: float) -> Policy:
    """The policy with too little Gaussian noise, at the same charge."""
    faulty = ThinnerGaussian(factor)
    guards = {
        kind: tuple(
            replace(guard, mechanism=faulty) if guard.called == "gaussian" else guard
            for guard in several
        )
        for kind, several in policy.guards.items()
    }
    return replace(policy, guards=guards)


@pytest.mark.parametrize(
    ("learner", "schema", "size"),
    [
        (FuzzyTreeRegressor(max_depth=1), NUMERIC, {"canaries": 5, "others": 10, "runs": 60}),
        (
            RuleFitClassifier(max_terms=None, random_state=0),
            roomy_schema(),
            {"canaries": 120, "others": 500, "runs": 2},
        ),
    ],
    ids=["fuzzy tree", "rulefit"],
)
def test_private_learners_stay_below_their_ledgers(
    learner: FederatedLearner, schema: Schema, size: dict[str, Any]
) -> None:
    """And the same learner with half the noise does not; FedForest has a file of its own."""
    policy = learner.private("8", "1e-5")
    size |= {"noise": TestNoise(1), "alpha": 0.01}
    honest = audit_learner(learner, policy, schema, **size)
    faulty = audit_learner(learner, thinner(policy, 2), schema, **size)
    assert honest.severity == "none" and honest.value > 0
    assert honest.of == 8.0
    assert faulty.severity == "breach" and faulty.of == honest.of
    assert faulty.detail["canaries"] == size["canaries"] * size["runs"]
    assert max(honest.detail["reach"].values()) <= 1 + 1e-6


def test_canaries_are_records_of_the_box_under_fair_coins() -> None:
    """Whole numbers where the schema has them; coins neither follow the records nor repeat."""
    planted = plant(BINARY, 400, 50, seed=1)
    assert len(planted.canaries) == 400 and len(planted.others) == 50
    assert len(planted.records) == 50 + planted.coins.sum()
    assert 150 < planted.coins.sum() < 250
    sex = planted.canaries.x[:, 3]
    assert set(np.unique(sex)) == {0, 1}
    assert not np.array_equal(planted.coins, plant(BINARY, 400, 50, seed=2).coins)


def test_canaries_have_values_of_their_own() -> None:
    """As many as there are, column by column; whole numbers are shared out evenly."""
    roomy = plant(roomy_schema(3, 50), 50, 10, seed=1).canaries
    assert all(len(np.unique(values)) == 50 for values in roomy.x.T)
    assert set(np.unique(roomy.target)) == {0, 1}
    assert np.array_equal(
        np.bincount(plant(BINARY, 400, 50, seed=1).canaries.x[:, 3].astype(int)), [200, 200]
    )


def test_other_units_are_refused() -> None:
    """Canary records say nothing of persons."""
    policy = replace(FuzzyTreeRegressor().private("1"), unit="individual", cap=2)
    with pytest.raises(InputError, match="record"):
        audit_learner(FuzzyTreeRegressor(), policy, NUMERIC)


def test_searched_canaries_move_a_training_farthest() -> None:
    """Few records reach far in a small schema: the searched ones do, each in a direction of its own."""
    learner = FuzzyTreeRegressor(max_depth=1)
    policy = learner.private("4", "1e-5")
    worst = farthest(learner, policy, NUMERIC, 12, 50, TestNoise(1))
    anyone = plant(NUMERIC, len(worst), 50, seed=1).canaries
    searched, drawn = (
        _run_game(learner, policy, Planted(held, np.ones(len(held), bool), anyone), TestNoise(2))
        for held in (worst, anyone)
    )
    assert 1 < len(worst) <= 12
    assert searched.whole.lengths.mean() > 1.1 * drawn.whole.lengths.mean()


def test_rehearsals_say_how_many_canaries_take_the_fewest_trainings() -> None:
    """The first ones of the searched, in as many trainings as :func:`coins_needed` has coins for them."""
    learner = FuzzyTreeRegressor(max_depth=1)
    policy = learner.private("4", "1e-5")
    worst = plant(NUMERIC, 9, 50, seed=1).canaries
    few, runs = rehearse(learner, policy, worst, 50, TestNoise(1), 0.005)
    assert len(few) in (9, 5, 3) and np.array_equal(few.x, worst.x[: len(few)])
    assert COINS <= runs * len(few) < MOST_COINS + len(few)


@pytest.mark.parametrize("apart", [True, False], ids=["cells of their own", "shared cells"])
def test_the_bound_holds_of_adaptive_gaussian_releases(apart: bool) -> None:
    """Of exactly as much as is claimed at most one bound in twenty exceeds the truth; rounds follow earlier answers."""
    rng, mu, over, shape = np.random.default_rng(1), 0.86, [], (12, 16)
    for _ in range(300):
        right = tossed = 0
        for _ in range(4):
            coins, scores, seed = rng.random(shape[0]) < 0.5, np.zeros(shape[0]), 0
            for _ in range(3):
                moves = np.random.default_rng(seed).normal(size=shape)
                moves = np.linalg.qr(moves.T)[0].T if apart else moves
                moves *= mu / np.sqrt(3) / np.linalg.norm(moves, axis=1, keepdims=True)
                answer = coins @ moves + rng.normal(size=shape[1])
                scores += scores_of(moves, answer, coins)[0]
                seed = int(np.packbits(answer > 0).view(np.uint16)[0])
            right, tossed = right + int(((scores > 0) == coins).sum()), tossed + shape[0]
        over.append(right_guesses_mu(right, tossed, 0.05) > mu)
    assert np.mean(over) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert np.mean(over) > 0.01 or not apart


def test_as_many_coins_are_tossed_as_prove_half_of_a_claim() -> None:
    """By simulated right guesses 19 times in 20; short canaries take more, up to a limit; Laplace noise the least."""
    policy, rng = FuzzyTreeRegressor().private("4", "1e-5"), np.random.default_rng(1)
    far, short = (coins_needed(np.full(30, mu), policy, 0.005) for mu in (0.85, 0.7))
    assert COINS <= far < short < MOST_COINS
    assert coins_needed(np.full(30, 0.3), policy, 0.005) == MOST_COINS
    right = rng.binomial(short, norm.cdf(0.35), 2000)
    proven = np.array(
        [gaussian_epsilon(float(right_guesses_mu(r, short, 0.005)), 1e-5) for r in right]
    )
    assert SURELY - 0.02 < (proven >= AIM * 4).mean() < SURELY + 0.03
    pure = Policy(policy.guards, budget=Budget.of("4"))
    assert coins_needed(np.full(30, 0.8), pure, 0.005) == COINS


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_the_power_that_is_told_is_that_of_simulated_audits(factor: float) -> None:
    """Noise smaller by the told factor is convicted about four times in five, at a claim of as much."""
    lengths, rng = np.full(800, 0.6), np.random.default_rng(1)
    claimed = gaussian_epsilon(0.6 * factor / 2, 1e-5)
    told = detectable_factor(lengths, claimed, 1e-5, 0.01)
    right = rng.binomial(800, norm.cdf(told * 0.6 / 2), 2000)
    caught = gaussian_epsilon_of(right_guesses_mu(right, np.full(2000, 800), 0.01)) > claimed
    assert np.mean(caught) == pytest.approx(0.8, abs=0.06)


def gaussian_epsilon_of(mu: np.ndarray) -> np.ndarray:
    """Epsilon at 1e-5 of each mu; 0 of 0."""
    return np.array([gaussian_epsilon(float(each), 1e-5) if each > 0 else 0.0 for each in mu])
