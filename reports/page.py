"""The budget report as one self-contained page for people who are no engineers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jinja2

from privfed.accountants.risk import RECORD, Subject
from privfed.attacks.finding import Finding
from privfed.questions.exact import shown
from privfed.questions.part import Unit
from privfed.reports import remarks
from privfed.reports.account import ClientAccount, KindLine
from privfed.reports.budget import PolicyReport, Report, Strength
from privfed.reports.pictures import timeline
from privfed.reports.worth import Score

#: How a unit of privacy is called in a sentence.
SUBJECTS: Mapping[Unit, Subject] = {
    "record": RECORD,
    "rule": Subject("rule", "rules"),
    "individual": Subject("person", "people", person=True),
    "client": Subject("data owner", "data owners", person=True),
}
#: How the measure of a finding begins that is a share of something.
SHARE = "share of "
#: What a guarantee is called.
GUARANTEES: Mapping[Strength, str] = {
    "safe": "finite guarantee",
    "weak": "weak guarantee",
    "open": "no finite guarantee",
    "breach": "no guarantee, and a breach",
    "broken": "claim broken",
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
        "epsilon": epsilon,
        "percent": percent,
        "size": size,
        "plain": plain_words,
        "protected": lambda policy: subject(policy).one,
    }
    environment.globals |= {
        "guarantees": GUARANTEES,
        "subject": subject,
        "answered": answered,
        "verdict": verdict,
        "figure_of": figure_of,
        "share": share,
        "cost": cost,
        "claim": claim,
        "caveat": caveat,
        "remarks": remarks.remarks,
        "said": remarks,
        "figure": figure,
        "score_names": score_names,
        "constants": constants,
        "score_of": score_of,
    }
    pictures = {
        policy.name: timeline(policy.clients, policy.name)
        for policy in report.policies
        if policy.account.kinds
    }
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


def epsilon(value: float) -> str:
    """An epsilon for people: rounded up, so that nothing above 0 is called 0."""
    return shown(value)


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
    if client.epsilon is None or not client.budget:
        return 100.0
    return min(100.0, 100 * client.epsilon / client.budget)


def subject(policy: PolicyReport) -> Subject:
    """What the policy protects."""
    return SUBJECTS[policy.account.policy.unit]


def answered(policy: PolicyReport) -> str:
    """Who answered the questions: how many individuals of a cohort, or how many data owners."""
    count, who = (
        (len(policy.clients), "data owner")
        if policy.people is None
        else (policy.people, "individual")
    )
    return f"{number(count)} {who}{'' if count == 1 else 's'}"


def cost(line: KindLine) -> str:
    """What one release costs: the least and the most, where that differs."""
    joined = " or " if len(line.losses) == 2 else " to "
    ends = dict.fromkeys((line.losses[0], line.losses[-1]))
    return joined.join(ends).replace("ε ", "ε\u00a0")


def claim(policy: PolicyReport) -> str:
    """What the policy promises, in one sentence."""
    unit = subject(policy).one
    if not policy.secure:
        return "No guarantee: the noise was seeded for a test, and can be computed again."
    if not policy.account.finite:
        return f"No finite guarantee for any {unit}."
    if policy.silent:
        return "Nothing was released, so there is no guarantee to speak of, and no model."
    delta = policy.clients[0].delta
    kind = (
        f"(ε, δ)-differential privacy at δ = {number(delta)}" if delta else "Differential privacy"
    )
    whole = policy.people is not None or policy.account.policy.unit == "client"
    where = "" if whole else " at each owner"
    return f"{kind} for each {unit}{where}, {scope(policy)}."


def scope(policy: PolicyReport) -> str:
    """What exchange an epsilon is about: the whole one, or what there was so far."""
    if all(client.ceiling is not None for client in policy.clients):
        return "whatever is still asked"
    if any(client.amended for client in policy.clients):
        return (
            "for what left so far: the budget was changed on the way, so that it certifies nothing"
        )
    return (
        "for what left so far: without a budget fixed in advance nothing holds of what is to come"
    )


def caveat(policy: PolicyReport) -> str:
    """What the policy's unit leaves open, in one sentence; empty where it is a person or more."""
    if policy.account.policy.unit != "rule" or not policy.finite:
        return ""
    told = (
        "Nobody is protected as a person: whoever holds several rules is protected only up to the "
        "sum over them."
    )
    held = rules_each(policy)
    losses = [c.proved for c in policy.clients if c.proved is not None and not c.delta]
    if held <= 1 or not losses:
        return told
    return (
        f"{told} A person holds {number(held)} rules here on average, so that their ε together is up "
        f"to {number(held * max(losses))} on average."
    )


def rules_each(policy: PolicyReport) -> float:
    """How many rules a person of the cohort holds on average, where a simulation says so; else 0."""
    people, records = (policy.metrics.get(name) for name in ("individuals", "records"))
    counts = records.values() if isinstance(records, Mapping) else ()
    return sum(counts) / people if people else 0.0


def figure(score: Score) -> str:
    """A score for people, with its spread where there were several runs."""
    return score.told if score.deviation else number(score.value)


def score_of(policy: PolicyReport, name: str) -> Score | None:
    """A policy's score by its name; none where it has none."""
    return next((score for score in policy.scores if score.name == name), None)


def constants(report: Report) -> dict[str, float | None]:
    """What the best constant answer scores, by name; none where policies have different ones."""
    each: dict[str, set[float | None]] = {}
    for score in (score for policy in report.policies for score in policy.scores):
        each.setdefault(score.name, set()).add(score.constant)
    return {name: next(iter(found)) if len(found) == 1 else None for name, found in each.items()}


def score_names(report: Report) -> list[tuple[str, str]]:
    """Every score that some policy has, in order, and which way it is better."""
    each = [score for policy in report.policies for score in policy.scores if score.better]
    return list({score.name: (score.name, score.better) for score in each}.values())


def verdict(found: Finding) -> str:
    """What an attack achieved, in one sentence."""
    if is_share(found):
        return f"{percent(found.value)} of {found.metric.removeprefix(SHARE)}"
    if found.of is None or found.metric.startswith(("probability", SHARE)):
        return f"{found.metric}: {number(found.value)}"
    if found.metric.startswith("epsilon"):
        return f"{found.metric}: {number(found.value)} of {number(found.of)} claimed"
    return f"{number(found.value)} of {number(found.of)} {found.metric}"


def is_share(found: Finding) -> bool:
    """Whether its figures are shares, which people read as per cent."""
    return found.metric.startswith(SHARE) and 0 <= found.value <= 1


def figure_of(found: Finding, value: float | None) -> str:
    """A figure in the finding's own measure: what a guesser gets, or an end of its interval."""
    if value is None:
        return "none"
    return percent(value) if is_share(found) else number(value)
