"""Moments of the terms over all clients, released or estimated."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Answers, Disclosure
from privfed.learners.rulefit.cutoffs import Cutoffs, distribution, inner_edges
from privfed.learners.rulefit.queries import CovariateHistogram, Supports
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.settings import SETTINGS
from privfed.learners.rulefit.spreads import ask_spreads
from privfed.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class PooledHistogram:
    """Released histograms: summed counts by covariate and bin, and each client's size from its noisy counts."""

    counts: np.ndarray
    sizes: Mapping[str, float]
    bins: int

    def synthetic(self, schema: Schema, rng: np.random.Generator) -> np.ndarray:
        """Draw covariates from the product of the marginals, shape (records, features)."""
        return drawn(*self._distributions(schema), rng)

    def linear_moments(self, schema: Schema, cutoffs: Cutoffs) -> tuple[np.ndarray, np.ndarray]:
        """Return the linear terms' means and variances over all records, up to binning and noise."""
        fractions, values = self._distributions(schema)
        means, variances = np.zeros(len(values)), np.zeros(len(values))
        for feature, points in enumerate(values):
            middle = (cutoffs.lower[feature] + cutoffs.upper[feature]) / 2
            clipped = np.clip(points, cutoffs.lower[feature], cutoffs.upper[feature]) - middle
            terms, p = 0.4 * clipped / cutoffs.scale[feature], fractions[feature, : len(points)]
            means[feature] = p @ terms
            variances[feature] = p @ (terms - means[feature]) ** 2
        return means, variances

    def _distributions(self, schema: Schema) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return each covariate's fractions by bin, and each bin's representative value."""
        fractions = np.zeros_like(self.counts, dtype=float)
        values = []
        for feature, column in enumerate(schema.features):
            inner = inner_edges(column, self.bins)
            edges = np.concatenate([[column.bounds[0]], inner, [column.bounds[1]]])
            cdf, _ = distribution(self.counts[feature, : len(inner) + 1], np.diff(edges))
            fractions[feature, : len(inner) + 1] = np.diff(cdf)
            middles = (edges[:-1] + edges[1:]) / 2
            values.append(middles if column.kind == "number" else edges[:-1])
        return fractions, tuple(values)


def drawn(
    marginals: np.ndarray,
    values: tuple[np.ndarray, ...],
    rng: np.random.Generator,
    records: int = SETTINGS.synthetic_records,
) -> np.ndarray:
    """Draw each covariate independently, from probabilities and values of its bins."""
    columns = [
        points[np.searchsorted(np.cumsum(row[: len(points)])[:-1], rng.random(records))]
        for row, points in zip(marginals, values, strict=True)
    ]
    return np.column_stack(columns)


def ask_marginals(federation: Disclosure, bins: int) -> PooledHistogram:
    """Query a histogram of each covariate (NobodyAnswered: one has no answer)."""
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
    sizes = {client: max(1.0, float(np.median(sums))) for client, sums in totals.items()}
    return PooledHistogram(counts, sizes, bins)


@dataclass(frozen=True, eq=False)
class Pooled:
    """Moments of the terms, shape (terms,), variances pooled within clients; a withheld support is NaN."""

    sizes: Mapping[str, float]
    means: np.ndarray
    variances: np.ndarray
    supports: np.ndarray

    def average(self, replies: Mapping[str, np.ma.MaskedArray]) -> np.ndarray:
        """Return the average of clients' vectors, weighted by size, for the pooled objective."""
        mean_size = float(np.mean(list(self.sizes.values()))) if self.sizes else 1.0
        weights = np.array([self.sizes.get(client, mean_size) for client in replies])
        vectors = np.array([np.asarray(vector) for vector in replies.values()])
        return np.asarray(weights @ vectors / weights.sum())


def moments(terms: Terms, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of the terms' columns over some records, shape (1 + terms,) each."""
    design = terms.design(X)
    return design.mean(axis=0), design.var(axis=0)


def ask_pooled(
    federation: Disclosure, terms: Terms, marginal: PooledHistogram, synthetic: np.ndarray
) -> Pooled:
    """Query supports, sizes and spreads; estimate withheld ones from synthetic records and histograms."""
    rules, linear = len(terms.boxes), list(terms.linear)
    lines = [array[linear] for array in marginal.linear_moments(federation.schema, terms.cutoffs)]
    answers = federation.ask_offered(Supports(terms)).only
    if "counts" not in answers:
        estimated = [array[1 : 1 + rules] for array in moments(terms, synthetic)]
        means, variances = map(np.concatenate, zip(estimated, lines, strict=True))
        return Pooled(marginal.sizes, means, variances, np.full(rules, np.nan))
    sizes = {client: float(array[0]) for client, array in answers.each("size").items()}
    total = max(sum(sizes.values()), 1.0)
    supports = answers.total("counts") / total
    line_vars = ask_spreads(federation, terms.cutoffs, terms.linear, sizes, lines[0])
    rates = {c: np.asarray(array) / max(sizes[c], 1) for c, array in answers.each("counts").items()}
    within = _within(rates, sizes, supports)
    variances = np.concatenate([within, lines[1] if line_vars is None else line_vars])
    means = np.concatenate([supports, lines[0]])
    return Pooled(sizes, means, variances, supports)


def _within(
    rates: Mapping[str, np.ndarray], sizes: Mapping[str, float], supports: np.ndarray
) -> np.ndarray:
    """Return variances of the rules, pooled within clients; of all records if no client has two."""
    freedom = sum(max(size - 1, 0) for size in sizes.values())
    if not freedom:
        return np.asarray(supports * (1 - supports))
    terms = [rates[c] * (1 - rates[c]) * sizes[c] for c in rates]
    return np.asarray(np.sum(terms, axis=0) / freedom)
