"""Linear models from noisy normal equations, as far as the known noise proves that they pay.

With released G = X'WX + E and m = X'Wy + e, E symmetric with variance v off and 2 v on its diagonal
and e of variance s^2, the squared error of fixed coefficients b on the records is, but for a
constant, b'X'WXb - 2 b'X'Wy, of which b'Gb - 2 b'm is an unbiased estimate. The ridge's solution
b = A m with A = (G + r I)^-1 leans on the very noise it is judged by. To first order,

    E[b'e] = s^2 tr A   and   E[b'Eb] = -2 v (tr A |b|^2 + b'Ab),

so that b'Gb - 2 b'm + 2 s^2 tr A + 2 v (tr A |b|^2 + b'Ab) estimates the error of a ridge without
that bias, in Stein's manner (Stein 1981). The ridge with the least is taken, and none at all, which
leaves the prior alone, where no ridge is estimated to beat it.

All is post-processing of releases. The form of the noise is public; it says nothing of the records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privfed.exchange.answers import Answer

#: Ridges that are tried, between the least that makes the equations definite and a heavy one.
_RIDGES = 60
#: Share of the noise's spectral radius by which the lifted equations exceed zero.
_MARGIN = 0.5
#: Leaves are asked for where their slopes' equations exceed as many spectral radii of noise.
_PAYS = 1.0
#: Slopes are looked for where the weight is this many spectral radii of the noise.
_SLOPES = 1.5
#: Leaves are chosen among by their noise; it is taken to have as many times its variance.
_CAUTION = 2.0
#: A total counts as told from this many deviations of its noise on.
_TOLD = 3.0
#: Mean targets are taken to lie about so far from the middle of their unit interval.
_MEANS = 0.25


@dataclass(frozen=True, eq=False)
class NoisyEquations:
    """Normal equations of some nodes, with the noise in them.

    Args:
        gram: X'WX, symmetric, shape (nodes, width, width); the first row is of the intercept.
        moment: X'Wy, shape (nodes, width).
        noise: standard deviations of one released cell of gram, and of moment.
    """

    gram: np.ndarray
    moment: np.ndarray
    noise: tuple[float, float]

    @classmethod
    def released(
        cls, gram: np.ndarray, moment: np.ndarray, noise: tuple[float, float]
    ) -> NoisyEquations:
        """From a release in which every cell of gram has noise of its own, both triangles."""
        return cls((gram + np.swapaxes(gram, -1, -2)) / 2, moment, noise)

    @classmethod
    def of(cls, *answers: Answer) -> NoisyEquations | None:
        """From the answers to one question, joined by their precision; none where nobody told."""
        told = [answer for answer in answers if "gram" in answer and "moment" in answer]
        joined: NoisyEquations | None = None
        for answer in told:
            noise = answer.deviation("gram"), answer.deviation("moment")
            own = cls.released(answer.total("gram"), answer.total("moment"), noise)
            joined = own if joined is None else joined.joined(own)
        return joined

    @property
    def variances(self) -> tuple[float, float]:
        """v, of a cell off gram's diagonal (the mean of two), and s^2, of a cell of moment."""
        return self.noise[0] ** 2 / 2, self.noise[1] ** 2

    @property
    def radius(self) -> float:
        """About the spectral radius of the noise in gram: 2 sqrt(v width)."""
        return 2 * math.sqrt(self.variances[0] * self.gram.shape[-1])

    def joined(self, other: NoisyEquations) -> NoisyEquations:
        """Two releases of the same equations, weighted by their precision."""
        if not self.noise[0]:
            return self
        pairs = zip((self.gram, self.moment), (other.gram, other.moment), strict=True)
        weights = [
            own**-2 / (own**-2 + its**-2) for own, its in zip(self.noise, other.noise, strict=True)
        ]
        gram, moment = (  # the mean's variance is own^2 its^2 / (own^2 + its^2) = share own^2
            share * own + (1 - share) * its
            for share, (own, its) in zip(weights, pairs, strict=True)
        )
        noise = [own * math.sqrt(share) for share, own in zip(weights, self.noise, strict=True)]
        return NoisyEquations(gram, moment, (noise[0], noise[1]))


@dataclass(frozen=True)
class Totals:
    """Number and summed target of all records, each joined from what was released of it.

    Args:
        weight, linear: the sums, the target being centred.
        variances: of the noise in both.
    """

    weight: float = 0.0
    linear: float = 0.0
    variances: tuple[float, float] = (math.inf, math.inf)

    @classmethod
    def of(cls, answer: Answer) -> Totals:
        """What a noisy answer about the root says; nothing where it is withheld or exact."""
        names = ("node_weights", "node_linear")
        if not all(name in answer and answer.deviation(name) for name in names):
            return cls()
        weight, linear = (float(answer.total(name)[0]) for name in names)
        variances = answer.deviation(names[0]) ** 2, answer.deviation(names[1]) ** 2
        return cls(weight, linear, variances)

    def joined(self, other: Totals) -> Totals:
        """Both by their precision."""
        if math.isinf(self.variances[0]) or math.isinf(other.variances[0]):
            return other if math.isinf(self.variances[0]) else self
        shares = [
            its / (own + its) for own, its in zip(self.variances, other.variances, strict=True)
        ]
        return Totals(
            shares[0] * self.weight + (1 - shares[0]) * other.weight,
            shares[1] * self.linear + (1 - shares[1]) * other.linear,
            (shares[0] * self.variances[0], shares[1] * self.variances[1]),
        )

    @property
    def told(self) -> bool:
        """Whether there are more records than noise could feign."""
        return self.weight > _TOLD * math.sqrt(self.variances[0])

    @property
    def mean(self) -> float:
        """The mean target, drawn towards the middle of its interval as far as noise may feign it."""
        if not self.told:
            return 0.0
        spread = self.variances[1] / self.weight**2
        share = _MEANS**2 / (_MEANS**2 + spread)
        return float(np.clip(share * self.linear / self.weight, -0.5, 0.5))


def linear_model(equations: NoisyEquations | None, totals: Totals) -> tuple[np.ndarray, bool]:
    """One linear model, and whether it is a constant.

    Args:
        equations: of all records, as one leaf's; none gives a constant.
        totals: what else was told of their number and targets.

    Returns:
        coefficients of (1, x - 1/2), shape (width,).
    """
    if equations is None:
        return np.array([totals.mean]), True
    gram, moment = equations.gram[0], equations.moment[0]
    own = equations.noise[0] ** 2, equations.noise[1] ** 2
    totals = totals.joined(Totals(float(gram[0, 0]), float(moment[0]), own))
    model = np.zeros(len(moment))
    model[0] = totals.mean
    if totals.weight <= _SLOPES * equations.radius:
        return model, True
    centre = np.clip(gram[0, 1:] / totals.weight, -0.5, 0.5)
    sides = _centred(gram, moment, centre, totals)
    slopes = _ridge(sides[0][None], sides[1][None], _slope_noise(equations, totals.mean))[0]
    model[1:] = slopes
    model[0] -= slopes @ centre
    return model, not slopes.any()


def leaf_models(equations: NoisyEquations, above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves' linear models as departures from the model of all, each as far as it pays.

    A departure's equations are the leaf's less what the model of all says of it: G d = m - G b,
    whose right side has the noise of both. Each leaf has a ridge of its own.

    Args:
        equations: of the leaves.
        above: the model of all records, shape (width,).

    Returns:
        coefficients by leaf, and which leaves stand by the model of all alone.
    """
    variance, right = (_CAUTION * each for each in equations.variances)
    left = equations.moment - equations.gram @ above
    noise = (variance, right + variance * float(above @ above))
    departure = _ridge(equations.gram, left, noise)
    plain: np.ndarray = ~np.any(departure, axis=1)
    return above + departure, plain


def pays(root: NoisyEquations, leaves: int) -> bool:
    """Whether leaves can have slopes of their own that noise does not drown.

    A leaf has about its share of the weight, and a feature spread over [0, 1] a variance of 1 / 12:
    so the leaves' equations stand out where that exceeds the noise's radius.
    """
    weight = float(root.gram[0, 0, 0])
    return weight / (12 * leaves) > _PAYS * root.radius


def _centred(
    gram: np.ndarray, moment: np.ndarray, centre: np.ndarray, totals: Totals
) -> tuple[np.ndarray, np.ndarray]:
    """Equations of the slopes alone, about the released means."""
    weight, across = totals.weight, gram[0, 1:]
    inner = gram[1:, 1:] - np.outer(centre, across) - np.outer(across, centre)
    right = moment[1:] - centre * totals.linear - totals.mean * (across - weight * centre)
    return inner + weight * np.outer(centre, centre), right


def _slope_noise(equations: NoisyEquations, mean: float) -> tuple[float, float]:
    variance, right = equations.variances
    return variance, right + mean**2 * variance


def _ridge(gram: np.ndarray, moment: np.ndarray, noise: tuple[float, float]) -> np.ndarray:
    """Each node's solution by the ridge of least estimated error; zeros where none pays.

    Args:
        gram: shape (nodes, width, width).
        moment: shape (nodes, width).
        noise: v and s^2.
    """
    variance, right = noise
    values, vectors = np.linalg.eigh(gram)
    turned = np.einsum("nji,nj->ni", vectors, moment)
    radius = 2 * math.sqrt(variance * gram.shape[-1])
    size = np.abs(values).max(axis=1)
    least = np.maximum(_MARGIN * radius - values[:, 0], 1e-9 * size + 1e-12)
    most = np.maximum(100 * size, 10 * least)
    best, found = np.zeros(len(gram)), np.zeros_like(turned)
    for ridge in np.geomspace(least, most, _RIDGES):
        inverse = 1 / (values + ridge[:, None])
        solved = inverse * turned
        length, trace = (solved**2).sum(axis=1), inverse.sum(axis=1)
        error = (values * solved**2 - 2 * solved * turned).sum(axis=1) + 2 * right * trace
        error += 2 * variance * (trace * length + (inverse * solved**2).sum(axis=1))
        better = error < best
        best, found = np.where(better, error, best), np.where(better[:, None], solved, found)
    slopes: np.ndarray = np.einsum("nij,nj->ni", vectors, found)
    return slopes
