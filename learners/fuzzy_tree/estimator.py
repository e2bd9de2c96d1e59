"""The federated fuzzy regression tree, in scikit-learn's manners.

J. L. Corcuera Barcena, P. Ducange, F. Marcelloni, A. Renda: Increasing trust in AI through privacy
preservation and model explainability: Federated Learning of Fuzzy Regression Trees. Information
Fusion 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.exact import Number
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import FederatedRegressor, Planned, check_round
from privfed.learners.fuzzy_tree.fuzzy import Memberships, activations, labels, to_unit
from privfed.learners.fuzzy_tree.growth import LevelSums, Node, Stop, split_level
from privfed.learners.fuzzy_tree.leaves import LeafModels, exact_models, noisy_models
from privfed.learners.fuzzy_tree.percentiles import percentiles
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.learners.fuzzy_tree.rules import Rule, rules
from privfed.learners.parameters import Constraints, Names, OneOf, Real, Whole
from privfed.learners.plain import plain, restored
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.questions.cells import Path
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Fitted numbers that are saved as they are; the tree and its leaves have forms of their own.
_KEPT = ("lower_", "upper_", "rounds_", "noisy_", "mean_activation_")


class FuzzyTreeRegressor(FederatedRegressor):
    """Grows one fuzzy regression tree over all clients, level by level.

    Args:
        sets: uniform triangular fuzzy sets of each feature, T_f.
        min_gain: least partition fuzzy gain of a split, th_PFGain (target scaled to [0, 1]).
        min_share: a split node holds more than this share of the records, th_min_instances_split.
        max_depth: most splits on a path; none for no limit.
        scaling: ``"released"`` asks for the 2.5 and 97.5 percentiles (read off histograms, which
            add up over clients), ``"schema"`` takes the public bounds.
        bins: bins of those histograms.
        features: names of the features that may split; none for all.
        leaf_features: names of the features in the leaves' linear models; none for all (the
            paper's), and an empty list for constants.
        clients_per_round: how many clients, drawn anew, take part in each round; none for all.
        random_state: seed of that draw (the server's own; no client's secret depends on it).
    """

    queries: ClassVar[tuple[type[Query], ...]] = (Scaling, Level, Leaves, Activations)
    _parameter_constraints: ClassVar[Constraints] = {
        "sets": [Whole(at_least=2)],
        "min_gain": [Real(at_least=0)],
        "min_share": [Real(at_least=0, below=1)],
        "max_depth": [Whole(at_least=0), None],
        "scaling": [OneOf("released", "schema")],
        "bins": [Whole(at_least=2, at_most=100_000)],
        "features": [Names(), None],
        "leaf_features": [Names(), None],
        "clients_per_round": [Whole(at_least=1), None],
        "random_state": [Whole(at_least=0), None],
    }

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        *,
        sets: int = 5,
        min_gain: float = 1e-4,
        min_share: float = 0.1,
        max_depth: int | None = None,
        scaling: str = "released",
        bins: int = 256,
        features: Sequence[str] | None = None,
        leaf_features: Sequence[str] | None = None,
        clients_per_round: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.sets = sets
        self.min_gain = min_gain
        self.min_share = min_share
        self.max_depth = max_depth
        self.scaling = scaling
        self.bins = bins
        self.features = features
        self.leaf_features = leaf_features
        self.clients_per_round = clients_per_round
        self.random_state = random_state

    # --- learning ------------------------------------------------------------------------------

    def fit(self, federation: Disclosure) -> Self:
        """Grow the tree and fit its leaves from releases alone.

        Sets ``schema_``, ``root_``, ``leaves_``, ``models_``, ``rounds_``, ``noisy_``.

        Raises:
            InputError: a parameter makes no sense, or the schema has no numeric target.
            NobodyAnswered: no client answered anything.
        """
        self._start(federation)
        check_round(self.clients_per_round, len(federation.clients))
        self.rounds_ = 0
        self._draw = np.random.default_rng(self.random_state)
        self.lower_, self.upper_ = self._scale(federation)
        self.root_ = self._grow(federation)
        self.leaves_ = [node for node in self._nodes() if node.leaf]
        self._fit_leaves(federation)
        return self

    def check(self, schema: Schema) -> None:
        """Hold the target to numbers and the parameters to their ranges and to the schema."""
        super().check(schema)
        for names in (self.features, self.leaf_features):
            _chosen(schema, names)

    def _ask(self, federation: Disclosure, *queries: Query) -> Any:
        clients: Sequence[str] = federation.clients
        if self.clients_per_round is not None:
            drawn = self._draw.choice(len(clients), self.clients_per_round, replace=False)
            clients = [clients[number] for number in sorted(drawn)]
        answers = federation.ask_offered(*queries, clients=clients)
        self.rounds_ += bool(answers.releases())
        return answers

    def _scale(self, federation: Disclosure) -> tuple[np.ndarray, np.ndarray]:
        schema = federation.schema
        if self.scaling == "schema":
            return schema.lower, schema.upper
        answers = self._ask(federation, Scaling(self.bins))
        if "counts" not in answers:
            return schema.lower, schema.upper
        counts = answers.total("counts")
        return percentiles(counts, schema.lower, schema.upper, (0.025, 0.975))

    def _grow(self, federation: Disclosure) -> Node:
        root = Node(())
        stop = Stop(self.min_gain, self.min_share, self.max_depth)
        candidates = _chosen(federation.schema, self.features)
        opened, whole = [root], 0.0
        while opened and (opened[0] is root or self.max_depth != 0):
            query = Level(
                tuple(node.path for node in opened), self.sets, self.lower_, self.upper_, candidates
            )
            answers = self._ask(federation, query)
            if not answers.releases():
                break
            sums = LevelSums.of(answers.only, whole)
            whole = whole or float(sums.nodes[0].sum())
            opened = split_level(opened, query, sums, stop)
        return root

    def _fit_leaves(self, federation: Disclosure) -> None:
        paths = tuple(leaf.path for leaf in self.leaves_)
        asked = (paths, self.sets, self.lower_, self.upper_)
        means = np.array([leaf.mean for leaf in self.leaves_])
        self.mean_activation_ = np.array([0.5 ** len(path) for path in paths])
        self.noisy_ = False
        self.models_ = LeafModels(
            np.column_stack([means, np.zeros((len(paths), len(self.schema_.features)))]),
            np.ones(len(paths), dtype=bool),
        )
        regressed = _chosen(self.schema_, self.leaf_features)
        equations, activation = self._ask(
            federation, Leaves(*asked, regressed), Activations(*asked)
        )
        if "gram" in equations:
            self.models_ = self._solve(equations, means)
        if "counts" in activation:
            counts, weights = activation.total("counts"), activation.total("weights")
            known = (counts > 0) & (weights > 0)
            self.mean_activation_[known] = (weights / np.maximum(counts, 1))[known]

    def _solve(self, equations: Any, means: np.ndarray) -> LeafModels:
        gram, moment = equations.total("gram"), equations.total("moment")
        noise = equations.deviation("gram"), equations.deviation("moment")
        self.noisy_ = noise[0] > 0
        solved = (
            noisy_models(gram, moment, means, noise)
            if self.noisy_
            else exact_models(gram, moment, means)
        )
        columns = [0, *(feature + 1 for feature in equations.query.features)]
        coefficients = np.zeros((len(means), len(self.schema_.features) + 1))
        coefficients[:, columns] = solved.coefficients
        return LeafModels(coefficients, solved.constant)

    # --- predicting ----------------------------------------------------------------------------

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """Predict by maximum matching: the one leaf with the largest normalised activation.

        Paper, Section 3.3 and Eq. 22. A row that activates no leaf (its branch was empty) gets the
        mean of the deepest node that it reaches.
        """
        unit = to_unit(self._encode(x, client), self.lower_, self.upper_)
        chosen, active = self._match(unit)
        design = np.column_stack([np.ones(len(unit)), unit - 0.5])
        predicted = (design * self.models_.coefficients[chosen]).sum(axis=1)
        if self.noisy_:
            predicted = np.clip(predicted, -0.5, 0.5)
        for row in np.flatnonzero(~active):
            predicted[row] = self._reached(unit[row : row + 1]).mean
        low, high = self._target_bounds
        result: np.ndarray = (predicted + 0.5) * (high - low) + low
        return result

    def apply(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """The index of the rule that each row is predicted by, -1 where none is active."""
        chosen, active = self._match(to_unit(self._encode(x), self.lower_, self.upper_))
        return np.where(active, chosen, -1)

    def _match(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best leaf of each row, and whether any is active at all."""
        memberships = Memberships.of(unit, self.sets)
        best = np.zeros(len(unit))
        chosen = np.zeros(len(unit), dtype=np.int64)
        reached = activations(memberships, [leaf.path for leaf in self.leaves_])
        for number, leaf in enumerate(reached):
            strength = leaf.weight / self.mean_activation_[number]
            better = strength > best[leaf.rows]
            rows = leaf.rows[better]
            best[rows], chosen[rows] = strength[better], number
        return chosen, best > 0

    def _reached(self, row: np.ndarray) -> Node:
        """The deepest node that a row reaches by its strongest branch."""
        memberships, node = Memberships.of(row, self.sets), self.root_
        while node.feature is not None:
            degree = {
                branch: float(memberships.degree(np.array([0]), node.feature, branch)[0])
                for branch in node.children
            }
            branch = max(degree, key=lambda candidate: degree[candidate])
            if degree[branch] <= 0:
                break
            node = node.children[branch]
        return node

    @property
    def _target_bounds(self) -> tuple[float, float]:
        assert self.schema_.target is not None
        return self.schema_.target.bounds

    # --- the model as people read it -----------------------------------------------------------

    def _nodes(self) -> list[Node]:
        found, waiting = [], [self.root_]
        while waiting:
            node = waiting.pop(0)
            found.append(node)
            waiting.extend(node.children.values())
        return found

    @property
    def n_nodes_(self) -> int:
        """Nodes of the tree, the root not counted (paper, Table 5)."""
        return len(self._nodes()) - 1

    @property
    def n_leaves_(self) -> int:
        """Leaves, which are the rules."""
        return len(self.leaves_)

    @property
    def depth_(self) -> int:
        """Most conditions of a rule."""
        return max(len(leaf.path) for leaf in self.leaves_)

    @property
    def n_parameters_(self) -> int:
        """Internal nodes and coefficients together (paper, Eq. 31)."""
        internal = sum(not node.leaf for node in self._nodes())
        return internal + self.n_leaves_ * (len(self.schema_.features) + 1)

    @property
    def rules_(self) -> list[Rule]:
        """The rules, one for each leaf (paper, Eq. 20)."""
        return rules(self)

    def describe(self) -> str:
        """All rules as text, with a note on leaves that fell back to a constant."""
        lines = [str(rule) for rule in self.rules_]
        fallen = int(self.models_.constant.sum())
        if fallen:
            lines.append(
                f"{fallen} of {self.n_leaves_} rules predict a constant: "
                "their equations were withheld, or noise drowned them."
            )
        return "\n".join(lines)

    def readable(self) -> dict[str, Any]:
        """Scaling, sets, and the rules in the data's own units."""
        schema, target = self.schema_, self.schema_.target
        assert target is not None
        return {
            "model": "fuzzy regression tree, maximum matching",
            "target": target.name,
            "sets": list(labels(self.sets)),
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
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base."""
        super().restore({name: state[name] for name in _KEPT})
        self.root_ = Node.from_dict(state["tree"])
        self.leaves_ = [node for node in self._nodes() if node.leaf]
        coefficients, constant = restored(state["coefficients"]), restored(state["constant"])
        if coefficients.shape != (len(self.leaves_), len(self.schema_.features) + 1):
            raise ValueError("a model for each leaf, a coefficient for each feature")
        self.models_ = LeafModels(coefficients, constant)

    # --- policies ------------------------------------------------------------------------------

    def published(self, *, strict: bool = False) -> Policy:
        """What the paper releases: sums with small cells nullified, leaf equations as they are.

        Args:
            strict: whether nullification also silences what could be subtracted, leaf equations
                included; histograms for scaling are then not released at all.
        """
        if strict:
            guard = (Guard.of("nullify", strict=True),)
            return Policy(
                dict.fromkeys((Level.kind, Leaves.kind, Activations.kind), guard), name="strict"
            )
        guards = {
            Scaling.kind: (Guard.of("open"),),
            Level.kind: (Guard.of("nullify"),),
            Leaves.kind: (Guard.of("open"),),
            Activations.kind: (Guard.of("open"),),
        }
        return Policy(guards, name="published")

    def private(
        self,
        epsilon: Number,
        delta: Number = "1e-5",
        *,
        schema: Schema | None = None,
        depth: int | None = None,
    ) -> Policy:
        """Finite epsilon end to end: Gaussian sums by level and leaf equations, under zCDP.

        The budget of rho is planned as a fifth for each level and the rest for the leaves; counts,
        node totals, scaling and leaf activations are not released at all.

        Args:
            epsilon: of the (epsilon, delta) guarantee for one record, add-or-remove.
            delta: of the guarantee.
            schema: not needed.
            depth: levels that may be asked for, at most 4; ``max_depth`` unless given, else 1.

        Raises:
            InputError: a depth that leaves nothing for the leaves.
        """
        budget = Budget.of(epsilon, delta)
        levels = depth if depth is not None else (1 if self.max_depth is None else self.max_depth)
        if not 0 <= levels <= 4:
            raise InputError(
                f"depth must lie between 0 and 4, not {levels}: each level takes a fifth of the "
                "budget, the leaves the rest; write depth = 1, say"
            )
        rho = largest_rho(budget.epsilon, budget.delta)
        level = rho / 5
        sums = ("weights", "linear", "squares")
        guards: dict[str, tuple[Guard, ...]] = {
            Leaves.kind: (Guard.of("gaussian", spend=rho - levels * level, times=1),)
        }
        if levels:
            guards[Level.kind] = (Guard.of("gaussian", *sums, spend=level, times=levels),)
        return Policy(guards, accountant="zcdp", budget=budget, name="private")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """At most one level for each feature (a path uses each once), then the leaves."""
        root: tuple[Path, ...] = ((),)
        asked = (root, self.sets, schema.lower, schema.upper)
        candidates = _chosen(schema, self.features)
        levels = len(candidates) if self.max_depth is None else min(self.max_depth, len(candidates))
        scaling = [Planned(Scaling(self.bins), 1)] if self.scaling == "released" else []
        return [
            *scaling,
            Planned(Level(*asked, candidates), max(levels, 1)),
            Planned(Leaves(*asked, _chosen(schema, self.leaf_features)), 1),
            Planned(Activations(*asked), 1),
        ]


def _chosen(schema: Schema, names: Sequence[str] | None) -> tuple[int, ...]:
    """Positions of the named features, all of them for none."""
    for name in names or ():
        schema.column(name)
    return tuple(schema.names.index(name) for name in (schema.names if names is None else names))
