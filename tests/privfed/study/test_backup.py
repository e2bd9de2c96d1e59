"""Copies of a ledger that is in use, and putting one back: never where it would fork."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from ledger_trials import charge, reply

from privfed.accountants.pure import PureEpsilon
from privfed.cli import BAD_INPUT, FINE, status
from privfed.errors import InputError, LedgerError
from privfed.exchange.messages import Head
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry
from privfed.ledger.secret import renewed_secret
from privfed.ledger.verified_file import verified
from privfed.owner.local_store import LocalStore
from privfed.study.backup import back_up, restore


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered, by each test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def charged(path: Path, times: int = 3) -> None:
    """Charge a ledger that lasts so many times more."""
    path.parent.mkdir(exist_ok=True)
    with closing(Ledger(path, "clinic", registry=Registry())) as ledger:
        first = sum(1 for _ in ledger.entries())
        for number in range(first, first + times):
            ledger.reserve(charge(number), PureEpsilon(), lambda spent: None)
            ledger.release(charge(number), reply(charge(number)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with three charges, and something on the shelf beside it."""
    file = tmp_path / "owner" / "clinic.db"
    charged(file)
    with closing(LocalStore.beside(file, "clinic")) as shelf:
        shelf["tree"] = [1, 2]
    return file


def test_a_lost_ledger_comes_back_whole(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows, secret and shelf, for its owner alone; it goes on where it was."""
    copy = tmp_path / "copy"
    assert status(["ledger", "backup", str(path), str(copy)]) == FINE
    with closing(Ledger.read(path)) as ledger:
        head = ledger.head
    assert f"at head {head}" in capsys.readouterr().out
    assert {stat.S_IMODE(one.stat().st_mode) for one in (copy, *copy.iterdir())} == {0o700, 0o600}
    assert status(["ledger", "backup", str(path), str(copy)]) == BAD_INPUT
    secret = path.with_suffix(".secret").read_bytes()
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    assert status(["ledger", "restore", str(copy), str(path)]) == FINE
    assert path.with_suffix(".secret").read_bytes() == secret
    with closing(LocalStore.beside(path, "clinic")) as shelf:
        assert list(shelf["tree"]) == [1, 2]
    charged(path)
    assert head in verified(path, Registry(), [head]).known
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "clinic.db",
        "clinic.secret",
        "clinic.shelf",
    ]


def test_a_copy_of_the_file_alone_comes_back_with_an_earlier_backup_s_secret(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest rows may be with the server, which never has the secret; another's is refused."""
    back_up(path, tmp_path / "monday")
    charged(path)
    back_up(path, tmp_path / "tuesday")
    given, secret = tmp_path / "given" / "north.db", path.with_suffix(".secret")
    given.parent.mkdir()
    shutil.copy(tmp_path / "tuesday" / path.name, given)
    kept = secret.read_bytes()
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    with given.with_suffix(".secret").open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(bytes(len(kept)))
    assert status(["ledger", "restore", str(given), str(path)]) == BAD_INPUT
    assert "belongs to another ledger" in capsys.readouterr().err
    assert not list(path.parent.iterdir())
    given.with_suffix(".secret").unlink()
    assert status(["ledger", "restore", str(given), str(path)]) == FINE
    assert f"{secret}: is missing; copy it there from an earlier" in capsys.readouterr().out
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with pytest.raises(LedgerError, match="is lost"):
        back_up(path, tmp_path / "wednesday")
    shutil.copy2(tmp_path / "monday" / secret.name, secret)
    with closing(Ledger(path, "clinic", registry=Registry())) as ledger:
        assert ledger.secret() == kept
    back_up(path, tmp_path / "wednesday")


def test_a_copy_that_was_charged_since_is_not_put_back(path: Path, tmp_path: Path) -> None:
    """The head that this machine remembers, a witness's, and one that the asking side saw."""
    copy = tmp_path / "copy"
    back_up(path, copy)
    charged(path, 1)
    (known,) = Registry().known()
    line = f"{known.identity} {known.head} clinic\n"
    (tmp_path / "witness").write_text(line)
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    with pytest.raises(LedgerError, match="does not pass through"):
        restore(copy, path)
    shutil.rmtree(tmp_path / "state")  # another machine, which remembers nothing
    with pytest.raises(LedgerError, match="no head of it is known here"):
        restore(copy, path)
    with pytest.raises(LedgerError, match="does not pass through"):
        restore(copy, path, witness=str(tmp_path / "witness"))
    with pytest.raises(LedgerError, match="head"):
        restore(copy, path, [known.head])
    assert not list(path.parent.iterdir())


def test_a_ledger_that_is_there_is_never_forked(path: Path, tmp_path: Path) -> None:
    """Neither over it, nor beside it, nor over another one that is lost."""
    copy, other = tmp_path / "copy", tmp_path / "other" / "clinic.db"
    head = back_up(path, copy)
    with pytest.raises(InputError, match="is there already"):
        restore(copy, path, [head])
    with pytest.raises(LedgerError, match="one budget cannot be spent in two places"):
        restore(copy, path.with_name("second.db"), [head])
    charged(other)
    other.unlink()
    with pytest.raises(InputError, match=r"clinic\.secret: is there already"):
        restore(copy, other, [head])
    shutil.rmtree(path.parent)
    other.with_suffix(".secret").unlink()
    with pytest.raises(LedgerError, match="another one was here"):
        restore(copy, other, [head])


@pytest.mark.parametrize("left", ["clinic.db-wal", "clinic.shelf-wal", "clinic.db-journal"])
def test_what_a_killed_gate_left_beside_a_lost_ledger_is_not_read_into_its_copy(
    path: Path, tmp_path: Path, left: str
) -> None:
    """SQLite takes a log of that name for the copy's own, and writes its pages into it."""
    head = back_up(path, tmp_path / "copy")
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    path.with_name(left).touch()
    with pytest.raises(InputError, match=f"{left}: is there already"):
        restore(tmp_path / "copy", path, [head])


def test_a_backup_is_of_one_moment_of_a_ledger_in_use(path: Path, tmp_path: Path) -> None:
    """Each copy made while another thread writes verifies to the last of its rows."""
    done = threading.Event()

    def write() -> None:
        charged(path, 40)
        done.set()

    writer = threading.Thread(target=write)
    heads: list[Head] = []
    writer.start()
    while not done.is_set() or not heads:
        heads.append(back_up(path, tmp_path / f"copy-{len(heads)}"))
    writer.join()
    verified(path, Registry(), heads)
    assert [head.seq for head in heads] == sorted(head.seq for head in heads)


def test_a_file_copied_under_a_running_gate_names_the_command_that_copies(tmp_path: Path) -> None:
    """What was not yet written into the file itself is missing from the copy; a backup has it."""
    path, taken = tmp_path / "new.db", tmp_path / "taken.db"
    with closing(Ledger(path, "clinic")):
        shutil.copy(path, taken)
        with pytest.raises(
            LedgerError, match="copied while its gate ran; copy it by privfed ledger"
        ):
            Ledger.read(taken)
        back_up(path, tmp_path / "copy")


def test_another_one_s_secret_is_not_copied(path: Path, tmp_path: Path) -> None:
    """A copy is refused that could not answer as its original does; nothing else is a ledger."""
    (tmp_path / "copy").mkdir()
    with pytest.raises(InputError, match="is not a copy of a ledger"):
        restore(tmp_path / "copy", path)
    renewed_secret(path)
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        back_up(path, tmp_path / "copy")
    assert not list((tmp_path / "copy").iterdir())


def test_what_root_writes_belongs_to_the_owner_of_its_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate runs as a user of its own, who could neither open a ledger that root put back nor read its heads."""
    copy = tmp_path / "copy"
    back_up(path, copy)
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    given: dict[int, set[tuple[int, int]]] = {}

    def chown(file: int | Path, user: int, group: int) -> None:
        given.setdefault(os.stat(file).st_ino, set()).add((user, group))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", chown)
    restore(copy, path)
    charged(path)
    with closing(Ledger(path, "clinic", registry=Registry())) as ledger:
        ledger.renew_secret()
    Ledger(path.with_name("new.db"), "new", registry=Registry()).close()
    files = [*path.parent.iterdir(), *(tmp_path / "state" / "privfed" / "ledgers").iterdir()]
    assert {one.suffix for one in files} == {".db", ".secret", ".shelf", ".json", ""}
    for one in files:
        owner = one.parent.stat()
        assert given.get(one.stat().st_ino) == {(owner.st_uid, owner.st_gid)}, one
