"""FedForest: a federated random forest for heterogeneous clients."""

from privfed.learners.forest.diagnostics import (
    CovariateShift,
    OutcomeShift,
    covariate_shift,
    outcome_shift,
)
from privfed.learners.forest.estimator import FedForestClassifier, FedForestRegressor

__all__ = [
    "CovariateShift",
    "FedForestClassifier",
    "FedForestRegressor",
    "OutcomeShift",
    "covariate_shift",
    "outcome_shift",
]
