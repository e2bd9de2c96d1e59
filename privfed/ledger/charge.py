"""Charges of releases, and the running totals that are compared with budgets."""

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

#: Aspects that a guard's ``times`` is counted by: it is set in a study's policy, so each study
#: counts from 0.
COUNTED = ("study", "kind")
NOTHING = Head(0, GENESIS)  #: Head of an empty ledger

#: Fields of a charge in its row, besides its loss and facts.
_IN_ROWS = ("kind", "query", "study", "policy", "secure", "client", "round", "model")
_OWN_ASPECTS = tuple(name for name in ASPECTS if name != "month")
_row_of, _aspects_of = attrgetter(*_IN_ROWS), attrgetter(*_OWN_ASPECTS)


@dataclass(frozen=True)
class Charge:
    """A charge, which is reserved before the data are read; public facts only."""

    principal: str  #: the server that sent the query
    request: str  #: the request's id
    kind: str  #: the kind of query
    query: str  #: the query's digest
    loss: Loss  #: the cost of the release
    study: str = ""  #: its study
    #: digest of the policy that allowed it; refused if it is not the one in force
    policy: str = ""
    secure: bool = True  #: whether the noise is secure (test noise does not protect)
    #: further facts for the row (mechanisms, relation, unit, versions)
    facts: dict[str, Any] = field(default_factory=dict)
    client: str = ""  #: the data owner's public name
    round: str = ""  #: its round
    model: str = "central"  #: ``central``, or ``local`` if each individual's own bits are noised
    terms: str = ""  #: digest of the terms (budgets, unit, relation) known to its gate

    def body(self) -> dict[str, Any]:
        """Return the charge as plain data for a ledger row."""
        named = zip(_IN_ROWS, _row_of(self), strict=True)
        return {**dict(named), "loss": self.loss.to_dict(), **self.facts}

    def aspects(self, time: str) -> dict[str, str]:
        """Return the attributes by which limits group charges."""
        values = dict(zip(_OWN_ASPECTS, _aspects_of(self), strict=True))
        return {**values, "month": time[:7]}

    def scopes(
        self, time: str, terms: Mapping[str, Any] | None, blocks: Collection[str] = ()
    ) -> tuple[dict[str, str], list[str]]:
        """Return its aspects, and the scopes that it counts towards under the terms in force."""
        limits = () if terms is None else _limits(encode_body(terms.get("limit", [])))
        aspects = self.aspects(time)
        return aspects, tracked(aspects, limits, blocks)


class Total(NamedTuple):
    """A sum of charges: amount, number without a finite guarantee, number, and basis (see :class:`.Loss`)."""

    amount: Amount
    unprotected: int = 0
    times: int = 0
    basis: tuple[str, ...] = ()

    def plus(
        self, cost: Amount, finite: bool, count: int = 1, basis: tuple[str, ...] = ()
    ) -> Total:
        """Return the total after ``count`` more equal charges."""
        amount = plus(self.amount, cost, count) if self.amount else plus(cost, cost, count - 1)
        unprotected, times = self.unprotected + (not finite) * count, self.times + count
        known = tuple(sorted({*self.basis, *basis})) if basis and count else self.basis
        return Total(amount, unprotected, times, known)

    def to_plain(self) -> list[Any]:
        """Return it as plain data: the components as text ``p/q``, two numbers, and any basis."""
        data = [*map(str, self.amount), self.unprotected, self.times]
        return [*data, list(self.basis)] if self.basis else data

    @classmethod
    def from_plain(cls, data: Any) -> Total:
        """Read the output of :meth:`to_plain`; None is an empty total."""
        if data is None:
            return cls(())
        *data, basis = data if isinstance(data[-1], list) else [*data, []]
        *amount, unprotected, times = data
        each = (text.partition("/") for text in amount)
        exact = tuple(Fraction(int(n), int(d or 1)) for n, _, d in each)
        return cls(exact, unprotected, times, tuple(map(str, basis)))


@dataclass
class Spent:
    """The charges so far, under one accountant."""

    total: Amount  #: the sum of all charges
    unprotected: int = 0  #: how many of them have no finite guarantee
    #: how often each kind was charged; for a current charge, in its own study
    times: dict[str, int] = field(default_factory=dict)
    #: the total of each scope that the current charge counts towards
    within: dict[str, Amount] = field(default_factory=dict)
    aspects: dict[str, str] = field(default_factory=dict)  #: of the current charge
    time: str = ""  #: of the current charge
    head: Head = NOTHING  #: end of the ledger's chain at that time
    #: assumptions of the total's bounds that are not derived here; see :class:`.Loss`
    basis: tuple[str, ...] = ()
    #: the share of each study that has one, by name; in a cohort, of each individual
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
        """Return the spending before a charge, from its aspects and the totals of its scopes."""
        within = {name: total.amount or nothing for name, total in totals.items()}
        times = {aspects["kind"]: totals[scope(COUNTED, aspects)].times}
        whole = totals[WHOLE]
        spent = within[WHOLE], whole.unprotected, times, within, aspects, time, head, whole.basis
        return cls(*spent)

    def after(self, cost: Amount, kind: str, count: int) -> Spent:
        """Return the spending after ``count`` more charges of one kind."""
        within = {name: plus(amount, cost, count) for name, amount in self.within.items()}
        times = {**self.times, kind: self.times.get(kind, 0) + count}
        return replace(self, total=plus(self.total, cost, count), times=times, within=within)


#: Returns the reason to refuse a charge, from the spending after it, or None.
Refuse = Callable[[Spent], Reason | None]


class Reserved(NamedTuple):
    """The head after :meth:`.Ledger.reserve`, and the reason if nothing was charged, or None."""

    head: Head
    refused: Reason | None = None


def within_share(
    charge: Charge, block: StudyBlock, accountant: Accountant, refuse: Refuse
) -> Refuse:
    """Extend ``refuse`` to charges beyond the study's share, and after the study was sealed.

    A cohort's gate checks each individual's charges against the share itself.
    """
    cohort = "people" in charge.facts

    def within(after: Spent) -> Reason | None:
        study_total = after.within[block.total]
        if block.sealed or not (cohort or accountant.fits(study_total, block.share)):
            return Reason.BUDGET
        return refuse(after)

    return within


def tracked(
    aspects: Mapping[str, str], limits: Iterable[Limit], blocks: Collection[str] = ()
) -> list[str]:
    """Return the scopes that a charge counts towards: the whole, kind in study, study with a share, limits."""
    named = [limit.scope(aspects) for limit in limits if limit.applies(aspects)]
    study_scope = [scope(STUDY, aspects)] if aspects["study"] in blocks else []
    return list(dict.fromkeys([WHOLE, scope(COUNTED, aspects), *study_scope, *named]))


@lru_cache(maxsize=64)
def _limits(data: bytes) -> tuple[Limit, ...]:
    return tuple(Limit.from_dict(entry) for entry in msgspec.json.decode(data))


def kind_of(name: str) -> str | None:
    """Return the kind of a scope of one kind in one study, else None."""
    pairs: list[str] = msgspec.json.decode(name)
    return pairs[3] if tuple(pairs[::2]) == COUNTED else None


def block_key(charge: Charge, spent: Spent) -> bytes:
    """Return a key that is equal for charges that may share a block; query and unlimited rounds may differ.

    A study that was sealed meanwhile, also by another process, no longer draws on its blocks.
    """
    common = {"query": "", "round": "", "who": charge.principal, "scopes": sorted(spent.within)}
    study_block = spent.blocks.get(charge.study)
    sealed = study_block is not None and study_block.sealed
    return encode_body({**charge.body(), **common, "sealed": sealed})


def most(block: int, spent: Spent, cost: Amount, kind: str, refuse: Refuse) -> int:
    """Return the most charges, halving from ``block``, that fit every budget; one is known to fit."""
    while block > 1 and refuse(spent.after(cost, kind, block)) is not None:
        block //= 2
    return max(block, 1)
