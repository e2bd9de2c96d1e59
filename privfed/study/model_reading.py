"""Membership inference from a study's models alone, by shadow models of the same learner and policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin

from privfed.attacks.finding import Finding
from privfed.attacks.shadow_models import read_model, shadows
from privfed.errors import InputError
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.saved import load
from privfed.study.choices import PolicyChoice, ShadowChoice
from privfed.study.dry_run import adopt, learner
from privfed.study.metrics import chances_of, targets
from privfed.study.output import Output
from privfed.tables.schema import Schema

if TYPE_CHECKING:
    from privfed.study.simulation import Prepared

#: What is said where no model is read.
QUESTION = "Can a reader of the model alone tell whom it learnt from?"


def read_models(
    prepared: Prepared,
    choice: PolicyChoice,
    output: Output,
    asked: ShadowChoice,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[list[Finding], dict[str, str]]:
    """Train shadow models of a policy's model, and attack it with them.

    Members are the clients' records, non-members the held-out ones. ``progress`` is called after each
    shadow.

    Returns:
        one finding per attack; and by name the question of what does not apply, without a shared model
        (personal models, or training stopped) or a target.
    """
    path = output.policy(choice.name) / "model.json"
    idle: tuple[list[Finding], dict[str, str]] = [], {"model readers": QUESTION}
    if not path.is_file() or prepared.schema.target is None:
        return idle
    target = load(path)
    if isinstance(target, PersonalLearner):
        return idle
    pool = StudyRecords(prepared, choice, progress)
    parts = max(2, round(len(pool.rows) / max(len(prepared.test), 1)))
    number = max(2, -(-asked.number // parts)) * parts
    told: dict[str, Any] = {"x": pool.places, "y": pool.targets}
    try:
        trained = shadows(
            pool.train,
            **told,
            number=number,
            seed=prepared.study.seed,
            time_limit=asked.seconds,
            parts=parts,
        )
        model, member = pool.asked(target), pool.member
        found = [
            read_model(model, **told, member=member, known=trained, way=way) for way in asked.ways
        ]
    except InputError as error:
        raise InputError(f"policy {choice.name!r}, [shadows]: {error}") from None
    found = [replace(each, exposed=pool.by_owner(each.exposed[""])) for each in found]
    late = len(trained.scores) < number
    partial = f"{len(trained.scores)} of {number} shadows in {asked.seconds:g} seconds"
    return [replace(each, partial=partial if late else "") for each in found], {}


@dataclass(frozen=True, eq=False)
class StudyRecords:
    """All of a study's records, the clients' first, by their indices in one table."""

    prepared: Prepared  #: the study
    choice: PolicyChoice  #: the shadows' policy
    progress: Callable[[int], object]  #: called after each shadow

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The table, with the column of owners."""
        return pd.concat([self.prepared.train, self.prepared.test], ignore_index=True)

    @property
    def places(self) -> np.ndarray:
        """Each record's index, shape (records, 1)."""
        return np.arange(len(self.rows), dtype=float)[:, None]

    @property
    def member(self) -> np.ndarray:
        """Whether each record is a client's, shape (records,)."""
        return np.arange(len(self.rows)) < len(self.prepared.train)

    @property
    def targets(self) -> np.ndarray:
        """Their targets by the schema, shape (records,)."""
        assert self.prepared.schema.target is not None
        return targets(self.rows, self.prepared.schema.target)

    def by_owner(self, told: Sequence[float]) -> dict[str, np.ndarray]:
        """What is told of the clients' records, by client and in the order of each one's table."""
        owners = self.prepared.train[self.prepared.owner].astype(str).to_numpy()
        return {owner: np.asarray(told)[owners == owner] for owner in self.prepared.owners}

    def train(self, places: np.ndarray, _: np.ndarray) -> Regressor:
        """Train a shadow on some of them, under the study's policy."""
        prepared, shadow = self.prepared, learner(self.prepared.study, self.choice)
        adopted = adopt(prepared.study, self.choice, shadow, prepared.schema)
        own = replace(prepared, train=self.rows.iloc[places[:, 0].astype(int)])
        federation = own.federate(adopted, None, self.choice.block)
        try:
            shadow.fit(federation)
        finally:
            federation.close()
        self.progress(1)
        return self.asked(shadow)

    def asked(self, model: FederatedLearner) -> Regressor:
        """Return a model with the interface of shadow-model attacks."""
        tells = isinstance(model, ClassifierMixin) and hasattr(model, "predict_proba")
        return (Classifier if tells else Regressor)(model, self.rows, self.prepared.schema)


@dataclass(frozen=True, eq=False)
class Regressor:
    """A fitted model that predicts records by their indices."""

    model: FederatedLearner
    records: pd.DataFrame
    schema: Schema

    def predict(self, places: np.ndarray) -> np.ndarray:
        """Return predictions, shape (indices,)."""
        return np.asarray(self.model.predict(self._rows(places)), dtype=float)

    def _rows(self, places: np.ndarray) -> pd.DataFrame:
        return self.records.iloc[places[:, 0].astype(int)][list(self.schema.names)]


class Classifier(Regressor):
    """The same for a model with probabilities; classes are the schema's codes."""

    def predict_proba(self, places: np.ndarray) -> np.ndarray:
        """Return class probabilities, shape (indices, classes)."""
        told = chances_of(self.model, self._rows(places), None)
        assert told is not None
        return told

    @property
    def classes_(self) -> np.ndarray:
        """Codes of the classes."""
        return np.arange(self.predict_proba(np.zeros((1, 1))).shape[1], dtype=float)
