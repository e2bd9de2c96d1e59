"""Paths that are not what a command needs: bad input, never a fault of privfed's own."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest

from privfed.cli import BAD_INPUT, FAULT, commands, status
from privfed.errors import LedgerError
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
TABLE = "a,b,y\n" + "".join(f"{n},{n % 3},{n % 2}\n" for n in range(20))
#: What a path names in place of what is meant.
KINDS = ("below a file", "too long", "a loop")
SERVERS = {("serve-client",), ("ledger", "serve")}  # these run until they are stopped


def leaves(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        elif (*path, name) not in SERVERS:
            yield (*path, name), command


def places(folder: Path) -> dict[str, Path]:
    """A path of each kind."""
    folder.mkdir()
    (folder / "file.csv").write_text(TABLE)
    os.symlink("loop", folder / "loop")
    paths = ("file.csv/below", "n" * 300, "loop")
    return {kind: folder / path for kind, path in zip(KINDS, paths, strict=True)}


def calls(
    words: tuple[str, ...], command: click.Command, wrong: Path, table: Path
) -> Iterator[list[str]]:
    """The command once for each of its paths, that one wrong and the other arguments a table or a word."""
    paths = [one for one in command.params if isinstance(one.type, click.Path)]
    needed = [one for one in command.params if isinstance(one, click.Option) and one.required]
    for meant in paths:
        call = [*words, *(["--yes"] if any(one.name == "yes" for one in command.params) else [])]
        for option in {*needed, *([meant] if isinstance(meant, click.Option) else [])}:
            call += [option.opts[0], str(wrong) if option is meant else "1"]
        for one in command.params:
            if one is meant and isinstance(one, click.Argument):
                call.append(str(wrong))
            elif isinstance(one, click.Argument) and one.required:
                call.append(str(table) if one in paths else "x")
        yield call


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_of_the_wrong_kind_is_bad_input(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every command, argument and option."""
    refused = 0
    for words, command in leaves(commands):
        folder = tmp_path / "-".join(words)
        wrong, table = places(folder)[kind], folder / "file.csv"
        monkeypatch.chdir(folder)
        for call in calls(words, command, wrong, table):
            found = status(call)
            told = capsys.readouterr().err
            assert found != FAULT and "internal error" not in told, (call, told)
            refused += found == BAD_INPUT
    assert refused > 40


def test_a_study_new_of_a_table_says_how_it_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is no folder; it stays as it is."""
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    assert status(["study", "new", str(table), "--target", "y"]) == BAD_INPUT
    assert (
        f"name a new folder for the study, and its table by --table {table}"
        in capsys.readouterr().err
    )
    assert table.read_text() == TABLE


def test_a_printed_command_can_be_typed_whatever_its_path_is_called(tmp_path: Path) -> None:
    """Each path in one is quoted for the shell: a folder's name may have spaces."""
    command = re.compile(r"\b(privfed|flwr|nvflare) [a-z]+(-[a-z]+)*( [a-z-]+| [A-Z]+| -j)* $")
    printed = []
    for room in ("privfed", "reports"):
        for file in (ROOT / room).glob("**/*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                parts = node.values if isinstance(node, ast.JoinedStr) else []
                for text, value in pairwise(parts):
                    if isinstance(text, ast.Constant) and command.search(str(text.value)):
                        printed.append(ast.unparse(value))
    assert len(printed) > 10
    unquoted = {one for one in printed if "shlex.quote(" not in one}
    assert unquoted == {"{group}"}  # of plugins, one of a few words
    path = tmp_path / "Klinik Nord" / "a.db"
    path.parent.mkdir()
    Ledger(path, "a", registry=Registry()).close()
    path.unlink()
    with pytest.raises(LedgerError) as caught:
        Registry().check_place(path)
    assert shlex.split(str(caught.value))[-4:] == ["privfed", "ledger", "forget", str(path)]
