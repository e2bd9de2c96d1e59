"""The genetic search itself under noise: the honest comparison with the private shared tree.

Structures cannot be fitted to records privately at any cost worth it, so a candidate is completed
with cuts: a gene names a feature and one of its released edges. Then its leaves are public cells,
and the class counts of all candidates' leaves are one question. Labels, accuracy and F1 follow from
released counts. Each generation pays anew; few can be paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from privfed.errors import NobodyAnswered, PolicyError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.genetic_tree import operators, planning
from privfed.learners.genetic_tree.below import Shared
from privfed.learners.genetic_tree.counts import Cells, LeafCounts
from privfed.learners.genetic_tree.estimator import GeneticTreeClassifier
from privfed.learners.genetic_tree.fitness import macro_f1
from privfed.learners.genetic_tree.private_tree import PrivateTree
from privfed.learners.genetic_tree.queries import KeepBelow
from privfed.learners.genetic_tree.structures import NIL, random_structures
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.questions.tree import Forest, Tree
from privfed.tables.schema import Schema

#: Most generations: each pays anew, and more of them buy nothing.
MOST_GENERATIONS = 4


class NoisySearchClassifier(GeneticTreeClassifier):
    """A genetic search over completed candidates by noisy counts; only a yardstick.

    The parameters are those of :class:`GeneticTreeClassifier`; ``generations`` is 4 and ``depth`` 4
    unless given otherwise, for each generation pays anew. In the end each client hangs its own
    subtrees below the best candidate, or keeps its own tree.
    """

    baseline: ClassVar[bool] = True
    queries: ClassVar[tuple[type[Query], ...]] = (Cells, LeafCounts, KeepBelow)

    def fit(self, federation: Disclosure) -> Self:
        """Search; sets what `private` sets, and ``history_``.

        Raises:
            NobodyAnswered: no client answered the first question of a kind.
        """
        self._start(federation)
        self._rng = np.random.default_rng(self.random_state)
        self.private_, self.candidates_, self.history_ = True, None, []
        edges = PrivateTree(federation, self._top_plan(), classify=True).find_edges()
        pairs = [(f, float(cut)) for f, cuts in enumerate(edges) for cut in cuts]
        self.shared_ = self._searched(federation, pairs)
        self.depth_ = self.shared_.tree.depth
        tree, values = self.shared_.tree, self.shared_.values
        federation.ask_offered(KeepBelow(tree, values, self._scoring(), self.lowest, self.deepest))
        return self

    @property
    def _size(self) -> tuple[int, int, int]:
        """Candidates, generations and depth."""
        few = min(self.generations, MOST_GENERATIONS)
        return self.population or self._population, few, self.depth or 4

    def _searched(self, federation: Disclosure, pairs: Sequence[tuple[int, float]]) -> Shared:
        """The best candidate of all generations, by its noisy counts."""
        size, generations, depth = self._size
        offspring = random_structures(size, depth, len(pairs), self.leaf_share, self._rng)
        genes, fitness, models = offspring[:0], np.empty(0), list[Shared]()
        for _ in range(generations):
            try:
                told = judged(federation, [completed(row, pairs) for row in offspring])
            except NobodyAnswered:
                if not models:
                    raise
                break
            models += [shared for shared, _ in told]
            genes = np.concatenate([genes, offspring])
            fitness = np.concatenate([fitness, [score for _, score in told]])
            elite = np.zeros(len(genes), dtype=bool)
            alive = operators.survivors(genes, fitness, size, depth, elite)
            genes, fitness, models = genes[alive], fitness[alive], [models[row] for row in alive]
            self.history_.append((float(fitness[0]), float(fitness.mean())))
            parents = genes[operators.tournaments(fitness, size, self.pressure, self._rng)]
            children = operators.crossover(parents, self._rng)
            offspring = operators.mutate(children, len(pairs), self.flips, self.swaps, self._rng)
        return models[0]

    # --- policies ------------------------------------------------------------------------------

    def published(self, epsilon: Number = 1) -> Policy:
        """There is none of its own: the paper's is :class:`GeneticTreeClassifier`'s.

        Raises:
            PolicyError: always.
        """
        raise PolicyError("NoisySearchClassifier only learns privately; write private(epsilon)")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Gaussian noise on cells and on the leaf counts of each generation, under zCDP."""
        plan, (_, generations, _) = self._top_plan(), self._size
        budget = Budget.of(epsilon, delta)
        rho = largest_rho(budget.epsilon, budget.delta)
        cells = rho * planning.CELLS_SHARE / plan.rounds
        each = rho * (1 - planning.CELLS_SHARE) / generations
        guards: dict[str, tuple[Guard, ...]] = {
            Cells.kind: (Guard.of("gaussian", spend=cells, times=plan.rounds),),
            LeafCounts.kind: (Guard.of("gaussian", spend=each, times=generations),),
            KeepBelow.kind: (),
        }
        return Policy(guards, accountant="zcdp", budget=budget, name="private")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Cells, leaf counts of each generation, and what is kept."""
        size, generations, depth = self._size
        limits = self.lowest, self.deepest
        cells, *_, keep = planning.private_schedule(
            schema, self._scoring(), self._top_plan(), *limits
        )
        forest = Forest.of([planning.stump(depth)] * size)
        return [cells, Planned(LeafCounts(forest), generations), keep]


def completed(genes: np.ndarray, pairs: Sequence[tuple[int, float]]) -> Tree:
    """A candidate whose genes name a feature and a cut each.

    Args:
        genes: numbers of pairs, shape (2^depth - 1,).
        pairs: feature and cut.
    """
    rows: list[tuple[int, float, int, int]] = []

    def add(at: int, span: int) -> int:
        gene, number = (int(genes[at]) if span else NIL), len(rows)
        rows.append((NIL, 0.0, NIL, NIL))
        if gene != NIL:
            half = span // 2
            rows[number] = (*pairs[gene], add(at + 1, half), add(at + 1 + half, half))
        return number

    add(0, len(genes))
    return Tree.binary(*(np.array(each) for each in zip(*rows, strict=True)))


def judged(federation: Disclosure, trees: Sequence[Tree]) -> list[tuple[Shared, float]]:
    """Ask for all candidates' leaf counts at once; each with its labels' shares and its macro F1.

    Raises:
        NobodyAnswered: nobody told.
    """
    forest = Forest.of(trees)
    counts = np.asarray(federation.ask(LeafCounts(forest)).total("counts"), dtype=float)
    ends = [*forest.roots[1:].tolist(), len(counts)]
    found = []
    for tree, start, end in zip(trees, forest.roots.tolist(), ends, strict=True):
        own = np.maximum(counts[start:end], 0) * (tree.feature < 0)[:, None]
        for node in np.flatnonzero(tree.feature >= 0)[::-1]:
            own[node] = own[tree.children[node]].sum(axis=0)
        leaves = own[tree.leaves]
        confusion = np.zeros((counts.shape[1], counts.shape[1]))
        np.add.at(confusion.T, leaves.argmax(axis=1), leaves)
        shares = (own + 1e-9) / (own + 1e-9).sum(axis=1, keepdims=True)
        found.append((Shared(tree, shares), float(macro_f1(confusion[None])[0])))
    return found
