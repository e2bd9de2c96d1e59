"""Fixed settings of RuleFit; see docs/tuning.md."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RuleFitSettings:
    """RuleFit's settings; limits of memory and rounding are where they are used."""

    synthetic_records: int = 4_000  #: records drawn if no client releases supports
    #: std, in widths of the bounds, below which the bounds set the scale
    negligible_std: float = 1e-5
    min_std: float = 0.1  #: minimum std of a winsorised covariate, in distances of its limits
    crowded: float = 0.9  #: fraction of records in one bin above which users are warned
    #: std of a target scaled to [-1, 1] by its bounds, below which the penalty is lowered in proportion
    loose_std: float = 0.15
    worse: float = 1.001  #: factor of no model's loss, from which a model counts as worse
    diverged: float = 1e3  #: absolute weight from which steps count as diverged
    settled: float = 1e-7  #: maximum change of a weight in a round at which learning stops
    dense_terms: int = 16  #: maximum terms for which the curvature's matrix is formed
    eigenvalue_tol: float = 0.01  #: relative precision of Lanczos' largest eigenvalue
    path_error: float = 0.1  #: of :meth:`.Increment.equations`, in changes of residuals


SETTINGS = RuleFitSettings()
