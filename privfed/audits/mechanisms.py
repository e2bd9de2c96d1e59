"""Audits of mechanism plugins on one cell, or on the bits of one unit."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.paired_trials import Move, audit_moves
from privfed.audits.test_statistics import Truths
from privfed.audits.threshold_tests import PrivacyClaim
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_epsilon, to_epsilon
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection
from privfed.privacy.noise import Noise, SecureNoise
from privfed.questions.exact import Number, exact
from privfed.questions.part import Bound, Part, PartType

#: Least sensitivity, in grid units, at which Gaussian noise is audited. The Gaussian-DP inversion
#: is for continuous noise: at standard deviation s, discrete noise overstates mu by about
#: 1 / (12 s^2) of it, which would reject correct noise on counts.
WIDE = 256
#: Most bits of one unit that are audited (the claim holds for fewer, too), and most examined one by one.
MOST_BITS, SEEN_BITS = 256, 31

Group = Mapping[str, BoundedPart]  #: Parts that one guard protects, with their bounds


def bounded(
    type_: PartType = PartType.COUNTS, steps: int = 1, cells: int = 1
) -> dict[str, BoundedPart]:
    """A group of one part of ``cells`` cells, of which a record moves one by ``steps`` units."""
    return {"part": BoundedPart(Part(type_, ("cell",), (cells,)), Bound(steps, steps**2))}


def of_bits(bits: int, columns: int = 1) -> dict[str, BoundedPart]:
    """A group of one part of bits, a column a unit, of which a unit can change ``bits``."""
    shape = (min(bits, MOST_BITS), columns)
    return {"part": BoundedPart(Part(PartType.BITS, ("bit", "unit"), shape), Bound(bits, bits))}


def is_for_bits(mechanism: Mechanism, steps: int = 1) -> bool:
    """Whether a mechanism is audited on bits: it is for bits by name, or supports no counts."""
    return "randomized" in mechanism.name or not mechanism.supports(bounded(steps=steps))


def unit_group(mechanism: Mechanism, steps: int) -> Group:
    """The group on which a mechanism is audited alone: one cell, or the bits of one unit."""
    return of_bits(steps) if is_for_bits(mechanism, steps) else bounded(steps=steps)


def outputs(
    mechanism: Mechanism, value: int, runs: int, spend: Fraction, noise: Noise, steps: int = 1
) -> np.ndarray:
    """Outputs of ``runs`` independent runs on a unit with this ``value``: the cells of one call.

    For bits, ``steps`` is the number that one unit can change: all of them are set, or none.

    Returns:
        shape (runs,), a number or a bit each; for several bits (runs, columns): the number of
        yes-answers, which is monotone in the likelihood ratio if all have one flip probability, then
        the first few answers.
    """
    bits = is_for_bits(mechanism, steps)
    group = of_bits(steps, runs) if bits else bounded(PartType.COUNTS, steps, runs)
    if not mechanism.supports(group):
        raise InputError(f"mechanism {mechanism.name!r} supports neither counts nor bits")
    row = np.full(group["part"].part.shape, bool(value) if bits else value)
    answers = np.asarray(mechanism.price(group, spend).protect({"part": row}, noise)["part"].data)
    if not bits:
        return answers
    if steps == 1:
        return np.asarray(answers[0])
    return np.vstack([answers.sum(axis=0), answers[:SEEN_BITS]]).T


def claim_of(priced: Protection, delta: float) -> PrivacyClaim:
    """The price's claim for a group: pure epsilon, or epsilon at a delta; InputError for none, or a rho without delta."""
    loss, name = priced.loss, priced.mechanism.name
    if not loss.finite:
        raise InputError(f"mechanism {name!r} claims no guarantee to be audited")
    if loss.epsilon is not None:
        return PrivacyClaim(float(loss.epsilon), float(loss.delta))
    if not 0 < delta < 1:
        raise InputError(f"mechanism {name!r} claims rho; give a delta above 0")
    rho = float(loss.rho or 0)
    if is_gaussian(priced):
        return PrivacyClaim(gaussian_epsilon(math.sqrt(2 * rho), delta), delta, gaussian=True)
    return PrivacyClaim(to_epsilon(rho, delta), delta)


def is_gaussian(priced: Protection) -> bool:
    """Whether all declared noise for a group is Gaussian, and charged as such."""
    laws = {law.name for law in priced.laws.values()}
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
    """Audit a mechanism plugin at its own claim, on a cell of 0 against one of ``steps``; for bits all off against all on.

    Args:
        spend: of one release, in the mechanism's currency.
        delta: at which a claim in rho is stated; above 0 for such mechanisms.
        steps: sensitivity of the cell, in grid units; at least ``WIDE`` for Gaussian noise.
            For bits: the number that one unit can change; at most ``MOST_BITS`` are changed.
        trials: outputs in all.
        alpha: probability of rejecting a correct mechanism's claim.
        noise: source of noise; secure by default.
        sample: returns the outputs; by default runs the mechanism on one cell.
    """
    amount, source = exact(spend, "spend"), noise or SecureNoise()
    priced = mechanism.price(unit_group(mechanism, steps), amount)
    if is_gaussian(priced):
        steps = max(steps, WIDE)
        priced = mechanism.price(unit_group(mechanism, steps), amount)
    move = Move(
        "one cell",
        lambda runs: sample(mechanism, steps, runs, amount, source, steps),
        lambda runs: sample(mechanism, 0, runs, amount, source, steps),
        None if is_for_bits(mechanism, steps) else Truths(np.array([steps]), np.array([0])),
    )
    return audit_moves(
        [move], claim_of(priced, delta), trials=trials, alpha=alpha, name=mechanism.name
    )
