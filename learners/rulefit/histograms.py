"""Histograms of the covariates, and what their noisy counts say together."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Answers, Disclosure
from privfed.learners.rulefit.cutoffs import Cutoffs, distribution, inner_edges
from privfed.learners.rulefit.queries import CovariateHistogram
from privfed.learners.rulefit.settings import SETTINGS
from privfed.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class PooledHistogram:
    """Released histograms: summed counts by covariate and bin, and each client's size by its noisy counts."""

    counts: np.ndarray
    sizes: Mapping[str, float]
    bins: int

    def synthetic(self, schema: Schema, rng: np.random.Generator) -> np.ndarray:
        """Covariates drawn from the product of the marginals, shape (records, features)."""
        return drawn(*self._distributions(schema), rng)

    def linear_moments(self, schema: Schema, cutoffs: Cutoffs) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the linear terms over all records, as exact as bins and noise."""
        shares, values = self._distributions(schema)
        means, variances = np.zeros(len(values)), np.zeros(len(values))
        for feature, own in enumerate(values):
            middle = (cutoffs.lower[feature] + cutoffs.upper[feature]) / 2
            within = np.clip(own, cutoffs.lower[feature], cutoffs.upper[feature]) - middle
            terms, law = 0.4 * within / cutoffs.scale[feature], shares[feature, : len(own)]
            means[feature] = law @ terms
            variances[feature] = law @ (terms - means[feature]) ** 2
        return means, variances

    def _distributions(self, schema: Schema) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Each covariate's shares by bin, and the value that stands for each bin."""
        shares = np.zeros_like(self.counts, dtype=float)
        values = []
        for feature, column in enumerate(schema.features):
            inner = inner_edges(column, self.bins)
            edges = np.concatenate([[column.bounds[0]], inner, [column.bounds[1]]])
            cdf, _ = distribution(self.counts[feature, : len(inner) + 1], np.diff(edges))
            shares[feature, : len(inner) + 1] = np.diff(cdf)
            middles = (edges[:-1] + edges[1:]) / 2
            values.append(middles if column.kind == "number" else edges[:-1])
        return shares, tuple(values)


def drawn(
    marginals: np.ndarray,
    values: tuple[np.ndarray, ...],
    rng: np.random.Generator,
    records: int = SETTINGS.synthetic_records,
) -> np.ndarray:
    """Draw each covariate on its own, by probabilities and values of its bins."""
    columns = [
        own[np.searchsorted(np.cumsum(row[: len(own)])[:-1], rng.random(records))]
        for row, own in zip(marginals, values, strict=True)
    ]
    return np.column_stack(columns)


def ask_marginals(federation: Disclosure, bins: int) -> PooledHistogram:
    """Ask for a histogram of each covariate; NobodyAnswered if one has no answer."""
    features = range(len(federation.schema.features))
    answers: Answers = federation.ask_offered(*(CovariateHistogram((f,), bins) for f in features))
    rows = [answer.total("counts")[0] for answer in answers if "counts" in answer]
    if len(rows) < len(answers):
        raise NobodyAnswered("no client answered rulefit.histogram for some of the covariates")
    width = max(len(row) for row in rows)
    counts = np.array([np.pad(row, (0, width - len(row))) for row in rows])
    totals: dict[str, list[float]] = {}
    for answer in answers:
        for client, release in answer.releases.items():
            totals.setdefault(client, []).append(float(release["counts"].sum()))
    sizes = {client: max(1.0, float(np.median(own))) for client, own in totals.items()}
    return PooledHistogram(counts, sizes, bins)
