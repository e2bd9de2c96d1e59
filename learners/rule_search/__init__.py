"""Rule search under local differential privacy (DP-RuL): queries, searches, and their costs."""

from privfed.learners.rule_search.estimators import (
    LevelRuleSearch,
    PartRuleSearch,
    RuleSearch,
    SampledRuleSearch,
    TreeRuleSearch,
)

__all__ = ["LevelRuleSearch", "PartRuleSearch", "RuleSearch", "SampledRuleSearch", "TreeRuleSearch"]
