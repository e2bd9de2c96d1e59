"""Who may import whom: data flows one way, and the imports show it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import privfed

ROOT = Path(__file__).resolve().parent.parent
#: Plain values and errors that every side may speak of.
WORDS = {"errors", "exact"}
#: What each folder may import of privfed: first component after ``privfed``.
ALLOWED = {
    "learners": WORDS
    | {"learners", "schema", "records", "part", "partition", "query", "release", "disclosure"}
    | {"policy", "accountant", "conversion", "wire", "least_epsilon"},
    "attacks": WORDS | {"attacks", "release", "finding"},
    "mechanisms": WORDS | {"mechanisms", "mechanism", "part", "loss", "noise"},
    "accountants": WORDS
    | {"accountants", "accountant", "loss", "conversion", "release"}
    | {"least_epsilon"},
}
#: Of these modules only the named objects, for the rest of them is not for that folder.
ONLY = {("learners", "accountant"): {"Budget"}}
#: Baselines stand outside the federation on purpose: they show what exact answers would give.
OUTSIDE = {"baselines": {"bare"}}
#: What nothing below the composition root may touch.
ROOTS = {"cli", "study", "local", "gate", "ledger"}


def imported(path: Path) -> list[tuple[str, str]]:
    """(module, name) of every import of privfed in a file, wherever in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "privfed"]


def component(module: str, name: str) -> str:
    """The first component after ``privfed``."""
    dotted = module if "." in module else f"{module}.{name}"
    return dotted.split(".")[1]


def breaches(folder: str, files: list[Path]) -> list[str]:
    """Imports of a folder that its line above does not allow."""
    wrong = []
    for path in files:
        for module, name in imported(path):
            used = component(module, name)
            if used in OUTSIDE.get(path.parent.name, ()):
                continue
            only = ONLY.get((folder, used))
            if used not in ALLOWED[folder] or (only is not None and name not in only):
                wrong.append(f"{path.name}: {module} {name}".strip())
    return wrong


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_directions(folder: str) -> None:
    """A learner never imports a gate, an attack never a learner, an accountant never data."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert breaches(folder, files) == []


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("learners", "from privfed.gate import Gate"),
        ("learners", "from privfed import Gate"),
        ("learners", "import privfed.noise"),
        ("learners", "from privfed.accountant import Accountant"),
        ("learners", "def f():\n    from privfed.mechanisms.laplace import Laplace"),
        ("attacks", "from privfed.learners.base import FederatedLearner"),
        ("mechanisms", "from privfed.records import Records"),
        ("accountants", "from privfed.ledger import Ledger"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, folder: str, line: str) -> None:
    """Each kind of forbidden import would be caught, hidden in a function or not."""
    (tmp_path / "bad.py").write_text(line)
    assert len(breaches(folder, [tmp_path / "bad.py"])) == 1


def test_the_core_knows_no_plugin() -> None:
    """Below the composition root, what is pluggable is reached by its name or its base class."""
    above = {"mechanisms", "accountants", "attacks", "learners", "reports", "study", "cli"}
    core = [*(ROOT / "privfed").glob("*.py"), *(ROOT / "privfed" / "ledger").glob("*.py")]
    for path in core:
        used = {component(*each) for each in imported(path)}
        assert path.stem == "cli" or not used & above, path


@pytest.mark.parametrize("name", ["schema", "part", "query", "mechanism", "accountant", "release"])
def test_the_core_is_layered(name: str) -> None:
    """What learners and mechanisms are written against knows no gate, ledger or command."""
    used = {component(*each) for each in imported(ROOT / "privfed" / f"{name}.py")}
    assert not used & ROOTS
    assert not used & {"mechanisms", "accountants", "attacks", "learners", "reports"}


def needs(module: str, path: Path, modules: set[str]) -> set[str]:
    """The modules that must be there before a module is: imports at its top level, packages first."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in found]
    whole = {".".join(each[:size]) for each in parts for size in range(1, len(each) + 1)}
    own = {module, *(module[:at] for at, letter in enumerate(module) if letter == ".")}
    return (whole & modules) - own


def test_no_import_goes_in_a_circle() -> None:
    """Any module may be the first that a process imports."""
    root = ROOT / "privfed"
    paths = {
        ".".join(("privfed", *path.relative_to(root).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for folder in (root, *(link for link in root.iterdir() if link.is_symlink()))
        for path in folder.rglob("*.py")
    }
    left = {module: needs(module, path, set(paths)) for module, path in paths.items()}
    while ready := {module for module, wanted in left.items() if not wanted & set(left)}:
        left = {module: wanted for module, wanted in left.items() if module not in ready}
    assert not left


def loaded_by(statement: str) -> set[str]:
    """The modules of privfed that a fresh process holds after one statement."""
    program = (
        f"{statement}\nimport sys\nprint(*[m for m in sys.modules if m.startswith('privfed')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import privfed",
        "from privfed import Disclosure, Policy, Schema; import privfed.learners.fuzzy_tree",
    ],
)
def test_a_learner_drags_no_gate_along(statement: str) -> None:
    """Importing a learner, or the package itself, loads neither gate nor ledger."""
    loaded = loaded_by(statement)
    assert "privfed" in loaded
    assert not loaded & {f"privfed.{name}" for name in ROOTS}


def test_the_package_is_lazy() -> None:
    """``import privfed`` alone loads nothing else; its names come on first use."""
    assert loaded_by("import privfed") == {"privfed"}
    assert "privfed.gate" in loaded_by("from privfed import Gate")


def test_every_public_name_is_there() -> None:
    """Each name in ``__all__`` can be had; another one is an AttributeError."""
    assert all(getattr(privfed, name) is not None for name in privfed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Gates'"):
        _ = privfed.Gates  # type: ignore[attr-defined]
