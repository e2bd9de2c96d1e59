"""FedForest's private way: completely random trees and one tree per column, weighted by noisy sums.

Quantiles have no finite sensitivity, so the published protocol is not used; see
:mod:`privfed.learners.private`. Weights are fitted jointly, through a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, log10
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import numpy as np
from scipy.special import expit

from privfed.errors import InputError
from privfed.exchange.disclosure import Disclosure
from privfed.learners import private
from privfed.learners.base import Planned
from privfed.learners.forest.additive import AdditiveTree, trees_of, values_of
from privfed.learners.forest.growth import ForestParams
from privfed.learners.forest.published import LearnedForest
from privfed.learners.plain import plain, restored
from privfed.learners.private import Outcome, PrivateModel
from privfed.learners.private.grid import WHOLE, one_bin_each
from privfed.learners.private.model import Aim, deviations_of
from privfed.learners.private.target_link import MOST_CLASSES
from privfed.learners.ways import Way
from privfed.questions.tree import (
    Tree,
    categories_text,
    digits_text,
    ends_text,
    interval_text,
)
from privfed.tables.schema import Column, Schema, shown

if TYPE_CHECKING:
    from privfed.learners.pictures import TreeNode

T = TypeVar("T")
LEVEL = 0.9  #: Default level of intervals
RANGES = (
    "Values are rounded, and ranges of equal ones are one line; predict() adds up the exact ones."
)


class PrivateForestWay(Way[ForestParams, LearnedForest]):
    """Random trees and noisy sums; the only parameter used is ``random_state``."""

    name = "private"
    queries = private.QUERIES

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """See the base."""
        return private.schedule(schema, _outcome(schema, not self.params.classes))

    def learn(self, federation: Disclosure, rng: np.random.Generator) -> LearnedForest:
        """See the base."""
        outcome = _outcome(federation.schema, not self.params.classes)
        model = private.learn(federation, outcome, rng)
        return LearnedForest(PrivateForest(model), model.rounds)


def _outcome(schema: Schema, numbers: bool) -> Outcome:
    """Return the outcome (InputError: more classes than the engine supports)."""
    outcome, target = Outcome.of(schema, numbers), schema.target
    assert target is not None
    few = one_bin_each(target) and outcome.classes <= MOST_CLASSES
    if outcome.kind == "classes" and not few:
        raise InputError(
            f"a private forest distinguishes up to {MOST_CLASSES} categories or {WHOLE} integers, and "
            f'the target {target.name!r} is neither; declare kind = "category" and its categories in the '
            "schema, or use FedForestRegressor for a number"
        )
    return outcome


@dataclass(frozen=True, eq=False)
class PrivateForest:
    """The private engine's fitted model as a :class:`.ForestModel`."""

    model: PrivateModel

    def predict(self, X: np.ndarray, client: np.ndarray | None = None) -> np.ndarray:
        """See the base; it is the same for every client."""
        predictions, outcome = self.model.predictions(X), self.model.outcome
        if outcome.kind == "number":
            return outcome.values(predictions)[:, None]
        if outcome.kind == "binary":
            return np.column_stack([1 - predictions, predictions])
        return predictions

    def importances(self) -> np.ndarray:
        """Return fractions of the variance decrease, over synthetic records and all trees."""
        features = len(self.model.schema.features)
        total = np.sum([tree.explained(features) for tree in self.trees], axis=0)
        return np.append(total / max(total.sum(), 1e-300), 0.0)

    def describe(self, tree: int | None) -> str:
        """Return columns by effect on the sum, or one tree."""
        model, names = self.model, self.model.schema.names
        if tree is not None:
            part, values = self._tree(tree), self._values[tree]
            if tree < len(names):
                lines = _ranges(part.tree, values, model.schema.features[tree])
            else:
                lines = [part.tree.to_text(model.schema, lambda node: _signed(values[node]))]
            return "\n".join(
                [f"{self.caption(tree)}:", *lines, *part.tree.notes(model.schema.features)]
            )
        lines = []
        if model.outcome.kind == "number":
            low, high = model.outcome.lower, model.outcome.upper
            lines.append(f"predictions lie between {ends_text(low, high)}")
        if model.errors:
            lines.append(f"{self.moves}, with the 90 % interval of the true change:")
            importances, ends = self.permutation_importances()
            for k in np.argsort(-importances, kind="stable"):
                brief = [digits_text(number, 3) for number in (importances[k], *ends[k])]
                lines.append("{}: {} ({} to {})".format(shown(names[k]), *brief))
        head = (
            f"{len(self.trees)} trees, {len(names)} of one column each, whose sum is {self._of}; weighted by "
            f"{model.rounds} noisy sums of about {max(model.records, 0):.0f} records"
        )
        return "\n".join([head, *lines])

    @cached_property
    def trees(self) -> tuple[AdditiveTree, ...]:
        """The model as a forest; see :func:`.trees_of`."""
        return trees_of(self.model)

    def _tree(self, number: int) -> AdditiveTree:
        if not 0 <= number < len(self.trees):
            raise InputError(f"there is no tree {number}; the last is {len(self.trees) - 1}")
        return self.trees[number]

    def drawn(self, tree: int) -> TreeNode:
        """One tree as a picture has it."""
        from privfed.learners.pictures import drawn

        part, values = self._tree(tree), self._values[tree]
        return drawn(part.tree, self.model.schema.features, lambda node: _signed(values[node]))

    @cached_property
    def _values(self) -> list[np.ndarray]:
        """Each tree's node values, as in the learner's :attr:`estimators_`."""
        return values_of(self.model)

    def caption(self, tree: int) -> str:
        """See the base: all trees' leaves add up."""
        self._tree(tree)
        last_tree = len(self.trees) - 1
        return f"tree {tree}, from 0 to {last_tree}; the leaves of all add up to {self._of}"

    @property
    def _of(self) -> str:
        """Describe what the trees add up to."""
        target, kind = self.model.schema.target, self.model.outcome.kind
        assert target is not None
        name = shown(target.name)
        if kind == "number":
            return name
        first, last = map(int, target.bounds)
        names = list(map(shown, target.categories or map(str, range(first, last + 1))))
        several = f"the scores of {name} = {', '.join(names)}, whose softmax are the probabilities"
        return several if kind == "classes" else f"the log-odds of {name} = {names[1]}"

    @property
    def moves(self) -> str:
        """Describe an importance."""
        target = self.model.schema.target
        assert target is not None
        several = self.model.outcome.kind == "classes"
        of = f"all log-odds of {shown(target.name)}" if several else self._of
        return f"change of {of} where a feature has another record's value"

    def partial_dependence(
        self, column: int, level: float = LEVEL, of: Aim = "truth"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a column's effect by code, and the half-width of its interval: in log-odds, or the target's unit.

        ``of`` as in :meth:`.PrivateModel.score_deviations`.

        Returns:
            both of shape (codes,), for more than two classes (codes, classes).
        """
        outcome = self.model.outcome
        unit = outcome.upper - outcome.lower if outcome.kind == "number" else 1.0
        outputs = range(outcome.classes) if outcome.classes > 2 else [outcome.classes - 1]
        effects = [self.model.partial_dependence(column, output, of) for output in outputs]
        heights, stds = (np.stack(arrays, axis=1) for arrays in zip(*effects, strict=True))
        if len(outputs) == 1:
            heights, stds = heights[:, 0], stds[:, 0]
        return unit * heights, unit * deviations_of(level) * stds

    def permutation_importances(
        self, level: float = LEVEL, of: Aim = "truth"
    ) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`.PrivateModel.permutation_importances`; for a number in its unit."""
        usual = (level, of) == (LEVEL, "truth")
        importances, ends = self._usual if usual else self.model.permutation_importances(level, of)
        outcome = self.model.outcome
        unit = outcome.upper - outcome.lower if outcome.kind == "number" else 1.0
        return unit * importances, unit * ends

    @cached_property
    def _usual(self) -> tuple[np.ndarray, np.ndarray]:
        return self.model.permutation_importances(LEVEL)

    def intervals(self, X: np.ndarray, level: float, of: Aim = "truth") -> np.ndarray:
        """Return intervals of the second class's probability, or of a number's mean, shape (rows, 2).

        For more than two classes, of each one's probability, shape (rows, classes, 2). Its log-odds against the rest
        are F_k - log sum of exp F_j over others j, and change with errors of the scores by e_k - sum of e_j p_j / (1 -
        p_k).
        """
        outcome, scores = self.model.outcome, self.model.scores(X)
        half = deviations_of(level) * self.model.score_deviations(X, of)
        if outcome.kind == "classes":
            odds = [outcome.log_odds(scores, k) for k in range(outcome.classes)]
            middle = np.column_stack([value for value, _ in odds])
            half = np.column_stack([np.linalg.norm(slopes * half, axis=1) for _, slopes in odds])
            limits = expit(np.stack([middle - half, middle + half], axis=2))
            return limits if outcome.classes > 2 else limits[:, 1]
        ends = [outcome.predictions(end) for end in (scores - half, scores + half)]
        number = outcome.kind == "number"
        return np.column_stack([outcome.values(end) if number else end[:, 0] for end in ends])

    def to_text(self, head: Mapping[str, Any]) -> str:
        """Raise InputError: its trees add up through a link, which the text form lacks."""
        raise InputError(
            "a private model is not a set of rules; write describe(tree=0) or to_sklearn()"
        )

    def readable(self) -> dict[str, str]:
        """See the base."""
        assert self.model.schema.target is not None
        return {"model": "private random trees", "target": self.model.schema.target.name}

    def to_state(self) -> dict[str, Any]:
        """See the base."""
        names = [f.name for f in fields(self.model) if f.name != "schema"]
        return {"private": {name: _plain(getattr(self.model, name)) for name in names}}

    @classmethod
    def from_state(cls, schema: Schema, state: Mapping[str, Any]) -> PrivateForest:
        """Rebuild from the output of :meth:`to_state` (a lookup, type or value error: invalid)."""
        values = dict(state["private"])
        if "further" not in values:  # in files before 0.1, without errors of today's form
            values = {k: v for k, v in values.items() if k not in ("error", "unexpressed")}
            values["errors"] = []
        model = _built(PrivateModel, {**values, "schema": schema})
        model.outcome.check(schema)
        model.basis.check(schema)
        shape = (model.basis.size, model.outcome.classes)
        if model.weights.shape != shape or not np.isfinite(model.weights).all():
            raise ValueError("every function needs its weights")
        if model.start.shape != shape[1:] or not np.isfinite(model.start).all():
            raise ValueError("every class needs its intercept")
        if model.covariance is not None and model.covariance.ndim == 2:
            model = replace(model, covariance=model.covariance[None])
        return cls(model)


def _ranges(tree: Tree, values: np.ndarray, column: Column) -> list[str]:
    """Format a tree of one column by its consecutive ranges, those of equal values as printed in one line.

    Values have decimals that resolve a tenth of their range: what is printed is within a twentieth of it.
    """
    leaves = values[tree.feature < 0]  # nodes are numbered from left to right
    cuts = np.sort(tree.cuts[tree.feature >= 0, 0])
    width = float(np.ptp(leaves))
    if not width > 0:
        return [f"{interval_text(column.name, -np.inf, np.inf, column)}: {_signed(leaves[0])}"]
    places = max(0, ceil(-log10(width / 10)))
    texts = [", ".join(f"{round(v, places) + 0.0:+.{places}f}" for v in leaf) for leaf in leaves]
    if column.kind == "category":
        codes = np.searchsorted(cuts, np.arange(len(column.categories)), side="right")
        groups = {text: np.array([texts[code] == text for code in codes]) for text in texts}
        lines = [f"{categories_text(column, held)}: {text}" for text, held in groups.items()]
    else:
        first = [k for k, text in enumerate(texts) if k == 0 or text != texts[k - 1]]
        ends = [-np.inf, *cuts[np.array(first[1:], int) - 1].tolist(), np.inf]
        lines = [
            f"{interval_text(column.name, *pair, column)}: {texts[k]}"
            for k, pair in zip(first, pairwise(ends), strict=True)
        ]
    return [*lines, RANGES] if len(lines) < len(texts) else lines


def _signed(values: np.ndarray) -> str:
    return ", ".join(("+" if value >= 0 else "") + digits_text(value, 3) for value in values)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return plain(value)


def _built(type_: type[T], state: Mapping[str, Any]) -> T:
    """Build a dataclass of known field types from plain data."""
    hints = get_type_hints(type_)
    return type_(**{name: _field(hints[name], value) for name, value in state.items()})


def _field(hint: Any, value: Any) -> Any:
    if isinstance(hint, type) and is_dataclass(hint):
        return value if isinstance(value, hint) else _built(hint, value)
    inner = get_args(hint)
    if value is not None and inner and is_dataclass(inner[0]) and inner[-1] is NoneType:
        return _field(inner[0], value)
    if isinstance(value, list) and inner:
        return tuple(_field(inner[0], item) for item in value)
    return restored(value)
