"""Rule search over the tree of templates, one query at a time, by UCT.

DP-RuL Algorithm 1: select by UCT (equation 1), expand one child, ask about it by randomized
response, pass the estimate back up. Epsilon per query is an equal part of the budget, or the least
that bounds the probability of wrongly ignoring a subtree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.learners.rule_search.asking import CohortSession, FoundRule
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon
from privfed.learners.rule_search.queries import CohortSample
from privfed.learners.stl.grammar import Grammar, Symbols


@dataclass(eq=False)
class SearchNode:
    """A template in the tree, with what releases said about it."""

    template: Symbols
    parent: SearchNode | None = None
    untried: list[Symbols] = field(default_factory=list)
    #: Children that are not yet explored.
    children: list[SearchNode] = field(default_factory=list)
    visits: int = 0
    total: float = 0.0
    estimate: float = 0.0
    deviation: float = 0.0

    @property
    def mean(self) -> float:
        """Mean of the estimates passed back to it (the list R of DP-RuL Section 3.5)."""
        return self.total / self.visits if self.visits else 0.0

    @property
    def unexplored(self) -> bool:
        """Whether anything below it is left to ask about."""
        return bool(self.untried or self.children)

    def lower(self) -> float:
        """A lower confidence bound (97.5 %) on its holders."""
        return max(0.0, self.estimate - 1.96 * self.deviation)

    def back(self, estimate: float) -> None:
        """Pass an estimate up to the root."""
        node: SearchNode | None = self
        while node is not None:
            node.visits += 1
            node.total += estimate
            node = node.parent


class Allocation(ABC):
    """Says, from public values and earlier releases alone, how sharply to ask about a child."""

    #: Whether to try first the symbols that were frequent elsewhere in the tree.
    ordered: ClassVar[bool] = False

    @abstractmethod
    def question(self, people: int, parent: SearchNode) -> tuple[Fraction, float]:
        """Give epsilon, and the cut below which the child is not explored."""

    def final(self, people: int, cut: float) -> bool:
        """Whether a child below this cut is ignored for good."""
        return True

    def valid(self, people: int, cut: float) -> float:
        """What a complete structure's estimate must reach to be listed."""
        return cut

    def sharpen(self) -> bool:
        """Ask more sharply from now on; false if queries are as sharp as they get."""
        return False


@dataclass
class Equal(Allocation):
    """The same epsilon for a number of queries fixed beforehand.

    Args:
        total: the whole budget.
        questions: Q.
        threshold: nu.
    """

    total: Fraction
    questions: int
    threshold: float

    def question(self, people: int, parent: SearchNode) -> tuple[Fraction, float]:
        """A Q-th of the budget, and nu N."""
        return self.share, self.threshold * people

    @property
    def share(self) -> Fraction:
        """Epsilon of one query, rounded down to 1e-9 where there are several."""
        if self.questions == 1:
            return self.total
        return Fraction(math.floor(self.total / self.questions * 10**9), 10**9)


class Adaptive(Allocation):
    """The least epsilon of each query, by what is known about the parent.

    Args:
        exploration: when a subtree is worth exploring.
    """

    ordered: ClassVar[bool] = True

    def __init__(self, exploration: Exploration) -> None:
        self.exploration, self._share = exploration, exploration.share

    def question(self, people: int, parent: SearchNode) -> tuple[Fraction, float]:
        """See :meth:`Exploration.question`; the root is held by everybody who has rules."""
        holders = parent.lower() if parent.parent is not None else float(people)
        question = self.exploration.question(people, self._share * holders)
        return least_epsilon(question), question.cut

    def final(self, people: int, cut: float) -> bool:
        """Only the finest query ignores for good."""
        return cut <= self.exploration.finest(people).cut

    def valid(self, people: int, cut: float) -> float:
        """At least nu N, and what the query tells from noise."""
        return max(cut, self.exploration.threshold * people)

    def sharpen(self) -> bool:
        """Look for a quarter of the share; at the end for the finest."""
        if self._share == 0:
            return False
        self._share = self._share / 4 if self._share > 0.001 else 0.0
        return True


class TreeSearch:
    """One run of the published protocol.

    Args:
        asking: whom to ask.
        allocation: how sharply.
        constant: C of the UCT score (equation 1), sqrt 2 by convention; 0 explores nothing.
        seed: the order in which children are tried, and with one more that of the individuals from
            which fresh ones are taken; public.
        part: individuals per query, each query to fresh ones; None asks everybody.
        total: epsilon that all queries to everybody may spend; None leaves it to the gates.
    """

    def __init__(
        self,
        asking: CohortSession,
        allocation: Allocation,
        constant: float = math.sqrt(2),
        seed: int = 0,
        part: int | None = None,
        total: Fraction | None = None,
    ) -> None:
        self._remaining = total
        self._asking, self._allocation, self._constant = asking, allocation, constant
        self._rng = np.random.default_rng(seed)
        self._part, self._fresh, self._seed = part, 0, seed + 1
        self._size = part or asking.people
        self._later: list[SearchNode] = []
        #: By symbol, the sum of its relative supports and their number.
        self._seen: dict[int, tuple[float, int]] = {}
        self.root = SearchNode(())
        self.root.untried = self._shuffled(())
        self.found: list[FoundRule] = []

    def run(self, most: int | None = None) -> list[FoundRule]:
        """Search until the budget, the individuals, the tree, or ``most`` queries are used up."""
        asked = 0
        while most is None or asked < most:
            node = self._select()
            if node is None:
                if not self._resume():
                    break
                continue
            try:
                self._try(node)
            except NobodyAnswered:
                break
            asked += 1
        return self.found

    # --- the four phases -----------------------------------------------------------------------

    def _select(self) -> SearchNode | None:
        """Go down by UCT to a node with an untried child; None where the tree is explored."""
        node: SearchNode | None = self.root if self.root.unexplored else None
        while node is not None and not node.untried:
            parent = node
            node = max(
                (child for child in parent.children if child.unexplored),
                key=lambda child: self._score(parent, child),
            )
        return node

    def _score(self, parent: SearchNode, child: SearchNode) -> float:
        """DP-RuL equation 1: c_hat / N + C sqrt(ln N_parent / n)."""
        explore = math.sqrt(math.log(max(parent.visits, 1)) / max(child.visits, 1))
        return child.mean / self._size + self._constant * explore

    def _try(self, parent: SearchNode) -> None:
        """Expand a child, ask about it, and pass the estimate back."""
        epsilon, cut = self._allocation.question(self._size, parent)
        template = self._next(parent)
        self._spend(epsilon)
        counts = self._asking.bits([template], epsilon, self._whom())
        parent.untried.remove(template)
        child = SearchNode(template, parent)
        child.estimate, child.deviation = float(counts.estimate[0]), counts.deviation
        child.back(child.estimate)
        total, times = self._seen.get(template[-1], (0.0, 0))
        relative = child.estimate / max(parent.estimate, 1.0) if parent.parent else 0.0
        self._seen[template[-1]] = total + relative, times + 1
        complete = not self._asking.grammar.open(template)
        if child.estimate >= (self._allocation.valid(self._size, cut) if complete else cut):
            self._explore(parent, child)
        elif not self._allocation.final(self._size, cut):
            self._later.append(child)
        node = parent
        while node.parent is not None and not node.unexplored:
            node.parent.children.remove(node)
            node = node.parent

    def _spend(self, epsilon: Fraction) -> None:
        if self._remaining is None:
            return
        if epsilon > self._remaining:
            raise NobodyAnswered("the budget is used up")
        self._remaining -= epsilon

    def _next(self, parent: SearchNode) -> Symbols:
        """The next child: in the drawn order, or the one whose symbol did best elsewhere.

        That is the mean of its relative supports, drawn towards 1 %.
        """
        if not self._allocation.ordered:
            return parent.untried[-1]

        def relative_support(child: Symbols) -> float:
            total, times = self._seen.get(child[-1], (0.0, 0))
            return (total + 0.01) / (times + 1)

        return max(parent.untried, key=relative_support)

    def _explore(self, parent: SearchNode, child: SearchNode) -> None:
        if self._asking.grammar.open(child.template):
            child.untried = self._shuffled(child.template)
            if child.untried:
                parent.children.append(child)
        else:
            result = (child.template, child.estimate, child.deviation, self._size)
            self.found.append(FoundRule.of_count(*result))

    def _whom(self) -> CohortSample | None:
        """Everybody, or the next individuals of the public order."""
        if self._part is None:
            return None
        first, self._fresh = self._fresh, self._fresh + self._part
        if self._fresh > self._asking.people:
            raise NobodyAnswered("every individual has been asked")
        return CohortSample(self._asking.people, first, self._fresh, self._seed)

    def _resume(self) -> bool:
        """Take up what was put off, more sharply."""
        if not self._allocation.sharpen():
            return False
        for put_off in self._later:
            node = put_off.parent
            assert node is not None
            node.untried.append(put_off.template)
            while node.parent is not None:
                if node not in node.parent.children:
                    node.parent.children.append(node)
                node = node.parent
        self._later = []
        return True

    def _shuffled(self, template: Symbols) -> list[Symbols]:
        following = self._asking.grammar.continuations(template)
        return [following[index] for index in self._rng.permutation(len(following))]


def symbols_of(grammar: Grammar) -> int:
    """How many queries the root's children take: the least that any tree search asks."""
    return len(grammar.continuations(()))
