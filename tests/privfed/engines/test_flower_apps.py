"""Flower's apps: what a node's app says, and what `flwr run` is given."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from engine_trials import QUICK, BadLine, Hospital, batch_of, gate_of, question
from ledger_trials import SMALL

from privfed import Guard, LocalDisclosure, Policy, Schema
from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines.owner_side import OwnerSide
from privfed.engines.sockets import SocketServer
from privfed.errors import InputError, LedgerError
from privfed.exchange.channel import RetryLimits
from privfed.tables.schema import Column
from privfed.testing.queries import Histogram

pytest.importorskip("flwr")


def ask(socket: object, batch: bytes) -> Any:
    """What a node's app replies to a message."""
    from flower_grid import become_a_task, deliver
    from flwr.app import ConfigRecord, Message, RecordDict

    from privfed.engines.flower_node import client_app, node_socket

    become_a_task()
    message = Message(RecordDict({"privfed": ConfigRecord({"batch": batch})}), 1, "query.ask")
    return deliver(
        client_app(node_socket), message, {} if socket is None else {"socket": str(socket)}
    )


def test_a_nodes_process_loads_what_passing_bytes_on_needs_alone() -> None:
    """Flower starts one for each message: no table, no statistics, no learner, and nothing of a gate."""
    loaded = "import sys, privfed.engines.flower_node; print(*sys.modules)"
    names = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    own = {name for name in names.stdout.split() if name.startswith("privfed.")}
    assert own == {"privfed.engines", "privfed.errors", "privfed.lazy", "privfed.questions"} | {
        *("privfed.engines.batches", "privfed.engines.flower_node", "privfed.engines.sockets"),
        *("privfed.questions.exact", "privfed.questions.wire"),
    }
    assert not {"pandas", "scipy", "sklearn", "opendp"} & set(names.stdout.split())


@pytest.mark.parametrize("module", ["flower", "flower_node"])
def test_flower_tells_nobody_of_a_study(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its telemetry is off before it is loaded, whichever side loads it."""
    monkeypatch.delenv("FLWR_TELEMETRY_ENABLED", raising=False)
    code = f"import privfed.engines.{module}, flwr.supercore.telemetry as one; print(one.FLWR_TELEMETRY_ENABLED)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "0\n"


def test_a_nodes_app_passes_bytes_to_its_owners_socket(tmp_path: Path) -> None:
    """The reply is the owner's, byte for byte."""
    hospital = Hospital(tmp_path)
    side = OwnerSide(gate_of(hospital))
    with SocketServer(hospital.socket, lambda data: side.answer(data, "server")):
        reply = ask(hospital.socket, batch_of())
    assert reply.content["privfed"]["batch"] == side.answer(batch_of(), "server")


def test_over_a_bad_line_flower_s_nodes_are_charged_once_for_each_question(tmp_path: Path) -> None:
    """Lost, late, doubled, swapped and garbled messages between its two apps and their owners."""
    from flower_grid import InProcess

    from privfed.engines.flower import FlowerDisclosure

    hospitals = [Hospital(tmp_path, name, seed=n).start() for n, name in enumerate("abc")]
    grid = InProcess({number: hospital.socket for number, hospital in enumerate(hospitals, 1)})
    asking = FlowerDisclosure(grid, SMALL, [each.name for each in hospitals], patience=QUICK)
    line = BadLine(asking._carry, seed=5)
    asking._carry = line
    for number in range(20):
        assert len(asking.ask(question(number)).only.releases) == 3
    for hospital in hospitals:
        hospital.kill()
        assert hospital.charges() == 20
    assert sum(line.counts.values()) > 10 and min(line.counts.values()) > 0


@pytest.mark.parametrize("left", ["abc", "ab"])
def test_masked_totals_come_over_flower(tmp_path: Path, left: str) -> None:
    """Lost and garbled messages, a node that is gone: those who are left open their total, and nothing else."""
    from flower_grid import InProcess

    from privfed.engines.flower import FlowerDisclosure

    pytest.importorskip("cryptography")
    bins = Histogram(0, (0.0, 0.5, 1.0))
    schema = Schema((Column("a", lower=0, upper=1),), Column("y", lower=0, upper=1))
    rows = [{"a": (n % 7) / 7, "y": 0.5, "owner": "abc"[n % 3]} for n in range(30)]
    allowed = Policy({bins.kind: (Guard.of("gaussian", spend="1000"),)}, accountant="zcdp")
    frame = pd.DataFrame(rows)
    gates = LocalDisclosure.from_frame(
        frame,
        "y",
        client="owner",
        schema=schema,
        policy=allowed.masked_among("abc", least=2),
        seed=1,
    ).gates
    with ExitStack() as stack:
        for name in left:
            side = OwnerSide(gates[name])
            stack.enter_context(
                SocketServer(tmp_path / name, partial(side.answer, principal="server"))
            )
        grid = InProcess({number: tmp_path / name for number, name in enumerate("abc", 1)})
        patience = QUICK if left == "abc" else RetryLimits(deadline=0.3)
        asking = FlowerDisclosure(grid, schema, list("abc"), patience=patience)
        if left == "abc":
            asking._carry = BadLine(asking._carry, seed=5)
        answer = asking.ask(bins).only
    (total,) = answer.releases
    assert total == f"total of {len(left)} owners"
    exact = np.histogram(frame["a"][frame["owner"].isin(list(left))], bins.edges)[0]
    np.testing.assert_allclose(answer.total("counts"), exact, atol=0.4)


def test_whatever_goes_wrong_at_a_node_is_silence(tmp_path: Path) -> None:
    """No socket, a socket where nobody is, and none named: empty bytes, and no error's text."""
    for socket in (tmp_path / "nobody", tmp_path, None):
        reply = ask(socket, batch_of())
        assert reply.has_content() and not reply.has_error()
        assert reply.content["privfed"]["batch"] == b""


def test_the_skeleton_is_an_app_that_flower_builds(tmp_path: Path) -> None:
    """Its bundle holds the two apps, and its configuration names study and output."""
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    app, study = tmp_path / "my-study", tmp_path / "study.toml"
    assert status(["flower", "new", str(app), "--study", str(study)]) == FINE
    config, warnings = load_and_validate(app / "pyproject.toml")
    assert not warnings and config["tool"]["flwr"]["app"]["config"]["study"] == str(study)
    bundle = build_fab_from_disk(app)
    assert b"my_study/server_app.py" in bundle and b"my_study/client_app.py" in bundle


@pytest.mark.parametrize("name", ["My-Study", "1study", "my_study"])
def test_a_name_that_no_app_may_have_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """So is a folder that holds something."""
    assert status(["flower", "new", str(tmp_path / name)]) == BAD_INPUT
    assert "small letters, digits and hyphens" in capsys.readouterr().err
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()
    assert status(["flower", "new", str(tmp_path / "taken")]) == BAD_INPUT


def test_a_node_that_answers_its_greeting_late_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that comes after its message was given up is read with the next ones."""
    from flower_grid import InProcess

    from privfed.engines.flower import FlowerDisclosure

    hospital = Hospital(tmp_path, "a").start()

    class Late(InProcess):
        looks = 0

        def pull_messages(self, message_ids: Any) -> Any:
            Late.looks += 1
            return super().pull_messages(message_ids) if Late.looks > 2 else []

    monkeypatch.setattr("privfed.engines.directory.GREETING", 0.05)
    monkeypatch.setattr("privfed.engines.flower.POLL", 0.05)
    asking = FlowerDisclosure(Late({1: hospital.socket}), SMALL, ["a"], patience=QUICK)
    assert len(asking.ask(question(1)).only.releases) == 1
    hospital.kill()
    assert hospital.charges() == 1


def test_an_answer_that_comes_twice_over_flower_s_grid_is_charged_once_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reply once more, at once and with all later ones."""
    from flower_grid import InProcess

    from privfed.engines.flower import FlowerDisclosure

    said = list[Any]()

    class Twice(InProcess):
        def pull_messages(self, message_ids: Any) -> Any:
            said[:0] = super().pull_messages(message_ids)
            return [*said, *said]

    monkeypatch.setattr("privfed.engines.flower.POLL", 0.05)
    hospitals = [Hospital(tmp_path, name, seed=n).start() for n, name in enumerate("ab")]
    grid = Twice({number: each.socket for number, each in enumerate(hospitals, 1)})
    asking = FlowerDisclosure(grid, SMALL, ["a", "b"], patience=QUICK)
    for number in range(4):
        assert list(asking.ask(question(number)).only.releases) == ["a", "b"]
    assert asking.released == len(asking.journal.replies) == 8 and not asking.silent
    for each in hospitals:
        each.kill()
        assert each.charges() == 4


def test_flower_says_in_a_line_why_a_study_was_stopped(caplog: pytest.LogCaptureFixture) -> None:
    """A refused ledger, say; another fault keeps its traceback."""
    from privfed.study.on_flower import server_app

    server_app()
    log = logging.getLogger("flwr")
    before, log.propagate = log.propagate, True
    try:
        for fault in (LedgerError("client 'a' published head 3:x after 4:y"), ValueError("else")):
            try:
                raise fault
            except Exception as error:
                log.error("%s raised an exception", "ServerApp", exc_info=error)
    finally:
        log.propagate = before
    assert "privfed: client 'a' published head 3:x after 4:y\n" in caplog.text
    assert caplog.text.count("Traceback") == 1 and "ValueError: else" in caplog.text


def test_what_ends_a_simulated_study_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study's own error, or that the simulation did not begin; not Flower's and Ray's tracebacks."""
    from flwr import simulation

    from privfed.engines.flower import simulate

    def refused(_: object) -> None:
        raise InputError("the study's own line")

    def carries_out(server_app: Any, **_: Any) -> None:
        server_app._main(None, None)

    def fails(**_: Any) -> None:
        raise RuntimeError("Exception: The current node timed out during startup.")

    held = LocalDisclosure({"a": gate_of(Hospital(tmp_path))})
    for engine, line in ((carries_out, "the study's own line"), (fails, "did not begin")):
        monkeypatch.setattr(simulation, "run_simulation", engine)
        with pytest.raises(InputError, match=line):
            simulate(held, refused)
