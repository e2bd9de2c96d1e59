"""Policies of a fuzzy tree, and the private one's budget."""

from fractions import Fraction

from privfed.learners.fuzzy_tree.linear import Moments, Residuals, ResidualsBySet
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy

ROOT = {
    "node_weights": SETTINGS.root_weight_fraction,
    "node_linear": SETTINGS.root_linear_fraction,
    "node_squares": SETTINGS.root_square_fraction,
}


def published(strict: bool) -> Policy:
    """Return a policy with revealing cells nullified and leaf equations unprotected; or its strict form."""
    if strict:
        guard = (Guard.of("nullify", strict=True),)
        kinds = (Level.kind, Leaves.kind, Activations.kind)
        return Policy(dict.fromkeys(kinds, guard), name="strict")
    guards = {
        Scaling.kind: (Guard.of("open"),),
        Level.kind: (Guard.of("nullify"),),
        Leaves.kind: (Guard.of("open"),),
        Activations.kind: (Guard.of("open"),),
    }
    return Policy(guards, name="published")


def private(budget: Budget, levels: int, scaled: bool) -> Policy:
    """Return a policy with Gaussian noise; no counts and activations, nor percentiles unless `scaled`."""
    rho = largest_rho(budget.epsilon, budget.delta)
    plan: dict[str, list[tuple[tuple[str, ...], Fraction, int]]] = {}
    if scaled:
        plan[Scaling.kind] = [
            (("counts",), SETTINGS.feature_fraction, SETTINGS.noisy_rounds),
            (("target",), SETTINGS.target_fraction, SETTINGS.noisy_rounds),
        ]
    times = max(levels, 1)
    plan[Level.kind] = [((name,), fraction / times, times) for name, fraction in ROOT.items()]
    if levels:
        plan[Level.kind].append(
            (("weights", "linear", "squares"), SETTINGS.set_fraction / times, times)
        )
    rest = 1 - sum(fraction * times for rows in plan.values() for _, fraction, times in rows)
    if levels:
        rest -= SETTINGS.by_set_fraction
        plan[ResidualsBySet.kind] = [(("*",), SETTINGS.by_set_fraction, 1)]
    second = rest * SETTINGS.moment_fraction
    for kind, fraction, times in (
        (Moments.kind, second, SETTINGS.moment_rounds),
        (Residuals.kind, rest - second, SETTINGS.residual_rounds),
    ):
        plan[kind] = [(("*",), fraction / times, times)]
    guards = {
        kind: tuple(
            Guard.of("gaussian", *parts, spend=rho * fraction, times=times)
            for parts, fraction, times in rows
        )
        for kind, rows in plan.items()
    }
    return Policy(guards, accountant="zcdp", budget=budget, name="private")
