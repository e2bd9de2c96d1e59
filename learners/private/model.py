"""A fitted private model: its scores, trees and step functions."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

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
#: Factor of errors in importances, and the most of a column's, whose effect is larger than the mean
IMPORTANCE_ERROR, MOST_STRETCH = 1.25, math.sqrt(6)
REFIT_RECORDS = 2_500  #: Number of synthetic records for errors against a model without noise
#: What intervals hold: the truth, or the model of the same records without noise
Aim = Literal["truth", "same"]


def check_aim(of: str) -> None:
    """Raise InputError for an unknown aim of intervals."""
    if of not in get_args(Aim):
        raise InputError(f'of must be "truth" or "same", not {of!r}')


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
    #: errors of each output's scores against a truth of other trees
    errors: tuple[EstimationError, ...] = ()
    others: tuple[Trees, ...] = ()  #: the other trees, as many as in the basis
    further: tuple[Trees, ...] = ()  #: those of a model without noise, as many again

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

    def score_deviations(self, X: np.ndarray, of: Aim = "truth") -> np.ndarray:
        """Return the root mean square error of F of encoded records, shape (rows, outputs).

        Args:
            X: encoded records.
            of: the error against the truth, by noise, sampling and misspecification; or, for ``"same"``, against the
                model that would be learned from the same records without noise.

        Raises:
            InputError: unknown, as there was no round; or ``of`` is neither.
        """
        errors, result = self.errors_of(of), np.empty((len(X), len(self.start)))
        for chosen in self.basis.blocks(len(X)):
            functions, directions = self.functionals(self.basis.grid.codes(X[chosen]), of)
            squares = [error.squares(functions, directions) for error in errors]
            result[chosen] = np.stack(squares, axis=1)
        return np.asarray(np.sqrt(result))

    def errors_of(self, of: Aim) -> tuple[EstimationError, ...]:
        """Return each output's errors, for :meth:`functionals` (InputError as in :meth:`score_deviations`)."""
        check_aim(of)
        if not self.errors:
            raise InputError(UNKNOWN)
        return self.errors if of == "truth" else self._refit_errors

    def functionals(self, codes: np.ndarray, of: Aim) -> tuple[np.ndarray, np.ndarray]:
        """Return the functions and directions of records by codes, of which errors are linear functions.

        Returns:
            of shapes (records, functions), or (1, 1) if none, and (records, directions).
        """
        directions = self.basis.matrix(codes) @ self.source.projection
        if of == "truth":
            return self.of_others(codes), directions
        return np.zeros((1, 1)), np.column_stack([directions, -self._of_further(codes)])

    def _of_further(self, codes: np.ndarray) -> np.ndarray:
        return replace(self.basis, trees=self.further).matrix(codes)

    @cached_property
    def _refit_errors(self) -> tuple[EstimationError, ...]:
        rng = np.random.default_rng(0)
        codes, weights, directions = self.source.draw(self.basis, REFIT_RECORDS, rng)
        scores = self.start + self.basis.scores(self.basis.cells(codes), self.weights)
        irls_weights = self.outcome.variances(self.outcome.predictions(scores))
        irls_weights *= (weights * max(self.records, 1.0) / len(weights))[:, None]
        functions, further = self.of_others(codes), self._of_further(codes)
        calibrated = self.outcome.kind != "number"
        return tuple(
            error.of_refit(directions, functions, further, w, calibrated=calibrated)
            for error, w in zip(self.errors, irls_weights.T, strict=True)
        )

    def of_others(self, codes: np.ndarray) -> np.ndarray:
        """Return the other trees' functions of records by codes, float32, shape (records, functions)."""
        return replace(self.basis, trees=self.others).matrix(codes)

    def partial_dependence(
        self, column: int, output: int = 0, of: Aim = "truth"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return centred mean F by a column's code over synthetic records, and its root mean square error.

        Returns:
            both of shape (codes,); for several classes, of the log-odds of one against the rest. The error is against
            the truth's mean over the records of a code; ``of`` as in :meth:`score_deviations`.

        Raises:
            InputError: as there.
        """
        errors, rng = self.errors_of(of), np.random.default_rng(0)
        codes, weights, _ = self.source.draw(self.basis, SHAPE_RECORDS, rng)
        weights = weights / weights.sum()
        means, along, across = [], [], []
        for code in range(len(self.basis.grid.cuts[column]) + 1):
            codes[column] = code
            scores = self.start + self.basis.scores(self.basis.cells(codes), self.weights)
            item, slopes = self.outcome.log_odds(scores, output)
            means.append(weights @ item)
            functions, directions = self.functionals(codes, of)
            weighted = slopes.T * weights
            along.append(weighted @ directions)
            across.append(weighted @ np.broadcast_to(functions, (len(weights), functions.shape[1])))
        fractions = self.shares[column, : len(means)]
        fractions = fractions / fractions.sum()
        heights, directions, functions = (np.array(item) for item in (means, along, across))
        functions -= np.tensordot(fractions, functions, axes=1)
        directions -= np.tensordot(fractions, directions, axes=1)
        squares = [
            error.squares(functions[:, k], directions[:, k]) for k, error in enumerate(errors)
        ]
        return heights - fractions @ heights, np.sqrt(np.sum(squares, axis=0))

    def permutation_importances(
        self, level: float, of: Aim = "truth"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return permutation importances for F on synthetic records (Breiman 2001, Section 10), with intervals.

        T is the root of half the mean square of d, the change of F when a column has another synthetic record's value:
        for independent columns, of the variance of F due to the column (Sobol' 1993). With errors e what is wanted
        (``of`` as in :meth:`score_deviations`) is that of d + e, whose quantiles are the ends. The lower end is that of
        T + d . e / |d| if smaller, as d may contain noise as well as lack it, and zero if e alone may be as large as d.
        For several classes F are all classes' log-odds.

        The prior has one scale for all columns' functions. The error of a column's effect grows with the effect, so
        that e is multiplied by the root of the mean square of d + e over the columns' mean, if larger.

        Returns:
            importances, shape (columns,), and intervals, shape (columns, 2).

        Raises:
            InputError: as there.
        """
        z = deviations_of(level)
        squares, cross, alone = self._changes(self.errors_of(of), of)
        totals = squares + alone.mean(axis=1)
        stretch = np.sqrt(totals / max(float(totals.mean()), 1e-300)).clip(1, MOST_STRETCH)
        stretch = IMPORTANCE_ERROR * stretch[:, None]
        cross, alone = stretch * cross, stretch**2 * alone
        importances, ends = np.sqrt(squares), np.zeros((len(squares), 2))
        for column, total in enumerate(importances):
            whole = np.sqrt(np.maximum(squares[column] + 2 * cross[column] + alone[column], 0))
            low, high = np.quantile(whole, [(1 - level) / 2, (1 + level) / 2])
            ends[column, 1] = high
            if total > np.sqrt(np.quantile(alone[column], (1 + level) / 2)):
                linear = total - z * float(np.std(cross[column])) / total
                ends[column, 0] = max(0.0, min(low, linear))
        return importances, ends

    def _changes(
        self, errors: Sequence[EstimationError], of: Aim
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return half the mean of d . d, shape (columns,), and by draw of d . e and e . e, shape (columns, draws)."""
        rng = np.random.default_rng(0)
        count = max(SHAPE_RECORDS, IMPORTANCE_RECORDS // len(self.start))
        codes, weights, _ = self.source.draw(self.basis, count, rng)
        p = weights / weights.sum()
        root = np.sqrt(p / (2 * len(self.start)))[:, None]
        trees = self.others if of == "truth" else self.further
        forms, tables = (self.basis, replace(self.basis, trees=trees)), self._drawn(errors)
        sums = sum(form.matrix(codes) @ item for form, item in zip(forms, tables, strict=True))
        before = self._against(sums)
        squares, cross, alone = np.zeros(len(codes)), *np.zeros((2, len(codes), ERROR_DRAWS))
        for column in range(len(codes)):
            permuted = codes.copy()
            permuted[column] = codes[column, rng.choice(len(p), len(p), p=p)]
            step = sum(
                form.by_column(permuted, column, item) - form.by_column(codes, column, item)
                for form, item in zip(forms, tables, strict=True)
            )
            pairs = zip(before, self._against(sums + step), strict=True)
            part, moved = (np.concatenate(root * (item - other)) for item, other in pairs)
            squares[column] = (part**2).sum()
            cross[column], alone[column] = part[:, 0] @ moved, (moved**2).sum(axis=0)
        return squares, cross, alone

    def _drawn(self, errors: Sequence[EstimationError]) -> list[np.ndarray]:
        """Return weights of both kinds of functions, whose sums are scores and draws of their errors.

        Returns:
            two arrays, float32, shape (functions, outputs x (1 + draws)).
        """
        rng, projection = np.random.default_rng(1), self.source.projection
        part, others = [], []
        for weights, error in zip(self.weights.T, errors, strict=True):
            first, second = error.drawn(ERROR_DRAWS, rng)
            along, further = np.split(second, [projection.shape[1]])
            part.append(np.column_stack([weights, projection @ along]))
            others.append(np.insert(-further if len(further) else first, 0, 0.0, axis=1))
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
