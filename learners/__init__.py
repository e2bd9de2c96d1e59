"""Learners: one module or subpackage for each paper, written against ``Disclosure`` alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.learners.fuzzy_tree import FuzzyTreeRegressor as FuzzyTreeRegressor
    from privfed.learners.rule_search import RuleSearch as RuleSearch
    from privfed.learners.rulefit import RuleFitClassifier as RuleFitClassifier
    from privfed.learners.rulefit import RuleFitRegressor as RuleFitRegressor

#: Where each learner lives; imported on first use.
_HOMES = {
    "FuzzyTreeRegressor": "fuzzy_tree",
    "RuleFitClassifier": "rulefit",
    "RuleFitRegressor": "rulefit",
    "RuleSearch": "rule_search",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privfed.learners' has no attribute {name!r}")
    return getattr(import_module(f"privfed.learners.{_HOMES[name]}"), name)
