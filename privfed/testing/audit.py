"""Audits of mechanism plugins: run one on two neighbouring inputs and look at what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from privfed.attacks.audit import audit_mechanism
from privfed.attacks.bounds import gaussian_epsilon
from privfed.conversion import to_epsilon
from privfed.errors import InputError
from privfed.exact import Number, exact
from privfed.finding import Finding
from privfed.mechanism import Guarded, Mechanism
from privfed.noise import Noise, SecureNoise
from privfed.part import Bound, Part, PartType

#: Least deviation, in grid units, at which discrete Gaussian noise is judged by the continuous law.
SMOOTH = 1.0


def guarded(
    type_: PartType = PartType.COUNTS, steps: int = 1, cells: int = 1
) -> dict[str, Guarded]:
    """A group of one part of ``cells`` cells, of which a record moves one by ``steps`` units."""
    return {"part": Guarded(Part(type_, ("cell",), (cells,)), Bound(steps, steps**2))}


def outputs(
    mechanism: Mechanism, value: int, runs: int, spend: Fraction, noise: Noise, steps: int = 1
) -> np.ndarray:
    """Outputs of ``runs`` independent runs on a part of one cell that holds ``value``, shape (runs,).

    The runs are the cells of one call: the mechanism is told the bound of one cell, and noise is
    independent from cell to cell, so that this is a fast equal of calling it again and again.
    """
    bits = "randomized" in mechanism.name or not mechanism.supports(guarded(steps=steps))
    group = guarded(PartType.BITS if bits else PartType.COUNTS, steps, runs)
    if not mechanism.supports(group):
        raise InputError(f"mechanism {mechanism.name!r} supports neither counts nor bits")
    values = np.full(runs, bool(value) if bits else value)
    return np.asarray(mechanism.protect({"part": values}, group, spend, noise, {})["part"].data)


def claim(mechanism: Mechanism, spend: Fraction, delta: float, steps: int = 1) -> float:
    """The epsilon that the mechanism's own cost claims at ``delta``; infinite for no guarantee."""
    bits = not mechanism.supports(guarded(steps=steps))
    loss = mechanism.cost(guarded(PartType.BITS if bits else PartType.COUNTS, steps), spend)
    if loss.epsilon is not None:
        return float(loss.epsilon)
    if loss.rho is None:
        return math.inf
    if not loss.rho:
        return 0.0
    if not smooth(mechanism, spend, steps):
        return to_epsilon(float(loss.rho), delta)
    return gaussian_epsilon(math.sqrt(2 * float(loss.rho)), delta)


def smooth(mechanism: Mechanism, spend: Fraction, steps: int = 1) -> bool:
    """Whether noise is Gaussian and wide enough for the curve of the continuous law.

    On the integers narrow noise tells neighbours apart better than a continuous one of the same
    rho: at sigma 0.71 and delta 1e-5 its epsilon is 6.85, and not 6.57.
    """
    laws = mechanism.noised(guarded(steps=steps), spend).values()
    return any("gaussian" in law.law and law.parameter >= SMOOTH for law in laws)


def audit(
    mechanism: Mechanism,
    spend: Number,
    *,
    delta: float = 0.0,
    steps: int = 1,
    trials: int = 100_000,
    alpha: float = 0.05,
    noise: Noise | None = None,
    sample: Callable[..., np.ndarray] = outputs,
) -> Finding:
    """Audit a mechanism plugin at its own claim, on a cell of 0 against one of ``steps``.

    Args:
        mechanism: the mechanism; Gaussian noise is recognised by its published law.
        spend: what one release spends, in the mechanism's currency.
        delta: where a claim in rho is stated; above 0 for such mechanisms.
        steps: how far a record moves the cell, in grid units.
        trials: outputs in all.
        alpha: how often an innocent mechanism may be convicted.
        noise: where noise comes from; secure unless a test injects its own.
        sample: gives the outputs; the default runs the mechanism on one cell.
    """
    amount, source = exact(spend, "spend"), noise or SecureNoise()
    return audit_mechanism(
        lambda runs: sample(mechanism, steps, runs, amount, source, steps),
        lambda runs: sample(mechanism, 0, runs, amount, source, steps),
        claim(mechanism, amount, delta, steps),
        delta=delta,
        trials=trials,
        alpha=alpha,
        gaussian=smooth(mechanism, amount, steps),
        name=mechanism.name,
    )
