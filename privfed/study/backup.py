"""Backups of a ledger, and their restoration unless that would fork its chain."""

import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from privfed.errors import InputError, LedgerError
from privfed.exchange.messages import Head
from privfed.ledger import Ledger
from privfed.ledger.registry import KnownLedger, Registry
from privfed.ledger.secret import ENDING as SECRET
from privfed.ledger.secret import beside, give_to_owner, own_beside
from privfed.ledger.sqlite_store import copy_database
from privfed.ledger.verified_file import verified
from privfed.owner import local_store, noise_monitor
from privfed.study.ledger_commands import check_ledger
from privfed.study.output import new_folder

#: Endings of the other databases in a ledger's folder.
BESIDE = (local_store.ENDING, noise_monitor.ENDING)
LOGS = ("-wal", "-shm", "-journal")  #: Endings of SQLite's own files of a database


def back_up(ledger: Path, folder: Path) -> Head:
    """Copy a ledger that may be in use, with its secret and databases, into a new folder.

    Returns:
        the copy's head; the copy can be restored only as long as no later head is known.

    Raises:
        LedgerError: the ledger or its copy does not verify, or cannot be copied.
        InputError: the folder is in use, or there is no such ledger.
    """
    check_ledger(ledger)
    verified(ledger, Registry())
    with closing(Ledger.read(ledger)) as original:
        original.check_secret()
    with new_folder(folder, 0o700) as partial:
        _copy(ledger, partial / ledger.name)
        with closing(Ledger.read(partial / ledger.name)) as copy:
            return copy.verify()


def restore(copy: Path, ledger: Path, heads: Iterable[Head] = (), witness: str = "") -> Head:
    """Restore a lost ledger from a folder that :func:`back_up` wrote, or from a copy of the file alone.

    Args:
        heads: the last ones that others saw, if this machine knows none.
        witness: see :class:`.Registry`.

    Raises:
        LedgerError: the chain would fork: a later head is known, or the ledger still exists; or no
            head is known; or the copy does not verify.
        InputError: there is no such copy, or one of the ledger's files exists.
    """
    source = copy if copy.is_file() else _ledger_in(copy)
    databases = [ledger, *(own_beside(ledger, ending) for ending in BESIDE)]
    # SQLite would take a lost database's logs for the copy's.
    logs = (database.with_name(f"{database.name}{log}") for database in databases for log in LOGS)
    for file in (*databases, own_beside(ledger, SECRET), *logs):
        if file.exists():
            raise InputError(f"{file}: is there already; move it away first")
    registry = Registry(witness=witness)
    registry.check_witness()
    with closing(Ledger.read(source)) as book:
        head = book.verify(published := tuple(heads))
        known = registry.check(book.identity, ledger, book.passes)
        _check_place(registry, ledger, book.identity)
        if not (known or published):
            raise LedgerError(
                f"{source}: no head of it is known here, so whether it was charged after the copy was made is "
                "not known; give the last head that others saw: --head or --witness"
            )
        entry = KnownLedger(book.identity, book.dataset, ledger.resolve(), book.head)
    partial = ledger.with_name(f".{ledger.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _copy(source, partial / ledger.name)
        targets = [own_beside(ledger, ending) for ending in (SECRET, *BESIDE)]
        for target in (*targets, ledger):  # the ledger last: without it nothing is served
            if (copied := partial / target.name).exists():
                give_to_owner(copied, ledger.absolute().parent)
                copied.rename(target)
    finally:
        shutil.rmtree(partial)
    registry.keep(entry)
    return head


def _copy(ledger: Path, to: Path) -> None:
    """Copy a ledger into a new folder, then its databases; a secret must be the ledger's own."""
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy_database(ledger, to)
    for ending in BESIDE:
        if (database := beside(ledger, ending)).exists():
            copy_database(database, own_beside(to, ending))
    if (secret := beside(ledger, SECRET)).exists():
        shutil.copy2(secret, own_beside(to, SECRET))
        with closing(Ledger.read(to)) as copy:
            copy.check_secret()


def _ledger_in(folder: Path) -> Path:
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    ledgers = [file for file in files if file.suffix not in (SECRET, *BESIDE)]
    if len(ledgers) != 1:
        raise InputError(
            f"{folder}: is not a copy of a ledger; give a folder of privfed ledger backup, or a copy of its file"
        )
    return ledgers[0]


def _check_place(registry: Registry, ledger: Path, identity: str) -> None:
    known = registry.at(ledger)
    if known is not None and known.identity != identity:
        raise LedgerError(
            f"ledger {ledger}: another one was here (head {known.head}); restore that one's copy, or "
            "name another file"
        )
