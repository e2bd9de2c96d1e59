"""Unix sockets on the owner's machine, by which an engine's process reaches the gate.

The folder's permissions decide who may use a socket; each principal has its own socket.
"""

import logging
import os
import socket
import socketserver
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import BoundedSemaphore, Condition, Thread
from time import monotonic
from typing import Any, Self

from privfed.engines.batches import LIMIT, Carrier
from privfed.errors import ChannelError, InputError

log = logging.getLogger("privfed.owner")
#: Maximum seconds for a whole message to arrive, and for each part of a reply to be read.
STALL = 60.0
MAX_CONNECTIONS = 32  #: Maximum number of concurrent connections; the system queues more
#: Maximum length of a socket's address on every system, in bytes; Linux's folder of open
#: descriptors.
LONGEST, DESCRIPTORS = 100, Path("/proc/self/fd")
_SIZE = struct.Struct(">Q")


class SocketServer:
    """Answers messages to one socket file, in threads, until closed.

    A dead process's file is replaced (InputError: another process answers there).
    """

    def __init__(self, path: str | Path, answer: Callable[[bytes], bytes]) -> None:
        self.path = Path(path)
        _remove_stale(self.path)
        before = os.umask(0o117)  # owner and group; further limits are the folder's permissions
        try:
            with _address(self.path) as address:
                self._server = _Server(address, _Connection)
        except OSError as error:
            why = str(error.args[-1]).lower()  # the error of too long a path has no errno
            raise InputError(f"socket {path}: cannot be made ({why}); name another file") from None
        finally:
            os.umask(before)
        self._server.answer = answer
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer the messages that have arrived, accept no others, and remove the file."""
        self._server.drain()
        self._thread.join()
        with suppress(FileNotFoundError):
            self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def call_socket(path: str | Path, data: bytes, *, seconds: float = 60.0) -> bytes:
    """Send a message to a socket and return the reply (ChannelError: no answer, or a timeout)."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(max(seconds, 0.001))
            with _address(Path(path)) as address:
                link.connect(address)
            link.sendall(_SIZE.pack(len(data)) + data)
            return _received(link)
    except OSError:
        raise ChannelError(f"no process answers at socket {path}") from None


class SocketCarrier(Carrier):
    """Carries batches directly to all clients' local sockets at once."""

    def __init__(self, paths: Mapping[str, str | Path]) -> None:
        self._paths = dict(paths)

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Return the replies that arrive within `seconds`, by client."""

        def one(client: str) -> tuple[str, bytes] | None:
            try:
                reply = call_socket(self._paths[client], batches[client], seconds=seconds)
            except ChannelError:
                self.missed(client)
                return None
            self.heard(client)
            return client, reply

        with ThreadPoolExecutor(max_workers=min(MAX_CONNECTIONS, len(batches) or 1)) as threads:
            return dict(filter(None, threads.map(one, batches)))


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    answer: Callable[[bytes], bytes]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connections = BoundedSemaphore(MAX_CONNECTIONS)
        self._answering, self._idle, self._closing = 0, Condition(), False

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept the next connection once there is room, so that threads and memory are bounded."""
        while not self.connections.acquire(timeout=0.05):
            if self._closing:
                raise ConnectionAbortedError
        try:
            return super().get_request()
        except OSError:
            self.connections.release()
            raise

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and make room for another."""
        super().shutdown_request(request)
        self.connections.release()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count an answer in progress, for which closing waits (ConnectionError: already closing)."""
        with self._idle:
            if self._closing:
                raise ConnectionAbortedError
            self._answering += 1
        try:
            yield
        finally:
            with self._idle:
                self._answering -= 1
                self._idle.notify_all()

    def drain(self) -> None:
        """Close once all answers in progress are finished."""
        with self._idle:
            self._closing = True
        self.shutdown()
        self.server_close()
        with self._idle:
            self._idle.wait_for(lambda: not self._answering)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a broken connection or an error, without its text."""
        log.warning("a connection was closed without a reply")


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Read one message, answer it, and close."""
        data = _received(self.request, monotonic() + STALL)
        with self.server.answering():
            reply = self.server.answer(data)
            self.request.settimeout(STALL)
            self.request.sendall(_SIZE.pack(len(reply)) + reply)


def _received(link: socket.socket, latest: float | None = None) -> bytes:
    """Read a message until the time ``latest``, by default with the socket's timeout for each step."""
    (size,) = _SIZE.unpack(_exactly(link, _SIZE.size, latest))
    if size > LIMIT:
        raise ConnectionError
    return _exactly(link, size, latest)


def _exactly(link: socket.socket, size: int, latest: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if latest is not None:
            link.settimeout(max(latest - monotonic(), 0.001))
        more = link.recv(min(size - len(data), 2**20))
        if not more:
            raise ConnectionError
        data += more
    return bytes(data)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield a socket's address; if too long, through its folder's descriptor (Linux)."""
    if len(os.fsencode(path)) <= LONGEST or not DESCRIPTORS.is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield str(DESCRIPTORS / str(folder) / path.name)
    finally:
        os.close(folder)


def _remove_stale(path: Path) -> None:
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            with _address(path) as address:
                link.connect(address)
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise InputError(f"socket {path}: another process answers there; stop it, or name another file")
