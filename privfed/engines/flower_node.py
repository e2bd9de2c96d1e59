"""A node's side on Flower: its ClientApp calls its owner's socket.

Flower starts a process for each message of each round, so this imports only what passing bytes requires.
"""

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # it would tell a third party of studies

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from privfed.engines.sockets import call_socket

#: The ClientApp's action, and the key of its bytes in a message.
ACTION, RECORD, FIELD = "ask", "privfed", "batch"
LIFE = 3600.0  #: Seconds until a message expires; late replies are still used


def client_app(socket: Callable[[Context], str | Path]) -> ClientApp:
    """Return a ClientApp that only passes bytes to the socket of its node's context."""
    app = ClientApp()

    def ask(message: Message, context: Context) -> Message:
        try:
            reply = call_socket(socket(context), content_bytes(message), seconds=LIFE)
        except Exception:
            reply = b""
        return Message(content_of(reply), reply_to=message)

    app.query(ACTION)(ask)
    return app


def node_socket(context: Context) -> str:
    """Return the socket of a node's configuration: ``--node-config 'socket="/path/server.sock"'``."""
    return str(context.node_config["socket"])


def content_of(data: bytes) -> RecordDict:
    """Return the content of a message that carries bytes."""
    return RecordDict({RECORD: ConfigRecord({FIELD: data})})


def content_bytes(message: Message, field: str = FIELD) -> bytes:
    """Return the bytes that a message carries; empty if it has another form."""
    record = message.content.get(RECORD)
    data = record.get(field) if isinstance(record, ConfigRecord) else None
    return data if isinstance(data, bytes) else b""
