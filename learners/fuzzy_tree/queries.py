"""What a federated fuzzy regression tree asks its clients.

Features are scaled to [0, 1] and clipped; targets to [-1/2, 1/2] and, in the leaves, features too:
centring changes no tree (gains do not depend on it) and shrinks every sensitivity.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.fuzzy_tree.fuzzy import (
    LEAST,
    Activation,
    Memberships,
    activations,
    keep_only,
    to_unit,
)
from privfed.part import GRID, Bound, Part, PartType, Sensitivity, on_grid
from privfed.partition import Path, check_paths
from privfed.query import Query, View
from privfed.schema import Schema

_UNIT = int(1 / GRID)
#: Most pairs of record and node that are summed in one piece.
_PIECE = 16_384


@dataclass(frozen=True)
class Scaling(Query):
    """Counts of every feature over equal bins of its public bounds: percentiles are read off them.

    Sensitivity: a record falls into exactly one bin of each feature, so L1 = F and squared L2 = F;
    replacing it moves two bins of each by one: 2F and 2F.
    """

    bins: int
    kind: ClassVar[str] = "fuzzy_tree.scaling"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``counts`` by feature and bin."""
        if not 2 <= self.bins <= 100_000:
            raise QueryError("malformed", "bins must lie between 2 and 100,000")
        features = len(schema.features)
        bound = Bound(features, features)
        sensitivity = Sensitivity(bound, replace_one=Bound(2 * features, 2 * features))
        return {
            "counts": Part(PartType.COUNTS, ("feature", "bin"), (features, self.bins), sensitivity)
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count each feature's values; the upper bound falls into the last bin."""
        unit = to_unit(view.table.x, view.schema.lower, view.schema.upper)
        bins = np.minimum((unit * self.bins).astype(np.int64), self.bins - 1)
        features = bins.shape[1]
        keys = bins + np.arange(features) * self.bins
        counts = np.bincount(keys.ravel(), minlength=features * self.bins)
        return {"counts": counts.reshape(features, self.bins)}


@dataclass(frozen=True, eq=False)
class _Fuzzy(Query):
    """What the tree's queries share: the nodes they are about, and the public scaling.

    Args:
        nodes: paths from the root, each step a (feature, set) pair.
        sets: fuzzy sets of each feature, T.
        lower: where each feature's [0, 1] begins, shape (features,).
        upper: where it ends.
    """

    nodes: tuple[Path, ...]
    sets: int
    lower: np.ndarray
    upper: np.ndarray

    def _check(self, schema: Schema) -> None:
        features = len(schema.features)
        if schema.target is None or not 2 <= self.sets <= 99 or not self.nodes:
            raise QueryError("malformed", "a fuzzy tree needs a target, sets and nodes")
        for bound in (self.lower, self.upper):
            if (
                bound.shape != (features,)
                or bound.dtype.kind != "f"
                or not np.isfinite(bound).all()
            ):
                raise QueryError("malformed", "scaling needs one finite bound for each feature")
        check_paths(self.nodes, features, self.sets)

    def _check_features(self, schema: Schema) -> None:
        chosen = self.features  # type: ignore[attr-defined]
        if len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(len(schema.features))):
            raise QueryError("malformed", "features must be known, each once")

    def _prepare(self, view: View) -> _Prepared:
        key = ("fuzzy_tree", self.sets, self.lower.tobytes(), self.upper.tobytes())
        if view.cache.get("fuzzy_tree.key") != key:
            view.cache["fuzzy_tree.key"] = key
            view.cache["fuzzy_tree"] = _Prepared.of(view, self.sets, self.lower, self.upper)
        prepared: _Prepared = view.cache["fuzzy_tree"]
        return prepared

    def _silent(self, view: View) -> np.ndarray:
        """Nodes whose totals could be subtracted: a branch of a split on their way reveals.

        If one branch of a split reveals at this client, all branches are silent, and all that grows
        from them. Pure in (records, query).
        """
        prepared = self._prepare(view)
        fate: dict[Path, bool] = {(): False}
        known: dict[Path, Activation] = {}

        def silent(path: Path) -> bool:
            if path not in fate:
                parent, feature = path[:-1], path[-1][0]
                hidden = silent(parent)
                if not hidden:
                    (node,) = activations(prepared.memberships, [parent], known)
                    hidden = _group_reveals(
                        self.sets, prepared.memberships, node, feature, root=not parent
                    )
                fate.update({(*parent, (feature, branch)): hidden for branch in range(self.sets)})
            return fate[path]

        return np.array([silent(path) for path in self.nodes])


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A client's records in the tree's own coordinates."""

    unit: np.ndarray
    target: np.ndarray
    memberships: Memberships
    known: MutableMapping[Path, Activation] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View, sets: int, lower: np.ndarray, upper: np.ndarray) -> _Prepared:
        assert view.schema.target is not None
        low, high = view.schema.target.bounds
        unit = to_unit(view.table.x, lower, upper)
        return cls(unit, (view.table.target - low) / (high - low) - 0.5, Memberships.of(unit, sets))

    def reach(self, nodes: Sequence[Path]) -> list[Activation]:
        """Activations of the nodes; only these are remembered, for their children."""
        reached = activations(self.memberships, nodes, self.known)
        keep_only(self.known, nodes)
        return reached


@dataclass(frozen=True, eq=False)
class Level(_Fuzzy):
    """Sums by fuzzy set for the open nodes of one level (paper, Table 1 and Eqs. 9-11, 15-17).

    With w the activation of a node, mu the membership in a set and y the target in [-1/2, 1/2]:
    ``weights`` = sum w mu (WS), ``linear`` = sum y w mu (WLS), ``squares`` = sum y^2 w mu (WSS) and
    ``counts`` = number of records with w mu > 0, by node, feature and set; ``node_*`` the same for
    the nodes themselves, ``node_strong`` the records with w >= 0.5^depth, ``records`` all of them.

    Sensitivity, add-or-remove one record. The nodes belong to one tree (checked), so the record's w
    sum to at most 1 over them, and its w mu to at most 1 over nodes and sets, for each feature. With
    |y| <= 1/2 the L1 norms are at most F', F'/2, F'/4 for the F' candidate features, and with one
    non-negative vector of sum at most 1 a feature, the squared L2 norms F', F'/4, F'/16. Truncating
    each contribution to the grid shrinks them. A record at depth d reaches at most 2^d nodes, and
    two sets of each feature: counts have L1 and squared L2 F' 2^(d+1); node counts 2^d, and strong
    ones 2^d (all memberships equal to one half).

    Args:
        features: candidate features; the sums of others, and of those on a node's path, are zero.
    """

    features: tuple[int, ...] = ()
    kind: ClassVar[str] = "fuzzy_tree.level"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Sums and counts by (node, feature, set), and by node."""
        self._check(schema)
        self._check_features(schema)
        wide = len(self.features)
        depth = max(len(path) for path in self.nodes)
        reach = min(2**depth, len(self.nodes))
        cells = (len(self.nodes), wide, self.sets)
        return {
            **_sums("", ("node", "feature", "set"), cells, wide),
            "counts": _counts(("node", "feature", "set"), cells, 2 * wide * reach),
            **_sums("node_", ("node",), cells[:1], 1),
            "node_counts": _counts(("node",), cells[:1], reach),
            "node_strong": _counts(("node",), cells[:1], reach),
            "records": _counts((), (), 1),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up over all pairs of record and node at once."""
        prepared = self._prepare(view)
        reached = prepared.reach(self.nodes)
        sums = {**_cell_sums(self, prepared, reached), **_node_sums(self, prepared, reached)}
        return {**sums, "records": np.array(len(prepared.target))}

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mark cells by the paper's three conditions (Algorithm 1), or strictly.

        Strictly, a whole feature of a node is silent if one of its sets reveals, for its sum is the
        node's total; and a whole node is, totals included, if it or a sibling of any ancestor does.
        """
        cells = revealing(
            exact["weights"], exact["counts"], [not path for path in self.nodes], strict
        )
        if not strict:
            return dict.fromkeys(("weights", "linear", "squares", "counts"), cells)
        nodes = np.asarray(self._silent(view) | few(exact["node_counts"]))
        cells = (
            np.broadcast_to(cells.any(axis=2, keepdims=True), cells.shape) | nodes[:, None, None]
        )
        total = np.asarray(few(exact["records"]))
        by_node = dict.fromkeys(
            ("node_weights", "node_linear", "node_squares", "node_counts", "node_strong"), nodes
        )
        by_cell = dict.fromkeys(("weights", "linear", "squares", "counts"), cells)
        return {**by_cell, **by_node, "records": total}


@dataclass(frozen=True, eq=False)
class Leaves(_Fuzzy):
    """Weighted normal equations of every leaf (paper, Algorithm 2, with proper weights).

    ``gram`` = sum w x x' and ``moment`` = sum w y x, where x has a leading 1 and the features scaled
    to [-1/2, 1/2], and y lies in [-1/2, 1/2]. (The paper's Eq. 5 weights x twice and y never, which
    is no weighted least squares.)

    Sensitivity: a record's w sum to at most 1 over the leaves of one tree (checked), and
    |x|^2 <= 1 + F/4 =: d. So gram moves by at most sum w |x|^2 <= d in L2 (Frobenius), and moment by
    sqrt(d) / 2. In L1, |x|_1 <= 1 + F/2 =: s: s^2 and s / 2.

    Args:
        features: the F features of the linear models.
    """

    features: tuple[int, ...] = ()
    kind: ClassVar[str] = "fuzzy_tree.leaves"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``gram`` (leaf, row, column) and ``moment`` (leaf, row)."""
        self._check(schema)
        self._check_features(schema)
        leaves, width = len(self.nodes), len(self.features) + 1
        return {
            "gram": Part(
                PartType.SUMS,
                ("leaf", "row", "column"),
                (leaves, width, width),
                _gram(width - 1),
                GRID,
            ),
            "moment": Part(
                PartType.SUMS, ("leaf", "row"), (leaves, width), _moment(width - 1), GRID
            ),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up leaf by leaf, the upper triangle only."""
        prepared = self._prepare(view)
        reached = prepared.reach(self.nodes)
        chosen = prepared.unit[:, list(self.features)]
        design = np.column_stack([np.ones(len(chosen)), chosen - 0.5])
        sums = [_equations(design, prepared.target, leaf) for leaf in reached]
        return {
            "gram": np.stack([gram for gram, _ in sums]),
            "moment": np.stack([moment for _, moment in sums]),
        }

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Nothing by the paper; strictly, leaves of no more records than unknowns, and silent ones.

        Normal equations of n <= F + 1 records have rank n and give the records away by enumeration.
        """
        if not strict:
            return {}
        width = exact["moment"].shape[1]
        counts = np.array([len(leaf.rows) for leaf in self._prepare(view).reach(self.nodes)])
        silent = self._silent(view) | ((counts > 0) & (counts <= max(2, width)))
        return {
            "gram": np.broadcast_to(silent[:, None, None], exact["gram"].shape),
            "moment": np.broadcast_to(silent[:, None], exact["moment"].shape),
        }


@dataclass(frozen=True, eq=False)
class Activations(_Fuzzy):
    """Summed activation and number of activating records of every leaf (paper, Eq. 22).

    Sensitivity: ``weights`` L1 1 (activations sum to at most 1 over the leaves), ``counts`` 2^d for
    leaves at depth d or less.
    """

    kind: ClassVar[str] = "fuzzy_tree.activation"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``weights`` and ``counts`` by leaf."""
        self._check(schema)
        reach = min(2 ** max(len(path) for path in self.nodes), len(self.nodes))
        shape = (len(self.nodes),)
        return {
            "weights": Part(PartType.SUMS, ("leaf",), shape, Sensitivity.of(_UNIT), GRID),
            "counts": _counts(("leaf",), shape, reach),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up leaf by leaf."""
        prepared = self._prepare(view)
        reached = prepared.reach(self.nodes)
        return {
            "weights": np.array([on_grid(leaf.weight).sum() for leaf in reached]),
            "counts": np.array([len(leaf.rows) for leaf in reached]),
        }

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Nothing by the paper; strictly, small and silent leaves."""
        if not strict:
            return {}
        silent = self._silent(view) | few(exact["counts"])
        return {"weights": silent, "counts": silent}


# --- sensitivities ---------------------------------------------------------------------------------


def _sums(prefix: str, axes: tuple[str, ...], shape: tuple[int, ...], wide: int) -> dict[str, Part]:
    """WS, WLS and WSS with L1 F', F'/2, F'/4 and squared L2 F', F'/4, F'/16, in grid units."""
    parts = {}
    for name, half in (("weights", 0), ("linear", 1), ("squares", 2)):
        sensitivity = Sensitivity.of(wide * _UNIT >> half, wide * _UNIT**2 >> 2 * half)
        parts[prefix + name] = Part(PartType.SUMS, axes, shape, sensitivity, GRID)
    return parts


def _counts(axes: tuple[str, ...], shape: tuple[int, ...], reach: int) -> Part:
    """Counts of which one record moves at most ``reach`` by one each."""
    bound = Bound(reach, reach)
    sensitivity = Sensitivity(bound, replace_one=Bound(2 * reach, 2 * reach))
    return Part(PartType.COUNTS, axes, shape, sensitivity)


def _gram(features: int) -> Sensitivity:
    """L1 (1 + F/2)^2 and squared L2 (1 + F/4)^2, in grid units (exact: _UNIT is a power of 2)."""
    return Sensitivity.of((2 + features) ** 2 * _UNIT // 4, (4 + features) ** 2 * _UNIT**2 // 16)


def _moment(features: int) -> Sensitivity:
    """L1 (1 + F/2) / 2 and squared L2 (1 + F/4) / 4, in grid units."""
    return Sensitivity.of((2 + features) * _UNIT // 4, (4 + features) * _UNIT**2 // 16)


# --- sums ------------------------------------------------------------------------------------------


def _cell_sums(
    query: Level, prepared: _Prepared, reached: list[Activation]
) -> dict[str, np.ndarray]:
    """The sums by (node, feature, set), a piece of the pairs at a time."""
    nodes, wide, sets = len(query.nodes), len(query.features), query.sets
    node = np.repeat(np.arange(nodes), [len(one.rows) for one in reached])
    rows = np.concatenate([one.rows for one in reached])
    weight = np.concatenate([one.weight for one in reached])
    size = nodes * wide * sets
    totals = np.zeros((4, size))
    columns = np.array(query.features, dtype=np.int64)
    for start in range(0, len(rows), _PIECE):
        piece = slice(start, start + _PIECE)
        below = prepared.memberships.below[np.ix_(rows[piece], columns)]
        rest = prepared.memberships.rest[np.ix_(rows[piece], columns)]
        key = (node[piece, None] * wide + np.arange(wide)) * sets + below
        target = prepared.target[rows[piece], None]
        _add_cells(totals, key, weight[piece, None] * (1 - rest), target)
        _add_cells(totals, key + 1, weight[piece, None] * rest, target)
    shaped = totals.reshape(4, nodes, wide, sets)
    for number, path in enumerate(query.nodes):
        used = [query.features.index(f) for f, _ in path if f in query.features]
        shaped[:, number, used] = 0
    return dict(zip(("weights", "linear", "squares", "counts"), shaped, strict=True))


def _add_cells(totals: np.ndarray, key: np.ndarray, degree: np.ndarray, target: np.ndarray) -> None:
    flat = key.ravel()
    size = totals.shape[1]
    for row, values in enumerate((degree, degree * target, degree * target**2)):
        totals[row] += np.bincount(flat, on_grid(values).ravel(), size)
    totals[3] += np.bincount(flat, (degree >= LEAST).ravel(), size)


def _node_sums(
    query: Level, prepared: _Prepared, reached: list[Activation]
) -> dict[str, np.ndarray]:
    """The sums by node."""
    sums = np.zeros((5, len(reached)))
    for number, (path, node) in enumerate(zip(query.nodes, reached, strict=True)):
        target = prepared.target[node.rows]
        sums[0, number] = on_grid(node.weight).sum()
        sums[1, number] = on_grid(node.weight * target).sum()
        sums[2, number] = on_grid(node.weight * target**2).sum()
        sums[3, number] = len(node.rows)
        sums[4, number] = (node.weight >= 0.5 ** len(path)).sum()
    names = ("node_weights", "node_linear", "node_squares", "node_counts", "node_strong")
    return dict(zip(names, sums, strict=True))


def _equations(
    design: np.ndarray, target: np.ndarray, leaf: Activation
) -> tuple[np.ndarray, np.ndarray]:
    """One leaf's normal equations in whole grid units."""
    x, weight = design[leaf.rows], leaf.weight[:, None]
    weighted = weight * x
    width = x.shape[1]
    gram = np.zeros((width, width))
    for row in range(width):
        gram[row, row:] = on_grid(weighted[:, row : row + 1] * x[:, row:]).sum(axis=0)
    gram += np.triu(gram, 1).T
    return gram, on_grid(weighted * target[leaf.rows, None]).sum(axis=0)


# --- what would give a record away -----------------------------------------------------------------


def few(counts: np.ndarray) -> np.ndarray:
    """Cells of one or two records."""
    small: np.ndarray = (counts > 0) & (counts <= 2)
    return small


def revealing(
    weights: np.ndarray, counts: np.ndarray, root: Sequence[bool], strict: bool
) -> np.ndarray:
    """The paper's Check&Nullify (Algorithm 1) on cells of shape (node, feature, set).

    (i) two records or fewer; (ii) a set whose neighbours are both empty: all its records share one
    value (at a border, the one neighbour); (iii) at the root, weights equal to the count: each
    membership is 1. Strictly, an empty cell reveals nobody and need not be hidden.
    """
    filled = weights > 0
    padded = np.pad(filled, ((0, 0), (0, 0), (1, 1)))
    alone = filled & ~padded[:, :, :-2] & ~padded[:, :, 2:]
    whole = (weights == counts * _UNIT) & np.asarray(root, dtype=bool)[:, None, None]
    if strict:
        strictly: np.ndarray = few(counts) | alone | (whole & filled)
        return strictly
    cells: np.ndarray = (counts <= 2) | alone | whole
    return cells


def _group_reveals(
    sets: int, memberships: Memberships, parent: Activation, split: int, root: bool
) -> bool:
    """Whether one of the branches of a node's split on a feature reveals."""
    branches = [parent.into(memberships, split, branch) for branch in range(sets)]
    weights = np.array([on_grid(branch.weight).sum() for branch in branches])
    counts = np.array([len(branch.rows) for branch in branches])
    return bool(revealing(weights[None, None], counts[None, None], [root], strict=True).any())
