"""Secure noise cannot be foretold: no seed, no source begun afresh, makes two draws alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import NoReturn

import numpy as np
import pytest

from privfed.privacy.noise import Noise, SecureNoise, TestNoise

Draw = Callable[[Noise], np.ndarray]
#: 256 numbers of wide noise, or 256 fair bits: two honest draws agree less than once in 2^256.
DRAWS = {
    "laplace": lambda noise: noise.laplace(256, 50.0),
    "gaussian": lambda noise: noise.gaussian(256, 50.0),
    "bits": lambda noise: noise.bits(256, Fraction(1, 2)),
    "ties": lambda noise: noise.bits(2**16, Fraction(1, 2**8) + Fraction(1, 2**9)),
}
LAWS = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


def _different(draws: list[np.ndarray]) -> int:
    return len({draw.tobytes() for draw in draws})


@LAWS
def test_secure_draws_never_repeat(draw: Draw) -> None:
    """One source drawn from again, and sources made anew, give another draw each time."""
    source = SecureNoise()
    assert _different([draw(source), draw(source), draw(SecureNoise()), draw(SecureNoise())]) == 4


@LAWS
def test_test_noise_does_not_begin_anew_at_each_draw(draw: Draw) -> None:
    """A seed repeats a whole source, and not its first draw for ever."""
    source, again = TestNoise(5), TestNoise(5)
    first, second = draw(source), draw(source)
    assert _different([first, second]) == 2
    assert _different([first, draw(again)]) == _different([second, draw(again)]) == 1


@LAWS
def test_no_seed_repeats_secure_draws(draw: Draw) -> None:
    """Whoever seeds numpy's and Python's shared generators gets no grip on secure noise."""
    held = np.random.get_state(), random.getstate()  # noqa: NPY002
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - the shared generator is the point
        random.seed(0)
        draws.append(draw(SecureNoise()))
    np.random.set_state(held[0])  # noqa: NPY002
    random.setstate(held[1])
    assert _different(draws) == 2


@LAWS
def test_secure_noise_needs_no_generator_of_numpys(
    draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from OpenDP and the operating system: numpy's generators may all be missing."""

    def missing(*_: object) -> NoReturn:
        raise AssertionError("secure noise was drawn from a generator of numpy's")

    for name in ("default_rng", "Generator", "PCG64", "RandomState", "bytes"):
        monkeypatch.setattr(np.random, name, missing)
    assert len(draw(SecureNoise())) >= 256


@LAWS
def test_neighbouring_draws_are_not_alike(draw: Draw) -> None:
    """Two draws of one source share no more cells than chance has it, so none is replayed in part."""
    source = SecureNoise()
    one, other = draw(source), draw(source)
    shares = np.bincount(np.unique(np.concatenate([one, other]), return_inverse=True)[1])
    chance = float(((shares / shares.sum()) ** 2).sum())
    agreed = float((one == other).mean())
    assert agreed < chance + 10 * np.sqrt(chance * (1 - chance) / len(one))
