"""The queries of federated RuleFit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from msgspec import UNSET, UnsetType

from privfed.errors import QueryError
from privfed.learners.rulefit.averaging import (
    Centred,
    LocalStepParams,
    Slopes,
    largest_eigenvalue,
    local_steps,
    losses,
    path_residuals,
)
from privfed.learners.rulefit.boosting import Boosting, grow_rules
from privfed.learners.rulefit.cutoffs import LARGEST, Cutoffs, bins_needed, inner_edges
from privfed.learners.rulefit.design import CentredOperator, DesignOperator
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.settings import SETTINGS
from privfed.questions import wire
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Equations, Query, View
from privfed.tables.records import nearest_class
from privfed.tables.schema import Schema

ROUNDED = 1e-6  #: Maximum rounding error of a sum of losses
BLOCK = 2**26  #: Maximum records times conditions in memory, a byte each
FEW = 2**18  #: Maximum entries of an explicit design matrix, which is faster for few records
#: Maximum rules of one query, and maximum local work of a round, to bound a gate's work.
MOST_RULES, MOST_TREES, MOST_STEPS = 100_000, 10_000, 1_000
TREE = 6e5  #: Work of one boosted tree on few records, in multiply-adds


@dataclass(frozen=True)
class CovariateHistogram(Query):
    """Counts of covariates by bin of their public bounds (paper, Section 2.2.1, step 1).

    Sensitivity: a record is in exactly one bin of each covariate (values were clipped to the
    bounds, missing ones replaced by the schema's fill), so with p covariates L1 = p and squared L2
    = p; replacing a record changes two bins of each by one: 2p and 2p. The paper has one covariate
    per query; p such queries at epsilon each cost p * epsilon in total.
    """

    features: tuple[int, ...]
    bins: int
    kind: ClassVar[str] = "rulefit.histogram"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by covariate and bin; rows of covariates with fewer bins end in empty ones."""
        _check_features(self.features, schema)
        if not 2 <= self.bins <= 100_000:
            raise QueryError("malformed", "bins must lie between 2 and 100,000")
        p = len(self.features)
        sensitivity = Sensitivity(Bound(p, p), replace_one=Bound(2 * p, 2 * p))
        shape = (p, bins_needed(schema, self.features, self.bins))
        return {"counts": Part(PartType.COUNTS, ("feature", "bin"), shape, sensitivity)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count by bin; a value on an edge belongs to the upper bin, the outer bins are closed."""
        width = bins_needed(view.schema, self.features, self.bins)
        rows = [np.bincount(bins, minlength=width) for bins in self._bins(view)]
        return {"counts": np.array(rows)}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return one count in the bin of each covariate's value."""
        width = bins_needed(view.schema, self.features, self.bins)
        return {"counts": np.stack(self._bins(view), axis=1)[..., None] == np.arange(width)}

    def _bins(self, view: View) -> list[np.ndarray]:
        edges = [inner_edges(view.schema.features[f], self.bins) for f in self.features]
        return [
            np.searchsorted(inner, view.table.x[:, f], side="right")
            for inner, f in zip(edges, self.features, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class BoostedRules(Query):
    """Rules of trees boosted on the client's own records (paper, Algorithm 1).

    Sensitivity: none is finite; one record can change every tree.
    """

    cutoffs: Cutoffs
    boosting: Boosting
    #: code of the class against the rest; unset for two classes or a number, and then not in the digest
    label: int | UnsetType = UNSET
    kind: ClassVar[str] = "rulefit.rules"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``boxes`` of cut-off codes by (rule, feature, side), and ``mentions`` by rule."""
        _check_target(schema, self.label)
        self.cutoffs.check(schema)
        grow = self.boosting
        valid = 1 <= grow.trees <= MOST_TREES and 2 <= grow.leaves <= 64 and grow.min_leaf >= 1
        if not valid or not (0 < grow.shrinkage <= 1 and 0 <= grow.subsample <= 1):
            raise QueryError("malformed", "trees, leaves, shrinkage or subsample make no sense")
        shape = (-1, len(schema.features), 2)
        return {
            "boxes": Part(PartType.ARTIFACT, ("rule", "feature", "side"), shape),
            "mentions": Part(PartType.ARTIFACT, ("rule",), (-1,)),
        }

    def work(self, records: int) -> float:
        """See :class:`Query`: trees on few records take time, too."""
        return super().work(records) + self.boosting.trees * TREE

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Boost with the client's own secret randomness."""
        boxes, mentions = grow_rules(
            self.cutoffs.codes(view.table.x),
            unit_target(view, self.boosting.logistic, self.label),
            self.cutoffs.sizes,
            self.boosting,
            view.rng(f"rulefit.rules {self.digest}"),
        )
        return {"boxes": boxes, "mentions": mentions}


@dataclass(frozen=True, eq=False)
class _Model(Query):
    """Base class of queries about a model, with its terms."""

    terms: Terms

    def _check(self, schema: Schema) -> None:
        _check_target(schema)
        if len(self.terms.boxes) > MOST_RULES:
            raise QueryError("malformed", f"at most {MOST_RULES} rules can be asked about")
        self.terms.check(schema)

    def _design(self, view: View) -> DesignOperator:
        design: DesignOperator = self._cached(view, "rulefit.design", DesignOperator)
        return design

    def _matrix(self, view: View) -> np.ndarray:
        matrix: np.ndarray = self._cached(
            view, "rulefit.matrix", lambda terms, X: np.ascontiguousarray(terms.design(X))
        )
        return matrix

    def _centred(self, view: View, means: np.ndarray) -> Slopes:
        """Return the centred columns, as a matrix for few records, else matrix-free."""
        if len(view.table) * (1 + len(self.terms)) <= FEW:
            return Centred(self._matrix(view), means)
        return CentredOperator(self._design(view), means)

    def _cached(self, view: View, name: str, make: Callable[[Terms, np.ndarray], Any]) -> Any:
        """Return a cached object made from the terms and the client's records, for one set of terms at a time."""
        if view.cache.get("rulefit.key") != self._key:
            for cached in ("rulefit.design", "rulefit.matrix"):
                view.cache.pop(cached, None)
            view.cache["rulefit.key"] = self._key
        if name not in view.cache:
            view.cache[name] = make(self.terms, view.table.x)
        return view.cache[name]

    @cached_property
    def _key(self) -> str:
        return wire.digest(wire.encode(self.terms))


@dataclass(frozen=True, eq=False)
class Supports(_Model):
    """How many records satisfy each rule, and how many there are (paper, Eq. 2).

    Sensitivity: a record can satisfy all K rules, so ``counts`` has L1 = K and squared L2 = K, and
    ``size`` has 1 and 1. Replacing a record changes each count by at most one (the old and the new
    record may satisfy complementary rules), but not the size: K and K, 0 and 0.
    """

    kind: ClassVar[str] = "rulefit.supports"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by rule, and ``size``."""
        self._check(schema)
        rules = len(self.terms.boxes)
        counts = Sensitivity(Bound(rules, rules), replace_one=Bound(rules, rules))
        size = Sensitivity(Bound(1, 1), replace_one=Bound(0, 0))
        return {
            "counts": Part(PartType.COUNTS, ("rule",), (rules,), counts),
            "size": Part(PartType.COUNTS, ("client",), (1,), size),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count by blocks of records, so that memory does not grow with records times rules."""
        X, counts = view.table.x, np.zeros(len(self.terms.boxes), np.int64)
        rows = max(1, BLOCK // max(1, self.terms.conditions))
        for start in range(0, len(X), rows):
            counts += self.terms.rules(X[start : start + rows]).sum(axis=0, dtype=np.int64)
        return {"counts": counts, "size": np.array([len(X)], dtype=np.int64)}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return one count for each rule that a record satisfies, and one for the size."""
        members = self.terms.rules(view.table.x)
        return {"counts": members, "size": np.ones((len(members), 1), bool)}


@dataclass(frozen=True, eq=False)
class SmoothnessBound(_Model):
    """How steep a client's mean loss can be, which bounds the step (not in the paper).

    It is the largest eigenvalue of the second moments S of its columns about public means. Sensitivity: none is
    declared. Adding a record x changes S by (x x' - S) / (n + 1), and so the eigenvalue by at most the largest squared
    norm of a record, which is about as large as the eigenvalue itself: with noise that hides a record, it could not set
    a step size.
    """

    means: np.ndarray  #: public column means, the intercept's zero; shape (1 + terms,)
    kind: ClassVar[str] = "rulefit.curvature"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``largest``, one number; 0 without records."""
        self._check(schema)
        _check_vectors(self.terms, self.means)
        return {"largest": Part(PartType.VALUES, ("client",), (1,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute by products with the columns; see :func:`.largest_eigenvalue`."""
        records = len(view.table)
        if not records:
            return {"largest": np.zeros(1)}
        centred = self._centred(view, self.means)
        return {"largest": np.array([largest_eigenvalue(centred, records, 1 + len(self.terms))])}


@dataclass(frozen=True, eq=False)
class Increment(_Model):
    """How a client's own training steps change its weights (paper, Algorithm 3, the dual increment).

    Sensitivity: none is finite, as gradients are not clipped and local steps depend on one another.
    It still identifies members: see :meth:`equations`.
    """

    means: np.ndarray  #: public column means, the intercept's zero; shape (1 + terms,)
    dual: np.ndarray  #: z_r, shape (1 + terms,)
    steps: LocalStepParams  #: step sizes and penalty
    logistic: bool  #: the loss
    label: int | UnsetType = UNSET  #: as in :class:`BoostedRules`
    kind: ClassVar[str] = "rulefit.increment"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``increment`` by term, the intercept first."""
        self._check(schema)
        _check_target(schema, self.label)
        _check_vectors(self.terms, self.means, self.dual)
        steps = self.steps
        numbers = (steps.client_step, steps.elapsed, steps.penalty)
        if not all(0 <= number <= LARGEST for number in numbers):
            raise QueryError("malformed", "step sizes and penalty must lie between 0 and 2^20")
        if not 1 <= steps.steps <= MOST_STEPS:
            raise QueryError("malformed", f"local steps must lie between 1 and {MOST_STEPS}")
        return {"increment": Part(PartType.VALUES, ("term",), (1 + len(self.terms),))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Take the local steps; the increment is zero without records."""
        if not len(view.table):
            return {"increment": np.zeros(1 + len(self.terms))}
        target = unit_target(view, self.logistic, self.label)
        design = self._centred(view, self.means)
        return {"increment": local_steps(design, target, self.dual, self.steps, self.logistic)}

    def equations(self, answer: Mapping[str, np.ndarray], view: View) -> Mapping[str, Equations]:
        """Return the equations sum over records of ``eta_c sum_g rho_g (x - mean) - increment`` = 0.

        The increment is a mean over the client's records of residuals rho times centred columns, and the residuals
        follow from the public dual and the increment: exactly if G = 1, else along an assumed straight path. The error
        is taken as a fraction :attr:`.RuleFitSettings.path_error` of the residuals' change along the path, independent
        over records; first rounds have larger errors.
        """
        increment = np.asarray(answer["increment"], float)
        if increment.shape != (1 + len(self.terms),) or not len(view.table):
            return {}
        matrix = self._matrix(view)
        design = Centred(matrix, self.means)
        target = unit_target(view, self.logistic, self.label)
        path = path_residuals(design, target, self.dual, increment, self.steps, self.logistic)
        columns = matrix - self.means
        added = self.steps.client_step * path.sum(axis=0)[:, None] * columns - increment
        change = SETTINGS.path_error * self.steps.client_step * self.steps.steps * path.std(axis=0)
        error = np.sqrt(change**2 @ columns**2)
        return {"increment": Equations(added, np.zeros(len(increment)), error)}


@dataclass(frozen=True, eq=False)
class Objective(_Model):
    """The sum of the records' losses under given weights, to report convergence.

    Sensitivity: none is finite; a record's loss grows with the weights.
    """

    weights: np.ndarray
    logistic: bool
    label: int | UnsetType = UNSET  #: as in :class:`BoostedRules`
    kind: ClassVar[str] = "rulefit.objective"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``loss`` and ``size``."""
        self._check(schema)
        _check_target(schema, self.label)
        _check_vectors(self.terms, self.weights)
        return {
            "loss": Part(PartType.VALUES, ("client",), (1,)),
            "size": Part(PartType.VALUES, ("client",), (1,)),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up the losses, block by block."""
        terms = self._losses(view)
        return {"loss": np.array([terms.sum()]), "size": np.array([float(len(terms))])}

    def equations(self, answer: Mapping[str, np.ndarray], view: View) -> Mapping[str, Equations]:
        """Return the equations by which losses sum to ``loss``, and ones to ``size``."""
        terms = self._losses(view)[:, None]
        added = {"loss": (terms, ROUNDED), "size": (np.ones_like(terms), 0.0)}
        return {
            name: Equations(added[name][0], np.asarray(released, float), added[name][1])
            for name, released in answer.items()
            if name in added
        }

    def _losses(self, view: View) -> np.ndarray:
        design = self._design(view)
        target = unit_target(view, self.logistic, self.label)
        predictor = design.predictor(self.weights)
        blocks = [
            losses(target[block.rows], predictor.scores(block), self.logistic)
            for block in design.blocks()
        ]
        return np.concatenate([np.empty(0), *blocks])


def unit_target(view: View, logistic: bool, label: int | UnsetType = UNSET) -> np.ndarray:
    """Return the target scaled by its public bounds: to [0, 1], or [-1, 1] for squared loss; 1 for ``label``."""
    column = view.schema.target
    assert column is not None
    low, high = column.bounds
    if label is not UNSET:
        classes = nearest_class(view.table.target, low, len(column.categories))
        return np.asarray(classes == label, float)
    unit: np.ndarray = (view.table.target - low) / (high - low)
    return unit if logistic else 2 * unit - 1


def _check_target(schema: Schema, label: int | UnsetType = UNSET) -> None:
    if schema.target is None:
        raise QueryError("malformed", "the schema has no target")
    if label is not UNSET and not 0 <= label < len(schema.target.categories):
        raise QueryError("malformed", "the target has no class of this label")


def _check_features(features: tuple[int, ...], schema: Schema) -> None:
    known = all(0 <= feature < len(schema.features) for feature in features)
    if not features or not known or len(set(features)) != len(features):
        raise QueryError("malformed", "covariates must be known ones, each once")


def _check_vectors(terms: Terms, *vectors: np.ndarray) -> None:
    for vector in vectors:
        if vector.shape != (1 + len(terms),) or vector.dtype.kind != "f":
            raise QueryError("malformed", "a vector needs a number for every term")
        if not np.isfinite(vector).all():
            raise QueryError("malformed", "a vector's numbers must be finite")
        if np.abs(vector).max() > LARGEST:
            raise QueryError("malformed", "weights and scales must not exceed 2^20")
