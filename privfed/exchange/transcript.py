"""All releases in order, the only input of attacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privfed.exchange.messages import Release
from privfed.questions import wire

WIDTH, NAMED = 100, 5  #: Maximum characters of an object's text; maximum names that it lists


def in_one_line(text: str) -> str:
    """Shorten a text to one line of at most :data:`WIDTH` characters."""
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 4]}...)"


def several(names: Sequence[str], what: str) -> str:
    """Format a number of objects, with the names of the first."""
    first = ", ".join(names[:NAMED])
    ellipsis = ", ..." if len(names) > NAMED else ""
    return f"{len(names)} {what}{'s' * (len(names) != 1)}{': ' * bool(names)}{first}{ellipsis}"


@dataclass(frozen=True, eq=False)
class TranscriptEntry:
    """One line of a transcript: the query's public values and what was released."""

    client: str
    kind: str
    fields: bytes
    release: Release

    def __repr__(self) -> str:
        parts = ", ".join(self.release.parts) or "nothing"
        return in_one_line(f"TranscriptEntry({self.client} to {self.kind}: {parts})")

    @property
    def query(self) -> Mapping[str, Any]:
        """The query's public values as plain data, with arrays."""
        data: Mapping[str, Any] = wire.decode_plain(self.fields)
        return data


@dataclass(frozen=True, eq=False)
class Transcript:
    """All releases in order, the only input of attacks."""

    entries: tuple[TranscriptEntry, ...] = field(default=())

    def __repr__(self) -> str:
        kinds = Counter(entry.kind for entry in self.entries)
        counts = ", ".join(f"{times} {kind}" for kind, times in kinds.items()) or "nothing"
        return in_one_line(f"Transcript({several(self.clients, 'client')}; {counts})")

    def __iter__(self) -> Iterator[TranscriptEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def of(self, kind: str | None = None, client: str | None = None) -> Transcript:
        """Return the entries of one kind, of one client, or both."""
        return Transcript(
            tuple(e for e in self.entries if kind in (None, e.kind) and client in (None, e.client))
        )

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients that released something, in order of first release."""
        return tuple(dict.fromkeys(entry.client for entry in self.entries))
