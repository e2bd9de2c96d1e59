"""Training of a private model: marginals, correlations, a basis, then a few noisy gradients."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.learners.private import synthetic_records
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.calibration import PlattScaling, with_means
from privfed.learners.private.grid import one_bin_each
from privfed.learners.private.histogram_refinement import look
from privfed.learners.private.main_effects import MainEffects
from privfed.learners.private.marginals import Shares, padded
from privfed.learners.private.model import PrivateModel
from privfed.learners.private.posterior import (
    EstimationError,
    NoisyMoments,
    Prior,
    Subspace,
    WeightPosterior,
    covariance,
    estimation_error,
)
from privfed.learners.private.queries import (
    BasisLeafCounts,
    CalibrationSums,
    Correlations,
    Gradient,
)
from privfed.learners.private.rounds import GradientRounds
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.synthetic_records import SyntheticSource
from privfed.learners.private.target_link import Outcome, ResidualBounds
from privfed.learners.private.weight_updates import WeightUpdates


def learn(
    federation: Disclosure, outcome: Outcome, rng: np.random.Generator, *, linear: bool = True
) -> PrivateModel:
    """Learn from private releases only; ``rng`` is the server's, and a number's limits are set from its mass.

    Raises:
        NobodyAnswered: no client answered the histograms.
    """
    return _Training(federation, outcome, rng, linear).run()


@dataclass(eq=False)
class _Training:
    """One run."""

    federation: Disclosure
    outcome: Outcome
    rng: np.random.Generator
    linear: bool

    def run(self) -> PrivateModel:
        """Send all queries in order; if the budget ends early, so does learning."""
        self._ask_histograms()
        col_weights = self._main_effects()
        codes = self._synthesize()
        basis = self._basis(col_weights)
        scale_factors = np.ones(basis.size) if self.main is None else self.main.scale_factors(basis)
        sample_weight, leading = self._reweight(basis, codes, scale_factors)
        posterior = WeightPosterior(
            leading,
            sample_weight * basis.cells(codes).shortening,
            self.outcome,
            self.intercept,
            self.means,
            self.marginals.records,
            self._prior(basis, leading, scale_factors),
        )
        if self.calibrated:
            self.purse.paid(SETTINGS.score_fraction)
        steps = self._rounds(basis, posterior, scale_factors)
        leads, rounds = steps.weights, steps.taken
        weights = scale_factors[:, None] * (leading.axes @ leads)
        posterior_cov = None
        errors: tuple[EstimationError, ...] = ()
        others = further = replace(basis, trees=())
        if steps.last is not None:
            rng = np.random.default_rng(0)  # the model's own draws stay the same
            others, further = (
                replace(basis, trees=self._forest(col_weights, rng)) for _ in range(2)
            )
            outputs = range(self.outcome.classes)
            posterior_cov = np.array([covariance(*steps.last, output=k) for k in outputs])
            errors = self._errors(steps, others, codes, scale_factors)
        if rounds:
            factor = self._calibration(basis, weights, leading.features @ leads, sample_weight)
            weights = factor * weights
            posterior_cov = None if posterior_cov is None else factor**2 * posterior_cov
            errors = tuple(k.calibrated(factor) for k in errors)
        means, stds = _moments(basis, codes, sample_weight)
        return PrivateModel(
            self.federation.schema,
            self.outcome,
            basis,
            weights,
            self.intercept,
            means=means,
            deviations=stds,
            shares=self.marginals.sharpened().shares(),
            ranked=self.params.ranked,
            limits=self._limits(),
            rounds=rounds,
            records=self.marginals.records,
            source=self.source,
            covariance=posterior_cov,
            errors=errors,
            others=others.trees,
            further=further.trees,
        )

    def _ask_histograms(self) -> None:
        number = self.outcome.kind == "number"
        result = look(self.federation, linear=self.linear, number=number)
        self.marginals, self.params, self.purse = result.marginals, result.params, result.purse
        self.noise, self.present = result.unit, result.present
        self.uncertain = result.classes is not None and result.classes.uncertain
        self.calibrated = self.params.calibrated and self.outcome.kind != "number"
        self._centre(result.noise, result.classes)

    def _centre(self, noise: float, rates: Shares | None) -> None:
        """Set the outcome's limits (without tails that may be noise), means and intercept."""
        counted = self.marginals.target
        tail = float(np.clip(2 * noise, SETTINGS.target_tail, SETTINGS.max_target_tail))
        if self.outcome.kind == "number":
            excess = noise - SETTINGS.counted_noise
            target = counted.within_support(
                self.marginals.records, SETTINGS.support_rate * excess, tail
            )
            if excess > 0:  # for synthetic records, too
                self.marginals = replace(self.marginals, target=target)
            low, high = target.limits(tail)
            cells = target.cells
            if high - low > 2.0**-30 * (cells[-1] - cells[0]):
                self.outcome = replace(self.outcome, lower=low, upper=high)
            middles = self.outcome.targets((cells[:-1] + cells[1:]) / 2)[:, 0]
            self.means = np.array([float(target.shares @ middles)])
            distance = np.abs(middles - self.means[0])
            self.variance = float(target.shares @ distance**2) + 1e-4
            self.reach = _residual_clip(target.shares, distance / math.sqrt(self.variance))
            shift = target.shares - counted.shares
            var = _mean_var(target.shares, shift, self.outcome.targets(cells)[:, 0], noise)
            self.free = math.sqrt(min(self.variance, var))
        else:
            if rates is None:  # a number from 0 to 1
                mean = float(counted.shares @ (counted.edges[:-1] + counted.edges[1:])) / 2
                rates = Shares(np.clip([1 - mean, mean], 0.03, 0.97), SETTINGS.max_level_std)
            self.means = rates.means[1:] if self.outcome.classes == 1 else rates.means
            self.free = float(np.clip(rates.spread, SETTINGS.min_level_std, SETTINGS.max_level_std))
            self.variance = float((self.means * (1 - self.means)).mean())
        self.intercept = self.outcome.start(self.means)

    def _main_effects(self) -> np.ndarray:
        """Return each column's weight, summing to one, from a first round of main effects."""
        self.main: MainEffects | None = None
        even, fraction = self._equal_weights(), self.params.first
        if not fraction:
            return even
        linear = SETTINGS.main_linear if self.params.linear else 0.0
        scales = self._scales(even, linear, 1 - linear)
        basis = Basis(self.marginals.grid, self._values(), self._bins(), *scales, ())
        zeros = np.zeros((basis.size, self.outcome.classes))
        window = self._window(None, self.variance)
        sums = self._ask(basis, zeros, window, self.purse.part(fraction))
        if sums is None:
            return even
        noise = math.sqrt(float(sums.variance[0]))
        self.main = MainEffects.from_sums(basis, sums.values, noise, fraction)
        mean_squares = np.sqrt(self.main.mean_squares(self.marginals, self.variance))
        mean_squares[even == 0] = 0.0
        if mean_squares.sum() <= 0:
            return even
        fraction = SETTINGS.even_weight
        return np.asarray(fraction * even + (1 - fraction) * mean_squares / mean_squares.sum())

    def _equal_weights(self) -> np.ndarray:
        """Return equal weights of the columns that vary; functions of constant ones would only add noise."""
        varies = self.marginals.sharpened().shares().max(axis=1) < SETTINGS.one_value
        if not varies.any():
            varies[:] = True
        return np.asarray(varies / varies.sum())

    def _scales(
        self, col_weights: np.ndarray, linear: float, binned: float
    ) -> tuple[np.ndarray, np.ndarray]:
        ordered = np.array([f.column.kind != "category" for f in self.marginals.features])
        return (
            self._stretch() * np.sqrt(np.where(ordered, linear, 0.0) * col_weights),
            np.sqrt(np.where(ordered, binned, linear + binned) * col_weights),
        )

    def _stretch(self) -> np.ndarray:
        """Return factors that give linear terms the mean square of a constant indicator, times a stretch."""
        if not self.params.stretched:
            return np.ones(len(self.marginals.features))
        squares = (self.marginals.shares() * self._values() ** 2).sum(axis=1)
        return np.asarray(SETTINGS.stretch / np.sqrt(np.maximum(squares, SETTINGS.min_mean_square)))

    def _synthesize(self) -> np.ndarray:
        likeliest = self.marginals.sharpened()
        fractions, ranks = likeliest.shares(), likeliest.ranks()
        p = len(fractions)
        latent = np.eye(p)
        if p > 1 and self.params.correlated:
            query = Correlations(self.marginals.grid, ranks, p / SETTINGS.rank_clip)
            with suppress(NobodyAnswered):
                answer = self.federation.ask(query).only
                self.purse.paid(SETTINGS.correlation_fraction)
                records = self.marginals.records * self.present(answer)
                products = np.zeros((p, p))
                products[np.triu_indices(p, 1)] = answer.total("products") / records
                variances = np.maximum((fractions * ranks**2).sum(axis=1), 1e-3)
                noise = answer.deviation("products") / records
                latent = synthetic_records.copula(products + products.T, variances, noise)
        target = self.marginals.target
        self.source = SyntheticSource(
            latent, fractions, np.zeros((0, 0)), None, 0.0, target.edges, target.shares
        )
        return synthetic_records.draw(latent, fractions, self.params.synthetic_records, self.rng)

    def _basis(self, col_weights: np.ndarray) -> Basis:
        return Basis(
            self.marginals.grid,
            self._values(),
            self._bins(),
            *self._scales(col_weights, self.params.linear, self.params.binned),
            self._forest(col_weights, self.rng),
        )

    def _limits(self) -> np.ndarray:
        """Return the intervals of linear terms, shape (columns, 2)."""
        limits = np.empty((len(self.marginals.features), 2))
        for j, feature in enumerate(self.marginals.features):
            low, high = feature.quantiles(np.array([SETTINGS.tail, 1 - SETTINGS.tail]))
            ends = feature.edges[[0, -1]]
            limits[j] = (low, high) if high - low > 2.0**-18 * (ends[1] - ends[0]) else ends
        return limits

    def _values(self) -> np.ndarray:
        """Return linear terms of the codes: mid-ranks, or midpoints of bins between the limits."""
        if self.params.ranked:
            return self.marginals.ranks()
        rows = []
        for feature, (low, high) in zip(self.marginals.features, self._limits(), strict=True):
            edges = feature.edges
            middles = (edges[:-1] + edges[1:]) / 2
            if feature.column.kind != "number":
                middles = np.concatenate([[feature.column.bounds[0]], feature.cuts])
            rows.append(np.clip(2 * (middles - low) / (high - low) - 1, -1, 1))
        return padded(rows)

    def _bins(self) -> np.ndarray:
        """Return the basis' bins: neighbouring codes of about equal mass, or a bin per value."""
        rows, edges = [], np.linspace(0, 1, self.params.bins + 1)
        if self.params.halved_ends:
            edges = np.concatenate([[0, edges[1] / 2], edges[1:-1], [1 - edges[1] / 2, 1]])
        for f in self.marginals.features:
            middles = (f.cdf[:-1] + f.cdf[1:]) / 2
            coarse = np.searchsorted(edges[1:-1], middles, side="right")
            whole = len(f.counts) <= self.params.bins or one_bin_each(f.column)
            rows.append(
                np.arange(len(f.counts)) if whole else np.unique(coarse, return_inverse=True)[1]
            )
        return padded(rows).astype(np.uint8)

    def _forest(self, col_weights: np.ndarray, rng: np.random.Generator) -> tuple[Trees, ...]:
        return tuple(self._trees(col_weights, rng, *setting) for setting in self.params.trees)

    def _trees(
        self, weights: np.ndarray, rng: np.random.Generator, count: int, depth: int, fraction: float
    ) -> Trees:
        n_columns = len(weights)
        features = np.empty((count, depth), np.int64)
        for path in features:
            distinct = min(depth, int(np.count_nonzero(weights)))
            path[:distinct] = rng.choice(n_columns, distinct, replace=False, p=weights)
            path[distinct:] = rng.choice(n_columns, depth - distinct, p=weights)
        ranks = rng.uniform(*SETTINGS.cut_ranks, features.shape)
        cuts = np.empty(features.shape, np.uint8)
        for index in np.ndindex(*features.shape):
            column = self.marginals.features[features[index]]
            middles = (column.cdf[:-1] + column.cdf[1:]) / 2
            cut = int(np.searchsorted(middles, ranks[index]))
            cuts[index] = np.clip(cut, 1, max(1, len(column.cuts)))
        return Trees(features, cuts, math.sqrt(fraction / count))

    def _reweight(
        self, basis: Basis, codes: np.ndarray, scale_factors: np.ndarray
    ) -> tuple[np.ndarray, Subspace]:
        """Return weights of the synthetic records that match released leaf counts, and the subspace."""
        matrix = basis.matrix(codes) * scale_factors.astype(np.float32)
        lines = np.flatnonzero(basis.linear)
        leading = Subspace.from_matrix(matrix, self.params.directions, self.rng, lines)
        projection = scale_factors[:, None] * leading.axes
        self.source = replace(self.source, projection=projection)
        even = np.ones(codes.shape[1])
        if not self.params.masses:
            return even, leading
        try:
            answer = self.federation.ask(BasisLeafCounts(basis)).only
        except NobodyAnswered:
            return even, leading
        self.purse.paid(SETTINGS.leaf_count_fraction)
        records = self.marginals.records * self.present(answer)
        leaves = slice(int(basis.starts[basis.columns]), None)
        scales = np.repeat(basis.scales, basis.widths)[leaves.start - basis.columns :]
        means = matrix.mean(axis=0).astype(float)
        means[leaves] = answer.total("counts") / records * scales
        noise = answer.deviation("counts") / records * float(scales.max())
        target = leading.axes.T @ means
        self.source = replace(self.source, wanted=target, noise=noise)
        return synthetic_records.weighted(leading.features, target, noise), leading

    def _window(self, predictions: np.ndarray | None, variance: float) -> ResidualBounds:
        """Return bounds of residuals, from the synthetic records' predictions so far."""
        if self.outcome.kind == "number":
            clip = max(self.reach * math.sqrt(variance), 0.05)
            limit = 0.5 if predictions is None else clip
            return ResidualBounds(np.array([-0.5]), np.array([0.5]), min(0.5, limit))
        if predictions is None:
            return ResidualBounds(self.means, self.means, 1.0)
        tail = SETTINGS.prediction_quantile
        low, high = np.quantile(predictions, [tail, 1 - tail], axis=0)
        return ResidualBounds(np.clip(low, 0, 1), np.clip(high, 0, 1), 1.0)

    def _prior(self, basis: Basis, leading: Subspace, scale_factors: np.ndarray) -> Prior:
        axes = [leading.axes[part] for part in basis.groups]
        return Prior(
            np.array([part.T @ part for part in axes]),
            np.full(len(axes), SETTINGS.initial_scale * self._unit()),
            leading.axes.T @ (basis.one / scale_factors),
            self.free,
        )

    def _unit(self) -> float:
        if self.outcome.kind == "number":
            return self.params.spread * math.sqrt(self.variance)
        return self.params.prior

    def _rounds(
        self, basis: Basis, posterior: WeightPosterior, scale_factors: np.ndarray
    ) -> WeightUpdates:
        """Return the subspace's weights after noisy gradients, each taken at the weights so far."""
        number, axes = self.outcome.kind == "number", posterior.leading.axes
        sampling = self.variance if number else 1.0
        rounds = GradientRounds()
        if self.main is not None:
            zeros = np.zeros((axes.shape[1], self.outcome.classes))
            rounds = rounds.joined(self.main.sums(basis, scale_factors), zeros)
        steps = WeightUpdates.begun(posterior, rounds, sampling, self._unit())
        for n_left in range(self.params.rounds, 0, -1):
            predictions = posterior.predictions(steps.weights)
            window = self._window(predictions if steps.taken else None, sampling)
            w, spend = scale_factors[:, None] * (axes @ steps.weights), self.purse.rest(n_left)
            sums = self._ask(basis, w, window, spend)
            if sums is None:
                break
            sums = sums.rescaled(scale_factors)
            clipped = np.clip(predictions, window.low, window.high)
            sums = replace(sums, values=sums.values + posterior.expected(clipped))
            steps = steps.further(sums, sampling)
            if number:
                explained = float(np.var(posterior.leading.features @ steps.weights))
                sampling = max(self.variance - 0.9 * explained, 0.02 * self.variance)
        return steps

    def _errors(
        self, steps: WeightUpdates, others: Basis, codes: np.ndarray, scale_factors: np.ndarray
    ) -> tuple[EstimationError, ...]:
        """Return each output's errors at the last step, for a truth of other trees and uncertain scales."""
        assert steps.last is not None and steps.evidence is not None
        squares = steps.evidence.mean_squares(steps.posterior.prior.scales, steps.unit)
        prior_variances = np.repeat(squares, [group.stop - group.start for group in others.groups])
        functions, variances = others.matrix(codes), prior_variances * scale_factors**2
        return tuple(
            estimation_error(*steps.last, functions, variances, output=k)
            for k in range(self.outcome.classes)
        )

    def _calibration(
        self, basis: Basis, weights: np.ndarray, added: np.ndarray, sample_weight: np.ndarray
    ) -> float:
        """Calibrate classes: shift the intercept, and return the factor of the weights."""
        if not self.calibrated:
            if self.uncertain:
                self.intercept = with_means(
                    self.means, self.outcome, self.intercept, added, sample_weight
                )
            return 1.0
        scaling = PlattScaling.from_scores(self.outcome, self.intercept, added, sample_weight)
        if scaling is None:
            return 1.0
        predictions = self.outcome.predictions(self.intercept + added)
        # synthetic records do not model the clipped tails
        window = replace(
            self._window(predictions, 1.0),
            low=predictions.min(axis=0),
            high=predictions.max(axis=0),
        )
        query = CalibrationSums(basis, self.outcome, window, weights, self.intercept, scaling.cuts)
        try:
            answer = self.federation.ask(query).only
        except NobodyAnswered:
            return 1.0
        present = self.present(answer)
        factor, shift = scaling.corrected(
            answer.total("sums") / present,
            answer.deviation("sums") / present,
            self.marginals.records,
        )
        self.intercept = self.intercept + shift
        return factor

    def _ask(
        self, basis: Basis, weights: np.ndarray, window: ResidualBounds, spend: Fraction | None
    ) -> NoisyMoments | None:
        query = Gradient(basis, self.outcome, window, weights, self.intercept)
        try:
            answer = self.federation.ask(query, spend=spend).only
        except NobodyAnswered:
            return None
        present = self.present(answer)
        noise = answer.deviation("sums") / present
        return NoisyMoments(answer.total("sums") / present, np.full(basis.size, noise**2))


def _residual_clip(fractions: np.ndarray, distance: np.ndarray) -> float:
    """Return the smallest clip of residuals, in their std, that cuts off little of the target's variance.

    Noise is proportional to the clip, but few extreme values may have most of the variance.
    """
    clips = np.linspace(*SETTINGS.residual_clips, 13)
    beyond = np.maximum(distance - clips[:, None], 0) ** 2 @ fractions
    return float(clips[min(int((beyond > SETTINGS.clipped_variance).sum()), len(clips) - 1)])


def _mean_var(fractions: np.ndarray, shift: np.ndarray, edges: np.ndarray, noise: float) -> float:
    """Return the variance of a histogram's mean due to its uncertainty.

    Fractions sum to one, so that independent noise of each changes the mean by the bins' distances to it; so do the
    deliberately moved fractions; and positions within a bin are unknown.
    """
    middles = (edges[:-1] + edges[1:]) / 2
    distance = middles - fractions @ middles
    within = fractions @ np.diff(edges) ** 2 / 12
    return float(noise**2 * (distance @ distance) + (shift @ distance) ** 2 + within)


def _moments(basis: Basis, codes: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and std of each unscaled function over synthetic records."""
    indices, weights = basis.cells(codes).index, mass / mass.sum()
    means = np.bincount(indices.ravel(), np.tile(weights, len(indices)), minlength=basis.size)
    stds = np.sqrt(np.maximum(means * (1 - means), 0))
    values = np.take_along_axis(basis.values, codes.astype(np.intp), axis=1)
    means[: basis.columns] = values @ weights
    variances = values**2 @ weights - means[: basis.columns] ** 2
    stds[: basis.columns] = np.sqrt(np.maximum(variances, 0))
    return means, stds
