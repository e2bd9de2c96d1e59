"""Remarks on a policy's run, one or two sentences each, shared by page, text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from privfed.errors import number_of
from privfed.privacy.policy_objects import dearest_of
from privfed.questions.exact import shown, shown_down, shown_percent
from privfed.reports.metrics import measured

if TYPE_CHECKING:
    from privfed.reports.budget import PolicyReport, Report

ALL_BUT = 0.99  #: Fraction of a budget above which the rest is not remarked on


def remarks(policy: PolicyReport) -> tuple[str, ...]:
    """Return all remarks that apply."""
    rules = (handed_over, silent, unspent, persons, guessed, draws, tails, faults)
    return tuple(text for remark in rules if (text := remark(policy)))


def handed_over(policy: PolicyReport) -> str:
    """Return the kinds of release that held unmodified records."""
    if not policy.handed_over:
        return ""
    return (
        f"Unmodified records were released in answers to {' and '.join(policy.handed_over)}; "
        "no attack is needed"
    )


def silent(policy: PolicyReport) -> str:
    """Return why nothing was released, if so."""
    if not policy.silent:
        return ""
    refused = dict.fromkeys(text for client in policy.clients for text in client.refused)
    failed = sum(client.failed for client in policy.clients)
    why = [f"every query was refused, for {' and '.join(refused)}"] if refused else []
    why += [f"{failed} charged queries failed"] if failed else []
    nobody = "no owner answers any of the queries: its policy or its budget does not allow it"
    return f"Nothing was released: {'; '.join(why) or nobody}"


def unspent(policy: PolicyReport) -> str:
    """Return how much of a budget remains and what it allows; empty if hardly any."""
    budget = policy.account.policy.budget
    certified = all(client.ceiling is not None for client in policy.clients)
    if budget is None or not certified or not policy.finite or policy.silent or not policy.clients:
        return ""
    if policy.so_far is None or policy.so_far >= ALL_BUT * float(budget.epsilon):
        return ""
    remaining = min(
        (client.room for client in policy.clients if client.room is not None), default=Fraction(0)
    )
    if not remaining:
        return ""
    released = {line.kind for line in policy.account.kinds}
    never = ", ".join(kind for kind in policy.account.policy.guards if kind not in released)
    why = ": the learner needed no more, or stopped early"
    if never:
        why = f": the learner needed no more, stopped early, or was allowed no more by policy or budget (never released: {never})"
    why = "" if policy.block else why
    return (
        f"At most ε {shown(policy.so_far)} of {shown(budget.epsilon)} is spent so far{why}. The rest allows "
        f"another study of the same data, of up to ε {shown_down(remaining)}"
    )


def persons(policy: PolicyReport) -> str:
    """Return how far a record's guarantee covers persons with several records."""
    counts = policy.metrics.get("persons") or {}
    several = sum(count["several"] for count in counts.values())
    if not several or policy.account.policy.unit != "record":
        return ""
    persons = sum(count["persons"] for count in counts.values())
    protected = (
        "and no guarantee is stated"
        if not policy.finite
        else "but the guarantee is per record: for a person with k records it holds at k times the ε "
        '(and a larger δ, if any). Set unit = "individual" to protect persons'
    )
    text = f"{several} of {persons} persons"
    if len(counts) > 1:
        return f"{text}, counted at each owner, have several records there, {protected}"
    return f"{text} have several records, {protected}"


def guessed(policy: PolicyReport) -> str:
    """Return why an attack exceeds the bound on detection: it finds more without any release."""
    more = {
        finding.attack: finding.baseline
        for finding in policy.broken
        if policy.finite
        and finding.measure == "found at 1 %"
        and (finding.baseline or 0) > policy.detection
    }
    return "; ".join(
        f"{attack} finds {100 * (baseline or 0):.1f} % of the records from what it knows already, without any "
        f"release: the bound of {shown_percent(policy.detection)} is for an attacker who would find 1 % in that way"
        for attack, baseline in more.items()
    )


def draws(policy: PolicyReport) -> str:
    """Return how scores vary by the noise, or how to measure it."""
    runs = policy.metrics.get("runs")
    if runs:
        return (
            f"{_varied(runs)}. A simulation: the ledgers hold only the first run; on real data each run would be "
            "charged"
        )
    if not policy.scores or not policy.noisy or "released" in policy.metrics:
        return ""
    return (
        "Scores reflect a single noise draw; set runs = 5 in the study to measure their variation"
    )


def _varied(runs: Mapping[str, Any]) -> str:
    count, scored = runs["count"], len(runs.get("values", ()))
    others = [score["deviation"] for score in runs.get("scores", {}).values()]
    if scored == count and not any([runs["deviation"], *others]):
        return f"{count} runs gave the same scores"
    without = f"; {runs['without']} gave no model" if runs["without"] else ""
    figures = "scores are mean ± one standard deviation" if scored > 1 else ""
    figures = figures or ("scores are of one run only" if scored else "there are no scores")
    return f"{count} runs, each with fresh noise and secrets{without}: {figures}"


def tails(policy: PolicyReport) -> str:
    """Return a model's error within and beyond its limits, if much of the target's variance lies beyond them."""
    beyond = policy.metrics.get("beyond")
    if not beyond:
        return ""
    low, high = beyond["limits"]
    return (
        f"This model predicts between {measured(low)} and {measured(high)}. Beyond these limits, by more than a hundredth of the distance between them, lie {measured(100 * beyond['records'], 3)} % of the "
        f"held-out records, with {measured(100 * beyond['variance'], 2)} % of the target's variance. Root mean squared error within the limits: "
        f"{measured(beyond['inside'])} (constant {measured(beyond['constant'])}; R squared {measured(beyond['r2'], 2)}); beyond: {measured(beyond['outside'])}"
    )


def faults(policy: PolicyReport) -> str:
    """Return the number of answers that failed inside gates, which only the owners know."""
    failures = {
        client: sum(kinds.values())
        for client, kinds in policy.metrics.get("faults", {}).items()
        if any(kinds.values())
    }
    if not failures:
        return ""
    counts = ", ".join(f"{client} {count}" for client, count in failures.items())
    return (
        f"Answers that failed inside a gate: {counts}. Noise around zero was sent instead if the answer was to have "
        "noise, nothing if an owner keeps a model of its own, and a failure otherwise. With real gates, only their "
        "owners can count these"
    )


def remains(report: Report, policy: PolicyReport) -> Iterator[str]:
    """Yield the remaining budgets of the owners, and whether they count for a later study."""
    yield from remaining_budget(policy)
    simulated = report.simulated and report.study.ledgers is None
    if simulated and policy.account.policy.budget is not None and policy.finite:
        yield "The ledgers of this simulation count for no later study."


def remaining_budget(policy: PolicyReport) -> Iterator[str]:
    """Yield the remaining budget of each owner; owners with the same text share a line."""
    budget = policy.account.policy.budget
    if budget is None:
        yield "There is no budget that limits what later queries cost."
        return
    if not policy.finite:
        yield "What remains cannot be stated: at least one release has no finite guarantee."
        return
    owners: dict[str, list[str]] = {}
    for client in policy.clients:
        if client.epsilon is not None and client.budget is not None:
            remaining = client.room or Fraction(0)
            room = "less than 1 % is left" if remaining else "nothing is left"
            if remaining > (1 - ALL_BUT) * float(client.budget):
                room = f"room for a study of epsilon {shown_down(remaining)}"
            whole = client.epsilon >= client.budget and room.startswith("room")
            proven = " (a loose bound: it holds wherever a study stops)" if whole else ""
            spent = f"at most epsilon {shown(client.epsilon)} of {shown(client.budget)} is spent{proven}; {room}"
            owners.setdefault(spent, []).append(client.client)
    for spent, names in owners.items():
        yield f"{'Each owner' if len(owners) == 1 and len(names) > 1 else ', '.join(names)}: {spent}."


def tighter(policy: PolicyReport) -> str:
    """Return why there is no tighter bound than the accountant's."""
    if dearest_of(policy.account.policy) is None:
        return "A tighter bound needs a policy that limits how often each kind is answered."
    return "The policy's limits on how often each kind is answered give no tighter bound."


def to_do(report: Report, policy: PolicyReport) -> Iterator[str]:
    """Yield the actions that a policy requires, the most urgent first."""
    yield from (f"Stop, and have this investigated: {text}." for text in policy.breaches)
    if policy.silent:
        yield "Nothing can be released under this policy; see the reasons on the engineer's page."
        return
    if not policy.secure:
        yield "Do not use this run: its noise was for a test and can be recomputed."
    if not policy.account.finite:
        yield f"Do not pass on this model or its releases: {policy.unprotected} of {number_of(policy.released, 'answer')} {'has' if policy.unprotected == 1 else 'have'} no finite guarantee."
    elif policy.strength == "weak":
        yield (
            "Decide whether so weak a guarantee is enough. If not, do not release the model, and run a new study "
            "with a smaller epsilon (privfed price --epsilon 1 says what it costs): what is spent stays spent."
        )
    if policy.useless:
        yield "Do not use the model: it predicts no better than a constant."
    elif policy.saving and policy.scores[0].name == "accuracy":
        yield "Use only the model's probabilities: on the held-out records they were better than a constant's. The classes that it predicts were not."
    if report.simulated and report.study.ledgers is None:
        yield 'Before you use real data, set persistent ledgers (ledgers = "folder" under [clients]).'
    if missing := report.study.about.missing:
        yield f"Fill in the study's [about]: {', '.join(missing)}."
    if policy.finite and not policy.breaches:
        yield "Before the model leaves, run privfed release: it checks the model against your thresholds, and signs the result."
