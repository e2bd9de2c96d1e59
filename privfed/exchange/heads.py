"""What the asking side keeps from one run to the next: the last head that it saw of each ledger.

A ledger that was put back from an older copy is sound in itself, and its budget looks unspent. Whoever
kept a later head can tell, and so the asking side keeps one for each client, in a file of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from privfed.errors import InputError
from privfed.exchange.messages import Head


class HeadBook(MutableMapping[str, Head]):
    """The last published head of each client's ledger.

    Two runs at once may keep one file: neither takes back what the other has seen.

    Args:
        path: a JSON file, written whole after every change; none keeps them in memory.

    Raises:
        InputError: the file holds something else.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._heads: dict[str, Head] = {}
        if self._path is not None and self._path.exists():
            self._heads = _read(self._path)

    def __getitem__(self, client: str) -> Head:
        return self._heads[client]

    def __setitem__(self, client: str, head: Head) -> None:
        self._heads[client] = head
        self._write(self._latest())

    def __delitem__(self, client: str) -> None:
        del self._heads[client]
        self._write({other: head for other, head in self._latest().items() if other != client})

    def __iter__(self) -> Iterator[str]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def _latest(self) -> dict[str, Head]:
        """What this run and any other one have seen last; only the file is told of the others'."""
        if self._path is None or not self._path.exists():
            return self._heads
        latest = dict(self._heads)
        for client, head in _read(self._path).items():
            if client not in latest or latest[client].seq < head.seq:
                latest[client] = head
        return latest

    def _write(self, heads: Mapping[str, Head]) -> None:
        """Put a new file in the old one's place, so that there is always a whole one."""
        if self._path is None:
            return
        plain = {client: [str(head), head.signature] for client, head in heads.items()}
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(plain)) + b"\n")
        partial.replace(self._path)


def _read(path: Path) -> dict[str, Head]:
    try:
        plain: Mapping[str, Any] = msgspec.json.decode(
            path.read_bytes(), type=dict[str, tuple[str, str]]
        )
        heads = {client: Head.parse(text) for client, (text, _) in plain.items()}
    except (OSError, msgspec.MsgspecError, InputError):
        raise InputError(
            f"file of heads {path}: cannot be read; put it back from a copy, or ask the owners for "
            "their ledgers' heads"
        ) from None
    return {c: Head(h.seq, h.hash, plain[c][1]) for c, h in heads.items()}
