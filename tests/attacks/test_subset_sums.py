"""Bits come back from noisy subset sums, up to a noise that hides them."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.attacks.subset_sums import rebuilt_bits
from privfed.errors import InputError


def share(noise: float, *, bits: int = 48, seed: int = 0) -> float:
    """Share of bits that come back from four times as many random subset sums."""
    rng = np.random.default_rng(seed)
    secret, weights = rng.random(bits) < 0.5, (rng.random((4 * bits, bits)) < 0.5).astype(float)
    answers = weights @ secret + rng.laplace(0, noise, 4 * bits)
    found = rebuilt_bits(weights, answers)
    assert found is not None
    return float((found == secret).mean())


def test_little_noise_gives_nearly_all_bits_back() -> None:
    """Laplace noise of scale 1."""
    assert np.mean([share(1.0, seed=seed) for seed in range(3)]) > 0.95


def test_noise_well_above_the_root_of_the_number_hides_them() -> None:
    """The power twin: at scale 50 most of what is left is guessing."""
    assert np.mean([share(50.0, seed=seed) for seed in range(4)]) < 0.75


def test_answers_that_say_less_weigh_less() -> None:
    """One exact answer for each bit beside wild ones that are known to be wild."""
    secret = np.array([True, False, True, True])
    weights, wild = np.vstack([np.eye(4), np.ones((5, 4))]), np.full(5, 90.0)
    answers = np.concatenate([secret.astype(float), wild])
    found = rebuilt_bits(weights, answers, deviations=np.array([1e-3] * 4 + [50.0] * 5))
    assert found is not None and (found == secret).all()


def test_bad_input_and_no_time() -> None:
    """An InputError for what is no system; none where the solver has no time."""
    for answers in (np.zeros(2), np.array([np.inf] * 3)):
        with pytest.raises(InputError, match="subset sums"):
            rebuilt_bits(np.ones((3, 2)), answers)
    rng = np.random.default_rng(0)
    assert rebuilt_bits(rng.random((400, 150)), rng.random(400), time_limit=0.0) is None
