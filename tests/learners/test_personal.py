"""A toy learner that leaves a model with each client: through gates, a restart, a study, a report."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest

from privfed import Budget, Column, Guard, LocalDisclosure, Policy, Schema
from privfed.cli import BAD_INPUT, FINE, status
from privfed.errors import InputError, NobodyAnswered, QueryError
from privfed.exchange.disclosure import Disclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import save
from privfed.learners.base import FederatedRegressor, PersonalLearner, Planned
from privfed.learners.parameters import Constraints, Integers
from privfed.questions import plugins
from privfed.questions.exact import Number
from privfed.questions.query import LocalEffect, LocalView, Query
from privfed.testing.check_learner import CHECKS, check_learner
from privfed.testing.queries import LevelSums

SCHEMA = Schema(
    (Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)), Column("y", lower=0, upper=1)
)


@dataclass(frozen=True)
class KeepTree(LocalEffect):
    """Keep a tree of one split, at the middle of a feature: two means of the target."""

    feature: int
    kind: ClassVar[str] = "toy.keep"

    def check(self, schema: Schema) -> None:
        """Hold the feature to the schema."""
        if not 0 <= self.feature < len(schema.features):
            raise QueryError("malformed", "unknown feature")

    def take_effect(self, view: LocalView) -> None:
        """The means of the lower and the upper half; of an empty half, of all records."""
        table = view.table
        low, high = view.schema.features[self.feature].bounds
        upper = table.x[:, self.feature] >= (low + high) / 2
        halves = [table.target[mask] for mask in (~upper, upper)]
        means = [float((half if len(half) else table.target).mean()) for half in halves]
        view.shelf["toy.tree"] = {"feature": self.feature, "means": np.array(means)}


class OwnTrees(FederatedRegressor, PersonalLearner):
    """A mean of all for whoever asks, and at each client a tree of its own."""

    queries: ClassVar[tuple[type[Query], ...]] = (LevelSums, KeepTree)
    _parameter_constraints: ClassVar[Constraints] = {"feature": [Integers(at_least=0)]}

    def __init__(self, feature: int = 0) -> None:
        self.feature = feature

    def fit(self, federation: Disclosure) -> Self:
        """Ask for one sum, and leave the trees."""
        self._start(federation)
        answer, _ = federation.ask_offered(LevelSums(((),)), KeepTree(self.feature))
        counts = answer.total("counts") if "counts" in answer else np.zeros(1)
        self.mean_ = float(answer.total("sums")[0] / max(counts[0], 1)) if counts[0] > 0 else 0.5
        return self

    def own(self, shelf: Mapping[str, Any]) -> Any:
        """The tree."""
        return shelf["toy.tree"]

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """By the client's tree, or the mean of all."""
        low, high = self.schema_.target.bounds if self.schema_.target else (0.0, 1.0)
        encoded = self._encode(x)
        if client is None:
            return np.full(len(encoded), low + (high - low) * self.mean_)
        tree = self.at_home(client)
        first, last = self.schema_.features[tree["feature"]].bounds
        upper = encoded[:, tree["feature"]] >= (first + last) / 2
        return np.asarray(tree["means"][upper.astype(int)])

    def published(self) -> Policy:
        """The sum as it is."""
        guards: dict[str, tuple[Guard, ...]] = {LevelSums.kind: (Guard.of("open"),)}
        return Policy({**guards, KeepTree.kind: ()}, name="published")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """A noisy sum and a noisy count, at half of the budget each; the trees cost nothing."""
        budget = Budget.of(epsilon)
        half = budget.epsilon / 2
        guards = tuple(Guard.of("laplace", part, spend=half) for part in ("counts", "sums"))
        return Policy({LevelSums.kind: guards, KeepTree.kind: ()}, budget=budget, name="private")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One question and one effect."""
        return [Planned(LevelSums(((),)), 1), Planned(KeepTree(self.feature), 1)]


def table(rows: int = 400) -> pd.DataFrame:
    """Two clients in which the same feature means opposite things."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.uniform(0, 1, (rows, 2)), columns=["a", "b"])
    site = np.where(np.arange(rows) % 4 == 0, "south", "north")
    rising = site == "north"
    frame["y"] = np.where(rising, 0.2 + 0.6 * frame["a"], 0.8 - 0.6 * frame["a"])
    return frame.assign(site=site)


def federate(policy: Policy, folder: Path | None = None) -> LocalDisclosure:
    """Gates before the table."""
    return LocalDisclosure.from_frame(
        table(),
        target="y",
        client="site",
        schema=SCHEMA,
        policy=policy,
        seed=5,
        ledgers=folder,
        queries=OwnTrees.queries,
    )


def test_it_conforms() -> None:
    """The kit's checks hold for a learner with models at home."""
    assert len(check_learner(OwnTrees(), federate, table()[["a", "b"]])) == len(CHECKS)


@pytest.mark.parametrize("policy", [OwnTrees().published(), OwnTrees().private(1)])
def test_each_client_predicts_by_its_own_model(policy: Policy) -> None:
    """Rising in the north and falling in the south, which no model of all could be."""
    federation = federate(policy)
    model = OwnTrees().fit(federation)
    assert model.homes == ()
    for client, shelf in federation.shelves.items():
        model.take_home(client, shelf)
    low, high = np.array([[0.1, 0.5]]), np.array([[0.9, 0.5]])
    assert model.predict(low, client="north") < model.predict(high, client="north")
    assert model.predict(low, client="south") > model.predict(high, client="south")
    assert model.predict(low) == model.predict(high)
    assert model.to_dict()["state"] == {"mean_": model.mean_}
    costs = [
        row.body["loss"]
        for row in federation.gates["north"].ledger.entries()
        if row.body.get("kind") == "toy.keep"
    ]
    assert len(costs) == 1 and costs[0]["epsilon"] == "0"


def test_without_gates_it_is_the_same() -> None:
    """For baselines: the shelves of an ungated federation."""
    bare = UngatedDisclosure.from_frame(table(), SCHEMA, "site")
    model = OwnTrees().fit(bare).take_home("south", bare.shelves["south"])
    assert model.predict(np.array([[0.1, 0.5]]), client="south") > 0.5


def test_models_survive_a_restart(tmp_path: Path) -> None:
    """The shelf lies beside the ledger; a new process of the owner finds its model there."""
    model = OwnTrees().fit(first := federate(OwnTrees().published(), tmp_path))
    first.close()
    assert sorted(path.name for path in tmp_path.glob("*.shelf")) == ["north.shelf", "south.shelf"]
    shelves = federate(OwnTrees().published(), tmp_path).shelves
    model.take_home("north", shelves["north"])
    assert 0.2 < model.predict(np.array([[0.1, 0.5]]), client="north")[0] < 0.5


def test_whose_model_is_not_here_is_told() -> None:
    """A stranger, a client that kept nothing, and a model that was fitted anew."""
    federation = federate(OwnTrees().published())
    model = OwnTrees().fit(federation)
    saved = OwnTrees.from_dict(model.to_dict()).take_home("north", federation.shelves["north"])
    for alone in (saved, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        with pytest.raises(InputError, match=r"'south' is not here.*take_home"):
            alone.predict(table()[["a", "b"]], client="south")
    silent = federate(Policy({LevelSums.kind: (Guard.of("open"),)}))
    with pytest.raises(InputError, match="'north' keeps no model of OwnTrees"):
        model.fit(silent).take_home("north", silent.shelves["north"])
    assert model.homes == ()


def test_in_a_simulation_nothing_need_be_taken_home() -> None:
    """The federation holds the shelves: names, one for each row, and a score without any."""
    frame = table()
    x, y = frame[["a", "b"]], frame["y"]
    federation = federate(OwnTrees().published())
    model: Any = OwnTrees().fit(federation)
    taken = OwnTrees().fit(federation)
    for client, shelf in federation.shelves.items():
        taken.take_home(client, shelf)
        expected = taken.predict(x, client=client)
        assert np.array_equal(model.predict(x, client=client), expected)
    sites = frame["site"].tolist()
    mixed = model.predict(x, client=sites)
    for client in ("north", "south"):
        own = (frame["site"] == client).to_numpy()
        assert np.array_equal(mixed[own], taken.predict(x[own], client=client))
    assert np.array_equal(model.predict(x.to_numpy(), client=sites), mixed)
    assert model.predict(x[:0], client=[]).shape == (0,)
    assert model.score(x, y, client=sites) > 0.7 > model.score(x, y)
    assert model.homes == ()
    with pytest.raises(InputError, match="one for each of the 400 rows"):
        model.predict(x, client=sites[:3])
    with pytest.raises(InputError, match="no client 'west'"):
        model.predict(x, client=["west"] * 400)


STUDY = """
name = "own trees"
seed = 1
noise = "test"
[data]
source = "table.csv"
target = "y"
schema = "schema.toml"
[clients]
partition = "column"
column = "site"
[learner]
name = "OwnTrees"
[[policy]]
name = "published"
[[policy]]
name = "private"
epsilon = "4"
"""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy as a plugin."""
    known = plugins.available
    named = {
        "learners": {
            "OwnTrees": EntryPoint("OwnTrees", f"{__name__}:OwnTrees", "privfed.learners")
        },
        "queries": {
            query.kind: EntryPoint(
                query.kind, f"{query.__module__}:{query.__name__}", "privfed.queries"
            )
            for query in OwnTrees.queries
        },
    }
    monkeypatch.setattr(
        plugins, "available", lambda group: {**known(group), **named.get(group, {})}
    )


def test_a_study_scores_each_client_by_its_own_model(
    installed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Metrics per client and their weighted mean; the report, the price and the summary say so."""
    table().to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    SCHEMA.to_toml(tmp_path / "schema.toml")
    study, out = str(tmp_path / "study.toml"), tmp_path / "out"
    assert status(["price", study]) == FINE
    assert "stays" in capsys.readouterr().out
    assert status(["run", study, "--out", str(out)]) == FINE
    assert "by personal models" in capsys.readouterr().out
    metrics = json.loads((out / "private" / "metrics.json").read_text())
    own = metrics["personal"]["clients"]
    assert set(own) == {"north", "south"} and metrics["personal"]["without"] == []
    sizes = [each["held_out"] for each in own.values()]
    assert metrics["held_out"] == sum(sizes) == 100
    for key in ("value", "baseline"):
        wanted = np.average([each[key] for each in own.values()], weights=sizes)
        assert metrics[key] == pytest.approx(wanted)
    assert metrics["value"] < 0.6 * metrics["baseline"]
    model = json.loads((out / "private" / "model.json").read_text())
    assert model["state"].keys() == {"mean_"} and "tree" not in json.dumps(model)
    page = (out / "report.html").read_text()
    assert "personal model on its held-out records" in page and "toy.keep" in page


def test_a_client_predicts_at_home_by_its_shelf(
    installed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``privfed predict``: the public part for anybody, a client's own with its shelf alone."""
    model, data = tmp_path / "model.json", tmp_path / "table.csv"
    save(OwnTrees().fit(first := federate(OwnTrees().published(), tmp_path)), model)
    first.close()
    pd.DataFrame({"a": [0.1, 0.9], "b": [0.5, 0.5]}).to_csv(data, index=False)
    own = ["--client", "south", "--shelf", str(tmp_path / "south.shelf")]
    told = []
    for more in ([], own):
        assert status(["predict", str(model), str(data), *more]) == FINE
        told.append(pd.read_csv(StringIO(capsys.readouterr().out))["y"].tolist())
    assert told[0][0] == told[0][1] and told[1][0] > told[1][1]
    assert status(["predict", str(model), str(data), "--client", "south"]) == BAD_INPUT
    assert "write --client south --shelf PATH" in capsys.readouterr().err
    assert status(["predict", str(model), str(data), *own[2:]]) == BAD_INPUT
    assert "--shelf goes with --client" in capsys.readouterr().err
    assert status(["predict", str(model), str(data), *own[:3], "none.shelf"]) == BAD_INPUT
    assert "no such file" in capsys.readouterr().err


def test_clients_without_a_model_are_left_out_and_told(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An effect that fails at one client leaves that client unscored; at all, no model."""
    from privfed.study import Study, simulation
    from privfed.study.output import Output

    def scored(fails: Callable[[LocalView], bool], name: str) -> dict[str, Any]:
        kept = KeepTree.take_effect

        def take(self: KeepTree, view: LocalView) -> None:
            if fails(view):
                raise ValueError
            kept(self, view)

        with monkeypatch.context() as patch:
            patch.setattr(KeepTree, "take_effect", take)
            (tmp_path / name).mkdir()
            simulation.run(simulation.prepare(study), study.policies[0], Output(tmp_path / name))
        plain: dict[str, Any] = Output(tmp_path / name).read("published", "metrics.json")
        return plain

    table().to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    SCHEMA.to_toml(tmp_path / "schema.toml")
    study = Study.from_toml(tmp_path / "study.toml")
    some = scored(lambda view: len(view.table) < 100, "some")
    assert some["personal"]["without"] == ["south"] and set(some["personal"]["clients"]) == {
        "north"
    }
    nobody = scored(lambda view: True, "nobody")
    assert nobody["stopped"] == "no client keeps a model of its own to be scored by"


def test_nothing_released_is_no_model_even_where_trees_could_be_kept() -> None:
    """A policy that allows neither."""
    with pytest.raises(NobodyAnswered):
        OwnTrees().fit(federate(Policy({})))
