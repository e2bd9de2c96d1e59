"""From everybody's own trajectories to everybody's own rules: the records of a rule search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privfed.errors import InputError
from privfed.learners.rule_search.rule_book import RuleBook
from privfed.learners.stl.formula import Formula
from privfed.learners.stl.learner import GeneticRules


def learn_rules(
    signals: np.ndarray, labels: np.ndarray, people: np.ndarray, settings: GeneticRules
) -> RuleBook:
    """Let each individual learn from its own trajectories; nobody sees another's.

    Args:
        signals: trajectories, shape (samples, steps, variables in the grammar's order).
        labels: true for the positive class, shape (samples,).
        people: whose each trajectory is, shape (samples,).
        settings: the learner; each individual gets a seed of its own.

    Raises:
        InputError: arrays of different lengths.
    """
    if not len(signals) == len(labels) == len(people):
        raise InputError("trajectories, labels and people need one entry for each trajectory")
    rules: dict[str, Sequence[Formula]] = {}
    for number, person in enumerate(np.unique(people)):
        own = np.asarray(people) == person
        seeded = replace(settings, seed=settings.seed + number)
        rules[str(person)] = [found.rule for found in seeded.learn(signals[own], labels[own])]
    return RuleBook.of(rules, settings.grammar)
