"""Two trees on the same held-out records: who is ahead, how surely, and what a client does then."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.fitness import (
    ScoreDifference,
    SelectionRule,
    of_labels,
    of_numbers,
)
from privfed.learners.genetic_tree.local_subtrees import Shared, choose_below
from privfed.questions.query import View
from privfed.questions.tree import Tree
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

FEATURES = tuple(Column(name, "number", -9, 9) for name in "ab")
CLASSES = Schema(FEATURES, Column("y", "category", categories=("no", "yes")))
NUMBERS = Schema(FEATURES, Column("y", "number", -9, 9))
CODES = st.integers(0, 2)


def _client(x: np.ndarray, y: np.ndarray, number: int = 0) -> Client:
    classify = not np.any(y % 1)
    schema = CLASSES if classify else NUMBERS
    return Client(View(Records(schema, x, y), schema, bytes([number])), classify)


def _stump(feature: int, values: np.ndarray) -> Shared:
    rows = ([feature, -1, -1], [0.0, 0.0, 0.0], [1, 0, 0], [2, 0, 0])
    return Shared(Tree.binary(*(np.array(each) for each in rows)), values)


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(CODES, CODES, CODES), min_size=1, max_size=25))
def test_a_lead_in_labels_is_that_of_its_naive_twin(rows: list[tuple[int, int, int]]) -> None:
    """The difference of macro F1; the jackknife one record at a time, and two records more."""
    true, one, other = np.array(rows).T
    n = len(true)

    def ahead(kept: np.ndarray) -> float:
        return local.f1(true[kept], other[kept], 3) - local.f1(true[kept], one[kept], 3)

    everyone = np.arange(n)
    without = np.array([ahead(np.delete(everyone, at)) for at in range(n)])
    squared = (n - 1) / n * ((without - without.mean()) ** 2).sum() + 2 / n**2
    found = of_labels(true, one, other, 3)
    assert found.by == pytest.approx(ahead(everyone))
    assert found.error == pytest.approx(np.sqrt(squared))
    assert found.base == pytest.approx(local.f1(true, one, 3))


def test_a_lead_in_labels_is_as_uncertain_as_it_says() -> None:
    """Over many draws of 200 records the lead scatters as its error says, within a tenth."""
    rng = np.random.default_rng(0)
    leads, errors = [], []
    for _ in range(800):
        true = (rng.random(200) < 0.3).astype(int)
        one, other = (np.where(rng.random(200) < right, true, 1 - true) for right in (0.7, 0.8))
        found = of_labels(true, one, other, 2)
        leads.append(found.by)
        errors.append(found.error)
    assert np.mean(errors) == pytest.approx(np.std(leads), rel=0.1)


def test_agreement_of_few_records_proves_nothing() -> None:
    """Trees that say the same of ten records may differ on others; of a thousand, hardly."""
    for n in (10, 1000):
        true = np.arange(n) % 2
        found = of_labels(true, true, true, 2)
        assert (found.by, found.base) == (0, 1) and found.error == pytest.approx(np.sqrt(2) / n)
        assert SelectionRule(2.0, 0.04, 0.02).accepts(found) == (n == 1000)


def test_no_choice_is_far_behind_however_many_records_there_are() -> None:
    """A favour is for what nobody can tell: a sure loss of three in a hundred is none."""
    rule = SelectionRule(2.0, favour=0.04, behind=0.02)
    assert not rule.accepts(ScoreDifference(-0.024, 0.001, 0.8))
    assert rule.accepts(ScoreDifference(-0.012, 0.001, 0.8)) and not rule.accepts(
        ScoreDifference(-0.012, 0.011, 0.8)
    )


def test_a_lead_in_numbers_by_hand() -> None:
    """Squared errors 1, 4, 9 and 0, 4, 1: 3 ahead, of 14 / 3."""
    true = np.zeros(3)
    found = of_numbers(true, np.array([1.0, 2, 3]), np.array([0.0, 2, 1]))
    gains = np.array([1.0, 0, 8])
    assert found.by == pytest.approx(3) and found.base == pytest.approx(14 / 3)
    assert found.error == pytest.approx(gains.std(ddof=1) / np.sqrt(3))
    assert SelectionRule(1.0).accepts(found) and not SelectionRule(2.0).accepts(found)
    assert not SelectionRule(1.0).accepts(of_numbers(true[:1], np.ones(1), np.zeros(1)))


def test_few_records_keep_their_own_tree() -> None:
    """Splits by chance displace it at hardly any of 40 clients; a shared tree that knows all does."""
    rng = np.random.default_rng(1)
    kept = 0
    for number in range(40):
        x = rng.normal(size=(20, 2))
        y = ((x[:, 0] > 0) ^ (rng.random(20) < 0.2)).astype(float)
        wrong = _stump(1, rng.dirichlet([2, 2], 3))
        kept += choose_below(_client(x, y, number), wrong, 5, 2, 4).source == "own"
    assert kept >= 36
    taken, nodes = 0, ([0, 1, 1, -1, -1, -1, -1], [1, 3, 5, 0, 0, 0, 0], [2, 4, 6, 0, 0, 0, 0])
    tree = Tree.binary(np.array(nodes[0]), np.zeros(7), *(np.array(each) for each in nodes[1:]))
    either = Shared(
        tree, np.array([[0.5, 0.5]] * 3 + [[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.9, 0.1]])
    )
    for number in range(5):
        x = rng.normal(size=(400, 2))  # one or the other, which no greedy split tells
        y = ((x[:, 0] > 0) ^ (x[:, 1] > 0) ^ (rng.random(400) < 0.1)).astype(float)
        taken += choose_below(_client(x, y, number), either, 5, 2, 4).source == "federation"
    assert taken == 5


def test_numbers_without_chance_are_not_blurred() -> None:
    """A target that the features decide: no shared word is mixed into leaves that know better."""
    x = np.column_stack([np.linspace(-8, 8, 40), np.zeros(40)])
    client = _client(x, x[:, 0] + 0.25)
    shared = _stump(0, np.array([[0.0], [-1.0], [1.0]]))
    own = local.predictions(local.cart(x, client.y, 0, 8), x)
    said = choose_below(client, shared, 5, 2, 8).predict(x)[:, 0]
    assert np.mean((said - client.y) ** 2) <= 1.5 * np.mean((own - client.y) ** 2) + 0.01
