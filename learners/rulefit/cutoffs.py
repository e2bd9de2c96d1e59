"""Cut-offs, winsorising limits and scales from histograms, at no cost (paper, Section 2.2.1)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from privfed.errors import Note, QueryError
from privfed.learners.plain import plain, restored
from privfed.learners.rulefit.settings import SETTINGS
from privfed.tables.schema import Column, Schema

MOST_CUTS = 250  #: Maximum cut-offs of one covariate: codes must fit a byte
LARGEST = 2.0**20  #: Maximum factor in a query, so that contributions do not overflow


def inner_edges(column: Column, bins: int) -> np.ndarray:
    """Return at most ``bins - 1`` increasing edges strictly inside the bounds; values on an edge go up.

    Numbers get equal-width bins over the public bounds, integers edges on integers, categories one bin each.
    """
    low, high = column.bounds
    if column.kind == "number":
        return np.linspace(low, high, bins + 1)[1:-1]
    values = int(np.floor(high) - np.ceil(low)) + 1
    if values <= bins or column.kind == "category":
        return np.arange(np.ceil(low) + 1, np.floor(high) + 1)
    return np.unique(np.round(np.linspace(low, high, bins + 1)[1:-1]))


def bins_needed(schema: Schema, features: tuple[int, ...], bins: int) -> int:
    """Return the largest number of bins of the covariates."""
    return max(len(inner_edges(schema.features[f], bins)) + 1 for f in features)


@dataclass(frozen=True, eq=False)
class Cutoffs:
    """The covariates' shared cut-offs, limits and scales."""

    cuts: tuple[tuple[float, ...], ...]  #: increasing cut-off values C_j
    lower: np.ndarray  #: winsorising limits delta-minus and delta-plus, shape (features,)
    upper: np.ndarray
    scale: np.ndarray  #: standard deviation s_j of the winsorised covariate

    def check(self, schema: Schema) -> None:
        """Raise QueryError unless values fit the schema, and cannot make sums overflow.

        An overflow for some records only would reveal them.
        """
        features, width = len(schema.features), schema.upper - schema.lower
        arrays = (self.lower, self.upper, self.scale)
        if len(self.cuts) != features or any(array.shape != (features,) for array in arrays):
            raise QueryError("malformed", "cut-offs and limits are needed for every covariate")
        if not all(np.isfinite(array).all() for array in arrays) or not (self.scale > 0).all():
            raise QueryError("malformed", "limits and scales must be finite, scales above 0")
        near = (self.lower >= schema.lower - width) & (self.upper <= schema.upper + width)
        if not (near & (self.lower <= self.upper)).all():
            raise QueryError("malformed", "limits must lie by the bounds, and rise")
        if not ((self.scale >= width / LARGEST) & (self.scale <= width * LARGEST)).all():
            raise QueryError("malformed", "scales must be in proportion to the bounds' widths")
        for cuts in self.cuts:
            rising = len(cuts) <= MOST_CUTS and all(low < high for low, high in pairwise(cuts))
            if not rising or not all(map(math.isfinite, (*cuts[:1], *cuts[-1:]))):
                raise QueryError("malformed", "cut-offs must be finite and rise")

    def codes(self, X: np.ndarray) -> np.ndarray:
        """Return codes, with ``x >= cuts[k]`` exactly if ``code > k``; uint8, shape (records, features)."""
        columns = [
            np.searchsorted(np.array(cuts), X[:, feature], side="right")
            for feature, cuts in enumerate(self.cuts)
        ]
        return np.column_stack(columns).astype(np.uint8)

    def linear(self, X: np.ndarray) -> np.ndarray:
        """Return the linear terms 0.4 l_j(x_j) / s_j (paper, Eq. 1), centred between the limits.

        Centring changes the intercept only, and halves a record's maximum contribution.
        """
        middle = self.lower / 2 + self.upper / 2
        terms: np.ndarray = 0.4 * (np.clip(X, self.lower, self.upper) - middle) / self.scale
        return terms

    def to_dict(self) -> dict[str, Any]:
        """Return the values as plain data."""
        arrays = {name: plain(getattr(self, name)) for name in ("lower", "upper", "scale")}
        return {"cuts": [plain(cuts) for cuts in self.cuts], **arrays}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cutoffs:
        """Read plain data, without :meth:`check`."""
        cuts = tuple(tuple(float(cut) for cut in column) for column in data["cuts"])
        return cls(cuts, *(restored(data[name]) for name in ("lower", "upper", "scale")))

    @property
    def sizes(self) -> np.ndarray:
        """Number of intervals between cut-offs of each covariate."""
        return np.array([len(cuts) + 1 for cuts in self.cuts])


def _first_of(names: Sequence[str]) -> str:
    """Format the first of some columns, and the number of further ones."""
    more = f" (and of {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]!r}{more}"


def read_cutoffs(counts: np.ndarray, schema: Schema, bins: int, levels: int) -> Cutoffs:
    """Compute cut-offs from summed (noisy) histograms, shape (features, at least :func:`bins_needed`).

    Warns:
        UserWarning: counts sum to zero or less (cut-offs are then evenly spaced over the bounds), or nearly all
            records are in one bin.
    """
    stats = [
        _Marginal.of(row, column, bins, levels)
        for row, column in zip(counts, schema.features, strict=True)
    ]
    lost = [c.name for c, m in zip(schema.features, stats, strict=True) if m.lost]
    if lost:
        warnings.warn(
            f"the noisy histogram of {_first_of(lost)} adds up to nothing: "
            f"the budget is too small for {bins} bins; its cut-offs are evenly spaced instead",
            Note,
            stacklevel=2,
        )
    crowded = [c.name for c, m in zip(schema.features, stats, strict=True) if m.crowded]
    if crowded:
        warnings.warn(
            f"by its histogram, more than {100 * SETTINGS.crowded:g} % of the records lie in one bin of "
            f"{_first_of(crowded)}, which no rule divides: if they are not "
            f"one value, write narrower bounds in the schema, or more than {bins} bins",
            Note,
            stacklevel=2,
        )
    limits = [np.array([getattr(m, name) for m in stats]) for name in ("lower", "upper", "scale")]
    return Cutoffs(tuple(m.cuts for m in stats), *limits)


@dataclass(frozen=True)
class _Marginal:
    """Statistics of one covariate's histogram."""

    cuts: tuple[float, ...]
    lower: float
    upper: float
    scale: float
    lost: bool
    crowded: bool

    @classmethod
    def of(cls, counts: np.ndarray, column: Column, bins: int, levels: int) -> _Marginal:
        inner = inner_edges(column, bins)
        low, high = column.bounds
        edges = np.concatenate([[low], inner, [high]])
        cdf, lost = distribution(counts[: len(inner) + 1], np.diff(edges))
        quantiles = np.arange(1, levels + 1) / (levels + 1)
        first = np.searchsorted(cdf[1:], quantiles - 1e-12)  # (paper, step 3)
        cuts = inner[np.clip(first, 0, len(inner) - 1)] if len(inner) else inner
        lower = int(np.searchsorted(cdf, 0.025, side="right")) - 1
        ends = edges[[lower, int(np.searchsorted(cdf, 0.975))]]
        values = np.clip((edges[:-1] + edges[1:]) / 2, *ends)
        if column.kind != "number":
            values = np.clip(np.concatenate([[low], inner]), *ends)
        masses = np.diff(cdf)
        std = _exact_std(values, masses)
        width = float(high - low)
        std = max(std, SETTINGS.min_std * float(ends[1] - ends[0]))
        scale = std if std > SETTINGS.negligible_std * width else width
        return cls(
            tuple(float(cut) for cut in np.unique(cuts)),
            float(ends[0]),
            float(ends[1]),
            scale,
            lost,
            column.kind == "number" and not lost and float(masses.max()) > SETTINGS.crowded,
        )


def _exact_std(values: np.ndarray, masses: np.ndarray) -> float:
    """Return the exactly summed standard deviation: clients' randomness depends on a query's every bit."""
    mean = math.fsum(masses * values)
    return math.sqrt(math.fsum(masses * (values - mean) ** 2))


def distribution(counts: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the cumulative distribution at the edges, shape (bins + 1,), by isotonic regression of noisy counts.

    If they sum to zero or less it is uniform over the widths, and the second value is True.
    """
    from sklearn.isotonic import isotonic_regression

    total = float(counts.sum())
    if total <= 0 or not (counts > 0).any():
        return np.concatenate([[0.0], np.cumsum(widths) / widths.sum()]), True
    rising = isotonic_regression(np.cumsum(counts), y_min=0, y_max=total)
    cdf = np.concatenate([[0.0], rising / total])
    cdf[-1] = 1.0
    return cdf, False
