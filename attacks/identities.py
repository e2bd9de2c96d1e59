"""What the sums of a fuzzy tree must obey, and what follows from it for those that were withheld.

Every sum (of w, y w or y^2 w) belongs to a cell: a set of (feature, set) steps. Memberships of a
feature sum to 1, so for every cell S and feature f that S does not use

    v(S) = sum over j of v(S + (f, j)),

and the identity interpolates between the sets' peaks, so a leaf's sum of w x_f (or y w x_f) is

    sum over j of v(S + (f, j)) (j / (T - 1) - 1/2).

All hold up to the truncation to the grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from privfed.attacks.fuzzy import Cell

#: Systems of more unknowns than this are left to substitution alone.
LARGEST = 2500
#: How little of a unit vector may lie in the null space for its cell to count as determined.
DETERMINED = 1e-7


@dataclass(frozen=True, eq=False)
class Equation:
    """One identity: sum of coefficient times value over its cells equals a constant."""

    cells: tuple[Cell, ...]
    coefficients: tuple[float, ...]
    constant: float = 0.0


@dataclass(eq=False)
class System:
    """The sums of one kind at one client.

    Args:
        sets: fuzzy sets of each feature.
        signed: whether the sums may be negative (y w), or not (w, y^2 w).
        known: values of cells that were released, or found since.
        moments: identities about leaves' first moments.
        error: what a sum may be off, for telling zero.
    """

    sets: int
    signed: bool
    known: dict[Cell, float]
    moments: list[Equation] = field(default_factory=list)
    error: float = 1e-6

    def solve(self, wanted: Iterable[Cell], zero: set[Cell]) -> dict[Cell, float]:
        """Find what can be found of the wanted cells: by substitution, then by linear algebra.

        Args:
            wanted: the cells that were withheld.
            zero: cells known to hold no weight, and so nothing at all; those found on the way are
                added to it.
        """
        hidden = set(wanted) - set(self.known)
        empty = -1
        while len(zero) > empty:
            empty = len(zero)
            equations = [*self._partitions(hidden, zero), *self.moments]
            self._substitute(equations, zero)
        self._eliminate(equations)
        return {cell: self.known[cell] for cell in hidden if cell in self.known}

    def _partitions(self, hidden: set[Cell], zero: set[Cell]) -> Iterator[Equation]:
        """Every identity of the first kind all of whose cells somebody has named."""
        named = hidden | set(self.known)
        groups: dict[tuple[Cell, int], dict[int, Cell]] = {}
        for cell in named:
            for step in cell:
                groups.setdefault((cell - {step}, step[0]), {})[step[1]] = cell
        inside = Inside(zero)
        for (above, feature), members in groups.items():
            missing = (above | {(feature, j)} for j in range(self.sets) if j not in members)
            if above in named and all(inside(cell) for cell in missing):
                whole = tuple(members.values())
                yield Equation((*whole, above), (1.0,) * len(whole) + (-1.0,))

    def _substitute(self, equations: list[Equation], zero: set[Cell]) -> None:
        """Solve equations of one unknown, and zero sums of sums that cannot be negative."""
        touching: dict[Cell, list[Equation]] = {}
        for equation in equations:
            for cell in equation.cells:
                touching.setdefault(cell, []).append(equation)
        waiting = list(equations)
        while waiting:
            for cell, value in self._consequences(waiting.pop(), zero).items():
                self.known[cell] = value
                waiting.extend(touching[cell])

    def _consequences(self, equation: Equation, zero: set[Cell]) -> dict[Cell, float]:
        unknown, rest = self._reduced(equation)
        if len(unknown) == 1:
            ((cell, coefficient),) = unknown.items()
            found = {cell: rest / coefficient}
        elif (
            unknown
            and not self.signed
            and abs(rest) <= self.error
            and len({value > 0 for value in unknown.values()}) == 1
        ):
            found = dict.fromkeys(unknown, 0.0)
        else:
            return {}
        if not self.signed:
            zero.update(cell for cell, value in found.items() if abs(value) <= self.error)
        return found

    def _reduced(self, equation: Equation) -> tuple[dict[Cell, float], float]:
        """The unknowns with their coefficients, and what they must add up to."""
        unknown: dict[Cell, float] = {}
        rest = equation.constant
        for cell, coefficient in zip(equation.cells, equation.coefficients, strict=True):
            if cell in self.known:
                rest -= coefficient * self.known[cell]
            elif coefficient:
                unknown[cell] = coefficient
        return unknown, rest

    def _eliminate(self, equations: list[Equation]) -> None:
        """Solve what several equations determine together, one connected system at a time."""
        reduced = [self._reduced(equation) for equation in equations]
        left = [(unknown, rest) for unknown, rest in reduced if unknown]
        index = {cell: i for i, cell in enumerate({c: 0 for unknown, _ in left for c in unknown})}
        if not index:
            return
        rows = np.repeat(np.arange(len(left)), [len(unknown) for unknown, _ in left])
        columns = np.array([index[cell] for unknown, _ in left for cell in unknown])
        values = np.array([value for unknown, _ in left for value in unknown.values()])
        matrix = coo_array((values, (rows, columns)), shape=(len(left), len(index))).tocsr()
        right = np.array([rest for _, rest in left])
        cells = list(index)
        for mine in _components(matrix):
            if len(mine) <= LARGEST:
                self._determine(matrix, right, mine, cells)

    def _determine(
        self, matrix: csr_array, right: np.ndarray, mine: np.ndarray, cells: list[Cell]
    ) -> None:
        part = csr_array(matrix[:, mine.astype(np.int64)])
        rows = np.unique(part.nonzero()[0])
        dense = part[rows].toarray()
        _, values, turned = np.linalg.svd(dense, full_matrices=True)
        rank = int((values > 1e-9 * values.max(initial=1.0)).sum())
        free = np.abs(turned[rank:]).max(axis=0, initial=0.0)
        solution = np.linalg.lstsq(dense, right[rows], rcond=1e-9)[0]
        for position in np.flatnonzero(free <= DETERMINED):
            self.known[cells[mine[position]]] = float(solution[position])


class Inside:
    """Tells whether a cell lies inside one without weight, each asked once."""

    def __init__(self, zero: set[Cell]) -> None:
        self._known = dict.fromkeys(zero, True)

    def __call__(self, cell: Cell) -> bool:
        """Whether the cell, or one that holds it, is empty."""
        if cell not in self._known:
            self._known[cell] = any(self(cell - {step}) for step in cell)
        return self._known[cell]


def _components(matrix: csr_array) -> Iterator[np.ndarray]:
    """Unknowns that equations tie together, the positions of each group."""
    linked = abs(matrix)
    count, labels = connected_components((linked.T @ linked), directed=False)
    order = np.argsort(labels, kind="stable")
    yield from np.split(order, np.cumsum(np.bincount(labels, minlength=count))[:-1])
