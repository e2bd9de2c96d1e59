"""Queries of the private linear model: second moments, and residuals by leaf."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.fuzzy_tree.fuzzy import blocks, pieces
from privfed.learners.fuzzy_tree.queries import FuzzyQuery
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.questions.part import GRID, Part, PartType, Sensitivity, on_grid
from privfed.questions.query import View
from privfed.tables.schema import Schema

_UNIT = int(1 / GRID)
#: Coordinates are truncated to multiples of this, so that products are integer grid units.
_HALF = Fraction(1, math.isqrt(_UNIT))


@dataclass(frozen=True, eq=False)
class Moments(FuzzyQuery):
    """Second moments of all records in given coordinates.

    The sum of z z' over records z. Sensitivity: z is clipped to the unit ball, and truncation towards zero does not
    increase its norm, so a record's z z' has the Frobenius norm |z|^2 <= 1. In L1, |z|_1^2 <= (F + 1) |z|^2 <= F + 1.
    """

    coordinates: Coordinates  #: public coordinates, a function of earlier releases
    kind: ClassVar[str] = "fuzzy_tree.moments"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``moments`` (row, column)."""
        self._check(schema)
        self.coordinates.check(len(schema.features))
        if self.nodes != ((),):
            raise QueryError("malformed", "second moments are those of all records")
        width = self.coordinates.width
        sensitivity = Sensitivity.of(width * _UNIT, _UNIT**2)
        part = Part(PartType.SUMS, ("row", "column"), (width, width), sensitivity, GRID)
        return {"moments": part}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up integer matrix products by block, each exact in any order."""
        width = self.coordinates.width
        total = np.zeros((width, width), np.int64)
        for piece in pieces(len(view.table), width):
            units = self._cut(view, piece)
            total += (units.T @ units).astype(np.int64)
        return {"moments": total}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's z z'."""
        units = self._cut(view)
        return {"moments": units[:, :, None] * units[:, None, :]}

    def _cut(self, view: View, piece: slice = slice(None)) -> np.ndarray:
        clipped, _ = self.coordinates.clipped(self._prepare(view).unit(piece))
        return on_grid(clipped, _HALF)


@dataclass(frozen=True, eq=False)
class _ModelQuery(FuzzyQuery):
    """Base class of queries about what a linear model leaves unexplained."""

    coordinates: Coordinates  #: public coordinates
    model: np.ndarray  #: b, shape (F + 1,)
    clip: float  #: maximum residual, for a target in [-1/2, 1/2]

    def _check(self, schema: Schema) -> None:
        super()._check(schema)
        self.coordinates.check(len(schema.features))
        if self.model.shape != (self.coordinates.width,) or self.model.dtype.kind != "f":
            raise QueryError("malformed", "the model needs a number for each coordinate")
        if not (np.abs(self.model) <= LARGEST).all() or not 2.0**-20 <= self.clip <= 1:
            raise QueryError("malformed", "the model must be finite, and clip between 2^-20 and 1")

    def _part(self, axes: tuple[str, ...], shape: tuple[int, ...], l1: int, l2: int) -> Part:
        """Return a part that a record changes by at most clip times the square roots of ``l1`` and ``l2`` in these norms."""
        squared = (Fraction(self.clip) * _UNIT) ** 2
        sensitivity = Sensitivity.of(
            math.isqrt(math.ceil(l1 * squared)) + 1, math.ceil(l2 * squared)
        )
        return Part(PartType.SUMS, axes, shape, sensitivity, GRID)

    def _scaled(self, view: View, piece: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return clipped residuals, coordinates in the unit ball, and the records' scale."""
        prepared = self._prepare(view)
        unit = prepared.unit(piece)
        z, scale = self.coordinates.clipped(unit)
        residual = prepared.target[piece] - self.coordinates.predicted(unit, self.model)
        return np.clip(residual, -self.clip, self.clip), z, scale


@dataclass(frozen=True, eq=False)
class Residuals(_ModelQuery):
    """What a linear model leaves unexplained, along each coordinate in each node.

    The sum of w r z over records of weight w: r is the residual y - b'z, clipped to [-clip, clip], and scaled like its
    record if that is outside the unit ball.

    Sensitivity: a record's w sum to at most 1 over the nodes of one tree (checked), |z| <= 1 and
    |r| <= clip: the sums change by at most clip in L2, and by clip sqrt(F + 1) in L1, for any
    model, which is a function of earlier releases.
    """

    kind: ClassVar[str] = "fuzzy_tree.residuals"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``residuals`` (leaf, row)."""
        self._check(schema)
        width = self.coordinates.width
        return {"residuals": self._part(("leaf", "row"), (len(self.nodes), width), width, 1)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up node by node, a block of records at a time."""
        width = self.coordinates.width
        sums = np.zeros((len(self.nodes), width), np.int64)
        for records, active in blocks(self._prepare(view).memberships, self.nodes, width):
            along = self._along(view, slice(records.start, records.stop))
            for total, node in zip(sums, active, strict=True):
                terms = node.weight[:, None] * along[node.rows - records.start]
                total += on_grid(terms).sum(axis=0).astype(np.int64)
        return {"residuals": sums}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's residuals in every node."""
        weights = self._prepare(view).weights(self.nodes)
        return {"residuals": on_grid(weights[..., None] * self._along(view)[:, None])}

    def _along(self, view: View, piece: slice = slice(None)) -> np.ndarray:
        """Return r z of records, shape (records, F + 1)."""
        residual, z, scale = self._scaled(view, piece)
        return np.asarray((residual * scale)[:, None] * z)


@dataclass(frozen=True, eq=False)
class ResidualsBySet(_ModelQuery):
    """What a linear model leaves unexplained of all records, by fuzzy set of some features.

    The sum of mu r s^2 over records with membership mu: r is the residual y - b'z, clipped to [-clip, clip], and s <= 1
    the factor that scales the record into the unit ball, so that records weigh as in other queries.

    Sensitivity: mu is not zero in at most two sets of a feature, where it sums to 1, so that a record's vector of each
    of the F' features has an L2 norm of at most clip: all change by at most clip sqrt(F') in L2, and by clip F' in L1,
    for any model, which is a function of earlier releases.
    """

    features: tuple[int, ...] = ()  #: the F' features
    kind: ClassVar[str] = "fuzzy_tree.residuals_by_set"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``residuals`` (feature, set)."""
        self._check(schema)
        self._check_features(schema)
        if self.nodes != ((),) or not self.features:
            raise QueryError("malformed", "residuals by set are of all records and some features")
        chosen = len(self.features)
        shape = (chosen, self.sets)
        return {"residuals": self._part(("feature", "set"), shape, chosen**2, chosen)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up a block of records at a time."""
        total = np.zeros((len(self.features), self.sets), np.int64)
        for piece in pieces(len(view.table), total.size):
            total += self._by_set(view, piece).sum(axis=0).astype(np.int64)
        return {"residuals": total}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's residual in every set."""
        return {"residuals": self._by_set(view, slice(None))}

    def _by_set(self, view: View, piece: slice) -> np.ndarray:
        """Return mu r s^2 of records, shape (records, F', sets), in grid units."""
        residual, _, scale = self._scaled(view, piece)
        memberships, index = self._prepare(view).memberships, np.arange(self.sets)
        below = memberships.below[piece][:, list(self.features), None].astype(np.int64)
        rest = memberships.rest[piece][:, list(self.features), None]
        degree = np.where(index == below, 1 - rest, np.where(index == below + 1, rest, 0.0))
        return on_grid((residual * scale**2)[:, None, None] * degree)


# --- coordinates in which a linear model is learned from noisy sums, in the unit ball

EVEN = 1 / 12  #: Variance of a uniform feature on [0, 1]
_BELOW_ONE = 1 - 2.0**-40  #: Maximum norm, below one so that rounding cannot exceed it
LARGEST = 2.0**20  #: Maximum absolute value of coordinates' parameters


@dataclass(frozen=True, eq=False)
class Coordinates:
    """z = (lead, (u - 1/2 - centre) * scale) for features u scaled to [0, 1].

    A record outside the unit ball counts as z / |z|, with its residual scaled likewise: it has weight 1 / |z|^2 in a
    least-squares problem, whose solution is the same for a linear truth. So a record changes sums by at most one unit,
    and few records are far out.
    """

    features: tuple[int, ...]  #: positions of the F features
    centre: np.ndarray  #: shape (F,)
    scale: np.ndarray  #: shape (F,)
    lead: float  #: the constant coordinate

    @classmethod
    def about(
        cls,
        features: tuple[int, ...],
        centre: np.ndarray,
        stretch: np.ndarray,
        variance: np.ndarray,
    ) -> Coordinates:
        """Return coordinates in which a record's squared norm is 1 on average.

        Args:
            features: indices.
            centre, variance: of the features.
            stretch: factor of each feature, up to a common one.
        """
        norm = np.sqrt(SETTINGS.lead + float(stretch**2 @ variance))
        return cls(features, centre, stretch / norm, float(np.sqrt(SETTINGS.lead) / norm))

    @classmethod
    def public(cls, features: tuple[int, ...]) -> Coordinates:
        """Return initial coordinates, for uniform features."""
        variances = np.full(len(features), EVEN)
        return cls.about(features, np.zeros(len(features)), variances**-0.5, variances)

    @property
    def width(self) -> int:
        """F + 1."""
        return len(self.features) + 1

    def check(self, features: int) -> None:
        """Raise QueryError for features that are unknown or twice, wrong shapes, and numbers out of range."""
        chosen = self.features
        if len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(features)):
            raise QueryError("malformed", "features must be known, each once")
        for array in (self.centre, self.scale):
            if array.shape != (len(chosen),) or array.dtype.kind != "f":
                raise QueryError("malformed", "coordinates need a number for each feature")
        if not (np.abs(np.concatenate([self.centre, self.scale, [self.lead]])) <= LARGEST).all():
            raise QueryError("malformed", "coordinates must be finite and not far beyond one")

    def of(self, unit: np.ndarray) -> np.ndarray:
        """Return the coordinates of scaled records, shape (records, F + 1)."""
        scaled = (unit[:, list(self.features)] - 0.5 - self.centre) * self.scale
        return np.column_stack([np.full(len(scaled), self.lead), scaled])

    def predicted(self, unit: np.ndarray, model: np.ndarray) -> np.ndarray:
        """Return a linear model's predictions, shape (records,), bitwise independent of other records."""
        total = np.zeros(len(unit))
        for term, weight in zip(self.of(unit).T, model, strict=True):
            total += term * weight
        return total

    def clipped(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates clipped to the unit ball, and records' factors, bitwise independent of other records."""
        z, squares = self.of(unit), np.zeros(len(unit))
        for column in z.T:
            squares += column**2
        factor = np.minimum(1.0, _BELOW_ONE / np.maximum(np.sqrt(squares), 2.0**-40))
        return z * factor[:, None], factor

    def into(self, other: Coordinates) -> np.ndarray:
        """Return the matrix from these coordinates to others of the same features."""
        matrix = np.diag(np.append(other.lead / self.lead, other.scale / self.scale))
        matrix[1:, 0] = other.scale * (self.centre - other.centre) / self.lead
        return matrix

    def plain(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the same linear models in (1, u - 1/2), from coefficients of shape (..., F + 1)."""
        slopes = coefficients[..., 1:] * self.scale
        level = coefficients[..., :1] * self.lead - (slopes @ self.centre)[..., None]
        return np.concatenate([level, slopes], axis=-1)
