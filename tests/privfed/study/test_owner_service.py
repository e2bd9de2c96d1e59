"""A data owner's side as a service: what it checks, what its metrics tell, how it stops, how it is deployed."""

from __future__ import annotations

import configparser
import http.client
import json
import logging
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from privfed import Schema
from privfed.cli import BAD_INPUT, BREACH, FINE, commands, status
from privfed.engines.owner_file import OwnerFile
from privfed.engines.owner_log import KEPT, handler
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier
from privfed.errors import InputError
from privfed.exchange.channel import RetryLimits
from privfed.learners import FuzzyTreeRegressor
from privfed.study.owner_service import METRICS, OwnerService

DEPLOY = Path(__file__).resolve().parents[3] / "docs" / "deploy"


def learner() -> FuzzyTreeRegressor:
    """What is learned in these tests."""
    return FuzzyTreeRegressor(max_depth=1, n_fuzzy_sets=2, random_state=0)


@pytest.fixture
def owner(owner_file: Path) -> Path:
    """An owner's file, and beside it all that it names."""
    more = 'study = "pilot \\"one\\""\nmetrics = 0\nlog = "north.log"\n'
    owner_file.write_text(more + owner_file.read_text())
    return owner_file


@pytest.fixture
def service(owner: Path) -> Iterator[tuple[OwnerService, int]]:
    """A service and the port of its metrics."""
    chosen = OwnerFile.from_toml(owner)
    with OwnerService(chosen.opened(), chosen) as serving:
        yield serving, int(serving.served[-1].split()[-1])


def got(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """Status and text of GET."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request("GET", path, headers={"Host": f"{host}:{port}"})
    reply = link.getresponse()
    return reply.status, reply.read().decode()


def samples(port: int) -> dict[str, float]:
    """What a Prometheus reads."""
    status, text = got(port, "/metrics")
    assert status == 200
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def learned(folder: Path) -> None:
    """Learn once through the owner's socket."""
    sockets = SocketCarrier({"north": folder / "north.sock"})
    patience = RetryLimits(deadline=20, first=0.01)
    schema = Schema.from_toml(folder / "schema.toml")
    learner().fit(RemoteDisclosure(schema, ["north"], sockets, patience=patience))


def test_metrics_tell_what_the_ledger_says(
    owner: Path, service: tuple[OwnerService, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages by outcome, charges by kind, what is left; all of it follows from rows, save the noise's."""
    port = service[1]
    before = samples(port)
    assert before["privfed_open"] == 1 and before["privfed_budget_left_ratio"] == 1
    learned(owner.parent)
    after = samples(port)
    assert set(after) > set(before)
    assert 0 <= after["privfed_budget_left_ratio"] < 0.5
    charges = {name: n for name, n in after.items() if name.startswith("privfed_charges_total")}
    assert {re.search(r'kind="(fuzzy_tree\.\w+)"', name) is not None for name in charges} == {True}
    releases = after['privfed_messages_total{asker="server",outcome="release"}']
    assert sum(charges.values()) == releases
    assert status(["ledger", "show", str(owner.parent / "north.db")]) == FINE
    assert capsys.readouterr().out.count(" reserved ") == releases
    assert {name.partition("{")[0] for name in after} <= set(METRICS)


def test_health_is_for_this_machine_and_says_when_the_gate_is_closed(
    service: tuple[OwnerService, int],
) -> None:
    """A failed protected question closes it; another machine's name gets nothing."""
    serving, port = service
    assert got(port, "/health") == (200, "open\n")
    assert got(port, "/health", "evil.example")[0] == 404
    assert got(port, "/secret")[0] == 404
    serving._side.gate.breaches["fuzzy_tree.level"] += 1
    told, text = got(port, "/health")
    assert told == 503 and "closed" in text and samples(port)["privfed_open"] == 0


def test_a_check_writes_nothing_and_finds_what_serving_would_refuse(
    owner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before there is a ledger, beside one in use, and over a policy that is not the one in force."""
    folder = owner.parent
    before = sorted(folder.iterdir())
    assert status(["serve-client", str(owner), "--check"]) == FINE
    assert "north: ready to serve" in capsys.readouterr().out and sorted(folder.iterdir()) == before
    chosen = OwnerFile.from_toml(owner)
    with OwnerService(chosen.opened(), chosen):
        assert status(["serve-client", str(owner), "--check"]) == FINE
        learned(folder)
    bytes_ = (folder / "north.db").read_bytes()
    schema = Schema.from_toml(folder / "schema.toml")
    learner().private("2", schema=schema).to_toml(folder / "policy.toml")
    assert status(["serve-client", str(owner), "--check"]) == BAD_INPUT
    assert "the policy in force has another budget" in capsys.readouterr().err
    (folder / "north.secret").unlink()
    assert status(["serve-client", str(owner), "--check", "--amend"]) == BAD_INPUT
    assert "is lost" in capsys.readouterr().err
    assert (folder / "north.db").read_bytes() == bytes_
    assert status(["ledger", "verify", str(folder / "north.db")]) != BREACH


def test_a_port_in_use_closes_what_was_opened(owner: Path) -> None:
    """And the next start is not in its way."""
    chosen = OwnerFile.from_toml(owner)
    with OwnerService(chosen.opened(), chosen) as first:
        assert first.served[-1].startswith("metrics at port ")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        second = OwnerFile.from_toml(owner, {"metrics": int(port)})
        with pytest.raises(InputError, match=f"port {port}: cannot be used"):
            OwnerService(second.opened(), second)
    assert not (owner.parent / "north.sock").exists()
    with OwnerService(chosen.opened(), chosen):
        learned(owner.parent)


def test_a_log_s_file_is_its_owner_s_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older lines move into numbered files, of which only so many are kept; each line is an object."""
    monkeypatch.setattr("privfed.engines.owner_log.SIZE", 2000)
    log, writing = logging.getLogger("privfed.test"), handler(tmp_path / "log")
    log.addHandler(writing)
    for number in range(1000):
        log.warning("line %d\n", number)
    log.removeHandler(writing)
    writing.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1 + KEPT and all(file.stat().st_size <= 2000 for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    (last,) = [json.loads(x) for x in (tmp_path / "log").read_text().splitlines()][-1:]
    assert last["event"] == "line 999\n" and last["level"] == "warning"
    with pytest.raises(InputError, match="cannot be written"):
        handler(tmp_path / "no" / "log")


def known(command: list[str]) -> bool:
    """Whether a command line is one of privfed's, with options that there are."""
    one = commands.commands[command[0]]
    options = {option for parameter in one.params for option in parameter.opts}
    return all(word in options for word in command[1:] if word.startswith("-"))


def test_the_systemd_unit_runs_it_without_rights() -> None:
    """Not as root, nothing writable but its state, no network but this machine, checked before it starts."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "privfed-owner@.service").read_text())
    service = dict(unit["Service"])
    for name in ("ExecStart", "ExecStartPre"):
        program, *command = shlex.split(service[name])
        assert program.endswith("/privfed") and known(command), name
    assert "--check" in service["ExecStartPre"]
    assert service["User"] not in ("", "root", "0") and service["ProtectSystem"] == "strict"
    assert service["StateDirectory"] and "ReadWritePaths" not in service
    assert service["IPAddressDeny"] == "any" and service["IPAddressAllow"] == "localhost"
    assert service["NoNewPrivileges"] == "yes" and service["CapabilityBoundingSet"] == ""
    assert service["KillSignal"] == "SIGTERM"


def test_the_container_runs_it_without_rights() -> None:
    """Its last user is not root, its command is ours, and nothing of an owner's is copied into it."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    told = {word: rest for word, rest in lines}
    words = {"FROM", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "ENTRYPOINT", "CMD"}
    assert lines[0][0] == "FROM" and set(told) == words
    assert told["USER"] not in ("root", "0")
    entry, command = json.loads(told["ENTRYPOINT"]), json.loads(told["CMD"])
    assert entry[0] == "privfed" and known([*entry[1:], *command])


def test_what_both_and_their_page_name_fits_together() -> None:
    """The unit's folders and program are those that the page makes; all files of `docs/deploy` are named there."""
    unit = (DEPLOY / "privfed-owner@.service").read_text()
    page = (DEPLOY.parent / "engines.md").read_text()
    text = page.partition("## As a service")[2].partition("\n## ")[0]
    for path in re.findall(r"(?<![\w.-])/(?:opt|etc|var|run)[\w./@%-]*", unit):
        folder, _, name = path.replace("%i", "ashford").rstrip(".;").rpartition("/")
        assert folder in text and (name in text or name == "state")
    assert all(f"`{file.name}`" in text for file in DEPLOY.iterdir())
    named = re.findall(r"docs/deploy/(\S+)", text)
    assert named and all((DEPLOY / name).is_file() for name in named)
    state = re.search(r"StateDirectory=(\S+)", unit)
    assert state is not None and f"/var/lib/{state[1]}/".replace("%i", "ashford") in text
    runtime = re.search(r"RuntimeDirectory=(\S+)", unit)
    assert runtime is not None and f"/run/{runtime[1]}/".replace("%i", "ashford") in text
