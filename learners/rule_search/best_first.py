"""Best-first rule search: the next query is the most promising one, as sharp as it needs to be.

Unlike the published protocol (DP-RuL Sections 3.5 and 3.6; :mod:`.tree_search`) it asks about the
template of the largest predicted support (:mod:`.support_prediction`), by the least epsilon that
finds that many holders. What falls short is asked about again more sharply in its turn; only a
query at the finest ignores a subtree, with a probability of at most theta for those of c* holders.
Each release is about the same truth with fresh noise, and each is charged; whom and what to ask
depends on public values and earlier releases alone.
"""

import heapq
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from typing import Literal

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.learners.rule_search.asking import CohortSession, FoundRule
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon
from privfed.learners.rule_search.settings import DEFAULT, SearchSettings
from privfed.learners.rule_search.support_prediction import Subtree, SupportPrediction
from privfed.learners.rule_search.validity import listed, validity

Verdict = Literal["held", "later", "ignored"]  #: Children's turn, a later one, or nothing more
GRID = 10**6  #: Amounts of epsilon are multiples of 1 / GRID


@dataclass
class BestFirst:
    """One run."""

    asking: CohortSession  #: whom to ask
    exploration: Exploration  #: when a subtree is worth exploring
    total: Fraction  #: epsilon of an individual for the whole search
    settings: SearchSettings = DEFAULT  #: how to spend it
    complete: list[Subtree] = field(default_factory=list)
    ignored: list[Subtree] = field(default_factory=list)

    def __post_init__(self) -> None:
        people = self.asking.people
        self._prediction = SupportPrediction(self.asking.grammar, people, self.settings)
        self._finest = self.exploration.finest(people)
        self._valid = self.exploration.threshold * people
        self._remaining, self._number = self.total, count()
        self._heap: list[tuple[float, int, Subtree, bool]] = []

    def run(self, most: int | None = None) -> list[FoundRule]:
        """Search until the budget, the tree, or ``most`` queries are used up."""
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
            return self._listed(self.settings.expected)
        return self._listed(0 if child is None else self.settings.expected)

    # --- what to ask ---------------------------------------------------------------------------

    def _expand(self, node: Subtree) -> None:
        grammar = self.asking.grammar
        following = grammar.continuations(node.template)
        children = [(t[-1], grammar.open(t)) for t in following]
        node.untried = np.array(children, dtype=np.int64).reshape(-1, 2).T
        self._queue_children(node)

    def _queue_children(self, node: Subtree) -> None:
        if node.untried.size:
            self._push(float(self._prediction.scores(node).max()), node, children=True)

    def _queue(self, child: Subtree, predicted: float) -> None:
        """Put a template off until a prediction has its turn."""
        child.predicted = predicted
        self._push(self._prediction.score(child), child, children=False)

    def _push(self, score: float, node: Subtree, *, children: bool) -> None:
        heapq.heappush(self._heap, (-score, next(self._number), node, children))

    def _next(self) -> Subtree | None:
        """The template of the best score; scores that fell since they were queued wait."""
        while self._heap:
            _, _, node, children = heapq.heappop(self._heap)
            if not children:
                return node
            scores = self._prediction.scores(node)
            if not self._heap or scores.max() >= -0.95 * self._heap[0][0]:
                best = int(scores.argmax())
                predicted = float(self._prediction.shares(node)[best])
                child = node.take(best)
                child.predicted = predicted
                self._queue_children(node)
                return child
            self._queue_children(node)
        return None

    # --- how sharply ---------------------------------------------------------------------------

    def _amount(self, child: Subtree, least: Fraction) -> Fraction:
        """Epsilon that makes all releases about it together as sharp as one at the least epsilon.

        Their precisions, sinh^2(eps / 2) in units of N / 4, add up. A query costs a modest part of
        the budget, and always more than the one before about the same template.
        """
        lacking = math.sinh(float(least) / 2) ** 2 - self._precision(child)
        enough = 2 * math.asinh(math.sqrt(max(0.0, lacking)))
        first = self.total / self.settings.spread
        most = max(2 * child.epsilon, 4 * first) if child.epsilon else first
        amount = max(min(Fraction(enough), most), child.epsilon)
        return Fraction(math.ceil(amount * GRID) + 1, GRID)

    def _precision(self, child: Subtree) -> float:
        return self.asking.people / (4 * child.deviation**2)

    def _ask(self, child: Subtree, epsilon: Fraction) -> None:
        """Ask everybody; the last query gets what remains, if that is more than before."""
        amount = min(epsilon, self._remaining)
        if amount <= child.epsilon:
            raise NobodyAnswered("the budget is used up")
        counts = self.asking.bits([child.template], amount)
        self._remaining -= amount
        first = not child.epsilon
        child.add(counts, amount)
        if first:
            self._prediction.learn(child)
            if not child.open:
                self.complete.append(child)

    # --- what to conclude ----------------------------------------------------------------------

    def examine(self, child: Subtree) -> Verdict:
        """Ask about a template as sharply as its prediction needs, and judge it."""
        people = self.asking.people
        question = self.exploration.looking_for(people, child.predicted * people)
        least = least_epsilon(question)
        self._ask(child, self._amount(child, least))
        sharp = self._precision(child) >= math.sinh(float(least) / 2) ** 2 * (1 - 1e-6)
        final = question == self._finest and sharp
        noise = 0.0 if final else self.settings.stand_out * child.deviation
        held = child.estimate >= max(question.cut, noise)
        if not child.open:
            self._settle(child)
            margin = self.settings.certain * child.deviation
            held = held and child.estimate - self._valid >= margin
        return "held" if held else "ignored" if final else "later"

    def _conclude(self, child: Subtree, verdict: Verdict) -> None:
        if verdict == "held" and child.open:
            self._expand(child)
        elif verdict == "later":
            self._queue(child, child.predicted / self.settings.coarser)
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
        if least_epsilon(finest) > self.settings.max_epsilon:
            return False
        self.exploration, self._finest = closer, finest
        for child in self.ignored:
            self._queue(child, finest.count / finest.people)
        self.ignored = []
        return True

    def _settle(self, child: Subtree, least: float | None = None) -> None:
        """Ask more and more sharply about a structure that may be valid, until it is clear."""
        settings, nu = self.settings, self._valid
        while abs(child.estimate - nu) < settings.certain * child.deviation:
            stands_out = max(nu, settings.stand_out * child.deviation)
            if child.estimate < (stands_out if least is None else least):
                return
            if 2 * child.epsilon > settings.max_epsilon:
                return
            self._ask(child, 2 * child.epsilon)

    def _listed(self, expected: int) -> list[FoundRule]:
        if not self.complete:
            return []
        people = self.asking.people
        shares, stds = np.array([(c.estimate, c.deviation) for c in self.complete]).T / people
        probability = validity(shares, stds, self.exploration.threshold, self.settings)
        return [
            FoundRule(self.complete[i].template, float(shares[i]), float(stds[i]))
            for i in listed(probability, expected, self.settings)
        ]
