"""The budget report as one self-contained page for people who are no engineers."""

from __future__ import annotations

import math
from typing import Any

import jinja2

from privfed.finding import Finding
from privfed.reports.account import ClientAccount
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.pictures import timeline

#: How a unit of privacy is called in a sentence.
UNITS = {
    "record": "each record",
    "rule": "each rule",
    "individual": "each person",
    "client": "each data owner",
}


def page(report: Report) -> str:
    """Write the page: HTML with its styles and pictures inside, and no outside reference."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("privfed.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "size": size,
        "plain": plain_words,
    }
    environment.globals |= {"units": UNITS, "verdict": verdict, "share": share, "claim": claim}
    pictures = {policy.name: timeline(policy.clients, policy.name) for policy in report.policies}
    text: str = environment.get_template("budget.html").render(report=report, pictures=pictures)
    return text


def number(value: Any) -> str:
    """A number for people: whole ones with separators, others to four digits."""
    if value is None:
        return "none"
    if not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return "∞"
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 100 else f"{value:.4g}"


def percent(value: float) -> str:
    """A share for people; nearly all is never called all."""
    if value >= 1:
        return "100 %"
    return f"{min(99.9, value * 100):.1f} %"


def size(count: int) -> str:
    """Bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count = count / 1000  # type: ignore[assignment]
    return f"{count:.1f} GB"


def plain_words(text: str) -> str:
    """A name from the code as words."""
    return text.replace("_", " ").replace("-", " ")


def share(client: ClientAccount) -> float:
    """How much of its budget a client spent, in per cent and at most 100."""
    if client.epsilon is None or not client.ceiling:
        return 100.0
    return min(100.0, 100 * client.epsilon / client.ceiling)


def claim(policy: PolicyReport) -> str:
    """What the policy promises, in one sentence."""
    unit = UNITS[policy.account.policy.unit]
    if not policy.secure:
        return "No guarantee: the noise was seeded for a test, and can be computed again."
    if not policy.account.finite:
        return f"No finite guarantee for {unit.replace('each', 'any', 1)}."
    delta = policy.clients[0].delta
    odds = f", except with a chance of 1 in {round(1 / delta):,}" if delta else ""
    return f"Differential privacy for {unit} at each owner{odds}."


def verdict(found: Finding) -> str:
    """What an attack achieved, in one sentence."""
    if found.of is None or found.metric.startswith(("probability", "share")):
        return f"{found.metric}: {number(found.value)}"
    return f"{number(found.value)} of {number(found.of)} {found.metric}"
