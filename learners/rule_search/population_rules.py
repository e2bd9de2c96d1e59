"""A population's rules as a classifier, and a search's recall and precision."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, f1_score

from privfed.learners.stl.formula import (
    Formula,
    robustness,
    rounded,
    rounded_to,
    show,
    significant,
)
from privfed.learners.stl.grammar import Symbols

#: Note on the rules' estimates for readers without privfed.
NOTE = (
    "share, with its 95 % limits low and high: of the individuals, those who hold a rule of this "
    "structure, whatever its thresholds and intervals; the unbiased estimate may lie below 0 or above 1"
)


UNKNOWN = (
    0.5  #: Error of a parameter, as a fraction of its range, from which nothing is known of it
)


def _places(step: float) -> int:
    """Return the decimals that resolve a step, at most 12."""
    return min(12, max(0, math.ceil(-math.log10(step)))) if step > 0 else 12


@dataclass(frozen=True)
class WeightedRule:
    """A rule with the estimated fraction of individuals who hold a rule of its structure."""

    rule: Formula  #: the rule; thresholds and intervals are a typical holder's, or noise
    #: estimated fraction of individuals who hold a rule of this structure, with any parameters;
    #: unbiased before selection of large ones
    share: float
    std: float = 0.0  #: std of its noise, and of sampling a part of the individuals
    #: what the noise leaves open of the mean of its holders' parameters (:func:`.mean_error`), as a fraction of
    #: their range; None if they were not asked
    error: float | None = None

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return normal confidence limits of the fraction, within [0, 1]; 0 and 1 if unknown."""
        half_width = float(stats.norm.ppf((1 + level) / 2)) * self.std
        low, high = np.clip([self.share - half_width, self.share + half_width], 0.0, 1.0)
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as text with its fraction and 95 % limits, to six significant digits."""
        figures = zip(("share", "low", "high"), (self.share, *self.interval()), strict=True)
        return {
            "rule": show(rounded(self.rule)),
            **{name: significant(figure) for name, figure in figures},
            "parameter_error": None if self.error is None else significant(self.error),
        }

    def text(self, widths: Mapping[str, float]) -> str:
        """Format the rule with thresholds to a tenth of their error, and that error; ``widths`` are the variables' ranges."""
        if self.error is None:
            return show(rounded(self.rule))
        if not self.error < UNKNOWN:
            return f"{show(rounded(self.rule, 2))} (thresholds unknown)"
        places = {name: _places(self.error * width / 10) for name, width in widths.items()}
        return f"{show(rounded_to(self.rule, places))} (thresholds ± {100 * self.error:.2g} %)"


@dataclass(frozen=True)
class PopulationRules:
    """A weighted vote: each rule that holds on a trajectory votes for the positive class."""

    rules: tuple[WeightedRule, ...]  #: weighted by their fractions, negative ones as zero
    variables: tuple[str, ...]  #: names of the trajectories' last axis
    cut: float = 0.5  #: minimum weighted fraction of votes for the positive class

    def votes(self, signals: np.ndarray) -> np.ndarray:
        """Return the weighted fraction of the rules that hold, shape (samples,); 0 without rules."""
        weights = np.array([max(0.0, rule.share) for rule in self.rules])
        if not weights.sum() > 0:
            return np.zeros(len(signals))
        holds = [robustness(rule.rule, signals, self.variables) > 0 for rule in self.rules]
        return np.asarray(weights @ np.array(holds) / weights.sum())

    def predict(self, signals: np.ndarray) -> np.ndarray:
        """Return whether each trajectory is of the positive class, shape (samples,)."""
        return np.asarray(self.votes(signals) >= self.cut)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as text with their fractions."""
        rules = [rule.to_dict() for rule in self.rules]
        return {"variables": list(self.variables), "cut": self.cut, "note": NOTE, "rules": rules}


def utility(predicted: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return balanced accuracy, and F1 of the positive class."""
    return {
        "balanced_accuracy": float(balanced_accuracy_score(truth, predicted)),
        "f1": float(f1_score(truth, predicted, zero_division=0.0)),
    }


def coverage(found: Iterable[Symbols], valid: Collection[Symbols]) -> tuple[float, float]:
    """Return |found and valid| over |valid|, and over |found| (DP-RuL equations 6, 7); NaN for 0 / 0.

    They use the truth, known only in simulations.
    """
    known = set(found)
    hits = len(known & set(valid))
    return (hits / len(valid) if valid else math.nan, hits / len(known) if known else math.nan)


def summary(found: Collection[Symbols], valid: Collection[Symbols]) -> str:
    """Return recall and precision in words, for simulations only."""
    hits = len(set(found) & set(valid))
    if not valid:
        return f"no rule is valid; {len(found) or 'nothing'} found"
    if not found:
        return f"nothing found of {len(valid)} valid rules"
    return f"{hits} of {len(valid)} valid rules found, {len(found) - hits} found wrongly"
