"""Sums over all records are whole numbers beyond 2^53, where floats round what a single record adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed.learners.fuzzy_tree import fuzzy, linear, sums
from privfed.learners.fuzzy_tree.fuzzy import Memberships
from privfed.learners.fuzzy_tree.linear import Coordinates, Moments, Residuals, ResidualsBySet
from privfed.learners.fuzzy_tree.sums import Fuzzified, equations, level_sums
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

#: In floats the two units are lost beside 2^53: (2^53 + 1) + 1 - 2^53 is 0.
TERMS = np.array([2.0**53, 1.0, 1.0, -(2.0**53)])
ROOT, ENDS = ((),), (np.zeros(1), np.ones(1))


@pytest.fixture(autouse=True)
def one_record_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pieces of so few records that none is beyond 2^53 by itself."""
    monkeypatch.setattr(fuzzy, "CELLS", 1)
    monkeypatch.setattr(fuzzy, "ACTIVATIONS", 1)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of squares, not tested
@pytest.mark.parametrize(
    "sum_up",
    [
        lambda records: level_sums(records, ROOT)["node_linear"],
        lambda records: level_sums(records, ROOT, (0,), 2)["linear"][0, 0, :1],
        lambda records: equations(records, (), ROOT)[1][0],
    ],
)
def test_sums_of_the_tree(
    sum_up: Callable[[Fuzzified], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By node, by cell, and in a leaf's equations."""
    monkeypatch.setattr(sums, "on_grid", np.trunc)
    X = np.zeros((len(TERMS), 1))
    assert sum_up(Fuzzified(X, ENDS, TERMS, Memberships.from_unit(X, 2))).tolist() == [2]


MODEL = np.zeros(2)
PUBLIC = Coordinates.public((0,))


@pytest.mark.parametrize(
    ("query", "method", "terms"),
    [
        (Moments(ROOT, 2, *ENDS, PUBLIC), "_cut", [[2**27, x] for x in TERMS / 2**27]),
        (Residuals(ROOT, 2, *ENDS, PUBLIC, MODEL, 1.0), "_along", [[0, x] for x in TERMS]),
        (
            ResidualsBySet(ROOT, 2, *ENDS, PUBLIC, MODEL, 1.0, (0,)),
            "_by_set",
            [[[0, x]] for x in TERMS],
        ),
    ],
)
def test_sums_of_the_linear_model(
    query: Query, method: str, terms: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Second moments, and residuals by leaf and by set."""
    monkeypatch.setattr(linear, "on_grid", np.trunc)
    monkeypatch.setattr(type(query), method, lambda _query, _view, piece: np.array(terms)[piece])
    schema = Schema((Column("a", lower=0, upper=1),), Column("y", lower=0, upper=1))
    records = Records(schema, np.zeros((len(TERMS), 1)), np.zeros(len(TERMS)))
    (total,) = query.evaluate(View(records, schema)).values()
    assert total.reshape(-1, 2)[0, 1] == 2
