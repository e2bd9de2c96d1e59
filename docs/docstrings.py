"""Docstrings before and after Sphinx's napoleon reads their sections."""

from __future__ import annotations

import re
from typing import Any

COLON = "\ue000"  #: Stands for a colon that is punctuation, while napoleon reads


def kept(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Hide colons of what attributes are and methods return: napoleon takes the words before one for a type."""
    section = "Returns:" if what in ("attribute", "property") else ""
    for number, line in enumerate(lines):
        if re.fullmatch(r"[A-Z][a-z]+:", line.strip()):
            section = line.strip()
        elif section in ("Returns:", "Yields:"):
            lines[number] = line.replace(":", COLON)


def plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are read as text: bars and stars are formulas there, but in literals and roles."""
    for number, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line.replace(COLON, ":"))
        pieces[::2] = [re.sub(r"(?<!\\)([|*])", r"\\\1", piece) for piece in pieces[::2]]
        lines[number] = "".join(pieces)
