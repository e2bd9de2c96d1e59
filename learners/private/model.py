"""A fitted private model: its scores, trees and step functions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from privfed.errors import InputError
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.posterior import EstimationError
from privfed.learners.private.synthetic_records import SyntheticSource
from privfed.learners.private.target_link import Outcome
from privfed.tables.schema import Schema

UNKNOWN = "no gradient was released: nothing is known of how far the model is off"
SHAPE_RECORDS = 300  #: Number of synthetic records for partial dependences
#: Numbers of synthetic records and of error draws for permutation importances
IMPORTANCE_RECORDS, ERROR_DRAWS = 2000, 300


def deviations_of(level: float) -> float:
    """Return an interval's half-width in standard deviations, by its level (InputError: outside (0, 1))."""
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level!r}; write level = 0.9")
    return float(ndtri((1 + level) / 2))


@dataclass(frozen=True, eq=False)
class PrivateModel:
    """F(x) = intercept + the weighted functions of a record."""

    schema: Schema  #: the public data dictionary
    outcome: Outcome  #: the link, and a number's limits
    basis: Basis  #: the functions
    weights: np.ndarray  #: shape (functions, outputs)
    start: np.ndarray  #: intercept, shape (outputs,)
    means: np.ndarray  #: of each unscaled function over the synthetic records, shape (functions,)
    deviations: np.ndarray  #: their std
    shares: np.ndarray  #: fractions of the records by column and code, shape (columns, codes)
    ranked: bool  #: whether linear terms are mid-ranks of the codes
    limits: np.ndarray  #: interval of each column's linear term, shape (columns, 2)
    rounds: int  #: number of gradients in the fit
    records: float  #: estimated number of records
    source: SyntheticSource  #: of synthetic records
    #: covariances of the outputs' weights of the source's directions, shape (outputs, directions,
    #: directions)
    covariance: np.ndarray | None
    #: prior mean square of each output's scores that the functions cannot express, shape (outputs,)
    unexpressed: np.ndarray = field(default_factory=lambda: np.zeros(1))
    #: errors of each output's scores against a truth of other trees
    errors: tuple[EstimationError, ...] = ()
    others: tuple[Trees, ...] = ()  #: the other trees, as many as in the basis

    @cached_property
    def effects(self) -> np.ndarray:
        """Weights of the unscaled functions, shape (functions, outputs)."""
        return np.asarray(self.weights * self.basis.multipliers[:, None])

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return F of encoded records, shape (rows, outputs), computed by block."""
        basis = self.basis
        added = np.empty((len(X), len(self.start)))
        for chosen in basis.blocks(len(X)):
            added[chosen] = basis.scores(basis.cells(basis.grid.codes(X[chosen])), self.weights)
        return np.asarray(self.start + added)

    def predictions(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities by class, or numbers on the common scale; shape (rows, outputs)."""
        return self.outcome.predictions(self.scores(X))

    def score_deviations(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior std of F of encoded records, including misspecification; shape (rows, outputs).

        Raises:
            InputError: unknown, as there was no round.
        """
        stds = np.empty((len(X), len(self.start)))
        for chosen in self.basis.blocks(len(X)):
            functions = self.basis.matrix(self.basis.grid.codes(X[chosen]))
            stds[chosen] = self._stds(functions @ self.source.projection)
        return np.asarray(np.sqrt(stds**2 + self.unexpressed))

    def of_others(self, codes: np.ndarray) -> np.ndarray:
        """Return the other trees' functions of records by codes, float32, shape (records, functions)."""
        return replace(self.basis, trees=self.others).matrix(codes)

    def _stds(self, directions: np.ndarray) -> np.ndarray:
        if self.covariance is None:
            raise InputError(UNKNOWN)
        variances = [np.einsum("ij,ij->i", directions @ c, directions) for c in self.covariance]
        return np.asarray(np.sqrt(np.maximum(np.stack(variances, axis=1), 0)))

    def partial_dependence(self, column: int, output: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return centred mean F by a column's code over synthetic records, and its root mean square error.

        Returns:
            both of shape (codes,); for several classes, of the log-odds of one against the rest. The error is against
            the truth's mean over the records of a code, by noise, sampling and the basis' few trees; for a model saved
            without :attr:`errors` it is the posterior std.

        Raises:
            InputError: unknown, as there was no round.
        """
        rng = np.random.default_rng(0)
        codes, weights, _ = self.source.draw(self.basis, SHAPE_RECORDS, rng)
        weights = weights / weights.sum()
        means, directions, functions = [], [], []
        for code in range(len(self.basis.grid.cuts[column]) + 1):
            codes[column] = code
            scores = self.start + self.basis.scores(self.basis.cells(codes), self.weights)
            item, slopes = self.outcome.log_odds(scores, output)
            means.append(weights @ item)
            weighted = slopes.T * weights
            directions.append(weighted @ self.basis.matrix(codes) @ self.source.projection)
            functions.append(weighted @ self.of_others(codes))
        fractions = self.shares[column, : len(means)]
        fractions = fractions / fractions.sum()
        heights, along, across = (np.array(item) for item in (means, directions, functions))
        across -= np.tensordot(fractions, across, axes=1)
        along -= np.tensordot(fractions, along, axes=1)
        if self.errors:
            squares = [
                item.squares(across[:, k], along[:, k]) for k, item in enumerate(self.errors)
            ]
        else:
            squares = [self._stds(along[:, k])[:, k] ** 2 for k in range(len(self.start))]
        return heights - fractions @ heights, np.sqrt(np.sum(squares, axis=0))

    def permutation_importances(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return permutation importances for F on synthetic records (Breiman 2001, Section 10), with intervals.

        T is the root of half the mean square of d, the change of F when a column has another synthetic record's value:
        for independent columns, of the variance of F due to the column (Sobol' 1993). With errors e the truth's is that
        of d + e, whose quantiles are the ends. The lower end is that of T + d . e / |d| if smaller, as d may contain
        noise as well as lack it, and zero if e alone may be as large as d. For several classes F are all classes'
        log-odds.

        Returns:
            importances, shape (columns,), and intervals, shape (columns, 2).

        Raises:
            InputError: the errors are unknown.
        """
        z = deviations_of(level)
        if not self.errors:
            raise InputError(UNKNOWN)
        rng = np.random.default_rng(0)
        count = max(SHAPE_RECORDS, IMPORTANCE_RECORDS // len(self.start))
        codes, weights, _ = self.source.draw(self.basis, count, rng)
        p = weights / weights.sum()
        root = np.sqrt(p / (2 * len(self.start)))[:, None]
        forms, tables = (self.basis, replace(self.basis, trees=self.others)), self._drawn(rng)
        sums = sum(form.matrix(codes) @ item for form, item in zip(forms, tables, strict=True))
        before = self._against(sums)
        importances, ends = np.zeros(len(codes)), np.zeros((len(codes), 2))
        for column in range(len(codes)):
            permuted = codes.copy()
            permuted[column] = codes[column, rng.choice(len(p), len(p), p=p)]
            step = sum(
                form.by_column(permuted, column, item) - form.by_column(codes, column, item)
                for form, item in zip(forms, tables, strict=True)
            )
            pairs = zip(before, self._against(sums + step), strict=True)
            part, errors = (np.concatenate(root * (item - other)) for item, other in pairs)
            importances[column] = total = np.linalg.norm(part)
            whole, alone = (np.linalg.norm(item, axis=0) for item in (part + errors, errors))
            low, high = np.quantile(whole, [(1 - level) / 2, (1 + level) / 2])
            if total > np.quantile(alone, (1 + level) / 2):
                linear = total - z * float(np.std(part[:, 0] @ errors)) / total
                ends[column] = max(0.0, min(low, linear)), high
            else:
                ends[column] = 0.0, high
        return importances, ends

    def _drawn(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return weights of both kinds of functions, whose sums are scores and draws of their errors.

        Returns:
            two arrays, float32, shape (functions, outputs x (1 + draws)).
        """
        draws_of = [part.drawn(ERROR_DRAWS, rng) for part in self.errors]
        projected = [self.source.projection @ second for _, second in draws_of]
        part = [np.column_stack(both) for both in zip(self.weights.T, projected, strict=True)]
        others = [np.insert(first, 0, 0.0, axis=1) for first, _ in draws_of]
        return [np.concatenate(tables, axis=1).astype(np.float32) for tables in (part, others)]

    def _against(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scores or log-odds of records, and their errors, shapes (outputs, records, 1) and (..., draws)."""
        both = sums.reshape(len(sums), len(self.start), -1)
        scores = self.start + both[..., 0]
        odds = [self.outcome.log_odds(scores, k) for k in range(len(self.start))]
        slopes = np.array([slope for _, slope in odds])
        errors = np.einsum("krj,rjd->krd", slopes, both[..., 1:])
        return np.array([value for value, _ in odds])[..., None], errors

    def trees(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the trees in a forest's form.

        Yields:
            columns of the levels, shape (depth,); thresholds, right being ``x >= threshold``, shape (depth,),
            infinite if a level does not split; and leaves' scores, shape (2^depth, outputs), with the first level
                as the lowest bit of a leaf's index.
        """
        basis, effects = self.basis, self.effects
        group = basis.columns
        for trees in basis.trees:
            for features, cuts in zip(trees.features, trees.cuts, strict=True):
                start = int(basis.starts[group])
                values = [
                    self._cut(int(f), int(cut)) for f, cut in zip(features, cuts, strict=True)
                ]
                yield features, np.array(values), effects[start : start + trees.leaves]
                group += 1

    def _cut(self, column: int, code: int) -> float:
        cuts = self.basis.grid.cuts[column]
        if code == 0:
            return -math.inf
        return cuts[code - 1] if code <= len(cuts) else math.inf

    def steps(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a column's main effect on the scores.

        Returns:
            increasing thresholds, shape (cuts,), and the effect of each interval between them (a linear term's at the
            midpoint), shape (cuts + 1, outputs).
        """
        basis, effects = self.basis, self.effects
        cuts = np.array(basis.grid.cuts[column])
        codes = np.arange(len(cuts) + 1)
        indices = basis.starts[column] + basis.bins[column, codes].astype(np.intp)
        lines = np.multiply.outer(basis.values[column, codes], effects[column])
        return cuts, effects[indices] + lines
