"""The budget report as one self-contained HTML page."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import jinja2

from privfed.accountants.risk import RECORD, Subject
from privfed.attacks.finding import Finding
from privfed.errors import InputError, number_of
from privfed.questions.exact import shown, shown_delta, shown_down, shown_percent
from privfed.questions.part import Unit
from privfed.reports import charts, remarks
from privfed.reports.account import ClientAccount, KindLine
from privfed.reports.budget import AT_HOME, PolicyReport, Report, Strength
from privfed.reports.epsilons import AT_MOST, drawn
from privfed.reports.metrics import MetricValue, measured
from privfed.reports.provenance import provenance

#: Browsers that print a page, in the order in which they are looked for.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
#: Names of privacy units in sentences.
SUBJECTS: Mapping[Unit, Subject] = {
    "record": RECORD,
    "rule": Subject("rule", "rules"),
    "individual": Subject("person", "people", person=True),
    "client": Subject("data owner", "data owners", person=True),
}
COUNTED = 10  #: From which on a mean of counts is shown as a whole number
SHARE = "share of "  #: Prefix of metrics that are fractions
#: Labels of guarantees.
GUARANTEES: Mapping[Strength, str] = {
    "safe": "finite guarantee",
    "weak": "weak guarantee",
    "open": "no finite guarantee",
    "breach": "no guarantee, and a breach",
    "broken": "guarantee violated",
}


@cache
def _environment() -> jinja2.Environment:
    """What all pages' templates are filled in with; it keeps the code of those that were read."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("privfed.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "epsilon": shown,
        "delta": shown_delta,
        "percent": percent,
        "at_most": shown_percent,
        "size": size,
        "plain": plain_words,
        "protected": lambda policy: subject(policy).one,
    }
    environment.globals |= {
        "guarantees": GUARANTEES,
        "at_home": AT_HOME,
        "remarks": remarks.remarks,
        "said": remarks,
    }
    named: tuple[Callable[..., object], ...] = (
        *(
            number_of,
            subject,
            answered,
            verdict,
            strongest,
            figure_of,
            reach_of,
            share,
            cost,
            claim,
        ),
        *(caveat, neighbours, suppression, score_names, constants, score_of, provenance),
    )
    environment.globals |= {each.__name__: each for each in named}
    return environment


def rendered(template: str, **values: Any) -> str:
    """Return a template filled in: HTML with its styles inside, without external references."""
    text: str = _environment().get_template(template).render(values)
    return text


def page(report: Report, models: Mapping[str, str] | None = None) -> str:
    """Return the engineer's page: HTML with styles and charts inside, without external references.

    ``models`` has a model's picture and text by policy, as HTML; it is shown as it is.
    """
    pictures = {
        policy.name: charts.timeline(policy.clients, policy.name)
        for policy in report.policies
        if policy.account.kinds
    }
    return rendered(
        "budget.html",
        report=report,
        pictures=pictures,
        models=models or {},
        epsilons=charts.epsilons(rows) if (rows := drawn(report)) else "",
        most_drawn=AT_MOST * any(len(policy.clients) > AT_MOST for policy in report.policies),
    )


def write_pdf(page: Path, pdf: Path) -> None:
    """Print a page into a file, by a browser without a window; InputError without one, or if it does not print."""
    browser = next(filter(None, map(which, BROWSERS)), None)
    if browser is None:
        raise InputError(
            f"PDF {pdf}: no browser is installed that could print it; install Chromium, or open {page} and "
            "print it"
        )
    with TemporaryDirectory() as profile:
        command = [browser, "--headless", "--disable-gpu", "--no-sandbox"]
        command += [f"--user-data-dir={profile}", "--no-pdf-header-footer"]
        command += [f"--print-to-pdf={pdf}", page.resolve().as_uri()]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError):
            raise InputError(
                f"PDF {pdf}: {Path(browser).name} could not print {page}; open it, and print it"
            ) from None
    if not pdf.exists():
        raise InputError(
            f"PDF {pdf}: {Path(browser).name} wrote nothing; open {page}, and print it"
        )


def model_page(plain: Mapping[str, Any]) -> str:
    """Return the page of what was found of a model: HTML with its styles inside."""
    findings = [Finding.from_dict(each) for each in plain["findings"]]
    found = [each for each in findings if each.state == "found"]
    strong = max(found, key=lambda each: (each.of is not None, each.above), default=None)
    silent = sum(each.state == "not looked" for each in findings)
    return rendered("model.html", about=plain, findings=findings, strong=strong, silent=silent)


def number(value: Any) -> str:
    """Format a number, if it is one."""
    if value is None:
        return "none"
    return measured(value) if isinstance(value, int | float) else str(value)


def percent(value: float) -> str:
    """Format a fraction in per cent; only 1 is shown as 100 %."""
    if value >= 1:
        return "100 %"
    return f"{min(99.9, value * 100):.1f} %"


def size(count: int) -> str:
    """Format a number of bytes."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count = count / 1000  # type: ignore[assignment]
    return f"{count:.1f} GB"


def plain_words(text: str) -> str:
    """Return an identifier as words."""
    return text.replace("_", " ").replace("-", " ")


def share(client: ClientAccount) -> float:
    """Return how much of its budget a client spent, in per cent and at most 100; without one, all or nothing."""
    if client.epsilon is None or not client.budget:
        return 0.0 if client.epsilon == 0 else 100.0
    return min(100.0, 100 * client.epsilon / client.budget)


def subject(policy: PolicyReport) -> Subject:
    """Return the policy's privacy unit."""
    return SUBJECTS[policy.account.policy.unit]


def answered(policy: PolicyReport) -> str:
    """Return the number of individuals of a cohort, or of data owners, in words."""
    if policy.people is None:
        return number_of(len(policy.clients), "data owner")
    return number_of(policy.people, "individual")


def cost(line: KindLine) -> str:
    """Return the cost of one release: minimum and maximum, if they differ; what both rest on is said once."""
    joined = " or " if len(line.losses) == 2 else " to "
    first, last = (each.partition(" (") for each in (line.losses[0], line.losses[-1]))
    ends = dict.fromkeys((first[0] if first[1:] == last[1:] else "".join(first), "".join(last)))
    told = line.losses[-1] if first == last else joined.join(ends)
    return told.replace("ε ", "ε\u00a0")


def claim(policy: PolicyReport) -> str:
    """Return the policy's guarantee in one sentence."""
    unit = subject(policy).one
    if not policy.secure:
        return "No guarantee: the noise was seeded for a test and can be recomputed."
    if not policy.account.finite:
        return f"No finite guarantee for any {unit}."
    if policy.silent:
        return "Nothing was released, so there is no guarantee, and no model."
    delta = policy.delta
    bound = "" if policy.epsilon is None else f" at ε = {shown(policy.epsilon)}"
    bound += f"{', ' if bound else ' at '}δ = {shown_delta(delta)}" if delta else ""
    whole = policy.people is not None or policy.account.policy.unit == "client"
    where = "" if whole else " at each owner"
    basis = f" This holds {policy.basis}." if policy.basis else ""
    return f"Differential privacy{bound} for each {unit}{where}, {scope(policy)}.{basis}"


def scope(policy: PolicyReport) -> str:
    """Return whether an epsilon covers the whole exchange, or only what was released so far."""
    if all(client.ceiling is not None for client in policy.clients):
        return "whatever is asked later"
    if any(client.amended for client in policy.clients):
        return "for the releases so far: the budget was amended, and later ones are not covered"
    return "for the releases so far: without a budget fixed in advance, later ones are not covered"


def suppression(policy: PolicyReport) -> str:
    """Return what suppressing small cells does not do, in one sentence; empty without such a guard."""
    guards = (guard for each in policy.account.policy.guards.values() for guard in each)
    if not any(guard.called == "nullify" for guard in guards):
        return ""
    return (
        "Suppressing or rounding small cells does not protect membership: the exact sums that remain "
        "can name every member on a list."
    )


def neighbours(report: Report, units: str) -> str:
    """Return what is done to one unit between neighbouring data sets, by the policies' relations; begins a sentence."""
    relations = {policy.account.policy.relation for policy in report.policies}
    if relations == {"replace-one"}:
        return f"Putting any other {units} in the place of one"
    or_replaced = ", or putting any other in its place under replace-one," * (len(relations) > 1)
    return f"Adding or removing one {units}{or_replaced}"


def caveat(policy: PolicyReport) -> str:
    """Return what the privacy unit leaves unprotected, in one sentence; empty from persons on."""
    if policy.account.policy.unit != "rule" or not policy.finite:
        return ""
    told = "Persons are not protected: for a person with several rules, the losses add up."
    held = rules_each(policy)
    losses = [c.proved for c in policy.clients if c.proved is not None and not c.delta]
    if held <= 1 or not losses:
        return told
    return (
        f"{told} A person holds {number(held)} rules here on average, with a total ε of up to "
        f"{shown(held * max(losses))} on average."
    )


def rules_each(policy: PolicyReport) -> float:
    """Return a person's average number of rules, known in a simulation; else 0."""
    people, records = (policy.metrics.get(name) for name in ("individuals", "records"))
    counts = records.values() if isinstance(records, Mapping) else ()
    return sum(counts) / people if people else 0.0


def score_of(policy: PolicyReport, name: str) -> MetricValue | None:
    """Return a policy's score by its name, or None."""
    return next((score for score in policy.scores if score.name == name), None)


def constants(report: Report) -> dict[str, float | None]:
    """Return the constant baseline's scores by name; None where policies differ."""
    each: dict[str, set[float | None]] = {}
    for score in (score for policy in report.policies for score in policy.scores):
        each.setdefault(score.name, set()).add(score.constant)
    return {name: next(iter(found)) if len(found) == 1 else None for name, found in each.items()}


def score_names(report: Report) -> list[tuple[str, str]]:
    """Return all scores' names in order, and which way each is better."""
    each = [score for policy in report.policies for score in policy.scores if score.better]
    return list({score.name: (score.name, score.better) for score in each}.values())


def strongest(found: Finding) -> str:
    """Return a finding in a person's words, with its figure."""
    harm = found.harm[:1].upper() + found.harm[1:]
    return f"{harm}: {verdict(found)}" if harm else verdict(found)


def verdict(found: Finding) -> str:
    """Return an attack's result in words."""
    if is_share(found):
        return f"{percent(found.value)} of {found.metric.removeprefix(SHARE)}"
    if found.of is None or found.metric.startswith(("probability", SHARE)):
        return f"{found.metric}: {number(found.value)}"
    if found.metric.startswith("epsilon"):
        return f"{found.metric}: {shown_down(found.value)} of {shown(found.of)} claimed"
    return f"{number(found.value)} of {number(found.of)} {found.metric}"


def is_share(found: Finding) -> bool:
    """Whether its figures are fractions, shown in per cent."""
    return found.metric.startswith(SHARE) and 0 <= found.value <= 1


def figure_of(found: Finding, value: float | None) -> str:
    """Format a figure in the finding's measure: its baseline, or an end of its interval."""
    if value is None:
        return "none"
    if is_share(found):
        return percent(value)
    return number(round(value)) if _is_count(found) and value >= COUNTED else number(value)


def reach_of(found: Finding) -> str:
    """Format what an attack would have found: of cells or records a whole number, which is no less."""
    least = found.detectable
    return figure_of(found, math.ceil(least) if least is not None and _is_count(found) else least)


def _is_count(found: Finding) -> bool:
    """Whether it counts cells or records, of which there are whole ones, whatever a mean or an interval comes to."""
    of = 0.0 if found.of is None else float(found.of)
    return of > 1 and of.is_integer() and float(found.value).is_integer()
