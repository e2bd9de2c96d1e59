"""The log of a data owner's side: one JSON object a line, of counts, kinds and costs; never a value."""

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
#: Rows of a ledger that are logged, and what of a loss.
CHARGED, LOSS = ("reserved", "block", "drawn", "failed", "refused"), ("epsilon", "rho", "delta")
#: Bytes of a log's file, and how many older ones are kept.
SIZE, KEPT = 10 * 2**20, 9


class JsonLines(logging.Formatter):
    """A record's time, level and ``facts``, or its text as the event."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
        facts = getattr(record, "facts", {"event": record.getMessage()})
        told = {"time": time, "level": record.levelname.lower(), **facts}
        return msgspec.json.encode(told).decode()


def handler(path: Path | None = None) -> logging.Handler:
    """Writes lines to standard error, or to a file of the owner's alone, with older ones beside it."""
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
    """Logs what was charged and refused: the rows that a ledger grew by since it was looked at last.

    ``kinds`` are those that the owner's policy names.
    """

    def __init__(self, ledger: Ledger, kinds: Collection[str]) -> None:
        self._ledger, self._kinds = ledger, kinds
        self._after, self._lock = ledger.head.seq, Lock()

    def follow(self) -> None:
        """Log the rows that are new; a ledger that cannot be read is told by the replies."""
        with self._lock, suppress(LedgerError):
            for entry in self._ledger.grown(self._after, CHARGED):
                log.info("row %d: %s", entry.seq, entry.event, extra={"facts": self._facts(entry)})
                self._after = entry.seq

    def _facts(self, entry: Entry) -> dict[str, object]:
        """What the log says of a row; no word that is the asker's own, such as a kind that is none."""
        told = {"event": entry.event, "row": entry.seq, "principal": entry.principal}
        told |= {name: entry.body[name] for name in ("count", "reason") if name in entry.body}
        if entry.body.get("kind") in self._kinds:  # a failure's row has its charge's number alone
            told["kind"] = entry.body["kind"]
        if entry.event in ("reserved", "block"):
            loss = entry.body["loss"]
            told["cost"] = {name: loss[name] for name in LOSS if name in loss} or "unprotected"
        return told
