"""FLARE: a job's folder, and a simulation whose process is killed or whose job fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from privfed import LocalDisclosure
from privfed.cli import BAD_INPUT, FINE, status
from privfed.learners import FuzzyTreeRegressor
from privfed.testing.hospitals import NUMERIC, patients

pytest.importorskip("nvflare")


def _named(text: str) -> Iterator[int]:
    """Processes whose command or environment names a folder."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in told and int(folder.name) != os.getpid():
            yield int(folder.name)


def _ends(text: str) -> bool:
    """Whether no such process is left, once they had time."""
    latest = monotonic() + 60
    while found := list(_named(text)):
        if monotonic() > latest:
            for process in found:
                os.kill(process, signal.SIGKILL)
            return False
        sleep(0.2)
    return True


def test_a_job_s_folder_is_written_whole(
    write_study: Callable[..., Path], study_text: str, tmp_path: Path
) -> None:
    """What a killed command left beside it is in no job, and nothing else stays there."""
    text = study_text.replace('partition = "column"\ncolumn = "site"', 'names = ["north", "south"]')
    study = write_study(text.replace('noise = "test"\n', ""))
    job, left = tmp_path / "jobs" / "job", tmp_path / "jobs" / ".job.partial"
    (left / "study").mkdir(parents=True)
    (left / "study" / "stale").touch()
    (left / "other").mkdir()
    command = ["flare", "new", str(job), "--study", str(study)]
    assert status(command) == FINE
    assert [file.name for file in job.parent.iterdir()] == ["job"]
    assert (job / "meta.json").is_file() and not list(job.rglob("stale"))
    assert status(command) == BAD_INPUT


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
def test_a_job_that_fails_leaves_no_site_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The simulator's own processes end with its job alone, so that the job is ended."""
    from privfed.engines import flare

    def job(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    policy = FuzzyTreeRegressor(max_depth=1).private(2)
    held = LocalDisclosure.from_frame(
        patients(300), "days", client="hospital", schema=NUMERIC, policy=policy
    )
    with pytest.raises(ZeroDivisionError):
        flare.simulate(held, job)
    assert _ends(str(tmp_path))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
def test_a_simulation_whose_process_is_killed_ends(
    write_study: Callable[..., Path], tmp_path: Path
) -> None:
    """Its engine and sites would go on for ever."""
    study, temporary = write_study(), tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "privfed", "run", str(study), "--engine", "flare"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")], env={**os.environ, "TMPDIR": str(temporary)}
    )
    latest = monotonic() + 60
    while len(list(_named(str(temporary)))) < 3 and monotonic() < latest:
        assert process.poll() is None
        sleep(0.2)
    process.kill()
    process.wait()
    assert _ends(str(temporary))
