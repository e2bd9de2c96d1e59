"""Reports as plain text, for terminals and pipes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping

from privfed.ledger import Entry
from privfed.loss import Loss
from privfed.price import Price
from privfed.reports.account import in_words
from privfed.reports.budget import Report

_COLUMNS = (
    "policy",
    "client",
    "seq",
    "time",
    "event",
    "principal",
    "request",
    "body",
    "payload_bytes",
    "payload_sha256",
    "hash",
)


def summary(report: Report) -> str:
    """One line for each policy: guarantee, releases, utility, and what attacks got."""
    lines = [report.study.name]
    for policy in report.policies:
        guarantee = f"epsilon {policy.epsilon:.4g}" if policy.finite else "NO FINITE GUARANTEE"
        worth = policy.metrics.get("value")
        utility = "no model" if worth is None else f"{policy.metrics['measure']} {worth:.4g}"
        lines.append(
            f"  {policy.name:12} {guarantee:20} {policy.released} releases, "
            f"{policy.unprotected} unprotected; {utility} (simulation); "
            f"{len(policy.broken)} of {len(policy.findings)} attacks beat their guess"
        )
    return "\n".join(lines)


def spending(report: Report) -> str:
    """What each client spent under each policy, as a table."""
    lines = [
        f"{'policy':12} {'client':16} {'spent':>10} {'of':>8} {'delta':>8} {'unprotected':>12}"
    ]
    for policy in report.policies:
        for client in policy.clients:
            spent = "no bound" if client.epsilon is None else f"{client.epsilon:.4f}"
            ceiling = "-" if client.ceiling is None else f"{client.ceiling:g}"
            lines.append(
                f"{policy.name:12} {client.client:16} {spent:>10} {ceiling:>8} "
                f"{client.delta:>8.0e} {client.unprotected:>12}"
            )
    return "\n".join(lines)


def priced(price: Price) -> str:
    """A price as a table: what is asked, how often, and what it costs at most."""
    total = (
        f"NO FINITE GUARANTEE ({price.unprotected} unprotected releases)"
        if price.epsilon is None
        else f"at most epsilon {float(price.epsilon):.4f} at delta {float(price.delta):.0e}"
    )
    over = "" if price.fits else "; OVER the budget: the last questions will be refused"
    lines = [f"{price.policy.name}: {total}, for each {price.policy.unit} of each client{over}"]
    for line in price.lines:
        what = line.mechanism or "not in the policy"
        cost = "refused" if line.loss is None else in_words(line.loss)
        lines.append(f"  {line.kind:24} x{line.times:<4} {what:20} {cost}  {', '.join(line.parts)}")
    return "\n".join(lines)


def row(entry: Entry) -> str:
    """One ledger row on one line."""
    body = entry.body
    told = [body[key] for key in ("kind", "reason", "dataset") if key in body]
    if "loss" in body:
        told.append(in_words(Loss.from_dict(body["loss"])))
    return f"{entry.seq:5} {entry.time[:19]} {entry.event:9} {' | '.join(map(str, told))}"


def exported(where: Mapping[str, str], entry: Entry, form: str, header: bool) -> str:
    """One ledger row as a JSON line or a CSV line; payloads by size and SHA-256 alone."""
    plain = {
        **where,
        "seq": entry.seq,
        "time": entry.time,
        "event": entry.event,
        "principal": entry.principal,
        "request": entry.request,
        "body": entry.body,
        "payload_bytes": len(entry.payload),
        "payload_sha256": hashlib.sha256(entry.payload).hexdigest(),
        "hash": entry.hash,
    }
    if form == "jsonl":
        return json.dumps(plain, sort_keys=True)
    held = io.StringIO()
    writer = csv.DictWriter(held, _COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerow({**plain, "body": json.dumps(entry.body, sort_keys=True)})
    return held.getvalue().rstrip("\n")
