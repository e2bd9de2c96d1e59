"""Checks of a mechanism's stated cost against the core's own derivations.

The loss follows from the laws of the noise and the joint bounds of the parts. A law that is not proven here is checked
against its own probabilities, and OpenDP's maps, which round outward, are a further bound. Nothing is released for less
than any of these.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from privfed.errors import PluginError, number_of
from privfed.privacy.laws import Law, SumOfGaussians, in_use, mapped, named_as_another, proven
from privfed.privacy.loss import Loss, covers, lost
from privfed.privacy.mechanism import (
    WIDEST,
    BoundedPart,
    Mechanism,
    Protection,
    is_drawn_here,
    joint,
    spreads,
)
from privfed.questions.exact import apart
from privfed.questions.part import Bound

#: Relative tolerance of a map over an exact charge: it computes in floats and rounds outward.
TOLERANCE = 1e-6


def checked(mechanism: Mechanism, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
    """Return a mechanism's protection, after checking its stated price against laws and bounds.

    Bounds are those given here, not the plugin's; built-in laws are rebuilt from their parameters, so that methods set
    on an instance have no effect.

    Raises:
        PluginError: the price is no protection, its loss negative or not finite, or below the laws' joint loss,
            the loss by their own probabilities, or OpenDP's maps; or a part has no noise, or cells are masked,
            at a finite cost.
    """
    given = mechanism.price(group, spend)
    if type(given) is not Protection or not isinstance(given.stated, Loss | None):
        raise PluginError("price must give a Protection with a Loss")
    laws = {n: type(law)(*law.parameters) if proven(law) else law for n, law in given.laws.items()}
    stated = None if given.stated is None else Loss.from_dict(Loss.to_dict(given.stated))
    for law in set(laws.values()):
        _check_words(law)
    priced = Protection(mechanism, group, spend, laws, stated)
    sound = priced.loss
    if is_drawn_here(mechanism) and sound.finite:
        _check_all_is_noisy(priced)
    if not covers(sound):
        raise PluginError(f"states a cost below what the laws of its noise lose{_short(sound)}")
    for law in set(laws.values()):
        _check_law(law, priced)
    for measure in ("epsilon", "rho"):
        each = [mapped(law) for law in sound.laws if law.law.measure == measure]
        total_cost = sum(cost for cost in each if cost is not None)
        charged = getattr(sound, measure)
        if total_cost and (charged is None or total_cost > float(charged) * (1 + TOLERANCE)):
            raise PluginError("charges less than OpenDP's map says")
    return priced


def _check_all_is_noisy(priced: Protection) -> None:
    if priced.bare:
        raise PluginError(f"leaves part {priced.bare[0]!r} without noise, and states a finite cost")
    if priced.mechanism.suppresses:
        raise PluginError("masks cells by the data, which is not differential privacy")


def _short(loss: Loss) -> str:
    """Return in words by how much a loss is below its laws'; names a scale that was rounded down."""
    required = sum(map(lost, loss.laws), Loss.free())
    for name in ("epsilon", "rho"):
        stated, needed = getattr(loss, name), getattr(required, name)
        if stated is not None and needed is None:
            return f": they have no {name}"
        if stated is not None and stated < needed:
            if needed <= stated * (1 + Fraction(1, 10**9)):
                return ", by a rounding error: round its scale up (float_up)"
            return f": {name} {apart(float(stated), float(needed))}"
    return ""


def _check_words(law: Law) -> None:
    """Check that a user's law has its own name, and a known measure and norm."""
    if not isinstance(law, Law):
        raise PluginError(f"a law is derived from Law, which a {type(law).__name__} is not")
    if proven(law):
        return
    if law.measure not in ("epsilon", "rho") or law.norm not in (1, 2):
        raise PluginError(f"law {law.name!r}: measure is 'epsilon' or 'rho', and norm 1 or 2")
    if named_as_another(law):
        raise PluginError(
            f"law {law.name!r}: another one is installed by this name; choose another"
        )
    in_use(law)


def _check_law(law: Law, priced: Protection) -> None:
    """Check that a law covers its cells, and a user's law states at least the loss by its probabilities."""
    if proven(law) and law.additive and law.parameter > WIDEST:
        raise PluginError("64-bit integers cannot hold its noise")
    names = [n for n, part_law in priced.laws.items() if part_law == law and n not in priced.bare]
    for grid in {priced.group[name].part.grid for name in names}:
        hidden = [name for name in names if priced.group[name].part.grid == grid]
        parts = {name: priced.group[name] for name in hidden}
        cells, bound = sum(part_law.part.size for part_law in parts.values()), joint(parts)
        if isinstance(law, SumOfGaussians) and law.cells < cells:
            raise PluginError(f"law {law.name!r} is for {law.cells} cells, and hides {cells}")
        if not proven(law) and (fault := understated(law, bound, cells)):
            raise PluginError(fault)


@lru_cache(maxsize=256)
def understated(law: Law, bound: Bound, cells: int) -> str:
    """Return in words how a law's loss by its own probabilities exceeds the stated one; empty if not.

    Cells are independent, so that k cells that each change by d lose k times as much as one.
    Changes of this form within the bound are tried, which detects a law that is right for one cell
    only.
    """
    mass = np.asarray(law.log_mass(law.window))
    if mass.shape != law.window.shape or not (mass <= 1e-6).all():
        return f"law {law.name!r}: log_mass gives no log-probability for each point"
    for moved, step in spreads(bound, cells):
        units = moved * step**law.norm
        lost, stated = moved * law.worst(step), float(law.loses(units))
        if not lost <= stated * (1 + TOLERANCE) + 1e-9:
            what = number_of(moved, "cell")
            return f"law {law.name!r}: {what} moved by {step} lose {apart(lost, stated)}"
    return ""


@lru_cache(maxsize=1)
def libraries() -> dict[str, str]:
    """Return versions of the libraries that draw and account for noise, for the ledger."""
    versions = {}
    for name in ("privfed", "opendp"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return versions
