"""Audits of a policy's mechanisms, at its spends; no data are read."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.groups import audit_guarded, narrow
from privfed.audits.mechanisms import Group
from privfed.audits.noise import audit_noise
from privfed.learners.base import Planned
from privfed.owner.guards import assign, bounded_under
from privfed.owner.noise_monitor import NoiseMonitor, OtherOwners
from privfed.privacy.mechanism import joint
from privfed.privacy.noise import Noise, SecureNoise
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import mechanism_of
from privfed.questions.part import PartType
from privfed.tables.schema import Schema

SOURCES = "audit of the owners' noise sources"  #: Name of the findings of :func:`audit_sources`
#: Family-wise level of all audits of one policy on one set of outputs.
#: A mechanism at exactly its claim attains it, so that :func:`confirmed` requires two rejections.
FAMILY_WISE = 0.01
TRIALS, GROUP_TRIALS = 40_000, 6_000  #: Outputs of one audit, on one cell and on the real group
DELTA = Fraction(1, 10**5)  #: At which a claim in rho is stated, if the policy has no delta
SOURCE_LEVEL = 0.001  #: Level of the tests of sources on one set of draws
OWNERS, CALLS = 2, (3, 256)  #: Owners of an audited source, and each one's calls by a use
DRAWN = 2**11  #: Cells of a use that each owner draws: secure noise takes 20 microseconds a cell
FAR = 64  #: Distance from zero of every second answer, in standard deviations of the noise


@dataclass(frozen=True)
class GuardUse:
    """A guard on a planned query of a kind: its parts with their bounds, its spend."""

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
        """Number of cells that the guard protects."""
        return sum(bounded.part.size for bounded in self.group.values())


def audit_guards(
    plan: Sequence[Planned], schema: Schema, policy: Policy, noise: Noise | None = None
) -> list[Finding]:
    """Audit each different use of a noise mechanism that a plan makes under a policy.

    Args:
        plan, schema: the longest schedule of queries, and the public data dictionary.
        policy: the owner's guards.
        noise: source of noise; secure by default.

    Returns:
        one finding for each mechanism, spend and group of bounds: the epsilon that the outputs
        prove at least, out of the claimed one; ``"breach"`` if they refute it twice
        (:func:`confirmed`).
    """
    uses = different_uses(plan, schema, policy)
    delta = DELTA if policy.budget is None or not policy.budget.delta else policy.budget.delta
    findings = []
    for use in uses:
        trial = partial(
            audit_guarded,
            partial(mechanism_of, use.guard),
            use.group,
            use.spend,
            delta=float(delta),
            trials=(TRIALS, GROUP_TRIALS),
            alpha=FAMILY_WISE / len(uses),
            noise=noise,
        )
        findings.append(replace(confirmed(trial), releases=(use.kind,)))
    return findings


def confirmed(audit: Callable[[], Finding]) -> Finding:
    """Audit, and repeat a breach on new outputs; of two breaches return the smaller bound.

    An audit that rejects correct noise at level alpha does so twice, independently, at level at most
    alpha squared; one that detects a fault with probability p still does with p squared. A deterministic proof, without
    ``confidence``, is not repeated.
    """
    finding = audit()
    by_chance = finding.severity == "breach" and "confidence" in finding.detail
    return min(finding, audit(), key=_proven) if by_chance else finding


def _proven(finding: Finding) -> tuple[bool, float]:
    return finding.severity == "breach", finding.value


def audit_sources(
    plan: Sequence[Planned],
    schema: Schema,
    policy: Policy,
    source: Callable[[int], Noise] = lambda _: SecureNoise(),
) -> list[Finding]:
    """Audit the owners' sources of noise: release minus exact, near zero and far from it, at the plan's shapes.

    Every different use draws for several owners, in several calls each. Tests are those of
    :func:`privfed.audits.noise.audit_noise`, a breach is repeated on further draws as in :func:`confirmed`, and wide
    parts are narrowed.

    Args:
        plan, schema, policy: as in :func:`audit_guards`.
        source: returns an owner's source by her number; secure by default.
    """
    uses, noises = different_uses(plan, schema, policy), [source(owner) for owner in range(OWNERS)]
    findings = _audit_draws(uses, noises)
    if any(finding.severity == "breach" for finding in findings):
        findings = [min(*findings, *_audit_draws(uses, noises), key=_proven)]
    return [replace(finding, attack=SOURCES) for finding in findings]


def _audit_draws(uses: Sequence[GuardUse], noises: Sequence[Noise]) -> list[Finding]:
    """Draw from every source for every use, and test the noise; one finding, or none without noise."""
    tallies, others = {}, OtherOwners()
    for owner, noise in enumerate(noises):
        monitor = NoiseMonitor(secret=os.urandom(16))
        monitor.others = others
        for number, use in enumerate(uses):
            group = {name: narrow(bounded) for name, bounded in use.group.items()}
            priced = mechanism_of(use.guard).price(group, use.spend)
            cells = sum(bounded.part.size for bounded in group.values())
            for call in range(int(np.clip(DRAWN // cells, *CALLS))):
                exact = {
                    name: np.full(bounded.part.shape, bool(call % 2))
                    if bounded.part.type == PartType.BITS
                    else np.full(bounded.part.shape, call % 2 * round(FAR * priced.laws[name].std))
                    for name, bounded in group.items()
                    if name in priced.laws
                }
                if set(exact) == set(group):
                    released = priced.protect(exact, noise)
                    monitor.observe(use.kind, f"{number} {call}", priced, exact, released)
        tallies[f"owner {owner}"] = monitor.tally
    return audit_noise(tallies, family_wise=SOURCE_LEVEL)


def different_uses(plan: Sequence[Planned], schema: Schema, policy: Policy) -> list[GuardUse]:
    """The uses of noise mechanisms in a plan; of equal ones the one with the most cells."""
    uses: dict[tuple[object, ...], GuardUse] = {}
    for use in _uses(plan, schema, policy):
        uses[use.key] = max(uses.get(use.key, use), use, key=lambda u: u.cells)
    return list(uses.values())


def _uses(plan: Sequence[Planned], schema: Schema, policy: Policy) -> Iterator[GuardUse]:
    """Yield every use of a guard that adds noise to parts that a record can change."""
    for planned in plan:
        guards = policy.guards.get(planned.query.kind, ())
        parts = planned.query.parts(schema)
        for guard, names in zip(guards, assign(guards, parts), strict=True):
            group = {name: bounded_under(parts[name], policy) for name in names}
            mechanism = mechanism_of(guard)
            noisy = mechanism.currency is not None and mechanism.supports(group)
            if group and noisy and joint(group).l1:
                yield GuardUse(planned.query.kind, guard, group, guard.amount(planned.spend))
