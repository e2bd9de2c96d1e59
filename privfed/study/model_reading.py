"""What a reader of a study's model alone can tell: whom it learnt from.

Shadow models are the study's own learner, trained under the same policy on other draws from the same
records: each costs one more training, and the study says how many there may be, and for how long.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Train shadows of a policy's model, and read the model by them.

    Members are the records that the clients own, outsiders those that were held out.

    Args:
        prepared: the study with its records.
        choice: the policy.
        output: the finished study's, with the policy's model.
        asked: how many shadows, for how long, read in which ways.
        progress: told of each shadow that is trained.

    Returns:
        a finding for each way; and by name the question of what does not apply: there is no one
        model (each client keeps its own, or learning stopped), or no target.
    """
    path = output.policy(choice.name) / "model.json"
    idle: tuple[list[Finding], dict[str, str]] = [], {"model readers": QUESTION}
    if not path.is_file() or prepared.schema.target is None:
        return idle
    target = load(path)
    if isinstance(target, PersonalLearner):
        return idle
    pool = Records(prepared, choice, progress)
    parts = max(2, round(len(pool.rows) / max(len(prepared.test), 1)))
    number = max(2, -(-asked.number // parts)) * parts
    told: dict[str, Any] = {"x": pool.places, "y": pool.targets}
    try:
        trained = shadows(
            pool.train,
            **told,
            number=number,
            seed=prepared.study.seed,
            seconds=asked.seconds,
            parts=parts,
        )
        model, member = pool.asked(target), pool.member
        found = [
            read_model(model, **told, member=member, known=trained, way=way) for way in asked.ways
        ]
    except InputError as error:
        raise InputError(f"policy {choice.name!r}, [shadows]: {error}") from None
    late = len(trained.scores) < number
    partial = f"{len(trained.scores)} of {number} shadows in {asked.seconds:g} seconds"
    return [replace(each, partial=partial if late else "") for each in found], {}


@dataclass(frozen=True, eq=False)
class Records:
    """All of a study's records, those of the clients first, by their places in one table.

    Args:
        prepared: the study.
        choice: the policy that shadows are trained under.
        progress: told of each that is trained.
    """

    prepared: Prepared
    choice: PolicyChoice
    progress: Callable[[int], object]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The table, with the column of owners."""
        return pd.concat([self.prepared.train, self.prepared.test], ignore_index=True)

    @property
    def places(self) -> np.ndarray:
        """Each record's place, shape (records, 1)."""
        return np.arange(len(self.rows), dtype=float)[:, None]

    @property
    def member(self) -> np.ndarray:
        """Which ones the clients own, shape (records,)."""
        return np.arange(len(self.rows)) < len(self.prepared.train)

    @property
    def targets(self) -> np.ndarray:
        """Their targets as the schema has them, shape (records,)."""
        assert self.prepared.schema.target is not None
        return targets(self.rows, self.prepared.schema.target)

    def train(self, places: np.ndarray, _: np.ndarray) -> Regressor:
        """A shadow of some of them, under the study's policy."""
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
        """A model as readers ask it."""
        tells = isinstance(model, ClassifierMixin) and hasattr(model, "predict_proba")
        return (Classifier if tells else Regressor)(model, self.rows, self.prepared.schema)


@dataclass(frozen=True, eq=False)
class Regressor:
    """A fitted model, asked of records by their places in a table."""

    model: FederatedLearner
    records: pd.DataFrame
    schema: Schema

    def predict(self, places: np.ndarray) -> np.ndarray:
        """Numbers, shape (places,)."""
        return np.asarray(self.model.predict(self._rows(places)), dtype=float)

    def _rows(self, places: np.ndarray) -> pd.DataFrame:
        return self.records.iloc[places[:, 0].astype(int)][list(self.schema.names)]


class Classifier(Regressor):
    """The same of a model that tells chances; classes are the schema's codes."""

    def predict_proba(self, places: np.ndarray) -> np.ndarray:
        """Chances of each class, shape (places, classes)."""
        told = chances_of(self.model, self._rows(places), None)
        assert told is not None
        return told

    @property
    def classes_(self) -> np.ndarray:
        """Codes of the classes."""
        return np.arange(self.predict_proba(np.zeros((1, 1))).shape[1], dtype=float)
