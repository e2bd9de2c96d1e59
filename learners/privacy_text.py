"""What epsilon a fitted model's releases have, in one sentence for every printed form."""

from collections.abc import Mapping
from typing import Any

from privfed.questions.exact import at_delta, shown

SEE_OWNERS = (
    "Epsilon, and whose records it protects: see the data owners' budget, federation.budget() or the report; this "
    "text costs nothing beyond the model."
)
NONE = "no epsilon holds, because unprotected values had been released when the model was fitted."
TEST = " The noise was seeded for a test and protects nobody."


def privacy_text(privacy: Mapping[str, Any] | None) -> str:
    """Return the sentence on the output of :meth:`.Disclosure.privacy`, None if that was unknown."""
    if privacy is None:
        return SEE_OWNERS
    by_owners = privacy.get("by") == "owners"
    heading = "Privacy" + ", according to the model file" * bool(privacy.get("file"))
    heading += ", on the word of the data owners' gates" * by_owners
    if privacy["epsilon"] is None:
        return f"{heading}: {NONE}"
    epsilon = f"{shown(privacy['epsilon'])}{at_delta(privacy['delta'])}"
    masks, unmasked = "", privacy.get("unmasked")
    basis = f", {privacy['basis']}" if privacy.get("basis") else ""
    if unmasked is not None:
        masks = f"; if the masks of sums fail, {shown(unmasked)}"
    owner, persons = "a data owner", ""
    if privacy["unit"] == "rule":
        owner, persons = (
            "an individual",
            "; an individual with several rules loses the sum over them",
        )
    by = "that this study was answered" if by_owners else "that was released"
    text = (
        f"{heading}: epsilon {epsilon} for each {privacy['unit']} of {owner} ({privacy['relation']}{masks}{basis}), by all "
        f"{by} until the model was fitted{persons}. "
    )
    text += "The owners' ledgers show what was charged. " * by_owners
    text += "This text costs nothing more."
    return text + TEST * bool(privacy["noise"] == "test")


def own_tree_text(client: str) -> str:
    """Return the sentence on a model that is of one client's records."""
    return (
        f"Privacy: no epsilon holds for this model, which depends on the exact records of client {client!r}; show it only "
        "to those who may see them."
    )


def privacy_entry(privacy: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a saved model's entry, the same after any number of loads ({}: unknown)."""
    if privacy is None:
        return {}
    return {"privacy": {name: value for name, value in privacy.items() if name != "file"}}


def check_privacy(privacy: Any) -> dict[str, Any] | None:
    """Return a saved model's entry, marked as read (LookupError, TypeError or ValueError: it cannot be formatted)."""
    privacy_text(privacy)
    return None if privacy is None else {**privacy, "file": True}
