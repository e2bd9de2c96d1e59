"""Coordinates in which a linear model is learned from noisy sums, in the unit ball."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.errors import QueryError
from privfed.learners.fuzzy_tree.settings import SETTINGS

EVEN = 1 / 12  #: Squared deviation of a feature that is spread evenly over [0, 1]
_BELOW_ONE = 1 - 2.0**-40  #: Norms are held below one by this much, so that rounding cannot pass it
LARGEST = 2.0**20  #: Greatest number that coordinates may name


@dataclass(frozen=True, eq=False)
class Coordinates:
    """z = (lead, (u - 1/2 - centre) * scale) for features u scaled to [0, 1].

    A record outside the unit ball counts as z / |z|, its residual shrunk alike: it weighs 1 / |z|^2 in a
    least-squares problem, whose solution is the same where the truth is linear. So a record moves sums by
    no more than a unit, and few records are far out.
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
        """Coordinates in which a record's squared norm is 1 on average.

        Args:
            features: indices.
            centre, variance: of the features.
            stretch: factor of each feature, up to a common one.
        """
        norm = np.sqrt(SETTINGS.lead + float(stretch**2 @ variance))
        return cls(features, centre, stretch / norm, float(np.sqrt(SETTINGS.lead) / norm))

    @classmethod
    def public(cls, features: tuple[int, ...]) -> Coordinates:
        """Before anything is known: as if every feature were uniform."""
        even = np.full(len(features), EVEN)
        return cls.about(features, np.zeros(len(features)), even**-0.5, even)

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
        """The coordinates of scaled records, shape (records, F + 1)."""
        moved = (unit[:, list(self.features)] - 0.5 - self.centre) * self.scale
        return np.column_stack([np.full(len(moved), self.lead), moved])

    def predicted(self, unit: np.ndarray, model: np.ndarray) -> np.ndarray:
        """Predictions of a linear model, shape (records,), summed in one order whatever the other records."""
        total = np.zeros(len(unit))
        for term, weight in zip(self.of(unit).T, model, strict=True):
            total += term * weight
        return total

    def held(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same within the unit ball, and each record's factor for it; in one order of sums whatever the others."""
        z, squares = self.of(unit), np.zeros(len(unit))
        for column in z.T:
            squares += column**2
        shrunk = np.minimum(1.0, _BELOW_ONE / np.maximum(np.sqrt(squares), 2.0**-40))
        return z * shrunk[:, None], shrunk

    def into(self, other: Coordinates) -> np.ndarray:
        """The matrix that takes these coordinates to others of the same features."""
        matrix = np.diag(np.append(other.lead / self.lead, other.scale / self.scale))
        matrix[1:, 0] = other.scale * (self.centre - other.centre) / self.lead
        return matrix

    def plain(self, coefficients: np.ndarray) -> np.ndarray:
        """The same linear models in (1, u - 1/2); coefficients of shape (..., F + 1)."""
        slopes = coefficients[..., 1:] * self.scale
        level = coefficients[..., :1] * self.lead - (slopes @ self.centre)[..., None]
        return np.concatenate([level, slopes], axis=-1)
