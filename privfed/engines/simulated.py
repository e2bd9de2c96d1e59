"""Gates of this process behind doors, so that an engine's processes reach them as they would others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from privfed.engines.carried import CarriedDisclosure
from privfed.engines.doors import Door, Doors
from privfed.engines.journal import Journal
from privfed.engines.local import LocalDisclosure
from privfed.engines.owner_side import OwnerSide
from privfed.exchange.channel import ChannelDisclosure

T = TypeVar("T")
Asked = TypeVar("Asked", bound=CarriedDisclosure)
#: Who asks, in a simulation.
PRINCIPAL = "server"


@contextmanager
def behind_doors(federation: LocalDisclosure) -> Iterator[Mapping[str, Path]]:
    """Open a door for each gate of a federation; give their paths by client."""
    with TemporaryDirectory(prefix="privfed-") as folder, ExitStack() as opened:
        paths = {
            name: Path(folder) / f"site-{number + 1}"
            for number, name in enumerate(federation.gates)
        }
        for name, gate in federation.gates.items():
            answer: Callable[[bytes], bytes] = partial(OwnerSide(gate).answer, principal=PRINCIPAL)
            opened.enter_context(Door(paths[name], answer))
        yield paths


def asked_over(federation: LocalDisclosure, make: Callable[..., Asked]) -> Asked:
    """Make the disclosure of an engine over a federation's gates: its clients, heads and session.

    Args:
        federation: whose gates are behind doors.
        make: takes schema, clients, heads and a journal.
    """
    return make(
        federation.schema,
        federation.clients,
        heads=federation.heads,
        journal=Journal(session=federation.session),
    )


def doors(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Straight through the doors, as an engine's processes would, without one."""
    with behind_doors(federation) as paths:
        return job(asked_over(federation, partial(CarriedDisclosure, carry=Doors(paths))))
