"""Engines by their names, imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, TypeVar

from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError
from privfed.exchange.channel import ChannelDisclosure

T = TypeVar("T")
#: Where each engine's simulation is, and what installs it.
ENGINES = {
    "local": ("privfed.engines.named", "local", ""),
    "doors": ("privfed.engines.simulated", "doors", ""),
    "flower": ("privfed.engines.flower", "simulate", "flower"),
    "flare": ("privfed.engines.flare", "simulate", "flare"),
}


class Engine(Protocol):
    """What carries out a job over a federation whose gates are in this process."""

    def __call__(self, federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T], /) -> T:
        """Give the job something to ask, and its result back."""


def local(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """No engine: calls in one process."""
    return job(federation)


def engine(name: str) -> Engine:
    """Give the simulation of an engine.

    Raises:
        InputError: there is no such engine, or it is not installed.
    """
    if name not in ENGINES:
        raise InputError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    module, attribute, extra = ENGINES[name]
    try:
        found: Engine = getattr(import_module(module), attribute)
    except ImportError:
        raise InputError(
            f"engine {name!r} is not installed here; install privfed[{extra}]"
        ) from None
    return found
