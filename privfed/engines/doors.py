"""Doors: sockets of the owner's own machine, through which an engine's process reaches the gate.

A door is a file. Who may use it is what its folder's permissions say, and so each asker that is to be
told apart gets a door of its own: the engine's process of that asker, which has authenticated it, can
open no other. What lies behind the door (records, ledger, keys) it cannot read.
"""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import BoundedSemaphore, Thread
from types import TracebackType
from typing import Any, Self

from privfed.engines.batches import LIMIT
from privfed.errors import InputError
from privfed.exchange.channel import ChannelError

log = logging.getLogger("privfed.owner")
#: Seconds that an open door waits for the rest of what somebody began to send.
STALL = 60.0
#: Most askers that are waited on at once.
CROWD = 32
#: Longest address of a socket that every system takes, in bytes; where Linux shows open folders.
LONGEST, DESCRIPTORS = 100, Path("/proc/self/fd")
_SIZE = struct.Struct(">Q")


class Door:
    """A socket file behind which something answers, in threads of its own, until it is closed.

    Args:
        path: the file; one that a dead process left is replaced.
        answer: gives the reply to what was sent.

    Raises:
        InputError: another process answers there, or the file cannot be made.
    """

    def __init__(self, path: str | Path, answer: Callable[[bytes], bytes]) -> None:
        self.path = Path(path)
        _make_way(self.path)
        before = os.umask(0o117)  # the owner and the group: the rest is the folder's permissions
        try:
            with _address(self.path) as address:
                self._server = _Server(address, _Visit)
        except OSError as error:
            why = str(error.args[-1]).lower()  # too long a path has no errno
            raise InputError(f"door {path}: cannot be made ({why}); name another file") from None
        finally:
            os.umask(before)
        self._server.answer = answer
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the door away; what was begun is answered."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with suppress(FileNotFoundError):
            self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def knock(path: str | Path, data: bytes, *, seconds: float = 60.0) -> bytes:
    """Send bytes through a door and wait for the reply.

    Args:
        path: the door's file.
        data: what to send.
        seconds: how long to wait for anything to happen.

    Raises:
        ChannelError: nobody is there, or the reply did not come in time.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(max(seconds, 0.001))
            with _address(Path(path)) as address:
                link.connect(address)
            link.sendall(_SIZE.pack(len(data)) + data)
            return _received(link)
    except OSError:
        raise ChannelError(f"nobody answers at door {path}") from None


class Doors:
    """Carries batches straight to doors of this machine, to all clients at once.

    Args:
        paths: each client's door.
    """

    def __init__(self, paths: Mapping[str, str | Path]) -> None:
        self._paths = dict(paths)

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Bring the replies that come within some seconds."""

        def one(client: str) -> tuple[str, bytes] | None:
            try:
                return client, knock(self._paths[client], batches[client], seconds=seconds)
            except ChannelError:
                return None

        with ThreadPoolExecutor(max_workers=min(CROWD, len(batches) or 1)) as threads:
            return dict(filter(None, threads.map(one, batches)))


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 128
    answer: Callable[[bytes], bytes]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.crowd = BoundedSemaphore(CROWD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A visitor that breaks off, or a fault: no text leaves, and none is logged."""
        log.warning("somebody came to the door and was not answered")


class _Visit(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Read one message, answer it, and close."""
        self.request.settimeout(STALL)
        with self.server.crowd:
            reply = self.server.answer(_received(self.request))
            self.request.sendall(_SIZE.pack(len(reply)) + reply)


def _received(link: socket.socket) -> bytes:
    (size,) = _SIZE.unpack(_exactly(link, _SIZE.size))
    if size > LIMIT:
        raise ConnectionError
    return _exactly(link, size)


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = link.recv(min(size - len(data), 2**20))
        if not more:
            raise ConnectionError
        data += more
    return bytes(data)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """A socket's address; where it would be too long, by way of its folder's descriptor (Linux)."""
    if len(os.fsencode(path)) <= LONGEST or not DESCRIPTORS.is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield str(DESCRIPTORS / str(folder) / path.name)
    finally:
        os.close(folder)


def _make_way(path: Path) -> None:
    """Remove a door that nobody stands behind any more."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            with _address(path) as address:
                link.connect(address)
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise InputError(f"door {path}: another process answers there; stop it, or name another file")
