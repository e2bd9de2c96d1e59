"""The paper's protocol: quantiles and counts of every level's open nodes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.forest.columns import TARGET_GRID, note_far_from_zero
from privfed.learners.forest.growth import MOST_CELLS, ForestGrower, ForestParams, Grown
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.model import FittedForest, ForestModel
from privfed.learners.forest.out_of_bag import OutOfBag, score
from privfed.learners.forest.queries import BinStatistics, LocalGains, Shortlist, Sketches
from privfed.learners.forest.samples import Sampling
from privfed.learners.forest.trees import BinaryTrees, category_sizes
from privfed.learners.impurity import sizes
from privfed.learners.ways import Way
from privfed.questions.query import Query
from privfed.tables.schema import Schema

MOST_TIMES = 1_000_000  #: Maximum number of queries of a kind that a plan states


@dataclass(frozen=True, eq=False)
class LearnedForest:
    """The result of either way."""

    model: ForestModel  #: the forest
    rounds: int  #: rounds of queries
    #: accuracy or R^2; NaN if not requested, or withheld
    oob_score: float = float("nan")


class PublishedForest(Way[ForestParams, LearnedForest]):
    """A forest grown level by level from the clients' quantiles and counts."""

    name = "published"
    queries: ClassVar[tuple[type[Query], ...]] = (
        Sketches,
        BinStatistics,
        LocalGains,
        Shortlist,
        OutOfBag,
    )

    def first(self, schema: Schema) -> Query:
        """See the base."""
        p, level = self.params, _roots(schema, self.params)
        if p.shortlist is not None:
            return Shortlist(level, p.quantiles, p.shortlist, p.criterion)
        return Sketches(level, p.quantiles, p.interpolate)

    def offered(self, federation: Disclosure) -> bool:
        """See the base; each client is queried about the trees that it takes part in."""
        queries = ForestGrower(federation, self.params).first_queries()
        return any(federation.offers(query, [client]) for client, query in queries)

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """Return two or three queries per level, more if a level's answer would be too large."""
        p, level = self.params, _roots(schema, self.params)
        cuts = np.zeros((len(level.numeric), max(p.quantiles - 1, 1)), np.float32)
        times = _rounds(p, len(schema.features))
        planned = [Planned(Sketches(level, p.quantiles, p.interpolate), times)]
        if p.shortlist is not None:
            planned.append(Planned(self.first(schema), times))
        if p.averaged:
            planned.append(Planned(LocalGains(level, cuts, p.criterion), times))
        planned.append(Planned(BinStatistics(level, cuts), times))
        if p.oob_score:
            values = np.zeros((p.trees, p.classes or 1), np.float32)
            planned.append(Planned(OutOfBag(level.trees, level.sampling, values), 1))
        return planned

    def learn(self, federation: Disclosure, rng: np.random.Generator) -> LearnedForest:
        """See the base; the draws depend on ``params.seed``."""
        note_far_from_zero(federation.schema)
        grower = ForestGrower(federation, self.params)
        forest = self._fitted(grower.grow(), federation)
        if not self.params.oob_score:
            return LearnedForest(forest, grower.rounds)
        return LearnedForest(forest, grower.rounds, _ask_out_of_bag(federation, grower, forest))

    def _fitted(self, grown: Grown, federation: Disclosure) -> FittedForest:
        """Set every node's value; a node without records has its parent's."""
        criterion = self.params.criterion
        pooled = grown.totals.sum(axis=0).astype(float)
        size = np.asarray(sizes(pooled, criterion))
        parents = grown.trees.parents()
        source = np.arange(len(size))
        while (empty := (size[source] <= 0) & (parents[source] != source)).any():
            source[empty] = parents[source[empty]]
        totals, size = pooled[source], np.maximum(size[source], 1)[:, None]
        numbers = criterion == "squared_error"
        values = totals[:, 1:] / size * float(TARGET_GRID) if numbers else totals / size
        by_client = np.asarray(sizes(grown.totals, criterion))
        clients = tuple(federation.clients)
        return FittedForest(grown.trees, values, by_client, federation.schema, clients, criterion)


def _ask_out_of_bag(federation: Disclosure, grower: ForestGrower, forest: FittedForest) -> float:
    """Query each client about the trees that it took part in; NaN if no client answers."""
    queries: dict[str, list[Query]] = {}
    for number, client in enumerate(federation.clients):
        member = grower.members[number]
        if member.any():
            trees, nodes = forest.seen_by(number).only(member)
            sampling = replace(grower.sampling, trees=grower.sampling.trees[member])
            queries[client] = [OutOfBag(trees, sampling, forest.values[nodes].astype(np.float32))]
    totals: dict[str, float] = {}
    with suppress(NobodyAnswered):
        for answer in federation.ask(queries):
            for part in ("records", "correct", "errors", "sums", "squares"):
                if part in answer:
                    totals[part] = totals.get(part, 0.0) + float(answer.total(part).sum())
    return score(totals)


def _roots(schema: Schema, params: ForestParams) -> OpenNodes:
    """Return the first level: the roots, with their first features."""
    roots = np.arange(params.trees, dtype=np.int64)
    first = np.arange(params.per_node)
    categorical = category_sizes(schema)[first] > 0
    numeric, grouped = (
        NodeFeatures(np.full(len(roots), len(features)), np.tile(features, len(roots)))
        for features in (first[~categorical], first[categorical])
    )
    sampling = Sampling(params.sampling, params.seed, roots, params.trees)
    trees = BinaryTrees.stumps(params.trees)
    return OpenNodes(trees, sampling, roots, numeric, grouped, params.classes)


def _rounds(params: ForestParams, features: int) -> int:
    """Return the maximum queries of a kind: every level, every second draw of features, every portion."""
    draws = -(-features // params.per_node)
    cells = params.trees * params.per_node * params.quantiles * params.width
    levels = sum(1 + cells * 2**depth // MOST_CELLS for depth in range(params.max_depth + 1))
    return int(min(draws * levels + 1, MOST_TIMES))
