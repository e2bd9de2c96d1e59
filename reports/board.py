"""Two pages for whoever answers for a study and is no engineer: what left, to whom, how risky, what is left, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privfed.errors import InputError
from privfed.questions.exact import shown, shown_down
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.page import SUBJECTS, claim, number, plain_words, size, strongest


@dataclass(frozen=True)
class PolicyAnswers:
    """One policy's answers, each a list of sentences."""

    name: str
    verdict: str
    good: bool
    left: tuple[str, ...]
    risk: tuple[str, ...]
    remains: tuple[str, ...]
    to_do: tuple[str, ...]


def answers(report: Report, policy: PolicyReport) -> PolicyAnswers:
    """Answer a board's questions about one policy, in the order in which they are asked."""
    return PolicyAnswers(
        policy.name,
        _verdict(policy),
        policy.finite and not policy.breaches and policy.strength == "safe",
        tuple(_left(policy)),
        tuple(_risk(policy)),
        tuple(_remains(report, policy)),
        tuple(_to_do(report, policy)),
    )


def chosen(report: Report, name: str = "") -> PolicyReport:
    """Return the policy that a board decides on: the one named (InputError: none is), else the first finite one."""
    named = {policy.name: policy for policy in report.policies}
    if name and name not in named:
        raise InputError(f"no policy {name!r} in the study; there are {', '.join(named)}")
    if name:
        return named[name]
    finite = [policy for policy in report.policies if policy.finite and not policy.silent]
    return (finite or list(report.policies))[0]


def uncovered(report: Report) -> tuple[str, ...]:
    """What no figure of the page covers."""
    units = {policy.account.policy.unit for policy in report.policies}
    said = [
        "What somebody learns about a person from the model that would be as true had she not taken part.",
        "Whoever reads the owners' own machines, tables, keys or ledgers: a guarantee is about what left.",
        "Attacks that were not tried. A guarantee, where there is one, holds against all of them.",
    ]
    if units & {"record", "rule"}:
        said.append(
            "Persons with several records: for a person with k records it is k times the epsilon, and a larger delta."
        )
    if report.withheld:
        said.append(
            "What attacks achieved, and how well the model predicts: left out, for the records' truth scored them."
        )
    if report.simulated:
        said.append(
            "That one process held all records: this was a simulation, in which no owner's gate was on a "
            "machine of its own."
        )
    if any(policy.account.policy.masked for policy in report.policies):
        said.append(
            "More colluding owners than the policy allows for: then each owner's own share is all."
        )
    return tuple(said)


def _verdict(policy: PolicyReport) -> str:
    if policy.breaches:
        return "A guarantee is violated"
    if policy.silent:
        return "Nothing was released"
    if policy.breached:
        return "Not protected, and an attack succeeded"
    if not policy.finite:
        return "Not protected"
    return "Protected, but weakly" if policy.strength == "weak" else "Protected"


def _left(policy: PolicyReport) -> Iterator[str]:
    subject = SUBJECTS[policy.account.policy.unit]
    if policy.silent:
        yield "Nothing left."
        return
    total = sum(client.bytes for client in policy.clients)
    kinds = [line for line in policy.account.kinds if line.released]
    yield (
        f"{number(policy.released)} answers, {size(total)} in all, of {len(kinds)} kinds; no table, and "
        f"{'unmodified records in some of them' if policy.handed_over else f'no {subject.one} as it is'}."
        if policy.finite or policy.handed_over
        else f"{number(policy.released)} answers, {size(total)} in all, of {len(kinds)} kinds."
    )
    for line in kinds:
        how = "with noise" if line.protected else "without a finite guarantee"
        yield f"{line.about.rstrip('.')}: {number(line.released)} times, {how}."


def _risk(policy: PolicyReport) -> Iterator[str]:
    subject = SUBJECTS[policy.account.policy.unit]
    yield claim(policy)
    if policy.finite and not policy.silent and not policy.breaches:
        yield (
            f"In other words: of 100 {subject.many} {'who' if subject.person else 'that'} {subject.were}, somebody who "
            f"wrongly accuses 1 of 100 others finds at most {_of_hundred(policy.detection)} on average, whatever is "
            "done with what left. By guessing it would be 1."
        )
        worst = policy.worst_off
        if worst is not None and worst.risk is not None:
            yield worst.risk.sentences(subject)[-2]
    for found in policy.broken[:1]:
        yield f"Tried in the simulation: {strongest(found)}."
    if policy.attacks.looked:
        names = plain_words(", ".join(policy.attacks.looked))
        yield f"Tried, and found nothing above chance: {names}. The engineer's page says how much each would have found."
    if policy.attacks.not_looked:
        yield f"Could not look, or does not apply: {plain_words(', '.join(policy.attacks.not_looked))}."


def _of_hundred(share: float) -> str:
    """A share as so many of 100, rounded up."""
    count = -int(-100 * share // 1)
    return "all 100" if count >= 100 else str(count)


def _remains(report: Report, policy: PolicyReport) -> Iterator[str]:
    budget = policy.account.policy.budget
    if budget is None:
        yield "There is no budget: nothing bounds what is asked next."
        return
    if not policy.finite:
        yield "A budget cannot be stated: something left without a finite guarantee."
        return
    owners: dict[str, list[str]] = {}
    for client in policy.clients:
        if client.epsilon is not None and client.budget is not None:
            left = policy.account.accountant.left(client.total, budget)
            room = (
                f"room for a study of epsilon {shown_down(left, 3)}" if left else "nothing is left"
            )
            spent = f"at most epsilon {shown(client.epsilon)} of {shown(client.budget)} is spent; {room}"
            owners.setdefault(spent, []).append(client.client)
    for spent, names in owners.items():
        who = "each owner" if len(owners) == 1 and len(names) > 1 else ", ".join(names)
        yield f"{who[:1].upper()}{who[1:]}: {spent}."
    if report.simulated and report.study.ledgers is None:
        yield "The ledgers of this simulation count for no later study."


def _to_do(report: Report, policy: PolicyReport) -> Iterator[str]:
    yield from (f"Stop, and have this looked into: {text}." for text in policy.breaches)
    if policy.silent:
        yield "Nothing can be released under this policy; see the reasons on the engineer's page."
        return
    if not policy.secure:
        yield "Do not use this run: its noise was for a test and can be recomputed."
    if not policy.account.finite:
        yield f"Do not let this model or its releases out: {policy.unprotected} of {policy.released} answers have no finite guarantee."
    elif policy.strength == "weak":
        yield "Decide whether so weak a guarantee is enough, or take a smaller epsilon: privfed price --epsilon 1 says what it costs."
    if policy.useless:
        yield "Do not use the model: it predicts no better than a constant."
    if missing := report.study.about.missing:
        yield f"Write down in the study's [about]: {', '.join(missing)}."
    if report.simulated and report.study.ledgers is None:
        yield 'Before real data: set ledgers that last (ledgers = "folder" under [clients]).'
    if policy.finite and not policy.breaches:
        yield "If the model shall leave: privfed release, which holds it against your thresholds and signs."
