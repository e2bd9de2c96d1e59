"""Noise distributions ("laws"): their draws, log-probabilities and privacy losses.

Names in data are looked up in the entry points ``privfed.laws`` and among the laws of this process's
mechanisms; any other becomes :class:`Unknown`, which proves nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from opendp.measurements import make_gaussian, make_laplace, make_randomized_response_bool
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import OpenDPException

from privfed.errors import InputError, PluginError, UnsupportedLoss
from privfed.privacy.noise import INTEGERS, Noise
from privfed.privacy.pairs import DominatingPair, GaussianPair, LaplacePair, ResponsePair
from privfed.questions import plugins
from privfed.questions.exact import float_up
from privfed.questions.part import Bound

SIGMA = 3.0  #: Minimum sigma, in grid units, for the continuous curve
#: A discrete Gaussian loses slightly more than a continuous one: the hockey-stick sum over the
#: lattice exceeds the integral by its kink's Euler-Maclaurin term. A continuous shift larger by a
#: fraction 1 / (24 sigma^2) covers it; a fifth more is added, and tested for single coordinates.
#: Coordinates are independent, so that the vector's pair is dominated too.
PADDING = 1 / 20
DOWN = 1 - 1e-12  #: Relative margin of computed lower bounds, more than float error
FAIR = 1e-9  #: Minimum loss of a bit that floats near one half resolve
DEPTH, POINTS = 40.0, 2**16  #: Of a window: depth in log-probability, and points
#: Names and forms of laws in releases and ledgers of format 3.
ALIASES = {"flip": "randomized_response", "randomized-response": "randomized_response"}
Parameter = float | Fraction


class Law(ABC):
    """A distribution of integer noise; every cell gets an independent draw.

    A user's law defines :meth:`draw`, :meth:`log_mass` and :meth:`loses`; the other methods have
    default bounds, which it may tighten. Its loss is claimed by its author, and every loss that
    contains it says so. Laws are equal if class and parameters are: finite numbers, or their text
    (else InputError).
    """

    name: ClassVar[str]  #: Its name in releases and ledgers, and its entry point
    measure: ClassVar[Literal["epsilon", "rho"]] = "epsilon"  #: pure, in nats, or zCDP
    norm: ClassVar[Literal[1, 2]] = 1  #: Norm of the units: L1, or squared L2
    additive: ClassVar[bool] = True  #: Whether draws are added to numbers, or say which bits flip
    exact: ClassVar[bool] = False  #: Whether :meth:`loses` is exact, not a lower bound

    def __init__(self, *parameters: Parameter | str) -> None:
        self.parameters = tuple(map(_number, parameters))
        if not all(math.isfinite(each) for each in self.parameters):
            raise InputError(f"law {self.name!r}: parameters are finite numbers, such as 2.5")

    @property
    def parameter(self) -> float:
        """The first parameter."""
        return float(self.parameters[0])

    @abstractmethod
    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """Draw independent integers, or flips, shape (cells,), from the given source only."""

    @abstractmethod
    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of integers for one cell, same shape; -inf if impossible."""

    @abstractmethod
    def loses(self, units: int) -> Fraction:
        """Return the loss, in :attr:`measure`, if all cells together change by ``units`` in :attr:`norm`.

        It is exact, or at most a relative 1e-12 below: stated costs are checked against it.
        """

    @cached_property
    def std(self) -> float:
        """Standard deviation of one cell's noise, in grid units."""
        points = self.window
        weights = np.exp(self.log_mass(points)) * np.gradient(points.astype(float))
        mean = weights @ points / weights.sum()
        return math.sqrt(float(weights @ (points - mean) ** 2 / weights.sum()))

    @cached_property
    def window(self) -> np.ndarray:
        """Integers that hold nearly all of the mass: all of them, or a linear and a geometric grid.

        For heavy tails, a linear grid alone would miss the mass near zero.
        """
        reach = 16
        top = float(self.log_mass(np.arange(-reach, reach + 1)).max())
        while reach < 2**53 and self.log_mass(np.array([-reach, reach])).max() > top - DEPTH:
            reach *= 2
        if 2 * reach <= POINTS:
            return np.arange(-reach, reach + 1)
        even = np.linspace(-reach, reach, POINTS // 2 + 1)
        growing = np.geomspace(1, reach, POINTS // 4)
        return np.unique(np.concatenate([even, growing, -growing]).astype(np.int64))

    def log_ratio(self, present: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """Return ln p(present) - ln p(absent) for each cell; 0 if both are impossible."""
        with np.errstate(invalid="ignore"):
            ratio = self.log_mass(present) - self.log_mass(absent)
        return np.where(np.isnan(ratio), 0.0, ratio)

    def worst(self, step: int) -> float:
        """Return a lower bound on the loss of one cell that changes by ``step``, from :meth:`log_mass` only.

        It is the largest log-ratio over :attr:`window` or, for ``rho``, the largest Renyi
        divergence divided by its order, over a few orders.
        """
        points = self.window
        ratio = self.log_ratio(points, points - step)
        if self.measure == "epsilon":
            return float(np.abs(ratio).max())
        possible = (log_mass := self.log_mass(points)) > -np.inf
        weights = log_mass[possible] + np.log(np.gradient(points)[possible])
        total, ratio = np.logaddexp.reduce(weights), ratio[possible]
        return max(
            float(np.logaddexp.reduce(weights - total + excess * ratio)) / excess / (1 + excess)
            for excess in (0.01, 0.1, 0.5, 1.0, 3.0)
        )

    def distance(self, moved: np.ndarray) -> np.ndarray:
        """Return the loss of records that change the cells (last axis) by ``moved``; for ``rho``, 2 rho."""
        units = np.rint((np.abs(moved) ** self.norm).sum(axis=-1)).astype(np.int64)
        different, index = np.unique(units, return_inverse=True)
        lost = np.array([float(self.loses(int(each))) for each in different])
        return np.asarray(lost[index] * (2 if self.measure == "rho" else 1))

    def units(self, bound: Bound) -> int:
        """Return a bound in the law's norm."""
        return bound.l1 if self.norm == 1 else bound.l2_squared

    def concentrated(self, units: int) -> Fraction:
        """Return a lower bound on the implied rho of zCDP; see :func:`.pure_to_zcdp`."""
        lost = self.loses(units)
        if self.measure == "rho":
            return lost
        return Fraction(float(lost) * math.tanh(float(lost) / 2) * DOWN)

    def pairs(self, units: int) -> Mapping[DominatingPair, int]:
        """Return pairs whose product dominates a release, with their multiplicities (else UnsupportedLoss)."""
        if self.measure == "rho":
            raise UnsupportedLoss(f"noise of the law {self.name!r} has no curve here")
        lost = float(self.loses(units))
        return {ResponsePair(lost): 1} if lost else {}

    def renyi(self, units: int, orders: np.ndarray) -> np.ndarray:
        """Return an upper bound on the Renyi divergence at each order, same shape."""
        lost = float(self.loses(units))
        return orders * lost if self.measure == "rho" else pure_renyi(lost, orders)

    def opendp(self, units: int) -> float | None:
        """Return the cost by OpenDP's measurement with this noise; None if there is none."""
        return None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_wire() == other.to_wire()

    def __hash__(self) -> int:
        return hash((type(self), self.name, self.parameters))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.parameters))})"

    def to_wire(self) -> dict[str, Any]:
        """Return name and parameters as plain data, numbers as exact text."""
        parameters = [
            repr(each) if isinstance(each, float) else str(each) for each in self.parameters
        ]
        return {"law": self.name, "parameters": parameters}

    @classmethod
    def from_wire(cls, data: Any) -> Law:
        """Read the output of :meth:`to_wire`, or format 3 (``parameter``, a number); else InputError."""
        known = isinstance(data, dict) and isinstance(data.get("law"), str)
        parameters = data.get("parameters", [data.get("parameter")]) if known else None
        if not isinstance(parameters, list | tuple) or not all(
            isinstance(p, str | float | int) for p in parameters
        ):
            raise InputError("a law is written as its name and its parameters")
        return law_of(
            data["law"], *(p if isinstance(p, str) else repr(float(p)) for p in parameters)
        )


class DiscreteLaplace(Law):
    """Discrete Laplace noise: P(k) = (1 - r) / (1 + r) r^|k|, r = exp(-1 / scale), in grid units.

    Loss: if cell i moves by d_i, ln p(x_i) - ln p(x_i - d_i) = (|x_i - d_i| - |x_i|) / scale, at
    most |d_i| / scale, attained for x_i beyond both. Cells are independent, so that log-ratios add
    up: the loss of the vector is exactly sum |d_i| / scale = L1 / scale, however the change is
    divided among cells.
    """

    name: ClassVar[str] = "laplace"
    exact: ClassVar[bool] = True

    def __init__(self, scale: Parameter | str) -> None:
        super().__init__(_positive(self.name, scale))

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """See :class:`Law`."""
        return noise.laplace(cells, self.parameter)

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """See :class:`Law`: (1 - r) / (1 + r) is tanh(1 / (2 scale))."""
        return np.asarray(
            math.log(math.tanh(0.5 / self.parameter)) - np.abs(points) / self.parameter
        )

    def loses(self, units: int) -> Fraction:
        """Return L1 / scale exactly, for the float scale that draws use."""
        return units / Fraction(self.parameter)

    @cached_property
    def std(self) -> float:
        """sqrt(2 r) / (1 - r)."""
        ratio = math.exp(-1 / self.parameter)
        return math.sqrt(2 * ratio) / (1 - ratio)

    def log_ratio(self, present: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """(|absent| - |present|) / scale."""
        return np.asarray((np.abs(absent) - np.abs(present)) / self.parameter)

    def distance(self, moved: np.ndarray) -> np.ndarray:
        """Return the sum of |moved| / scale."""
        return np.asarray((np.abs(moved) / self.parameter).sum(axis=-1))

    def pairs(self, units: int) -> Mapping[DominatingPair, int]:
        """Return the pair of one cell that changes by all units, the worst case."""
        return {LaplacePair(units / self.parameter, units): 1} if units else {}

    def opendp(self, units: int) -> float | None:
        """See :class:`Law`."""
        measurement: Any = make_laplace(INTEGERS, l1_distance(T="i64"), scale=self.parameter)
        return float(measurement.map(units))


class DiscreteGaussian(Law):
    """Discrete Gaussian noise: P(k) proportional to exp(-k^2 / (2 sigma^2)), sigma in grid units.

    Loss: the Renyi divergence of order a of one cell that moves by d_i is at most a d_i^2 / (2
    sigma^2) (Canonne, Kamath and Steinke 2020, Proposition 5). Cells are independent, so that
    divergences add up: the vector is sum d_i^2 / (2 sigma^2) = L2^2 / (2 sigma^2)-zCDP. There is no
    finite epsilon: the log-ratio is unbounded along the tail.
    """

    name: ClassVar[str] = "gaussian"
    exact: ClassVar[bool] = True
    measure: ClassVar[Literal["epsilon", "rho"]] = "rho"
    norm: ClassVar[Literal[1, 2]] = 2

    def __init__(self, sigma: Parameter | str) -> None:
        super().__init__(_positive(self.name, sigma))

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """See :class:`Law`."""
        return noise.gaussian(cells, self.parameter)

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """See :class:`Law`; for sigma of at least 2 the sum of weights equals the integral to float precision."""
        total = math.sqrt(2 * math.pi) * self.parameter
        if self.parameter < 2:
            total = float(np.exp(-(np.arange(-80, 81) ** 2) / (2 * self.parameter**2)).sum())
        squares = np.asarray(points, dtype=float) ** 2
        return np.asarray(-squares / (2 * self.parameter**2) - math.log(total))

    def loses(self, units: int) -> Fraction:
        """Return L2^2 / (2 sigma^2) exactly, for the float sigma that draws use."""
        return units / (2 * Fraction(self.parameter) ** 2)

    @cached_property
    def std(self) -> float:
        """Sigma if at least 1; below, the exact value on the integers, which is smaller."""
        if self.parameter >= 1:
            return self.parameter
        points = np.arange(-12, 13)
        weights = np.exp(-(points**2) / (2 * self.parameter**2))
        return math.sqrt(float(weights @ points**2 / weights.sum()))

    def log_ratio(self, present: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """(absent^2 - present^2) / (2 sigma^2)."""
        return np.asarray((absent - present) * (absent + present) / (2 * self.parameter**2))

    def distance(self, moved: np.ndarray) -> np.ndarray:
        """Return the sum of (moved / sigma)^2, which is mu^2."""
        return np.asarray(((np.abs(moved) / self.parameter) ** 2).sum(axis=-1))

    def pairs(self, units: int) -> Mapping[DominatingPair, int]:
        """Return a continuous pair that dominates the discrete one; see :data:`PADDING`."""
        sigma = self.parameter
        if sigma < SIGMA:
            raise UnsupportedLoss(f"noise of the law {self.name!r} below {SIGMA} has no curve here")
        size = math.sqrt(units) / sigma * (1 + PADDING / sigma**2)
        return {GaussianPair(size): 1} if units else {}

    def opendp(self, units: int) -> float | None:
        """See :class:`Law`."""
        measurement: Any = make_gaussian(INTEGERS, l2_distance(T="f64"), scale=self.parameter)
        return float(measurement.map(math.sqrt(units)))


class SumOfGaussians(Law):
    """The noise in a masked sum: K independent discrete Gaussians, m of which are counted.

    Loss (Kairouz, Liu and Steinke 2021, Theorem 1): if an owner's records change the sum by a
    vector of L2 norm D over d cells, the sum of m discrete Gaussians of sigma_1 >= 1/2 is epsilon^2
    / 2-zCDP with epsilon = min(sqrt(D^2 / (m sigma_1^2) + 2 tau d), D / (sqrt(m) sigma_1) + tau
    sqrt(d)) and tau = 10 sum over k = 1 ... m - 1 of exp(-2 pi^2 sigma_1^2 k / (k + 1)). The other
    K - m shares belong to owners who may collude with the server; known noise is a constant shift.

    Parameters: sigma of the m shares together, in grid units; m; K; and d, the cells masked
    together.
    """

    name: ClassVar[str] = "masked_gaussian"
    measure: ClassVar[Literal["epsilon", "rho"]] = "rho"
    norm: ClassVar[Literal[1, 2]] = 2

    def __init__(self, sigma: Parameter | str, *sizes: Parameter | str) -> None:
        super().__init__(_positive(self.name, sigma), *sizes)
        whole = tuple(int(each) for each in self.parameters[1:])
        if len(whole) != 3 or whole != self.parameters[1:] or not 1 <= whole[0] <= whole[1]:
            raise InputError(f"law {self.name!r} takes sigma, counted, owners and cells")
        self.counted, self.owners, self.cells = whole
        if self.share.parameter < 0.5 or self.cells < 1:
            raise InputError(
                f"law {self.name!r} needs a cell, and shares of a sigma of at least 0.5"
            )

    @cached_property
    def share(self) -> DiscreteGaussian:
        """One owner's noise, slightly wider than sigma / sqrt(m), which covers tau."""
        return DiscreteGaussian(self.parameter / math.sqrt(self.counted) * (1 + 1e-11))

    @cached_property
    def tau(self) -> float:
        """Tau, which bounds how far the sum differs from a discrete Gaussian."""
        k, sigma = np.arange(1, self.counted), self.share.parameter
        return 10 * float(np.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)).sum())

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """See :class:`Law`: the sum of all owners' shares."""
        return np.asarray(sum(self.share.draw(noise, cells) for _ in range(self.owners)))

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """See :class:`Law`: that of a discrete Gaussian of the same variance, to within tau."""
        return DiscreteGaussian(self.std).log_mass(points)

    @cached_property
    def std(self) -> float:
        """sigma sqrt(K / m)."""
        return self.parameter * math.sqrt(self.owners / self.counted)

    def loses(self, units: int) -> Fraction:
        """Return a lower bound on the class's formula, by a relative 1e-12."""
        if not units:
            return Fraction(0)
        moved = math.sqrt(units / self.counted) / self.share.parameter
        straight = moved + self.tau * math.sqrt(self.cells)
        return Fraction(min(moved**2 + 2 * self.tau * self.cells, straight**2) / 2 * DOWN)


class BitFlips(Law):
    """Independent bit flips with probability q of at most one half (Warner 1965).

    Loss: for a bit that changes, the log-ratio is ln((1 - q) / q) or its negative, for either
    answer. Bits are flipped independently, so that log-ratios add up: m changed bits lose m ln((1 -
    q) / q), attained if no bit is flipped. q is exact, for draws a multiple of 2^-64; 0 flips
    nothing.
    """

    name: ClassVar[str] = "randomized_response"
    additive: ClassVar[bool] = False

    def __init__(self, flip: Parameter | str) -> None:
        super().__init__(Fraction(_number(flip)))
        if not 0 <= self.flip <= Fraction(1, 2):
            raise InputError("a bit is flipped with a probability from 0 to 1/2")

    @property
    def flip(self) -> Fraction:
        """The probability of a flip, exactly."""
        return Fraction(self.parameters[0])

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """See :class:`Law`; if q is 0, no randomness is used."""
        return noise.bits(cells, self.flip) if self.flip else np.zeros(cells, dtype=bool)

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of 0 (no flip) and 1 (a flip)."""
        if not self.flip:
            return np.where(np.asarray(points) == 0, 0.0, -np.inf)
        lie, truth = math.log(self.flip), math.log1p(-float(self.flip))
        return np.where(
            np.asarray(points) == 0, truth, np.where(np.asarray(points) == 1, lie, -np.inf)
        )

    def loses(self, units: int) -> Fraction:
        """Return the number of changed bits times ln((1 - q) / q), less a relative 1e-12."""
        return Fraction(units * self._odds * DOWN) if units else Fraction(0)

    @property
    def _odds(self) -> float:
        return math.log1p((1 - 2 * self.flip) / self.flip)

    @cached_property
    def std(self) -> float:
        """sqrt(q (1 - q))."""
        return math.sqrt(self.parameter * (1 - self.parameter))

    def concentrated(self, units: int) -> Fraction:
        """Return m e tanh(e / 2) for e = ln((1 - q) / q), which is tight for each bit."""
        return Fraction(units * self._odds * math.tanh(self._odds / 2) * DOWN if units else 0)

    def pairs(self, units: int) -> Mapping[DominatingPair, int]:
        """Return one pair for each bit."""
        return {ResponsePair(self._odds): units} if units and self._odds else {}

    def renyi(self, units: int, orders: np.ndarray) -> np.ndarray:
        """Return the exact sum over bits."""
        return units * pure_renyi(self._odds, orders) if units else np.zeros(orders.shape)

    def opendp(self, units: int) -> float | None:
        """See :class:`Law`; None if a float probability resolves the loss to less than a millionth of it."""
        if self._odds < FAIR:
            return None
        truth = -float_up(self.flip - 1)  # rounded up to 1 it would cost more than any spend
        measurement: Any = make_randomized_response_bool(prob=truth)
        return float(measurement.map(1)) * units


#: Laws whose loss is derived and tested here; any other loss is claimed by its author.
PROVEN: tuple[type[Law], ...] = (DiscreteLaplace, DiscreteGaussian, SumOfGaussians, BitFlips)


class Unknown(Law):
    """A law that is not installed here: its text is kept, and it has no bound."""

    name: str  # type: ignore[misc]  # of the instance, for there is no class of that name
    additive: ClassVar[bool] = False

    def __init__(self, name: str, *parameters: str) -> None:
        self.name, self.parameters = name, parameters  # type: ignore[assignment]

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedLoss(f"the law {self.name!r} is not installed here; install its package")

    draw = log_mass = loses = _refused

    def renyi(self, units: int, orders: np.ndarray) -> np.ndarray:
        """Return infinity: no bound is known."""
        return np.full(orders.shape, np.inf)


@dataclass(frozen=True)
class Charged:
    """Noise of one law, and the sensitivity of the cells that it is added to."""

    law: Law  #: of the noise
    units: int  #: sensitivity in the law's norm, all cells together

    def times(self, steps: int) -> Charged:
        """Return the same noise for data sets ``steps`` neighbours apart (group privacy)."""
        return Charged(self.law, self.units * steps**self.law.norm)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**self.law.to_wire(), "units": self.units}

    @classmethod
    def from_plain(cls, data: Any) -> Charged:
        """Read the output of :meth:`to_plain`, or the lists of format 3; else InputError.

        Format 3 has ``["laplace", L1, scale]``, ``["gaussian", squared L2, sigma]`` and
        ``["randomized-response", flip, bits]``.
        """
        if isinstance(data, list | tuple) and data:
            name, *words = map(str, data)
            if len(words) != 2 or not words[name == "randomized-response"].isdecimal():
                return cls(Unknown(name, *words), 0)
            flips = name == "randomized-response"
            return cls(law_of(name, words[not flips]), int(words[flips]))
        if not isinstance(data, dict) or type(data.get("units")) is not int or data["units"] < 0:
            raise InputError("a charged law is written as its name, its parameters and its units")
        return cls(Law.from_wire(data), data["units"])


#: Laws of this process's own mechanisms, passed as objects, that nothing installs: the last of each name.
_IN_USE: dict[str, type[Law]] = {}


def in_use(law: Law) -> None:
    """Let this process read noise under this law's name as its own, if no law of that name is installed."""
    if _IN_USE.get(law.name) is not type(law):
        _IN_USE[law.name] = type(law)
        law_of.cache_clear()


@lru_cache(maxsize=4096)
def law_of(name: str, *parameters: str) -> Law:
    """Build a law by name, from the installed ones and those in use (InputError: wrong parameters)."""
    name = ALIASES.get(name, name)
    installed = name in plugins.available("laws")
    build = plugins.load("laws", name) if installed else _IN_USE.get(name)
    if build is None:
        return Unknown(name, *parameters)
    try:
        law: Law = build(*parameters)
    except (InputError, TypeError, ValueError, ArithmeticError) as error:
        if not installed:  # another law of that name was written down
            return Unknown(name, *parameters)
        if isinstance(error, InputError):
            raise
        raise InputError(f"law {name!r} does not take these parameters") from None
    if not isinstance(law, Law) or law.name != name:
        raise PluginError(f"the law installed as {name!r} is none, or calls itself otherwise")
    return law


def proven(law: Law) -> bool:
    """Whether a law's loss is derived here: its class is in :data:`PROVEN`, not a subclass."""
    return type(law) in PROVEN


def named_as_another(law: Law) -> bool:
    """Whether another law is installed under its name, as which ledgers and releases would be read."""
    return plugins.taken("laws", ALIASES.get(law.name, law.name), type(law))


def pure_renyi(epsilon: float, orders: np.ndarray) -> np.ndarray:
    """Return randomized response's Renyi divergence, the largest of any pure loss (Mironov 2017, Prop. 5)."""
    if epsilon == 0:
        return np.zeros(orders.shape)
    truth, lie = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    one = orders * truth + (1 - orders) * lie
    other = orders * lie + (1 - orders) * truth
    return np.asarray(np.logaddexp(one, other) / (orders - 1))


@lru_cache(maxsize=1024)
def mapped(charged: Charged) -> float | None:
    """Return the cost by OpenDP's measurement with this noise; None if it has none, or none in floats."""
    try:
        return charged.law.opendp(charged.units)
    except (ArithmeticError, TypeError, ValueError, OpenDPException):
        return None


def _number(value: Parameter | str) -> Parameter:
    try:
        if isinstance(value, str):
            return Fraction(value) if "/" in value else float(value)
        return value if isinstance(value, Fraction) else float(value)
    except (TypeError, ValueError, ArithmeticError):
        raise InputError("a law's parameters are finite numbers, such as 2.5") from None


def _positive(name: str, scale: Parameter | str) -> float:
    number = float(_number(scale))
    if not 0 < number < math.inf:
        raise InputError(f"law {name!r} takes a finite scale above 0, such as 2.5")
    return number
