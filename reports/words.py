"""Queries and losses in words."""

import re

from privfed.errors import PluginError
from privfed.privacy.loss import Loss, basis_in_words
from privfed.questions import plugins
from privfed.questions.exact import shown, shown_delta

#: End of a sentence that is followed by another one or by a reference to a class.
_SENTENCE = re.compile(r"(?<=[a-z)])\.\s+(?=[A-Z:`])")
_NUMBER = re.compile(r"([0-9]+)")
_ROLE = re.compile(r":\w+:`\.?([^`]*)`")
_SOURCES = re.compile(r"\s*\([^()]*(?:paper|Eq|Table|Section)[^()]*\)")


def about(name: str, group: str = "queries") -> str:
    """Return the first sentence of a plugin's class, without its source in brackets."""
    if name == "schema.infer":
        return "Bounds and categories of every column, inferred from the records."
    try:
        text = plugins.load(group, name).__doc__ or ""
    except PluginError:
        return ""
    first = _SENTENCE.split(" ".join(text.strip().split("\n\n")[0].split()))[0]
    first = _ROLE.sub(r"\1", first).replace("``", "")
    ended = first if not first or first.endswith("?") else first.removesuffix(".") + "."
    return _SOURCES.sub("", ended)


def natural(name: str) -> list[str | int]:
    """Return a key for natural sorting: clinic 2 before clinic 10."""
    return [int(part) if part.isdecimal() else part.casefold() for part in _NUMBER.split(name)]


def in_words(loss: Loss) -> str:
    """Format a loss in its currency, rounded to four digits."""
    if loss.unprotected is not None:
        return "no finite guarantee"
    parts = []
    if loss.epsilon is not None:
        parts.append(f"ε {shown(loss.epsilon)}")
    elif loss.rho is not None:
        parts.append(f"rho {shown(loss.rho)}")
    if loss.delta:
        parts.append(f"δ {shown_delta(loss.delta)}")
    basis = f" ({basis_in_words(loss.basis)})" if loss.basis else ""
    return ("nothing" if parts == ["ε 0"] else ", ".join(parts)) + basis
