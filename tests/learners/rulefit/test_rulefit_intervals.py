"""Intervals of a short private model's coefficients, shapes and importances, over known truths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from privfed.learners.rulefit import short
from privfed.learners.rulefit.model import RuleEnsemble
from tests.learners.private.test_private_unexpressed import engine, score

X = np.random.default_rng(8).uniform(-1, 1, (6000, 4))
SEEDS = 3


def of_truth(model: RuleEnsemble, truth: str) -> RuleEnsemble:
    """The same terms, fitted to the truth's own chances of many records."""
    design, chances = model.terms.design(X)[:, 1:], expit(score(X, truth))
    fit = LogisticRegression(C=1e4, tol=1e-6, max_iter=1000).fit(
        np.concatenate([design, design]),
        np.repeat([1, 0], len(X)),
        np.concatenate([chances, 1 - chances]),
    )
    weights = np.concatenate([fit.intercept_, fit.coef_[0]])
    return replace(model, weights=weights, deviations=design.std(axis=0))


@cache
def models(selection: float) -> list[tuple[RuleEnsemble, RuleEnsemble]]:
    """Short models of simulated records, and what their terms are in truth."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(short, "SETTINGS", replace(short.SETTINGS, selection=selection))
        own = [
            short.shortened(engine("products", seed), 20, np.random.default_rng(seed))[0]
            for seed in range(SEEDS)
        ]
    return [(model, of_truth(model, "products")) for model in own]


def coefficients(selection: float) -> float:
    """Fraction of coefficients whose interval holds the truth."""
    found = []
    for model, truth in models(selection):
        low, high = model.intervals()[1:].T
        found += [(low < truth.weights[1:]) & (truth.weights[1:] < high)]
    return float(np.concatenate(found).mean())


def importances(selection: float) -> float:
    """The same of covariates' importances."""
    found = []
    for model, truth in models(selection):
        low, high = model.importance_intervals().T
        assert (low >= 0).all() and (low <= model.covariate_importances).all()
        found += [(low <= truth.covariate_importances) & (truth.covariate_importances <= high)]
    return float(np.concatenate(found).mean())


def shapes(selection: float) -> float:
    """The same of what covariates alone add."""
    found = []
    for model, truth in models(selection):
        for j in range(4):
            if model.terms_of(j)[0]:
                heights, band = truth.shape_of(j, X[:200, j])[0], model.shape_of(j, X[:200, j])[1]
                assert band is not None
                found += [(band[:, 0] <= heights) & (heights <= band[:, 1])]
    return float(np.concatenate(found).mean())


@pytest.mark.parametrize(
    ("covered", "gain"), [(coefficients, 0.1), (importances, 0.05), (shapes, 0.1)]
)
def test_intervals_hold_the_truth_of_selected_terms(
    covered: Callable[[float], float], gain: float
) -> None:
    """Of products of steps, which the basis expresses least, three quarters; fewer were terms no better than others by chance.

    Of eight simulations at this epsilon .76 of the coefficients and .33 without the factor; three scatter by .07,
    with the processor too, whose rounding chooses other terms. There are only twelve importances.
    """
    found, alone = covered(short.SETTINGS.selection), covered(1.0)
    assert found > 0.6 and alone < found - gain, (found, alone)
