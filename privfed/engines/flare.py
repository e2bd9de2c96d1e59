"""NVIDIA FLARE as the engine, by its Collab interface; a site passes bytes to its owner's socket."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep
from typing import Any, TypeVar

from nvflare.collab import CollabRecipe, collab

from privfed.engines.directory import Directory
from privfed.engines.local import LocalDisclosure
from privfed.engines.relay import Relay, relay
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.simulated import SITES, behind_sockets, remote_over
from privfed.engines.sockets import MAX_CONNECTIONS, call_socket
from privfed.errors import InputError
from privfed.exchange.channel import ChannelDisclosure
from privfed.tables.schema import Schema

T = TypeVar("T")
#: Environment variables of a site with its owner's socket, the earlier name last; ``{site}`` and ``{caller}`` are names
#: authenticated by the engine, and ``{place}``, only in a simulation, is one of several owners behind a site.
SOCKETS = ("PRIVFED_SOCKET", "PRIVFED_DOOR")
LIFE, BEGIN = 3600.0, 120.0  #: Maximum seconds of a call at a site, and of a simulation's start


class FlareDisclosure(RemoteDisclosure):
    """A federation on FLARE, with the owners' own names; created inside a Collab server's main function."""

    def __init__(self, schema: Schema, clients: Sequence[str], /, **options: Any) -> None:
        super().__init__(schema, clients, sites(clients), **options)


def sites(clients: Sequence[str], each: int = 1) -> Directory[tuple[str, int]]:
    """Return the directory of the job's sites; call it inside a Collab server's main function.

    In a simulation, ``each`` owners share a site.
    """
    proxies = {(proxy.name, index): proxy for proxy in collab.clients for index in range(each)}

    def send(
        batches: Mapping[tuple[str, int], bytes], seconds: float
    ) -> Iterator[tuple[tuple[str, int], bytes]]:
        def one(node: tuple[str, int]) -> tuple[tuple[str, int], bytes]:
            called = proxies[node](timeout=max(seconds, 0.001), optional=True)
            index = {} if each == 1 else {"place": node[1]}
            try:
                reply = called.ask(batch=batches[node], **index)
            except Exception:  # any error of the site
                reply = b""
            return node, reply if isinstance(reply, bytes) else b""

        with ThreadPoolExecutor(min(MAX_CONNECTIONS, len(batches) or 1)) as threads:
            for done in as_completed([threads.submit(one, node) for node in batches]):
                yield done.result()

    return Directory(clients, nodes=lambda: proxies, send=send)


class Site:
    """A site's side: passes bytes to its owner's socket, and does nothing else."""

    @collab.publish  # type: ignore[untyped-decorator, unused-ignore]
    def ask(self, batch: bytes, place: int = 0) -> bytes:
        """Call the socket for an authenticated caller."""
        try:
            named = next(filter(None, map(os.environ.get, SOCKETS)))
            socket = named.format(site=collab.site_name, caller=collab.caller, place=place)
            return call_socket(socket, batch, seconds=LIFE)
        except Exception:
            return b""


class Relaying:
    """A server's side that carries another local process's batches, by its relay."""

    def __init__(self, socket: str, clients: list[str], each: int = 1) -> None:
        self.socket, self.clients, self.each = socket, clients, each

    @collab.main  # type: ignore[untyped-decorator, unused-ignore]
    def run(self) -> None:
        """Carry batches until the relay ends."""
        relay(self.socket, sites(self.clients, self.each))


def simulate(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Run a job in FLARE's simulator, with one process per site, at most :data:`.SITES`."""
    with behind_sockets(federation) as paths, TemporaryDirectory(prefix="privfed-") as folder:
        socket = Path(folder) / "relay"
        template = next(iter(paths.values())).with_name("{site}.{place}")
        command = [sys.executable, "-m", __name__, folder, str(socket), *federation.clients]
        with (Path(folder) / "log").open("wb") as log:
            engine = subprocess.Popen(
                command, env={**os.environ, SOCKETS[0]: str(template)}, stdout=log, stderr=log
            )
        try:
            _begun(socket, engine)
            try:
                return job(remote_over(federation, partial(RemoteDisclosure, carry=Relay(socket))))
            finally:  # the simulator's own processes end with its job only
                Relay(socket).end()
                engine.wait(BEGIN)
        finally:
            engine.kill()
            engine.wait()


def _begun(socket: Path, engine: subprocess.Popen[bytes]) -> None:
    latest = monotonic() + BEGIN
    while not socket.is_socket():
        if engine.poll() is not None or monotonic() > latest:
            raise InputError("FLARE's simulator did not begin; run its own hello-world to see why")
        sleep(0.05)


def recipe(server: Any, sites: int) -> Any:
    """Build a job from a server's object and a number of sites, which use their installed privfed."""
    made = CollabRecipe("study", server=server, client=Site(), min_clients=sites)
    made._job.set_app_packages(["privfed"])
    return made


def _end_with(parent: int, socket: str) -> None:
    """End the job once the process that waits for it was killed."""
    while os.getppid() == parent:
        sleep(1)
    while True:  # it may not have begun
        Relay(socket).end()
        sleep(1)


def _simulator(folder: str, socket: str, clients: list[str]) -> None:
    from nvflare.recipe import SimEnv

    Thread(target=_end_with, args=(os.getppid(), socket), daemon=True).start()
    number = min(SITES, len(clients))
    job = recipe(Relaying(socket, clients, -(-len(clients) // number)), number)
    job.execute(SimEnv(num_clients=number, workspace_root=folder))


if __name__ == "__main__":
    # Classes are sent by module name, which differs in this process.
    import_module("privfed.engines.flare")._simulator(sys.argv[1], sys.argv[2], sys.argv[3:])
