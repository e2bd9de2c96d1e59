"""Asking for histograms, and what their noisy counts say together."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from privfed.disclosure import Disclosure
from privfed.errors import NobodyAnswered, Note
from privfed.learners.rulefit.cutoffs import distribution, inner_edges
from privfed.learners.rulefit.queries import Histogram, Marginals
from privfed.learners.rulefit.random_rules import Surrogate
from privfed.release import Answers
from privfed.schema import Schema

#: Bins of the first private histogram, which tells how many the second one can bear.
COARSE_BINS = 16
#: A covariate's noisy counts may add up wrongly by this share of the records.
NOISE_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Marginal:
    """What the histograms said.

    Args:
        counts: summed over clients, by covariate and bin.
        sizes: each client's number of records, as its noisy counts tell.
        rho: what the joint histogram cost each client (zCDP, the least over clients); none where the
            covariates were asked one by one.
        spread: standard deviation of the noise in a summed count.
        total: records of all clients, at least one.
        bins: bins that were asked for.
        asked: how many private histograms have been paid for.
    """

    counts: np.ndarray
    sizes: Mapping[str, float]
    rho: float | None
    spread: float
    total: float
    bins: int
    asked: int = 1

    @property
    def signal(self) -> float:
        """Records over the noise of one count that cost each client as much as the histogram did."""
        return self.total * math.sqrt(len(self.counts)) / max(self.spread, 1e-9)

    @property
    def noise_share(self) -> float:
        """Standard deviation of the noise in a covariate's counts, all added up, over the records.

        One at most: then the counts say nothing.
        """
        return min(1.0, self.spread * math.sqrt(self.bins) / self.total)

    def surrogate(self, schema: Schema, rng: np.random.Generator) -> Surrogate:
        """Make up records from the marginals."""
        shares = np.zeros_like(self.counts, dtype=float)
        values = []
        for feature, column in enumerate(schema.features):
            inner = inner_edges(column, self.bins)
            edges = np.concatenate([[column.bounds[0]], inner, [column.bounds[1]]])
            reached, _ = distribution(self.counts[feature, : len(inner) + 1], np.diff(edges))
            shares[feature, : len(inner) + 1] = np.diff(reached)
            middles = (edges[:-1] + edges[1:]) / 2
            values.append(middles if column.kind == "number" else edges[:-1])
        return Surrogate.draw(shares, tuple(values), rng)


def ask_marginals(federation: Disclosure, bins: int) -> Marginal:
    """Ask for histograms: covariate by covariate as published, or else as private vectors.

    Warns:
        UserWarning: private counts that cannot be told from noise.

    Raises:
        NobodyAnswered: neither kind is answered by anybody.
    """
    features = range(len(federation.schema.features))
    try:
        return _separate(federation.ask(*(Histogram((f,), bins) for f in features)), bins)
    except NobodyAnswered:
        coarse = _ask_joint(federation, min(bins, COARSE_BINS))
    _warn_if_drowned(coarse)
    finer = min(bins, bearable_bins(coarse))
    if finer <= coarse.bins:
        return coarse
    try:
        return replace(_ask_joint(federation, finer), asked=2)
    except NobodyAnswered:
        return coarse


def _warn_if_drowned(coarse: Marginal) -> None:
    """Counts that add up to nothing at all are :func:`read_cutoffs`' to tell."""
    noise = coarse.spread * math.sqrt(coarse.bins / len(coarse.counts))
    if coarse.counts.sum() > 0 and coarse.total < 2 * noise:
        warnings.warn(
            f"the noise in all histograms together could be {coarse.total:.0f} records by itself: "
            f"the budget is too small for {coarse.bins} bins; cut-offs are hardly better than chance",
            Note,
            stacklevel=4,
        )


def bearable_bins(coarse: Marginal) -> int:
    """How many bins a second histogram can have before its noise drowns it.

    B counts with noise of standard deviation s each add up with noise s * sqrt(B), which is to stay
    below :data:`NOISE_SHARE` of the records. Too many bins for a small budget give cut-offs and
    limits at random.
    """
    return int(min((NOISE_SHARE * coarse.total / max(coarse.spread, 1e-9)) ** 2, 1e6))


def _separate(answers: Answers, bins: int) -> Marginal:
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
    total = max(1.0, float(np.median(counts.sum(axis=1))))
    return Marginal(counts, sizes, None, answers[0].deviation("counts"), total, bins)


def _ask_joint(federation: Disclosure, bins: int) -> Marginal:
    schema = federation.schema
    answers = federation.ask(Marginals(tuple(range(len(schema.features))), bins))
    real = np.array([len(inner_edges(column, bins)) + 1 for column in schema.features])
    counts, total = consistent(answers.total("counts"), real)
    sizes = {client: consistent(own, real)[1] for client, own in answers.each("counts").items()}
    noises = [release.parts["counts"].noise for release in answers.releases()]
    scale = max((noise.parameter for noise in noises if noise is not None), default=0.0)
    rho = len(counts) / (2 * scale**2) if scale else None
    return Marginal(counts, sizes, rho, answers.deviation("counts"), total, bins)


def consistent(counts: np.ndarray, real: np.ndarray) -> tuple[np.ndarray, float]:
    """Make covariates agree on the number of records: every record is in one bin of each.

    Weighted least squares for equal noise in all counts: the total is the mean of the rows' sums,
    each weighted by one over its number of bins, and every row is moved evenly to add up to it.

    Args:
        counts: noisy, shape (features, bins); noise beyond a covariate's real bins is thrown away.
        real: number of real bins of each covariate, shape (features,).

    Returns:
        counts whose rows add up alike, and the total that they add up to, but at least one.
    """
    inside = np.arange(np.shape(counts)[1]) < real[:, None]
    kept = np.asarray(counts) * inside
    sums = kept.sum(axis=1)
    total = float(np.average(sums, weights=1 / real))
    return kept + inside * ((total - sums) / real)[:, None], max(1.0, total)
