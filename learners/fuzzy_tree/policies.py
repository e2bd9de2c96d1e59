"""Policies of a fuzzy tree, and the private one's budget."""

from fractions import Fraction

from privfed.learners.fuzzy_tree.linear import Moments, Residuals
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
    shares: dict[str, list[tuple[tuple[str, ...], Fraction, int]]] = {}
    if scaled:
        shares[Scaling.kind] = [
            (("counts",), SETTINGS.feature_fraction, SETTINGS.noisy_rounds),
            (("target",), SETTINGS.target_fraction, SETTINGS.noisy_rounds),
        ]
    times = max(levels, 1)
    shares[Level.kind] = [((name,), share / times, times) for name, share in ROOT.items()]
    if levels:
        shares[Level.kind].append(
            (("weights", "linear", "squares"), SETTINGS.set_fraction / times, times)
        )
    left = 1 - sum(share * times for each in shares.values() for _, share, times in each)
    second = left * SETTINGS.moment_fraction
    for kind, share, times in (
        (Moments.kind, second, SETTINGS.moment_rounds),
        (Residuals.kind, left - second, SETTINGS.residual_rounds),
    ):
        shares[kind] = [(("*",), share / times, times)]
    guards = {
        kind: tuple(
            Guard.of("gaussian", *parts, spend=rho * share, times=times)
            for parts, share, times in each
        )
        for kind, each in shares.items()
    }
    return Policy(guards, accountant="zcdp", budget=budget, name="private")
