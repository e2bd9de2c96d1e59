"""An owner's secret lasts as long as its ledger, and nobody else reads it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from privfed.errors import LedgerError
from privfed.ledger import Ledger
from privfed.ledger.secret import SIZE, own_beside, renewed_secret, secret_beside
from privfed.owner.local_store import LocalStore
from privfed.study.backup import back_up, restore


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    """It is found again by its ledger's name, another ledger has another, and no other file stays."""
    first = secret_beside(tmp_path / "St. Mary.db")
    assert len(first) == SIZE
    assert secret_beside(tmp_path / "St. Mary.db") == first
    assert secret_beside(tmp_path / "St. Paul.db") != first
    assert {path.name for path in tmp_path.iterdir()} == {"St. Mary.secret", "St. Paul.secret"}


NAMES = (
    "clinic.db",
    "clinic.sqlite",
    "clinic",
    "clinic.2024",
    "clinic.2024.db",
    "clinic.sqlite.db",
)


def _opened(path: Path) -> tuple[bytes, dict[str, int]]:
    """A ledger's secret, and what failed by the shelf beside it; the name of its data set is its file's."""
    with (
        closing(Ledger(path, path.name)) as ledger,
        closing(LocalStore.beside(path, path.name)) as shelf,
    ):
        return ledger.secret(), shelf.faults


def _fails(path: Path) -> None:
    with closing(LocalStore.beside(path, path.name)) as shelf:
        shelf.add_fault(path.name)


def test_ledgers_that_are_called_alike_share_nothing(tmp_path: Path) -> None:
    """Those of one stem shared secret, shelf and sums of noise, as if they were one."""
    paths = [tmp_path / name for name in NAMES]
    first = [_opened(path) for path in paths]
    assert len({secret for secret, _ in first}) == len(NAMES) and not any(f for _, f in first)
    for path in paths:
        _fails(path)
    assert [_opened(p) for p in paths] == [
        (secret, {path.name: 1}) for path, (secret, _) in zip(paths, first, strict=True)
    ]
    assert len(list(tmp_path.iterdir())) == 3 * len(NAMES)


def test_what_an_earlier_version_kept_beside_a_ledger_is_found(tmp_path: Path) -> None:
    """It called them ``clinic.secret`` and ``clinic.shelf``, which a ledger begun now does not take for its own."""
    path, other = tmp_path / "clinic.sqlite", tmp_path / "clinic.sqlite3"
    kept, _ = _opened(path)
    _fails(path)
    for ending in (".secret", ".shelf"):
        own_beside(path, ending).rename(path.with_suffix(ending))
    secret, faults = _opened(other)
    assert secret != kept and not faults
    assert _opened(path) == (kept, {path.name: 1})
    head = back_up(path, tmp_path / "copy")
    path.unlink()
    assert restore(tmp_path / "copy", path, [head]) == head
    assert _opened(path) == (kept, {path.name: 1})
    assert own_beside(path, ".secret").exists()


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    """Readable and writable by the owner's account alone."""
    secret_beside(tmp_path / "clinic.db")
    assert stat.S_IMODE((tmp_path / "clinic.secret").stat().st_mode) == 0o600


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """As a signing key is; the owner takes their right away, or makes another."""
    first = secret_beside(tmp_path / "clinic.db")
    (tmp_path / "clinic.secret").chmod(0o640)
    with pytest.raises(LedgerError, match="others than its owner can read it; chmod 600 it"):
        secret_beside(tmp_path / "clinic.db")
    (tmp_path / "clinic.secret").chmod(0o600)
    assert secret_beside(tmp_path / "clinic.db") == first
    (tmp_path / "clinic.secret").chmod(0o644)
    assert renewed_secret(tmp_path / "clinic.db") != first


def test_in_memory_it_passes() -> None:
    """Without a ledger's file, each one is new, and lasts as long as the ledger."""
    first = Ledger()
    assert first.secret() == first.secret() != Ledger().secret()


def test_whoever_begins_at_the_same_time_gets_the_same(tmp_path: Path) -> None:
    """Twenty at once agree."""
    with ThreadPoolExecutor(20) as together:
        found = set(together.map(secret_beside, [tmp_path / "clinic.db"] * 20))
    assert len(found) == 1


def test_a_damaged_secret_is_told(tmp_path: Path) -> None:
    """Cut short, it is refused, and the message says what to do and nothing of its bytes."""
    (tmp_path / "clinic.secret").write_bytes(b"half a secret")
    with pytest.raises(LedgerError, match="restore it") as told:
        secret_beside(tmp_path / "clinic.db")
    assert "half" not in str(told.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The typed error of a ledger that cannot be kept."""
    with pytest.raises(LedgerError, match="cannot be kept"):
        secret_beside(tmp_path / "nowhere" / "clinic.db")
