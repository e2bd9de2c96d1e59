"""Which of an engine's nodes speaks for which client: the nodes are asked, and asked anew when lost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from privfed.engines.batches import LIMIT, Batch, Replies
from privfed.errors import InputError, WireError
from privfed.questions import wire

Node = TypeVar("Node", bound=Hashable)
#: Most seconds to wait for nodes to say for whom they speak; a silent one is greeted again later.
GREETING = 30.0


class Directory(Generic[Node]):
    """Carries batches to clients by the nodes that speak for them.

    A node says itself for whom it speaks. Whether it is so, signatures show: give the disclosure the
    owners' keys.

    Args:
        clients: who is to be found.
        nodes: gives the engine's nodes of this moment.
        send: carries bytes to nodes and gives the replies that came within some seconds.
    """

    def __init__(
        self,
        clients: Sequence[str],
        *,
        nodes: Callable[[], Iterable[Node]],
        send: Callable[[Mapping[Node, bytes], float], Mapping[Node, bytes]],
    ) -> None:
        self._clients, self._nodes, self._send = tuple(clients), nodes, send
        self._found: dict[str, Node] = {}

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Carry each client's batch; a client without a node, or with a silent one, is looked for next time.

        Raises:
            InputError: two nodes speak for one client.
        """
        if not set(batches) <= set(self._found):
            self._greet(set(self._nodes()) - set(self._found.values()), min(seconds, GREETING))
        to = {self._found[client]: client for client in batches if client in self._found}
        replies = self._send({node: batches[client] for node, client in to.items()}, seconds)
        told = {client: replies[node] for node, client in to.items() if replies.get(node)}
        for client in to.values():
            if client not in told:
                self._found.pop(client)
        return told

    def _greet(self, nodes: Iterable[Node], seconds: float) -> None:
        """Ask nodes for whom they speak."""
        hello = wire.encode(Batch("hello", ""))
        for node, data in self._send(dict.fromkeys(nodes, hello), seconds).items():
            client = _speaker(data)
            if client not in self._clients:
                continue
            if client in self._found:
                raise InputError(
                    f"two nodes speak for client {client!r}; stop the one that is not its owner's"
                )
            self._found[client] = node


def _speaker(data: bytes) -> str:
    try:
        return wire.decode(data, Replies, LIMIT).client
    except WireError:
        return ""
