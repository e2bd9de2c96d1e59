"""Personalised trees by a federated genetic algorithm (FedGA-Tree)."""

from privfed.learners.genetic_tree.estimator import GeneticTreeClassifier, GeneticTreeRegressor

__all__ = ["GeneticTreeClassifier", "GeneticTreeRegressor"]
