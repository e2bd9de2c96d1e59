"""What every federated learner has: scikit-learn's manners, and policies of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from privfed.disclosure import Disclosure
from privfed.errors import InputError, SchemaError
from privfed.exact import Number
from privfed.policy import Policy
from privfed.query import Query
from privfed.records import Records
from privfed.schema import Schema


@dataclass(frozen=True)
class Planned:
    """One line of a learner's longest public schedule.

    Args:
        query: a question of the kind that will be asked, as costly as any of them.
        times: the most often it will be asked.
        spend: what the learner proposes to spend on each; none leaves it to the policy's guard.
        together: whether ``spend`` is for all such questions together, as many as it buys; ``times``
            is then 1.
    """

    query: Query
    times: int
    spend: Fraction | None = None
    together: bool = False


def check_round(wanted: int | None, clients: int) -> None:
    """Hold the number of clients that each round asks to those there are; none asks all."""
    if wanted is not None and not 1 <= wanted <= clients:
        raise InputError(f"clients_per_round must lie between 1 and {clients}, not {wanted!r}")


class FederatedLearner(BaseEstimator, ABC):  # type: ignore[misc]
    """A learner that asks a federation and never sees a record.

    Parameters are stored by ``__init__`` as they are and checked by ``fit``; fitted state ends in an
    underscore. ``schema_`` is the federation's.
    """

    #: The kinds of query it asks.
    queries: ClassVar[tuple[type[Query], ...]] = ()
    #: Whether it only serves as a yardstick, so that the policy called "published" leaves it out.
    baseline: ClassVar[bool] = False

    #: The federation's public data dictionary, set by ``fit``.
    schema_: Schema

    @abstractmethod
    def fit(self, federation: Disclosure) -> Self:
        """Learn from releases alone."""

    @abstractmethod
    def predict(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Predict the target of each row."""

    @abstractmethod
    def published(self) -> Policy:
        """The policy that releases what the paper releases."""

    @abstractmethod
    def private(self, epsilon: Number, delta: Number = "1e-5") -> Policy:
        """A policy with a finite guarantee end to end, the budget planned over kinds and rounds."""

    def check(self, schema: Schema) -> None:
        """Hold parameters and schema to what it can do, before anything is planned or asked.

        Raises:
            InputError: a parameter out of its range, or a target that it cannot learn.
        """

    @abstractmethod
    def plan(self, schema: Schema) -> Sequence[Planned]:
        """The longest public schedule, which prices a study before any data are read."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Give the fitted model as plain data, readable without privfed."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Fitted state that is not there yet says what to do about it."""
            if name.endswith("_") and not name.startswith("_"):
                raise NotFittedError(
                    f"{type(self).__name__} is not fitted; call fit(federation) first"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _encode(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Encode and clip inputs to the schema, shape (rows, features)."""
        schema: Schema = self.schema_
        if isinstance(x, pd.DataFrame):
            return Records.from_frame(x, Schema(schema.features)).x
        array = np.asarray(x, dtype=float)
        if array.ndim != 2 or array.shape[1] != len(schema.features):
            raise SchemaError(f"x needs {len(schema.features)} columns: {', '.join(schema.names)}")
        return Records(Schema(schema.features), array).x
