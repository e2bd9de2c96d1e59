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
        return tuple(len(own) + 1 for own in self.cuts.values())

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(np.prod(self.shape))

    def cells(self, codes: np.ndarray) -> np.ndarray:
        """Return the cell of each record, int32; ``codes`` has shape (records, features)."""
        cell = np.zeros(len(codes), np.int32)
        for feature, own in self.cuts.items():
            bins = np.searchsorted(own, np.arange(END), side="right").astype(np.int32)
            cell = cell * np.int32(len(own) + 1) + bins[codes[:, feature]]
        return cell

    def runs(self, named: Named) -> np.ndarray:
        """Return start and end of a rule's runs of neighbouring cells, shape (runs, 2)."""
        bins = [self._bins(feature, named) for feature in self.cuts]
        last = max((at for at, own in enumerate(bins) if own != (0, self.shape[at])), default=0)
        if not bins:
            return np.array([[0, 1]])
        outer = np.zeros(1, np.int64)
        for at, own in enumerate(bins[:last]):
            outer = (outer[:, None] * self.shape[at] + np.arange(*own)).ravel()
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
        held = np.ones(len(codes), bool)
        for feature, (low, high) in self.named.items():
            held &= (codes[:, feature] >= low) & (codes[:, feature] < high)
        return held.astype(np.int32)

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
        found = np.empty((len(codes), len(self.grids)), np.int32)
        for number, grid in enumerate(self.grids):
            found[:, number] = grid.cells(codes) + self.starts[number]
        return found

    def by_cell(self, weights: np.ndarray) -> np.ndarray:
        """Return, for each cell, the sum of weights of the rules that hold in it; shape (cells,)."""
        return np.asarray(np.cumsum(self.steps @ weights)[:-1])

    def by_rule(self, sums: np.ndarray) -> np.ndarray:
        """Return sums over the cells of each rule, shape (rules,)."""
        reached = np.zeros(len(sums) + 1)
        np.cumsum(sums, out=reached[1:])
        return np.asarray(self.ends @ reached)


def grids_of(terms: Terms, records: int) -> Grids:
    """Group a model's rules into grids, for ``records`` records; cached, as all clients get the same rules."""
    most = 1 << max(1, records // RECORDS).bit_length()
    most = min(max(most, LEAST_CELLS), MOST_CELLS, max(2, ALL_CELLS // max(1, len(terms.boxes))))
    sizes = tuple(terms.cutoffs.sizes.tolist())
    return _grids(terms.boxes.tobytes(), terms.boxes.shape, sizes, most)


@lru_cache(maxsize=8)
def _grids(boxes: bytes, shape: tuple[int, ...], sizes: tuple[int, ...], most: int) -> Grids:
    given = np.frombuffer(boxes, np.uint8).reshape(shape)
    rules = [
        {feature: (low, high if high < sizes[feature] else END) for feature, low, high in own}
        for own in intervals_of(given, np.array(sizes))
    ]
    grids, starts, begun = [], [0], [np.zeros((0, 3), np.int64)]
    for portion in _packed(_portions(rules, most), most):
        alone = portion.cells > most
        grid = Lone(rules[portion.rules[0]]) if alone else portion.grid()
        for rule in portion.rules:
            runs = grid.runs(rules[rule]) + starts[-1]
            begun.append(np.column_stack([np.full(len(runs), rule), runs]))
        grids.append(grid)
        starts.append(starts[-1] + grid.size)
    rule, start, end = np.concatenate(begun).T
    at = (np.concatenate([rule, rule]), np.concatenate([start, end]))
    signs = np.repeat([-1.0, 1.0], len(rule))
    ends = csr_array((signs, at), shape=(shape[0], starts[-1] + 1))
    ends.eliminate_zeros()  # where one run ends and the next starts
    return Grids(tuple(grids), np.array(starts), ends)


@dataclass(frozen=True, eq=False)
class _Portion:
    """Rules for one grid; bit k of a covariate's cuts is set if an interval starts or ends at code k."""

    cuts: Mapping[int, int]
    rules: list[int]

    @cached_property
    def cells(self) -> int:
        return math.prod(own.bit_count() + 1 for own in self.cuts.values())

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


def _portions(rules: Sequence[Named], most: int) -> list[_Portion]:
    """Group rules of the same covariates, as many as fit one grid; a rule that needs more is alone."""
    groups = defaultdict(list)
    for rule, named in enumerate(rules):
        groups[tuple(named)].append((tuple(named.values()), rule))
    portions: list[_Portion] = []
    for group in groups.values():
        held: _Portion | None = None
        for _, rule in sorted(group):
            own = _Portion({j: _bits(*ends) for j, ends in rules[rule].items()}, [rule])
            joined = own if held is None else held.joined(own)
            if held is None or joined.cells > most:
                portions.append(own)
                held = own
            else:
                joined.rules.append(rule)
                portions[-1] = held = joined
    return portions


def _bits(low: int, high: int) -> int:
    """Return an interval's ends as bits, except the ends of all codes."""
    return (1 << low | 1 << high) & ~(1 | 1 << END)


def _packed(portions: list[_Portion], most: int) -> list[_Portion]:
    """Merge portions of different covariates, large ones first, each into the grid that grows least."""
    full: list[_Portion] = []
    taking: list[_Portion] = []
    for own in sorted(portions, key=lambda one: -one.cells):
        ways = [(held.joined(own), at) for at, held in enumerate(taking)]
        fitting = [way for way in ways if way[0].cells <= most]
        if fitting:
            joined, at = min(fitting, key=lambda way: way[0].cells - taking[way[1]].cells)
            joined.rules.extend(own.rules)
            taking[at] = joined
        else:
            taking.append(own)
        if len(taking) > OPEN:
            full.append(taking.pop(0))
    return full + taking
