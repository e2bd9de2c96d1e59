"""A client's own tree: thresholds and leaves over its own records. It never leaves the client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from privfed.errors import InputError, QueryError
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.fitness import of_numbers, scores
from privfed.learners.genetic_tree.population import Population, Scoring, classes
from privfed.learners.genetic_tree.settings import SETTINGS
from privfed.learners.genetic_tree.structures import NIL, length
from privfed.learners.genetic_tree.trie import Trie
from privfed.questions.tree import Tree, cuts_of_thresholds, number_text
from privfed.tables.schema import Schema, shown


@dataclass(frozen=True, eq=False)
class PersonalTree:
    """A fitted tree."""

    tree: Tree  #: features and cuts
    #: of each node: class fractions, or a mean; shape (nodes, classes or 1)
    values: np.ndarray
    source: str  #: ``federation``, or ``own`` if the client grew it alone
    #: weights of the classes in labels; empty for equal ones
    weights: np.ndarray | None = None

    @classmethod
    def of_candidate(cls, trie: Trie, genes: np.ndarray, root: int = 0) -> Self:
        """Build from a fitted candidate, a string of shape (2^depth - 1,); `root` is the fit's index."""
        rows: list[tuple[int, float, int, int]] = []
        nodes: list[int] = []

        def add(node: int, pos: int, span: int) -> int:
            gene, number = (int(genes[pos]) if span else NIL), len(nodes)
            children = trie.children(node, gene) if gene != NIL else None
            nodes.append(node)
            rows.append((NIL, 0.0, NIL, NIL))
            if children is not None:
                left, right, threshold = children
                sides = add(left, pos + 1, span // 2), add(right, pos + 1 + span // 2, span // 2)
                rows[number] = (gene, float(np.nextafter(threshold, np.inf)), *sides)
            return number

        add(root, 0, length(trie.depth))
        tree = Tree.binary(*(np.array(column) for column in zip(*rows, strict=True)))
        return cls(tree, _values(trie, np.array(nodes)), "federation")

    @classmethod
    def of_nodes(cls, nodes: np.ndarray, source: str) -> Self:
        """Build from a tree of :func:`local.cart`."""
        cuts = cuts_of_thresholds(nodes["cut"])
        tree = Tree.binary(nodes["feature"], cuts, nodes["left"], nodes["right"])
        values = nodes["values"]
        if values.shape[1] > 1:
            values = succession(values * nodes["size"][:, None])
        return cls(tree, values, source)

    @property
    def decisions(self) -> int:
        """The number of decision nodes."""
        return int((self.tree.feature >= 0).sum())

    def pruned(self, X: np.ndarray, leaves: int) -> Self:
        """Merge leaves until there are at most ``leaves``, by the smallest increase of squared error at ``X``.

        A merged node has the mean of its leaves, weighted by their records in ``X``, shape (records, features).
        """
        children, values = np.array(self.tree.children), np.array(self.values)
        feature, sizes = np.array(self.tree.feature), np.full(len(self.tree.feature), 1e-9)
        sizes += np.bincount(self.tree.reach(X), minlength=len(sizes))
        inner = np.flatnonzero(feature >= 0)
        for node in inner[::-1]:
            pair = children[node]
            sizes[node] = sizes[pair].sum()
            values[node] = sizes[pair] @ values[pair] / sizes[node]
        while len(inner) >= max(leaves, 1):
            ends = inner[(feature[children[inner]] < 0).all(axis=1)]
            pairs = children[ends]
            squares = ((values[pairs] - values[ends][:, None]) ** 2).sum(axis=2)
            node = ends[int((sizes[pairs] * squares).sum(axis=1).argmin())]
            feature[node], children[node] = -1, -1
            inner = inner[inner != node]
        kept, cuts = [0], self.tree.cuts[:, 0]
        for node in kept:
            kept += [int(child) for child in children[node] if child >= 0]
        number = np.full(len(feature) + 1, NIL)
        number[kept] = np.arange(len(kept))
        left, right = number[children[kept]].T
        tree = Tree.binary(
            feature[kept], np.where(feature[kept] >= 0, cuts[kept], 0.0), left, right
        )
        return replace(self, tree=tree, values=values[kept])

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the value of each row's leaf, shape (rows, classes or 1)."""
        return np.asarray(self.values[self.tree.reach(X)])

    def weighed(self, values: np.ndarray) -> np.ndarray:
        """Return weighted class fractions, the largest of which is the label."""
        return values if self.weights is None else values * self.weights

    def to_text(self, schema: Schema, classes: Sequence[Any] = ()) -> str:
        """Format the tree, a line per branch."""
        width = np.ptp(schema.columns[-1].bounds)
        return self.tree.to_text(schema, lambda node: self.leaf_text(node, classes, width))

    def leaf_text(self, node: int, classes: Sequence[Any] = (), width: float = np.inf) -> str:
        """Format a leaf: its label with the class's fraction, ``yes (0.83)``, or its mean, for a target's ``width``."""
        row = self.values[node]
        if not len(classes):
            return number_text(float(row[0]), width)
        label = int(self.weighed(row).argmax())
        fraction = f"{row[label]:.3g}" if row[label] < 0.9995 else "> 0.999"
        return f"{shown(str(classes[label]))} ({fraction})"

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain data."""
        names = ("feature", "children", "cuts")
        cuts = np.where(np.isfinite(self.tree.cuts), self.tree.cuts, 0.0)
        arrays = {name: getattr(self.tree, name).tolist() for name in names[:2]}
        return {
            **arrays,
            "cuts": cuts.tolist(),
            "values": self.values.tolist(),
            "source": self.source,
            "weights": [] if self.weights is None else self.weights.tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the output of :meth:`to_dict`."""
        feature = np.array(data["feature"], dtype=np.int64)
        children = np.array(data["children"], dtype=np.int64)
        cuts = np.array(data["cuts"], dtype=float)[:, 0]
        tree = Tree.binary(feature, cuts, children[:, 0], children[:, 1])
        weights = np.array(data["weights"], dtype=float) if data["weights"] else None
        return cls(tree, np.array(data["values"], dtype=float), str(data["source"]), weights)

    @classmethod
    def checked(cls, data: Mapping[str, Any], schema: Schema, classify: bool) -> Self:
        """Read the output of :meth:`to_dict`, a tree over this schema with finite values (else ValueError, QueryError)."""
        tree = cls.from_dict(data)
        tree._hold_to(schema, classes(schema) if classify else 1)
        return tree

    @classmethod
    def off_shelf(cls, data: Any, schema: Schema, classify: bool) -> Self:
        """Read the output of :meth:`to_dict` from a shelf, which may be another federation's or damaged.

        Args:
            data: the stored data.
            schema: the model's.
            classify: whether each node has a value for each class, else one.

        Raises:
            InputError: it is no tree over that schema; the message has none of its values.
        """
        try:
            return cls.checked(data, schema, classify)
        except (LookupError, TypeError, ValueError, OverflowError, QueryError):
            raise InputError(
                "the shelf keeps no tree over this model's schema; take home the shelf of the "
                "federation that the model was fitted on"
            ) from None

    def _hold_to(self, schema: Schema, outputs: int) -> None:
        self.tree.check(schema)
        fits = self.values.shape == (len(self.tree.feature), outputs)
        weighted = self.weights is None or self.weights.shape == (outputs,)
        if not (fits and weighted and np.isfinite(self.values).all()):
            raise ValueError("each node needs finite values, one for each class")


def succession(counts: np.ndarray) -> np.ndarray:
    """Return class fractions by Laplace's rule of succession, from counts of shape (nodes, classes).

    Labels are unchanged, but no class has probability zero because a small leaf lacks it.
    """
    return np.asarray((counts + 1) / (counts + 1).sum(axis=1, keepdims=True))


def _values(trie: Trie, nodes: np.ndarray) -> np.ndarray:
    """Return class fractions, or means in the target's units; shape (nodes, classes or 1)."""
    sums, table = trie.fitted(nodes), trie.table
    if table.classes:
        return succession(sums)
    return np.asarray(table.centre + table.unit * sums[:, [1]] / np.maximum(sums[:, [0]], 1))


@dataclass(frozen=True)
class Choice:
    """How a client chooses its tree in the end."""

    own: bool = False  #: whether the tree that it grew alone is a choice
    #: whether the chosen structure is refitted to all of its records; always if candidates were
    #: scored by folds, which have no single fit
    refit: bool = False
    lowest: int = 2  #: minimum depth of its own tree
    deepest: int = 15  #: of those
    leaves: int = 0  #: that the kept tree has at most; 0 for no limit


def _stays(
    client: Client, trie: Trie, scoring: Scoring, depth: int, genes: np.ndarray, score: float
) -> bool:
    """Whether the own tree is chosen instead of the best candidate.

    For numbers, unless the candidate is better by a standard error: the best of many is overestimated.
    """
    true, alone = client.held_out_predictions(scoring, depth)
    if client.classes:
        return local.f1(true, alone, client.classes) > score * (1 + SETTINGS.own_margin)
    fits = enumerate(client.roots(scoring))
    trees = [(PersonalTree.of_candidate(trie, genes, n), rows) for n, (_, rows) in fits]
    predicted = [tree.predict(client.x[rows])[:, 0] for tree, rows in trees]
    return not SETTINGS.number_rule.accepts(of_numbers(true, alone, np.concatenate(predicted)))


def choose(client: Client, population: Population, scoring: Scoring, rule: Choice) -> PersonalTree:
    """Return a client's best candidate, fitted; ties: the one with the best overall fitness."""
    trie = client.trie(scoring, population.depth)
    fitness = scores(trie, population.genes)
    best = int(fitness.argmax())
    if rule.own and len(client.y):
        depths = range(rule.lowest, rule.deepest + 1)
        depth = client.local_depth(scoring.folds, depths)
        if _stays(client, trie, scoring, depth, population.genes[best], float(fitness[best])):
            nodes = local.cart(client.x, client.y, client.classes, depth)
            return PersonalTree.of_nodes(nodes, "own")
    if rule.refit or scoring.held == "folds":
        rows = np.arange(len(client.y))
        trie = Trie(client.table, [(rows, rows)], population.depth)
    return PersonalTree.of_candidate(trie, population.genes[best])
