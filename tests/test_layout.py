"""One import name over flat folders: package list, folders, links and tests hold together."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: The five folders that are subpackages of ``privfed`` though they lie beside it.
MAPPED = ("accountants", "attacks", "learners", "mechanisms", "reports")
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = SETUP["tool"]["setuptools"]
SOURCES = [
    path
    for folder in ("privfed", *MAPPED, "tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(parent.is_symlink() for parent in path.parents if parent != ROOT)
]


def packages_on_disk() -> set[str]:
    """Dotted names of the folders that hold an ``__init__.py``, but for benchmarks, which no wheel has."""
    inits = [path.parent.relative_to(ROOT) for path in SOURCES if path.name == "__init__.py"]
    inits = [folder for folder in inits if folder.parts[0] != "benchmarks"]
    dotted = [".".join(folder.parts) for folder in inits]
    return {name if name.split(".")[0] == "privfed" else f"privfed.{name}" for name in dotted}


def test_the_package_list_is_what_is_on_disk() -> None:
    """A package left out of the list would vanish from the wheel silently."""
    assert set(SETUPTOOLS["packages"]) == packages_on_disk()
    assert len(SETUPTOOLS["packages"]) == len(set(SETUPTOOLS["packages"]))


def test_every_package_has_its_folder() -> None:
    """The map from packages to folders points at real folders, nested ones included."""
    mapping = SETUPTOOLS["package-dir"]
    assert {f"privfed.{name}": name for name in MAPPED}.items() <= mapping.items()
    for package in SETUPTOOLS["packages"]:
        at = package
        while at not in mapping:
            at = at.rpartition(".")[0]
        rest = package.removeprefix(at).replace(".", "/")
        assert (ROOT / (mapping[at] + rest) / "__init__.py").is_file(), package


@pytest.mark.parametrize("name", MAPPED)
def test_links(name: str) -> None:
    """The working directory and the type checker need the five links."""
    link = ROOT / "privfed" / name
    assert link.is_symlink(), (
        f"privfed/{name} is no link: this checkout lacks symlinks (core.symlinks = false, or an "
        f"archive unpacked without them); installing still works, running at the root does not. "
        f"Run: ln -sfn ../{name} privfed/{name}"
    )
    assert link.readlink() == Path("..") / name


def test_entry_points_lead_somewhere() -> None:
    """Every name in the plugin groups stands for a class in one of our packages.

    pytest's own group names a module.
    """
    for group, names in SETUP["project"]["entry-points"].items():
        assert group == "pytest11" or group.startswith("privfed.")
        for value in names.values():
            module, _, attribute = value.partition(":")
            assert attribute or group == "pytest11"
            assert module.startswith("privfed."), value


def test_make_docs_installs_what_the_documentation_imports() -> None:
    """The examples are carried out: a module that no listed requirement brings would end the build."""
    project = SETUP["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *extras["docs"], *extras["sign"]]
    renamed = {"scikit-learn": "sklearn", "pyyaml": "yaml"}
    known = {re.split(r"[\[<>=]", line)[0] for line in listed}
    known = {renamed.get(name, name).replace("-", "_") for name in known}
    pages = [*(ROOT / "docs").glob("*.py"), *(ROOT / "docs/examples").glob("*.py")]
    ours = {"privfed", *(page.stem for page in pages)}
    for page in pages:
        for node in ast.parse(page.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            missing = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
            assert missing <= known | ours, page.name


def test_tests_mirror_the_folders() -> None:
    """Each folder of tests lies where its package or module does; file names are unique."""
    tests = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]
    assert not [path for path in tests if path.name == "__init__.py"]
    names = [path.name for path in tests if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))
    for path in tests:
        folder = path.parent.relative_to(ROOT / "tests")
        mirrored = ROOT / folder
        assert mirrored.is_dir() or mirrored.with_suffix(".py").is_file(), f"{path} mirrors nothing"


#: Tests are read one at a time, and their files may be longer.
CODE = [path for path in SOURCES if not path.is_relative_to(ROOT / "tests")]


def too_long(node: ast.AST) -> bool:
    """Whether a function has more than 60 lines."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return (node.end_lineno or node.lineno) - node.lineno + 1 > 60


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    """Files of 600 lines and functions of 60 are the most that one reads at a time."""
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 600
    assert [n.name for n in ast.walk(ast.parse(text)) if too_long(n)] == []  # type: ignore[attr-defined]


def test_no_comment_on_a_field_is_torn_from_it() -> None:
    """A formatter puts a long one into brackets of its own, or behind them: it belongs above the field."""
    torn = re.compile(
        r"^ +\w+: [^\n]*[\[(]\n[^\n#]*(  #: [^\n]*\n +[\])]$|\n +[\])]  #: )", re.MULTILINE
    )
    assert not [path for path in SOURCES if torn.search(path.read_text(encoding="utf-8"))]
