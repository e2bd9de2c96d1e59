"""Decision trees as public values: arrays, validated once, with vectorized traversal.

Branch k of a split takes ``cuts[k - 1] <= x < cuts[k]``. A split by categories sends the listed
ones left. Other values (missing, an unknown category) go to the last branch. So a record reaches
exactly one leaf, and at most one node on each level: cells are crisp and disjoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from privfed.errors import QueryError
from privfed.questions.cells import DEPTH
from privfed.questions.part import Bound, Sensitivity
from privfed.tables.schema import Column, Schema, shown

MOST_NODES, MOST_BRANCHES = 2**22, 256  #: Limits on the size of a received tree
_PAIRS = 2**15  #: Records times trees traversed at a time, to fit the processor's cache
MOST_NAMES = 10  #: Categories that are listed one by one
TINY = float(np.finfo(float).tiny)
ROUNDED = "Cut-offs of more digits are rounded here; for a value between the printed and the exact one, predict() decides."


@dataclass(frozen=True, eq=False)
class Nodes:
    """Base class of trees and forests: one row per node, children after their parents.

    QueryError ``malformed``: wrong type or shape, links that form no trees, cuts that do not
    increase.
    """

    feature: np.ndarray  #: a node's split feature, -1 for a leaf; int64, shape (nodes,)
    children: np.ndarray  #: by branch, then -1; int64, shape (nodes, branches), 0 or 2+ used
    cuts: np.ndarray  #: increasing, then inf; float64, shape (nodes, branches - 1)
    #: codes that go left at a split by categories, which has two branches; bool, shape (nodes,
    #: codes), or no columns
    categories: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), bool))

    def __post_init__(self) -> None:
        if _is(self.categories, "b", 2) and not self.categories.size:
            object.__setattr__(self, "categories", np.zeros((np.size(self.feature), 0), bool))
        self._check_arrays()
        self._check_links()
        self._check_splits()
        for name in ("feature", "children", "cuts", "categories"):
            array = np.array(getattr(self, name))
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def _roots(self) -> np.ndarray:
        """Return the root of each tree."""
        return np.zeros(1, np.int64)

    def _check_arrays(self) -> None:
        kinds = {
            "feature": ("i", 1),
            "children": ("i", 2),
            "cuts": ("f", 2),
            "categories": ("b", 2),
        }
        for name, (kind, axes) in kinds.items():
            _require(_is(getattr(self, name), kind, axes), f"{name} has another type or shape")
        nodes, branches = self.children.shape
        _require(0 < nodes <= MOST_NODES, f"nodes must number from 1 to {MOST_NODES}")
        _require(2 <= branches <= MOST_BRANCHES, f"branches must number from 2 to {MOST_BRANCHES}")
        _require(self.feature.shape == (nodes,), "each node needs one feature, or -1")
        _require(self.cuts.shape == (nodes, branches - 1), "branches need one cut between each two")
        _require(len(self.categories) == nodes, "each node needs one row of categories")

    def _check_links(self) -> None:
        """Check that each node except the roots has one parent, and comes after it."""
        nodes, roots = len(self.feature), self._roots()
        used = self.children >= 0
        _require(bool((self.children >= -1).all()), "a child is a node, or -1")
        _require(bool((self.children < nodes).all()), "a child is not a node")
        below = self.children[used]
        expected = np.ones(nodes, np.int64)
        expected[roots] = 0
        parents = np.bincount(below, minlength=nodes)
        _require(bool((parents == expected).all()), "every node but a root needs one parent")
        above = np.broadcast_to(np.arange(nodes)[:, None], used.shape)[used]
        _require(bool((below > above).all()), "a child comes after its parent")
        trees = np.searchsorted(roots, [below, above], side="right")
        _require(bool((trees[0] == trees[1]).all()), "a child lies in its parent's tree")

    def _check_splits(self) -> None:
        """Check that branches have no gaps, and splits have increasing cuts or categories, not both."""
        used = self.children >= 0
        branches, inner = used.sum(axis=1), self.feature >= 0
        _require(bool((self.feature >= -1).all()), "a feature is a number from 0, or -1")
        _require(bool((used[:, :-1] >= used[:, 1:]).all()), "a branch is empty")
        _require(bool((branches[inner] >= 2).all()), "a split needs two branches or more")
        _require(not branches[~inner].any(), "a leaf has no branches")
        listed = self._listing
        _require(bool((branches[listed] == 2).all()), "a split by categories needs two branches")
        due = np.arange(self.cuts.shape[1]) < (branches - 1)[:, None]
        due &= ~listed[:, None]
        _require(bool((np.isfinite(self.cuts) == due).all()), "a cut is missing, or one too many")
        _require(bool((due | (self.cuts == np.inf)).all()), "cuts that are not there are infinite")
        rising = self.cuts[:, 1:] > self.cuts[:, :-1]
        _require(bool((rising | ~due[:, 1:]).all()), "cuts must rise")
        _require(bool((self.depths <= DEPTH).all()), f"trees must not be deeper than {DEPTH}")

    def check(self, schema: Schema) -> None:
        """Check the splits against a schema's features and categories (QueryError: ``malformed``)."""
        columns = schema.features
        _require(bool((self.feature < len(columns)).all()), "a split names an unknown feature")
        counts = np.array([*(len(column.categories) for column in columns), 0])
        sizes = counts.take(self.feature)
        listed = self.categories.sum(axis=1)
        known = self.categories & (np.arange(self.categories.shape[1]) < sizes[:, None])
        _require(bool((known == self.categories).all()), "a split lists an unknown category")
        _require(bool((listed[listed > 0] < sizes[listed > 0]).all()), "a branch is empty")

    @cached_property
    def depths(self) -> np.ndarray:
        """Each node's depth below its root, shape (nodes,), up to the limit."""
        depths = np.zeros(len(self.feature), np.int64)
        level: np.ndarray = self._roots()
        for depth in range(1, DEPTH + 2):
            below = self.children[level]
            level = below[below >= 0]
            if not level.size:
                break
            depths[level] = depth
        return depths

    @property
    def depth(self) -> int:
        """The maximum depth of a leaf."""
        return int(self.depths.max())

    @cached_property
    def leaves(self) -> np.ndarray:
        """The nodes without branches, in increasing order."""
        return np.flatnonzero(self.feature < 0)

    def blocks(self, x: np.ndarray) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Traverse the trees with ``x`` (records, features) by blocks, in bounded memory.

        Yields slices of records and of trees, and the leaves reached, int64, shape (trees,
        records).
        """
        x = np.ascontiguousarray(x, dtype=float)
        _require(self.feature.max() < x.shape[1], "a split names an unknown feature")
        number = len(self._roots())
        for start in range(0, len(x), _PAIRS):
            rows = slice(start, min(start + _PAIRS, len(x)))
            step = max(1, _PAIRS // (rows.stop - rows.start))
            for first in range(0, number, step):
                trees = slice(first, min(first + step, number))
                yield rows, trees, self._walk(x[rows], trees)

    def _walk(self, x: np.ndarray, trees: slice) -> np.ndarray:
        """Return the leaf of each tree that each record reaches, moving all one level at a time."""
        feature, following, width = self._steps
        rows, values = np.arange(len(x)) * x.shape[1], x.ravel()
        at = np.repeat(self._roots()[trees, None], len(x), axis=1)
        for _ in range(int(self._heights[trees].max())):
            branch = self._branch(at, values.take(rows + feature.take(at)))
            at = following.take(at * width + branch)
        return at

    @cached_property
    def _heights(self) -> np.ndarray:
        return np.asarray(np.maximum.reduceat(self.depths, self._roots()))

    @cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Each node's feature, flattened children (a leaf's are itself), and the number of branches."""
        node_numbers = np.arange(len(self.feature))[:, None]
        following = np.where(self.children >= 0, self.children, node_numbers)
        return np.maximum(self.feature, 0), following.ravel(), following.shape[1]

    @cached_property
    def _last(self) -> np.ndarray:
        return np.asarray(np.maximum((self.children >= 0).sum(axis=1) - 1, 0))

    @cached_property
    def _listing(self) -> np.ndarray:
        return np.asarray(self.categories.any(axis=1))

    @cached_property
    def _cut_columns(self) -> np.ndarray:
        return np.ascontiguousarray(self.cuts.T)

    def _branch(self, at: np.ndarray, values: np.ndarray) -> np.ndarray:
        branch: np.ndarray = ~(values < self._cut_columns[0].take(at))
        if len(self._cut_columns) > 1:
            branches = branch.astype(np.int64)
            for cuts in self._cut_columns[1:]:
                branches += ~(values < cuts.take(at))
            branch = np.minimum(branches, self._last.take(at))
        if not self.categories.shape[1]:
            return branch
        known = (values >= 0) & (values < self.categories.shape[1])
        codes = np.where(known, values, 0).astype(np.int64)
        goes_left = known & (codes == values) & self.categories[at, codes]
        return np.asarray(np.where(self._listing[at], ~goes_left, branch))


@dataclass(frozen=True, eq=False)
class Tree(Nodes):
    """One tree; its root is node 0. Sensitivity: see :meth:`Forest.sensitivity`, for one tree."""

    @classmethod
    def binary(
        cls, feature: np.ndarray, cut: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> Self:
        """Build from one row per node: ``x < cut`` goes left; a leaf's feature is negative."""
        inner = np.asarray(feature) >= 0
        children = np.where(inner[:, None], np.column_stack([left, right]), -1)
        cuts = np.where(inner, cut, np.inf)[:, None]
        return cls(
            np.where(inner, feature, -1).astype(np.int64), children.astype(np.int64), cuts + 0.0
        )

    def reach(self, x: np.ndarray) -> np.ndarray:
        """Return the leaf that each record of ``x`` (records, features) reaches, int64, shape (records,)."""
        leaves = np.empty(len(x), np.int64)
        for rows, _, reached in self.blocks(x):
            leaves[rows] = reached[0]
        return leaves

    def paths(self) -> tuple[tuple[Span, ...], ...]:
        """Return the conditions on the path to each node, one span per feature, in order of first use."""
        paths: list[dict[int, Span]] = [{} for _ in self.feature]
        for node in np.flatnonzero(self.feature >= 0):
            for child, span in self.branches(int(node)):
                met = paths[node].get(span.feature)
                paths[child] = paths[node] | {span.feature: span if met is None else met & span}
        return tuple(tuple(path.values()) for path in paths)

    def branches(self, node: int) -> list[tuple[int, Span]]:
        """Return a node's children, each with the condition of its branch."""
        feature, below = int(self.feature[node]), self.children[node]
        children = [int(child) for child in below[below >= 0]]
        listed = np.flatnonzero(self.categories[node])
        if len(listed):
            codes = frozenset(listed.tolist())
            return [
                (children[0], Span(feature, among=codes)),
                (children[1], Span(feature, besides=codes)),
            ]
        ends = [-np.inf, *self.cuts[node, : len(children) - 1].tolist(), np.inf]
        return [(child, Span(feature, ends[at], ends[at + 1])) for at, child in enumerate(children)]

    def conditions(self, columns: Sequence[Column]) -> list[str]:
        """Return each node's branch condition as text; categories excluded higher up are left out."""
        paths, texts = self.paths(), [""] * len(self.feature)
        for node in np.flatnonzero(self.feature >= 0):
            for child, span in self.branches(int(node)):
                column = columns[span.feature]
                joined = next(met for met in paths[child] if met.feature == span.feature)
                texts[child] = (joined if column.kind == "category" else span).text(column)
        return texts

    def read(self, columns: Sequence[Column]) -> tuple[int, list[list[tuple[str, int]]]]:
        """Return the simplified tree for display: its root, and each node's branches as (condition, child).

        Branches that no record can take are left out, and splits with one remaining branch are skipped.
        """
        texts, begins = self.conditions(columns), list(range(len(self.feature)))
        met = [all(span.some(columns[span.feature]) for span in path) for path in self.paths()]
        entries: list[list[tuple[str, int]]] = [[] for _ in begins]
        for node in np.flatnonzero(self.feature >= 0)[::-1].tolist():  # children come after it
            below = [child for child, _ in self.branches(node) if met[child]]
            entries[node] = [(texts[child], begins[child]) for child in below]
            if len(below) == 1:
                begins[node] = begins[below[0]]
        return begins[0], entries

    def notes(self, columns: Sequence[Column]) -> list[str]:
        """Return :func:`rounding_note` of the tree's thresholds."""
        pairs = zip(self.feature.tolist(), self.cuts.tolist(), strict=True)
        return rounding_note((columns[f], cut) for f, cuts in pairs if f >= 0 for cut in cuts)

    def to_text(self, schema: Schema, leaf: Callable[[int], str] = "leaf {}".format) -> str:
        """Format the tree of :meth:`read`, a line per branch, indented by depth; ``leaf`` describes a leaf."""
        root, branches = self.read(schema.features)
        if not branches[root]:
            return leaf(root)
        lines: list[str] = []
        waiting = [(text, node, 0) for text, node in branches[root][::-1]]
        while waiting:
            text, node, depth = waiting.pop()
            end = "" if branches[node] else f": {leaf(node)}"
            lines.append("  " * depth + text + end)
            waiting += [(line, below, depth + 1) for line, below in branches[node][::-1]]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Forest(Nodes):
    """Many trees in one set of arrays, with nodes numbered consecutively."""

    #: root of each tree, increasing from 0
    roots: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    def __post_init__(self) -> None:
        _require(_is(self.roots, "i", 1) and len(self.roots) > 0, "a forest needs its trees' roots")
        rising = self.roots[0] == 0 and (np.diff(self.roots) > 0).all()
        _require(bool(rising) and self.roots[-1] < np.size(self.feature), "roots rise from 0")
        roots = np.array(self.roots)
        roots.setflags(write=False)
        object.__setattr__(self, "roots", roots)
        super().__post_init__()

    def _roots(self) -> np.ndarray:
        return self.roots

    def __len__(self) -> int:
        return len(self.roots)

    @classmethod
    def of(cls, trees: Sequence[Nodes]) -> Self:
        """Concatenate trees or forests (QueryError: none, or too many nodes)."""
        _require(len(trees) > 0, "a forest needs at least one tree")
        starts = np.cumsum([0, *(len(tree.feature) for tree in trees)])
        branches = max(tree.children.shape[1] for tree in trees)
        codes = max(tree.categories.shape[1] for tree in trees)
        children = [
            np.where(tree.children >= 0, tree.children + start, -1)
            for tree, start in zip(trees, starts, strict=False)
        ]
        return cls(
            np.concatenate([tree.feature for tree in trees]),
            np.concatenate([_widened(child_array, branches, -1) for child_array in children]),
            np.concatenate([_widened(tree.cuts, branches - 1, np.inf) for tree in trees]),
            np.concatenate([_widened(tree.categories, codes, filling=False) for tree in trees]),
            np.concatenate(
                [tree._roots() + start for tree, start in zip(trees, starts, strict=False)]
            ),
        )

    @property
    def trees(self) -> tuple[Tree, ...]:
        """The single trees, each with nodes numbered from 0."""
        ends = np.append(self.roots[1:], len(self.feature))
        return tuple(
            Tree(
                self.feature[start:end],
                np.where(self.children[start:end] >= 0, self.children[start:end] - start, -1),
                self.cuts[start:end],
                self.categories[start:end],
            )
            for start, end in zip(self.roots, ends, strict=True)
        )

    def sensitivity(self, units: int = 1) -> Sensitivity:
        """Return the sensitivity of sums over the leaves (or over the nodes of one level) of all trees.

        Derivation: a record reaches exactly one leaf of each of the T trees, as a split sends every
        value to exactly one branch. If each record contributes 0 to u = ``units`` to its leaf (1
        for a count), adding or removing one changes T sums by at most u each: L1 = T u and squared
        L2 = T u^2. Replacing one changes, in each tree, two sums by at most u each, or one sum by
        at most u: 2 T u and 2 T u^2.
        """
        trees = len(self)
        once = Bound(trees * units, trees * units**2)
        return Sensitivity(once, replace_one=Bound(2 * trees * units, 2 * trees * units**2))

    def reach(self, x: np.ndarray) -> np.ndarray:
        """Return the leaf of each tree that each record reaches, int64, shape (records, trees)."""
        leaves = np.empty((len(x), len(self)), np.int64)
        for rows, trees, reached in self.blocks(x):
            leaves[rows, trees] = reached.T
        return leaves

    def mean(self, x: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the mean over trees of each record's leaf value (``values`` has a row per node): (records, ...)."""
        total = np.zeros((len(x), *values.shape[1:]))
        for rows, _, reached in self.blocks(x):
            for leaves in reached:
                total[rows] += values[leaves]
        return total / len(self)


def cuts_of_thresholds(thresholds: np.ndarray) -> np.ndarray:
    """Return float64 cuts that are equivalent to scikit-learn's, where ``float32(x) <= t`` goes left.

    The boundary is half-way between the last float32 that goes left and the next one; the midpoint
    itself is rounded to the even one of the two.
    """
    thresholds = np.asarray(thresholds, dtype=float)
    last = thresholds.astype(np.float32)
    last = np.where(last > thresholds, np.nextafter(last, np.float32(-np.inf)), last)
    following = np.nextafter(last, np.float32(np.inf))
    half: np.ndarray = last.astype(float) / 2 + following.astype(float) / 2
    return np.where(half.astype(np.float32) == last, np.nextafter(half, np.inf), half)


def _require(fine: bool, message: str) -> None:
    if not fine:
        raise QueryError("malformed", f"a tree is malformed: {message}")


def _is(array: object, kind: str, axes: int) -> bool:
    types = {"i": np.int64, "f": np.float64, "b": np.bool_}
    return isinstance(array, np.ndarray) and array.dtype == types[kind] and array.ndim == axes


def _widened(array: np.ndarray, width: int, filling: float) -> np.ndarray:
    missing = width - array.shape[1]
    return np.pad(array, ((0, 0), (0, missing)), constant_values=filling)


# --- a condition on one feature: an interval of values, or a set of categories


@dataclass(frozen=True)
class Span:
    """Condition ``lower <= x < upper``, in the codes ``among`` (None: any) and not in ``besides``."""

    feature: int  #: its index in the schema
    lower: float = -np.inf  #: inclusive lower end; -inf: none
    upper: float = np.inf  #: exclusive upper end; inf: none
    among: frozenset[int] | None = None  #: codes of the only categories that satisfy it; None: any
    besides: frozenset[int] = frozenset()  #: codes of categories that do not satisfy it

    def __and__(self, other: Span) -> Span:
        both = [span.among for span in (self, other) if span.among is not None]
        return Span(
            self.feature,
            max(self.lower, other.lower),
            min(self.upper, other.upper),
            frozenset.intersection(*both) if both else None,
            self.besides | other.besides,
        )

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Return which values satisfy the condition."""
        met = (values >= self.lower) & (values < self.upper)
        if self.among is not None:
            met &= np.isin(values, list(self.among))
        return np.asarray(met & ~np.isin(values, list(self.besides)))

    def some(self, column: Column) -> bool:
        """Whether any value of a column within its bounds satisfies the condition."""
        if column.kind == "category":
            return bool(self.holds(np.arange(len(column.categories))).any())
        low, high = column.bounds
        smallest = max(self.lower, low)
        if column.kind == "integer":
            smallest = float(np.ceil(smallest))
        return smallest < self.upper and smallest <= high

    def text(self, column: Column) -> str:
        """Format the condition for display: ``age < 57.2``, ``3 <= GCS < 8``, ``sex = female``."""
        if column.kind != "category":
            return interval_text(column.name, self.lower, self.upper, column)
        codes = np.arange(len(column.categories))
        return categories_text(column, self.holds(codes))


def interval_text(name: str, lower: float, upper: float, column: Column | None = None) -> str:
    """Format ``lower <= name < upper`` without infinite ends, of integers by the first and last: ``3 <= GCS <= 8``.

    Where rounding errors put an end just above the decimal printed, that decimal is below: ``name <= upper``.
    """
    name = shown(name)
    if column is not None and column.kind == "integer":
        first, last = integers_of(lower, upper, column)
        if first == last:
            return f"{name} = {first:.0f}"
        low, high, above, not_below = f"{first:.0f}", f"{last:.0f}", False, True
    else:
        (low, above), (high, not_below) = ends_of(lower, upper, column)
    if (lower, upper) == (-np.inf, np.inf):
        return f"any {name}"
    if lower == -np.inf:
        return f"{name} {'<=' if not_below else '<'} {high}"
    if upper == np.inf:
        return f"{name} {'>' if above else '>='} {low}"
    return f"{low} {'<' if above else '<='} {name} {'<=' if not_below else '<'} {high}"


def range_text(lower: float, upper: float, column: Column) -> str:
    """Format one of a column's consecutive ranges in words: ``34 or less``, ``3.5 to below 7``, ``7 or more``.

    Together the ranges name every number once. Those beyond the bounds count as these.
    """
    if column.kind == "integer":
        first, last = integers_of(lower, upper, column)
        low, high, above, not_below = f"{first:.0f}", f"{last:.0f}", False, True
        if first == last:
            return high
    else:
        (low, above), (high, not_below) = ends_of(lower, upper, column)
    if (lower, upper) == (-np.inf, np.inf):
        return "any"
    if lower == -np.inf:
        return f"{high} or less" if not_below else f"below {high}"
    if upper == np.inf:
        return f"above {low}" if above else f"{low} or more"
    return f"{'above ' * above}{low} to {'below ' * (not not_below)}{high}"


def integers_of(lower: float, upper: float, column: Column) -> tuple[float, float]:
    """Return the first and last integer in ``lower <= x < upper``, infinite without an end.

    None is below a lower bound of zero, nor beyond the bounds of a column with two values.
    """
    first, last = float(np.ceil(lower)) + 0.0, float(np.ceil(upper)) - 1  # without -0.0
    low, high = column.bounds
    two = high == low + 1
    return max(first, low) if two or low == 0 else first, min(last, high) if two else last


def ends_of(
    lower: float, upper: float, column: Column | None
) -> tuple[tuple[str, bool], tuple[str, bool]]:
    """Return both ends of an interval as :func:`_cut_text`, with digits that tell them apart."""
    width = np.inf if column is None else float(np.ptp(column.bounds))
    low, high = _cut_text(lower, width), _cut_text(upper, width)
    if low[0] == high[0] and lower < upper:
        low, high = _cut_text(lower, upper - lower), _cut_text(upper, upper - lower)
    return low, high


def _cut_text(value: float, width: float) -> tuple[str, bool]:
    """Format a threshold exactly if eight significant digits suffice, else to three, or more by :func:`digits_of`.

    A rounded threshold would decide otherwise than the model for values between the two: the digits before the decimal
    point, up to six, are kept. Returns the text, and whether the threshold is that decimal plus rounding errors.
    """
    if not np.isfinite(value):
        return "", False
    if abs(value) < TINY:  # zero, or the next number to it
        return "0", value > 0
    text = digits_text(value, 8)
    if abs(float(text) - value) <= 1e-12 * abs(value):
        return text, float(text) < float(value)
    whole = math.floor(math.log10(abs(value))) + 1
    return digits_text(value, digits_of(value, width, max(3, min(whole, 6)))), False


def rounding_note(cuts: Iterable[tuple[Column, float]]) -> list[str]:
    """Return a note for readers if :func:`_cut_text` rounds any threshold of a column of numbers, else nothing."""
    numbers = (cut for column, cut in cuts if column.kind == "number" and np.isfinite(cut))
    rounded = (abs(float(digits_text(cut, 8)) - cut) > 1e-12 * abs(cut) + TINY for cut in numbers)
    return [ROUNDED] * any(rounded)


def categories_text(column: Column, met: np.ndarray, most: int = MOST_NAMES) -> str:
    """Format the categories of a column that satisfy a condition, by name; by the others if these are under half as many."""
    codes, others, name = np.flatnonzero(met), np.flatnonzero(~met), shown(column.name)
    if 0 < 2 * len(others) < len(codes):
        return f"{name} not in {{{names_text(column.categories, others, most)}}}"
    named = names_text(column.categories, codes, most)
    return f"{name} = {named}" if len(codes) == 1 else f"{name} in {{{named}}}"


def names_text(names: Sequence[str], codes: np.ndarray, most: int = MOST_NAMES) -> str:
    """Format names in their own order; more than ``most`` by the ends of their runs: ``L003, ..., L178``."""
    runs = np.split(codes, np.flatnonzero(np.diff(codes) != 1) + 1)
    if len(codes) > most:
        parts = [run if len(run) < 4 else [run[0], None, run[-1]] for run in runs]
    else:
        parts = [codes]
    return ", ".join("..." if code is None else shown(names[code]) for run in parts for code in run)


def number_text(value: float, width: float = np.inf) -> str:
    """Format a number to four significant digits, six from 10,000 on, or more by :func:`digits_of`."""
    return digits_text(value, digits_of(value, width, 4 if abs(value) < 1e4 else 6))


def digits_text(value: float, digits: int) -> str:
    """Format a number to significant digits, large ones written out and zero without sign: ``254000``, ``0``."""
    text = f"{value + 0.0:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e15 else text


def ends_text(low: float, high: float) -> str:
    """Format both ends of a range, with digits by its width: ``0.5 and 12``."""
    return " and ".join(number_text(end, high - low) for end in (low, high))


def digits_of(value: float, width: float, min_digits: int = 4) -> int:
    """Return how many significant digits resolve four digits of a range's ``width``, at least ``min_digits``.

    A width of 1e-12 of the value is a rounding error.
    """
    if not 1e-12 * abs(value) < width < abs(value):
        return min_digits
    return max(min_digits, 4 + math.floor(math.log10(abs(value))) - math.floor(math.log10(width)))
