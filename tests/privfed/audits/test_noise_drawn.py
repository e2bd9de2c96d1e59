"""The noise drawn is held against its law: honest noise passes, each planted fault is convicted."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest

from privfed.audits.noise import FAMILY_WISE, LAPLACE, audit_noise, noise_tests, scale_found
from privfed.engines.local import LocalDisclosure
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.mechanisms.unprotected import Nullify
from privfed.owner.noise_monitor import NoiseMonitor, NoiseSums, OtherOwners, normal_scores
from privfed.privacy.laws import DiscreteLaplace
from privfed.privacy.mechanism import BoundedPart, Mechanism
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import Bound, Part, PartType
from privfed.testing import faulty
from privfed.testing.hospitals import NAMES, NUMERIC, patients
from privfed.testing.queries import Histogram

#: Changes a release: exact, noise; gives what leaves.
Fault = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _watched(
    mechanism: Mechanism, seed: int, fault: Fault = np.add, type_: PartType = PartType.SUMS
) -> dict[str, NoiseSums]:
    """Three owners, ten releases of two parts of 60 cells in all."""
    others, found = OtherOwners(), {}
    steps = 2**30 if type_ == PartType.SUMS else 1
    for owner in range(3):
        noise, rng = TestNoise(seed * 3 + owner), np.random.default_rng([seed, owner])
        monitor = NoiseMonitor(secret=bytes([owner]))
        monitor.others = others
        for question in range(10):
            group = {
                name: BoundedPart(Part(type_, ("cell",), (size,)), Bound(steps, steps**2))
                for name, size in (("one", 40), ("other", 20))
            }
            priced = mechanism.price(group, Fraction(1, 4))
            exact = {
                name: rng.integers(0, 50, each.part.size) * steps
                if type_ != PartType.BITS
                else rng.random(each.part.size) < 0.3
                for name, each in group.items()
            }
            told = priced.protect(exact, noise)
            if fault is not np.add:
                told = {
                    n: np.ma.MaskedArray(fault(exact[n], told[n].data - exact[n])) for n in told
                }
            monitor.observe("a kind", str(question), priced, exact, told)
        found[str(owner)] = monitor.tally
    return found


@pytest.mark.parametrize(
    ("mechanism", "type_"),
    [
        (Laplace(), PartType.SUMS),
        (Laplace(), PartType.COUNTS),
        (Gaussian(), PartType.SUMS),
        (Gaussian(), PartType.COUNTS),
        (RandomizedResponse(), PartType.BITS),
    ],
)
def test_honest_noise_is_not_accused(mechanism: Mechanism, type_: PartType) -> None:
    """Ten studies of each: at the stated level one in a hundred such tests would fail."""
    for seed in range(10):
        (found,) = audit_noise(_watched(mechanism, seed, type_=type_))
        assert found.severity == "none" and found.detail["cells"] == 1800
        assert found.detail["not looked at"] == {} and not found.partial


def test_p_values_of_honest_noise_are_uniform() -> None:
    """Those of moments and signs, over many studies; counts are discrete, and safe."""
    tallies = (tally for seed in range(15) for tally in _watched(Laplace(), seed).values())
    tests = [test for tally in tallies for test in noise_tests(tally)]
    smooth = [t.p for t in tests if t.name == "variance of all" or t.name.startswith("shared")]
    assert kstest(smooth, "uniform").pvalue > 1e-4
    assert np.mean([test.p < 0.01 for test in tests]) < 0.02


def _halves(exact: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return np.asarray(exact + np.repeat(noise[::2], 2))


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        (lambda x, n: x + n // 1.25, "variance of"),
        (_halves, "shared with neighbouring"),
        (lambda x, n: (x + n).astype(np.float32).astype(np.int64), "bit"),
        (lambda x, n: x + np.where(np.arange(len(n)) % 30, n, 0), "no noise"),
        (lambda x, n: x + np.where(x > 30 * 2**30, 0, n), "no noise"),
        (lambda x, n: (x + n) - (x + n & 1) + (x & 1), "bit"),
        (lambda x, n: np.maximum(x + n, 0), "no noise"),
        (lambda x, n: x + n + 2**32, "mean of"),
        (lambda x, n: x + n + 0.25, "fractions"),
        (lambda x, n: x + np.abs(n), "mean of"),
    ],
)
def test_planted_faults_are_convicted(fault: Fault, test: str) -> None:
    """Each by the tests that are made for it, in one study."""
    (found,) = audit_noise(_watched(Laplace(), 1, fault))
    assert found.severity == "breach"
    assert any(name.startswith(test) for name in found.detail["convicted"])


@pytest.mark.parametrize(
    ("mechanism", "test"),
    [
        (faulty.SeededLaplace(), "variance"),
        (faulty.SharedBetweenCellsLaplace(), ""),
        (faulty.ThinCellLaplace(), "variance of last cells"),
        (faulty.TwoAnswersLaplace(), "variance"),
        (faulty.SharedBetweenPartsLaplace(), "shared with parts"),
        (faulty.SilentGaussian(5), "no noise"),
    ],
)
def test_faulty_mechanisms_are_convicted(mechanism: Mechanism, test: str) -> None:
    """Those whose noise is not of the law that they publish; a seed alone shows in nothing."""
    (found,) = audit_noise(_watched(mechanism, 2))
    told = any(name.startswith(test) for name in found.detail["convicted"])
    honest = isinstance(mechanism, faulty.SeededLaplace | faulty.SharedBetweenCellsLaplace)
    assert told or honest


def test_the_same_noise_at_every_owner_is_convicted() -> None:
    """By the owners' scores, which each owner's own monitor cannot compare."""
    others, found = OtherOwners(), {}
    group = {"sums": BoundedPart(Part(PartType.SUMS, ("cell",), (200,)), Bound(2**30, 2**60))}
    priced, exact = Laplace().price(group, Fraction(1)), {"sums": np.zeros(200, np.int64)}
    for owner in range(2):
        monitor = NoiseMonitor(secret=bytes([owner]))
        monitor.others = others
        monitor.observe("a kind", "q", priced, exact, priced.protect(exact, TestNoise(0)))
        found[str(owner)] = monitor.tally
    (told,) = audit_noise(found)
    assert told.detail["by"] == "shared with owners asked the same" and told.severity == "breach"


def test_nothing_drawn_gives_no_finding_and_noise_unread_is_said() -> None:
    """No noise was charged; or what leaves is no sum of answer and noise."""
    assert audit_noise({"owner": NoiseSums()}) == []
    (found,) = audit_noise({"owner": NoiseSums({"unread finished": (7.0,)})})
    assert found.partial == "7 cells that the mechanism changes after the noise (finish)"
    several = {"unread beyond": (1.0,), "unread error": (2.0,), "unread no law": (0.0,)}
    (found,) = audit_noise({"owner": NoiseSums(several)})
    assert found.partial == (
        "1 cell beyond the first 65,536 of a part and 2 cells or more whose noise could not be read"
    )
    assert found.of == 0
    monitor = NoiseMonitor()
    group = {"counts": BoundedPart(Part(PartType.COUNTS, ("cell",), (3,)), Bound(1, 1))}
    priced, exact = Nullify().price(group, Fraction(0)), {"counts": np.arange(3)}
    monitor.observe("a kind", "", priced, exact, priced.protect(exact, TestNoise(0)))
    assert audit_noise({"owner": monitor.tally}) == []


def test_the_level_is_shared_by_tests_and_policies() -> None:
    """Bonferroni's correction over both."""
    tallies = _watched(Laplace(), 3)
    (alone,), (beside,) = audit_noise(tallies), audit_noise(tallies, policies=4)
    assert alone.detail["level"] == pytest.approx(FAMILY_WISE / float(alone.of or 0))
    assert beside.detail["level"] == pytest.approx(alone.detail["level"] / 4)


@pytest.mark.parametrize("cells", [200, 2000, 20_000])
def test_the_power_that_is_told(cells: int) -> None:
    """Normal noise narrower by the told factor is convicted about four times in five."""
    level, rng = 1e-5, np.random.default_rng(cells)
    factor = scale_found(cells, level)
    squares = rng.chisquare(cells, 4000) / factor**2
    tests = (noise_tests({"score all": (cells, 0.0, each)})[1].p < level for each in squares)
    assert np.mean(list(tests)) == pytest.approx(0.8, abs=0.03)
    assert scale_found(2 * cells, level) < factor


def test_the_power_that_is_told_of_laplace_noise() -> None:
    """Noise of a thousand cells that is narrower by the told factor."""
    level, caught, law = 1e-5, 0, DiscreteLaplace(2.0**30)
    factor, rng = scale_found(1000, level) ** LAPLACE, np.random.default_rng(1)
    for _ in range(400):
        noise = np.rint(rng.laplace(0, 2.0**30 / factor, 1000)).astype(np.int64)
        scores = normal_scores(law, noise, rng)
        squares = float(scores @ scores)
        caught += noise_tests({"score all": (1000, 0.0, squares)})[1].p < level
    assert caught >= 0.75 * 400


@pytest.mark.parametrize("expected", [1e-6, 0.02, 0.4, 3.0])
def test_a_count_errs_towards_honesty(expected: float) -> None:
    """Of events of unequal probabilities; one that is all but impossible convicts by itself."""
    each = np.array([4.0, 1.0, 1.0, 0.5, 0.5]) * expected / 7
    mass = np.ones(1)
    for chance in np.minimum(each, 1.0):
        mass = np.convolve(mass, [1 - chance, chance])
    p = [
        noise_tests({"count here": (5, seen, float(np.minimum(each, 1.0).sum()))})[0].p
        for seen in range(6)
    ]
    assert all(mass[np.array(p) <= level].sum() <= level * (1 + 1e-9) for level in p)
    assert p[1] < 1e-5 or expected > 1e-5


def test_a_federation_watches_every_release() -> None:
    """Cells asked are cells watched, at each owner; open answers have no noise."""
    policy = Policy({Histogram.kind: (Guard.of("laplace", spend="0.5"),)})
    frame = patients(200)[[*NAMES, "hospital", "days"]]
    federation = LocalDisclosure.from_frame(
        frame,
        target="days",
        client="hospital",
        schema=NUMERIC,
        policy=policy,
        seed=1,
        queries=(Histogram,),
    )
    federation.ask(Histogram(0, (0.0, 50.0, 200.0)))
    assert {tally.cells for tally in federation.noise.values()} == {2}
    assert sum("sign owners asked the same" in t for t in federation.noise.values()) == (
        len(federation.clients) - 1
    )
