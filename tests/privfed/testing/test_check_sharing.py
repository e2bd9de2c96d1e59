"""The kit for functions that share something: sound ones pass all checks, each fault fails one."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.testing import sentinels
from privfed.testing.check_sharing import CHECKS, check_sharing

TABLE = sentinels(pd.DataFrame({"age": [18.0, 95.0], "dose": [0.5, 20.0]}), 60)


def sound(table: pd.DataFrame) -> dict[str, float]:
    """Refuses few records and says nothing of them."""
    if len(table) < 5:
        raise ValueError("too few records")
    return {name: float(table[name].astype(float).sum()) for name in ("age", "dose")}


def no_refusal(table: pd.DataFrame) -> Any:
    """One record's sum is the record."""
    return table[["age", "dose"]].astype(float).sum().to_dict()


def raw(table: pd.DataFrame) -> Any:
    """Adds a record for good measure."""
    return {**sound(table), "example": table.iloc[7].tolist()}


def rounded(table: pd.DataFrame) -> Any:
    """Too short for anything but its influence."""
    return {**sound(table), "oldest": round(table["age"].max())}


def loose_errors(table: pd.DataFrame) -> Any:
    """Quotes the data it cannot read."""
    try:
        return sound(table)
    except ValueError as error:
        raise ValueError(f"cannot read {table['age'].tolist()}") from error


def chatty(table: pd.DataFrame) -> Any:
    """Logs its first record."""
    logging.getLogger("sharing").debug("first: %s", table.iloc[0].tolist())
    return sound(table)


def ordered(table: pd.DataFrame) -> Any:
    """Weighs records by their place."""
    weights = np.arange(1, len(table) + 1)
    return {**sound(table), "weighted": float(table["age"].astype(float).to_numpy() @ weights)}


def test_a_sound_function_passes_all() -> None:
    """Six checks, each by its name."""
    ran = check_sharing(sound, TABLE)
    assert len(ran) == len(CHECKS) == 6


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (raw, "nothing_raw"),
        (no_refusal, "one_record"),
        (rounded, "support"),
        (loose_errors, "errors"),
        (chatty, "logs"),
        (ordered, "order"),
    ],
)
def test_each_fault_fails_its_check(run: Any, name: str) -> None:
    """The message begins with the check's name; skipped with a reason, the others pass."""
    with pytest.raises(AssertionError, match=f"^{name}:"):
        check_sharing(run, TABLE)
    if name != "nothing_raw":
        ran = check_sharing(run, TABLE, skip={name: "known", "support": "beside the point"})
        assert name not in ran
