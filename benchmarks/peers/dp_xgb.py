"""DP-XGBoost (Grislain and Gonzalvez 2021): pure epsilon, boosted trees with noisy leaves and splits by the exponential mechanism.

Its settings were chosen among seven on a made-up table of 5,000 x 8 (five trees of depth 2 are ahead up to epsilon 4,
level at 16). Its regression clips no gradient, so that classes alone are learnt.
"""

from __future__ import annotations

import numpy as np

from peers.problem import Problem

ENVIRONMENT = 'dp-xgboost "numpy<2" scipy pandas'
TREES = 5


def boosted(problem: Problem) -> np.ndarray:
    """Fit by its approximate tree method within the public bounds; each tree pays an equal share."""
    import dp_xgboost

    x, tested = (problem.scaled(table)[:, 1:] for table in (problem.train, problem.test))
    low = np.concatenate(
        [[-1.0] if one.bounds else [0.0] * len(one.categories) for one in problem.features]
    )
    bounds = {"feature_min": low, "feature_max": np.ones(len(low))}
    settings = {
        "objective": "binary:logistic",
        "tree_method": "approxDP",
        "dp_epsilon_per_tree": problem.epsilon / TREES,
        "max_depth": 2,
        "learning_rate": 0.8,
        "lambda": 0.1,
        "base_score": 0.5,
        "min_child_weight": 20,
        "seed": problem.seed,
        "nthread": 1,
        "verbosity": 0,
    }
    model = dp_xgboost.train(settings, dp_xgboost.DMatrix(x, problem.y, **bounds), TREES)
    return np.asarray(model.predict(dp_xgboost.DMatrix(tested)))


METHODS = {"DP-XGBoost": boosted}
ALONE = {"DP-XGBoost": "classes"}
