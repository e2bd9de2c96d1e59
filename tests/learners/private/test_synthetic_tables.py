"""Made-up tables: drawn from a private model alone, in the schema's columns, like what was released."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from privfed import LocalDisclosure, Schema
from privfed.errors import InputError
from privfed.learners import FedForestClassifier, FedForestRegressor
from privfed.learners.base import FederatedLearner
from privfed.tables.records import Records
from privfed.tables.schema import Column

FEATURES = (
    Column("a", "number", -3, 3),
    Column("b", "integer", 0, 200),
    Column("c", "category", categories=("u", "v", "w")),
)
TARGETS = {
    "binary": Column("y", "integer", 0, 1),
    "classes": Column("y", "category", categories=("low", "middle", "high")),
    "number": Column("y", "integer", 0, 60),
}


def table(kind: str) -> pd.DataFrame:
    """Fifteen hundred records: b follows a, and y rises with a and with the category w."""
    rng, records = np.random.default_rng(0), 1500
    a = np.clip(rng.normal(size=records), -3, 3)
    c = rng.choice(["u", "v", "w"], records, p=[0.6, 0.3, 0.1])
    b = np.clip(np.rint(60 + 20 * a + 10 * rng.normal(size=records)), 0, 200).astype(int)
    score = 1.5 * a + 2.0 * (c == "w")
    y = {
        "binary": (rng.random(records) < expit(score - 1)).astype(int),
        "classes": np.select([score < -1, score < 1], ["low", "middle"], "high"),
        "number": np.clip(np.rint(np.exp(score / 2 + 1)), 0, 60).astype(int),
    }[kind]
    return pd.DataFrame({"a": a, "b": b, "c": c, "y": y})


@cache
def fitted(kind: str) -> FederatedLearner:
    """A private forest of one client at epsilon 4."""
    learner = FedForestRegressor if kind == "number" else FedForestClassifier
    model, frame = learner(random_state=0), table(kind)
    held = frame.assign(owner="p")
    schema = Schema(FEATURES, TARGETS[kind])
    return model.fit(
        LocalDisclosure.from_frame(
            held, "y", client="owner", schema=schema, policy=model.private(4), seed=1
        )
    )


@pytest.mark.parametrize("kind", list(TARGETS))
def test_records_are_drawn_from_the_model_s_text_alone(kind: str) -> None:
    """The saved model, of which no data are left, gives the same table by seed; another seed another."""
    model = fitted(kind)
    again = type(model).from_dict(json.loads(json.dumps(model.to_dict())))
    made = model.synthesize(40, 7)
    assert made.equals(again.synthesize(40, 7))
    assert not made.equals(model.synthesize(40, 8))
    assert len(model.synthesize(1)) == 1


@pytest.mark.parametrize("kind", list(TARGETS))
def test_records_fit_the_schema_and_the_records(kind: str) -> None:
    """They can be read under it unclipped, and their shares, means and correlations are near the truth."""
    made, wanted = fitted(kind).synthesize(4000, 1), table(kind)
    schema = Schema(FEATURES, TARGETS[kind])
    assert list(made) == ["a", "b", "c", "y"] and len(made) == 4000
    told, true = Records.from_frame(made, schema), Records.from_frame(wanted, schema)
    assert told.clipped == 0
    assert np.allclose(made["c"].value_counts(normalize=True)["u"], 0.6, atol=0.04)
    assert made["a"].mean() == pytest.approx(wanted["a"].mean(), abs=0.1)
    assert made["b"].std() == pytest.approx(wanted["b"].std(), rel=0.15)
    assert told.target.mean() == pytest.approx(true.target.mean(), rel=0.08)
    for own, other in ((0, 1), (0, 3), (2, 3)):
        both = [np.column_stack([r.x, r.target])[:, [own, other]] for r in (told, true)]
        near, truth = (np.corrcoef(pair.T)[0, 1] for pair in both)
        assert near == pytest.approx(truth, abs=0.12)


def test_a_number_has_the_released_histogram() -> None:
    """Its values fall into the target's bins by the released shares, whole numbers as the schema says."""
    model = fitted("number")
    source = model.model_.model.source
    made = model.synthesize(5000, 3)["y"]
    bins = np.searchsorted(source.target_edges[1:-1], made, side="right")
    found = np.bincount(bins, minlength=len(source.target_shares)) / len(made)
    assert np.allclose(found, source.target_shares, atol=0.001)


def test_what_no_record_can_be_drawn_from() -> None:
    """A published forest has no noisy releases to draw from, and a table has a row."""
    model, frame = FedForestClassifier(n_estimators=1, max_depth=1), table("binary")
    schema = Schema(FEATURES, TARGETS["binary"])
    held = frame[:200].assign(owner="p")
    model.fit(
        LocalDisclosure.from_frame(
            held, "y", client="owner", schema=schema, policy=model.published()
        )
    )
    with pytest.raises(InputError, match=r"fit with a private\(epsilon\)"):
        model.synthesize(10)
    with pytest.raises(InputError, match="rows must be at least 1, not 0"):
        fitted("binary").synthesize(0)
