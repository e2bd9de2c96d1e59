"""A data owner's durable secret, which seeds the records' coins: a file that the ledger commits to."""

import os
import secrets
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from privfed.errors import LedgerError, file_errors

SIZE = 32  #: Bytes of a secret
ENDING = ".secret"  #: Ending of its file


def beside(ledger: Path, ending: str) -> Path:
    """Return a file next to a ledger: ``clinic.secret`` for ``clinic.db``, ``a.sqlite.ledger.secret`` for ``a.sqlite``.

    A ledger with another ending than ``.db`` that an earlier version began keeps ``a.secret``.
    """
    earlier, default = ledger.with_suffix(ending), own_beside(ledger, ending)
    kept = earlier.with_suffix(ENDING).exists() and not own_beside(ledger, ENDING).exists()
    return earlier if kept and ledger.exists() else default


def own_beside(ledger: Path, ending: str) -> Path:
    """Return the file next to a ledger begun by this version, which no other ledger uses."""
    name = ledger.stem if ledger.suffix == ".db" else f"{ledger.name}.ledger"
    return ledger.with_name(f"{name}{ending}")


def give_to_owner(file: int | Path, folder: Path) -> None:
    """Give a new file to its folder's owner, if root makes it: a gate runs as a user of its own."""
    if os.geteuid() == 0:
        place = os.stat(folder)
        os.chown(file, place.st_uid, place.st_gid)


def secret_beside(ledger: Path, *, begun: bool = True) -> bytes:
    """Read a ledger's secret, or create it unless the ledger has ``begun`` (has a first row).

    Processes that start at once get the same secret. LedgerError: the file cannot be written, or is damaged.
    """
    with _kept(ledger) as path:
        path = path if begun else own_beside(ledger, ENDING)
        if not path.exists():
            _make(path)
    return read_secret(ledger)


def read_secret(ledger: Path) -> bytes:
    """Read a ledger's secret (LedgerError: it is lost or damaged, or others can read it)."""
    way_out = (
        "restore it from a copy, or, if there is none, let its owner make another, which is recorded: privfed "
        f"ledger renew-secret {shlex.quote(str(ledger))}"
    )
    with _kept(ledger) as path:
        if not path.exists():
            raise LedgerError(f"secret {path}: is lost; {way_out}")
        secret, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    if len(secret) != SIZE:
        raise LedgerError(f"secret {path}: is damaged; {way_out}")
    if mode & 0o077:
        raise LedgerError(
            f"secret {path}: others than its owner can read it; chmod 600 it, and if it lay open for long, make "
            f"another: privfed ledger renew-secret {shlex.quote(str(ledger))}"
        )
    return secret


def renewed_secret(ledger: Path) -> bytes:
    """Replace the secret, by the owner's decision, and return the new one."""
    with _kept(ledger) as path:
        path.unlink(missing_ok=True)
        _make(path)
    return read_secret(ledger)


def commitment(secret: bytes) -> str:
    """Return SHA-256 of a secret, for its ledger (32 random bytes cannot be recovered from it)."""
    return sha256(b"privfed secret\n" + secret).hexdigest()


@contextmanager
def _kept(ledger: Path) -> Iterator[Path]:
    with file_errors(f"secret {own_beside(ledger, ENDING)}", "kept", error=LedgerError):
        yield beside(ledger, ENDING)


def new_secret() -> bytes:
    """Return a new random secret."""
    return secrets.token_bytes(SIZE)


def _make(path: Path) -> None:
    """Write a new secret atomically, unless another process was first."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            give_to_owner(file.fileno(), path.parent)
            file.write(new_secret())
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
