"""Synthetic records from histograms, columns independent, for rules' moments that no client releases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.settings import SETTINGS


@dataclass(frozen=True, eq=False)
class SyntheticRecords:
    """Records drawn from the product of the marginals: covariates, shape (records, features)."""

    x: np.ndarray

    @classmethod
    def draw(
        cls,
        marginals: np.ndarray,
        values: tuple[np.ndarray, ...],
        rng: np.random.Generator,
        records: int = SETTINGS.synthetic_records,
    ) -> SyntheticRecords:
        """Draw each covariate on its own, by probabilities and values of its bins."""
        columns = [
            own[np.searchsorted(np.cumsum(row[: len(own)])[:-1], rng.random(records))]
            for row, own in zip(marginals, values, strict=True)
        ]
        return cls(np.column_stack(columns))

    def moments(self, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the terms' columns, shape (1 + terms,) each."""
        design = terms.design(self.x)
        return design.mean(axis=0), design.var(axis=0)
