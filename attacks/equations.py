"""Records from a fuzzy tree's normal equations G = sum w c c' and m = sum w y c.

Here c is a record's row of the design (a leading 1, then its features centred in [-1/2, 1/2]) and w
its activation of the leaf, which is known once c is, for the tree is public.

1. Rank one: a single active record (or several alike) is the first row of G, divided by its corner.
2. Few records at a node with several leaves: joint diagonalisation (:mod:`joint_equations`).
3. Known domains: every vector c of the domain with w(c) c' G^+ c = 1 may be a record (for linearly
  independent records that is necessary); the least squares over those must cover G exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from privfed.attacks.fuzzy import Cell, Geometry, weight
from privfed.attacks.joint_equations import diagonalise

PRECISION = 1e-4  #: Claims are made to this fraction of a feature's range


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """One client's released leaf equations."""

    leaves: tuple[Cell, ...]  #: leaves, geometry: the public tree
    geometry: Geometry
    gram: np.ndarray  #: sum w c c', shape (leaves, width, width)
    moment: np.ndarray  #: sum w y c, shape (leaves, width)
    #: bound on each entry's error (truncation to the grid, records taken out), shape (leaves,)
    error: np.ndarray

    def __len__(self) -> int:
        return len(self.leaves)

    def weights(self, design: np.ndarray, chosen: list[int] | None = None) -> np.ndarray:
        """Activations of all leaves, or the chosen ones, by records, shape (leaves, records)."""
        degrees = self.geometry.degrees(np.clip(design[:, 1:] + 0.5, 0, 1))
        picked = range(len(self)) if chosen is None else chosen
        return np.array([weight(degrees, self.leaves[leaf]) for leaf in picked])

    def without(self, claim: ReconstructedRecord) -> NormalEquations:
        """Subtract a record from every leaf, whose error grows."""
        w = self.weights(claim.row[None, :])[:, 0]
        gram = self.gram - w[:, None, None] * np.outer(claim.row, claim.row)
        moment = self.moment - w[:, None] * claim.row * claim.target
        slope = self.geometry.sets * max(len(leaf) for leaf in self.leaves) + 2
        error = self.error + np.where(w > 0, claim.precision * slope, 0.0)
        return NormalEquations(self.leaves, self.geometry, gram, moment, error)


@dataclass(frozen=True, eq=False)
class ReconstructedRecord:
    """A claimed record: row, shape (width,), target in [-1/2, 1/2], largest error, and method."""

    row: np.ndarray
    target: float
    precision: float
    method: str

    @property
    def coordinates(self) -> np.ndarray:
        """Features, then the target, shape (features + 1,)."""
        return np.append(self.row[1:], self.target)


def single_records(equations: NormalEquations) -> list[ReconstructedRecord]:
    """Claim the one record (or several alike) of every leaf whose equations have rank one.

    The activation that the claimed features imply must divide the corner of G, their summed
    activation. A record alone in several leaves is claimed from the most precise leaf.
    """
    return distinct(_single(equations, leaf) for leaf in range(len(equations)))


def distinct(groups: Iterable[list[ReconstructedRecord]]) -> list[ReconstructedRecord]:
    """Claims about different records, most precise first, from groups of claims."""
    claims: list[ReconstructedRecord] = []
    for group in sorted((f for f in groups if f), key=lambda f: f[0].precision):
        known = [claim.row for claim in claims]
        claims += [c for c in group if all(np.abs(c.row - k).max() > 2 * PRECISION for k in known)]
    return claims


def _single(equations: NormalEquations, leaf: int) -> list[ReconstructedRecord]:
    gram, moment, error = equations.gram[leaf], equations.moment[leaf], equations.error[leaf]
    corner = gram[0, 0]
    if not corner > 0 or 2 * error / corner > PRECISION:
        return []
    row = gram[0] / corner
    off = np.abs(gram - corner * np.outer(row, row)).max()
    strength = float(equations.weights(row[None, :], [leaf])[0, 0])
    inside = np.abs(row[1:]).max(initial=0.0) <= 0.5 + PRECISION
    if off > 4 * error or not inside or not strength > 0:
        return []
    times = corner / strength
    if round(times) < 1 or abs(times - round(times)) > 1e-2:
        return []
    claim = ReconstructedRecord(
        row, float(moment[0] / corner), float(2 * error / corner), "single record"
    )
    return [claim] * round(times)


def ranks(gram: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Numerical rank of each matrix, above the grid's own error."""
    values = np.linalg.eigvalsh(gram)
    return np.asarray((values > np.maximum(100 * error, 1e-12)[:, None]).sum(axis=1))


def small_groups(equations: NormalEquations, nodes: list[list[int]]) -> list[list[int]]:
    """Groups of leaves that few records may share: those below a node, and pairs of leaves.

    A pair qualifies if its summed equations have less than full rank, and less than the sum of
    their ranks, for then the leaves share records.
    """
    width = equations.gram.shape[1]
    alone = ranks(equations.gram, equations.error)
    small = np.flatnonzero((alone > 0) & (alone < width))
    first, second = (small[index] for index in np.triu_indices(len(small), 1))
    if not len(first):
        return nodes
    both = ranks(
        equations.gram[first] + equations.gram[second],
        equations.error[first] + equations.error[second],
    )
    shared = (both < width) & (both < alone[first] + alone[second])
    order = np.argsort(both[shared], kind="stable")
    pairs = np.column_stack([first, second])[shared][order].tolist()
    return [*pairs, *(node for node in nodes if len(node) > 2)]


def few_records(
    equations: NormalEquations, below: list[int], seed: int = 0
) -> list[ReconstructedRecord]:
    """Claim the records at a node by diagonalising the equations of its leaves jointly.

    Each candidate must leave no cross terms, lie inside the feature box, and activate every leaf as
    the equations say; so a node with too many records yields no claim.
    """
    gram, error = equations.gram[below], float(equations.error[below].sum())
    values, vectors = np.linalg.eigh(gram.sum(axis=0))
    kept = values > max(100 * error, 1e-12)
    if len(below) < 2 or not kept.any():
        return []
    candidates, rotated, _ = diagonalise(gram, values[kept], vectors[:, kept], seed)
    return _verified(equations, below, candidates, rotated, error / float(values[kept].min()))


def _verified(
    equations: NormalEquations,
    below: list[int],
    candidates: np.ndarray,
    rotated: np.ndarray,
    precision: float,
) -> list[ReconstructedRecord]:
    """Keep the candidates (columns, each sqrt(w) c) that explain their leaves."""
    strength = candidates[0] ** 2
    proper = strength > 1e-9
    rows = (candidates / np.where(proper, candidates[0], 1.0)).T
    inside = np.abs(rows[:, 1:]).max(axis=1, initial=0.0) <= 0.5 + PRECISION
    predicted = equations.weights(rows, below) / np.where(proper, strength, 1.0)
    diagonal = np.einsum("kii->ki", rotated)
    cross = np.abs(rotated - diagonal[:, :, None] * np.eye(rotated.shape[1])).max(axis=(0, 2))
    fits = np.abs(predicted - diagonal).max(axis=0) <= PRECISION
    good = proper & inside & fits & (cross <= PRECISION)
    if not good.any():
        return []
    targets = _targets(equations, below, rows, diagonal * strength)
    return [
        ReconstructedRecord(rows[i], float(targets[i]), max(precision, 1e-9), "few records")
        for i in np.flatnonzero(good)
    ]


def _targets(
    equations: NormalEquations, below: list[int], rows: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Least squares for the targets in m_k = sum_i w_ki y_i c_i, shape (records,)."""
    design = np.einsum("ki,ij->kji", weights, rows).reshape(-1, len(rows))
    return np.asarray(np.linalg.lstsq(design, equations.moment[below].ravel(), rcond=None)[0])


def known_domain(
    equations: NormalEquations, leaf: int, domain: np.ndarray, max_rows: int = 60
) -> list[ReconstructedRecord]:
    """Claim the records of a leaf by enumeration, if exactly one multiset of them fits.

    Gives up if more than ``max_rows`` rows of the domain, shape (vectors, width), pass the leverage test.
    """
    gram, error = equations.gram[leaf], float(equations.error[leaf])
    strength = equations.weights(domain, [leaf])[0]
    rows, strength = domain[strength > 0], strength[strength > 0]
    values, vectors = np.linalg.eigh(gram)
    kept = values > max(100 * error, 1e-12)
    if not kept.any() or not len(rows):
        return []
    projected = rows @ vectors
    leverage = strength * (projected[:, kept] ** 2 / values[kept]).sum(axis=1)
    outside = np.abs(projected[:, ~kept]).max(axis=1, initial=0.0)
    fit = (outside <= PRECISION) & (leverage <= 1 + PRECISION)
    if not 0 < fit.sum() <= max_rows:
        return []
    return _covered(equations, leaf, rows[fit], strength[fit])


def _covered(
    equations: NormalEquations, leaf: int, rows: np.ndarray, strength: np.ndarray
) -> list[ReconstructedRecord]:
    """The one non-negative integer mixture of the rows that equals the leaf's G, if unique."""
    error = float(equations.error[leaf])
    outer = (strength[:, None, None] * np.einsum("ni,nj->nij", rows, rows)).reshape(len(rows), -1)
    if np.linalg.matrix_rank(outer, tol=1e-8) < len(rows):
        return []
    times, _ = nnls(outer.T, equations.gram[leaf].ravel())
    counts = np.rint(times)
    off = np.abs(counts @ outer - equations.gram[leaf].ravel()).max()
    if off > max(4 * error, 1e-9) or not counts.any():
        return []
    used = counts > 0
    targets = _targets(equations, [leaf], rows[used], (counts * strength)[None, used])
    copies = zip(rows[used], targets, counts[used].astype(int), strict=True)
    return [
        ReconstructedRecord(row, float(target), 1e-9, "known domain")
        for row, target, count in copies
        for _ in range(count)
    ]
