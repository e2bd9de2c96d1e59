"""A fitted tree or forest as plain arrays, checked once: what whoever holds its file can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privfed.errors import InputError, QueryError
from privfed.questions.tree import Forest


@dataclass(frozen=True, eq=False)
class FittedTrees:
    """Trees whose answers are averaged, as scikit-learn's forests are; one tree is a forest of one."""

    kind: str  #: the class, such as ``"RandomForestClassifier"``
    parameters: Mapping[str, Any]  #: of its constructor
    forest: Forest  #: splits of all trees
    value: np.ndarray  #: each node's class frequencies, or mean; float, shape (nodes, classes or 1)
    #: distinct training records of each node, as the file tells them; shape (nodes,)
    counts: np.ndarray
    width: int  #: number of features
    features: tuple[str, ...] = ()  #: their names, if it was fitted to a table with names
    labels: tuple[str, ...] = ()  #: of the classes, none for a regressor

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> FittedTrees:
        """Build from scikit-learn's arrays, trees end to end (InputError: they form no trees).

        Its ``x <= threshold`` of single precision is ``x < cut`` for the next double after the threshold.
        """
        try:
            feature = np.where(arrays["feature"] >= 0, arrays["feature"], -1).astype(np.int64)
            roots, inner = arrays["roots"].astype(np.int64), feature >= 0
            start = roots[np.searchsorted(roots, np.arange(len(feature)), side="right") - 1]
            links = np.column_stack([arrays["children_left"], arrays["children_right"]])
            children = np.where(inner[:, None], links + start[:, None], -1).astype(np.int64)
            cut = np.nextafter(arrays["threshold"].astype(float), np.inf)
            forest = Forest(
                feature, children, np.where(inner, cut, np.inf)[:, None] + 0.0, roots=roots
            )
            value = arrays["value"].astype(float)
            counts = arrays["n_node_samples"].astype(np.int64)
            if about["classes"]:
                value = value / value.sum(axis=1, keepdims=True)
            sound = value.shape == (len(feature), max(len(about["classes"]), 1))
            sound &= counts.shape == feature.shape and bool(np.isfinite(value).all())
            sound &= bool((feature < about["width"]).all())
        except (QueryError, KeyError, IndexError, ValueError, TypeError):
            sound = False
        if not sound:
            raise InputError("its arrays form no trees")
        names = tuple(about["features"]), tuple(about["classes"])
        made = FittedClassifier if about["classes"] else FittedRegressor
        return made(
            about["kind"], about["parameters"], forest, value, counts, about["width"], *names
        )

    @property
    def bootstrapped(self) -> bool:
        """Whether each tree saw its own random draw of the training records."""
        return bool(self.parameters.get("bootstrap", False))

    @property
    def size(self) -> int:
        """Free parameters: two for each split, and for each leaf its mean, or all frequencies but one."""
        leaves = len(self.forest.leaves)
        per_leaf = max(int(self.value.shape[1]) - 1, 1)
        return 2 * (len(self.counts) - leaves) + per_leaf * leaves

    @cached_property
    def classes_(self) -> np.ndarray:
        """Codes of the classes, by which outcomes are given; float, shape (classes,)."""
        return np.arange(len(self.labels), dtype=float)

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """The leaf of each tree that each record reaches; int64, shape (trees, records)."""
        reached = np.empty((len(self.forest), len(x)), np.int64)
        for rows, trees, found in self.forest.blocks(x.astype(np.float32).astype(float)):
            reached[trees, rows] = found
        return reached

    def mean(self, x: np.ndarray) -> np.ndarray:
        """The trees' mean answer, shape (records, classes or 1)."""
        total = np.zeros((len(x), self.value.shape[1]))
        for rows, _, found in self.forest.blocks(x.astype(np.float32).astype(float)):
            total[rows] += self.value[found].sum(axis=0)
        return total / len(self.forest)


class FittedClassifier(FittedTrees):
    """Trees that tell class frequencies."""

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities, shape (records, classes)."""
        return self.mean(x)


class FittedRegressor(FittedTrees):
    """Trees that tell a mean."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Predictions, shape (records,)."""
        return self.mean(x)[:, 0]
