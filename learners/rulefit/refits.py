"""Coefficients of chosen terms, fitted to the engine's predictions on synthetic records, and their errors.

Coefficients beta = R diag(rates) F change with F's errors (psi - b phi K A psi) . u - b phi K (e + v) of
:class:`.EstimationError`. Those fitted to the records themselves, without noise, differ from the truth's by R f / N, with
sampling f of the terms' own sums; cov(e, f) = s N phi' diag(rates) R'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.linalg import block_diag
from scipy.special import expit, log_softmax, softmax

from privfed.learners.private import PrivateModel

STEPS, LONGEST = 50, 5.0  #: Maximum Newton steps, and the largest change of a coefficient by one
DECREASE = 1e-12  #: Of the loss, by a step, at which they end
#: Records for errors: at most so many times classes, and at least and at most so many
ERROR_SCORES, FEWEST, MOST = 40_000, 1_000, 10_000


#: Second moments of coefficients' errors: against the truth; the same with noise and sampling times a factor, for terms
#: that these data selected; and this, against the terms fitted to the same records without noise
Errors = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Refit:
    """Minimum of one output's mean loss of soft labels, plus a ridge, by Newton's steps."""

    designs: Sequence[np.ndarray]  #: of the terms, one of shape (records, terms)
    scores: np.ndarray  #: F of the records, shape (records,)
    mass: np.ndarray  #: weights of the records, shape (records,)
    ridge: float  #: of coefficients, the intercept excepted
    logistic: bool  #: the logistic loss, of labels expit(F); else the squared loss

    @cached_property
    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients, intercept first, and their derivatives by each record's F, shape (1 + terms, records)."""
        (design,) = self.designs
        matrix = np.column_stack([np.ones(len(design)), design])
        mass, ridge = self.mass / self.mass.sum(), np.full(matrix.shape[1], self.ridge)
        ridge[0] = 1e-12
        labels = expit(self.scores) if self.logistic else self.scores
        weights = np.zeros(matrix.shape[1])
        for _ in range(STEPS if self.logistic else 1):
            fitted = matrix @ weights
            fitted = expit(fitted) if self.logistic else fitted
            curvature = mass * (fitted * (1 - fitted) if self.logistic else 1.0)
            system = (matrix * curvature[:, None]).T @ matrix + np.diag(ridge)
            step = np.linalg.solve(system, matrix.T @ (mass * (labels - fitted)) - ridge * weights)
            weights = weights + step * min(1.0, LONGEST / max(float(np.abs(step).max()), 1e-300))
            if np.abs(step).max() < 1e-9:
                break
        return weights, np.linalg.solve(system, (matrix * self.rates[:, None]).T)

    @cached_property
    def rates(self) -> np.ndarray:
        """Variances of the records' sampling times their mass: P (1 - P), of a number one; shape (records,)."""
        labels = expit(self.scores)
        mass = self.mass / self.mass.sum()
        return np.asarray(mass * (labels * (1 - labels) if self.logistic else 1.0))

    @property
    def weights(self) -> list[np.ndarray]:
        """The coefficients, intercept first, alone in a list."""
        return [self._solution[0]]

    @property
    def influence(self) -> np.ndarray:
        """R diag(rates), shape (1 + terms, records)."""
        return self._solution[1]

    def errors(
        self, fitted: PrivateModel, codes: np.ndarray, directions: np.ndarray, selection: float
    ) -> list[Errors]:
        """Return second moments of the coefficients' errors, alone in a list; see :meth:`SoftmaxRefit.errors`."""
        (error,), influence = fitted.errors, self.influence
        loads = influence / np.maximum(self.rates, 1e-300)  # R
        along, across = influence @ directions, influence @ fitted.of_others(codes)
        whole, noise = error.covariances(across, along)
        cross = error.sampling * along @ error.gain @ along.T
        sampling = error.sampling / max(fitted.records, 1.0)
        refit = noise - cross - cross.T + sampling * influence @ loads.T
        return [_selected(whole, noise, refit, selection)]


def _selected(whole: np.ndarray, noise: np.ndarray, refit: np.ndarray, selection: float) -> Errors:
    more = selection**2
    return whole, whole + (more - 1) * noise, whole - noise + more * refit


@dataclass(frozen=True, eq=False)
class SoftmaxRefit:
    """Minimum of the mean softmax loss of soft labels P plus a ridge, over all classes' coefficients together.

    The loss does not change if a constant is added to all scores: intercepts sum to zero.
    """

    designs: Sequence[np.ndarray]  #: of each class's terms, shape (records, terms)
    labels: np.ndarray  #: P, the engine's probabilities, shape (records, classes)
    mass: np.ndarray  #: weights of the records, shape (records,)
    ridge: float  #: of coefficients, intercepts excepted

    @cached_property
    def _matrices(self) -> list[np.ndarray]:
        return [np.column_stack([np.ones(len(own)), own]) for own in self.designs]

    @property
    def _parts(self) -> list[slice]:
        """Each class's coefficients among all of them, intercept first."""
        ends = np.cumsum([0, *(own.shape[1] + 1 for own in self.designs)]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]

    def _scores(self, weights: np.ndarray) -> np.ndarray:
        """Return the classes' scores, shape (records, classes)."""
        pairs = zip(self._matrices, self._parts, strict=True)
        return np.column_stack([own @ weights[part] for own, part in pairs])

    @property
    def weights(self) -> list[np.ndarray]:
        """The coefficients by class, intercept first."""
        return [self._solution[part] for part in self._parts]

    @cached_property
    def _solution(self) -> np.ndarray:
        """All coefficients, class by class, by Newton's steps, halved where the loss does not fall."""
        mass, weights = self.mass / self.mass.sum(), np.zeros(self._parts[-1].stop)

        def loss(candidate: np.ndarray) -> float:
            logs = log_softmax(self._scores(candidate), axis=1)
            return float(self._ridges @ candidate**2 / 2 - mass @ (self.labels * logs).sum(axis=1))

        before = loss(weights)
        for _ in range(STEPS):
            fitted = softmax(self._scores(weights), axis=1)
            errors = (self.labels - fitted) * mass[:, None]
            pairs = zip(self._matrices, errors.T, strict=True)
            gradient = np.concatenate([own.T @ error for own, error in pairs])
            gradient -= self._ridges * weights
            step = np.linalg.solve(self._system(fitted, mass), gradient)
            step *= min(1.0, LONGEST / max(float(np.abs(step).max()), 1e-300))
            lengths = [0.5**k for k in range(10)]
            losses = ((length, loss(weights + length * step)) for length in lengths)
            length, after = next((pair for pair in losses if pair[1] < before), (0.0, before))
            weights, gain, before = weights + length * step, before - after, after
            if gain < DECREASE:
                break
        return weights

    @cached_property
    def _ridges(self) -> np.ndarray:
        ridges = np.full(self._parts[-1].stop, self.ridge)
        ridges[[part.start for part in self._parts]] = 1e-12
        return ridges

    def _curvature(self, p: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Return X' diag(mass dP/dF) X at probabilities p: of all coefficients, each square."""
        own = [m.T @ (m * (mass * q)[:, None]) for m, q in zip(self._matrices, p.T, strict=True)]
        every = np.concatenate(
            [m * (np.sqrt(mass) * q)[:, None] for m, q in zip(self._matrices, p.T, strict=True)],
            axis=1,
        )
        return np.asarray(block_diag(*own) - every.T @ every)

    def _system(self, p: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Return the loss's second derivatives, made definite along a constant added to all intercepts."""
        first = [part.start for part in self._parts]
        system = self._curvature(p, mass) + np.diag(self._ridges)
        system[np.ix_(first, first)] += 1 / len(first)
        return system

    def errors(
        self, fitted: PrivateModel, codes: np.ndarray, directions: np.ndarray, selection: float
    ) -> list[Errors]:
        """Return second moments of each class's coefficients' errors, by the delta method.

        Coefficients move with the engine's scores F_j by H^-1 X' diag(mass dP/dF_j), with H the loss's second
        derivatives and X all classes' terms; and with sampling f of the terms' own sums, of covariance X' diag(mass dP/dF)
        X / N, by H^-1. The engine's errors of different scores are taken to be independent, as in its posterior.

        Args:
            fitted: the engine's model.
            codes: of the records, shape (columns, records).
            directions: of the records, shape (records, directions).
            selection: factor of noise and sampling for terms that the same data selected.

        Returns:
            by class, each of shape (1 + terms, 1 + terms).
        """
        few = self._first()
        rows, mass = len(few.mass), few.mass / few.mass.sum()
        inverse = np.linalg.inv(few._system(softmax(few._scores(self._solution), axis=1), mass))
        functions = np.concatenate(
            [directions[:rows].astype(np.float32), fitted.of_others(codes[:, :rows])], axis=1
        )
        owner = np.repeat(np.arange(len(self._parts)), [own.shape[1] for own in few._matrices])
        every = np.concatenate(few._matrices, axis=1).astype(np.float32)
        moments = fitted.errors[0].sampling / max(fitted.records, 1.0)
        sampled = moments * inverse @ few._curvature(few.labels, mass) @ inverse
        whole, noise, cross = (
            [np.zeros(sampled[part, part].shape) for part in self._parts] for _ in range(3)
        )
        for output, error in enumerate(fitted.errors):
            slopes = few.labels * (
                (np.arange(len(self._parts)) == output) - few.labels[:, [output]]
            )
            slopes = (slopes * mass[:, None]).astype(np.float32)[:, owner]
            moved = inverse @ ((every * slopes).T @ functions).astype(float)
            for k, part in enumerate(self._parts):
                along, across = np.split(moved[part], [directions.shape[1]], axis=1)
                total, noisy = error.covariances(across, along)
                whole[k], noise[k] = whole[k] + total, noise[k] + noisy
                cross[k] = cross[k] + error.sampling * along @ error.gain @ along.T
        refits = [
            own - both - both.T + sampled[part, part]
            for own, both, part in zip(noise, cross, self._parts, strict=True)
        ]
        return [_selected(*own, selection) for own in zip(whole, noise, refits, strict=True)]

    def _first(self) -> SoftmaxRefit:
        rows = slice(max(FEWEST, min(MOST, ERROR_SCORES // len(self.designs))))
        designs = [own[rows] for own in self.designs]
        return SoftmaxRefit(designs, self.labels[rows], self.mass[rows], self.ridge)
