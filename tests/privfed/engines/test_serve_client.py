"""A data owner's side as a process: what it refuses to start on, what it logs, what works beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pandas as pd
import pytest

from privfed import Policy, Schema
from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines.batches import schema_digest
from privfed.engines.owner_file import OwnerFile
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier
from privfed.errors import InputError, PolicyError, SchemaError
from privfed.exchange.channel import RetryLimits
from privfed.exchange.signing import Identity
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.base import FederatedLearner
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry


def learner() -> FederatedLearner:
    """What is learned in these tests."""
    return FuzzyTreeRegressor(max_depth=1, n_fuzzy_sets=2, random_state=0)


@pytest.fixture
def owner(owner_file: Path) -> Path:
    """An owner's folder with everything in it; the path of its file."""
    text = owner_file.read_text()
    owner_file.write_text(f'signing_key = "north.key"\nstudy = "pilot"\n{text}')
    assert status(["key", "new", str(owner_file.with_name("north.key"))]) == FINE
    return owner_file


Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts `privfed serve-client` and waits for its first line."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        program = "import sys; from privfed.cli import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", program, "serve-client", *map(str, arguments)]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        latest = monotonic() + 60
        folder = Path(arguments[0]).parent if str(arguments[0]).endswith(".toml") else None
        while folder is not None and not (folder / "north.sock").exists():
            assert started[-1].poll() is None and monotonic() < latest
            sleep(0.02)
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_learner_learns_through_the_socket_while_the_ledger_is_read_beside_it(
    owner: Path, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verify, show and budget work while it runs; it stops when it is told to, and its log is bare."""
    elsewhere = owner.with_name("another.db")
    Ledger(elsewhere, "north", registry=Registry()).close()
    folder, process = owner.parent, serve(owner)
    schema = Schema.from_toml(folder / "schema.toml")
    keys = {"north": Identity("north", (folder / "north.key.pub").read_bytes())}
    sockets = SocketCarrier({"north": folder / "north.sock"})
    asking = RemoteDisclosure(
        schema, ["north"], sockets, keys=keys, patience=RetryLimits(deadline=20, first=0.01)
    )
    fitted = learner().fit(asking)
    assert "IF" in fitted.describe()
    capsys.readouterr()
    for command in ("verify", "show", "budget"):
        assert status(["ledger", command, str(folder / "north.db")]) == FINE
    head = str(asking.heads["north"])
    assert status(["ledger", "verify", str(folder / "north.db"), "--head", head]) == FINE
    assert "intact" in capsys.readouterr().out
    process.terminate()
    out, log = process.communicate(timeout=30)
    assert process.returncode == 0 and out.startswith("north: ledger at ") and "closed" in out
    assert "north: note: ledger " in out and "has another, " in out
    assert not (folder / "north.sock").exists()
    lines = [json.loads(line) for line in log.strip().splitlines()]
    assert {"reserved", "batch"} <= {line["event"] for line in lines}
    assert all("cost" in line for line in lines if line["event"] == "reserved")
    table = pd.read_csv(folder / "north.csv")
    values = {text for column in ("age", "weight", "risk") for text in map(str, table[column])}
    assert not [text for text in values if len(text) > 4 and text in log + out]


def test_it_refuses_to_start_on_another_policy_than_the_one_in_force(owner: Path) -> None:
    """Unless the owner amends it, which is the owner's choice and recorded."""
    folder = owner.parent
    OwnerFile.from_toml(owner).opened().gate.ledger.close()
    schema = Schema.from_toml(folder / "schema.toml")
    learner().private("8", schema=schema).to_toml(folder / "policy.toml")
    with pytest.raises(PolicyError, match="amend"):
        OwnerFile.from_toml(owner).opened()
    assert status(["serve-client", str(owner)]) == BAD_INPUT
    side = OwnerFile.from_toml(owner).opened(amend=True)
    assert side.gate.policy.digest == Policy.from_toml(folder / "policy.toml").digest
    side.gate.ledger.close()


def test_a_replaced_record_may_not_leave_for_the_held_out_part(owner: Path) -> None:
    """Its coin is another: the exact number of training records, free under replace-one, would tell."""
    owner.write_text(f"test = 0.5\n{owner.read_text()}")
    policy = owner.with_name("policy.toml")
    removed = policy.read_text()
    assert 'relation = "add-or-remove"' in removed
    policy.write_text(removed.replace("add-or-remove", "replace-one"))
    with pytest.raises(PolicyError, match="may leave the training part"):
        OwnerFile.from_toml(owner).checked()
    policy.write_text(removed)
    OwnerFile.from_toml(owner).checked()


def test_it_refuses_to_start_on_a_wrong_schema(owner: Path, schema_text: str) -> None:
    """One that does not fit the table, one that was read off it, one that nobody agreed on."""
    folder, text = owner.parent, owner.read_text()
    schema = Schema.from_toml(folder / "schema.toml")
    wrong = {
        'name = "age"\n': 'name = "years"\n',
        'target = "risk"\n': 'target = "risk"\ninferred = true\n',
        "upper = 100\n": "upper = 120\n",
    }
    agreed = f'[agreed]\nschema = "{schema_digest(schema)}"\n'
    owner.write_text(text + agreed)
    OwnerFile.from_toml(owner).opened().gate.ledger.close()
    for old, new in wrong.items():
        (folder / "schema.toml").write_text(schema_text.replace(old, new, 1))
        with pytest.raises(SchemaError):
            OwnerFile.from_toml(owner).opened()
    owner.write_text(text + '[agreed]\npolicy = "0"\n')
    (folder / "schema.toml").write_text(schema_text)
    with pytest.raises(PolicyError, match="not the agreed one"):
        OwnerFile.from_toml(owner).opened()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('client = "north"\n', "", "client is missing"),
        ('client = "north"\n', 'client = ""\n', "empty name"),
        ("study =", "studdy =", "did you mean 'study'"),
        ('[sockets]\nserver = "north.sock"\n', "", "sockets is missing"),
        ("north.csv", "south.csv", "cannot be read"),
        ("north.db", "nowhere/north.db", "make it"),
        ("north.key", "south.key", "privfed key"),
        ('study = "pilot"', "block = 0", "block must be at least 1"),
        ('study = "pilot"', 'rounds = "week"', "write one of asker, minute, hour, day"),
        ('study = "pilot"', 'block = "two"', "got str at block; write a whole number, without"),
        ("[sockets]", "[agreed]\nlaw = '1'\n[sockets]", "unknown key 'law'"),
        ("north.sock", "n" * 200, "cannot be made"),
    ],
)
def test_a_slip_in_the_file_is_one_error(owner: Path, old: str, new: str, told: str) -> None:
    """It says what is wrong and what to write instead."""
    text = owner.read_text()
    assert old in text
    owner.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=told) as caught:
        chosen = OwnerFile.from_toml(owner)
        chosen.open_sockets(chosen.opened())
    assert "\n" not in str(caught.value)


def test_all_slips_in_the_file_are_told_at_once(owner: Path) -> None:
    """Each with what was meant."""
    owner.write_text('tets = 0.2\nblock = "two"\n' + owner.read_text())
    with pytest.raises(InputError, match=r"^2 faults") as caught:
        OwnerFile.from_toml(owner)
    unknown, misfit = caught.value.faults
    assert "unknown key 'tets'; did you mean 'test'?" in unknown
    assert misfit.endswith("got str at block; write a whole number, without quotes")


def test_the_file_is_written_as_it_was_read(owner: Path) -> None:
    """Keys at their defaults are left out."""
    OwnerFile.from_toml(owner).to_toml(owner.with_name("again.toml"))
    assert OwnerFile.from_toml(owner.with_name("again.toml")) == OwnerFile.from_toml(owner)


def test_a_second_process_at_the_same_socket_is_refused(owner: Path) -> None:
    """A socket that a dead process left is replaced; one that answers is not."""
    chosen = OwnerFile.from_toml(owner)
    side = chosen.opened()
    (socket,) = chosen.open_sockets(side)
    with pytest.raises(InputError, match="another process answers"):
        chosen.open_sockets(side)
    socket.close()
    side.gate.ledger.close()


def test_without_a_file_four_options_are_enough(
    owner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client is named after its data, and its socket lies beside its ledger."""
    from privfed.cli.serving import owner_of

    given = {"data": "a/north.csv", "schema": "s", "policy": "p", "ledger": "b/north.db"}
    chosen = owner_of(None, given)
    assert (chosen.client, chosen.sockets) == ("north", {"server": "b/north.sock"})
    assert status(["serve-client", "--data", "x.csv"]) == BAD_INPUT
    assert "--ledger" in capsys.readouterr().err


def test_an_option_s_path_starts_where_the_command_is_typed(
    owner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with any command; a ledger named from there was begun anew inside the owner's folder."""
    from privfed.cli.serving import PATHS, owner_of

    monkeypatch.chdir(tmp_path)
    chosen = owner_of(owner, {key: f"there/{key}" for key in PATHS} | {"client": "west"})
    there = {key: chosen._path(str(getattr(chosen, key))) for key in PATHS - {"socket"}}
    there["socket"] = chosen._path(chosen.sockets["server"])
    assert there == {key: tmp_path / "there" / key for key in PATHS} and chosen.client == "west"
    assert owner_of(owner, {}).ledger == "north.db"


def test_records_that_bounds_do_not_fit_are_not_served_unasked(
    owner: Path, schema_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong bound is told by column, before there is a ledger; --yes tells it and goes on."""
    from privfed.cli.serving import _confirm

    wrong = schema_text.replace("upper = 100\n", "upper = 1\n", 1)
    assert wrong != schema_text
    (owner.parent / "schema.toml").write_text(wrong)
    assert status(["serve-client", str(owner)]) == BAD_INPUT
    told = capsys.readouterr().err
    assert "clip" in told and "'age'" in told and "nothing was charged" in told and "--yes" in told
    assert not (owner.parent / "north.db").exists()
    _confirm("north", True, ["the schema's bounds clip 1 cell"])
    assert "north: the schema's bounds clip 1 cell" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("encoding", "encoding = "),
        ("decimals", "write decimal = "),
        ("semicolons", "write sep = "),
    ],
)
def test_an_owner_is_told_how_to_read_her_own_table(
    written: str, told: str, owner: Path, small_table: pd.DataFrame
) -> None:
    """Where to write it too: an owner's file has no table [data]."""
    path = owner.parent / "north.csv"
    if written == "semicolons":
        small_table.to_csv(path, index=False, sep=";")
    elif written == "encoding":
        path.write_bytes(small_table.assign(note="ä").to_csv(index=False).encode("latin-1"))
    else:
        small_table.assign(age="30,5").to_csv(path, index=False)
    with pytest.raises(InputError, match=told) as caught:
        OwnerFile.from_toml(owner).checked()
    assert "at the top of an owner's file" in str(caught.value)


def test_all_faults_of_an_owners_table_are_told_by_row(
    owner: Path, small_table: pd.DataFrame
) -> None:
    """Of two columns at once, as in a study of one process."""
    cells = small_table.astype(object)
    cells.loc[3, "age"], cells.loc[5, "risk"] = "thirty", None
    cells.to_csv(owner.parent / "north.csv", index=False)
    with pytest.raises(SchemaError, match="2 faults") as caught:
        OwnerFile.from_toml(owner).checked()
    assert "(row 5)" in str(caught.value) and "(row 7)" in str(caught.value)
    assert "thirty" not in str(caught.value)
