"""Membership from evaluation scores: many averages over one set of records say who is in it.

A score that a model gets on n records is, to first order, a mean over them of what each adds. Whoever
knows about what a person's record would add to each of m scores can ask whether the released scores
lean that way. That is how Homer et al. (2008, "Resolving individuals contributing trace amounts of
DNA") found people in published averages, with one allele's frequency in each score's place; how well
it can work is known (Sankararaman et al. 2009, "Genomic privacy and limits of individual detection in
a pool"): the likelihood ratio's signal over noise is sqrt(m / n) for m independent scores.

The scores of an evolving population are far from independent, so m counts what is different in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from privfed.attacks.membership import auc

#: Share of the strongest direction below which a direction of the scores counts as noise.
SMALL = 1e-3


@dataclass(frozen=True)
class Detected:
    """How well records were told from others.

    Args:
        auc: probability that a member leans more than an outsider.
        found: share of members that lean more than all but 1 % of the outsiders.
        dimensions: m, how many independent scores there are.
        expected_auc: what the closed form says.
        expected_found: the same.
    """

    auc: float
    found: float
    dimensions: float
    expected_auc: float
    expected_found: float


def detect(
    scores: np.ndarray,
    expected: np.ndarray,
    influence: np.ndarray,
    reference: np.ndarray,
    member: np.ndarray,
    size: int,
) -> Detected:
    """Lean the released scores on each record, and see who is found.

    Args:
        scores: what was released, shape (scores,).
        expected: what is expected of anybody's records, shape (scores,).
        influence: what each record in question would add to each score's mean, centred on the
            population's; shape (records, scores).
        reference: the same of records that the attacker has of its own, shape (own, scores).
        member: which of the records in question were scored on; this only judges the attack.
        size: n, on how many records the scores are.
    """
    basis, spread = directions(reference)
    leaning = whitened(influence, basis, spread) @ whitened(scores - expected, basis, spread)
    inside, outside = leaning[member], leaning[~member]
    bar = float(np.quantile(outside, 0.99)) if len(outside) else np.inf
    dimensions = float(len(spread))
    found = float((inside > bar).mean()) if len(inside) else 0.0
    return Detected(auc(inside, outside), found, dimensions, *expected_rates(dimensions, size))


def expected_rates(dimensions: float, size: int) -> tuple[float, float]:
    """Area under the curve, and members found at 1 % false positives, for m scores of n records.

    The likelihood ratio of a member is normal with mean sqrt(m / n) above an outsider's and the same
    deviation, 1; so the area is Phi(sqrt(m / 2n)) and the share found Phi(sqrt(m / n) - z_.99).
    """
    signal = float(np.sqrt(dimensions / max(size, 1)))
    return float(ndtr(signal / np.sqrt(2))), float(ndtr(signal - ndtri(0.99)))


def gaussian_rates(rho: float) -> tuple[float, float]:
    """The same for noisy sums that cost rho in all, zero-concentrated: no attack does better.

    Gaussian noise of rho puts a worst-case record sqrt(2 rho) deviations apart.
    """
    signal = float(np.sqrt(2 * rho))
    return float(ndtr(signal / np.sqrt(2))), float(ndtr(signal - ndtri(0.99)))


def directions(reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Independent directions of what records add, and the deviation along each.

    Returns:
        shape (scores, directions) and (directions,).
    """
    _, values, rows = np.linalg.svd(reference, full_matrices=False)
    kept = values > SMALL * values.max(initial=0.0)
    return rows[kept].T, values[kept] / np.sqrt(max(len(reference), 1))


def whitened(values: np.ndarray, basis: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Values along each direction, in deviations."""
    along: np.ndarray = values @ basis / spread
    return along
