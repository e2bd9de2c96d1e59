"""Neighbouring data sets, and conversion of guarantees between neighbouring relations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from privfed.errors import UnsupportedLoss
from privfed.privacy.loss import Loss
from privfed.questions.exact import round_up
from privfed.questions.part import Relation, Unit


@dataclass(frozen=True)
class Neighbours:
    """Two data sets are neighbours if they differ in one unit."""

    relation: Relation = "add-or-remove"  #: the unit is added or removed, or replaced by another
    unit: Unit = "record"  #: the unit that differs
    cap: int | None = None  #: maximum records of one individual or client

    def steps(self, to: Neighbours) -> int:
        """Return how many steps of this relation lead between two neighbours under another.

        Replacing is removing and adding: two steps. An individual with at most ``cap`` records is
        ``cap`` steps of adding or removing a record; replacing records leads to no individual with
        another number of them. UnsupportedLoss: no number of steps is known.
        """
        same_unit = (self.unit, self.cap) == (to.unit, to.cap)
        if self.relation == "replace-one" and not (same_unit and to.relation == self.relation):
            raise UnsupportedLoss(
                "replacing never changes the number of units, so a replace-one guarantee says "
                "nothing of adding or removing one, nor of a person with another number of records"
            )
        steps = 1 if self.relation == to.relation else 2
        if same_unit:
            return steps
        if self.unit != "record" or to.unit not in ("individual", "client") or to.cap is None:
            raise UnsupportedLoss(
                f"no theorem leads from unit {self.unit!r} to {to.unit!r}"
                f"{' without a cap of records' if to.cap is None else ''}"
            )
        return steps * to.cap


def convert(loss: Loss, given: Neighbours, required: Neighbours) -> Loss:
    """Convert a loss to other neighbours by group privacy (UnsupportedLoss: no theorem applies)."""
    return group(loss, given.steps(required))


def group(loss: Loss, steps: int) -> Loss:
    """Return the loss for data sets that are ``steps`` neighbours apart.

    Pure epsilon: steps * epsilon (Dwork et al. 2006). rho-zCDP: steps^2 * rho (Bun and Steinke
    2016, Proposition 27). (epsilon, delta): steps * epsilon, with delta * (e^(steps epsilon) - 1) /
    (e^epsilon - 1) (Vadhan 2017, Lemma 2.2). Approximate zCDP has no such theorem
    (UnsupportedLoss).
    """
    if steps == 1 or not loss.counted:
        return loss
    delta, rho = loss.delta, None if loss.rho is None else loss.rho * steps**2
    epsilon = None if loss.epsilon is None else loss.epsilon * steps
    if delta:
        if loss.epsilon is None:
            raise UnsupportedLoss("approximate zCDP has no group privacy without an epsilon")
        rho, delta = None, _group_delta(loss.epsilon, delta, steps)
    laws = tuple(charged.times(steps) for charged in loss.laws)
    return Loss(epsilon, rho, delta, loss.unprotected, laws, loss.basis)


def _group_delta(epsilon: Fraction, delta: Fraction, steps: int) -> Fraction:
    """Return delta times 1 + e^epsilon + ... + e^((steps - 1) epsilon), avoiding overflow."""
    one = float(epsilon)
    largest = math.log(delta.numerator) - math.log(delta.denominator) + (steps - 1) * one
    terms = math.expm1(-steps * one) / math.expm1(-one) if one else steps  # relative to the last
    grown = round_up(math.exp(min(largest, 0.0)) * terms * (1 + 1e-12))
    if grown >= 1:
        raise UnsupportedLoss(f"delta grows to 1 or more over a group of {steps}")
    return grown
