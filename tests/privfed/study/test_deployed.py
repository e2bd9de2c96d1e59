"""A study whose records are elsewhere: proposed to owners, carried out, cut off, gone on with, replayed."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines.owner_file import OwnerFile
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier
from privfed.errors import InputError, LedgerError, NobodyAnswered, Note, StudyError
from privfed.exchange.channel import RetryLimits
from privfed.learners.saved import load
from privfed.ledger import Ledger
from privfed.ledger.registry import state_folder
from privfed.privacy.loss import Loss
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
def serving(study: Path) -> Iterator[Connect]:
    """Every owner's side behind its socket; gives what connects to them."""
    with ExitStack() as opened:
        paths = {}
        for name in OWNERS:
            owner = OwnerFile.from_toml(study.parent / name / "owner.toml")
            side = owner.opened()
            opened.callback(side.gate.ledger.close)
            for socket in owner.open_sockets(side):
                opened.enter_context(socket)
                paths[name] = socket.path
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
    assert chosen.replay().to_dict() == model.to_dict()
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
    assert json.loads((folder / "metrics.json").read_text())["questions"] >= 1
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
    with serving(study) as connect:

        def dropping(schema: Schema, clients: Sequence[str], **rest: Any) -> RemoteDisclosure:
            made = connect(schema, clients, **{**rest, "patience": RetryLimits(0.3, 0.01, 0.01)})
            carry = made._carry

            def carried(batches: Any, seconds: float) -> Any:
                gone = {"south"} if made.reached["south"] >= 2 else set()
                return carry({k: v for k, v in batches.items() if k not in gone}, seconds)

            made._carry = carried
            return made

        with warnings.catch_warnings(record=True):
            folder = chosen.run(dropping)
    (told,) = json.loads((folder / "metrics.json").read_text())["warnings"]
    assert re.match(r"south did not answer in \d+ of \d+ rounds that asked it", told)
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
