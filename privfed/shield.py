"""A policy's guards at work on one query: which parts each protects, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from privfed.errors import PluginError, PolicyError
from privfed.loss import Loss
from privfed.maps import checked, libraries, mapped
from privfed.mechanism import Guarded, Mechanism, Noised
from privfed.part import Part, PartType
from privfed.policy import Guard, Policy
from privfed.records import Records
from privfed.release import Reason, ReleasedPart


@dataclass(frozen=True)
class Shield:
    """A guard at work on one query: its mechanism, the parts it protects, and the spend."""

    mechanism: Mechanism
    group: Mapping[str, Guarded]
    spend: Fraction

    @cached_property
    def loss(self) -> Loss:
        """What the mechanism says this release costs, without data."""
        return self.mechanism.cost(self.group, self.spend)


class Refused(Exception):
    """Carries a reason out of the checks, and a word to the owner; nothing has happened yet."""

    def __init__(self, reason: Reason, why: str = "") -> None:
        super().__init__(reason)
        self.reason, self.why = reason, why


def assign(guards: Sequence[Guard], parts: Iterable[str]) -> list[list[str]]:
    """Give each guard its parts; parts that no guard covers are withheld."""
    names = list(parts)
    named = {name for guard in guards for name in guard.parts}
    return [
        [n for n in names if n in guard.parts or ("*" in guard.parts and n not in named)]
        for guard in guards
    ]


def sound(shield: Shield) -> Loss:
    """What a release costs, unless its mechanism states what cannot be right."""
    name = shield.mechanism.name
    try:
        return checked(name, shield.loss, shield.group)
    except PluginError as error:
        raise Refused(Reason.UNSOUND, str(error)) from None
    except Exception as error:
        why = f"mechanism {name!r}: its cost is no finite exact number ({type(error).__name__})"
        raise Refused(Reason.UNSOUND, why) from None


def described(shields: Sequence[Shield], loss: Loss) -> dict[str, Any]:
    """What a ledger's line says of a release's noise: who made it, and OpenDP's own word on it."""
    return {
        "mechanisms": {name: shield.mechanism.name for shield in shields for name in shield.group},
        "maps": [list(stated) for law in loss.laws if (stated := mapped(law)) is not None],
        "libraries": libraries(),
    }


def is_local(shields: Sequence[Shield]) -> bool:
    """Whether each individual's own bits are noised: any input against any other."""
    parts = [guarded.part for shield in shields for guarded in shield.group.values()]
    return bool(parts) and all(
        part.type == PartType.BITS and part.sensitivity is not None and part.sensitivity.anything
        for part in parts
    )


def check_supported(shield: Shield) -> None:
    """Refuse what the mechanism cannot protect: the wrong parts, no spend, sizes that tell."""
    mechanism = shield.mechanism
    data_dependent = any(-1 in guarded.part.shape for guarded in shield.group.values())
    if not mechanism.supports(shield.group):
        raise Refused(Reason.UNSUPPORTED)
    if mechanism.currency is not None and (shield.spend <= 0 or data_dependent):
        raise Refused(Reason.UNSUPPORTED)


def as_declared(array: np.ndarray, part: Part) -> np.ndarray:
    """Hold an exact array against its declared shape and type."""
    shaped = array.ndim == len(part.shape) and all(
        declared in (-1, size) for declared, size in zip(part.shape, array.shape, strict=True)
    )
    if not shaped:
        raise ValueError("an array does not have its declared shape")
    if not part.exact:
        return array
    if array.dtype.kind == "f":
        if not np.array_equal(np.trunc(array), array):
            raise ValueError("an array on a grid must hold whole units")
        # where floats end being whole numbers; cutting there moves no two answers further apart
        array = np.clip(array, -(2.0**53), 2.0**53)
    whole: np.ndarray = array if array.dtype == bool else array.astype(np.int64)
    return whole


def as_released(
    array: np.ma.MaskedArray, part: Part, mechanism: str, noise: Noised | None
) -> ReleasedPart:
    """Wrap a protected array for release."""
    mask = np.ma.getmaskarray(array)
    kept = mask if mask.any() else None
    return ReleasedPart(
        part.type, part.axes, np.asarray(array.data), kept, part.grid, mechanism, noise
    )


def capped(records: Any, policy: Policy) -> Any:
    """No more records of one unit than the policy's cap, on which its guarantee stands.

    Raises:
        PolicyError: records that cannot be held to a cap.
    """
    if policy.cap is not None and not isinstance(records, Records):
        raise PolicyError(
            f"{type(records).__name__} cannot be held to a cap of records; leave cap out of the policy"
        )
    if policy.unit == "individual" and policy.cap is not None:
        return records.capped(policy.cap)
    if policy.unit == "client" and policy.cap is not None and len(records) > policy.cap:
        return records.take(np.arange(policy.cap))
    return records
