"""Serve this process's gates by sockets, for an engine's processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from privfed.engines.journal import Journal
from privfed.engines.local import LocalDisclosure
from privfed.engines.owner_side import OwnerSide
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier, SocketServer
from privfed.exchange.channel import ChannelDisclosure

T = TypeVar("T")
Remote = TypeVar("Remote", bound=RemoteDisclosure)
PRINCIPAL = "server"  #: The principal of a simulation
SITES = 8  #: Maximum sites for the owners in an engine with one process per site


@contextmanager
def behind_sockets(federation: LocalDisclosure) -> Iterator[Mapping[str, Path]]:
    """Open a socket for each gate of a federation; yield their paths by client."""
    with TemporaryDirectory(prefix="privfed-") as folder, ExitStack() as opened:
        paths = {
            name: Path(folder) / f"site-{number % SITES + 1}.{number // SITES}"
            for number, name in enumerate(federation.gates)
        }
        for name, gate in federation.gates.items():
            answer: Callable[[bytes], bytes] = partial(OwnerSide(gate).answer, principal=PRINCIPAL)
            opened.enter_context(SocketServer(paths[name], answer))
        yield paths


def remote_over(federation: LocalDisclosure, make: Callable[..., Remote]) -> Remote:
    """Build an engine's disclosure over a federation's gates, with its clients, heads, session, privacy and a journal."""
    return make(
        federation.schema,
        federation.clients,
        heads=federation.heads,
        journal=Journal(session=federation.session),
        privacy=federation.privacy,
    )


def sockets(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Run a job directly over the sockets, without an engine."""
    with behind_sockets(federation) as paths:
        return job(remote_over(federation, partial(RemoteDisclosure, carry=SocketCarrier(paths))))
