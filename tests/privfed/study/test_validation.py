"""Cross-validation and grids: parts that hold people together, honest marks, and better than nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError
from privfed.learners import FuzzyTreeRegressor, RuleFitClassifier, RuleSearch
from privfed.learners.baselines import BayesianInference
from privfed.study.validation import Folds, cross_validate, grid_search
from privfed.tables.schema import Schema
from privfed.testing.hospitals import BINARY, NUMERIC, patients

FRAME = patients(300)


def folds(schema: Schema = NUMERIC, **changes: Any) -> Folds:
    """Three parts of three hospitals."""
    settings: dict[str, Any] = {"client": "hospital", "count": 3} | changes
    return Folds(FRAME, schema, **settings)


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(0, 50))
def test_every_record_is_held_out_once(count: int, seed: int) -> None:
    """And each client's records are dealt evenly."""
    dealt = list(folds(count=count, seed=seed))
    held = pd.concat([test for _, test in dealt])
    assert sorted(held.index) == sorted(FRAME.index)
    for train, test in dealt:
        assert len(train) + len(test) == len(FRAME) and not set(train.index) & set(test.index)
        sizes = test["hospital"].value_counts() / FRAME["hospital"].value_counts() * count
        assert sizes.between(0.85, 1.15).all()


def test_nobody_is_learnt_from_and_tested_on() -> None:
    """All records of a person lie in one part; dealt by record, they would not (the power twin)."""
    frame = FRAME.assign(person=np.arange(300) // 5, hospital=np.arange(300) // 100)
    apart = Folds(frame, NUMERIC, "hospital", individual="person", count=4)
    assert all(not set(a["person"]) & set(b["person"]) for a, b in apart)
    mixed = Folds(frame, NUMERIC, "hospital", count=4)
    assert any(set(a["person"]) & set(b["person"]) for a, b in mixed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 1}, "count must be a whole number of at least 2"),
        ({"count": True}, "count must be"),
        ({"count": 200}, "too few records for 200 folds"),
        ({"client": "ward"}, "no column 'ward'"),
        ({"individual": "person"}, "no column 'person' for the individuals"),
        ({"schema": Schema(NUMERIC.features)}, "needs a target"),
    ],
)
def test_folds_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    """Told before anything is learnt."""
    with pytest.raises(InputError, match=message):
        folds(**changes)


def test_a_learner_is_scored_on_what_it_has_not_seen() -> None:
    """Better than a constant on every fold; marked as what it is; the learner stays unfitted."""
    learner = FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=1)
    found = cross_validate(learner, folds())
    assert list(found["fold"]) == [0, 1, 2]
    assert (found["score"] > 0.5).all() and (found["value"] < found["baseline"]).all()
    assert found["simulation"].all() and "not publishable for real data" in found.attrs["note"]
    assert found["records"].sum() == 300 and (found["stopped"] == "").all()
    assert not hasattr(learner, "schema_")


def test_a_classifier_is_scored_by_its_accuracy() -> None:
    """The same figure by both names."""
    found = cross_validate(BayesianInference(), folds(BINARY))
    assert found["score"].tolist() == found["value"].tolist()
    assert (found["measure"] == "accuracy").all()


def test_every_fold_keeps_the_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private policy's ceiling holds in each; test noise repeats."""
    spent: list[float] = []
    close = LocalDisclosure.close

    def closing(self: LocalDisclosure) -> None:
        spent.extend(self.budget()["spent"])
        close(self)

    monkeypatch.setattr(LocalDisclosure, "close", closing)
    learner = FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=1)
    one, again = (cross_validate(learner, folds(), epsilon=4, noise=7) for _ in range(2))
    assert one["score"].tolist() == again["score"].tolist()
    assert len(spent) == 18 and 0 < min(spent) <= max(spent) <= 4


def test_a_grid_finds_the_better_setting() -> None:
    """A tree that may not split is worse than one that may; the best is given back unfitted."""
    found = grid_search(
        FuzzyTreeRegressor(n_fuzzy_sets=3, leaf_features=[]), {"max_depth": [0, 1, 2]}, folds()
    )
    assert found.table["max_depth"].tolist()[-1] == 0
    assert found.table["score"].is_monotonic_decreasing
    assert found.learner.get_params()["max_depth"] == found.table["max_depth"][0] != 0
    assert not hasattr(found.learner, "schema_")
    assert found.table["simulation"].all() and found.table.attrs["note"]


def test_processes_find_the_same() -> None:
    """``n_jobs`` as in scikit-learn: settings and folds side by side, in their own order."""
    learner, grid = FuzzyTreeRegressor(n_fuzzy_sets=3), {"max_depth": [1, 0]}
    one, two = (
        grid_search(learner, grid, folds(), epsilon=4, noise=3, n_jobs=jobs).table
        for jobs in (None, 2)
    )
    pd.testing.assert_frame_equal(one, two)


def test_a_setting_under_which_nobody_answers_comes_last() -> None:
    """Its score is NaN, and the table says in how many folds it stopped."""

    class Silent(BayesianInference):
        """Asks nobody who would answer at a precision above one."""

        def published(self) -> Any:
            """Nothing at all for large precisions."""
            from privfed.privacy.policy import Policy

            return super().published() if self.precision < 1 else Policy({})

    found = grid_search(Silent(), {"precision": [2.0, 0.01]}, folds(BINARY))
    assert found.table["precision"].tolist() == [0.01, 2.0]
    assert found.table["stopped"].tolist() == [0, 3]
    assert np.isnan(found.table["score"][1])


def test_slips_in_a_grid() -> None:
    """Names and values are told before or by the learner's own check."""
    with pytest.raises(InputError, match="no parameter 'depth'; there are clients_per_round, "):
        grid_search(FuzzyTreeRegressor(), {"depth": [1]}, folds())
    with pytest.raises(InputError, match="n_fuzzy_sets must be a whole number"):
        grid_search(FuzzyTreeRegressor(), {"n_fuzzy_sets": [0]}, folds())
    with pytest.raises(InputError, match="neither a regressor nor a classifier"):
        cross_validate(RuleSearch(), folds())
    with pytest.raises(InputError, match=r"target with classes"):
        cross_validate(RuleFitClassifier(), folds())
