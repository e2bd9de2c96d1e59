"""Engines by their names, imported only when one is asked for."""

from __future__ import annotations

from importlib import import_module

from privfed.engines.simulated import Engine
from privfed.errors import InputError

#: Where each engine's simulation is, and what installs it.
ENGINES = {
    "local": ("privfed.engines.simulated", "local", ""),
    "doors": ("privfed.engines.simulated", "doors", ""),
    "flower": ("privfed.engines.flower", "simulate", "flower"),
    "flare": ("privfed.engines.flare", "simulate", "flare"),
}


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
