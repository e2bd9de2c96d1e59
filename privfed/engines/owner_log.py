"""The log of a data owner's side: one JSON object per line, with counts, kinds and costs, never values."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from privfed.errors import LedgerError, file_errors
from privfed.ledger import Entry, Ledger

log = logging.getLogger("privfed.owner")
#: Logged events of a ledger, and logged fields of a loss.
CHARGED, LOSS = ("reserved", "block", "drawn", "failed", "refused"), ("epsilon", "rho", "delta")
#: Maximum bytes of a log's file, and number of older files.
SIZE, KEPT = 10 * 2**20, 9


class JsonLines(logging.Formatter):
    """Formats a record's time, level and ``facts``, or its text as the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        time = self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
        facts = getattr(record, "facts", {"event": record.getMessage()})
        fields = {"time": time, "level": record.levelname.lower(), **facts}
        return msgspec.json.encode(fields).decode()


def handler(path: Path | None = None) -> logging.Handler:
    """Return a handler for standard error, or for a file that only its owner can read, with rotation."""
    with file_errors(f"log {path}", "written", "name another file"):
        made = logging.StreamHandler() if path is None else _OwnFile(path)
    made.setFormatter(JsonLines())
    return made


class _OwnFile(RotatingFileHandler):
    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=SIZE, backupCount=KEPT, encoding="utf-8")

    def _open(self) -> Any:
        os.close(os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT, 0o600))
        return super()._open()


class LedgerLog:
    """Logs charges and refusals from a ledger's new rows.

    ``kinds`` are those in the owner's policy.
    """

    def __init__(self, ledger: Ledger, kinds: Collection[str]) -> None:
        self._ledger, self._kinds = ledger, kinds
        self._after, self._lock = ledger.head.seq, Lock()

    def follow(self) -> None:
        """Log new rows; a ledger that cannot be read is visible in the replies."""
        with self._lock, suppress(LedgerError):
            for entry in self._ledger.grown(self._after, CHARGED):
                log.info("row %d: %s", entry.seq, entry.event, extra={"facts": self._facts(entry)})
                self._after = entry.seq

    def _facts(self, entry: Entry) -> dict[str, object]:
        """Return a row's logged facts, without text chosen by the server, such as unknown kinds."""
        fields = {"event": entry.event, "row": entry.seq, "principal": entry.principal}
        fields |= {name: entry.body[name] for name in ("count", "reason") if name in entry.body}
        if entry.body.get("kind") in self._kinds:  # a failure's row has only its charge's number
            fields["kind"] = entry.body["kind"]
        if entry.event in ("reserved", "block"):
            loss = entry.body["loss"]
            fields["cost"] = {name: loss[name] for name in LOSS if name in loss} or "unprotected"
        return fields
