"""Reports as plain text, for terminals and pipes."""

from __future__ import annotations

from fractions import Fraction

from privfed.ledger import Entry
from privfed.ledger.statement import Line
from privfed.privacy.loss import Loss
from privfed.questions.exact import shown
from privfed.reports.account import in_words
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.composed import Composed
from privfed.reports.remarks import remarks
from privfed.reports.worth import Score


def summary(report: Report) -> str:
    """For each policy guarantee, releases, utility and what attacks got on one line, then remarks."""
    lines = [report.study.name]
    for policy in report.policies:
        guarantee = _guarantee(policy)
        simulated = " (simulation)" if policy.metrics.get("simulation", True) else ""
        lines.append(
            f"  {policy.name:12} {guarantee:20} {policy.released} releases, "
            f"{policy.unprotected} unprotected; {_worth(policy)}{simulated}{_attacked(policy)}"
        )
        others = [_score(score) for score in policy.scores[1:] if score.constant is not None]
        lines += [f"  {'':12} {'; '.join(others)} (simulation)"] if others else []
        lines += [f"  {'':12} {policy.metrics['hint']}"] if "hint" in policy.metrics else []
        lines += [f"  {'':12} {text}" for text in remarks(policy)]
    lines += [] if report.composed is None else [_together(report.composed, report)]
    return "\n".join(lines)


def _together(composed: Composed, report: Report) -> str:
    """What all policies come to, and whether that is what happened."""
    case = (
        "" if report.study.together else " if all were carried out (each alone is an alternative)"
    )
    if composed.epsilon is None:
        return f"  all together: NO FINITE GUARANTEE{case}, for {composed.why}"
    at = f" at delta {composed.delta:g}" if composed.delta else ""
    return f"  all together: epsilon {shown(composed.epsilon)}{at} for each {composed.unit}{case}"


def _guarantee(policy: PolicyReport) -> str:
    if policy.breaches:
        return "CLAIM BROKEN"
    if policy.breached:
        return "BREACH, NO GUARANTEE"
    if policy.account.finite and not policy.secure:
        return "TEST NOISE, NO GUARANTEE"
    if not policy.finite:
        return "NO FINITE GUARANTEE"
    if policy.silent:
        return "NOTHING RELEASED"
    return f"epsilon {shown(policy.epsilon or 0.0)}" + (
        ", weak" if policy.strength == "weak" else ""
    )


def _worth(policy: PolicyReport) -> str:
    told = policy.metrics.get("told")
    if not policy.scores:
        return told or "no model"
    first = policy.scores[0]
    told = told or ("no better than a constant" if policy.useless else None)
    if "personal" in policy.metrics:
        told = ", ".join(["by each client's own model", *([told] if told else [])])
    return _score(first) + (f", {told}" if told else "")


def _score(score: Score) -> str:
    """A figure with its spread and what a constant answer gets."""
    constant = "" if score.constant is None else f" (constant {score.constant:.4g})"
    return f"{score.name} {score.told}{constant}"


def _attacked(policy: PolicyReport) -> str:
    attacks, idle = policy.attacks, ", ".join(policy.inapplicable)
    if policy.handed_over:
        idle = ""  # whoever has the records needs no attack
    beaten = (
        f"; {attacks.beat} of {attacks.tried} attacks beat their guess" if attacks.tried else ""
    )
    return beaten + (f"; not applicable: {idle}" if idle else "")


#: Heads of the columns that :func:`spending` fills.
SPENDING = (
    f"{'policy':12} {'client':16} {'what':24} {'releases':>8} {'unprotected':>11} "
    f"{'epsilon':>9} {'of':>8} {'delta':>8}"
)


def spending(policy: str, client: str, line: Line) -> str:
    """One line of a budget statement: what was charged, and what that guarantees."""
    bounded = line.epsilon is not None and line.unprotected == 0
    spent = shown(line.epsilon or Fraction(0)) if bounded else "no bound"
    ceiling = "-" if line.budget is None else shown(line.budget.epsilon)
    delta = f"{float(line.delta):.0e}" if bounded else "-"
    what = line.name or "everything"
    mark = "" if line.secure else "  TEST NOISE, protects nobody"
    return (
        f"{policy:12} {client:16} {what:24} {line.releases:>8} {line.unprotected:>11} "
        f"{spent:>9} {ceiling:>8} {delta:>8}{mark}"
    )


#: Heads of the columns that ``privfed ledger show`` fills.
ROWS = f"{'policy':12} {'client':16} {'row':>5} {'time (UTC)':19} {'event':9} what and at what cost"


def row(entry: Entry) -> str:
    """One ledger row on one line."""
    body = entry.body
    told = [body[key] for key in ("kind", "reason", "dataset") if key in body]
    if "loss" in body:
        told.append(in_words(Loss.from_dict(body["loss"])))
    return f"{entry.seq:5} {entry.time[:19]} {entry.event:9} {' | '.join(map(str, told))}"
