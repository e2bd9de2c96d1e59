"""What a release is charged with in a ledger, and what has been charged before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from privfed.exchange.messages import Reason
from privfed.ledger.chain import encode_body
from privfed.privacy.accountant import Amount, plus
from privfed.privacy.loss import Loss


@dataclass(frozen=True)
class Charge:
    """What is reserved before the data are read: public facts only.

    Args:
        principal: who asked.
        request: the request's id.
        kind: the kind of query.
        query: the query's digest.
        loss: what the release costs.
        study: the study that it belongs to.
        policy: digest of the policy that allowed it; an older one than that in force is refused.
        secure: whether the noise is (test noise protects nobody).
        facts: further facts for its line (mechanisms, relation, unit, versions).
        client: the data owner's public name.
        round: the round in which it was asked.
        model: ``central``, or ``local`` where each individual's own bits are noised.
        terms: digest of the terms (budgets, unit, relation) that its gate knows.
    """

    principal: str
    request: str
    kind: str
    query: str
    loss: Loss
    study: str = ""
    policy: str = ""
    secure: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    client: str = ""
    round: str = ""
    model: str = "central"
    terms: str = ""

    def body(self) -> dict[str, Any]:
        """The charge as the plain data of a ledger row."""
        return {
            "kind": self.kind,
            "query": self.query,
            "loss": self.loss.to_dict(),
            "study": self.study,
            "policy": self.policy,
            "secure": self.secure,
            "client": self.client,
            "round": self.round,
            "model": self.model,
            **self.facts,
        }

    def aspects(self, time: str) -> dict[str, str]:
        """What limits tell charges apart by."""
        return {
            "study": self.study,
            "round": self.round,
            "kind": self.kind,
            "client": self.client,
            "principal": self.principal,
            "month": time[:7],
            "model": self.model,
        }


@dataclass
class Spent:
    """What has been charged so far, under one accountant.

    Args:
        total: the sum of all charges.
        unprotected: how many of them have no finite guarantee.
        times: how often each kind was charged; of the charge at hand, in its own study.
        within: the total of each scope that the charge at hand counts towards.
        aspects: what the charge at hand is told apart by.
        time: when it was looked up, and the charge at hand is made.
        basis: what the total's bounds rest on beside what is derived; see :class:`.Loss`.
    """

    total: Amount
    unprotected: int = 0
    times: dict[str, int] = field(default_factory=dict)
    within: dict[str, Amount] = field(default_factory=dict)
    aspects: dict[str, str] = field(default_factory=dict)
    time: str = ""
    basis: tuple[str, ...] = ()

    def after(self, cost: Amount, kind: str, count: int) -> Spent:
        """What will have been charged after some more charges of one kind."""
        within = {name: plus(amount, cost, count) for name, amount in self.within.items()}
        times = {**self.times, kind: self.times.get(kind, 0) + count}
        return replace(self, total=plus(self.total, cost, count), times=times, within=within)


#: Gives the reason why a charge on top of what is spent is refused, or none.
Refuse = Callable[[Spent], Reason | None]


def block_key(charge: Charge, spent: Spent) -> bytes:
    """Equal for charges that may be drawn from one block: all but the question and its round.

    Where a limit tells rounds apart, the scopes do.
    """
    asked = {"query": "", "round": "", "who": charge.principal, "scopes": sorted(spent.within)}
    return encode_body({**charge.body(), **asked})


def most(block: int, spent: Spent, cost: Amount, kind: str, refuse: Refuse) -> int:
    """The most charges, halving from a block, that fit every budget at once; one is known to."""
    while block > 1 and refuse(spent.after(cost, kind, block - 1)) is not None:
        block //= 2
    return max(block, 1)
