"""Verification of a ledger's file against its rows and all known heads."""

import warnings
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from privfed.errors import LedgerError, Note
from privfed.exchange.messages import Head
from privfed.ledger.ledger import Ledger
from privfed.ledger.registry import Registry

#: How far a ledger's last row may be ahead of this machine's clock without a note.
AHEAD = timedelta(minutes=5)


class Verified(NamedTuple):
    """Result of verifying a file: data set, head, known heads, and the ledger that it is a copy of.

    For a ledger written here, ``secret_fault`` describes a fault of its secret, for which gates refuse it.
    ``unvouched`` are the rows at which a key was replaced without the old one's signature.
    """

    dataset: str
    head: Head
    known: tuple[Head, ...]
    copy_of: Path | None = None
    secret_fault: LedgerError | None = None
    unvouched: tuple[int, ...] = ()


def verified(
    path: Path, registry: Registry, heads: Iterable[Head] = (), public: bytes | None = None
) -> Verified:
    """Verify a ledger's file against its rows and all known heads (LedgerError: it was rewritten).

    A copy may be older than its original, and is checked against ``heads``, which ``public`` must have signed.
    """
    with closing(Ledger.read(path)) as ledger:
        published = tuple(heads)
        if public is not None and (ledger.public is not None or not published):
            ledger.check_public(public)
        original = registry.original(ledger.identity, path)
        known = [] if original else registry.check(ledger.identity, path, ledger.passes)
        head = ledger.verify(published, public)
        _warn_of_clock(path, ledger, head)
        fault = None
        if registry.at(path) is not None:
            try:
                ledger.check_secret()
            except LedgerError as error:
                fault = error
        lost = tuple(
            one.seq
            for one in ledger.signing_keys()
            if one.body["replaces"] and not one.body["signature"]
        )
        return Verified(ledger.dataset, head, (*known, *published), original, fault, lost)


def _warn_of_clock(path: Path, ledger: Ledger, head: Head) -> None:
    """Warn of a last row from the future: a clock was wrong, and later rows keep its time and its month."""
    *_, last = ledger.entries(after=head.seq - 1)  # a gate may have written more
    if datetime.fromisoformat(last.time) > datetime.now(UTC) + AHEAD:
        warnings.warn(
            f"ledger {path}: its last row is of {last.time[:16].replace('T', ' ')} UTC, which this machine's clock has "
            "not reached. Correct the clock that is wrong; until then rows keep that time, and limits per month count "
            "in that month",
            Note,
            stacklevel=3,
        )
