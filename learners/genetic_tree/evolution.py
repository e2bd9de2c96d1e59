"""The server's side of the paper's protocol: a population evolves by clients' scores."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privfed.errors import Note
from privfed.exchange.disclosure import Disclosure
from privfed.learners.genetic_tree import local, operators
from privfed.learners.genetic_tree.population import Population, Scoring
from privfed.learners.genetic_tree.queries import Depth, Fitness, Size, Structure, Votes
from privfed.learners.genetic_tree.structures import length, positions, random_structures, unpack

SILENCE = "no client scored candidates after generation {}: the search ends there"  #: A note


@dataclass(frozen=True)
class GeneticParams:
    """The server's input (paper, Table II); see :class:`.GeneticTreeClassifier`."""

    population: int
    generations: int
    lowest: int
    deepest: int
    leaves: float
    pressure: int
    flips: float
    swaps: float
    participation: float
    votes: local.VoteThresholds


@dataclass(eq=False)
class ScoredPopulation:
    """Candidates, their fitness (higher is better), and which are the clients' own."""

    genes: np.ndarray
    fitness: np.ndarray
    elite: np.ndarray

    def join(self, other: ScoredPopulation) -> ScoredPopulation:
        """Concatenate both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return ScoredPopulation(*map(np.concatenate, pairs))

    def take(self, rows: np.ndarray) -> ScoredPopulation:
        """Select rows."""
        return ScoredPopulation(self.genes[rows], self.fitness[rows], self.elite[rows])


@dataclass
class Evolution:
    """One run of the protocol; `depth` is None if clients are queried for it."""

    federation: Disclosure
    params: GeneticParams
    scoring: Scoring
    rng: np.random.Generator
    depth: int | None = None
    elitism: bool = False
    #: Released sizes by client that has taken part.
    sizes: dict[str, float] = field(default_factory=dict)
    #: Best and mean fitness after each generation.
    history: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> Population:
        """Evolve, and return the fittest candidates, best first."""
        active = self._active()
        self.depth = self.depth or self._agreed_depth(active)
        if not self.scoring.classify:
            self._count_votes(active)
        local_trees = self._join(active)
        missing = max(self.params.population - len(local_trees.genes), 0)
        pool, offspring = self._random(0), self._random(missing).join(local_trees)
        for _ in range(self.params.generations):
            scored = self._evaluate(offspring)
            if np.isnan(scored.fitness).all():
                warnings.warn(SILENCE.format(len(self.history)), Note, stacklevel=2)
                break
            pool = self._survive(pool.join(scored))
            offspring = self._breed(pool)
        return Population.of((pool if len(pool.genes) else offspring).genes, self.depth)

    # --- before the first generation -------------------------------------------------------------

    def _active(self) -> list[str]:
        """Draw the clients of one round, in the federation's order."""
        clients = self.federation.clients
        size = max(1, round(self.params.participation * len(clients)))
        drawn = self.rng.choice(len(clients), size, replace=False)
        return [clients[number] for number in sorted(drawn)]

    def _agreed_depth(self, clients: Sequence[str]) -> int:
        """Query clients' depths, and return their median, rounded down."""
        query = Depth(self.scoring, self.params.lowest, self.params.deepest)
        depths = self.federation.ask(query, clients=clients).each("depth").values()
        median = int(np.median([float(np.asarray(depth)[0]) for depth in depths]))
        return min(max(median, self.params.lowest), self.params.deepest)

    def _count_votes(self, clients: Sequence[str]) -> None:
        """Decide by majority whether to score on all records, and whether to keep the clients' structures."""
        limits = self.params.lowest, self.params.deepest
        assert self.depth is not None
        if not limits[0] <= self.depth <= limits[1]:
            return
        query = Votes(self.scoring, self.depth, *limits, self.params.votes)
        votes = self.federation.ask_offered(query, clients=clients).each("votes").values()
        if not votes:
            return
        everywhere, elitism = np.mean([np.asarray(vote) for vote in votes], axis=0) > 0.5
        if everywhere and self.scoring.held == "share":
            self.scoring = replace(self.scoring, held="none")
        self.elitism = bool(elitism)

    def _join(self, clients: Sequence[str]) -> ScoredPopulation:
        """Query new clients' sizes and own structures."""
        assert self.depth is not None
        new = [client for client in clients if client not in self.sizes]
        if not new:
            return self._random(0)
        queries = Size(), Structure(self.scoring, self.depth)
        sizes, structures = self.federation.ask_offered(*queries, clients=new)
        for client, size in sizes.each("size").items():
            self.sizes[client] = max(float(np.asarray(size)[0]), 1.0)
        for client in structures.releases:  # without a size, a client has the weight of one record
            self.sizes.setdefault(client, 1.0)
        rows = [self._unpack(np.asarray(nodes)) for nodes in structures.each("nodes").values()]
        return self._pool(np.concatenate([self._random(0).genes, *rows]), elite=True)

    def _unpack(self, nodes: np.ndarray) -> np.ndarray:
        """Return a client's structure, empty if it is not a tree; shape (0 or 1, 2^depth - 1)."""
        assert self.depth is not None
        genes, features = length(self.depth), len(self.federation.schema.features)
        valid = 1 <= len(nodes) <= genes and nodes.min() >= 0 and nodes.max() <= features
        index = positions(nodes, self.depth) if valid else np.array([-1])
        if index[-1] == genes:
            return unpack(nodes, index, self.depth)
        return np.empty((0, genes), dtype=np.int16)

    # --- a generation ------------------------------------------------------------------------

    def _evaluate(self, offspring: ScoredPopulation) -> ScoredPopulation:
        """Query active clients' scores; new clients also add their own structures."""
        active = self._active()
        joined = {client: self._join([client]) for client in active if client not in self.sizes}
        scored = replace(offspring, fitness=self._fitness(offspring, active))
        for client, pool in joined.items():
            scored = scored.join(replace(pool, fitness=self._fitness(pool, [client])))
        return scored

    def _fitness(self, pool: ScoredPopulation, clients: Sequence[str]) -> np.ndarray:
        """Return means over clients, weighted by their released sizes; NaN without a reply."""
        assert self.depth is not None
        if not len(pool.genes):
            return pool.fitness
        query = Fitness(Population.of(pool.genes, self.depth), self.scoring)
        scores = self.federation.ask_offered(query, clients=clients).each("scores")
        if not scores:
            return pool.fitness
        weights = [self.sizes.get(client, 1.0) for client in scores]
        return np.asarray(np.average([np.asarray(reply) for reply in scores.values()], 0, weights))

    def _survive(self, pool: ScoredPopulation) -> ScoredPopulation:
        elite = pool.elite if self.elitism else np.zeros_like(pool.elite)
        assert self.depth is not None
        size = self.params.population
        alive = pool.take(operators.survivors(pool.genes, pool.fitness, size, self.depth, elite))
        self.history.append((float(np.nanmax(alive.fitness)), float(np.nanmean(alive.fitness))))
        return alive

    def _breed(self, pool: ScoredPopulation) -> ScoredPopulation:
        """Return the next offspring: tournaments, crossover, one kind of mutation."""
        p, features = self.params, len(self.federation.schema.features)
        winners = operators.tournaments(pool.fitness, p.population, p.pressure, self.rng)
        children = operators.crossover(pool.genes[winners], self.rng)
        return self._pool(operators.mutate(children, features, p.flips, p.swaps, self.rng))

    def _random(self, count: int) -> ScoredPopulation:
        assert self.depth is not None
        features, leaves = len(self.federation.schema.features), self.params.leaves
        return self._pool(random_structures(count, self.depth, features, leaves, self.rng))

    def _pool(self, genes: np.ndarray, elite: bool = False) -> ScoredPopulation:
        return ScoredPopulation(genes, np.full(len(genes), np.nan), np.full(len(genes), elite))
