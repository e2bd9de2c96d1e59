"""Pages that follow from the code: the API, the command line, errors, claims, a proof for every query."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from pkgutil import resolve_name

import refusals
import yaml  # type: ignore[import-untyped]

import privfed
from privfed import errors, extend, testing
from privfed.exchange.messages import EXPLANATIONS
from privfed.questions import plugins

ROOT = Path(__file__).resolve().parent.parent
#: Brute force over neighbouring data sets, by package.
NEIGHBOURS = {
    path.parent.name: path
    for path in sorted((ROOT / "tests/learners").rglob("test_*neighbours.py"))
}
#: Pages of plugins: title, what it says, groups.
PLUGINS = {
    "learners": ("Learners", "Estimators with scikit-learn's manners.", ["learners"]),
    "mechanisms": ("Mechanisms and laws", "What protects, by which noise.", ["mechanisms", "laws"]),
    "accountants": ("Accountants", "What adds losses up.", ["accountants"]),
    "attacks": ("Attacks", "What a reader of releases could do.", ["attacks"]),
}


def write(folder: Path) -> None:
    """Write all pages anew."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "queries").mkdir(parents=True)
    described: set[str] = set()
    for page, text in (
        ("errors.md", _errors(described)),
        ("cli.md", _command_line()),
        ("claims.md", _claims()),
        ("refusals.md", refusals.page()),
        *((f"queries/{kind}.md", text) for kind, text in _proofs(described).items()),
        *(
            (f"{page}.md", _objects(title, about, _installed(groups), described))
            for page, (title, about, groups) in PLUGINS.items()
        ),
        ("core.md", _objects("For programs", "From `import privfed`.", _names(privfed), described)),
        (
            "extend.md",
            _objects(
                "For authors of plugins",
                "From `privfed.extend`; see [writing your own](../plugins.md).",
                _names(extend),
                described,
            ),
        ),
        ("testing.md", _objects("Testing", "From `privfed.testing`.", _names(testing), described)),
    ):
        (folder / page).write_text(text, encoding="utf-8")


def _objects(title: str, about: str, names: Iterable[str], described: set[str]) -> str:
    """A page of objects by their dotted names; what stands on an earlier page is linked."""
    names = list(dict.fromkeys(names))
    old = [f"{{py:obj}}`~{name}`" for name in names if name in described]
    elsewhere = f"On other pages: {', '.join(old)}.\n\n" if old else ""
    new = [name for name in names if name not in described]
    described.update(new)
    return f"# {title}\n\n{about}\n\n{elsewhere}" + "\n".join(map(_described, new))


def _described(name: str, options: str = "") -> str:
    one = resolve_name(name)
    kind = "autoclass" if isinstance(one, type) else "autofunction" if callable(one) else "autodata"
    inner = (
        ":inherited-members: BaseEstimator, ClassifierMixin, RegressorMixin\n"
        if kind == "autoclass" and "learners" in name
        else ""
    )
    return (
        f"## {name.rpartition('.')[2]}\n\n```{{eval-rst}}\n.. {kind}:: {name}\n"
        + "".join(f"   {line}\n" for line in (options or inner).splitlines())
        + "```\n"
    )


def _names(module: object) -> list[str]:
    """Dotted names of what a module of lazy imports hands on."""
    found = []
    for name in sorted(set(module.__all__)):  # type: ignore[attr-defined]
        home = getattr(getattr(module, name), "__module__", None)
        if home is not None and home.startswith("privfed."):
            found.append(f"{home}.{name}")
    return [name for name in found if _exists(name)]


def _exists(name: str) -> bool:
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def _own(group: str) -> dict[str, type]:
    """This project's plugins of a group, by name."""
    found = {name: plugins.load(group, name) for name in plugins.available(group)}
    return {name: one for name, one in found.items() if one.__module__.startswith("privfed.")}


def _installed(groups: Iterable[str]) -> list[str]:
    return [
        f"{one.__module__}.{one.__qualname__}" for group in groups for one in _own(group).values()
    ]


def _proofs(described: set[str]) -> dict[str, str]:
    """A page a query: what a record can change, by its docstring, and the tests that try it."""
    pages, rows = {}, []
    for kind, query in sorted(_own("queries").items()):
        tests = [ROOT / "tests/test_every_query.py"]
        tests += [NEIGHBOURS[p] for p in query.__module__.split(".") if p in NEIGHBOURS]
        links = ", ".join(
            f"[{test.relative_to(ROOT)}](../../../{test.relative_to(ROOT)})" for test in tests
        )
        name = f"{query.__module__}.{query.__qualname__}"
        described.add(name)
        body = _described(name, ":members: parts, contribution, reveals\n")
        pages[kind] = (
            f"# {kind}\n\nHeld by brute force over neighbouring data sets: {links}.\n\n{body}"
        )
        rows.append(f"| [{kind}]({kind}.md) | {(query.__doc__ or '').partition(chr(10))[0]} |")
    listed = "\n".join(pages)
    pages["index"] = (
        "# Queries, and proofs of their sensitivities\n\nEverything that a client can be asked. Each page "
        "derives how far one record, added, removed or replaced, moves the answer.\n\n"
        "| query | what it releases |\n|---|---|\n"
        + "\n".join(rows)
        + f"\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )
    return pages


def _claims() -> str:
    """The register as a table, labels left out; evidence on this site or in the repository is linked."""
    rows = []
    for claim in yaml.safe_load((ROOT / "docs/claims.yaml").read_text(encoding="utf-8")):
        if claim["status"] != "label":
            evidence = ", ".join(map(_evidence, claim["evidence"]))
            rows.append(f"| {claim['claim']} | {claim['status']} | {evidence} |")
    return (
        "# What is claimed, and what it rests on\n\nEvery sentence about privacy that reports, console, "
        "README and the pages on threats and masks say is one of these. A test holds the register "
        "(`docs/claims.yaml`, which lists the sentences word for word) against what is printed.\n\n"
        "| claim | status | evidence |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _evidence(one: str) -> str:
    place, _, name = one.partition("::")
    if place.startswith("docs/"):
        return f"[{place[5:]}](../{place[5:]})"
    if (ROOT / place).is_file():
        return f"[{name or Path(place).name}](../../{place})"
    return f"`{one}`"


def _errors(described: set[str]) -> str:
    refusals = "\n".join(f"| `{reason}` | {text} |" for reason, text in EXPLANATIONS.items())
    classes = [
        f"privfed.errors.{name}"
        for name, one in vars(errors).items()
        if isinstance(one, type) and one.__module__ == errors.__name__
    ]
    described.update(classes)
    return (
        "# Exit status, refusals, errors\n\n## Exit status\n\n| status | meaning |\n|---|---|\n"
        "| 0 | done |\n| 1 | an audit, or the check of a ledger or certificate, found a fault |\n"
        "| 2 | bad input: one line for each fault, with what to write instead |\n"
        "| 3 | an internal error, of privfed or of a plugin |\n| 130 | stopped by Ctrl-C |\n\n"
        "## Why a gate refuses\n\n| reason | what it says |\n|---|---|\n"
        f"{refusals}\n\n" + "\n".join(map(_described, classes))
    )


def _command_line() -> str:
    return (
        "# Command line\n\n```{eval-rst}\n.. click:: privfed.cli:commands\n   :prog: privfed\n"
        "   :nested: full\n```\n"
    )
