"""A trial of a guard: its test inputs, and repeated draws of its outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.guards.adapters import Given, Opening, rounds
from privfed.guards.claim import GuardClaim

#: Norms of updates, in clips if one above 1 is claimed: above it, far above, and further.
BIG, BIGGER, BIGGEST = 1e4, 1e8, 1e12
#: A value that any useful noise would hide.
TINY = 1e-12
#: Maximum cells of an answer that are tested one by one.
RAW = 6
#: Records of a table that are removed in turn, most outlying first.
TAKEN = 3
#: Shapes of a model: three layers, and a scalar, such as a layer's count of batches. A guard that clips each of seven
#: arrays separately passes a norm of sqrt(7) clips.
SHAPES: tuple[tuple[int, ...], ...] = ((10, 4), (4,), (4, 4), (4,), (4, 2), (2,), ())


@dataclass(frozen=True)
class Pair:
    """Inputs of two neighbours, and the unit direction in which updates differ (None for tables)."""

    name: str
    present: Given
    absent: Given
    direction: np.ndarray | None = None


@dataclass(frozen=True)
class GuardTrial:
    """A guard, its claim, and the inputs on which it is tested.

    Args:
        open: starts a run of the guard.
        claim: the guard's claim.
        shapes: shapes of the model's arrays.
        table: a table, if the guard is a function of one; its neighbours then differ in a
            record.
        runs: outputs drawn in each game, half under each input.
    """

    open: Opening
    claim: GuardClaim
    shapes: Sequence[tuple[int, ...]] = SHAPES
    table: pd.DataFrame | None = None
    runs: int = 4000

    def __post_init__(self) -> None:
        if self.runs < 1000:
            raise InputError("a guard's check needs at least 1000 runs: write --runs 4000")
        if self.table is not None and len(self.table) < 2:
            raise InputError("a guard of tables is tried on a table of at least 2 records")
        if not self.cells:
            raise InputError("a model has at least one cell: write --shape 20x4,20")

    @cached_property
    def cells(self) -> int:
        """Number of values of an update."""
        return sum(map(math.prod, self.shapes))

    def update(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of a flat update, in double precision."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return [
            np.array(part.reshape(shape))
            for part, shape in zip(np.split(flat, ends), self.shapes, strict=True)
        ]

    @cached_property
    def nothing(self) -> Given:
        """The zero update, or nearly zero if the guard refuses zero; or the unmodified table."""
        if self.table is not None:
            return self.table
        zero = self.update(np.zeros(self.cells))
        refused = rounds(self.open(), [zero])[0] is None
        return self.update(np.full(self.cells, TINY)) if refused else zero

    @cached_property
    def pairs(self) -> list[Pair]:
        """Return neighbours, the worst case for a correct guard first; see :attr:`.GuardClaim.reach`."""
        if self.table is not None:
            return self._tables(self.table)
        cells, sizes = self.cells, np.array([math.prod(shape) for shape in self.shapes])
        named = {
            "all arrays alike": np.repeat(1 / np.sqrt(np.maximum(sizes, 1)), sizes),
            "one cell": np.eye(1, cells)[0],
            "the last cell": np.eye(1, cells, cells - 1)[0],
        }
        return [self.pair(name, direction) for name, direction in named.items()]

    def pair(self, name: str, towards: np.ndarray, norm: float = BIG) -> Pair:
        """Return updates of neighbours that differ in a direction."""
        direction = towards / np.linalg.norm(towards)
        norm *= max(1.0, self.claim.clip or 0.0)
        other = 0.0 if self.claim.reach == 1 else -norm
        return Pair(name, self.update(norm * direction), self.update(other * direction), direction)

    def _tables(self, table: pd.DataFrame) -> list[Pair]:
        """Return the table with neighbours that have a record removed, or replaced by another."""
        numbers = table.select_dtypes("number").fillna(0.0)
        std = numbers.std(ddof=0).replace(0, 1)
        scores = ((numbers - numbers.mean()) / std).abs().max(axis=1).fillna(0).to_numpy()
        chosen = np.argsort(-scores, kind="stable")[:TAKEN]
        pairs = []
        for number, index in enumerate(chosen):
            other = table.drop(index=table.index[index])
            if self.claim.relation == "replace-one":
                inner = table.iloc[[int(np.argmin(scores))]]
                other = pd.concat([other, inner])
            pairs.append(Pair(f"outlying record {number + 1}", table, other))
        return pairs

    def play(self, pair: Pair, given: Sequence[Given], runs: int, first: int = 0) -> np.ndarray:
        """Return summary statistics of independent runs of the guard, shape (runs, statistics).

        Functions of an output reveal no more than the output (post-processing). The statistics are: the sum of all
        rounds along the pair's direction, if there is one; the number of refused rounds; the sum of all cells; and some
        cells of the first round.

        Args:
            given: input of each round.
            runs: number of runs.
            first: first round whose answers are used.
        """
        values, cells = np.zeros((runs, 3 + RAW)), cache(partial(self._raw_cells, pair))
        for run in range(runs):
            rows = rounds(self.open(), given)[first:]
            answered = [row for row in rows if row is not None]
            values[run, 1] = len(rows) - len(answered)
            for row in answered:
                along = pair.direction is not None and row.size == self.cells
                values[run, 0] += row @ pair.direction if along else row.sum()
                values[run, 2] += row.sum()
            if answered:
                raw = answered[0][cells(answered[0].size)]
                values[run, 3 : 3 + raw.size] = raw
        return np.nan_to_num(values, nan=-1e300, posinf=1e300, neginf=-1e299)

    def _raw_cells(self, pair: Pair, size: int) -> np.ndarray:
        """Return indices of cells that are tested one by one: those that differ, including the last one."""
        moved = np.arange(size)
        if pair.direction is not None and size == self.cells:
            moved = np.argsort(-np.abs(pair.direction), kind="stable")
        return np.unique(np.append(moved[: RAW - 1], size - 1)) if size else moved

    def rows(self, given: Given, runs: int) -> np.ndarray:
        """Return first answers of new runs, shape (runs, cells); empty unless all have the same size."""
        answers: list[Any] = [rounds(self.open(), [given])[0] for _ in range(runs)]
        if any(row is None or row.shape != answers[0].shape for row in answers):
            return np.zeros((0, 0))
        return np.array(answers)
