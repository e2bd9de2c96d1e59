"""diffprivlib's random forest (Holohan et al. 2019): pure epsilon; it has no regressor."""

from __future__ import annotations

import numpy as np

from peers.problem import Problem

ENVIRONMENT = 'diffprivlib "scikit-learn<1.6" "numpy<2" pandas'


def forest(problem: Problem) -> np.ndarray:
    """Fit and predict with its defaults, on the scaled table within its public bounds."""
    from diffprivlib.models import RandomForestClassifier

    x, tested = (problem.scaled(table)[:, 1:] for table in (problem.train, problem.test))
    numbers = np.concatenate(
        [[-1.0] if one.bounds else [0.0] * len(one.categories) for one in problem.features]
    )
    model = RandomForestClassifier(
        epsilon=problem.epsilon,
        bounds=(numbers, np.ones(len(numbers))),
        classes=[0, 1],
        random_state=problem.seed,
    )
    return np.asarray(model.fit(x, problem.y.astype(int)).predict_proba(tested)[:, 1])


METHODS = {"diffprivlib's forest": forest}
ALONE = {"diffprivlib's forest": "classes"}
