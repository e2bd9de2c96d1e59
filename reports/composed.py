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
    basis: str = ""  #: its basis besides derivations, in words; empty if there is none

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return dict(vars(self))


def composed(policies: Sequence[PolicyAccount]) -> Composed | None:
    """Compose the policies of a study, which read the same records; None for fewer than two.

    Each policy enters by its certified ceiling, or else by its spending so far; then only an odometer
    holds for the sum. All are restated for the coarsest neighbours among them, by group privacy, except
    a policy of records for persons: its answers are about all of a person's records, of any number. Pure
    losses are added to concentrated ones as concentrated. Their own deltas add up too, in addition to the
    delta that converts concentrated losses.
    """
    if len(policies) < 2:
        return None
    coarse = coarsest([policy.policy for policy in policies])
    where = "" if coarse.unit == "client" else " at each owner"
    unit = f"{coarse.unit}{where} ({coarse.relation})"
    try:
        owners = dict.fromkeys(account.client for policy in policies for account in policy.clients)
        results = [_owner(name, policies, coarse, unit) for name in owners]
        basis = {name for policy in policies for client in policy.clients for name in client.basis}
        return Composed(  # over owners: detection and epsilon may be largest at different ones
            max(result.epsilon or 0.0 for result in results),
            max(result.delta for result in results),
            max(result.detection for result in results),
            unit,
            basis=basis_in_words(basis),
        )
    except (UnsupportedLoss, PolicyError) as why:
        return Composed(None, 0.0, 1.0, unit, str(why))


def coarsest(policies: Sequence[Policy]) -> Neighbours:
    """Return the coarsest neighbours, for which all guarantees can be restated."""
    units = [Neighbours(p.relation, p.unit, p.cap) for p in policies]
    return max(units, key=lambda a: (a.unit != "record", a.cap or 0, a.relation == "replace-one"))


def _owner(name: str, policies: Sequence[PolicyAccount], coarse: Neighbours, unit: str) -> Composed:
    accounts = [(p, c) for p in policies for c in p.clients if c.client == name and c.total]
    open_ = [p.policy.name for p, c in accounts if c.unprotected or not c.secure]
    if open_:
        names = " and ".join(filter(None, [", ".join(open_[:-1]), open_[-1]]))
        raise UnsupportedLoss(f"{names} released without any finite guarantee")
    losses = [_restated(p, c, coarse) for p, c in accounts]
    added = sum((loss.delta for loss in losses), Fraction(0))
    if all(loss.epsilon is not None for loss in losses):
        total = _sum(loss.epsilon for loss in losses)
        detection = Tradeoff.approximate(float_up(total), float_up(added)).found(0.01)
        return Composed(float_up(total), float_up(added), detection, unit)
    rho = _sum(map(_rho, losses))
    stated = [
        repr(c.delta) for (_, c), loss in zip(accounts, losses, strict=True) if loss.epsilon is None
    ]
    delta = (max(map(Fraction, stated)) or STATED) + added
    accountant = ZeroConcentrated()
    if all(c.ceiling is not None for _, c in accounts):  # certified
        epsilon, _ = accountant.guarantee((rho, added), delta)
        curve = Tradeoff.zcdp(float_up(rho), float_up(added))
    else:
        epsilon, _ = accountant.odometer((rho, Fraction(0)), delta - added)
        curve = Tradeoff.approximate(float_up(epsilon), float_up(delta))
    return Composed(float_up(epsilon), float_up(delta), curve.found(0.01), unit)


def _rho(loss: Loss) -> Fraction | None:
    """Return a loss in zCDP; outside an event of its own delta it is pure (Kairouz, Oh, Viswanath 2015)."""
    if loss.rho is None and loss.epsilon is not None:
        return pure_to_zcdp(loss.epsilon)
    return loss.rho


def _sum(amounts: Iterable[Fraction | None]) -> Fraction:
    return sum((amount for amount in amounts if amount is not None), Fraction(0))


def _restated(policy: PolicyAccount, client: ClientAccount, coarse: Neighbours) -> Loss:
    """Return the maximum loss of one policy's releases, for the given neighbours."""
    rules = policy.policy
    if rules.unit == "record" != coarse.unit:  # only a cap in its own policy left records out
        raise UnsupportedLoss(
            f"no theorem leads from unit 'record' to {coarse.unit!r}: {rules.name} released answers about all "
            f"records of one {coarse.unit}, of any number"
        )
    amount, budget = client.total, client.in_force or rules.budget  # owners' budgets may differ
    if client.ceiling is not None and budget is not None:
        amount = policy.accountant.ceiling(budget)
    delta = (budget.delta if budget else None) or STATED
    loss = _loss(policy.accountant, amount, delta, certified=client.ceiling is not None)
    return group(loss, Neighbours(rules.relation, rules.unit, rules.cap).steps(coarse))


def _loss(accountant: Accountant, amount: Amount, delta: Fraction, *, certified: bool) -> Loss:
    """Return an amount as a loss, with its delta; amounts of a plugin's accountant are converted by it."""
    if foreign(type(accountant)):
        first, added = (accountant.guarantee if certified else accountant.odometer)(amount, delta)
        return Loss(first, pure_to_zcdp(first), added)
    first, added = amount
    if added and accountant.components[0] == "rho":
        raise UnsupportedLoss("losses with a delta of their own are not composed over policies")
    if accountant.components[0] == "rho":
        return Loss(rho=first)
    return Loss(first, pure_to_zcdp(first), added)
