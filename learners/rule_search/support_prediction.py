"""Predicted support of each template that was not asked about yet, from the releases so far.

A child's support is predicted as its parent's estimate, times how frequent its last symbol was
below other parents, times how the parent's children did against that. A complete structure below it
takes at least one more symbol for each open part, and so has at most the support of the most
frequent atom of it, each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from privfed.learners.rule_search.estimate import SupportEstimate
from privfed.learners.rule_search.settings import DEFAULT, SearchSettings
from privfed.learners.stl.grammar import Grammar, Symbols


@dataclass(eq=False)
class Subtree:
    """A template in the tree, with what releases said about it."""

    template: Symbols  #: its symbols
    parent: Subtree | None  #: what it continues; None for the root
    open: int  #: open parts; zero for a complete structure
    predicted: float = 1.0  #: Predicted fraction of holders, at the time of asking
    estimate: float = 0.0  #: over all releases about it, by inverse variance
    deviation: float = math.inf
    epsilon: Fraction = Fraction(0)  #: The greatest epsilon of a release about it
    #: Children that were not asked about yet: their last symbols, and their open parts.
    untried: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    children: np.ndarray | None = None  #: Its children's relative supports: rows operators, atoms

    def take(self, index: int) -> Subtree:
        """One of the untried children, which is untried no longer."""
        symbol, still_open = (int(value) for value in self.untried[:, index])
        self.untried = np.delete(self.untried, index, axis=1)
        return Subtree((*self.template, symbol), self, still_open)

    def add(self, counts: SupportEstimate, epsilon: Fraction) -> None:
        """Combine a release with those before; their noise is independent."""
        before = SupportEstimate(np.array([self.estimate]), self.deviation, counts.people)
        both = before.combined(counts) if self.epsilon else counts
        self.estimate, self.deviation = float(both.estimate[0]), both.deviation
        self.epsilon = epsilon


class SupportPrediction:
    """Predicts the supports of templates among so many people, and orders templates by them."""

    def __init__(self, grammar: Grammar, people: int, settings: SearchSettings = DEFAULT) -> None:
        self._atoms, self._people, self._settings = grammar.atoms, people, settings
        operators = np.arange(grammar.size + 1) > grammar.atoms
        prior, weight = np.where(operators, settings.operator, settings.atom), settings.prior_weight
        #: Weighted sums of the relative supports of each symbol, and of their weights.
        self._seen = np.stack([weight * prior, np.full(len(prior), weight)])
        self._completion = settings.completion

    def learn(self, child: Subtree) -> None:
        """Take up the first release about a child; noisy ones weigh little."""
        parent, symbol, half = child.parent, child.template[-1], self._settings.half_std
        assert parent is not None
        relative = np.array([child.estimate, child.deviation]) / max(parent.estimate, 1.0)
        weight = half**2 / (half**2 + relative[1] ** 2)
        self._seen[:, symbol] += weight * relative[0], weight
        row = self._children(parent)[int(symbol <= self._atoms)]
        row += weight * relative[0], weight * float(self._symbol(symbol))
        atoms = self._seen[:, 1 : self._atoms + 1]
        tried = atoms[:, atoms[1] > 2 * self._settings.prior_weight]
        best = (tried[0] / tried[1]).max(initial=0.0)
        self._completion = float(np.clip(best or self._settings.completion, 0.001, 1.0))

    def _children(self, parent: Subtree) -> np.ndarray:
        if parent.children is None:
            parent.children = np.full((2, 2), self._settings.parent_weight)
        return parent.children

    def _symbol(self, symbol: int | np.ndarray) -> np.ndarray:
        seen, weight = self._seen[:, symbol]
        return np.asarray(np.clip(seen / weight, 0.0, 1.0))

    def shares(self, parent: Subtree) -> np.ndarray:
        """Predicted fractions of the individuals that hold the untried children."""
        symbols = parent.untried[0]
        seen, expected = self._children(parent)[(symbols <= self._atoms).astype(int)].T
        relative = self._symbol(symbols) * np.maximum(0.02, seen) / expected
        return np.asarray(np.minimum(relative, 1.0) * parent.estimate / self._people)

    def scores(self, parent: Subtree) -> np.ndarray:
        """The untried children's scores; see :meth:`score`."""
        return self._scored(self.shares(parent), parent.untried[1], len(parent.template) + 1)

    def score(self, child: Subtree) -> float:
        """Predicted support of the most frequent structure below it; longer templates break ties."""
        return float(self._scored(np.array(child.predicted), child.open, len(child.template)))

    def _scored(self, share: np.ndarray, still_open: np.ndarray | int, length: int) -> np.ndarray:
        return np.asarray(share * self._completion**still_open * (1 + 0.001 * length))
