"""Baselines for comparison with the learners, through the same gates."""

from typing import TYPE_CHECKING

from privfed.lazy import attach

if TYPE_CHECKING:
    from privfed.learners.baselines.bayesian import BayesianInference as BayesianInference
    from privfed.learners.baselines.forest import LocalForests as LocalForests
    from privfed.learners.baselines.fuzzy_rules import FuzzyRulesRegressor as FuzzyRulesRegressor
    from privfed.learners.baselines.network import FedAvgLogistic as FedAvgLogistic
    from privfed.learners.baselines.network import (
        FedAvgNetworkClassifier as FedAvgNetworkClassifier,
    )
    from privfed.learners.baselines.network import FedAvgNetworkRegressor as FedAvgNetworkRegressor
    from privfed.learners.baselines.pooled import (
        CentralRuleFitClassifier as CentralRuleFitClassifier,
    )
    from privfed.learners.baselines.pooled import CentralRuleFitRegressor as CentralRuleFitRegressor
    from privfed.learners.baselines.pooled import LocalRuleFitClassifier as LocalRuleFitClassifier
    from privfed.learners.baselines.pooled import LocalRuleFitRegressor as LocalRuleFitRegressor
    from privfed.learners.baselines.scikit_forest import (
        CentralForestClassifier as CentralForestClassifier,
    )
    from privfed.learners.baselines.scikit_forest import (
        CentralForestRegressor as CentralForestRegressor,
    )
    from privfed.learners.baselines.scikit_forest import (
        HistogramForestClassifier as HistogramForestClassifier,
    )
    from privfed.learners.baselines.scikit_forest import (
        HistogramForestRegressor as HistogramForestRegressor,
    )
    from privfed.learners.baselines.scikit_forest import (
        LocalForestClassifier as LocalForestClassifier,
    )
    from privfed.learners.baselines.scikit_forest import (
        LocalForestRegressor as LocalForestRegressor,
    )
    from privfed.learners.baselines.trees import CentralTreeClassifier as CentralTreeClassifier
    from privfed.learners.baselines.trees import CentralTreeRegressor as CentralTreeRegressor
    from privfed.learners.baselines.trees import LocalTreeClassifier as LocalTreeClassifier
    from privfed.learners.baselines.trees import LocalTreeRegressor as LocalTreeRegressor
    from privfed.learners.baselines.truex import TruexTreeClassifier as TruexTreeClassifier

__getattr__, __dir__, __all__ = attach(__name__, __file__)
