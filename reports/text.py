"""Reports as plain text, for terminals and pipes."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from privfed.attacks.finding import Finding
from privfed.questions.exact import at_delta, shown, shown_delta
from privfed.reports.budget import AT_HOME, IDLE, PolicyReport, Report
from privfed.reports.composed import Composed
from privfed.reports.metrics import MetricValue
from privfed.reports.page import figure_of, unread, verdict
from privfed.reports.remarks import remarks

#: Note on withheld results if ledgers are persistent.
WITHHELD = (
    "left out, because these ledgers are persistent: attack results, and scores measured on the data themselves; "
    "privfed report FOLDER --simulation shows everything"
)
MARGIN = 17  #: Columns left of a summary's texts.


def summary(report: Report, width: int = 0) -> str:
    """Return, for each policy, its guarantee, releases, performance, attacks and remarks, one labelled text per line.

    Lines are wrapped at ``width`` columns; 0 for no wrapping.
    """
    lines = [report.study.name]
    for policy in report.policies:
        lines.append("")
        for label, text in [(policy.name, _guarantee(policy)), *_rows(policy, report.withheld)]:
            indent = "" if label == policy.name else "  "
            lines += _wrapped(f"{indent + label:{MARGIN}}", text, width)
    lines.append("")
    if report.composed is not None:
        lines += _wrapped(f"{'all together':{MARGIN}}", _together(report.composed, report), width)
    if report.withheld:
        lines += _wrapped("", WITHHELD, width)
    return "\n".join(lines).rstrip()


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Return a label and its text, wrapped at a width and indented."""
    label += "" if not label or label.endswith(" ") else "  "
    if not width:
        return [label + text]
    return textwrap.wrap(
        text, max(width, 2 * MARGIN), initial_indent=label, subsequent_indent=" " * MARGIN
    )


def _rows(policy: PolicyReport, withheld: bool) -> Iterator[tuple[str, str]]:
    if policy.block is not None and policy.finite:
        claim = f"epsilon {shown(policy.block.epsilon)} at delta {shown_delta(policy.block.delta)}"
        if policy.block.method != "filter":
            claim += f" ({policy.block.method.upper()}; its share allows epsilon {shown(policy.block.priced)})"
        yield "this study", f"{claim}, given all before it; the epsilon above covers all studies"
    scope = " in all studies so far" if policy.block else ""
    yield "released", f"{policy.releases}{scope}, {policy.unprotected} unprotected"
    simulated = " (simulation)" if policy.simulated and policy.scores else ""
    yield "performance", _performance(policy, withheld) + simulated
    attacks = policy.attacks
    for label, prefix, names in (
        ("found by", "", _with_rest(policy, attacks.found)),
        ("found", "consistent with the guarantee: ", _with_rest(policy, attacks.allowed)),
        ("found", f"{AT_HOME}: ", _with_rest(policy, attacks.at_home)),
        ("nothing found", "", attacks.looked),
        ("not looked", "", _with_reasons(attacks.not_looked)),
        ("audits", "no contradiction found by ", attacks.audited),
    ):
        if names:
            yield label, prefix + ", ".join(names)
    notes = [policy.metrics[key] for key in ("released", "hint") if key in policy.metrics]
    yield from (("note", text) for text in (*notes, *remarks(policy)))


def _with_rest(policy: PolicyReport, found: Sequence[str]) -> list[str]:
    """Return attacks that found something, with what kept them from finding more."""
    by_name = {
        f.attack: unread(f, policy.findings)[2:] for f in policy.findings if f.state == "found"
    }
    return [f"{name} ({by_name[name]})" if by_name[name] else name for name in found]


def _with_reasons(not_looked: Mapping[str, str]) -> list[str]:
    """Return the attacks that did not look, in groups with their reason; those with nothing to read without."""
    names: dict[str, list[str]] = {}
    for name, why in not_looked.items():
        names.setdefault(why, []).append(name)
    return [
        ", ".join(each) + (f" ({why})" if why not in ("", IDLE) else "")
        for why, each in names.items()
    ]


def _together(composed: Composed, report: Report) -> str:
    """Return the composed guarantee of all policies, and whether it holds."""
    alternatives = " if all were carried out (as alternatives, each guarantee holds only alone)"
    case = "" if report.study.together else alternatives
    if composed.epsilon is None:
        return f"NO FINITE GUARANTEE{case}, because {composed.why}"
    case += f" ({composed.basis})" if composed.basis else ""
    delta, unit = at_delta(composed.delta), composed.unit
    return f"epsilon {shown(composed.epsilon)}{delta} for each {unit}{case}"


def _guarantee(policy: PolicyReport) -> str:
    if policy.breaches:
        return "GUARANTEE VIOLATED"
    if policy.breached:
        return "BREACH, NO GUARANTEE"
    if policy.account.finite and not policy.secure:
        return "TEST NOISE, NO GUARANTEE"
    if not policy.finite:
        return "NO FINITE GUARANTEE"
    if policy.silent:
        return "NOTHING RELEASED"
    basis = f" ({policy.basis})" if policy.basis else ""
    weak = ", weak" if policy.strength == "weak" else ""
    unit = policy.account.policy.unit
    each = "" if unit == "record" else f" for each {unit}"
    return f"epsilon {shown(policy.epsilon or 0.0)}{at_delta(policy.delta)}{each}{weak}{basis}"


def _performance(policy: PolicyReport, withheld: bool) -> str:
    remark = policy.metrics.get("told")
    if not policy.scores:
        why = "" if policy.silent else policy.metrics.get("stopped", "")
        return remark or ("left out" if withheld else f"no model{': ' * bool(why)}{why}")
    first = policy.scores[0]
    remark = remark or ("no better than the constant baseline" if policy.useless else None)
    if "personal" in policy.metrics:
        remark = ", ".join(["by personal models", *([remark] if remark else [])])
    others = [
        _score(score, judged=True) for score in policy.scores[1:] if score.constant is not None
    ]
    headline = _score(first, judged=bool(policy.saving))
    return ", ".join([headline, *([remark] if remark else []), *others])


def _score(score: MetricValue, *, judged: bool = False) -> str:
    """Return a score with its deviation and the constant baseline's; ``judged``, also that it is no better."""
    worse = ", no better" if judged and score.useless else ""
    constant = "" if score.constant is None else f" (constant {score.constant_text}{worse})"
    return f"{score.name} {score.text}{constant}"


def finding_lines(findings: Sequence[Finding]) -> str:
    """Return a line for each finding: state, figure, and baseline or the reason that there is none."""
    lines = []
    for finding in findings:
        baseline = f"baseline {figure_of(finding, finding.baseline)}"
        if finding.baseline is None:
            baseline = ": ".join(["no baseline", *filter(None, [finding.detail.get("note")])])
        result = f"{verdict(finding)}; {baseline}{unread(finding)}"
        lines.append(f"  {finding.state:10} {finding.attack:20} {finding.why_not or result}")
    return "\n".join(lines)
