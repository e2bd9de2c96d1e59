"""A private model as a short rule list (docs/rulefit.md): post-processing of releases, at no cost.

Terms are added by exact gain of weighted least squares on synthetic records' scores F, and swapped, until the residual
variance is small relative to F's posterior variance and to F's own; then the engine's own loss refits the coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from privfed.learners.private import PrivateModel
from privfed.learners.rulefit.boosting import Boosting, grow_rules
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.rules import Terms


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
    return _Shortening(fitted, rng, stable, output, monotonic).run(max_terms)


class _Shortening:
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
        every = fitted.start + np.concatenate(added)
        self.scores, self.slopes = fitted.outcome.log_odds(every, output)
        self.logistic = fitted.outcome.kind != "number"
        self.directions, spread = directions, np.zeros(len(directions))
        if fitted.covariance is not None:
            for slope, own in zip(self.slopes.T, fitted.covariance, strict=True):
                along = np.einsum("ij,ij->i", directions @ own, directions)
                spread += slope**2 * np.maximum(along, 0)
        self.variance = float(np.average(spread, weights=self.weights))
        self.rates = self._rates(fitted.outcome.predictions(every), output)

    @property
    def weights(self) -> np.ndarray:
        """Weights of the fit to F: mass times sqrt(P (1 - P)), for a number the mass; mean 1."""
        if not self.logistic:
            return self.mass
        chances = expit(self.scores)
        heavy = self.mass * np.sqrt(chances * (1 - chances))
        return np.asarray(heavy / max(float(heavy.mean()), 1e-300))

    def run(self, max_terms: int) -> RuleEnsemble:
        limits = self._limits()
        boxes, held = self._boxes()
        numeric = [column.kind != "category" for column in self.fitted.schema.features]
        every = self._lines(limits)
        varied = self.mass @ (every - self.mass @ every / self.mass.sum()) ** 2 / self.mass.sum()
        least = 4 * SETTINGS.min_support * (1 - SETTINGS.min_support)  # of a step from -1 to 1
        lines = np.flatnonzero(
            self.fitted.basis.linear.any() & np.array(numeric) & (varied >= least)
        )
        columns = [*held.T, *every[:, lines].T]
        signs = np.concatenate([self._signs(boxes), self.monotonic[lines]])
        order = self._chosen(columns, signs, max_terms)
        order.sort(key=lambda own: max(own, len(boxes) - 1))  # lines in their order, after rules
        while True:  # terms with a wrong sign are removed
            design = np.empty((len(self.mass), len(order)), order="F")
            for place, own in enumerate(order):
                design[:, place] = columns[own]
            weights, influence = self._refitted(design)
            right = signs[order] * weights[1:] >= 0
            if right.all():
                break
            order = [own for own, kept in zip(order, right, strict=True) if kept]
        rules = [own for own in order if own < len(boxes)]
        linear = [int(lines[own - len(boxes)]) for own in order if own >= len(boxes)]
        unit = 1 if self.logistic else 2  # scaled to [-1/2, 1/2] there, to [-1, 1] here
        missed = (self.scores - weights[0] - design @ weights[1:]) ** 2
        residual = float(np.average(missed, weights=self.weights))
        errors: tuple[np.ndarray | None, ...] = (None, None, None)
        if self.fitted.errors:
            covariance, error, refit = self._errors(influence)
            residual += self._unexplained(design, covariance)
            errors = tuple(unit**2 * own for own in (covariance, error, refit))
        means = self.mass @ design / self.mass.sum()
        spread = self.mass @ (design - means) ** 2 / self.mass.sum()
        cutoffs, kept = self._compact(boxes[rules], limits)
        return RuleEnsemble(
            self.fitted.schema,
            Terms(cutoffs, kept, tuple(linear)),
            unit * weights,
            means[: len(rules)],
            np.sqrt(spread),
            covariance=errors[0],
            error=errors[1],
            refit_error=errors[2],
            residual_variance=unit**2 * max(0.0, residual),
            synthetic=self._synthetic(),
        )

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
        """Return second moments of the coefficients' errors, from :meth:`_refitted`'s influence R diag(rates).

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
        for slope, rate, own in zip(self.slopes.T, self.rates.T, self.fitted.errors, strict=True):
            along, across = (influence * slope) @ self.directions, (influence * slope) @ others
            every, noisy = own.covariances(across, along)
            whole, noise = whole + every, noise + noisy
            cross = cross + own.sampling * along @ own.gain @ (self.directions.T * rate) @ loads.T
        sampling = self.fitted.errors[0].sampling / records
        refit = noise - cross - cross.T + sampling * influence @ loads.T
        more = SETTINGS.selection**2
        return whole, whole + (more - 1) * noise, whole - noise + more * refit

    def _unexplained(self, design: np.ndarray, covariance: np.ndarray) -> float:
        """Return the mean square error of F beyond the coefficients', over the first synthetic records."""
        first = slice(SETTINGS.error_records)
        every = np.column_stack([np.ones(len(design[first])), design[first]])
        missed = -np.einsum("ij,ij->i", every @ covariance, every)
        others = self.fitted.of_others(self.codes[:, first])
        for slope, own in zip(self.slopes[first].T, self.fitted.errors, strict=True):
            missed += slope**2 * own.squares(others, self.directions[first])
        return float(np.average(missed, weights=self.weights[first]))

    def _signs(self, boxes: np.ndarray) -> np.ndarray:
        """Return each rule's required sign: 1 or -1, 0 for any, NaN if no sign is allowed."""
        rises = np.where(boxes[:, :, 0] > 0, self.monotonic, 0)
        falls = np.where(boxes[:, :, 1] < self.sizes, -self.monotonic, 0)
        both = np.concatenate([rises, falls], axis=1)
        signs: np.ndarray = np.sign(both.sum(axis=1)).astype(float)
        signs[(both > 0).any(axis=1) & (both < 0).any(axis=1)] = np.nan
        return signs

    def _limits(self) -> np.ndarray:
        """Return limits of lines, rounded within a fiftieth of their distance; shape (columns, 2)."""
        rounded = self.fitted.limits.copy()
        bounds = [column.bounds for column in self.fitted.schema.features]
        for own, (low, high) in zip(rounded, bounds, strict=True):
            reach = (own[1] - own[0]) / 50
            if reach > 0:
                own[:] = [
                    roundest(max(end - reach, low), min(end + reach, high), end) for end in own
                ]
        return rounded

    def _lines(self, limits: np.ndarray) -> np.ndarray:
        """Return lines from -1 to 1 between the limits, at codes' midpoints; shape (records, columns)."""
        found = np.zeros((self.codes.shape[1], len(limits)))
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
                found[:, j] = (2 * (middles - low) / (high - low) - 1)[self.codes[j]]
        return found

    def _synthetic(self) -> np.ndarray:
        """Return some encoded synthetic records, shape (records, columns), with numbers at midpoints of bins."""
        drawn = self.rng.spawn(1)[0].choice(
            len(self.mass), SETTINGS.kept, p=self.mass / self.mass.sum()
        )
        found = np.empty((SETTINGS.kept, len(self.codes)))
        for j, column in enumerate(self.fitted.schema.features):
            edges = np.array([column.bounds[0], *self.fitted.basis.grid.cuts[j], column.bounds[1]])
            values = (edges[:-1] + edges[1:]) / 2 if column.kind == "number" else np.ceil(edges)
            found[:, j] = values[self.codes[j, drawn]]
        return found

    def _boxes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return distinct boxes of sufficient support, and records' membership: shape (records, boxes), bool."""
        boxes = [self._steps()]
        if not self.stable:
            boxes += self._grown()
        every = np.unique(np.concatenate(boxes), axis=0)
        conditions = ((every[:, :, 0] > 0) | (every[:, :, 1] < self.sizes)).sum(axis=1)
        kept = (conditions > 0) & (conditions <= SETTINGS.max_conditions)
        every, conditions = every[kept], conditions[kept]
        held = np.ones((len(every), self.codes.shape[1]), bool)
        for j, own in enumerate(self.codes):
            used = np.flatnonzero((every[:, j, 0] > 0) | (every[:, j, 1] < self.sizes[j]))
            low, high = every[used, j, 0, None], every[used, j, 1, None]
            held[used] &= (own >= low) & (own < high)
        parts = np.split(held, range(256, len(held), 256))  # each is in 64 bits for a moment
        support = np.concatenate([part @ self.mass for part in parts]) / self.mass.sum()
        least = SETTINGS.min_support
        kept = np.flatnonzero((support >= least) & (support <= 1 - least))
        # a rule and its complement are one term; the simpler box is kept
        kept = kept[np.argsort(conditions[kept], kind="stable")]
        packed = np.packbits(held[kept] ^ held[kept][:, :1], axis=1)
        _, first = np.unique(packed, axis=0, return_index=True)
        kept = kept[np.sort(first)]
        return every[kept].astype(np.uint8), held[kept].T

    def _steps(self) -> np.ndarray:
        """Return upper sides of thresholds at equal mass, and each single category."""
        whole = np.zeros((len(self.sizes), 2), np.int64)
        whole[:, 1] = self.sizes
        found = [np.zeros((0, *whole.shape), np.int64)]
        at = np.arange(1, SETTINGS.steps + 1) / (SETTINGS.steps + 1)
        for j, column in enumerate(self.fitted.schema.features):
            if column.kind == "category":
                spans = [(k, k + 1) for k in range(self.sizes[j])]
            else:
                reached = np.cumsum(self.fitted.shares[j, : self.sizes[j]])
                cuts = np.unique(np.searchsorted(reached, at) + 1)
                spans = [(int(k), self.sizes[j]) for k in cuts if 0 < k < self.sizes[j]]
            boxes = np.repeat(whole[None], len(spans), axis=0)
            boxes[:, j] = np.array(spans, np.int64).reshape(-1, 2)
            found.append(boxes)
        return np.concatenate(found)

    def _grown(self) -> list[np.ndarray]:
        chances = self.mass / self.mass.sum()
        drawn = self.rng.choice(len(chances), len(chances), p=chances)
        codes, target = self.codes.T[drawn], self.scores[drawn] - self.scores[drawn].mean()
        least = max(1, int(SETTINGS.min_support * SETTINGS.tree_records * len(chances)))
        rate, share = SETTINGS.learning_rate, SETTINGS.tree_records
        found = []
        for trees, leaves in SETTINGS.trees:
            boosting = Boosting(trees, leaves, rate, share, least, logistic=False)
            boxes = grow_rules(codes, target, self.sizes, boosting, self.rng)[0]
            found.append(boxes.astype(np.int64))
        return found

    def _chosen(self, columns: Sequence[np.ndarray], signs: np.ndarray, most: int) -> list[int]:
        weights = self.weights / self.weights.sum()
        root, target = np.sqrt(weights), self.scores - weights @ self.scores
        heavy = np.empty((len(weights), len(columns)), np.float32)
        for j, column in enumerate(columns):  # one by one: the whole in 64 bits takes 200 MB more
            heavy[:, j] = (column - weights @ column) * root
        gram = (heavy.T @ heavy).astype(float)
        moment = np.asarray(heavy.T @ (target * root), float)
        own = float(weights @ target**2)
        negligible = SETTINGS.negligible[0 if self.logistic else 1]
        enough = min(SETTINGS.enough * self.variance, max(SETTINGS.left * own, negligible))
        return _Selection(gram, moment, own, signs).run(most, enough)

    def _refitted(self, design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
        found = np.zeros(matrix.shape[1])
        for _ in range(50 if self.logistic else 1):
            told = matrix @ found
            told = expit(told) if self.logistic else told
            heavy = mass * (told * (1 - told) if self.logistic else 1.0)
            system = (matrix * heavy[:, None]).T @ matrix + np.diag(ridge)
            step = np.linalg.solve(system, matrix.T @ (mass * (labels - told)) - ridge * found)
            found = found + step * min(1.0, 5 / max(float(np.abs(step).max()), 1e-300))
            if np.abs(step).max() < 1e-9:
                break
        rates = mass * (labels * (1 - labels) if self.logistic else 1.0)
        return found, np.linalg.solve(system, (matrix * rates[:, None]).T)

    def _compact(self, boxes: np.ndarray, limits: np.ndarray) -> tuple[Cutoffs, np.ndarray]:
        cuts, found = [], np.zeros_like(boxes)
        for j, column in enumerate(self.fitted.schema.features):
            ends = boxes[:, j].astype(int)
            used = np.unique(ends[(ends > 0) & (ends < self.sizes[j])])
            if column.kind == "category":
                numbers = [float(self.fitted.basis.grid.cuts[j][code - 1]) for code in used]
                group = np.arange(len(used))
            else:
                numbers, group = self._rounded(j, used, ends)
            cuts.append(tuple(numbers))
            places = np.zeros(int(self.sizes[j]) + 1, np.uint8)
            places[used], places[-1] = 1 + group, len(numbers) + 1
            found[:, j] = places[ends]
        lower, upper = limits.T
        scale = 0.2 * np.maximum(
            upper - lower, 1e-5 * (self.fitted.schema.upper - self.fitted.schema.lower)
        )
        return Cutoffs(tuple(cuts), lower, upper, scale), found

    def _rounded(
        self, column: int, codes: np.ndarray, ends: np.ndarray
    ) -> tuple[list[float], np.ndarray]:
        """Return round thresholds for these codes, and the index of each code's.

        Each moves past at most a hundredth of the records, and past no other; thresholds that are so close are merged,
        unless a rule is between.
        """
        own, reach = self.fitted.schema.features[column], SETTINGS.rounding
        edges = np.array([own.bounds[0], *self.fitted.basis.grid.cuts[column], own.bounds[1]])
        below = np.concatenate([[0.0], np.cumsum(self.fitted.shares[column][: len(edges) - 1])])
        groups: list[list[int]] = []
        for code in codes:
            near = groups and below[code] - below[groups[-1][0]] <= reach
            apart = near and (np.isin(ends[:, 0], groups[-1]) & (ends[:, 1] == code)).any()
            if near and not apart:
                groups[-1].append(code)
            else:
                groups.append([code])
        numbers = [float(edges[each[0]]) for each in groups]
        found: list[float] = []
        for each, number, next_ in zip(groups, numbers, (*numbers, edges[-1])[1:], strict=True):
            last = found[-1] if found else edges[0]
            low = _first(below, edges, below[each[-1]] - reach)
            high = -_first(-below[::-1], -edges[::-1], -below[each[0]] - reach)
            low, high = max(low, (last + number) / 2), min(high, (number + next_) / 2)
            if own.kind == "integer":
                low, number, high = math.ceil(low), float(math.ceil(number)), math.floor(high)
            found.append(roundest(low, high, number))
        return found, np.repeat(np.arange(len(groups)), [len(each) for each in groups])


def _first(rising: np.ndarray, values: np.ndarray, level: float) -> float:
    """Return the first value at which an increasing piecewise-linear curve is above a level."""
    at = int(np.searchsorted(rising, level, side="right"))
    if at in (0, len(rising)):
        return float(values[min(at, len(values) - 1)])
    share = (level - rising[at - 1]) / (rising[at] - rising[at - 1])
    return float(values[at - 1] + share * (values[at] - values[at - 1]))


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

    def run(self, most: int, enough: float) -> list[int]:
        chosen: list[int] = []
        for _ in range(2 * most):  # with required signs, a term may be removed again
            if len(chosen) >= most or not self.lack(chosen) > max(enough, 1e-9 * self.total):
                break
            best = self._best(chosen)
            if best is None:
                break
            chosen = self._signed([*chosen, best])
            if len(chosen) % SETTINGS.swap_every == 0:
                chosen = self._signed(self._swapped(chosen))
        return self._signed(self._swapped(chosen))

    def _signed(self, chosen: list[int]) -> list[int]:
        """Remove columns whose coefficients have the wrong sign, until none has."""
        while chosen and self.signs[chosen].any():
            root = cho_factor(self.gram[np.ix_(chosen, chosen)] + 1e-9 * np.eye(len(chosen)))
            right = self.signs[chosen] * cho_solve(root, self.moment[chosen]) >= 0
            if right.all():
                break
            chosen = [own for own, kept in zip(chosen, right, strict=True) if kept]
        return chosen

    def lack(self, chosen: list[int]) -> float:
        """Return the weighted mean square residual of the target given the chosen columns."""
        return self._left(chosen)[0]

    def _left(self, chosen: list[int]) -> tuple[float, np.ndarray]:
        """Return the lack of fit, and its decrease by each further column."""
        own, moment, rest = np.diag(self.gram).copy(), self.moment.copy(), self.total
        if chosen:
            cross = self.gram[chosen]
            root = cho_factor(cross[:, chosen] + 1e-9 * np.eye(len(chosen)))
            solved = cho_solve(root, np.column_stack([cross, self.moment[chosen]]))
            own -= (cross * solved[:, :-1]).sum(axis=0)
            moment -= solved[:, -1] @ cross
            rest -= float(self.moment[chosen] @ solved[:, -1])
        fresh = self.usable & (own > 1e-4 * np.diag(self.gram)) & ~(self.signs * moment < 0)
        gains = np.where(fresh, moment**2 / np.where(fresh, own, 1.0), 0.0)
        return rest, gains

    def _best(self, chosen: list[int]) -> int | None:
        gains = self._left(chosen)[1]
        best = int(gains.argmax()) if len(gains) else 0
        return best if len(gains) and gains[best] > 0 else None

    def _swapped(self, chosen: list[int]) -> list[int]:
        """Replace columns one by one by those that most lower the lack of fit, until none does."""
        chosen, helped, now = list(chosen), bool(chosen), self.lack(chosen)
        while (
            helped and now > 1e-9 * self.total
        ):  # the residual of an exact fit is rounding error, of either sign
            helped = False
            for place in range(len(chosen)):
                others = chosen[:place] + chosen[place + 1 :]
                rest, gains = self._left(others)
                best = int(gains.argmax())
                if rest - gains[best] < now * (1 - SETTINGS.min_gain) and best not in others:
                    chosen[place], now, helped = best, rest - float(gains[best]), True
        return chosen
