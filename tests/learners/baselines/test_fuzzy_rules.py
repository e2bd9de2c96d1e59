"""Federated fuzzy rules in one shot: what a client sends, how conflicts are merged, who predicts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import InputError, QueryError
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.baselines import FuzzyRulesRegressor
from privfed.learners.baselines.fuzzy_rules import FuzzyRules, strength, strongest
from privfed.learners.saved import from_dict
from privfed.questions.query import View
from privfed.tables.records import Records

SCHEMA = Schema(
    (Column("a", "number", 0, 1), Column("b", "number", 0, 1)), Column("y", "number", -3, 3)
)


def table(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """A line whose slope changes with a."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.uniform(0, 1, rows), "b": rng.uniform(0, 1, rows)})
    frame["y"] = np.where(frame["a"] < 0.5, 2 * frame["b"], 1 - 3 * frame["b"])
    return frame.assign(client=rng.choice(["A", "B", "C"], rows))


def gated(frame: pd.DataFrame) -> LocalDisclosure:
    """A federation under the baseline's own policy."""
    policy = FuzzyRulesRegressor().published()
    return LocalDisclosure.from_frame(frame, "y", client="client", schema=SCHEMA, policy=policy)


def test_rules_learn_what_no_line_does() -> None:
    """Most of the variance; everything that leaves is unprotected."""
    federation, test = gated(table()), table(seed=1)
    model = FuzzyRulesRegressor(n_fuzzy_sets=3).fit(federation)
    error = test["y"] - model.predict(test)
    assert 1 - (error**2).mean() / test["y"].var() > 0.8
    assert (federation.budget()["unprotected"] > 0).all()


def test_a_client_has_a_rule_for_each_cell_that_holds_a_record() -> None:
    """Its antecedent is the records' strongest sets, its model least squares weighted by strength."""
    x = np.array([[0.0, 0.1], [0.1, 0.0], [1.0, 0.9], [0.9, 1.0], [0.8, 0.8]])
    view = View(Records(SCHEMA, x, 6 * x[:, 0] - 3), SCHEMA)
    told = FuzzyRules(3, np.zeros(2), np.ones(2)).evaluate(view)
    assert told["antecedents"].tolist() == [[0, 0], [2, 2]]
    design = np.column_stack([np.ones(5), x - 0.5])
    for antecedent, model, weight in zip(*told.values(), strict=True):
        assert weight == pytest.approx(strength(x, antecedent[None], 3).sum())
        near = (strongest(x, 3) == antecedent).all(axis=1)
        assert design[near] @ model == pytest.approx(x[near, 0] - 0.5)


def test_conflicts_are_merged_by_activation() -> None:
    """Two clients with one cell: the constant of three times the records counts three times."""
    frame = pd.DataFrame({"a": 0.5, "b": 0.5, "y": [3.0] * 3 + [-1.0], "client": list("AAAB")})
    model = FuzzyRulesRegressor().fit(UngatedDisclosure.from_frame(frame, SCHEMA, "client"))
    assert model.n_rules_ == 1 and model.n_parameters_ == 5
    assert model.predict(frame) == pytest.approx([2.0] * 4)


def test_a_row_that_activates_no_rule_takes_the_nearest() -> None:
    """Far from every cell, the sets whose peaks are least away speak."""
    model = FuzzyRulesRegressor(n_fuzzy_sets=5)
    frame = table()
    corners = frame[(frame["a"] < 0.1) | (frame["a"] > 0.9)]
    model.fit(UngatedDisclosure.from_frame(corners, SCHEMA, "client"))
    middle = pd.DataFrame({"a": [0.45, 0.55], "b": [0.5, 0.5]})
    assert (strength(np.array([[0.45, 0.5]]), model.antecedents_, 5) == 0).all()
    assert model.predict(middle) == pytest.approx([1.0, -0.5], abs=0.2)


def test_a_saved_model_predicts_the_same() -> None:
    """To the bit, from plain data."""
    model = FuzzyRulesRegressor(n_fuzzy_sets=3).fit(gated(table()))
    assert np.array_equal(from_dict(model.to_dict()).predict(table(20)), model.predict(table(20)))


@pytest.mark.parametrize(
    "query",
    [
        FuzzyRules(1, np.zeros(2), np.ones(2)),
        FuzzyRules(3, np.zeros(1), np.ones(2)),
        FuzzyRules(3, np.zeros(2), np.full(2, np.nan)),
    ],
)
def test_questions_that_make_no_sense_are_refused(query: FuzzyRules) -> None:
    """From public values alone."""
    with pytest.raises(QueryError):
        query.parts(SCHEMA)


def test_a_single_set_is_no_partition() -> None:
    """Told at once, with what to write."""
    with pytest.raises(InputError, match="sets"):
        FuzzyRulesRegressor(n_fuzzy_sets=1).fit(gated(table(30)))
