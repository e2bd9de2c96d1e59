"""Three epsilons of each data owner under each policy: claimed, audited and attacked.

The true epsilon of the releases is at most the first and at least the other two.
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

RATE = 0.01  #: FPR at which attacks state their TPR
BY_OWNER = "by client"  #: Key of a finding's figures by owner
AT_MOST = 12  #: Most owners of one policy that are drawn


@dataclass(frozen=True)
class Epsilons:
    """Upper and lower bounds on the epsilon of one owner's releases, in nats; None for bounds not examined."""

    policy: str
    client: str
    claimed: float  #: upper bound of the ledger, infinite without a finite guarantee
    audited: float | None  #: lower bound of audits, of outputs or of trainings on canaries
    audit_claim: float | None  #: claimed epsilon of the audited releases, one or all
    attacked: float | None  #: epsilon that the strongest attack attains


def epsilons(report: Report) -> tuple[Epsilons, ...]:
    """Return the figures of all owners under all policies that released something."""
    return tuple(
        Epsilons(
            policy.name,
            client.client,
            client.proved if policy.secure and client.proved is not None else math.inf,
            *_bounds(policy, client),
        )
        for policy in report.policies
        if not policy.silent
        for client in policy.clients
    )


def plot(report: Report, ax: Axes | None = None) -> Axes:
    """Draw the figures, one row per owner; returns the axes."""
    from matplotlib.figure import Figure

    from privfed.reports.charts import epsilon_rows

    axes = Figure(layout="constrained").subplots() if ax is None else ax
    epsilon_rows(axes, drawn_rows(report))
    return axes


def drawn_rows(report: Report) -> list[Epsilons]:
    """Return the rows to draw, per policy the :data:`AT_MOST` with the highest attacked epsilon; empty without figures."""
    rows, kept = epsilons(report), []
    if all(row.audited is None and row.attacked is None for row in rows):
        return []
    for name in dict.fromkeys(row.policy for row in rows):
        of_policy = [row for row in rows if row.policy == name]
        strongest = sorted(of_policy, key=lambda row: -(row.attacked or 0.0))[:AT_MOST]
        kept += [row for row in of_policy if row in strongest]
    return kept


def _bounds(
    policy: PolicyReport, client: ClientAccount
) -> tuple[float | None, float | None, float | None]:
    """Largest lower bound of an audit, its claim, and the largest epsilon that an attack attains."""
    delta = client.delta or float(STATED if client.unprotected else 0)
    queried = {step.kind for step in client.steps}
    by_owner = {finding.attack for finding in policy.findings if BY_OWNER in finding.detail}
    audited: list[tuple[float, float | None]] = []
    attacked: list[float] = []
    for f in policy.findings:
        if f.releases and queried.isdisjoint(f.releases):
            continue
        if f.metric.startswith("epsilon proven") and f.detail.get("delta", 0.0) >= delta:
            audited.append((f.value, f.of))
        if f.attack not in by_owner:
            attacked += _proven(f, 0.0 if client.unprotected else delta)
        attacked += _attained(f.detail.get(BY_OWNER, {}).get(client.client, {}), delta)
    best = max(audited, key=lambda pair: pair[0], default=(None, None))
    return *best, max(attacked, default=None)


def attained(policy: PolicyReport) -> float | None:
    """Return the largest attacked epsilon of a policy's owners, if finite and above 0: a best test's, though none found more than chance."""
    figures = [_bounds(policy, client)[2] or 0.0 for client in policy.clients]
    largest = max(figures, default=0.0)
    return largest if 0 < largest < math.inf else None


def _attained(figures: Mapping[str, float], delta: float) -> Iterator[float]:
    """Yield the epsilon of an owner's least protected record under noise of a known distribution."""
    if "epsilon" in figures:
        yield figures["epsilon"]
    if figures.get("mu"):
        yield gaussian_epsilon(figures["mu"], delta) if delta else math.inf


def _proven(finding: Finding, delta: float) -> Iterator[float]:
    """Yield the epsilon implied by a rate over all owners, if a guarantee bounds it.

    Under (epsilon, delta)-DP, TPR is at most e^epsilon FPR + delta, and ROC AUC at most
    e^epsilon / (1 + e^epsilon) + delta.
    """
    rate = (finding.value if finding.low is None else finding.low) - delta
    if finding.limit == "found at 1 %":
        yield math.log(max(rate / RATE, 1.0))
    elif finding.limit == "area":
        yield max(float(logit(min(max(rate, 0.5), 1.0))), 0.0)
