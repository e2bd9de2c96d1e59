"""What one release costs: every guarantee that was proved for it, exactly.

A loss may carry several true statements at once. Randomized response at epsilon, for example, is
pure epsilon and also epsilon * tanh(epsilon / 2) zCDP; an accountant takes the one it can compose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from privfed.errors import InputError
from privfed.exact import Number, exact, round_up, text

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
        unprotected: why there is no finite guarantee, or none.
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
        if (self.epsilon is None and self.rho is None) == (self.unprotected is None):
            raise InputError(
                "a loss is either bounded (epsilon or rho) or unprotected, with a reason"
            )

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
    def nothing(self) -> bool:
        """Whether it costs nothing at all."""
        return self.finite and self.delta == 0 and 0 in (self.epsilon, self.rho)

    def __add__(self, other: Loss) -> Loss:
        """Basic composition, statement by statement; laws are kept while all of them are known."""
        if self.unprotected is not None or other.unprotected is not None:
            return Loss.open(self.unprotected or other.unprotected or "")
        known = all(loss.laws or loss.nothing for loss in (self, other))
        return Loss(
            _both(self.epsilon, other.epsilon),
            _both(self.rho, other.rho),
            self.delta + other.delta,
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


def _both(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    return None if one is None or other is None else one + other
