"""A relay: where an engine's server is a process of its own, one that asks reaches it through a door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from privfed.engines.batches import LIMIT
from privfed.engines.carried import Carry
from privfed.engines.doors import Door, knock
from privfed.errors import WireError
from privfed.exchange.channel import ChannelError
from privfed.questions import wire

#: Seconds that a relay may take beyond what it was given.
GRACE = 10.0


@dataclass(frozen=True)
class RelayRequest:
    """What a relay is to carry; nothing to carry ends it."""

    batches: dict[str, bytes]
    seconds: float


@dataclass(frozen=True)
class RelayReply:
    """What it brought back."""

    replies: dict[str, bytes]


class Relay:
    """The asking side's end.

    Args:
        path: the relay's door.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Bring the replies that come within some seconds."""
        data = wire.encode(RelayRequest(dict(batches), seconds))
        try:
            told = knock(self._path, data, seconds=seconds + GRACE)
            return wire.decode(told, RelayReply, LIMIT).replies
        except (ChannelError, WireError):
            return {}

    def end(self) -> None:
        """Tell the engine's process that nothing more comes."""
        self({}, 0.0)


def relay(path: str | Path, carry: Carry) -> None:
    """The engine's end: carry errands, in the thread that calls this, until there is an empty one."""
    errands: SimpleQueue[RelayRequest] = SimpleQueue()
    brought: SimpleQueue[bytes] = SimpleQueue()

    def pass_on(data: bytes) -> bytes:
        errands.put(wire.decode(data, RelayRequest, LIMIT))
        return brought.get()

    with Door(path, pass_on):
        while (errand := errands.get()).batches:
            brought.put(wire.encode(RelayReply(dict(carry(errand.batches, errand.seconds)))))
        brought.put(wire.encode(RelayReply({})))
