"""A model's scores compared with a constant baseline's, and their variation over runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def measured(value: float, digits: int = 4) -> str:
    """Format a measured value: significant digits, or an integer with separators if it has more digits."""
    if not math.isfinite(value):
        return "∞"
    rounded = f"{value:.{digits}g}"
    return f"{value:,.0f}" if 10 ** (digits - 1) <= abs(float(rounded)) < 1e12 else rounded


def measured_alike(*values: float, digits: int = 4) -> list[str]:
    """Format values that are compared, with equally many decimals: these digits of the largest, or two of the smallest.

    Not for more than two further decimals; zeros at the end of all are left out.
    """
    largest, smallest = max(map(abs, values)), min((abs(v) for v in values if v), default=1)
    if not (all(map(math.isfinite, values)) and 1e-4 <= largest < 10 ** (digits - 1)):
        return [measured(value, digits) for value in values]
    decimals = digits - 1 - math.floor(math.log10(largest))
    for_two = 1 - math.floor(math.log10(smallest))
    decimals = max(decimals, for_two if for_two <= decimals + 2 else 0)
    while decimals and all(
        round(value, decimals) == round(value, decimals - 1) for value in values
    ):
        decimals -= 1
    return [f"{round(value, decimals) + 0.0:.{decimals}f}" for value in values]


@dataclass(frozen=True)
class MetricValue:
    """One score of a model, of one run or the mean of several."""

    name: str  #: the metric
    value: float  #: the score
    constant: float | None = None  #: the constant baseline's, or None
    better: str = ""  #: ``"lower"``, ``"higher"``, or empty if unknown
    #: sample standard deviation over runs that differ only by noise; None for one run
    deviation: float | None = None
    runs: int = 1  #: number of runs
    #: 95 % interval over the noise of a released score; None for a score by the records' truth
    interval: tuple[float, float] | None = None
    #: the same for its difference to the constant's, which is released too
    margin: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """The score with its deviation, both to two digits of the deviation; else as many as the constant's."""
        if self.interval is not None:
            low, high = self.interval
            return f"{measured(self.value, 3)} ({measured(low, 3)} to {measured(high, 3)})"
        if not self.deviation:
            return measured_alike(*self._compared)[0]
        decimals = min(6, max(0, 1 - math.floor(math.log10(self.deviation))))
        return f"{self.value:,.{decimals}f}\u00a0±\u00a0{self.deviation:,.{decimals}f}"

    @property
    def constant_text(self) -> str | None:
        """The constant baseline's score, with as many decimals as the model's."""
        if self.constant is None or self.interval is not None or self.deviation:
            return None if self.constant is None else measured(self.constant)
        return measured_alike(*self._compared)[1]

    @property
    def _compared(self) -> tuple[float, ...]:
        return (self.value,) if self.constant is None else (self.value, self.constant)

    @property
    def with_constant(self) -> str:
        """The score, and the constant baseline's in brackets."""
        return self.text + ("" if self.constant is None else f" (constant {self.constant_text})")

    @property
    def _ahead(self) -> tuple[float, float] | None:
        """Difference to the constant baseline's, at the ends of its interval."""
        if self.margin is not None or self.constant is None:
            return self.margin
        low, high = self.interval or (self.value, self.value)
        return low - self.constant, high - self.constant

    @property
    def undecided(self) -> bool:
        """Whether the constant baseline may score as well, by its interval."""
        return (
            self.interval is not None
            and self._ahead is not None
            and self._ahead[0] < 0 < self._ahead[1]
        )

    @property
    def useless(self) -> bool:
        """Whether it is no better than the constant baseline's, at either end of its interval."""
        if self._ahead is None or not self.better:
            return False
        low, high = self._ahead
        return high <= 0 if self.better == "higher" else low >= 0

    @property
    def useful(self) -> bool:
        """Whether it is better than the constant baseline's, at both ends of its interval."""
        known = self._ahead is not None and bool(self.better)
        return known and not self.undecided and not self.useless


def judged_by(metrics: Mapping[str, Any]) -> str:
    """Return how a simulation's scores were measured; a search has no held-out records."""
    return "on held-out records" if "held_out" in metrics else "against the truth"


def scores(metrics: Mapping[str, Any]) -> tuple[MetricValue, ...]:
    """Return all scores in a policy's ``metrics.json``, the headline first; means over several runs."""
    repeated = metrics.get("runs", {})
    value = metrics.get("value") if repeated.get("mean") is None else repeated["mean"]
    if not isinstance(value, int | float) or "measure" not in metrics:
        return ()
    count = len(repeated["values"]) if repeated.get("values") else 1
    headline = MetricValue(
        *(metrics["measure"], value, metrics.get("baseline"), metrics.get("better", "")),
        deviation=repeated.get("deviation"),
        runs=count,
        interval=_interval(metrics, metrics["measure"]),
        margin=_interval(metrics, metrics["measure"], "margins"),
    )
    return headline, *_others(metrics, repeated.get("scores", {}), count)


def _others(
    metrics: Mapping[str, Any], repeated: Mapping[str, Any], count: int
) -> tuple[MetricValue, ...]:
    constants, better = metrics.get("constants", {}), metrics.get("score_better", {})
    values = []
    for name, value in metrics.get("scores", {}).items():
        if name in repeated:
            value, deviation, runs = repeated[name]["mean"], repeated[name]["deviation"], count
        else:
            deviation, runs = None, 1
        if isinstance(value, int | float):
            values.append(
                MetricValue(
                    *(name, value, constants.get(name), better.get(name, ""), deviation, runs),
                    _interval(metrics, name),
                    _interval(metrics, name, "margins"),
                )
            )
    return tuple(values)


def _interval(
    metrics: Mapping[str, Any], name: str, key: str = "intervals"
) -> tuple[float, float] | None:
    ends = metrics.get(key, {}).get(name)
    return None if ends is None else (ends[0], ends[1])
