"""Learners: one module or subpackage for each paper, written against ``Disclosure`` alone."""

from typing import TYPE_CHECKING

from privfed.lazy import attach

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

__getattr__, __dir__, __all__ = attach(__name__, __file__, f"{__name__}.baselines")
