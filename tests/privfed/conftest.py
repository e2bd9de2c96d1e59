"""A small public schema, fifty records and a gate over them; a small study for the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed import Budget, Column, Gate, Guard, Ledger, Policy, Records, Schema
from privfed.cli import FINE, status
from privfed.learners import FuzzyTreeRegressor
from privfed.privacy.noise import TestNoise
from tests.asked_gate import MakeGate, Watched


@pytest.fixture(scope="session")
def schema() -> Schema:
    """Two features and a target, all in [0, 1]."""
    features = (Column("a", lower=0, upper=1), Column("b", lower=0, upper=1))
    return Schema(features, Column("y", lower=0, upper=1))


@pytest.fixture(scope="session")
def records(schema: Schema) -> Records:
    """Fifty records, two of each person."""
    rng = np.random.default_rng(20)
    people = np.repeat(np.arange(25), 2)
    return Records(schema, rng.uniform(0, 1, (50, 2)), rng.uniform(0, 1, 50), people)


@pytest.fixture
def make_gate(records: Records) -> MakeGate:
    """Build a gate over the records from guards by kind; everything else has a default."""

    def build(
        guards: dict[str, tuple[Guard, ...]] | None = None,
        budget: str | None = None,
        held: Any = records,
        queries: tuple[Any, ...] = (),
        ledger: Ledger | None = None,
        noise: Any = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        **policy: Any,
    ) -> Gate:
        if guards is None:
            guards = {"small.histogram": (Guard.of("laplace", spend="0.1"),)}
        ceiling = None if budget is None else Budget.of(budget)
        return Gate(
            "clinic",
            held,
            Policy(guards, budget=ceiling, **policy),
            ledger or Ledger(None),
            queries=queries,
            noise=noise or TestNoise(7),
            secret=b"secret",
            **settings,
        )

    return build


@pytest.fixture
def watched(make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gate]:
    """A gate for the watched query; its behaviour is set by keyword."""
    monkeypatch.setattr(Watched, "evaluated", [])

    def build(behave: Any = None, declare: Any = None, **options: Any) -> Gate:
        if behave is not None:
            monkeypatch.setattr(Watched, "behave", behave)
        if declare is not None:
            monkeypatch.setattr(Watched, "declare", declare)
        guards = {Watched.kind: (Guard.of("laplace", spend="0.1"),)}
        return make_gate(**{"guards": guards, "queries": (Watched,)} | options)

    return build


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
params = { max_depth = 1, n_fuzzy_sets = 2 }
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
OWNER = """
client = "north"
data = "north.csv"
schema = "schema.toml"
policy = "policy.toml"
ledger = "north.db"
[sockets]
server = "north.sock"
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
def small_table() -> pd.DataFrame:
    """Its table."""
    return table_of()


def written_study(
    folder: Path, study: str = STUDY, schema: str = SCHEMA, table: pd.DataFrame | None = None
) -> Path:
    """Write a study with its table and schema into a folder, and give its path."""
    (folder / "study.toml").write_text(study)
    (folder / "schema.toml").write_text(schema)
    (table_of() if table is None else table).to_csv(folder / "table.csv", index=False)
    return folder / "study.toml"


@pytest.fixture
def owner_file(tmp_path: Path) -> Path:
    """A data owner's file; beside it the small table, its schema, and a policy of the small study's learner."""
    table_of().to_csv(tmp_path / "north.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    schema = Schema.from_toml(tmp_path / "schema.toml")
    learner = FuzzyTreeRegressor(max_depth=1, n_fuzzy_sets=2)
    learner.private("4", schema=schema).to_toml(tmp_path / "policy.toml")
    (tmp_path / "north.toml").write_text(OWNER)
    return tmp_path / "north.toml"


@pytest.fixture
def write_study(tmp_path: Path) -> Callable[..., Path]:
    """Writes a study with its table and schema, changed by a test, and gives its path."""
    return partial(written_study, tmp_path)


@pytest.fixture(scope="session")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small study, carried out once, with all its pictures; nobody changes it."""
    folder = tmp_path_factory.mktemp("study")
    assert status(["run", str(written_study(folder)), "--out", str(folder / "out")]) == FINE
    assert "<path" in (folder / "out" / "report.html").read_text()
    return folder


@pytest.fixture
def finished(carried_out: Path, tmp_path: Path) -> Path:
    """A finished study's folder, a test's own."""
    shutil.copytree(carried_out, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of studies have empty pictures: how these are drawn is tested beside the reports and the learners."""

    def empty(_: object, to: Any, **__: object) -> None:
        to.write("<svg></svg>") if hasattr(to, "write") else Path(to).touch()

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", empty)


@pytest.fixture
def short_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits of few outputs, where none has to convict: their power is measured in tests/privfed/audits."""
    for name, few in {"TRIALS": 4000, "GROUP_TRIALS": 600, "DRAWN": 128}.items():
        monkeypatch.setattr(f"privfed.audits.guards.{name}", few)
