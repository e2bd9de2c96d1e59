"""Flower's apps on a grid of this process: no other process, and no wait. For tests and trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from privfed.engines.flower_node import client_app, node_socket


class InProcess(Grid):  # type: ignore[misc]
    """Delivers each message to a node's ClientApp by a call.

    Args:
        sockets: each node's socket.
    """

    set_run = run = create_message = send_and_receive = None

    def __init__(self, sockets: Mapping[int, Path]) -> None:
        become_a_task()
        self._replies: list[Message] = []
        self._numbers = count()
        self._doors, self._app = sockets, client_app(node_socket)

    def get_node_ids(self) -> Iterable[int]:
        """All of them."""
        return list(self._doors)

    def push_messages(self, messages: Any) -> Iterable[str]:
        """Have each message answered at once."""
        for message in messages:
            number = next(self._numbers)
            node = message.metadata.dst_node_id
            reply = deliver(self._app, message, {"socket": str(self._doors[node])})
            reply.metadata.__dict__["_reply_to_message_id"] = str(number)
            self._replies.append(reply)
            yield str(number)

    def pull_messages(self, message_ids: Any) -> Iterable[Any]:
        """The replies."""
        replies, self._replies = self._replies, []
        return replies


def become_a_task() -> None:
    """Set what Flower sets in a process that it starts."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1


def deliver(app: Any, message: Message, config: dict[str, str]) -> Message:
    """Hand a message to a node's app, with the node's configuration."""
    return app(message, Context(1, message.metadata.dst_node_id, config, RecordDict(), {}))
