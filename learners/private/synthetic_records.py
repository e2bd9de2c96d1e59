"""Synthetic records with the released marginals and correlations, to estimate second moments at no cost."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from privfed.learners.private.basis import Basis
from privfed.learners.private.settings import SETTINGS


def copula(products: np.ndarray, variances: np.ndarray, noise: float) -> np.ndarray:
    """Return a Gaussian copula's correlations, from noisy mean products of mid-ranks, shape (columns, columns).

    Rank correlations r become 2 sin(pi r / 6); eigenvalues within the noise are shrunk, with a minimum of .01.
    ``variances`` are of the ranks, ``noise`` is the std in a mean product.
    """
    scale = np.sqrt(np.multiply.outer(variances, variances))
    ranks = products / scale
    relative = noise / float(scale.mean())
    if relative > SETTINGS.correlation_noise:
        ranks = shrunk(ranks, 2 * np.sqrt(len(ranks)) * relative)
    latent = 2 * np.sin(np.pi * np.clip(ranks, -0.99, 0.99) / 6)
    np.fill_diagonal(latent, 1)
    values, vectors = np.linalg.eigh(latent)
    positive = (vectors * np.maximum(values, 0.01)) @ vectors.T
    unit = 1 / np.sqrt(np.diag(positive))
    return np.asarray(positive * np.multiply.outer(unit, unit))


def shrunk(matrix: np.ndarray, edge: float) -> np.ndarray:
    """Shrink eigenvalues for noise, whose own eigenvalues reach up to ``edge``."""
    values, vectors = np.linalg.eigh(matrix)
    inside = np.sqrt(np.maximum(values**2 - edge**2, 0))
    kept = np.where(np.abs(values) > edge, np.sign(values) * (np.abs(values) + inside) / 2, 0)
    return np.asarray((vectors * kept) @ vectors.T)


def draw(
    correlations: np.ndarray, fractions: np.ndarray, records: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw codes of synthetic records, uint8, shape (columns, records); ``shares`` are by column and code."""
    root = np.linalg.cholesky(correlations)
    levels = ndtr(root @ rng.normal(size=(len(root), records)))
    codes = np.empty(levels.shape, np.uint8)
    for j, row in enumerate(fractions):
        real = max(1, int(np.flatnonzero(row).max(initial=0)) + 1)
        codes[j] = np.searchsorted(np.cumsum(row[:real])[:-1], levels[j], side="right")
    return codes


@dataclass(frozen=True, eq=False)
class SyntheticSource:
    """Parameters of synthetic records, from releases only."""

    correlations: np.ndarray  #: of the Gaussian copula, shape (columns, columns)
    shares: np.ndarray  #: by column and code, shape (columns, codes)
    projection: np.ndarray  #: to leading directions, shape (functions, directions)
    wanted: np.ndarray | None  #: mean of each direction, shape (directions,), by leaf counts
    noise: float  #: std of the noise in such a mean
    target_edges: np.ndarray  #: of the target's bins, shape (bins + 1,)
    target_shares: np.ndarray  #: fractions of the records by bin of the target, shape (bins,)

    def draw(
        self, basis: Basis, records: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw new records, weighted to match the released leaf counts.

        Returns:
            codes, uint8, shape (columns, records); weights with mean 1, shape (records,); leading
            directions, shape (records, directions).
        """
        codes = draw(self.correlations, self.shares, records, rng)
        features = (basis.matrix(codes) @ self.projection.astype(np.float32)).astype(float)
        if self.wanted is None:
            return codes, np.ones(records), features
        return codes, weighted(features, self.wanted, self.noise), features


EXACT = (
    1e-6  #: Minimum noise std of means, as a huge budget adds none, and all records may be equal
)


def weighted(features: np.ndarray, target: np.ndarray, noise: float) -> np.ndarray:
    """Return :func:`tilted` weights, with a penalty from the noise std and the synthetic records' sampling."""
    covariance, size = np.cov(features, rowvar=False, bias=True), features.shape[1]
    noise = max(noise, EXACT)
    penalty = (noise**2 * np.eye(size) + covariance / len(features)) * (size / 2)
    return tilted(features, target, penalty)


TILTS = 6  #: Maximum Newton steps of a reweighting


def tilted(features: np.ndarray, target: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Return record weights, mean 1, under which mean features, shape (features,), match ``wanted``.

    Maximum entropy, exp(features . theta), with a quadratic penalty for noise in the wanted means; by Newton's steps
    with backtracking. Weights with too small an effective sample size are evened out.
    """
    theta, records = np.zeros(features.shape[1]), len(features)
    for _ in range(TILTS):
        weights = _powers(features @ theta)
        means = weights @ features / records
        gradient = means - target + penalty @ theta
        hessian = (features * weights[:, None]).T @ features / records
        hessian += penalty - np.multiply.outer(means, means)
        step = np.linalg.solve(hessian, gradient)
        gain = float(gradient @ step)
        if gain < 1e-3:
            break
        theta = theta - _length(features, target, penalty, (theta, step, gain)) * step
    weights = _powers(features @ theta)
    while 1 / np.mean(weights**2) < SETTINGS.min_effective:
        theta = theta * 0.8
        weights = _powers(features @ theta)
    return weights


def _powers(exponents: np.ndarray) -> np.ndarray:
    powers = np.exp(exponents - exponents.max())
    return np.asarray(powers / powers.mean())


def _length(
    features: np.ndarray,
    target: np.ndarray,
    penalty: np.ndarray,
    newton: tuple[np.ndarray, np.ndarray, float],
) -> float:
    """Return the first of 1, 1/2, 1/4, ... of a Newton step that gains enough (Armijo), or 0."""
    theta, step, gain = newton

    def objective(theta: np.ndarray) -> float:
        exponents = features @ theta
        top = float(exponents.max())
        log_mean = float(np.log(np.exp(exponents - top).mean()))
        return top + log_mean - float(theta @ target) + float(theta @ penalty @ theta) / 2

    before = objective(theta)
    for halvings in range(7):
        length = 0.5**halvings
        if objective(theta - length * step) < before - 0.1 * length * gain:
            return length
    return 0.0
