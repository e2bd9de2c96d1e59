"""First-order models in the leaves, by weighted least squares from summed normal equations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class LeafModels:
    """Linear models of all leaves, in centred coordinates.

    Args:
        coefficients: of (1, x - 1/2) for the target in [-1/2, 1/2], shape (leaves, features + 1).
        constant: which leaves fell back to a constant because noise drowned their equations.
    """

    coefficients: np.ndarray
    constant: np.ndarray


def exact_models(gram: np.ndarray, moment: np.ndarray, means: np.ndarray) -> LeafModels:
    """Solve (X'WX) gamma = X'Wy in every leaf by a rank-revealing pseudo-inverse.

    Paper, Eq. 27, with proper weights. Leaves are often rank-deficient: directions of which the
    grid's own resolution would be all there is are left out.

    Args:
        gram: X'WX, shape (leaves, width, width).
        moment: X'Wy, shape (leaves, width).
        means: what a leaf without any equations predicts, shape (leaves,).
    """
    inverse = np.linalg.pinv(gram, rcond=1e-5, hermitian=True)
    coefficients = np.einsum("lij,lj->li", inverse, moment)
    silent = gram[:, 0, 0] <= 0
    return LeafModels(_or_constant(coefficients, silent, means), silent)


def noisy_models(
    gram: np.ndarray, moment: np.ndarray, means: np.ndarray, noise: tuple[float, float]
) -> LeafModels:
    """Solve noisy equations with a ridge as large as the noise, towards the pooled model.

    AdaSSP (Wang 2018, Algorithm 2) on all leaves' equations together gives one linear model; each
    leaf's own is then drawn towards that by its noise instead of towards zero. A leaf whose weight
    drowns in the noise keeps its noisy mean alone.

    Args:
        gram: noisy X'WX, shape (leaves, width, width).
        moment: noisy X'Wy, shape (leaves, width).
        means: noisy means of the leaves, for those that fall back.
        noise: standard deviations of the cells of gram and of moment.
    """
    leaves = len(gram)
    symmetric = (gram + gram.transpose(0, 2, 1)) / 2
    weights = np.maximum(symmetric[:, 0, 0], 0.0)
    means = shrunken_mean(weights, moment[:, 0], means, noise[1])
    overall = np.zeros(gram.shape[1])
    overall[0] = np.average(means, weights=weights) if weights.sum() > 0 else 0.0
    pooled = _ridge(
        symmetric.sum(axis=0)[None], moment.sum(axis=0)[None], overall, noise[0] * math.sqrt(leaves)
    )[0]
    coefficients = _ridge(symmetric, moment, pooled, noise[0])
    drowned = weights < 3 * _spectral(noise[0], gram.shape[1])
    return LeafModels(_or_constant(coefficients, drowned, means), drowned)


def shrunken_mean(
    weight: np.ndarray, linear: np.ndarray, prior: np.ndarray, noise: float
) -> np.ndarray:
    """The mean linear / weight, drawn towards a prior as far as noise drowns the sum.

    The noisy mean's deviation is noise / weight; W^2 / (W^2 + s^2) of the way from the prior is its
    least-squares shrinkage. Clipped to the target's interval [-1/2, 1/2].
    """
    away = (linear - prior * weight) * weight
    spread = weight**2 + noise**2
    shrunken: np.ndarray = np.clip(prior + away / np.where(spread > 0, spread, 1.0), -0.5, 0.5)
    return shrunken


def _spectral(noise: float, width: int) -> float:
    """About the spectral norm of the noise in a symmetrised gram matrix.

    A symmetric matrix of independent noise of deviation s off the diagonal has a spectral norm of
    about 2 s sqrt(width); averaging a matrix with its transpose leaves s = noise / sqrt(2).
    """
    return noise * math.sqrt(2 * width)


def _ridge(gram: np.ndarray, moment: np.ndarray, prior: np.ndarray, noise: float) -> np.ndarray:
    """Solve (G + r I) gamma = m + r prior, with r twice what noise does to G's eigenvalues.

    The prior is what the equations fall back to where noise is all there is.
    """
    width = gram.shape[1]
    spectral = _spectral(noise, width)
    least = np.linalg.eigvalsh(gram)[:, 0]
    ridge = np.maximum(spectral - least, 0.0) + spectral
    right = moment + ridge[:, None] * prior
    lifted = gram + ridge[:, None, None] * np.eye(width)
    solved: np.ndarray = np.linalg.solve(lifted, right[:, :, None])[:, :, 0]
    return solved


def _or_constant(coefficients: np.ndarray, where: np.ndarray, means: np.ndarray) -> np.ndarray:
    replaced = coefficients.copy()
    replaced[where] = 0.0
    replaced[where, 0] = means[where]
    return replaced
