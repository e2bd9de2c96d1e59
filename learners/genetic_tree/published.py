"""The paper's protocol: clients' structures evolve by clients' scores."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.forest.columns import note_far_from_zero
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.evolution import Evolution, GeneticParams
from privfed.learners.genetic_tree.local_subtrees import Shared
from privfed.learners.genetic_tree.personal import Choice
from privfed.learners.genetic_tree.population import Population, Scoring
from privfed.learners.genetic_tree.private_tree import TopPlan
from privfed.learners.genetic_tree.queries import Depth, Fitness, KeepBest, Size, Structure, Votes
from privfed.learners.genetic_tree.structures import NIL, length
from privfed.learners.ways import Way
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class GeneticTreeParams:
    """The estimator's parameters for both ways; `depth` is None if clients are queried for it."""

    evolution: GeneticParams
    scoring: Scoring
    choice: Choice
    depth: int | None
    top: TopPlan


@dataclass(frozen=True, eq=False)
class LearnedTree:
    """The result of either way; each client's own tree stays on its shelf."""

    depth: int  #: of the candidates or of the shared tree
    #: the last population, best first; None in the private way
    candidates: Population | None = None
    shared: Shared | None = None  #: the shared tree; None in the published way
    elitism: bool = False  #: whether clients' own structures were kept in each generation
    scored_on: str = "folds"  #: records for scoring candidates; see :class:`.Scoring`
    #: best and mean fitness after each generation
    history: list[tuple[float, float]] = field(default_factory=list)


class PublishedGeneticTree(Way[GeneticTreeParams, LearnedTree]):
    """A population of structures, which each client fits, scores and chooses from."""

    name = "published"
    queries = (Size, Depth, Structure, Votes, Fitness, KeepBest)

    def first(self, schema: Schema) -> Query:
        """See the base."""
        p = self.params
        if p.depth is not None:
            return Structure(p.scoring, p.depth)
        return Depth(p.scoring, p.evolution.lowest, p.evolution.deepest)

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """See the base."""
        p, evolution, scoring = self.params, self.params.evolution, self.params.scoring
        depth = p.depth or evolution.deepest
        genes = np.full((evolution.population, length(depth)), NIL, dtype=np.int16)
        population = Population.of(genes, depth)
        plan = [
            Planned(Size(), 1),
            Planned(Structure(scoring, depth), 1),
            Planned(Fitness(population, scoring), evolution.generations),
            Planned(KeepBest(population, scoring, p.choice), 1),
        ]
        limits = evolution.lowest, evolution.deepest
        if p.depth is None:
            plan.insert(0, Planned(Depth(scoring, *limits), 1))
        if not scoring.classify:
            votes = Votes(scoring, min(depth, limits[1]), *limits, local.VoteThresholds())
            plan.insert(1, Planned(votes, 1))
        return plan

    def learn(self, federation: Disclosure, rng: np.random.Generator) -> LearnedTree:
        """See the base."""
        p = self.params
        note_far_from_zero(federation.schema)
        evolution = Evolution(federation, p.evolution, p.scoring, rng, p.depth)
        population, scoring = evolution.run(), evolution.scoring
        federation.ask_offered(KeepBest(population, scoring, p.choice))
        return LearnedTree(
            population.depth,
            candidates=population,
            elitism=evolution.elitism,
            scored_on=scoring.held,
            history=evolution.history,
        )


def published(epsilon: Number) -> Policy:
    """Return a policy with noise on the clients' sizes only (paper, Section III-E); the rest is unprotected."""
    kinds = (Depth, Structure, Votes, Fitness)
    guards: dict[str, tuple[Guard, ...]] = {kind.kind: (Guard.of("open"),) for kind in kinds}
    guards[Size.kind] = (Guard.of("laplace", spend=epsilon, times=1),)
    guards[KeepBest.kind] = ()
    return Policy(guards, name="published")
