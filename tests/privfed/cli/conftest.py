"""What the command line's tests share: a small study, its table and schema, and a finished run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.cli import FINE, status

STUDY = """
name = "two sites"
seed = 1
noise = "test"
[data]
source = "table.csv"
target = "risk"
schema = "schema.toml"
[clients]
partition = "column"
column = "site"
[learner]
name = "FuzzyTreeRegressor"
params = { max_depth = 1, sets = 2 }
[[policy]]
name = "published"
[[policy]]
name = "private"
epsilon = "4"
"""
SCHEMA = """
target = "risk"
[[column]]
name = "age"
lower = 0
upper = 100
[[column]]
name = "weight"
lower = 20
upper = 200
[[column]]
name = "risk"
lower = 0
upper = 1000
"""


def table_of(records: int = 60) -> pd.DataFrame:
    """Records of two sites with a risk that age and weight decide."""
    rng = np.random.default_rng(4)
    age, weight = rng.uniform(20, 90, records), rng.uniform(40, 120, records)
    site = np.where(np.arange(records) % 2 == 0, "north", "south")
    return pd.DataFrame(
        {"site": site, "age": age, "weight": weight, "risk": 5 * age + weight}
    ).round(3)


@pytest.fixture
def study_text() -> str:
    """The small study's file."""
    return STUDY


@pytest.fixture
def schema_text() -> str:
    """Its schema's file."""
    return SCHEMA


@pytest.fixture
def table() -> pd.DataFrame:
    """Its table."""
    return table_of()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a study with its table and schema, changed by a test, and gives its path."""

    def written(
        study: str = STUDY, schema: str = SCHEMA, table: pd.DataFrame | None = None
    ) -> Path:
        (tmp_path / "study.toml").write_text(study)
        (tmp_path / "schema.toml").write_text(schema)
        (table_of() if table is None else table).to_csv(tmp_path / "table.csv", index=False)
        return tmp_path / "study.toml"

    return written


@pytest.fixture
def done(write: Callable[..., Path], tmp_path: Path) -> Path:
    """A finished study's folder."""
    out = tmp_path / "out"
    assert status(["run", str(write()), "--out", str(out)]) == FINE
    return out
