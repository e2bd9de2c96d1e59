"""The privacy loss of one release: every guarantee proven for it, exactly.

An accountant uses the statement that it can compose.
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

#: Prefixes of a basis. Before a plugin's name: a claim of its author, or the map of OpenDP's measurement that it wraps.
#: Before the number of owners who may collude: masked sums. Before the kind of another author's query: its stated
#: sensitivity. Before an accountant's name: its author's composition.
CLAIMED, MAPPED, MASKED, QUERIED, COMPOSED = "claimed", "opendp", "masked", "query", "accountant"


@dataclass(frozen=True)
class Loss:
    """The privacy loss of one release."""

    epsilon: Fraction | None = None  #: of pure epsilon-DP, nats, or of (epsilon, delta)-DP
    rho: Fraction | None = None  #: of zero-concentrated differential privacy
    delta: Fraction = Fraction(0)  #: probability with which the epsilon or rho statement may fail
    #: why there is no finite guarantee, or None. An unprotected release may also have protected
    #: parts, whose cost still counts against a budget
    unprotected: str | None = None
    laws: tuple[Charged, ...] = field(default=())  #: of all its noise; empty if any is unknown
    #: assumptions of the bound that are not derived here, sorted: ``"claimed:NAME"`` for a claim of a plugin's author,
    #: ``"opendp:NAME"`` for the map of a measurement, ``"masked:1"`` for masks that hold unless more owners collude,
    #: ``"query:KIND"`` for the sensitivities stated by another author's query, ``"accountant:NAME"`` for another
    #: author's composition; empty if the bound is derived here
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
        """Build a loss of pure epsilon-DP, and of zCDP by the tight bound epsilon * tanh(epsilon / 2)."""
        amount = exact(epsilon, "epsilon", zero=True)
        return cls(amount, pure_to_zcdp(amount), laws=(law,) if law else ())

    @classmethod
    def zcdp(cls, rho: Number, law: Charged | None = None) -> Loss:
        """Build a loss of rho-zCDP."""
        return cls(rho=exact(rho, "rho", zero=True), laws=(law,) if law else ())

    @classmethod
    def open(cls, reason: str) -> Loss:
        """Build a loss without a finite guarantee."""
        return cls(unprotected=reason)

    @classmethod
    def free(cls) -> Loss:
        """Build the loss of a reply that depends on public values only."""
        return cls(Fraction(0), Fraction(0))

    @property
    def finite(self) -> bool:
        """Whether there is a finite guarantee."""
        return self.unprotected is None

    @property
    def counted(self) -> bool:
        """Whether part of it is bounded, and so adds to a total."""
        return self.epsilon is not None or self.rho is not None

    @property
    def nothing(self) -> bool:
        """Whether the loss is zero."""
        return self.finite and self.delta == 0 and 0 in (self.epsilon, self.rho)

    def __add__(self, other: Loss) -> Loss:
        """Compose two losses, statement by statement; laws are kept only if all are known."""
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
        """Return the loss as plain data, exact numbers as text."""
        data: dict[str, Any] = {}
        for name in ("epsilon", "rho"):
            value = getattr(self, name)
            if value is not None:
                data[name] = text(value)
        if self.delta:
            data["delta"] = text(self.delta)
        if self.unprotected is not None:
            data["unprotected"] = self.unprotected
        if self.laws:
            data["laws"] = [charged.to_plain() for charged in self.laws]
        if self.basis:
            data["basis"] = list(self.basis)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Loss:
        """Read the output of :meth:`to_dict`; laws may have the form of format 3."""
        numbers = {
            name: exact(data[name], name, zero=True)
            for name in ("epsilon", "rho", "delta")
            if name in data
        }
        laws = tuple(map(Charged.from_plain, data.get("laws", ())))
        basis = tuple(map(str, data.get("basis", ())))
        return cls(**numbers, unprotected=data.get("unprotected"), laws=laws, basis=basis)


def pure_to_zcdp(epsilon: Fraction) -> Fraction:
    """Return the smallest rho such that every epsilon-DP mechanism is rho-zCDP, rounded up.

    Randomized response dominates every epsilon-DP mechanism, and its Renyi divergence of order
    alpha is at most alpha * epsilon * tanh(epsilon / 2), attained in the limit alpha = 1 (Bun and
    Steinke 2016, Proposition 3.3, has the weaker epsilon^2 / 2).
    """
    value = float(epsilon)
    return min(round_up(value * math.tanh(value / 2)), epsilon**2 / 2)


def lost(charged: Charged) -> Loss:
    """Return the loss of one law's noise, rounded up if the law gives only a lower bound."""
    exactly, law = charged.law.loses(charged.units), charged.law
    cost = exactly if law.exact else round_up(float(exactly) * (1 + 1e-11))
    return Loss.pure(cost, charged) if law.measure == "epsilon" else Loss.zcdp(cost, charged)


def covers(loss: Loss) -> bool:
    """Whether a stated loss is at least the loss of its known laws.

    Laws add up, as pure epsilon or as zCDP; a pure statement needs pure laws. A statement with a
    delta is not compared with its laws.
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
    """Whether a bound assumes masks."""
    return any(each.partition(":")[0] == MASKED for each in basis)


def basis_in_words(basis: Iterable[str]) -> str:
    """Return a bound's assumptions in words; empty if it is derived here."""
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
    phrases = [text.format(", ".join(named)) for text, named in sorted(names.items())]
    for max_colluding in sorted(colluding)[:1]:
        who = (
            f"at most {max_colluding} owners collude"
            if max_colluding > 1
            else f"at most {max_colluding} owner colludes"
        )
        phrases.append(f"if {who if max_colluding else 'no owner colludes'} with the server")
    return "; ".join(phrases)


def _both(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    return None if first is None or second is None else first + second
