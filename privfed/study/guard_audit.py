"""Audits of the mechanisms that a policy relies on, at the spends it gives them.

They need no data: each mechanism is run on two neighbouring made-up inputs, and its outputs are held
against what it claims to cost. A passed audit proves nothing; a failed one convicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from privfed.finding import Finding
from privfed.learners.base import Planned
from privfed.mechanism import Guarded, Mechanism, joint
from privfed.named import mechanism_of
from privfed.noise import Noise
from privfed.part import PartType
from privfed.policy import Guard, Policy
from privfed.schema import Schema
from privfed.shield import assign
from privfed.study.price import guarded_under
from privfed.testing.audit import audit

#: How often all audits of one policy together may convict an innocent mechanism.
FAMILY_WISE = 0.01
#: Outputs of one audit, half of them under each input.
TRIALS = 40_000
#: Where a claim in rho is stated, if the policy has no delta of its own.
DELTA = Fraction(1, 10**5)

#: A mechanism at work: itself, its spend, and how far a record moves its input, in grid units (of
#: bits: how many of them one unit can change).
Use = tuple[Mechanism, Fraction, int]


def audit_guards(
    plan: Sequence[Planned], schema: Schema, policy: Policy, noise: Noise | None = None
) -> list[Finding]:
    """Audit each different use of a noise mechanism that a plan makes under a policy.

    Args:
        plan: what will be asked at most.
        schema: the public data dictionary.
        policy: the owner's guards.
        noise: where noise comes from; secure unless a test injects its own.

    Returns:
        one finding for each mechanism, spend and sensitivity: the epsilon that the outputs prove at
        least, out of the claimed one; ``"breach"`` where they refute it.
    """
    uses = {_key(use): (use, kind) for use, kind in _uses(plan, schema, policy)}
    delta = DELTA if policy.budget is None or not policy.budget.delta else policy.budget.delta
    return [
        _audit(use, kind, float(delta), FAMILY_WISE / len(uses), noise)
        for use, kind in uses.values()
    ]


def _audit(use: Use, kind: str, delta: float, alpha: float, noise: Noise | None) -> Finding:
    mechanism, spend, steps = use
    found = audit(
        mechanism,
        spend,
        delta=delta if mechanism.currency == "rho" else 0.0,
        steps=steps,
        trials=TRIALS,
        alpha=alpha,
        noise=noise,
    )
    return Finding(**{**vars(found), "releases": (kind,)})


def _uses(plan: Sequence[Planned], schema: Schema, policy: Policy) -> list[tuple[Use, str]]:
    found = []
    for planned in plan:
        guards = policy.guards.get(planned.query.kind, ())
        parts = planned.query.parts(schema)
        for guard, names in zip(guards, assign(guards, parts), strict=True):
            group = {name: guarded_under(parts[name], policy) for name in names}
            spend = guard.amount(planned.spend)
            found += [(use, planned.query.kind) for use in _use(guard, spend, group)]
    return found


def _use(guard: Guard, spend: Fraction, group: Mapping[str, Guarded]) -> list[Use]:
    """The guard's use, if it is one of noise."""
    mechanism = mechanism_of(guard)
    if not group or mechanism.currency is None or not mechanism.supports(group):
        return []
    bound = joint(group)
    numbers = all(guarded.part.type != PartType.BITS for guarded in group.values())
    euclidean = mechanism.currency == "rho" and numbers
    steps = math.isqrt(bound.l2_squared) if euclidean else bound.l1
    return [(mechanism, spend, steps)] if steps else []


def _key(use: Use) -> tuple[str, Fraction, int]:
    mechanism, spend, steps = use
    return mechanism.name, spend, steps
