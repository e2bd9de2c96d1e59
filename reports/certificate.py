"""The egress certificate: one signed file that says whether a model may leave, and why.

It binds a model file's digest to the heads of the ledgers behind it, to what was claimed, audited and
attacked, and to an officer's thresholds; the decision follows by rule, and a person approves it (SATRE
3.3.07 and 3.3.09). :mod:`privfed.reports.check_certificate` checks it anywhere.
"""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
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
from privfed.reports.check_certificate import FORMAT, canonical, criteria, decided, digest
from privfed.tables.toml_file import read_toml
from privfed.tables.toml_table import section

#: Packages whose versions a certificate names.
LIBRARIES = ("privfed", "opendp", "dp-accounting", "numpy", "scikit-learn")
#: What of SATRE 2.0 a certificate is evidence for.
SATRE = {
    "3.3.07": "technical controls before a model's egress: criteria, decision, approval",
    "3.3.09": "machine-readable record of the disclosure control applied to this output",
}


@dataclass(frozen=True)
class Thresholds:
    """What an officer requires of a model before it may leave: a TOML file."""

    max_epsilon: float  #: of each owner, over all that her ledger counts
    max_delta: float = 1e-5  #: at which it is stated
    units: tuple[Unit, ...] = ("record", "individual", "client")  #: of privacy that are acceptable
    #: releases without a finite guarantee, of all owners together
    max_unprotected_releases: int = 0
    #: attacks that must have been carried out to their end, able to find something
    attacks: tuple[str, ...] = ("membership", "pool")
    #: upper end of the share of members found at 1 % false positives, of any attack; None does not
    #: ask
    max_tpr_at_1_percent: float | None = 0.1
    #: upper end of the area under a membership attack's curve; None does not ask
    max_area: float | None = None
    #: least share of a claimed epsilon that some audit proved; None does not ask
    min_audit_power: float | None = 0.3
    consent: bool = False  #: whether each owner's consent must stand under ``[owners]``
    #: each owner's consent: where it is written down
    owners: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_toml(cls, path: str | Path) -> Thresholds:
        """Read a file; InputError if it cannot be read, or a key is unknown, missing, or of another type."""
        where = f"thresholds file {path}"
        plain = {
            key: None if value == "none" and key in _OPTIONAL else value
            for key, value in read_toml(path, where, InputError).items()
        }
        made = section(plain, cls, where, InputError, examples=_EXAMPLES)
        for key, value in vars(made).items():
            if isinstance(value, float) and not isfinite(value):  # nothing lies above nan
                raise InputError(f"{where}: {key} must be finite, such as 0.1")
        return made


#: Thresholds that a file leaves out by "none".
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
    """Write down what is known of a model, and decide by rule; unsigned.

    Args:
        report: the finished study's.
        policy: under which the model was learned.
        model, thresholds: the model's file, and the officer's.
        approver: who approves, by name; empty, nobody does.

    Raises:
        InputError: a file cannot be read, or the study has no such policy.
    """
    named = {own.name: own for own in report.policies}
    if policy not in named:
        raise InputError(unknown("policy", policy, named))
    own, limits = report.standing(named[policy]), Thresholds.from_toml(thresholds)
    counted = report.policies if report.study.together else [own]
    held = asdict(limits)
    consent = held.pop("owners")
    owners = [client.client for client in own.clients]
    _check_names(consent, owners, f"{thresholds}: [owners]", "owner")
    tried = [*dict.fromkeys(found.attack for found in own.findings), *own.inapplicable]
    _check_names(limits.attacks if own.findings else (), tried, f"{thresholds}: attacks", "attack")
    held |= {"units": list(limits.units), "attacks": list(limits.attacks)}
    data, today = _bytes(model), datetime.now(UTC).strftime("%Y-%m-%d")
    plain: dict[str, Any] = {
        "format": FORMAT,
        "made": today,
        "study": {"name": report.study.name, "seed": report.study.seed},
        "policy": policy,
        "model": {"file": model.name, "sha256": digest(data), "bytes": len(data)},
        "claim": {
            "unit": own.account.policy.unit,
            "relation": own.account.policy.relation,
            "accountant": own.account.accountant.name,
            "rests on": own.basis or "what is derived here",
            "epsilon if masks fail": None if own.unmasked is None else float(own.unmasked),
        },
        "owners": [_owner(client) for client in own.clients],
        "breaches": [one for each in counted for one in each.breaches],
        "audited": [_audited(one) for one in own.findings if _is_audit(one)],
        "attacked": [_attacked(one) for one in own.findings if not _is_audit(one)],
        "not looked": dict(own.inapplicable),
        "simulation": bool(report.simulated),
        "thresholds": held,
        "thresholds_sha256": digest(_bytes(thresholds)),
        "consent": dict(consent),
        "versions": {name: version(name) for name in LIBRARIES}
        | {"python": platform.python_version()},
        "satre": SATRE,
        "approval": {"person": approver, "date": today if approver else ""},
    }
    plain["criteria"] = criteria(plain)
    plain["decision"] = decided(plain["criteria"])
    return plain


def signed(plain: Mapping[str, Any], key: Path) -> dict[str, Any]:
    """Sign a certificate with an officer's key; InputError if it decides otherwise, or without approval or key."""
    if plain["decision"] != "release" or not plain["approval"]["person"]:
        raise InputError("a certificate is signed only for a release that a person approved")
    signer = Signer.from_file(key, "")
    made = {**plain, "public_key": signer.public.hex()}
    return {**made, "signature": signer.sign_bytes(canonical(made))}


def written(plain: Mapping[str, Any]) -> str:
    """A certificate as the text of its file."""
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _check_names(named: Collection[str], known: Sequence[str], where: str, what: str) -> None:
    """Note each name that is none: a misspelt owner has not consented, a misspelt attack has not looked."""
    for name in named:
        if name not in known:
            hint = did_you_mean(name, [one for one in known if one not in named])
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


def _is_audit(found: Finding) -> bool:
    return found.attack.startswith("audit") and found.metric.startswith("epsilon proven")


def _audited(found: Finding) -> dict[str, Any]:
    kinds = ", ".join(found.releases) or "all"
    return {"subject": f"{found.attack}: {kinds}", "proven": found.value, "claimed": found.of}


def _attacked(found: Finding) -> dict[str, Any]:
    kept = (
        *("attack", "metric", "measure", "value", "of", "low", "high", "baseline"),
        *("severity", "state", "why_not"),
    )
    return {name: getattr(found, name) for name in kept}


def _bytes(path: Path) -> bytes:
    with file_errors(f"file {path}"):
        return path.read_bytes()
