"""The audit of any callable: honest noise passes, each fault is convicted, too few trials are told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.errors import InputError
from privfed.testing import assert_dp

PAIR = (np.ones(11), np.ones(10))


def laplace(scale: float, seed: int) -> Callable[[np.ndarray], Any]:
    """A noised count in a dictionary."""
    rng = np.random.default_rng(seed)
    return lambda data: {"count": len(data) + rng.laplace(0, scale)}


def raising(seed: int) -> Callable[[np.ndarray], Any]:
    """Fails on the larger data set alone."""
    rng = np.random.default_rng(seed)

    def run(data: np.ndarray) -> float:
        if len(data) > 10:
            raise MemoryError
        return float(rng.laplace())

    return run


def longer(seed: int) -> Callable[[np.ndarray], Any]:
    """As many numbers as there are records."""
    rng = np.random.default_rng(seed)
    return lambda data: rng.laplace(size=len(data)).tolist()


def response(truth: float, seed: int) -> Callable[[np.ndarray], Any]:
    """Yes or no in words, the truth with some probability."""
    rng = np.random.default_rng(seed)

    def run(data: np.ndarray) -> str:
        return "yes" if (len(data) > 10) == (rng.random() < truth) else "no"

    return run


def middle(seed: int) -> Callable[[np.ndarray], Any]:
    """A number from -1 to 1 of which the middle one is likelier on one side."""
    rng = np.random.default_rng(seed)
    law = {True: (0.1, 0.8, 0.1), False: (0.45, 0.1, 0.45)}
    return lambda data: rng.choice([-1.0, 0.0, 1.0], p=law[len(data) > 10])


@pytest.mark.parametrize("run", [laplace(1, 0), response(np.e / (1 + np.e), 1)])
def test_honest_noise_passes(run: Callable[[np.ndarray], Any]) -> None:
    """Laplace noise and randomized response at the epsilon that they have."""
    assert_dp(run, PAIR, 1.0, alpha=1e-4)


@pytest.mark.parametrize(
    "run", [laplace(0.4, 0), response(0.95, 1), raising(2), longer(3), middle(4), len]
)
def test_faults_are_convicted(run: Callable[[np.ndarray], Any]) -> None:
    """Too little noise, failures, lengths, values between others, and no noise at all."""
    with pytest.raises(
        AssertionError, match=r"prove at least .* by how often their [a-z]+.* is beyond"
    ):
        assert_dp(run, PAIR, 1.0, alpha=1e-4)


def test_a_table_has_its_farthest_unit_left_out() -> None:
    """A sum without clipping is convicted by the one that lies far out, and by its whole client."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"x": [0.1] * 30 + [25.0], "client": list("ab") * 15 + ["a"]})

    def clipped_sum(t: pd.DataFrame) -> float:
        return float(t["x"].to_numpy().clip(0, 1).sum())

    with pytest.raises(AssertionError, match="prove at least"):
        assert_dp(lambda t: t["x"].to_numpy().sum() + rng.laplace(), table, 1.0)
    with pytest.raises(AssertionError, match="a client is claimed"):
        assert_dp(lambda t: clipped_sum(t) + rng.laplace(), table, 1.0, unit="client")
    # rounded to a grid, for the low bits of a naive sum would give its records away
    grid = 2.0**20
    assert_dp(lambda t: np.rint((clipped_sum(t) + rng.laplace()) * grid) / grid, table, 1.0)


def test_gaussian_noise_is_audited_sharply() -> None:
    """Half the deviation is convicted with few trials."""
    rng = np.random.default_rng(6)
    sigma = 4.2246  # epsilon 1 at delta 1e-5
    for share, convicted in ((1.0, False), (0.5, True)):
        found = False
        try:
            assert_dp(
                lambda d, share=share: len(d) + rng.normal(0, share * sigma),
                PAIR,
                1.0,
                1e-5,
                gaussian=True,
                trials=20_000,
            )
        except AssertionError:
            found = True
        assert found is convicted


def test_many_runs_at_once() -> None:
    """One output a row."""
    rng = np.random.default_rng(7)
    assert_dp(
        lambda d, n: len(d) + rng.laplace(size=(n, 1)), PAIR, 1.0, batched=True, trials=20_000
    )
    with pytest.raises(InputError, match="asked for"):
        assert_dp(lambda d, n: [1.0], PAIR, 1.0, batched=True)


def test_it_says_when_it_has_no_power() -> None:
    """Too few trials to notice a fault of twice the claim; neighbours that make no difference."""
    with pytest.raises(AssertionError, match="too few"):
        assert_dp(laplace(1, 0), PAIR, 1.0, trials=100)
    with pytest.raises(AssertionError, match="nothing to audit"):
        assert_dp(lambda d: 1.5, PAIR, 1.0)


def test_dp_arguments_are_checked() -> None:
    """A claim that is none, neighbours that are none, a unit that is no column."""
    with pytest.raises(InputError):
        assert_dp(len, PAIR, float("nan"))
    with pytest.raises(InputError, match="pair"):
        assert_dp(len, [1, 2], 1.0)
    with pytest.raises(InputError, match="column"):
        assert_dp(len, pd.DataFrame({"x": [1.0]}), 1.0, unit="person")


def test_what_changes_from_run_to_run_convicts_nobody() -> None:
    """A request's number, or the time, differs between early and late runs, and those are no data sets."""
    number, noisy = count(), laplace(2.0, 1)
    assert_dp(lambda data: {"request": next(number)} | noisy(data), PAIR, 0.5)
