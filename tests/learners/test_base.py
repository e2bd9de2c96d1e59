"""scikit-learn's manners on every learner: kinds, features, scores, clients, and what fit is given."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

import privfed.learners
from privfed import Budget, Column, Guard, LocalDisclosure, Policy, Schema
from privfed.errors import InputError, Note, PluginError, PolicyError, SchemaError
from privfed.exchange.disclosure import Disclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import (
    FedForestRegressor,
    FuzzyTreeRegressor,
    GeneticTreeRegressor,
    RuleFitClassifier,
    RuleFitRegressor,
)
from privfed.learners.base import FederatedClassifier, FederatedLearner, FederatedRegressor
from privfed.learners.baselines import BayesianInference, FedAvgLogistic, LocalForests
from privfed.questions import plugins
from privfed.questions.exact import Number
from privfed.testing.hospitals import BINARY, NAMES, NUMERIC, QUICK, gates, patients
from privfed.testing.queries import Histogram

FRAME = patients(300)
X = FRAME[list(NAMES)]


@pytest.mark.parametrize("name", sorted(plugins.available("learners")))
def test_kinds(name: str) -> None:
    """scikit-learn's tools know each for what it is, and a clone is as unfitted as its model."""
    learner: FederatedLearner = plugins.load("learners", name)()
    assert is_classifier(learner) == (not name.endswith("Regressor"))
    assert is_regressor(learner) == name.endswith("Regressor")
    for attribute in ("n_features_in_", "feature_names_in_", "classes_", "schema_"):
        assert not hasattr(clone(learner), attribute)
    with pytest.raises(NotFittedError):
        check_is_fitted(learner)
    with pytest.raises(NotFittedError):
        learner.predict(X)


def test_a_client_for_each_row_is_one_that_took_part() -> None:
    """One model serves all; a stranger is named alone, however many rows there are."""
    names = FRAME["hospital"].tolist()
    learners = (RuleFitClassifier(max_terms=None), BINARY), (FuzzyTreeRegressor(), NUMERIC)
    for learner, schema in learners:
        learner.fit(gates(FRAME, learner.private(4), schema))
        assert np.array_equal(learner.predict(X, client=names), learner.predict(X))
        with pytest.raises(
            InputError, match=r"^no client 'Z' took part; those that did are \w, \w, \w$"
        ):
            learner.predict(X, client=[*names[:-1], "Z"])
        with pytest.raises(InputError, match="one for each of the 300 rows"):
            learner.predict(X, client=names[:-1])
        with pytest.raises(InputError, match="no client 'Z'"):
            learner.predict(X[:0], client="Z")


def test_a_fitted_model_is_not_told_to_be_unfitted() -> None:
    """What it has not is no attribute of it; before, nobody can tell."""
    learner = FedAvgLogistic()
    with pytest.raises(NotFittedError):
        _ = learner.feature_importances_
    learner.fit(gates(FRAME, learner.published()))
    with pytest.raises(AttributeError, match="no attribute 'feature_importances_'") as told:
        _ = learner.feature_importances_
    assert not isinstance(told.value, NotFittedError)
    with pytest.raises(InputError, match=r"has no picture$"):
        learner.plot()


@pytest.mark.parametrize("low", [-40, 0.1])
def test_a_logarithm_is_advised_where_there_is_one(low: float) -> None:
    """Not of a target whose public bounds let it be negative."""
    learner = RuleFitRegressor()
    learner.schema_ = Schema(NUMERIC.features, Column("days", "number", low, 400))
    learner.target_limits_ = 1.0, 4.0
    with pytest.warns(Note, match="score records within and beyond the limits separately") as told:
        learner._note_limits()
    assert ("logarithm" in str(told[0].message)) == (low > 0)


def test_lists_of_numbers_beside_texts_are_read_to_the_last_digit() -> None:
    """As a table of the same cells."""
    learner = RuleFitRegressor(max_terms=None, random_state=0)
    learner.fit(gates(FRAME, learner.private(4), NUMERIC))
    rows: Any = X.to_numpy(object).tolist()
    assert np.array_equal(learner.predict(rows), learner.predict(X))


@pytest.mark.parametrize("bounds", [(0, 1e-12), (0, 1e12), (1e9, 1e9 + 10)])
@pytest.mark.parametrize("name", sorted(plugins.available("learners")))
def test_a_plan_is_priced_whatever_the_bounds(name: str, bounds: tuple[float, float]) -> None:
    """Its queries have parts for columns of billionths and of millions, and for those far from zero."""
    learner: FederatedLearner = plugins.load("learners", name)()
    number = Column("y", "number", *bounds)
    target = number if is_regressor(learner) else Column("y", categories=("no", "yes"))
    schema = Schema((Column("x", "number", *bounds),), target)
    policies = [learner.published()]
    with suppress(PolicyError):  # a baseline has no other
        policies.append(learner.private(4, schema=schema))
    for policy in policies:
        for line in learner.plan(schema, policy):
            line.query.parts(schema)


@pytest.mark.parametrize(
    ("learner", "schema"),
    [
        (FuzzyTreeRegressor(max_depth=1), NUMERIC),
        (RuleFitClassifier(**QUICK), BINARY),
        (RuleFitRegressor(**QUICK), NUMERIC),
        (FedAvgLogistic(n_rounds=3), BINARY),
        (LocalForests(n_estimators=3), BINARY),
    ],
)
def test_a_fitted_model_knows_its_features_and_scores(
    learner: FederatedLearner, schema: Schema
) -> None:
    """Names and number of the features; R squared or accuracy of its own predictions."""
    model: Any = clone(learner).fit(gates(FRAME, learner.published(), schema))
    check_is_fitted(model)
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == list(NAMES)
    assert schema.target is not None
    truth = FRAME[schema.target.name]
    if is_classifier(model):
        assert model.classes_.tolist() == [0, 1]
        assert model.score(X, truth) == np.mean(model.predict(X) == truth)
        assert model.predict_proba(X).shape == (300, 2)
        assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)
    else:
        assert model.score(X, truth) == pytest.approx(r2_score(truth, model.predict(X)))
    assert model.score(X, truth) > 0.5
    assert model.score(X, truth, client="A") == model.score(X, truth)


def test_decisions_are_log_odds() -> None:
    """Of RuleFit and of the linear baselines alike."""
    for model in (RuleFitClassifier(**QUICK), BayesianInference()):
        model.fit(gates(FRAME, model.published()))
        odds = model.decision_function(X)
        assert np.log(model.predict_proba(X)[:, 1] / model.predict_proba(X)[:, 0]) == pytest.approx(
            odds
        )


def test_a_model_for_everybody_knows_who_took_part() -> None:
    """A client's name changes nothing, and a stranger's is refused."""
    model = BayesianInference().fit(gates(FRAME, BayesianInference().published()))
    assert sorted(model.clients_) == ["A", "B", "C"]
    assert np.array_equal(model.predict(X, client="B"), model.predict(X))
    with pytest.raises(InputError, match="no client 'D' took part; those that did are"):
        model.predict(X, client="D")


@pytest.mark.parametrize("given", [X, X.to_numpy(), {"A": X}, None])
def test_fit_says_what_to_pass_instead_of_a_table(given: Any) -> None:
    """One line with the code to write."""
    with pytest.raises(InputError, match=r"learns from a federation, not from a .*write ") as told:
        RuleFitClassifier().fit(given)
    assert "RuleFitClassifier().fit(LocalDisclosure.from_frame(" in str(told.value)


def test_accuracy_compares_names_as_the_schema_writes_them() -> None:
    """A category of 1 and 2 read as numbers is still the category "1" and "2"."""
    frame = FRAME.assign(died=FRAME["died"] + 1)
    schema = Schema(BINARY.features, Column("died", "category", categories=("1", "2")))
    model = BayesianInference().fit(UngatedDisclosure.from_frame(frame, schema))
    assert model.predict(X).tolist()[0] in ("1", "2")
    assert model.score(X, frame["died"]) == model.score(X, frame["died"].astype(float)) > 0.7


@pytest.mark.parametrize(
    ("learner", "target", "message"),
    [
        (RuleFitRegressor(), Column("y", "category", categories=("a", "b")), "numeric target"),
        (FuzzyTreeRegressor(), None, "numeric target"),
        (RuleFitClassifier(), Column("y", lower=0, upper=2), "target with classes"),
        (BayesianInference(), Column("y", "category", categories=("a", "b", "c")), "two values"),
        (LocalForests(), None, "two values"),
    ],
)
def test_targets_that_a_learner_cannot_learn(
    learner: FederatedLearner, target: Column | None, message: str
) -> None:
    """Each says by its own name what it needs."""
    with pytest.raises(InputError, match=rf"^{type(learner).__name__} needs .*{message}"):
        learner.check(Schema(BINARY.features, target))


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_zero_or_one_is_no_number_to_regress_on(kind: Any) -> None:
    """A class in disguise, unless the schema says that it is a share."""
    schema = Schema(BINARY.features, Column("died", kind, 0, 1))
    if kind == "number":
        return RuleFitRegressor().check(schema)
    with pytest.raises(InputError, match='write kind = "category"'):
        RuleFitRegressor().check(schema)


class Dividing(FederatedClassifier):
    """A learner of three classes whose budget is divided by the number of features."""

    queries: ClassVar[Any] = (Histogram,)

    def fit(self, federation: Disclosure) -> Self:
        """Learn nothing of what it is told."""
        self._start(federation)
        federation.ask(Histogram(0, (0.0, 1.0)))
        return self

    def predict_proba(
        self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """The class by the first feature."""
        chosen: np.ndarray = np.eye(3)[self._encode(x, client)[:, 0].astype(int)]
        return chosen

    def published(self) -> Policy:
        """Nothing."""
        return Policy({})

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """A histogram for each feature."""
        budget, features = Budget.of(epsilon), self._divided_by(schema).features
        guard = Guard.of("laplace", spend=budget.epsilon / len(features), times=len(features))
        return Policy({Histogram.kind: (guard,)}, budget=budget)

    def plan(self, schema: Schema, policy: Policy) -> Any:
        """Nothing."""
        return []


def test_what_a_learner_forgets_is_told() -> None:
    """A fit without return left a model in a study, and none in Python; one probability a row was an error of numpy."""

    class Forgetful(Dividing):
        def fit(self, federation: Disclosure) -> Self:
            """Return nothing."""
            super().fit(federation)
            return None  # type: ignore[return-value]

    class Unstarted(Dividing):
        def fit(self, federation: Disclosure) -> Self:
            """Ask without a schema."""
            federation.ask(Histogram(0, (0.0, 1.0)))
            return self

    class Single(Dividing):
        def predict_proba(
            self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
        ) -> np.ndarray:
            """The probability of the last class."""
            return super().predict_proba(x, client=client)[:, -1]

    target = Column("stage", kind="category", categories=("0", "1", "2"))
    schema = Schema([Column("x", lower=0, upper=2)], target)
    table = pd.DataFrame({"x": [0, 1, 2], "stage": ["0", "1", "2"], "hospital": "A"})
    guarded = Policy({Histogram.kind: (Guard.of("open"),)})

    def federation() -> LocalDisclosure:
        given: Any = {"client": "hospital", "schema": schema, "policy": guarded}
        return LocalDisclosure.from_frame(table, "stage", **given)

    with pytest.raises(PluginError, match=r"Forgetful: fit returns a NoneType.* return self"):
        Forgetful().fit(federation())
    with pytest.raises(PluginError, match=r"Unstarted: fit does not begin with self\._start"):
        Unstarted().fit(federation())
    single = Single().fit(federation())
    with pytest.raises(PluginError, match=r"Single: predict_proba .* \(3,\), not of \(rows, 3"):
        single.predict(table[["x"]])


def test_a_budget_that_hangs_on_the_schema() -> None:
    """Without one it says how to pass it; with one it is divided."""
    with pytest.raises(PolicyError, match=r"write private\(epsilon, delta, schema=schema\)"):
        Dividing().private(2)
    (guard,) = Dividing().private(2, schema=NUMERIC).guards[Histogram.kind]
    assert (guard.spend, guard.times) == (Budget.of("0.5").epsilon, 4)


def test_more_classes_than_two() -> None:
    """The likeliest class, by the schema's names; a table of other columns is refused."""
    column = Column("y", "category", categories=("low", "middle", "high"))
    schema = Schema((Column("a", lower=0, upper=2),), column)
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0], "y": ["low", "middle", "high"]})
    model = Dividing().fit(UngatedDisclosure.from_frame(frame, schema))
    assert model.predict(frame).tolist() == model.classes_.tolist() == ["low", "middle", "high"]
    assert model.score(frame, frame["y"]) == 1.0
    assert model.score(frame, ["low", "low", "low"], sample_weight=[1, 1, 2]) == 0.25
    with pytest.raises(SchemaError, match="two dimensions and 1 columns: a"):
        model.predict(np.zeros((2, 3)))
    assert Dividing.from_dict(model.to_dict()).predict(frame).tolist() == list(frame["y"])


def test_abstract_kinds_cannot_be_built() -> None:
    """Whoever forgets to predict probabilities learns it at once."""
    for kind in (FederatedLearner, FederatedClassifier, FederatedRegressor):
        with pytest.raises(TypeError, match="abstract"):
            kind()


def test_parameters_are_set_as_scikit_learn_sets_them() -> None:
    """Grids and clones work on them; a printed learner shows what differs from the defaults."""
    grid = ParameterGrid({"n_fuzzy_sets": [3, 5], "max_depth": [1]})
    learners = [clone(FuzzyTreeRegressor()).set_params(**settings) for settings in grid]
    assert [learner.n_fuzzy_sets for learner in learners] == [3, 5]
    assert repr(learners[0]) == "FuzzyTreeRegressor(max_depth=1, n_fuzzy_sets=3)"


def test_a_baseline_is_found_where_the_error_says() -> None:
    """Baselines have one place, apart from the papers' learners; an unknown name is no attribute."""
    with pytest.raises(ImportError, match=r"from privfed\.learners\.baselines import LocalTree"):
        from privfed.learners import LocalTreeClassifier  # noqa: F401
    assert not hasattr(privfed.learners, "Unknown")


@pytest.mark.parametrize(
    "kind", [FedForestRegressor, FuzzyTreeRegressor, GeneticTreeRegressor, RuleFitRegressor]
)
def test_private_numbers_say_where_noise_may_be_all(kind: type[FederatedRegressor]) -> None:
    """At epsilon .01 and 300 records; not at 8."""
    for epsilon, told in (("0.01", True), ("8", False)):
        learner = kind()
        fed = gates(FRAME, learner.private(epsilon, schema=NUMERIC), NUMERIC)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", Note)
            learner.fit(fed)
        assert any("too small for so few records" in str(each.message) for each in caught) == told


def test_accuracy_reads_true_classes_as_tables_are_read() -> None:
    """Booleans that a model was fitted to once scored 0, as would a value that is no class: that is refused."""
    frame = FRAME.assign(died=FRAME["died"] == 1)
    model = BayesianInference().fit(UngatedDisclosure.from_frame(frame, BINARY))
    by_number = model.score(X, FRAME["died"])
    assert (
        model.score(X, frame["died"]) == model.score(X, frame["died"].tolist()) == by_number > 0.7
    )
    with pytest.raises(SchemaError, match="text stands in 300 cells") as told:
        model.score(X, ["yes"] * 300)
    assert "yes" not in str(told.value)
    schema = Schema(BINARY.features, Column("died", "category", categories=("False", "True")))
    named = BayesianInference().fit(UngatedDisclosure.from_frame(frame, schema))
    assert named.score(X, frame["died"]) == by_number
    with pytest.raises(
        SchemaError, match="300 cells with a category that the schema does not list"
    ):
        named.score(X, ["no"] * 300)
