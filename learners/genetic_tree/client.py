"""A client's state between queries, rebuilt from records and secret if lost."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.population import Scoring, classes
from privfed.learners.genetic_tree.splits import Ranked
from privfed.learners.genetic_tree.trie import Trie
from privfed.questions.query import View
from privfed.tables.records import nearest_class

_KEY = "genetic_tree.client"


class Client:
    """One client's side of the genetic algorithm: its records in a secret order."""

    def __init__(self, view: View, classify: bool) -> None:
        records = view.table
        self.x = records.x
        self.classes = classes(view.schema) if classify else 0
        self.y = records.target
        if self.classes:
            self.y = nearest_class(records.target, 0, self.classes).astype(float)
        target = view.schema.target
        self._middle = float(np.mean(target.bounds)) if target and not self.classes else 0.0
        coins = view.coins("genetic_tree.order")
        self.order = np.argsort(coins, kind="stable")
        self._tries: dict[tuple[Scoring, int], Trie] = {}
        self._depth_scores: dict[tuple[int, range], np.ndarray] = {}

    @classmethod
    def of(cls, view: View, classify: bool) -> Client:
        """Return the client's state, from its cache if possible."""
        state = view.cache.get((_KEY, classify))
        if not isinstance(state, cls):
            state = view.cache[_KEY, classify] = cls(view, classify)
        return state

    @cached_property
    def table(self) -> Ranked:
        """The records as integers."""
        return Ranked.of(self.x, self.y, self.classes, self._middle)

    def roots(self, scoring: Scoring) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return, for each fit, the records for fitting and those for scoring."""
        rows = np.arange(len(self.y))
        if scoring.held == "folds" and len(self.y) >= 2:
            parts = local.folds(self.order, scoring.folds)
            return [(np.setdiff1d(rows, fold), fold) for fold in parts]
        if scoring.held == "share":
            size = round(scoring.train_share * len(self.y))
            return [(np.sort(self.order[:size]), np.sort(self.order[size:]))]
        return [(rows, rows)]

    def trie(self, scoring: Scoring, depth: int) -> Trie:
        """Return fitted candidates; only the last scoring is cached."""
        if (scoring, depth) not in self._tries:
            self._tries = {(scoring, depth): Trie(self.table, self.roots(scoring), depth)}
        return self._tries[scoring, depth]

    def depth_scores(self, folds: int, depths: range) -> np.ndarray:
        """Return cross-validated scores of its own trees, shape (folds, depths); only the last ones are cached."""
        if (folds, depths) not in self._depth_scores:
            parts = local.folds(self.order, folds)
            scores = local.depth_scores(self.x, self.y, self.classes, parts, depths)
            self._depth_scores = {(folds, depths): scores}
        return self._depth_scores[folds, depths]

    def local_depth(self, folds: int, depths: range) -> int:
        """Return the depth with the best score of its own trees."""
        return local.best_depth(self.depth_scores(folds, depths), depths)

    def held_out_predictions(self, scoring: Scoring, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Return held-out targets, by fit, and the predictions of the tree that it grows alone."""
        true, predicted = [np.empty(0)], [np.empty(0)]
        for fit, held_out in self.roots(scoring):
            true.append(self.y[held_out])
            predicted.append(np.zeros(len(held_out)))
            if len(fit) and len(held_out):
                nodes = local.cart(self.x[fit], self.y[fit], self.classes, depth)
                predicted[-1] = local.predictions(nodes, self.x[held_out])
        return np.concatenate(true), np.concatenate(predicted)
