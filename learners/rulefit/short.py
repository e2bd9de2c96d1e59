"""A private model as a short rule list (docs/rulefit.md): post-processing of releases, at no cost.

Terms are added by exact gain of weighted least squares on synthetic records' scores F, and swapped, until the residual
variance is small relative to F's posterior variance and to F's own; then the engine's own loss refits the coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from privfed.learners.private import PrivateModel
from privfed.learners.rulefit.alternatives import ALIKE, Alternatives, Term, TermExchanges
from privfed.learners.rulefit.boosting import Boosting, grow_rules
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.rules import Condition, Rule, Terms


@dataclass(frozen=True)
class ShortSettings:
    """Settings of short models, as measured in docs/rulefit.md."""

    records: int = 10_000  #: synthetic records
    kept: int = 256  #: of them, stored with the model for its score card
    #: boosted trees and their mean number of leaves, for candidates
    trees: tuple[tuple[int, float], ...] = ((60, 8.0), (100, 4.0))
    learning_rate: float = 0.2  #: of the boosting
    tree_records: float = 0.2  #: fraction of the synthetic records for each tree
    steps: int = 15  #: thresholds of a column, at equal mass
    max_conditions: int = 3  #: maximum columns of a rule
    min_support: float = 0.02  #: smallest support of a rule, and of its complement
    #: No term is added if the lack of fit is below this many posterior variances of F,
    enough: float = 0.2
    #: and below this fraction of F's own variance: differences within the noise still rank records,
    left: float = 0.02
    #: or below these squares: of .05 in log-odds, of a hundredth of the way between a number's limits.
    negligible: tuple[float, float] = (0.05**2, 0.01**2)
    swap_every: int = 5  #: number of terms after which all are swapped for better ones
    min_gain: float = 1e-4  #: gain of a swap, as a fraction of the lack of fit
    ridge: float = 1e-4  #: of coefficients, for the mean loss
    #: Factor of noise and sampling in errors of coefficients, for selection among many candidates (winner's curse).
    selection: float = 1.45
    error_records: int = 1_000  #: synthetic records for the error beyond the terms'
    rounding: float = 0.01  #: fraction of the records whose side a rounded threshold may change


SETTINGS = ShortSettings()
DRAWS = 128  #: of several outputs' errors, for :meth:`_Shortener._error_factors`


def shortened(
    fitted: PrivateModel,
    max_terms: int,
    rng: np.random.Generator,
    *,
    stable: bool = False,
    output: int = 0,
    monotonic: Sequence[int] = (),
) -> RuleEnsemble:
    """Return a short form of a model with at most ``max_terms`` rules and lines; ``stable``: only steps.

    For a feature whose ``monotonic`` is 1 (-1), every term and so their sum is nondecreasing (nonincreasing). For
    several classes, the model is of the log-odds of the class ``output`` against the rest.
    """
    return _Shortener(fitted, rng, stable, output, monotonic).run(max_terms)


class _Shortener:
    """One model's synthetic records, and the candidates over them."""

    def __init__(
        self,
        fitted: PrivateModel,
        rng: np.random.Generator,
        stable: bool,
        output: int = 0,
        monotonic: Sequence[int] = (),
    ) -> None:
        self.monotonic = np.array(monotonic or [0] * len(fitted.schema.features))
        self.fitted, self.rng, self.stable, self.output = fitted, rng, stable, output
        basis = fitted.basis
        self.codes, self.mass, directions = fitted.source.draw(basis, SETTINGS.records, rng)
        self.sizes = basis.grid.sizes
        added = [
            basis.scores(basis.cells(self.codes[:, rows]), fitted.weights)
            for rows in basis.blocks(SETTINGS.records)
        ]
        total = fitted.start + np.concatenate(added)
        self.scores, self.slopes = fitted.outcome.log_odds(total, output)
        self.logistic = fitted.outcome.kind != "number"
        self.directions, variances = directions, np.zeros(len(directions))
        if fitted.covariance is not None:
            for slope, covariance in zip(self.slopes.T, fitted.covariance, strict=True):
                along = np.einsum("ij,ij->i", directions @ covariance, directions)
                variances += slope**2 * np.maximum(along, 0)
        self.variance = float(np.average(variances, weights=self.weights))
        self.rates = self._rates(fitted.outcome.predictions(total), output)

    @property
    def weights(self) -> np.ndarray:
        """Weights of the fit to F: mass times sqrt(P (1 - P)), for a number the mass; mean 1."""
        if not self.logistic:
            return self.mass
        p = expit(self.scores)
        weights = self.mass * np.sqrt(p * (1 - p))
        return np.asarray(weights / max(float(weights.mean()), 1e-300))

    def run(self, max_terms: int) -> RuleEnsemble:
        limits = self._limits()
        boxes, members = self._boxes()
        numeric = [column.kind != "category" for column in self.fitted.schema.features]
        terms = self._lines(limits)
        varied = self.mass @ (terms - self.mass @ terms / self.mass.sum()) ** 2 / self.mass.sum()
        min_var = 4 * SETTINGS.min_support * (1 - SETTINGS.min_support)  # of a step from -1 to 1
        lines = np.flatnonzero(
            self.fitted.basis.linear.any() & np.array(numeric) & (varied >= min_var)
        )
        columns = [*members.T, *terms[:, lines].T]
        signs = np.concatenate([self._signs(boxes), self.monotonic[lines]])
        order, comparison = self._select(columns, signs, max_terms)
        order.sort(key=lambda k: max(k, len(boxes) - 1))  # lines in their order, after rules
        while True:  # terms with a wrong sign are removed
            design = np.empty((len(self.mass), len(order)), order="F")
            for j, k in enumerate(order):
                design[:, j] = columns[k]
            weights, influence = self._refit(design)
            right = signs[order] * weights[1:] >= 0
            if right.all():
                break
            order = [k for k, kept in zip(order, right, strict=True) if kept]
        rules = [k for k in order if k < len(boxes)]
        linear = [int(lines[k - len(boxes)]) for k in order if k >= len(boxes)]
        unit = 1 if self.logistic else 2  # scaled to [-1/2, 1/2] there, to [-1, 1] here
        misfit = (self.scores - weights[0] - design @ weights[1:]) ** 2
        residual = float(np.average(misfit, weights=self.weights))
        errors: tuple[np.ndarray | None, ...] = (None, None, None)
        if self.fitted.errors:
            covariance, error, refit = self._errors(influence)
            residual += self._unexplained(design, covariance)
            errors = tuple(unit**2 * matrix for matrix in (covariance, error, refit))
        means = self.mass @ design / self.mass.sum()
        variances = self.mass @ (design - means) ** 2 / self.mass.sum()
        cutoffs, kept = self._compact(boxes[rules], limits)
        model = RuleEnsemble(
            self.fitted.schema,
            Terms(cutoffs, kept, tuple(linear)),
            unit * weights,
            means[: len(rules)],
            np.sqrt(variances),
            covariance=errors[0],
            error=errors[1],
            refit_error=errors[2],
            residual_variance=unit**2 * max(0.0, residual),
            synthetic=self._synthetic(),
        )
        if comparison is None:
            return model
        found = self._alternatives(comparison.among(order), boxes, lines, model.rules)
        return replace(model, alternatives=found)

    def _rates(self, predictions: np.ndarray, output: int) -> np.ndarray:
        """Return covariances of an output's sampling with each output's, times the records' mass, shape (records, outputs).

        Residuals of classes k and l have the covariance P_k (1 if k = l, else 0) - P_k P_l; a number's, one.
        """
        mass = (self.mass / self.mass.sum())[:, None]
        if not self.logistic:
            return np.asarray(mass * np.ones_like(predictions))
        same = np.arange(predictions.shape[1]) == output
        return np.asarray(mass * predictions[:, [output]] * (same - predictions))

    def _errors(self, influence: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return second moments of the coefficients' errors, from :meth:`_refit`'s influence R diag(rates).

        Coefficients beta = R diag(rates) F change with F's errors (psi - b phi K A psi) . u - b phi K (e + v) of
        :class:`.EstimationError`. Those fitted to the records themselves, without noise, differ from the truth's by R f
        / N, with sampling f of the terms' own sums; cov(e, f) = s N phi' diag(rates) R'.

        Returns:
            against the truth; the same with noise and sampling times ``selection``; and this, against the terms fitted
            to the same records without noise.
        """
        records, rates = max(self.fitted.records, 1.0), self.rates[:, self.output]
        loads = influence / np.maximum(rates, 1e-300)  # R
        whole = noise = cross = np.zeros((len(influence), len(influence)))
        others = self.fitted.of_others(self.codes)
        for slope, rate, error in zip(self.slopes.T, self.rates.T, self.fitted.errors, strict=True):
            along, across = (influence * slope) @ self.directions, (influence * slope) @ others
            total, noisy = error.covariances(across, along)
            whole, noise = whole + total, noise + noisy
            cross = (
                cross + error.sampling * along @ error.gain @ (self.directions.T * rate) @ loads.T
            )
        sampling = self.fitted.errors[0].sampling / records
        refit = noise - cross - cross.T + sampling * influence @ loads.T
        more = SETTINGS.selection**2
        return whole, whole + (more - 1) * noise, whole - noise + more * refit

    def _unexplained(self, design: np.ndarray, covariance: np.ndarray) -> float:
        """Return the mean square error of F beyond the coefficients', over the first synthetic records."""
        first = slice(SETTINGS.error_records)
        terms = np.column_stack([np.ones(len(design[first])), design[first]])
        squares = -np.einsum("ij,ij->i", terms @ covariance, terms)
        others = self.fitted.of_others(self.codes[:, first])
        for slope, error in zip(self.slopes[first].T, self.fitted.errors, strict=True):
            squares += slope**2 * error.squares(others, self.directions[first])
        return float(np.average(squares, weights=self.weights[first]))

    def _signs(self, boxes: np.ndarray) -> np.ndarray:
        """Return each rule's required sign: 1 or -1, 0 for any, NaN if no sign is allowed."""
        rises = np.where(boxes[:, :, 0] > 0, self.monotonic, 0)
        falls = np.where(boxes[:, :, 1] < self.sizes, -self.monotonic, 0)
        both = np.concatenate([rises, falls], axis=1)
        signs: np.ndarray = np.sign(both.sum(axis=1)).astype(float)
        signs[(both > 0).any(axis=1) & (both < 0).any(axis=1)] = np.nan
        return signs

    def _limits(self) -> np.ndarray:
        """Return limits of lines, rounded to two integers about them, else by a fiftieth of their distance."""
        rounded = self.fitted.limits.copy()
        for ends, column in zip(rounded, self.fitted.schema.features, strict=True):
            low, high = column.bounds
            if column.kind == "integer" and np.ceil(ends[1]) - np.floor(ends[0]) == 1:
                ends[:] = np.floor(ends[0]), np.ceil(ends[1])
            margin = (ends[1] - ends[0]) / 50
            close = [(max(end - margin, low), min(end + margin, high), end) for end in ends]
            ends[:] = [roundest(*each) for each in close]
        return rounded

    def _lines(self, limits: np.ndarray) -> np.ndarray:
        """Return lines from -1 to 1 between the limits, at codes' midpoints; shape (records, columns)."""
        lines = np.zeros((self.codes.shape[1], len(limits)))
        grid = self.fitted.basis.grid
        for j, ((low, high), column) in enumerate(
            zip(limits, self.fitted.schema.features, strict=True)
        ):
            edges = np.concatenate([column.bounds[:1], grid.cuts[j], column.bounds[1:]])
            clipped = np.clip(edges, low, high)
            middles = (clipped[:-1] + clipped[1:]) / 2
            if column.kind != "number":
                middles = np.clip(edges[:-1], low, high)
            if high > low:
                lines[:, j] = (2 * (middles - low) / (high - low) - 1)[self.codes[j]]
        return lines

    def _synthetic(self) -> np.ndarray:
        """Return some encoded synthetic records, shape (records, columns), with numbers at midpoints of bins."""
        drawn = self.rng.spawn(1)[0].choice(
            len(self.mass), SETTINGS.kept, p=self.mass / self.mass.sum()
        )
        records = np.empty((SETTINGS.kept, len(self.codes)))
        for j, column in enumerate(self.fitted.schema.features):
            edges = np.array([column.bounds[0], *self.fitted.basis.grid.cuts[j], column.bounds[1]])
            values = (edges[:-1] + edges[1:]) / 2 if column.kind == "number" else np.ceil(edges)
            records[:, j] = values[self.codes[j, drawn]]
        return records

    def _boxes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return distinct boxes of sufficient support, and records' membership: shape (records, boxes), bool."""
        boxes = [self._steps()]
        if not self.stable:
            boxes += self._boosted()
        unique = np.unique(np.concatenate(boxes), axis=0)
        conditions = ((unique[:, :, 0] > 0) | (unique[:, :, 1] < self.sizes)).sum(axis=1)
        kept = (conditions > 0) & (conditions <= SETTINGS.max_conditions)
        unique, conditions = unique[kept], conditions[kept]
        members = np.ones((len(unique), self.codes.shape[1]), bool)
        for j, codes in enumerate(self.codes):
            used = np.flatnonzero((unique[:, j, 0] > 0) | (unique[:, j, 1] < self.sizes[j]))
            low, high = unique[used, j, 0, None], unique[used, j, 1, None]
            members[used] &= (codes >= low) & (codes < high)
        parts = np.split(members, range(256, len(members), 256))  # each is in 64 bits for a moment
        support = np.concatenate([part @ self.mass for part in parts]) / self.mass.sum()
        min_support = SETTINGS.min_support
        kept = np.flatnonzero((support >= min_support) & (support <= 1 - min_support))
        # a rule and its complement are one term; the simpler box is kept
        kept = kept[np.argsort(conditions[kept], kind="stable")]
        packed = np.packbits(members[kept] ^ members[kept][:, :1], axis=1)
        _, first = np.unique(packed, axis=0, return_index=True)
        kept = kept[np.sort(first)]
        return unique[kept].astype(np.uint8), members[kept].T

    def _steps(self) -> np.ndarray:
        """Return upper sides of thresholds at equal mass, and each single category."""
        whole = np.zeros((len(self.sizes), 2), np.int64)
        whole[:, 1] = self.sizes
        groups = [np.zeros((0, *whole.shape), np.int64)]
        levels = np.arange(1, SETTINGS.steps + 1) / (SETTINGS.steps + 1)
        for j, column in enumerate(self.fitted.schema.features):
            if column.kind == "category":
                spans = [(k, k + 1) for k in range(self.sizes[j])]
            else:
                cdf = np.cumsum(self.fitted.shares[j, : self.sizes[j]])
                cuts = np.unique(np.searchsorted(cdf, levels) + 1)
                spans = [(int(k), self.sizes[j]) for k in cuts if 0 < k < self.sizes[j]]
            boxes = np.repeat(whole[None], len(spans), axis=0)
            boxes[:, j] = np.array(spans, np.int64).reshape(-1, 2)
            groups.append(boxes)
        return np.concatenate(groups)

    def _boosted(self) -> list[np.ndarray]:
        p = self.mass / self.mass.sum()
        drawn = self.rng.choice(len(p), len(p), p=p)
        codes, target = self.codes.T[drawn], self.scores[drawn] - self.scores[drawn].mean()
        min_leaf = max(1, int(SETTINGS.min_support * SETTINGS.tree_records * len(p)))
        rate, fraction = SETTINGS.learning_rate, SETTINGS.tree_records
        groups = []
        for trees, leaves in SETTINGS.trees:
            boosting = Boosting(trees, leaves, rate, fraction, min_leaf, logistic=False)
            boxes = grow_rules(codes, target, self.sizes, boosting, self.rng)[0]
            groups.append(boxes.astype(np.int64))
        return groups

    def _select(
        self, columns: Sequence[np.ndarray], signs: np.ndarray, limit: int
    ) -> tuple[list[int], TermExchanges | None]:
        """Return indices of the chosen terms, and how to compare others with them; None if errors are unknown."""
        weights = self.weights / self.weights.sum()
        root, target = np.sqrt(weights), self.scores - weights @ self.scores
        weighted = np.empty((len(weights), len(columns)), np.float32)
        for j, column in enumerate(columns):  # one by one: the whole in 64 bits takes 200 MB more
            weighted[:, j] = (column - weights @ column) * root
        gram = (weighted.T @ weighted).astype(float)
        moment = np.asarray(weighted.T @ (target * root), float)
        square = float(weights @ target**2)
        negligible = SETTINGS.negligible[0 if self.logistic else 1]
        tolerance = min(SETTINGS.enough * self.variance, max(SETTINGS.left * square, negligible))
        selection = _Selection(gram, moment, square, signs)
        order = selection.run(limit, tolerance)
        if self.fitted.covariance is None:
            return order, None
        along = (weighted.T @ (self._error_factors() * root[:, None].astype(np.float32))).astype(
            float
        )
        variance, shared = (along**2).sum(axis=1), along[order] @ along.T
        return order, TermExchanges(
            gram, moment, signs, selection.usable, tuple(order), variance, shared
        )

    def _error_factors(self) -> np.ndarray:
        """Return E with E E' the covariance of records' errors of F, float32, shape (records, factors).

        For several outputs E holds draws of the errors, over the root of their number.
        """
        assert self.fitted.covariance is not None
        rng, several = np.random.default_rng(0), len(self.fitted.covariance) > 1
        factors = np.zeros(1, np.float32)
        for slope, spread in zip(self.slopes.T, self.fitted.covariance, strict=True):
            values, vectors = np.linalg.eigh(spread)
            root = vectors * np.sqrt(np.maximum(values, 0))
            if several:
                root = root @ rng.normal(size=(len(root), DRAWS)) / math.sqrt(DRAWS)
            along = self.directions.astype(np.float32) @ root.astype(np.float32)
            factors = factors + along * slope[:, None].astype(np.float32)
        return factors

    def _alternatives(
        self, comparison: TermExchanges, boxes: np.ndarray, lines: np.ndarray, rules: Sequence[Rule]
    ) -> tuple[Alternatives, ...]:
        """Return what fits alike in the place of each term; ``rules`` are the chosen ones, as rounded."""
        chosen, schema = comparison.chosen, self.fitted.schema
        names = [str(name) for name in schema.names]
        numbers = [self._numbers(boxes, chosen, rules, j) for j in range(len(names))]

        @cache
        def term(index: int) -> Term:
            if index >= len(boxes):
                return names[int(lines[index - len(boxes)])]
            box = boxes[index]
            used = np.flatnonzero((box[:, 0] > 0) | (box[:, 1] < self.sizes))
            ends = {names[j]: numbers[j](*box[j].tolist()) for j in used}
            return Rule.of(*(Condition(name, *limits) for name, limits in ends.items()))

        terms = [*rules, *map(term, chosen[len(rules) :])]
        alternatives, known = [], set(terms)
        for position, chosen_term in enumerate(terms):
            probabilities = comparison.probabilities(position)
            equivalent = np.flatnonzero(probabilities >= ALIKE)
            best = map(term, equivalent[np.argsort(-probabilities[equivalent])].tolist())
            others = [other for other in best if other not in known]
            alternatives.append(
                Alternatives.of(chosen_term, others, int(np.isfinite(probabilities).sum()), schema)
            )
        return tuple(alternatives)

    def _numbers(
        self, boxes: np.ndarray, chosen: Sequence[int], rules: Sequence[Rule], column: int
    ) -> Callable[[int, int], tuple[float | None, float | None]]:
        """Return the thresholds by codes: of the rules, if rounding might make them the same, else round numbers."""
        own, size = self.fitted.schema.features[column], int(self.sizes[column])
        edges = [float(cut) for cut in self.fitted.basis.grid.cuts[column]]
        below = np.concatenate([[0.0], np.cumsum(self.fitted.shares[column][:size])])
        known = {
            code: end
            for index, rule in zip(chosen, rules, strict=False)
            for c in rule.conditions
            if c.feature == own.name
            for code, end in zip(boxes[index, column].tolist(), (c.lower, c.upper), strict=True)
            if end is not None
        }

        @cache
        def number(code: int) -> float:
            near = min(known, key=lambda one: abs(below[one] - below[code]), default=code)
            if near in known and abs(below[near] - below[code]) <= SETTINGS.rounding:
                return known[near]
            return self._round(column, np.array([code]), np.zeros((0, 2)))[0][0]

        def ends(low: int, high: int) -> tuple[float | None, float | None]:
            rounded = own.kind != "category"
            lower, upper = (
                None if not 0 < code < size else number(code) if rounded else edges[code - 1]
                for code in (low, high)
            )
            if lower is not None and upper is not None and not lower < upper:
                return edges[low - 1], edges[high - 1]  # rounding left nothing between them
            return lower, upper

        return ends

    def _refit(self, design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients, intercept first, and their derivatives by each record's F.

        Newton's steps on the loss of soft labels P, with a ridge. The derivatives are (X' W X +
        ridge)^-1 X' diag(mass P (1 - P)).

        Returns:
            of shapes (1 + terms,) and (1 + terms, records).
        """
        matrix = np.column_stack([np.ones(len(design)), design])
        mass, ridge = self.mass / self.mass.sum(), np.full(matrix.shape[1], SETTINGS.ridge)
        ridge[0] = 1e-12
        labels = expit(self.scores) if self.logistic else self.scores
        weights = np.zeros(matrix.shape[1])
        for _ in range(50 if self.logistic else 1):
            fitted = matrix @ weights
            fitted = expit(fitted) if self.logistic else fitted
            curvature = mass * (fitted * (1 - fitted) if self.logistic else 1.0)
            system = (matrix * curvature[:, None]).T @ matrix + np.diag(ridge)
            step = np.linalg.solve(system, matrix.T @ (mass * (labels - fitted)) - ridge * weights)
            weights = weights + step * min(1.0, 5 / max(float(np.abs(step).max()), 1e-300))
            if np.abs(step).max() < 1e-9:
                break
        rates = mass * (labels * (1 - labels) if self.logistic else 1.0)
        return weights, np.linalg.solve(system, (matrix * rates[:, None]).T)

    def _compact(self, boxes: np.ndarray, limits: np.ndarray) -> tuple[Cutoffs, np.ndarray]:
        cuts, recoded = [], np.zeros_like(boxes)
        for j, column in enumerate(self.fitted.schema.features):
            ends = boxes[:, j].astype(int)
            used = np.unique(ends[(ends > 0) & (ends < self.sizes[j])])
            if column.kind == "category":
                numbers = [float(self.fitted.basis.grid.cuts[j][code - 1]) for code in used]
                group = np.arange(len(used))
            else:
                numbers, group = self._round(j, used, ends)
            cuts.append(tuple(numbers))
            new_codes = np.zeros(int(self.sizes[j]) + 1, np.uint8)
            new_codes[used], new_codes[-1] = 1 + group, len(numbers) + 1
            recoded[:, j] = new_codes[ends]
        lower, upper = limits.T
        scale = 0.2 * np.maximum(
            upper - lower, 1e-5 * (self.fitted.schema.upper - self.fitted.schema.lower)
        )
        return Cutoffs(tuple(cuts), lower, upper, scale), recoded

    def _round(
        self, column: int, codes: np.ndarray, ends: np.ndarray
    ) -> tuple[list[float], np.ndarray]:
        """Return round thresholds for these codes, and the index of each code's.

        Each moves past at most a hundredth of the records, and past no other; thresholds that are so close are merged,
        unless a rule is between.
        """
        col, tolerance = self.fitted.schema.features[column], SETTINGS.rounding
        edges = np.array([col.bounds[0], *self.fitted.basis.grid.cuts[column], col.bounds[1]])
        cdf = np.concatenate([[0.0], np.cumsum(self.fitted.shares[column][: len(edges) - 1])])
        groups: list[list[int]] = []
        for code in codes:
            near = groups and cdf[code] - cdf[groups[-1][0]] <= tolerance
            apart = near and (np.isin(ends[:, 0], groups[-1]) & (ends[:, 1] == code)).any()
            if near and not apart:
                groups[-1].append(code)
            else:
                groups.append([code])
        numbers = [float(edges[group[0]]) for group in groups]
        rounded: list[float] = []
        for group, number, next_ in zip(groups, numbers, (*numbers, edges[-1])[1:], strict=True):
            last = rounded[-1] if rounded else edges[0]
            low = _first(cdf, edges, cdf[group[-1]] - tolerance)
            high = -_first(-cdf[::-1], -edges[::-1], -cdf[group[0]] - tolerance)
            low, high = max(low, (last + number) / 2), min(high, (number + next_) / 2)
            if col.kind == "integer":
                low, number, high = math.ceil(low), float(math.ceil(number)), math.floor(high)
            rounded.append(roundest(low, high, number))
        return rounded, np.repeat(np.arange(len(groups)), [len(group) for group in groups])


def _first(rising: np.ndarray, values: np.ndarray, level: float) -> float:
    """Return the first value at which an increasing piecewise-linear curve is above a level."""
    index = int(np.searchsorted(rising, level, side="right"))
    if index in (0, len(rising)):
        return float(values[min(index, len(values) - 1)])
    fraction = (level - rising[index - 1]) / (rising[index] - rising[index - 1])
    return float(values[index - 1] + fraction * (values[index] - values[index - 1]))


def roundest(low: float, high: float, near: float) -> float:
    """Return the number in [low, high] with the fewest digits, nearest to ``near`` among those."""
    if not low < high:
        return near
    power = math.floor(math.log10(high - low)) + 1
    for exponent in range(
        max(power, math.ceil(math.log10(max(abs(low), abs(high), 1e-300)))), power - 3, -1
    ):
        for part in (1.0, 0.5):
            unit = part * 10.0**exponent
            first, last = math.ceil(low / unit), math.floor(high / unit)
            number = round(min(max(round(near / unit), first), last) * unit, 1 - exponent)
            if low <= number <= high:
                return number
    return near


class _Selection:
    """Selects columns for weighted least squares, by the Gram matrix of centred columns and required signs."""

    def __init__(
        self, gram: np.ndarray, moment: np.ndarray, total: float, signs: np.ndarray
    ) -> None:
        self.gram, self.moment, self.total, self.signs = gram, moment, total, signs
        self.usable = (np.diag(gram) > 1e-9) & ~np.isnan(signs)

    def run(self, limit: int, tolerance: float) -> list[int]:
        chosen: list[int] = []
        for _ in range(2 * limit):  # with required signs, a term may be removed again
            if len(chosen) >= limit or not self.lack(chosen) > max(tolerance, 1e-9 * self.total):
                break
            best = self._best(chosen)
            if best is None:
                break
            chosen = self._drop_wrong([*chosen, best])
            if len(chosen) % SETTINGS.swap_every == 0:
                chosen = self._drop_wrong(self._swap(chosen))
        return self._drop_wrong(self._swap(chosen))

    def _drop_wrong(self, chosen: list[int]) -> list[int]:
        """Remove columns whose coefficients have the wrong sign, until none has."""
        while chosen and self.signs[chosen].any():
            root = cho_factor(self.gram[np.ix_(chosen, chosen)] + 1e-9 * np.eye(len(chosen)))
            right = self.signs[chosen] * cho_solve(root, self.moment[chosen]) >= 0
            if right.all():
                break
            chosen = [column for column, kept in zip(chosen, right, strict=True) if kept]
        return chosen

    def lack(self, chosen: list[int]) -> float:
        """Return the weighted mean square residual of the target given the chosen columns."""
        return self._residual(chosen)[0]

    def _residual(self, chosen: list[int]) -> tuple[float, np.ndarray]:
        """Return the lack of fit, and its decrease by each further column."""
        var, moment, residual = np.diag(self.gram).copy(), self.moment.copy(), self.total
        if chosen:
            cross = self.gram[chosen]
            root = cho_factor(cross[:, chosen] + 1e-9 * np.eye(len(chosen)))
            solved = cho_solve(root, np.column_stack([cross, self.moment[chosen]]))
            var -= (cross * solved[:, :-1]).sum(axis=0)
            moment -= solved[:, -1] @ cross
            residual -= float(self.moment[chosen] @ solved[:, -1])
        eligible = self.usable & (var > 1e-4 * np.diag(self.gram)) & ~(self.signs * moment < 0)
        gains = np.where(eligible, moment**2 / np.where(eligible, var, 1.0), 0.0)
        return residual, gains

    def _best(self, chosen: list[int]) -> int | None:
        gains = self._residual(chosen)[1]
        best = int(gains.argmax()) if len(gains) else 0
        return best if len(gains) and gains[best] > 0 else None

    def _swap(self, chosen: list[int]) -> list[int]:
        """Replace columns one by one by those that most lower the lack of fit, until none does."""
        chosen, improved, lack = list(chosen), bool(chosen), self.lack(chosen)
        while (
            improved and lack > 1e-9 * self.total
        ):  # the residual of an exact fit is rounding error, of either sign
            improved = False
            for index in range(len(chosen)):
                others = chosen[:index] + chosen[index + 1 :]
                residual, gains = self._residual(others)
                best = int(gains.argmax())
                if residual - gains[best] < lack * (1 - SETTINGS.min_gain) and best not in others:
                    chosen[index], lack, improved = best, residual - float(gains[best]), True
        return chosen
