"""Federated Takagi-Sugeno-Kang fuzzy rules, learned in one shot and merged.

J. L. Corcuera Barcena et al., "An approach to federated learning of explainable fuzzy regression
models", FUZZ-IEEE 2022: the baseline of the federated fuzzy regression tree's paper (reference 48).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from privfed.errors import QueryError
from privfed.exchange.disclosure import Answer, Disclosure
from privfed.learners.base import Planned
from privfed.learners.baselines.base import BaselineRegressor, Rows
from privfed.learners.fuzzy_tree.fuzzy import to_unit
from privfed.learners.fuzzy_tree.percentiles import Histograms, rounds
from privfed.learners.fuzzy_tree.queries import Scaling
from privfed.learners.parameters import Constraints, Integers
from privfed.privacy.policy import Policy
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

_BINS = 32  #: Bins of each histogram for the scaling


@dataclass(frozen=True, eq=False)
class FuzzyRules(Query):
    """A client's rules: an antecedent for each cell that holds a record, and a linear model each.

    Sensitivity: none is finite; a rule reveals that there is a record, and its model may interpolate it.
    """

    sets: int  #: uniform triangular fuzzy sets of each feature
    lower: np.ndarray  #: lower end of each feature's [0, 1], shape (features,)
    upper: np.ndarray  #: upper end
    kind: ClassVar[str] = "baselines.fuzzy_rules"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``antecedents`` by rule and feature, ``consequents`` by rule and coefficient, ``weights``."""
        features = len(schema.features)
        numeric = schema.target is not None and schema.target.numeric
        if not numeric or not 2 <= self.sets <= 99:
            raise QueryError("malformed", "fuzzy rules need a numeric target and at least two sets")
        for bound in (self.lower, self.upper):
            if bound.shape != (features,) or not np.isfinite(bound).all():
                raise QueryError("malformed", "scaling needs one finite bound for each feature")
        return {
            "antecedents": Part(PartType.ARTIFACT, ("rule", "feature"), (-1, features)),
            "consequents": Part(PartType.ARTIFACT, ("rule", "coefficient"), (-1, features + 1)),
            "weights": Part(PartType.ARTIFACT, ("rule",), (-1,)),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Fit weighted least squares in every cell that is some record's strongest."""
        assert view.schema.target is not None
        low, high = view.schema.target.bounds
        unit = to_unit(view.table.x, self.lower, self.upper)
        target = (view.table.target - low) / (high - low) - 0.5
        antecedents = np.unique(strongest(unit, self.sets), axis=0)
        design = np.column_stack([np.ones(len(unit)), unit - 0.5])
        consequents = np.zeros((len(antecedents), design.shape[1]))
        weights = np.zeros(len(antecedents))
        for number, antecedent in enumerate(antecedents):
            degree = strength(unit, antecedent[None], self.sets)[:, 0]
            active = degree > 0
            root = np.sqrt(degree[active])
            consequents[number] = np.linalg.lstsq(
                root[:, None] * design[active], root * target[active], rcond=1e-5
            )[0]
            weights[number] = degree.sum()
        return {
            "antecedents": antecedents.astype(float),
            "consequents": consequents,
            "weights": weights,
        }


def strongest(unit: np.ndarray, sets: int) -> np.ndarray:
    """Return each value's set of largest membership, shape (records, features)."""
    return np.asarray(np.rint(unit * (sets - 1)), np.int64)


def strength(unit: np.ndarray, antecedents: np.ndarray, sets: int) -> np.ndarray:
    """Return records' activations of rules, the product of memberships, shape (records, rules)."""
    result = np.ones((len(unit), len(antecedents)))
    for values, chosen in zip(unit.T, antecedents.T, strict=True):
        result *= np.maximum(0.0, 1 - np.abs(values[:, None] * (sets - 1) - chosen))
    return result


class FuzzyRulesRegressor(BaselineRegressor):
    """Every client learns rules alone; the server merges rules with equal antecedents.

    Their models are averaged, weighted by summed activation. A row is predicted by its strongest
    rule, or if none is active by the one with the nearest peaks.

    Args:
        n_fuzzy_sets: uniform triangular fuzzy sets of each feature.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (Scaling, FuzzyRules)
    _parameter_constraints: ClassVar[Constraints] = {
        "n_fuzzy_sets": [Integers(at_least=2, at_most=99)]
    }

    #: The rules' antecedents, models and summed activations; set by ``fit``.
    antecedents_: np.ndarray
    consequents_: np.ndarray
    weights_: np.ndarray
    lower_: np.ndarray  #: Ends of each feature's [0, 1]; set by ``fit``
    upper_: np.ndarray

    def __init__(self, *, n_fuzzy_sets: int = 5) -> None:
        self.n_fuzzy_sets = n_fuzzy_sets

    def fit(self, federation: Disclosure) -> Self:
        """Query histograms for scaling, then rules, and merge them; errors as for the base."""
        self._start(federation)
        schema = federation.schema
        assert schema.target is not None
        bottom, top = schema.target.bounds
        bounds = np.append(schema.lower, bottom), np.append(schema.upper, top)
        edges, query = np.linspace(*bounds, _BINS + 1, axis=1), Scaling(_BINS)
        for _ in range(rounds(_BINS)):
            histograms = Histograms.from_answer(federation.ask(query).only, edges)
            edges = histograms.refined()
            query = Scaling(_BINS, tuple(map(tuple, edges.tolist())))
        self.lower_, self.upper_ = (end[:-1] for end in histograms.percentiles())
        rules = FuzzyRules(self.n_fuzzy_sets, self.lower_, self.upper_)
        self._merge(federation.ask(rules).only)
        return self

    def _merge(self, answer: Answer) -> None:
        antecedents, consequents, weights = (
            np.concatenate([np.asarray(part) for part in answer.each(name).values()])
            for name in ("antecedents", "consequents", "weights")
        )
        self.antecedents_, rows = np.unique(antecedents, axis=0, return_inverse=True)
        rows = rows.reshape(-1)
        self.weights_ = np.bincount(rows, weights, len(self.antecedents_))
        merged = np.zeros((len(self.antecedents_), consequents.shape[1]))
        np.add.at(merged, rows, weights[:, None] * consequents)
        self.consequents_ = merged / self.weights_[:, None]

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        assert self.schema_.target is not None
        low, high = self.schema_.target.bounds
        unit = to_unit(self._encode(X, client), self.lower_, self.upper_)
        design = np.column_stack([np.ones(len(unit)), unit - 0.5])
        chosen = self._match(unit)
        unit_target = np.clip((design * self.consequents_[chosen]).sum(axis=1), -0.5, 0.5)
        return np.asarray(low + (unit_target[:, None] + 0.5) * (high - low))

    def _match(self, unit: np.ndarray) -> np.ndarray:
        chosen = np.zeros(len(unit), np.int64)
        for first in range(0, len(unit), 256):
            rows = slice(first, first + 256)
            active = strength(unit[rows], self.antecedents_, self.n_fuzzy_sets)
            distance = np.abs(unit[rows, None] * (self.n_fuzzy_sets - 1) - self.antecedents_).sum(
                axis=2
            )
            none = active.max(axis=1) <= 0
            chosen[rows] = np.where(none, distance.argmin(axis=1), active.argmax(axis=1))
        return chosen

    @property
    def n_rules_(self) -> int:
        """Number of rules after merging."""
        return len(self.antecedents_)

    @property
    def n_parameters_(self) -> int:
        """For each rule, a set per feature plus a coefficient per feature and one more (Table 8)."""
        return self.n_rules_ * (2 * len(self.schema_.features) + 1)

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return histograms by round, then the rules once."""
        rules = FuzzyRules(self.n_fuzzy_sets, schema.lower, schema.upper)
        return [Planned(Scaling(_BINS), rounds(_BINS)), Planned(rules, 1)]

    def readable(self) -> dict[str, Any]:
        """Return the meaning of the state's arrays."""
        name = "Takagi-Sugeno-Kang fuzzy rules, maximum matching"
        return self._model_info(name, rules=self.n_rules_)
