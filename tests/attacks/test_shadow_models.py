"""Readers of a model alone find whom an overfitted one learnt from, and nobody in one that cannot tell."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privfed.attacks import shadow_models
from privfed.attacks.shadow_models import (
    WAYS,
    Shadows,
    Way,
    membership_scores,
    model_scores,
    not_read,
    quantiles,
    read_model,
    shadows,
    told_apart,
)
from privfed.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 5))
Y = X[:, 0] + RNG.normal(0, 1, 240)
MEMBER = RNG.permutation(240) < 120


def deep(x: np.ndarray, y: np.ndarray) -> Any:
    """Learns by heart."""
    return DecisionTreeRegressor(min_samples_leaf=2, random_state=0).fit(x, y)


def flat(x: np.ndarray, y: np.ndarray) -> Any:
    """Says the same of everybody."""
    return DummyRegressor(strategy="constant", constant=0.0).fit(x, y)


@cache
def shadowed(by_heart: bool) -> Shadows:
    """Shadows of one kind or the other."""
    return shadows(deep if by_heart else flat, x=X, y=Y, number=32)


@pytest.mark.parametrize("way", WAYS)
def test_a_regressor_that_learns_by_heart_is_read(way: Way) -> None:
    """Every way tells members from others."""
    found = read_model(
        deep(X[MEMBER], Y[MEMBER]), x=X, y=Y, member=MEMBER, known=shadowed(True), way=way
    )
    assert found.value > 0.75 and found.severity == "some"
    assert found.detail["members found at 1 % false positives"] >= 0.05


def test_public_records_alone_teach_what_is_usual() -> None:
    """A tree that learns by heart is read by quantiles, and a constant is not; few public records are refused."""
    known, areas = np.column_stack([X, Y]), []
    for train in (deep, flat):
        score = model_scores(train(X[MEMBER], Y[MEMBER]), x=X, y=Y)
        areas.append(told_apart(quantiles(score, x=known, member=MEMBER), MEMBER, "quantile", {}))
    assert areas[0].value > 0.75 and areas[0].severity == "some"
    assert areas[1].low is not None and areas[1].low < 0.5 and areas[1].severity == "none"
    with pytest.raises(InputError, match="19 public records teach no quantiles; hold 20 at least"):
        quantiles(np.zeros(240), x=known, member=np.arange(240) > 18)


def test_quantiles_accuse_nobody_by_chance_more_often_than_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over 40 models that learnt from nobody in question, areas are within their intervals but for a few."""
    monkeypatch.setattr(shadow_models, "TREES", 15)
    rng, wrong = np.random.default_rng(1), 0
    for seed in range(40):
        member = rng.permutation(240) < 160
        score = -np.abs(Y - X[:, 0]) * rng.uniform(0.5, 1.5) + rng.normal(0, 0.1, 240)
        judged = quantiles(score, x=np.column_stack([X, Y]), member=member, seed=seed)
        wrong += told_apart(judged, member, "quantile", {}).severity != "none"
    assert wrong <= 4


def test_quantiles_judge_nobody_by_what_was_learnt_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that nothing explains leave members and public records alike; taught by itself, a fold leaves 1.6 times less."""
    monkeypatch.setattr(shadow_models, "TREES", 35)
    ratios, rng = [], np.random.default_rng(1)
    for seed in range(4):
        member = rng.permutation(240) < 120
        left = np.abs(quantiles(rng.normal(size=240), x=X, member=member, seed=seed))
        ratios.append(left[member].mean() / left[~member].mean())
    assert 0.8 < np.mean(ratios) < 1.25


def test_a_way_that_was_not_tried_is_told_as_not_looked() -> None:
    """With its reason."""
    assert not_read("lira", "too much work").why_not == "too much work"


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_says_the_same_of_all_is_not_accused(way: Way) -> None:
    """A constant tells nobody from anybody."""
    found = read_model(
        flat(X[MEMBER], Y[MEMBER]), x=X, y=Y, member=MEMBER, known=shadowed(False), way=way
    )
    assert found.severity == "none"
    assert found.low is not None and found.low <= 0.5


@pytest.mark.parametrize("way", WAYS)
def test_members_of_nothing_are_not_found(way: Way) -> None:
    """The power twin: the same reader, with coins in the members' place."""
    coins = np.random.default_rng(7).permutation(240) < 120
    found = read_model(
        deep(X[MEMBER], Y[MEMBER]), x=X, y=Y, member=coins, known=shadowed(True), way=way
    )
    assert found.severity == "none"


def test_classifiers_are_read_by_the_odds_of_their_own_class() -> None:
    """A deep tree gives its members away, a regularised line hardly."""
    labels = (Y > 0).astype(int)

    def tree(x: np.ndarray, y: np.ndarray) -> Any:
        return DecisionTreeClassifier(random_state=0).fit(x, y)

    def line(x: np.ndarray, y: np.ndarray) -> Any:
        return LogisticRegression(C=0.01).fit(x, y)

    areas = [
        read_model(
            train(X[MEMBER], labels[MEMBER]), x=X, y=labels, member=MEMBER,
            known=shadows(train, x=X, y=labels, number=16),
        ).value
        for train in (tree, line)
    ]  # fmt: skip
    assert areas[0] > 0.62 > areas[1]


def test_scores_are_the_papers() -> None:
    """Log odds of the own class, kept from infinity; minus the residual in the outcomes' deviations."""
    model = DummyClassifier(strategy="prior").fit([[0.0]] * 4, ["a", "b", "b", "b"])
    assert model_scores(model, x=np.zeros((2, 1)), y=np.array(["a", "b"])) == pytest.approx(
        [-np.log(3), np.log(3)]
    )
    y = np.array([-2.0, 2.0])
    assert model_scores(flat(np.zeros((2, 1)), y), x=np.zeros((2, 1)), y=y) == pytest.approx(
        [-1.0, -1.0]
    )


def test_lira_is_the_gaussians_ratio() -> None:
    """Against scipy's densities; offline the tail beyond the target's score."""
    rng = np.random.default_rng(1)
    inside = np.arange(40)[:, None] % 2 == np.zeros(6)
    scores = rng.normal(size=(40, 6)) + 2 * inside
    target, known = rng.normal(size=6), Shadows(scores, inside)
    with_, without = (scores[inside[:, 0] == side] for side in (True, False))
    both = np.sqrt((with_.var(axis=0) + without.var(axis=0)) / 2)
    ratio = norm.logpdf(target, with_.mean(axis=0), both) - norm.logpdf(
        target, without.mean(axis=0), both
    )
    assert membership_scores(target, known, way="lira") == pytest.approx(ratio)
    tail = -norm.logsf(target, without.mean(axis=0), without.std(axis=0))
    assert membership_scores(target, known, way="lira-offline") == pytest.approx(tail)


def test_rmia_counts_the_others_that_a_record_outdoes() -> None:
    """Against the definition, pair by pair."""
    rng = np.random.default_rng(2)
    inside = np.arange(8)[:, None] % 2 == np.zeros(5)
    known, target = Shadows(rng.normal(size=(8, 5)), inside), rng.normal(size=5)
    chance = 1 / (1 + np.exp(-known.scores))
    sides = [chance[inside[:, 0] == side].mean(axis=0) for side in (True, False)]
    ratio = 1 / (1 + np.exp(-target)) / np.mean(sides, axis=0)
    expected = [(ratio[record] >= ratio).mean() for record in range(5)]
    assert membership_scores(target, known, way="rmia") == pytest.approx(expected)


def test_time_ends_the_training() -> None:
    """With none at all there is an error; the halves are complementary, pair by pair."""
    with pytest.raises(InputError, match="a longer time_limit"):
        shadows(deep, x=X, y=Y, time_limit=0)
    known = shadowed(True)
    assert (known.inside[::2] ^ known.inside[1::2]).all()
    assert len(known.without(3).scores) == 31


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.array([["a"]] * 8), np.zeros(8)),
        (np.full((8, 1), np.nan), np.zeros(8)),
        (np.zeros((8, 1)), np.full(8, np.inf)),
        (np.zeros((8, 1)), np.zeros(7)),
    ],
)
def test_text_and_what_is_not_finite(x: np.ndarray, y: np.ndarray) -> None:
    """One clear error."""
    with pytest.raises(InputError):
        shadows(deep, x=x, y=y)


def test_questions_that_make_no_sense() -> None:
    """Nobody inside, an unknown way, other records, odd numbers, records that nobody left out."""
    model, known = deep(X[MEMBER], Y[MEMBER]), shadowed(True)
    with pytest.raises(InputError, match="learnt from and others"):
        read_model(model, x=X, y=Y, member=np.ones(240, bool), known=known)
    with pytest.raises(InputError, match="no way to read"):
        membership_scores(model_scores(model, x=X, y=Y), known, way="guess")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="other records"):
        membership_scores(np.zeros(3), known)
    with pytest.raises(InputError, match="multiple of 2"):
        shadows(deep, x=X, y=Y, number=5)
    with pytest.raises(InputError, match="two shadows"):
        membership_scores(np.zeros(2), Shadows(np.zeros((4, 2)), np.ones((4, 2), bool)))
