"""Large payloads lie compressed in the file; hashes, replays and exports are of what they were.

Zstandard at its quickest level. A payload that was tampered with can claim any size: no more than
:data:`MOST` bytes are ever made of one.
"""

from __future__ import annotations

from functools import lru_cache

from backports import zstd

from privfed.errors import LedgerError
from privfed.questions import wire

#: Payloads of fewer bytes are kept as they are.
LEAST = 1024
#: Most bytes of one payload: what the wire carries, and its envelope.
MOST = wire.LIMIT + 2**20


@lru_cache(maxsize=2)
def pack(payload: bytes) -> tuple[bytes, int]:
    """What is stored for a payload, and whether it is compressed (1) or as it was (0).

    The last two are remembered: in one process the same question reaches every client's ledger.
    """
    if not LEAST <= len(payload) <= MOST:
        return payload, 0
    packed = zstd.compress(payload, 1)
    return (packed, 1) if len(packed) < len(payload) else (payload, 0)


def unpack(seq: int, stored: bytes, packed: int) -> bytes:
    """The payload of entry ``seq``.

    Raises:
        LedgerError: it cannot be read, or would be larger than any that was written.
    """
    if packed == 0:
        return stored
    reader = zstd.ZstdDecompressor()
    try:
        payload = reader.decompress(stored, max_length=MOST)
    except (zstd.ZstdError, TypeError):
        payload = b""
    if packed != 1 or not reader.eof or reader.unused_data:
        raise LedgerError(f"entry {seq} of the ledger cannot be read: its payload was damaged")
    return payload
