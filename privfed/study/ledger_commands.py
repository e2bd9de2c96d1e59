"""What the command line does with one ledger's file, by its path alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privfed.errors import InputError
from privfed.exact import shown, text
from privfed.exchange.messages import Head
from privfed.ledger import Ledger
from privfed.ledger.statement import Line


def is_database(path: Path) -> bool:
    """Whether a file begins as SQLite's do."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


@contextmanager
def opened(path: Path) -> Iterator[Ledger]:
    """Open a ledger's file to look at it."""
    ledger = Ledger.read(path)
    try:
        yield ledger
    finally:
        ledger.close()


def verified(path: Path, heads: tuple[str, ...] = (), public: Path | None = None) -> str:
    """Verify one file against published heads (``seq:hash`` or ``seq:hash:signature``).

    Args:
        path: the ledger's file.
        heads: heads that were published.
        public: file with the owner's public key (32 bytes), where the heads are signed.

    Raises:
        InputError: a head or a key that cannot be read.
        LedgerError: the ledger was rewritten.
    """
    try:
        key = None if public is None else public.read_bytes()
    except OSError as error:
        raise InputError(f"key file {public}: {error.strerror}") from None
    with opened(path) as ledger:
        head = ledger.verify([Head.parse(one) for one in heads], key)
        return f"intact {path}: data set {ledger.dataset!r}, {head.seq} rows, head {head}"


def budget(path: Path, by: str | None) -> str:
    """What is spent, reserved and left, one line for each value of an aspect."""
    with opened(path) as ledger:
        return "\n".join(map(_row, ledger.budget(by)))


def _row(line: Line) -> str:
    named = f"{line.by} {line.name}".strip()
    if line.unprotected:
        return f"{named}: NO FINITE GUARANTEE, {line.unprotected} of {line.releases} unprotected"
    pairs = zip(line.components, line.spent, line.reserved, strict=False)
    parts = [f"{name} {text(s)} spent + {text(r)} reserved" for name, s, r in pairs]
    if line.epsilon is not None:
        parts.append(f"at most epsilon {shown(line.epsilon)} so far, delta {float(line.delta):.3g}")
    if line.ceiling is not None:
        parts.append(f"epsilon {shown(line.ceiling)} whatever is still asked")
    if line.remaining is not None:
        parts.append(f"epsilon {float(line.remaining):.6g} remaining")
    if not line.secure:
        parts.append("TEST NOISE, which protects nobody")
    return f"{named}: {line.releases} charges; " + "; ".join(parts)
