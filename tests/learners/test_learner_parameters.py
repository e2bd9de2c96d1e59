"""Parameters are checked one way: one line that names learner, parameter, type and what to write."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from inspect import Parameter, signature
from typing import Any

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners import FuzzyTreeRegressor, RuleFitClassifier
from privfed.learners.base import FederatedLearner
from privfed.learners.baselines import FedAvgLogistic, LocalRuleFitClassifier
from privfed.learners.parameters import (
    Allowed,
    Boolean,
    Exact,
    Integers,
    Learner,
    Names,
    Reals,
    StrOptions,
)
from privfed.questions import plugins
from privfed.testing.hospitals import BINARY, NUMERIC

LEARNERS = sorted(plugins.available("learners"))


def test_the_whole_line() -> None:
    """Learner, parameter, what it must be, what it was and of which type, what to write."""
    with pytest.raises(InputError) as caught:
        FuzzyTreeRegressor(n_fuzzy_sets="three").check(NUMERIC)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "FuzzyTreeRegressor: n_fuzzy_sets must be a whole number from 2 to 99, a list of them, or a table of "
        "them by feature, not 'three' (str); write for example n_fuzzy_sets = 5"
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_every_parameter_of_every_learner_is_checked(name: str) -> None:
    """Nothing that no parameter can be passes, and the defaults do."""
    learner: FederatedLearner = plugins.load("learners", name)()
    learner.check_parameters()
    for parameter in learner.get_params(deep=False):
        changed: FederatedLearner = plugins.load("learners", name)()
        changed.set_params(**{parameter: object()})
        with pytest.raises(InputError, match=rf"^{name}: {parameter} must be ") as caught:
            changed.check_parameters()
        assert "; write for example " in str(caught.value)


@pytest.mark.parametrize("name", LEARNERS)
def test_parameters_go_by_name(name: str) -> None:
    """At most two of them may be passed in order: the rest would read as bare numbers."""
    given = signature(plugins.load("learners", name)).parameters.values()
    assert sum(parameter.kind is not Parameter.KEYWORD_ONLY for parameter in given) <= 2


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (FuzzyTreeRegressor, {"max_depth": True}),
        (FuzzyTreeRegressor, {"features": "age"}),
        (FuzzyTreeRegressor, {"min_gain": float("nan")}),
        (RuleFitClassifier, {"include_linear": 1}),
        (RuleFitClassifier, {"n_estimators": 20.0}),
        (RuleFitClassifier, {"random_state": "seed"}),
        (RuleFitClassifier, {"subsample": float("inf")}),
        (FedAvgLogistic, {"learning_rate": 0}),
        (LocalRuleFitClassifier, {"learner": "RuleFitClassifier"}),
    ],
)
def test_what_looks_right_and_is_not(
    build: Callable[..., FederatedLearner], given: dict[str, Any]
) -> None:
    """Truth values for numbers, numbers for truth values, a text for a list, NaN, floats."""
    with pytest.raises(InputError, match=rf": {next(iter(given))} must be "):
        build(**given).check(BINARY)


def test_numpy_s_numbers_are_numbers() -> None:
    """And its truth values are truth values."""
    numbers: dict[str, Any] = {"n_fuzzy_sets": np.int64(3), "min_gain": np.float32(0.25)}
    FuzzyTreeRegressor(**numbers).check(NUMERIC)
    truths: dict[str, Any] = {"include_linear": np.bool_(False), "tree_size": np.float64(4)}
    RuleFitClassifier(**truths).check(BINARY)


def test_columns_that_are_not_there_are_told_before_anything_is_asked() -> None:
    """What belongs together with the schema is the learner's own check."""
    with pytest.raises(InputError, match="no column 'height'"):
        FuzzyTreeRegressor(features=["height"]).check(NUMERIC)


KINDS: list[tuple[Allowed, list[Any], list[Any]]] = [
    (Integers(at_least=1), [1, np.int8(5)], [0, 1.0, True, "1", None]),
    (Integers(at_least=1, at_most=2), [2], [3]),
    (Reals(above=0, at_most=1), [1, 0.5, np.float32(0.5)], [0, 1.1, True, "0.5", 1j]),
    (Reals(at_least=0), [0, 7], [-1e-9, float("nan"), float("inf")]),
    (Reals(below=0), [-1], [0]),
    (Exact(above=0, below=1), ["0.5", Decimal("0.1"), Fraction(1, 3), 0.2], ["1", 0, "x", True]),
    (Exact(above=0), [np.int64(3), "1e-3"], ["-1", "inf", [1]]),
    (StrOptions("a", "b"), ["a"], ["c", None, ["a"]]),
    (Boolean(), [True, np.bool_(False)], [0, "true", None]),
    (Names(), [[], ["a"], ("a", "b"), np.array(["a"])], ["a", [1], None]),
    (Learner(FuzzyTreeRegressor), [FuzzyTreeRegressor()], [FuzzyTreeRegressor, "x"]),
]


@pytest.mark.parametrize(("kind", "right", "wrong"), KINDS)
def test_each_kind(kind: Allowed, right: list[Any], wrong: list[Any]) -> None:
    """What it holds and what it does not; ends belong to a range where they are said to."""
    assert all(kind.holds(value) for value in right)
    assert not any(kind.holds(value) for value in wrong)


@pytest.mark.parametrize("kind", [kind for kind, _, _ in KINDS if not isinstance(kind, Learner)])
def test_every_example_is_allowed(kind: Allowed) -> None:
    """What a message tells to write is right."""
    assert kind.holds(eval(kind.example))
    assert kind.words
