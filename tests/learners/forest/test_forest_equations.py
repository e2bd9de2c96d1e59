"""What a forest's bins say of who was there is what they are: sums over each tree's secret sample."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from privfed.attacks.base import question_of
from privfed.attacks.candidate_inference import CandidateInference
from privfed.engines.local import LocalDisclosure
from privfed.learners import FedForestClassifier, FedForestRegressor
from privfed.learners.forest.queries import BinStatistics
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

FEATURES = (
    Column("a", lower=0, upper=1),
    Column("b", lower=0, upper=1),
    Column("c", "category", categories=("x", "y", "z")),
)
TARGETS = {
    FedForestClassifier: Column("y", "integer", 0, 2),
    FedForestRegressor: Column("y", lower=0, upper=2),
}
LEARNERS = pytest.mark.parametrize("learner", list(TARGETS))


def grown(learner):  # type: ignore[no-untyped-def]
    """A transcript of three clients, their records and the schema."""
    rng, schema = np.random.default_rng(3), Schema(FEATURES, TARGETS[learner])
    x = rng.uniform(size=(120, 2))
    kind = rng.integers(0, 3, 120)
    y = np.clip(x[:, 0] * 2 + (kind == 1) * 0.5 + rng.normal(0, 0.2, 120), 0, 2)
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(c=np.array(list("xyz"))[kind])
    frame["y"] = np.rint(y).astype(int) if learner is FedForestClassifier else y
    frame["at"] = np.repeat(["one", "two", "three"], 40)
    model = learner(n_estimators=3, max_depth=4, random_state=0)
    federation = LocalDisclosure.from_frame(
        frame, "y", client="at", schema=schema, policy=model.published(), seed=0
    )
    model.fit(federation)
    truth = {
        str(name): Records.from_frame(own.drop(columns="at"), schema)
        for name, own in frame.groupby("at", sort=False)
    }
    return federation.transcript(), truth, schema


@LEARNERS
def test_drawn_records_add_up_to_the_bins(learner) -> None:  # type: ignore[no-untyped-def]
    """In each tree a record counts as often as its sample holds it, and every filled cell is told of."""
    transcript, truth, schema = grown(learner)
    asked = [
        q
        for entry in transcript.of(BinStatistics.kind, "one")
        if isinstance(q := question_of(entry), BinStatistics)
    ]
    assert len(asked) > 2
    view = View(truth["one"], schema, secret=b"anybody's")
    for query in asked:
        exact = {name: part.ravel() for name, part in query.evaluate(view).items()}
        rest = {name: np.abs(part) for name, part in exact.items()}
        for each in query.drawn(view):
            tree = int(each.draw.rsplit(" ", 1)[1])
            place = query.level.sampling.trees.tolist().index(tree)
            often = np.bincount(query.level.sampling.rows(view, place), minlength=40)
            assert np.array_equal(often @ each.added, exact[each.part][each.cells])
            rest[each.part][each.cells] = 0
        assert not any(part.any() for part in rest.values())


@LEARNERS
def test_bins_of_bootstraps_give_their_members_away(learner) -> None:  # type: ignore[no-untyped-def]
    """Three trees of forty records each: their exact counts tell members from others, and outcomes."""
    transcript, truth, schema = grown(learner)
    bins = type(transcript)(transcript.of(BinStatistics.kind).entries)
    who, outcomes = CandidateInference().run(bins, truth, schema)
    assert who.detail["area under the curve"] > 0.9 and who.releases == (BinStatistics.kind,)
    assert outcomes.low is not None and outcomes.baseline is not None
    assert outcomes.low > outcomes.baseline
