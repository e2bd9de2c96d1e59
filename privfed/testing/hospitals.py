"""Simulated patients of three hospitals, used by RuleFit's tests and in the documentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from privfed.engines.local import LocalDisclosure
from privfed.tables.schema import Column, Schema

NAMES = ("age", "GCS", "noise", "sex")
FEATURES = (
    Column("age", "number", 0, 100),
    Column("GCS", "integer", 3, 15),
    Column("noise", "number", -4, 4),
    Column("sex", "category", categories=("male", "female")),
)
BINARY = Schema(FEATURES, Column("died", "integer", 0, 1))
NUMERIC = Schema(FEATURES, Column("days", "number", 0, 60))
QUICK: dict[str, Any] = {"n_estimators": 40, "n_rounds": 40, "random_state": 0}


def patients(records: int = 600, seed: int = 0) -> pd.DataFrame:
    """Simulate patients of three hospitals; death depends on GCS and age by rules."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, records),
            "GCS": rng.integers(3, 16, records),
            "noise": rng.normal(size=records),
            "sex": rng.choice(["male", "female"], records),
            "hospital": rng.choice(["A", "B", "C"], records, p=[0.2, 0.3, 0.5]),
        }
    )
    score = 4.0 * (frame["GCS"] < 7) + 2.0 * (frame["age"] >= 60) - 2.5
    frame["died"] = (rng.random(records) < expit(score)).astype(int)
    frame["days"] = np.clip(20 + 6 * score + rng.normal(0, 2, records), 0, 60)
    return frame


def gates(
    frame: pd.DataFrame, policy: Any, schema: Schema = BINARY, seed: int = 1
) -> LocalDisclosure:
    """Return a federation of the hospitals with seeded noise."""
    return LocalDisclosure.from_frame(
        frame[[*NAMES, "hospital", schema.columns[-1].name]],
        target=schema.columns[-1].name,
        client="hospital",
        schema=schema,
        policy=policy,
        seed=seed,
    )
