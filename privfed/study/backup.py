"""Copies of a ledger against loss, and putting one back where that forks nothing."""

import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from privfed.errors import InputError, LedgerError
from privfed.exchange.messages import Head
from privfed.ledger import Ledger
from privfed.ledger.registry import KnownLedger, Registry
from privfed.ledger.secret import ENDING as SECRET
from privfed.ledger.secret import beside, own_beside
from privfed.ledger.sqlite_store import copy_database
from privfed.ledger.verified_file import verified
from privfed.owner import local_store, noise_monitor
from privfed.study.ledger_commands import check_ledger
from privfed.study.output import new_folder

#: Endings of the databases that lie beside a ledger.
BESIDE = (local_store.ENDING, noise_monitor.ENDING)
LOGS = ("-wal", "-shm", "-journal")  #: Endings of what SQLite keeps beside a database


def back_up(ledger: Path, folder: Path) -> Head:
    """Copy a ledger, which others may be writing, and what lies beside it into a new folder.

    Returns:
        the copy's head: put back, it goes on only as long as no later head is known.

    Raises:
        LedgerError: the ledger or its copy does not verify, or cannot be copied.
        InputError: the folder is in use, or there is no such ledger.
    """
    check_ledger(ledger)
    verified(ledger, Registry())
    with new_folder(folder, 0o700) as partial:
        _copy(ledger, partial / ledger.name)
        with closing(Ledger.read(partial / ledger.name)) as copy:
            return copy.verify()


def restore(folder: Path, ledger: Path, heads: Iterable[Head] = (), witness: str = "") -> Head:
    """Put a copy that :func:`back_up` made in a lost ledger's place.

    Args:
        heads: the last that others saw of it, where this machine remembers none.
        witness: see :class:`.Registry`.

    Raises:
        LedgerError: it would fork: a later head is known, or the ledger is still there; or no head is
            known at all; or the copy does not verify.
        InputError: the folder is no such copy, or something lies at the ledger's place.
    """
    source = _ledger_in(folder)
    databases = [ledger, *(own_beside(ledger, ending) for ending in BESIDE)]
    # Logs are of another file, but to SQLite its own.
    logs = (database.with_name(f"{database.name}{log}") for database in databases for log in LOGS)
    for file in (*databases, own_beside(ledger, SECRET), *logs):
        if file.exists():
            raise InputError(f"{file}: is there already; move it away first")
    registry = Registry(witness=witness)
    registry.check_witness()
    with closing(Ledger.read(source)) as copy:
        head = copy.verify(published := tuple(heads))
        known = registry.check(copy.identity, ledger, copy.passes)
        _check_place(registry, ledger, copy.identity)
        if not (known or published):
            raise LedgerError(
                f"{source}: no head of it is known here, so that nothing tells whether it was charged "
                "after the copy was made; give the last one that others saw: --head or --witness"
            )
        entry = KnownLedger(copy.identity, copy.dataset, ledger.resolve(), copy.head)
    partial = ledger.with_name(f".{ledger.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    _copy(source, partial / ledger.name)
    targets = [own_beside(ledger, ending) for ending in (SECRET, *BESIDE)]
    for target in (*targets, ledger):  # the ledger last: without it nothing is served
        if (copied := partial / target.name).exists():
            copied.rename(target)
    partial.rmdir()
    registry.keep(entry)
    return head


def _copy(ledger: Path, to: Path) -> None:
    """Copy a ledger into a new folder, and after it what lies beside it; the secret must be its own."""
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy_database(ledger, to)
    if (secret := beside(ledger, SECRET)).exists():
        shutil.copy2(secret, own_beside(to, SECRET))
    for ending in BESIDE:
        if (database := beside(ledger, ending)).exists():
            copy_database(database, own_beside(to, ending))
    with closing(Ledger.read(to)) as copy:
        copy.check_secret()


def _ledger_in(folder: Path) -> Path:
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    ledgers = [file for file in files if file.suffix not in (SECRET, *BESIDE)]
    if len(ledgers) != 1:
        raise InputError(
            f"{folder}: is no copy of a ledger; give a folder of privfed ledger backup"
        )
    return ledgers[0]


def _check_place(registry: Registry, ledger: Path, identity: str) -> None:
    known = registry.at(ledger)
    if known is not None and known.identity != identity:
        raise LedgerError(
            f"ledger {ledger}: another one was here (head {known.head}); restore that one's copy, or "
            "name another file"
        )
