"""Audits of the mechanisms that a policy relies on, at its spends; no data are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from privfed.attacks.finding import Finding
from privfed.audits.groups import audit_guarded
from privfed.audits.mechanisms import Group
from privfed.learners.base import Planned
from privfed.owner.guards import assign, bounded_under
from privfed.privacy.mechanism import joint
from privfed.privacy.noise import Noise
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import mechanism_of
from privfed.tables.schema import Schema

FAMILY_WISE = 0.01  #: How often all audits of one policy together may convict an innocent mechanism
TRIALS, GROUP_TRIALS = 40_000, 6_000  #: Outputs of one audit, on one cell and on the real group
DELTA = Fraction(1, 10**5)  #: Where a claim in rho is stated, if the policy has no delta of its own


@dataclass(frozen=True)
class GuardUse:
    """A guard at work on a planned query of a kind: its parts with their bounds, its spend."""

    kind: str
    guard: Guard
    group: Group
    spend: Fraction

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for uses that differ in the number of cells alone."""
        parts = tuple((n, g.part.type, g.part.grid, g.bound) for n, g in self.group.items())
        return self.guard.called, repr(self.guard.to_dict().get("options")), self.spend, parts

    @property
    def cells(self) -> int:
        """How many cells the guard protects."""
        return sum(bounded.part.size for bounded in self.group.values())


def audit_guards(
    plan: Sequence[Planned], schema: Schema, policy: Policy, noise: Noise | None = None
) -> list[Finding]:
    """Audit each different use of a noise mechanism that a plan makes under a policy.

    Args:
        plan, schema: the most that will be asked, and the public data dictionary.
        policy: the owner's guards.
        noise: where noise comes from; secure unless given.

    Returns:
        one finding for each mechanism, spend and group of bounds: the epsilon that the outputs
        prove at least, out of the claimed one; ``"breach"`` where they refute it.
    """
    uses: dict[tuple[object, ...], GuardUse] = {}
    for use in _uses(plan, schema, policy):
        uses[use.key] = max(uses.get(use.key, use), use, key=lambda each: each.cells)
    delta = DELTA if policy.budget is None or not policy.budget.delta else policy.budget.delta
    found = []
    for use in uses.values():
        finding = audit_guarded(
            partial(mechanism_of, use.guard),
            use.group,
            use.spend,
            delta=float(delta),
            trials=(TRIALS, GROUP_TRIALS),
            alpha=FAMILY_WISE / len(uses),
            noise=noise,
        )
        found.append(replace(finding, releases=(use.kind,)))
    return found


def _uses(plan: Sequence[Planned], schema: Schema, policy: Policy) -> Iterator[GuardUse]:
    """Every use of a guard that adds noise to what a record can change."""
    for planned in plan:
        guards = policy.guards.get(planned.query.kind, ())
        parts = planned.query.parts(schema)
        for guard, names in zip(guards, assign(guards, parts), strict=True):
            group = {name: bounded_under(parts[name], policy) for name in names}
            mechanism = mechanism_of(guard)
            noisy = mechanism.currency is not None and mechanism.supports(group)
            if group and noisy and joint(group).l1:
                yield GuardUse(planned.query.kind, guard, group, guard.amount(planned.spend))
