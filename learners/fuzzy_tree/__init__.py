"""Federated fuzzy regression trees (Corcuera Barcena, Ducange, Marcelloni and Renda 2025)."""

from privfed.learners.fuzzy_tree.estimator import FuzzyTreeRegressor

__all__ = ["FuzzyTreeRegressor"]
