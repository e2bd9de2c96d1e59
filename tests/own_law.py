"""Laws and mechanisms of one's own, as a plugin would bring them: honest ones and planted faults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.extend import (
    AdditiveNoise,
    Bound,
    BoundedPart,
    DiscreteLaplace,
    Law,
    Loss,
    Mechanism,
    Noise,
    Part,
    PartType,
    Protection,
    Query,
    Schema,
    Sensitivity,
    View,
    unmasked,
)
from privfed.mechanisms.laplace import Laplace
from privfed.privacy.mechanism import joint


class HeavyTails(Law):
    """Mass as 1 / (s^4 + k^4), of a scale s that is wide: the standard deviation is s."""

    name: ClassVar[str] = "heavy_tails"

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """By the quantiles of a fine grid, from 52 bits."""
        points = np.concatenate(
            [-np.geomspace(1e6, 1e-6, 200_000), np.geomspace(1e-6, 1e6, 200_000)]
        )
        below = np.cumsum(np.gradient(points) / (1 + points**4))
        level = noise.bits(52 * cells, Fraction(1, 2)).reshape(cells, 52) @ 0.5 ** np.arange(1, 53)
        drawn = np.interp(level * below[-1], below, points) * self.parameter
        return np.asarray(np.rint(drawn), dtype=np.int64)

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """The closed form of a wide scale: s^3 times the integral of the density is pi / sqrt(2)."""
        x = np.asarray(points, dtype=float) / self.parameter
        return np.asarray(math.log(math.sqrt(2) / math.pi / self.parameter) - np.log1p(x**4))

    def loses(self, units: int) -> Fraction:
        """ln(1 + x^4) rises by at most 3^(3/4) a unit of x, which is below 2.2796."""
        return Fraction("2.2796") * units / Fraction(self.parameter)


class Mixture(Law):
    """Nine in ten draws from Laplace noise of one scale, the others from that of four times it.

    Loss: the ratio of two mixtures is at most the largest ratio of their components, exp(L1 / scale).
    """

    name: ClassVar[str] = "mixture"

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """Both, and a coin of 103 / 1024 for each cell."""
        narrow, wide = (noise.laplace(cells, self.parameter * times) for times in (1, 4))
        return np.where(noise.bits(cells, Fraction(103, 1024)), wide, narrow)

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """By both components."""
        each = [
            math.log(weight) + DiscreteLaplace(self.parameter * times).log_mass(points)
            for weight, times in ((921 / 1024, 1), (103 / 1024, 4))
        ]
        return np.logaddexp(*each)

    def loses(self, units: int) -> Fraction:
        """Of the narrow one."""
        return units / Fraction(self.parameter)


class MixtureNoise(AdditiveNoise):
    """Chooses the mixture."""

    name: ClassVar[str] = "mixture_noise"
    currency: ClassVar[str | None] = "epsilon"
    law: ClassVar[type[Law]] = Mixture

    def scale(self, bound: Bound, spend: Fraction) -> float:
        """L1 / epsilon, a little more."""
        return float(bound.l1 / spend) * (1 + 1e-9)


class Staircase(Law):
    """P(k) proportional to exp(-epsilon * step of k), steps of one width: right for one cell alone.

    A planted fault: of four cells that move by a quarter of the width each may cross a step.
    """

    name: ClassVar[str] = "staircase"

    def __init__(self, epsilon: float | Fraction | str, width: float | Fraction | str) -> None:
        super().__init__(epsilon, width)
        self.epsilon, self.width = map(float, self.parameters)
        self._points = np.arange(-60 * int(self.width), 60 * int(self.width) + 1)
        steps = np.exp(-self.epsilon * self._step(self._points))
        self._total, self._cumulated = steps.sum(), np.cumsum(steps) / steps.sum()

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """The middle step is around zero."""
        return np.asarray(-self.epsilon * self._step(points) - math.log(self._total))

    def _step(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(np.floor((np.abs(points) + self.width / 2) / self.width))

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """By 32 fair bits and the cumulated probabilities."""
        bits = noise.bits(32 * cells, Fraction(1, 2)).reshape(cells, 32)
        uniform = bits @ (0.5 ** np.arange(1, 33))
        return np.asarray(self._points[np.searchsorted(self._cumulated, uniform)])

    def loses(self, units: int) -> Fraction:
        """As if one cell moved: epsilon for each width."""
        return Fraction(math.ceil(units / self.width) * self.epsilon)


class StaircaseNoise(Laplace):
    """Chooses the staircase, of the width of the joint L1 bound."""

    name: ClassVar[str] = "staircase_noise"

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Counts, on which a table of probabilities is small."""
        return super().supports(group) and all(g.part.type == "counts" for g in group.values())

    def law_of(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Staircase:
        """One law for all parts."""
        return Staircase(float(spend), joint(group).l1)

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Epsilon, by the law of one cell."""
        return Protection(self, group, spend, dict.fromkeys(group, self.law_of(group, spend)))


class SilentStaircase(StaircaseNoise):
    """The same, drawn by itself, and no law told."""

    name: ClassVar[str] = "silent_staircase"

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Epsilon, on its word."""
        return Protection(self, group, spend, stated=Loss.pure(spend))

    def protect(self, exact, priced, noise, reveals):  # type: ignore[no-untyped-def]
        """Cell by cell."""
        law = self.law_of(priced.group, priced.spend)
        return {n: unmasked(a + law.draw(noise, a.size).reshape(a.shape)) for n, a in exact.items()}


class EuclideanLaplace(Laplace):
    """A planted fault: calibrates Laplace noise by the L2 norm."""

    name: ClassVar[str] = "euclidean_laplace"

    def scale(self, bound: Bound, spend: Fraction) -> float:
        """L2 / epsilon."""
        return math.sqrt(bound.l2_squared) / float(spend)


class SilentEuclideanLaplace(EuclideanLaplace):
    """The same, drawn by itself, and no law told."""

    name: ClassVar[str] = "silent_euclidean_laplace"

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Epsilon, on its word."""
        return Protection(self, group, spend, stated=Loss.pure(spend))

    def protect(self, exact, priced, noise, reveals):  # type: ignore[no-untyped-def]
        """Draw here."""
        scale = self.scale(joint(priced.group), priced.spend)
        return {
            n: unmasked(a + noise.laplace(a.size, scale).reshape(a.shape)) for n, a in exact.items()
        }


class OneDrawLaplace(Laplace):
    """A planted fault: one draw, shared by all cells of a part."""

    name: ClassVar[str] = "one_draw_laplace"

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        """The same for each cell."""
        return np.repeat(law.draw(noise, 1), cells)


@dataclass(frozen=True)
class Spread(Query):
    """Four counts of all records, each of which a record moves by one.

    Sensitivity: L1 = 4, squared L2 = 4.
    """

    kind: ClassVar[str] = "test.spread"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One part of four cells."""
        return {"counts": Part(PartType.COUNTS, ("cell",), (4,), Sensitivity.of(4, 4))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The same count four times."""
        return {"counts": np.full(4, len(view.table))}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """One in each cell."""
        return {"counts": np.ones((len(view.table), 4), np.int64)}


FALSE: tuple[type[Mechanism], ...] = (
    StaircaseNoise,
    SilentStaircase,
    EuclideanLaplace,
    SilentEuclideanLaplace,
    OneDrawLaplace,
)
