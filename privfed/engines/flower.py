"""Flower as the engine: a ServerApp asks, and each node's ClientApp calls its owner's socket."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # it would tell a third party of studies
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from privfed.engines.directory import Directory
from privfed.engines.local import LocalDisclosure
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.simulated import behind_sockets, remote_over
from privfed.engines.sockets import call_socket
from privfed.exchange.channel import ChannelDisclosure
from privfed.tables.schema import Schema

T = TypeVar("T")
#: The ClientApp's action, and the place of its bytes in a message.
ACTION, RECORD, FIELD = "ask", "privfed", "batch"
LIFE = 3600.0  #: Seconds that a message lives; a late reply is still used


class FlowerDisclosure(RemoteDisclosure):
    """A federation on Flower, over the ServerApp's grid, of the owners' own names."""

    def __init__(self, grid: Grid, schema: Schema, clients: Sequence[str], **rest: Any) -> None:
        def nodes() -> Iterable[int]:
            return list(grid.get_node_ids())

        def send(batches: Mapping[int, bytes], seconds: float) -> Mapping[int, bytes]:
            if not batches:
                return {}
            messages = [_message(node, data) for node, data in batches.items()]
            replies = grid.send_and_receive(messages, timeout=seconds)
            return {one.metadata.src_node_id: _bytes(one) for one in replies if one.has_content()}

        super().__init__(schema, clients, Directory(clients, nodes=nodes, send=send), **rest)


def client_app(socket: Callable[[Context], str | Path]) -> ClientApp:
    """Make a ClientApp that passes bytes to the socket of its node's context, and does nothing else."""
    app = ClientApp()

    def ask(message: Message, context: Context) -> Message:
        try:
            reply = call_socket(socket(context), _bytes(message), seconds=LIFE)
        except Exception:
            reply = b""
        return Message(_content(reply), reply_to=message)

    app.query(ACTION)(ask)
    return app


def node_socket(context: Context) -> str:
    """Return the socket of a node's configuration: ``--node-config 'socket="/path/server.sock"'``.

    Its earlier name, ``door``, is understood too.
    """
    named = context.node_config
    return str(named["socket"] if "socket" in named else named["door"])


def simulate(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Carry out a job in Flower's simulation, with one node per gate of this process."""
    from flwr.simulation import run_simulation

    done: list[T] = []
    app = ServerApp()
    with behind_sockets(federation) as paths:
        sockets = list(paths.values())

        def main(grid: Grid, context: Context) -> None:
            asking = remote_over(federation, partial(FlowerDisclosure, grid))
            done.append(job(asking))

        app.main()(main)
        logging.getLogger("flwr").setLevel(logging.ERROR)
        run_simulation(
            server_app=app,
            client_app=client_app(lambda at: sockets[int(at.node_config["partition-id"])]),
            num_supernodes=len(sockets),
            backend_config={"init_args": {"include_dashboard": False, "log_to_driver": False}},
        )
    return done[0]


def _content(data: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({FIELD: data})})


def _message(node: int, data: bytes) -> Message:
    return Message(_content(data), node, f"query.{ACTION}", ttl=LIFE)


def _bytes(message: Message) -> bytes:
    data = message.content[RECORD][FIELD]
    return data if isinstance(data, bytes) else b""
