"""The noise library's own word on what a release costs, beside the mechanism's.

A mechanism's charge is exact; OpenDP's measurement with the same noise states its privacy loss by a
map that rounds outward. The two may differ by :data:`TOLERANCE`, relatively; a charge below that is
a fault of the mechanism, and nothing is released for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_randomized_response_bool
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import OpenDPException, enable_features

from privfed.errors import PluginError
from privfed.privacy.loss import Law, Loss
from privfed.privacy.mechanism import BoundedPart, Protection, joint

#: How far a map may exceed an exact charge, relatively: it works in floats and rounds outward.
TOLERANCE = 1e-6

enable_features("contrib")
_INTEGERS = vector_domain(atom_domain(T="i64"))


@lru_cache(maxsize=1024)
def mapped(law: Law) -> tuple[str, float] | None:
    """What OpenDP's measurement with this noise costs: ``epsilon`` or ``rho``, and how much.

    None where OpenDP has no such measurement (or none in floats).
    """
    try:
        return _MAPS[law[0]](*law[1:])
    except (KeyError, TypeError, ValueError, OverflowError, OpenDPException):
        return None


def _laplace(units: str, scale: str) -> tuple[str, float]:
    measurement: Any = make_laplace(_INTEGERS, l1_distance(T="i64"), scale=float(scale))
    return "epsilon", float(measurement.map(int(units)))


def _gaussian(squared: str, sigma: str) -> tuple[str, float]:
    measurement: Any = make_gaussian(_INTEGERS, l2_distance(T="f64"), scale=float(sigma))
    return "rho", float(measurement.map(math.sqrt(int(squared))))


def _randomized_response(flip: str, bits: str) -> tuple[str, float]:
    truth = float(1 - Fraction(flip))
    measurement: Any = make_randomized_response_bool(prob=truth)
    return "epsilon", float(measurement.map(1)) * int(bits)


_MAPS = {
    "laplace": _laplace,
    "gaussian": _gaussian,
    "randomized-response": _randomized_response,
}


def checked(mechanism: str, priced: Protection) -> Protection:
    """Hold what a mechanism says a release costs against the laws of its noise.

    Where it names several laws, of noise on several grids, their sensitivities and what OpenDP's
    maps say of them add up.

    Args:
        mechanism: its name, for the message.
        priced: what its ``price`` gave, for the parts with the bounds that the gate derived.

    Returns:
        the same, its loss in exact numbers.

    Raises:
        PluginError: its loss is none, negative or not finite, its laws forget some of the
            sensitivity, or OpenDP's maps for them say that it costs more.
    """
    name = f"mechanism {mechanism!r}"
    if not isinstance(priced, Protection) or not isinstance(priced.loss, Loss):
        raise PluginError(f"{name}: price must give a Protection with a Loss")
    sound = Loss.from_dict(priced.loss.to_dict())
    stated = [(law, told) for law in sound.laws if (told := mapped(law)) is not None]
    kinds = sorted({law[0] for law, _ in stated})
    known = len(kinds) == 1 and len(stated) == len(sound.laws)
    if known and sum(map(_units, sound.laws)) < _derived(kinds[0], priced.group):
        raise PluginError(f"{name}: its noise is for a smaller sensitivity")
    for measure in ("epsilon", "rho"):
        most = sum(cost for _, (measured, cost) in stated if measured == measure)
        charged = getattr(sound, measure)
        if most and (charged is None or most > float(charged) * (1 + TOLERANCE)):
            raise PluginError(f"{name}: charges less than OpenDP's map says")
    return replace(priced, loss=sound)


def _units(law: Law) -> int:
    return int(law[2] if law[0] == "randomized-response" else law[1])


def _derived(kind: str, group: Mapping[str, BoundedPart]) -> int:
    bound = joint(group)
    return bound.l2_squared if kind == "gaussian" else bound.l1


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
