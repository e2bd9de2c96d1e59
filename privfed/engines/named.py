"""Engines by name, imported on demand."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, TypeVar

from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError, unknown
from privfed.exchange.channel import ChannelDisclosure

T = TypeVar("T")
#: Module and name of each engine's simulation, and the extra that installs it.
ENGINES = {
    "local": ("privfed.engines.named", "local", ""),
    "sockets": ("privfed.engines.simulated", "sockets", ""),
    "flower": ("privfed.engines.flower", "simulate", "flower"),
    "flare": ("privfed.engines.flare", "simulate", "flare"),
}


class Engine(Protocol):
    """Runs a job over a federation whose gates are in this process."""

    def __call__(self, federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T], /) -> T:
        """Run the job on the engine's disclosure and return its result."""


def local(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Run a job by calls in one process."""
    return job(federation)


def engine(name: str) -> Engine:
    """Return the simulation of an engine (InputError: no such engine, or it is not installed)."""
    if name not in ENGINES:
        raise InputError(unknown("engine", name, ENGINES))
    module, attribute, extra = ENGINES[name]
    try:
        loaded: Engine = getattr(import_module(module), attribute)
    except ImportError:
        raise InputError(
            f"engine {name!r} is not installed here; install privfed[{extra}]"
        ) from None
    return loaded
