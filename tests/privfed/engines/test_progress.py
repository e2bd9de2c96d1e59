"""What a server tells of a round: who answered, and, before it is over, who does not."""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from pathlib import Path
from time import sleep

import pytest
from engine_trials import Hospital, federation, question

from privfed.engines.progress import SILENCE, Progress
from privfed.engines.sockets import SocketCarrier
from privfed.exchange.channel import RetryLimits


def test_the_silent_are_named_while_they_are_waited_for() -> None:
    """Since when, again after twice as long, and when they answer again; the others are not named."""
    lines: list[str] = []
    progress = Progress(lines.append, silence=0.05)
    with progress.round(["Ashford", "Birch"]):
        progress.heard("Birch")
        while len(lines) < 2:
            sleep(0.01)
    assert len(set(lines[:2])) == 1
    assert re.fullmatch(r"Ashford: no answer since \d\d:\d\d:\d\d", lines[0])
    assert re.fullmatch(r"round 1: Birch \d+\.\d s, Ashford silent", lines[-1])
    with progress.round(["Ashford", "Birch"]):
        progress.heard("Ashford")
        progress.heard("Ashford")
    assert lines[-2] == "Ashford: answers again"
    assert re.fullmatch(r"round 2: Ashford \d+\.\d s, Birch silent", lines[-1])
    assert SILENCE < 10


def test_silence_counts_from_when_an_answer_was_due() -> None:
    """An owner whose answers take long is not called silent for that; one that was quick, and stopped, is."""
    lines: list[str] = []
    progress = Progress(lines.append, silence=0.2, first_answer=60)
    slow, quick, new = "Ashford", "Birch", "Cedar"
    progress._took = {slow: deque([60.0, 60.0, 0.0, 60.0]), quick: deque([0.0, 0.0, 60.0, 0.0])}
    with progress.round([slow, quick, new]):
        while len(lines) < 2:
            sleep(0.01)
    assert [line.split(":")[0] for line in lines[:2]] == [quick, quick]


def test_who_cannot_be_reached_is_named_at_once_and_once() -> None:
    """A node whose gate is gone says so long before its owner would be called silent."""
    lines: list[str] = []
    progress = Progress(lines.append, silence=60)
    for _ in range(2):
        with progress.round(["Ashford"]):
            progress.missed("Ashford")
            progress.missed("Ashford")
            progress.missed("Birch")
    with progress.round(["Ashford"]):
        progress.missed("Ashford")
        progress.heard("Ashford")
        progress.missed("Ashford")
    told = [re.sub(r"[\d.:]+( s|$)", "N", line) for line in lines]
    silent = ["Ashford: no answer since N"]
    assert told == [
        *[*silent, "round 1: Ashford silent", "round 2: Ashford silent"],
        *["Ashford: answers again", "round 3: Ashford N"],
    ]


def test_a_dead_hospital_is_named_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hospital that is killed in a study; the one that lives is told of in each round."""
    monkeypatch.setattr("privfed.engines.remote.Progress", partial(Progress, silence=60))
    lines: list[str] = []
    hospitals = [Hospital(tmp_path, name, seed=n).start() for n, name in enumerate("ab")]
    asking = federation(
        *hospitals,
        carry=SocketCarrier({each.name: each.socket for each in hospitals}),
        patience=RetryLimits(1.0, 0.01, 0.05),
        tell=lines.append,
    )
    assert len(asking.ask(question(0)).only.releases) == 2
    hospitals[1].kill()
    assert len(asking.ask(question(1)).only.releases) == 1
    hospitals[0].kill()
    told = "\n".join(lines)
    assert re.search(r"round \d: a \d+\.\d s, b \d+\.\d s", told)
    assert "b: no answer since" in told and "a: no answer since" not in told
    assert lines[-1].endswith(", b silent")
