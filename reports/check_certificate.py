"""Checks a release certificate offline: this file alone, Python 3.11 and `cryptography`.

    python check_certificate.py CERTIFICATE MODEL --key officer.pub [--thresholds FILE] [--head OWNER=SEQ:HASH]

A certificate binds one model file to the ledgers of those whose records it was learned from: what was
claimed, audited and attacked, held against the thresholds of the officer who signed. The decision is
computed anew from the figures in it. Exit status: 0 release, 1 refused, 2 nothing that could be checked.
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
MET, FAILED, UNKNOWN = "met", "not met", "not examined"  #: What a criterion can be
#: A threshold's key, the measure of the findings that it bounds, and how the criterion is called.
_CEILINGS = ("max_tpr_at_1_percent", "found at 1 %", "at 1 %"), ("max_area", "area", "told apart")


def canonical(plain: Mapping[str, Any]) -> bytes:
    """The bytes that are signed: the format's name, and all but the signature with sorted keys."""
    signed = {key: value for key, value in plain.items() if key != "signature"}
    return f"{FORMAT}\n{json.dumps(signed, sort_keys=True, allow_nan=False)}".encode()


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def criteria(plain: Mapping[str, Any]) -> list[dict[str, str]]:
    """Hold a certificate's figures against its thresholds: criterion, what is required and found, and the state.

    A figure that is missing is not examined, which is not met: silence is no evidence.
    """
    names = ("criterion", "required", "found", "state")
    rows = (*_claims(plain, plain["thresholds"]), *_evidence(plain, plain["thresholds"]))
    return [dict(zip(names, row, strict=True)) for row in rows]


def _claims(plain: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    owners = plain["owners"]
    broken = [own["owner"] for own in owners if not own["intact"]]
    yield "ledgers", "all verify", _all("verify", broken, owners), _state(owners and not broken)
    seeded = [own["owner"] for own in owners if not own["secure_noise"]]
    yield "noise", "secure", _all("have secure noise", seeded, owners), _state(not seeded)
    open_ = sum(own["unprotected"] for own in owners)
    most = limits["max_unprotected_releases"]
    yield "unprotected releases", f"at most {most}", str(open_), _state(open_ <= most)
    alone = plain["claim"].get("epsilon if masks fail")
    figures = {f"claimed {name}": [own[name] for own in owners] for name in ("epsilon", "delta")}
    figures |= {} if alone is None else {"epsilon if masks fail": [alone]}
    for name, each in figures.items():
        most = limits["max_delta" if name == "claimed delta" else "max_epsilon"]
        known = bool(each) and None not in each
        state = _state(max(each) <= most) if known else UNKNOWN
        found = _text(max(each), 4) if known else "no finite figure"
        yield name, f"at most {most:g} for each owner", found, state
    unit, units = plain["claim"]["unit"], limits["units"]
    yield "unit of privacy", f"one of {', '.join(units)}", unit, _state(unit in units)
    over = [own["owner"] for own in owners if own["over_budget"]]
    yield "budgets", "kept", _all("kept theirs", over, owners), _state(not over)
    if limits["consent"]:
        silent = [own["owner"] for own in owners if not plain["consent"].get(own["owner"])]
        yield "owners' consent", "of each", _all("consented", silent, owners), _state(not silent)


def _evidence(plain: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    broken, attacked, audited = plain["breaches"], plain["attacked"], plain["audited"]
    yield "guarantees", "none violated", "; ".join(broken) or "none", _state(not broken)
    blind = {found["attack"] for found in attacked if found["state"] == "not looked"}
    missing = sorted({*limits["attacks"]} - ({found["attack"] for found in attacked} - blind))
    required = ", ".join(limits["attacks"]) or "none"
    told = f"missing: {', '.join(missing) or 'none'}"
    yield "attacks", f"carried out: {required}", told, UNKNOWN if missing else MET
    named = sorted({found["attack"] for found in attacked if found["severity"] == "breach"})
    yield "people or values", "none identified", ", ".join(named) or "none", _state(not named)
    for key, measure, name in _CEILINGS:
        if limits[key] is not None:
            bounded = [own for own in attacked if own.get("measure") == measure]
            looked = [own for own in bounded if own["state"] != "not looked"]
            known = [own["value"] if own["high"] is None else own["high"] for own in looked]
            seen = {f"{own['attack']} (by an owner)" for own in looked}  # the server saw no less
            silent = sorted({own["attack"] for own in bounded if own not in looked} - seen)
            told = _text(max(known), 4) if known else "no such figure"
            told += "; not looked: " + ", ".join(silent) if silent else ""
            above = max(known, default=0) > limits[key]
            state = FAILED if above else UNKNOWN if silent or not known else MET
            yield f"members {name}", f"at most {limits[key]:g} (upper end)", told, state
    if limits["min_audit_power"] is not None:
        shares = [own["proven"] / own["claimed"] for own in audited if own["claimed"]]
        state = _state(max(shares) >= limits["min_audit_power"]) if shares else UNKNOWN
        found = _text(max(shares), 3, ROUND_FLOOR) if shares else "no audit"
        yield "audit: proven over claimed", f"at least {limits['min_audit_power']:g}", found, state
    bad = [own["subject"] for own in audited if own["proven"] > own["claimed"]]
    yield "audits of epsilon", "contradict no claim", _all("agree", bad, audited), _state(not bad)


def _text(value: float, digits: int, rounding: str = ROUND_CEILING) -> str:  # 3.0001 is not 3
    exact = Context(prec=digits, rounding=rounding).create_decimal(repr(value))
    return f"{float(exact):.{digits}g}"


def _state(met: object) -> str:
    return MET if met else FAILED


def _all(what: str, without: Sequence[str], each: Sequence[Any]) -> str:
    whole = f"all {len(each)} {what}" if each else "there are none"
    return f"not: {', '.join(without)}" if without else whole


def decided(rows: Sequence[Mapping[str, str]]) -> str:
    """Release where every criterion is met; refuse otherwise."""
    return "release" if rows and all(row["state"] == MET for row in rows) else "refuse"


def faults(
    plain: Mapping[str, Any],
    model: bytes,
    key: bytes | None,
    thresholds: bytes | None = None,
    heads: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Yield all reasons why a model may not go out under a certificate.

    Args:
        plain, model: the certificate, and the model file's bytes.
        key: the officer's public key, 32 bytes, known from elsewhere; None checks no signature, which
            is a reason.
        thresholds: the officer's file as it is now, if it must be unchanged.
        heads: heads of ledgers as they are now, by owner, if nothing may have been added.
    """
    if plain.get("format") != FORMAT:
        yield f"it is no {FORMAT!r}"
        return
    if key is None:
        yield "no public key was given, so anybody may have written it; write --key officer.pub"
    elif not _signed(plain, key):
        changed = "it was changed, or is not signed by this key"
        yield changed if plain.get("signature") else "it is not signed"
    if digest(model) != plain["model"]["sha256"]:
        yield "the model is another file than the certificate's"
    if thresholds is not None and digest(thresholds) != plain["thresholds_sha256"]:
        yield "the thresholds have changed since it was signed"
    known = {own["owner"]: own["head"] for own in plain["owners"]}
    for owner in [name for name, head in (heads or {}).items() if known.get(name) != head]:
        yield f"the ledger of {owner} is not at the certificate's head"
    rows = criteria(plain)
    held, now = ([{**row, "found": ""} for row in each] for each in (plain["criteria"], rows))
    if held != now or decided(rows) != plain["decision"]:
        yield "its decision does not follow from its figures"
    for row in rows:
        if row["state"] != MET:
            yield f"{row['criterion']}: {row['state']} ({row['found']}; required: {row['required']})"
    if not plain["approval"]["person"]:
        yield "no person approved it"


def _signed(plain: Mapping[str, Any], key: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(key)
        public.verify(bytes.fromhex(plain["signature"]), canonical(plain))
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
    given = parser.parse_args(arguments)
    try:
        plain = json.loads(given.certificate.read_bytes())
        files = [path.read_bytes() if path else None for path in (given.key, given.thresholds)]
        heads = dict(head.partition("=")[::2] for head in given.head)
        found = list(faults(plain, given.model.read_bytes(), files[0], files[1], heads))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        where, why = getattr(error, "filename", None), getattr(error, "strerror", "no certificate")
        print(f"cannot be checked: {where or given.certificate}: {why}", file=sys.stderr)
        return 2
    print("\n".join(f"refused: {fault}" for fault in found), end="\n" * bool(found))
    if not found:
        bound = plain["model"] | plain["approval"]
        print("release: {file}, approved by {person} on {date}".format(**bound))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
