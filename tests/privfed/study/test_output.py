"""Output folders: whole or not at all, and JSON that every reader understands."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from privfed.errors import InputError, Note
from privfed.ledger import Ledger
from privfed.study import Study, output
from privfed.study.output import (
    CONTENTS,
    Output,
    finite,
    new_folder,
    write_text,
    written_whole,
)


def test_a_folder_appears_only_when_all_went_well(tmp_path: Path) -> None:
    """An exception half-way leaves neither the folder nor its temporary sibling."""
    out = tmp_path / "deep" / "out"
    with pytest.raises(RuntimeError), written_whole(out) as partial:
        (partial / "half.txt").write_text("half")
        assert not out.exists()
        raise RuntimeError
    assert list((tmp_path / "deep").iterdir()) == []
    with written_whole(out) as partial:
        (partial / "whole.txt").write_text("whole")
    assert {path.name for path in out.iterdir()} == {"whole.txt", CONTENTS}


def test_a_failed_replacement_keeps_the_old_output(tmp_path: Path) -> None:
    """The earlier ledgers stay until the new ones are complete."""
    out = tmp_path / "out"
    with written_whole(out) as partial:
        (partial / "a").write_text("old")
    with pytest.raises(RuntimeError), written_whole(out, overwrite=True):
        raise RuntimeError
    assert (out / "a").read_text() == "old"
    with written_whole(out, overwrite=True) as partial:
        (partial / "a").write_text("new")
    assert (out / "a").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _killed_writing(out: Path, moment: int) -> None:
    """A process that dies by SIGKILL while it writes an output, or about or after replacing one."""

    def swap(partial: Path, target: Path) -> None:
        moves = iter(range(1, 3))
        replace = os.replace

        def move(source: Path, place: Path) -> None:
            if moment == (number := next(moves)):
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, place)
            if moment == 3 == number + 1:
                os.kill(os.getpid(), signal.SIGKILL)

        patch.setattr(os, "replace", move)
        honest(partial, target)

    honest = output._swap
    with pytest.MonkeyPatch.context() as patch, written_whole(out, overwrite=True) as partial:
        patch.setattr(output, "_swap", swap)
        (partial / "a").write_text("new")
        if not moment:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moment", range(4))
def test_what_a_killed_run_left_is_named_and_removed_by_the_next(
    tmp_path: Path, moment: int
) -> None:
    """The earlier or the new output stays, whole, and folders of other names."""
    out, other = tmp_path / "out", tmp_path / ".out.settings"
    other.mkdir()
    with written_whole(out) as partial:
        (partial / "a").write_text("old")
    killed = get_context("fork").Process(target=_killed_writing, args=(out, moment))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 3
    with (
        pytest.warns(Note, match="which a killed run left"),
        pytest.raises(RuntimeError),
        written_whole(out, overwrite=True),
    ):
        raise RuntimeError
    assert (out / "a").read_text() == ("new" if moment == 3 else "old")
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".out.settings"}


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    """Another one beside it takes nothing away."""
    with written_whole(tmp_path / "out") as running:
        with pytest.raises(RuntimeError), written_whole(tmp_path / "out"):
            raise RuntimeError
        assert running.is_dir()
    assert (tmp_path / "out").is_dir()


def test_nobody_elses_files_are_overwritten(tmp_path: Path) -> None:
    """A folder with a study in it is no output, and an output may hold a foreign file by now."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "study.toml").write_text("my own")
    refused = pytest.raises(InputError, match="something else than an output")
    with refused, written_whole(mine, overwrite=True):
        pass
    out = tmp_path / "out"
    with written_whole(out) as partial:
        (partial / "a").write_text("a")
    (out / "notes.txt").write_text("my own")
    refused = pytest.raises(InputError, match=r"holds 'notes\.txt' as well")
    with refused, written_whole(out, overwrite=True):
        pass
    assert (mine / "study.toml").read_text() == (out / "notes.txt").read_text() == "my own"


def test_only_an_output_with_ledgers_of_its_own_warns_of_their_removal(tmp_path: Path) -> None:
    """Persistent ledgers lie elsewhere, and stay."""
    for inside, warns in (("private/ledgers/a.db", True), ("private/session.json", False)):
        out = tmp_path / inside.split("/")[1]
        with written_whole(out) as partial:
            (partial / inside).parent.mkdir(parents=True)
            (partial / inside).write_text("")
            (partial / "study.toml").write_text("")
        with pytest.raises(InputError, match="holds an earlier study") as told, written_whole(out):
            pass
        assert ("removes its ephemeral ledgers" in str(told.value)) == warns


def test_pages_that_were_written_later_are_the_outputs_own(tmp_path: Path) -> None:
    """The board's page is replaced with the rest, once it is listed; a note of somebody's is not."""
    out = tmp_path / "out"
    with written_whole(out) as partial:
        (partial / "report.html").write_text("a")
    (out / "board.html").write_text("b")
    Output(out).list_pages()
    with written_whole(out, overwrite=True) as partial:
        (partial / "report.html").write_text("c")
    assert output.entries(out) == {".privfed", "report.html"}


def test_a_folder_with_a_study_is_no_output(tmp_path: Path) -> None:
    """To verify nothing is no success."""
    Study.built_in().to_toml(tmp_path / "study.toml")
    (tmp_path / "private").mkdir()
    with pytest.raises(InputError, match=r"holds no study's output; give the --out of .*audit`$"):
        Output.opened(tmp_path)
    (tmp_path / "owners").mkdir()
    Ledger(tmp_path / "owners" / "north.db", "north").close()
    with pytest.raises(InputError, match=r"audit`, or for its ledgers .*owners$"):
        Output.opened(tmp_path)


def test_a_sweeps_folder_names_one_of_its_runs(tmp_path: Path) -> None:
    """Which are the outputs that can be reported, compared and released."""
    (tmp_path / "cells" / "abc").mkdir(parents=True)
    Study.built_in().to_toml(tmp_path / "cells" / "abc" / "study.toml")
    with pytest.raises(InputError, match=r"holds a sweep; give one of its runs, such as .*abc$"):
        Output.opened(tmp_path)


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    """Nothing is lost by it."""
    with written_whole(tmp_path) as partial:
        (partial / "a").write_text("a")
    assert (tmp_path / "a").is_file()


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    """A file is no folder."""
    (tmp_path / "out").write_text("letter")
    with pytest.raises(InputError, match="something else"), written_whole(tmp_path / "out"):
        pass


def test_json_has_no_infinities() -> None:
    """Infinity becomes text and NaN null, in arrays and NumPy's numbers too."""
    plain = finite(
        {"a": math.inf, "b": [math.nan, -math.inf], "c": np.array([1.5]), 4: np.int64(2)}
    )
    assert plain == {"a": "infinity", "b": [None, "-infinity"], "c": [1.5], "4": 2}
    json.dumps(plain, allow_nan=False)


def test_a_broken_file_is_one_clear_error(tmp_path: Path) -> None:
    """A damaged metrics file names itself; an absent one is none."""
    (tmp_path / "p").mkdir()
    output = Output(tmp_path)
    assert output.read("p", "metrics.json") is None
    write_text(tmp_path / "p" / "metrics.json", "{")
    with pytest.raises(InputError, match=r"metrics\.json: is not JSON"):
        output.read("p", "metrics.json")
    with pytest.raises(InputError, match="holds no ledgers"), output.ledgers("p"):
        pass


@pytest.mark.parametrize("there", [False, True])
def test_a_new_folder_is_whole_or_not_there(tmp_path: Path, there: bool) -> None:
    """Whether it was there, empty, or not; what fails leaves nothing behind."""
    folder = tmp_path / "folder"
    if there:
        folder.mkdir()
    for fault in (True, False):
        with (
            pytest.raises(OSError) if fault else nullcontext(),
            new_folder(folder) as partial,
        ):
            write_text(partial / "a", "text")
            if fault:
                raise OSError(errno.ENOSPC, "full")
        assert [path.name for path in tmp_path.rglob("*")] == ["folder"] * (there or not fault) + [
            "a"
        ] * (not fault)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Neither beside it nor in its place, and the fault names it, not the hidden one."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").touch()
    with pytest.raises(OSError) as raised:
        write_text(tmp_path / "a", "text")
    assert raised.value.filename == str(tmp_path / "a")
    assert {path.name for path in tmp_path.rglob("*")} == {"a", "b"}
