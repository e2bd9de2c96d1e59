"""Mechanisms without a guarantee say so: open, refuse, nullify."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privfed.mechanisms.unprotected import Nullify, Open, Refuse
from privfed.privacy.mechanism import BoundedPart, Mechanism
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Part, PartType

GROUP = {"counts": BoundedPart(Part(PartType.COUNTS, ("bin",), (3,)), None)}
EXACT = {"counts": np.array([1, 5, 2])}
FEW = {"counts": np.array([True, False, True])}


@pytest.mark.parametrize("mechanism", [Open(), Nullify(), Nullify(strict=True)])
def test_the_loss_is_unprotected(mechanism: Mechanism) -> None:
    """No finite number stands for them, and each says why."""
    loss = mechanism.price(GROUP, Fraction(1)).loss
    assert not loss.finite
    assert loss.unprotected
    assert (loss.epsilon, loss.rho) == (None, None)
    assert mechanism.price(GROUP, Fraction(1)).laws == {}


def test_open_is_exact() -> None:
    """Nothing is added, and nothing suppressed."""
    released = Open().price(GROUP, Fraction(0)).protect(EXACT, TestNoise(1), FEW)["counts"]
    assert released.tolist() == [1, 5, 2]


def test_nullify_suppresses_what_reveals() -> None:
    """Revealing cells are masked and zero; a part without a mask is released."""
    released = Nullify().price(GROUP, Fraction(0)).protect(EXACT, TestNoise(1), FEW)["counts"]
    assert released.tolist() == [None, 5, None]
    assert released.data.tolist() == [0, 5, 0]
    whole = Nullify().price(GROUP, Fraction(0)).protect(EXACT, TestNoise(1), {})["counts"]
    assert whole.tolist() == [1, 5, 2]


def test_refuse_supports_nothing() -> None:
    """An explicit no."""
    assert not Refuse().supports(GROUP)
    assert Open().supports(GROUP)


def test_strict_is_asked_for() -> None:
    """The wider rule is an option."""
    assert Nullify(strict=True).strict
    assert not Nullify().strict
