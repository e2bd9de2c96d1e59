"""A relay, by which a process reaches an engine's server in another process of the same machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from privfed.engines.batches import LIMIT
from privfed.engines.remote import Carry
from privfed.engines.sockets import SocketServer, call_socket
from privfed.errors import ChannelError, WireError
from privfed.questions import wire

GRACE = 10.0  #: Seconds that a relay may exceed its time limit


@dataclass(frozen=True)
class RelayRequest:
    """Batches by client and a time limit; no batches ends the relay."""

    batches: dict[str, bytes]
    seconds: float


@dataclass(frozen=True)
class RelayReply:
    """Replies by client."""

    replies: dict[str, bytes]


class Relay:
    """The server's end."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Return the replies that arrive within `seconds`, by client."""
        data = wire.encode(RelayRequest(dict(batches), seconds))
        try:
            reply = call_socket(self._path, data, seconds=seconds + GRACE)
            return wire.decode(reply, RelayReply, LIMIT).replies
        except (ChannelError, WireError):
            return {}

    def end(self) -> None:
        """End the relay in the engine's process."""
        self({}, 0.0)


def relay(path: str | Path, carry: Carry) -> None:
    """The engine's end: carry requests, in the calling thread, until an empty one."""
    requests: SimpleQueue[RelayRequest] = SimpleQueue()
    replies: SimpleQueue[bytes] = SimpleQueue()

    def pass_on(data: bytes) -> bytes:
        requests.put(wire.decode(data, RelayRequest, LIMIT))
        return replies.get()

    with SocketServer(path, pass_on):
        while (request := requests.get()).batches:
            replies.put(wire.encode(RelayReply(dict(carry(request.batches, request.seconds)))))
        replies.put(wire.encode(RelayReply({})))
