"""Asking for histograms, and what their noisy counts say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Answers, Disclosure
from privfed.learners.rulefit.cutoffs import Cutoffs, distribution, inner_edges
from privfed.learners.rulefit.queries import CovariateHistogram
from privfed.learners.rulefit.surrogate import Surrogate
from privfed.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Marginal:
    """What the histograms said.

    Args:
        counts: summed over clients, by covariate and bin.
        sizes: each client's number of records, as its noisy counts tell.
        bins: bins that were asked for.
    """

    counts: np.ndarray
    sizes: Mapping[str, float]
    bins: int

    def surrogate(self, schema: Schema, rng: np.random.Generator) -> Surrogate:
        """Make up records from the marginals."""
        return Surrogate.draw(*self._laws(schema), rng)

    def linear_moments(self, schema: Schema, cutoffs: Cutoffs) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the linear terms over all clients' records together.

        Read off the summed histograms, so that they cost nothing, are the same for every seed of the
        server's, and are as exact as the bins and their noise.

        Returns:
            shape (features,) each.
        """
        shares, values = self._laws(schema)
        means, variances = np.zeros(len(values)), np.zeros(len(values))
        for feature, own in enumerate(values):
            middle = (cutoffs.lower[feature] + cutoffs.upper[feature]) / 2
            within = np.clip(own, cutoffs.lower[feature], cutoffs.upper[feature]) - middle
            terms, law = 0.4 * within / cutoffs.scale[feature], shares[feature, : len(own)]
            means[feature] = law @ terms
            variances[feature] = law @ (terms - means[feature]) ** 2
        return means, variances

    def _laws(self, schema: Schema) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Each covariate's shares by bin, and the value that stands for each bin."""
        shares = np.zeros_like(self.counts, dtype=float)
        values = []
        for feature, column in enumerate(schema.features):
            inner = inner_edges(column, self.bins)
            edges = np.concatenate([[column.bounds[0]], inner, [column.bounds[1]]])
            reached, _ = distribution(self.counts[feature, : len(inner) + 1], np.diff(edges))
            shares[feature, : len(inner) + 1] = np.diff(reached)
            middles = (edges[:-1] + edges[1:]) / 2
            values.append(middles if column.kind == "number" else edges[:-1])
        return shares, tuple(values)


def ask_marginals(federation: Disclosure, bins: int) -> Marginal | None:
    """Ask for a histogram of each covariate; none where nobody offers any.

    Raises:
        NobodyAnswered: some covariates were told and others not.
    """
    features = range(len(federation.schema.features))
    separate = federation.ask_offered(*(CovariateHistogram((f,), bins) for f in features))
    return _joined(separate, bins) if separate.releases() else None


def _joined(answers: Answers, bins: int) -> Marginal:
    """One answer for each covariate; all of them are needed."""
    rows = [answer.total("counts")[0] for answer in answers if "counts" in answer]
    if len(rows) < len(answers):
        raise NobodyAnswered("no client answered rulefit.histogram for some of the covariates")
    width = max(len(row) for row in rows)
    counts = np.array([np.pad(row, (0, width - len(row))) for row in rows])
    clients = {client for answer in answers for client in answer.releases}
    each = {
        client: [
            float(answer.releases[client]["counts"].sum())
            for answer in answers
            if client in answer.releases
        ]
        for client in clients
    }
    sizes = {client: max(1.0, float(np.median(own))) for client, own in each.items()}
    return Marginal(counts, sizes, bins)
