"""How far the linear terms spread within clients: what their importances need (paper, Section 2.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.questions.part import GRID, Part, PartType, Sensitivity, on_grid
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Spreads(Query):
    """Sums and sums of squares of winsorised covariates, for pooled standard deviations.

    A winsorised value is scaled to [-1, 1] between its public limits, and its square to [0, 1].

    Sensitivity: a record adds at most one in absolute value to each of the m sums and of the m sums of squares: L1 = m
    and squared L2 = m for each part, on the scale of these values. Replacing a record changes a sum by at most two and
    a sum of squares by at most one: 2m and 4m, m and m.
    """

    cutoffs: Cutoffs  #: the shared limits
    features: tuple[int, ...]  #: covariates, increasing
    kind: ClassVar[str] = "rulefit.spreads"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``sums`` and ``squares`` by covariate, in grid units."""
        self.cutoffs.check(schema)
        rising = all(a < b for a, b in zip(self.features, self.features[1:], strict=False))
        known = all(0 <= feature < len(schema.features) for feature in self.features)
        if not self.features or not rising or not known:
            raise QueryError("malformed", "spreads need covariates of the schema, rising")
        if not (self.cutoffs.lower < self.cutoffs.upper)[list(self.features)].all():
            raise QueryError("malformed", "spreads need limits that lie apart")
        count, unit = len(self.features), int(1 / GRID)
        once = Sensitivity.of(count * unit, count * unit**2)
        squares = Sensitivity(once.add_or_remove, replace_one=once.add_or_remove)
        return {
            "sums": Part(PartType.SUMS, ("feature",), (count,), once, GRID),
            "squares": Part(PartType.SUMS, ("feature",), (count,), squares, GRID),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up integer grid units, so that rounding cannot exceed the bound."""
        each = self.contribution(view).items()
        return {name: values.sum(axis=0, dtype=np.int64) for name, values in each}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's scaled values and their squares."""
        chosen = list(self.features)
        low, high = self.cutoffs.lower[chosen], self.cutoffs.upper[chosen]
        fraction = (np.clip(view.table.x[:, chosen], low, high) - low) / (high - low)
        scaled = np.clip(2 * fraction - 1, -1, 1)
        return {"sums": on_grid(scaled), "squares": on_grid(scaled**2)}


def ask_spreads(
    federation: Disclosure,
    cutoffs: Cutoffs,
    linear: tuple[int, ...],
    sizes: Mapping[str, float],
    means: np.ndarray,
) -> np.ndarray | None:
    """Return the linear terms' variances about each client's mean, over N - K, shape (linear,); None if withheld.

    If no client has two records, they are about the pooled ``means``, over N.
    """
    if not linear:
        return None
    answer = federation.ask_offered(Spreads(cutoffs, linear)).only
    if "sums" not in answer or "squares" not in answer:
        return None
    chosen = list(linear)
    widths = 0.4 * (cutoffs.upper - cutoffs.lower)[chosen] / 2 / cutoffs.scale[chosen]
    clients = list(answer.each("sums"))
    counts = np.array([max(sizes.get(client, 0.0), 1.0) for client in clients])[:, None]
    sums, squares = (
        np.array([np.asarray(answer.each(name)[client]) for client in clients])
        for name in ("sums", "squares")
    )
    freedom = float((counts - 1).sum())
    if not freedom:
        middles = means / widths
        apart = squares - 2 * middles * sums + middles**2
        return np.asarray(widths**2 * np.maximum(apart, 0.0).mean(axis=0))
    within = np.maximum(squares - sums**2 / counts, 0.0).sum(axis=0) / freedom
    return np.asarray(widths**2 * within)
