"""Settings of the private engine: public values; docs/tuning.md says which tables chose them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True)
class Settings:
    """Settings common to all private models; fractions of the budget are of rho (zCDP)."""

    # budget
    n_histograms: int = 3  #: rounds of histograms
    histogram_fraction: Fraction = Fraction(6, 100)  #: a round over all columns
    target_fraction: Fraction = Fraction(1, 100)  #: a round over the target alone
    max_histogram_fraction: Fraction = Fraction(10, 100)  #: a later round, where bounds seem wide
    max_target_fraction: Fraction = Fraction(15, 100)  #: a later round over the target alone
    correlation_fraction: Fraction = Fraction(5, 100)
    leaf_count_fraction: Fraction = Fraction(5, 100)
    score_fraction: Fraction = Fraction(3, 100)  #: calibration by score
    # histograms and the records that they count
    first_bins: int = 16  #: over the public bounds
    min_records: float = 10.0  #: that a noisy total stands for
    locating: float = 150.0  #: fraction of rho that finds the mass, times squared signal
    min_stray: float = 1.0  #: variance of a count about its expectation, in squared expectations
    min_expected: float = 0.1  #: expected count for that, in even shares
    max_halvings: int = 8  #: of an outermost bin, towards a tail
    # where a column's mass is in wide bounds (support_posterior.py)
    support_halvings: int = 6  #: the narrowest interval is 2^-6 of the bounds
    anywhere: float = 0.1  #: fraction of the mass outside of its interval
    least_inside: float = 0.9  #: fraction of a target's records inside its interval
    #: prior probability of the whole bounds, against all narrower ones
    whole_probability: float = 0.5
    whole_columns: float = 4.0  #: weight of that prior, in columns
    usual_position: float = 0.5  #: prior probability of the middle and both ends, among one width's
    min_share_std: float = 1.0  #: of a bin's share about its expectation, in even shares
    full_bins: float = 0.001  #: prior probability that few of a column's bins are full
    low_fractions: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9, 0.97)  #: of its bins, the others
    low_factors: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)  #: of an even share, that those hold
    # the target and the residuals
    tail: float = 0.025  #: fraction of a column beyond each limit of its linear term
    target_tail: float = 0.002  #: the same of the target, at least
    max_target_tail: float = 0.05  #: at most, where noise is large
    counted_noise: float = 0.05  #: noise of the target's counts up to which they are taken
    support_rate: float = 4.0  #: how fast the expected support replaces them beyond that
    min_level_std: float = 0.5  #: prior of what a model adds to the intercept, log-odds
    max_level_std: float = 1.0  #: the same at most
    #: of the log-odds of the classes' shares, above which counts alone set the mean prediction
    uncertain_std: float = 0.6
    residual_clips: tuple[float, float] = (1.5, 3.0)  #: least and greatest, in a residual's std
    clipped_variance: float = 0.05  #: fraction of the target's variance that the limit may cut off
    prediction_quantile: float = 0.05  #: synthetic predictions beyond are clipped in residuals
    # basis and synthetic records
    rank_clip: float = 2.2  #: |mid-ranks|^2 of a record is clipped to the columns over this
    one_value: float = 0.999  #: fraction in one bin, from which a column has no functions
    stretch: float = 1.25  #: root mean square of a linear term before its scale
    min_mean_square: float = 0.04  #: of its values, at least, for that
    even_weight: float = 0.5  #: fraction of the columns' weights that all have alike
    main_linear: float = 0.4  #: of a column's main effect, its linear term's fraction
    cut_ranks: tuple[float, float] = (0.1, 0.9)  #: between which trees cut a column
    correlation_noise: float = 0.03  #: std of a correlation, above which eigenvalues are shrunk
    min_effective: float = 0.5  #: fraction of synthetic records that weights leave in effect
    # prior of the weights, and its hyperprior: scales are in those of ModelParams
    initial_scale: float = 0.7  #: before the sums choose
    log_scale_mean: float = -0.35  #: hyperprior
    log_scale_std: float = 1.0  #: hyperprior
    log_scale_bounds: tuple[float, float] = (-2.5, 1.2)  #: of the logarithms
    common_scales: tuple[float, ...] = (0.1, 0.25, 0.5, 0.7, 1.0)  #: tried for all groups
    log_scale_step: float = 0.35  #: step of the logarithm of one scale
    prior_fractions: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1, 0.02)  #: of the likeliest prior
    min_prior_probability: float = 0.03  #: minimum probability to keep one of them
    # errors of the scores, for intervals
    absent: float = 0.3  #: prior probability that a kind of functions has no part in the truth
    #: of the variance by noise and sampling: the same sums choose scales, weights of rounds and the calibration
    noise_factor: float = 1.75
    # rounds of gradients
    later_fraction: float = 0.6  #: of the budget, that rounds after main effects have, about
    moment_error: float = 0.1  #: prior relative error of the synthetic second moments
    log_misspecification_std: float = 1.5  #: prior std of its square's logarithm
    expected_step: float = 0.3  #: mean square of a step, in the last one's
    max_step: float = 0.5  #: maximum mean square; steps near it shrink
    max_second_step: float = 2.0  #: of a number: the first step presumes that nothing is explained
    # calibration (Platt 1999)
    score_bins: int = 8  #: bins of a score
    log_factor_std: float = 0.5  #: of the logarithm of the slope
    shift_std: float = 0.3  #: of the intercept, in std of the scores
    max_log_factor: float = 2.0  #: in absolute value

    @property
    def once_fraction(self) -> Fraction:
        """The cost of queries that are sent at most once."""
        return self.correlation_fraction + self.leaf_count_fraction + self.score_fraction

    @property
    def gradient_fraction(self) -> Fraction:
        """The minimum fraction for gradients."""
        histograms = self.n_histograms * (self.histogram_fraction + self.target_fraction)
        return 1 - histograms - self.once_fraction


SETTINGS = Settings()


@dataclass(frozen=True)
class ModelParams:
    """Model size by records and budget."""

    linear: float  #: fraction of a record's squared norm that linear terms have
    binned: float  #: the fraction of columns' bins
    trees: tuple[tuple[int, int, float], ...]  #: trees, depth and fraction, for each depth
    ranked: bool  #: whether linear terms are mid-ranks, which few noisy bins estimate better
    look: float  #: fraction of rho for each later histogram of all columns; 0 for none
    target: float  #: fraction of rho for each later histogram of the target
    correlated: bool  #: whether correlations are queried
    #: whether linear terms are long, and records far from the middle have less weight
    stretched: bool
    bins: int  #: bins of a column in the basis, of equal shares
    halved_ends: bool  #: whether the outermost of them are two each
    resolution: int  #: bins of a column's histogram after the first round
    rounds: int  #: rounds of noisy gradients
    first: float  #: fraction of rho for main effects, which set columns' weights; 0: none
    masses: bool  #: whether leaves are counted
    calibrated: bool  #: whether residuals are queried by score
    prior: float  #: prior std of a scaled weight, in log-odds
    spread: float  #: the same for a number, in std of the target
    synthetic_records: int  #: how many
    directions: int  #: dimension of the subspace

    @classmethod
    def for_signal(cls, signal: float, *, number: bool = False) -> ModelParams:
        """Return the row for N sqrt(2 rho / K) sqrt(10 / p), see :func:`.signal_of`; a number's mean comes first."""
        if number and signal < MIN_NUMBER_SIGNAL:
            return _SNR_25
        return next(row for limit, row in _ROWS if signal < limit)

    def with_linear(self, linear: bool) -> ModelParams:
        """Return the same, or without linear terms, whose fraction goes to the bins."""
        return self if linear else replace(self, linear=0.0, binned=self.binned + self.linear)


_SNR_25 = ModelParams(
    linear=0.35, binned=0.65, trees=(), ranked=True, look=0.0, target=0.08, correlated=False, stretched=True, bins=1, halved_ends=False, resolution=6,
    rounds=2, first=0.0, masses=False, calibrated=False, prior=4.0, spread=0.4, synthetic_records=2_000, directions=200,
)  # fmt: skip
_SNR_180 = ModelParams(
    linear=0.7, binned=0.15, trees=((16, 2, 0.15),), ranked=True, look=0.06, target=0.04, correlated=True, stretched=True, bins=4, halved_ends=False, resolution=12, rounds=3,
    first=0.0, masses=False, calibrated=False, prior=4.0, spread=0.8, synthetic_records=2_000, directions=200,
)  # fmt: skip
_SNR_60 = replace(_SNR_180, target=0.1, rounds=2)
_SNR_500 = ModelParams(
    linear=0.35, binned=0.25, trees=((16, 2, 0.2), (16, 4, 0.2)), ranked=True, look=0.05, target=0.01, correlated=True, stretched=True, bins=8, halved_ends=False, resolution=16, rounds=4,
    first=0.0, masses=False, calibrated=True, prior=2.0, spread=1.0, synthetic_records=2_000, directions=200,
)  # fmt: skip
_SNR_2000 = ModelParams(
    linear=0.15, binned=0.15, trees=((16, 2, 0.2), (16, 4, 0.3), (6, 5, 0.2)), ranked=False, look=0.04, target=0.01, correlated=True, stretched=True, bins=16, halved_ends=False,
    resolution=32, rounds=5, first=0.2, masses=True, calibrated=True, prior=2.0, spread=1.1,
    synthetic_records=2_500, directions=250,
)  # fmt: skip
_SNR_5000 = ModelParams(
    linear=0.15, binned=0.15, trees=((48, 2, 0.2), (48, 4, 0.3), (18, 5, 0.2)), ranked=False, look=0.02, target=0.01, correlated=True, stretched=False, bins=16, halved_ends=False,
    resolution=32, rounds=5, first=0.1, masses=True, calibrated=True, prior=1.4, spread=1.1,
    synthetic_records=2_500, directions=250,
)  # fmt: skip
_SNR_ABOVE = replace(_SNR_5000, trees=((80, 2, 0.2), (80, 4, 0.3), (30, 5, 0.2)), halved_ends=True)
_ROWS: tuple[tuple[float, ModelParams], ...] = (
    (60.0, _SNR_60),
    (180.0, _SNR_180),
    (500.0, _SNR_500),
    (2_000.0, _SNR_2000),
    (5_000.0, _SNR_5000),
    (float("inf"), _SNR_ABOVE),
)
MIN_NUMBER_SIGNAL = 25.0  #: Signal below which little more than a number's mean is estimated
MAX_ROUNDS = 1 + max(row.rounds for _, row in _ROWS)  #: Of gradients, the first for main effects
