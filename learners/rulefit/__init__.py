"""Federated RuleFit: shared cut-offs, boosted rules, and one sparse model round by round.

Source: Wan, Tanioka, Shimokawa 2026, Federated Rule Ensemble Method in Medical Data.
"""

from privfed.learners.rulefit.estimator import RuleFitClassifier, RuleFitRegressor
from privfed.learners.rulefit.rules import Condition, Rule

__all__ = ["Condition", "Rule", "RuleFitClassifier", "RuleFitRegressor"]
