"""A fitted tree or forest as validated arrays: what its file discloses."""

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
    #: distinct training records of each node, by the file; shape (nodes,)
    counts: np.ndarray
    width: int  #: number of features
    features: tuple[str, ...] = ()  #: their names, if it was fitted to a table with names
    labels: tuple[str, ...] = ()  #: of the classes, none for a regressor

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> FittedTrees:
        """Build from scikit-learn's arrays, trees end to end (InputError: they form no trees).

        Its single-precision ``x <= threshold`` is ``x <`` the next double after the threshold.
        """
        try:
            feature = np.where(arrays["feature"] >= 0, arrays["feature"], -1).astype(np.int64)
            roots, inner = arrays["roots"].astype(np.int64), feature >= 0
            offset = roots[np.searchsorted(roots, np.arange(len(feature)), side="right") - 1]
            links = np.column_stack([arrays["children_left"], arrays["children_right"]])
            children = np.where(inner[:, None], links + offset[:, None], -1).astype(np.int64)
            threshold = np.nextafter(arrays["threshold"].astype(float), np.inf)
            forest = Forest(
                feature, children, np.where(inner, threshold, np.inf)[:, None] + 0.0, roots=roots
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
        model_type = FittedClassifier if about["classes"] else FittedRegressor
        return model_type(
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
        """Class codes, as in the outcomes; float, shape (classes,)."""
        return np.arange(len(self.labels), dtype=float)

    def leaves(self, X: np.ndarray) -> np.ndarray:
        """The leaf of each tree that each record reaches; int64, shape (trees, records)."""
        leaves = np.empty((len(self.forest), len(X)), np.int64)
        for rows, trees, nodes in self.forest.blocks(X.astype(np.float32).astype(float)):
            leaves[trees, rows] = nodes
        return leaves

    def mean(self, X: np.ndarray) -> np.ndarray:
        """The trees' mean answer, shape (records, classes or 1)."""
        total = np.zeros((len(X), self.value.shape[1]))
        for rows, _, nodes in self.forest.blocks(X.astype(np.float32).astype(float)):
            total[rows] += self.value[nodes].sum(axis=0)
        return total / len(self.forest)


class FittedClassifier(FittedTrees):
    """Trees whose leaves hold class frequencies."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Class probabilities, shape (records, classes)."""
        return self.mean(X)


class FittedRegressor(FittedTrees):
    """Trees whose leaves hold a mean."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predictions, shape (records,)."""
        return self.mean(X)[:, 0]
