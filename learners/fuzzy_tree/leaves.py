"""Linear models of leaves and inner nodes, by least squares from exact normal equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.questions.cells import Path
from privfed.questions.part import GRID

_RESOLUTION = 10 * float(GRID)  #: Rounding by the grid of ten records, as in a weak leaf


@dataclass(frozen=True, eq=False)
class LeafModels:
    """Linear models of all leaves, in centred coordinates."""

    #: of (1, x - 1/2) for the target in [-1/2, 1/2], shape (leaves, features + 1)
    coefficients: np.ndarray
    constant: np.ndarray  #: which are constants, with equations withheld or dominated by noise
    borrowed: np.ndarray  #: which are an ancestor's models, with their own equations withheld

    @classmethod
    def constants(cls, means: np.ndarray, width: int) -> LeafModels:
        """Return a constant for every leaf, with ``width`` coefficients each."""
        coefficients = np.zeros((len(means), width))
        coefficients[:, 0] = means
        return cls(coefficients, np.ones(len(means), bool), np.zeros(len(means), bool))

    def among(self, columns: Sequence[int], width: int) -> LeafModels:
        """Return the same models in some columns of a wider matrix of zeros."""
        wide = np.zeros((len(self.coefficients), width))
        wide[:, list(columns)] = self.coefficients
        return LeafModels(wide, self.constant, self.borrowed)


def exact_models(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Solve (X'WX) gamma = X'Wy, for each leaf (paper, Eq. 27, with proper weights).

    It uses a pseudo-inverse of X'WX, shape (leaves, width, width), as leaves are often rank-deficient; directions
    within the grid's resolution are left out.
    """
    weight = np.maximum(gram[:, 0, 0], float(GRID))
    cutoff = np.clip(_RESOLUTION / weight, SETTINGS.min_eigenvalue, 1.0)
    inverse = np.linalg.pinv(gram, rcond=cutoff, hermitian=True)
    return np.asarray(np.einsum("lij,lj->li", inverse, moment))


@dataclass(frozen=True, eq=False)
class Known:
    """Releases about some nodes from growth."""

    paths: Sequence[Path]  #: the nodes, each after its parent
    means: np.ndarray  #: their mean targets
    weights: np.ndarray  #: their summed activations if released, else 0


def solve(
    equations: tuple[np.ndarray, np.ndarray], leaves: Known, inner: Known
) -> tuple[LeafModels, np.ndarray]:
    """Return models of leaves and of their ancestors, from the leaves' exact equations.

    A node's equations are the sum of those of the leaves below it, used if they have most of its weight; else
    its mean is used, and if that is withheld as well, the model of the node above.

    Args:
        equations: ``gram`` and ``moment`` of the leaves.
        leaves, inner: earlier releases about them.

    Returns:
        the leaves' models, and the inner nodes' coefficients, shape (inner, width).
    """
    gram, moment = equations
    under = np.array([[leaf[: len(path)] == path for leaf in leaves.paths] for path in inner.paths])
    under = under.reshape(len(inner.paths), len(leaves.paths)).astype(float)
    sums = np.tensordot(under, gram, 1), under @ moment
    weight = sums[0][:, 0, 0]
    upper = _or_mean(exact_models(*sums), (weight <= 0) | (weight < inner.weights / 2), inner.means)
    index = {path: number for number, path in enumerate(inner.paths)}
    for number, path in enumerate(inner.paths):
        if path and weight[number] <= 0 and inner.weights[number] <= 0:
            upper[number] = upper[index[path[:-1]]]
    withheld = gram[:, 0, 0] <= 0
    borrowed = withheld & (leaves.weights <= 0) & bool(len(inner.paths))
    models = _or_mean(exact_models(gram, moment), withheld & ~borrowed, leaves.means)
    for number in np.flatnonzero(borrowed).tolist():
        models[number] = upper[index[leaves.paths[number][:-1]]]
    return LeafModels(models, withheld & ~borrowed, borrowed), upper


def _or_mean(models: np.ndarray, where: np.ndarray, means: np.ndarray) -> np.ndarray:
    replaced = models.copy()
    replaced[where] = 0.0
    replaced[where, 0] = means[where]
    return replaced


def shrunken_mean(
    weight: np.ndarray, linear: np.ndarray, prior: np.ndarray, noise: float
) -> np.ndarray:
    """Return linear / weight, shrunk towards a prior by the sum's noise s, and clipped to [-1/2, 1/2].

    The least-squares shrinkage has weight s^2 / (W^2 + s^2) on the prior.
    """
    shift, total = (linear - prior * weight) * weight, weight**2 + noise**2
    return np.asarray(np.clip(prior + shift / np.where(total > 0, total, 1.0), -0.5, 0.5))
