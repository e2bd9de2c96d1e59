"""A study whose records are elsewhere: proposed to owners, carried out, cut off, gone on with, replayed."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from signal import SIGKILL
from threading import Event
from time import sleep
from typing import Any

import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines.journal import Journal
from privfed.engines.owner_file import OwnerFile
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier
from privfed.errors import InputError, LedgerError, NobodyAnswered, Note, StudyError
from privfed.exchange.channel import RetryLimits
from privfed.learners.saved import load
from privfed.ledger import Ledger
from privfed.ledger.registry import state_folder
from privfed.privacy.loss import Loss
from privfed.questions import wire
from privfed.study import Study
from privfed.study.deployed import Connect, Deployment
from privfed.study.dry_run import prices
from privfed.tables.schema import Schema

OWNERS = ("north", "south")


@pytest.fixture
def study(write_study: Callable[..., Path], study_text: str, small_table: pd.DataFrame) -> Path:
    """A study of two owners, each with a folder of its own and its records there."""
    text = study_text.replace('partition = "column"\ncolumn = "site"', f"names = {list(OWNERS)}")
    text = text.replace('noise = "test"\n', "").replace('[[policy]]\nname = "published"\n', "")
    path = write_study(text)
    keys = path.parent / "keys"
    keys.mkdir()
    for name in OWNERS:
        folder = path.parent / name
        assert status(["owner", "new", str(folder), str(path), "--client", name]) == FINE
        own = small_table[small_table["site"] == name].drop(columns="site")
        own.to_csv(folder / "records.csv", index=False)
        shutil.copy(folder / "owner.pub", keys / f"{name}.pub")
    (path.parent / "table.csv").unlink()  # the server has none
    return path


@contextmanager
def serving(study: Path, names: Sequence[str] = OWNERS) -> Iterator[Connect]:
    """These owners' sides behind their sockets; gives what connects to all."""
    with ExitStack() as opened:
        paths = {name: study.parent / name / "server.sock" for name in OWNERS}
        for name in names:
            owner = OwnerFile.from_toml(study.parent / name / "owner.toml")
            side = owner.opened()
            opened.callback(side.gate.ledger.close)
            for socket in owner.open_sockets(side):
                opened.enter_context(socket)
        yield partial(_connect, SocketCarrier(paths))


def _connect(
    carry: Any, schema: Schema, clients: Sequence[str], /, **rest: Any
) -> RemoteDisclosure:
    patience = RetryLimits(deadline=10, first=0.01)
    return RemoteDisclosure(schema, clients, carry, **{"patience": patience, **rest})


def deployment(study: Path, out: str = "out") -> Deployment:
    """The study with its output beside it."""
    return Deployment.of(Study.from_toml(study), study.parent / out)


def rows(study: Path) -> list[int]:
    """How many rows each owner's ledger has."""
    found = []
    for name in OWNERS:
        with closing(Ledger.read(study.parent / name / "ledger.db")) as ledger:
            found.append(sum(1 for _ in ledger.entries()))
    return found


def test_a_study_of_two_owners_ends_with_a_report_and_a_transcript_that_replays(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies of the owners' ledgers are verified against the heads that the server saw."""
    chosen = deployment(study)
    with serving(study) as connect:
        folder = chosen.run(connect)
    model = load(folder / "model.json")
    lines = (folder / "progress").read_text().splitlines()
    assert " round 1: " in lines[0] and lines[-1].endswith(" learned")
    assert all(f"{name} " in line for name in OWNERS for line in lines[:-1])
    replayed = chosen.replay()
    assert replayed.to_dict() == model.to_dict()
    assert {"evaluation.errors"} < {entry.kind for entry in chosen.transcript}
    assert model.privacy_ == {**replayed.privacy_, "file": True}  # without the evaluation's part
    assert "on the word of the data owners' gates: epsilon " in replayed.describe()
    assert "according to the model file, on the word of" in model.describe()
    capsys.readouterr()
    for given, name in enumerate(OWNERS):
        assert status(["report", str(chosen.out)]) == BAD_INPUT
        told = capsys.readouterr().err
        assert f"put it into ledgers as {', '.join(f'{one}.db' for one in OWNERS[given:])}" in told
        shutil.copy(study.parent / name / "ledger.db", folder / "ledgers" / f"{name}.db")
    assert status(["ledger", "verify", str(chosen.out)]) == FINE
    assert status(["report", str(chosen.out)]) == FINE
    told = capsys.readouterr().out
    assert told.count("intact private") == 2
    another = shutil.copy(folder / "ledgers" / "north.db", folder / "ledgers" / "west.db")
    for command in (["ledger", "verify"], ["report"]):
        assert status([*command, str(chosen.out)]) == BAD_INPUT
        assert "west.db: is of data set 'north'; move it away" in capsys.readouterr().err
    Path(another).unlink()
    with closing(Ledger(another, dataset="west")):
        assert status(["report", str(chosen.out)]) == BAD_INPUT
    assert "west.db: has no row of the study" in capsys.readouterr().err
    Path(another).unlink()
    scored = json.loads((folder / "metrics.json").read_text())
    assert (
        scored.get("told", "").startswith(
            "performance not measured: the held-out records are too few"
        )
        or scored["intervals"]
    )
    assert "simulation" not in told and "ledgers: copies" in told
    page = (chosen.out / "report.html").read_text()
    assert "The records stayed with their owners" in page
    assert "one process held all the data" not in page
    assert json.loads((folder / "metrics.json").read_text())["queries"] >= 1
    with pytest.raises(InputError, match="holds a finished study"):
        chosen.run(connect)


def test_a_study_that_was_cut_off_goes_on_without_another_charge(study: Path) -> None:
    """Whatever the server forgot but its journal, the owners are asked nothing twice."""
    chosen = deployment(study)
    with serving(study) as connect:
        folder = chosen.run(connect)
        model = (folder / "model.json").read_bytes()
        before = rows(study)
        rounds = json.loads((folder / "metrics.json").read_text())["rounds"]
        for name in ("model.json", "metrics.json", "heads.json"):
            (folder / name).unlink()
        assert chosen.run(connect) == folder
        assert (folder / "model.json").read_bytes() == model
        assert rows(study) == before
    told = (folder / "progress").read_text().split(" learned\n")[1]
    assert "resumed: " in told and " round " not in told
    assert json.loads((folder / "metrics.json").read_text())["rounds"] == rounds


def test_rounds_are_counted_on_after_a_study_was_cut_off(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lines do not say "round 1" again; and until it has ended there is nothing to report."""
    chosen = deployment(study)
    with serving(study) as connect:

        def cut_off(*arguments: Any, tell: Callable[[str], None], **rest: Any) -> Any:
            def told(line: str) -> None:
                tell(line)
                if line.startswith("round 2"):
                    raise InputError("killed")

            return connect(*arguments, tell=told, **rest)

        with pytest.raises(InputError, match="killed"):
            chosen.run(cut_off)
        for command in (["report"], ["ledger", "verify"]):
            assert status([*command, str(chosen.out)]) == BAD_INPUT
            assert "has not ended; run it again, and it goes on" in capsys.readouterr().err
        folder = chosen.run(connect)
    numbers = re.findall(r" round (\d+):", (folder / "progress").read_text())
    assert numbers == [str(number + 1) for number in range(len(numbers))] and len(numbers) > 2


def away(connect: Connect, gone: Callable[[RemoteDisclosure], bool], end: str = "") -> Connect:
    """South is silent while ``gone`` says so, and the server is killed after a line with ``end``."""

    def made(schema: Schema, clients: Sequence[str], **rest: Any) -> RemoteDisclosure:
        tell = rest.pop("tell")

        def told(line: str) -> None:
            tell(line)
            if end and end in line:
                raise InputError("killed")

        patience = RetryLimits(0.3, 0.01, 0.01)
        asking = connect(schema, clients, **{**rest, "tell": told, "patience": patience})
        carry = asking._carry

        def carried(batches: Any, seconds: float) -> Any:
            silent = {"south"} if gone(asking) else set()
            asked = {k: v for k, v in batches.items() if k not in silent}
            return carry(asked, 60.0)  # the others are waited for, however busy the machine is

        asking._carry = carried
        return asking

    return made


def test_a_study_is_not_run_twice_at_once(study: Path) -> None:
    """The journal is one process's: the second server asks nobody, and the first goes on."""
    chosen = deployment(study)
    with serving(study) as connect:
        with closing(Journal(chosen._folder() / "journal")):
            before = rows(study)
            with pytest.raises(InputError, match=r"journal .* in use by another process"):
                chosen.run(connect)
            assert rows(study) == before
        assert (chosen.run(connect) / "model.json").exists()


def test_a_study_goes_on_from_where_it_had_gone_on_without_an_owner(study: Path) -> None:
    """She is back when it is run again, but what she missed is not asked anew: later queries rest on the others'."""
    chosen = deployment(study)
    with serving(study) as connect:
        with pytest.raises(InputError, match="killed"):
            chosen.run(away(connect, lambda asking: asking.reached["south"] >= 2, "round 18:"))
        before = rows(study)
        folder = chosen.run(connect)
    notes = json.loads((folder / "metrics.json").read_text())["warnings"]
    assert not any("north" in note for note in notes)  # its answers are to this run's queries
    assert any(re.match(r"south did not answer in \d of \d+ rounds", note) for note in notes)
    assert chosen.replay().to_dict() == load(folder / "model.json").to_dict()
    told = (folder / "progress").read_text().split("resumed: ")[1]
    assert re.findall(r" round (\d+):", told)[0] == "18"  # whatever no query rested on is asked
    assert all(now > then for now, then in zip(rows(study), before, strict=True))


def test_a_journal_of_other_queries_is_not_gone_on_from(study: Path) -> None:
    """An answer stands for its own query alone; nobody is asked anything."""
    chosen = deployment(study)
    with serving(study) as connect:
        with pytest.raises(InputError, match="killed"):
            chosen.run(away(connect, lambda _: False, "round 9:"))
        before = rows(study)
        with closing(Journal(chosen.out / "private" / "journal")) as journal:
            for line in journal.replies:
                message = wire.decode_plain(line.message)
                if "about" not in message:  # a request, not a dry run
                    other = wire.encode({**message, "fields": b"x"})
                    journal.keep([replace(line, message=other)])
        with pytest.raises(InputError, match="another query than this run's"):
            chosen.run(connect)
    assert rows(study) == before


def test_an_owner_who_misses_the_last_query_is_asked_for_it_again(study: Path) -> None:
    """The study counts as finished once she has answered, and its others are charged nothing more."""
    chosen = deployment(study)
    with serving(study) as connect:
        folder = chosen.run(away(connect, lambda asking: asking.rounds >= 10))
        assert json.loads((folder / "metrics.json").read_text())["unanswered"] == ["south"]
        assert (
            "south did not answer the last query: run the study again"
            in (folder / "progress").read_text()
        )
        north, south = rows(study)
        chosen.run(connect)
        assert rows(study) == [north, south + 2]
        with pytest.raises(InputError, match="holds a finished study"):
            chosen.run(connect)
    assert "unanswered" not in json.loads((folder / "metrics.json").read_text())


def _killed_at(folder: Path, step: str) -> None:
    """South's process, which dies at a step of her third charge: before it, after it, or after its release."""
    owner = OwnerFile.from_toml(folder / "owner.toml")
    side = owner.opened()
    ledger, charges = side.gate.ledger, count(1)
    reserve, release = ledger.reserve, ledger.release

    def die(at: str) -> None:
        if at == step and next(charges) == 3:
            os.kill(os.getpid(), SIGKILL)

    def reserving(*arguments: Any) -> Any:
        die("before")
        reserved = reserve(*arguments)
        die("charged")
        return reserved

    def releasing(*arguments: Any) -> Any:
        head = release(*arguments)
        die("released")
        return head

    vars(ledger).update(reserve=reserving, release=releasing)
    owner.open_sockets(side)
    Event().wait()


@pytest.mark.parametrize("step", ["never", "before", "charged", "released"])
def test_an_owner_killed_at_any_step_is_charged_as_if_she_were_not(study: Path, step: str) -> None:
    """She and the server die in one round: started again, each of eleven queries is charged once, one noise for each."""
    chosen, fork = deployment(study), get_context("fork")
    folder = study.parent / "south"
    with serving(study, ["north"]) as connect:
        for dies in dict.fromkeys((step, "never")):
            owner = fork.Process(target=_killed_at, args=(folder, dies), daemon=True)
            owner.start()
            try:
                while not (folder / "server.sock").is_socket():
                    sleep(0.01)
                end = "" if dies == "never" else "south silent"
                chosen.run(away(connect, lambda _: False, end))
            except InputError as error:
                owner.join(10)
                assert str(error) == "killed" and owner.exitcode == -SIGKILL
            finally:
                owner.kill()
                owner.join()
                (folder / "server.sock").unlink(missing_ok=True)
    for name in OWNERS:
        with closing(Ledger.read(study.parent / name / "ledger.db")) as ledger:
            ledger.verify()
            charged = [entry.request for entry in ledger.entries(events=("reserved",))]
            released = [entry.request for entry in ledger.entries(events=("released",))]
        assert len(charged) == len(set(charged)) == 11
        assert len(released) == len(set(released)) == 11


def test_a_study_that_nobody_answers_ends_as_one_that_failed(study: Path) -> None:
    """With an error, by which an engine knows; the last line and the metrics say why."""
    chosen = deployment(study)
    connect = partial(RemoteDisclosure, carry=lambda batches, seconds: {})
    with pytest.raises(NobodyAnswered, match="no client could be reached"):
        chosen.run(connect, patience=RetryLimits(0.05, 0.01, 0.01))
    folder = chosen.out / "private"
    assert json.loads((folder / "metrics.json").read_text())["stopped"]
    assert " stopped: " in (folder / "progress").read_text().splitlines()[-1]
    assert not (folder / "model.json").exists()


def test_an_owner_who_drops_out_is_named_on_the_page(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """She answered two rounds, and the model is the other's alone from there; so are a learner's own notes kept."""
    chosen = deployment(study)
    with serving(study) as connect, warnings.catch_warnings(record=True):
        folder = chosen.run(away(connect, lambda asking: asking.reached["south"] >= 2))
    told, last = json.loads((folder / "metrics.json").read_text())["warnings"]
    assert re.match(r"south did not answer in \d+ of \d+ rounds that asked it", told)
    assert last.startswith("south did not answer the last query: run the study again")
    assert f" note: {told}\n" in (folder / "progress").read_text()
    for name in OWNERS:
        shutil.copy(study.parent / name / "ledger.db", folder / "ledgers" / f"{name}.db")
    assert status(["report", str(chosen.out)]) == FINE
    assert told in (chosen.out / "report.html").read_text()


def test_an_owner_whose_budget_runs_out_is_named(study: Path) -> None:
    """She offers no more from there, and the others answer alone."""
    owner = study.parent / "south" / "owner.toml"
    policy = owner.parent / "policy.toml"
    policy.write_text(policy.read_text().replace('epsilon = "4"', 'epsilon = "1.5"', 1))
    owner.write_text(owner.read_text().split("[agreed]")[0])
    chosen = deployment(study)
    with serving(study) as connect:
        folder = chosen.run(connect)
    (told,) = json.loads((folder / "metrics.json").read_text())["warnings"]
    assert re.match(r"south did not offer to answer \d of the queries that others did", told)
    assert f" note: {told}\n" in (folder / "progress").read_text()


def test_heads_are_kept_from_one_study_to_the_next(study: Path) -> None:
    """An owner whose ledger began anew meanwhile is not believed."""
    with serving(study) as connect:
        deployment(study).run(connect)
    for ending in (".db", ".db-wal", ".db-shm"):
        (study.parent / "north" / f"ledger{ending}").unlink(missing_ok=True)
    shutil.rmtree(state_folder() / "ledgers")  # the owner's own machine forgot it as well
    with serving(study) as connect, pytest.raises(LedgerError, match="rewritten"):
        deployment(study, "second").run(connect)
    ended = (study.parent / "second" / "private" / "progress").read_text().splitlines()
    assert len([line for line in ended if "rewritten" in line]) == 1 and " stopped: " in ended[-1]


def test_a_key_that_is_missing_or_another_ones_ends_the_study(study: Path) -> None:
    """Where there is a folder of keys, every owner has one in it."""
    keys = study.parent / "keys"
    shutil.copy(keys / "south.pub", keys / "north.pub")
    with serving(study) as connect:
        with pytest.raises(LedgerError, match="not signed by the owner's key"):
            deployment(study).run(connect)
        (keys / "north.pub").unlink()
        with pytest.raises(InputError, match=r"north\.pub"):
            deployment(study).run(connect)
        shutil.rmtree(keys)
        with pytest.warns(Note, match="accepted unsigned"):
            deployment(study).run(connect)


def test_a_study_whose_evaluation_nobody_answered_goes_on(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is written, its performance is not: the next run asks for that alone."""

    def silent(*_: Any) -> dict[str, Any]:
        raise NobodyAnswered("nobody answered")

    chosen = deployment(study)
    with serving(study) as connect:
        with monkeypatch.context() as patched, pytest.raises(NobodyAnswered):
            patched.setattr("privfed.study.deployed.evaluated", silent)
            chosen.run(connect)
        folder = chosen.out / "private"
        model, before = (folder / "model.json").read_bytes(), rows(study)
        assert "stopped" in json.loads((folder / "metrics.json").read_text())
        chosen.run(connect)
    assert (folder / "model.json").read_bytes() == model
    assert "stopped" not in json.loads((folder / "metrics.json").read_text())
    assert all(0 < now - then <= 3 for now, then in zip(rows(study), before, strict=True))


def test_an_output_of_another_study_is_left_alone(study: Path) -> None:
    """A journal belongs to one study."""
    with serving(study) as connect:
        folder = deployment(study).run(connect)
        (folder / "model.json").unlink()
        study.write_text(study.read_text().replace("max_depth = 1", "max_depth = 0"))
        with pytest.raises(InputError, match="holds another study"):
            deployment(study).run(connect)


def test_a_slip_in_what_is_proposed_is_one_error(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client that the study does not name, a folder in use, a policy that it does not have."""
    new = ["owner", "new", str(study.parent / "east"), str(study)]
    assert status([*new, "--client", "east"]) == BAD_INPUT
    assert status([*new, "--client", "north", "--policy", "open"]) == BAD_INPUT
    assert status(
        ["owner", "new", str(study.parent / "north"), str(study), "--client", "north"]
    ) == (BAD_INPUT)
    errors = capsys.readouterr().err
    for told in ("no client 'east'", "no policy 'open'", "not empty"):
        assert told in errors
    unnamed = study.read_text().replace(f"names = {list(OWNERS)}", "count = 2")
    study.write_text(unnamed)
    with pytest.raises(StudyError, match="names its owners"):
        _ = deployment(study).clients


def test_its_price_is_what_its_owners_are_charged(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Evaluation's share included, on a server without a table; beside a simulation's where there is one."""
    (priced,) = prices(Study.from_toml(study))
    assert priced.deployed and priced.policy == deployment(study).policy
    charged = {line.kind: line.loss for line in priced.lines if line.loss}
    assert "evaluation.errors" in charged
    with serving(study) as connect:
        deployment(study).run(connect)
    with closing(Ledger.read(study.parent / "north" / "ledger.db")) as ledger:
        rows = [entry.body for entry in ledger.entries(events=("reserved",))]
        (whole,) = ledger.budget()
    paid = [Loss.from_dict(row["loss"]) for row in rows if row["kind"] == "evaluation.errors"]
    assert [loss.laws for loss in paid] == [charged["evaluation.errors"].laws]
    assert all(a <= b for a, b in zip(whole.spent, priced.amount, strict=True))
    shutil.copy(study.parent / "north" / "records.csv", study.parent / "table.csv")
    capsys.readouterr()
    assert status(["price", str(study), "--utility"]) == FINE
    told = capsys.readouterr().out
    assert told.count("private: at most epsilon") == 1
    assert told.count("private, on the owners' machines: at most epsilon") == 1
    assert told.count("evaluation.errors        x1") == 1
    assert told.count("counts and means alone") == 1
    study.write_text(study.read_text() + "evaluation = 0.1\n")
    (alike,) = prices(Study.from_toml(study))
    assert not alike.deployed and "evaluation.errors" in alike.policy.guards
