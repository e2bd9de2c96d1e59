"""What a policy's report says besides its figures, one sentence each: in page, text and JSON alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from privfed.questions.exact import shown, shown_down

if TYPE_CHECKING:
    from privfed.reports.budget import PolicyReport

#: Share of a budget from which on nothing is said about what is left of it.
ALL_BUT = 0.99


def remarks(policy: PolicyReport) -> tuple[str, ...]:
    """Every sentence that applies: what left, what is left, whom it protects, and how it varied."""
    said = (handed_over, silent, unspent, persons, draws, faults)
    return tuple(text for tell in said if (text := tell(policy)))


def handed_over(policy: PolicyReport) -> str:
    """That the records themselves left, and in which answers."""
    if not policy.handed_over:
        return ""
    return (
        f"The records themselves left, as they are, in answers to {' and '.join(policy.handed_over)}: "
        "whoever got them needs no attack"
    )


def silent(policy: PolicyReport) -> str:
    """That nothing was released, and why."""
    if not policy.silent:
        return ""
    refused = dict.fromkeys(text for client in policy.clients for text in client.refused)
    failed = sum(client.failed for client in policy.clients)
    why = [f"every question was refused, for {' and '.join(refused)}"] if refused else []
    why += [f"{failed} charged questions came to nothing"] if failed else []
    nobody = "no owner would answer what was to be asked, by its policy or for want of budget"
    return f"Nothing was released: {'; '.join(why) or nobody}"


def unspent(policy: PolicyReport) -> str:
    """How much of a budget is left and what it may pay for; empty where hardly any is."""
    accountant, budget = policy.account.accountant, policy.account.policy.budget
    certified = all(client.ceiling is not None for client in policy.clients)
    if budget is None or not certified or not policy.finite or policy.silent or not policy.clients:
        return ""
    if policy.so_far is None or policy.so_far >= ALL_BUT * float(budget.epsilon):
        return ""
    left = min(accountant.left(client.total, budget) for client in policy.clients)
    if not left:
        return ""
    return (
        f"At most ε {shown(policy.so_far)} of {shown(budget.epsilon)} is spent so far, for the learner "
        "asked for no more, or stopped early. What is left may pay for another study of the same "
        f"data, of up to ε {shown_down(left, 3)}"
    )


def persons(policy: PolicyReport) -> str:
    """That a record's guarantee is not a person's, where persons have several records."""
    told = policy.metrics.get("persons") or {}
    several = sum(one["several"] for one in told.values())
    if not several or policy.account.policy.unit != "record":
        return ""
    everybody = sum(one["persons"] for one in told.values())
    protected = (
        "and no guarantee is stated"
        if not policy.finite
        else "but the guarantee is a record's: of someone with k of them it holds at k times the ε only "
        '(and a larger δ, where there is one); unit = "individual" makes it a person\'s'
    )
    return f"{several} of {everybody} persons have several records, {protected}"


def draws(policy: PolicyReport) -> str:
    """Whether a figure is one draw of the noise, or a mean of several."""
    runs = policy.metrics.get("runs")
    if runs:
        return f"{_varied(runs)}. {_SIMULATED}"
    if not policy.scores or not policy.noisy:
        return ""
    return (
        "The model's worth is one draw of the noise, and another would come out otherwise; "
        "runs = 5 in the study tells by how much"
    )


#: What several runs stand for.
_SIMULATED = (
    "This is a simulation: the ledgers hold the first run alone, and carried out on real data each "
    "would be charged"
)


def _varied(runs: Mapping[str, Any]) -> str:
    """How figures varied over several runs; one figure alone varies by nobody knows what."""
    count, scored = runs["count"], len(runs.get("values", ()))
    others = [score["deviation"] for score in runs.get("scores", {}).values()]
    if scored == count and not any([runs["deviation"], *others]):
        return f"{count} runs came to the same figures"
    without = f"; {runs['without']} came to no model" if runs["without"] else ""
    figures = "figures are the mean ± one standard deviation" if scored > 1 else ""
    figures = figures or ("figures are of one run alone" if scored else "there are no figures")
    return f"{count} runs, each with fresh noise and secrets{without}: {figures}"


def faults(policy: PolicyReport) -> str:
    """How many answers came to nothing inside the gates: the owners know, whoever asked does not."""
    each = {
        client: sum(kinds.values())
        for client, kinds in policy.metrics.get("faults", {}).items()
        if kinds
    }
    if not each:
        return ""
    told = ", ".join(f"{client} {count}" for client, count in each.items())
    return (
        f"Answers that came to nothing inside a gate: {told}. In their place left noise around nothing "
        "where noise was due, and else a failure; only the owner of a real gate can count these"
    )
