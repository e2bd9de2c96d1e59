"""Running totals of charges, by scope: what budgets and limits are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from privfed.privacy.accountant import Amount, plus
from privfed.privacy.limit import WHOLE, Limit, scope

#: What a guard's ``times`` is counted by: a study's own policy says it, so each study counts anew.
COUNTED = ("study", "kind")


class Total:
    """The sum of some charges; never changed, written by its ``to_plain``.

    Args:
        amount: exact, under the ledger's accountant.
        unprotected: how many of them have no finite guarantee.
        times: how many there are.
        basis: what their bounds rest on beside what is derived; see :class:`.Loss`.
    """

    __slots__ = ("amount", "basis", "times", "unprotected")

    def __init__(
        self, amount: Amount, unprotected: int = 0, times: int = 0, basis: tuple[str, ...] = ()
    ) -> None:
        self.amount, self.unprotected, self.times, self.basis = amount, unprotected, times, basis

    def plus(
        self, cost: Amount, finite: bool, count: int = 1, basis: tuple[str, ...] = ()
    ) -> Total:
        """Add some equal charges."""
        amount = plus(self.amount or (Fraction(0),) * len(cost), cost, count)
        unprotected, times = self.unprotected + (not finite) * count, self.times + count
        known = tuple(sorted({*self.basis, *basis})) if basis and count else self.basis
        return Total(amount, unprotected, times, known)

    def to_plain(self) -> list[Any]:
        """Give it as plain data: the components as text ``p/q``, two numbers, and any basis."""
        plain = [*map(str, self.amount), self.unprotected, self.times]
        return [*plain, list(self.basis)] if self.basis else plain

    @classmethod
    def of(cls, plain: Any) -> Total:
        """Read what :meth:`to_plain` gave, or nothing at all."""
        if plain is None:
            return cls(())
        if isinstance(plain, Total):
            return plain
        *plain, basis = plain if isinstance(plain[-1], list) else [*plain, []]
        *amount, unprotected, times = plain
        return cls(tuple(map(Fraction, amount)), unprotected, times, tuple(map(str, basis)))


def tracked(aspects: Mapping[str, str], limits: Iterable[Limit]) -> list[str]:
    """The scopes that a charge counts towards: everything, its kind in its study, those of limits."""
    named = [limit.scope(aspects) for limit in limits if limit.applies(aspects)]
    return list(dict.fromkeys([WHOLE, scope(COUNTED, aspects), *named]))


@lru_cache(maxsize=64)
def limits_of(plain: bytes) -> tuple[Limit, ...]:
    """Read the limits of the terms in force."""
    return tuple(Limit.from_dict(entry) for entry in msgspec.json.decode(plain))


def kind_of(name: str) -> str | None:
    """The kind that a scope is about, if it is about one kind in one study."""
    pairs: list[str] = msgspec.json.decode(name)
    return pairs[3] if tuple(pairs[::2]) == COUNTED else None
