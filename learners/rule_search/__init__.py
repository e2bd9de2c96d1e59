"""Rule search under local differential privacy (DP-RuL): queries, searches, and what they cost."""

from privfed.learners.rule_search.estimators import (
    LevelRuleSearch,
    PartRuleSearch,
    RuleSearch,
    SampledRuleSearch,
    TreeRuleSearch,
)

__all__ = ["LevelRuleSearch", "PartRuleSearch", "RuleSearch", "SampledRuleSearch", "TreeRuleSearch"]
