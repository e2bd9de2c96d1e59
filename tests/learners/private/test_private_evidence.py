"""What released sums say of the prior, by naive twins; noisy shares; main effects beside later sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal, norm

from privfed import Column
from privfed.learners.private.basis import Basis
from privfed.learners.private.grid import BinEdges
from privfed.learners.private.main_effects import MainEffects
from privfed.learners.private.marginals import ColumnEstimate, Marginals, Shares
from privfed.learners.private.posterior import (
    SCALE_FACTORS,
    MarginalLikelihood,
    NoisyMoments,
    Prior,
    Subspace,
    WeightPosterior,
)
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.target_link import Outcome


def evidence(scales: tuple[float, float], seed: int, size: int = 40) -> MarginalLikelihood:
    """Sums drawn from two groups of functions of known scales, and noise of deviation 1."""
    rng = np.random.default_rng(seed)
    moved = [np.diag(np.repeat([1.0, 0.0], size)), np.diag(np.repeat([0.0, 1.0], size))]
    deviations = np.sqrt(np.repeat(np.square(scales), size) + 1)
    return MarginalLikelihood([rng.normal(0, deviations)], [moved], [np.eye(2 * size)])


def test_likelihood_is_the_gaussian_density() -> None:
    """Differences of logarithms, by scipy's own density."""
    found = evidence((2.0, 0.5), 0, 5)
    told = []
    for scales in ([1.0, 1.0], [3.0, 0.2]):
        covariance = np.diag(np.repeat(np.square(scales), 5) + 1)
        told.append(multivariate_normal.logpdf(found.values[0], cov=covariance))
    own = [found.likelihood(np.array(scales)) for scales in ([1.0, 1.0], [3.0, 0.2])]
    assert own[0] - own[1] == pytest.approx(told[0] - told[1], rel=1e-6)


def test_half_of_two_evidences_is_their_mean() -> None:
    """Of the logarithms; and of one and itself, that one."""
    one, other = evidence((3.0, 0.05), 1), evidence((0.05, 3.0), 2)
    scales = np.array([0.4, 1.2])
    both = (one.likelihood(scales) + other.likelihood(scales)) / 2
    assert one.halved(other).likelihood(scales) == pytest.approx(both)
    assert one.halved(one).likelihood(scales) == pytest.approx(one.likelihood(scales))


def test_each_group_gets_its_own_scale() -> None:
    """One group speaks, the other is silent; and the other way round."""
    for scales, louder in (((3.0, 0.05), 0), ((0.05, 3.0), 1)):
        found = evidence(scales, 1).likeliest(np.array([0.7, 0.7]), 1.0)
        assert found[louder] == pytest.approx(3.0, rel=0.35)
        assert found[1 - louder] < 0.4


def test_the_likeliest_scales_are_no_worse_than_any_common_one() -> None:
    """By posterior density, which at equal scales is the likelihood and a constant."""
    found = evidence((0.5, 0.5), 2)
    best = found.likeliest(np.array([0.7, 0.7]), 1.0)
    ends = [found.likelihood(np.full(2, alike)) for alike in SETTINGS.common_scales]
    assert found.likelihood(best) > min(ends)


def test_squared_scales_are_means_over_what_the_sums_leave_open() -> None:
    """Many sums tell one scale, and that a kind is absent; few sums leave all open, by the density of each."""
    many = evidence((2.0, 0.0), 3, 200)
    scales = np.array([2.0, 0.5])
    found = many.mean_squares(scales, 1.0) / scales**2
    assert found[0] == pytest.approx(1, rel=0.15) and found[1] < 0.15
    few, scales = evidence((0.5, 0.5), 5, 2), np.array([0.6, 0.7])
    for group, found in enumerate(few.mean_squares(scales, 0.8)):
        own = [scales * np.where(np.arange(2) == group, one, 1.0) for one in SCALE_FACTORS]
        mean, deviation = SETTINGS.log_scale_mean, SETTINGS.log_scale_std
        heights = [norm.pdf(np.log(one[group] / 0.8), mean, deviation) for one in own[1:]]
        present = (1 - SETTINGS.absent) * np.array(heights) / sum(heights)
        chances = np.array([SETTINGS.absent, *present]) * np.exp(
            [few.likelihood(one) for one in own]
        )
        wanted = chances @ [one[group] ** 2 for one in own] / chances.sum()
        assert found == pytest.approx(wanted, rel=1e-5)


def test_trees_of_more_levels_share_their_factor() -> None:
    """Of five groups the last two are moved together, the first three alone."""
    rng, moved = np.random.default_rng(1), np.eye(10)
    groups = [np.diag(np.repeat(np.eye(5)[k], 2)) for k in range(5)]
    found = MarginalLikelihood([rng.normal(0, 2, 10)], [groups], [moved])
    scales = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    factors = found.mean_squares(scales, 1.0) / scales**2
    assert factors[3] == pytest.approx(factors[4])
    assert len(set(np.round(factors, 6))) == 4


def posterior(functions: np.ndarray, scale: float = 1.0, free: float = 0.1) -> WeightPosterior:
    """Over made-up records whose leading directions are their functions themselves."""
    size = functions.shape[1]
    axes = np.eye(size)
    prior = Prior(np.array([np.eye(size)]), np.array([scale]), np.full(size, 0.1), free)
    leading = Subspace(axes, functions @ axes, functions.astype(np.float32))
    even, outcome = np.ones(len(functions)), Outcome("number")
    return WeightPosterior(
        leading, even, outcome, np.zeros(1), np.zeros(1), float(len(even)), prior
    )


def test_weights_are_the_posterior_mean_of_a_linear_model() -> None:
    """Sums of all records without noise of sampling: the textbook's Bayesian regression on them."""
    rng = np.random.default_rng(3)
    own = posterior(rng.normal(size=(300, 4)), scale=0.8)
    moments = own.leading.features.T @ own.leading.features
    sums = NoisyMoments(rng.normal(0, 50, (4, 1)), np.array([9.0, 9.0, 4.0, 1.0]))
    told = sums.along(np.eye(4))
    found = own.weights(told, own.at(np.zeros((4, 1))), 1.0)
    noise = np.linalg.inv(moments + np.diag(sums.variance))
    covariance = np.linalg.inv(np.linalg.inv(own.prior.covariance) + moments @ noise @ moments)
    wanted = covariance @ moments @ noise @ sums.values
    assert found == pytest.approx(wanted, rel=1e-5)


def test_where_sums_are_all_noise_small_priors_are_likelier() -> None:
    """And where they speak, the prior stays."""
    rng = np.random.default_rng(4)
    functions = rng.normal(size=(200, 30))
    own = posterior(functions)
    moments = functions.T @ functions
    silent = NoisyMoments(rng.normal(0, 100, (30, 1)), np.full(30, 1e4)).along(np.eye(30))
    loud = NoisyMoments(moments @ rng.normal(0, 1, (30, 1)), np.full(30, 1.0)).along(np.eye(30))
    mean = {}
    for name, told in (("silent", silent), ("loud", loud)):
        chances = own.smaller(own.evidence(told, own.at(np.zeros((30, 1))), 1.0))
        assert sum(chance for chance, _ in chances) == pytest.approx(1)
        mean[name] = sum(chance * one.prior.scales[0] for chance, one in chances)
    assert mean["silent"] < 0.75
    assert mean["loud"] > 0.95


def of_classes(seed: int, scale: float, noise: float) -> MarginalLikelihood:
    """Three classes' sums over 3,000 records, whose scores are drawn by a prior of that scale."""
    rng = np.random.default_rng(seed)
    functions, free = rng.normal(0, 0.3, (3000, 20)), 1e-3
    own = replace(
        posterior(functions, free=free),
        outcome=Outcome("classes", 3),
        intercept=np.zeros(3),
        means=np.full(3, 1 / 3),
    )
    chances = softmax(functions @ rng.normal(0, scale, (20, 3)), axis=1)
    drawn = (chances.cumsum(axis=1) < rng.uniform(size=(3000, 1))).sum(axis=1).clip(0, 2)
    sums = functions.T @ (np.eye(3)[drawn] - 1 / 3) + rng.normal(0, noise, (20, 3))
    told = NoisyMoments(sums, np.full(20, noise**2)).along(np.eye(20))
    return own.evidence(told, own.at(np.zeros((20, 3))), 1.0)


@pytest.mark.parametrize("noise", [0.1, 10.0])
def test_several_classes_sums_tell_the_scale_that_their_scores_were_drawn_with(
    noise: float,
) -> None:
    """With little noise and with much: of three independent scores only two differences show."""
    runs = [of_classes(seed, 0.15, noise) for seed in range(100)]
    tried = np.linspace(0.1, 0.2, 41)
    found = [sum(own.likelihood(np.array([scale])) for own in runs) for scale in tried]
    assert tried[int(np.argmax(found))] == pytest.approx(0.15, rel=0.1)


def test_what_all_classes_sums_have_in_common_says_nothing() -> None:
    """It is noise: the classes' residuals of a record add up to zero."""
    own = of_classes(0, 0.3, 5.0)
    assert np.sum(own.values, axis=0) == pytest.approx(0, abs=1e-9)
    assert own.share == pytest.approx(2 / 3)
    assert own.halved(own).likelihood(np.array([0.2])) == pytest.approx(
        own.likelihood(np.array([0.2]))
    )


# --- shares of classes --------------------------------------------------------------------------


def test_clear_counts_are_told_as_they_are() -> None:
    """Hardly any noise: the share, up to half a record of each class."""
    told = Shares.from_counts(np.array([980.0, 20.0]), 1.0, 1000.0, 1.0)
    assert told.means == pytest.approx([980.5 / 1001, 20.5 / 1001], abs=2e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_drowned_counts_say_little(classes: int) -> None:
    """Noise ten times the records: nearly equal shares, however the counts fell; and wide."""
    counts = np.zeros(classes)
    counts[0] = 60.0
    told = Shares.from_counts(counts, 200.0**2, 20.0, 30.0**2)
    assert told.means.sum() == pytest.approx(1)
    assert np.abs(told.means - 1 / classes).max() < 0.1
    assert told.spread > 2


def test_less_noise_brings_the_share_nearer_to_the_counts() -> None:
    """From even shares to a quarter, step by step."""
    found = [
        Shares.from_counts(np.array([75.0, 25.0]), noise**2, 100.0, 1.0)
        for noise in (200.0, 40.0, 2.0)
    ]
    means, spreads = [own.means[1] for own in found], [own.spread for own in found]
    assert means[0] > means[1] > means[2] == pytest.approx(0.25, abs=0.01)
    assert spreads[0] > spreads[1] > spreads[2]


@pytest.mark.parametrize("share", [0.2227, 0.3, 0.5, 0.77])
def test_certain_shares_have_a_spread_too(share: float) -> None:
    """Whatever the noise, from none to much: never the root of what rounding made negative."""
    records = 24_000.0
    counts = records * np.array([1 - share, share])
    told = [
        Shares.from_counts(counts, 2.0**power, records, 1.0) for power in np.arange(-10, 22, 0.05)
    ]
    spreads = np.array([own.spread for own in told])
    assert np.isfinite(spreads).all()
    assert (spreads >= 0).all()
    assert spreads[-1] > 0.02 > spreads[0]
    assert told[0].means[1] == pytest.approx(share, abs=0.01)


# --- main effects -------------------------------------------------------------------------------


def main_effects(
    noise: float, slope: float = 0.5, share: float = 0.1
) -> tuple[MainEffects, Marginals]:
    """Of two ordered columns of four bins; the first one's sums rise."""
    column = Column("a", "number", 0, 4)
    cuts, counts = np.array([1.0, 2.0, 3.0]), np.full(4, 250.0)
    own = ColumnEstimate(column, cuts, counts)
    marginals = Marginals((own, own), own, 1000.0, 300.0)
    values = np.tile(np.array([-0.75, -0.25, 0.25, 0.75]), (2, 1))
    bins = np.tile(np.arange(4, dtype=np.uint8), (2, 1))
    grid = BinEdges((tuple(cuts), tuple(cuts)))
    basis = Basis(grid, values, bins, np.full(2, np.sqrt(0.2)), np.full(2, np.sqrt(0.3)), ())
    rising = slope * 250 * values[0]
    lines = np.array([slope * 250 * float(values[0] @ values[0]), 0.0])
    unscaled = np.concatenate([lines, rising, np.zeros(4)])
    sums = (unscaled * basis.multipliers)[:, None]
    return MainEffects.from_sums(basis, sums, noise, share), marginals


def test_a_column_that_explains_more_has_more_energy() -> None:
    """And where noise could make all of it, none has any."""
    clear, marginals = main_effects(1.0)
    first, second = clear.mean_squares(marginals, 0.25)
    assert first > 10 * max(second, 1e-9)
    drowned, marginals = main_effects(500.0)
    assert drowned.mean_squares(marginals, 0.25) == pytest.approx([0, 0])


def test_a_line_is_told_better_by_its_own_sum() -> None:
    """The same noise: a trend that bins alone would lose is found."""
    told, marginals = main_effects(20.0, slope=0.25)
    alone = NoisyMoments(told.noisy.values.copy(), told.noisy.variance.copy())
    alone.variance[:2] = np.inf
    blind = MainEffects(told.basis, alone, told.share)
    assert told.mean_squares(marginals, 0.25)[0] > blind.mean_squares(marginals, 0.25)[0]


def test_main_effects_join_later_sums_in_their_units() -> None:
    """Values and noise in another basis' scales and lengths; its trees were not asked about."""
    told, _ = main_effects(1.0)
    heavy = Basis(
        told.basis.grid, told.basis.values, told.basis.bins,
        told.basis.linear / 2, told.basis.binned / 2, (),
    )  # fmt: skip
    scale_factors = told.scale_factors(heavy)
    assert scale_factors == pytest.approx(np.sqrt(1 + told.share / 0.6 * 4))
    found = told.sums(heavy, scale_factors)
    scales = heavy.multipliers * scale_factors
    assert found.values == pytest.approx(told.noisy.values * scales[:, None])
    assert found.variance == pytest.approx((scales / told.basis.multipliers) ** 2)
