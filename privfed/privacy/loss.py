"""What one release costs: every guarantee that was proved for it, exactly.

An accountant takes the statement that it can compose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from privfed.errors import InputError
from privfed.privacy.laws import Charged, Unknown
from privfed.questions.exact import Number, exact, round_up, text

#: What a basis says before the name of a plugin: its author's word, or the map of OpenDP's
#: measurement that it wraps; before how many owners may collude where sums are masked; before the kind of a query
#: that is not ours, whose author says how far a record moves its answers; and before an accountant that is not.
CLAIMED, MAPPED, MASKED, QUERIED, COMPOSED = "claimed", "opendp", "masked", "query", "accountant"


@dataclass(frozen=True)
class Loss:
    """The privacy loss of one release."""

    epsilon: Fraction | None = None  #: pure, nats; or the epsilon of (epsilon, delta)
    rho: Fraction | None = None  #: zero-concentrated differential privacy
    delta: Fraction = Fraction(0)  #: probability with which the epsilon or rho statement may fail
    #: why there is no finite guarantee, or none. An unprotected release may hold protected parts
    #: beside the open ones: what those cost still counts against a budget
    unprotected: str | None = None
    laws: tuple[Charged, ...] = field(default=())  #: of all its noise; empty if one is not known
    #: what the bound rests on beside what is derived here, sorted: ``"claimed:NAME"`` for the word
    #: of a plugin's author, ``"opendp:NAME"`` for the map of a measurement, ``"masked:1"`` for
    #: masks that hold unless more owners collude, ``"query:KIND"`` for the sensitivities that another author's
    #: query states, ``"accountant:NAME"`` for another author's composition; empty where all of it is derived
    basis: tuple[str, ...] = ()

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
    def pure(cls, epsilon: Number, law: Charged | None = None) -> Loss:
        """Pure epsilon-DP, and zCDP by the tight bound epsilon * tanh(epsilon / 2)."""
        amount = exact(epsilon, "epsilon", zero=True)
        return cls(amount, pure_to_zcdp(amount), laws=(law,) if law else ())

    @classmethod
    def zcdp(cls, rho: Number, law: Charged | None = None) -> Loss:
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
        basis = tuple(sorted({*self.basis, *other.basis}))
        if not (self.counted and other.counted):
            return replace(self if self.counted else other, unprotected=reason, basis=basis)
        known = all(loss.laws or loss.nothing for loss in (self, other))
        return Loss(
            _both(self.epsilon, other.epsilon),
            _both(self.rho, other.rho),
            self.delta + other.delta,
            reason,
            laws=self.laws + other.laws if known else (),
            basis=basis,
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
            plain["laws"] = [charged.to_plain() for charged in self.laws]
        if self.basis:
            plain["basis"] = list(self.basis)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Loss:
        """Read what :meth:`to_dict` wrote, laws in the form of format 3 too."""
        numbers = {
            name: exact(plain[name], name, zero=True)
            for name in ("epsilon", "rho", "delta")
            if name in plain
        }
        laws = tuple(map(Charged.from_plain, plain.get("laws", ())))
        basis = tuple(map(str, plain.get("basis", ())))
        return cls(**numbers, unprotected=plain.get("unprotected"), laws=laws, basis=basis)


def pure_to_zcdp(epsilon: Fraction) -> Fraction:
    """The least rho such that every epsilon-DP mechanism is rho-zCDP, rounded up.

    Randomized response dominates every epsilon-DP mechanism, and its Renyi divergence of order
    alpha is at most alpha * epsilon * tanh(epsilon / 2), attained as alpha falls to 1 (Bun and
    Steinke 2016, Proposition 3.3, has the weaker epsilon^2 / 2).
    """
    value = float(epsilon)
    return min(round_up(value * math.tanh(value / 2)), epsilon**2 / 2)


def lost(charged: Charged) -> Loss:
    """What noise of one law costs, rounded up where the law's own figure is a lower bound."""
    exactly, law = charged.law.loses(charged.units), charged.law
    cost = exactly if law.exact else round_up(float(exactly) * (1 + 1e-11))
    return Loss.pure(cost, charged) if law.measure == "epsilon" else Loss.zcdp(cost, charged)


def covers(loss: Loss) -> bool:
    """Whether what a loss states is no less than the known laws of its own noise lose.

    Laws add up, as pure epsilon or as zCDP; a pure statement needs pure laws. A statement with a
    delta is not held to its laws.
    """
    known = [charged for charged in loss.laws if not isinstance(charged.law, Unknown)]
    if loss.delta or not known:
        return True
    if loss.epsilon is not None:
        pure = all(charged.law.measure == "epsilon" or not charged.units for charged in known)
        if not pure or loss.epsilon < sum(each.law.loses(each.units) for each in known):
            return False
    concentrated = sum((each.law.concentrated(each.units) for each in known), Fraction(0))
    return loss.rho is None or loss.rho >= concentrated


def foreign(kind: type) -> bool:
    """Whether a class is none of ours, so that what it states is on its author's word."""
    return kind.__module__.partition(".")[0] != "privfed"


def is_masked(basis: Iterable[str]) -> bool:
    """Whether a figure rests on masks."""
    return any(each.partition(":")[0] == MASKED for each in basis)


def basis_in_words(basis: Iterable[str]) -> str:
    """Say in words what a figure rests on beside what is derived; nothing where all of it is."""
    words = {
        CLAIMED: "on the word of {}, not derived here",
        MAPPED: "by OpenDP's map of {}",
        QUERIED: "on the sensitivity that {} states, not derived here",
        COMPOSED: "on the composition by {}, not derived here",
    }
    names: dict[str, list[str]] = {}
    colluding: list[int] = []
    for kind, _, name in (each.partition(":") for each in basis):
        if kind == MASKED:
            colluding.append(int(name.split()[0]))
        else:
            names.setdefault(words.get(kind, words[CLAIMED]), []).append(name or kind)
    told = [text.format(", ".join(named)) for text, named in sorted(names.items())]
    for most in sorted(colluding)[:1]:
        who = f"at most {most} owners collude" if most > 1 else f"at most {most} owner colludes"
        told.append(f"if {who if most else 'no owner colludes'} with the server")
    return "; ".join(told)


def _both(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    return None if one is None or other is None else one + other
