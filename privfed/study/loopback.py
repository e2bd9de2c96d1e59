"""A text server over HTTP for this machine only."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, NamedTuple

from privfed.errors import InputError

HOST = "127.0.0.1"


class HttpResponse(NamedTuple):
    """The response to a GET request."""

    status: int  #: HTTP status
    text: str
    kind: str = "text/plain"  #: media type


class LoopbackServer(ABC):
    """Answers GET on a port of the loopback interface until it is closed; 0 takes a free one.

    InputError: the port is taken.
    """

    #: Headers of every response besides its type and length.
    headers: ClassVar[Mapping[str, str]] = {"Cache-Control": "no-store"}

    def __init__(self, port: int = 0) -> None:
        try:
            self._http = ThreadingHTTPServer((HOST, port), partial(_Handler, self))
        except (OSError, OverflowError) as error:
            why = (getattr(error, "strerror", None) or type(error).__name__).lower()
            raise InputError(f"port {port}: cannot be used ({why}); name another") from None

    @abstractmethod
    def answer(self, path: str) -> HttpResponse:
        """Return the response to GET of a path."""

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self._http.server_address[1])

    def serve(self) -> None:
        """Answer requests until :meth:`close` is called in another thread."""
        self._http.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = 30  # seconds for a request
    server_version, sys_version = "privfed", ""

    def __init__(self, pages: LoopbackServer, *arguments: object) -> None:
        self.pages = pages
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer a request; one with another Host (DNS rebinding) gets status 404."""
        hosts = [f"{name}:{self.pages.port}" for name in (HOST, "localhost")]
        is_local = self.headers.get("Host") in hosts
        status, text, kind = self.pages.answer(self.path) if is_local else NOT_FOUND
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.pages.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a path may hold a token."""


NOT_FOUND = HttpResponse(404, "There is no such page.\n")
