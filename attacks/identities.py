"""Identities between the sums of a fuzzy tree, and the withheld sums that follow from them.

Every sum (of w, y w or y^2 w) belongs to a cell: a set of (feature, set) steps. Memberships of a
feature sum to 1, so for every cell S and feature f that S does not use

    v(S) = sum over j of v(S + (f, j)),

and the identity interpolates between the sets' peaks, so a leaf's sum of w x_f (or y w x_f) is

    sum over j of v(S + (f, j)) (j / (T - 1) - 1/2).

All hold up to the truncation to the grid.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from privfed.attacks.deadline import Deadline
from privfed.attacks.fuzzy import Cell

LARGEST = 2500  #: Systems of more unknowns than this are left to substitution alone
#: How little of a unit vector may lie in the null space for its cell to count as determined.
DETERMINED = 1e-7


@dataclass(frozen=True, eq=False)
class Equation:
    """One identity: sum of coefficient times value over its cells equals a constant."""

    cells: tuple[Cell, ...]
    coefficients: tuple[float, ...]
    constant: float = 0.0


@dataclass(frozen=True, eq=False)
class Group:
    """A cell, its named parts by one feature, and the steps to those never queried."""

    above: Cell
    parts: tuple[Cell, ...]
    missing: tuple[tuple[int, int], ...]


def groups_of(named: set[Cell], sets: int) -> list[Group]:
    """Every identity of the first kind about a named cell some of whose parts are named."""
    members: dict[tuple[Cell, int], dict[int, Cell]] = {}
    for cell in named:
        for step in cell:
            members.setdefault((cell - {step}, step[0]), {})[step[1]] = cell
    return [
        Group(
            above, tuple(parts.values()), tuple((feature, j) for j in range(sets) if j not in parts)
        )
        for (above, feature), parts in members.items()
        if above in named
    ]


@dataclass(eq=False)
class SumIdentities:
    """The sums of one kind at one client."""

    sets: int  #: fuzzy sets of each feature
    signed: bool  #: whether the sums may be negative (y w), or not (w, y^2 w)
    known: dict[Cell, float]  #: values of cells that were released, or found since
    moments: list[Equation] = field(default_factory=list)  #: identities about leaves' first moments
    error: float = 1e-6  #: bound on a sum's error, for telling zero
    unsolved: int = 0  #: unknowns of systems that were too large to solve, :data:`LARGEST`

    def solve(
        self,
        withheld: Iterable[Cell],
        zero: set[Cell],
        groups: list[Group] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> dict[Cell, float]:
        """Solve for withheld cells: by substitution, then by linear algebra.

        Args:
            withheld: cells to solve for.
            zero: cells known to hold no weight; newly found ones are added.
            groups: identities of the first kind, shared by several sums.
            deadline: after which no further equations are solved.
        """
        hidden = set(withheld) - set(self.known)
        waiting = groups_of(hidden | set(self.known), self.sets) if groups is None else groups
        equations, empty = list(self.moments), -1
        deadline = deadline or Deadline(math.inf)
        while len(zero) > empty and not deadline.over:
            empty, inside = len(zero), Inside(zero)
            within = (c for c in hidden if any(inside(c - {step}, step) for step in c))
            self.known |= dict.fromkeys(within, 0.0)
            ready, waiting = _ready_equations(waiting, inside)
            equations += ready
            self._substitute(equations, zero)
        self._eliminate(equations, deadline)
        return {cell: self.known[cell] for cell in hidden if cell in self.known}

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
        unknown, residual = self._reduced(equation)
        if len(unknown) == 1:
            ((cell, coefficient),) = unknown.items()
            values = {cell: residual / coefficient}
        elif (
            unknown
            and not self.signed
            and abs(residual) <= self.error
            and len({value > 0 for value in unknown.values()}) == 1
        ):
            values = dict.fromkeys(unknown, 0.0)
        else:
            return {}
        if not self.signed:
            zero.update(cell for cell, value in values.items() if abs(value) <= self.error)
        return values

    def _reduced(self, equation: Equation) -> tuple[dict[Cell, float], float]:
        """The unknowns with their coefficients, and their sum."""
        unknown: dict[Cell, float] = {}
        residual = equation.constant
        for cell, coefficient in zip(equation.cells, equation.coefficients, strict=True):
            if cell in self.known:
                residual -= coefficient * self.known[cell]
            elif coefficient:
                unknown[cell] = coefficient
        return unknown, residual

    def _eliminate(self, equations: list[Equation], deadline: Deadline) -> None:
        reduced = [self._reduced(equation) for equation in equations]
        kept = [(unknown, residual) for unknown, residual in reduced if unknown]
        index = {cell: i for i, cell in enumerate({c: 0 for unknown, _ in kept for c in unknown})}
        if not index:
            return
        rows = np.repeat(np.arange(len(kept)), [len(unknown) for unknown, _ in kept])
        columns = np.array([index[cell] for unknown, _ in kept for cell in unknown])
        values = np.array([value for unknown, _ in kept for value in unknown.values()])
        matrix = coo_array((values, (rows, columns)), shape=(len(kept), len(index))).tocsr()
        right = np.array([residual for _, residual in kept])
        cells = list(index)
        for component in _components(matrix):
            if deadline.over:
                return
            if len(component) <= LARGEST:
                self._determine(matrix, right, component, cells)
            else:
                self.unsolved += len(component)

    def _determine(
        self, matrix: csr_array, right: np.ndarray, component: np.ndarray, cells: list[Cell]
    ) -> None:
        part = csr_array(matrix[:, component.astype(np.int64)])
        rows = np.unique(part.nonzero()[0])
        dense = part[rows].toarray()
        _, values, turned = np.linalg.svd(dense, full_matrices=True)
        rank = int((values > 1e-9 * values.max(initial=1.0)).sum())
        free = np.abs(turned[rank:]).max(axis=0, initial=0.0)
        solution = np.linalg.lstsq(dense, right[rows], rcond=1e-9)[0]
        for position in np.flatnonzero(free <= DETERMINED):
            self.known[cells[component[position]]] = float(solution[position])


class Inside:
    """Whether a cell lies inside an empty cell, whose steps are then a subset of its own."""

    def __init__(self, zero: set[Cell]) -> None:
        self._zero = zero
        by_step: dict[tuple[int, int], list[Cell]] = {}
        # a cell that no step can leave empty lies inside no other
        for cell in (cell for cell in zero if not any(cell - {step} in zero for step in cell)):
            for step in cell:
                by_step.setdefault(step, []).append(cell)
        self._by_step = by_step

    def __call__(self, above: Cell, step: tuple[int, int]) -> bool:
        """Whether ``above`` with one more step is empty, ``above`` itself not being so."""
        inner = above | {step}
        return inner in self._zero or any(cell <= inner for cell in self._by_step.get(step, ()))


def _ready_equations(groups: list[Group], inside: Inside) -> tuple[list[Equation], list[Group]]:
    """The identities whose missing parts are all empty, and the others."""
    ready: list[Equation] = []
    waiting: list[Group] = []
    for group in groups:
        if all(inside(group.above, step) for step in group.missing):
            signs = (1.0,) * len(group.parts) + (-1.0,)
            ready.append(Equation((*group.parts, group.above), signs))
        else:
            waiting.append(group)
    return ready, waiting


def _components(matrix: csr_array) -> Iterator[np.ndarray]:
    """Connected unknowns, the indices of each group."""
    linked = abs(matrix)
    count, labels = connected_components((linked.T @ linked), directed=False)
    order = np.argsort(labels, kind="stable")
    yield from np.split(order, np.cumsum(np.bincount(labels, minlength=count))[:-1])
