"""The client's own learner finds what sets two classes apart, and repeats itself exactly."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.learner import GeneticRules
from privfed.learners.stl.robustness import robustness

GRAMMAR = Grammar((("a", -3.0, 3.0), ("b", -3.0, 3.0)), most_operators=3, horizon=5)


def _classes(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The positive class has a bump in ``a`` during the first steps."""
    rng = np.random.default_rng(seed)
    labels = np.arange(samples) % 2 == 0
    signals = rng.normal(0, 0.5, (samples, 8, 2))
    signals[labels, 2:4, 0] += 2.0
    return signals, labels


def test_it_finds_a_planted_rule_and_generalises() -> None:
    """The best rule separates fresh trajectories; labels that mean nothing give no such rule."""
    settings = GeneticRules(GRAMMAR, population=40, generations=12, seed=1)
    best = settings.learn(*_classes(40, 1))[0].rule
    fresh, labels = _classes(200, 2)
    held = robustness(best, fresh, GRAMMAR.names) > 0
    assert (held == labels).mean() > 0.9
    shuffled = np.random.default_rng(3).permutation(_classes(40, 1)[1])
    noise = settings.learn(_classes(40, 1)[0], shuffled)[0].rule
    assert ((robustness(noise, fresh, GRAMMAR.names) > 0) == labels).mean() < 0.9


def test_it_is_reproducible_and_its_rules_are_canonical() -> None:
    """The same seed gives the same rules, of different structures within the grammar."""
    signals, labels = _classes(20, 5)
    once, again = (
        GeneticRules(GRAMMAR, seed=7, generations=3).learn(signals, labels) for _ in "12"
    )
    assert once == again
    structures = [GRAMMAR.structure(scored.rule) for scored in once]
    assert len(set(structures)) == len(structures) > 0


def test_one_class_alone_gives_no_rules() -> None:
    """Nothing can be told apart."""
    signals, _ = _classes(6, 1)
    assert GeneticRules(GRAMMAR).learn(signals, np.ones(6, bool)) == []


def test_labels_must_fit() -> None:
    """One label for each trajectory."""
    signals, labels = _classes(6, 1)
    with pytest.raises(InputError, match="labels"):
        GeneticRules(GRAMMAR).learn(signals, labels[:4])
