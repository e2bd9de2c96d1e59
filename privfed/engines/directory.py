"""Map clients to an engine's nodes by asking each node for its client's name."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from privfed.engines.batches import LIMIT, Batch, Carrier, Replies
from privfed.errors import InputError, WireError
from privfed.questions import wire

Node = TypeVar("Node", bound=Hashable)
GREETING = 30.0  #: Maximum seconds to wait for a node's name; silent nodes are asked again later


class Directory(Carrier, Generic[Node]):
    """Carries batches to clients through their nodes, each of which states its own client's name.

    ``send`` yields each node's reply when it arrives.
    """

    def __init__(
        self,
        clients: Sequence[str],
        *,
        nodes: Callable[[], Iterable[Node]],
        send: Callable[[Mapping[Node, bytes], float], Iterable[tuple[Node, bytes]]],
    ) -> None:
        self._clients, self._nodes, self._send = tuple(clients), nodes, send
        self._found: dict[str, Node] = {}

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Carry each client's batch; nodes of missing or silent clients are searched for next time."""
        if not set(batches) <= set(self._found):
            self._greet(set(self._nodes()) - set(self._found.values()), min(seconds, GREETING))
        for client in set(batches) - set(self._found):
            self.missed(client)
        to = {self._found[client]: client for client in batches if client in self._found}
        expected_ids = {client: _id(batches[client]) for client in to.values()}
        received: dict[str, bytes] = {}
        for node, data in self._send({n: batches[client] for n, client in to.items()}, seconds):
            if data and node in to and _id(data) not in ("", expected_ids[to[node]]):
                continue  # a late reply to an earlier batch
            if data and node in to:
                received[to[node]] = data
                self.heard(to[node])
            elif node in to:
                self.missed(to[node])
        for client in to.values():
            if client not in received:
                self._found.pop(client)
        return received

    def _greet(self, nodes: Iterable[Node], seconds: float) -> None:
        hello = wire.encode(Batch("hello", ""))
        for node, data in self._send(dict.fromkeys(nodes, hello), seconds):
            client = _speaker(data)
            if client not in self._clients:
                continue
            if self._found.get(client, node) != node:
                raise InputError(
                    f"two nodes speak for client {client!r}; stop the one that is not its owner's"
                )
            self._found[client] = node


@dataclass(frozen=True)
class _Identified:
    """The id field of a batch and of its replies."""

    id: str = ""


def _id(data: bytes) -> str:
    try:
        return wire.decode(data, _Identified, LIMIT).id
    except WireError:
        return ""


def _speaker(data: bytes) -> str:
    try:
        return wire.decode(data, Replies, LIMIT).client
    except WireError:
        return ""
