"""How the budgets are divided, and the longest schedule of either way. Public values only."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privfed.learners.base import Planned
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.counts import (
    Cells,
    NodeCounts,
    NodeTotals,
    RootCounts,
    TargetCells,
)
from privfed.learners.genetic_tree.personal import Choice
from privfed.learners.genetic_tree.population import Population, Scoring, classes
from privfed.learners.genetic_tree.private_tree import TopPlan
from privfed.learners.genetic_tree.queries import (
    Depth,
    Fitness,
    KeepBelow,
    KeepBest,
    Size,
    Structure,
    Votes,
)
from privfed.learners.genetic_tree.structures import NIL, length
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.tree import Tree
from privfed.tables.schema import Schema

#: Shares of rho: all rounds of cells together, the root's counts, the leaves' totals; the levels below
#: the root share the rest.
CELLS_SHARE, ROOT_SHARE, LEAVES_SHARE = Fraction(15, 100), Fraction(20, 100), Fraction(10, 100)
#: The same for a numeric target: all rounds of its features' cells, and all of its own.
NUMBERS_CELLS_SHARE, TARGET_SHARE = Fraction(10, 100), Fraction(10, 100)


def published(epsilon: Number) -> Policy:
    """Noise on the clients' sizes alone (paper, Section III-E); the rest leaves as it is."""
    guards: dict[str, tuple[Guard, ...]] = {
        query.kind: (Guard.of("open"),) for query in (Depth, Structure, Votes, Fitness)
    }
    guards[Size.kind] = (Guard.of("laplace", spend=epsilon, times=1),)
    guards[KeepBest.kind] = ()
    return Policy(guards, name="published")


def private(epsilon: Number, delta: Number, plan: TopPlan, *, classify: bool = True) -> Policy:
    """Gaussian noise on all counts, under zCDP; nothing else leaves."""
    budget = Budget.of(epsilon, delta)
    rho = largest_rho(budget.epsilon, budget.delta)
    looking = CELLS_SHARE if classify else NUMBERS_CELLS_SHARE
    target = Fraction(0) if classify else TARGET_SHARE
    cells = rho * looking / plan.rounds
    leaves, below = rho * LEAVES_SHARE, rho * (1 - looking - target - LEAVES_SHARE)
    root = rho * ROOT_SHARE if plan.depth > 1 else below
    guards: dict[str, tuple[Guard, ...]] = {
        Cells.kind: (Guard.of("gaussian", spend=cells, times=plan.rounds),),
        RootCounts.kind: (Guard.of("gaussian", spend=root, times=1),),
        NodeTotals.kind: (Guard.of("gaussian", spend=leaves, times=1),),
        KeepBelow.kind: (),
    }
    if not classify:
        times = plan.target_rounds
        spend = rho * target / times
        guards[TargetCells.kind] = (Guard.of("gaussian", spend=spend, times=times),)
    if plan.depth > 1:
        levels = plan.depth - 1
        each = (below - root) / levels
        guards[NodeCounts.kind] = (Guard.of("gaussian", spend=each, times=levels),)
    return Policy(guards, accountant="zcdp", budget=budget, name="private")


def published_schedule(
    scoring: Scoring, settings: tuple[int, int, int, int], depth: int | None, choice: Choice
) -> Sequence[Planned]:
    """Every question of the paper's way, as often as one client may be asked.

    Args:
        scoring: how candidates are scored.
        settings: candidates, generations, lowest and deepest depth.
        depth: the public depth, if there is one.
        choice: how clients choose in the end.
    """
    candidates, generations, lowest, deepest = settings
    d = depth or deepest
    population = Population.of(np.full((candidates, length(d)), NIL, dtype=np.int16), d)
    plan = [
        Planned(Size(), 1),
        Planned(Structure(scoring, d), 1),
        Planned(Fitness(population, scoring), generations),
        Planned(KeepBest(population, scoring, choice), 1),
    ]
    if depth is None:
        plan.insert(0, Planned(Depth(scoring, lowest, deepest), 1))
    if not scoring.classify:
        plan.insert(1, Planned(Votes(scoring, min(d, deepest), lowest, deepest, local.Votes()), 1))
    return plan


def private_schedule(
    schema: Schema, scoring: Scoring, plan: TopPlan, lowest: int, deepest: int
) -> Sequence[Planned]:
    """Every question of the private way: cells, a number's own, the root, each level, leaves, what is kept."""
    features = np.arange(len(schema.features))
    few = features[: plan.features]
    edges = np.full((len(features), plan.bins - 1), np.inf)
    targets = None if scoring.classify else np.full(plan.targets - 1, np.inf)
    tree = stump(plan.depth - 1)
    outputs = classes(schema) if scoring.classify else 1
    values = np.zeros((len(tree.feature), outputs))
    cells = np.full((len(features), plan.cells - 1), np.inf)
    planned = [
        Planned(Cells(features, cells), plan.rounds),
        Planned(RootCounts(stump(0), np.zeros(1, np.int64), features, edges, targets), 1),
    ]
    if not scoring.classify:
        finer = np.full((1, plan.target_cells - 1), np.inf)
        own = TargetCells(np.array([len(features)], dtype=np.int64), finer)
        planned.insert(1, Planned(own, plan.target_rounds))
    if plan.depth > 1:
        below = NodeCounts(tree, tree.leaves, few, edges[: len(few)], targets)
        planned.append(Planned(below, plan.depth - 1))
    whole = stump(plan.depth)
    planned.append(Planned(NodeTotals(whole, whole.leaves, targets), 1))
    return [*planned, Planned(KeepBelow(tree, values, scoring, lowest, deepest), 1)]


def stump(depth: int) -> Tree:
    """A full tree of a depth, whatever its cuts: what a level's question looks like."""
    nodes = 2 ** (depth + 1) - 1
    number = np.arange(nodes)
    inner = number < nodes // 2
    feature = np.where(inner, 0, -1)
    return Tree.binary(feature, np.zeros(nodes), 2 * number + 1, 2 * number + 2)
