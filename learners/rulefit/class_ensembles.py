"""Rule ensembles of more than two classes: one for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.rules import Rule
from privfed.tables.schema import Schema

LINKS = ("one-vs-rest", "softmax")


@dataclass(frozen=True, eq=False)
class ClassEnsembles:
    """A model for each class of the target, in its order."""

    models: tuple[RuleEnsemble, ...]  #: as many as classes
    #: ``one-vs-rest``: a score is a class' log-odds against the rest, and probabilities are divided by their sum;
    #: or ``softmax``
    link: str

    @classmethod
    def joined(cls, models: Sequence[RuleEnsemble], link: str) -> RuleEnsemble | ClassEnsembles:
        """One model as it is, several by class."""
        return models[0] if len(models) == 1 else cls(tuple(models), link)

    @property
    def classes(self) -> tuple[str, ...]:
        """The target's categories."""
        target = self.models[0].schema.target
        assert target is not None
        return target.categories

    def scores(self, x: np.ndarray) -> np.ndarray:
        """F of each encoded record and class, shape (records, classes)."""
        return np.column_stack([own.scores(x) for own in self.models])

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Of the classes, shape (records, classes)."""
        if self.link == "softmax":
            return np.asarray(softmax(self.scores(x), axis=1))
        each = expit(self.scores(x))
        return np.asarray(each / np.maximum(each.sum(axis=1, keepdims=True), 1e-300))

    @cached_property
    def rules(self) -> list[Rule]:
        """Different candidate rules of all classes."""
        return list(dict.fromkeys(rule for own in self.models for rule in own.rules))

    @cached_property
    def variable_importances(self) -> np.ndarray:
        """Sums over classes, the largest being 1 (or all 0)."""
        total = np.sum([own.covariate_importances for own in self.models], axis=0)
        largest = total.max(initial=0.0)
        return np.asarray(total / largest if largest > 0 else total)

    def table(self, top: int | None = None, least_support: float = 0.0) -> pd.DataFrame:
        """The terms of all classes, most important first; see :meth:`.RuleEnsemble.table`.

        Returns:
            the same columns after one of the class; importances are fractions of the largest of all.
        """
        tables = []
        for name, own in zip(self.classes, self.models, strict=True):
            table = own.table(None, least_support)
            table["importance"] *= own.term_importances.max(initial=0.0)
            table.insert(0, "class", name)
            tables.append(table)
        every = pd.concat(tables, ignore_index=True)
        largest = every["importance"].max() if len(every) else 0.0
        every["importance"] *= 100 / largest if largest > 0 else 0.0
        ordered = every.sort_values("importance", ascending=False, kind="stable", ignore_index=True)
        return ordered if top is None else ordered.head(top)

    def describe(self, top: int = 20) -> str:
        """The table as text."""
        return self.table(top).to_string(index=False, float_format=lambda value: f"{value:.3g}")

    def to_dict(self) -> dict[str, Any]:
        """The models as plain data, by class."""
        each = zip(self.classes, self.models, strict=True)
        return {"link": self.link, "models": {name: own.to_dict("score") for name, own in each}}

    def to_state(self) -> dict[str, Any]:
        """All of it but the schema as plain data, exact to the bit."""
        return {"link": self.link, "models": [own.to_state() for own in self.models]}

    @classmethod
    def from_state(cls, schema: Schema, state: Mapping[str, Any]) -> ClassEnsembles:
        """Make it again from what :meth:`to_state` gave; ValueError or QueryError where it does not fit."""
        models = tuple(RuleEnsemble.from_state(schema, own) for own in state["models"])
        found = cls(models, state["link"])
        if len(models) != len(found.classes) or found.link not in LINKS:
            raise ValueError("a model for each class, and one of the links")
        return found
