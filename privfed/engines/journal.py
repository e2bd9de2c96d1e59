"""The server's journal of replies, durable before the learner sees them, to resume a study from."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from privfed.errors import InputError, WireError
from privfed.exchange.masked_totals import in_time
from privfed.exchange.messages import Envelope, Release, Request
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions import wire

_SIZE = 8


@dataclass(frozen=True)
class JournalLine:
    """One message and its reply, if it came in time; or a note of the server, without client and reply."""

    client: str  #: the replying client
    id: str  #: the request's
    message: bytes  #: the encoded request or inquiry
    envelope: bytes  #: the encoded reply; empty if none came and the study went on without it


class Journal:
    """All replies that the server of one study received, in one process's file, or in memory."""

    def __init__(self, path: str | Path | None = None, *, session: str = "") -> None:
        self._path = None if path is None else Path(path)
        self._lines: dict[tuple[str, str], JournalLine] = {}
        self.session = session or secrets.token_hex(8)  #: Prefix of all request ids
        self._file: BinaryIO | None = None
        if self._path is not None:
            self._file = _locked(self._path)
            self._go_on(self._path, self._file)

    @classmethod
    def read(cls, path: str | Path) -> Journal:
        """Read a file, even while another process writes it (InputError: it cannot be read)."""
        journal = cls()
        try:
            journal._read(Path(path), Path(path).read_bytes())
        except OSError as error:
            raise _unreadable(Path(path), error) from None
        return journal

    def close(self) -> None:
        """Release the file to other processes."""
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[JournalLine]:
        return iter(self._lines.values())

    @property
    def replies(self) -> list[JournalLine]:
        """The lines with a reply."""
        return [line for line in self if line.envelope]

    def find(self, client: str, id: str) -> JournalLine | None:
        """Return a client's line of a request, or None."""
        return self._lines.get((client, id))

    def keep(self, lines: Sequence[JournalLine]) -> None:
        """Make lines durable."""
        self._append([wire.encode(line) for line in lines])
        self._lines |= {(line.client, line.id): line for line in lines}

    @property
    def transcript(self) -> Transcript:
        """All releases, in order of arrival."""
        return in_time(enumerate(self._released()))

    def _released(self) -> Iterator[TranscriptEntry]:
        for line in self.replies:
            reply = wire.decode(line.envelope, Envelope).open()
            if isinstance(reply, Release):
                request = wire.decode(line.message, Request)
                yield TranscriptEntry(line.client, request.kind, request.fields, reply)

    def _append(self, entries: Sequence[bytes]) -> None:
        if self._file is None or not entries:
            return
        data = b"".join(len(entry).to_bytes(_SIZE, "big") + entry for entry in entries)
        try:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unreadable(self._path, error) from None

    def _go_on(self, path: Path, file: BinaryIO) -> None:
        """Read whole lines; drop a truncated last one, which no learner has seen."""
        data = path.read_bytes()
        if _entries(data)[0]:
            file.truncate(self._read(path, data))
        else:
            file.truncate(0)
            self._append([self.session.encode()])

    def _read(self, path: Path, data: bytes) -> int:
        """Read the whole entries; return where they end."""
        entries, end = _entries(data)
        try:
            self.session = entries[0].decode("ascii")
            lines = [wire.decode(entry, JournalLine) for entry in entries[1:]]
        except (IndexError, UnicodeDecodeError, WireError):
            raise _unreadable(path) from None
        self._lines = {(line.client, line.id): line for line in lines}
        return end


def _locked(path: Path) -> BinaryIO:
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InputError(
            f"journal {path}: in use by another process; wait for it, or stop it"
        ) from None
    return file


def _unreadable(path: Path | None, error: OSError | None = None) -> InputError:
    why = "" if error is None else f" ({(error.strerror or type(error).__name__).lower()})"
    return InputError(
        f"journal {path}: cannot be used{why}; restore it from a copy, or name a new folder"
    )


def _entries(data: bytes) -> tuple[list[bytes], int]:
    """Return a file's whole entries, and where they end."""
    entries, offset = [], 0
    while len(data) - offset >= _SIZE:
        size = int.from_bytes(data[offset : offset + _SIZE], "big")
        if offset + _SIZE + size > len(data):
            break
        entries.append(data[offset + _SIZE : offset + _SIZE + size])
        offset += _SIZE + size
    return entries, offset
