"""Rules as runs of cells: a record is in one cell of the grid of some covariates' cuts.

A rule on these covariates is a set of runs of cells, so that its sums are differences of cumulative
sums.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from scipy.sparse import csr_array

from privfed.learners.rulefit.rules import Terms, intervals_of

#: Minimum and maximum cells of one grid, which pays off if records share cells; maximum cells of all grids.
LEAST_CELLS, MOST_CELLS, RECORDS, ALL_CELLS = 64, 4096, 8, 2**21
OPEN = 32  #: Number of grids that stay open for further rules
Named = Mapping[int, tuple[int, int]]  #: A rule's first and end codes by covariate
END = 256  #: Beyond every code


@dataclass(frozen=True, eq=False)
class Grid:
    """The grid of cells from cuts of some covariates, in row-major order."""

    cuts: Mapping[int, np.ndarray]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of bins of each covariate."""
        return tuple(len(cuts) + 1 for cuts in self.cuts.values())

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(np.prod(self.shape))

    def cells(self, codes: np.ndarray) -> np.ndarray:
        """Return the cell of each record, int32; ``codes`` has shape (records, features)."""
        cell = np.zeros(len(codes), np.int32)
        for feature, cuts in self.cuts.items():
            bins = np.searchsorted(cuts, np.arange(END), side="right").astype(np.int32)
            cell = cell * np.int32(len(cuts) + 1) + bins[codes[:, feature]]
        return cell

    def runs(self, named: Named) -> np.ndarray:
        """Return start and end of a rule's runs of neighbouring cells, shape (runs, 2)."""
        bins = [self._bins(feature, named) for feature in self.cuts]
        last = max((k for k, span in enumerate(bins) if span != (0, self.shape[k])), default=0)
        if not bins:
            return np.array([[0, 1]])
        outer = np.zeros(1, np.int64)
        for k, span in enumerate(bins[:last]):
            outer = (outer[:, None] * self.shape[k] + np.arange(*span)).ravel()
        inner = int(np.prod(self.shape[last + 1 :]))
        return np.asarray((outer[:, None] * self.shape[last] + np.array(bins[last])) * inner)

    def _bins(self, feature: int, named: Named) -> tuple[int, int]:
        cuts = self.cuts[feature]
        low, high = named.get(feature, (0, END))
        return int(np.searchsorted(cuts, low, "right")), int(np.searchsorted(cuts, high)) + 1


@dataclass(frozen=True, eq=False)
class Lone:
    """Two cells: the records that do not satisfy one rule, and those that do."""

    named: Named
    size = 2

    def cells(self, codes: np.ndarray) -> np.ndarray:
        """See :class:`Grid`."""
        members = np.ones(len(codes), bool)
        for feature, (low, high) in self.named.items():
            members &= (codes[:, feature] >= low) & (codes[:, feature] < high)
        return members.astype(np.int32)

    def runs(self, named: Named) -> np.ndarray:
        """See :class:`Grid`."""
        return np.array([[1, 2]])


@dataclass(frozen=True, eq=False)
class Grids:
    """The grids of a model's rules."""

    grids: tuple[Grid | Lone, ...]  #: the grids, concatenated
    starts: np.ndarray  #: index of each grid's first cell, shape (grids + 1,)
    ends: csr_array  #: 1 at a rule's run ends, -1 at starts, shape (rules, cells + 1)
    steps: csr_array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", -self.ends.T.tocsr())

    @property
    def size(self) -> int:
        """Number of cells of all grids."""
        return int(self.starts[-1])

    def cells(self, codes: np.ndarray) -> np.ndarray:
        """Return the cell of each record in each grid; int32, shape (records, grids)."""
        cells = np.empty((len(codes), len(self.grids)), np.int32)
        for number, grid in enumerate(self.grids):
            cells[:, number] = grid.cells(codes) + self.starts[number]
        return cells

    def by_cell(self, weights: np.ndarray) -> np.ndarray:
        """Return, for each cell, the sum of weights of the rules that hold in it; shape (cells,)."""
        return np.asarray(np.cumsum(self.steps @ weights)[:-1])

    def by_rule(self, sums: np.ndarray) -> np.ndarray:
        """Return sums over the cells of each rule, shape (rules,)."""
        cumulative = np.zeros(len(sums) + 1)
        np.cumsum(sums, out=cumulative[1:])
        return np.asarray(self.ends @ cumulative)


def grids_of(terms: Terms, records: int) -> Grids:
    """Group a model's rules into grids, for ``records`` records; cached, as all clients get the same rules."""
    limit = 1 << max(1, records // RECORDS).bit_length()
    limit = min(max(limit, LEAST_CELLS), MOST_CELLS, max(2, ALL_CELLS // max(1, len(terms.boxes))))
    sizes = tuple(terms.cutoffs.sizes.tolist())
    return _grids(terms.boxes.tobytes(), terms.boxes.shape, sizes, limit)


@lru_cache(maxsize=8)
def _grids(boxes: bytes, shape: tuple[int, ...], sizes: tuple[int, ...], limit: int) -> Grids:
    codes = np.frombuffer(boxes, np.uint8).reshape(shape)
    rules = [
        {feature: (low, high if high < sizes[feature] else END) for feature, low, high in intervals}
        for intervals in intervals_of(codes, np.array(sizes))
    ]
    grids, starts, triples = [], [0], [np.zeros((0, 3), np.int64)]
    for portion in _pack(_portions(rules, limit), limit):
        alone = portion.cells > limit
        grid = Lone(rules[portion.rules[0]]) if alone else portion.grid()
        for rule in portion.rules:
            runs = grid.runs(rules[rule]) + starts[-1]
            triples.append(np.column_stack([np.full(len(runs), rule), runs]))
        grids.append(grid)
        starts.append(starts[-1] + grid.size)
    rule, start, end = np.concatenate(triples).T
    index = (np.concatenate([rule, rule]), np.concatenate([start, end]))
    signs = np.repeat([-1.0, 1.0], len(rule))
    ends = csr_array((signs, index), shape=(shape[0], starts[-1] + 1))
    ends.eliminate_zeros()  # where one run ends and the next starts
    return Grids(tuple(grids), np.array(starts), ends)


@dataclass(frozen=True, eq=False)
class _Portion:
    """Rules for one grid; bit k of a covariate's cuts is set if an interval starts or ends at code k."""

    cuts: Mapping[int, int]
    rules: list[int]

    @cached_property
    def cells(self) -> int:
        return math.prod(bits.bit_count() + 1 for bits in self.cuts.values())

    def joined(self, other: _Portion) -> _Portion:
        """Return the cuts of both, with this one's rules."""
        covariates = {*self.cuts, *other.cuts}
        both = {j: self.cuts.get(j, 0) | other.cuts.get(j, 0) for j in covariates}
        return _Portion(both, self.rules)

    def grid(self) -> Grid:
        """Return the grid, with covariates of most bins last, for the fewest runs."""
        ordered = sorted(self.cuts, key=lambda j: self.cuts[j].bit_count())
        return Grid(
            {j: np.array([k for k in range(END) if self.cuts[j] >> k & 1], int) for j in ordered}
        )


def _portions(rules: Sequence[Named], limit: int) -> list[_Portion]:
    """Group rules of the same covariates, as many as fit one grid; a rule that needs more is alone."""
    groups = defaultdict(list)
    for rule, named in enumerate(rules):
        groups[tuple(named)].append((tuple(named.values()), rule))
    portions: list[_Portion] = []
    for group in groups.values():
        current: _Portion | None = None
        for _, rule in sorted(group):
            portion = _Portion({j: _bits(*ends) for j, ends in rules[rule].items()}, [rule])
            joined = portion if current is None else current.joined(portion)
            if current is None or joined.cells > limit:
                portions.append(portion)
                current = portion
            else:
                joined.rules.append(rule)
                portions[-1] = current = joined
    return portions


def _bits(low: int, high: int) -> int:
    """Return an interval's ends as bits, except the ends of all codes."""
    return (1 << low | 1 << high) & ~(1 | 1 << END)


def _pack(portions: list[_Portion], limit: int) -> list[_Portion]:
    """Merge portions of different covariates, large ones first, each into the grid that grows least."""
    full: list[_Portion] = []
    open_: list[_Portion] = []
    for portion in sorted(portions, key=lambda p: -p.cells):
        pairs = [(host.joined(portion), index) for index, host in enumerate(open_)]
        fitting = [pair for pair in pairs if pair[0].cells <= limit]
        if fitting:
            joined, index = min(fitting, key=lambda pair: pair[0].cells - open_[pair[1]].cells)
            joined.rules.extend(portion.rules)
            open_[index] = joined
        else:
            open_.append(portion)
        if len(open_) > OPEN:
            full.append(open_.pop(0))
    return full + open_
