"""What a printed model says of epsilon: what the data owners' ledgers say, or that it is not known, or that none holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone

from privfed.errors import InputError
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    GeneticTreeClassifier,
    RuleFitClassifier,
)
from privfed.learners.privacy_text import NONE, SEE_OWNERS, privacy_text
from privfed.learners.saved import load, save
from privfed.questions.exact import shown
from privfed.tables.schema import Column, Schema
from privfed.testing.hospitals import BINARY, FEATURES, NUMERIC, gates, patients

CLASSES = Schema(FEATURES, Column("died", categories=("0", "1")))
LEARNERS: list[tuple[Any, Any]] = [
    (FedForestClassifier(n_estimators=2, max_depth=2), BINARY),
    (FedForestRegressor(n_estimators=2, max_depth=2), NUMERIC),
    (FuzzyTreeRegressor(max_depth=1), NUMERIC),
    (GeneticTreeClassifier(generations=2, max_depth=3), CLASSES),
    (RuleFitClassifier(n_estimators=5, n_rounds=5), BINARY),
]
FRAME = patients(300)


@pytest.mark.parametrize(("learner", "schema"), LEARNERS)
def test_a_private_model_says_the_epsilon_of_the_budget(
    learner: Any, schema: Schema, tmp_path: Path
) -> None:
    """As spent when it was fitted, with delta, unit and relation; also after saving, on pages, and not changed by later releases."""
    frame = FRAME.astype({"died": str}) if schema is CLASSES else FRAME
    fed = gates(frame, learner.private("1.5"), schema)
    learner.fit(fed)
    spent = fed.budget()["spent"].max()
    sentence = f"Privacy: epsilon {shown(spent)} at delta 1e-05 for each record of a data owner"
    save(learner, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    by_file = sentence.replace("Privacy:", "Privacy, according to the model file:")
    assert sentence in learner.describe()
    for text in (learner.describe(), again.describe(), again.to_html()):
        assert (sentence if text == learner.describe() else by_file) in " ".join(text.split())
        assert "(add-or-remove)" in text
        assert "seeded for a test" in " ".join(text.split())
    if isinstance(learner, RuleFitClassifier):
        assert sentence in str(learner.scorecard()) and sentence in learner.scorecard().to_html()
    if isinstance(learner, GeneticTreeClassifier):
        own = learner.describe(client="A")
        assert "no epsilon holds" in own and sentence not in own


@pytest.mark.parametrize(("learner", "schema"), LEARNERS)
def test_a_published_model_says_that_no_epsilon_holds(learner: Any, schema: Schema) -> None:
    """Whatever noise some of its releases have."""
    frame = FRAME.astype({"died": str}) if schema is CLASSES else FRAME
    assert NONE in learner.fit(gates(frame, learner.published(), schema)).describe()


@pytest.mark.parametrize(("learner", "schema"), LEARNERS)
def test_a_text_says_what_missing_values_count_as(learner: Any, schema: Schema) -> None:
    """Numbers and categories that the schema fills, and nothing where it fills none."""
    filled = (
        replace(FEATURES[0], fill=41.5),
        FEATURES[1],
        FEATURES[2],
        replace(FEATURES[3], fill="male"),
    )
    frame = FRAME.astype({"died": str}) if schema is CLASSES else FRAME
    model = clone(learner).fit(gates(frame, learner.private("2"), replace(schema, features=filled)))
    assert "\nA missing value counts as: age 41.5, sex male.\n" in model.describe()
    model.schema_ = schema
    assert "missing value" not in model.describe()


def test_a_model_learned_without_the_ledgers_refers_to_them() -> None:
    """As from recorded releases, or as one saved before it was known."""
    fed = gates(FRAME, FedForestClassifier().private("1"))
    learner = FedForestClassifier(random_state=0).fit(fed)
    replayed = FedForestClassifier(random_state=0).fit(ReplayDisclosure(BINARY, fed.transcript()))
    assert SEE_OWNERS in replayed.describe() and SEE_OWNERS not in learner.describe()
    saved = learner.to_dict()
    assert SEE_OWNERS in FedForestClassifier.from_dict(saved).describe()
    with pytest.raises(InputError, match="damaged"):
        FedForestClassifier.from_dict({**saved, "privacy": {"epsilon": "much"}})


def test_assumptions_and_owners_who_promise_otherwise_are_told() -> None:
    """A plugin's claim stands beside epsilon; of several relations none is true of all, so the text refers to the owners."""
    told = {"epsilon": 1.0, "delta": 0.0, "unit": "record", "relation": "add-or-remove"}
    said = privacy_text({**told, "noise": "secure", "basis": "claimed by lab"})
    assert "(add-or-remove, claimed by lab), by all" in said
    learner = FedForestClassifier(random_state=0)
    policy = learner.private("2")
    replaced = replace(policy, relation="replace-one")
    assert gates(FRAME, {"A": policy, "B": policy, "C": policy}).privacy() is not None
    assert gates(FRAME, {"A": policy, "B": replaced, "C": policy}).privacy() is None


def test_masked_sums_have_both_epsilons_and_several_owners_the_largest() -> None:
    """Rounded up, never down."""
    told = {
        "epsilon": 1.00001,
        "delta": 0.0,
        "unit": "individual",
        "relation": "replace-one",
        "noise": "secure",
        "unmasked": 3.2,
    }
    assert privacy_text(told).startswith(
        "Privacy: epsilon 1.001 for each individual of a data owner (replace-one; if the masks of sums fail, 3.2)"
    )
    learner = RuleFitClassifier(n_estimators=5, n_rounds=5)
    fed = gates(
        FRAME, {"A": learner.private("1"), "B": learner.private("3"), "C": learner.private("2")}
    )
    assert fed.privacy() == {
        "epsilon": 0.0,
        "delta": 1e-5,
        "unit": "record",
        "relation": "add-or-remove",
        "basis": "",
        "noise": "test",
    }
    assert (learner.fit(fed).privacy_ or {})["epsilon"] == fed.budget()["spent"].max() > 2
