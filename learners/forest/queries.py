"""The queries of FedForest, each about the open nodes of all trees."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.forest.columns import LARGEST, TARGET_GRID, Columns
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.node_index import KEPT, NodeIndex
from privfed.learners.forest.settings import SETTINGS
from privfed.learners.forest.statistics import (
    bins,
    categories,
    local_gains,
    node_sizes,
    quantiles,
    shortlist,
    totals,
)
from privfed.learners.forest.trees import category_sizes
from privfed.learners.impurity import Criterion
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Drawn, Query, View
from privfed.tables.schema import Schema

#: Maximum quantile levels, and maximum candidate cuts of a pair.
MOST_LEVELS, MOST_CUTS = 100_000, 1_000_000
_HALF = TARGET_GRID.denominator // 2  #: Maximum absolute target, in grid units


@dataclass(frozen=True, eq=False)
class _AboutLevel(Query):
    """Base class of queries about the open nodes of all trees, whose samples depend on coins."""

    level: OpenNodes
    linear: ClassVar[bool] = False

    def memory(self, cells: int) -> int:
        """Return the maximum memory in bytes without the records: the cache for the next query, and the trees."""
        return 2**26 + 3 * KEPT + 128 * len(self.level.trees) + 64 * cells


@dataclass(frozen=True, eq=False)
class Sketches(_AboutLevel):
    """Quantiles of every open node's numeric pairs, and its totals (paper, Section 3.1).

    Totals of children follow from the bins of their parents' splits; they are queried at the roots, and wherever they
    were not released.

    Sensitivity: none is finite for the quantiles, which are raw values or between two. For the rest let a record be in
    tree t at most m_t times (see :class:`Sampling`): its instances are in one open node of the tree, so ``counts``
    change by L1 sum m_t =: m and squared L2 sum m_t^2, and ``sums`` (targets in [-1/2, 1/2]) by half and a quarter of
    that. Replacing a record, by the triangle inequality, changes them by twice as much. After a bootstrap there is no
    bound: a record is drawn any number of times, and adding or removing one shifts every later draw.
    """

    levels: int  #: Q, number of equal fractions between quantiles
    #: whether quantiles are interpolated, as NumPy's, or the nearest value
    interpolate: bool = False
    totals: bool = True  #: whether the nodes' totals are queried
    kind: ClassVar[str] = "forest.sketches"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``knots`` by pair and rank; ``counts`` by node and class, and ``sums`` for a regression."""
        self.level.check(schema)
        if not 1 <= self.levels <= MOST_LEVELS:
            raise QueryError("malformed", f"levels must lie between 1 and {MOST_LEVELS}")
        knots = (len(self.level.numeric), self.levels + 1)
        nodes, bound = (len(self.level.nodes),), _count_bound(self.level)
        totals = _statistics(self.level, ("node",), nodes, bound, "") if self.totals else {}
        return {**totals, "knots": Part(PartType.VALUES, ("pair", "rank"), knots)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Sort every pair once, and cache it for the next query about the same nodes."""
        index = NodeIndex.of(view, self.level)
        knots = quantiles(index, view, self.level, self.levels, self.interpolate)
        return {**(totals(index, view, self.level) if self.totals else {}), "knots": knots}

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mask all ranks except every m-th inner one, and totals of few records.

        A sketch with as many levels as records has all values. So m is such that a node releases at most one value per
        :attr:`.ForestSettings.sparse_ratio` records, and never its extremes; it still discloses some.
        """
        records = node_sizes(NodeIndex.of(view, self.level), view, self.level)
        records = np.maximum(records[self.level.numeric.nodes, None], 1)
        every = np.maximum(-(-SETTINGS.sparse_ratio * self.levels // records), 1)
        rank = np.arange(self.levels + 1)
        shown = (rank % every == 0) & (rank > 0) & (rank < self.levels)
        return {"knots": ~shown, **_few(exact, ("counts", "sums"), strict)}


@dataclass(frozen=True, eq=False)
class BinStatistics(_AboutLevel):
    """Statistics between the cuts of every numeric pair, and of every category (Section 3.2).

    The paper sends those left of each cut, the cumulative sums of these; bins are shorter.

    Sensitivity: let a record be in tree t at most m_t times (see :class:`Sampling`), and w_t be the
    most pairs of one of the tree's nodes. Its instances are in one bin of each pair of one node, so
    ``bins`` change by L1 sum m_t w_t and squared L2 sum m_t^2 w_t, ``bin_sums`` by half and a
    quarter of that; likewise ``groups`` over the categorical pairs. If each record is in one tree
    only, the maximum m_t w_t of a tree replaces the sum. Replacing a record, by the triangle
    inequality, changes them by twice as much. After a bootstrap there is no bound.
    """

    cuts: np.ndarray  #: candidates of each numeric pair, ascending, shape (pairs, cuts)
    kind: ClassVar[str] = "forest.bins"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``bins`` and ``groups`` by pair, bin or category and class; sums for a regression."""
        self.level.check(schema)
        check_cuts(self.cuts, len(self.level.numeric))
        level, parts = self.level, {}
        for name, pairs, width in (
            ("bin", level.numeric, self.cuts.shape[1] + 1),
            ("group", level.grouped, _width(level, schema)),
        ):
            shape, bound = (len(pairs), width), _count_bound(level, pairs)
            parts.update(_statistics(level, ("pair", name), shape, bound, name))
        return parts

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Search the sorted values for every cut."""
        index, level = NodeIndex.of(view, self.level), self.level
        width = _width(level, view.schema)
        return {**bins(index, view, level, self.cuts), **categories(index, view, level, width)}

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mask bins and categories of few records; if strict, all of a pair that has one."""
        by_bin = _few(exact, ("bins", "bin_sums"), strict)
        return {**by_bin, **_few(exact, ("groups", "group_sums"), strict)}

    def drawn(self, view: View) -> Iterator[Drawn]:
        """Yield the contributions by tree, whose sample is secret."""
        return bins_by_tree(self.level, self.cuts, _width(self.level, view.schema), view)


@dataclass(frozen=True, eq=False)
class LocalGains(_AboutLevel):
    """The client's own impurity decrease at each cut (AvgImp; paper, Section 3.2).

    Sensitivity: none is stated; a decrease is a ratio that one record of a small node can change completely.
    """

    cuts: np.ndarray  #: candidates of each numeric pair, ascending, shape (pairs, cuts)
    criterion: Criterion  #: the impurity
    kind: ClassVar[str] = "forest.gains"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``gains`` by pair and cut."""
        self.level.check(schema)
        check_cuts(self.cuts, len(self.level.numeric))
        check_criterion(self.criterion, self.level.classes)
        return {"gains": Part(PartType.VALUES, ("pair", "cut"), self.cuts.shape)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute from the bins that :class:`BinStatistics` would release."""
        statistics = bins(NodeIndex.of(view, self.level), view, self.level, self.cuts)
        return {"gains": local_gains(statistics, self.criterion)}


@dataclass(frozen=True, eq=False)
class Shortlist(_AboutLevel):
    """The features of greatest local decrease at each node (Top-L; paper, Section 3.1).

    Sensitivity: none is finite; one record can change every list.
    """

    levels: int  #: local quantiles that serve as candidates
    longest: int  #: L, number of features per node
    criterion: Criterion  #: the impurity
    kind: ClassVar[str] = "forest.shortlist"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``features`` and their ``gains`` by node and rank; -1 if the client has none."""
        self.level.check(schema)
        check_criterion(self.criterion, self.level.classes)
        if not (2 <= self.levels <= MOST_LEVELS and 1 <= self.longest <= len(schema.features)):
            raise QueryError("malformed", "a shortlist needs levels, and at most every feature")
        shape = (len(self.level.nodes), self.longest)
        return {
            "features": Part(PartType.ARTIFACT, ("node", "place"), shape),
            "gains": Part(PartType.VALUES, ("node", "place"), shape),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Cut each pair at the client's own quantiles, and rank the features."""
        width = _width(self.level, view.schema)
        return shortlist(view, self.level, self.levels, self.longest, width, self.criterion)


def check_cuts(cuts: np.ndarray, pairs: int) -> None:
    """Check that candidates are ascending finite 32-bit floats for each pair (else QueryError)."""
    if cuts.ndim != 2 or cuts.dtype.kind != "f" or len(cuts) != pairs:
        raise QueryError("malformed", "every pair needs a row of cuts")
    if not 1 <= cuts.shape[1] <= MOST_CUTS or not (np.abs(cuts) <= LARGEST).all():
        raise QueryError("malformed", "cuts must be finite 32-bit floats, one or more")
    if (np.diff(cuts, axis=1) < 0).any():
        raise QueryError("false-partition", "cuts must rise, or bins overlap")


def check_criterion(criterion: str, classes: int) -> None:
    """Check that an impurity is for the target's kind (else QueryError)."""
    if criterion not in (("gini", "entropy") if classes else ("squared_error",)):
        raise QueryError("malformed", "the criterion does not fit the target")


def _few(
    exact: Mapping[str, np.ndarray], names: tuple[str, str], strict: bool
) -> dict[str, np.ndarray]:
    """Mask cells with some records but fewer than :attr:`.ForestSettings.min_shown`, over all classes."""
    if names[0] not in exact:
        return {}
    counts = exact[names[0]].sum(axis=-1)
    few = (counts > 0) & (counts < SETTINGS.min_shown)
    if strict and few.ndim > 1:
        few = np.broadcast_to(few.any(axis=1, keepdims=True), few.shape)
    masks = (few[..., None], few)  # counts are by class, sums are not
    return {
        name: np.broadcast_to(mask, exact[name].shape)
        for name, mask in zip(names, masks, strict=True)
        if name in exact
    }


def _width(level: OpenNodes, schema: Schema) -> int:
    """Return the maximum number of categories of a queried feature."""
    return int(category_sizes(schema)[level.grouped.features].max(initial=1))


def _count_bound(level: OpenNodes, pairs: NodeFeatures | None = None) -> Bound | None:
    """Return the bound on one record's change of counts by node or bin; None if there is none."""
    repeats = level.sampling.repeats(1)
    if repeats is None:
        return None
    tree = level.trees.tree_of[level.nodes]
    max_pairs = np.zeros(level.trees.roots, np.int64)
    np.maximum.at(max_pairs, tree, 1 if pairs is None else pairs.sizes)
    total = int(max_pairs.max(initial=0) if level.sampling.way == "split" else max_pairs.sum())
    return Bound(repeats * total, repeats**2 * total)


def _statistics(
    level: OpenNodes, axes: tuple[str, ...], shape: tuple[int, ...], bound: Bound | None, kind: str
) -> dict[str, Part]:
    """Return parts for counts (by class) and sums, with ``reach`` as bound on the counts."""
    counted = summed = None
    if bound is not None:
        counted = Sensitivity(bound)
        summed = Sensitivity(Bound(bound.l1 * _HALF, bound.l2_squared * _HALF**2))
    classes = (*shape, level.classes or 1)
    name = f"{kind}s" if kind else "counts"
    parts = {name: Part(PartType.COUNTS, (*axes, "class"), classes, counted)}
    if level.classes:
        return parts
    name = f"{kind}_sums" if kind else "sums"
    return {**parts, name: Part(PartType.SUMS, axes, shape, summed, TARGET_GRID)}


# --- linear equations from bins: in each tree they add up over its secret sample of the records


def bins_by_tree(level: OpenNodes, cuts: np.ndarray, width: int, view: View) -> Iterator[Drawn]:
    """Yield each record's contribution to the bins of each tree if it is drawn once.

    Args:
        cuts: candidates of each numeric pair, ascending, shape (pairs, cuts).
        width: maximum categories of a queried feature.
        view: the candidate records.
    """
    columns, classes = Columns.of(view.table, level.classes), level.classes or 1
    rows = np.arange(columns.records, dtype=np.int32)
    code = columns.target if level.classes else np.zeros(columns.records, np.int64)
    for tree in range(level.trees.roots):
        draw = f"forest {level.sampling.label}, tree {int(level.sampling.trees[tree])}"
        start = np.full(columns.records, tree, np.int32)
        node = level.numbers[level.trees.descend(start, rows, columns.values)]
        for part, features in (("bin", level.numeric), ("group", level.grouped)):
            pairs = np.flatnonzero((level.trees.tree_of[level.nodes] == tree)[features.nodes])
            if not len(pairs):
                continue
            values = columns.values[features.features[pairs]]
            if part == "bin":
                thresholds, size = cuts[pairs].astype(np.float32), cuts.shape[1] + 1
                cell = np.array(
                    [np.searchsorted(c, x) for c, x in zip(thresholds, values, strict=True)]
                )
            else:
                cell, size = values.astype(np.int64), width
            inside = node == features.nodes[pairs][:, None]
            members = inside[:, None] & (cell[:, None] == np.arange(size)[:, None])
            flat = members.reshape(-1, columns.records).T
            cells = (pairs[:, None] * size + np.arange(size)).ravel()
            counts = flat[:, :, None] & (code[:, None, None] == np.arange(classes))
            indices = cells[:, None] * classes + np.arange(classes)
            yield Drawn(draw, f"{part}s", indices.ravel(), counts.reshape(len(flat), -1))
            if not level.classes:
                yield Drawn(draw, f"{part}_sums", cells, flat * columns.target[:, None])
