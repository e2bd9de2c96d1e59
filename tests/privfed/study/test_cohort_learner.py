"""A cohort's learner of a plugin's own runs in a study like ours: no study knows any by its class."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest

from privfed import Budget, Column, Guard, Policy, Schema
from privfed.cli import BAD_INPUT, FINE, status
from privfed.errors import InputError
from privfed.exchange.disclosure import Disclosure
from privfed.learners import load
from privfed.learners.base import FederatedRegressor, Planned
from privfed.learners.cohort import CohortLearner
from privfed.learners.rule_search.estimate import counts
from privfed.questions import plugins
from privfed.questions.exact import Number
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import CohortQuery, Query, View

pytestmark = pytest.mark.usefixtures("short_audits")

SCHEMA = Schema((Column("steps", lower=0, upper=20_000),))


@dataclass(frozen=True)
class Walks:
    """How far each individual walks in a day."""

    schema: Schema
    steps: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class FarWalkers(CohortQuery):
    """A bit of each individual: whether it walks at least so far."""

    least: float
    people: int
    kind: ClassVar[str] = "toy.far"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One bit each."""
        one = Bound(1, 1)
        shape = (1, self.people)
        part = Part(PartType.BITS, ("question", "individual"), shape, Sensitivity(one, one, one))
        return {"bits": part}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The truth."""
        return {"bits": (view.records.steps >= self.least)[None]}

    def asked(self, people: int) -> np.ndarray:
        """Everybody."""
        return np.arange(people)


class ShareOfWalkers(FederatedRegressor, CohortLearner):
    """The share of individuals who walk far."""

    queries: ClassVar[tuple[type[Query], ...]] = (FarWalkers,)

    def check(self, schema: Schema) -> None:
        """No target is needed."""
        self.check_parameters()

    def fit(self, federation: Disclosure) -> Self:
        """Ask once."""
        self._start(federation)
        people = federation.people or 0
        answer = federation.ask(FarWalkers(10_000.0, people)).only
        found = counts(answer, people)
        self.share_ = float(found.estimate[0]) / people
        return self

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """The share, whoever asks."""
        return np.full(len(self._encode(x, client)), self.share_)

    def published(self) -> Policy:
        """At epsilon 4."""
        return Policy({FarWalkers.kind: (Guard.of("randomized_response", spend=4),)})

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """All of it on one bit."""
        guard = Guard.of("randomized_response", spend=epsilon)
        budget = Budget.of(epsilon)
        return Policy({FarWalkers.kind: (guard,)}, unit="individual", budget=budget)

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One bit."""
        return [Planned(FarWalkers(10_000.0, 1), 1)]

    def read(self, folder: Path, schema: Schema) -> Walks:
        """One number in each file."""
        files = sorted(folder.glob("*.walk"))
        if not files:
            raise InputError(f"folder {folder}: holds no walk; write one .walk file for each")
        return Walks(schema, np.array([float(path.read_text()) for path in files]))

    def held(self, records: Walks) -> int:
        """One each."""
        return len(records)

    def assess(self, records: Walks) -> dict[str, Any]:
        """The error of the share."""
        error = abs(self.share_ - float(np.mean(records.steps >= 10_000)))
        return {
            "measure": "error of the share", "better": "lower", "value": error, "baseline": 0.5,
            "scores": {},
        }  # fmt: skip


STUDY = """
name = "walkers"
seed = 1
noise = "test"
[data]
source = "walks/"
schema = "schema.toml"
[clients]
partition = "cohort"
[learner]
name = "ShareOfWalkers"
[[policy]]
name = "private"
epsilon = "3"
"""


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The toy as a plugin, and a study of two hundred walkers, a quarter of whom walk far."""
    known = plugins.available
    own: dict[str, dict[str, type]] = {
        "learners": {"ShareOfWalkers": ShareOfWalkers},
        "queries": {FarWalkers.kind: FarWalkers},
    }
    named = {
        group: {
            name: EntryPoint(name, f"{__name__}:{cls.__name__}", f"privfed.{group}")
            for name, cls in classes.items()
        }
        for group, classes in own.items()
    }
    monkeypatch.setattr(plugins, "available", lambda group: known(group) | named.get(group, {}))
    (tmp_path / "walks").mkdir()
    for person in range(200):
        (tmp_path / "walks" / f"{person:03}.walk").write_text("15000" if person % 4 == 0 else "900")
    SCHEMA.to_toml(tmp_path / "schema.toml")
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_it_runs_in_a_study(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Priced, run, attacked, reported, and its model read back."""
    out = study.parent / "out"
    assert status(["price", str(study)]) == FINE
    assert "at most epsilon 3" in capsys.readouterr().out
    assert status(["audit", str(study), "--out", str(out)]) == FINE
    metrics = json.loads((out / "private" / "metrics.json").read_text())
    assert metrics["individuals"] == 200 and metrics["records"] == {"cohort": 200}
    assert metrics["value"] < 0.1 < metrics["baseline"]
    assert "error of the share" in capsys.readouterr().out
    model = load(out / "private" / "model.json")
    assert model.predict(np.zeros((1, 1)))[0] == pytest.approx(0.25, abs=0.1)


def test_its_own_slips_are_told(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder, by its own words; and a table for a cohort's learner."""
    for path in (study.parent / "walks").iterdir():
        path.unlink()
    assert status(["run", str(study), "--out", str(study.parent / "out")]) == BAD_INPUT
    assert "holds no walk; write one .walk file" in capsys.readouterr().err
    study.write_text(STUDY.replace('"cohort"', '"iid"\ncount = 2').replace('"walks/"', '"iris"'))
    assert status(["run", str(study), "--out", str(study.parent / "out")]) == BAD_INPUT
    assert "'ShareOfWalkers' learns from a cohort's rules" in capsys.readouterr().err
