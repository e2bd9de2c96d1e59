"""A fitted rule ensemble: predictions, importances, tables and serialization."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit, softmax

from privfed.errors import InputError
from privfed.learners.plain import plain, restored
from privfed.learners.private.model import Aim, check_aim, deviations_of
from privfed.learners.private.target_link import Outcome
from privfed.learners.rulefit.alternatives import UNKNOWN as NOT_KNOWN
from privfed.learners.rulefit.alternatives import Alternatives
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.rules import Rule, Terms, rule_of
from privfed.questions.tree import number_text
from privfed.tables.schema import Schema, shown

_ARRAYS = ("weights", "supports", "deviations")
#: Models with known intervals
_KNOWN = ("covariance", "error", "refit_error", "residual_variance", "synthetic")
UNKNOWN = "intervals are available for short private models only; write max_terms = 20, and a private policy"
BLOCK = 2**22  #: Maximum cells of a design matrix filled at once


@dataclass(frozen=True, eq=False)
class RuleEnsemble:
    """F(x) = intercept + rules' coefficients + linear terms' coefficients (paper, Section 2.1)."""

    schema: Schema  #: the public data dictionary
    terms: Terms  #: the base functions
    weights: np.ndarray  #: coefficients of intercept, rules and linear terms, shape (1 + terms,)
    supports: np.ndarray  #: fraction of records in each rule; NaN if not released
    deviations: np.ndarray  #: std of each term's column, pooled within clients, shape (terms,)
    #: second moments of the coefficients' errors, by noise, sampling, and the engine's misspecification, shape
    #: (1 + terms, 1 + terms); None if unknown
    covariance: np.ndarray | None = None
    error: np.ndarray | None = None  #: the same, of terms that these data selected
    refit_error: np.ndarray | None = None  #: the same, against a fit to these records without noise
    #: of scores (of several classes, log-odds against the rest): mean square difference to the engine's, and the engine's
    #: mean square error besides the terms'
    residual_variance: float = 0.0
    #: encoded synthetic records, shape (records, features); None if there are none
    synthetic: np.ndarray | None = None
    #: candidates that fit alike in the place of each term, rules first; None if unknown
    alternatives: tuple[Alternatives, ...] | None = None

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return F of each encoded record; terms with coefficient zero are not evaluated."""
        kept = np.flatnonzero(self.weights[1 : 1 + self._rules])
        active = Terms(self.terms.cutoffs, self.terms.boxes[kept], self.terms.linear)
        weights = np.concatenate([self.weights[:1], self.weights[1 + kept], self._linear_weights])
        rows = max(1, BLOCK // len(weights))
        blocks = [active.design(X[k : k + rows]) @ weights for k in range(0, len(X), rows)]
        return np.concatenate([np.zeros(0), *blocks])

    def score_intervals(self, X: np.ndarray, level: float = 0.9, of: Aim = "truth") -> np.ndarray:
        """Return intervals of F of encoded records, shape (records, 2) (InputError: unknown).

        They hold the truth, and include the terms' difference to the engine's model; or, of ``"same"``, what the same
        terms give if they are fitted to the records without noise.
        """
        error = self._error_of(of)
        if self.covariance is None or error is None:
            raise InputError(UNKNOWN)
        design, z = self.terms.design(X), deviations_of(level)
        squares, more = (error, 0.0) if of == "same" else (self.covariance, self.residual_variance)
        variances = np.einsum("ij,ij->i", design @ squares, design) + more
        centre = design @ self.weights
        return np.column_stack([centre - z * (s := np.sqrt(variances)), centre + z * s])

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

    @property
    def kept_rules(self) -> list[Rule]:
        """Return the rules with a nonzero coefficient."""
        return [self.rules[k] for k in np.flatnonzero(self.weights[1 : 1 + self._rules])]

    @cached_property
    def term_importances(self) -> np.ndarray:
        """Return |coefficient| times pooled standard deviation (paper, Section 2.3), shape (terms,)."""
        importances: np.ndarray = np.abs(self.weights[1:]) * self.deviations
        return importances

    @cached_property
    def covariate_importances(self) -> np.ndarray:
        """Return linear terms' importances plus rules', divided among their covariates, shape (covariates,)."""
        total = self.term_importances[: self._rules] @ self._fractions
        np.add.at(total, list(self.terms.linear), self.term_importances[self._rules :])
        return np.asarray(total)

    @cached_property
    def _fractions(self) -> np.ndarray:
        """Return each covariate's share of a rule, shape (rules, covariates)."""
        boxes, sizes = self.terms.boxes, self.terms.cutoffs.sizes
        used = (boxes[..., 0] > 0) | (boxes[..., 1] < sizes)
        return np.asarray(used / np.maximum(used.sum(axis=1), 1)[:, None])

    @property
    def variable_importances(self) -> np.ndarray:
        """Return covariates' importances, scaled to a maximum of 1 (or all 0)."""
        total = self.covariate_importances
        largest = total.max(initial=0.0)
        return np.asarray(total / largest if largest > 0 else total)

    def _error_of(self, of: Aim) -> np.ndarray | None:
        check_aim(of)
        return self.refit_error if of == "same" else self.error

    def intervals(self, level: float = 0.9, of: Aim = "truth") -> np.ndarray:
        """Return intervals of the coefficients, intercept first, shape (1 + terms, 2); NaN if unknown.

        Of ``"truth"``: the terms' fit to the truth; of ``"same"``: to the same records without noise.
        """
        half_widths, error = np.full(len(self.weights), np.nan), self._error_of(of)
        if error is not None:
            half_widths = deviations_of(level) * np.sqrt(np.maximum(np.diag(error), 0))
        return np.column_stack([self.weights - half_widths, self.weights + half_widths])

    def importance_intervals(self, level: float = 0.9, of: Aim = "truth") -> np.ndarray:
        """Return intervals of the covariates' importances, shape (covariates, 2); NaN if unknown.

        Coefficients vary jointly and keep their signs; no interval starts below zero. ``of`` as in :meth:`intervals`.
        """
        half_widths, error = np.full(len(self.schema.features), np.nan), self._error_of(of)
        if error is not None:
            lines = np.eye(len(half_widths))[list(self.terms.linear)]
            fractions = np.concatenate([self._fractions, lines])
            slopes = (np.sign(self.weights[1:]) * self.deviations)[:, None] * fractions
            squares = np.einsum("kj,kl,lj->j", slopes, error[1:, 1:], slopes)
            half_widths = deviations_of(level) * np.sqrt(np.maximum(squares, 0))
        total = self.covariate_importances
        return np.column_stack([np.maximum(total - half_widths, 0), total + half_widths])

    def shape_of(
        self, feature: int, points: np.ndarray, level: float = 0.9, of: Aim = "truth"
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the effect of one covariate's own terms at some values, and its band, shape (places, 2).

        Rules are centred at their support, a linear term at the middle of its limits. ``of`` as in :meth:`intervals`.
        """
        error = self._error_of(of)
        boxes, sizes = self.terms.boxes, self.terms.cutoffs.sizes
        used = (boxes[..., 0] > 0) | (boxes[..., 1] < sizes)
        alone = used[:, feature] & (used.sum(axis=1) == 1)
        chosen = np.concatenate([[False], alone, np.array(self.terms.linear, int) == feature])
        X = np.tile((self.schema.lower + self.schema.upper) / 2, (len(points), 1))
        X[:, feature] = points
        design = self.terms.design(X)[:, chosen]
        design[:, : alone.sum()] -= np.nan_to_num(self.supports[alone])
        heights = design @ self.weights[chosen]
        if error is None:
            return heights, None
        variances = np.einsum("ij,ij->i", design @ error[np.ix_(chosen, chosen)], design)
        half_widths = deviations_of(level) * np.sqrt(np.maximum(variances, 0))
        return heights, np.column_stack([heights - half_widths, heights + half_widths])

    def terms_of(self, feature: int) -> tuple[int, int]:
        """Return how many nonzero terms use one covariate alone, and how many use it with others."""
        boxes, sizes = self.terms.boxes, self.terms.cutoffs.sizes
        kept = self.weights[1 : 1 + self._rules] != 0
        used = ((boxes[..., 0] > 0) | (boxes[..., 1] < sizes)) & kept[:, None]
        alone = used[:, feature] & (used.sum(axis=1) == 1)
        lines = np.array(self.terms.linear, int) == feature
        single = int(alone.sum()) + int((lines & (self._linear_weights != 0)).sum())
        return single, int((used[:, feature] & ~alone).sum())

    def switched(self, term: int) -> float:
        """Return the effect of a linear term's second value against the first, in coefficients; 0 unless there are two.

        ``term`` counts the linear terms.
        """
        column, cutoffs = self.schema.features[self.terms.linear[term]], self.terms.cutoffs
        feature, (first, second) = self.terms.linear[term], column.bounds
        if column.kind == "number" or second != first + 1:
            return 0.0
        ends = float(cutoffs.lower[feature]), float(cutoffs.upper[feature])
        low, high = np.clip([first, second], *ends).tolist()
        return float(0.4 * (high - low) / cutoffs.scale[feature])

    @property
    def start(self) -> float:
        """F where no rule holds, two-valued columns have the first value, and other lines are midway."""
        total, cutoffs = float(self.weights[0]), self.terms.cutoffs
        for k, feature in enumerate(self.terms.linear):
            if self.switched(k):
                ends = float(cutoffs.lower[feature]), float(cutoffs.upper[feature])
                first = float(np.clip(self.schema.features[feature].bounds[0], *ends))
                slope = 0.4 * float(self._linear_weights[k]) / float(cutoffs.scale[feature])
                total += slope * (first - sum(ends) / 2)
        return total

    def linear_coefficients(self) -> tuple[dict[str, float], float]:
        """Return coefficients per unit of each winsorised covariate, and the matching intercept."""
        cutoffs, names = self.terms.cutoffs, self.schema.names
        slopes = {
            names[feature]: float(0.4 * weight / cutoffs.scale[feature]) + 0.0  # without -0.0
            for feature, weight in zip(self.terms.linear, self._linear_weights, strict=True)
        }
        middles = (cutoffs.lower + cutoffs.upper) / 2
        shift = sum(slopes[names[f]] * float(middles[f]) for f in self.terms.linear)
        return slopes, float(self.weights[0]) - shift

    def table(self, top: int | None = None, least_support: float = 0.0) -> pd.DataFrame:
        """Return a table of the terms, most important first (paper, Table 1).

        It omits rules with a known support below ``least_support``, and rows after the first ``top``.

        Returns:
            columns term, coefficient, low and high (ends of its 90 % interval, if known),
            exp_coefficient, importance (largest is 100), support, and, of a short private model, alternatives: what
            fits alike in its place (:meth:`.Alternatives.text`).
        """
        rows: list[tuple[Any, ...]] = []
        for k in np.flatnonzero(self.weights[1 : 1 + self._rules]).tolist():
            support = float(self.supports[k])
            if not support < least_support:
                rows.append(
                    (self.rules[k].text(self.schema), *self._numbers(k), support, self._alike(k))
                )
        for k, feature in enumerate(self.terms.linear):
            if self._linear_weights[k]:
                number = self._rules + k
                rows.append(
                    (
                        self._line_text(feature, switched=bool(self.switched(k))),
                        *self._numbers(number, self.switched(k) or 1.0),
                        1.0,
                        self._alike(number),
                    )
                )
        ends, last = ["low", "high"], "alternatives"
        columns = ["term", "coefficient", *ends, "exp_coefficient", "importance", "support", last]
        table = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:-1], float))
        if self.error is None:
            table = table.drop(columns=[*ends, last])
        largest = self.term_importances.max(initial=0.0)
        table["importance"] *= 100 / largest if largest > 0 else 0.0
        ordered = table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)
        return ordered if top is None else ordered.head(top)

    def _line_text(self, feature: int, *, switched: bool = False) -> str:
        """Format a linear term with unit and limits: ``linear: age per 35, from 20 to 90``.

        For an integer with those between its limits: ``linear: visits per 4, from 1 (less:
        0.5) to 8 (more: 8.5)``; if two-valued, with its values: ``sex = male rather than female``.
        """
        column, cutoffs = self.schema.features[feature], self.terms.cutoffs
        if switched:
            names = column.categories or [f"{value:.0f}" for value in column.bounds]
            return f"{shown(column.name)} = {shown(names[1])} rather than {shown(names[0])}"
        lower, upper = float(cutoffs.lower[feature]), float(cutoffs.upper[feature])
        unit, low, high = (
            number_text(value, float(np.ptp(column.bounds)))
            for value in (float(cutoffs.scale[feature]) / 0.4, lower, upper)
        )
        text = f"linear: {shown(column.name)} per {unit}"
        first, last = math.ceil(lower), math.floor(upper)
        if column.kind == "number" or first > last or (first, last) == (lower, upper):
            return f"{text}, from {low} to {high}"
        below, above = f" (less: {low})" * (first > lower), f" (more: {high})" * (last < upper)
        return f"{text}, from {first}{below} to {last}{above}"

    def _alike(self, term: int) -> str:
        own = self.alternatives
        return NOT_KNOWN if own is None else own[term].text(self.schema)

    def _numbers(self, term: int, unit: float = 1.0) -> tuple[float, ...]:
        """Return coefficient, ends, factor and importance of a term, the former three times ``unit``."""
        weight, (low, high) = (
            unit * float(self.weights[1 + term]),
            (unit * self._ends[1 + term]).tolist(),
        )
        return weight, low, high, float(np.exp(weight)), float(self.term_importances[term])

    @cached_property
    def _ends(self) -> np.ndarray:
        return self.intervals()

    def to_dict(self, link: str) -> dict[str, Any]:
        """Return the model as plain data, in the data's units, usable without privfed."""
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
        ends = zip(self.terms.linear, self._ends[1 + self._rules :], strict=True)
        per_unit = {
            self.schema.names[f]: (0.4 * pair / cutoffs.scale[f]).tolist() for f, pair in ends
        }
        alike = self.alternatives
        lines = {
            self.schema.names[f]: pair.to_dict()
            for f, pair in zip(self.terms.linear, (alike or ())[self._rules :], strict=False)
        }
        return {
            "model": "rule ensemble (RuleFit)",
            "link": link,
            "intercept": intercept,
            "linear": slopes,
            **({} if self.error is None else {"linear_intervals": per_unit}),
            **({} if alike is None else {"linear_alternatives": lines}),
            "winsorised": limits,
            "codes": codes,
            "rules": [self._rule_entry(int(k)) for k in kept],
            "variable_importances": dict(
                zip(self.schema.names, self.variable_importances.tolist(), strict=True)
            ),
        }

    def to_state(self) -> dict[str, Any]:
        """Return the exact state, without the schema, as plain data."""
        arrays = {name: plain(getattr(self, name)) for name in _ARRAYS}
        terms, alike = self.terms, self.alternatives
        known = {name: getattr(self, name) for name in _KNOWN}
        return {
            "cutoffs": terms.cutoffs.to_dict(),
            "boxes": plain(terms.boxes),
            "linear_terms": list(terms.linear),
            **arrays,
            **({} if self.covariance is None else {n: plain(v) for n, v in known.items()}),
            **({} if alike is None else {"alternatives": [own.to_dict() for own in alike]}),
        }

    @classmethod
    def from_state(cls, schema: Schema, state: Mapping[str, Any]) -> RuleEnsemble:
        """Rebuild from the output of :meth:`to_state` (ValueError or QueryError: it does not fit)."""
        boxes, linear = restored(state["boxes"]), tuple(state["linear_terms"])
        terms = Terms(Cutoffs.from_dict(state["cutoffs"]), boxes, linear)
        terms.check(schema)
        arrays = {name: restored(state[name]) for name in _ARRAYS}
        shapes = [(1 + len(terms),), (len(boxes),), (len(terms),)]
        if [array.shape for array in arrays.values()] != shapes:
            raise ValueError("a weight and a deviation for each term, a support for each rule")
        known = {name: restored(state[name]) for name in _KNOWN if name in state}
        if any(known[name].shape != shapes[0] * 2 for name in _KNOWN[:3] if name in known):
            raise ValueError("a covariance of all weights")
        if "synthetic" in known and known["synthetic"].shape[1:] != (len(schema.features),):
            raise ValueError("synthetic records of all features")
        alike = state.get("alternatives")
        if alike is not None:
            alike = tuple(Alternatives.from_dict(own, schema) for own in alike)
            if len(alike) != len(terms):
                raise ValueError("alternatives of each term")
        return cls(schema, terms, **arrays, **known, alternatives=alike)

    def _rule_entry(self, k: int) -> dict[str, Any]:
        support, alike = float(self.supports[k]), self.alternatives
        interval = {} if self.error is None else {"interval": self._ends[1 + k].tolist()}
        return {
            "text": self.rules[k].text(self.schema),
            "conditions": self.rules[k].to_dict(),
            "coefficient": float(self.weights[1 + k]),
            **interval,
            **({} if alike is None else {"alternatives": alike[k].to_dict()}),
            "support": None if np.isnan(support) else support,
            "importance": float(self.term_importances[k]),
        }


# --- rule ensembles for more than two classes: one per class

LINKS = ("one-vs-rest", "softmax")


@dataclass(frozen=True, eq=False)
class ClassEnsembles:
    """One model per class of the target, in its order."""

    models: tuple[RuleEnsemble, ...]  #: one per class
    #: ``softmax``; or ``one-vs-rest``: a score is a class's log-odds against the rest, and probabilities are its risk to a
    #: power, divided by the classes' sum
    link: str
    power: float = 1.0  #: of saved short models of earlier versions

    @classmethod
    def joined(cls, models: Sequence[RuleEnsemble], link: str) -> RuleEnsemble | ClassEnsembles:
        """Return a single model unchanged, several as one per class."""
        return models[0] if len(models) == 1 else cls(tuple(models), link)

    @property
    def classes(self) -> tuple[str, ...]:
        """The target's categories."""
        target = self.models[0].schema.target
        assert target is not None
        return target.categories

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return F of each encoded record and class, shape (records, classes)."""
        return np.column_stack([model.scores(X) for model in self.models])

    def probabilities(self, X: np.ndarray) -> np.ndarray:
        """Return the classes' probabilities, shape (records, classes)."""
        if self.link == "softmax":
            return np.asarray(softmax(self.scores(X), axis=1))
        p = expit(self.scores(X)) ** self.power
        return np.asarray(p / np.maximum(p.sum(axis=1, keepdims=True), 1e-300))

    def probability_intervals(
        self, X: np.ndarray, level: float = 0.9, of: Aim = "truth"
    ) -> np.ndarray:
        """Return intervals of each class's probability of encoded records, shape (records, classes, 2).

        Each has the width, in log-odds, of its own model's score interval times the power. By ``softmax`` this is
        approximate: it varies between records with the errors of the class's own terms, and the other classes' are in
        it by their mean (of ``"same"``, not at all). InputError: unknown.
        """
        intervals = np.stack([model.score_intervals(X, level, of) for model in self.models], axis=1)
        scores = self.scores(X)
        if self.link != "softmax":
            scores = self.power * log_expit(scores)
        outcome = Outcome("classes", len(self.models))
        odds = [outcome.log_odds(scores, k)[0] for k in range(len(self.models))]
        middle = np.column_stack(odds)[..., None]
        half = self.power * np.diff(intervals, axis=2) / 2
        return np.asarray(expit(np.concatenate([middle - half, middle + half], axis=2)))

    def importance_intervals(self, level: float = 0.9, of: Aim = "truth") -> np.ndarray:
        """Return intervals of importances summed over classes, whose errors may be fully correlated."""
        highs = [model.importance_intervals(level, of)[:, 1] for model in self.models]
        total, high = self.covariate_importances, np.sum(highs, axis=0)
        return np.column_stack([np.maximum(2 * total - high, 0), high])

    @cached_property
    def rules(self) -> list[Rule]:
        """Return the distinct candidate rules of all classes."""
        return list(dict.fromkeys(rule for model in self.models for rule in model.rules))

    @cached_property
    def covariate_importances(self) -> np.ndarray:
        """Return importances summed over classes, shape (covariates,)."""
        return np.asarray(np.sum([m.covariate_importances for m in self.models], axis=0))

    @cached_property
    def variable_importances(self) -> np.ndarray:
        """Return covariates' importances, scaled to a maximum of 1 (or all 0)."""
        total = self.covariate_importances
        largest = total.max(initial=0.0)
        return np.asarray(total / largest if largest > 0 else total)

    def table(self, top: int | None = None, least_support: float = 0.0) -> pd.DataFrame:
        """Return the terms of all classes, most important first; see :meth:`.RuleEnsemble.table`.

        Returns:
            the same columns after the class's; importances are relative to the largest of all. A rule of several
            classes has the mean of their supports, which differ where its cut-offs were rounded from others.
        """
        tables = []
        for name, model in zip(self.classes, self.models, strict=True):
            table = model.table()
            table["importance"] *= model.term_importances.max(initial=0.0)
            table.insert(0, "class", name)
            tables.append(table)
        terms = pd.concat(tables, ignore_index=True)
        terms["support"] = terms.groupby("term")["support"].transform("mean")
        terms = terms[~(terms["support"] < least_support)]
        largest = terms["importance"].max() if len(terms) else 0.0
        terms["importance"] *= 100 / largest if largest > 0 else 0.0
        ordered = terms.sort_values("importance", ascending=False, kind="stable", ignore_index=True)
        return ordered if top is None else ordered.head(top)

    def to_dict(self) -> dict[str, Any]:
        """Return the models as plain data, by class."""
        pairs = zip(self.classes, self.models, strict=True)
        models = {name: m.to_dict("score") for name, m in pairs}
        return {**self._link, "models": models}

    def to_state(self) -> dict[str, Any]:
        """Return the exact state, without the schema, as plain data."""
        models = [model.to_state() for model in self.models]
        return {**self._link, "models": models}

    @property
    def _link(self) -> dict[str, Any]:
        return {"link": self.link, **({} if self.power == 1 else {"power": self.power})}

    @classmethod
    def from_state(cls, schema: Schema, state: Mapping[str, Any]) -> ClassEnsembles:
        """Rebuild from the output of :meth:`to_state` (ValueError or QueryError: it does not fit)."""
        models = tuple(RuleEnsemble.from_state(schema, data) for data in state["models"])
        result = cls(models, state["link"], float(state.get("power", 1.0)))
        if len(models) != len(result.classes) or result.link not in LINKS:
            raise ValueError("a model for each class, and one of the links")
        if not 0 < result.power < np.inf:
            raise ValueError("power must be positive")
        return result
