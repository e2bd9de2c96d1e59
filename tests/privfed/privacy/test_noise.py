"""Noise: the laws that were asked for, from both sources, and bits of an exact probability."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privfed.errors import InputError
from privfed.privacy.noise import Noise, SecureNoise, TestNoise, _dyadic

#: A true law fails a test of this level once in a billion runs; see the power twins.
LEVEL = 1e-9
SOURCES = pytest.mark.parametrize("source", [TestNoise(3), SecureNoise()], ids=["test", "secure"])


def agreement(draws: np.ndarray, weights: np.ndarray) -> float:
    """P-value of draws against a symmetric law on -6..6 with pooled tails (chi squared).

    Args:
        draws: integers.
        weights: unnormalised probabilities of -400..400.
    """
    share = weights / weights.sum()
    inner = share[394:407]
    expected = np.concatenate([[share[:394].sum()], inner, [share[407:].sum()]])
    edges = np.concatenate([[-np.inf], np.arange(-6.5, 7), [np.inf]])
    observed = np.histogram(draws, edges)[0]
    return float(stats.chisquare(observed, expected * len(draws)).pvalue)


POINTS = np.arange(-400, 401)


def laplace_law(scale: float) -> np.ndarray:
    """Unnormalised discrete Laplace probabilities."""
    return np.exp(-np.abs(POINTS) / scale)


def gaussian_law(scale: float) -> np.ndarray:
    """Unnormalised discrete Gaussian probabilities."""
    return np.exp(-(POINTS**2) / (2 * scale**2))


def assert_law(draws: np.ndarray, own: np.ndarray, *others: np.ndarray) -> None:
    """Integers that agree with their own law and with no other."""
    assert draws.dtype == np.int64
    assert agreement(draws, own) > LEVEL
    assert not [law for law in others if agreement(draws, law) >= LEVEL]


@SOURCES
def test_laplace_law(source: Noise) -> None:
    """Discrete Laplace noise has its law, and not that of half the scale."""
    own, *others = (laplace_law(scale) for scale in (3.0, 1.5, 3.3))
    assert_law(source.laplace(20_000, 3.0), own, *others)


@SOURCES
def test_gaussian_law(source: Noise) -> None:
    """Discrete Gaussian noise has its law, and not that of a slightly smaller deviation."""
    assert_law(source.gaussian(20_000, 3.0), gaussian_law(3.0), gaussian_law(2.7))


@SOURCES
@pytest.mark.parametrize("probability", [Fraction(1, 4), Fraction(3, 2**6)])
def test_bits_law(source: Noise, probability: Fraction) -> None:
    """Bits are one as often as asked, and independent of the one before."""
    bits = source.bits(100_000, probability)
    assert stats.binomtest(int(bits.sum()), bits.size, float(probability)).pvalue > LEVEL
    assert stats.binomtest(int(bits.sum()), bits.size, float(probability) * 1.2).pvalue < LEVEL
    both = int((bits[1:] & bits[:-1]).sum())
    assert stats.binomtest(both, bits.size - 1, float(probability) ** 2).pvalue > LEVEL


@SOURCES
def test_nothing_asked(source: Noise) -> None:
    """No cell needs no noise."""
    assert source.laplace(0, 1.0).shape == source.gaussian(0, 1.0).shape == (0,)
    assert source.bits(0, Fraction(1, 2)).shape == (0,)


def test_bits_are_exact_to_the_last_word() -> None:
    """The probability k / 2^64 is the share of exactly k words of 64 bits."""
    words = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
    for below, words_below in [(0, 0), (1, 1), (2**63, 3), (2**64 - 1, 4), (2**64, 5)]:
        bits = [_dyadic(1, Fraction(below, 2**64), _Script(word))[0] for word in words]
        assert bits == [True] * words_below + [False] * (5 - words_below)


class _Script:
    """Draws one word: its first byte, and the other seven only if the first one ties."""

    def __init__(self, word: int) -> None:
        self._pieces = [word.to_bytes(8, "big")[:1], (word << 8).to_bytes(9, "little")[:8]]

    def __call__(self, size: int) -> bytes:
        return self._pieces.pop(0) if size else b""


@pytest.mark.parametrize(
    "probability", [Fraction(1, 3), Fraction(1, 2**65), Fraction(-1), Fraction(2)]
)
def test_other_probabilities_are_refused(probability: Fraction) -> None:
    """A probability that 64 bits cannot hold exactly is no probability here."""
    with pytest.raises(InputError, match="2\\^-64"):
        TestNoise(0).bits(1, probability)


def test_only_test_noise_repeats() -> None:
    """A seed repeats test noise and marks it; secure noise has none."""
    assert TestNoise(5).laplace(9, 9.0).tolist() == TestNoise(5).laplace(9, 9.0).tolist()
    assert not TestNoise.secure
    assert SecureNoise.secure
    first, second = (SecureNoise().laplace(64, 50.0).tolist() for _ in range(2))
    assert first != second


def test_the_law_is_wide_enough_to_test() -> None:
    """The pooled test spans nearly all of the law that it is used on."""
    assert laplace_law(3.0)[0] < 1e-50
    assert math.isclose(gaussian_law(3.0).sum(), math.sqrt(2 * math.pi) * 3, rel_tol=1e-9)
