"""The budget report as one self-contained HTML page."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterable, Mapping
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
from privfed.reports.epsilons import AT_MOST, attained, drawn_rows
from privfed.reports.metrics import MetricValue, measured, measured_alike
from privfed.reports.provenance import provenance

#: Browsers that print a page, in order of preference.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
#: Names of privacy units in sentences.
SUBJECTS: Mapping[Unit, Subject] = {
    "record": RECORD,
    "rule": Subject("rule", "rules"),
    "individual": Subject("person", "people", person=True),
    "client": Subject("data owner", "data owners", person=True),
}
COUNTED = 10  #: Smallest mean of counts that is shown as an integer
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
    """Environment of all pages' templates; caches compiled templates."""
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
        "remark": remarks,
    }
    functions: tuple[Callable[..., object], ...] = (
        *(
            number_of,
            subject,
            respondents,
            verdict,
            strongest,
            unread,
            figure_of,
            reach_of,
            share,
            cost,
            claim,
        ),
        *(
            caveat,
            neighbours,
            suppression,
            score_names,
            attained,
            constants,
            score_of,
            provenance,
            measured_alike,
        ),
    )
    environment.globals |= {f.__name__: f for f in functions}
    return environment


def render(template: str, **values: Any) -> str:
    """Return a rendered template: HTML with its styles inside, without external references."""
    text: str = _environment().get_template(template).render(values)
    return text


def page(report: Report, models: Mapping[str, str] | None = None) -> str:
    """Return the engineer's page: HTML with styles and charts inside, without external references.

    ``models`` has a model's picture and text by policy, as HTML, inserted unescaped.
    """
    pictures = {
        policy.name: charts.timeline(policy.clients, policy.name)
        for policy in report.policies
        if policy.account.kinds
    }
    return render(
        "budget.html",
        report=report,
        pictures=pictures,
        models=models or {},
        epsilons=charts.epsilons(rows) if (rows := drawn_rows(report)) else "",
        most_drawn=AT_MOST * any(len(policy.clients) > AT_MOST for policy in report.policies),
    )


def write_pdf(page: Path, pdf: Path) -> None:
    """Print a page to a file by a headless browser; InputError if there is none, or if it fails."""
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


def model_page(data: Mapping[str, Any]) -> str:
    """Return the page of the findings on a model: HTML with its styles inside."""
    findings = [Finding.from_dict(f) for f in data["findings"]]
    found = [f for f in findings if f.state == "found"]
    strong = max(found, key=lambda f: (f.of is not None, f.above), default=None)
    silent = sum(f.state == "not looked" for f in findings)
    return render("model.html", about=data, findings=findings, strong=strong, silent=silent)


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
    """Return the percentage of its budget that a client spent, at most 100; without a budget, 0 or 100."""
    if client.epsilon is None or not client.budget:
        return 0.0 if client.epsilon == 0 else 100.0
    return min(100.0, 100 * client.epsilon / client.budget)


def subject(policy: PolicyReport) -> Subject:
    """Return the policy's privacy unit."""
    return SUBJECTS[policy.account.policy.unit]


def respondents(policy: PolicyReport) -> str:
    """Return the number of individuals of a cohort, or of data owners, in words."""
    if policy.people is None:
        return number_of(len(policy.clients), "data owner")
    return number_of(policy.people, "individual")


def cost(line: KindLine) -> str:
    """Return the cost of one release: minimum and maximum, if they differ; a common basis is stated once."""
    joined = " or " if len(line.losses) == 2 else " to "
    first, last = (loss.partition(" (") for loss in (line.losses[0], line.losses[-1]))
    ends = dict.fromkeys((first[0] if first[1:] == last[1:] else "".join(first), "".join(last)))
    text = line.losses[-1] if first == last else joined.join(ends)
    return text.replace("ε ", "ε\u00a0")


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
        return "for any later queries"
    if any(client.amended for client in policy.clients):
        return "for the releases so far: the budget was amended, and later ones are not covered"
    return "for the releases so far: without a budget fixed in advance, later ones are not covered"


def suppression(policy: PolicyReport) -> str:
    """Return a sentence on the limits of suppressing small cells; empty without such a guard."""
    guards = (guard for line in policy.account.policy.guards.values() for guard in line)
    if not any(guard.called == "nullify" for guard in guards):
        return ""
    return (
        "Suppressing or rounding small cells does not protect membership: the exact sums that remain "
        "can name every member on a list."
    )


def neighbours(report: Report, units: str) -> str:
    """Return the change of one unit between neighbouring data sets, as the beginning of a sentence."""
    relations = {policy.account.policy.relation for policy in report.policies}
    if relations == {"replace-one"}:
        return f"Putting any other {units} in the place of one"
    or_replaced = ", or putting any other in its place under replace-one," * (len(relations) > 1)
    return f"Adding or removing one {units}{or_replaced}"


def caveat(policy: PolicyReport) -> str:
    """Return a sentence on what the privacy unit leaves unprotected; empty for persons and larger units."""
    if policy.account.policy.unit != "rule" or not policy.finite:
        return ""
    text = "Persons are not protected: for a person with several rules, the losses add up."
    n_rules = rules_each(policy)
    losses = [c.proved for c in policy.clients if c.proved is not None and not c.delta]
    if n_rules <= 1 or not losses:
        return text
    return (
        f"{text} A person holds {number(n_rules)} rules here on average, with a total ε of up to "
        f"{shown(n_rules * max(losses))} on average."
    )


def rules_each(policy: PolicyReport) -> float:
    """Return the average number of rules of a person, known in a simulation; else 0."""
    people, records = (policy.metrics.get(name) for name in ("individuals", "records"))
    counts = records.values() if isinstance(records, Mapping) else ()
    return sum(counts) / people if people else 0.0


def score_of(policy: PolicyReport, name: str) -> MetricValue | None:
    """Return a policy's score by its name, or None."""
    return next((score for score in policy.scores if score.name == name), None)


def constants(report: Report) -> dict[str, str | None]:
    """Return the constant baseline's scores by name; None if policies differ."""
    texts: dict[str, dict[float | None, str | None]] = {}
    for score in (score for policy in report.policies for score in policy.scores):
        texts.setdefault(score.name, {}).setdefault(score.constant, score.constant_text)
    return {
        name: next(iter(group.values())) if len(group) == 1 else None
        for name, group in texts.items()
    }


def score_names(report: Report) -> list[tuple[str, str]]:
    """Return all scores' names in order, and whether lower or higher is better."""
    scores = [score for policy in report.policies for score in policy.scores if score.better]
    return list({score.name: (score.name, score.better) for score in scores}.values())


def strongest(finding: Finding) -> str:
    """Return a finding in plain language, with its figure."""
    harm = finding.harm and f"{finding.harm[:1].upper()}{finding.harm[1:]}: "
    return f"{harm}{verdict(finding)}"


def unread(finding: Finding, others: Iterable[Finding] = ()) -> str:
    """Return what to add to a finding's figure if its attack was cut short, as more might be found; else nothing.

    ``others`` are the policy's findings: of one attack's measures the strongest may be the one that was cut short. More
    than all of what was tried cannot be found of it.
    """
    same = [finding, *(other for other in others if other.attack == finding.attack)]
    short = [one for one in same if one.partial]
    if not short or finding.state != "found":
        return ""
    all_found = all(one.share == 1 for one in short)
    reasons = "; ".join(dict.fromkeys(one.partial for one in short))
    return f"; {'not everything was tried' if all_found else 'more may be found'}: {reasons}"


def verdict(finding: Finding) -> str:
    """Return an attack's result in words."""
    if is_share(finding):
        return f"{percent(finding.value)} of {finding.metric.removeprefix(SHARE)}"
    if finding.of is None or finding.metric.startswith(("probability", SHARE)):
        return f"{finding.metric}: {number(finding.value)}"
    if finding.metric.startswith("epsilon"):
        return f"{finding.metric}: {shown_down(finding.value)} of {shown(finding.of)} claimed"
    return f"{number(finding.value)} of {number(finding.of)} {finding.metric}"


def is_share(finding: Finding) -> bool:
    """Whether its figures are fractions, shown in per cent."""
    return finding.metric.startswith(SHARE) and 0 <= finding.value <= 1


def figure_of(finding: Finding, value: float | None) -> str:
    """Format a figure in the finding's measure: its baseline, or an end of its interval."""
    if value is None:
        return "none"
    if is_share(finding):
        return percent(value)
    if not _is_count(finding):
        return number(value)
    return number(round(value)) if value >= COUNTED else measured(value, 2)


def reach_of(finding: Finding) -> str:
    """Format the smallest result that an attack would have detected; rounded up for counts."""
    n = finding.detectable
    return figure_of(finding, math.ceil(n) if n is not None and _is_count(finding) else n)


def _is_count(finding: Finding) -> bool:
    """Whether it counts cells or records, so that its figures are integers."""
    total = 0.0 if finding.of is None else float(finding.of)
    return total > 1 and total.is_integer() and float(finding.value).is_integer()
