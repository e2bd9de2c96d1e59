"""Ledgers as plain text: rows, and lines of budget statements. Does not import charts or attacks."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from privfed.ledger import Entry
from privfed.ledger.refusals import refusals_in
from privfed.ledger.statement import Line, printable
from privfed.privacy.accountant import Budget
from privfed.privacy.loss import Loss
from privfed.privacy.policy_objects import installed_accountant
from privfed.questions.exact import shown, shown_delta
from privfed.reports.words import in_words

#: Header of :func:`spending`.
SPENDING = (
    f"{'policy':12} {'client':16} {'what':24} {'charges':>8} {'unprotected':>11} "
    f"{'share':>8} {'epsilon':>9} {'of':>8} {'delta':>8}"
)


def spending(policy: str, client: str, line: Line, share: str = "") -> str:
    """Format one line of a budget statement: charges, their share of the budget, and their guarantee."""
    bounded = line.epsilon is not None and line.unprotected == 0
    spent = shown(line.epsilon or Fraction(0)) if bounded else "no bound"
    ceiling = "-" if line.budget is None else shown(line.budget.epsilon)
    delta = shown_delta(line.delta) if bounded else "-"
    what = printable(line.name or "everything")
    mark = "" if line.secure else "  TEST NOISE, protects nobody"
    mark += f"  {line.basis_in_words}" if line.basis_in_words else ""
    mark += "  its share, given all before it" if line.share else ""
    mark += "  by itself" if bounded and line.alone else ""
    return (
        f"{policy:12} {client:16} {what:24} {line.releases:>8} {line.unprotected:>11} "
        f"{share or '-':>8} {spent:>9} {ceiling:>8} {delta:>8}{mark}"
    )


#: Header of :func:`row`.
ROWS = f"{'policy':12} {'client':16} {'row':>5} {'time (UTC)':19} {'event':9} what, and its cost"


def row(entry: Entry, kind: str) -> str:
    """Format one ledger row; ``kind`` is that of its request, known from the charge."""
    body, items = entry.body, facts(entry)
    items = [kind, *items] if kind and "kind" not in body else items
    items += [f"study {body['study']}"] if body.get("study") else []
    if entry.event == "refused" and refusals_in(entry) > 1:
        items.append(f"{refusals_in(entry)} of them, this the last")
    if "loss" in body:
        items.append(in_words(Loss.from_dict(body["loss"])))
    return f"{entry.seq:5} {entry.time[:19]} {entry.event:9} {' | '.join(map(printable, items))}"


def facts(entry: Entry) -> list[str]:
    """Return a row's kind, reason or data set; a policy's budget, a share's amount, a key."""
    body = entry.body
    items = [str(body[key]) for key in ("kind", "reason", "dataset") if key in body]
    if entry.event == "policy":
        budget = body["policy"].get("budget")
        items += [f"budget: {Budget.of(**budget)}" if budget else "no budget"]
        items += ["in place of an earlier policy"] if body["replaces"] else []
    if entry.event == "share":
        accountant = installed_accountant(body["accountant"])
        names = accountant.components if accountant else ()
        amounts = zip(names, map(Fraction, body["share"]), strict=False)
        items += [f"{name} {shown(amount)} of the budget" for name, amount in amounts if amount]
    if entry.event == "key":
        items += [f"public key {body['public'][:16]}…"]
        items += ["not signed by the one before"] if _is_unvouched(body) else []
    items += ["totals for other limits or another budget"] if entry.event == "counted" else []
    return items


def _is_unvouched(key: Mapping[str, Any]) -> bool:
    return bool(key["replaces"]) and not key["signature"]
