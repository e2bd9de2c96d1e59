"""The queries of a federated fuzzy regression tree.

Features are scaled to [0, 1] and clipped; targets to [-1/2, 1/2] and, in the leaves, features too:
centring changes no tree (gains do not depend on it) and reduces every sensitivity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.fuzzy_tree.fuzzy import (
    ACTIVATIONS,
    MIN_DISTANCE,
    MOST_SETS,
    Peaks,
    pieces,
    reached_nodes,
    to_unit,
)
from privfed.learners.fuzzy_tree.sums import (
    ComplementarySuppression,
    Fuzzified,
    cell_terms,
    equation_terms,
    equations,
    few,
    level_sums,
    node_terms,
    revealing,
    suppression,
)
from privfed.questions.cells import Path, check_paths
from privfed.questions.part import GRID, Bound, Part, PartType, Sensitivity, on_grid
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

_UNIT = int(1 / GRID)


@dataclass(frozen=True)
class Scaling(Query):
    """Counts of every feature, and of the target, over bins of their public bounds.

    They determine percentiles. Sensitivity: a record is in exactly one bin of each feature, for any
    edges, so ``counts`` have L1 = F and squared L2 = F, and ``target`` 1 and 1; replacing it
    changes two bins of each by one: 2F and 2F, 2 and 2.
    """

    bins: int  #: of each feature
    #: by feature, and last of the target, the bins' edges in increasing order (equal ones: an empty
    #: bin), from an earlier round; values beyond them are in the first or last bin. None for
    #: equal-width bins of the public bounds.
    edges: tuple[tuple[float, ...], ...] = ()
    kind: ClassVar[str] = "fuzzy_tree.scaling"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by feature and bin, and ``target`` by bin if it is numeric."""
        if not 2 <= self.bins <= 100_000:
            raise QueryError("malformed", "bins must lie between 2 and 100,000")
        features, target = len(schema.features), _numeric(schema)
        self._check_edges(features + target)
        counts = {"counts": _counts(("feature", "bin"), (features, self.bins), features)}
        return {**counts, "target": _counts(("bin",), (self.bins,), 1)} if target else counts

    def _check_edges(self, columns: int) -> None:
        if not self.edges:
            return
        if len(self.edges) != columns or {len(row) for row in self.edges} != {self.bins + 1}:
            raise QueryError("malformed", "each column needs one edge more than bins")
        edges = np.array(self.edges)
        if not np.isfinite(edges).all() or (np.diff(edges, axis=1) < 0).any():
            raise QueryError("malformed", "edges must be finite and never fall")

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count each column's values by bin; the upper bound is in the last bin."""
        columns = len(view.schema.features) + _numeric(view.schema)
        counts = np.zeros(columns * self.bins, np.int64)
        for piece in pieces(len(view.table), columns):
            keys = self._bins(view, piece) + np.arange(columns) * self.bins
            counts += np.bincount(keys.ravel(), minlength=len(counts))
        return _by_part(counts.reshape(columns, self.bins), view.schema)

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return one count in the bin of each column's value."""
        ones = self._bins(view)[..., None] == np.arange(self.bins)
        parts = _by_part(ones.swapaxes(0, 1), view.schema)
        return {name: np.moveaxis(part, -2, 0) for name, part in parts.items()}

    def _bins(self, view: View, piece: slice = slice(None)) -> np.ndarray:
        """Return each value's bin, shape (records, columns), the target's last."""
        X, schema = view.table.x[piece], view.schema
        low, high = schema.lower, schema.upper
        if _numeric(schema):
            assert schema.target is not None
            X = np.column_stack([X, view.table.target[piece]])
            ends = zip((low, high), schema.target.bounds, strict=True)
            low, high = (np.append(features, target) for features, target in ends)
        if not self.edges:
            unit = to_unit(X, low, high)
            return np.minimum((unit * self.bins).astype(np.int64), self.bins - 1)
        columns = zip(np.array(self.edges), X.T, strict=True)
        bins = [np.searchsorted(edges, values, side="right") - 1 for edges, values in columns]
        return np.asarray(np.clip(np.column_stack(bins), 0, self.bins - 1), np.int64)


def _numeric(schema: Schema) -> bool:
    return schema.target is not None and schema.target.numeric


def _by_part(columns: np.ndarray, schema: Schema) -> dict[str, np.ndarray]:
    """Split an array by column into the features' and the target's."""
    if not _numeric(schema):
        return {"counts": columns}
    return {"counts": columns[:-1], "target": columns[-1]}


@dataclass(frozen=True, eq=False)
class FuzzyQuery(Query):
    """Base class of the tree's queries, with their nodes and the public scaling."""

    nodes: tuple[Path, ...]  #: paths from the root, each step a (feature, set) pair
    sets: int  #: fuzzy sets of each feature, T; the maximum if they differ
    lower: np.ndarray  #: lower end of each feature's [0, 1], shape (features,)
    upper: np.ndarray  #: upper end
    #: fuzzy sets by feature, T_f; empty if all have ``sets``. Sensitivities do not depend on it: a
    #: value belongs to two neighbouring sets of its feature, for any number.
    partition: tuple[int, ...] = field(default=(), kw_only=True)
    #: ends of a released interval of the target; empty for the public bounds. Targets are clipped
    #: to it, so that sensitivities do not depend on it.
    target: tuple[float, ...] = field(default=(), kw_only=True)
    #: peaks of the sets by feature, from earlier releases; empty if they are uniform. Sensitivities do not depend on
    #: them: a value's memberships are in two neighbouring sets, and sum to one, for any.
    peaks: tuple[Peaks, ...] = field(default=(), kw_only=True)

    def _check(self, schema: Schema) -> None:
        features = len(schema.features)
        if schema.target is None or not 2 <= self.sets <= MOST_SETS or not self.nodes:
            raise QueryError("malformed", "a fuzzy tree needs a target, sets and nodes")
        for bound in (self.lower, self.upper):
            if bound.shape != (features,) or bound.dtype.kind != "f":
                raise QueryError("malformed", "scaling needs one bound for each feature")
        if not np.isfinite([self.lower, self.upper, self.upper - self.lower]).all():
            raise QueryError("malformed", "scaling needs finite bounds and widths")
        valid = not self.target or (len(self.target) == 2 and self.target[0] < self.target[1])
        if not valid or not np.isfinite(self.target).all():
            raise QueryError("malformed", "the target's interval needs two finite ends, rising")
        sets = self.partition
        if sets and (len(sets) != features or min(sets) < 2 or max(sets) > self.sets):
            raise QueryError("malformed", "each feature needs from two to the most sets")
        if self.peaks:
            if tuple(map(len, self.peaks)) != (sets or (self.sets,) * features):
                raise QueryError("malformed", "each set needs a peak")
            if not all(one[0] >= 0 and one[-1] <= 1 and _rising(one) for one in self.peaks):
                raise QueryError("malformed", "peaks must rise, between 0 and 1")
        check_paths(self.nodes, features, self.sets)

    def _check_features(self, schema: Schema) -> None:
        chosen = self.features  # type: ignore[attr-defined]
        if len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(len(schema.features))):
            raise QueryError("malformed", "features must be known, each once")

    def _prepare(self, view: View) -> Fuzzified:
        scale = (self.lower.tobytes(), self.upper.tobytes(), self.target)
        key = ("fuzzy_tree", self.sets, self.partition, self.peaks, *scale)
        if view.cache.get("fuzzy_tree.key") != key:
            view.cache["fuzzy_tree.key"] = key
            view.cache["fuzzy_tree"] = Fuzzified.from_view(
                view, self.partition or self.sets, (self.lower, self.upper), self.target, self.peaks
            )
        prepared: Fuzzified = view.cache["fuzzy_tree"]
        return prepared

    def memory(self, cells: int) -> int:
        """Return the maximum memory in bytes without the records, from the nodes.

        A block's activations (:data:`.ACTIVATIONS`, or one record's) take 40 bytes each while paired, a node's own
        arrays 1 KiB, and strict suppression, for every branch of every split, 64 bytes per cell.
        """
        nodes, total = reached_nodes(self.nodes)
        branches = (total + 1) * self.sets * len(self.lower) * self.sets
        return 2**26 + 40 * max(ACTIVATIONS, nodes) + 1024 * total + 64 * branches + 48 * cells

    def _suppression(self, view: View) -> ComplementarySuppression:
        return suppression(self._prepare(view).memberships, self.nodes, self.sets)


@dataclass(frozen=True, eq=False)
class Level(FuzzyQuery):
    """Sums by fuzzy set for the open nodes of one level (paper, Table 1 and Eqs. 9-11, 15-17).

    With w the activation of a node, mu the membership in a set and y the target in [-1/2, 1/2]: ``weights`` = sum w mu
    (WS), ``linear`` = sum y w mu (WLS), ``squares`` = sum y^2 w mu (WSS) and ``counts`` = number of records with w mu >
    0, by node, feature and set; ``node_*`` the same for the nodes themselves, ``node_strong`` the records with w >=
    0.5^depth, ``records`` all records.

    Sensitivity, add-or-remove one record. The nodes belong to one tree (checked), so the record's w sum to at most 1
    over them, and its w mu to at most 1 over nodes and sets, for each feature. With |y| <= 1/2 the L1 norms are at most
    F', F'/2, F'/4 for the F' candidate features, and with one nonnegative vector of sum at most 1 per feature, the
    squared L2 norms F', F'/4, F'/16. Truncating each contribution to the grid does not increase them. A record at depth
    d reaches at most 2^d nodes, and two sets of each feature: counts have L1 and squared L2 F' 2^(d+1); node counts
    2^d, and strong ones 2^d (all memberships equal to one half).
    """

    #: candidate features; the sums of others, and of those on a node's path, are zero
    features: tuple[int, ...] = ()
    kind: ClassVar[str] = "fuzzy_tree.level"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return sums and counts by (node, feature, set), and by node."""
        self._check(schema)
        self._check_features(schema)
        n_features = len(self.features)
        depth = max(len(path) for path in self.nodes)
        max_nodes = min(2**depth, len(self.nodes))
        cells = (len(self.nodes), n_features, self.sets)
        return {
            **_sums("", ("node", "feature", "set"), cells, n_features),
            "counts": _counts(("node", "feature", "set"), cells, 2 * n_features * max_nodes),
            **_sums("node_", ("node",), cells[:1], 1),
            "node_counts": _counts(("node",), cells[:1], max_nodes),
            "node_strong": _counts(("node",), cells[:1], max_nodes),
            "records": _counts((), (), 1),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up over all pairs of record and node at once."""
        sums = level_sums(self._prepare(view), self.nodes, self.features, self.sets)
        return {**sums, "records": np.array(len(view.table))}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's contribution to every cell and node."""
        prepared = self._prepare(view)
        return {
            **cell_terms(prepared, self.nodes, self.features, self.sets),
            **node_terms(prepared, self.nodes),
            "records": np.ones(len(prepared.target)),
        }

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mask by the paper's three conditions (Algorithm 1); if strict, also against subtraction (:func:`suppression`)."""
        parts, root = ("weights", "linear", "squares", "counts"), [not path for path in self.nodes]
        cells = revealing(exact["weights"], exact["counts"], root, strict)
        if not strict:
            return dict.fromkeys(parts, cells)
        suppressed = self._suppression(view)
        nodes = np.asarray(suppressed.nodes | few(exact["node_counts"]))
        withheld = suppressed.features[:, list(self.features)] | nodes[:, None]
        by_cell = dict.fromkeys(parts, np.broadcast_to(withheld[:, :, None], cells.shape))
        by_node = dict.fromkeys((f"node_{name}" for name in (*parts, "strong")), nodes)
        return {**by_cell, **by_node, "records": np.asarray(few(exact["records"]))}


@dataclass(frozen=True, eq=False)
class Leaves(FuzzyQuery):
    """Weighted normal equations of every leaf (paper, Algorithm 2, with proper weights).

    ``gram`` = sum w x x' and ``moment`` = sum w y x, where x has a leading 1 and the features scaled to [-1/2, 1/2],
    and y is in [-1/2, 1/2]. (The paper's Eq. 5 weights x twice and y never, which is not weighted least squares.)

    Sensitivity: a record's w sum to at most 1 over the leaves of one tree (checked), and
    |x|^2 <= 1 + F/4 =: d. So gram changes by at most sum w |x|^2 <= d in L2 (Frobenius), and moment
    by sqrt(d) / 2. In L1, |x|_1 <= 1 + F/2 =: s: s^2 and s / 2.
    """

    features: tuple[int, ...] = ()  #: the F features of the linear models
    kind: ClassVar[str] = "fuzzy_tree.leaves"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``gram`` (leaf, row, column) and ``moment`` (leaf, row)."""
        self._check(schema)
        self._check_features(schema)
        leaves, width = len(self.nodes), len(self.features) + 1
        s, d, square = width + 1, width + 3, _UNIT**2  # 2 + F and 4 + F; exact: a unit is 2^-30
        gram = Sensitivity.of(s**2 * _UNIT // 4, d**2 * square // 16)
        moment = Sensitivity.of(s * _UNIT // 4, d * square // 16)
        by_row, by_cell = ("leaf", "row"), ("leaf", "row", "column")
        return {
            "gram": Part(PartType.SUMS, by_cell, (leaves, width, width), gram, GRID),
            "moment": Part(PartType.SUMS, by_row, (leaves, width), moment, GRID),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up leaf by leaf."""
        gram, moment = equations(self._prepare(view), self.features, self.nodes)
        return {"gram": gram, "moment": moment}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's normal equations in every leaf."""
        prepared = self._prepare(view)
        design = prepared.design(self.features)
        gram, moment = equation_terms(design, prepared.target, prepared.weights(self.nodes))
        return {"gram": gram, "moment": moment}

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mask nothing, as in the paper; if strict, suppressed leaves and those with no more records than unknowns.

        Normal equations of n <= F + 1 records have rank n and reveal the records by enumeration.
        """
        if not strict:
            return {}
        width = exact["moment"].shape[1]
        counts = level_sums(self._prepare(view), self.nodes)["node_counts"]
        suppressed = self._suppression(view).leaves | ((counts > 0) & (counts <= max(2, width)))
        return {
            "gram": np.broadcast_to(suppressed[:, None, None], exact["gram"].shape),
            "moment": np.broadcast_to(suppressed[:, None], exact["moment"].shape),
        }


@dataclass(frozen=True, eq=False)
class Activations(FuzzyQuery):
    """Summed activation and number of activating records of every leaf (paper, Eq. 22).

    Sensitivity: ``weights`` L1 1 (activations sum to at most 1 over the leaves), ``counts`` 2^d for
    leaves at depth d or less.
    """

    kind: ClassVar[str] = "fuzzy_tree.activation"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``weights`` and ``counts`` by leaf."""
        self._check(schema)
        max_nodes = min(2 ** max(len(path) for path in self.nodes), len(self.nodes))
        shape = (len(self.nodes),)
        return {
            "weights": Part(PartType.SUMS, ("leaf",), shape, Sensitivity.of(_UNIT), GRID),
            "counts": _counts(("leaf",), shape, max_nodes),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up leaf by leaf."""
        sums = level_sums(self._prepare(view), self.nodes)
        return {"weights": sums["node_weights"], "counts": sums["node_counts"]}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's activation of every leaf."""
        weights = self._prepare(view).weights(self.nodes)
        return {"weights": on_grid(weights), "counts": weights > 0}

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mask nothing, as in the paper; if strict, small and suppressed leaves."""
        if not strict:
            return {}
        suppressed = self._suppression(view).nodes | few(exact["counts"])
        return {"weights": suppressed, "counts": suppressed}


def _rising(peaks: Peaks) -> bool:
    """Whether each peak is so far above the one before that their difference has an inverse."""
    return bool((np.diff(peaks) >= MIN_DISTANCE).all())


# --- sensitivities ---------------------------------------------------------------------------------


def _sums(prefix: str, axes: tuple[str, ...], shape: tuple[int, ...], size: int) -> dict[str, Part]:
    """Return WS, WLS and WSS with L1 F', F'/2, F'/4 and squared L2 F', F'/4, F'/16, in grid units."""
    parts = {}
    for name, half in (("weights", 0), ("linear", 1), ("squares", 2)):
        sensitivity = Sensitivity.of(size * _UNIT >> half, size * _UNIT**2 >> 2 * half)
        parts[prefix + name] = Part(PartType.SUMS, axes, shape, sensitivity, GRID)
    return parts


def _counts(axes: tuple[str, ...], shape: tuple[int, ...], limit: int) -> Part:
    """Return counts of which one record changes at most ``limit`` by one each."""
    bound = Bound(limit, limit)
    sensitivity = Sensitivity(bound, replace_one=Bound(2 * limit, 2 * limit))
    return Part(PartType.COUNTS, axes, shape, sensitivity)
