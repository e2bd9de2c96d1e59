"""Who may import whom: data flows one way, and the rooms' imports show it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import privfed
import privfed.extend

ROOT = Path(__file__).resolve().parent.parent
#: Errors, the version, names on first use: every room may use them.
WORDS = {"errors", "interrupts", "lazy", "__version__"}
#: The core's rooms, from the ground up: a room may import those before it.
FLOORS = ("tables", "questions", "privacy", "exchange", "ledger", "owner", "engines")
#: The rooms beside the core, and which others each may import.
BESIDE = {
    "mechanisms": {"questions", "privacy"},
    "accountants": {"questions", "privacy", "exchange"},
    "leaks": set(),
    "attacks": {"questions", "privacy", "exchange", "leaks"},
    "learners": {"tables", "questions", "privacy", "exchange"},
    "reports": {"tables", "questions", "privacy", "exchange", "ledger", "accountants", "attacks"},
    "audits": {*FLOORS, "attacks", "learners"},
    "guards": {"questions", "privacy", "owner", "attacks", "audits"},
    "testing": {
        *FLOORS,
        *("leaks", "mechanisms", "accountants", "attacks", "audits", "learners", "study"),
    },
    "study": {*FLOORS, "mechanisms", "accountants", "attacks", "audits", "learners", "reports"},
    "cli": {"exchange", "ledger", "tables", "privacy", "engines", "reports", "study", "guards"},
}
ALLOWED = {room: set(FLOORS[:floor]) for floor, room in enumerate(FLOORS)} | BESIDE
#: Of these rooms only the named modules, for the rest of them is not for that room.
ONLY = {
    ("learners", "privacy"): {"policy", "accountant", "conversion"},
    ("learners", "exchange"): {"disclosure", "messages", "transcript"},
    ("attacks", "privacy"): {"laws"},
    ("attacks", "exchange"): {"messages", "transcript"},
    ("attacks", "questions"): {"query", "part", "plugins", "tree"},
    ("accountants", "questions"): {"exact"},
    ("reports", "tables"): {"toml_file", "toml_table"},
    ("reports", "attacks"): {"finding"},
    ("accountants", "exchange"): {"messages"},
}
#: Baselines stand outside the federation on purpose: they show what exact answers would give.
OUTSIDE = {("baselines", "exchange.ungated")}
#: Which rooms reach what is pluggable by its name; among learners only what reads saved models. An
#: attack reads a question by the kind that the transcript names: questions are public, and say
#: themselves what a record adds to the answer.
BY_NAME = {"attacks", "privacy", "ledger", "engines", "reports", "study", "testing", "cli"}
BY_NAME_FILES = {("learners", "saved.py")}


def imported(path: Path) -> list[str]:
    """Dotted names, below ``privfed``, of every import of it in a file, wherever it stands."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return [name.partition(".")[2] for name in found if name.split(".")[0] == "privfed"]


def allowed(room: str, path: Path, name: str) -> bool:
    """Whether a file of a room may import a dotted name of privfed."""
    used, module = [*name.split("."), "", ""][:2]
    if (used, module) == ("questions", "plugins") and room != used:
        return room in BY_NAME or (path.parent.name, path.name) in BY_NAME_FILES
    if used in WORDS | {room}:
        return True
    if (path.parent.name, f"{used}.{module}") in OUTSIDE:
        return True
    return used in ALLOWED[room] and module in ONLY.get((room, used), {module})


def breaches(room: str, files: list[Path]) -> list[str]:
    """Imports of a room that its line above does not allow."""
    return [
        f"{path.name}: {name}"
        for path in files
        for name in imported(path)
        if not allowed(room, path, name)
    ]


def files_of(room: str) -> list[Path]:
    """The files of a room, wherever it lies."""
    inside = ROOT / "privfed" / room
    return sorted((ROOT / room if inside.is_symlink() else inside).rglob("*.py"))


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_directions(room: str) -> None:
    """A learner never imports a gate, an attack never a learner, an accountant never data."""
    assert files_of(room)
    assert breaches(room, files_of(room)) == []


def test_every_room_has_its_rule() -> None:
    """No package is left out of the directions above."""
    rooms = {path.parent.name for path in (ROOT / "privfed").glob("*/__init__.py")}
    assert rooms == set(ALLOWED)


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("learners", "from privfed.owner.gate import Gate"),
        ("learners", "from privfed import Gate"),
        ("learners", "import privfed.privacy.noise"),
        ("learners", "from privfed.privacy import noise"),
        ("learners", "from privfed.privacy.mechanism import Mechanism"),
        ("learners", "def f():\n    from privfed.mechanisms.laplace import Laplace"),
        ("attacks", "from privfed.learners.base import FederatedLearner"),
        ("mechanisms", "from privfed.tables.records import Records"),
        ("accountants", "from privfed.ledger import Ledger"),
        ("reports", "from privfed.study import Study"),
        ("study", "from privfed.testing import queries"),
        ("audits", "from privfed.study import Study"),
        ("attacks", "from privfed.audits.bounds import epsilon_from_event"),
        ("questions", "from privfed.privacy.policy import Policy"),
        ("owner", "from privfed.engines.local import LocalDisclosure"),
        ("learners", "from privfed.engines.remote import RemoteDisclosure"),
        ("exchange", "from privfed.questions.plugins import load"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, room: str, line: str) -> None:
    """Each kind of forbidden import would be caught, hidden in a function or not."""
    (tmp_path / "bad.py").write_text(line)
    assert len(breaches(room, [tmp_path / "bad.py"])) == 1


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


def loaded_by(statement: str, packages: str | tuple[str, ...] = "privfed") -> set[str]:
    """The modules of some packages that a fresh process holds after one statement."""
    program = (
        f"{statement}\nimport sys\nprint(*[m for m in sys.modules if m.startswith({packages!r})])"
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
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    assert not rooms & {"owner", "ledger", "engines", "study", "cli", "testing"}


def test_the_package_is_lazy() -> None:
    """``import privfed`` alone loads nothing else; its names come on first use."""
    assert loaded_by("import privfed") == {"privfed", "privfed.lazy"}
    assert "privfed.owner.gate" in loaded_by("from privfed import Gate")


def test_a_data_owners_side_needs_no_scikit_learn() -> None:
    """Gates, ledgers, noise and tables load without it: it takes longer than all of them."""
    owner = "import privfed.engines.owner_file, privfed.engines.local"
    assert not loaded_by(owner, "sklearn")
    assert loaded_by("import privfed.learners.fuzzy_tree", "sklearn")


def test_leak_assertions_need_numpy_and_pandas_alone() -> None:
    """A stranger's suite loads neither OpenDP nor SciPy, and pandas only where it makes a table."""
    names = "from privfed.testing import assert_no_raw, flatten; import privfed.testing.plugin"
    others = ("opendp", "scipy", "sklearn", "msgspec", "matplotlib", "pandas", "hypothesis")
    assert not loaded_by(names, others)
    loaded = loaded_by(f"{names}; from privfed.testing import sentinels")
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    assert rooms == {"errors", "lazy", "leaks", "testing"}


def test_every_public_name_is_there() -> None:
    """Each name in ``__all__`` can be had and completed; another one is an AttributeError."""
    assert dir(privfed) == privfed.__all__
    assert all(getattr(privfed, name) is not None for name in privfed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Gates'"):
        _ = privfed.Gates


def test_what_a_plugin_needs_is_in_one_place() -> None:
    """Each name of ``privfed.extend`` can be had, and having one does not load what others need."""
    assert all(getattr(privfed.extend, name) is not None for name in privfed.extend.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Gate'"):
        _ = privfed.extend.Gate
    assert loaded_by("import privfed.extend") == {"privfed", "privfed.extend", "privfed.lazy"}
    loaded = loaded_by("from privfed.extend import AdditiveNoise")
    assert not {name for name in loaded if name.startswith(("privfed.learners", "privfed.attacks"))}
