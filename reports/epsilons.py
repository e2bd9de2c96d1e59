"""Three epsilons of each data owner under each policy: claimed, audited and attacked.

The true epsilon of what left lies at most at the first and at least at the other two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import logit

from privfed.attacks.finding import Finding
from privfed.privacy.accountant import STATED
from privfed.privacy.conversion import gaussian_epsilon

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from privfed.reports.account import ClientAccount
    from privfed.reports.budget import PolicyReport, Report

RATE = 0.01  #: False positives at which attacks' rates are told
BY_OWNER = "by client"  #: Key of a finding's figures by owner
AT_MOST = 12  #: Owners of one policy that are drawn, those attacked most


@dataclass(frozen=True)
class Epsilons:
    """What one owner's releases cost a record of hers, nats, from above and below; None for what nobody looked for."""

    policy: str
    client: str
    claimed: float  #: at most: what the ledger proves, infinite without a finite guarantee
    audited: float | None  #: at least: what outputs, or whole trainings on canaries, prove
    audit_claim: float | None  #: what was claimed of what was audited, one release or all
    attacked: float | None  #: what the strongest attack attains


def epsilons(report: Report) -> tuple[Epsilons, ...]:
    """Return the figures of all owners under all policies that released something."""
    return tuple(
        Epsilons(
            policy.name,
            client.client,
            client.proved if policy.secure and client.proved is not None else math.inf,
            *_found(policy, client),
        )
        for policy in report.policies
        if not policy.silent
        for client in policy.clients
    )


def plot(report: Report, ax: Axes | None = None) -> Axes:
    """Draw the figures, owner below owner; return the axes."""
    from matplotlib.figure import Figure

    from privfed.reports.charts import epsilon_rows

    axes = Figure(layout="constrained").subplots() if ax is None else ax
    epsilon_rows(axes, drawn(report))
    return axes


def drawn(report: Report) -> list[Epsilons]:
    """Return the rows of the picture: of many owners under one policy those attacked most; None without any figure."""
    rows, kept = epsilons(report), []
    if all(row.audited is None and row.attacked is None for row in rows):
        return []
    for name in dict.fromkeys(row.policy for row in rows):
        own = [row for row in rows if row.policy == name]
        most = sorted(own, key=lambda row: -(row.attacked or 0.0))[:AT_MOST]
        kept += [row for row in own if row in most]
    return kept


def _found(
    policy: PolicyReport, client: ClientAccount
) -> tuple[float | None, float | None, float | None]:
    """The largest lower bound of an audit with its own claim, and the largest epsilon that an attack attains."""
    delta = client.delta or float(STATED if client.unprotected else 0)
    asked = {step.kind for step in client.steps}
    by_owner = {one.attack for one in policy.findings if BY_OWNER in one.detail}
    audited: list[tuple[float, float | None]] = []
    attacked: list[float] = []
    for found in policy.findings:
        if found.releases and asked.isdisjoint(found.releases):
            continue
        if found.metric.startswith("epsilon proven") and found.detail.get("delta", 0.0) >= delta:
            audited.append((found.value, found.of))
        if found.attack not in by_owner:
            attacked += _proven(found, 0.0 if client.unprotected else delta)
        attacked += _attained(found.detail.get(BY_OWNER, {}).get(client.client, {}), delta)
    most = max(audited, key=lambda each: each[0], default=(None, None))
    return *most, max(attacked, default=None)


def _attained(own: Mapping[str, float], delta: float) -> Iterator[float]:
    """The epsilon by which the noise of known law hides an owner's record least."""
    if "epsilon" in own:
        yield own["epsilon"]
    if own.get("mu"):
        yield gaussian_epsilon(own["mu"], delta) if delta else math.inf


def _proven(found: Finding, delta: float) -> Iterator[float]:
    """The epsilon that a rate over all owners stands for, if a guarantee bounds it.

    By (epsilon, delta) a test finds at most e^epsilon times its false positives, plus delta, and the area
    under its curve is at most e^epsilon / (1 + e^epsilon), plus delta.
    """
    gained = (found.value if found.low is None else found.low) - delta
    if found.limit == "found at 1 %":
        yield math.log(max(gained / RATE, 1.0))
    elif found.limit == "area":
        yield max(float(logit(min(max(gained, 0.5), 1.0))), 0.0)
