"""Policies that a fuzzy tree proposes, and how a private one divides its budget."""

from __future__ import annotations

from fractions import Fraction

from privfed.learners.fuzzy_tree.linear import Moments, Residuals
from privfed.learners.fuzzy_tree.percentiles import NOISY_ROUNDS
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.learners.fuzzy_tree.rounds import MOMENTS, RESIDUALS
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy

#: Shares of rho: each of two rounds of histograms, of the features and of the target; the number of
#: records, their summed target and its squares at the root; and the sums by fuzzy set, over all levels.
FEATURES, TARGET = Fraction(2, 100), Fraction(3, 100)
ROOT = {
    "node_weights": Fraction(3, 100),
    "node_linear": Fraction(8, 100),
    "node_squares": Fraction(2, 100),
}
SETS = Fraction(8, 100)
#: Of what is left, the share of the second moments, over all rounds; residuals have the rest.
SECOND = Fraction(45, 100)


def published(strict: bool) -> Policy:
    """Sums with revealing cells nullified, leaf equations as they are; or the strict form."""
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
    """Gaussian noise on everything, rho divided as above; counts and activations never leave.

    Args:
        budget: epsilon and delta.
        levels: that may be asked for.
        scaled: whether percentiles are released; their share goes to the linear models where not.
    """
    rho = largest_rho(budget.epsilon, budget.delta)
    shares: dict[str, list[tuple[tuple[str, ...], Fraction, int]]] = {}
    if scaled:
        shares[Scaling.kind] = [
            (("counts",), FEATURES, NOISY_ROUNDS),
            (("target",), TARGET, NOISY_ROUNDS),
        ]
    times = max(levels, 1)
    shares[Level.kind] = [((name,), share / times, times) for name, share in ROOT.items()]
    if levels:
        shares[Level.kind].append((("weights", "linear", "squares"), SETS / times, times))
    left = 1 - sum(share * times for each in shares.values() for _, share, times in each)
    shares[Moments.kind] = [(("*",), left * SECOND / MOMENTS, MOMENTS)]
    shares[Residuals.kind] = [(("*",), left * (1 - SECOND) / RESIDUALS, RESIDUALS)]
    guards = {
        kind: tuple(
            Guard.of("gaussian", *parts, spend=rho * share, times=times)
            for parts, share, times in each
        )
        for kind, each in shares.items()
    }
    return Policy(guards, accountant="zcdp", budget=budget, name="private")
