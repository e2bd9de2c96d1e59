"""NVIDIA FLARE as the carrier, by its Collab interface: calls are pushed, and a round takes a fraction of
a second.

A site's process passes bytes through the door that its owner named in the environment, and does
nothing else. Needs the extra ``privfed[flare]``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, TypeVar

from nvflare.collab import CollabRecipe, collab

from privfed.engines.carried import CarriedDisclosure
from privfed.engines.directory import Directory
from privfed.engines.doors import CROWD, knock
from privfed.engines.local import LocalDisclosure
from privfed.engines.relay import Relay, relay
from privfed.engines.simulated import asked_over, behind_doors
from privfed.errors import InputError
from privfed.exchange.channel import ChannelDisclosure
from privfed.tables.schema import Schema

T = TypeVar("T")
#: In a site's environment: its owner's door; ``{site}`` and ``{caller}`` stand for the names that the
#: engine has authenticated.
DOOR = "PRIVFED_DOOR"
#: Seconds that a call may take at a site, and that a simulation may take to begin.
LIFE, BEGIN = 3600.0, 120.0


class FlareDisclosure(CarriedDisclosure):
    """A federation on FLARE; to be made inside a Collab server's main function.

    Args:
        schema: the public data dictionary.
        clients: the owners' names, as their own files say.
        rest: see :class:`.CarriedDisclosure`.
    """

    def __init__(self, schema: Schema, clients: Sequence[str], /, **rest: Any) -> None:
        super().__init__(schema, clients, sites(clients), **rest)


def sites(clients: Sequence[str]) -> Directory[str]:
    """Carry batches by the job's sites; called inside a Collab server's main function."""
    proxies = {proxy.name: proxy for proxy in collab.clients}

    def send(batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        def one(site: str) -> tuple[str, bytes]:
            called = proxies[site](timeout=max(seconds, 0.001), optional=True)
            return site, called.ask(batch=batches[site]) or b""

        with ThreadPoolExecutor(min(CROWD, len(batches) or 1)) as threads:
            return dict(threads.map(one, batches))

    return Directory(clients, nodes=lambda: proxies, send=send)


class Site:
    """A site's side: bytes pass through its owner's door, and nothing else happens here."""

    @collab.publish  # type: ignore[untyped-decorator, unused-ignore]
    def ask(self, batch: bytes) -> bytes:
        """Knock at the door for an authenticated caller."""
        try:
            door = os.environ[DOOR].format(site=collab.site_name, caller=collab.caller)
            return knock(door, batch, seconds=LIFE)
        except Exception:
            return b""


class Relaying:
    """A server's side that carries what another process of its machine asks.

    Args:
        door: where that process knocks.
        clients: the owners' names.
    """

    def __init__(self, door: str, clients: list[str]) -> None:
        self.door, self.clients = door, clients

    @collab.main  # type: ignore[untyped-decorator, unused-ignore]
    def run(self) -> None:
        """Carry until there is nothing more to carry."""
        relay(self.door, sites(self.clients))


def simulate(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Carry out a job in FLARE's simulator, a process for each gate of this one.

    Raises:
        InputError: the simulator did not begin.
    """
    with behind_doors(federation) as paths, TemporaryDirectory(prefix="privfed-") as folder:
        door = Path(folder) / "relay"
        template = next(iter(paths.values())).with_name("{site}")
        command = [sys.executable, "-m", __name__, folder, str(door), *federation.clients]
        with (Path(folder) / "log").open("wb") as log:
            engine = subprocess.Popen(
                command, env={**os.environ, DOOR: str(template)}, stdout=log, stderr=log
            )
        try:
            _begun(door, engine)
            done = job(asked_over(federation, partial(CarriedDisclosure, carry=Relay(door))))
            Relay(door).end()
            engine.wait(BEGIN)
        finally:
            engine.kill()
            engine.wait()
        return done


def _begun(door: Path, engine: subprocess.Popen[bytes]) -> None:
    latest = monotonic() + BEGIN
    while not door.is_socket():
        if engine.poll() is not None or monotonic() > latest:
            raise InputError("FLARE's simulator did not begin; run its own hello-world to see why")
        sleep(0.05)


def recipe(server: Any, clients: Sequence[str]) -> Any:
    """Make the job of a server's object and the sites, none of which brings privfed along.

    What a job brought along would hide what is installed: sites and server install privfed themselves.
    """
    made = CollabRecipe("study", server=server, client=Site(), min_clients=len(clients))
    made._job.set_app_packages(["privfed"])
    return made


def _simulator(folder: str, door: str, clients: list[str]) -> None:
    from nvflare.recipe import SimEnv

    job = recipe(Relaying(door, clients), clients)
    job.execute(SimEnv(num_clients=len(clients), workspace_root=folder))


if __name__ == "__main__":
    # Classes travel by their module's name, which this process has another one for.
    import_module("privfed.engines.flare")._simulator(sys.argv[1], sys.argv[2], sys.argv[3:])
