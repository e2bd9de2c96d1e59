"""A fitted rule ensemble: predicting, importances, and forms that people and programs read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from privfed.learners.plain import plain, restored
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.rules import Rule, Terms, rule_of
from privfed.tables.schema import Schema

_ARRAYS = ("weights", "supports", "deviations")
BLOCK = 2**22  #: Most cells of a design matrix that are filled at once


@dataclass(frozen=True, eq=False)
class RuleEnsemble:
    """F(x) = intercept + rules' coefficients + linear terms' coefficients (paper, Section 2.1)."""

    schema: Schema  #: the public data dictionary
    terms: Terms  #: the base functions
    weights: np.ndarray  #: coefficients of intercept, rules and linear terms, shape (1 + terms,)
    supports: np.ndarray  #: fraction of records in each rule; NaN where not released
    deviations: np.ndarray  #: std of each term's column, pooled within clients, shape (terms,)

    def scores(self, x: np.ndarray) -> np.ndarray:
        """F of each encoded record; terms with coefficient zero are not evaluated."""
        kept = np.flatnonzero(self.weights[1 : 1 + self._rules])
        active = Terms(self.terms.cutoffs, self.terms.boxes[kept], self.terms.linear)
        weights = np.concatenate([self.weights[:1], self.weights[1 + kept], self._linear_weights])
        rows = max(1, BLOCK // len(weights))
        blocks = [active.design(x[k : k + rows]) @ weights for k in range(0, len(x), rows)]
        return np.concatenate([np.zeros(0), *blocks])

    @property
    def _rules(self) -> int:
        return len(self.terms.boxes)

    @property
    def _linear_weights(self) -> np.ndarray:
        return self.weights[1 + self._rules :]

    @cached_property
    def rules(self) -> list[Rule]:
        """All candidate rules, in the order of the coefficients."""
        return [
            rule_of(box, self.terms.cutoffs.cuts, self.schema.names) for box in self.terms.boxes
        ]

    @cached_property
    def term_importances(self) -> np.ndarray:
        """|coefficient| times pooled standard deviation (paper, Section 2.3), shape (terms,)."""
        importances: np.ndarray = np.abs(self.weights[1:]) * self.deviations
        return importances

    @cached_property
    def variable_importances(self) -> np.ndarray:
        """Linear terms' importances plus rules', shared among their covariates; the largest is 1 (or all are 0)."""
        boxes, sizes = self.terms.boxes, self.terms.cutoffs.sizes
        used = (boxes[..., 0] > 0) | (boxes[..., 1] < sizes)
        shares = used / np.maximum(used.sum(axis=1), 1)[:, None]
        total = self.term_importances[: self._rules] @ shares
        np.add.at(total, list(self.terms.linear), self.term_importances[self._rules :])
        largest = total.max(initial=0.0)
        return np.asarray(total / largest if largest > 0 else total)

    def linear_coefficients(self) -> tuple[dict[str, float], float]:
        """Coefficients per unit of each winsorised covariate, and the intercept that goes with them."""
        cutoffs, names = self.terms.cutoffs, self.schema.names
        slopes = {
            names[feature]: float(0.4 * weight / cutoffs.scale[feature]) + 0.0  # no minus zero
            for feature, weight in zip(self.terms.linear, self._linear_weights, strict=True)
        }
        middles = (cutoffs.lower + cutoffs.upper) / 2
        moved = sum(slopes[names[f]] * float(middles[f]) for f in self.terms.linear)
        return slopes, float(self.weights[0]) - moved

    def table(self, top: int | None = None, least_support: float = 0.0) -> pd.DataFrame:
        """The terms as a clinician reads them, most important first (paper, Table 1).

        Rules with a known support below ``least_support`` are left out, and all rows but the first ``top``.

        Returns:
            columns term, coefficient, exp_coefficient, importance (largest is 100), support.
        """
        rows: list[tuple[Any, ...]] = []
        for k in np.flatnonzero(self.weights[1 : 1 + self._rules]).tolist():
            support = float(self.supports[k])
            if not support < least_support:
                rows.append((self.rules[k].text(self.schema), *self._numbers(k), support))
        for k, feature in enumerate(self.terms.linear):
            if self._linear_weights[k]:
                name = f"linear: {self.schema.names[feature]}"
                rows.append((name, *self._numbers(self._rules + k), 1.0))
        columns = ["term", "coefficient", "exp_coefficient", "importance", "support"]
        table = pd.DataFrame(rows, columns=columns)
        largest = self.term_importances.max(initial=0.0)
        table["importance"] *= 100 / largest if largest > 0 else 0.0
        ordered = table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)
        return ordered if top is None else ordered.head(top)

    def _numbers(self, term: int) -> tuple[float, float, float]:
        weight = float(self.weights[1 + term])
        return weight, float(np.exp(weight)), float(self.term_importances[term])

    def describe(self, top: int = 20) -> str:
        """The table as text."""
        return self.table(top).to_string(index=False, float_format=lambda value: f"{value:.3g}")

    def to_dict(self, link: str) -> dict[str, Any]:
        """The model as plain data, in the data's own units: readable and usable without privfed."""
        slopes, intercept = self.linear_coefficients()
        cutoffs = self.terms.cutoffs
        limits = {
            name: [float(cutoffs.lower[f]), float(cutoffs.upper[f])]
            for f, name in enumerate(self.schema.names)
            if f in self.terms.linear
        }
        codes = {
            column.name: {name: code for code, name in enumerate(column.categories)}
            for column in self.schema.features
            if not column.numeric
        }
        kept = np.flatnonzero(self.weights[1 : 1 + self._rules])
        return {
            "model": "rule ensemble (RuleFit)",
            "link": link,
            "intercept": intercept,
            "linear": slopes,
            "winsorised": limits,
            "codes": codes,
            "rules": [self._rule_entry(int(k)) for k in kept],
            "variable_importances": dict(
                zip(self.schema.names, self.variable_importances.tolist(), strict=True)
            ),
        }

    def to_state(self) -> dict[str, Any]:
        """All of it but the schema as plain data, exact to the bit."""
        arrays = {name: plain(getattr(self, name)) for name in _ARRAYS}
        terms = self.terms
        return {
            "cutoffs": terms.cutoffs.to_dict(),
            "boxes": plain(terms.boxes),
            "linear_terms": list(terms.linear),
            **arrays,
        }

    @classmethod
    def from_state(cls, schema: Schema, state: Mapping[str, Any]) -> RuleEnsemble:
        """Make it again from what :meth:`to_state` gave; ValueError or QueryError where it does not fit."""
        boxes, linear = restored(state["boxes"]), tuple(state["linear_terms"])
        terms = Terms(Cutoffs.from_dict(state["cutoffs"]), boxes, linear)
        terms.check(schema)
        arrays = {name: restored(state[name]) for name in _ARRAYS}
        shapes = [(1 + len(terms),), (len(boxes),), (len(terms),)]
        if [array.shape for array in arrays.values()] != shapes:
            raise ValueError("a weight and a deviation for each term, a support for each rule")
        return cls(schema, terms, **arrays)

    def _rule_entry(self, k: int) -> dict[str, Any]:
        support = float(self.supports[k])
        return {
            "text": self.rules[k].text(self.schema),
            "conditions": self.rules[k].to_dict(),
            "coefficient": float(self.weights[1 + k]),
            "support": None if np.isnan(support) else support,
            "importance": float(self.term_importances[k]),
        }
