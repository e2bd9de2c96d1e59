"""Policies that a fuzzy tree proposes, and how a private one divides its budget."""

from __future__ import annotations

from fractions import Fraction

from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy

#: Shares of rho: each of two rounds of histograms, of the features and of the target; the number of
#: records and their summed target at the root; and the sums by fuzzy set, over all levels.
FEATURES, TARGET = Fraction(1, 20), Fraction(1, 100)
WEIGHT, LINEAR, SETS = Fraction(2, 100), Fraction(6, 100), Fraction(8, 100)
#: Of what is left, each of two sets of equations gets a half, of which its left side this share.
LEFT_SIDE = Fraction(2, 3)


def published(strict: bool) -> Policy:
    """Sums with revealing cells nullified, leaf equations as they are; or the strict form."""
    if strict:
        guard = (Guard.of("nullify", strict=True),)
        return Policy(
            dict.fromkeys((Level.kind, Leaves.kind, Activations.kind), guard), name="strict"
        )
    guards = {
        Scaling.kind: (Guard.of("open", "counts"),),
        Level.kind: (Guard.of("nullify"),),
        Leaves.kind: (Guard.of("open"),),
        Activations.kind: (Guard.of("open"),),
    }
    return Policy(guards, name="published")


def private(budget: Budget, levels: int, scaled: bool) -> Policy:
    """Gaussian noise on everything, rho divided as above; counts and activations never leave.

    Two sets of equations are planned: those of all records, and those of the leaves, or all records'
    again where leaves would not pay.

    Args:
        budget: epsilon and delta.
        levels: that may be asked for.
        scaled: whether percentiles are released; their share goes to the equations where not.
    """
    rho = largest_rho(budget.epsilon, budget.delta)
    guards: dict[str, tuple[Guard, ...]] = {}
    if scaled:
        guards[Scaling.kind] = (
            Guard.of("gaussian", "counts", spend=rho * FEATURES, times=2),
            Guard.of("gaussian", "target", spend=rho * TARGET, times=2),
        )
    times = max(levels, 1)
    parts: list[tuple[tuple[str, ...], Fraction]] = [
        (("node_weights",), WEIGHT),
        (("node_linear",), LINEAR),
    ]
    if levels:
        parts.append((("weights", "linear", "squares"), SETS))
    guards[Level.kind] = tuple(
        Guard.of("gaussian", *names, spend=rho * share / times, times=times)
        for names, share in parts
    )
    spent = sum((share for _, share in parts), Fraction(0))
    equations = rho * (1 - spent - (2 * (FEATURES + TARGET) if scaled else 0)) / 2
    guards[Leaves.kind] = (
        Guard.of("gaussian", "gram", spend=equations * LEFT_SIDE, times=2),
        Guard.of("gaussian", "moment", spend=equations * (1 - LEFT_SIDE), times=2),
    )
    return Policy(guards, accountant="zcdp", budget=budget, name="private")
