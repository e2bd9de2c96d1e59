"""What a machine remembers of ledgers: deleted, copied, moved and replaced ones are noticed."""

from __future__ import annotations

import shutil
import stat
import threading
import warnings
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ledger_trials import charge, reply

from privfed.accountants.pure import PureEpsilon
from privfed.cli import BAD_INPUT, BREACH, FINE, status
from privfed.errors import InputError, LedgerError, Note
from privfed.exchange.messages import Head
from privfed.exchange.signing import Signer, read_key, read_public
from privfed.ledger import Ledger
from privfed.ledger.registry import KnownLedger, Registry
from privfed.ledger.verified_file import _warn_of_clock, verified


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """What is remembered, by this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Registry()


def lasting(path: Path, registry: Registry, charges: int = 3) -> Path:
    """A ledger that lasts, with some charges more."""
    path.parent.mkdir(exist_ok=True)
    with closing(Ledger(path, "clinic", registry=registry)) as ledger:
        first = sum(1 for _ in ledger.entries())
        for number in range(first, first + charges):
            ledger.reserve(charge(number), PureEpsilon(), lambda spent: None)
            ledger.release(charge(number), reply(charge(number)))
    return path


def test_a_ledger_that_grew_is_known_by_its_last_head(tmp_path: Path, registry: Registry) -> None:
    """By its identity, in a file of the user's own."""
    path = lasting(tmp_path / "a" / "clinic.db", registry)
    (known,) = registry.known()
    told = verified(path, registry)
    assert (known.head, known.path, known.dataset) == (told.head, path, "clinic")
    assert told.known == (told.head,)
    assert {stat.S_IMODE(one.stat().st_mode) for one in registry.folder.iterdir()} == {0o600}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("minutes", "told"), [(2, False), (600_000, True)])
def test_a_row_from_the_future_is_told_with_what_follows_from_it(
    minutes: int, told: bool, tmp_path: Path, registry: Registry
) -> None:
    """Its month has all later charges, because times never decrease: a limit of that month is not begun anew."""
    ahead = datetime.now(UTC) + timedelta(minutes=minutes)
    path = tmp_path / "clinic.db"
    Ledger(path, "clinic", clock=lambda: ahead).close()
    with closing(Ledger.read(path)) as ledger:
        behind = ledger.head
    lasting(path, registry, 2)  # as by a gate that goes on meanwhile
    with closing(Ledger.read(path)) as ledger, warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        _warn_of_clock(path, ledger, behind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Note)
        verified(path, registry)
    notes = [str(one.message) for one in caught if "clock" in str(one.message)]
    assert len(notes) == told
    assert all(f"{ahead:%Y-%m-%d %H:%M} UTC" in note for note in notes)
    with closing(Ledger(path, "clinic")) as ledger:
        ledger.reserve(charge(1), PureEpsilon(), lambda spent: None)
        (month,) = ledger.budget("month")[1:]
        assert month.name == f"{ahead:%Y-%m}"


def test_a_new_ledger_is_told_of_another_of_its_data_set(
    tmp_path: Path, registry: Registry
) -> None:
    """One line for all of them, whatever has become of the other file; of one that is gone, nothing."""
    names = {name: tmp_path / "new" / f"{name}.db" for name in ("clinic", "ward", "lab")}
    registry.warn_of_others(names)
    path = lasting(tmp_path / "a" / "clinic.db", registry)
    Ledger(path.with_name("ward.db"), "ward", registry=registry).close()
    path.write_bytes(b"damaged")
    with pytest.warns(Note) as told:
        registry.warn_of_others(names)
    assert len(told) == 1 and "(1 data set more like it)" in str(told[0].message)
    path.unlink()
    path.with_name("ward.db").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.warn_of_others(names)


def test_an_earlier_head_replaces_no_later_one(tmp_path: Path, registry: Registry) -> None:
    """Of two processes the one that was behind may come last, and the ledger may have moved."""
    for seq, place in ((2, "a"), (7, "a"), (5, "b")):
        head = Head(seq, f"{seq:064x}")
        registry.keep(KnownLedger("ab", "clinic", tmp_path / place, head))
    (known,) = registry.known()
    assert (known.head, known.path) == (Head(7, f"{7:064x}"), tmp_path / "b")


def test_a_deleted_ledger_is_not_begun_anew_unseen(tmp_path: Path, registry: Registry) -> None:
    """Only the user's own word, which names what is lost, lets another one take its place."""
    path = lasting(tmp_path / "a" / "clinic.db", registry)
    shutil.rmtree(path.parent)
    with pytest.raises(LedgerError, match="is gone, though it answered before"):
        lasting(path, registry)
    for missed in (path, path.parent):  # named by itself, and by its folder
        assert status(["ledger", "verify", str(missed)]) == BREACH
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    Ledger(path, "clinic").close()  # by somebody who does not remember
    with pytest.raises(LedgerError, match="another one was here"):
        lasting(path, registry)
    assert status(["ledger", "forget", str(path)]) == FINE
    assert status(["ledger", "forget", str(path)]) == BAD_INPUT
    lasting(path, registry)


def test_an_older_copy_is_refused(tmp_path: Path, registry: Registry) -> None:
    """A copy that is put back where it came from."""
    path = lasting(tmp_path / "a" / "clinic.db", registry)
    shutil.copytree(path.parent, tmp_path / "copy")
    lasting(path, registry)
    shutil.rmtree(path.parent)
    shutil.copytree(tmp_path / "copy", path.parent)
    with pytest.raises(LedgerError, match="restored from an older copy"):
        lasting(path, registry)
    assert status(["ledger", "budget", str(path)]) == BREACH


def test_a_copied_project_is_no_second_budget(
    tmp_path: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy is read as what it is and written never; once the first one is gone it was moved."""
    path = lasting(tmp_path / "a" / "clinic.db", registry)
    copy = shutil.copytree(path.parent, tmp_path / "b") / "clinic.db"
    with pytest.raises(LedgerError, match="is a copy of"):
        lasting(copy, registry)
    lasting(path, registry)
    assert status(["ledger", "verify", str(copy)]) == FINE
    assert f"a copy of {path}, which holds what is spent" in capsys.readouterr().out
    assert status(["ledger", "budget", str(copy)]) == FINE
    assert "is a copy of" in capsys.readouterr().err
    shutil.rmtree(copy.parent)
    shutil.move(path.parent, copy.parent)
    lasting(copy, registry)
    (known,) = registry.known()
    assert known.path == copy


def test_a_ledger_of_which_nothing_is_known_is_said_to_be_one(
    tmp_path: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sound chain alone proves no completeness, and verification says so."""
    path = lasting(tmp_path / "a" / "clinic.db", registry)
    shutil.rmtree(registry.folder)
    assert status(["ledger", "verify", str(path)]) == FINE
    assert "no head of it is known here" in capsys.readouterr().out
    lasting(path, registry)
    assert status(["ledger", "verify", str(path)]) == FINE
    assert "no head of it is known here" not in capsys.readouterr().out


def test_what_is_not_durable_is_not_remembered(tmp_path: Path, registry: Registry) -> None:
    """A transaction that was undone leaves no head that the ledger could never pass through."""
    path = tmp_path / "clinic.db"
    ledger = Ledger(path, "clinic", registry=registry)
    with pytest.raises(RuntimeError), ledger.together():
        ledger.note("begun study", {})
        raise RuntimeError
    ledger.close()
    lasting(path, registry)


def test_a_witness_sees_what_the_state_folder_lost(tmp_path: Path, registry: Registry) -> None:
    """A second file, to which lines are only ever added."""
    witness = tmp_path / "officer" / "heads.log"
    witness.parent.mkdir()
    seen = Registry(witness=str(witness))
    path = lasting(tmp_path / "a" / "clinic.db", seen)
    shutil.copytree(path.parent, tmp_path / "copy")
    lasting(path, seen)
    assert len(witness.read_text().splitlines()) == 2
    shutil.rmtree(registry.folder)
    shutil.rmtree(path.parent)
    shutil.copytree(tmp_path / "copy", path.parent)
    assert status(["ledger", "verify", str(path)]) == FINE  # nobody here knows better
    assert status(["ledger", "verify", str(path), "--witness", str(witness)]) == BREACH
    absent = str(
        witness.with_name("haeds.log")
    )  # says nothing, and must not pass for one that agrees
    assert status(["ledger", "verify", str(path), "--witness", absent]) == BAD_INPUT
    assert status(["ledger", "serve", str(path), "--witness", absent]) == BAD_INPUT
    with pytest.raises(LedgerError, match="older copy"):
        lasting(path, seen)


def test_a_witness_may_be_an_address(tmp_path: Path, registry: Registry) -> None:
    """It takes a line by POST, and answers GET with all of them."""
    lines: list[bytes] = []

    class Witness(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"".join(lines))

        def do_POST(self) -> None:
            lines.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("localhost", 0), Witness)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        seen = Registry(witness=f"http://localhost:{server.server_port}/")
        path = lasting(tmp_path / "clinic.db", seen)
        assert verified(path, seen).known[-1] == verified(path, registry).head
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(LedgerError, match="cannot be kept"):
        lasting(path, seen)


def test_a_state_folder_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is charged where nothing is remembered."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerError, match="XDG_STATE_HOME"):
        lasting(tmp_path / "a" / "clinic.db", Registry())


def test_a_lost_or_exchanged_secret_is_noticed(tmp_path: Path, registry: Registry) -> None:
    """The ledger commits to it; another one is the owner's recorded decision."""
    path = lasting(tmp_path / "clinic.db", registry)
    beside = path.with_suffix(".secret")
    first = beside.read_bytes()
    for lost in (lambda: beside.unlink(), lambda: beside.write_bytes(b"x" * 32)):
        lost()
        if beside.exists():
            beside.chmod(0o600)
        ledger = Ledger(path, "clinic", registry=registry)
        with pytest.raises(LedgerError, match=r"is lost|another ledger"):
            ledger.secret()
        ledger.close()
    assert status(["ledger", "renew-secret", str(path)]) == FINE
    with closing(Ledger(path, "clinic", registry=registry)) as ledger:
        assert ledger.secret() == beside.read_bytes() != first
        assert [entry.event for entry in ledger.entries()].count("secret") == 1
        ledger.verify()
        assert first.hex() not in str([entry.body for entry in ledger.entries()])


def test_a_key_is_made_checked_and_replaced(
    tmp_path: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ledger names each key, and who vouched for the next one."""
    for name in ("a", "b", "c"):
        assert status(["key", "new", str(tmp_path / f"{name}.key")]) == FINE
    a, b, c = (tmp_path / f"{name}.key" for name in ("a", "b", "c"))
    path = str(tmp_path / "clinic.db")
    Ledger(path, "clinic", key=read_key(a), registry=registry).close()
    check = ["key", "check", path]
    assert status([*check, str(a), str(tmp_path / "a.key.pub")]) == FINE
    assert status([*check, str(b)]) == BREACH
    assert status(["key", "rotate", path, str(b), "--old", str(c)]) == BAD_INPUT
    assert status(["key", "rotate", path, str(b), "--old", str(a)]) == FINE
    assert status(["key", "rotate", path, str(c), "--lost"]) == FINE
    assert status([*check, str(c)]) == FINE
    told = capsys.readouterr().out
    assert "replaces another, signed by the one before" in told and "NOT signed by it" in told
    with pytest.raises(LedgerError, match="signed by another key"):
        Ledger(path, "clinic", key=read_key(a))
    with closing(Ledger.read(path)) as ledger:
        ledger.verify()
        assert ledger.public == read_public(tmp_path / "c.key.pub")
    for public, expected in (("a.key.pub", FINE), ("b.key.pub", FINE), ("stranger", BREACH)):
        (tmp_path / "stranger").write_bytes(Signer(b"s" * 32, "").public)
        assert (
            status(["ledger", "verify", path, "--public-key", str(tmp_path / public)]) == expected
        )
        marked = capsys.readouterr().out.count("at row 4 a key was replaced without its signature")
        assert marked == (expected == FINE)
    (tmp_path / "policy.toml").write_text('name = "no key"\n')
    command = ["ledger", "verify", path, "--public-key", str(tmp_path / "policy.toml")]
    assert status(command) == BAD_INPUT


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Of the group or of everybody."""
    assert status(["key", "new", str(tmp_path / "a.key")]) == FINE
    for mode in (0o640, 0o604):
        (tmp_path / "a.key").chmod(mode)
        with pytest.raises(InputError, match="others than its owner"):
            read_key(tmp_path / "a.key")


def test_a_forged_rotation_does_not_verify(tmp_path: Path) -> None:
    """A key whose row bears a signature that is not the earlier key's."""
    path = tmp_path / "clinic.db"
    with closing(Ledger(path, "clinic", key=b"k" * 32)) as ledger:
        ledger._signer = Signer(b"x" * 32, "clinic")
        ledger.rotate(b"n" * 32)
        with pytest.raises(LedgerError, match="whose signature is not under it"):
            ledger.verify()


def test_a_lost_secret_is_told_where_a_ledger_is_verified(
    tmp_path: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    """At its own place; whoever verifies a copy elsewhere has no secret to look for."""
    path = lasting(tmp_path / "a" / "clinic.db", registry)
    copy = shutil.copy(path, tmp_path / "elsewhere.db")
    path.with_suffix(".secret").write_bytes(bytes(32))
    assert status(["ledger", "verify", str(path)]) == FINE
    assert "no gate opens it" in capsys.readouterr().out
    path.with_suffix(".secret").unlink()
    assert status(["ledger", "verify", str(path)]) == FINE
    assert "is lost" in capsys.readouterr().out
    assert status(["ledger", "verify", str(copy)]) == FINE
    assert "no gate" not in capsys.readouterr().out
