"""What a release is charged with, and the running totals that budgets are held against."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from privfed.exchange.messages import Head, Reason
from privfed.ledger.store import GENESIS, encode_body
from privfed.ledger.study_blocks import STUDY, StudyBlock
from privfed.privacy.accountant import Accountant, Amount, plus
from privfed.privacy.limit import ASPECTS, WHOLE, Limit, scope
from privfed.privacy.loss import Loss

#: What a guard's ``times`` is counted by: a study's own policy says it, so each study counts anew.
COUNTED = ("study", "kind")
NOTHING = Head(0, GENESIS)  #: The head of an empty ledger

#: What of a charge its row says, beside its loss and facts.
_IN_ROWS = ("kind", "query", "study", "policy", "secure", "client", "round", "model")
_OWN_ASPECTS = tuple(name for name in ASPECTS if name != "month")
_row_of, _aspects_of = attrgetter(*_IN_ROWS), attrgetter(*_OWN_ASPECTS)


@dataclass(frozen=True)
class Charge:
    """What is reserved before the data are read: public facts only."""

    principal: str  #: the server that asked
    request: str  #: the request's id
    kind: str  #: the kind of query
    query: str  #: the query's digest
    loss: Loss  #: what the release costs
    study: str = ""  #: the study that it belongs to
    #: digest of the policy that allowed it; an older one than that in force is refused
    policy: str = ""
    secure: bool = True  #: whether the noise is (test noise protects no record)
    #: further facts for its row (mechanisms, relation, unit, versions)
    facts: dict[str, Any] = field(default_factory=dict)
    client: str = ""  #: the data owner's public name
    round: str = ""  #: the round in which it was asked
    model: str = "central"  #: ``central``, or ``local`` where each individual's own bits are noised
    terms: str = ""  #: digest of the terms (budgets, unit, relation) that its gate knows

    def body(self) -> dict[str, Any]:
        """The charge as the plain data of a ledger row."""
        named = zip(_IN_ROWS, _row_of(self), strict=True)
        return {**dict(named), "loss": self.loss.to_dict(), **self.facts}

    def aspects(self, time: str) -> dict[str, str]:
        """What limits tell charges apart by."""
        own = dict(zip(_OWN_ASPECTS, _aspects_of(self), strict=True))
        return {**own, "month": time[:7]}

    def scopes(
        self, time: str, terms: Mapping[str, Any] | None, blocks: Collection[str] = ()
    ) -> tuple[dict[str, str], list[str]]:
        """Its aspects, and the scopes that it counts towards under the terms in force."""
        limits = () if terms is None else _limits(encode_body(terms.get("limit", [])))
        aspects = self.aspects(time)
        return aspects, tracked(aspects, limits, blocks)


class Total(NamedTuple):
    """The sum of some charges: exact amount, number without a finite guarantee, number, and what the
    bounds rest on beside what is derived (see :class:`.Loss`).
    """

    amount: Amount
    unprotected: int = 0
    times: int = 0
    basis: tuple[str, ...] = ()

    def plus(
        self, cost: Amount, finite: bool, count: int = 1, basis: tuple[str, ...] = ()
    ) -> Total:
        """Add some equal charges."""
        amount = plus(self.amount, cost, count) if self.amount else plus(cost, cost, count - 1)
        unprotected, times = self.unprotected + (not finite) * count, self.times + count
        known = tuple(sorted({*self.basis, *basis})) if basis and count else self.basis
        return Total(amount, unprotected, times, known)

    def to_plain(self) -> list[Any]:
        """Give it as plain data: the components as text ``p/q``, two numbers, and any basis."""
        plain = [*map(str, self.amount), self.unprotected, self.times]
        return [*plain, list(self.basis)] if self.basis else plain

    @classmethod
    def from_plain(cls, plain: Any) -> Total:
        """Read what :meth:`to_plain` gave; ``None`` is no charge at all."""
        if plain is None:
            return cls(())
        *plain, basis = plain if isinstance(plain[-1], list) else [*plain, []]
        *amount, unprotected, times = plain
        each = (text.partition("/") for text in amount)
        exact = tuple(Fraction(int(n), int(d or 1)) for n, _, d in each)
        return cls(exact, unprotected, times, tuple(map(str, basis)))


@dataclass
class Spent:
    """What has been charged so far, under one accountant."""

    total: Amount  #: the sum of all charges
    unprotected: int = 0  #: how many of them have no finite guarantee
    #: how often each kind was charged; for a charge at hand, in its own study
    times: dict[str, int] = field(default_factory=dict)
    #: the total of each scope that the charge at hand counts towards
    within: dict[str, Amount] = field(default_factory=dict)
    aspects: dict[str, str] = field(default_factory=dict)  #: of the charge at hand
    time: str = ""  #: of the charge at hand
    head: Head = NOTHING  #: the end of the ledger's chain at that time
    #: what the total's bounds rest on beside what is derived; see :class:`.Loss`
    basis: tuple[str, ...] = ()
    #: the share of each study that has one, by its name; of a cohort, each individual's
    blocks: dict[str, StudyBlock] = field(default_factory=dict)

    @classmethod
    def before(
        cls,
        aspects: dict[str, str],
        totals: Mapping[str, Total],
        nothing: Amount,
        time: str,
        head: Head,
    ) -> Spent:
        """What a charge comes on top of, by its aspects and the totals of its scopes."""
        within = {name: total.amount or nothing for name, total in totals.items()}
        times = {aspects["kind"]: totals[scope(COUNTED, aspects)].times}
        whole = totals[WHOLE]
        spent = within[WHOLE], whole.unprotected, times, within, aspects, time, head, whole.basis
        return cls(*spent)

    def after(self, cost: Amount, kind: str, count: int) -> Spent:
        """What will have been charged after some more charges of one kind."""
        within = {name: plus(amount, cost, count) for name, amount in self.within.items()}
        times = {**self.times, kind: self.times.get(kind, 0) + count}
        return replace(self, total=plus(self.total, cost, count), times=times, within=within)


#: Gives the reason why a charge is refused, by what will be spent after it, or ``None``.
Refuse = Callable[[Spent], Reason | None]


class Reserved(NamedTuple):
    """The head after :meth:`.Ledger.reserve`, and why nothing was charged, or ``None``."""

    head: Head
    refused: Reason | None = None


def within_share(
    charge: Charge, block: StudyBlock, accountant: Accountant, refuse: Refuse
) -> Refuse:
    """Refuse as well what takes a charge's study beyond its share, or comes after it was sealed.

    A cohort's gate itself holds each individual's charges to the share.
    """
    cohort = "people" in charge.facts

    def within(after: Spent) -> Reason | None:
        own = after.within[block.total]
        if block.sealed or not (cohort or accountant.fits(own, block.share)):
            return Reason.BUDGET
        return refuse(after)

    return within


def tracked(
    aspects: Mapping[str, str], limits: Iterable[Limit], blocks: Collection[str] = ()
) -> list[str]:
    """The scopes that a charge counts towards: the whole, its kind in its study, its study if that has
    a share reserved, and those of limits.
    """
    named = [limit.scope(aspects) for limit in limits if limit.applies(aspects)]
    own = [scope(STUDY, aspects)] if aspects["study"] in blocks else []
    return list(dict.fromkeys([WHOLE, scope(COUNTED, aspects), *own, *named]))


@lru_cache(maxsize=64)
def _limits(plain: bytes) -> tuple[Limit, ...]:
    return tuple(Limit.from_dict(entry) for entry in msgspec.json.decode(plain))


def kind_of(name: str) -> str | None:
    """The kind that a scope is about, if it is about one kind in one study."""
    pairs: list[str] = msgspec.json.decode(name)
    return pairs[3] if tuple(pairs[::2]) == COUNTED else None


def block_key(charge: Charge, spent: Spent) -> bytes:
    """Equal for charges that may share a block: all but the query, and its round unless limited.

    A study that was sealed since, by another process too, draws on none of its own.
    """
    asked = {"query": "", "round": "", "who": charge.principal, "scopes": sorted(spent.within)}
    own = spent.blocks.get(charge.study)
    sealed = own is not None and own.sealed
    return encode_body({**charge.body(), **asked, "sealed": sealed})


def most(block: int, spent: Spent, cost: Amount, kind: str, refuse: Refuse) -> int:
    """The most charges, halving from a block, that fit every budget; one is known to."""
    while block > 1 and refuse(spent.after(cost, kind, block)) is not None:
        block //= 2
    return max(block, 1)
