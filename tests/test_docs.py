"""What README and docs print is true: blocks run, commands and files exist, every key is named."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from runpy import run_path
from typing import Any

import numpy as np
import pytest

from privfed import Policy, Schema, extend
from privfed.cli import FINE, commands, status
from privfed.engines.owner_file import OwnerFile
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier
from privfed.errors import InputError, LedgerError
from privfed.questions import plugins
from privfed.study import Study
from privfed.study.deployed import Deployment
from privfed.tables.sources import bundled

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
TEXT = "\n".join(PAGES.values())
#: Where a page says that something is the reader's own, a small one.
PEOPLE = np.repeat([f"phone-{number}" for number in range(6)], 8)
LABELS = np.arange(len(PEOPLE)) % 2 == 0
SIGNALS = np.random.default_rng(0).normal(90, 10, (len(PEOPLE), 11, 2))
SIGNALS[LABELS, :, 0] += 40
OWN: Mapping[str, dict[str, Any]] = {
    "rule-search": {"signals": SIGNALS, "labels": LABELS, "people": PEOPLE}
}


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


def file_named(block: str) -> str | None:
    """The file that a block's first line names, if it does."""
    found = re.match(r"# (\S+\.\w+)\n", block)
    return None if found is None else found[1]


@pytest.fixture
def laid_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Does what a reader of a page does: saves its files and runs its Python, in an own folder."""

    def lay(page: str) -> Path:
        monkeypatch.chdir(tmp_path)
        for block in blocks(page, "toml") if page else ():
            (tmp_path / str(file_named(block))).write_text(block, encoding="utf-8")
        for block in blocks(page, "python") if page else ():
            (tmp_path / "reader.py").write_text(block, encoding="utf-8")
            run_path("reader.py", dict(OWN.get(page, {})))
        return tmp_path

    return lay


@pytest.mark.parametrize("page", PAGES)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: str) -> None:
    """Another number shows as plain text, or loses cells; only an escaped bar divides no cells."""
    tables = re.findall(r"^(?:\|.*\n)+", PAGES[page], re.MULTILINE)
    for table in tables:
        bars = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        assert len(set(bars)) == 1, table.splitlines()[0]


@pytest.mark.parametrize("page", PAGES)
def test_every_toml_block_is_a_file(page: str) -> None:
    """Each names its file in the first line, and is TOML."""
    for block in blocks(page, "toml"):
        assert file_named(block)
        assert tomllib.loads(block)


def test_every_fence_has_a_language() -> None:
    """No block is passed over for want of one."""
    fences = re.findall(r"^```(.*)$", TEXT, re.MULTILINE)
    assert {fence.split()[0] for fence in fences[::2]} == {"python", "toml", "{toctree}", "{image}"}
    assert set(fences[1::2]) == {""}


@pytest.mark.parametrize("page", ["README", "files", "rule-search"])
def test_studies_run_as_printed(
    page: str, laid_out: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Priced and carried out; every policy learns to the end, and none that is private is open."""
    folder = laid_out(page)
    study = Study.from_toml(folder / "study.toml")
    assert status(["price", "study.toml"]) == FINE
    assert status(["run", "study.toml", "--out", "out"]) == FINE
    for policy in study.policies:
        assert "stopped" not in json.loads(Path("out", policy.name, "metrics.json").read_text())
    finite = {line.split()[0] for line in capsys.readouterr().out.splitlines() if "epsilon" in line}
    assert {p.name for p in study.policies if p.base == "private"} <= {
        name.rstrip(":") for name in finite
    }


def walk(page: str) -> int:
    """Carry out every command of a page in order, each with the exit status that it says."""
    commands_ = re.findall(r"^    (privfed .*)$", PAGES[page], re.MULTILINE)
    for line in commands_:
        command, _, remark = line.partition("#")
        expected = int(remark.split()[-1]) if "exit status" in remark else FINE
        assert status(shlex.split(command)[1:]) == expected, line
    return len(commands_)


def test_the_officer_s_tutorial_ends_with_a_certificate(
    laid_out: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command as printed, in fewer trials and without shadow models; the certificate is the model's."""
    monkeypatch.setattr("privfed.study.model_reading.MAX_WORK", 0)
    monkeypatch.setattr("privfed.audits.guards.TRIALS", 20_000)
    monkeypatch.setattr("privfed.audits.guards.GROUP_TRIALS", 3_000)
    monkeypatch.setattr("privfed.audits.guards.DRAWN", 128)
    folder = laid_out("tutorial-officer")
    assert walk("tutorial-officer") == 9
    assert (folder / "certificate.json").is_file() and (folder / "audit/report.html").is_file()
    assert "may leave" in capsys.readouterr().out


def test_a_model_s_file_is_attacked_as_printed(
    laid_out: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's forest, with fewer shadows."""
    monkeypatch.setattr("privfed.attacks.fitted_tree_risks.SHADOWS", 4)
    folder = laid_out("attacks")
    assert walk("attacks") == 1
    told = json.loads((folder / "model-risks/findings.json").read_text())["findings"]
    assert [round(each["value"], 3) for each in told[:4]] == [0.051, 0.532, 3625, 0.568]


def test_the_researcher_s_tutorial_ends_with_a_figure(
    laid_out: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands, and all blocks of the page, as one script; of fewer epsilons, seeds and runs."""
    page = PAGES["tutorial-researcher"].replace("(0.5, 1, 2, 4, 8)", "(0.5, 8)")
    page = page.replace("range(3)", "range(1)").replace("--runs 2", "--runs 1")
    page = page.replace("--epsilon 1,8", "--epsilon 8").replace("[5, 10]", "[5]")
    monkeypatch.setitem(PAGES, "tutorial-researcher", page)
    folder = laid_out("")
    (folder / "study.toml").write_text(blocks("tutorial-researcher", "toml")[0], encoding="utf-8")
    assert walk("tutorial-researcher") == 2
    script = "\n".join(blocks("tutorial-researcher", "python"))
    (folder / "tutorial.py").write_text(script, encoding="utf-8")
    found = run_path("tutorial.py")
    assert (folder / "utility.png").stat().st_size > 10_000 < (folder / "sweep.png").stat().st_size
    assert 0.8 < found["mean"]["mean"][8] <= 1


def test_the_test_author_s_tutorial_catches_its_leak(tmp_path: Path) -> None:
    """Code and tests of the page, run by pytest as a reader would."""
    files = {str(file_named(block)): block for block in blocks("tutorial-tests", "python")}
    assert passed_in(tmp_path, files, str(tmp_path)) == 2


def test_the_walk_through_two_studies_goes_as_printed(laid_out: Callable[[str], Path]) -> None:
    """Every command of the page in order, each with the exit status that it says."""
    folder = laid_out("two-studies")
    assert walk("two-studies") > 15
    assert [path.name for path in sorted((folder / "hospitals").glob("*.db"))] == [
        "A.db",
        "B.db",
        "C.db",
    ]


def test_the_page_on_bounds_shows_what_a_gate_says(
    laid_out: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A schema begun, and a study whose bounds are wrong."""
    laid_out("bounds")
    assert walk("bounds") == 2
    said = capsys.readouterr()
    assert (
        "A, B, C: the schema's bounds clip 447 cells of 451 records: 447 of 'age'"
        in said.out + said.err
    )


def test_the_page_on_epsilon_shows_the_odds_that_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each line of its table, and the way back."""
    table = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGES["epsilon"], re.MULTILINE)
    assert len(table) == 5
    for epsilon, found, right in table:
        assert status(["epsilon", epsilon]) == FINE
        assert re.findall(r"at most ([\d.]+)", capsys.readouterr().out)[:2] == [found, right]
    assert walk("epsilon") == 2
    assert "epsilon 1.609" in capsys.readouterr().out


def test_the_page_on_personal_trees_prints_one(
    laid_out: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A client's own tree, a line for each branch, and five predictions."""
    laid_out("genetic-tree")
    printed = capsys.readouterr().out
    assert ": yes" in printed and ": no" in printed and ">=" in printed
    assert printed.splitlines()[-1].startswith("['")


def test_the_page_on_rulefit_prints_what_it_shows(
    laid_out: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same rules and words in the same lines; figures, which trees break ties over, nearly."""
    laid_out("rulefit")
    shown = PAGES["rulefit"].partition("It prints\n\n")[2].partition("\n\nA rule")[0].splitlines()
    printed = capsys.readouterr().out.splitlines()
    for line, other in zip(printed, shown, strict=True):
        words, figures = zip(*map(figure_in, line.split()), strict=True)
        others, expected = zip(*map(figure_in, other.split()), strict=True)
        assert words == others
        assert figures == pytest.approx(expected, rel=0.05, abs=0.005)


def figure_in(word: str) -> tuple[str, float]:
    """A word without its figure, and the figure, 0 for none."""
    found = re.fullmatch(r"(\D*?)(-?\d+(?:\.\d+)?)(\D*)", word)
    return (word, 0.0) if found is None else (found[1] + "#" + found[3], float(found[2]))


def test_the_page_on_reconstruction_reads_a_model(
    laid_out: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """All four ways find members of an overfitted tree; its leaves are small."""
    laid_out("reconstruction")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in printed[:4]] == ["some"] * 4
    assert printed[-1].startswith("groups of fewer than 5 records")


def test_the_readme_s_python_prints_rules_and_a_finite_budget(
    laid_out: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Linguistic rules, then a line for each hospital."""
    laid_out("README")
    printed = capsys.readouterr().out
    assert "IF " in printed and "THEN days = " in printed
    assert printed.count("record") == 3 + 1  # one in the text of the model
    assert "inf" not in printed


def test_the_walk_through_engines_goes_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that is ours or the shell's, in order; only the engine between is left out."""
    monkeypatch.chdir(tmp_path)
    whole = PAGES["engines"].partition("## Two hospitals")[2].partition("## On FLARE")[0]
    page, _, second = whole.partition("## A second study")
    for block in re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        path = tmp_path / str(file_named(block))
        path.parent.mkdir(exist_ok=True)
        path.write_text(block, encoding="utf-8")
    before, made, rest = re.split(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    asked, _, after = rest.partition("flwr run server/study-app study --stream\n")
    type_out(before)
    (tmp_path / "reader.py").write_text(made, encoding="utf-8")
    run_path("reader.py")
    type_out(asked)
    with ExitStack() as opened:
        paths: dict[str, Path] = {}
        for folder in ("ashford", "birch"):
            owner = OwnerFile.from_toml(f"{folder}/owner.toml")
            side = owner.opened()
            opened.callback(side.gate.ledger.close)
            for socket in owner.open_sockets(side):
                paths[owner.client] = opened.enter_context(socket).path
        chosen = Deployment.of(Study.from_toml("server/study.toml"), "server/out")
        chosen.run(partial(RemoteDisclosure, carry=SocketCarrier(paths)))
    type_out(after)
    printed = capsys.readouterr().out
    assert printed.count("intact private") == 2 and "epsilon 4" in printed
    assert "IF " in chosen.replay().describe()
    text = Path("server/study.toml").read_text(encoding="utf-8")
    text = text.replace("Length of stay", "Second study").replace('epsilon = "4"', 'epsilon = "2"')
    Path("server/second.toml").write_text(text, encoding="utf-8")
    type_out(second.replace("second.toml\n", "second.toml --yes\n"))
    assert OwnerFile.from_toml("ashford/second-study/owner.toml").study == "Second study"
    lose_and_restore("ashford/ledger.db", capsys)


def lose_and_restore(ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Type out the page on backups; before each way back, the ledger is lost with all files beside it."""
    page = PAGES["ledger"].partition("## Backups")[2].partition("## Upgrades")[0]
    typed = re.split(r"^(?=    privfed ledger (?:restore|forget))", page, flags=re.MULTILINE)
    assert len(typed) == 4
    for block in typed:
        if "ledger forget" in block or "ledger restore" in block:
            shutil.copy(ledger, "Ashford.db")
            for file in Path(ledger).parent.glob(f"{Path(ledger).stem}.*"):
                file.unlink()
        type_out(block.replace("/mnt/backup", "backup"))
        if "ledger restore" in block:
            assert status(["ledger", "backup", ledger, f"again-{len(block)}"]) == FINE
    assert "ledger.secret: is missing" in capsys.readouterr().out
    with pytest.raises(LedgerError, match="is not the one that study 'Second study' joined"):
        OwnerFile.from_toml("ashford/second-study/owner.toml").opened()
    owner = OwnerFile.from_toml("ashford/owner.toml")
    side = replace(owner, signing_key="new.key").opened()
    assert side.gate.ledger.public == Path("ashford/new.key.pub").read_bytes()
    side.gate.ledger.close()


def type_out(text: str) -> None:
    """Run the lines of a page that are for privfed, or copy files and make folders."""
    typed = re.findall(r"^    ((?:privfed|mkdir|cp) .*)$", text, re.MULTILINE)
    for line in (line for line in typed if "serve-client" not in line and "/node.pub" not in line):
        words = shlex.split(line)
        if words[0] == "privfed":
            assert status(words[1:]) == FINE, line
        else:
            subprocess.run(words, check=True)


def passed_in(folder: Path, files: Mapping[str, str], option: str) -> int:
    """How many tests pass of files that a reader saved; none fails."""
    for name, source in files.items():
        (folder / name).write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", option],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return int(re.findall(r"(\d+) passed", done.stdout)[0])


def test_the_plugins_pass_their_kits(tmp_path: Path) -> None:
    """The page's module and its test file, run by pytest as a reader would."""
    python = blocks("plugins", "python")
    whole = {str(name): block for block in python if (name := file_named(block))}
    whole["test_yours.py"] = "\n\n".join(block for block in python if not file_named(block))
    passed = passed_in(tmp_path, whole, str(tmp_path))
    assert passed >= sum(source.count("def test_") for source in whole.values()) == 10


def test_the_page_names_all_that_a_plugins_author_imports() -> None:
    """Nobody has to read the source for what a name of ``privfed.extend`` is for."""
    words = set(re.findall(r"\w+", PAGES["plugins"]))
    assert not [name for name in extend.__all__ if name not in words]


def test_the_number_of_each_kits_checks_is_the_pages() -> None:
    """In the table, which has every kit, and in the sentence above a count that a test expects."""
    words = {"six": 6, "nine": 9, "twelve": 12, "thirteen": 13, "eighteen": 18}
    folder = ROOT / "privfed" / "testing"
    kits = {
        path.stem: resolve_name(f"privfed.testing.{path.stem}")
        for path in folder.glob("check_*.py")
    }
    rows = re.findall(
        r"^\| `privfed\.testing\.(check_\w+)` \| (\w+) checks", PAGES["plugins"], re.MULTILINE
    )
    assert {name: words[word] for name, word in rows} == {
        name: len(kit.CHECKS) for name, kit in kits.items()
    }
    told = re.findall(r'"""All (\w+) checks[^"]*"""\n.*== (\d+)', PAGES["plugins"])
    assert len(told) == 2 and all(words[word] == int(number) for word, number in told)


def test_the_suites_for_other_code_pass(tmp_path: Path) -> None:
    """Each finds its leak, and passes once it is mended; the page's setting is known to pytest."""
    suites = {str(file_named(block)): block for block in blocks("assertions", "python")}
    (setting,) = blocks("assertions", "toml")
    passed = passed_in(tmp_path, {**suites, "pyproject.toml": setting}, "--strict-config")
    assert passed == 1 + sum(source.count("def test_") for source in suites.values()) == 17


def test_the_plugins_entry_points_are_the_page_s_classes() -> None:
    """Known groups, and classes that the page defines under those names."""
    (block,) = blocks("plugins", "toml")
    source = "\n".join(blocks("plugins", "python"))
    groups = tomllib.loads(block)["project"]["entry-points"]
    assert set(groups) == {f"privfed.{group}" for group in plugins.GROUPS}
    for names in groups.values():
        for name, value in names.items():
            cls = value.removeprefix("yours:")
            assert f"class {cls}(" in source
            assert name == cls or f'= "{name}"' in source


def keys(read: Callable[[dict[str, Any]], object], *where: str) -> set[str]:
    """The keys that a reader knows in a table, by its answer to one that it does not know."""
    plain: Any = {"zzzz": 1}
    for step in reversed(where):
        plain = {step.strip("[]"): [plain] if step.startswith("[") else plain}
    if where and read == Study.from_dict:
        plain = STUDY | plain
    with pytest.raises(InputError, match="known are") as caught:
        read(plain)
    (fault,) = [fault for fault in caught.value.faults if "zzzz" in fault]
    return set(fault.split("known are ")[1].split(", "))


STUDY = {
    "name": "x",
    "data": {"source": "iris"},
    "clients": {"count": 2},
    "learner": {"name": "x"},
    "policy": [{"name": "published"}],
}
TABLES = [
    (Study.from_dict, ()),
    (Study.from_dict, ("data",)),
    (Study.from_dict, ("clients",)),
    (Study.from_dict, ("learner",)),
    (Study.from_dict, ("[policy]",)),
    (Schema.from_dict, ()),
    (Schema.from_dict, ("[column]",)),
    (Policy.from_dict, ()),
    (Policy.from_dict, ("masked",)),
    (Policy.from_dict, ("[guard]",)),
    (Policy.from_dict, ("[limit]",)),
]


def test_every_key_of_the_three_files_is_explained_once() -> None:
    """The page's tables, in order, name the keys that the readers know, and no other."""
    tables = re.findall(r"^\| key.*\n\|---.*\n((?:\|.*\n)+)", PAGES["files"], re.MULTILINE)
    assert len(tables) == len(TABLES)
    for table, (read, where) in zip(tables, TABLES, strict=True):
        named = [
            name.strip("[]")
            for row in table.splitlines()
            for name in re.findall(r"`([^`]+)`", row.split("|")[1])
        ]
        assert sorted(named) == sorted(keys(read, *where))  # type: ignore[arg-type]
    assert all(f"`{name}`" in PAGES["files"] for name in bundled())


def test_every_key_of_an_owner_s_file_is_explained_once() -> None:
    """As those of the three files are; `privfed owner new` writes no key that the page does not have."""
    (table,) = re.findall(r"^\| key.*\n\|---.*\n((?:\|.*\n)+)", PAGES["engines"], re.MULTILINE)
    rows = [row.split("|")[1] for row in table.splitlines()]
    named = [name.strip("[]") for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted(keys(OwnerFile.from_dict))


def shown() -> list[str]:
    """What the pages show as commands: indented lines and code in running text, Python left out."""
    prose = re.sub(r"^```python\n.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    return [*re.findall(r"^    (.*)$", prose, re.MULTILINE), *re.findall(r"`([^`\n]+)`", prose)]


REFUSALS = run_path(str(ROOT / "docs/refusals.py"))


@pytest.mark.parametrize(
    "attempt",
    [one for one in REFUSALS["ATTEMPTS"] if 'carry_out(study("first"), "first")' not in one.code],
    ids=lambda one: one.title,
)
def test_what_the_page_says_is_refused_is_refused(attempt: Any) -> None:
    """By an error of one line that names no file of the machine; whole studies are tried where the site is built."""
    said = REFUSALS["message"](attempt)
    assert said and "\n" not in said and "/tmp" not in said


def test_the_badges_say_what_the_project_states() -> None:
    """Made anew from pyproject.toml they are the same."""
    drawn = run_path(str(ROOT / "docs/pictures.py"))["badges"]()
    assert drawn == (ROOT / "docs/images/badges.svg").read_text(encoding="utf-8")


def test_every_command_exists() -> None:
    """Each ``privfed WORD``, and each ``privfed ledger WORD``."""
    found = {
        pair
        for line in shown()
        for pair in re.findall(r"\bprivfed ([a-z][a-z-]+)(?: (\w[\w-]*))?", line)
    }
    assert {"audit", "price", "ledger", "plugins"} <= {name for name, _ in found}
    for name, second in found:
        command: Any = commands.commands.get(name)
        assert command is not None, name
        if name == "ledger":
            assert second in command.commands, second


def test_every_benchmark_exists_and_knows_its_words() -> None:
    """Each file; the word after it is something that it can measure, the rest are its options."""
    found = [one for line in shown() for one in re.findall(r"(benchmarks/\w+\.py)([^#]*)", line)]
    assert found
    for path, words in found:
        source = (ROOT / path).read_text(encoding="utf-8")
        listed: list[str] = [*words.split(), ""]
        first, *rest = ["", *listed] if listed[0].startswith("--") else listed
        known = re.findall(r'^    "(\w+)": [\w("]', source, re.MULTILINE)
        assert first in ("", *known), f"{path} {first}"
        assert all(f'"{one}"' in source for one in rest if one.startswith("--")), words


def test_every_path_link_and_name_leads_somewhere() -> None:
    """Files that are named, pages that are linked, dotted names of objects."""
    for path in re.findall(r"\b(?:privfed|tests|benchmarks)/[\w/]+\.(?:py|toml)", TEXT):
        assert (ROOT / path).is_file(), path
    for page, text in PAGES.items():
        folder = ROOT if page == "README" else ROOT / "docs"
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            named, _, heading = link.partition("#")
            assert not named or (folder / named).is_file(), f"{page}: {link}"
            text_of = (folder / named).read_text(encoding="utf-8") if heading and named else text
            slugs = [line.strip("# ").lower().replace(" ", "-") for line in text_of.split("\n")]
            assert not heading or heading in slugs, f"{page}: {link}"
    for name in set(re.findall(r"`(privfed(?:\.\w+)+)`", TEXT)):
        assert resolve_name(name) is not None


def test_every_exploit_names_the_tests_that_carry_it_out() -> None:
    """And each test of an exploit stands in the page's list."""
    source = (ROOT / "tests/privfed/owner/test_unmasking.py").read_text(encoding="utf-8")
    masks = (ROOT / "tests/privfed/owner/test_masking.py").read_text(encoding="utf-8")
    tests = set(re.findall(r"^def test_(\w+)", source + masks, re.MULTILINE))
    rows = PAGES["masked-sums"].split("held by `test_…` |\n")[1].split("\n\n")[0].splitlines()[1:]
    held = [set(re.findall(r"`(\w{12,})`", row)) for row in rows]
    assert all(held) and set().union(*held) <= tests
    exploits = source.split("# --- the list of exploits")[1]
    listed = set(re.findall(r"^def test_(\w+)", exploits, re.MULTILINE))
    assert listed - set().union(*held) == {"any_so_many_shares_give_the_seed"}


def test_the_architecture_names_every_room_and_no_module_that_is_not_there() -> None:
    """Each room has a row; each module in the core's rows is a file of its room."""
    rows = dict(
        re.findall(r"^\| `(?:privfed/)?(\w+)/` \| (.*) \|$", PAGES["architecture"], re.MULTILINE)
    )
    rooms = {path.parent.name for path in (ROOT / "privfed").glob("*/__init__.py")}
    assert rows.keys() == rooms
    for room, text in rows.items():
        for module in re.findall(r"`(\w+)`", text):
            assert (ROOT / "privfed" / room / f"{module}.py").is_file(), f"{room}: {module}"


def test_a_colon_in_a_docstring_divides_no_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the site "the ceiling; None: spending is only counted" was of the type "the ceiling; None"."""
    napoleon = pytest.importorskip("sphinx.ext.napoleon")
    monkeypatch.syspath_prepend(ROOT / "docs")
    docstrings = import_module("docstrings")

    def shown(what: str, text: str) -> str:
        lines = text.split("\n")
        docstrings.kept(None, what, "x", None, None, lines)
        read = napoleon.GoogleDocstring(lines, napoleon.Config(), what=what).lines()
        docstrings.plain(None, what, "x", None, None, read)
        return "\n".join(read)

    ceiling = "the ceiling; None: only counted\n\nRaises:\n    InputError: none is given."
    assert shown("attribute", ceiling).startswith("the ceiling; None: only counted\n")
    assert ":raises InputError: none is given." in shown("property", ceiling)
    returned = shown("method", "Return it.\n\nReturns:\n    epsilon (None: unprotected), delta.")
    assert ":returns: epsilon (None: unprotected), delta." in returned
    assert ":rtype:" not in returned
