"""What a model was worth: every score beside a constant answer's, and how it varied from run to run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MetricValue:
    """One figure of a model's worth, of one run or the mean of several.

    Args:
        name: what was measured.
        value: the figure.
        constant: the same of the best constant answer, or none.
        better: ``"lower"``, ``"higher"``, or empty where nobody says.
        deviation: the standard deviation over runs that differ by their noise alone; none of one run.
        runs: how many runs it is the mean of.
    """

    name: str
    value: float
    constant: float | None = None
    better: str = ""
    deviation: float | None = None
    runs: int = 1

    @property
    def told(self) -> str:
        """The figure with its spread, both to two digits of the spread."""
        if not self.deviation:
            return f"{self.value:.4g}"
        decimals = min(6, max(0, 1 - math.floor(math.log10(self.deviation))))
        return f"{self.value:.{decimals}f}\u00a0±\u00a0{self.deviation:.{decimals}f}"

    @property
    def useless(self) -> bool:
        """Whether it is no better than the constant answer's."""
        if self.constant is None or not self.better:
            return False
        return (
            self.value <= self.constant if self.better == "higher" else self.value >= self.constant
        )


def scores(metrics: Mapping[str, Any]) -> tuple[MetricValue, ...]:
    """Every score of a policy's metrics, the headline first.

    Args:
        metrics: of one policy, as its ``metrics.json`` has them.

    Returns:
        empty where nothing was scored; means over runs where there were several.
    """
    repeated = metrics.get("runs", {})
    value = metrics.get("value") if repeated.get("mean") is None else repeated["mean"]
    if not isinstance(value, int | float) or "measure" not in metrics:
        return ()
    count = len(repeated["values"]) if repeated.get("values") else 1
    headline = MetricValue(
        *(metrics["measure"], value, metrics.get("baseline"), metrics.get("better", "")),
        deviation=repeated.get("deviation"),
        runs=count,
    )
    return headline, *_others(metrics, repeated.get("scores", {}), count)


def _others(
    metrics: Mapping[str, Any], repeated: Mapping[str, Any], count: int
) -> tuple[MetricValue, ...]:
    constants, better = metrics.get("constants", {}), metrics.get("score_better", {})
    found = []
    for name, value in metrics.get("scores", {}).items():
        if name in repeated:
            value, deviation, runs = repeated[name]["mean"], repeated[name]["deviation"], count
        else:
            deviation, runs = None, 1
        if isinstance(value, int | float):
            found.append(
                MetricValue(name, value, constants.get(name), better.get(name, ""), deviation, runs)
            )
    return tuple(found)
