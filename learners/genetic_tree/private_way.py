"""The private way: one shared tree from noisy counts, and each client's local subtrees below."""

import warnings
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privfed.errors import Note
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.genetic_tree.counts import (
    ColumnCounts,
    NodeCounts,
    NodeTotals,
    RootCounts,
    TargetCells,
)
from privfed.learners.genetic_tree.population import classes
from privfed.learners.genetic_tree.private_tree import PrivateTree, TopPlan
from privfed.learners.genetic_tree.published import GeneticTreeParams, LearnedTree
from privfed.learners.genetic_tree.queries import KeepBelow
from privfed.learners.genetic_tree.settings import SETTINGS
from privfed.learners.genetic_tree.top import full_tree
from privfed.learners.ways import Way
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.tree import Tree
from privfed.tables.schema import Schema


class PrivateGeneticTree(Way[GeneticTreeParams, LearnedTree]):
    """A shared tree grown from noisy counts; clients choose below it by themselves."""

    name = "private"
    queries = (ColumnCounts, TargetCells, RootCounts, NodeCounts, NodeTotals, KeepBelow)

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """Return all queries: cells, a number's own, the root, each level, the leaves, and the local effect."""
        top, scoring = self.params.top, self.params.scoring
        features = np.arange(len(schema.features))
        used = features[: top.features]
        edges = np.full((len(features), top.bins - 1), np.inf)
        targets = None if scoring.classify else np.full(top.targets - 1, np.inf)
        cells = np.full((len(features), top.cells - 1), np.inf)
        root = RootCounts(full_tree(0), np.zeros(1, np.int64), features, edges, targets)
        planned = [Planned(ColumnCounts(features, cells), top.rounds), Planned(root, 1)]
        if not scoring.classify:
            finer = np.full((1, top.target_cells - 1), np.inf)
            target = TargetCells(np.array([len(features)], dtype=np.int64), finer)
            planned.insert(1, Planned(target, top.target_rounds))
        tree, whole = full_tree(top.depth - 1), full_tree(top.depth)
        if top.depth > 1:
            levels = NodeCounts(tree, tree.leaves, used, edges[: len(used)], targets)
            planned.append(Planned(levels, top.depth - 1))
        outputs = classes(schema) if scoring.classify else 1
        effect = self._keep_below(tree, np.zeros((len(tree.feature), outputs)))
        return [*planned, Planned(NodeTotals(whole, whole.leaves, targets), 1), Planned(effect, 1)]

    def learn(self, federation: Disclosure, rng: np.random.Generator) -> LearnedTree:
        """See the base."""
        shared = PrivateTree(federation, self.params.top, self.params.scoring.classify).grow()
        if not shared.tree.depth:
            warnings.warn(
                "the noise leaves no split: each client keeps a tree that it grew alone",
                Note,
                stacklevel=4,
            )
        federation.ask_offered(self._keep_below(shared.tree, shared.values))
        return LearnedTree(shared.tree.depth, shared=shared)

    def _keep_below(self, tree: Tree, values: np.ndarray) -> KeepBelow:
        depths = self.params.evolution.lowest, self.params.evolution.deepest
        return KeepBelow(tree, values, self.params.scoring, *depths, self.params.choice.leaves)


def private(epsilon: Number, delta: Number, top: TopPlan, *, classify: bool) -> Policy:
    """Return a policy with Gaussian noise on all counts, under zCDP; nothing else is released."""
    budget, s = Budget.of(epsilon, delta), SETTINGS
    rho = largest_rho(budget.epsilon, budget.delta)
    columns = s.cells_budget if classify else s.number_cells_budget
    target = Fraction(0) if classify else s.target_budget
    levels = rho * (1 - columns - target - s.leaves_budget)
    root = rho * s.root_budget if top.depth > 1 else levels

    def gaussian(spend: Fraction, times: int = 1) -> tuple[Guard, ...]:
        return (Guard.of("gaussian", spend=spend / times, times=times),)

    guards: dict[str, tuple[Guard, ...]] = {
        ColumnCounts.kind: gaussian(rho * columns, top.rounds),
        RootCounts.kind: gaussian(root),
        NodeTotals.kind: gaussian(rho * s.leaves_budget),
        KeepBelow.kind: (),
    }
    if not classify:
        guards[TargetCells.kind] = gaussian(rho * target, top.target_rounds)
    if top.depth > 1:
        guards[NodeCounts.kind] = gaussian(levels - root, top.depth - 1)
    return Policy(guards, accountant="zcdp", budget=budget, name="private")
