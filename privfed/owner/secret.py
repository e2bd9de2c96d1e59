"""A data owner's durable secret, from which the coins of its records come: a file beside the ledger.

With it a query asked again after a restart meets the same coins. It never leaves the owner.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from privfed.errors import LedgerError

#: Bytes of a secret.
SIZE = 32


def secret_beside(ledger: Path | None) -> bytes:
    """Read or make the secret beside a ledger's file: ``clinic.secret`` beside ``clinic.db``.

    Processes that start at once get the same one. In memory it lasts as long as the process.

    Raises:
        LedgerError: the file cannot be read or written, or is damaged.
    """
    if ledger is None:
        return new_secret()
    path = ledger.with_suffix(".secret")
    try:
        if not path.exists():
            _make(path)
        held = path.read_bytes()
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise LedgerError(f"secret {path}: cannot be kept ({why})") from None
    if len(held) != SIZE:
        raise LedgerError(
            f"secret {path}: is damaged; put it back from a copy (without one, remove it: the "
            "owner's records then get new coins)"
        )
    return held


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
