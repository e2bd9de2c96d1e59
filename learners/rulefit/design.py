"""Terms over records as sums by leaf: rules that share their covariates share one code a record.

The rules that name the same covariates cut them at a few places only. A record falls into exactly one
cell of the grid of these cuts, and a rule is a set of cells. So a linear predictor adds up a number
for each grid, not for each rule, and a gradient adds up residuals by cell before it adds up cells by
rule: what boosting does with the leaves of a tree. Records are taken in blocks, so that memory is
bounded whatever is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array

from privfed.learners.rulefit.averaging import residuals
from privfed.learners.rulefit.rules import Terms

#: Most cells of one grid, and most cells of all rules together.
CELLS, ALL_CELLS = 512, 2**21
#: How many cells and numbers of records are held at a time while one block is worked on, and how many
#: of earlier blocks are kept; 12 bytes each.
BLOCK, KEPT = 2**21, 2**21
#: One grid: its covariates, and for each of them the bin of every cut-off code.
Grid = tuple[tuple[int, tuple[int, ...]], ...]
_Interval = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Grids:
    """How rules were put together.

    Args:
        grids: the grids, one after the other.
        starts: where each grid's cells begin, shape (grids + 1,).
        members: which cells make up each rule, shape (rules, cells).
    """

    grids: tuple[Grid, ...]
    starts: np.ndarray
    members: csr_array
    shares: csr_array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", self.members.T.tocsr())

    def cells(self, codes: np.ndarray) -> np.ndarray:
        """The cell of each record in each grid; int32, shape (records, grids)."""
        found = np.empty((len(codes), len(self.grids)), np.int32)
        for number, grid in enumerate(self.grids):
            cell = np.zeros(len(codes), np.int32)
            for feature, bins in grid:
                own = np.array(bins, np.int32)
                cell = cell * (bins[-1] + 1) + own[codes[:, feature]]
            found[:, number] = cell + self.starts[number]
        return found


def grids_of(terms: Terms) -> Grids:
    """Put a model's rules together; remembered, for every client is asked about the same."""
    sizes = tuple(terms.cutoffs.sizes.tolist())
    return _grids(terms.boxes.tobytes(), terms.boxes.shape, sizes)


@lru_cache(maxsize=1)
def _grids(boxes: bytes, shape: tuple[int, ...], sizes: tuple[int, ...]) -> Grids:
    named: dict[tuple[int, ...], list[tuple[int, list[_Interval]]]] = {}
    for rule, box in enumerate(np.frombuffer(boxes, np.uint8).reshape(shape).tolist()):
        used = [(j, a, b) for j, (a, b) in enumerate(box) if a > 0 or b < sizes[j]]
        named.setdefault(tuple(j for j, _, _ in used), []).append((rule, used))
    most = max(2, min(CELLS, ALL_CELLS // max(1, shape[0])))
    grids: list[Grid] = []
    starts, rows, columns = [0], [], []
    for group in named.values():
        for members in _apart(sorted(group, key=lambda one: one[1]), most):
            grid = _grid([used for _, used in members], sizes)
            grids.append(grid)
            for rule, used in members:
                cells = _within(grid, used, sizes) + starts[-1]
                rows.append(np.full(len(cells), rule))
                columns.append(cells)
            starts.append(starts[-1] + int(np.prod([bins[-1] + 1 for _, bins in grid])))
    at = (np.concatenate([np.zeros(0, int), *rows]), np.concatenate([np.zeros(0, int), *columns]))
    members_of = csr_array((np.ones(len(at[0])), at), shape=(shape[0], starts[-1]))
    return Grids(tuple(grids), np.array(starts), members_of)


def _apart(
    group: list[tuple[int, list[_Interval]]], most: int
) -> Iterator[list[tuple[int, list[_Interval]]]]:
    """Rules of the same covariates, in portions whose grid has no more than so many cells.

    A rule whose own grid has more is alone in its portion.
    """
    held: list[tuple[int, list[_Interval]]] = []
    cuts: list[set[int]] = []
    for one in group:
        added = [{a, b} for _, a, b in one[1]]
        joined = [own | more for own, more in zip(cuts, added, strict=True)] if cuts else added
        # both outer ends may be among the cuts: this counts at most two bins too many
        if held and np.prod([len(own) + 1 for own in joined]) > most:
            yield held
            held, joined = [], added
        held.append(one)
        cuts = joined
    if held:
        yield held


def _grid(rules: list[list[_Interval]], sizes: tuple[int, ...]) -> Grid:
    """The coarsest grid that tells some rules of the same covariates apart."""
    grid = []
    for place, (feature, _, _) in enumerate(rules[0]):
        cuts = np.unique([end for used in rules for end in used[place][1:]])
        bins = np.searchsorted(cuts[cuts > 0], np.arange(sizes[feature]), side="right")
        grid.append((feature, tuple(bins.tolist())))
    return tuple(grid)


def _within(grid: Grid, used: list[_Interval], sizes: tuple[int, ...]) -> np.ndarray:
    """The cells of a grid that a rule covers; none where a condition leaves no bin of its covariate."""
    cells = np.zeros(1, int)
    for (feature, bins), (_, low, high) in zip(grid, used, strict=True):
        held = bins[low : min(high, sizes[feature])]
        covered = np.arange(held[0], held[-1] + 1) if held else np.empty(0, int)
        cells = (cells[:, None] * (bins[-1] + 1) + covered).ravel()
    return cells


@dataclass(frozen=True, eq=False)
class Block:
    """Some records: their cells, and their linear terms.

    Args:
        rows: which records of the table.
        leaves: one for each grid's cell that a record falls into, shape (records, cells).
        linear: shape (records, linear terms).
    """

    rows: slice
    leaves: csr_array
    linear: np.ndarray
    by_leaf: csr_array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_leaf", self.leaves.T)


class Design:
    """Intercept, rules and linear terms of all records, never formed as one matrix.

    Sums run over records by cell and then over cells by rule, block by block, in double precision.

    Args:
        terms: the base functions.
        x: encoded records, shape (records, features).
    """

    def __init__(self, terms: Terms, x: np.ndarray) -> None:
        self._terms, self._x = terms, x
        self._grids = grids_of(terms)
        self._width = max(1, len(self._grids.grids) + len(terms.linear))
        self._kept: list[Block] = []

    def blocks(self) -> Iterator[Block]:
        """All records in order; the first blocks are kept for the next time."""
        yield from self._kept
        rows = max(1, BLOCK // self._width)
        start = self._kept[-1].rows.stop if self._kept else 0
        for begin in range(start, len(self._x), rows):
            block = self._block(slice(begin, min(begin + rows, len(self._x))))
            if block.rows.stop * self._width <= KEPT:
                self._kept.append(block)
            yield block

    def _block(self, rows: slice) -> Block:
        x, cutoffs = self._x[rows], self._terms.cutoffs
        cells = self._grids.cells(cutoffs.codes(x))
        ends = np.arange(len(x) + 1, dtype=np.int32) * cells.shape[1]
        shape = (len(x), int(self._grids.starts[-1]))
        leaves = csr_array((np.ones(cells.size), cells.ravel(), ends), shape=shape)
        return Block(rows, leaves, cutoffs.linear(x)[:, list(self._terms.linear)])

    def scores(self, block: Block, weights: np.ndarray) -> np.ndarray:
        """Linear predictor of a block's records, shape (records,)."""
        rules = self._grids.members.shape[0]
        by_cell = self._grids.shares @ weights[1 : 1 + rules]
        scores = block.leaves @ by_cell + block.linear @ weights[1 + rules :]
        return np.asarray(scores + weights[0])

    def slope(self, block: Block, residual: np.ndarray) -> np.ndarray:
        """Sum over a block's records of residual times column, shape (1 + terms,)."""
        by_rule = self._grids.members @ (block.by_leaf @ residual)
        return np.concatenate([[residual.sum()], by_rule, residual @ block.linear])


@dataclass(frozen=True, eq=False)
class CentredDesign:
    """A design with its columns (but the intercept's) centred.

    Args:
        design: the terms over the records.
        means: what to subtract, shape (1 + terms,), the first zero.
    """

    design: Design
    means: np.ndarray

    def gradient(self, target: np.ndarray, weights: np.ndarray, logistic: bool) -> np.ndarray:
        """Sum over records of residual times centred column, block by block."""
        shift = float(self.means @ weights)
        total = np.zeros(len(weights))
        for block in self.design.blocks():
            scores = self.design.scores(block, weights) - shift
            total += self.design.slope(block, residuals(target[block.rows], scores, logistic))
        return np.asarray(total - self.means * total[0])
