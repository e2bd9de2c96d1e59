"""The server's side of the paper's protocol: a population evolves by what clients say of it."""

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

#: What is told when nobody scores any more.
SILENCE = "nobody scored candidates after generation {}: the search ends there"


@dataclass(frozen=True)
class GeneticParams:
    """The server's input (paper, Table II); see :class:`.GeneticTreeClassifier` for each."""

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
    """Candidates, their fitness (the greater the better), and which are the clients' own."""

    genes: np.ndarray
    fitness: np.ndarray
    elite: np.ndarray

    def join(self, other: ScoredPopulation) -> ScoredPopulation:
        """Both, in this order."""
        return ScoredPopulation(
            np.concatenate([self.genes, other.genes]),
            np.concatenate([self.fitness, other.fitness]),
            np.concatenate([self.elite, other.elite]),
        )

    def take(self, rows: np.ndarray) -> ScoredPopulation:
        """Some of them."""
        return ScoredPopulation(self.genes[rows], self.fitness[rows], self.elite[rows])


@dataclass
class Evolution:
    """One run of the protocol; `depth` is None where the clients are asked for it."""

    federation: Disclosure
    params: GeneticParams
    scoring: Scoring
    rng: np.random.Generator
    depth: int | None = None
    elitism: bool = False
    #: Released sizes, and so the clients that have taken part.
    sizes: dict[str, float] = field(default_factory=dict)
    #: The best fitness and the mean one after each generation.
    history: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> Population:
        """Evolve; the fittest candidates, best first."""
        active = self._active()
        self.depth = self.depth or self._agreed_depth(active)
        if not self.scoring.classify:
            self._hear_votes(active)
        own = self._join(active)
        missing = max(self.params.population - len(own.genes), 0)
        pool, offspring = self._random(0), self._random(missing).join(own)
        for _ in range(self.params.generations):
            scored = self._scored(offspring)
            if np.isnan(scored.fitness).all():
                warnings.warn(SILENCE.format(len(self.history)), Note, stacklevel=2)
                break
            pool = self._survive(pool.join(scored))
            offspring = self._bred(pool)
        return Population.of((pool if len(pool.genes) else offspring).genes, self.depth)

    # --- what clients say before -------------------------------------------------------------

    def _active(self) -> list[str]:
        """The clients of one round, drawn anew; in the federation's order."""
        clients = self.federation.clients
        size = max(1, round(self.params.participation * len(clients)))
        drawn = self.rng.choice(len(clients), size, replace=False)
        return [clients[number] for number in sorted(drawn)]

    def _agreed_depth(self, clients: Sequence[str]) -> int:
        """The median of the clients' depths, rounded down."""
        asked = Depth(self.scoring, self.params.lowest, self.params.deepest)
        told = self.federation.ask(asked, clients=clients).each("depth").values()
        median = int(np.median([float(np.asarray(each)[0]) for each in told]))
        return min(max(median, self.params.lowest), self.params.deepest)

    def _hear_votes(self, clients: Sequence[str]) -> None:
        """Score on all records, keep the clients' structures, where more than half say so."""
        limits = self.params.lowest, self.params.deepest
        assert self.depth is not None
        if not limits[0] <= self.depth <= limits[1]:
            return
        asked = Votes(self.scoring, self.depth, *limits, self.params.votes)
        told = self.federation.ask_offered(asked, clients=clients).each("votes").values()
        if not told:
            return
        everywhere, elitism = np.mean([np.asarray(each) for each in told], axis=0) > 0.5
        if everywhere and self.scoring.held == "share":
            self.scoring = replace(self.scoring, held="none")
        self.elitism = bool(elitism)

    def _join(self, clients: Sequence[str]) -> ScoredPopulation:
        """Hear of clients that take part for the first time: their sizes and own structures."""
        assert self.depth is not None
        new = [client for client in clients if client not in self.sizes]
        if not new:
            return self._random(0)
        asked = Size(), Structure(self.scoring, self.depth)
        size, own = self.federation.ask_offered(*asked, clients=new)
        for client, told in size.each("size").items():
            self.sizes[client] = max(float(np.asarray(told)[0]), 1.0)
        for client in own.releases:  # without a size a client weighs as little as one record
            self.sizes.setdefault(client, 1.0)
        features = len(self.federation.schema.features)
        rows = [_own(np.asarray(each), self.depth, features) for each in own.each("nodes").values()]
        return self._pool(np.concatenate([self._random(0).genes, *rows]), elite=True)

    # --- a generation ------------------------------------------------------------------------

    def _scored(self, offspring: ScoredPopulation) -> ScoredPopulation:
        """Ask active clients to score; those new to it bring their own structure and its score."""
        assert self.depth is not None
        active = self._active()
        joined = {client: self._join([client]) for client in active if client not in self.sizes}
        scored = replace(offspring, fitness=self._fitness(offspring, active))
        for client, own in joined.items():
            scored = scored.join(replace(own, fitness=self._fitness(own, [client])))
        return scored

    def _fitness(self, pool: ScoredPopulation, clients: Sequence[str]) -> np.ndarray:
        """Means over clients, weighted by their released sizes; NaN where nobody told."""
        assert self.depth is not None
        if not len(pool.genes):
            return pool.fitness
        asked = Fitness(Population.of(pool.genes, self.depth), self.scoring)
        told = self.federation.ask_offered(asked, clients=clients).each("scores")
        if not told:
            return pool.fitness
        weights = [self.sizes.get(client, 1.0) for client in told]
        return np.asarray(np.average([np.asarray(each) for each in told.values()], 0, weights))

    def _survive(self, pool: ScoredPopulation) -> ScoredPopulation:
        elite = pool.elite if self.elitism else np.zeros_like(pool.elite)
        assert self.depth is not None
        size = self.params.population
        alive = pool.take(operators.survivors(pool.genes, pool.fitness, size, self.depth, elite))
        self.history.append((float(alive.fitness.max()), float(alive.fitness.mean())))
        return alive

    def _bred(self, pool: ScoredPopulation) -> ScoredPopulation:
        """The next offspring: tournaments, crossover, one kind of mutation."""
        params, features = self.params, len(self.federation.schema.features)
        winners = operators.tournaments(pool.fitness, params.population, params.pressure, self.rng)
        children = operators.crossover(pool.genes[winners], self.rng)
        return self._pool(
            operators.mutate(children, features, params.flips, params.swaps, self.rng)
        )

    def _random(self, count: int) -> ScoredPopulation:
        features = len(self.federation.schema.features)
        assert self.depth is not None
        leaves = self.params.leaves
        return self._pool(random_structures(count, self.depth, features, leaves, self.rng))

    def _pool(self, genes: np.ndarray, elite: bool = False) -> ScoredPopulation:
        return ScoredPopulation(genes, np.full(len(genes), np.nan), np.full(len(genes), elite))


def _own(nodes: np.ndarray, depth: int, features: int) -> np.ndarray:
    """A client's structure, or none where what it sent is no tree; shape (0 or 1, 2^depth - 1)."""
    known = 1 <= len(nodes) <= length(depth) and nodes.min() >= 0
    if known and nodes.max() <= features and positions(nodes, depth)[-1] == length(depth):
        return unpack(nodes, depth)
    return np.empty((0, length(depth)), dtype=np.int16)
