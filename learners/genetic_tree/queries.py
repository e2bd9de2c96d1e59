"""The queries of the genetic algorithm (paper, Algorithm 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.fitness import scores
from privfed.learners.genetic_tree.local_subtrees import Shared, choose_below
from privfed.learners.genetic_tree.personal import Choice, PersonalTree, choose
from privfed.learners.genetic_tree.population import Population, Scoring, check_depth, classes
from privfed.learners.genetic_tree.structures import DEEPEST, pack
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import LocalEffect, LocalView, Query, View
from privfed.questions.tree import Tree
from privfed.tables.schema import Schema

SHELF = "genetic_tree"  #: Name of a client's own tree on its shelf
MOST_SHARED = 2**8  #: Maximum nodes of a shared tree, as clients grow subtrees below each


@dataclass(frozen=True)
class Size(Query):
    """How many records a client has (paper, Algorithm 1, step 7).

    Sensitivity: adding or removing a record changes it by one; replacing one does not change it.
    """

    kind: ClassVar[str] = "genetic_tree.size"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``size``."""
        bounds = Sensitivity(Bound(1, 1), replace_one=Bound(0, 0))
        return {"size": Part(PartType.COUNTS, ("client",), (1,), bounds)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count."""
        return {"size": np.array([len(view.table)], dtype=np.int64)}


@dataclass(frozen=True)
class Depth(Query):
    """The depth of a client's own tree by cross-validation (paper, Algorithm 1, step 6).

    Sensitivity: none of use; one record can change the best depth from one end to the other.
    """

    scoring: Scoring
    lowest: int
    deepest: int
    kind: ClassVar[str] = "genetic_tree.depth"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``depth``."""
        self.scoring.check(schema)
        _check_depths(self.lowest, self.deepest)
        return {"depth": Part(PartType.VALUES, ("client",), (1,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Cross-validate."""
        depths = range(self.lowest, self.deepest + 1)
        client = Client.of(view, self.scoring.classify)
        best = client.local_depth(self.scoring.folds, depths)
        return {"depth": np.array([float(best)])}


@dataclass(frozen=True)
class Structure(Query):
    """The features of a client's own tree (paper, Algorithm 1, steps 12 and 30).

    Sensitivity: none is finite; one record can change every node.
    """

    scoring: Scoring
    depth: int
    kind: ClassVar[str] = "genetic_tree.structure"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``nodes``, a feature's number plus one each, 0 for the end of a branch; pre-order."""
        self.scoring.check(schema)
        check_depth(self.depth)
        return {"nodes": Part(PartType.ARTIFACT, ("node",), (-1,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Grow the tree on all records."""
        client = Client.of(view, self.scoring.classify)
        genes = local.structure(client.x, client.y, client.classes, self.depth)
        return {"nodes": pack(genes[None], self.depth)}


@dataclass(frozen=True)
class Votes(Query):
    """Votes on how to score and whom to keep, for regression (paper, Eqs. 1 and 2).

    Sensitivity: none of use for the first; the second may change with one record.
    """

    scoring: Scoring
    depth: int
    lowest: int
    deepest: int
    rule: local.VoteThresholds
    kind: ClassVar[str] = "genetic_tree.votes"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``votes``: on scoring on all records, and on elitism; 0 or 1 each."""
        self.scoring.check(schema)
        _check_depths(self.lowest, self.deepest)
        if not self.lowest <= self.depth <= self.deepest or self.scoring.classify:
            raise QueryError("malformed", "votes are for numbers, at one of the depths tried")
        return {"votes": Part(PartType.VALUES, ("vote",), (2,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Vote."""
        client = Client.of(view, classify=False)
        scores = client.depth_scores(self.scoring.folds, range(self.lowest, self.deepest + 1))
        votes = local.vote(scores, client.y, self.depth - self.lowest, self.rule)
        return {"votes": np.array(votes, dtype=float)}


@dataclass(frozen=True, eq=False)
class Fitness(Query):
    """How well each candidate does at a client, fitted to its records (paper, Section III-B).

    Sensitivity: none of use. Thresholds and labels are refitted, so that one record may change
    every prediction: even the number of correct ones may change by all of them.
    """

    population: Population
    scoring: Scoring
    kind: ClassVar[str] = "genetic_tree.fitness"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``scores`` by candidate, higher is better."""
        self.scoring.check(schema)
        self.population.check(schema)
        return {"scores": Part(PartType.VALUES, ("candidate",), (self.population.count,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Fit and score."""
        client = Client.of(view, self.scoring.classify)
        trie = client.trie(self.scoring, self.population.depth)
        return {"scores": scores(trie, self.population.genes, self.scoring.bounded)}


@dataclass(frozen=True, eq=False)
class KeepBest(LocalEffect):
    """Choose the best candidate, fit it, keep it (paper, Algorithm 1, steps 45 to 49).

    Nothing is released. The tree, which only its owner can read, discloses thresholds between
    values of single records, and leaves as small as one record.
    """

    population: Population
    scoring: Scoring
    choice: Choice
    kind: ClassVar[str] = "genetic_tree.keep"

    def check(self, schema: Schema) -> None:
        """Check that the candidates are trees of the schema's features."""
        self.scoring.check(schema)
        self.population.check(schema)
        _check_depths(self.choice.lowest, self.choice.deepest)
        _check_leaves(self.choice.leaves)

    def take_effect(self, view: LocalView) -> None:
        """Store the client's own tree on its shelf."""
        client = Client.of(view, self.scoring.classify)
        chosen = choose(client, self.population, self.scoring, self.choice)
        view.shelf[SHELF] = _cut(chosen, client, self.choice.leaves).to_dict()


@dataclass(frozen=True, eq=False)
class KeepBelow(LocalEffect):
    """Choose a level of a released tree and what to grow below it; keep the whole.

    Nothing is released; the stored tree discloses to its owner what it does for :class:`KeepBest`.
    """

    tree: Tree  #: grown from released counts
    #: its nodes' released values: class fractions, or a mean; shape (nodes, classes or 1)
    values: np.ndarray
    scoring: Scoring  #: classes or numbers, and the folds by which the client chooses
    lowest: int  #: minimum depth of the client's own tree
    deepest: int  #: maximum depth of local subtrees
    leaves: int = 0  #: maximum leaves of the stored tree; 0 for no limit
    kind: ClassVar[str] = "genetic_tree.keep_below"

    def check(self, schema: Schema) -> None:
        """Check the tree against the schema, its values against its nodes, and the sizes of both."""
        self.tree.check(schema)
        self.scoring.check(schema)
        _check_depths(self.lowest, self.deepest)
        _check_leaves(self.leaves)
        if self.tree.children.shape[1] != 2 or self.tree.categories.size:
            raise QueryError("malformed", "the tree must be binary, without lists of categories")
        if len(self.tree.feature) > MOST_SHARED or self.tree.depth > DEEPEST:
            raise QueryError("malformed", f"at most {MOST_SHARED} nodes can be shared")
        outputs = classes(schema) if self.scoring.classify else 1
        fits = self.values.shape == (len(self.tree.feature), outputs)
        if not fits or self.values.dtype != np.float64 or not np.isfinite(self.values).all():
            raise QueryError("malformed", "each node needs finite values")

    def take_effect(self, view: LocalView) -> None:
        """Store the client's own tree on its shelf."""
        client = Client.of(view, self.scoring.classify)
        shared, folds = Shared(self.tree, self.values), self.scoring.folds
        chosen = choose_below(client, shared, folds, self.lowest, self.deepest)
        view.shelf[SHELF] = _cut(chosen, client, self.leaves).to_dict()


def _cut(tree: PersonalTree, client: Client, leaves: int) -> PersonalTree:
    return tree.pruned(client.x, leaves) if leaves else tree


def _check_leaves(leaves: int) -> None:
    if leaves != 0 and not 2 <= leaves <= 2**DEEPEST:
        raise QueryError("malformed", "a kept tree has 2 leaves or more; 0 sets no limit")


def _check_depths(min_depth: int, max_depth: int) -> None:
    check_depth(min_depth)
    check_depth(max_depth)
    if min_depth > max_depth:
        raise QueryError("malformed", "the lowest depth is above the deepest")
