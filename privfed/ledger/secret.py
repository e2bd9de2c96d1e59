"""A data owner's durable secret, from which its records' coins come: a file that the ledger commits to."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from privfed.errors import LedgerError, file_errors

SIZE = 32  #: Bytes of a secret
ENDING = ".secret"  #: Ending of its file


def beside(ledger: Path, ending: str) -> Path:
    """The file that belongs to a ledger's: ``clinic.secret`` to ``clinic.db``, ``a.sqlite.ledger.secret`` to ``a.sqlite``.

    A ledger of another ending than ``.db`` that an earlier version began has what it had then: ``a.secret``.
    """
    earlier, own = ledger.with_suffix(ending), own_beside(ledger, ending)
    kept = earlier.with_suffix(ENDING).exists() and not own_beside(ledger, ENDING).exists()
    return earlier if kept and ledger.exists() else own


def own_beside(ledger: Path, ending: str) -> Path:
    """The file that belongs to a ledger begun by this version, and to no other one's."""
    name = ledger.stem if ledger.suffix == ".db" else f"{ledger.name}.ledger"
    return ledger.with_name(f"{name}{ending}")


def secret_beside(ledger: Path, *, begun: bool = True) -> bytes:
    """Read or make the secret beside a ledger's file, which is ``begun`` already, or has no first row yet.

    Processes that start at once get the same one. LedgerError: the file cannot be kept, or is damaged.
    """
    with _kept(ledger) as path:
        path = path if begun else own_beside(ledger, ENDING)
        if not path.exists():
            _make(path)
    return read_secret(ledger)


def read_secret(ledger: Path) -> bytes:
    """Read the secret beside a ledger's file; LedgerError: it is lost or damaged, or others can read it."""
    way_out = (
        "put it back from a copy, or, if there is none, let its owner make another, which is "
        f"recorded: privfed ledger renew-secret {ledger}"
    )
    with _kept(ledger) as path:
        if not path.exists():
            raise LedgerError(f"secret {path}: is lost; {way_out}")
        held, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    if len(held) != SIZE:
        raise LedgerError(f"secret {path}: is damaged; {way_out}")
    if mode & 0o077:
        raise LedgerError(
            f"secret {path}: others than its owner can read it; chmod 600 it, and if it lay open for long, make "
            f"another: privfed ledger renew-secret {ledger}"
        )
    return held


def renewed_secret(ledger: Path) -> bytes:
    """Make another secret in the old one's place, by the owner's decision."""
    with _kept(ledger) as path:
        path.unlink(missing_ok=True)
        _make(path)
    return read_secret(ledger)


def commitment(secret: bytes) -> str:
    """SHA-256 of a secret: what its ledger says of it (32 random bytes cannot be guessed from it)."""
    return sha256(b"privfed secret\n" + secret).hexdigest()


@contextmanager
def _kept(ledger: Path) -> Iterator[Path]:
    with file_errors(f"secret {own_beside(ledger, ENDING)}", "kept", error=LedgerError):
        yield beside(ledger, ENDING)


def new_secret() -> bytes:
    """A secret that is kept nowhere else."""
    return secrets.token_bytes(SIZE)


def _make(path: Path) -> None:
    """Write a new secret under its name in one step, unless another process was first."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
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
