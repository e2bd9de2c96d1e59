"""The client's own learner finds what sets two classes apart, and repeats itself exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners.stl.formula import Atom, Temporal, robustness
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.learner import GeneticRules

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
    settings = GeneticRules(GRAMMAR, population=24, generations=6, seed=1, least=0.01)
    best = settings.learn(*_classes(40, 1))[0].rule
    fresh, labels = _classes(200, 2)
    held = robustness(best, fresh, GRAMMAR.names) > 0
    assert (held == labels).mean() > 0.9
    shuffled = np.random.default_rng(3).permutation(_classes(40, 1)[1])
    noise = settings.learn(_classes(40, 1)[0], shuffled)[0].rule
    assert ((robustness(noise, fresh, GRAMMAR.names) > 0) == labels).mean() < 0.75


def test_it_is_reproducible_and_its_rules_are_canonical() -> None:
    """The same seed gives the same rules, of different structures within the grammar."""
    signals, labels = _classes(20, 5)
    once, again = (
        GeneticRules(GRAMMAR, seed=7, generations=3).learn(signals, labels) for _ in "12"
    )
    assert once == again
    structures = [GRAMMAR.structure(scored.rule) for scored in once]
    assert len(set(structures)) == len(structures) > 0


def test_intervals_are_tuned_as_well_as_thresholds() -> None:
    """With one operator only the bump's own steps, 2 and 3, separate the classes well."""
    signals, labels = _classes(60, 6)
    grammar = Grammar(GRAMMAR.variables, ("G",), most_operators=1, horizon=7)
    best = GeneticRules(grammar, seed=1).learn(signals, labels)[0].rule
    assert isinstance(best, Temporal)
    assert best.interval == (2, 3)


def test_bayesian_optimisation_tunes_thresholds_and_intervals() -> None:
    """Without a generation of evolution it improves on the drawn parameters."""
    signals, labels = _classes(60, 6)
    grammar = Grammar((("a", -3.0, 3.0), ("b", -3.0, 3.0)), ("G",), most_operators=1, horizon=7)
    scores = []
    for evaluations in (1, 40):
        settings = GeneticRules(
            grammar, seed=1, generations=0, population=3, least=0.001,
            tuning="bayesian", evaluations=evaluations,
        )  # fmt: skip
        found = settings.learn(signals, labels)
        scores.append(found[0].score)
    assert scores[1] > scores[0] + 0.1


def test_of_rules_that_err_alike_the_wider_gap_wins() -> None:
    """Nenzi's function, equation 3: mean robustness apart, over the deviations; by either name."""
    rng, labels = np.random.default_rng(0), np.arange(40) % 2 == 0
    noise = rng.normal(0, 0.1, (40, 1, 2))
    for wide in (0, 1):
        signals = noise + np.where(labels, 0.5, -0.5)[:, None, None]
        signals[:, :, wide] += np.where(labels, 3.0, -3.0)[:, None]
        signals[:, :, 1 - wide] = np.where(labels, 1, -1)[:, None] * (0.1 + rng.random((40, 1)))
        bare = Grammar(GRAMMAR.variables, (), most_operators=0)
        first, second = GeneticRules(bare, seed=2).learn(signals, labels)[:2]
        assert isinstance(first.rule, Atom)
        assert first.rule.variable == "ab"[wide]
        assert first.score > second.score


def test_weak_rules_are_no_rules() -> None:
    """Every rule given back has the least score; a higher one leaves fewer."""
    signals, labels = _classes(20, 5)
    loose, strict = (
        GeneticRules(GRAMMAR, least=least).learn(signals, labels) for least in (0.3, 0.9)
    )
    assert min(scored.score for scored in loose) >= 0.3
    assert strict == [scored for scored in loose if scored.score >= 0.9][: len(strict)]
    assert 0 < len(strict) <= len(loose)


def test_a_grammar_of_negation_alone_has_atoms() -> None:
    """Where no operator is of use to the search, rules are single comparisons."""
    signals, labels = _classes(20, 5)
    grammar = Grammar(GRAMMAR.variables, ("!",), most_operators=1, horizon=3)
    found = GeneticRules(grammar, least=0.01).learn(signals, labels)
    assert {type(scored.rule) for scored in found} == {Atom}


@pytest.mark.parametrize(
    "settings", [{"rules": 0}, {"population": 0}, {"generations": -1}, {"least": float("nan")}]
)
def test_searches_that_make_no_sense(settings: dict[str, Any]) -> None:
    """One clear error before anything is searched."""
    with pytest.raises(InputError, match="genetic search"):
        GeneticRules(GRAMMAR, **settings)


def test_one_class_alone_gives_no_rules() -> None:
    """Nothing can be told apart."""
    signals, _ = _classes(6, 1)
    assert GeneticRules(GRAMMAR).learn(signals, np.ones(6, bool)) == []


def test_labels_must_fit() -> None:
    """One label for each trajectory."""
    signals, labels = _classes(6, 1)
    with pytest.raises(InputError, match="labels"):
        GeneticRules(GRAMMAR).learn(signals, labels[:4])
