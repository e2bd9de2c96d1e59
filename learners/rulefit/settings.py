"""Numbers that RuleFit depends on and that nobody has to choose; see docs/tuning.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RuleFitSettings:
    """RuleFit's settings; limits of memory and rounding stand where they are used."""

    synthetic_records: int = 4_000  #: records drawn where no client releases supports
    #: std of a covariate below which its scale is its bounds' width, as a fraction of that width
    negligible_std: float = 1e-5
    #: least std of a winsorised covariate, as a fraction of the distance of its limits: with 1/40
    #: of the records at or beyond each limit it is at least sqrt(.05) / 2 of it
    min_std: float = 0.1
    #: fraction of the records in one bin of a number above which the user is warned
    crowded: float = 0.9
    worse: float = 1.001  #: times the loss of no model from which a model is called worse than none
    #: absolute weight from which steps are said to have diverged; targets and terms are of size one
    diverged: float = 1e3
    settled: float = 1e-7  #: largest move of a weight in a round after which learning stops
    #: most terms for which curvature is an eigenvalue of the whole matrix, not Lanczos'
    dense_terms: int = 16
    eigenvalue_tol: float = 0.01  #: relative precision of Lanczos' largest eigenvalue
    #: how far residuals stray from a straight line over a client's local steps, as a fraction of
    #: their change (see :meth:`.Increment.equations`)
    path_error: float = 0.1


SETTINGS = RuleFitSettings()
