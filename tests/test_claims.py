"""Every sentence about privacy that the product prints stands in docs/claims.yaml, with what it rests on.

``python tests/test_claims.py`` prints the sentences that are not registered.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
REGISTER: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "docs/claims.yaml").read_text(encoding="utf-8")
)
#: What each status must rest on: a theorem on a test and a page or docstring, a measurement on a test or figures.
STATUSES = {"theorem", "measured", "assumption", "limit", "label"}
#: Words by which a sentence speaks of privacy.
PRIVACY = re.compile(
    r"\b(epsilon|delta|privacy|private|differential|protect\w*|guarantee\w*|proof|prove\w*|proven|theorem"
    r"|members?|membership|attack\w*|odds|leaks?|noise|budget|charged?|secret|reveal\w*|disclos\w*|raw values?"
    r"|hidden|exposed|identif\w*|adversar\w*|collud\w*|masks?|masked)\b",
    re.IGNORECASE,
)
PRINTING = (
    *(
        "reports",
        "privfed/study",
        "privfed/cli",
        "privfed/ledger",
        "privfed/owner",
        "privfed/privacy",
    ),
    *("accountants", "attacks", "privfed/audits"),
)
PAGES = ("README.md", "docs/threat-model.md", "docs/masked-sums.md", "docs/index.md")


def sentences(text: str, words: int = 5) -> Iterator[str]:
    """The sentences of a text that speak of privacy, longer than a label."""
    plain = re.sub(r"\s+", " ", text.replace("&nbsp;", " "))
    for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\"(…])", plain):
        if len(one.split()) > words and PRIVACY.search(one):
            yield one.strip()


def of_template(text: str) -> Iterator[str]:
    """What a page says, its variables shown as …."""
    text = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\{%.*?%\}", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "…", text, flags=re.DOTALL)
    text = re.sub(r"</?(b|strong|em|i|a|code|span|abbr)\b[^>]*>", "", text)
    for part in re.split(r"<[^>]+>|\n\n", text):
        yield from sentences(part, words=4)


def of_module(text: str) -> Iterator[str]:
    """What a module may print: its strings, but docstrings and errors' texts."""
    tree = ast.parse(text)
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            silent |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (
                str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values
            )
            yield from of_template("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from of_template(node.value)


def of_page(text: str) -> Iterator[str]:
    """What a page of the documentation says; no code."""
    text = re.sub(r"```.*?```|^ {4}.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n\s*\n|\n(?=[-|#*\d])", text):
        yield from sentences(part, words=4)


def of_table(text: str) -> Iterator[str]:
    """What the cells of a table say."""
    for row in csv.reader(text.splitlines()):
        for cell in row:
            yield from of_template(cell)


def printed() -> dict[str, str]:
    """Each sentence about privacy, and a file that says it."""
    files = {path: of_template for path in (ROOT / "reports/templates").glob("*.[hj]*")}
    files |= {path: of_template for path in (ROOT / "privfed/study/flower_app").iterdir()}
    files |= {path: of_table for path in (ROOT / "privfed/study/papers").glob("*.csv")}
    files |= {path: of_module for room in PRINTING for path in (ROOT / room).rglob("*.py")}
    files |= {ROOT / name: of_page for name in PAGES}
    return {
        one: str(path.relative_to(ROOT))
        for path, read in sorted(files.items())
        for one in read(path.read_text(encoding="utf-8"))
    }


def registered() -> set[str]:
    """Each sentence of the register."""
    return {sentence for claim in REGISTER for sentence in claim["says"]}


def exists(evidence: str) -> bool:
    """Whether a test, a page's section, a file or a dotted name is there."""
    place, _, name = evidence.partition("::") if "::" in evidence else evidence.partition("#")
    path = ROOT / place
    if "::" in evidence:
        return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")
    if path.suffix == ".md" and name:
        titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return name in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    if "/" in place or path.is_file():
        return path.is_file()
    try:
        return resolve_name(evidence) is not None
    except (ImportError, AttributeError):
        return False


def test_every_sentence_about_privacy_is_registered() -> None:
    """Pages, console, README."""
    left = {one: file for one, file in printed().items() if one not in registered()}
    assert not left, f"not in docs/claims.yaml: {left}"


def test_the_register_holds_no_sentence_that_nobody_says() -> None:
    """A sentence that was changed takes its entry along."""
    assert not registered() - printed().keys()


def test_no_sentence_has_two_entries_and_no_name_does() -> None:
    """One home for each."""
    said = [sentence for claim in REGISTER for sentence in claim["says"]]
    assert len(said) == len(set(said))
    assert len(REGISTER) == len({claim["id"] for claim in REGISTER})


@pytest.mark.parametrize("claim", REGISTER, ids=lambda claim: str(claim["id"]))
def test_a_claim_rests_on_what_is_there(claim: dict[str, Any]) -> None:
    """A theorem on a proof and a test, the rest on a page or figures."""
    evidence = claim.get("evidence", [])
    tests = [one for one in evidence if one.startswith("tests/")]
    assert claim["status"] in STATUSES
    assert all(map(exists, evidence)), [one for one in evidence if not exists(one)]
    if claim["status"] == "theorem":
        assert tests and len(evidence) > len(tests), "a theorem has a proof and a test"
    if claim["status"] == "measured":
        assert tests or any(one.endswith((".csv", ".py")) for one in evidence)
    if claim["status"] in ("assumption", "limit"):
        assert evidence


def test_a_sentence_that_is_new_would_be_found() -> None:
    """In a page, a module, a document; nor is evidence invented."""
    invented = "This release reveals nothing about any record whatever."
    assert list(of_template(f"<p>{invented}</p>")) == [invented]
    assert list(of_module(f"x = 1\nprint({invented!r})")) == [invented]
    assert list(of_page(f"# Title\n\n{invented}\n")) == [invented]
    assert invented not in registered()
    assert not exists("tests/test_claims.py::test_that_is_not_there")
    assert not exists("docs/threat-model.md#a-section-that-is-not-there")


if __name__ == "__main__":
    for sentence, file in printed().items():
        if sentence not in registered():
            print(f"{file}: {sentence}")
