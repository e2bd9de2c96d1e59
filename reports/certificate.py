"""The egress certificate: one signed file with the decision whether a model may be released, and the reasons.

It binds a model file's digest to the heads of its ledgers, to the claims, audits and attacks, and to an
officer's thresholds; the decision follows by rule, and a person approves it (SATRE 3.3.07 and 3.3.09).
:mod:`privfed.reports.check_certificate` verifies it offline.
"""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from privfed.attacks.finding import Finding
from privfed.errors import InputError, Note, did_you_mean, file_errors, unknown
from privfed.exchange.signing import Signer
from privfed.questions.part import Unit
from privfed.reports.account import ClientAccount
from privfed.reports.budget import Report
from privfed.reports.check_certificate import FORMAT, canonical, criteria, decide, digest
from privfed.reports.provenance import utc
from privfed.tables.toml_file import read_toml
from privfed.tables.toml_table import section

#: Packages whose versions a certificate names.
LIBRARIES = ("privfed", "opendp", "dp-accounting", "numpy", "scikit-learn")
#: Requirements of SATRE 2.0 for which a certificate is evidence.
SATRE = {
    "3.3.07": "technical controls before a model's egress: criteria, decision, approval",
    "3.3.09": "machine-readable record of the disclosure control applied to this output",
}


@dataclass(frozen=True)
class Thresholds:
    """An officer's requirements on a model before its release: a TOML file."""

    max_epsilon: float  #: of each owner, over all charges of her ledger
    max_delta: float = 1e-5  #: at which it is stated
    units: tuple[Unit, ...] = ("record", "individual", "client")  #: of privacy that are acceptable
    #: releases without a finite guarantee, of all owners together
    max_unprotected_releases: int = 0
    #: attacks that must have run to completion, with the power to find something
    attacks: tuple[str, ...] = ("membership", "pool")
    #: limit of the upper end of any attack's TPR at 1 % FPR; None for no limit
    max_tpr_at_1_percent: float | None = 0.1
    #: limit of the upper end of a membership attack's ROC AUC; None for no limit
    max_area: float | None = None
    #: smallest fraction of a claimed epsilon that some audit must prove; None for no limit
    min_audit_power: float | None = 0.3
    consent: bool = False  #: whether each owner's consent must be listed under ``[owners]``
    #: each owner's consent: where it is documented
    owners: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_toml(cls, path: str | Path) -> Thresholds:
        """Read a file; InputError if it cannot be read, or a key is unknown, missing, or of another type."""
        where = f"thresholds file {path}"
        data = {
            key: None if value == "none" and key in _OPTIONAL else value
            for key, value in read_toml(path, where, InputError).items()
        }
        thresholds = section(data, cls, where, InputError, examples=_EXAMPLES)
        for key, value in vars(thresholds).items():
            if isinstance(value, float) and not isfinite(value):  # nothing lies above nan
                raise InputError(f"{where}: {key} must be finite, such as 0.1")
        return thresholds


#: Thresholds that a file switches off by "none".
_OPTIONAL = {"max_tpr_at_1_percent": 0.1, "max_area": 0.7, "min_audit_power": 0.3}
#: What to write into a file.
_EXAMPLES = {
    "max_epsilon": "max_epsilon = 3.0",
    "max_delta": "max_delta = 1e-5",
    "units": 'units = ["record"]',
    "attacks": 'attacks = ["membership", "pool"]',
    "owners": '[owners] with ashford = "letter of 2026-11-20"',
    **{name: f'{name} = {value}, or "none"' for name, value in _OPTIONAL.items()},
}


def certificate(
    report: Report, policy: str, model: Path, thresholds: Path, *, approver: str = ""
) -> dict[str, Any]:
    """Return an unsigned certificate of a model, with the decision by rule.

    Args:
        report: the finished study's.
        policy: under which the model was learned.
        model, thresholds: the model's file, and the officer's.
        approver: name of the person who approves; empty without approval.

    Raises:
        InputError: a file cannot be read, or the study has no such policy.
    """
    named = {run.name: run for run in report.policies}
    if policy not in named:
        raise InputError(unknown("policy", policy, named))
    run, limits = report.standing(named[policy]), Thresholds.from_toml(thresholds)
    counted = report.policies if report.study.together else [run]
    required = asdict(limits)
    consent = required.pop("owners")
    owners = [client.client for client in run.clients]
    _check_names(consent, owners, f"{thresholds}: [owners]", "owner")
    names = [*dict.fromkeys(finding.attack for finding in run.findings), *run.inapplicable]
    _check_names(limits.attacks if run.findings else (), names, f"{thresholds}: attacks", "attack")
    required |= {"units": list(limits.units), "attacks": list(limits.attacks)}
    data, now = _bytes(model), utc()
    document: dict[str, Any] = {
        "format": FORMAT,
        "made": now,
        "study": {"name": report.study.name, "seed": report.study.seed},
        "policy": policy,
        "model": {"file": model.name, "sha256": digest(data), "bytes": len(data)},
        "claim": {
            "unit": run.account.policy.unit,
            "relation": run.account.policy.relation,
            "accountant": run.account.accountant.name,
            "rests on": run.basis or "what is derived here",
            "epsilon if masks fail": None if run.unmasked is None else float(run.unmasked),
        },
        "owners": [_owner(client) for client in run.clients],
        "breaches": [text for each in counted for text in each.breaches],
        "audited": [_audited(finding) for finding in run.findings if _is_audit(finding)],
        "attacked": [_attacked(finding) for finding in run.findings if not _is_audit(finding)],
        "not looked": dict(run.inapplicable),
        "simulation": bool(report.simulated),
        "thresholds": required,
        "thresholds_sha256": digest(_bytes(thresholds)),
        "consent": dict(consent),
        "versions": {name: version(name) for name in LIBRARIES}
        | {"python": platform.python_version()},
        "satre": SATRE,
        "approval": {"person": approver, "date": now if approver else ""},
    }
    document["criteria"] = criteria(document)
    document["decision"] = decide(document["criteria"])
    return document


def signed(document: Mapping[str, Any], key: Path) -> dict[str, Any]:
    """Sign a certificate with an officer's key; InputError if it refuses release, or lacks approval or a key."""
    if document["decision"] != "release" or not document["approval"]["person"]:
        raise InputError("a certificate is signed only for a release that a person approved")
    signer = Signer.from_file(key, "")
    complete = {**document, "public_key": signer.public.hex()}
    return {**complete, "signature": signer.sign_bytes(canonical(complete))}


def written(document: Mapping[str, Any]) -> str:
    """Return a certificate as the text of its file."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _check_names(named: Collection[str], known: Sequence[str], where: str, what: str) -> None:
    """Warn of each unknown name: a misspelt owner has not consented, a misspelt attack has not run."""
    for name in named:
        if name not in known:
            hint = did_you_mean(name, [other for other in known if other not in named])
            text = f"{where} names {name!r}, and this study has no such {what}"
            warnings.warn(text + hint, Note, stacklevel=3)


def _owner(client: ClientAccount) -> dict[str, Any]:
    proved = None if client.unprotected else client.proved
    return {
        "owner": client.client,
        "head": "" if client.head is None else "{}:{}".format(*client.head),
        "intact": client.intact,
        "epsilon": proved,
        "delta": float(client.delta),
        "spent so far": None if client.unprotected else client.epsilon,
        "unprotected": client.unprotected,
        "secure_noise": client.secure,
        "over_budget": client.over,
        "rests on": list(client.basis),
    }


def _is_audit(finding: Finding) -> bool:
    return finding.attack.startswith("audit") and finding.metric.startswith("epsilon proven")


def _audited(finding: Finding) -> dict[str, Any]:
    kinds = ", ".join(finding.releases) or "all"
    return {"subject": f"{finding.attack}: {kinds}", "proven": finding.value, "claimed": finding.of}


def _attacked(finding: Finding) -> dict[str, Any]:
    names = (
        *("attack", "metric", "measure", "value", "of", "low", "high", "baseline"),
        *("severity", "state", "why_not"),
    )
    return {name: getattr(finding, name) for name in names}


def _bytes(path: Path) -> bytes:
    with file_errors(f"file {path}"):
        return path.read_bytes()
