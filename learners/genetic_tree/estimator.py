"""FedGA-Tree with scikit-learn's interface: each client gets its own tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.learners.base import FederatedClassifier, FederatedRegressor, PersonalLearner
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.evolution import GeneticParams
from privfed.learners.genetic_tree.local_subtrees import Shared
from privfed.learners.genetic_tree.personal import Choice, PersonalTree
from privfed.learners.genetic_tree.population import (
    MOST_FOLDS,
    MOST_GENES,
    Population,
    Scoring,
    classes,
)
from privfed.learners.genetic_tree.private_tree import TopPlan
from privfed.learners.genetic_tree.private_way import PrivateGeneticTree, private
from privfed.learners.genetic_tree.published import (
    GeneticTreeParams,
    LearnedTree,
    PublishedGeneticTree,
    published,
)
from privfed.learners.genetic_tree.queries import SHELF
from privfed.learners.genetic_tree.structures import DEEPEST, MOST_FEATURES, length
from privfed.learners.parameters import Boolean, Constraints, Integers, Reals, StrOptions, inherited
from privfed.learners.privacy_text import own_tree_text, privacy_text
from privfed.learners.ways import LearnerByWays, Ways
from privfed.privacy.policy import Policy
from privfed.questions.exact import Number
from privfed.questions.tree import number_text
from privfed.tables.schema import Schema, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMES = 20  #: Maximum clients listed in texts
_SHARE = Reals(at_least=0, at_most=1)
_DEPTH = Integers(1, DEEPEST)


class _GeneticTree(PersonalLearner, LearnerByWays):
    """Base class of the classifier and the regressor.

    Each client chooses and completes its own tree, which stays on its shelf. ``fit`` sets ``schema_``, ``clients_``,
    ``way_`` and ``private_`` (how it learned), ``depth_``, ``candidates_`` or ``shared_`` (the other is None),
    ``elitism_``, ``scored_on_`` and ``history_``.
    """

    ways: ClassVar[Ways] = (PublishedGeneticTree, PrivateGeneticTree)
    _parameter_constraints: ClassVar[Constraints] = {
        "population_size": [Integers(1), None],
        "generations": [Integers(1)],
        "depth": [_DEPTH, None],
        "min_depth": [_DEPTH],
        "max_depth": [_DEPTH],
        "cv": [Integers(2, MOST_FOLDS)],
        "train_size": [Reals(above=0, below=1)],
        "leaf_share": [_SHARE],
        "tournament_size": [Integers(1)],
        "flip_fraction": [_SHARE],
        "swap_fraction": [_SHARE],
        "client_fraction": [Reals(above=0, at_most=1)],
        "fitness": [StrOptions("share", "folds")],
        "include_local_tree": [Boolean()],
        "refit": [Boolean()],
        "max_leaf_nodes": [Integers(2, 2**DEEPEST), None],
        "shared_depth": [Integers(1, 7)],
        "n_bins": [Integers(2, 64)],
        "random_state": [Integers(0), None],
    }
    paper_settings: ClassVar[Mapping[str, Any]] = {}
    _classify: ClassVar[bool]
    _population: ClassVar[int]  #: Default of P (paper, Table II)

    shared_: Shared | None  #: The shared tree; None in the published way
    candidates_: Population | None  #: The last population, fittest first; None in the private way
    depth_: int  #: The agreed depth
    history_: list[tuple[float, float]]  #: Best and mean fitness after each generation

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        population_size: int | None = None,
        *,
        generations: int = 100,
        depth: int | None = None,
        min_depth: int = 2,
        max_depth: int = 15,
        cv: int = 5,
        train_size: float = 0.8,
        leaf_share: float = 0.01,
        tournament_size: int = 3,
        flip_fraction: float = 0.05,
        swap_fraction: float = 0.05,
        client_fraction: float = 1.0,
        fitness: str = "share",
        bounded: bool = False,
        include_local_tree: bool = False,
        refit: bool = False,
        max_leaf_nodes: int | None = None,
        shared_depth: int = 4,
        n_bins: int = 12,
        random_state: int | None = None,
    ) -> None:
        self._set(locals())

    # --- learning ------------------------------------------------------------------------------

    def _params(self, schema: Schema) -> GeneticTreeParams:
        size = self.population_size or self._population
        return GeneticTreeParams(
            GeneticParams(
                size,
                self.generations,
                self.min_depth,
                self.max_depth,
                self.leaf_share,
                self.tournament_size,
                self.flip_fraction,
                self.swap_fraction,
                self.client_fraction,
                local.VoteThresholds(),
            ),
            Scoring(self._classify, self.fitness, self.train_size, self.cv, self.bounded),
            Choice(
                self.include_local_tree,
                self.refit,
                self.min_depth,
                self.max_depth,
                self.max_leaf_nodes or 0,
            ),
            self.depth,
            self._top_plan(),
        )

    def _top_plan(self) -> TopPlan:
        return TopPlan(depth=self.shared_depth, bins=self.n_bins)

    def _keep(self, result: LearnedTree) -> None:
        for name, value in vars(result).items():
            setattr(self, f"{name}_", value)

    def check(self, schema: Schema) -> None:
        """Check that parameters are consistent, and that genes can represent the schema."""
        super().check(schema)
        if self.min_depth > self.max_depth:
            raise InputError(
                f"min_depth is {self.min_depth}, above max_depth, {self.max_depth}; write a min_depth of at most "
                f"{self.max_depth}, or a greater max_depth"
            )
        if len(schema.features) > MOST_FEATURES:
            raise InputError(f"structures name at most {MOST_FEATURES} features")
        size, depth = self.population_size or self._population, self.depth or self.max_depth
        if size * length(depth) > MOST_GENES:
            limit = MOST_GENES // length(depth)
            raise InputError(
                f"a population of {size} strings of depth {depth} is too large; write at most "
                f"population_size = {limit}, or a smaller max_depth"
            )

    # --- the clients' own trees ----------------------------------------------------------------

    def own(self, shelf: Mapping[str, Any]) -> PersonalTree:
        """Return a client's own tree from its shelf (KeyError: none; InputError: another schema's, or damaged)."""
        return PersonalTree.off_shelf(shelf[SHELF], self.schema_, self._classify)

    def describe(self, *, client: str | None = None) -> str:
        """Return a client's own tree as text; without a name the shared tree, if any, and the loaded clients.

        Raises:
            InputError: that client's tree was not loaded.
        """
        if client is not None:
            tree: PersonalTree = self.at_home(client)
            text = tree.to_text(self.schema_, self._labels)
            notes = tree.tree.notes(self.schema_.features) + self.schema_.fill_notes()
            notes.append(own_tree_text(client))
            return "\n".join([f"{self._heading(tree, client)}:", text, *notes])
        lines = []
        if (shared := self._shared_tree) is not None:
            lines = [f"{self._heading(shared)}:", shared.to_text(self.schema_, self._labels)]
            lines += shared.tree.notes(self.schema_.features) + self.schema_.fill_notes()
        known, others = self._here, [name for name in self.clients_ if name not in self._here]
        lines.append("Each client has a tree of its own, which stays with it.")
        if known:
            lines.append(
                f"describe(client={known[0]!r}) shows one of those read: {_listed(known)}."
            )
        if others:
            lines.append(
                f"take_home(client, shelf) reads one from the client's shelf; not read yet: {_listed(others)}."
            )
        return "\n".join([*lines, privacy_text(self.privacy_)])

    def plot(
        self, feature: str | None = None, *, client: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Plot a loaded client's tree, or without a name the shared tree."""
        if feature is not None:
            return super().plot(feature, ax=ax)
        from privfed.learners import pictures

        shared = self._shared_tree if client is None else None
        tree = self.at_home(client, "plot(client={client!r})") if shared is None else shared
        columns, labels = self.schema_.features, self._labels
        width = np.ptp(self.schema_.columns[-1].bounds)
        root = pictures.drawn(tree.tree, columns, lambda node: tree.leaf_text(node, labels, width))
        return pictures.titled(pictures.tree(ax, root), self._heading(tree, client))

    def to_html(self) -> str:
        """Return the shared tree, or only the text: a client's own tree is shown only by name."""
        return super().to_html() if self.shared_ else f"<pre>{escape(self.describe())}</pre>"

    @property
    def _shared_tree(self) -> PersonalTree | None:
        shared = self.shared_
        return None if shared is None else PersonalTree(shared.tree, shared.values, "shared")

    @property
    def _labels(self) -> tuple[str, ...]:
        """Return the classes' labels, empty for a number."""
        return tuple(shown(str(label)) for label in self.classes_) if self._classify else ()

    def _heading(self, tree: PersonalTree, client: str | None = None) -> str:
        """Return a heading: whose tree it is, how it was learned, and its leaves' meaning."""
        owner = "the tree that all share" if client is None else f"the tree of client {client!r}"
        together = "found together" if self.shared_ is None else "grown below the shared one"
        origins = {"own": ", which it grew alone", "federation": f", {together}"}
        splits = {0: "no split: one leaf for all", 1: "1 split"}
        name = shown(self.schema_.columns[-1].name)
        if self._classify:
            leaves = f"leaves: class of {name}, and its estimated fraction there"
            if tree.weights is not None:
                leaves += "; rare classes weigh more, so that another may have a larger fraction"
        else:
            values = tree.values[tree.tree.leaves, 0]
            width = float(np.ptp(self.schema_.columns[-1].bounds))
            ends = [number_text(float(end), width) for end in (values.min(), values.max())]
            leaves = f"leaves: mean of {name}, from {' to '.join(ends)}"
        count = self._splits(tree)
        size = splits.get(count, f"{count} splits")
        return f"{owner}{origins.get(tree.source, '')}; {size}; {leaves}"

    def _splits(self, tree: PersonalTree) -> int:
        """Return the number of displayed splits, without those of which records can take only one branch."""
        root, branches = tree.tree.read(self.schema_.features)
        nodes = [root]
        for node in nodes:  # which grows
            nodes += [child for _, child in branches[node]]
        return sum(bool(branches[node]) for node in nodes)

    def _leaf_values(self, X: pd.DataFrame | np.ndarray, client: Any) -> np.ndarray:
        """Return a client's, or the shared tree's, values for rows."""
        encoded = self._encode(X, client)
        if client is not None or self.shared_ is None:
            tree: PersonalTree = self.at_home(client)
            return tree.predict(encoded)
        return np.asarray(self.shared_.values[self.shared_.tree.reach(encoded)])

    # --- policies ------------------------------------------------------------------------------

    def published(self, epsilon: Number = 1) -> Policy:
        """Return the paper's policy: noise on the clients' sizes, all else unprotected."""
        return published(epsilon)

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Return a policy with a finite total epsilon, for one record, add-or-remove, under zCDP."""
        return private(epsilon, delta, self._top_plan(), classify=self._classify)

    # --- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the model's shared state, without clients' own trees."""
        data: dict[str, Any] = {"private": self.private_, "history": self.history_}
        if self.candidates_ is not None:
            last = self.candidates_
            data |= {"codes": last.codes.tolist(), "depth": last.depth, "count": last.count}
        if (shared := self._shared_tree) is not None:
            data["shared"] = shared.to_dict()
        return data

    def restore(self, state: Mapping[str, Any]) -> None:
        """Read the output of :meth:`state`; for clients' trees see :meth:`take_home`."""
        self.way_ = "private" if state["private"] else "published"
        self.candidates_, self.shared_ = None, None
        self.history_ = [(float(best), float(mean)) for best, mean in state["history"]]
        if "codes" in state:
            codes = np.array(state["codes"], dtype=np.int64)
            self.candidates_ = Population(codes, int(state["depth"]), int(state["count"]))
            self.candidates_.check(self.schema_)
            self.depth_ = self.candidates_.depth
        if "shared" in state:
            shared = PersonalTree.checked(state["shared"], self.schema_, self._classify)
            self.shared_, self.depth_ = Shared(shared.tree, shared.values), shared.tree.depth


@inherited("bounded")
class GeneticTreeClassifier(FederatedClassifier, _GeneticTree):
    """FedGA-Tree for classes, scored by macro F1.

    Args:
        population_size: P, candidates of a generation; None for the paper's 20 (40 for numbers).
        generations: G, the number of generations.
        depth: of the candidates, if it is public; None for the median of the clients' own.
        min_depth: minimum depth that clients try for their own trees.
        max_depth: maximum one; at most 15, as strings have 2^depth - 1 genes.
        cv: K, of all cross-validation.
        train_size: r, the fraction of its records that a client fits candidates to.
        leaf_share: r_l, the fraction of nil among the genes of random structures.
        tournament_size: s, contestants of a tournament.
        flip_fraction: m_1, fraction of a string that a node flip changes.
        swap_fraction: m_2, fraction of a string that sets the number of node swaps.
        client_fraction: c, fraction of the clients that are active in each generation.
        fitness: ``share``, scored on the records that trees were not fitted to (as in the paper); ``folds``, on
            each fold in turn, with less variance and more time.
        include_local_tree: whether a client may finally choose the tree that it grew alone; in `private` it always
            may.
        refit: whether the chosen tree is finally fitted to all of a client's records.
        max_leaf_nodes: maximum leaves of a client's own tree, whose most similar leaves are finally merged; 8 give
            at most 15 nodes. None for no limit.
        shared_depth: levels of `private`'s shared tree.
        n_bins: bins of each feature, between which `private` searches splits.
        random_state: the server's seed; clients' secrets do not depend on it.
    """

    _classify: ClassVar[bool] = True
    _population: ClassVar[int] = 20

    def check(self, schema: Schema) -> None:
        """Check that the target is classes: categories, or the integers 0 and 1."""
        super().check(schema)
        if not classes(schema):
            raise InputError(
                "GeneticTreeClassifier needs a target with classes: a category, or an integer "
                "from 0 to 1"
            )

    def predict_proba(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return class fractions in each row's leaf, shape (rows, classes); see :meth:`predict`."""
        return self._leaf_values(X, client)

    def predict(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the label of each row's leaf: the most frequent class, unless the client chose otherwise.

        Args:
            X: rows.
            client: client whose tree predicts, one name or one per row; None for `private`'s shared tree.
        """
        fractions = self._leaf_values(X, client)
        if client is not None:
            tree: PersonalTree = self.at_home(client)  # type: ignore[arg-type]
            fractions = tree.weighed(fractions)
        return np.asarray(self.classes_[fractions.argmax(axis=1)])


class GeneticTreeRegressor(FederatedRegressor, _GeneticTree):
    """FedGA-Tree for numbers, scored by the mean squared error; parameters as :class:`GeneticTreeClassifier`, P = 40.

    Args:
        bounded: whether candidates are scored by R^2 within [-1, 1] instead of the mean squared
            error, so that no client's outlier dominates all others (the paper's future work).
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **_GeneticTree._parameter_constraints,
        "bounded": [Boolean()],
    }
    _classify: ClassVar[bool] = False
    _population: ClassVar[int] = 40

    def predict(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the mean of each row's leaf; arguments as for :meth:`GeneticTreeClassifier.predict`."""
        return self._leaf_values(X, client)[:, 0]


def _listed(names: Sequence[str]) -> str:
    """Format the first names, and the number of further ones."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
