"""Settings of the fuzzy tree: public values; docs/tuning.md says which tables chose them."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Settings:
    """Settings common to all fuzzy trees; features are scaled to [0, 1], targets to [-1/2, 1/2]."""

    # budget of a private tree, fractions of rho (zCDP)
    feature_fraction: Fraction = Fraction(2, 100)  #: of each round of histograms
    target_fraction: Fraction = Fraction(3, 100)  #: the same of the target
    root_weight_fraction: Fraction = Fraction(3, 100)  #: number of records, over all levels
    root_linear_fraction: Fraction = Fraction(8, 100)  #: sum of their targets
    root_square_fraction: Fraction = Fraction(2, 100)
    set_fraction: Fraction = Fraction(8, 100)  #: sums by fuzzy set, over all levels
    moment_fraction: Fraction = Fraction(45, 100)  #: second moments, of what is left for models
    moment_rounds: int = 2  #: of second moments
    residual_rounds: int = 4  #: the last may be about leaves
    by_set_fraction: Fraction = Fraction(4, 100)  #: residuals by fuzzy set
    # scaling by percentiles
    percentiles: tuple[float, float] = (0.025, 0.975)  #: paper, Section 5.1
    noisy_rounds: int = 2  #: of noisy histograms
    max_refined_bins: int = 4  #: that a noisy column spans, to be refined
    shown_variance: float = 0.01  #: of a mean, in the column's own, above which noise shows
    proven_count: float = 4.0  #: of noise, from which a bin's count shows records
    narrow: float = 0.5  #: maximum fraction of its bounds for a feature's noisy interval
    narrow_target: float = 0.6  #: the same of the target
    margin: float = 0.25  #: on either side, in widths between the percentiles
    exact_narrow_target: float = 0.5  #: the same without noise: only what lies far off is clipped
    exact_margin_target: float = 5.0  #: on either side, in the same widths
    usual_bin: float = 1e-7  #: width of a percentile's bin in its bounds, after the usual rounds
    min_bin: float = 1e-19  #: after as many rounds as there can be
    feature_bin: float = 1e-4  #: in the width between the percentiles: fine enough
    target_bin: float = 1e-2  #: the same for the target
    # sets of few records at a feature's ends
    #: fractions of the records, neighbouring ones being the peaks of two sets, from how many std of
    #: the noise in histograms a hundredth of the records is
    end_fractions: tuple[tuple[float, tuple[float, ...]], ...] = (
        (0.5, (0.02, 0.04)),
        (4.0, (0.01, 0.02, 0.04, 0.07)),
    )
    end_error: float = 0.3  #: relative std of a set's fraction of the records, from histograms
    end_std: float = 2.5  #: of noise, by which such a set's targets differ
    # growth and exact leaves
    #: of a target in its interval; the paper's tables have .0077 or more
    min_target_variance: float = 0.006
    min_eigenvalue: float = 1e-5  #: of normal equations, in the greatest
    #: at which lines are rejected for any feature, so that the tree splits on those whose means depart from one
    line_level: float = 0.01
    #: of the residuals' variance, that such a feature's sets explain beyond the line
    min_beyond_line: float = 0.02
    max_splits: int = 2  #: on such features
    max_leaves: int = 27  #: then
    # coordinates of the private linear model
    lead: float = 3.0  #: squared length of the constant coordinate, relative to 1 per feature
    even_stretch: float = 0.75  #: fraction of a feature's stretch that is equal for all
    max_variance_ratio: float = 4.0  #: of a feature's variance and the features' mean
    #: fraction of the features' mean variance, if above noise, below which a slope is zero
    still_variance: float = 0.1
    # residuals
    clips: tuple[float, float] = (1.5, 5.0)  #: least and greatest, in std of the residuals
    clipped_variance: float = 0.5  #: fraction of the target's variance that they may cut off
    min_clip: float = 0.01  #: of a residual
    min_unexplained: float = 0.02  #: of the target's variance, left by any model
    explained_trust: float = 0.9  #: fraction of the apparently explained variance that counts
    min_explained: float = 0.01  #: of the target's variance; below it a model is a constant
    #: of a leaf, per unknown and std of noise, for it to be queried
    records_per_noise: float = 10.0
    #: relative std of a leaf's second moments about those estimated from its sets
    moment_error: float = 0.1
    min_leaf_probability: float = 0.5  #: that leaves differ, for them to be kept
    # priors
    #: of the target's variance
    prior_fractions: tuple[float, ...] = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
    mean_std: float = 0.25  #: of targets' means
    usual_variance: float = 0.04  #: of a target
    level_variance: float = 0.1  #: of the prediction at the means, in the target's variance
    mean_caution: float = 2.0  #: factor of the features' means' noise in their shrinkage
    min_covariance: float = 0.02  #: eigenvalue of a covariance, in the mean one
    # numbers of records
    proven_std: float = 3.0  #: of its noise, from which a number of records counts
    min_records_std: float = 2.0  #: of its noise, that a number of records is at least
    min_records: float = 10.0  #: and at least this
    weight_error: float = 0.15  #: fraction of the records that weights in the unit ball may hide


SETTINGS = Settings()
