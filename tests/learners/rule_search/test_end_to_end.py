"""From public time series to population rules, on people who were held out."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners import RuleSearch
from privfed.learners.rule_search.local_rules import learn_rules
from privfed.learners.rule_search.population_rules import utility
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.learner import GeneticRules


def _power() -> tuple[np.ndarray, np.ndarray]:
    """Italian power demand: 1,096 days of 24 hours, winter or summer."""
    datasets = pytest.importorskip("sktime.datasets")
    signals, labels = datasets.load_italy_power_demand(return_type="numpy3d")
    return np.transpose(signals, (0, 2, 1)), labels == "1"


def _motions() -> tuple[np.ndarray, np.ndarray]:
    """Basic motions: 80 recordings of 100 steps of six sensors, moving fast or not."""
    datasets = pytest.importorskip("sktime.datasets")
    signals, labels = datasets.load_basic_motions(return_type="numpy3d")
    return np.transpose(signals, (0, 2, 1))[:, ::5], np.isin(labels, ["running", "badminton"])


@pytest.mark.parametrize(
    ("load", "people", "bound", "least"), [(_power, 30, 4.0, 0.55), (_motions, 10, 20.0, 0.7)]
)
def test_population_rules_tell_held_out_people(
    load: object, people: int, bound: float, least: float
) -> None:
    """Individuals learn from a few trajectories each, a search finds what they share.

    So few individuals hide nobody behind anybody: the search runs at a very large epsilon, and
    shows that the way is whole, not that it is private here.
    """
    signals, labels = load()  # type: ignore[operator]
    rng = np.random.default_rng(1)
    order = rng.permutation(len(signals))
    held, own = order[: len(order) // 3], order[len(order) // 3 :][: people * 8]
    names = tuple((f"x{i}", -bound, bound) for i in range(signals.shape[2]))
    grammar = Grammar(names, most_operators=1, horizon=8)
    settings = GeneticRules(grammar, rules=12, population=10, generations=1)
    whose = np.arange(len(own)) % people
    book = learn_rules(signals[own], labels[own], whose, settings)
    model = RuleSearch(
        "levels", epsilon="100", threshold=0.2, levels=3, parameter_epsilon="60000", horizon=8,
        most_operators=1,
    )  # fmt: skip
    federation = CohortDisclosure.of(book, model.private("100000"), seed=1)
    model.fit(federation)
    scores = utility(model.predict(signals[held]), labels[held])
    assert book.rules > 3 * people
    assert len(model.found_) >= 3
    assert scores["balanced_accuracy"] > least


def test_arrays_must_fit() -> None:
    """One label and one owner for each trajectory."""
    grammar = Grammar((("x", 0.0, 1.0),))
    with pytest.raises(InputError, match="one entry"):
        learn_rules(np.zeros((3, 2, 1)), np.ones(3), np.zeros(2), GeneticRules(grammar))
