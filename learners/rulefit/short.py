"""A private model as a short rule list (docs/rulefit.md): post-processing of releases, at no cost.

Terms are added by exact gain of weighted least squares on synthetic records' scores F, and swapped, until the residual
variance is small relative to F's posterior variance and to F's own; then the engine's own loss refits the coefficients.
Of several classes, F is a class's score minus the mean of all classes'; candidates are those of all classes, and one
softmax loss refits all coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from privfed.learners.private import PrivateModel
from privfed.learners.rulefit.alternatives import ALIKE, Alternatives, Forms, Term, TermExchanges
from privfed.learners.rulefit.boosting import Boosting, grow_rules
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.refits import Errors, Refit, SoftmaxRefit
from privfed.learners.rulefit.rules import Condition, Rule, Terms
from privfed.learners.rulefit.selection import Selection


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
    ridge: float = 1e-4  #: of coefficients, for the mean loss
    #: Factor of noise and sampling in errors of coefficients, for selection among many candidates (winner's curse).
    selection: float = 1.45
    error_records: int = 1_000  #: synthetic records for the error beyond the terms'
    rounding: float = 0.01  #: fraction of the records whose side a rounded threshold may change


SETTINGS = ShortSettings()


def shortened(
    fitted: PrivateModel,
    max_terms: int,
    rng: np.random.Generator,
    *,
    stable: bool = False,
    monotonic: Sequence[int] = (),
) -> list[RuleEnsemble]:
    """Return a short form of each of a model's scores, with at most ``max_terms`` rules and lines.

    ``stable``: only steps. For a feature whose ``monotonic`` is 1 (-1), every term and so their sum is nondecreasing
    (nonincreasing).
    """
    return _Shortener(fitted, rng, stable, monotonic).run(max_terms)


class _Shortener:
    """One model's synthetic records, and the candidates over them."""

    def __init__(
        self,
        fitted: PrivateModel,
        rng: np.random.Generator,
        stable: bool,
        monotonic: Sequence[int] = (),
    ) -> None:
        self.monotonic = np.array(monotonic or [0] * len(fitted.schema.features))
        self.fitted, self.rng, self.stable = fitted, rng, stable
        basis = fitted.basis
        self.codes, self.mass, self.directions = fitted.source.draw(basis, SETTINGS.records, rng)
        self.sizes = basis.grid.sizes
        added = [
            basis.scores(basis.cells(self.codes[:, rows]), fitted.weights)
            for rows in basis.blocks(SETTINGS.records)
        ]
        total = fitted.start + np.concatenate(added)
        self.outputs = total.shape[1]
        self._rounded: dict[tuple[int, int], float] = {}  # of thresholds by column and code
        self.logistic = fitted.outcome.kind != "number"
        self.scores = total - total.mean(axis=1, keepdims=True) if self.outputs > 1 else total
        self.predictions = fitted.outcome.predictions(total)
        #: of the fit to F: mass times sqrt(P (1 - P)), of several classes the root of their sum; for a number the mass
        self.weights = self.mass
        if self.logistic:
            self.weights = self._by_variance(self.predictions * (1 - self.predictions))

    def _by_variance(self, variances: np.ndarray) -> np.ndarray:
        """Return mass times the root of summed variances, shape (records, outputs), with mean 1."""
        weights = self.mass * np.sqrt(variances.sum(axis=1))
        return np.asarray(weights / max(float(weights.mean()), 1e-300))

    def _weights_of(self, output: int) -> np.ndarray:
        """Return the weights of one class alone, or of the only output."""
        p = self.predictions[:, [output]]
        return self._by_variance(p * (1 - p)) if self.outputs > 1 else self.weights

    def _covariance(self, output: int) -> np.ndarray:
        """Return the covariance of the weights of an output's F; those of several scores are taken to be independent."""
        assert self.fitted.covariance is not None
        slopes = np.eye(self.outputs)[output] - (1 / self.outputs if self.outputs > 1 else 0)
        return np.asarray(np.tensordot(slopes**2, self.fitted.covariance, 1))

    def run(self, max_terms: int) -> list[RuleEnsemble]:
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
        found = self._select(columns, signs, max_terms)
        # lines in their order, after rules
        orders = [sorted(order, key=lambda k: max(k, len(boxes) - 1)) for order, _ in found]
        while True:  # terms with a wrong sign are removed
            refit = self._refit([self._design(columns, order) for order in orders])
            pairs = list(zip(orders, refit.weights, strict=True))
            if all((signs[order] * weights[1:] >= 0).all() for order, weights in pairs):
                break
            orders = [
                [k for k, weight in zip(order, weights[1:], strict=True) if signs[k] * weight >= 0]
                for order, weights in pairs
            ]
        errors: list[Errors] | None = None
        if self.fitted.errors:
            known = self.fitted, self.codes, self.directions, SETTINGS.selection
            errors = refit.errors(*known)
        residuals, synthetic = self._residuals(refit, errors), self._synthetic()
        models = []
        for output, (order, (_, comparison)) in enumerate(zip(orders, found, strict=True)):
            rules = [k for k in order if k < len(boxes)]
            linear = tuple(int(lines[k - len(boxes)]) for k in order if k >= len(boxes))
            cutoffs, kept = self._compact(boxes[rules], limits)
            model = self._model(refit, Terms(cutoffs, kept, linear), errors, output)
            model = replace(model, residual_variance=residuals[output], synthetic=synthetic)
            if comparison is not None:
                alike = self._alternatives(comparison.among(order), boxes, lines, model.rules)
                model = replace(model, alternatives=alike)
            models.append(model)
        return models

    def _model(
        self, refit: Refit | SoftmaxRefit, terms: Terms, errors: list[Errors] | None, output: int
    ) -> RuleEnsemble:
        unit = self._unit
        design = refit.designs[output]
        means = self.mass @ design / self.mass.sum()
        variances = self.mass @ (design - means) ** 2 / self.mass.sum()
        model = RuleEnsemble(
            self.fitted.schema,
            terms,
            unit * refit.weights[output],
            means[: len(terms.boxes)],
            np.sqrt(variances),
        )
        if errors is None:
            return model
        covariance, error, refit_error = (unit**2 * matrix for matrix in errors[output])
        return replace(model, covariance=covariance, error=error, refit_error=refit_error)

    @property
    def _unit(self) -> int:
        return 1 if self.logistic else 2  # scaled to [-1/2, 1/2] there, to [-1, 1] here

    def _design(self, columns: Sequence[np.ndarray], order: Sequence[int]) -> np.ndarray:
        design = np.empty((len(self.mass), len(order)), order="F")
        for j, k in enumerate(order):
            design[:, j] = columns[k]
        return design

    def _refit(self, designs: Sequence[np.ndarray]) -> Refit | SoftmaxRefit:
        if self.outputs > 1:
            return SoftmaxRefit(designs, self.predictions, self.mass, SETTINGS.ridge)
        return Refit(designs, self.scores[:, 0], self.mass, SETTINGS.ridge, self.logistic)

    def _residuals(self, refit: Refit | SoftmaxRefit, errors: list[Errors] | None) -> list[float]:
        """Return mean square differences of scores to the engine's, plus its mean square errors beyond the coefficients'.

        Of several classes, for a class's log-odds against the rest, to first order in the scores' errors, which are
        taken to be independent; a class's own coefficients stand for those of all.
        """
        pairs = list(zip(refit.designs, refit.weights, strict=True))
        told = np.column_stack([weights[0] + design @ weights[1:] for design, weights in pairs])
        first = slice(SETTINGS.error_records)
        squares = np.zeros((1, self.outputs))
        if errors is not None:
            others = self.fitted.of_others(self.codes[:, first])
            found = [own.squares(others, self.directions[first]) for own in self.fitted.errors]
            squares = np.column_stack(found)
        residuals = []
        for output, (design, _) in enumerate(pairs):
            own, slopes = self.fitted.outcome.log_odds(self.scores, output)
            misfit = (own - self.fitted.outcome.log_odds(told, output)[0]) ** 2
            weights = self._weights_of(output)
            residual = float(np.average(misfit, weights=weights))
            if errors is not None:
                terms = np.column_stack([np.ones(len(design[first])), design[first]])
                beyond = -np.einsum("ij,ij->i", terms @ errors[output][0], terms)
                beyond += (slopes[first] ** 2 * squares).sum(axis=1)
                residual += float(np.average(beyond, weights=weights[first]))
            residuals.append(self._unit**2 * max(0.0, residual))
        return residuals

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
        """Return nodes of trees boosted on each output's F, with as many trees for all together as for one."""
        p = self.mass / self.mass.sum()
        drawn = self.rng.choice(len(p), len(p), p=p)
        codes = self.codes.T[drawn]
        min_leaf = max(1, int(SETTINGS.min_support * SETTINGS.tree_records * len(p)))
        rate, fraction = SETTINGS.learning_rate, SETTINGS.tree_records
        groups = []
        for scores in self.scores.T:
            target = scores[drawn] - scores[drawn].mean()
            for trees, leaves in SETTINGS.trees:
                count = max(1, round(trees / self.outputs))
                boosting = Boosting(count, leaves, rate, fraction, min_leaf, logistic=False)
                boxes = grow_rules(codes, target, self.sizes, boosting, self.rng)[0]
                groups.append(boxes.astype(np.int64))
        return groups

    def _select(
        self, columns: Sequence[np.ndarray], signs: np.ndarray, limit: int
    ) -> list[tuple[list[int], TermExchanges | None]]:
        """Return by output indices of the chosen terms, and how to compare others with them; None if errors are unknown."""
        weights = self.weights / self.weights.sum()
        root = np.sqrt(weights)
        weighted = np.empty((len(columns), len(weights)), np.float32)
        for own, column in zip(weighted, columns, strict=True):  # the whole in 64 bits takes 200 MB
            own[:] = (column - weights @ column) * root
        gram = (weighted @ weighted.T).astype(float)
        known = self.fitted.covariance is not None
        directions = (self.directions * root[:, None]).astype(np.float32)
        along = (weighted @ directions).astype(float) if known else None
        found: list[tuple[list[int], TermExchanges | None]] = []
        for output, scores in enumerate(self.scores.T):
            target = scores - weights @ scores
            moment = np.asarray(weighted @ (target * root), float)
            square = float(weights @ target**2)
            selection = Selection(gram, moment, square, signs)
            order = selection.run(limit, self._tolerance(output, square))
            comparison = None
            if along is not None:
                errors = along @ self._covariance(output)
                comparison = TermExchanges(
                    gram,
                    moment,
                    signs,
                    selection.usable,
                    tuple(order),
                    (errors * along).sum(axis=1),
                    errors[order] @ along.T,
                )
            found.append((order, comparison))
        return found

    def _tolerance(self, output: int, square: float) -> float:
        """Return the lack of fit at which no term is added, for the weighted mean square of F about its mean."""
        variance = 0.0
        if self.fitted.covariance is not None:
            covariance = self._covariance(output)
            along = np.einsum("ij,ij->i", self.directions @ covariance, self.directions)
            variance = float(np.average(np.maximum(along, 0), weights=self.weights))
        negligible = SETTINGS.negligible[0 if self.logistic else 1]
        return min(SETTINGS.enough * variance, max(SETTINGS.left * square, negligible))

    def _alternatives(
        self, comparison: TermExchanges, boxes: np.ndarray, lines: np.ndarray, rules: Sequence[Rule]
    ) -> tuple[Alternatives, ...]:
        """Return what fits alike in the place of each term; ``rules`` are the chosen ones, as rounded."""
        chosen, schema = comparison.chosen, self.fitted.schema
        names = [str(name) for name in schema.names]
        numbers = [self._numbers(boxes, chosen, rules, j) for j in range(len(names))]

        def term(index: int) -> Term:
            if index >= len(boxes):
                return names[int(lines[index - len(boxes)])]
            box = boxes[index]
            used = np.flatnonzero((box[:, 0] > 0) | (box[:, 1] < self.sizes))
            ends = {names[j]: numbers[j](*box[j].tolist()) for j in used}
            return Rule.of(*(Condition(name, *limits) for name, limits in ends.items()))

        forms = Forms(schema)
        formed = cache(lambda index: forms.of(term(index)))
        terms = [forms.of(own) for own in (*rules, *map(term, chosen[len(rules) :]))]
        alternatives, known = [], {own.number for own in terms}
        for position, own in enumerate(terms):
            probabilities = comparison.probabilities(position)
            equivalent = np.flatnonzero(probabilities >= ALIKE)
            best = map(formed, equivalent[np.argsort(-probabilities[equivalent])].tolist())
            others = [other for other in best if other.number not in known]
            compared = int(np.isfinite(probabilities).sum())
            alternatives.append(Alternatives.of_forms(own, others, compared))
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
            if (column, code) not in self._rounded:
                alone = self._round(column, np.array([code]), np.zeros((0, 2)))
                self._rounded[column, code] = alone[0][0]
            return self._rounded[column, code]

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
