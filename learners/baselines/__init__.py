"""Baselines: what the learners are measured against, asked through the same gates."""

from privfed.learners.baselines.bayesian import BayesianInference
from privfed.learners.baselines.forest import LocalForests
from privfed.learners.baselines.fuzzy_rules import FuzzyRulesRegressor
from privfed.learners.baselines.network import (
    FedAvgLogistic,
    FedAvgNetworkClassifier,
    FedAvgNetworkRegressor,
)
from privfed.learners.baselines.pooled import (
    CentralRuleFitClassifier,
    CentralRuleFitRegressor,
    LocalRuleFitClassifier,
    LocalRuleFitRegressor,
)
from privfed.learners.baselines.scikit_forest import (
    CentralForestClassifier,
    CentralForestRegressor,
    HistogramForestClassifier,
    HistogramForestRegressor,
    LocalForestClassifier,
    LocalForestRegressor,
)
from privfed.learners.baselines.trees import (
    CentralTreeClassifier,
    CentralTreeRegressor,
    LocalTreeClassifier,
    LocalTreeRegressor,
)
from privfed.learners.baselines.truex import TruexTreeClassifier

__all__ = [
    "BayesianInference",
    "CentralForestClassifier",
    "CentralForestRegressor",
    "CentralRuleFitClassifier",
    "CentralRuleFitRegressor",
    "CentralTreeClassifier",
    "CentralTreeRegressor",
    "FedAvgLogistic",
    "FedAvgNetworkClassifier",
    "FedAvgNetworkRegressor",
    "FuzzyRulesRegressor",
    "HistogramForestClassifier",
    "HistogramForestRegressor",
    "LocalForestClassifier",
    "LocalForestRegressor",
    "LocalForests",
    "LocalRuleFitClassifier",
    "LocalRuleFitRegressor",
    "LocalTreeClassifier",
    "LocalTreeRegressor",
    "TruexTreeClassifier",
]
