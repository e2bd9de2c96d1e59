"""Audits of mechanism plugins: run one on two neighbouring inputs and look at what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from privfed.attacks.audit import Move, audit_moves
from privfed.attacks.bounds import gaussian_epsilon
from privfed.attacks.finding import Finding
from privfed.attacks.guessing import Claim
from privfed.attacks.scores import Truths
from privfed.errors import InputError
from privfed.privacy.conversion import to_epsilon
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection
from privfed.privacy.noise import Noise, SecureNoise
from privfed.questions.exact import Number, exact
from privfed.questions.part import Bound, Part, PartType

#: Least sensitivity, in grid units, at which Gaussian noise is audited. The Gaussian-DP inversion
#: is for continuous noise: at a deviation s, discrete noise overstates mu by a share of about
#: 1 / (12 s^2), which would convict honest noise on counts. Sigma is calibrated to any sensitivity
#: alike, so that a wider one tells as much.
WIDE = 256
#: Most bits of one unit that are audited, and most of those that are looked at one by one. Turning
#: fewer bits than the bound allows is no more than a neighbour may do, so that the claim must hold.
MOST_BITS, SEEN_BITS = 256, 31

#: Parts that one guard protects, with their bounds.
Group = Mapping[str, BoundedPart]


def bounded(
    type_: PartType = PartType.COUNTS, steps: int = 1, cells: int = 1
) -> dict[str, BoundedPart]:
    """A group of one part of ``cells`` cells, of which a record moves one by ``steps`` units."""
    return {"part": BoundedPart(Part(type_, ("cell",), (cells,)), Bound(steps, steps**2))}


def of_bits(bits: int, columns: int = 1) -> dict[str, BoundedPart]:
    """A group of one part of bits, a column a unit, of which a unit can change so many at most."""
    shape = (min(bits, MOST_BITS), columns)
    return {"part": BoundedPart(Part(PartType.BITS, ("bit", "unit"), shape), Bound(bits, bits))}


def is_for_bits(mechanism: Mechanism, steps: int = 1) -> bool:
    """Whether a mechanism is audited on bits: it is made for them, or supports no counts."""
    return "randomized" in mechanism.name or not mechanism.supports(bounded(steps=steps))


def unit_group(mechanism: Mechanism, steps: int) -> Group:
    """The group on which a mechanism is audited alone: one cell, or the bits of one unit."""
    return of_bits(steps) if is_for_bits(mechanism, steps) else bounded(steps=steps)


def outputs(
    mechanism: Mechanism, value: int, runs: int, spend: Fraction, noise: Noise, steps: int = 1
) -> np.ndarray:
    """Outputs of ``runs`` independent runs on a unit that holds ``value``.

    The runs are the cells of one call: the mechanism is told the bound of one cell, and noise is
    independent from cell to cell, so that this is a fast equal of calling it again and again. Of
    bits, ``steps`` is how many one unit can change: all of them are set, or none.

    Returns:
        shape (runs,), a number or a bit each; of several bits (runs, columns): how many of the
        answers are yes, which is the likelihood ratio's own order if all are flipped alike, and then
        the first few of them.
    """
    if not is_for_bits(mechanism, steps):
        group = bounded(PartType.COUNTS, steps, runs)
        return _protected(mechanism, np.full(runs, value), group, spend, noise)
    group = of_bits(steps, runs)
    if not mechanism.supports(group):
        raise InputError(f"mechanism {mechanism.name!r} supports neither counts nor bits")
    exact_bits = np.full(group["part"].part.shape, bool(value))
    answers = _protected(mechanism, exact_bits, group, spend, noise)
    if steps == 1:
        return np.asarray(answers[0])
    return np.vstack([answers.sum(axis=0), answers[:SEEN_BITS]]).T


def _protected(
    mechanism: Mechanism,
    exact: np.ndarray,
    group: dict[str, BoundedPart],
    spend: Fraction,
    noise: Noise,
) -> np.ndarray:
    return np.asarray(mechanism.price(group, spend).protect({"part": exact}, noise)["part"].data)


def claim_of(priced: Protection, delta: float) -> Claim:
    """What a mechanism's own price claims of a group: pure epsilon, or epsilon at a delta.

    Gaussian noise is recognised by the law that the mechanism publishes.

    Args:
        priced: the mechanism at work on the group.
        delta: where a claim in rho is stated.

    Raises:
        InputError: it gives no guarantee, or a claim in rho is stated at no delta.
    """
    loss, name = priced.loss, priced.mechanism.name
    if not loss.finite:
        raise InputError(f"mechanism {name!r} claims no guarantee to be audited")
    if loss.epsilon is not None:
        return Claim(float(loss.epsilon), float(loss.delta))
    if not 0 < delta < 1:
        raise InputError(f"mechanism {name!r} claims rho; give a delta above 0")
    rho = float(loss.rho or 0)
    if is_gaussian(priced):
        return Claim(gaussian_epsilon(math.sqrt(2 * rho), delta), delta, gaussian=True)
    return Claim(to_epsilon(rho, delta), delta)


def is_gaussian(priced: Protection) -> bool:
    """Whether all noise that a mechanism publishes for a group is Gaussian, and charged as such."""
    laws = {law.law for law in priced.noised.values()}
    return priced.mechanism.currency == "rho" and laws == {"gaussian"}


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

    A mechanism of bits is audited on ``steps`` bits that are all off against all on, so that one
    that forgets to share its spend among them is convicted.

    Args:
        mechanism: the mechanism; Gaussian noise is recognised by its currency ``rho``.
        spend: what one release spends, in the mechanism's currency.
        delta: where a claim in rho is stated; above 0 for such mechanisms.
        steps: how far a record moves the cell, in grid units; at least ``WIDE`` for claims in rho
            on counts. Of bits: how many one unit can change; at most ``MOST_BITS`` are turned.
        trials: outputs in all.
        alpha: how often an innocent mechanism may be convicted.
        noise: where noise comes from; secure unless a test injects its own.
        sample: gives the outputs; the default runs the mechanism on one cell.
    """
    amount, source = exact(spend, "spend"), noise or SecureNoise()
    priced = mechanism.price(unit_group(mechanism, steps), amount)
    if is_gaussian(priced):
        steps = max(steps, WIDE)
        priced = mechanism.price(unit_group(mechanism, steps), amount)
    alone = Move(
        "one cell",
        lambda runs: sample(mechanism, steps, runs, amount, source, steps),
        lambda runs: sample(mechanism, 0, runs, amount, source, steps),
        None if is_for_bits(mechanism, steps) else Truths(np.array([steps]), np.array([0])),
    )
    return audit_moves(
        [alone], claim_of(priced, delta), trials=trials, alpha=alpha, name=mechanism.name
    )
