"""The budget report: who released what, to whom, at what cost, and what an attacker got.

It reads one study's output and gives plain figures (:meth:`Report.to_dict`) and the
breaches of what a policy claims (:attr:`Report.breaches`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from privfed.attacks.finding import Finding
from privfed.questions.exact import text
from privfed.reports.account import ClientAccount, PolicyAccount
from privfed.reports.composed import Composed, composed
from privfed.reports.remarks import remarks
from privfed.reports.worth import Score, scores

#: What a guarantee is worth: it keeps an attacker from finding most, or it does not, or there is none,
#: and then perhaps records were had; or what happened contradicts it.
Strength = Literal["safe", "weak", "open", "breach", "broken"]
#: Detection at 1 % false alarms above which a finite guarantee is worth little.
WEAK = 0.5
#: How far a figure may lie beyond a bound by rounding alone.
ROUNDING = 1e-6
#: How many times an interval's half must lie beyond a bound before a claim counts as broken: at 95 %
#: by itself it would convict every fortieth honest policy, and it knows only a part of what the draws
#: of many clients share.
CERTAIN = 4
#: How the metric of a finding begins that counts records which left as they are.
WHOLE = "whole records"
_SEVERITIES = ("none", "some", "breach")


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) and known else None


class Attacks(NamedTuple):
    """How many attacks were tried, and how many of them beat their blind guess."""

    tried: int
    beat: int


@dataclass(frozen=True)
class PolicyReport:
    """One policy's run: its account, what the attacks got, and what the model was worth.

    Args:
        account: what the ledgers say.
        findings: what the attacks and audits got.
        metrics: what the model was worth.
        inapplicable: by name the question of each attack that had nothing to work on.
    """

    account: PolicyAccount
    findings: tuple[Finding, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
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
        """Number of releases of all clients."""
        return sum(client.released for client in self.clients)

    @property
    def unprotected(self) -> int:
        """How many charged questions have no finite guarantee."""
        return sum(client.unprotected for client in self.clients)

    @property
    def principals(self) -> tuple[str, ...]:
        """Who asked, and so to whom everything was released."""
        return tuple(sorted({name for client in self.clients for name in client.principals}))

    @property
    def secure(self) -> bool:
        """Whether all noise was secure."""
        return all(client.secure for client in self.clients)

    @property
    def finite(self) -> bool:
        """Whether there is a finite guarantee at all; test noise gives none."""
        return self.account.finite and self.secure

    @property
    def epsilon(self) -> float | None:
        """The largest epsilon that is proved of any client, whatever is still asked of it.

        That is a certified ceiling, or without one what was spent so far; none without a guarantee.
        """
        return _largest([client.proved for client in self.clients])

    @property
    def so_far(self) -> float | None:
        """The largest epsilon that is proved of what left any client so far."""
        return _largest([client.epsilon for client in self.clients])

    @property
    def silent(self) -> bool:
        """Whether nothing was released: there is then no guarantee to speak of, and no model."""
        return self.released == 0

    @property
    def detection(self) -> float:
        """Best membership detection at 1 % false positives against any client."""
        return max(client.detection for client in self.clients) if self.finite else 1.0

    @property
    def strength(self) -> Strength:
        """What the guarantee is worth against the best possible attacker."""
        if self.breaches:
            return "broken"
        if self.breached:
            return "breach"
        if not self.finite or self.silent:
            return "open"
        return "weak" if self.detection > WEAK else "safe"

    @property
    def people(self) -> int | None:
        """How many individuals answered, of a cohort; none where data owners did."""
        counts = [client.people for client in self.clients if client.people is not None]
        return sum(counts) if counts else None

    @property
    def worst_off(self) -> ClientAccount | None:
        """The data owner that spent the most, among those with a stated risk."""
        stated = [client for client in self.clients if client.risk is not None]
        return max(stated, key=lambda client: client.epsilon or 0.0, default=None)

    @property
    def worst(self) -> str:
        """The gravest severity of any finding."""
        found = [finding.severity for finding in self.findings]
        return max(found, key=_SEVERITIES.index, default="none")

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings that broke through, gravest first."""
        grave = [finding for finding in self.findings if finding.severity != "none"]
        return tuple(sorted(grave, key=lambda f: -_SEVERITIES.index(f.severity)))

    @property
    def attacks(self) -> Attacks:
        """How many attacks were tried, each counted once, and how many found more than a guess."""
        return Attacks(
            len({finding.attack for finding in self.findings}),
            len({finding.attack for finding in self.broken}),
        )

    @property
    def handed_over(self) -> tuple[str, ...]:
        """The kinds of release that gave records as they are: by their form, or as attacks found."""
        by_form = [line.kind for line in self.account.kinds if line.by_record]
        had = [
            one for one in self.broken if one.severity == "breach" and one.metric.startswith(WHOLE)
        ]
        return tuple(dict.fromkeys(by_form + [kind for one in had for kind in one.releases]))

    @property
    def breached(self) -> bool:
        """Whether records were had where nothing was promised: no claim is broken, and yet a breach."""
        return not self.account.finite and (bool(self.handed_over) or self.worst == "breach")

    @cached_property
    def scores(self) -> tuple[Score, ...]:
        """What the model was worth, the headline first; means over runs where there were several."""
        return scores(self.metrics)

    @property
    def noisy(self) -> bool:
        """Whether anything left with noise, so that another run would come out otherwise."""
        return any(
            line.protected and set(line.losses) != {"nothing"} for line in self.account.kinds
        )

    @property
    def breaches(self) -> tuple[str, ...]:
        """What contradicts the policy's own claim, in words.

        A policy without a finite guarantee claims nothing that an attack could contradict.
        """
        found = [
            f"{self.name}: the ledger of {client.client} does not verify"
            for client in self.clients
            if not client.intact
        ]
        found += [
            f"{self.name}: {client.client} spent more than its budget"
            for client in self.clients
            if client.over
        ]
        if self.account.finite:
            found += [
                f"{self.name}: {finding.attack} broke a finite guarantee"
                f" ({', '.join(finding.releases) or 'all releases'})"
                for finding in self.findings
                if finding.severity == "breach"
            ]
            found += [
                f"{self.name}: {finding.attack} got more than the ledgers allow"
                f" ({', '.join(finding.releases) or 'all releases'})"
                for finding in self.findings
                if self._beyond(finding)
            ]
        return tuple(dict.fromkeys(found))

    def _beyond(self, finding: Finding) -> bool:
        """Whether a finding about one record more or less lies beyond what was charged, for certain.

        A policy that only hides a record's exchange for another says nothing of that. With an
        advantage of at most A over all tests, true positives are at most A above false ones, and the
        area under them at most 1/2 + A - A^2 / 2.
        """
        if finding.low is None or self.account.policy.relation != "add-or-remove":
            return False
        risks = [client.risk for client in self.clients]
        if not risks or any(risk is None for risk in risks):
            return False
        most = max(risk.advantage for risk in risks if risk is not None)
        limits = {"found at 1 %": self._found, "area": 0.5 + most - most**2 / 2}
        proven = finding.value - CERTAIN * (finding.value - finding.low)
        return finding.limit in limits and proven > limits[finding.limit] + ROUNDING

    @property
    def _found(self) -> float:
        """What any test of any client finds at most, at 1 % false positives."""
        return max(client.detection for client in self.clients)

    @property
    def useless(self) -> bool:
        """Whether the model is no better than the best constant answer."""
        return bool(self.scores) and self.scores[0].useless


class Studied(Protocol):
    """What a report tells of the study behind it."""

    @property
    def name(self) -> str:
        """The study's name."""

    @property
    def seed(self) -> int:
        """What its partition and held-out part were drawn with."""

    @property
    def together(self) -> bool:
        """Whether all its policies were carried out on the records, not one of them."""

    @property
    def ledgers(self) -> Path | None:
        """The folder of lasting ledgers; none where they are thrown away with the output."""

    @property
    def learners(self) -> Sequence[str]:
        """The names of the learners that it runs."""

    def to_dict(self) -> dict[str, Any]:
        """Give the study as plain data, the form of its file."""


@dataclass(frozen=True)
class Report:
    """A whole study."""

    study: Studied
    policies: tuple[PolicyReport, ...]
    version: str = ""

    @cached_property
    def composed(self) -> Composed | None:
        """What the policies together say about one record, if all of them are carried out."""
        return composed([policy.account for policy in self.policies])

    @property
    def simulated(self) -> bool:
        """Whether one process held all the data, and knew the truth."""
        return any(policy.metrics.get("simulation", True) for policy in self.policies)

    @property
    def kept(self) -> str:
        """Whether the ledgers last, in one sentence: throw-away ones hold no budget for long."""
        if not self.simulated:
            return "copies, as the data owners gave them; the owners' own files go on"
        if self.study.ledgers is None:
            return (
                "throw-away: they lie in this output, go with it, and no other run counts what was spent "
                'in them; over real data name a lasting folder, ledgers = "folder" under [clients]'
            )
        return (
            f"lasting: one file a data owner in {self.study.ledgers}; figures count all studies that "
            "the owners answered, and further ones may spend what is left of their budget"
        )

    @property
    def breaches(self) -> tuple[str, ...]:
        """Every breach of a claim; empty is a pass, which proves nothing."""
        return tuple(text for policy in self.policies for text in policy.breaches)

    @property
    def silent(self) -> tuple[PolicyReport, ...]:
        """The policies under which nothing was released: no guarantee, and no model."""
        return tuple(policy for policy in self.policies if policy.silent)

    def to_dict(self) -> dict[str, Any]:
        """Give the report as plain data."""
        return {
            "study": self.study.to_dict(),
            "privfed": self.version,
            "simulation": self.simulated,
            "breaches": list(self.breaches),
            "together": self.study.together,
            "ledgers": self.kept,
            "composed": None if self.composed is None else self.composed.to_dict(),
            "policies": [_policy(policy) for policy in self.policies],
        }


def findings(plain: Sequence[Mapping[str, Any]] | None) -> tuple[Finding, ...]:
    """Read all findings of one policy; none written is none found."""
    return tuple(Finding.from_dict(entry) for entry in plain or ())


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
        "membership_detection_at_1_percent": report.detection,
        "released": report.released,
        "unprotected": report.unprotected,
        "secure_noise": report.secure,
        "clients": [
            {
                **asdict(client),
                "detection": client.detection,
                "principals": sorted(client.principals),
                "total": dict(
                    zip(report.account.accountant.components, map(text, client.total), strict=False)
                ),
            }
            for client in report.clients
        ],
        "kinds": [asdict(line) for line in report.account.kinds],
        "findings": [found.to_dict() for found in report.findings],
        "inapplicable": dict(report.inapplicable),
        "metrics": dict(report.metrics),
        "worth": [asdict(score) | {"useless": score.useless} for score in report.scores],
        "remarks": list(remarks(report)),
    }
