"""The mechanisms' kit: ours pass it through both sources of noise, planted faults do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.mechanisms.unprotected import Nullify, Open
from privfed.privacy.laws import Law
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protected, Protection
from privfed.privacy.noise import Noise, SecureNoise, TestNoise
from privfed.questions.exact import Number
from privfed.questions.part import Bound
from privfed.testing.check_mechanism import CHECKS, check_mechanism, hold_events
from privfed.testing.conformance import run_checks
from privfed.testing.faulty import SharedBetweenPartsLaplace, ThinCellLaplace
from tests.own_law import Mixture

#: Mechanisms with a guarantee, and a spend at which the audit is strong.
PROTECTED: list[tuple[Mechanism, Number]] = [
    (Laplace(), "0.5"),
    (Laplace(), 2),
    (Gaussian(), "0.5"),
    (Gaussian(), 1),
    (RandomizedResponse(), "0.5"),
    (RandomizedResponse(), 2),
]
EVERY = len(CHECKS)


@pytest.mark.parametrize(("mechanism", "spend"), PROTECTED)
def test_ours_conform(mechanism: Mechanism, spend: Number) -> None:
    """All thirteen checks, the audit among them, with seeded noise."""
    assert len(check_mechanism(mechanism, spend)) == EVERY == 13


@pytest.mark.parametrize(("mechanism", "spend"), PROTECTED)
def test_ours_conform_with_secure_noise(mechanism: Mechanism, spend: Number) -> None:
    """The same through the samplers that protect: a false alarm once in a million runs."""
    skip = dict.fromkeys(("group", "all_cells"), "a fast source stands for secure noise in these")
    ran = check_mechanism(mechanism, spend, noise=lambda seed: SecureNoise(), skip=skip)
    assert len(ran) == EVERY - len(skip)


@pytest.mark.parametrize("mechanism", [Open(), Nullify(), Nullify(strict=True)])
def test_the_unprotected_conform(mechanism: Mechanism) -> None:
    """They have no loss to audit, and the rest to keep."""
    assert len(check_mechanism(mechanism)) == EVERY


class Halved(Noise):
    """A planted fault: half the noise that was asked for, or half the lies."""

    secure = False

    def __init__(self, seed: int) -> None:
        self._noise = TestNoise(seed)

    def laplace(self, size: int, scale: float) -> np.ndarray:
        """Half the scale."""
        return self._noise.laplace(size, scale / 2)

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """Half the deviation."""
        return self._noise.gaussian(size, scale / 2)

    def bits(self, size: int, probability: Fraction) -> np.ndarray:
        """Half the probability, on the grid of 2^-64."""
        return self._noise.bits(size, Fraction(int(probability * 2**63), 2**64))


@pytest.mark.parametrize(("mechanism", "spend"), PROTECTED)
def test_halved_noise_is_caught_by_the_audit(mechanism: Mechanism, spend: Number) -> None:
    """The audit alone convicts half the noise, whatever the mechanism publishes."""
    skip = {"law_is_kept": "the audit must catch it by itself"}
    with pytest.raises(AssertionError, match="audit: No event tells neighbours apart"):
        check_mechanism(mechanism, spend, noise=Halved, skip=skip)


@pytest.mark.parametrize(("mechanism", "spend"), PROTECTED)
def test_halved_noise_is_caught_by_its_law(mechanism: Mechanism, spend: Number) -> None:
    """A published law that is not kept is caught before."""
    with pytest.raises(AssertionError, match="law_is_kept: "):
        check_mechanism(mechanism, spend, noise=Halved)


class Cheap(Laplace):
    """A planted fault: charges half of what it spends."""

    def loss(self, bound: Bound, spend: Fraction, scale: float) -> Loss:
        """Half."""
        return Loss.pure(spend / 2)


class Gullible(Laplace):
    """A planted fault: claims to protect what has no bound."""

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Anything."""
        return True

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """The spend, bound or not."""
        return Protection(self, group, spend, stated=Loss.pure(spend))


class Narrow(Laplace):
    """A planted fault: a scale a tenth of a percent too small, and published so."""

    def scale(self, bound: Bound, spend: Fraction) -> float:
        """Too small."""
        return super().scale(bound, spend) * 0.999


class Spendthrift(Laplace):
    """A planted fault: gives each grid the whole spend, and charges it once."""

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Noise for as many spends as there are grids."""
        grids = len({bounded.part.grid for bounded in group.values()})
        laws = super().price(group, spend * grids).laws
        return Protection(self, group, spend, laws, Loss.pure(spend))


class Peeking(Nullify):
    """A planted fault: hides cells and leaves the values underneath."""

    def protect(self, exact: Any, priced: Any, noise: Any, reveals: Any) -> Protected:
        """Masked, not overwritten."""
        return {name: np.ma.MaskedArray(exact[name].copy(), reveals[name]) for name in priced.group}


class Leaking(Open):
    """A planted fault: hands out the exact array itself."""

    def protect(self, exact: Any, priced: Any, noise: Any, reveals: Any) -> Protected:
        """The array itself."""
        return {name: np.ma.MaskedArray(exact[name]) for name in priced.group}


class Private(Laplace):
    """A planted fault: noise of its own."""

    def protect(self, exact: Any, priced: Any, noise: Any, reveals: Any) -> Protected:
        """Noise from elsewhere."""
        return super().protect(exact, priced, SecureNoise(), reveals)


class Shrinking(Open):
    """A planted fault: loses a cell."""

    def protect(self, exact: Any, priced: Any, noise: Any, reveals: Any) -> Protected:
        """One cell too few."""
        return {name: np.ma.MaskedArray(exact[name][1:].copy()) for name in priced.group}


class Fickle(Open):
    """A planted fault: another price each time."""

    def __init__(self) -> None:
        self.asked = 0

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """A reason that counts."""
        self.asked += 1
        return Protection(self, group, spend, stated=Loss.open(f"asked {self.asked} times"))


class Useless(Open):
    """A planted fault: supports nothing at all."""

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Nothing."""
        return False


class Clamped(Laplace):
    """Noisy counts are told as no less than zero: no fault."""

    def finish(
        self, noisy: Mapping[str, np.ndarray], priced: Protection
    ) -> Mapping[str, np.ndarray]:
        """Clamp."""
        return {name: np.maximum(array, 0) for name, array in noisy.items()}


class Rounded(Laplace):
    """A planted fault: each scale is the float that is nearest, which may lie below."""

    def scale(self, bound: Bound, spend: Fraction) -> float:
        """A hair."""
        return float(super().scale(bound, spend) * (1 - 2**-53))


class Unfinished(Laplace):
    """A planted fault: no price at all."""

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """A slip of the author's."""
        raise KeyError("price")


class OwnLaw(Laplace):
    """A law under test, at the scale of Laplace noise."""

    name = "own"

    def __init__(self, law: type[Law]) -> None:
        self.law = law  # type: ignore[misc]


class Fractional(Mixture):
    """A planted fault: noise off the grid."""

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """Halves."""
        return super().draw(noise, cells) / 2


class Undefined(Mixture):
    """A planted fault: probabilities that cannot refute it."""

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """No numbers."""
        return np.full(points.shape, np.nan)


class Namesake(Mixture):
    """A planted fault: a ledger would be read as if its noise were the Laplace law's."""

    name = "laplace"


class Unlike(Mixture):
    """A planted fault: draws of the right deviation by another law."""

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """Gaussian ones."""
        return noise.gaussian(cells, self.std)


class Unnormed(Mixture):
    """A planted fault: probabilities that add up to less than one."""

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """A third."""
        return super().log_mass(points) - math.log(3)


class OneForAll(Mixture):
    """A planted fault: one log-probability for all points."""

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """That of the first."""
        return super().log_mass(points)[:1]


class Failing(Laplace):
    """A planted fault: a delta of its own, which what is told of any release leaves out."""

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """At delta 1e-6."""
        priced = super().price(group, spend)
        assert priced.stated is not None
        stated = replace(priced.stated, rho=None, delta=Fraction(1, 10**6))
        return replace(priced, stated=stated)


class Cheapest(Laplace):
    """A planted fault: what dominates any release is half of one."""

    def dearest(self, spend: Fraction) -> Loss:
        """Half."""
        return Loss.pure(spend / 2)


class Reshaped(Laplace):
    """A planted fault: the mean of all cells for each part."""

    def finish(
        self, noisy: Mapping[str, np.ndarray], priced: Protection
    ) -> Mapping[str, np.ndarray]:
        """One number."""
        return {name: array.mean(keepdims=True) for name, array in noisy.items()}


class Unmeasured(Mixture):
    """A planted fault: a currency that there is not."""

    measure = "eps"  # type: ignore[assignment]


def test_what_is_finished_after_the_noise_conforms() -> None:
    """Deviations are those of the noise, not of what is told of it."""
    assert len(check_mechanism(Clamped())) == EVERY


@pytest.mark.parametrize(
    ("mechanism", "told"),
    [
        (Rounded(), "by a rounding error: round its scale up"),
        (Narrow(), r"noise lose: epsilon 1, not 1\.001"),
        (Unfinished(), "^cost_repeats: Pricing gives .* KeyError: 'price'"),
        (OwnLaw(Fractional), r"law 'mixture' draws float64 of shape \(200,\), not integers"),
        (OwnLaw(OneForAll), "log_mass gives no log-probability for each point"),
        (OwnLaw(Unnormed), r"log_mass add up to 0\.3333, not 1"),
        (OwnLaw(Unlike), "of draws are at most .* by log_mass"),
        (Reshaped(), r"finish must return part 'counts' as numbers of shape \(200,\)"),
        (OwnLaw(Undefined), "log_mass gives no log-probability for each point"),
        (OwnLaw(Namesake), "law 'laplace': another one is installed by this name"),
        (OwnLaw(Unmeasured), "measure is 'epsilon' or 'rho', and norm 1 or 2"),
    ],
)
def test_faults_are_told_in_words(mechanism: Mechanism, told: str) -> None:
    """The author reads what to write instead, whatever was raised."""
    with pytest.raises(AssertionError, match=told):
        check_mechanism(mechanism)


@pytest.mark.parametrize(
    ("mechanism", "check"),
    [
        (Cheap(), "currency"),
        (Cheapest(), "currency"),
        (Failing(), "currency"),
        (Gullible(), "unbounded_is_unprotected"),
        (Narrow(), "scale_is_exact"),
        (Spendthrift(), "scale_is_exact"),
        (Peeking(), "masks_hold_zero"),
        (Leaking(), "input_is_left"),
        (Private(), "noise_is_the_sources"),
        (Shrinking(), "shapes"),
        (Fickle(), "cost_repeats"),
        (Useless(), "supports_something"),
        (SharedBetweenPartsLaplace(), "group"),
        (ThinCellLaplace(), "group"),
    ],
)
def test_each_fault_is_caught(mechanism: Mechanism, check: str) -> None:
    """Every check has a fault that it, by name, catches."""
    with pytest.raises(AssertionError, match=f"^{check}: "):
        check_mechanism(mechanism)


def test_skipping_needs_a_reason() -> None:
    """A check is skipped by its name and with a reason, or not at all."""
    assert len(check_mechanism(Open(), skip={"audit": "nothing to audit"})) == EVERY - 1
    for skip in ({"audit": " "}, {"no such check": "because"}):
        with pytest.raises(ValueError, match="skip needs a reason"):
            run_checks(CHECKS, None, skip)


@pytest.mark.parametrize(("excess", "seen"), [(0.13, True), (0.0, False)])
def test_the_power_of_the_joint_check(excess: float, seen: bool) -> None:
    """10,000 blocks see an event that exceeds epsilon 1 by 0.13, and never one that meets it."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        one = rng.random(10_000) < 0.5
        other = rng.random(10_000) < (0.5 - excess) / np.e
        try:
            hold_events(Loss.pure(1), one.astype(float), other.astype(float))
        except AssertionError:
            assert seen
        else:
            assert not seen
