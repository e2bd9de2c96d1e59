"""Read-only pages of ledgers for the owners' officer, on this machine only, for everyone with the address.

The server answers GET on the loopback interface under a path that starts with a token, runs no script, writes
nothing, and verifies the ledgers at each request.
"""

import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from privfed.errors import LedgerError
from privfed.exchange.messages import Head
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry
from privfed.ledger.verified_file import verified
from privfed.reports.ledger_pages import LedgerView, ledger_page, ledgers_page
from privfed.study import ledger_commands
from privfed.study.loopback import HOST, NOT_FOUND, HttpResponse, LoopbackServer


class LedgerServer(LoopbackServer):
    """Serves the pages of ledgers on a port of the loopback interface until it is closed.

    Args:
        folders: folders of persistent ledgers, studies' outputs, or ledgers' files.
        port: 0 takes a free one.
        witness: see :class:`.Registry`.

    Raises:
        InputError: a folder holds no ledgers, or the port is taken.
    """

    #: Pages are not stored or framed, load and run nothing, and links do not reveal the token.
    headers: ClassVar[Mapping[str, str]] = {
        **LoopbackServer.headers,
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    def __init__(self, folders: Sequence[Path], port: int = 0, witness: str = "") -> None:
        self.folders, self.registry = tuple(folders), Registry(witness=witness)
        self.registry.check_witness()
        self.token = secrets.token_urlsafe(24)
        for _ in self._files():  # raises errors now, not at the first request
            pass
        super().__init__(port)

    @property
    def url(self) -> str:
        """The address, including the token."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def answer(self, path: str) -> HttpResponse:
        """Return a page, or status 404."""
        text = self.page(path)
        return NOT_FOUND if text is None else HttpResponse(200, text, "text/html")

    def page(self, path: str) -> str | None:
        """Return the page at a URL's path; None if there is none, or the token is wrong."""
        parts = urlsplit(path)
        token, _, address = parts.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        files = list(self._files())
        if not address:
            return ledgers_page([self._view(*file, len(files)) for file in files])
        for file in files:
            if address == _page_path(*file[:2]):
                words = parse_qs(parts.query).get("words", [""])[0]
                return ledger_page(self._view(*file, len(files), words))
        return None

    def _files(self) -> Iterator[tuple[int, str, Path | None, list[Head]]]:
        """Yield each ledger once, with all its heads; outputs refer to persistent ledgers, too."""
        merged: dict[object, tuple[int, str, Path | None, list[Head]]] = {}
        for number, folder in enumerate(self.folders):
            if folder.is_file():
                ledger_commands.check_ledger_file(folder)
                ledgers = [ledger_commands.LedgerAt("", unquote(folder.stem), folder, [])]
            else:
                ledgers = list(ledger_commands.expected_ledgers(folder, self.registry))
            for ledger in ledgers:
                key = ledger.path.resolve() if ledger.path else (number, ledger.name)
                entry = merged.setdefault(key, (number, ledger.name, ledger.path, []))
                entry[3].extend(ledger.heads)
        yield from merged.values()

    def _view(
        self,
        number: int,
        name: str,
        path: Path | None,
        heads: list[Head],
        ledgers: int,
        words: str | None = None,
    ) -> LedgerView:
        address, folder = _page_path(number, name), self.folders[number]
        try:
            path = ledger_commands.check_exists(path, heads)
            state = verified(path, self.registry, heads)
            noise, convicted = ledger_commands.noise("", path, ledgers, heads)
            with closing(Ledger.read(path)) as ledger:
                view = LedgerView(
                    *(name, address, folder),
                    intact=ledger_commands.intact(state),
                    left=ledger_commands.remaining_text(ledger),
                    failed=ledger_commands.closed(ledger),
                    sentences=tuple(ledger_commands.budget(ledger, None).split("\n")),
                    noise=noise.removeprefix(": "),
                    convicted=convicted,
                )
                return view.read(ledger, words)
        except LedgerError as error:
            return LedgerView(name, address, folder, broken=str(error))


def _page_path(number: int, name: str) -> str:
    """Return the path of a ledger's page, after the token."""
    return f"{number}/{quote(name, safe='')}"
