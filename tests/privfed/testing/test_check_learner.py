"""The learners' kit: ours pass it, and a small learner with planted faults does not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from privfed import Budget, Column, Guard, LocalDisclosure, Policy, Schema
from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.learners import FuzzyTreeRegressor, RuleFitClassifier, RuleFitRegressor
from privfed.learners.base import FederatedLearner, FederatedRegressor, Planned
from privfed.learners.baselines import (
    BayesianInference,
    CentralRuleFitClassifier,
    LocalRuleFitRegressor,
)
from privfed.learners.parameters import Constraints, Reals
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.testing.check_learner import CHECKS, check_learner
from privfed.testing.queries import Histogram, LevelSums

SCHEMA = Schema(
    (Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)), Column("y", lower=0, upper=1)
)
ROOT = LevelSums(((),))
KINDS: tuple[type[Query], ...] = (LevelSums,)


def table(rows: int = 120) -> pd.DataFrame:
    """Records of three clients, the target rising with the first feature."""
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(rng.uniform(0, 1, (rows, 2)), columns=["a", "b"])
    frame["y"] = 0.2 + 0.6 * frame["a"]
    return frame.assign(client=rng.integers(0, 3, rows))


def federate(policy: Policy, queries: Sequence[type[Query]] = ()) -> LocalDisclosure:
    """Three clients, seeded."""
    return LocalDisclosure.from_frame(
        table(), "y", client="client", schema=SCHEMA, policy=policy, seed=5, queries=queries
    )


class Mean(FederatedRegressor):
    """Predicts the mean target: the least learner there is."""

    queries: ClassVar[tuple[type[Query], ...]] = KINDS
    _parameter_constraints: ClassVar[Constraints] = {"shrink": [Reals(at_least=0, at_most=1)]}

    def __init__(self, shrink: float = 0.0) -> None:
        self.shrink = shrink

    def fit(self, federation: Disclosure) -> Self:
        """Ask for one sum and one count."""
        self._start(federation)
        answers = federation.ask(ROOT)
        count = max(float(answers.total("counts")[0]), 1.0)
        self.mean_ = float(answers.total("sums")[0]) / count * (1 - self.shrink)
        return self

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """The mean, once a row."""
        return np.full(len(self._encode(x, client)), self.mean_)

    def published(self) -> Policy:
        """Sums as they are."""
        return Policy({LevelSums.kind: (Guard.of("open"),)}, name="published")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """One noisy answer takes all."""
        guard = Guard.of("laplace", spend=epsilon, times=1)
        return Policy({LevelSums.kind: (guard,)}, budget=Budget.of(epsilon), name="private")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One question."""
        return [Planned(ROOT, 1)]


X = table(7)[["a", "b"]]
#: Why the longest check is left out of all learners of ours but one.
CHECKED = {"queries": "every query that is installed is checked by tests/test_every_query.py"}


@pytest.mark.parametrize(
    ("learner", "skip"),
    [
        (FuzzyTreeRegressor(max_depth=2), CHECKED),
        (FuzzyTreeRegressor(scaling="schema"), CHECKED),
        (FuzzyTreeRegressor(clients_per_round=2, max_depth=2), CHECKED),
        (RuleFitRegressor(n_estimators=6, n_rounds=3), CHECKED),
        (LocalRuleFitRegressor(RuleFitRegressor(n_estimators=6, n_rounds=3)), {}),
    ],
)
def test_regressors_conform(learner: FederatedLearner, skip: dict[str, str]) -> None:
    """All eighteen checks."""
    ran = check_learner(learner, federate, X, skip=skip)
    assert len(ran) + len(skip) == len(CHECKS) == 18


def test_a_constant_conforms_but_does_not_learn() -> None:
    """All checks but the one whose message has both errors; whoever means it says why."""
    with pytest.raises(
        AssertionError, match=r"^learns: .* it errs by 0\.0\d+, a constant by 0\.0.*skip="
    ):
        check_learner(Mean(), federate, X)
    skip = {"learns": "a mean is a constant"}
    assert len(check_learner(Mean(), federate, X, skip=skip)) == 17


def test_a_classifier_that_says_one_class_does_not_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault of classifiers."""
    monkeypatch.setattr(
        BayesianInference, "_second", lambda self, x: np.full(len(x), 0.9), raising=True
    )
    with pytest.raises(AssertionError, match=r"^learns: "):
        check_learner(BayesianInference(), federate_classes, X)


def federate_classes(policy: Policy) -> LocalDisclosure:
    """The same records with an outcome of two classes."""
    target = Column("y", "category", categories=("low", "high"))
    frame = table().assign(y=np.where(table()["a"] > 0.4, "high", "low"))
    schema = Schema(SCHEMA.features, target)
    return LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=policy, seed=5
    )


@pytest.mark.parametrize(
    ("learner", "skip"),
    [
        (RuleFitClassifier(n_estimators=6, n_rounds=3), CHECKED),
        (CentralRuleFitClassifier(RuleFitClassifier(n_estimators=6, n_rounds=3)), {}),
        (BayesianInference(), {}),
    ],
)
def test_classifiers_conform(learner: FederatedLearner, skip: dict[str, str]) -> None:
    """All eighteen checks, baselines included."""
    assert len(check_learner(learner, federate_classes, X, skip=skip)) + len(skip) == len(CHECKS)


class Fixing(Mean):
    """A planted fault: changes its parameter while fitting."""

    def fit(self, federation: Disclosure) -> Self:
        """Fit and fix."""
        super().fit(federation)
        self.shrink = 0.5
        return self


class Guessing(Mean):
    """A planted fault: predicts without being fitted."""

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """Zero where it knows nothing."""
        try:
            return super().predict(x, client=client)
        except NotFittedError:
            return np.zeros(len(x))


class Copying(Mean):
    """A planted fault: fits a copy of itself."""

    def fit(self, federation: Disclosure) -> Self:
        """Not self, though fitted too."""
        super().fit(federation)
        return type(self)(self.shrink)._fitted(federation)

    def _fitted(self, federation: Disclosure) -> Self:
        Mean.fit(self, federation)
        return self


class Missing(Mean):
    """A planted fault: a row without a prediction."""

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """NaN first."""
        predicted = super().predict(x, client=client)
        predicted[0] = np.nan
        return predicted


class Greedy(Mean):
    """A planted fault: a policy that opens another learner's kind."""

    def published(self) -> Policy:
        """Histograms too."""
        return super().published().union(Policy({Histogram.kind: (Guard.of("open"),)}))


class Careless(Mean):
    """A planted fault: its private policy is not."""

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Open under a fine name."""
        guards = {LevelSums.kind: (Guard.of("open"),)}
        return Policy(guards, budget=Budget.of(epsilon), name="private")


class Curious(Mean):
    """A planted fault: asks a kind that it does not declare."""

    queries: ClassVar[tuple[type[Query], ...]] = (LevelSums, Histogram)

    def fit(self, federation: Disclosure) -> Self:
        """Ask both, and declare one from now on."""
        super().fit(federation)
        with suppress(NobodyAnswered):
            federation.ask(Histogram(0, (0.0, 1.0)))
        return self

    def published(self) -> Policy:
        """Both."""
        return super().published().union(Policy({Histogram.kind: (Guard.of("open"),)}))


class Insistent(Mean):
    """A planted fault: asks more often than planned."""

    def fit(self, federation: Disclosure) -> Self:
        """Ask twice."""
        super().fit(federation)
        with suppress(NobodyAnswered):
            federation.ask(ROOT)
        return self


class Moody(Mean):
    """A planted fault: randomness of its own without a seed."""

    def fit(self, federation: Disclosure) -> Self:
        """Add what nobody can repeat."""
        super().fit(federation)
        self.mean_ += float(np.random.default_rng().uniform())
        return self


class Peeking(Mean):
    """A planted fault: reaches past the releases into the gates."""

    def fit(self, federation: Disclosure) -> Self:
        """Count the clients' records if they can be had."""
        super().fit(federation)
        for gate in getattr(federation, "gates", {}).values():
            self.mean_ += len(gate._view.records)
        return self


class Fragile(Mean):
    """A planted fault: falls over where nobody answers."""

    def fit(self, federation: Disclosure) -> Self:
        """Whatever it was, it becomes something else."""
        try:
            return super().fit(federation)
        except NobodyAnswered:
            raise AssertionError("fell over") from None


class Opaque(Mean):
    """A planted fault: a model that only Python can read."""

    def to_dict(self) -> dict[str, Any]:
        """An object in it."""
        return super().to_dict() | {"readable": self.schema_}


class Hoarding(Mean):
    """A planted fault: keeps the federation."""

    def fit(self, federation: Disclosure) -> Self:
        """Fit and keep."""
        self._federation = federation
        return super().fit(federation)


class Knowing(Mean):
    """A planted fault: has its model from the records, by a way of its own."""

    def fit(self, federation: Disclosure) -> Self:
        """The answers make no difference."""
        super().fit(federation)
        self.mean_ = float(table()["y"].mean())
        return self


class Quoting(Mean):
    """A planted fault: keeps some of the records, by a way of its own."""

    def fit(self, federation: Disclosure) -> Self:
        """Beside what it has from the answers."""
        super().fit(federation)
        self.examples_ = table()["a"].head(3).tolist()
        return self


class Lax(Mean):
    """A planted fault: says nothing of what its parameter may be."""

    _parameter_constraints: ClassVar[Constraints] = {}


class Rude(Mean):
    """A planted fault: answers for whatever client it is asked."""

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """Whoever that is."""
        return super().predict(x)


class Blurred(Mean):
    """A planted fault: saves six digits."""

    def state(self) -> dict[str, Any]:
        """Nearly all of it."""
        return {"mean_": round(self.mean_, 6)}


@pytest.mark.parametrize(
    ("learner", "check"),
    [
        (Fixing(), "parameters"),
        (Guessing(), "unfitted"),
        (Copying(), "fit_returns_self"),
        (Missing(), "predictions"),
        (Greedy(), "policies"),
        (Careless(), "private_is_finite"),
        (Insistent(), "plan"),
        (Moody(), "repeats"),
        (Peeking(), "replay"),
        (Fragile(), "silence"),
        (Knowing(), "replay"),
        (Hoarding(), "holds_no_records"),
        (Quoting(), "holds_no_records"),
        (Lax(), "parameter_limits"),
        (Rude(), "manners"),
        (Blurred(), "saves"),
    ],
)
def test_each_fault_is_caught(learner: FederatedLearner, check: str) -> None:
    """Every check has a fault that it, by name, catches."""
    with pytest.raises(AssertionError, match=f"^{check}: "):
        check_learner(learner, federate, X)


def test_an_undeclared_kind_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transcript shows what was asked, whatever the class declares."""
    monkeypatch.setattr(Curious, "queries", KINDS)
    skip = {"policies": "its policy is honest; its declaration is not"}
    with pytest.raises(AssertionError, match=r"^asks_its_own_kinds: .* asked small\.histogram"):
        check_learner(Curious(), partial(federate, queries=(Histogram,)), X, skip=skip)


def test_an_opaque_model_is_caught() -> None:
    """A model that is not plain data is caught where models are first compared, or by itself."""
    skip = dict.fromkeys(("saves", "repeats", "replay"), "compared as plain data as well")
    with pytest.raises(AssertionError, match=r"^model_is_plain: .* not plain data"):
        check_learner(Opaque(), federate, X, skip=skip)
