"""Two pages for those responsible for a study: releases, recipients, risk, remaining budget, actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privfed.errors import InputError, number_of, unknown
from privfed.questions.exact import shown, shown_delta, shown_percent
from privfed.reports import remarks
from privfed.reports.budget import AT_HOME, PolicyReport, Report
from privfed.reports.epsilons import attained
from privfed.reports.metrics import judged_by
from privfed.reports.page import SUBJECTS, caveat, claim, render, size, strongest, unread, verdict


@dataclass(frozen=True)
class PolicyAnswers:
    """One policy's answers, each a list of sentences."""

    name: str
    verdict: str
    good: bool
    released: tuple[str, ...]
    risk: tuple[str, ...]
    performance: tuple[str, ...]
    remains: tuple[str, ...]
    to_do: tuple[str, ...]


def answers(report: Report, policy: PolicyReport) -> PolicyAnswers:
    """Answer a board's questions about one policy."""
    return PolicyAnswers(
        policy.name,
        _verdict(policy),
        policy.finite and not policy.breaches and policy.strength == "safe",
        tuple(_released(policy)),
        tuple(_risk(policy)),
        tuple(_performance(policy)),
        tuple(remarks.remains(report, policy)),
        tuple(remarks.to_do(report, policy)),
    )


def chosen(report: Report, name: str = "") -> PolicyReport:
    """Return the policy that a board decides on: the one named (InputError: none is), else the first finite one.

    If all policies read the same records, with the figures of all: see :meth:`.Report.standing`.
    """
    named = {policy.name: policy for policy in report.policies}
    if name and name not in named:
        raise InputError(unknown("policy", name, named))
    if name:
        return report.standing(named[name])
    finite = [policy for policy in report.policies if policy.finite and not policy.silent]
    return report.standing((finite or list(report.policies))[0])


def board_page(report: Report, policy: str = "") -> str:
    """Return the page for those responsible for a study: releases, recipients, risk, actions.

    `policy` is the one to decide on; by default the first with a finite guarantee.
    """
    current = chosen(report, policy)
    return render(
        "board.html",
        report=report,
        policy=current,
        answer=answers(report, current),
        others=[
            answers(report, report.standing(other))
            for other in report.policies
            if other.name != current.name
        ],
        uncovered=uncovered(report),
    )


def uncovered(report: Report) -> tuple[str, ...]:
    """Return sentences on risks that no figure of the page covers."""
    units = {policy.account.policy.unit for policy in report.policies}
    sentences = [
        "What the model shows about a person that it would show just as well without her data.",
        "Access to the owners' own machines, tables, keys or ledgers: a guarantee covers releases only.",
        "Attacks that were not tried. A guarantee, where there is one, holds against all of them.",
    ]
    if plural := " or ".join(SUBJECTS[unit].many for unit in sorted(units & {"record", "rule"})):
        sentences.append(
            f"Persons with several {plural}: k {plural} of one person mean k times the epsilon, and a larger delta, if any."
        )
    if report.withheld:
        left_out = "What attacks achieved"
        if not any(policy.scores for policy in report.policies):
            left_out = "What attacks achieved, and how well the model predicts"
        sentences.append(f"{left_out}: left out, because it is measured on the records themselves.")
    if report.simulated:
        sentences.append(
            "The separation of the owners: this was a simulation, in which one process held all records and ran "
            "every owner's gate."
        )
    if any(policy.account.policy.masked for policy in report.policies):
        sentences.append(
            "More colluding owners than the policy allows for: then only her own share of the noise protects an owner's records."
        )
    return tuple(sentences)


def _verdict(policy: PolicyReport) -> str:
    if policy.breaches:
        return "A guarantee is violated"
    if policy.silent:
        return "Nothing was released"
    if policy.handed_over and not policy.finite:
        return "Not protected: unmodified records were released"
    if policy.breached:
        return "Not protected, and an attack succeeded"
    if not policy.finite:
        return "Not protected"
    return "Protected, but weakly" if policy.strength == "weak" else "Protected"


def _released(policy: PolicyReport) -> Iterator[str]:
    subject = SUBJECTS[policy.account.policy.unit]
    if policy.silent:
        yield "Nothing was released."
        return
    total = sum(client.bytes for client in policy.clients)
    kinds = [line for line in policy.account.kinds if not line.free]
    scope = "in all studies so far" if policy.block else "in all"
    raw = f"none is a table or holds an unmodified {subject.one}"
    if policy.handed_over:
        raw = "none is a table, but some hold unmodified records"
    raw = f"; {raw}" if policy.finite or policy.handed_over else ""
    yield f"{number_of(policy.released, 'answer')}, {size(total)} {scope}, of {number_of(len(kinds), 'kind')}{raw}."
    for line in policy.account.kinds:
        guard = "with noise" if line.protected else "without a finite guarantee"
        guard = "without a release" if line.free else guard
        content = line.about if line.about.endswith("?") else f"{line.about.rstrip('.')}:"
        yield f"{content} {number_of(line.released, 'time')}, {guard}."


def _risk(policy: PolicyReport) -> Iterator[str]:
    subject = SUBJECTS[policy.account.policy.unit]
    good = policy.finite and not policy.silent and not policy.breaches
    if good:
        yield (
            f"Of 100 {subject.many} {'who' if subject.person else 'that'} {subject.were}, an attacker who "
            f"wrongly accuses 1 of 100 others finds {_of_hundred(policy.detection)} on average, whatever is "
            "done with the releases. Guessing would find 1."
        )
        worst = policy.worst_off
        if worst is not None and worst.risk is not None:
            yield worst.risk.sentences(subject)[-2]
    yield claim(policy)
    if of_persons := caveat(policy):
        yield of_persons
    if of_persons := remarks.persons(policy):
        yield f"{of_persons}."
    if good and policy.delta:
        yield (
            f"δ = {shown_delta(policy.delta)} means: at worst, {shown(1e6 * policy.delta)} of a million {subject.many} would have "
            "no protection at all on average, or all of them at once with that probability."
        )
    for finding in policy.broken[:1]:
        allowed = " This contradicts no guarantee stated here." if good else ""
        yield f"Tried in the simulation: {strongest(finding)}{unread(finding, policy.findings)}.{allowed}"
    if policy.above and not policy.broken:
        yield f"Tried in the simulation, and consistent with the guarantee: {verdict(policy.above[0])}{unread(policy.above[0], policy.findings)}."
    if policy.at_home:
        yield f"Tried in the simulation, {AT_HOME}: {verdict(policy.at_home[0])}{unread(policy.at_home[0], policy.findings)}."
    attacks = policy.attacks
    if attacks.looked:
        exposed, best = "", None if policy.above else attained(policy)
        if best is not None:
            exposed = f" The best test of the most exposed record attains ε = {shown(best)}."
        yield (
            f"{_attacks(len(attacks.looked))} tried and found nothing above chance.{exposed} The engineer's page says how "
            "much each would have found."
        )
    if attacks.not_looked:
        yield (
            f"{_attacks(len(attacks.not_looked))} not tried in full: they had nothing to read in these releases, no "
            "records to compare with, or too much to compute. The engineer's page names them."
        )
    if attacks.audited:
        audits = sum(finding.attack in attacks.audited for finding in policy.findings)
        yield f"{number_of(audits, 'audit')} of the noise and the code found no contradiction, which is not a proof."


def _performance(policy: PolicyReport) -> Iterator[str]:
    """Yield the model's performance compared with a constant, or the result of a search."""
    if policy.scores:
        first, result = policy.scores[0], policy.metrics.get("told")
        if result:
            yield f"{result[:1].upper()}{result[1:]}."
        for score in (first, *policy.saving):
            text = f"{score.name.capitalize()} {score.text}"
            if score.constant is not None and not result:
                text += f"; predicting a constant: {score.constant_text}"
            yield f"{text}."
        if first.undecided:
            yield "The constant lies within the interval: whether the model is better is not known."
        judge = judged_by(policy.metrics)
        yield f"{(policy.metrics.get('released') or f'Measured in the simulation, {judge}').capitalize()}."


def _attacks(count: int) -> str:
    return f"{count} {'attack was' if count == 1 else 'attacks were'}"


def _of_hundred(fraction: float) -> str:
    """A fraction as "at most n" of 100, rounded up as on the engineer's page."""
    count = shown_percent(fraction).removesuffix(" %")
    return "up to all 100" if count == "100" else f"at most {count}"
