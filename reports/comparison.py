"""Two runs side by side: what was changed between them, and what of utility, cost and attacks changed with it."""

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
from privfed.reports.page import figure_of, number, percent, plain_words, rendered, size, verdict

NONE = "none"  #: What one of the runs does not have
#: Of a run without a policy, which is not to be taken for one without a guarantee.
NOT_THERE = "no such policy"
LEFT_OUT = "left out"  #: What a page without the records' truth does not say
LEVEL = 0.95  #: Of the intervals of differences


@dataclass(frozen=True)
class Line:
    """One figure of both runs, in words."""

    what: str  #: what the figure is
    before: str  #: in the earlier run
    now: str  #: in the later one
    change: str = ""  #: the difference with its interval, where both are numbers

    @property
    def same(self) -> bool:
        """Whether nothing changed."""
        return self.before == self.now


@dataclass(frozen=True)
class PolicyComparison:
    """One policy, by name, in two runs."""

    name: str  #: the policy's name
    lines: tuple[Line, ...]  #: guarantee, budget, what left, three epsilons, scores
    #: what attacks and audits found in either; the change is new, gone or both
    findings: tuple[Line, ...]


@dataclass(frozen=True)
class Comparison:
    """Two runs."""

    before: Report
    now: Report
    changed: tuple[Line, ...]  #: keys of study, policies and data that differ
    policies: tuple[PolicyComparison, ...]  #: in the later run's order, then those that it has not
    together: Line  #: all policies together


def compared(before: Report, now: Report) -> Comparison:
    """Compare two runs, policies by their names."""
    names = dict.fromkeys(policy.name for policy in (*now.policies, *before.policies))
    rows = epsilons(before), epsilons(now)
    absent = tuple(LEFT_OUT if report.withheld else "" for report in (before, now))
    policies = []
    for name in names:
        old, new = _named(before, name), _named(now, name)
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


def comparison_page(told: Comparison) -> str:
    """Return a comparison as HTML, without external references."""
    return rendered("comparison.html", told=told, level=percent(LEVEL))


def comparison_lines(told: Comparison) -> str:
    """Return a comparison for a terminal: what changed, then each policy's figures before and now."""
    tables: list[tuple[str, Sequence[Line]]] = [("changed", told.changed)]
    tables += [(one.name, (*one.lines, *one.findings)) for one in told.policies]
    tables += [("all together", (told.together,))]
    said = [f"{told.now.study.name}, against {told.before.study.name}"]
    for title, lines in tables:
        said.append(f"  {title}" if lines else f"  {title}: nothing")
        width = max((len(line.what) for line in lines), default=0)
        for line in lines:
            values = f"{line.now}, as before" if line.same else f"{line.before} -> {line.now}"
            said.append(
                f"    {line.what:{width}}  {values}{f'  ({line.change})' if line.change else ''}"
            )
    return "\n".join(said)


def _named(report: Report, name: str) -> PolicyReport | None:
    return next((policy for policy in report.policies if policy.name == name), None)


def _changed(before: Report, now: Report) -> Iterator[Line]:
    """The keys that differ, of the studies, of the policies that the owners adopted, and of the data."""
    shared = {policy.name for policy in before.policies} & {policy.name for policy in now.policies}
    old, new = (dict(_flat(_described(one, shared))) for one in (before, now))
    for key in dict.fromkeys((*old, *new)):
        if old.get(key, NONE) != new.get(key, NONE):
            yield Line(key, str(old.get(key, NONE)), str(new.get(key, NONE)))


def _described(report: Report, shared: set[str]) -> dict[str, Any]:
    study = report.study.to_dict()
    told = {one["name"]: one for one in study.pop("policy", [])}
    study["policy"] = {name: one if name in shared else "there" for name, one in told.items()}
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


def _flat(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested tables, by the path of their keys."""
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(plain, list) and any(isinstance(one, Mapping) for one in plain):
        yield from _flat(dict(enumerate(plain, 1)), path)
    else:
        yield path, ", ".join(map(str, plain)) if isinstance(plain, list | tuple) else plain


def _account(before: PolicyReport | None, now: PolicyReport | None) -> Iterator[Line]:
    for what, say in (
        ("guarantee", _guarantee),
        ("budget spent so far", _spent),
        ("can be found, at most", _detection),
        ("releases", lambda one: number(one.released)),
        ("unprotected releases", lambda one: number(one.unprotected)),
        ("bytes released", lambda one: size(sum(client.bytes for client in one.clients))),
    ):
        yield Line(what, *(NOT_THERE if one is None else say(one) for one in (before, now)))


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
    """The largest of each kind over the owners; ``absent`` says why a run has none, here and below."""
    for what, key in (
        ("claimed epsilon, at most", "claimed"),
        ("audited epsilon, at least", "audited"),
        ("attacked epsilon", "attacked"),
    ):
        each = ([getattr(row, key) for row in one if row.policy == name] for one in rows)
        known = [[value for value in one if value is not None] for one in each]
        yield Line(what, *(_largest(*one) for one in zip(known, absent, strict=True)))


def _largest(values: Sequence[float], absent: str) -> str:
    if not values:
        return absent or NONE
    return "unbounded" if math.isinf(max(values)) else shown(max(values))


def _scores(before: PolicyReport, now: PolicyReport, absent: Sequence[str]) -> Iterator[Line]:
    each = [{score.name: score for score in one.scores} for one in (before, now)]
    for name in dict.fromkeys((*each[1], *each[0])):
        old, new = each[0].get(name), each[1].get(name)
        change = "" if old is None or new is None else _difference(old, new)
        first, last = (
            why or NONE if one is None else one.beside
            for one, why in zip((old, new), absent, strict=True)
        )
        yield Line(name, first, last, change)


def _difference(old: MetricValue, new: MetricValue) -> str:
    """The difference and its interval over draws of noise and secrets (Welch 1947), from two runs of each on."""
    gap = new.value - old.value
    better = {"lower": gap < 0, "higher": gap > 0}.get(new.better)
    word = "" if better is None or not gap else ", better" if better else ", worse"
    if old.deviation is None or new.deviation is None:
        return f"{gap:+.4g}{word}; no interval without several runs of both"
    parts = [score.deviation**2 / score.runs for score in (old, new) if score.deviation is not None]
    if not sum(parts):
        return f"{gap:+.4g}{word}; all runs are alike"
    freedom = sum(parts) ** 2 / sum(
        part**2 / (score.runs - 1) for part, score in zip(parts, (old, new), strict=True)
    )
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(sum(parts))
    sure = word if abs(gap) > half else ", no difference shown"
    return f"{gap:+.4g}, {gap - half:.4g} to {gap + half:.4g}{sure}"


def _findings(before: PolicyReport, now: PolicyReport, absent: Sequence[str]) -> Iterator[Line]:
    """What was found in either run, by attack and measure; what was not tried is neither new nor gone."""
    each = [_strongest(one) for one in (before, now)]
    for key in dict.fromkeys((*each[1], *each[0])):
        states = ["" if (one := found.get(key)) is None else one.state for found in each]
        if "found" in states:
            change = {
                ("found", "found"): "in both",
                ("looked", "found"): "new",
                ("found", "looked"): "gone",
            }.get((states[0], states[1]), "no comparison")
            first, last = (_found(one.get(key), why) for one, why in zip(each, absent, strict=True))
            yield Line(plain_words(key[0]), first, last, change)


def _strongest(policy: PolicyReport) -> dict[tuple[str, str], Finding]:
    kept: dict[tuple[str, str], Finding] = {}
    for found in policy.findings:
        key = found.attack, found.metric
        if key not in kept or (found.state == "found", found.above) > (
            kept[key].state == "found",
            kept[key].above,
        ):
            kept[key] = found
    return kept


def _found(found: Finding | None, absent: str) -> str:
    if found is None:
        return absent or "not tried"
    if found.state == "not looked":
        return "cut short, or too few draws"
    ends = ""
    if found.low is not None and found.high is not None:
        ends = f" ({figure_of(found, found.low)} to {figure_of(found, found.high)})"
    return f"{verdict(found)}{ends}{'' if found.state == 'found' else ': nothing above chance'}"


def _together(before: Report, now: Report) -> Line:
    told = []
    for report in (before, now):
        whole = report.composed
        if whole is None:
            told.append("one policy")
        elif whole.epsilon is None:
            told.append("no finite guarantee")
        else:
            at = at_delta(whole.delta)
            told.append(f"epsilon {shown(whole.epsilon)}{at} for each {whole.unit}")
    return Line("if all are carried out", *told)
