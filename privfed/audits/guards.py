"""Audits of the mechanisms that a policy relies on, at its spends; no data are read."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.groups import audit_guarded, narrowed
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

SOURCES = "audit of the owners' noise sources"  #: What findings of :func:`audit_sources` are called
#: How often all audits of one policy together may convict an innocent mechanism on one set of outputs.
#: An honest one at exactly its claim reaches it, so that :func:`confirmed` asks for two convictions.
FAMILY_WISE = 0.01
TRIALS, GROUP_TRIALS = 40_000, 6_000  #: Outputs of one audit, on one cell and on the real group
DELTA = Fraction(1, 10**5)  #: Where a claim in rho is stated, if the policy has no delta of its own
SOURCE_LEVEL = 0.001  #: How often honest sources may be convicted on one set of draws
OWNERS, CALLS = 2, (3, 256)  #: Owners of an audited source, and each one's calls by a use
DRAWN = 2**11  #: Cells of a use that each owner draws: secure noise takes 20 microseconds a cell
FAR = 64  #: How far from zero every second answer lies, in deviations of the noise


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
        prove at least, out of the claimed one; ``"breach"`` where they refute it twice
        (:func:`confirmed`).
    """
    uses = different_uses(plan, schema, policy)
    delta = DELTA if policy.budget is None or not policy.budget.delta else policy.budget.delta
    found = []
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
        found.append(replace(confirmed(trial), releases=(use.kind,)))
    return found


def confirmed(audit: Callable[[], Finding]) -> Finding:
    """Audit, and once more on outputs drawn anew if it convicts; of two convictions the one that proves less.

    An audit that convicts honest noise at most at level alpha does so twice, independently, at most at
    alpha squared; one that convicts a fault with probability p still does with p squared. What is proven without
    chance, and has no ``confidence``, stands at once.
    """
    found = audit()
    chance = found.severity == "breach" and "confidence" in found.detail
    return min(found, audit(), key=_proven) if chance else found


def _proven(finding: Finding) -> tuple[bool, float]:
    return finding.severity == "breach", finding.value


def audit_sources(
    plan: Sequence[Planned],
    schema: Schema,
    policy: Policy,
    source: Callable[[int], Noise] = lambda _: SecureNoise(),
) -> list[Finding]:
    """Audit the owners' sources of noise: release less exact, near zero and far from it, at the shapes that are asked.

    Every different use draws for several owners, in several calls each. Tests are those of
    :func:`privfed.audits.noise.audit_noise`, a conviction is tried again on further draws as in :func:`confirmed`, and wide
    parts are narrowed to so many cells.

    Args:
        plan, schema, policy: as in :func:`audit_guards`.
        source: gives an owner's source by her number; secure unless given.
    """
    uses, noises = different_uses(plan, schema, policy), [source(owner) for owner in range(OWNERS)]
    found = _drawn(uses, noises)
    if any(finding.severity == "breach" for finding in found):
        found = [min(*found, *_drawn(uses, noises), key=_proven)]
    return [replace(finding, attack=SOURCES) for finding in found]


def _drawn(uses: Sequence[GuardUse], noises: Sequence[Noise]) -> list[Finding]:
    """Let every source serve every use, and test what it drew; one finding, or none without noise."""
    tallies, others = {}, OtherOwners()
    for owner, noise in enumerate(noises):
        monitor = NoiseMonitor(secret=os.urandom(16))
        monitor.others = others
        for number, use in enumerate(uses):
            group = {name: narrowed(bounded) for name, bounded in use.group.items()}
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
                    told = priced.protect(exact, noise)
                    monitor.observe(use.kind, f"{number} {call}", priced, exact, told)
        tallies[f"owner {owner}"] = monitor.tally
    return audit_noise(tallies, family_wise=SOURCE_LEVEL)


def different_uses(plan: Sequence[Planned], schema: Schema, policy: Policy) -> list[GuardUse]:
    """The uses of noise mechanisms that a plan makes, of equal ones that of the most cells."""
    uses: dict[tuple[object, ...], GuardUse] = {}
    for use in _uses(plan, schema, policy):
        uses[use.key] = max(uses.get(use.key, use), use, key=lambda each: each.cells)
    return list(uses.values())


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
