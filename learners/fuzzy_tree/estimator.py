"""The federated fuzzy regression tree.

J. L. Corcuera Barcena, P. Ducange, F. Marcelloni, A. Renda: Increasing trust in AI through privacy
preservation and model explainability: Federated Learning of Fuzzy Regression Trees. Information
Fusion 2025.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from privfed.errors import InputError, Note, small_budget
from privfed.exchange.disclosure import Answer, Disclosure
from privfed.learners.base import FederatedRegressor, Planned, check_round
from privfed.learners.fuzzy_tree.fuzzy import (
    Memberships,
    Peaks,
    Sets,
    activations,
    labels,
    sets_of,
    to_unit,
)
from privfed.learners.fuzzy_tree.growth import FuzzyNode, LevelSums, Stop, drop_empty, split_level
from privfed.learners.fuzzy_tree.leaves import Known, LeafModels, solve
from privfed.learners.fuzzy_tree.linear import Coordinates, Moments, Residuals, ResidualsBySet
from privfed.learners.fuzzy_tree.main_effects import GrownTree
from privfed.learners.fuzzy_tree.partitions import Partitions
from privfed.learners.fuzzy_tree.percentiles import ScalingBounds, most_rounds
from privfed.learners.fuzzy_tree.policies import private, published
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.learners.fuzzy_tree.rounds import ModelQueries, ModelRounds
from privfed.learners.fuzzy_tree.rules import FuzzyRule, counts, drawn, legend, peaks, rules
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.learners.fuzzy_tree.shrinkage import Count, Target
from privfed.learners.parameters import Constraints, Integers, Names, Reals, StrOptions
from privfed.learners.plain import plain, restored
from privfed.learners.privacy_text import privacy_text
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Policy
from privfed.questions.cells import Path
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Fitted numbers that are saved unchanged; the tree and its leaves have their own forms.
_KEPT = ("lower_", "upper_", "target_", "peaks_", "rounds_", "noisy_", "mean_activation_")


class FuzzyTreeRegressor(FederatedRegressor):
    """Grows one fuzzy regression tree over all clients, level by level.

    Args:
        n_fuzzy_sets: uniform triangular fuzzy sets of each feature, T_f: one number for all, a list in the schema's
            order, or a table by name (default 5). A private tree may split a feature into two sets instead, one of
            them with the few records at one end.
        min_gain: minimum partition fuzzy gain of a split, th_PFGain (target scaled to [0, 1]).
        min_samples_split: a split node has more than this fraction of the records, th_min_instances_split.
        max_depth: maximum splits on a path; None for no limit.
        gains: ``"told"`` computes a split's gain from released sums only; ``"literal"`` relative to the node's own
            sums, as in the paper, so that withheld cells count as explained.
        scaling: ``"released"`` queries the 2.5 and 97.5 percentiles (by increasingly fine histograms), ``"schema"``
            uses the public bounds.
        n_bins: bins of each of those histograms; with at least 7 the percentiles are precise to 10^-7 of the public
            bounds, with fewer to one bin.
        features: names of the features that may split; None for all.
        leaf_features: names of the features in the leaves' linear models; None for all (as in the paper), an empty
            list for constants.
        clients_per_round: number of clients drawn in each round; None for all.
        random_state: seed of that draw (the server's own; no client's secret depends on it).
    """

    queries: ClassVar[tuple[type[Query], ...]] = (
        Scaling,
        Level,
        Moments,
        Residuals,
        ResidualsBySet,
        Leaves,
        Activations,
    )
    _parameter_constraints: ClassVar[Constraints] = {
        "n_fuzzy_sets": [Sets()],
        "min_gain": [Reals(at_least=0)],
        "min_samples_split": [Reals(at_least=0, below=1)],
        "max_depth": [Integers(at_least=0), None],
        "gains": [StrOptions("told", "literal")],
        "scaling": [StrOptions("released", "schema")],
        "n_bins": [Integers(at_least=2, at_most=100_000)],
        "features": [Names(), None],
        "leaf_features": [Names(), None],
        "clients_per_round": [Integers(at_least=1), None],
        "random_state": [Integers(at_least=0), None],
    }

    #: as its text prints them
    paper_settings: ClassVar[Mapping[str, Any]] = {"gains": "literal"}

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        *,
        n_fuzzy_sets: int | Sequence[int] | Mapping[str, int] = 5,
        min_gain: float = 1e-4,
        min_samples_split: float = 0.1,
        max_depth: int | None = None,
        gains: str = "told",
        scaling: str = "released",
        n_bins: int = 32,
        features: Sequence[str] | None = None,
        leaf_features: Sequence[str] | None = None,
        clients_per_round: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self._set(locals())

    # --- learning ------------------------------------------------------------------------------

    def fit(self, federation: Disclosure) -> Self:
        """Grow the tree and fit its leaves from releases only.

        Sets ``schema_``, ``root_``, ``leaves_``, ``models_``, ``rounds_``, ``noisy_``.

        Raises:
            InputError: a parameter is invalid, or the schema has no numeric target.
            NobodyAnswered: no client answered any query.
        """
        self._start(federation)
        check_round(self.clients_per_round, len(federation.clients))
        self.rounds_, self.noisy_ = 0, False
        self.peaks_: tuple[Peaks, ...] = ()
        self._draw = np.random.default_rng(self.random_state)
        ends = ScalingBounds(federation.schema)
        if self.scaling == "released":
            ends.learn(lambda query: self._ask(federation, query).only, self.n_bins)
        self.lower_, self.upper_, self.target_ = ends.lower, ends.upper, ends.target
        self._target_var, self._clip = ends.usual, ends.clip
        self._partitions = Partitions.uniform(self._partition)
        if ends.end_values is not None and self.max_depth != 0:
            self._partitions = self._partitions.with_ends(ends.end_fractions, ends.end_values)
        self.root_ = self._grow(federation)
        self.leaves_ = [node for node in self._nodes() if node.leaf]
        self._fit_leaves(federation)
        return self

    def check(self, schema: Schema) -> None:
        """Check the target and the parameters against the schema."""
        super().check(schema)
        sets_of(self.n_fuzzy_sets, schema)
        for names in (self.features, self.leaf_features):
            _chosen(schema, names)

    def _ask(self, federation: Disclosure, *queries: Query) -> Any:
        clients: Sequence[str] = federation.clients
        if self.clients_per_round is not None:
            drawn = self._draw.choice(len(clients), size=self.clients_per_round, replace=False)
            clients = [clients[number] for number in np.sort(drawn)]
        answers = federation.ask_offered(*queries, clients=clients)
        self.rounds_ += bool(answers.releases())
        self.noisy_ |= any(part.noise for r in answers.releases() for part in r.parts.values())
        return answers

    def _grow(self, federation: Disclosure) -> FuzzyNode:
        root = FuzzyNode(())
        stop = Stop(self.min_gain, self.min_samples_split, self.max_depth, self.gains)
        candidates = _chosen(federation.schema, self.features)
        opened, total = [root], 0.0
        self._root_sums: tuple[LevelSums, tuple[Peaks, ...]] | None = None
        self._count, self._target = Count(0.0, math.inf), Target()
        while opened and (opened[0] is root or self.max_depth != 0):
            self.peaks_ = self._partitions.peaks
            paths = tuple(node.path for node in opened)
            query = Level(paths, *self._scale, candidates, **self._fuzzy)
            answers = self._ask(federation, query)
            if not answers.releases():
                break
            if opened[0] is root:
                self._count, self._target = Target.from_answer(answers.only, self._target_var)
            if "weights" not in answers or (self.noisy_ and not candidates):
                break
            sums = LevelSums.from_answer(answers.only, total)
            if opened[0] is root:
                total, stop = float(sums.nodes[0].sum()), stop.scaled_to(sums)
                self._root_sums = sums, self._partitions.finest
            sums, chosen = self._partitions.chosen(sums, candidates, self.gains)
            opened = split_level(opened, query, sums, stop)
            self._partitions = self._partitions.fixed(root.split_features, chosen)
        self.peaks_ = self._partitions.settled(root.split_features).peaks
        return root

    def _fit_leaves(self, federation: Disclosure) -> None:
        paths = tuple(leaf.path for leaf in self.leaves_)
        if self.noisy_:
            self._fit_noisily(federation)
            return
        equations, activation = self._equations(federation, paths)
        self._drop_empty(activation)
        kept = [paths.index(leaf.path) for leaf in self.leaves_]
        # of each leaf's records (paper, Eq. 22); 0.5^depth if withheld
        self.mean_activation_ = np.array([0.5 ** len(leaf.path) for leaf in self.leaves_])
        if "counts" in activation:
            counts, weights = (activation.total(name)[kept] for name in ("counts", "weights"))
            known = (counts > 0) & (weights > 0)
            self.mean_activation_[known] = (weights / np.maximum(counts, 1))[known]
        self._solve(equations, kept)

    def _equations(self, federation: Disclosure, paths: tuple[Path, ...]) -> tuple[Answer, Answer]:
        """Query the normal equations and the activations of some leaves."""
        common, fuzzy = (paths, *self._scale), self._fuzzy
        leaves = Leaves(*common, _chosen(self.schema_, self.leaf_features), **fuzzy)
        equations, activation = self._ask(federation, leaves, Activations(*common, **fuzzy))
        return equations, activation

    def _drop_empty(self, activation: Answer) -> None:
        """Remove nodes that were grown as withheld, but are empty."""
        if "counts" not in activation:
            return
        masks = [np.ma.getmaskarray(array) for array in activation.each("counts").values()]
        empty = (activation.total("counts") == 0) & ~np.any(masks, axis=0)
        if empty.any() and not empty.all():
            dropped = {leaf.path for leaf, none in zip(self.leaves_, empty, strict=True) if none}
            drop_empty(self.root_, dropped)
            self.leaves_ = [leaf for leaf in self.leaves_ if leaf.path not in dropped]

    def _solve(self, equations: Answer, kept: list[int]) -> None:
        """Fit a model for each leaf, and for each inner node, for rows that reach no leaf."""
        means = np.array([leaf.mean for leaf in self.leaves_])
        inner = [node for node in self._nodes() if not node.leaf]
        if "gram" not in equations:
            upper = np.array([[node.mean] for node in inner])
            self._set_models(LeafModels.constants(means, 1), inner, upper, (0,))
            return
        columns = (0, *(feature + 1 for feature in equations.query.features))  # type: ignore[attr-defined]
        sums = equations.total("gram")[kept], equations.total("moment")[kept]
        models, upper = solve(sums, _known(self.leaves_), _known(inner))
        self._set_models(models, inner, upper, columns)

    def _set_models(
        self,
        leaves: LeafModels,
        inner: list[FuzzyNode],
        upper: np.ndarray,
        columns: tuple[int, ...],
    ) -> None:
        """Set the models of leaves and of inner nodes, for some columns of (1, features).

        A feature of zero width is -1/2 in every row, and its contribution is added to the
        intercept.
        """
        width = len(self.schema_.features) + 1
        self.models_ = leaves.among(columns, width)
        for node, model in zip(inner, upper, strict=True):
            node.model = np.zeros(width)
            node.model[list(columns)] = model
        flat = 1 + np.flatnonzero(self.upper_ <= self.lower_)
        for row in (*self.models_.coefficients, *(node.model for node in inner)):
            row[0] -= row[flat].sum() / 2
            row[flat] = 0.0

    # --- learning from noise -------------------------------------------------------------------

    def _fit_noisily(self, federation: Disclosure) -> None:
        """Fit one linear model in rounds; then an effect for each leaf, if leaves seem to differ."""
        features = _chosen(self.schema_, self.leaf_features)
        uniform = Partitions.uniform(sets_of(self.n_fuzzy_sets, self.schema_)).finest
        candidates = _chosen(self.schema_, self.features)
        grown = (self.root_, candidates, uniform, self.sets_, self._root_sums, self.max_depth)
        tree = GrownTree(*grown)
        scale = (self.lower_, self.upper_, self.target_)
        queries = ModelQueries(lambda query: self._ask(federation, query).only, tree, *scale)
        categories = [len(column.categories) for column in self.schema_.features]
        known = (self._count, self._target, categories, self._clip)
        learning = ModelRounds(queries, tree, features, *known)
        effects = learning.learn()
        if learning.count.of_noise:
            warnings.warn(small_budget(learning.count.noise), Note, stacklevel=5)
        self.root_, self.leaves_ = tree.root, tree.leaves
        self.peaks_ = () if tree.sets == uniform else tree.sets
        if learning.blank:
            equations, _ = self._equations(federation, ((),))
            if "gram" in equations and "moment" in equations:
                sums = equations.total("gram")[0], equations.total("moment")[0]
                noise = equations.deviation("gram"), equations.deviation("moment")
                learning.learn_from(*sums, noise)
        self._set_departures(learning, effects, (0, *(feature + 1 for feature in features)))

    def _set_departures(
        self, learning: ModelRounds, effects: np.ndarray | None, columns: tuple[int, ...]
    ) -> None:
        """Keep the tree if its leaves differ from the overall model; else use one rule."""
        constant = effects is None and learning.constant
        model, inner = learning.plain, []
        if effects is None:
            self.root_ = FuzzyNode((), mean=self.root_.mean, weight=self.root_.weight)
            self.peaks_ = ()
            self.leaves_, effects = [self.root_], np.zeros((1, len(model)))
        else:
            inner = [node for node in self._nodes() if not node.leaf]
        constants = np.full(len(self.leaves_), constant)
        self.mean_activation_ = np.array([0.5 ** len(leaf.path) for leaf in self.leaves_])
        models = LeafModels(model + effects, constants, np.zeros(len(constants), bool))
        self._set_models(models, inner, np.tile(model, (len(inner), 1)), columns)

    # --- predicting ----------------------------------------------------------------------------

    def predict(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Predict by maximum matching: the leaf with the largest normalised activation (paper, Section 3.3, Eq. 22).

        A row that activates no leaf is predicted by the equations of the deepest node that it reaches. Predictions
        are clipped to the target's released interval, or its public bounds.
        """
        unit = to_unit(self._encode(X, client), self.lower_, self.upper_)
        chosen, active = self._match(unit)
        design = np.column_stack([np.ones(len(unit)), unit - 0.5])
        predicted = (design * self.models_.coefficients[chosen]).sum(axis=1)
        if self.clipped:
            predicted = np.clip(predicted, -0.5, 0.5)
        for row in np.flatnonzero(~active):
            model = self._deepest_model(unit[row : row + 1])
            predicted[row] = np.clip(design[row] @ model, -0.5, 0.5)
        assert self.schema_.target is not None
        low, high = self.target_ or self.schema_.target.bounds
        return np.asarray((predicted + 0.5) * (high - low) + low)

    @property
    def clipped(self) -> bool:
        """Whether predictions are clipped to :attr:`prediction_limits_`, instead of bounds inferred from records."""
        return bool(self.noisy_ or self.target_ or not self.schema_.inferred)

    @property
    def prediction_limits_(self) -> tuple[float, float]:
        """See the base."""
        low, high = self.target_ or super().prediction_limits_
        return low, high

    def apply(self, X: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return the index of the rule for each row's prediction, -1 if none is active."""
        chosen, active = self._match(to_unit(self._encode(X), self.lower_, self.upper_))
        return np.where(active, chosen, -1)

    def _match(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each row's best leaf, and whether any is active."""
        memberships = self._memberships(unit)
        best = np.zeros(len(unit))
        chosen = np.zeros(len(unit), dtype=np.int64)
        leaves = activations(memberships, [leaf.path for leaf in self.leaves_])
        for number, leaf in enumerate(leaves):
            strength = leaf.weight / self.mean_activation_[number]
            better = strength > best[leaf.rows]
            best[leaf.rows[better]], chosen[leaf.rows[better]] = strength[better], number
        return chosen, best > 0

    def _deepest_model(self, row: np.ndarray) -> np.ndarray:
        """Return the model of the deepest node that a row reaches by its strongest branch."""
        memberships, node = self._memberships(row), self.root_
        while True:
            assert node.feature is not None and node.model is not None
            degree = {
                branch: float(memberships.degree(np.array([0]), node.feature, branch)[0])
                for branch in node.children
            }
            branch = max(degree, key=degree.__getitem__)
            if degree[branch] <= 0 or node.children[branch].leaf:
                return node.model
            node = node.children[branch]

    def _memberships(self, unit: np.ndarray) -> Memberships:
        if self.peaks_:
            return Memberships.from_peaks(unit, self.peaks_)
        return Memberships.from_unit(unit, self._partition)

    @property
    def sets_(self) -> tuple[Peaks, ...]:
        """The peaks of each feature's sets, 0 at its scaling's lower end and 1 at the upper one."""
        return self.peaks_ or Partitions.uniform(self._partition).finest

    @property
    def _partition(self) -> tuple[int, ...]:
        """Return the number of fuzzy sets of each feature."""
        return tuple(map(len, self.peaks_)) or sets_of(self.n_fuzzy_sets, self.schema_)

    @property
    def _scale(self) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the maximum number of sets and the scaling, as in queries."""
        return max(self._partition), self.lower_, self.upper_

    @property
    def _fuzzy(self) -> dict[str, Any]:
        """Return how the sets and the target are, as in queries."""
        uneven = self._partition if len(set(self._partition)) > 1 else ()
        return {"partition": uneven, "target": self.target_, "peaks": self.peaks_}

    # --- the fitted model -----------------------------------------------------------

    def _nodes(self) -> list[FuzzyNode]:
        nodes = [self.root_]
        for node in nodes:  # which grows, breadth first
            nodes.extend(node.children.values())
        return nodes

    @property
    def n_nodes_(self) -> int:
        """Number of nodes without the root (paper, Table 5)."""
        return len(self._nodes()) - 1

    @property
    def n_leaves_(self) -> int:
        """Number of leaves, which are the rules."""
        return len(self.leaves_)

    @property
    def depth_(self) -> int:
        """Maximum conditions of a rule."""
        return max(len(leaf.path) for leaf in self.leaves_)

    @property
    def n_parameters_(self) -> int:
        """C_FRT: inner nodes (without the root, as in Table 5) plus coefficients, one for a constant leaf (Eq. 31)."""
        width = 1 + len(_chosen(self.schema_, self.leaf_features))
        coefficients = np.where(self.models_.constant, 1, width).sum()
        return self.n_nodes_ - (self.n_leaves_ if self.root_.children else 0) + int(coefficients)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Fractions of the predictions' variance by feature, shape (features,); zero for a constant.

        They are from released sums only. A split adds its between-branch variance, sum_c w_c (m_c - m)^2 / W, for the
        nodes' weights w and means m; a leaf's model w / W slope^2 / 12 for each feature, as if uniform on [0, 1].
        """
        total = np.zeros(len(self.schema_.features))
        for node in self._nodes():
            if node.feature is not None:
                children = node.children.values()
                total[node.feature] += sum(b.weight * (b.mean - node.mean) ** 2 for b in children)
        weights = np.maximum([leaf.weight for leaf in self.leaves_], 0.0)
        if not weights.any():
            weights = np.ones(len(weights))
        total += weights @ self.models_.coefficients[:, 1:] ** 2 / 12
        return total / total.sum() if total.sum() > 0 else total

    def plot(self, feature: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot the tree with its leaves' means, or the features' importances if there is only one rule."""
        if feature is not None or not self.root_.children:
            return super().plot(feature, ax=ax)
        from privfed.learners.pictures import titled, tree

        name = shown(self.schema_.columns[-1].name)
        caption = f"leaves: means of {name}; the equations that predict are in describe()"
        return titled(tree(ax, drawn(self)), caption)

    @property
    def rules_(self) -> list[FuzzyRule]:
        """The rules, one per leaf (paper, Eq. 20)."""
        return rules(self)

    def describe(self) -> str:
        """Return all rules as text, with a legend, and a note on leaves that are only constants."""
        codes = counts(self)
        lines = [*(rule.text(codes) for rule in self.rules_), *legend(self)]
        n_constant, n_borrowed = int(self.models_.constant.sum()), int(self.models_.borrowed.sum())
        if n_constant:
            lines.append(
                f"{n_constant} of {self.n_leaves_} rules predict a constant: "
                "their equations were withheld, or the noise was too large for them."
            )
        if n_borrowed:
            lines.append(
                f"{n_borrowed} of {self.n_leaves_} rules use the equations of a node above: "
                "their own were withheld, or the noise was too large for them."
            )
        return "\n".join([*lines, *self.schema_.fill_notes(), privacy_text(self.privacy_)])

    def readable(self) -> dict[str, Any]:
        """Return scaling, sets, and the rules in the data's own units."""
        schema, target = self.schema_, self.schema_.target
        assert target is not None
        return {
            "model": "fuzzy regression tree, maximum matching",
            "target": target.name,
            "sets": {
                name: list(labels(own))
                for name, own in zip(schema.names, self._partition, strict=True)
            },
            "peaks": {n: peaks(self, k).tolist() for k, n in enumerate(schema.names)},
            "scaling": {
                name: [float(low), float(high)]
                for name, low, high in zip(schema.names, self.lower_, self.upper_, strict=True)
            },
            "rules": [rule.to_dict() for rule in self.rules_],
        }

    def state(self) -> dict[str, Any]:
        """See the base: numbers, the tree, and the leaves' models in their order."""
        return {
            **{name: plain(getattr(self, name)) for name in _KEPT},
            "tree": self.root_.to_dict(),
            "coefficients": plain(self.models_.coefficients),
            "constant": plain(self.models_.constant),
            "borrowed": plain(self.models_.borrowed),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base."""
        super().restore({name: state[name] for name in _KEPT})
        self.root_ = FuzzyNode.from_dict(state["tree"])
        self.leaves_ = [node for node in self._nodes() if node.leaf]
        coefficients, constant = restored(state["coefficients"]), restored(state["constant"])
        borrowed = restored(state["borrowed"])
        if coefficients.shape != (len(self.leaves_), len(self.schema_.features) + 1):
            raise ValueError("a model for each leaf, a coefficient for each feature")
        self.models_ = LeafModels(coefficients, constant, borrowed)

    # --- policies ------------------------------------------------------------------------------

    def published(self, *, strict: bool = False) -> Policy:
        """Return the paper's policy: sums with small cells nullified, leaf equations unprotected.

        Args:
            strict: whether nullification also suppresses against subtraction, including leaf
                equations; percentiles then use counts of zero or at least three records.
        """
        return published(strict)

    def private(
        self,
        epsilon: Number,
        delta: Number = "1e-5",
        *,
        schema: Schema | None = None,
        depth: int | None = None,
    ) -> Policy:
        """Return a policy with a finite total epsilon under zCDP: Gaussian histograms, sums, moments, residuals.

        Args:
            epsilon: of the (epsilon, delta) guarantee for one record, add-or-remove.
            delta: of the guarantee.
            schema: unused.
            depth: maximum number of levels, at most 4; default ``max_depth``, else 1.

        Raises:
            InputError: a depth out of its range.
        """
        budget = Budget.of(epsilon, delta)
        levels = depth if depth is not None else (1 if self.max_depth is None else self.max_depth)
        if not 0 <= levels <= 4:
            raise InputError(
                f"depth must lie between 0 and 4, not {levels}: the levels share a part of the "
                "budget, the leaves need the most; write depth = 1, say"
            )
        return private(budget, levels, self.scaling == "released")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return histograms by round, at most a level per feature, then the leaves or rounds of residuals."""
        root: tuple[Path, ...] = ((),)
        common = (root, max(sets_of(self.n_fuzzy_sets, schema)), schema.lower, schema.upper)
        candidates = _chosen(schema, self.features)
        levels = len(candidates) if self.max_depth is None else min(self.max_depth, len(candidates))
        released = self.scaling == "released"
        scaling = [Planned(Scaling(self.n_bins), most_rounds(self.n_bins))] if released else []
        linear = _chosen(schema, self.leaf_features)
        coordinates = Coordinates.public(linear)
        zeros = np.zeros(coordinates.width)
        return [
            *scaling,
            Planned(Level(*common, candidates), max(levels, 1)),
            Planned(Moments(*common, coordinates), SETTINGS.moment_rounds),
            Planned(Residuals(*common, coordinates, zeros, 1.0), SETTINGS.residual_rounds),
            Planned(ResidualsBySet(*common, coordinates, zeros, 1.0, candidates), 1),
            Planned(Leaves(*common, linear), 1),
            Planned(Activations(*common), 1),
        ]


def _known(nodes: Sequence[FuzzyNode]) -> Known:
    return Known(
        [node.path for node in nodes],
        np.array([node.mean for node in nodes]),
        np.array([node.weight for node in nodes]),
    )


def _chosen(schema: Schema, names: Sequence[str] | None) -> tuple[int, ...]:
    """Return positions of the named features; all for None."""
    for name in names or ():
        schema.column(name)
    return tuple(schema.names.index(name) for name in (schema.names if names is None else names))
