"""Crashes, crowds and bad disks: small editions of the trials that the benchmark runs in full."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sqlite3
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ledger_trials import QUERY, SPEND, crowd, killed, small_gate

from privfed.accountants.pure import PureEpsilon
from privfed.errors import LedgerError
from privfed.exchange.messages import Reason, Refusal, Release, Request
from privfed.ledger import Ledger
from privfed.testing.queries import Histogram


def test_a_gate_that_is_killed_forgets_nothing(tmp_path: Path) -> None:
    """After SIGKILL at random moments all that left is paid for, and said again alike."""
    lives = killed(tmp_path / "ledger.db", kills=30, seed=7)
    assert lives.kills == 30
    assert len(lives.released) > 5, "the trial must have released something between the kills"
    assert (lives.changed, lives.short, lives.interrupted) == (0, 0, 0)


def test_a_crowd_never_exceeds_the_budget(tmp_path: Path) -> None:
    """Four processes of eight threads each: exactly what fits is released, the rest refused."""
    path = tmp_path / "ledger.db"
    counts = crowd(path, processes=4, threads=8, each=4, budget="5")
    ledger = Ledger(path, "d")
    assert counts == {"release": 50, "budget": 4 * 8 * 4 - 50}
    assert ledger.spent(PureEpsilon()).total[0] == 5
    ledger.verify()


def test_one_id_asked_at_once_by_many_gets_one_answer(tmp_path: Path) -> None:
    """Two gates on one ledger: the same request is charged once."""
    gates = [small_gate(Ledger(tmp_path / "ledger.db", "d")) for _ in range(4)]
    replies: list[bytes] = []

    def ask(gate: Any) -> None:
        envelope = gate.answer(Request.of("same", QUERY))
        if envelope.status == "release":
            replies.append(envelope.body)

    threads = [threading.Thread(target=ask, args=(gate,)) for gate in gates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(replies)) == 1
    assert gates[0].ledger.spent(PureEpsilon()).total[0] == SPEND


def _in_child(work: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_full_disk_refuses_before_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the charge cannot be written, nothing is evaluated; afterwards the gate goes on."""
    path = tmp_path / "ledger.db"
    evaluated = []
    genuine = Histogram.evaluate
    monkeypatch.setattr(
        Histogram, "evaluate", lambda self, view: evaluated.append(1) or genuine(self, view)
    )

    def work() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        gate = small_gate(Ledger(path, "d"))
        number = 0
        limit = os.path.getsize(f"{path}-wal") + 20_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        while number < 200:
            before = len(evaluated)
            reply = gate.answer(Request.of(f"r{number}", QUERY)).open()
            if isinstance(reply, Refusal):
                # either the charge failed (nothing read), or its bytes did (read, and not sent)
                return 0 if reply.reason == Reason.LEDGER and len(evaluated) - before <= 1 else 1
            number += 1
        return 2

    assert _in_child(work) == 0
    ledger = Ledger(path, "d")
    ledger.verify()
    gate = small_gate(ledger)
    assert isinstance(gate.answer(Request.of("later", QUERY)).open(), Release)


def test_a_failing_reserve_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk while reserving is a typed refusal, and evaluate is not called."""
    gate = small_gate(Ledger(tmp_path / "ledger.db", "d"))
    gate.ledger._store._db.execute("PRAGMA query_only = ON")  # type: ignore[attr-defined]

    def never(self: Histogram, view: Any) -> Any:
        raise AssertionError("data were read")

    monkeypatch.setattr(Histogram, "evaluate", never)
    reply = gate.answer(Request.of("r", QUERY)).open()
    assert isinstance(reply, Refusal) and reply.reason == Reason.LEDGER


def test_a_read_only_disk_is_a_typed_error(tmp_path: Path) -> None:
    """An unprivileged process cannot open a ledger that it cannot write."""
    path = tmp_path / "ledger.db"
    Ledger(path, "d").close()
    path.chmod(0o444)
    tmp_path.chmod(0o555)

    def work() -> int:
        if os.getuid() == 0:
            os.setuid(65534)
        try:
            Ledger(path, "d")
        except LedgerError as error:
            return 0 if "can be written" in str(error) else 1
        return 2

    try:
        for folder in tmp_path.parents:
            if folder.stat().st_uid == os.getuid() and folder != Path("/"):
                _opened(folder)
        assert _in_child(work) == 0
    finally:
        tmp_path.chmod(0o755)


def _opened(folder: Path) -> None:
    """Let others pass through pytest's own folders."""
    if "pytest" in folder.name:
        folder.chmod(folder.stat().st_mode | 0o011)


def test_a_charge_without_bytes_is_answered_by_the_next_process(tmp_path: Path) -> None:
    """A crash between charge and reply leaves the charge spent, for the same request alone."""
    path = tmp_path / "ledger.db"
    gate = small_gate(Ledger(path, "d"))
    gate._evaluate = lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        gate.answer(Request.of("r", QUERY))
    gate.ledger.close()
    again = small_gate(Ledger(path, "d"))
    assert isinstance(again.answer(Request.of("r", QUERY)).open(), Release)
    assert again.ledger.spent(PureEpsilon()).total[0] == Fraction(1, 10)
    assert isinstance(again.answer(Request.of("new", QUERY)).open(), Release)


def test_the_trial_would_notice_a_forgotten_charge(tmp_path: Path) -> None:
    """Power twin: a ledger whose charges were taken back is short, or does not verify."""
    path = tmp_path / "ledger.db"
    lives = killed(path, kills=5, seed=3)
    while not lives.released:
        lives = killed(path, kills=5, seed=4)
    db = sqlite3.connect(path)
    db.execute("UPDATE state SET value = CAST('[\"0\",\"0\",0,0]' AS BLOB) WHERE name = 'total:[]'")
    db.commit()
    db.close()
    with pytest.raises(LedgerError):
        killed(path, kills=1, seed=5)


def test_processes_are_real() -> None:
    """The trials need forks; where there are none they would test nothing."""
    assert "fork" in multiprocessing.get_all_start_methods()
