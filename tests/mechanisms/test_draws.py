"""What mechanisms draw is what their laws say: deviations, tails and flips of protected outputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse, flip_probability
from privfed.privacy.mechanism import BoundedPart, Mechanism
from privfed.privacy.noise import Noise, SecureNoise, TestNoise
from privfed.questions.part import Bound, Part, PartType

#: Independent cells of one release; a standard deviation is met to one part in a hundred.
CELLS = 20_000
#: A true law fails a test of this level once in a billion runs.
LEVEL = 1e-9
SOURCES = pytest.mark.parametrize(
    "source", [lambda: TestNoise(3), SecureNoise], ids=["test", "secure"]
)
Source = Callable[[], Noise]


def _group(kind: PartType, bound: Bound, parts: int = 1) -> dict[str, BoundedPart]:
    """Equal parts of many cells, each with that bound."""
    cells = CELLS // parts
    return {str(n): BoundedPart(Part(kind, ("cell",), (cells,)), bound) for n in range(parts)}


def _protected(
    mechanism: Mechanism, group: dict[str, BoundedPart], spend: Fraction, noise: Noise, value: int
) -> np.ndarray:
    """All cells of a release in which every exact one holds the value."""
    bits = next(iter(group.values())).part.type == PartType.BITS
    exact = {
        name: np.full(g.part.shape, value, dtype=bool if bits else np.int64)
        for name, g in group.items()
    }
    released = mechanism.price(group, spend).protect(exact, noise, {})
    return np.concatenate([np.asarray(released[name].data) for name in group])


ADDITIVE = pytest.mark.parametrize(
    ("mechanism", "bound", "spend", "scale"),
    [
        (Laplace(), Bound(1, 1), "1", 1.0),
        (Laplace(), Bound(40, 40), "0.5", 80.0),
        (Laplace(), Bound(2**20, 2**40), "2", 2.0**19),
        (Gaussian(), Bound(2, 2), "0.01", 10.0),
        (Gaussian(), Bound(1, 1), "0.5", 1.0),
        (Gaussian(), Bound(2**20, 2**40), "2", 2.0**19),
    ],
    ids=lambda value: getattr(value, "name", None),
)


@SOURCES
@ADDITIVE
@pytest.mark.parametrize("parts", [1, 4])
def test_the_noise_drawn_has_the_scale_charged_for(
    mechanism: Mechanism, bound: Bound, spend: str, scale: float, parts: int, source: Source
) -> None:
    """Within 7 % of the law's own deviation, over one part and over four that share the spend."""
    wide = scale * parts if isinstance(mechanism, Laplace) else scale * math.sqrt(parts)
    group = _group(PartType.SUMS, bound, parts)
    drawn = _protected(mechanism, group, Fraction(spend), source(), 7) - 7
    deviation = _deviation(mechanism, wide)
    assert abs(drawn.std() / deviation - 1) < 0.07
    assert abs(drawn.mean()) < 7 * deviation / math.sqrt(CELLS)
    for law in mechanism.price(group, Fraction(spend)).laws.values():
        assert law.parameter == wide


def _deviation(mechanism: Mechanism, scale: float) -> float:
    """Of the discrete law at a scale, by its own sum (by the continuous law where it is wide)."""
    if scale > 1000:
        return scale * (math.sqrt(2) if isinstance(mechanism, Laplace) else 1.0)
    points = np.arange(-40_000, 40_001)
    exponent = (
        np.abs(points) / scale if isinstance(mechanism, Laplace) else (points / scale) ** 2 / 2
    )
    weights = np.exp(-exponent)
    return float(np.sqrt(weights @ points.astype(float) ** 2 / weights.sum()))


@SOURCES
@pytest.mark.parametrize("times", [1, 3])
def test_laplace_tails_are_as_long_as_charged_for(source: Source, times: int) -> None:
    """Beyond k scales lies e^-k of the draws: no event tells neighbours apart by more than it costs."""
    scale, group = 50.0, _group(PartType.COUNTS, Bound(5, 5))
    drawn = _protected(Laplace(), group, Fraction(1, 10), source(), 0)
    beyond = int((np.abs(drawn) > times * scale).sum())
    ratio = math.exp(-1 / scale)
    share = 2 * ratio ** (times * scale + 1) / (1 + ratio)
    assert stats.binomtest(beyond, CELLS, share).pvalue > LEVEL
    assert stats.binomtest(beyond, CELLS, share**2).pvalue < LEVEL  # that of half the scale


@SOURCES
@pytest.mark.parametrize("times", [1, 2])
def test_gaussian_tails_are_as_long_as_charged_for(source: Source, times: int) -> None:
    """Beyond k deviations lies the normal law's share of the draws."""
    sigma, group = 50.0, _group(PartType.COUNTS, Bound(50, 50**2))
    drawn = _protected(Gaussian(), group, Fraction(1, 2), source(), 0)
    beyond = int((np.abs(drawn) > times * sigma).sum())
    share = 2 * float(stats.norm.sf((times * sigma + 0.5) / sigma))
    assert stats.binomtest(beyond, CELLS, share).pvalue > LEVEL
    half = 2 * float(stats.norm.sf(2 * (times * sigma + 0.5) / sigma))
    assert stats.binomtest(beyond, CELLS, half).pvalue < LEVEL


@SOURCES
@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize(("bits", "spend"), [(1, "1"), (2, "1"), (3, "3"), (5, "0.5"), (8, "8")])
def test_bits_are_flipped_at_their_share_of_the_spend(
    source: Source, truth: bool, bits: int, spend: str
) -> None:
    """Of m bits that one unit can change, each is flipped as at one m-th of epsilon."""
    group = _group(PartType.BITS, Bound(bits, bits))
    answers = _protected(RandomizedResponse(), group, Fraction(spend), source(), truth)
    lies = int((answers != truth).sum())
    share = flip_probability(Fraction(spend) / bits)
    assert stats.binomtest(lies, CELLS, float(share)).pvalue > LEVEL
    if bits > 1:
        unshared = flip_probability(Fraction(spend))
        assert stats.binomtest(lies, CELLS, float(unshared)).pvalue < LEVEL


@SOURCES
def test_bits_of_several_parts_share_one_spend(source: Source) -> None:
    """Four parts with one bit each are four bits: each is flipped as at a quarter of epsilon."""
    group = _group(PartType.BITS, Bound(1, 1), parts=4)
    answers = _protected(RandomizedResponse(), group, Fraction(4), source(), True)
    lies = int((~answers).sum())
    assert stats.binomtest(lies, CELLS, float(flip_probability(Fraction(1)))).pvalue > LEVEL
    assert stats.binomtest(lies, CELLS, float(flip_probability(Fraction(4)))).pvalue < LEVEL


@SOURCES
@pytest.mark.parametrize(("bits", "spend"), [(2, "1"), (2, "2"), (4, "1")])
def test_all_bits_of_a_unit_together_prove_no_more_than_the_spend(
    source: Source, bits: int, spend: str
) -> None:
    """Of all m bits turned at once, "all say yes" is at most e^epsilon times as likely."""
    group = _group(PartType.BITS, Bound(bits, bits))
    rates = [
        _protected(RandomizedResponse(), group, Fraction(spend), source(), truth)
        .reshape(-1, bits)
        .all(axis=1)
        .mean()
        for truth in (1, 0)
    ]
    likely, rare = (rate + 1e-12 for rate in rates)
    runs = CELLS // bits
    doubt = 7 * math.sqrt((1 - likely) / (runs * likely) + (1 - rare) / (runs * rare))
    assert math.log(likely / rare) <= float(Fraction(spend)) + doubt
    assert math.log(likely / rare) >= float(Fraction(spend)) - doubt
