"""Rule search under local differential privacy (DP-RuL): queries, searches, and what they cost."""

from privfed.learners.rule_search.rule_search import RuleSearch

__all__ = ["RuleSearch"]
