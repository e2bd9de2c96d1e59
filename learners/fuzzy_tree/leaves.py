"""Linear models of leaves and inner nodes, by least squares from exact normal equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.questions.cells import Path
from privfed.questions.part import GRID

#: What ten records lose to the grid, a unit each: few records reach a leaf that is hardly activated.
_RESOLUTION = 10 * float(GRID)


@dataclass(frozen=True, eq=False)
class LeafModels:
    """Linear models of all leaves, in centred coordinates."""

    #: of (1, x - 1/2) for the target in [-1/2, 1/2], shape (leaves, features + 1)
    coefficients: np.ndarray
    #: which leaves are a constant: nothing was told, or noise drowned their equations
    constant: np.ndarray
    #: which leaves stand by the equations of a node above them, their own being withheld
    borrowed: np.ndarray

    @classmethod
    def constants(cls, means: np.ndarray, width: int) -> LeafModels:
        """A constant in every leaf, with ``width`` coefficients each."""
        coefficients = np.zeros((len(means), width))
        coefficients[:, 0] = means
        return cls(coefficients, np.ones(len(means), bool), np.zeros(len(means), bool))

    def among(self, columns: Sequence[int], width: int) -> LeafModels:
        """The same models in some columns of a wider matrix of zeros."""
        wide = np.zeros((len(self.coefficients), width))
        wide[:, list(columns)] = self.coefficients
        return LeafModels(wide, self.constant, self.borrowed)


def exact_models(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Solve (X'WX) gamma = X'Wy by a pseudo-inverse, for each leaf or node.

    Paper, Eq. 27, with proper weights. Leaves are often rank-deficient: directions within the grid's own
    resolution are left out, which of a leaf that is hardly activated are most.

    Args:
        gram: X'WX, shape (leaves, width, width).
        moment: X'Wy, shape (leaves, width).
    """
    weight = np.maximum(gram[:, 0, 0], float(GRID))
    least = np.clip(_RESOLUTION / weight, SETTINGS.min_eigenvalue, 1.0)
    inverse = np.linalg.pinv(gram, rcond=least, hermitian=True)
    return np.asarray(np.einsum("lij,lj->li", inverse, moment))


@dataclass(frozen=True, eq=False)
class Known:
    """What growth has told of some nodes."""

    paths: Sequence[Path]  #: the nodes, each after its parent
    means: np.ndarray  #: their mean targets
    weights: np.ndarray  #: their summed activations as far as told; 0 where nothing was


def solve(
    equations: tuple[np.ndarray, np.ndarray], leaves: Known, inner: Known
) -> tuple[LeafModels, np.ndarray]:
    """Models of leaves and of the nodes above them, from the leaves' exact equations.

    A node's equations are the sum of those of the leaves below it, used if they have most of its weight; else
    its mean is used, and if that is withheld as well, the model of the node above.

    Args:
        equations: ``gram`` and ``moment`` of the leaves.
        leaves, inner: what is known of them.

    Returns:
        the leaves' models, and the inner nodes' coefficients, shape (inner, width).
    """
    gram, moment = equations
    below = np.array([[leaf[: len(path)] == path for leaf in leaves.paths] for path in inner.paths])
    below = below.reshape(len(inner.paths), len(leaves.paths)).astype(float)
    sums = np.tensordot(below, gram, 1), below @ moment
    told = sums[0][:, 0, 0]
    upper = _or_mean(exact_models(*sums), (told <= 0) | (told < inner.weights / 2), inner.means)
    place = {path: number for number, path in enumerate(inner.paths)}
    for number, path in enumerate(inner.paths):
        if path and told[number] <= 0 and inner.weights[number] <= 0:
            upper[number] = upper[place[path[:-1]]]
    silent = gram[:, 0, 0] <= 0
    borrowed = silent & (leaves.weights <= 0) & bool(len(inner.paths))
    own = _or_mean(exact_models(gram, moment), silent & ~borrowed, leaves.means)
    for number, path in enumerate(leaves.paths):
        if borrowed[number]:
            own[number] = upper[place[path[:-1]]]
    return LeafModels(own, silent & ~borrowed, borrowed), upper


def _or_mean(models: np.ndarray, where: np.ndarray, means: np.ndarray) -> np.ndarray:
    replaced = models.copy()
    replaced[where] = 0.0
    replaced[where, 0] = means[where]
    return replaced


def shrunken_mean(
    weight: np.ndarray, linear: np.ndarray, prior: np.ndarray, noise: float
) -> np.ndarray:
    """The mean linear / weight, shrunk towards a prior by the sum's noise s, and clipped to [-1/2, 1/2].

    W^2 / (W^2 + s^2) of the way from the prior is the least-squares shrinkage.
    """
    away = (linear - prior * weight) * weight
    spread = weight**2 + noise**2
    return np.asarray(np.clip(prior + away / np.where(spread > 0, spread, 1.0), -0.5, 0.5))
