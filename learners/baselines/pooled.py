"""Centralized and local learning: all records are released, as the ledger records."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from privfed.errors import InputError
from privfed.exchange.disclosure import Disclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.base import FederatedLearner, Planned
from privfed.learners.baselines.base import (
    Baseline,
    BaselineClassifier,
    BaselineRegressor,
    Rows,
    once,
)
from privfed.learners.parameters import Constraints, Learner
from privfed.learners.rulefit import RuleFitClassifier, RuleFitRegressor
from privfed.learners.saved import built, from_dict, settings
from privfed.privacy.policy import Policy
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema

POOLED = "pooled"  #: Name of the model of all records among ``models_``


@dataclass(frozen=True)
class RawRecords(Query):
    """All records, unmodified: what centralized learning asks for.

    Sensitivity: none is finite.
    """

    kind: ClassVar[str] = "baselines.records"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``records`` by record and column, the target last."""
        shape = (-1, len(schema.columns))
        return {"records": Part(PartType.ARTIFACT, ("record", "column"), shape)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Return the encoded table."""
        table = view.table
        return {"records": np.column_stack([table.x, table.target])}


class RawBaseline(Baseline):
    """Queries all records, then learns on all together, or on each client's."""

    queries: ClassVar[tuple[type[Query], ...]] = (RawRecords,)
    _pools: ClassVar[bool]  #: Whether the records of all clients are pooled
    models_: dict[str, Any]  #: The fitted models by client, or one called ``pooled``

    def fit(self, federation: Disclosure) -> Self:
        """Query the records and learn; clients without any have no model (InputError: none has)."""
        self._start(federation)
        replies = federation.ask(RawRecords()).each("records")
        tables = {client: np.asarray(table) for client, table in replies.items() if len(table)}
        if not tables:
            raise InputError("no client has a record to learn from")
        if self._pools:
            tables = {POOLED: np.concatenate(list(tables.values()))}
        self.models_ = {
            name: self._fit_model(name, Records(self.schema_, table[:, :-1], table[:, -1]))
            for name, table in tables.items()
        }
        return self

    @abstractmethod
    def _fit_model(self, name: str, records: Records) -> Any:
        """Return a model of a client's records, or of all."""

    @abstractmethod
    def _read(self, data: Mapping[str, Any]) -> Any:
        """Build a model from its ``to_dict`` output, checked against the schema."""

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return one query, for everything."""
        return once(RawRecords())

    def state(self) -> dict[str, Any]:
        """Return the models as plain data, by client (or ``pooled``)."""
        return {"models": {name: model.to_dict() for name, model in self.models_.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base."""
        self.models_ = {name: self._read(model) for name, model in state["models"].items()}
        if not self.models_:
            raise ValueError("no model")


class _RawRuleFit(RawBaseline):
    """Runs a federated learner on raw records; the mean of several models' predictions.

    To score each client's model, as in the paper, use ``models_``.
    """

    _parameter_constraints: ClassVar[Constraints] = {"learner": [Learner(FederatedLearner), None]}

    def __init__(self, learner: FederatedLearner | None = None) -> None:
        self.learner = learner

    def _unfitted(self) -> FederatedLearner:
        if self.learner is None:
            return RuleFitClassifier() if self._classifies else RuleFitRegressor()
        copy: FederatedLearner = clone(self.learner)
        return copy

    def _fit_model(self, name: str, records: Records) -> FederatedLearner:
        return self._unfitted().fit(UngatedDisclosure({name: records}))

    def predict(self, X: Rows, *, client: Any = None) -> np.ndarray:
        """Return predictions, the model's own, or by the mean of several, shape (rows,)."""
        first, *others = self.models_.values()
        if not others:
            self._encode(X, client)  # which refuses what is none
            return np.asarray(first.predict(X))
        mean = self._outputs(X, client)
        return np.asarray(first.classes_[mean.argmax(axis=1)] if self._classifies else mean[:, 0])

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        self._encode(X, client)  # which refuses what is none
        outputs = [
            model.predict_proba(X) if self._classifies else model.predict(X)[:, None]
            for model in self.models_.values()
        ]
        return np.asarray(np.mean(outputs, axis=0))

    def check(self, schema: Schema) -> None:
        super().check(schema)
        self._unfitted().check(schema)

    def _read(self, data: Mapping[str, Any]) -> FederatedLearner:
        return from_dict(data)

    def saved_parameters(self) -> dict[str, Any]:
        return {"learner": None if self.learner is None else settings(self.learner)}

    @classmethod
    def restored_parameters(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"learner": None if data["learner"] is None else built(data["learner"])}


class CentralRuleFitClassifier(_RawRuleFit, BaselineClassifier):
    """RuleFit on pooled records; parameters as :class:`LocalRuleFitClassifier`."""

    _pools: ClassVar[bool] = True


class LocalRuleFitClassifier(_RawRuleFit, BaselineClassifier):
    """RuleFit on each client alone.

    Args:
        learner: the learner to run; None for RuleFit with its defaults.
    """

    _pools: ClassVar[bool] = False


class CentralRuleFitRegressor(_RawRuleFit, BaselineRegressor):
    """RuleFit on pooled records, squared loss; parameters as :class:`LocalRuleFitClassifier`."""

    _pools: ClassVar[bool] = True


class LocalRuleFitRegressor(_RawRuleFit, BaselineRegressor):
    """RuleFit on each client alone, squared loss; parameters as :class:`LocalRuleFitClassifier`."""

    _pools: ClassVar[bool] = False
