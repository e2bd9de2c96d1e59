"""Numbers that RuleFit depends on and that nobody has to choose; see docs/tuning.md."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RuleFitSettings:
    """RuleFit's settings; limits of memory and rounding stand where they are used."""

    synthetic_records: int = 4_000  #: records drawn where no client releases supports
    negligible_std: float = 1e-5  #: std, in widths of the bounds, below which these are the scale
    min_std: float = 0.1  #: least std of a winsorised covariate, in distances of its limits
    crowded: float = 0.9  #: fraction of records in one bin above which users are warned
    worse: float = 1.001  #: times the loss of no model from which a model is called worse than none
    diverged: float = 1e3  #: absolute weight from which steps are said to have diverged
    settled: float = 1e-7  #: largest move of a weight in a round after which learning stops
    dense_terms: int = 16  #: most terms for whose curvature the whole matrix is formed
    eigenvalue_tol: float = 0.01  #: relative precision of Lanczos' largest eigenvalue
    path_error: float = 0.1  #: of :meth:`.Increment.equations`, in changes of residuals


SETTINGS = RuleFitSettings()
