"""A population's rules as a classifier, and how well a search covered what could be found."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, f1_score

from privfed.learners.stl.formula import Formula, robustness, rounded, show, significant
from privfed.learners.stl.grammar import Symbols

#: What stands beside the rules' figures, where they are read without privfed.
NOTE = (
    "share, with its 95 % limits low and high: of the individuals, those who hold a rule of this "
    "structure, whatever its thresholds and intervals; the unbiased estimate may lie below 0 or above 1"
)


@dataclass(frozen=True)
class WeightedRule:
    """A rule with the share of individuals that are estimated to hold one of its structure."""

    rule: Formula  #: the rule; its thresholds and intervals are a typical holder's, or noise
    #: estimated fraction of the individuals who hold a rule of this structure, whatever its
    #: parameters; unbiased before the rule was chosen for being large
    share: float
    deviation: float = 0.0  #: std of the noise in it, and of the draw of a part of the people

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Normal confidence limits of the share, within [0, 1]; 0 and 1 if nothing is known of it."""
        reach = float(stats.norm.ppf((1 + level) / 2)) * self.deviation
        low, high = np.clip([self.share - reach, self.share + reach], 0.0, 1.0)
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """Give the rule as text with its share and 95 % limits, to six significant digits."""
        figures = zip(("share", "low", "high"), (self.share, *self.interval()), strict=True)
        return {
            "rule": show(rounded(self.rule)),
            **{name: significant(figure) for name, figure in figures},
        }


@dataclass(frozen=True)
class PopulationRules:
    """A weighted vote: each rule that holds on a trajectory votes for the positive class."""

    rules: tuple[WeightedRule, ...]  #: weighted by their shares, negative ones as zero
    variables: tuple[str, ...]  #: names of the trajectories' last axis
    cut: float = 0.5  #: least weighted share of votes for the positive class

    def votes(self, signals: np.ndarray) -> np.ndarray:
        """Weighted share of the rules that hold, shape (samples,); 0 where there are no rules."""
        weights = np.array([max(0.0, rule.share) for rule in self.rules])
        if not weights.sum() > 0:
            return np.zeros(len(signals))
        held = [robustness(rule.rule, signals, self.variables) > 0 for rule in self.rules]
        return np.asarray(weights @ np.array(held) / weights.sum())

    def predict(self, signals: np.ndarray) -> np.ndarray:
        """Whether each trajectory is of the positive class, shape (samples,)."""
        return np.asarray(self.votes(signals) >= self.cut)

    def to_dict(self) -> dict[str, Any]:
        """Give the rules as text with their shares."""
        rules = [rule.to_dict() for rule in self.rules]
        return {"variables": list(self.variables), "cut": self.cut, "note": NOTE, "rules": rules}


def utility(predicted: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Balanced accuracy, and F1 of the positive class."""
    return {
        "balanced_accuracy": float(balanced_accuracy_score(truth, predicted)),
        "f1": float(f1_score(truth, predicted, zero_division=0.0)),
    }


def coverage(found: Iterable[Symbols], valid: Collection[Symbols]) -> tuple[float, float]:
    """|found and valid| over |valid|, and over |found| (DP-RuL equations 6, 7); NaN for 0 / 0.

    Against the truth: a simulation's alone.
    """
    known = set(found)
    right = len(known & set(valid))
    return (right / len(valid) if valid else math.nan, right / len(known) if known else math.nan)


def told(found: Collection[Symbols], valid: Collection[Symbols]) -> str:
    """What was found of what is valid, in words; a simulation's alone."""
    right = len(set(found) & set(valid))
    if not valid:
        return f"no rule is valid; {len(found) or 'nothing'} found"
    if not found:
        return f"nothing found of {len(valid)} valid rules"
    return f"{right} of {len(valid)} valid rules found, {len(found) - right} found wrongly"
