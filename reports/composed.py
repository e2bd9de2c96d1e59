"""The composed guarantee of several policies on the same records."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from privfed.accountants.risk import Tradeoff
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import STATED, Accountant, Amount
from privfed.privacy.loss import Loss, basis_in_words, foreign, pure_to_zcdp
from privfed.privacy.neighbours import Neighbours, group
from privfed.privacy.policy import Policy
from privfed.questions.exact import float_up
from privfed.reports.account import ClientAccount, PolicyAccount


@dataclass(frozen=True)
class Composed:
    """Guarantee of all policies together for one unit of one data owner, if all are carried out."""

    epsilon: float | None  #: nats, rounded up; None without a finite guarantee
    delta: float  #: its delta
    detection: float  #: maximum TPR at 1% FPR of membership inference
    unit: str  #: the privacy unit, at each owner separately, with its relation
    why: str = ""  #: why there is no finite guarantee, if so
    basis: str = ""  #: what it rests on beside what is derived, in words; or nothing

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(vars(self))


def composed(policies: Sequence[PolicyAccount]) -> Composed | None:
    """Compose the policies of a study, which read the same records, so that their losses add up; None below two.

    Each policy enters by its certified ceiling, or else by its spending so far; then only an odometer
    holds for the sum. All are restated for the coarsest neighbours among them, by group privacy; pure
    losses are added to concentrated ones as concentrated. Their own deltas add up too, beside the
    delta that converts concentrated losses.
    """
    if len(policies) < 2:
        return None
    wanted = coarsest([policy.policy for policy in policies])
    where = "" if wanted.unit == "client" else " at each owner"
    unit = f"{wanted.unit}{where} ({wanted.relation})"
    try:
        owners = dict.fromkeys(own.client for policy in policies for own in policy.clients)
        each = [_one(name, policies, wanted, unit) for name in owners]
        basis = {name for policy in policies for client in policy.clients for name in client.basis}
        return Composed(  # for any owner: the one found best has not always the largest epsilon
            max(one.epsilon or 0.0 for one in each),
            max(one.delta for one in each),
            max(one.detection for one in each),
            unit,
            basis=basis_in_words(basis),
        )
    except (UnsupportedLoss, PolicyError) as why:
        return Composed(None, 0.0, 1.0, unit, str(why))


def coarsest(policies: Sequence[Policy]) -> Neighbours:
    """Return the neighbours that differ most, for which all guarantees can be restated."""
    found = [Neighbours(p.relation, p.unit, p.cap) for p in policies]
    return max(found, key=lambda a: (a.unit != "record", a.cap or 0, a.relation == "replace-one"))


def _one(name: str, policies: Sequence[PolicyAccount], wanted: Neighbours, unit: str) -> Composed:
    shares = [(p, c) for p in policies for c in p.clients if c.client == name and c.total]
    open_ = [p.policy.name for p, c in shares if c.unprotected or not c.secure]
    if open_:
        raise UnsupportedLoss(f"{' and '.join(open_)} released without any finite guarantee")
    losses = [_restated(p, c, wanted) for p, c in shares]
    own = sum((loss.delta for loss in losses), Fraction(0))
    if all(loss.epsilon is not None for loss in losses):
        total = _sum(loss.epsilon for loss in losses)
        detection = Tradeoff.approximate(float_up(total), float_up(own)).found(0.01)
        return Composed(float_up(total), float_up(own), detection, unit)
    rho = _sum(map(_rho, losses))
    stated = [
        repr(c.delta) for (_, c), loss in zip(shares, losses, strict=True) if loss.epsilon is None
    ]
    delta = (max(map(Fraction, stated)) or STATED) + own
    accountant = ZeroConcentrated()
    if all(c.ceiling is not None for _, c in shares):  # certified
        epsilon, _ = accountant.guarantee((rho, own), delta)
        curve = Tradeoff.zcdp(float_up(rho), float_up(own))
    else:
        epsilon, _ = accountant.odometer((rho, Fraction(0)), delta - own)
        curve = Tradeoff.approximate(float_up(epsilon), float_up(delta))
    return Composed(float_up(epsilon), float_up(delta), curve.found(0.01), unit)


def _rho(loss: Loss) -> Fraction | None:
    """Return a loss in zCDP; outside an event of its own delta it is pure (Kairouz, Oh, Viswanath 2015)."""
    if loss.rho is None and loss.epsilon is not None:
        return pure_to_zcdp(loss.epsilon)
    return loss.rho


def _sum(amounts: Iterable[Fraction | None]) -> Fraction:
    return sum((amount for amount in amounts if amount is not None), Fraction(0))


def _restated(policy: PolicyAccount, client: ClientAccount, wanted: Neighbours) -> Loss:
    """Return the maximum loss of one policy's releases, for the given neighbours."""
    own = policy.policy
    amount = client.total
    if client.ceiling is not None and own.budget is not None:
        amount = policy.accountant.ceiling(own.budget)
    delta = (own.budget.delta if own.budget else None) or STATED
    loss = _loss(policy.accountant, amount, delta, certified=client.ceiling is not None)
    return group(loss, Neighbours(own.relation, own.unit, own.cap).steps(wanted))


def _loss(accountant: Accountant, amount: Amount, delta: Fraction, *, certified: bool) -> Loss:
    """Return an amount as a loss, with its delta; only another's accountant knows what its own amounts mean."""
    if foreign(type(accountant)):
        first, own = (accountant.guarantee if certified else accountant.odometer)(amount, delta)
        return Loss(first, pure_to_zcdp(first), own)
    first, own = amount
    if own and accountant.components[0] == "rho":
        raise UnsupportedLoss("losses with a delta of their own are not composed over policies")
    if accountant.components[0] == "rho":
        return Loss(rho=first)
    return Loss(first, pure_to_zcdp(first), own)
