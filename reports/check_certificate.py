"""Checks a release certificate offline: this file alone, Python 3.11 and `cryptography`.

    python check_certificate.py CERTIFICATE MODEL --key officer.pub [--thresholds FILE] [--head OWNER=SEQ:HASH]

A certificate binds one model file to the ledgers of the owners of its training data: claims, audits and
attacks, compared with the thresholds of the officer who signed. The decision is recomputed from the
figures in it. Exit status: 0 release, 1 refused, 2 cannot be checked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

FORMAT = "privfed release certificate 1"
MET, FAILED, UNKNOWN = "met", "not met", "not examined"  #: States of a criterion
#: A threshold's key, the measure of the findings that it bounds, and the criterion's name.
_CEILINGS = ("max_tpr_at_1_percent", "found at 1 %", "at 1 %"), ("max_area", "area", "told apart")


def canonical(cert: Mapping[str, Any]) -> bytes:
    """Return the signed bytes: the format's name, and all keys but the signature, sorted."""
    signed = {key: value for key, value in cert.items() if key != "signature"}
    return f"{FORMAT}\n{json.dumps(signed, sort_keys=True, allow_nan=False)}".encode()


def digest(data: bytes) -> str:
    """Return the SHA-256 digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def criteria(cert: Mapping[str, Any]) -> list[dict[str, str]]:
    """Compare a certificate's figures with its thresholds; returns criterion, required, found and state.

    A missing figure is not examined, which does not count as met.
    """
    names = ("criterion", "required", "found", "state")
    rows = (*_claims(cert, cert["thresholds"]), *_evidence(cert, cert["thresholds"]))
    return [dict(zip(names, row, strict=True)) for row in rows]


def _claims(cert: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    owners = cert["owners"]
    broken = [row["owner"] for row in owners if not row["intact"]]
    yield "ledgers", "all verify", _all("verify", broken, owners), _state(owners and not broken)
    seeded = [row["owner"] for row in owners if not row["secure_noise"]]
    yield "noise", "secure", _all("have secure noise", seeded, owners), _state(not seeded)
    open_ = sum(row["unprotected"] for row in owners)
    limit = limits["max_unprotected_releases"]
    yield "unprotected releases", f"at most {limit}", str(open_), _state(open_ <= limit)
    unmasked = cert["claim"].get("epsilon if masks fail")
    figures = {f"claimed {name}": [row[name] for row in owners] for name in ("epsilon", "delta")}
    figures |= {} if unmasked is None else {"epsilon if masks fail": [unmasked]}
    for name, values in figures.items():
        limit = limits["max_delta" if name == "claimed delta" else "max_epsilon"]
        known = bool(values) and None not in values
        state = _state(max(values) <= limit) if known else UNKNOWN
        figure = _text(max(values), 4) if known else "no finite figure"
        yield name, f"at most {limit:g} for each owner", figure, state
    unit, units = cert["claim"]["unit"], limits["units"]
    yield "unit of privacy", f"one of {', '.join(units)}", unit, _state(unit in units)
    over = [row["owner"] for row in owners if row["over_budget"]]
    yield "budgets", "kept", _all("kept theirs", over, owners), _state(not over)
    if limits["consent"]:
        silent = [row["owner"] for row in owners if not cert["consent"].get(row["owner"])]
        yield "owners' consent", "of each", _all("consented", silent, owners), _state(not silent)


def _evidence(cert: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    broken, attacked, audited = cert["breaches"], cert["attacked"], cert["audited"]
    yield "guarantees", "none violated", "; ".join(broken) or "none violated", _state(not broken)
    blind = {row["attack"] for row in attacked if row["state"] == "not looked"}
    missing = sorted({*limits["attacks"]} - ({row["attack"] for row in attacked} - blind))
    required = ", ".join(limits["attacks"]) or "none in particular"
    text = f"missing: {', '.join(missing) or 'none'}"
    yield "attacks", f"carried out: {required}", text, UNKNOWN if missing else MET
    named = sorted({row["attack"] for row in attacked if row["severity"] == "breach"})
    yield "people or values", "none identified", ", ".join(named) or "none", _state(not named)
    for key, measure, name in _CEILINGS:
        if limits[key] is not None:
            bounded = [row for row in attacked if row.get("measure") == measure]
            looked = [row for row in bounded if row["state"] != "not looked"]
            known = [row["value"] if row["high"] is None else row["high"] for row in looked]
            done = {f"{row['attack']} (by an owner)" for row in looked}  # the server saw no less
            silent = sorted({row["attack"] for row in bounded if row not in looked} - done)
            text = _text(max(known), 4) if known else "no such figure"
            text += "; not looked: " + ", ".join(silent) if silent else ""
            above = max(known, default=0) > limits[key]
            state = FAILED if above else UNKNOWN if silent or not known else MET
            yield f"members {name}", f"at most {limits[key]:g} (upper end)", text, state
    if limits["min_audit_power"] is not None:
        ratios = [row["proven"] / row["claimed"] for row in audited if row["claimed"]]
        state = _state(max(ratios) >= limits["min_audit_power"]) if ratios else UNKNOWN
        figure = _text(max(ratios), 3, ROUND_FLOOR) if ratios else "no audit"
        yield "audit: proven over claimed", f"at least {limits['min_audit_power']:g}", figure, state
    bad = [row["subject"] for row in audited if row["proven"] > row["claimed"]]
    yield "audits of epsilon", "contradict no claim", _all("agree", bad, audited), _state(not bad)


def _text(value: float, digits: int, rounding: str = ROUND_CEILING) -> str:  # 3.0001 is not 3
    exact = Context(prec=digits, rounding=rounding).create_decimal(repr(value))
    return f"{float(exact):.{digits}g}"


def _state(met: object) -> str:
    return MET if met else FAILED


def _all(what: str, without: Sequence[str], items: Sequence[Any]) -> str:
    text = f"all {len(items)} {what}" if items else "there are none"
    return f"not: {', '.join(without)}" if without else text


def decide(rows: Sequence[Mapping[str, str]]) -> str:
    """Return "release" if every criterion is met, else "refuse"."""
    return "release" if rows and all(row["state"] == MET for row in rows) else "refuse"


def faults(
    cert: Mapping[str, Any],
    model: bytes,
    key: bytes | None,
    thresholds: bytes | None = None,
    heads: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Yield all reasons why a certificate does not allow the release of a model.

    Args:
        cert, model: the certificate, and the model file's bytes.
        key: the officer's public key, 32 bytes, obtained separately; None checks no signature, which
            is a reason.
        thresholds: the officer's file as it is now, if it must be unchanged.
        heads: heads of ledgers as they are now, by owner, if nothing may have been added.
    """
    if cert.get("format") != FORMAT:
        yield f"it is no {FORMAT!r}"
        return
    if key is None:
        yield "no public key was given, so anybody may have written it; write --key officer.pub"
    elif not _signed(cert, key):
        changed = "it was changed, or is not signed by this key"
        yield changed if cert.get("signature") else "it is not signed"
    if digest(model) != cert["model"]["sha256"]:
        yield "the model is another file than the certificate's"
    if thresholds is not None and digest(thresholds) != cert["thresholds_sha256"]:
        yield "the thresholds have changed since it was signed"
    known = {entry["owner"]: entry["head"] for entry in cert["owners"]}
    for owner in [name for name, head in (heads or {}).items() if known.get(name) != head]:
        yield f"the ledger of {owner} is not at the certificate's head"
    rows = criteria(cert)
    old, new = ([{**row, "found": ""} for row in table] for table in (cert["criteria"], rows))
    if old != new or decide(rows) != cert["decision"]:
        yield "its decision does not follow from its figures"
    for row in rows:
        if row["state"] != MET:
            yield f"{row['criterion']}: {row['state']} ({row['found']}; required: {row['required']})"
    if not cert["approval"]["person"]:
        yield "no person approved it"


def _signed(cert: Mapping[str, Any], key: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(key)
        public.verify(bytes.fromhex(cert["signature"]), canonical(cert))
    except (InvalidSignature, ValueError, KeyError, TypeError):
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Check files by name; see the top of this file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("certificate", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--key", type=Path, help="the officer's public key, 32 bytes")
    parser.add_argument("--thresholds", type=Path, help="the officer's file as it is now")
    parser.add_argument("--head", action="append", default=[], help="OWNER=SEQ:HASH, as it is now")
    args = parser.parse_args(arguments)
    try:
        cert = json.loads(args.certificate.read_bytes())
        files = [path.read_bytes() if path else None for path in (args.key, args.thresholds)]
        heads = dict(head.partition("=")[::2] for head in args.head)
        reasons = list(faults(cert, args.model.read_bytes(), files[0], files[1], heads))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        where, why = getattr(error, "filename", None), getattr(error, "strerror", "no certificate")
        print(f"cannot be checked: {where or args.certificate}: {why}", file=sys.stderr)
        return 2
    print("\n".join(f"refused: {fault}" for fault in reasons), end="\n" * bool(reasons))
    if not reasons:
        bound = cert["model"] | cert["approval"]
        print("release: {file}, approved by {person} on {date}".format(**bound))
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
