"""A data owner's policy at another epsilon: all spends multiplied by one factor."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from privfed.errors import StudyError
from privfed.learners.base import FederatedLearner
from privfed.privacy.accountant import Budget, fraction_of
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import accountant_of
from privfed.study.price import price
from privfed.study.private_evaluation import whole_plan
from privfed.tables.schema import Schema

STEPS = 24  #: Bisection steps for the factor, if the ratio of ceilings does not fit
CLOSE = Fraction(99, 100)  #: Minimum of the intended fraction of the budget that is accepted
GRID = 10**12  #: Denominator of spends, which are rounded down


def rescaled(policy: Policy, epsilon: Fraction, model: FederatedLearner, schema: Schema) -> Policy:
    """Return the policy with another epsilon, whose plan takes the same fraction of the budget.

    Budget and limits are multiplied by the ratio of the epsilons; delta, guards' times and all else are
    unchanged. Spends and caps are multiplied by one factor: the ratio of the ceilings in the accountant's
    currency if losses are linear in spends, else the largest one by bisection.

    Raises:
        StudyError: the policy has no budget, or its plan no finite cost.
    """
    if policy.budget is None:
        raise StudyError(
            f"policy {policy.name!r} has no [budget] to set to another epsilon; write one into its "
            "file, or leave epsilon out"
        )
    if epsilon == policy.budget.epsilon:
        return policy
    quotient = epsilon / policy.budget.epsilon
    within = replace(
        policy,
        budget=Budget(epsilon, policy.budget.delta),
        limits=tuple(
            replace(limit, budget=Budget(limit.budget.epsilon * quotient, limit.budget.delta))
            for limit in policy.limits
        ),
    )

    accountant = accountant_of(policy)

    def taken(candidate: Policy) -> Fraction:
        assert candidate.budget is not None
        cost = price(whole_plan(model, schema, candidate), schema, candidate)
        return fraction_of(cost.amount, accountant.ceiling(candidate.budget))

    before, after = (accountant.ceiling(p.budget) for p in (policy, within) if p.budget)
    return _bisect(within, after[0] / before[0], taken, min(taken(policy), Fraction(1)))


def _bisect(
    within: Policy, factor: Fraction, taken: Callable[[Policy], Fraction], target: Fraction
) -> Policy:
    """Return the policy with spends times a factor near the given one, so that its plan takes ``target``."""
    candidate = _scale(within, factor)
    if CLOSE * target <= taken(candidate) <= target:
        return candidate
    low, high = Fraction(0), factor
    while taken(_scale(within, high)) <= target and high < 2**STEPS * factor:
        low, high = high, 2 * high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if taken(_scale(within, middle)) <= target else (low, middle)
    return _scale(within, low)


def _scale(policy: Policy, factor: Fraction) -> Policy:
    """Return the policy with spends and caps times a factor, rounded down."""

    def scaled(amount: Fraction | None) -> Fraction | None:
        return None if amount is None else Fraction(int(amount * factor * GRID), GRID)

    def of(guard: Guard) -> Guard:
        return replace(guard, spend=scaled(guard.spend), cap=scaled(guard.cap))

    return replace(
        policy, guards={kind: tuple(map(of, guards)) for kind, guards in policy.guards.items()}
    )
