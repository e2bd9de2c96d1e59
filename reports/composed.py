"""One total over several policies: what their releases say together about the same records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from privfed.accountants.risk import Tradeoff
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import STATED, Accountant, Amount
from privfed.privacy.loss import Loss, pure_to_zcdp
from privfed.privacy.neighbours import Neighbours, group
from privfed.privacy.policy import Policy
from privfed.questions.exact import float_up
from privfed.reports.account import ClientAccount, PolicyAccount


@dataclass(frozen=True)
class Composed:
    """What all policies together guarantee for one unit of one data owner, if all are carried out.

    Args:
        epsilon: nats, rounded up; none without a finite guarantee.
        delta: at which it holds.
        detection: best membership detection at 1 % false positives.
        unit: what is protected, at each owner by itself, with the relation it is protected under.
        why: why nothing finite can be said, where that is so.
    """

    epsilon: float | None
    delta: float
    detection: float
    unit: str
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data."""
        return dict(vars(self))


def composed(policies: Sequence[PolicyAccount]) -> Composed | None:
    """Compose the policies of a study: they read the same records, so what they cost adds up.

    Each policy enters by its certified ceiling, or by what was spent so far where it has none; then
    only an odometer holds of the sum. All are restated for the coarsest neighbours among them, by
    group privacy, and concentrated losses and pure ones are added as concentrated ones. Deltas of
    their own add up too, beside the one that converts concentrated losses.

    Returns:
        none where there are fewer than two policies.
    """
    if len(policies) < 2:
        return None
    wanted = _coarsest([policy.policy for policy in policies])
    unit = f"{wanted.unit} at each owner ({wanted.relation})"
    try:
        return max(
            (_one(name, policies, wanted, unit) for name in _owners(policies)),
            key=lambda one: one.detection,
        )
    except (UnsupportedLoss, PolicyError) as why:
        return Composed(None, 0.0, 1.0, unit, str(why))


def _owners(policies: Sequence[PolicyAccount]) -> list[str]:
    return list(dict.fromkeys(c.client for policy in policies for c in policy.clients))


def _coarsest(policies: Sequence[Policy]) -> Neighbours:
    """The neighbours that differ the most, for which each policy's guarantee can be restated."""
    found = [Neighbours(p.relation, p.unit, p.cap) for p in policies]
    return max(found, key=lambda a: (a.unit != "record", a.cap or 0, a.relation == "replace-one"))


def _one(name: str, policies: Sequence[PolicyAccount], wanted: Neighbours, unit: str) -> Composed:
    """Compose what one data owner gave under each policy."""
    shares = [(p, c) for p in policies for c in p.clients if c.client == name and c.total]
    open_ = [p.policy.name for p, c in shares if c.unprotected or not c.secure]
    if open_:
        raise UnsupportedLoss(f"{' and '.join(open_)} released without any finite guarantee")
    losses = [_restated(p, c, wanted) for p, c in shares]
    own = sum((loss.delta for loss in losses), Fraction(0))
    if all(p.accountant.components[0] == "epsilon" for p, _ in shares):
        total = _sum(loss.epsilon for loss in losses)
        detection = Tradeoff.approximate(float(total), float(own)).found(0.01)
        return Composed(float(total), float(own), detection, unit)
    rho = _sum(map(_rho, losses))
    stated = [repr(c.delta) for p, c in shares if p.accountant.components[0] == "rho"]
    delta = (max(map(Fraction, stated)) or STATED) + own
    accountant = ZeroConcentrated()
    certified = all(c.ceiling is not None for _, c in shares)
    state = accountant.guarantee if certified else accountant.odometer
    epsilon, _ = state((rho, own), delta)
    curve = (
        Tradeoff.zcdp(float_up(rho), float_up(own))
        if certified
        else Tradeoff.approximate(float(epsilon), float(delta))
    )
    return Composed(float(epsilon), float(delta), curve.found(0.01), unit)


def _rho(loss: Loss) -> Fraction | None:
    """A loss in zCDP; but for an event of its own delta it is pure (Kairouz, Oh, Viswanath 2015)."""
    if loss.rho is None and loss.epsilon is not None:
        return pure_to_zcdp(loss.epsilon)
    return loss.rho


def _sum(amounts: Iterable[Fraction | None]) -> Fraction:
    return sum((amount for amount in amounts if amount is not None), Fraction(0))


def _restated(policy: PolicyAccount, client: ClientAccount, wanted: Neighbours) -> Loss:
    """What one policy's releases may have lost at most, for the wanted neighbours."""
    own = policy.policy
    amount = client.total
    if client.ceiling is not None and own.budget is not None:
        amount = policy.accountant.ceiling(own.budget)
    given = Neighbours(own.relation, own.unit, own.cap)
    return group(_loss(policy.accountant, amount), given.steps(wanted))


def _loss(accountant: Accountant, amount: Amount) -> Loss:
    """An amount as a loss, with the delta that goes with it."""
    first, own = amount
    if own and accountant.components[0] == "rho":
        raise UnsupportedLoss("losses with a delta of their own are not composed over policies")
    if accountant.components[0] == "rho":
        return Loss(rho=first)
    return Loss(first, pure_to_zcdp(first), own)
