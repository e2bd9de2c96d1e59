"""Centralized and local learning, as the two ends that federated learning is compared with.

Centralized learning is what it is: every record leaves, and the ledger says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import clone

from privfed.exchange.disclosure import Disclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.base import FederatedClassifier, FederatedLearner, FederatedRegressor, Planned
from privfed.learners.baselines.base import Baseline, once
from privfed.learners.parameters import Constraints, Learner
from privfed.learners.rulefit import RuleFitClassifier, RuleFitRegressor
from privfed.learners.saved import built, from_dict, settings
from privfed.privacy.policy import Policy
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class RawRecords(Query):
    """All records, as they are: what centralized learning asks for.

    Sensitivity: none is finite.
    """

    kind: ClassVar[str] = "baselines.records"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``records`` by record and column, the target last."""
        shape = (-1, len(schema.columns))
        return {"records": Part(PartType.ARTIFACT, ("record", "column"), shape)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The encoded table."""
        table = view.table
        return {"records": np.column_stack([table.x, table.target])}


class _Raw(Baseline):
    """Asks for all records, then learns on them without gates.

    Args:
        learner: the learner to run; none for RuleFit with its defaults.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (RawRecords,)
    _parameter_constraints: ClassVar[Constraints] = {"learner": [Learner(FederatedLearner), None]}
    _default: ClassVar[type[FederatedLearner]]

    def __init__(self, learner: FederatedLearner | None = None) -> None:
        self.learner = learner

    def _own(self) -> FederatedLearner:
        return self._default() if self.learner is None else clone(self.learner)

    def _records(self, federation: Disclosure) -> dict[str, Records]:
        self._start(federation)
        tables = federation.ask(RawRecords()).each("records")
        return {
            client: Records(self.schema_, np.asarray(table)[:, :-1], np.asarray(table)[:, -1])
            for client, table in tables.items()
        }

    def _models(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """Predict each row: the model's own prediction, or the mean of several regressions."""
        self._check_client(client)
        models = list(self._models().values())
        if len(models) == 1 or not hasattr(models[0], "predict_proba"):
            return np.asarray(models[0].predict(x) if len(models) == 1 else self._mean(x))
        likelier: np.ndarray = models[0].classes_[(self._mean(x)[:, 1] > 0.5).astype(int)]
        return likelier

    def _mean(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        models = self._models().values()
        each = [m.predict_proba(x) if hasattr(m, "predict_proba") else m.predict(x) for m in models]
        return np.asarray(np.mean(each, axis=0))

    def check(self, schema: Schema) -> None:
        """Whatever the learner inside checks."""
        super().check(schema)
        self._own().check(schema)

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One question, for everything."""
        return once(RawRecords())

    def state(self) -> dict[str, Any]:
        """The models as plain data, by client (or ``pooled``)."""
        return {"models": {name: model.to_dict() for name, model in self._models().items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base."""
        self._set({name: from_dict(model) for name, model in state["models"].items()})

    def _set(self, models: dict[str, FederatedLearner]) -> None:
        raise NotImplementedError

    def saved_parameters(self) -> dict[str, Any]:
        """The learner inside and its own parameters."""
        return {"learner": None if self.learner is None else settings(self.learner)}

    @classmethod
    def restored_parameters(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """The learner inside, built again."""
        return {"learner": None if data["learner"] is None else built(data["learner"])}


class _Central(_Raw):
    """Learns on the pooled records of all clients."""

    def fit(self, federation: Disclosure) -> Self:
        """Ask for the records, pool them, learn; sets ``model_``."""
        tables = self._records(federation).values()
        x = np.concatenate([table.x for table in tables])
        y = np.concatenate([table.target for table in tables])
        self.model_ = self._own().fit(UngatedDisclosure({"pooled": Records(self.schema_, x, y)}))
        return self

    def _models(self) -> Mapping[str, Any]:
        return {"pooled": self.model_}

    def _set(self, models: dict[str, FederatedLearner]) -> None:
        self.model_ = models["pooled"]


class _Local(_Raw):
    """Learns on each client's records alone; ``models_`` holds a model for each client.

    The paper scores each client's model on its own and averages the scores: use ``models_``.
    ``predict`` averages the models' predictions instead, which is an ensemble.
    """

    def fit(self, federation: Disclosure) -> Self:
        """Ask for the records, learn client by client; sets ``models_``."""
        self.models_ = {
            client: self._own().fit(UngatedDisclosure({client: table}))
            for client, table in self._records(federation).items()
        }
        return self

    def _models(self) -> Mapping[str, Any]:
        return self.models_

    def _set(self, models: dict[str, FederatedLearner]) -> None:
        if not models:
            raise ValueError("no client's model")
        self.models_ = models


class _Classifier(FederatedClassifier, _Raw):
    """What both classifiers add."""

    def predict_proba(
        self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Probabilities of the classes, shape (rows, classes); the mean of several models'."""
        self._check_client(client)
        return self._mean(x)


class CentralRuleFitClassifier(_Classifier, _Central):
    """RuleFit on pooled records, binary outcome.

    Args:
        learner: the learner to run; none for RuleFit with its defaults.
    """

    _default: ClassVar[type[FederatedLearner]] = RuleFitClassifier


class LocalRuleFitClassifier(_Classifier, _Local):
    """RuleFit on each client alone, binary outcome.

    Args:
        learner: the learner to run; none for RuleFit with its defaults.
    """

    _default: ClassVar[type[FederatedLearner]] = RuleFitClassifier


class CentralRuleFitRegressor(FederatedRegressor, _Central):
    """RuleFit on pooled records, squared loss.

    Args:
        learner: the learner to run; none for RuleFit with its defaults.
    """

    _default: ClassVar[type[FederatedLearner]] = RuleFitRegressor


class LocalRuleFitRegressor(FederatedRegressor, _Local):
    """RuleFit on each client alone, squared loss.

    Args:
        learner: the learner to run; none for RuleFit with its defaults.
    """

    _default: ClassVar[type[FederatedLearner]] = RuleFitRegressor
