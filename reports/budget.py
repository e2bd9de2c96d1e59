"""The budget report: releases, their recipients and cost, and the results of attacks.

:meth:`Report.to_dict` gives plain figures; :attr:`Report.breaches` lists violated guarantees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from privfed.accountants.risk import Risk, Tradeoff
from privfed.attacks.finding import FAILED, Finding
from privfed.errors import number_of
from privfed.exchange.messages import EXPLANATIONS, Reason
from privfed.privacy.loss import basis_in_words, is_masked
from privfed.questions.exact import text
from privfed.reports.account import BlockAccount, ClientAccount, PolicyAccount
from privfed.reports.composed import Composed, coarsest, composed
from privfed.reports.epsilons import epsilons
from privfed.reports.metrics import MetricValue, scores
from privfed.reports.remarks import remarks

#: Strength of a guarantee: at most half of the members can be identified (safe), or more (weak); there
#: is none (open), and records were exposed (breach); or it is violated (broken).
Strength = Literal["safe", "weak", "open", "breach", "broken"]
WEAK = 0.5  #: Maximum TPR at 1% FPR above which a finite guarantee is weak
ROUNDING = 1e-6  #: Tolerance of a bound for rounding
#: Half-widths of a 95 % interval by which a figure must exceed a bound to violate it: one half-width
#: would reject every fortieth honest policy, and the interval covers only part of the dependence
#: between clients' noise.
CERTAIN = 4
#: Metrics of a policy that are kept if those scored with the truth are withheld.
UNSCORED = ("simulation", "note", "queries", "questions", "rounds", "breaches", "stopped", FAILED)
#: Why an attack did not look that applies to nothing in a study.
IDLE = "it has nothing to read in these releases, or no records to compare with"
WHOLE = "whole records"  #: Prefix of the metric of a finding that counts unmodified records
#: Prefixes of names of audits, which test the charged loss instead of searching records: the worst record is found
#: more often than by chance under any finite guarantee.
AUDITS = ("audit ", "worst_record")
_SEVERITIES = ("none", "some", "breach")


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) and known else None


#: Introduces findings of attacks in personal models.
AT_HOME = "in clients' own models, which stay with them and which no guarantee covers"


class Attacks(NamedTuple):
    """Names of attacks by the strongest state of each.

    ``not_looked`` gives the reason, or that they do not apply; ``part of`` an attack if it read only some releases
    or answered only some of its questions. It is empty if unmodified records were released: no attack is needed.

    Audits test a guarantee instead of records: those without a contradiction are listed separately, as are findings
    that the guarantee allows, and findings in models that stay with a client.
    """

    found: tuple[str, ...]
    allowed: tuple[str, ...]
    at_home: tuple[str, ...]
    looked: tuple[str, ...]
    not_looked: Mapping[str, str]
    audited: tuple[str, ...]


@dataclass(frozen=True)
class PolicyReport:
    """One policy's run: its account, attack results and performance."""

    account: PolicyAccount  #: from the ledgers
    findings: tuple[Finding, ...] = ()  #: of attacks and audits
    metrics: Mapping[str, Any] = field(default_factory=dict)  #: the model's performance
    #: the question of each attack that does not apply, by name
    inapplicable: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.account.policy.name

    @property
    def clients(self) -> tuple[ClientAccount, ...]:
        """The data owners."""
        return self.account.clients

    @property
    def released(self) -> int:
        """Number of releases by all clients."""
        return sum(client.released for client in self.clients)

    @property
    def releases(self) -> str:
        """Format the number of releases, and of replies that depend on no record."""
        free = sum(client.acknowledged for client in self.clients)
        also = f", {number_of(free, 'reply')} about no record" if free else ""
        return number_of(self.released, "release") + also

    @property
    def unprotected(self) -> int:
        """Number of charged queries without a finite guarantee."""
        return sum(client.unprotected for client in self.clients)

    @property
    def principals(self) -> tuple[str, ...]:
        """The principals, to whom everything was released."""
        return tuple(sorted({name for client in self.clients for name in client.principals}))

    @property
    def secure(self) -> bool:
        """Whether all noise was secure."""
        return all(client.secure for client in self.clients)

    @property
    def finite(self) -> bool:
        """Whether there is a finite guarantee; test noise gives none."""
        return self.account.finite and self.secure

    @property
    def epsilon(self) -> float | None:
        """The largest proven epsilon of any client: its ceiling, else that spent so far; None without a guarantee."""
        return _largest([client.proved for client in self.clients])

    @property
    def delta(self) -> float:
        """The delta of :attr:`epsilon`: the largest of any client's."""
        return max((client.delta for client in self.clients), default=0.0)

    @property
    def meets_budget_early(self) -> bool:
        """Whether some owner's epsilon so far meets the budget before the last charged query."""
        budgets = [(client.steps, client.budget) for client in self.clients]
        met = any(
            len(steps) > 1 and budget is not None and steps[-2].spent == steps[-1].spent == budget
            for steps, budget in budgets
        )
        return met and not any(client.over for client in self.clients)

    @property
    def so_far(self) -> float | None:
        """The largest proven epsilon spent so far by any client."""
        return _largest([client.epsilon for client in self.clients])

    @property
    def block(self) -> BlockAccount | None:
        """The study's own block of the owners' budgets, of the owner with the largest; or None."""
        blocks = [client.block for client in self.clients if client.block is not None]
        return max(blocks, key=lambda block: block.epsilon, default=None)

    @property
    def basis(self) -> str:
        """Basis of the guarantee besides derivations, in words; empty if there is none."""
        names = {name for client in self.clients for name in client.basis}
        basis, masked = basis_in_words(names), self.account.policy.masked
        return basis + masked.in_words(self.unmasked) if masked and is_masked(names) else basis

    @property
    def unmasked(self) -> Fraction | None:
        """Epsilon of the largest budget of any client if the masks of its sums fail; None without masks or budget."""
        allowed, accountant = self.account.policy, self.account.accountant
        if allowed.masked is None:
            return None
        budgets = {client.in_force or allowed.budget for client in self.clients} or {allowed.budget}
        each = (allowed.masked.epsilon_unmasked(accountant, budget) for budget in budgets)
        return max((epsilon for epsilon in each if epsilon is not None), default=None)

    @property
    def silent(self) -> bool:
        """Whether nothing was released: no guarantee, and no model."""
        return not any(client.released or client.acknowledged for client in self.clients)

    @property
    def detection(self) -> float:
        """Maximum TPR at 1% FPR of membership inference against any client."""
        return max(client.detection for client in self.clients) if self.finite else 1.0

    @property
    def strength(self) -> Strength:
        """Strength of the guarantee against any attack."""
        if self.breaches:
            return "broken"
        if self.breached:
            return "breach"
        if not self.finite or self.silent:
            return "open"
        return "weak" if self.detection > WEAK else "safe"

    @property
    def people(self) -> int | None:
        """Number of individuals in a cohort; None for data owners."""
        counts = [client.people for client in self.clients if client.people is not None]
        return sum(counts) if counts else None

    @property
    def worst_off(self) -> ClientAccount | None:
        """The data owner with the highest detection, then cost, among those with a stated risk; or None."""
        stated = [client for client in self.clients if client.risk is not None]
        return max(stated, key=lambda owner: (owner.detection, owner.epsilon or 0.0), default=None)

    @property
    def worst(self) -> str:
        """The highest severity of any finding."""
        severities = [finding.severity for finding in self.findings]
        return max(severities, key=_SEVERITIES.index, default="none")

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings above baseline that are not consistent with the guarantee, most severe first."""
        return tuple(finding for finding in self.above if not self.allows(finding))

    @property
    def above(self) -> tuple[Finding, ...]:
        """Findings of attacks on releases above baseline, most severe first."""
        return tuple(finding for finding in self._by_severity if not finding.at_home)

    @property
    def at_home(self) -> tuple[Finding, ...]:
        """Findings above baseline in models that stay with a client, which no guarantee bounds."""
        return tuple(finding for finding in self._by_severity if finding.at_home)

    @property
    def _by_severity(self) -> list[Finding]:
        grave = [finding for finding in self.findings if finding.severity != "none"]
        return sorted(grave, key=lambda f: (-_SEVERITIES.index(f.severity), not f.harm, -f.above))

    @property
    def attacks(self) -> Attacks:
        """Attacks by state: found something, found nothing, or did not run in full."""
        attacks = [f for f in self.findings if f.attack != "coverage"]
        found = dict.fromkeys(f.attack for f in attacks if f.state == "found")
        excess = {f.attack for f in self.broken}
        at_home = tuple(dict.fromkeys(f.attack for f in self.at_home))
        allowed = tuple(name for name in found if name not in {*excess, *at_home})
        ran = dict.fromkeys(f.attack for f in attacks if f.state != "not looked")
        partial = {
            f"part of {f.attack}" if f.attack in ran else f.attack: f.why_not
            for f in attacks
            if f.state == "not looked" and f.attack not in found
        }
        silent = [name for name in ran if name not in found]
        audited = tuple(name for name in silent if name.startswith(AUDITS))
        looked = tuple(name for name in silent if name not in audited)
        idle = dict.fromkeys(self.inapplicable, IDLE)
        excessive = tuple(name for name in found if name in excess)
        untried = {} if self.handed_over else partial | idle
        return Attacks(excessive, allowed, at_home, looked, untried, audited)

    @property
    def handed_over(self) -> tuple[str, ...]:
        """Kinds of release with unmodified records, by their form or by an attack."""
        by_form = [line.kind for line in self.account.kinds if line.by_record]
        whole = [f for f in self.broken if f.severity == "breach" and f.metric.startswith(WHOLE)]
        return tuple(dict.fromkeys(by_form + [kind for f in whole for kind in f.releases]))

    @property
    def breached(self) -> bool:
        """Whether records were exposed without any guarantee to violate."""
        return not self.account.finite and (bool(self.handed_over) or self.worst == "breach")

    @cached_property
    def scores(self) -> tuple[MetricValue, ...]:
        """The model's scores, the headline first; means over several runs."""
        return scores(self.metrics)

    @property
    def simulated(self) -> bool:
        """Whether its scores are by the records' truth."""
        return "released" not in self.metrics and bool(self.metrics.get("simulation", True))

    @property
    def noisy(self) -> bool:
        """Whether any release has noise, so that another run would differ."""
        return any(
            line.protected and set(line.losses) != {"nothing"} for line in self.account.kinds
        )

    @property
    def breaches(self) -> tuple[str, ...]:
        """Violations of the policy's guarantee, in words; attacks can violate only finite guarantees."""
        bad = [c.client for c in self.clients if not c.intact]
        texts = [f"the ledger of {client} does not verify" for client in bad]
        over = [c.client for c in self.clients if c.over]
        texts += [f"{client} spent more than its budget" for client in over]
        failed = self.metrics.get("breaches", {})
        texts += [
            f"a protected query failed inside the gate of {client} "
            f"({', '.join(kinds)}): no epsilon covers what the failure revealed, and the gate closed"
            for client, kinds in failed.items()
        ]
        texts += [
            f"the gate of {client.client} closed: a protected query failed inside it, and no epsilon covers what "
            "the failure revealed"
            for client in self.clients
            if EXPLANATIONS[Reason.CLOSED] in client.refused and client.client not in failed
        ]
        if self.account.finite:
            grave = [f for f in self.findings if f.severity == "breach"]
            texts += [f"{f.attack} violates a finite guarantee ({_kinds(f)})" for f in grave]
            texts += [
                f"{f.attack} exceeds the bound that follows from the ledgers ({_kinds(f)})"
                for f in self.findings
                if self._beyond(f)
            ]
        return tuple(dict.fromkeys(f"{self.name}: {text}" for text in texts))

    def without_truth(self) -> PolicyReport:
        """Return the report without results scored with the truth, except violations of a guarantee."""
        kept = tuple(
            finding
            for finding in self.findings
            if not finding.simulation or finding.severity == "breach" or self._beyond(finding)
        )
        metrics = {key: self.metrics[key] for key in UNSCORED if key in self.metrics}
        metrics |= self.metrics.get("evaluation", {})
        return replace(self, findings=kept, inapplicable={}, metrics=metrics)

    def _beyond(self, finding: Finding) -> bool:
        """Whether a finding on add-or-remove neighbours certainly exceeds the charged loss.

        A replace-one policy does not bound it. With an advantage of at most A over all tests, TPR is
        at most FPR + A, and so the area under the curve at most 1/2 + A - A^2 / 2.
        """
        if finding.low is None or finding.limit not in self._limits:
            return False
        proven = finding.value - CERTAIN * (finding.value - finding.low)
        return proven > self._limits[finding.limit] + ROUNDING

    def allows(self, finding: Finding) -> bool:
        """Whether the lower end of a membership rate's interval is within the guarantee's bound on any attack."""
        known = self.finite and finding.severity == "some" and finding.measure in self._limits
        low = finding.value if finding.low is None else finding.low
        return known and low <= self._limits[finding.measure] + ROUNDING

    @cached_property
    def _limits(self) -> dict[str, float]:
        """Bounds by the charged loss on add-or-remove neighbours, by :attr:`.Finding.measure`."""
        risks = [client.risk for client in self.clients]
        advantages = [risk.advantage for risk in risks if risk is not None]
        added = self.account.policy.relation == "add-or-remove"
        if not added or not risks or len(advantages) < len(risks):
            return {}
        advantage = max(advantages)
        detection = max(client.detection for client in self.clients)
        return {"found at 1 %": detection, "area": 0.5 + advantage - advantage**2 / 2}

    @property
    def useless(self) -> bool:
        """Whether the model is no better than the constant baseline, by its headline and by every loss."""
        return bool(self.scores) and self.scores[0].useless and not self.saving

    @property
    def saving(self) -> tuple[MetricValue, ...]:
        """Losses better than the constant baseline's, if the headline is not.

        If one class is rare, a good model may never predict it: its accuracy is the constant's, its log loss is
        not. A ranking (AUC) does not count: noise alone ranks better than chance half of the time.
        """
        if not self.scores or not self.scores[0].useless:
            return ()
        return tuple(score for score in self.scores[1:] if score.better == "lower" and score.useful)


class About(Protocol):
    """Who is responsible for a study, and its purpose."""

    @property
    def purpose(self) -> str:
        """Purpose of the model."""

    @property
    def data_description(self) -> str:
        """Description of the data and their subjects."""

    @property
    def missing(self) -> Sequence[str]:
        """Keys that are not filled in."""


class Studied(Protocol):
    """Attributes of a study that a report needs."""

    @property
    def name(self) -> str:
        """The study's name."""

    @property
    def seed(self) -> int:
        """Seed of partition and held-out records."""

    @property
    def together(self) -> bool:
        """Whether all its policies were carried out on the same records."""

    @property
    def ledgers(self) -> Path | None:
        """The folder of persistent ledgers, or None."""

    @property
    def learners(self) -> Sequence[str]:
        """The names of its learners."""

    def learner_under(self, policy: str) -> Any:
        """Return the learner under a policy, which has a name."""

    @property
    def about(self) -> About:
        """Who is responsible for it, and its purpose."""

    def to_dict(self) -> dict[str, Any]:
        """Return the content of its file."""


@dataclass(frozen=True)
class Report:
    """A whole study."""

    study: Studied
    policies: tuple[PolicyReport, ...]
    version: str = ""
    withheld: bool = False  #: whether results scored with the truth are left out

    def _repr_html_(self) -> str:
        """Return the command line's summary, for notebooks."""
        from privfed.reports.text import summary

        text = escape(summary(self.published()))
        return f'<pre style="font-family:monospace">{text}</pre>'

    @property
    def failed(self) -> list[str]:
        """Sentences on learners and attacks that ended with an error."""
        return [
            f"policy {policy.name!r}: its learner failed ({policy.metrics[FAILED]}), and there is no model"
            for policy in self.policies
            if FAILED in policy.metrics
        ] + [
            f"policy {policy.name!r}: attack {finding.attack!r} failed ({finding.detail[FAILED]}), and did not look"
            for policy in self.policies
            for finding in policy.findings
            if FAILED in finding.detail
        ]

    def published(self) -> Report:
        """Return the report as pages show it: without results scored with the truth, if ledgers are persistent."""
        if not self.simulated or self.study.ledgers is None:
            return self
        policies = tuple(policy.without_truth() for policy in self.policies)
        return replace(self, policies=policies, withheld=True)

    @cached_property
    def composed(self) -> Composed | None:
        """The composed guarantee of all policies, if all are carried out."""
        return composed([policy.account for policy in self.policies])

    def standing(self, policy: PolicyReport) -> PolicyReport:
        """Return a policy with the figures of all policies if they read the same records: then none holds alone."""
        total = self.composed if self.study.together else None
        if total is None:
            return policy
        owners = [client for run in self.policies for client in run.clients]
        finite = total.epsilon is not None
        unprotected = 0 if finite else max(1, sum(client.unprotected for client in owners))
        curve = Tradeoff.approximate(total.epsilon or 0.0, total.delta)
        figures: dict[str, Any] = {
            "epsilon": total.epsilon,
            "delta": total.delta,
            "unprotected": unprotected,
            "tight": None,
            "block": None,
            "risk": Risk.of(curve) if finite else None,
            "secure": all(client.secure for client in owners),
            "amended": any(client.amended for client in owners),
            "basis": tuple(sorted({name for client in owners for name in client.basis})),
        }
        fixed = all(client.ceiling is not None for client in owners)
        clients = tuple(
            replace(account, **figures, ceiling=total.epsilon if fixed else None)
            for account in policy.clients
        )
        coarse = coarsest([run.account.policy for run in self.policies])
        rules = replace(
            policy.account.policy, relation=coarse.relation, unit=coarse.unit, cap=coarse.cap
        )
        return replace(policy, account=replace(policy.account, policy=rules, clients=clients))

    @property
    def simulated(self) -> bool:
        """Whether one process held all the data."""
        return any(policy.metrics.get("simulation", True) for policy in self.policies)

    @property
    def kept(self) -> str:
        """Whether the ledgers persist, in one sentence."""
        if not self.simulated:
            return "copies that the data owners provided; their own files continue"
        if self.study.ledgers is None:
            return (
                "ephemeral, part of this output; no other run counts what was spent in them. For real data, set a "
                'folder of persistent ledgers: ledgers = "folder" under [clients]'
            )
        return (
            f"persistent, one file per data owner in {self.study.ledgers}. Figures include all studies "
            "that the owners answered. Later studies may spend the rest of the budgets"
        )

    @property
    def breaches(self) -> tuple[str, ...]:
        """All violated guarantees; empty is a pass, which proves nothing."""
        return tuple(text for policy in self.policies for text in policy.breaches)

    @property
    def silent(self) -> tuple[PolicyReport, ...]:
        """The policies under which nothing was released."""
        return tuple(policy for policy in self.policies if policy.silent)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-like data."""
        return {
            "study": self.study.to_dict(),
            "privfed": self.version,
            "simulation": self.simulated,
            "withheld": self.withheld,
            "breaches": list(self.breaches),
            "together": self.study.together,
            "ledgers": self.kept,
            "composed": None if self.composed is None else self.composed.to_dict(),
            "epsilons": [asdict(row) for row in epsilons(self)],
            "policies": [_policy(policy) for policy in self.policies],
        }


def findings(data: Sequence[Mapping[str, Any]] | None) -> tuple[Finding, ...]:
    """Read all findings of one policy."""
    return tuple(Finding.from_dict(entry) for entry in data or ())


def _kinds(finding: Finding) -> str:
    return ", ".join(finding.releases) or "all releases"


def _policy(report: PolicyReport) -> dict[str, Any]:
    policy = report.account.policy
    return {
        "name": report.name,
        "unit": policy.unit,
        "relation": policy.relation,
        "accountant": report.account.accountant.name,
        "budget": None if policy.budget is None else policy.budget.to_dict(),
        "guarantee": "finite" if report.finite and not report.silent else "none",
        "strength": report.strength,
        "silent": report.silent,
        "breached": report.breached,
        "handed_over": list(report.handed_over),
        "epsilon": report.epsilon,
        "epsilon_so_far": report.so_far,
        "block": None if report.block is None else asdict(report.block),
        "membership_detection_at_1_percent": report.detection,
        "released": report.released,
        "unprotected": report.unprotected,
        "basis": report.basis,
        "secure_noise": report.secure,
        "clients": [
            {
                **asdict(client),
                "detection": client.detection,
                "principals": sorted(client.principals),
                "room": None if client.room is None else text(client.room),
                "in_force": None if client.in_force is None else client.in_force.to_dict(),
                **{
                    name: dict(
                        zip(report.account.accountant.components, map(text, amounts), strict=False)
                    )
                    for name, amounts in (("total", client.total), ("taken", client.taken))
                },
            }
            for client in report.clients
        ],
        "kinds": [asdict(line) for line in report.account.kinds],
        "findings": [finding.to_dict() for finding in report.findings],
        "inapplicable": dict(report.inapplicable),
        "metrics": dict(report.metrics),
        "performance": [asdict(score) | {"useless": score.useless} for score in report.scores],
        "remarks": list(remarks(report)),
    }
