"""The noise library's own word on what a release costs, beside the mechanism's.

A mechanism's charge is exact; OpenDP's measurement with the same noise states its privacy loss by a
map that rounds outward. The two may differ by :data:`TOLERANCE`, relatively; a charge below that is
a fault of the mechanism, and nothing is released for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import opendp.prelude as dp

from privfed.errors import PluginError
from privfed.loss import Law, Loss
from privfed.mechanism import Guarded, joint

#: How far a map may exceed an exact charge, relatively: it works in floats and rounds outward.
TOLERANCE = 1e-6

dp.enable_features("contrib")
_INTEGERS = dp.vector_domain(dp.atom_domain(T="i64"))


@lru_cache(maxsize=1024)
def mapped(law: Law) -> tuple[str, float] | None:
    """What OpenDP's measurement with this noise costs: ``epsilon`` or ``rho``, and how much.

    None where OpenDP has no such measurement (or none in floats).
    """
    try:
        return _MAPS[law[0]](*law[1:])
    except (KeyError, TypeError, ValueError, OverflowError, dp.OpenDPException):
        return None


def _laplace(units: str, scale: str) -> tuple[str, float]:
    measurement: Any = dp.m.make_laplace(_INTEGERS, dp.l1_distance(T="i64"), scale=float(scale))
    return "epsilon", float(measurement.map(int(units)))


def _gaussian(squared: str, sigma: str) -> tuple[str, float]:
    measurement: Any = dp.m.make_gaussian(_INTEGERS, dp.l2_distance(T="f64"), scale=float(sigma))
    return "rho", float(measurement.map(math.sqrt(int(squared))))


def _randomized_response(flip: str, bits: str) -> tuple[str, float]:
    truth = float(1 - Fraction(flip))
    measurement: Any = dp.m.make_randomized_response_bool(prob=truth)
    return "epsilon", float(measurement.map(1)) * int(bits)


_MAPS = {
    "laplace": _laplace,
    "gaussian": _gaussian,
    "randomized-response": _randomized_response,
}


def checked(mechanism: str, loss: Loss, group: Mapping[str, Guarded]) -> Loss:
    """Hold what a mechanism says a release costs against the law of its noise.

    Args:
        mechanism: its name, for the message.
        loss: what its ``cost`` gave.
        group: the parts that it guards, with the bounds that the gate derived.

    Raises:
        PluginError: it is no loss, negative or not finite, its law forgets some of the sensitivity,
            or OpenDP's map for that law says that it costs more.
    """
    if not isinstance(loss, Loss):
        raise PluginError(f"mechanism {mechanism!r}: cost must give a Loss")
    sound = Loss.from_dict(loss.to_dict())
    for law in sound.laws:
        stated = mapped(law)
        if stated is None:
            continue
        if len(sound.laws) == 1 and _units(law) < _derived(law, group):
            raise PluginError(f"mechanism {mechanism!r}: its noise is for a smaller sensitivity")
        charged = getattr(sound, stated[0])
        if charged is None or stated[1] > float(charged) * (1 + TOLERANCE):
            raise PluginError(f"mechanism {mechanism!r}: charges less than OpenDP's map says")
    return sound


def _units(law: Law) -> int:
    return int(law[2] if law[0] == "randomized-response" else law[1])


def _derived(law: Law, group: Mapping[str, Guarded]) -> int:
    bound = joint(group)
    return bound.l2_squared if law[0] == "gaussian" else bound.l1


@lru_cache(maxsize=1)
def libraries() -> dict[str, str]:
    """Versions of what draws and accounts for noise, for the ledger."""
    found = {}
    for name in ("privfed", "opendp"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
