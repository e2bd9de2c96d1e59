"""Baselines: what the learners are measured against, asked through the same gates."""

from privfed.learners.baselines.bayesian import BayesianInference
from privfed.learners.baselines.fedavg import FedAvgLogistic
from privfed.learners.baselines.forest import LocalForests
from privfed.learners.baselines.pooled import (
    CentralRuleFitClassifier,
    CentralRuleFitRegressor,
    LocalRuleFitClassifier,
    LocalRuleFitRegressor,
)

__all__ = [
    "BayesianInference",
    "CentralRuleFitClassifier",
    "CentralRuleFitRegressor",
    "FedAvgLogistic",
    "LocalForests",
    "LocalRuleFitClassifier",
    "LocalRuleFitRegressor",
]
