"""DP-EBM, the private explainable boosting machine of Nori et al. (2021), by its authors, with their defaults."""

from __future__ import annotations

from typing import Any

import numpy as np

from peers.problem import DELTA, Problem

ENVIRONMENT = "interpret-core"


def dp_ebm(problem: Problem) -> np.ndarray:
    """Fit and predict; the composition is the authors' (Gaussian differential privacy)."""
    from interpret.privacy import (
        DPExplainableBoostingClassifier,
        DPExplainableBoostingRegressor,
    )

    features = problem.features
    known: dict[str, Any] = {
        "epsilon": problem.epsilon,
        "delta": DELTA,
        "random_state": problem.seed,
        "n_jobs": 1,
        "privacy_bounds": {j: one.bounds for j, one in enumerate(features) if one.bounds},
        "feature_types": ["continuous" if one.bounds else "nominal" for one in features],
    }
    x, y = problem.train.drop(columns="y"), problem.train["y"]
    if problem.target is None:
        model = DPExplainableBoostingClassifier(**known).fit(x, y)
        return np.asarray(model.predict_proba(problem.test)[:, 1])
    low, high = problem.target
    model = DPExplainableBoostingRegressor(privacy_target_min=low, privacy_target_max=high, **known)
    return np.asarray(model.fit(x, y).predict(problem.test))


METHODS = {"DP-EBM": dp_ebm}
