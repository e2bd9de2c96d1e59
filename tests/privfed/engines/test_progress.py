"""What a server tells of a round: who answered, and, before it is over, who does not."""

from __future__ import annotations

import re
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


def test_a_dead_hospital_is_named_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hospital that is killed in a study; the one that lives is told of in each round."""
    monkeypatch.setattr("privfed.engines.remote.Progress", partial(Progress, silence=0.2))
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
