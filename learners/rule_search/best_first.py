"""Best-first rule search: the next query is the most promising one, at the epsilon that it requires.

Unlike the published protocol (DP-RuL Sections 3.5 and 3.6; :mod:`.tree_search`) it queries the
template with the largest predicted support (:class:`SupportPrediction`), at the smallest epsilon
that finds that many holders. Templates below are queried again later at a larger epsilon; only a
finest query ignores a subtree, with probability at most theta for those with c* holders. Each
release is about the same truth with fresh noise, and is charged; the queries depend on public
values and earlier releases only.
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
from privfed.learners.rule_search.asking import CohortSession, FoundRule
from privfed.learners.rule_search.estimate import SupportEstimate
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon
from privfed.learners.rule_search.settings import DEFAULT, SearchSettings
from privfed.learners.stl.grammar import Grammar, Symbols

Verdict = Literal["held", "later", "ignored"]  #: Explore children, retry later, or ignore
GRID = 10**6  #: Amounts of epsilon are multiples of 1 / GRID


@dataclass
class BestFirst:
    """One run."""

    session: CohortSession  #: the cohort and its queries
    exploration: Exploration  #: when a subtree is worth exploring
    total: Fraction  #: epsilon of an individual for the whole search
    settings: SearchSettings = DEFAULT  #: search settings
    complete: list[Subtree] = field(default_factory=list)
    ignored: list[Subtree] = field(default_factory=list)

    def __post_init__(self) -> None:
        people = self.session.people
        self._prediction = SupportPrediction(self.session.grammar, people, self.settings)
        self._finest = self.exploration.finest(people)
        self._valid = self.exploration.threshold * people
        self._remaining, self._number = self.total, count()
        self._heap: list[tuple[float, int, Subtree, bool]] = []

    def run(self, max_queries: int | None = None) -> list[FoundRule]:
        """Search until the budget, the tree, or ``max_queries`` queries are used up."""
        root = Subtree((), None, 1, estimate=float(self.session.people), std=0.0)
        self._expand(root)
        try:
            while max_queries is None or len(self.session.steps) < max_queries:
                child = self._next()
                if child is not None:
                    self._conclude(child, self.examine(child))
                elif not self._refine():
                    break
        except NobodyAnswered:
            return self._list_rules(self.settings.expected)
        return self._list_rules(0 if child is None else self.settings.expected)

    # --- choosing the template
    # ---------------------------------------------------------------------------

    def _expand(self, node: Subtree) -> None:
        grammar = self.session.grammar
        following = grammar.continuations(node.template)
        children = [(t[-1], grammar.open(t)) for t in following]
        node.untried = np.array(children, dtype=np.int64).reshape(-1, 2).T
        self._queue_children(node)

    def _queue_children(self, node: Subtree) -> None:
        if node.untried.size:
            self._push(float(self._prediction.scores(node).max()), node, children=True)

    def _queue(self, child: Subtree, predicted: float) -> None:
        """Queue a template by its predicted support."""
        child.predicted = predicted
        self._push(self._prediction.score(child), child, children=False)

    def _push(self, score: float, node: Subtree, *, children: bool) -> None:
        heapq.heappush(self._heap, (-score, next(self._number), node, children))

    def _next(self) -> Subtree | None:
        """Return the template with the best score, requeueing those whose score has decreased."""
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

    # --- choosing epsilon
    # ---------------------------------------------------------------------------

    def _amount(self, child: Subtree, required: Fraction) -> Fraction:
        """Return the epsilon for which all releases about it are together as precise as one at ``required``.

        Their precisions, sinh^2(eps / 2) in units of N / 4, add up. A query costs a small part of
        the budget, and more than the last one about the same template.
        """
        missing = math.sinh(float(required) / 2) ** 2 - self._precision(child)
        sufficient = 2 * math.asinh(math.sqrt(max(0.0, missing)))
        first = self.total / self.settings.spread
        limit = max(2 * child.epsilon, 4 * first) if child.epsilon else first
        amount = max(min(Fraction(sufficient), limit), child.epsilon)
        return Fraction(math.ceil(amount * GRID) + 1, GRID)

    def _precision(self, child: Subtree) -> float:
        return self.session.people / (4 * child.std**2)

    def _ask(self, child: Subtree, epsilon: Fraction) -> None:
        """Query everybody; the last query gets the remaining budget, if that is more than before."""
        amount = min(epsilon, self._remaining)
        if amount <= child.epsilon:
            raise NobodyAnswered("the budget is used up")
        counts = self.session.bits([child.template], amount)
        self._remaining -= amount
        first = not child.epsilon
        child.add(counts, amount)
        if first:
            self._prediction.learn(child)
            if not child.open:
                self.complete.append(child)

    # --- verdicts ----------------------------------------------------------------------

    def examine(self, child: Subtree) -> Verdict:
        """Query a template at the epsilon that its prediction requires, and return the verdict."""
        people = self.session.people
        test = self.exploration.looking_for(people, child.predicted * people)
        required = least_epsilon(test)
        self._ask(child, self._amount(child, required))
        sharp = self._precision(child) >= math.sinh(float(required) / 2) ** 2 * (1 - 1e-6)
        final = test == self._finest and sharp
        noise = 0.0 if final else self.settings.stand_out * child.std
        passed = child.estimate >= max(test.cut, noise)
        if not child.open:
            self._settle(child)
            margin = self.settings.certain * child.std
            passed = passed and child.estimate - self._valid >= margin
        return "held" if passed else "ignored" if final else "later"

    def _conclude(self, child: Subtree, verdict: Verdict) -> None:
        if verdict == "held" and child.open:
            self._expand(child)
        elif verdict == "later":
            self._queue(child, child.predicted / self.settings.coarser)
        elif verdict == "ignored":
            self.ignored.append(child)

    def _refine(self) -> bool:
        """Once the tree is explored, settle uncertain structures, then halve the margin for ignored ones."""
        for child in self.complete:
            self._settle(child, -math.inf)
        finer = replace(self.exploration, margin=self.exploration.margin / 2)
        finest = finer.finest(self.session.people)
        if not self.ignored or finest == self._finest:
            return False
        if least_epsilon(finest) > self.settings.max_epsilon:
            return False
        self.exploration, self._finest = finer, finest
        for child in self.ignored:
            self._queue(child, finest.count / finest.people)
        self.ignored = []
        return True

    def _settle(self, child: Subtree, minimum: float | None = None) -> None:
        """Query a possibly valid structure at increasing epsilon until its validity is clear."""
        settings, nu = self.settings, self._valid
        while abs(child.estimate - nu) < settings.certain * child.std:
            stands_out = max(nu, settings.stand_out * child.std)
            if child.estimate < (stands_out if minimum is None else minimum):
                return
            if 2 * child.epsilon > settings.max_epsilon:
                return
            self._ask(child, 2 * child.epsilon)

    def _list_rules(self, expected: int) -> list[FoundRule]:
        if not self.complete:
            return []
        people = self.session.people
        fractions, stds = np.array([(c.estimate, c.std) for c in self.complete]).T / people
        probability = validity(fractions, stds, self.exploration.threshold, self.settings)
        return [
            FoundRule(self.complete[i].template, float(fractions[i]), float(stds[i]))
            for i in listed(probability, expected, self.settings)
        ]


# --- predicted support of each template that was not queried yet, from the releases so far A child's support is
# predicted as its parent's estimate, times its last symbol's relative support below other parents, times the ratio for
# this parent's children. A complete structure below it takes at least one more symbol for each open part, each reducing
# support at least as the most frequent atom does.


@dataclass(eq=False)
class Subtree:
    """A template in the tree, with what releases said about it."""

    template: Symbols  #: its symbols
    parent: Subtree | None  #: the parent; None for the root
    open: int  #: open parts; zero for a complete structure
    predicted: float = 1.0  #: Predicted fraction of holders, at the time of the query
    estimate: float = 0.0  #: from all releases about it, by inverse variance
    std: float = math.inf
    epsilon: Fraction = Fraction(0)  #: The largest epsilon of a release about it
    #: Untried children: their last symbols, and their open parts.
    untried: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    children: np.ndarray | None = None  #: Its children's relative supports: rows operators, atoms

    def take(self, index: int) -> Subtree:
        """Remove and return one of the untried children."""
        symbol, still_open = (int(value) for value in self.untried[:, index])
        self.untried = np.delete(self.untried, index, axis=1)
        return Subtree((*self.template, symbol), self, still_open)

    def add(self, counts: SupportEstimate, epsilon: Fraction) -> None:
        """Combine a release with earlier ones, with independent noise."""
        before = SupportEstimate(np.array([self.estimate]), self.std, counts.people)
        both = before.combined(counts) if self.epsilon else counts
        self.estimate, self.std = float(both.estimate[0]), both.std
        self.epsilon = epsilon


class SupportPrediction:
    """Predicts the supports of templates, and scores templates by them."""

    def __init__(self, grammar: Grammar, people: int, settings: SearchSettings = DEFAULT) -> None:
        self._atoms, self._people, self._settings = grammar.atoms, people, settings
        operators = np.arange(grammar.size + 1) > grammar.atoms
        prior, weight = np.where(operators, settings.operator, settings.atom), settings.prior_weight
        #: Weighted sums of each symbol's relative supports, and sums of weights.
        self._supports = np.stack([weight * prior, np.full(len(prior), weight)])
        self._completion = settings.completion

    def learn(self, child: Subtree) -> None:
        """Update by the first release about a child; noisy ones have little weight."""
        parent, symbol, half = child.parent, child.template[-1], self._settings.half_std
        assert parent is not None
        relative = np.array([child.estimate, child.std]) / max(parent.estimate, 1.0)
        weight = half**2 / (half**2 + relative[1] ** 2)
        self._supports[:, symbol] += weight * relative[0], weight
        row = self._children(parent)[int(symbol <= self._atoms)]
        row += weight * relative[0], weight * float(self._symbol(symbol))
        atoms = self._supports[:, 1 : self._atoms + 1]
        observed = atoms[:, atoms[1] > 2 * self._settings.prior_weight]
        best = (observed[0] / observed[1]).max(initial=0.0)
        self._completion = float(np.clip(best or self._settings.completion, 0.001, 1.0))

    def _children(self, parent: Subtree) -> np.ndarray:
        if parent.children is None:
            parent.children = np.full((2, 2), self._settings.parent_weight)
        return parent.children

    def _symbol(self, symbol: int | np.ndarray) -> np.ndarray:
        total, weight = self._supports[:, symbol]
        return np.asarray(np.clip(total / weight, 0.0, 1.0))

    def shares(self, parent: Subtree) -> np.ndarray:
        """Return predicted fractions of individuals that hold the untried children."""
        symbols = parent.untried[0]
        sums, weights = self._children(parent)[(symbols <= self._atoms).astype(int)].T
        relative = self._symbol(symbols) * np.maximum(0.02, sums) / weights
        return np.asarray(np.minimum(relative, 1.0) * parent.estimate / self._people)

    def scores(self, parent: Subtree) -> np.ndarray:
        """Return the untried children's scores; see :meth:`score`."""
        return self._scores(self.shares(parent), parent.untried[1], len(parent.template) + 1)

    def score(self, child: Subtree) -> float:
        """Return the predicted support of the most frequent structure below it; ties: longer templates."""
        return float(self._scores(np.array(child.predicted), child.open, len(child.template)))

    def _scores(
        self, fractions: np.ndarray, still_open: np.ndarray | int, length: int
    ) -> np.ndarray:
        return np.asarray(fractions * self._completion**still_open * (1 + 0.001 * length))


# --- the choice of listed structures: an empirical Bayes posterior, and the best list by it Most templates have no
# holders, and the largest of their estimates are noise. The distribution of the true fractions is the non-parametric
# mixture of Kiefer and Wolfowitz 1956, on a grid, by expectation-maximisation.

CELLS, ROUNDS = 40, 60  #: Grid of positive fractions from nu / 16 to 1; EM iterations


def validity(
    estimate: np.ndarray, std: np.ndarray, threshold: float, settings: SearchSettings = DEFAULT
) -> np.ndarray:
    """Return the probability that at least a fraction nu hold a structure, shape (structures,).

    Arguments are estimated fractions and their standard deviations above 0, shape (structures,)
    each.
    """
    grid = np.concatenate([[0.0], np.geomspace(threshold / 16, 1.0, CELLS)])
    logs = -0.5 * ((estimate[:, None] - grid) / std[:, None]) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    empty, weight = settings.empty, settings.empty_weight
    prior = np.where(grid == 0, empty, (1 - empty) / CELLS)
    mass, posterior = prior, likelihood
    for _ in range(ROUNDS):
        posterior = likelihood * mass
        posterior /= posterior.sum(axis=1, keepdims=True)
        mass = (posterior.sum(axis=0) + weight * prior) / (len(estimate) + weight)
    return np.asarray(posterior[:, grid >= threshold * (1 - 1e-9)].sum(axis=1))


def best_list(probability: np.ndarray, expected: float = 0.0) -> np.ndarray:
    """Return the indices of the list with the best expected F1, most probable first.

    F1 of the k most probable is about 2 sum(p) / (k + number of valid structures); ``expected`` is
    a prior guess of that number, used if above the sum of the probabilities.
    """
    order = np.argsort(-probability, kind="stable")
    total = max(expected, float(probability.sum()))
    scores = 2 * np.cumsum(probability[order]) / (np.arange(1, len(order) + 1) + total)
    return order[: int(np.argmax(scores)) + 1] if len(order) else order


def listed(
    probability: np.ndarray, expected: float = 0.0, settings: SearchSettings = DEFAULT
) -> np.ndarray:
    """Return the indices to list: the probable ones, or the whole best list if that gains enough."""
    best = best_list(probability, expected)
    likely = best[probability[best] >= 0.5]
    needed = settings.worthwhile * (1 + probability[likely].sum())
    return best if probability[best].sum() >= needed else likely
