"""Rule search over the tree of templates, one query at a time, by UCT.

DP-RuL Algorithm 1: select by UCT (equation 1), expand one child, query it by randomized response,
back up the estimate. Epsilon per query is an equal part of the budget, or the smallest that bounds
the probability of wrongly ignoring a subtree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.learners.rule_search.asking import CohortSession, FoundRule
from privfed.learners.rule_search.estimate import SupportEstimate
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon
from privfed.learners.rule_search.queries import CohortSample
from privfed.learners.rule_search.settings import DEFAULT
from privfed.learners.stl.grammar import Grammar, Symbols


@dataclass(eq=False)
class SearchNode:
    """A template in the tree, with the releases about it."""

    template: Symbols
    parent: SearchNode | None = None
    untried: list[Symbols] = field(default_factory=list)
    children: list[SearchNode] = field(default_factory=list)  #: Children that are not yet explored
    visits: int = 0
    total: float = 0.0
    estimate: float = 0.0
    std: float = 0.0

    @property
    def mean(self) -> float:
        """Mean of the estimates backed up to it (the list R of DP-RuL Section 3.5)."""
        return self.total / self.visits if self.visits else 0.0

    @property
    def unexplored(self) -> bool:
        """Whether anything below it is unexplored."""
        return bool(self.untried or self.children)

    def lower(self) -> float:
        """Lower confidence bound (97.5 %) on its holders."""
        return max(0.0, self.estimate - 1.96 * self.std)

    def back(self, estimate: float) -> None:
        """Back up an estimate to the root."""
        node: SearchNode | None = self
        while node is not None:
            node.visits += 1
            node.total += estimate
            node = node.parent


class Allocation(ABC):
    """Chooses each query's epsilon, from public values and earlier releases only."""

    adaptive: ClassVar[bool] = False  #: Whether earlier releases determine later epsilons

    @abstractmethod
    def question(self, people: int, parent: SearchNode) -> tuple[Fraction, float]:
        """Return epsilon, and the cut below which the child is not explored."""

    def valid(self, people: int, cut: float) -> float:
        """Return the minimum estimate of a listed complete structure."""
        return cut

    def sharpen(self, people: int) -> bool:
        """Increase later queries' epsilon; return False if it is at its maximum."""
        return False


@dataclass
class Equal(Allocation):
    """The same epsilon for a fixed number of queries."""

    total: Fraction  #: the whole budget
    questions: int  #: Q
    threshold: float  #: nu

    def question(self, people: int, parent: SearchNode) -> tuple[Fraction, float]:
        """Return a Q-th of the budget, and nu N."""
        return self.share, self.threshold * people

    @property
    def share(self) -> Fraction:
        """Epsilon of one query, rounded down to 1e-9 if there are several."""
        if self.questions == 1:
            return self.total
        return Fraction(math.floor(self.total / self.questions * 10**9), 10**9)


class Adaptive(Allocation):
    """The smallest epsilon of each query, from the parent's estimate."""

    adaptive: ClassVar[bool] = True

    def __init__(self, exploration: Exploration) -> None:
        self.exploration, self._share = exploration, exploration.share

    def question(self, people: int, parent: SearchNode) -> tuple[Fraction, float]:
        """See :meth:`Exploration.question`; all individuals with rules are holders of the root."""
        holders = parent.lower() if parent.parent is not None else float(people)
        question = self.exploration.question(people, self._share * holders)
        return least_epsilon(question), question.cut

    def valid(self, people: int, cut: float) -> float:
        """Return at least nu N, and what the query distinguishes from noise."""
        return max(cut, self.exploration.threshold * people)

    def sharpen(self, people: int) -> bool:
        """Reduce the share to a quarter, then use the finest query, then halve the margin each time."""
        if self._share:
            self._share = self._share / 4 if self._share > 0.001 else 0.0
            return True
        finest = self.exploration.finest(people)
        self.exploration = replace(self.exploration, margin=self.exploration.margin / 2)
        return self.exploration.finest(people) != finest


class TreeSearch:
    """One run of the published protocol, until the tree is explored.

    The remaining budget is then spent on subtrees with fewer holders, down to nu N, and on complete
    structures of uncertain validity; estimates of one template are combined. ``constant`` is C of
    the UCT score (equation 1); the public seed orders the children tried, and, plus one, the
    individuals, of whom ``part`` new ones are queried each time (None: everybody); ``total`` is the
    budget of all queries (None: the gates decide).
    """

    def __init__(
        self,
        session: CohortSession,
        allocation: Allocation,
        exploration_weight: float = math.sqrt(2),
        seed: int = 0,
        part: int | None = None,
        total: Fraction | None = None,
    ) -> None:
        self._remaining = total
        self._session, self._allocation, self._weight = session, allocation, exploration_weight
        self._rng = np.random.default_rng(seed)
        self._part, self._fresh, self._seed = part, 0, seed + 1
        self._size = part or session.people
        #: All releases about each template, and the largest epsilon of these.
        self._released: dict[Symbols, tuple[SupportEstimate, Fraction]] = {}
        self._ignored: list[SearchNode] = []
        self._supports: dict[int, tuple[float, int]] = {}  #: By symbol: sum and number of supports
        self.root = SearchNode(())
        self.root.untried = self._shuffled(())
        self._complete: dict[Symbols, None] = {}
        self._max_queries: int | None = None

    def run(self, max_queries: int | None = None) -> list[FoundRule]:
        """Search until the budget, the individuals, the tree, or ``max_queries`` queries are used up."""
        self._max_queries = max_queries
        try:
            while (node := self._select()) is not None or self._resume():
                if node is not None:
                    self._expand(node)
        except NobodyAnswered:
            pass
        results = ((template, self._released[template][0]) for template in self._complete)
        return [
            FoundRule.of_count(template, float(counts.estimate[0]), counts.std, self._size)
            for template, counts in results
        ]

    # --- the four phases -----------------------------------------------------------------------

    def _select(self) -> SearchNode | None:
        """Descend by UCT to a node with an untried child; None if the tree is explored."""
        node: SearchNode | None = self.root if self.root.unexplored else None
        while node is not None and not node.untried:
            parent = node
            node = max(
                (child for child in parent.children if child.unexplored),
                key=lambda child: self._score(parent, child),
            )
        return node

    def _score(self, parent: SearchNode, child: SearchNode) -> float:
        """Return c_hat / N + C sqrt(ln N_parent / n) (DP-RuL equation 1)."""
        explore = math.sqrt(math.log(max(parent.visits, 1)) / max(child.visits, 1))
        return child.mean / self._size + self._weight * explore

    def _expand(self, parent: SearchNode) -> None:
        epsilon, cut = self._allocation.question(self._size, parent)
        template = self._next(parent)
        counts = self._ask(template, epsilon)
        parent.untried.remove(template)
        child = SearchNode(template, parent)
        child.estimate, child.std = float(counts.estimate[0]), counts.std
        child.back(child.estimate)
        total, times = self._supports.get(template[-1], (0.0, 0))
        relative = child.estimate / max(parent.estimate, 1.0) if parent.parent else 0.0
        self._supports[template[-1]] = total + relative, times + 1
        complete = not self._session.grammar.open(template)
        if child.estimate >= (self._allocation.valid(self._size, cut) if complete else cut):
            self._explore(parent, child)
        else:
            self._ignored.append(child)
        node = parent
        while node.parent is not None and not node.unexplored:
            node.parent.children.remove(node)
            node = node.parent

    def _ask(self, template: Symbols, epsilon: Fraction) -> SupportEstimate:
        """Query, and combine with earlier releases about the same template."""
        if self._max_queries is not None and len(self._session.steps) >= self._max_queries:
            raise NobodyAnswered("as many queries as were wanted have been asked")
        if self._remaining is not None:
            if epsilon > self._remaining:
                raise NobodyAnswered("the budget is used up")
            self._remaining -= epsilon
        counts = self._session.bits([template], epsilon, self._sample())
        if template in self._released:
            counts = counts.combined(self._released[template][0])
        self._released[template] = counts, epsilon
        return counts

    def _next(self, parent: SearchNode) -> Symbols:
        """Return the next child, in the drawn order, or by its symbol's support elsewhere."""
        if not self._allocation.adaptive:
            return parent.untried[-1]

        def relative_support(child: Symbols) -> float:
            total, times = self._supports.get(child[-1], (0.0, 0))
            return (total + 0.01) / (times + 1)

        return max(parent.untried, key=relative_support)

    def _explore(self, parent: SearchNode, child: SearchNode) -> None:
        if self._session.grammar.open(child.template):
            child.untried = self._shuffled(child.template)
            if child.untried:
                parent.children.append(child)
        else:
            self._complete[child.template] = None

    def _sample(self) -> CohortSample | None:
        if self._part is None:
            return None
        first, self._fresh = self._fresh, self._fresh + self._part
        if self._fresh > self._session.people:
            raise NobodyAnswered("every individual has been asked")
        return CohortSample(self._session.people, first, self._fresh, self._seed)

    def _resume(self) -> bool:
        """Settle uncertain structures, then retry ignored subtrees with larger epsilon."""
        if self._allocation.adaptive:
            self._settle()
        while self._ignored and self._allocation.sharpen(self._size):
            ignored, self._ignored = self._ignored, []
            for child in ignored:
                node = child.parent
                assert node is not None
                epsilon, _ = self._allocation.question(self._size, node)
                if epsilon <= self._released[child.template][1]:
                    self._ignored.append(child)
                    continue
                node.untried.append(child.template)
                while node.parent is not None:
                    if node not in node.parent.children:
                        node.parent.children.append(node)
                    node = node.parent
            if len(self._ignored) < len(ignored):
                return True
        return False

    def _settle(self) -> None:
        """Query complete structures at doubled precision until their validity is clear."""
        nu, settings = self._allocation.valid(self._size, 0.0), DEFAULT
        for template in list(self._complete):
            counts, epsilon = self._released[template]
            while abs(counts.estimate[0] - nu) < settings.certain * counts.std:
                epsilon *= 2
                if epsilon > settings.max_epsilon:
                    break
                counts = self._ask(template, epsilon)
            if counts.estimate[0] < nu:
                del self._complete[template]

    def _shuffled(self, template: Symbols) -> list[Symbols]:
        following = self._session.grammar.continuations(template)
        return [following[index] for index in self._rng.permutation(len(following))]


def symbols_of(grammar: Grammar) -> int:
    """Return the number of queries for the root's children, the minimum of any tree search."""
    return len(grammar.continuations(()))
