"""Membership from exact integer sums, by lattice reduction.

An exact sum over a list, sum_i h_i a_i = b with integers a_i of 30 bits, holds about 30 bits: a few
sums decide a list of hundreds, although far fewer than its unknowns. A list with these sums is a
lattice point: all integer (h, z) with A h = b z form a lattice, and (h, 1) is its shortest vector
once h is centred (Kannan 1987, "Minkowski's convex body theorem and integer programming"; subset
sums: Coster et al. 1992). Small supports are solved first and substituted. An entry is decided only
if every list with the same sums has it, which an enumeration of the lattice proves. Deterministic;
without `fpylll` (``pip install privfed[lattice]``) only bounds and linear algebra decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import qr
from scipy.special import gammaln

from privfed.attacks.deadline import Deadline

try:
    import fpylll
except ImportError:  # an extra
    fpylll = None

AVAILABLE = fpylll is not None  #: Whether lattices can be reduced here
FLAGS = fpylll.BKZ.MAX_LOOPS | fpylll.BKZ.AUTO_ABORT if AVAILABLE else 0
#: Block sizes in order, with the work of each relative to a reduction by LLL; rounds of each.
BLOCKS, LOOPS = {10: 1.0, 20: 1.0, 30: 4.0}, 6
#: Longest lists of undecided candidates, and most equations, of one lattice.
UNKNOWNS, EQUATIONS = 320, 260
SPARE = 3.0  #: Bits for each unknown beyond those of the list; further sums add little
CELLS = 4_000_000  #: Most sums times candidates that are kept, those of few candidates first
#: The factor of a reduction in blocks of :data:`BLOCKS`, and the gap to the next vector relative to it.
HERMITE, GAP = 1.0109, 0.25
LEAST = 0.02  #: Least expected fraction of members, and of others
STEP, WEIGHT = 6, 40  #: Equations that enter the kernel at a time, and their weight in bits
#: Most other vectors enumerated to prove an entry; most nodes of the search, and the operations of one.
ALTERNATIVES, NODES, NODE = 2000, 4e7, 300.0
SLACK = 10.0  #: Factor by which a reduced basis may have fewer nodes than expected
SUPPORTS = 12  #: Supports tried between two decisions
SCALE = 10  #: Units of the embedded coordinates: fractions of a member are rounded to this


@dataclass(eq=False)
class ExactSums:
    """Decides members of a list by exact sums."""

    added: np.ndarray  #: integers that one copy of each candidate adds, shape (sums, candidates)
    released: np.ndarray  #: the sums, integers, shape (sums,)
    upper: np.ndarray  #: copies of each candidate, at most; shape (candidates,)
    prior: np.ndarray  #: expected fraction of the copies that are members, shape (candidates,)
    low: np.ndarray = field(init=False)
    high: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rows = np.column_stack([self.added, self.released]).astype(np.int64)
        rows = np.unique(rows[(rows[:, :-1] != 0).any(axis=1)], axis=0)
        sizes = (rows[:, :-1] != 0).sum(axis=1)
        rows = rows[np.argsort(sizes, kind="stable")[: CELLS // max(len(self.upper), 1)]]
        self.added, self.released = rows[:, :-1], rows[:, -1]
        self.prior = np.clip(self.prior, LEAST, 1 - LEAST)
        self.low, self.high = np.zeros(len(self.upper), np.int64), self.upper.astype(np.int64)

    @property
    def decided(self) -> np.ndarray:
        """Candidates whose copies follow from the sums, bool."""
        return np.asarray(self.low == self.high)

    @property
    def consistent(self) -> bool:
        """Whether some list of members may have these sums; if not, nothing is decided."""
        return bool((self.low <= self.high).all())

    @cached_property
    def bits(self) -> tuple[float, float]:
        """Bits of the sums, together, and of the list before anything is decided."""
        return bits_of(self.added, self.upper, self.prior), entropy(self.upper, self.prior)

    def solve(self, deadline: Deadline) -> None:
        """Decide candidates by bounds and linear algebra, then by lattices over growing supports."""
        self._bound()
        self._invert()
        tried: set[bytes] = set()
        while AVAILABLE and self.consistent and not self.decided.all() and not deadline.over:
            for support in self._supports(tried):
                if deadline.over or self._decide(support, deadline):
                    break
            else:
                return
            self._bound()

    def _bound(self) -> None:
        """Tighten each candidate's copies by every sum's extremes, until nothing changes."""
        positive, negative = np.maximum(self.added, 0), np.minimum(self.added, 0)
        size = np.where(self.added == 0, 1, np.abs(self.added))
        while len(self.added) and self.consistent:
            before = self.low, self.high
            above = self.released - positive @ self.low - negative @ self.high
            below = positive @ self.high + negative @ self.low - self.released
            up, down = below[:, None] // size, above[:, None] // size
            rise = np.where(self.added > 0, down, up)  # copies that each sum has room for
            fall = np.where(self.added > 0, up, down)
            rise, fall = (np.where(self.added == 0, 2**61, room) for room in (rise, fall))
            self.high = np.minimum(self.high, self.low + rise.min(axis=0))
            self.low = np.maximum(self.low, before[1] - fall.min(axis=0))
            if (before[0] == self.low).all() and (before[1] == self.high).all():
                return

    def _invert(self) -> None:
        """Solve the sums if they have full rank; exact, since the solution is checked."""
        undecided = np.flatnonzero(~self.decided)
        added = self.added[:, undecided]
        kept, _ = independent(added)
        if not self.consistent or not len(undecided) or len(kept) < len(undecided):
            return
        scale = np.abs(added[kept]).max(axis=1)
        right = self.released - self.added @ np.where(self.decided, self.low, 0)
        copies = np.rint(np.linalg.solve(added[kept] / scale[:, None], right[kept] / scale))
        inside = (copies >= self.low[undecided]) & (copies <= self.high[undecided])
        integers = copies.astype(np.int64)
        if inside.all() and (added @ integers == right).all():
            self.low[undecided] = self.high[undecided] = integers

    def _supports(self, tried: set[bytes]) -> Iterator[np.ndarray]:
        """Sets of undecided candidates, the most promising first; the whole list last."""
        undecided = ~self.decided
        patterns = np.unique((self.added[:, undecided] != 0), axis=0)
        patterns = patterns[patterns.any(axis=1)]
        patterns = patterns[np.argsort(patterns.sum(axis=1), kind="stable")]
        unions = [one | two for index, one in enumerate(patterns[:8]) for two in patterns[:index]]
        sets = [
            *patterns[:SUPPORTS],
            *sorted(unions, key=np.sum)[:SUPPORTS],
            np.ones(undecided.sum(), bool),
        ]
        for inside in sorted(sets, key=np.sum):
            support = np.flatnonzero(undecided)[inside]
            key = support.tobytes()
            if key not in tried and len(support) <= UNKNOWNS:
                tried.add(key)
                yield support

    def _decide(self, support: np.ndarray, deadline: Deadline) -> bool:
        """Solve for a support by its own sums; return whether anything was decided."""
        undecided = ~self.decided
        outside = undecided.copy()
        outside[support] = False
        rows = ~(self.added[:, outside] != 0).any(axis=1)
        rows &= (self.added[:, support] != 0).any(axis=1)
        added = self.added[np.ix_(rows, support)]
        right = self.released[rows] - self.added[rows] @ np.where(undecided, 0, self.low)
        right -= added @ self.low[support]
        columns, group = np.unique(added, axis=1, return_inverse=True)
        group = group.ravel()
        room = (self.high - self.low)[support]
        upper = np.bincount(group, room).astype(np.int64)
        prior = np.bincount(group, room * self.prior[support]) / upper
        kept = independent(columns)[0][:EQUATIONS]
        needed, sizes = entropy(upper, prior) + SPARE * len(upper), range(STEP, len(kept), STEP)
        enough = (k for k in sizes if bits_of(columns[kept[:k]], upper, prior) > needed)
        kept = kept[: next(enough, len(kept))]
        reduced = Embedding(columns[kept], right[kept], upper, prior)
        copies = reduced.solve(deadline)
        if copies is None or (columns @ copies != right).any():
            return False
        certain = reduced.unambiguous(copies, deadline) & ((copies == 0) | (copies == upper))
        decided = certain[group]
        values = np.where(copies[group] == 0, self.low[support], self.high[support])
        self.low[support[decided]] = self.high[support[decided]] = values[decided]
        return bool(decided.any())


@dataclass(eq=False)
class Embedding:
    """The lattice of all integer (h, z) with A h = b z, for distinct columns of A."""

    added: np.ndarray
    right: np.ndarray
    upper: np.ndarray
    prior: np.ndarray
    reduced: Any = field(init=False, default=None)

    @property
    def last(self) -> int:
        """Weight of z relative to the deviations of the copies."""
        return max(1, round(self.radius / math.sqrt(len(self.upper))))

    @property
    def radius(self) -> float:
        """Expected length of the centred copies."""
        return SCALE * math.sqrt(float(self.upper @ (self.prior * (1 - self.prior))))

    @property
    def centre(self) -> np.ndarray:
        """Expected copies, in units of 1 / SCALE."""
        return np.asarray(np.rint(SCALE * self.upper * self.prior).astype(np.int64))

    def solve(self, deadline: Deadline) -> np.ndarray | None:
        """Copies with these sums, or None if the reduced basis holds none."""
        if not self.feasible or not deadline.spend(self.work):
            return None
        basis = kernel(np.column_stack([self.added, -self.right]))
        if not len(basis):
            return None
        z = basis[:, -1]
        rows = np.column_stack([SCALE * basis[:, :-1] - np.outer(z, self.centre), self.last * z])
        self.reduced = matrix(rows)
        fpylll.LLL.reduction(self.reduced)
        for block, effort in {0: 0.0, **BLOCKS}.items():
            if not deadline.spend(effort * self.work):
                return None
            if 0 < block <= self.reduced.nrows:
                fpylll.BKZ.reduction(
                    self.reduced, fpylll.BKZ.Param(block, max_loops=LOOPS, flags=FLAGS)
                )
            copies = self._read()
            if copies is not None:
                return copies
        return None

    @property
    def work(self) -> float:
        """Approximate operations of one reduction, and of the kernel's before it."""
        unknowns = len(self.upper) + 1.0
        return float(25.0 * unknowns**3.5 + 3e3 * len(self.added) * unknowns**2.2)

    @property
    def feasible(self) -> bool:
        """Whether the sums hold more bits than the list, so that one solution is expected, a reduction finds it, and
        an enumeration can prove that there is no other.

        A reduction finds a shortest vector whose next is longer by :data:`GAP` times its factor to the power of the
        dimension (Gama and Nguyen 2008, "Predicting lattice reduction", Section 3.2); each bit to spare per dimension
        doubles the next one's length.
        """
        bits, needed = bits_of(self.added, self.upper, self.prior), entropy(self.upper, self.prior)
        unknowns = len(self.upper)
        min_bits = math.log2(GAP) + unknowns * math.log2(HERMITE)
        clear = bits > needed + 10 and bits - needed > unknowns * min_bits
        return clear and self.proof <= SLACK * NODES

    @property
    def proof(self) -> float:
        """Expected nodes of the enumeration that proves a solution, before any reduction.

        The lattice of all v with A v = 0 has a volume that follows from A, and a reduced basis lengths that fall by a
        constant factor (Schnorr 2003, "Lattice reduction by random sampling", Section 2).
        """
        steps = np.maximum(np.gcd.reduce(self.added, axis=1), 1)
        _, beyond = independent(self.added / steps[:, None])
        free = max(len(self.upper) - len(beyond), 1)
        falling = (free - 1 - 2 * np.arange(free)) * math.log(HERMITE)
        return nodes(np.log(np.maximum(beyond, 1.0)).sum() / free + falling, self.reach)

    @property
    def reach(self) -> float:
        """Upper bound on the squared length of the difference of two lists with these sums."""
        return float((self.upper.astype(float) ** 2).sum())

    def _read(self) -> np.ndarray | None:
        """Copies in some row of the reduced basis, or None."""
        for row in array(self.reduced):
            if abs(row[-1]) == self.last:
                centred = row[:-1] * int(np.sign(row[-1])) + self.centre
                copies = centred // SCALE
                if (centred % SCALE == 0).all() and ((copies >= 0) & (copies <= self.upper)).all():
                    return np.asarray(copies)
        return None

    def unambiguous(self, copies: np.ndarray, deadline: Deadline) -> np.ndarray:
        """Entries that are the same in every list with these sums, bool; a proof, by enumeration.

        Another list differs by an integer vector v with A v = 0, no entry of which exceeds the
        copies: of squared length at most the sum of their squares. All such v are enumerated; if
        there are too many, no entry counts.
        """
        rows = array(self.reduced)
        z = rows[:, -1] // self.last
        moves = (rows[:, :-1] + np.outer(z, self.centre)) // SCALE - np.outer(z, copies)
        flat = matrix(moves)
        fpylll.LLL.reduction(flat)
        basis = array(flat)
        basis = basis[(basis != 0).any(axis=1)]
        if not len(basis):
            return np.ones(len(copies), bool)
        expected = nodes(log_lengths(basis), self.reach)
        if NODES < expected < SLACK**4 * NODES and deadline.spend(self.work):
            flat = matrix(basis)
            block = min(max(BLOCKS), len(basis))
            fpylll.BKZ.reduction(flat, fpylll.BKZ.Param(block, max_loops=LOOPS, flags=FLAGS))
            basis = array(flat)
            expected = nodes(log_lengths(basis), self.reach)
        if expected > NODES or not deadline.spend(NODE * expected):
            return np.zeros(len(copies), bool)
        gso = fpylll.GSO.Mat(matrix(basis))
        gso.update_gso()
        search = fpylll.Enumeration(gso, nr_solutions=ALTERNATIVES)
        try:
            listed = search.enumerate(0, len(basis), self.reach * (1 + 1e-6) + 0.5, 0)
        except fpylll.fplll.enumeration.EnumerationError:  # there is none
            return np.ones(len(copies), bool)
        if len(listed) >= ALTERNATIVES:
            return np.zeros(len(copies), bool)
        differences = np.rint([vector for _, vector in listed]).astype(np.int64) @ basis
        both = np.concatenate([differences, -differences])
        moved = copies + both
        possible = ((moved >= 0) & (moved <= self.upper)).all(axis=1)
        return np.asarray(~(both[possible] != 0).any(axis=0))


def log_lengths(basis: np.ndarray) -> np.ndarray:
    """Logarithms of a basis' Gram-Schmidt lengths."""
    triangle = np.linalg.qr(basis.astype(float).T, mode="r")
    return np.asarray(np.log(np.maximum(np.abs(np.diag(triangle)), 1e-9)))


def nodes(lengths: np.ndarray, radius: float) -> float:
    """Expected nodes of an enumeration up to a squared radius, by level and window of the :func:`log_lengths`.

    Points of a window of k Gram-Schmidt lengths: the volume of a ball over their product (Gama,
    Nguyen and Regev 2010, "Lattice enumeration using extreme pruning", Section 3); where later
    lengths exceed the radius, their coefficients are 0 and the window ends before them.
    """
    k = np.arange(1, len(lengths) + 1)
    balls = k / 2 * math.log(math.pi * max(radius, 1.0)) - gammaln(k / 2 + 1)
    total = 0.0
    for first in range(len(lengths)):
        windows = np.cumsum(lengths[first:])
        total += math.exp(min(float((balls[: len(windows)] - windows).max()), 100.0))
    return total


def kernel(equations: np.ndarray) -> np.ndarray:
    """A reduced basis of the integer vectors x with equations @ x = 0, shape (dimensions, unknowns)."""
    basis = np.eye(equations.shape[1], dtype=object)
    for first in range(0, len(equations), STEP):
        values = basis @ equations[first : first + STEP].astype(object).T
        if not values.any():
            continue
        weighed = matrix(np.column_stack([values * 2**WEIGHT, basis]))
        fpylll.LLL.reduction(weighed)
        rows = array(weighed)
        width = values.shape[1]
        basis = rows[~(rows[:, :width] != 0).any(axis=1), width:].astype(object)
        if not len(basis):
            break
    return np.asarray(basis)


def matrix(rows: np.ndarray) -> Any:
    """Convert integers to fpylll's matrix."""
    return fpylll.IntegerMatrix.from_matrix([[int(value) for value in row] for row in rows])


def array(reduced: Any) -> np.ndarray:
    """Convert integers of any size to a NumPy array."""
    rows = np.array([list(row) for row in reduced], dtype=object)
    return rows.astype(np.int64) if np.abs(rows).max() < 2**62 else rows


def independent(added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of linearly independent rows, and the length of each orthogonal to those before it."""
    sizes = np.linalg.norm(added.astype(float), axis=1)
    shown = np.flatnonzero(sizes)
    if not len(shown):
        return shown, np.empty(0)
    triangle, order = qr(
        (added[shown] / sizes[shown, None]).T, mode="r", pivoting=True, check_finite=False
    )
    beyond = np.abs(np.diag(triangle))
    rank = int((beyond > 1e-9 * beyond[0]).sum())
    kept = shown[order[:rank]]
    return kept, beyond[:rank] * sizes[kept]


def bits_of(added: np.ndarray, upper: np.ndarray, prior: np.ndarray) -> float:
    """Joint entropy of the sums over a list, as if they were normal.

    Each adds log2(sqrt(2 pi e) s) bits, s its standard deviation given the others; in steps of g, log2(g)
    bits less.
    """
    if not added.size:
        return 0.0
    steps = np.maximum(np.gcd.reduce(added, axis=1), 1)
    _, stds = independent(added / steps[:, None] * np.sqrt(upper * prior * (1 - prior)))
    bits = np.log2(np.maximum(stds * math.sqrt(2 * math.pi * math.e), 1.0))
    return float(bits.sum())


def entropy(upper: np.ndarray, prior: np.ndarray) -> float:
    """Entropy of a list in bits, its copies independent."""
    p = np.clip(prior, 1e-9, 1 - 1e-9)
    return float((upper * -(p * np.log2(p) + (1 - p) * np.log2(1 - p))).sum())
