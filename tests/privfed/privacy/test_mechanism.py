"""What mechanisms share: joint bounds, deviations, and masks with nothing underneath."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.privacy.laws import law_of
from privfed.privacy.mechanism import WIDEST, BoundedPart, joint, unmasked, within_range
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Bound, Part, PartType


def bounded(bound: Bound | None) -> BoundedPart:
    """A part of counts with a bound."""
    return BoundedPart(Part(PartType.COUNTS, ("bin",), (3,)), bound)


def test_joint_bounds_add_up() -> None:
    """One release of two parts moves by both."""
    group = {"a": bounded(Bound(1, 1)), "b": bounded(Bound(3, 5))}
    assert joint(group) == Bound(4, 6)
    assert joint({}) == Bound(0, 0)


def test_no_joint_bound_without_each() -> None:
    """One part without a bound leaves the group without one."""
    with pytest.raises(ValueError, match="'b' has no finite"):
        joint({"a": bounded(Bound(1, 1)), "b": bounded(None)})


@pytest.mark.parametrize(
    ("law", "parameter"),
    [("laplace", 2.5), ("gaussian", 2.5), ("gaussian", 0.4), ("gaussian", 30.0), ("flip", 0.2)],
)
def test_deviation_is_that_of_the_noise(law: str, parameter: float) -> None:
    """The stated deviation is met by drawing (within 2 %, some 5 standard errors)."""
    noise = TestNoise(1)
    draws = {
        "laplace": lambda: noise.laplace(200_000, parameter),
        "gaussian": lambda: noise.gaussian(200_000, parameter),
        "flip": lambda: np.random.default_rng(1).random(200_000) < parameter,
    }[law]()
    assert draws.std() == pytest.approx(law_of(law, repr(parameter)).std, rel=0.02)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), WIDEST * 2])
def test_noise_that_integers_cannot_hold(scale: float) -> None:
    """Noise so wide that a sampler saturates is refused: it would give the value away."""
    with pytest.raises(ValueError, match="64-bit"):
        within_range(scale)
    assert within_range(WIDEST) == WIDEST


def test_nothing_lies_under_a_mask() -> None:
    """A suppressed cell is overwritten, not merely hidden; the source stays as it was."""
    exact = np.array([5, 7, 9])
    hidden = unmasked(exact, np.array([False, True, False]))
    assert hidden.data.tolist() == [5, 0, 9]
    assert hidden.mask.tolist() == [False, True, False]
    assert exact.tolist() == [5, 7, 9]
    assert not unmasked(exact).mask.any()
