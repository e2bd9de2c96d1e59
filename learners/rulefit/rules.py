"""Rules in canonical form, with one interval per covariate, so that logically equal rules are equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privfed.errors import InputError, QueryError
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.questions.tree import MOST_NAMES, categories_text, interval_text
from privfed.tables.schema import Column, Schema


@dataclass(frozen=True, order=True)
class Condition:
    """``lower <= feature < upper``; an end that is None is infinite."""

    feature: str
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        for end in (self.lower, self.upper):
            if end is not None and not np.isfinite(end):
                raise InputError(f"a condition on {self.feature!r} needs finite ends, or None")

    def __and__(self, other: Condition) -> Condition:
        """Intersect two conditions on the same feature."""
        lowers = [end for end in (self.lower, other.lower) if end is not None]
        uppers = [end for end in (self.upper, other.upper) if end is not None]
        return Condition(self.feature, max(lowers, default=None), min(uppers, default=None))

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends, infinite where there is none."""
        return (
            -np.inf if self.lower is None else self.lower,
            np.inf if self.upper is None else self.upper,
        )

    @property
    def empty(self) -> bool:
        """Whether nothing satisfies it."""
        return self.lower is not None and self.upper is not None and self.lower >= self.upper

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Return which values satisfy it."""
        above = np.ones(values.shape, bool) if self.lower is None else values >= self.lower
        return above if self.upper is None else above & (values < self.upper)

    def text(self, column: Column | None = None, most: int = MOST_NAMES) -> str:
        """Format the condition: ``age < 57.2``, ``3 <= GCS <= 7``, ``sex = female``; of more categories than ``most``, some."""
        if column is not None and column.kind == "category":
            codes = np.arange(len(column.categories), dtype=float)
            return categories_text(column, self.holds(codes), most)
        return interval_text(self.feature, *self.ends, column)


@dataclass(frozen=True)
class Rule:
    """At most one condition for each feature, sorted by feature; ``==`` is logical equality."""

    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, *conditions: Condition) -> Rule:
        """Build from conditions in canonical form (InputError: none, or unsatisfiable)."""
        merged: dict[str, Condition] = {}
        for condition in conditions:
            known = merged.get(condition.feature)
            merged[condition.feature] = condition if known is None else known & condition
        kept = [c for c in merged.values() if c.lower is not None or c.upper is not None]
        if not kept:
            raise InputError("a rule needs at least one condition with an end")
        for condition in kept:
            if condition.empty:
                raise InputError(f"nothing satisfies both conditions on {condition.feature!r}")
        return cls(tuple(sorted(kept, key=lambda c: c.feature)))

    @property
    def features(self) -> tuple[str, ...]:
        """The covariates of its conditions."""
        return tuple(condition.feature for condition in self.conditions)

    def holds(self, X: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Return which rows satisfy it; ``names`` are the columns of ``X``."""
        masks = [c.holds(X[:, names.index(c.feature)]) for c in self.conditions]
        return np.asarray(np.logical_and.reduce(masks))

    def implies(self, other: Rule) -> bool:
        """Whether every record that satisfies this rule satisfies the other."""
        mine = {condition.feature: condition for condition in self.conditions}
        return all(
            c.feature in mine and (mine[c.feature] & c) == mine[c.feature] for c in other.conditions
        )

    def text(self, schema: Schema | None = None, most: int = MOST_NAMES) -> str:
        """Format the rule: ``GCS >= 5 and age < 57.2``; see :meth:`Condition.text`."""
        columns = {} if schema is None else {column.name: column for column in schema.features}
        return " and ".join(c.text(columns.get(c.feature), most) for c in self.conditions)

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the conditions as plain data."""
        return [{"feature": c.feature, "lower": c.lower, "upper": c.upper} for c in self.conditions]


def rule_of(box: np.ndarray, cuts: Sequence[Sequence[float]], names: Sequence[str]) -> Rule:
    """Convert intervals of cut-off codes, shape (features, 2), to a rule."""
    conditions = []
    for name, ends, (low, high) in zip(names, cuts, box.tolist(), strict=True):
        if low > 0 or high <= len(ends):
            lower = ends[low - 1] if low > 0 else None
            upper = ends[high - 1] if high <= len(ends) else None
            conditions.append(Condition(name, lower, upper))
    return Rule.of(*conditions)


def union(
    groups: Iterable[tuple[np.ndarray, np.ndarray]], features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of clients' rules; equal boxes are logically equal rules (paper, end of Section 2.2.2).

    Groups are boxes (rules, features, 2) and how often each was grown (rules,), as is the result, without duplicates,
    most frequent first, ties in canonical order.
    """
    nothing = np.zeros((0, features, 2), np.uint8), np.zeros(0, np.int64)
    boxes, mentions = zip(nothing, *groups, strict=True)
    flat = np.concatenate([np.asarray(box, np.uint8).reshape(-1, 2 * features) for box in boxes])
    if not len(flat):
        return nothing
    unique, inverse = np.unique(flat, axis=0, return_inverse=True)
    counts = np.bincount(inverse.ravel(), weights=np.concatenate(mentions)).astype(np.int64)
    order = np.argsort(-counts, kind="stable")
    return unique[order].reshape(-1, features, 2), counts[order]


def intervals_of(boxes: np.ndarray, sizes: np.ndarray) -> list[list[tuple[int, int, int]]]:
    """Return each rule's covariates with first and end codes; unrestricted covariates are left out."""
    rules, features = np.nonzero((boxes[..., 0] > 0) | (boxes[..., 1] < sizes))
    intervals: list[list[tuple[int, int, int]]] = [[] for _ in boxes]
    named = (rules, features, boxes[rules, features, 0], boxes[rules, features, 1])
    for rule, feature, low, high in zip(*(array.tolist() for array in named), strict=True):
        intervals[rule].append((feature, low, high))
    return intervals


@dataclass(frozen=True, eq=False)
class Terms:
    """The base functions of a model: cut-offs, rules as boxes of codes, and the linear terms."""

    cutoffs: Cutoffs  #: shared values of the covariates
    boxes: np.ndarray  #: ``a <= code_j < b`` by rule and feature; uint8, (rules, features, 2)
    linear: tuple[int, ...]  #: covariates with a linear term

    def check(self, schema: Schema) -> None:
        """Raise QueryError for boxes that are no intervals of codes, or unknown covariates."""
        self.cutoffs.check(schema)
        features, boxes = len(schema.features), self.boxes
        if boxes.ndim != 3 or boxes.shape[1:] != (features, 2) or boxes.dtype != np.uint8:
            raise QueryError("malformed", "rules are pairs of codes for every covariate")
        if len(boxes) and not (boxes[..., 0] < boxes[..., 1]).all():
            raise QueryError("malformed", "a rule's interval is empty")
        inside = all(0 <= feature < features for feature in self.linear)
        if not inside or list(self.linear) != sorted(set(self.linear)):
            raise QueryError("malformed", "linear terms name covariates, rising")

    def __len__(self) -> int:
        return len(self.boxes) + len(self.linear)

    @cached_property
    def conditions(self) -> int:
        """The number of rules and of distinct intervals in them, which a record is compared with."""
        return len(self.boxes) + len({interval for used in self._used for interval in used})

    @cached_property
    def _used(self) -> list[list[tuple[int, int, int]]]:
        return intervals_of(self.boxes, self.cutoffs.sizes)

    def rules(self, X: np.ndarray) -> np.ndarray:
        """Return which records satisfy which rules; bool, shape (records, rules), column-major."""
        codes = self.cutoffs.codes(X)
        cache: dict[tuple[int, int, int], np.ndarray] = {}
        members = np.ones((len(X), len(self.boxes)), dtype=bool, order="F")
        for k, used in enumerate(self._used):
            for j, a, b in used:
                if (j, a, b) not in cache:
                    cache[j, a, b] = (codes[:, j] >= a) & (codes[:, j] < b)
                members[:, k] &= cache[j, a, b]
        return members

    def design(self, X: np.ndarray) -> np.ndarray:
        """Return the design matrix: intercept, rules, linear terms; shape (records, 1 + terms)."""
        rules = len(self.boxes)
        matrix = np.ones((len(X), 1 + len(self)), order="F")
        matrix[:, 1 : 1 + rules] = self.rules(X)
        matrix[:, 1 + rules :] = self.cutoffs.linear(X)[:, list(self.linear)]
        return matrix
