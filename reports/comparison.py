"""Comparison of two runs: changed settings, and the resulting changes in utility, cost and attacks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import t as student

from privfed.attacks.finding import Finding
from privfed.questions.exact import at_delta, shown, shown_percent
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.epsilons import Epsilons, epsilons
from privfed.reports.metrics import MetricValue
from privfed.reports.page import (
    figure_of,
    number,
    percent,
    plain_words,
    render,
    size,
    unread,
    verdict,
)

NONE = "none"  #: A value that one of the runs lacks
#: A policy that one of the runs lacks; distinct from a policy without a guarantee.
NOT_THERE = "no such policy"
LEFT_OUT = "left out"  #: A result scored with the truth, on pages without these
LEVEL = 0.95  #: Confidence level of intervals of differences


@dataclass(frozen=True)
class Line:
    """One figure of both runs, in words."""

    what: str  #: name of the figure
    before: str  #: in the earlier run
    now: str  #: in the later one
    change: str = ""  #: the difference with its interval, if both are numbers

    @property
    def same(self) -> bool:
        """Whether nothing changed."""
        return self.before == self.now


@dataclass(frozen=True)
class PolicyComparison:
    """One policy, by name, in two runs."""

    name: str  #: the policy's name
    lines: tuple[Line, ...]  #: guarantee, budget, releases, three epsilons, scores
    #: findings of attacks and audits in either run; the change is new, gone or both
    findings: tuple[Line, ...]


@dataclass(frozen=True)
class Comparison:
    """Two runs."""

    before: Report
    now: Report
    changed: tuple[Line, ...]  #: keys of study, policies and data that differ
    policies: tuple[PolicyComparison, ...]  #: in the later run's order, then those missing in it
    together: Line  #: all policies together


def compared(before: Report, now: Report) -> Comparison:
    """Compare two runs, policies by their names."""
    names = dict.fromkeys(policy.name for policy in (*now.policies, *before.policies))
    rows = epsilons(before), epsilons(now)
    absent = tuple(LEFT_OUT if report.withheld else "" for report in (before, now))
    policies = []
    for name in names:
        old, new = _policy_named(before, name), _policy_named(now, name)
        if old is None or new is None:
            policies.append(PolicyComparison(name, tuple(_account(old, new))[:1], ()))
            continue
        lines = (
            *_account(old, new),
            *_epsilons(name, *rows, absent=absent),
            *_scores(old, new, absent),
        )
        policies.append(PolicyComparison(name, lines, tuple(_findings(old, new, absent))))
    return Comparison(
        before, now, tuple(_changed(before, now)), tuple(policies), _together(before, now)
    )


def comparison_page(comparison: Comparison) -> str:
    """Return a comparison as HTML, without external references."""
    return render("comparison.html", comparison=comparison, level=percent(LEVEL))


def comparison_lines(comparison: Comparison) -> str:
    """Return a comparison for a terminal: changed settings, then each policy's figures before and now."""
    tables: list[tuple[str, Sequence[Line]]] = [("changed", comparison.changed)]
    tables += [(policy.name, (*policy.lines, *policy.findings)) for policy in comparison.policies]
    tables += [("all together", (comparison.together,))]
    output = [f"{comparison.now.study.name}, against {comparison.before.study.name}"]
    for title, lines in tables:
        output.append(f"  {title}" if lines else f"  {title}: nothing")
        width = max((len(line.what) for line in lines), default=0)
        for line in lines:
            values = f"{line.now}, as before" if line.same else f"{line.before} -> {line.now}"
            output.append(
                f"    {line.what:{width}}  {values}{f'  ({line.change})' if line.change else ''}"
            )
    return "\n".join(output)


def _policy_named(report: Report, name: str) -> PolicyReport | None:
    return next((policy for policy in report.policies if policy.name == name), None)


def _changed(before: Report, now: Report) -> Iterator[Line]:
    """Yield the keys that differ in the studies, the owners' adopted policies, and the data."""
    shared = {policy.name for policy in before.policies} & {policy.name for policy in now.policies}
    old, new = (dict(_flat(_described(report, shared))) for report in (before, now))
    for key in dict.fromkeys((*old, *new)):
        if old.get(key, NONE) != new.get(key, NONE):
            yield Line(key, str(old.get(key, NONE)), str(new.get(key, NONE)))


def _described(report: Report, shared: set[str]) -> dict[str, Any]:
    study = report.study.to_dict()
    declared = {policy["name"]: policy for policy in study.pop("policy", [])}
    study["policy"] = {name: keys if name in shared else "there" for name, keys in declared.items()}
    adopted = {
        policy.name: policy.account.policy.to_dict()
        for policy in report.policies
        if policy.name in shared
    }
    measured = [policy.metrics for policy in report.policies if "records" in policy.metrics]
    data = {}
    if measured:
        data = {"records": measured[0]["records"], "held out": measured[0].get("held_out")}
    owners = sorted({client.client for policy in report.policies for client in policy.clients})
    return {**study, "owners": ", ".join(owners), "adopted policy": adopted, "measured": data}


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested tables, with the path of their keys."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and any(isinstance(item, Mapping) for item in data):
        yield from _flat(dict(enumerate(data, 1)), path)
    else:
        yield path, ", ".join(map(str, data)) if isinstance(data, list | tuple) else data


def _account(before: PolicyReport | None, now: PolicyReport | None) -> Iterator[Line]:
    for label, describe in (
        ("guarantee", _guarantee),
        ("budget spent so far", _spent),
        ("can be found, at most", _detection),
        ("releases", lambda p: number(p.released)),
        ("unprotected releases", lambda p: number(p.unprotected)),
        ("bytes released", lambda p: size(sum(client.bytes for client in p.clients))),
    ):
        yield Line(label, *(NOT_THERE if p is None else describe(p) for p in (before, now)))


def _guarantee(policy: PolicyReport) -> str:
    if policy.breaches:
        return "violated"
    if policy.silent:
        return "nothing released"
    if not policy.finite or policy.epsilon is None:
        return "no finite one, and a breach" if policy.breached else "no finite one"
    unit = policy.account.policy.unit
    return f"epsilon {shown(policy.epsilon)}{at_delta(policy.delta)} for each {unit}"


def _spent(policy: PolicyReport) -> str:
    budget = policy.account.policy.budget
    spent = "no bound" if policy.so_far is None else f"epsilon {shown(policy.so_far)}"
    return spent if budget is None else f"{spent} of {shown(budget.epsilon)}"


def _detection(policy: PolicyReport) -> str:
    return "no bound" if not policy.finite or policy.silent else shown_percent(policy.detection)


def _epsilons(
    name: str, *rows: Sequence[Epsilons], absent: Sequence[str] = ("", "")
) -> Iterator[Line]:
    """Yield the largest of each epsilon over the owners; ``absent`` is the text for a run without one, also below."""
    for label, key in (
        ("claimed epsilon, at most", "claimed"),
        ("audited epsilon, at least", "audited"),
        ("attacked epsilon", "attacked"),
    ):
        figures = ([getattr(row, key) for row in item if row.policy == name] for item in rows)
        known = [[value for value in item if value is not None] for item in figures]
        yield Line(label, *(_largest(*item) for item in zip(known, absent, strict=True)))


def _largest(values: Sequence[float], absent: str) -> str:
    if not values:
        return absent or NONE
    return "unbounded" if math.isinf(max(values)) else shown(max(values))


def _scores(before: PolicyReport, now: PolicyReport, absent: Sequence[str]) -> Iterator[Line]:
    by_run = [{score.name: score for score in policy.scores} for policy in (before, now)]
    for name in dict.fromkeys((*by_run[1], *by_run[0])):
        old, new = by_run[0].get(name), by_run[1].get(name)
        change = "" if old is None or new is None else _difference(old, new)
        first, last = (
            why or NONE if score is None else score.with_constant
            for score, why in zip((old, new), absent, strict=True)
        )
        yield Line(name, first, last, change)


def _difference(old: MetricValue, new: MetricValue) -> str:
    """Difference with its interval over noise and secrets (Welch 1947), if both have at least two runs."""
    gap = new.value - old.value
    better = {"lower": gap < 0, "higher": gap > 0}.get(new.better)
    word = "" if better is None or not gap else ", better" if better else ", worse"
    if old.deviation is None or new.deviation is None:
        return f"{gap:+.4g}; undecided: no interval without several runs of both"
    parts = [score.deviation**2 / score.runs for score in (old, new) if score.deviation is not None]
    if not sum(parts):
        return f"{gap:+.4g}{word}; all runs are alike"
    freedom = sum(parts) ** 2 / sum(
        part**2 / (score.runs - 1) for part, score in zip(parts, (old, new), strict=True)
    )
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(sum(parts))
    outcome = word if abs(gap) > half else ", no difference shown"
    return f"{gap:+.4g}, {gap - half:.4g} to {gap + half:.4g}{outcome}"


def _findings(before: PolicyReport, now: PolicyReport, absent: Sequence[str]) -> Iterator[Line]:
    """Yield findings of either run, by attack and measure; those not tried in one are neither new nor gone."""
    by_run = [_strongest(policy) for policy in (before, now)]
    for key in dict.fromkeys((*by_run[1], *by_run[0])):
        states = ["" if (f := findings.get(key)) is None else f.state for findings in by_run]
        if "found" in states:
            change = {
                ("found", "found"): "in both",
                ("looked", "found"): "new",
                ("found", "looked"): "gone",
            }.get((states[0], states[1]), "no comparison")
            first, last = (
                _words(run.get(key), why) for run, why in zip(by_run, absent, strict=True)
            )
            yield Line(plain_words(key[0]), first, last, change)


def _strongest(policy: PolicyReport) -> dict[tuple[str, str], Finding]:
    kept: dict[tuple[str, str], Finding] = {}
    for finding in policy.findings:
        key = finding.attack, finding.metric
        if key not in kept or (finding.state == "found", finding.above) > (
            kept[key].state == "found",
            kept[key].above,
        ):
            kept[key] = finding
    return kept


def _words(finding: Finding | None, absent: str) -> str:
    if finding is None:
        return absent or "not tried"
    if finding.state == "not looked":
        return "cut short, or too few draws"
    ends = ""
    if finding.low is not None and finding.high is not None:
        ends = f" ({figure_of(finding, finding.low)} to {figure_of(finding, finding.high)})"
    return f"{verdict(finding)}{ends}{unread(finding)}{'' if finding.state == 'found' else ': nothing above chance'}"


def _together(before: Report, now: Report) -> Line:
    texts = []
    for report in (before, now):
        total = report.composed
        if total is None:
            texts.append("one policy")
        elif total.epsilon is None:
            texts.append("no finite guarantee")
        else:
            delta = at_delta(total.delta)
            texts.append(f"epsilon {shown(total.epsilon)}{delta} for each {total.unit}")
    return Line("if all are carried out", *texts)
