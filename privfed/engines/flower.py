"""Flower as the carrier: a ServerApp asks, and each node's ClientApp knocks at its owner's door.

The ClientApp travels with the study, from the server; it holds nothing, and all it can do is pass
bytes through the door that its node's owner named. Needs the extra ``privfed[flower]``.
"""

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

from privfed.engines.carried import CarriedDisclosure
from privfed.engines.directory import Directory
from privfed.engines.doors import knock
from privfed.engines.local import LocalDisclosure
from privfed.engines.simulated import asked_over, behind_doors
from privfed.exchange.channel import ChannelDisclosure
from privfed.tables.schema import Schema

T = TypeVar("T")
#: The action of the ClientApp, and where its bytes are in a message.
ACTION, RECORD, FIELD = "ask", "privfed", "batch"
#: Seconds that a message lives; nothing is asked again that was answered, however late.
LIFE = 3600.0


class FlowerDisclosure(CarriedDisclosure):
    """A federation on Flower.

    Args:
        grid: what a ServerApp is given.
        schema: the public data dictionary.
        clients: the owners' names, as their own files say.
        rest: see :class:`.CarriedDisclosure`.
    """

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


def client_app(door: Callable[[Context], str | Path]) -> ClientApp:
    """Make a ClientApp that passes bytes through its node's door, and does nothing else.

    Args:
        door: finds the door in a node's context.
    """
    app = ClientApp()

    def ask(message: Message, context: Context) -> Message:
        try:
            reply = knock(door(context), _bytes(message), seconds=LIFE)
        except Exception:
            reply = b""
        return Message(_content(reply), reply_to=message)

    app.query(ACTION)(ask)
    return app


def node_door(context: Context) -> str:
    """The door that a node's owner named: ``--node-config 'door="/path/server.sock"'``."""
    return str(context.node_config["door"])


def simulate(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Carry out a job in Flower's simulation, a node for each gate of this process."""
    from flwr.simulation import run_simulation

    done: list[T] = []
    app = ServerApp()
    with behind_doors(federation) as paths:
        doors = list(paths.values())

        def main(grid: Grid, context: Context) -> None:
            asking = asked_over(federation, partial(FlowerDisclosure, grid))
            done.append(job(asking))

        app.main()(main)
        logging.getLogger("flwr").setLevel(logging.ERROR)
        run_simulation(
            server_app=app,
            client_app=client_app(lambda context: doors[_partition(context)]),
            num_supernodes=len(doors),
            backend_config={"init_args": {"include_dashboard": False, "log_to_driver": False}},
        )
    return done[0]


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _content(data: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({FIELD: data})})


def _message(node: int, data: bytes) -> Message:
    return Message(_content(data), node, f"query.{ACTION}", ttl=LIFE)


def _bytes(message: Message) -> bytes:
    data = message.content[RECORD][FIELD]
    return data if isinstance(data, bytes) else b""
