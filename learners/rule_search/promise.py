"""Which template to ask about next: what the releases so far let one expect of it.

A child's share of the individuals is predicted as its parent's estimated share, times how frequent
its last symbol was below other parents, times how the parent's children did against that. A
complete structure below it takes at least one more symbol for each open part, and so has at most
the share of the most frequent atom of it, each time. All of it is public: estimates are releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from privfed.learners.rule_search.estimate import Counts
from privfed.learners.stl.grammar import Grammar, Symbols

#: Relative shares that are expected of an operator, and of an atom, before anything is released.
OPERATOR, ATOM = 1.0, 0.1
#: The same for one more symbol on the way to a complete structure: operators are tried first.
COMPLETION = 0.15
#: Weight of these expectations, in exact observations.
PRIOR = 1.0
#: The same for what is expected of one parent's children.
PARENT = 0.3
#: Standard deviation of a relative share at which an observation weighs half.
HALF = 0.1


@dataclass(eq=False)
class Subtree:
    """A template in the tree, with what releases said about it.

    Args:
        template: its symbols.
        parent: what it continues; none for the root.
        open: open parts; zero for a complete structure.
    """

    template: Symbols
    parent: Subtree | None
    open: int
    #: Predicted share of the individuals, at the time of asking.
    predicted: float = 1.0
    #: Estimated holders over all releases about it, by inverse variance, and its deviation.
    estimate: float = 0.0
    deviation: float = math.inf
    #: The greatest epsilon of a release about it.
    epsilon: Fraction = Fraction(0)
    #: Children that were not asked about yet: their last symbols, and their open parts.
    untried: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    #: Relative shares seen and expected of its children: rows operators and atoms.
    children: np.ndarray = field(default_factory=lambda: np.full((2, 2), PARENT))

    def take(self, place: int) -> Subtree:
        """One of the untried children, which is untried no longer."""
        symbol, left_open = (int(value) for value in self.untried[:, place])
        self.untried = np.delete(self.untried, place, axis=1)
        return Subtree((*self.template, symbol), self, left_open)

    def add(self, counts: Counts, epsilon: Fraction) -> None:
        """Combine a release with those before; their noise is independent."""
        own = Counts(np.array([self.estimate]), self.deviation, counts.people)
        both = own.combined(counts) if self.epsilon else counts
        self.estimate, self.deviation = float(both.estimate[0]), both.deviation
        self.epsilon = epsilon


class Promise:
    """What is expected of each untried template.

    Args:
        grammar: the public rule grammar.
        people: N.
    """

    def __init__(self, grammar: Grammar, people: int) -> None:
        self._atoms, self._people = grammar.atoms, people
        operators = np.arange(grammar.size + 1) > grammar.atoms
        prior = np.where(operators, OPERATOR, ATOM)
        #: Weighted sums of the relative shares of each symbol, and of their weights.
        self._seen = np.stack([PRIOR * prior, np.full(len(prior), PRIOR)])
        self._completion = COMPLETION

    def learn(self, child: Subtree) -> None:
        """Take up the first release about a child; noisy ones weigh little."""
        parent, symbol = child.parent, child.template[-1]
        assert parent is not None
        relative = np.array([child.estimate, child.deviation]) / max(parent.estimate, 1.0)
        weight = HALF**2 / (HALF**2 + relative[1] ** 2)
        self._seen[:, symbol] += weight * relative[0], weight
        row = parent.children[int(symbol <= self._atoms)]
        row += weight * relative[0], weight * float(self._symbol(symbol))
        atoms = self._seen[:, 1 : self._atoms + 1]
        tried = atoms[0][atoms[1] > 2 * PRIOR] / atoms[1][atoms[1] > 2 * PRIOR]
        self._completion = float(np.clip(tried.max(initial=0.0) or COMPLETION, 0.001, 1.0))

    def _symbol(self, symbol: int | np.ndarray) -> np.ndarray:
        seen, weight = self._seen[:, symbol]
        return np.asarray(np.clip(seen / weight, 0.0, 1.0))

    def shares(self, parent: Subtree) -> np.ndarray:
        """Predicted shares of the individuals that hold the untried children."""
        symbols = parent.untried[0]
        seen, expected = parent.children[(symbols <= self._atoms).astype(int)].T
        relative = self._symbol(symbols) * np.maximum(0.02, seen) / expected
        return np.asarray(np.minimum(relative, 1.0) * parent.estimate / self._people)

    def scores(self, parent: Subtree) -> np.ndarray:
        """The untried children's scores; see :meth:`score`."""
        return self._scored(self.shares(parent), parent.untried[1], len(parent.template) + 1)

    def score(self, child: Subtree) -> float:
        """Predicted share of the most frequent structure below it; longer templates break ties."""
        return float(self._scored(np.array(child.predicted), child.open, len(child.template)))

    def _scored(self, share: np.ndarray, left_open: np.ndarray | int, length: int) -> np.ndarray:
        return np.asarray(share * self._completion**left_open * (1 + 0.001 * length))
