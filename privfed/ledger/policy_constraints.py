"""The terms that all policies of one data set share, and when a policy may be replaced."""

from collections.abc import Mapping
from typing import Any

from privfed.errors import PolicyError
from privfed.ledger.store import encode_body
from privfed.privacy.policy import Policy
from privfed.questions import wire
from privfed.questions.exact import exact, shown_delta


def terms_digest(policy: Policy) -> str:
    """Return SHA-256 of a policy's terms, which all policies of the data set share."""
    return wire.digest(encode_body(policy.terms))


def raised(held: dict[str, Any], terms: dict[str, Any]) -> bool:
    """Whether a different ceiling replaces one in force, which was then not fixed in advance."""
    return any(held.get(key) != terms.get(key) for key in ("budget", "limit"))


def check_countable(where: object, held: dict[str, Any], terms: dict[str, Any]) -> None:
    """Check that accountant, unit and relation are the same, as past charges require."""
    for key in ("accountant", "unit", "relation", "cap"):
        if held.get(key) != terms.get(key):
            raise PolicyError(
                f"{where}: counts under {key} = {held.get(key)!r}, not {terms.get(key)!r}; "
                "write the same in the policy, or give this accounting a ledger of its own"
            )


def check_in_force(
    where: object, held: Any, current: str | None, policy: Policy, study: str
) -> None:
    """Check a policy against the data set's terms and the study's policy in force."""
    way_out = "keep to it, or amend it (the data owner's choice, which is recorded: --amend)"
    if held is not None and held["terms"] != policy.terms:
        named = sorted(
            key
            for key in {*held["terms"], *policy.terms}
            if held["terms"].get(key) != policy.terms.get(key)
        )
        told = [f"{key}{_instead(held['terms'].get(key), policy.terms.get(key))}" for key in named]
        raise PolicyError(f"{where}: the policy in force has another {', '.join(told)}; {way_out}")
    if current not in (None, policy.digest):
        raise PolicyError(f"{where}: study {study!r} runs under another policy; {way_out}")


def _instead(held: object, own: object) -> str:
    """Return a differing term, in force and in the policy, in words, if short enough."""
    if isinstance(held, list) or isinstance(own, list):
        return ""
    return f" ({_term(held)}, not {_term(own)})"


def _term(term: object) -> str:
    if isinstance(term, Mapping):
        return f"epsilon {term['epsilon']} at delta {shown_delta(exact(term['delta'], zero=True))}"
    return "none" if term is None else str(term)
