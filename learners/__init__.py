"""Learners: one module or subpackage for each paper, written against ``Disclosure`` alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.learners.forest import FedForestClassifier as FedForestClassifier
    from privfed.learners.forest import FedForestRegressor as FedForestRegressor
    from privfed.learners.fuzzy_tree import FuzzyTreeRegressor as FuzzyTreeRegressor
    from privfed.learners.genetic_tree import GeneticTreeClassifier as GeneticTreeClassifier
    from privfed.learners.genetic_tree import GeneticTreeRegressor as GeneticTreeRegressor
    from privfed.learners.rule_search import LevelRuleSearch as LevelRuleSearch
    from privfed.learners.rule_search import PartRuleSearch as PartRuleSearch
    from privfed.learners.rule_search import RuleSearch as RuleSearch
    from privfed.learners.rule_search import SampledRuleSearch as SampledRuleSearch
    from privfed.learners.rule_search import TreeRuleSearch as TreeRuleSearch
    from privfed.learners.rulefit import RuleFitClassifier as RuleFitClassifier
    from privfed.learners.rulefit import RuleFitRegressor as RuleFitRegressor
    from privfed.learners.saved import load as load
    from privfed.learners.saved import save as save

#: Where each learner lives, and how to save one; imported on first use.
_HOMES = {
    "FedForestClassifier": "forest",
    "FedForestRegressor": "forest",
    "FuzzyTreeRegressor": "fuzzy_tree",
    "GeneticTreeClassifier": "genetic_tree",
    "GeneticTreeRegressor": "genetic_tree",
    "RuleFitClassifier": "rulefit",
    "RuleFitRegressor": "rulefit",
    "LevelRuleSearch": "rule_search",
    "PartRuleSearch": "rule_search",
    "SampledRuleSearch": "rule_search",
    "TreeRuleSearch": "rule_search",
    "RuleSearch": "rule_search",
    "load": "saved",
    "save": "saved",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privfed.learners' has no attribute {name!r}")
    return getattr(import_module(f"privfed.learners.{_HOMES[name]}"), name)
