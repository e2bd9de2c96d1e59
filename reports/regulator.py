"""The pyramid of NIST SP 800-226: claim, evidence, hazard and state of each block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from privfed.attacks.finding import Finding
from privfed.errors import number_of
from privfed.questions.exact import shown, shown_delta
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.metrics import judged_by
from privfed.reports.page import claim, number, render, unread, verdict

State = Literal["met", "not met", "examined", "not examined", "outside"]
#: Epsilon up to which SP 800-226 calls a guarantee strong, and above which almost meaningless; a large delta.
STRONG, MEANINGLESS, LARGE_DELTA = 1.0, 10.0, 1e-5


@dataclass(frozen=True)
class PyramidBlock:
    """One block of the pyramid."""

    level: str  #: top, middle or base
    name: str  #: as in SP 800-226
    claim: str  #: the claim
    evidence: str  #: where it can be checked: ledger rows, audits, tests
    hazard: str  #: what would invalidate the claim
    state: State  #: whether it is met, by the rule stated in the hazard


def regulator_page(report: Report) -> str:
    """Return the page by the blocks of NIST SP 800-226."""
    pyramids = [(policy, pyramid(report, policy)) for policy in report.policies]
    return render("regulator.html", report=report, pyramids=pyramids)


def pyramid(report: Report, policy: PolicyReport) -> tuple[PyramidBlock, ...]:
    """Return all blocks, from the top."""
    return (*_top(policy), *_middle(report, policy), *_base(report, policy))


def _top(policy: PolicyReport) -> Iterator[PyramidBlock]:
    rules = policy.account.policy
    finite = policy.finite and not policy.breaches and not policy.silent
    heads = "; ".join(
        f"{c.client} rows 1 to {c.head[0]}, head {c.head[1][:12]}" for c in policy.clients
    )
    epsilon, delta = policy.epsilon, policy.delta
    judged = "no finite epsilon"
    if epsilon is not None:
        judged = f"epsilon {shown(epsilon)}, delta {shown_delta(delta)}"
    met = finite and epsilon is not None and epsilon <= MEANINGLESS and delta <= LARGE_DELTA
    yield PyramidBlock(
        "top",
        "Privacy parameters",
        f"{claim(policy)} Original parameters: accountant {policy.account.accountant.name}, budget "
        f"{'none' if rules.budget is None else f'epsilon {shown(rules.budget.epsilon)}, delta {shown_delta(rules.budget.delta)}'}.",
        f"Ledgers, recomputed: {heads}.",
        f"Little meaning above epsilon {MEANINGLESS:g}, strong up to {STRONG:g}; a delta above {LARGE_DELTA:g} is suspicious. "
        f"Here: {judged}.",
        "met" if met else "not met",
    )
    persons = rules.unit in ("individual", "client")
    yield PyramidBlock(
        "top",
        "Unit of privacy",
        f"One {rules.unit}; neighbours by {rules.relation}.",
        "The policy in force, whose digest is in every ledger row.",
        "A guarantee for events is surprisingly weak for persons with many of them"
        + ("." if persons else '; write unit = "individual" to protect persons.'),
        "met" if persons else "not met",
    )


def _middle(report: Report, policy: PolicyReport) -> Iterator[PyramidBlock]:
    audits = [finding for finding in policy.findings if finding.attack.startswith("audit ")]
    correct, state = _correct(policy, audited=bool(audits))
    yield PyramidBlock(
        "middle",
        "Algorithms and correctness",
        correct,
        ";\n".join(map(_finding_text, audits)) or "no audit ran under this policy",
        "Noise that does not have the charged distribution; sums in floating point; a query that fails.",
        state,
    )
    scores = ", ".join(f"{score.name} {score.with_constant}" for score in policy.scores)
    yield PyramidBlock(
        "middle",
        "Utility",
        scores or "not measured",
        (
            policy.metrics.get("released")
            or f"measured in the simulation, {judged_by(policy.metrics)}"
        )
        if scores
        else "none",
        "A model that is no better than a constant. This is undecided where the constant lies within the interval, "
        "or where one score is better and another is not.",
        "not examined"
        if not scores
        else "examined"
        if policy.scores[0].undecided or policy.saving
        else "not met"
        if policy.useless
        else "met",
    )
    grouped = policy.metrics.get("groups")
    disjoint = _disjoint_pairs(grouped or {})
    yield PyramidBlock(
        "middle",
        "Bias",
        f"{'; '.join(_groups(policy))}. {_overlap_text(disjoint)}"
        if grouped
        else "No error by group was measured.",
        "metrics.json, groups" if grouped else "none",
        "Noise affects small groups most. The block is met if every group's error is below a threshold that the "
        "study's owners set; this tool sets none. Systemic and human bias are outside its scope.",
        "not examined" if not grouped else "not met" if disjoint else "examined",
    )
    inferred = any(line.kind == "schema.infer" for line in policy.account.kinds)
    yield PyramidBlock(
        "middle",
        "Bounds and tuning",
        "Bounds were inferred from the records."
        if inferred
        else "Bounds are public, from the schema. Whether settings were chosen on these records is not known here.",
        "the schema, and the ledgers: they have a row of kind schema.infer if bounds were inferred from the records",
        "Clipping bounds from the data are a release; so is tuning that looks at the data.",
        "not met" if inferred else "examined",
    )


def _finding_text(finding: Finding) -> str:
    """A finding with the releases that it read, as on the engineer's page."""
    source = f" of {', '.join(finding.releases)}" if finding.releases else ""
    return f"{finding.attack}{source}: {finding.why_not or verdict(finding) + unread(finding)} ({finding.state})"


def _disjoint_pairs(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[str, ...]:
    """Pairs of groups of one column with disjoint 95 % intervals."""
    return tuple(
        f"{first['group']} and {second['group']} ({column})"
        for column, each in groups.items()
        for first, second in combinations([group for group in each if group["low"] is not None], 2)
        if first["high"] < second["low"] or second["high"] < first["low"]
    )


def _overlap_text(disjoint: Sequence[str]) -> str:
    if disjoint:
        return f"The intervals do not overlap for {', '.join(disjoint)}."
    return "All intervals overlap, which does not show equality: small groups have wide intervals."


def _groups(policy: PolicyReport) -> Iterator[str]:
    for column, groups in policy.metrics["groups"].items():
        text = ", ".join(
            f"{group['group']} {number(group['value'])}"
            + (
                f" ({number(group['low'])} to {number(group['high'])})"
                if group["low"] is not None
                else ""
            )
            for group in groups
        )
        yield f"{policy.metrics['measure']} by {column}, with 95 % intervals: {text}"


def _base(report: Report, policy: PolicyReport) -> Iterator[PyramidBlock]:
    refused = sum(sum(client.refused.values()) for client in policy.clients)
    bounded = all(client.ceiling is not None for client in policy.clients)
    yield PyramidBlock(
        "base",
        "Query model",
        "Interactive: the server may choose each query by the earlier answers.",
        f"{policy.releases} and {number_of(refused, 'refusal')} in the ledgers",
        "A total that holds only for queries fixed in advance.",
        "met" if policy.finite and bounded else "not met",
    )
    masked = policy.account.policy.masked
    yield PyramidBlock(
        "base",
        "Trust model",
        "The server reads the releases without noise."
        if not policy.finite
        else "Each owner's own gate adds the noise; nobody else is trusted."
        if masked is None
        else f"Shares of noise behind masks, against the server and {number_of(masked.colluding, 'colluding owner')}, in "
        f"totals of {masked.fewest} owners or more.",
        "the gate's code; "
        + ("one process" if report.simulated else "a process of each owner's own"),
        "Within one process, nothing isolates a gate.",
        "not examined" if report.simulated else "met",
    )
    yield PyramidBlock(
        "base",
        "Side channels",
        "Integer noise; constant replies to failures. Refusals depend on public state alone, with one "
        "exception: a gate that closes reveals, once, that a protected query failed inside it.",
        "docs/threat-model.md",
        "Timing is not padded.",
        "not examined",
    )
    yield PyramidBlock(
        "base",
        "Data security and access control",
        "Not part of this tool.",
        "none",
        "Anyone who can read the owners' machines needs no release.",
        "outside",
    )
    about = report.study.about
    described = bool(about.data_description and about.purpose)
    yield PyramidBlock(
        "base",
        "Data collection exposure",
        about.data_description if described else "Purpose and data are not described.",
        "the study's [about]" if described else "none",
        "Collecting more than the purpose needs.",
        "not examined" if described else "not met",
    )


def _correct(policy: PolicyReport, *, audited: bool) -> tuple[str, State]:
    """Text on the correctness of the algorithms, and its state."""
    if not policy.finite:
        return (
            "At least one release has no finite guarantee, or the noise was for a test.",
            "not met",
        )
    if policy.basis:
        text = (
            "Sensitivities of privfed's own queries are derived in their documentation, and the loss of its own noise "
            f"is proven. For the rest, the guarantee holds {policy.basis}."
        )
    else:
        text = (
            "Sensitivities are derived in each query's documentation; noise is drawn by the core, from distributions "
            "whose loss is proven."
        )
    if policy.breaches or not all(client.intact for client in policy.clients):
        return text, "not met"
    return text, "met" if audited else "not examined"
