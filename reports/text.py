"""Reports as plain text, for terminals and pipes."""

from __future__ import annotations

from privfed.ledger import Entry
from privfed.ledger.statement import Line
from privfed.loss import Loss
from privfed.reports.account import in_words
from privfed.reports.budget import PolicyReport, Report
from privfed.study.price import Line as Planned
from privfed.study.price import Price


def summary(report: Report) -> str:
    """One line for each policy: guarantee, releases, utility, and what attacks got."""
    lines = [report.study.name]
    for policy in report.policies:
        guarantee = _guarantee(policy)
        lines.append(
            f"  {policy.name:12} {guarantee:20} {policy.released} releases, "
            f"{policy.unprotected} unprotected; {_worth(policy)} (simulation){_attacked(policy)}"
        )
        lines += [f"  {'':12} {policy.metrics['hint']}"] if "hint" in policy.metrics else []
    return "\n".join(lines)


def _guarantee(policy: PolicyReport) -> str:
    if policy.breaches:
        return "CLAIM BROKEN"
    if policy.account.finite and not policy.secure:
        return "TEST NOISE, NO GUARANTEE"
    if not policy.finite:
        return "NO FINITE GUARANTEE"
    return f"epsilon {policy.epsilon:.4g}" + (", weak" if policy.strength == "weak" else "")


def _worth(policy: PolicyReport) -> str:
    worth, told = policy.metrics.get("value"), policy.metrics.get("told")
    if worth is None:
        return told or "no model"
    told = told or ("no better than a constant" if policy.useless else None)
    return f"{policy.metrics['measure']} {worth:.4g}" + (f", {told}" if told else "")


def _attacked(policy: PolicyReport) -> str:
    tried, idle = len(policy.findings), ", ".join(policy.inapplicable)
    beaten = f"; {len(policy.broken)} of {tried} attacks beat their guess" if tried else ""
    return beaten + (f"; not applicable: {idle}" if idle else "")


#: Heads of the columns that :func:`spending` fills.
SPENDING = (
    f"{'policy':12} {'client':16} {'what':24} {'releases':>8} {'unprotected':>11} "
    f"{'epsilon':>9} {'of':>8} {'delta':>8}"
)


def spending(policy: str, client: str, line: Line) -> str:
    """One line of a budget statement: what was charged, and what that guarantees."""
    bounded = line.epsilon is not None and line.unprotected == 0
    spent = f"{float(line.epsilon or 0):.4f}" if bounded else "no bound"
    ceiling = "-" if line.budget is None else f"{float(line.budget.epsilon):g}"
    what = line.name or "everything"
    return (
        f"{policy:12} {client:16} {what:24} {line.releases:>8} {line.unprotected:>11} "
        f"{spent:>9} {ceiling:>8} {float(line.delta):>8.0e}"
    )


def priced(price: Price) -> str:
    """A price as a table: what is asked, how often, and what it costs at most."""
    total = (
        f"NO FINITE GUARANTEE ({price.unprotected} unprotected releases)"
        if price.epsilon is None
        else f"at most epsilon {float(price.epsilon):.4g}"
        + (f" at delta {float(price.delta):.0e}" if price.delta else "")
    )
    exceeded = (() if price.fits else ("the budget",)) + price.over
    over = "".join(f"; OVER {what}: questions will be refused" for what in exceeded)
    lines = [f"{price.policy.name}: {total}, for each {price.policy.unit} of each client{over}"]
    for line in price.lines:
        what = line.mechanism or "not in the policy"
        times = "any" if line.together else f"x{line.times}"
        lines.append(
            f"  {line.kind:24} {times:<5} {what:20} {_cost(line)}  {', '.join(line.parts)}"
        )
    return "\n".join(lines)


def _cost(line: Planned) -> str:
    if line.loss is None:
        return "refused"
    cost = in_words(line.loss)
    return f"up to {cost} in all, as many questions as that buys" if line.together else cost


#: Heads of the columns that ``privfed ledger show`` fills.
ROWS = f"{'policy':12} {'client':16} {'row':>5} {'time (UTC)':19} {'event':9} what and at what cost"


def row(entry: Entry) -> str:
    """One ledger row on one line."""
    body = entry.body
    told = [body[key] for key in ("kind", "reason", "dataset") if key in body]
    if "loss" in body:
        told.append(in_words(Loss.from_dict(body["loss"])))
    return f"{entry.seq:5} {entry.time[:19]} {entry.event:9} {' | '.join(map(str, told))}"
