"""The stores' kit: ours passes it, planted faults do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from privfed.accountants.pure import PureEpsilon
from privfed.ledger import Charge, Ledger
from privfed.ledger.sqlite_store import SqliteStore
from privfed.ledger.store import Row, link
from privfed.privacy.loss import Loss
from privfed.testing.check_store import CHECKS, check_store


def test_ours_conforms(tmp_path: Path) -> None:
    """The SQLite store passes all nine checks."""
    assert len(check_store(SqliteStore, tmp_path)) == len(CHECKS) == 9


class Lazy(SqliteStore):
    """A planted fault: what is committed becomes durable some transactions later."""

    def begin(self) -> None:
        """Go on in the transaction that is open."""
        if not self._db.in_transaction:
            super().begin()

    def commit(self, state: Mapping[str, bytes]) -> None:
        """Keep it open but for every fifth row."""
        self._db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())
        if self._last.seq % 5 == 0:
            self._db.execute("COMMIT")


class Stale(SqliteStore):
    """A planted fault: what other processes have put is not looked at again."""

    def _catch_up(self) -> None:
        state = dict(self._state)
        super()._catch_up()
        self._state = state | self._state


class Believing(SqliteStore):
    """A planted fault: it computes the hashes that it should have kept."""

    def select(self, **which: Any) -> Iterator[tuple[Any, ...]]:
        """Rows that fit whatever they hold."""
        rows = list(super().select(**which))
        whole = rows if len(rows) == rows[-1][0] else list(super().select())
        previous, hashes = "0" * 64, {}
        for row in whole:
            previous = hashes[row[0]] = link(previous, row[:7])
        return ((*row[:7], hashes[row[0]]) for row in rows)

    def check_last(self) -> None:
        """Look at nothing."""


class Twofold(SqliteStore):
    """A planted fault: a second charge of one request takes the first one's place."""

    def insert(self, row: Row, digest: str) -> None:
        """Remove what would be in its way."""
        self._db.execute("DELETE FROM entries WHERE request = ? AND request != ''", (row[4],))
        super().insert(row, digest)


class Halved(SqliteStore):
    """A planted fault: undoing a transaction keeps it."""

    def rollback(self) -> None:
        """Commit instead."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (Lazy, "killed_processes_lose_nothing"),
        (Stale, "reserving_is_exclusive"),
        (Believing, "tampering_is_told"),
        (Twofold, "nothing_is_charged_twice"),
        (Halved, "all_or_nothing"),
    ],
)
def test_faults_are_found(tmp_path: Path, fault: type[SqliteStore], check: str) -> None:
    """Each planted fault fails the check that is meant for it."""
    others = {one.__name__.removeprefix("check_"): "not this fault's" for one in CHECKS}
    del others[check]
    with pytest.raises(AssertionError, match=check):
        check_store(fault, tmp_path, skip=others)


def test_a_ledger_stands_on_any_store(tmp_path: Path) -> None:
    """A store is given in a path's place."""
    ledger = Ledger(SqliteStore(tmp_path / "l.db"), "d")
    one = Charge("server", "r", "k", "0" * 64, Loss.pure("0.1"))
    assert ledger.reserve(one, PureEpsilon(), lambda spent: None).refused is None
    ledger.verify()
    ledger.close()
    assert Ledger(tmp_path / "l.db", "d").spent(PureEpsilon()).times == {"k": 1}
