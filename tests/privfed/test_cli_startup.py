"""What the command line loads, and the one name of each option."""

from __future__ import annotations

import builtins
import importlib
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import click
import pytest

from privfed.attacks.shadow_models import WAYS
from privfed.cli import BAD_INPUT, FINE, commands, ledgers, status
from privfed.errors import StudyError
from privfed.lazy import defer
from privfed.privacy.limit import ASPECTS
from privfed.study.choices import ShadowChoice
from privfed.tables.toml_table import typed

pytestmark = pytest.mark.usefixtures("short_audits")


def modules_of(*arguments: str) -> list[str]:
    """All modules that a command loads in a fresh process."""
    program = (
        f"import sys\nfrom privfed.cli import status\nstatus({list(arguments)!r})\n"
        "print('loaded', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.rpartition("loaded")[2].split()


def loaded_by(*arguments: str) -> set[str]:
    """Top-level packages and privfed's rooms that a command loads in a fresh process."""
    names = modules_of(*arguments)
    return {name.partition(".")[0] for name in names} | {
        ".".join(name.split(".")[:2]) for name in names if name.startswith("privfed.")
    }


@pytest.mark.parametrize("arguments", [["--help"], ["audit", "--help"], ["ledger", "--help"]])
def test_help_loads_no_library_of_tables_or_statistics(arguments: list[str]) -> None:
    """Help needs click and the names of options, nothing that computes."""
    loaded = loaded_by(*arguments)
    assert not loaded & {"numpy", "pandas", "scipy", "sklearn", "matplotlib", "opendp"}
    assert {name for name in loaded if name.startswith("privfed.")} <= {
        "privfed.cli",
        "privfed.errors",
        "privfed.interrupts",
        "privfed.lazy",
    }


def test_a_price_loads_no_attack_and_no_picture() -> None:
    """A price needs the learner, its policy and the accountant alone, and of libraries what these use."""
    names = modules_of("price")
    kept_away = {"matplotlib", "dp_accounting", "jinja2", "privfed.engines", "pandas.core"}
    kept_away |= {"scipy.stats.distributions", "scipy.interpolate", "sklearn.metrics.cluster"}
    assert not {".".join(name.split(".")[:n]) for name in names for n in (1, 2, 3)} & kept_away
    assert len(names) < 1_300


@pytest.mark.parametrize("arguments", [["epsilon", "2"], ["ledger", "show"], ["ledger", "budget"]])
def test_what_reads_or_converts_alone_loads_little(arguments: list[str], finished: Path) -> None:
    """No learner, no picture, and of libraries what adds losses up."""
    named = [*arguments, str(finished)] if arguments[0] == "ledger" else arguments
    parts = {".".join(name.split(".")[:n]) for name in modules_of(*named) for n in (1, 2, 3)}
    assert not parts & {"matplotlib", "dp_accounting", "jinja2", "sklearn", "scipy.signal"}
    assert not parts & {"pandas.core", "scipy.stats.distributions", "privfed.attacks.base"}


def test_a_deferred_module_is_loaded_by_its_first_name_and_then_is_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import costs nothing; a name loads it, also a package's submodule, and a name it lacks is an AttributeError."""
    (tmp_path / "heavy_package").mkdir()
    (tmp_path / "heavy_package" / "__init__.py").write_text(
        "import builtins\nbuiltins.ran = 1\nfive = 5\n"
    )
    (tmp_path / "heavy_package" / "part.py").write_text("six = 6\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "ran", 0, raising=False)
    defer("heavy_package")
    module = importlib.import_module("heavy_package")
    assert vars(builtins)["ran"] == 0
    assert importlib.import_module("heavy_package.part").six == 6
    assert (module.five, vars(builtins)["ran"]) == (5, 1)
    assert sys.modules.pop("heavy_package") is not module and module.five == 5
    with pytest.raises(AttributeError, match="seven"):
        _ = module.seven
    del sys.modules["heavy_package.part"]


@pytest.mark.parametrize(
    ("arguments", "shown", "formerly"),
    [
        (["sweep"], "--runs", "--seeds"),
        (["audit"], "--attack-time-limit", "--seconds"),
        (["attack"], "--attack-time-limit", "--seconds"),
        (["ledger", "verify"], "--public-key", "--public"),
        (["serve-client"], "--socket", "--door"),
        (["serve-client"], "--signing-key", "--key"),
    ],
)
def test_an_option_answers_to_the_one_name_that_help_shows(
    arguments: list[str], shown: str, formerly: str
) -> None:
    """Names of before the first release are unknown."""
    command: click.Command = commands
    for name in arguments:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    assert shown in command.get_help(click.Context(command))
    with pytest.raises(click.NoSuchOption):
        command.make_parser(click.Context(command)).parse_args([formerly, "7"])


@pytest.mark.parametrize("groups", [
    [], *([name] for name, one in commands.commands.items() if isinstance(one, click.Group)),
])  # fmt: skip
def test_lists_of_commands_have_whole_sentences(
    groups: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not fit on a line would end in dots."""
    status([*groups, "--help"])
    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert listed and not [line for line in listed if line.endswith("...")]


def test_a_command_has_one_name() -> None:
    """``ledger set-budget`` is no longer ``ledger amend``, too."""
    assert status(["ledger", "amend", "nowhere", "--epsilon", "1"]) == BAD_INPUT


def test_names_that_are_written_twice_to_load_less_agree() -> None:
    """The command line and a study's file list what limits and shadow attacks list."""
    assert ledgers.ASPECTS == ASPECTS
    assert typed({"ways": list(WAYS)}, ShadowChoice, "study", StudyError)["ways"] == WAYS


def test_without_a_file_this_folder_s_study_is_priced_else_the_built_in_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And which one it is; owners whose budgets stand alike share a line."""
    monkeypatch.chdir(tmp_path)
    assert status(["price"]) == FINE
    printed = capsys.readouterr().out
    assert "private: at most epsilon 8" in printed
    assert "private, on the owners' machines: at most epsilon 8" in printed
    assert printed.count("remains before") == printed.count("Ashford, Birch Hill, ") == 2
    text = (files("privfed.study") / "built_in" / "diabetes.toml").read_text(encoding="utf-8")
    Path("study.toml").write_text(text.replace('epsilon = "8"', 'epsilon = "3"'), encoding="utf-8")
    assert status(["price"]) == FINE
    printed, told = capsys.readouterr()
    assert "private: at most epsilon 3" in printed
    assert told.startswith("study.toml of this folder:")
