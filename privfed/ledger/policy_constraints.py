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


def raised(in_force: dict[str, Any], terms: dict[str, Any]) -> bool:
    """Whether a different ceiling replaces one in force, which was then not fixed in advance."""
    return any(in_force.get(key) != terms.get(key) for key in ("budget", "limit"))


def check_countable(where: object, in_force: dict[str, Any], terms: dict[str, Any]) -> None:
    """Check that accountant, unit and relation are the same, as past charges require."""
    for key in ("accountant", "unit", "relation", "cap"):
        if in_force.get(key) != terms.get(key):
            raise PolicyError(
                f"{where}: counts under {key} = {in_force.get(key)!r}, not {terms.get(key)!r}; "
                "write the same in the policy, or give this accounting a ledger of its own"
            )


def check_in_force(
    where: object, in_force: Any, current: str | None, policy: Policy, study: str
) -> None:
    """Check a policy against the data set's terms and the study's policy in force."""
    way_out = "keep to it, or amend it (the data owner's choice, which is recorded: --amend)"
    if in_force is not None and in_force["terms"] != policy.terms:
        named = sorted(
            key
            for key in {*in_force["terms"], *policy.terms}
            if in_force["terms"].get(key) != policy.terms.get(key)
        )
        differences = [
            f"{key}{_instead(in_force['terms'].get(key), policy.terms.get(key))}" for key in named
        ]
        raise PolicyError(
            f"{where}: the policy in force has another {', '.join(differences)}; {way_out}"
        )
    if current not in (None, policy.digest):
        raise PolicyError(f"{where}: study {study!r} runs under another policy; {way_out}")


def _instead(in_force: object, proposed: object) -> str:
    """Return a differing term, in force and in the policy, in words, if short enough."""
    if isinstance(in_force, list) or isinstance(proposed, list):
        return ""
    return f" ({_term(in_force)}, not {_term(proposed)})"


def _term(term: object) -> str:
    if isinstance(term, Mapping):
        return f"epsilon {term['epsilon']} at delta {shown_delta(exact(term['delta'], zero=True))}"
    return "none" if term is None else str(term)
