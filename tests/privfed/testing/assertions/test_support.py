"""Support: functions of few are found whatever the code, functions of many pass."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.errors import InputError
from privfed.testing import assert_support, sentinels
from privfed.testing.assertions.support import FewRecords

TABLE = sentinels(pd.DataFrame({"age": [18.0, 95.0], "dose": [0.5, 20.0]}), 40)
WARDS = TABLE.assign(ward=["rare"] * 2 + ["a", "b"] * 19)

LEAKS: dict[str, Any] = {
    "greatest": lambda t: {"max": t["age"].max()},
    "third": lambda t: {"third": np.sort(t["age"])[2]},
    "rounded": lambda t: f"the oldest is {t['age'].max():.0f}",
    "encoded": lambda t: base64.b64encode(zlib.compress(repr(t["age"].max() * 3).encode())),
    "a bin of one": lambda t: np.histogram(t["age"], [0, 23, 100])[0],
    "a group of two": lambda t: t.groupby("ward")["age"].mean().to_dict(),
    "groups of one": lambda t: t.groupby(t["age"].round(2))["dose"].mean().to_dict(),
    "groups of one in a list": lambda t: t.groupby(t["age"].round(2))["dose"].mean().tolist(),
    "each record by its name": lambda t: t["age"].rename("p{}".format).to_dict(),
    "a share": lambda t: (t["ward"] == "rare").mean(),
}
SAFE: dict[str, Any] = {
    "mean": lambda t: t["age"].mean(),
    "rounded mean": lambda t: round(t["age"].mean(), 1),
    "moments": lambda t: t[["age", "dose"]].to_numpy().T @ t[["age", "dose"]].to_numpy(),
    "median": lambda t: t["age"].median(),
    "wide bins": lambda t: np.histogram(t["age"], [0, 50, 100])[0],
    "large groups": lambda t: t.groupby(t["age"] // 40)["dose"].mean().round(2).to_dict(),
    "large counts": lambda t: (t["age"] // 40).value_counts().to_dict(),
    "constant": lambda t: {"rate": 0.1, "version": "2"},
    "noised": lambda t: t["age"].max() + np.random.default_rng().laplace(),
    "as text": lambda t: f"mean {t['age'].mean():.3f}",
}


@pytest.mark.parametrize("name", LEAKS)
def test_functions_of_few_are_found(name: str) -> None:
    """In any form, by what changes when a record does."""
    with pytest.raises(FewRecords, match=r"fewer than 5 records:\n- left"):
        assert_support(LEAKS[name], WARDS, 5)


@pytest.mark.parametrize("name", SAFE)
def test_functions_of_many_pass(name: str) -> None:
    """A mean, though rounding hides most changes; what is constant, and what is noised."""
    assert_support(SAFE[name], WARDS, 5)


def test_the_records_are_named() -> None:
    """By position, with the path and the element."""
    with pytest.raises(FewRecords, match=r"left\['max'\]: on record \d+ alone"):
        assert_support(LEAKS["greatest"], WARDS)


def test_arrays_and_lists_are_tables_too() -> None:
    """Records are rows."""
    array = TABLE.to_numpy()
    for raw in (array, array.tolist()):
        assert_support(lambda some: np.mean(some, axis=0), raw)
        with pytest.raises(FewRecords):
            assert_support(lambda some: np.max(some, axis=0), raw)


def test_paths_can_be_left_out() -> None:
    """What is public by decision."""
    assert_support(LEAKS["greatest"], WARDS, allow=["left['max']"])


def test_it_is_never_vacuous() -> None:
    """Nothing that left, or a table whose records are all alike, is no pass."""
    with pytest.raises(AssertionError, match="nothing left"):
        assert_support(lambda some: None, TABLE)
    with pytest.raises(AssertionError, match="planted value"):
        assert_support(lambda some: 1.5, np.ones((20, 2)))
    with pytest.raises(InputError):
        assert_support(lambda some: 1.5, TABLE, k=1)


def test_noise_that_seldom_shows_is_noise() -> None:
    """A noisy count to the nearest ten hardly ever changes, and then not for the record that is away."""
    table = pd.DataFrame({"x": np.random.default_rng(1).normal(size=100)})
    for seed in range(8):
        rng = np.random.default_rng(seed)

        def run(t: pd.DataFrame, rng: np.random.Generator = rng) -> dict[str, float]:
            noisy = len(t) + rng.laplace()
            return {"n": round(noisy / 10) * 10, "mean": float(t["x"].mean() + rng.laplace())}

        assert_support(run, table, 5)

        def with_the_most(t: pd.DataFrame, run: Any = run) -> dict[str, float]:
            return {**run(t), "most": float(t["x"].max())}

        with pytest.raises(FewRecords, match="alone"):
            assert_support(with_the_most, table, 5)
