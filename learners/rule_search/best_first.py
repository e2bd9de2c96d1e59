"""Rule search by an adaptive budget: best first, each question as sharp as it needs to be.

The published protocol (DP-RuL Sections 3.5 and 3.6; here :mod:`.tree_search`) asks about siblings in
an arbitrary order, and every question costs what telling 2 nu N from nobody costs. Here

- the next question is about the template with the most promise (see :mod:`.promise`);
- it looks for as many holders as are predicted, by the least epsilon for that many: large subtrees
  cost little. What falls short is put off, and asked about again more sharply in its turn;
- only a question at the finest ignores a subtree, with a probability of at most theta for those of
  c* holders; when nothing else is left to ask, what was ignored is looked at with half the margin;
- a complete structure is asked about again, twice as sharply each time, while its releases together
  leave open whether it is valid; see :mod:`.validity` for what is believed in the end.

Each release is about the same truth with fresh noise and a greater epsilon than the one before, so
each is charged. Whom and what to ask depends on public values and earlier releases alone.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from typing import Literal

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.learners.rule_search.asking import Asking, Found
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon
from privfed.learners.rule_search.promise import Promise, Subtree
from privfed.learners.rule_search.validity import listed, validity

#: What a question leads to: the children's turn, a sharper question in its turn, or nothing more.
Verdict = Literal["held", "later", "ignored"]
#: Amounts are whole multiples of one in so many.
FINENESS = 10**6


@dataclass(frozen=True)
class Spending:
    """How an adaptive search spends its budget.

    Args:
        total: epsilon of an individual for the whole search.
        spread: a first question about a template costs at most one part in so many of the total, so
            that a small budget is not gone after a few questions.
        coarser: what a subtree that was put off is looked for next: this many times fewer holders.
        stand_out: deviations above nobody at which an estimate is worth following.
        certain: deviations above nu N at which a structure is not asked about again.
        sharpest: epsilon above which no question is asked: noise is nearly gone.
        expected: how many valid structures there are, at a guess, while part of the tree is
            unexplored; see :func:`.listed`.
    """

    total: Fraction
    spread: int = 1000
    coarser: float = 4.0
    stand_out: float = 2.33
    certain: float = 3.0
    sharpest: Fraction = Fraction(10)
    expected: int = 400


@dataclass
class BestFirst:
    """One run.

    Args:
        asking: whom to ask.
        exploration: when a subtree is worth exploring.
        spending: how to spend.
    """

    asking: Asking
    exploration: Exploration
    spending: Spending
    complete: list[Subtree] = field(default_factory=list)
    ignored: list[Subtree] = field(default_factory=list)

    def __post_init__(self) -> None:
        people = self.asking.people
        self._promise = Promise(self.asking.grammar, people)
        self._finest = self.exploration.finest(people)
        self._valid = self.exploration.threshold * people
        self._left, self._number = self.spending.total, count()
        self._heap: list[tuple[float, int, Subtree, bool]] = []

    def run(self, most: int | None = None) -> list[Found]:
        """Search until the budget, the tree, or ``most`` questions are used up."""
        root = Subtree((), None, 1, estimate=float(self.asking.people), deviation=0.0)
        self._expand(root)
        try:
            while most is None or len(self.asking.steps) < most:
                child = self._next()
                if child is not None:
                    self._conclude(child, self.examine(child))
                elif not self._look_closer():
                    break
        except NobodyAnswered:
            return self._believed(self.spending.expected)
        return self._believed(0 if child is None else self.spending.expected)

    # --- what to ask ---------------------------------------------------------------------------

    def _expand(self, node: Subtree) -> None:
        grammar = self.asking.grammar
        following = grammar.continuations(node.template)
        children = [(t[-1], grammar.open(t)) for t in following]
        node.untried = np.array(children, dtype=np.int64).reshape(-1, 2).T
        self._queue_children(node)

    def _queue_children(self, node: Subtree) -> None:
        if node.untried.size:
            score = float(self._promise.scores(node).max())
            heapq.heappush(self._heap, (-score, next(self._number), node, True))

    def _next(self) -> Subtree | None:
        """The template with the most promise; promises that fell since they were queued wait."""
        while self._heap:
            _, _, node, parent = heapq.heappop(self._heap)
            if not parent:
                return node
            scores = self._promise.scores(node)
            if not self._heap or scores.max() >= -0.95 * self._heap[0][0]:
                return self._taken(node, int(scores.argmax()))
            self._queue_children(node)
        return None

    def _taken(self, node: Subtree, place: int) -> Subtree:
        predicted = float(self._promise.shares(node)[place])
        child = node.take(place)
        child.predicted = predicted
        self._queue_children(node)
        return child

    # --- how sharply ---------------------------------------------------------------------------

    def _amount(self, child: Subtree, least: Fraction) -> Fraction:
        """What makes all releases about it as sharp as one at the least epsilon would be.

        Their precisions, sinh^2(eps / 2) in units of N / 4, add up. A question costs but a modest
        part of the budget, and always more than was asked before, so that it is a fresh one.
        """
        lacking = math.sinh(float(least) / 2) ** 2 - self._precision(child)
        enough = 2 * math.asinh(math.sqrt(max(0.0, lacking)))
        first = self.spending.total / self.spending.spread
        most = max(2 * child.epsilon, 4 * first) if child.epsilon else first
        amount = max(min(Fraction(enough), most), child.epsilon)
        return Fraction(math.ceil(amount * FINENESS) + 1, FINENESS)

    def _precision(self, child: Subtree) -> float:
        return self.asking.people / (4 * child.deviation**2)

    def _ask(self, child: Subtree, epsilon: Fraction) -> None:
        """One question to everybody; the last one gets what is left.

        Raises:
            NobodyAnswered: nothing is left that is more than was asked before.
        """
        amount = min(epsilon, self._left)
        if amount <= child.epsilon:
            raise NobodyAnswered("the budget is used up")
        counts = self.asking.bits([child.template], amount)
        self._left -= amount
        first = not child.epsilon
        child.add(counts, amount)
        if first:
            self._promise.learn(child)
            if not child.open:
                self.complete.append(child)

    # --- what to conclude ----------------------------------------------------------------------

    def examine(self, child: Subtree) -> Verdict:
        """Ask about a template as sharply as its prediction needs, and judge it.

        Raises:
            NobodyAnswered: the budget is used up.
        """
        people = self.asking.people
        question = self.exploration.looking_for(people, child.predicted * people)
        least = least_epsilon(question)
        self._ask(child, self._amount(child, least))
        sharp = self._precision(child) >= math.sinh(float(least) / 2) ** 2 * (1 - 1e-6)
        final = question == self._finest and sharp
        noise = 0.0 if final else self.spending.stand_out * child.deviation
        held = child.estimate >= max(question.cut, noise)
        if not child.open:
            self._settle(child)
            held = held and self._certain(child)
        return "held" if held else "ignored" if final else "later"

    def _conclude(self, child: Subtree, verdict: Verdict) -> None:
        if verdict == "held" and child.open:
            self._expand(child)
        elif verdict == "later":
            child.predicted /= self.spending.coarser
            score = self._promise.score(child)
            heapq.heappush(self._heap, (-score, next(self._number), child, False))
        elif verdict == "ignored":
            self.ignored.append(child)

    def _look_closer(self) -> bool:
        """Once the tree is explored: settle doubts, then halve the margin for what was ignored."""
        for child in self.complete:
            self._settle(child, -math.inf)
        closer = replace(self.exploration, margin=self.exploration.margin / 2)
        finest = closer.finest(self.asking.people)
        if not self.ignored or finest == self._finest:
            return False
        if least_epsilon(finest) > self.spending.sharpest:
            return False
        self.exploration, self._finest = closer, finest
        for child in self.ignored:
            child.predicted = finest.count / finest.people
            score = self._promise.score(child)
            heapq.heappush(self._heap, (-score, next(self._number), child, False))
        self.ignored = []
        return True

    def _certain(self, child: Subtree) -> bool:
        return child.estimate - self._valid >= self.spending.certain * child.deviation

    def _settle(self, child: Subtree, least: float | None = None) -> None:
        """Ask more and more sharply about a structure that may well be valid, until it is clear.

        Args:
            child: a complete structure.
            least: an estimate below which it is left alone; none for nu N and what stands out.
        """
        doubt, nu = self.spending.certain, self._valid
        while abs(child.estimate - nu) < doubt * child.deviation:
            stands_out = max(nu, self.spending.stand_out * child.deviation)
            if child.estimate < (stands_out if least is None else least):
                return
            if 2 * child.epsilon > self.spending.sharpest:
                return
            self._ask(child, 2 * child.epsilon)

    def _believed(self, expected: int) -> list[Found]:
        """The structures that are worth listing."""
        if not self.complete:
            return []
        estimates = np.array([(c.estimate, c.deviation) for c in self.complete])
        share, deviation = estimates.T / self.asking.people
        chance = validity(share, deviation, self.exploration.threshold)
        return [
            Found(self.complete[i].template, float(share[i]), float(deviation[i]))
            for i in listed(chance, expected)
        ]
