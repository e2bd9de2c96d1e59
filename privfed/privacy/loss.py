"""What one release costs: every guarantee that was proved for it, exactly.

A loss may carry several true statements at once. Randomized response at epsilon, for example, is
pure epsilon and also epsilon * tanh(epsilon / 2) zCDP; an accountant takes the one it can compose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from privfed.errors import InputError
from privfed.questions.exact import Number, exact, round_up, text

#: Name and parameters of a noise's law: ``("laplace", L1, scale)``, ``("gaussian", squared L2,
#: sigma)`` or ``("randomized-response", flip probability, bits)``; numbers as text.
Law = tuple[str, ...]


@dataclass(frozen=True)
class Loss:
    """The privacy loss of one release.

    Args:
        epsilon: pure differential privacy, nats; or the epsilon of (epsilon, delta).
        rho: zero-concentrated differential privacy.
        delta: probability with which the epsilon or rho statement may fail.
        unprotected: why there is no finite guarantee, or none. An unprotected release may hold
            protected parts beside the open ones: what those cost still counts against a budget.
        laws: the laws of all the noise in it, for tight retrospective accounting; empty where one
            of them is not known.
    """

    epsilon: Fraction | None = None
    rho: Fraction | None = None
    delta: Fraction = Fraction(0)
    unprotected: str | None = None
    laws: tuple[Law, ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("epsilon", "rho", "delta"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Fraction) and value >= 0):
                raise InputError(f"a loss needs an exact {name} of at least 0")
        if self.delta >= 1:
            raise InputError("a loss needs delta below 1")
        if not self.counted and self.unprotected is None:
            raise InputError("a loss is bounded (epsilon or rho), or unprotected, with a reason")

    @classmethod
    def pure(cls, epsilon: Number, law: Law = ()) -> Loss:
        """Pure epsilon-DP, and zCDP by the tight bound epsilon * tanh(epsilon / 2)."""
        amount = exact(epsilon, "epsilon", zero=True)
        return cls(amount, pure_to_zcdp(amount), laws=(law,) if law else ())

    @classmethod
    def zcdp(cls, rho: Number, law: Law = ()) -> Loss:
        """rho-zCDP."""
        return cls(rho=exact(rho, "rho", zero=True), laws=(law,) if law else ())

    @classmethod
    def open(cls, reason: str) -> Loss:
        """No finite guarantee."""
        return cls(unprotected=reason)

    @classmethod
    def free(cls) -> Loss:
        """A reply that depends on public values alone."""
        return cls(Fraction(0), Fraction(0))

    @property
    def finite(self) -> bool:
        """Whether there is a guarantee at all."""
        return self.unprotected is None

    @property
    def counted(self) -> bool:
        """Whether some of it is bounded, and so adds to a total."""
        return self.epsilon is not None or self.rho is not None

    @property
    def nothing(self) -> bool:
        """Whether it costs nothing at all."""
        return self.finite and self.delta == 0 and 0 in (self.epsilon, self.rho)

    def __add__(self, other: Loss) -> Loss:
        """Basic composition, statement by statement; laws are kept while all of them are known."""
        reason = self.unprotected if self.unprotected is not None else other.unprotected
        if not (self.counted and other.counted):
            return replace(self if self.counted else other, unprotected=reason)
        known = all(loss.laws or loss.nothing for loss in (self, other))
        return Loss(
            _both(self.epsilon, other.epsilon),
            _both(self.rho, other.rho),
            self.delta + other.delta,
            reason,
            laws=self.laws + other.laws if known else (),
        )

    def to_dict(self) -> dict[str, Any]:
        """Give the loss as plain data, exact numbers as text."""
        plain: dict[str, Any] = {}
        for name in ("epsilon", "rho"):
            value = getattr(self, name)
            if value is not None:
                plain[name] = text(value)
        if self.delta:
            plain["delta"] = text(self.delta)
        if self.unprotected is not None:
            plain["unprotected"] = self.unprotected
        if self.laws:
            plain["laws"] = [list(law) for law in self.laws]
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Loss:
        """Read what :meth:`to_dict` wrote."""
        numbers = {
            name: exact(plain[name], name, zero=True)
            for name in ("epsilon", "rho", "delta")
            if name in plain
        }
        laws = tuple(tuple(str(word) for word in law) for law in plain.get("laws", ()))
        return cls(**numbers, unprotected=plain.get("unprotected"), laws=laws)


def pure_to_zcdp(epsilon: Fraction) -> Fraction:
    """The least rho such that every epsilon-DP mechanism is rho-zCDP, rounded up.

    Randomized response dominates every epsilon-DP mechanism, and its Renyi divergence of order
    alpha is at most alpha * epsilon * tanh(epsilon / 2), attained as alpha falls to 1
    (Bun and Steinke 2016, Proposition 3.3, has the weaker epsilon^2 / 2).
    """
    value = float(epsilon)
    return min(round_up(value * math.tanh(value / 2)), epsilon**2 / 2)


def covers(loss: Loss) -> bool:
    """Whether what a loss states is no less than the laws of its own noise lose.

    Laplace: L1 / scale; Gaussian: squared L2 / (2 sigma^2); randomized response with flip
    probability q of b bits: b ln((1 - q) / q). A law that is not known proves nothing. A scale is
    the float that was drawn with, exactly, and not the shortest decimal that names it.
    """
    epsilon, rho = Fraction(0), Fraction(0)
    for name, first, second in (law for law in loss.laws if len(law) == 3):
        if name == "laplace":
            epsilon += int(first) / Fraction(float(second))
        elif name == "gaussian":
            rho += int(first) / (2 * Fraction(float(second)) ** 2)
        elif name == "randomized-response":
            epsilon += _of_flips(Fraction(first), int(second))
    stated = loss.epsilon if loss.epsilon is not None else loss.rho if not epsilon else None
    if stated is None:
        return not loss.finite
    return stated >= epsilon and (loss.rho is None or loss.rho >= rho or rho == 0)


def _of_flips(flip: Fraction, bits: int) -> Fraction:
    """What so many flipped bits lose, a little less than in truth: a lower bound to check by."""
    return Fraction(bits * math.log((1 - flip) / flip) * (1 - 1e-12))


def _both(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    return None if one is None or other is None else one + other
