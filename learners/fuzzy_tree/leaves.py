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
    """Solve noisy equations with a ridge as large as the noise (AdaSSP, Wang 2018, Algorithm 2).

    A symmetric noise matrix of entries with deviation s has a spectral norm of about s sqrt(2 d)
    after averaging with its transpose; the ridge lifts the smallest eigenvalue above that. A leaf
    whose weight is below the noise predicts its noisy mean instead.

    Args:
        gram: noisy X'WX, shape (leaves, width, width).
        moment: noisy X'Wy, shape (leaves, width).
        means: noisy means of the leaves, for those that fall back.
        noise: standard deviations in gram and in moment.
    """
    width = gram.shape[1]
    symmetric = (gram + gram.transpose(0, 2, 1)) / 2
    spread = noise[0] * math.sqrt(2 * width)
    least = np.linalg.eigvalsh(symmetric)[:, 0]
    ridge = np.maximum(spread - least, 0.0) + spread / 2
    lifted = symmetric + ridge[:, None, None] * np.eye(width)
    centred = moment - symmetric[:, :, 0] * means[:, None]
    slopes = np.linalg.solve(lifted, centred[:, :, None])[:, :, 0]
    slopes[:, 0] += means
    drowned = symmetric[:, 0, 0] < 2 * spread
    return LeafModels(_or_constant(slopes, drowned, means), drowned)


def _or_constant(coefficients: np.ndarray, where: np.ndarray, means: np.ndarray) -> np.ndarray:
    replaced = coefficients.copy()
    replaced[where] = 0.0
    replaced[where, 0] = means[where]
    return replaced
