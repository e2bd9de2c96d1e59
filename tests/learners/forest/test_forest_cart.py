"""With every value told and every middle tried, the trees are centralized CART's."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from privfed import Column, Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FedForestClassifier, FedForestRegressor
from privfed.learners.forest import level_queries
from privfed.learners.forest.model import FittedForest
from privfed.learners.forest.trees import LEAF
from privfed.tables.records import Records

FEATURES = 3
X = tuple(Column(f"x{number}", "number", -10, 10) for number in range(FEATURES))
NUMBERS, CLASSES = Schema(X, Column("y", "number", 0, 16)), Schema(X, Column("y", "integer", 0, 2))
#: Every record in one tree, all features, all values: nothing is left to chance or resolution.
CART: dict[str, Any] = {
    "n_estimators": 1,
    "sampling": "all",
    "candidates": "midpoints",
    "n_quantiles": 200,
    "max_features": None,
}


@dataclass
class Naive:
    """CART by its definition, one candidate after another; the first of equal ones wins."""

    criterion: str
    min_leaf: int
    max_depth: int

    def worth(self, y: np.ndarray) -> float:
        """What a side adds: (sum y)^2 / n, or sum n_c^2 / n."""
        if self.criterion == "squared_error":
            units = (y / 16 - 0.5) * 2**20
            return float(units.sum() ** 2 / len(y))
        return float((np.bincount(y.astype(int)) ** 2).sum() / len(y))

    def grow(self, x: np.ndarray, y: np.ndarray, depth: int = 0) -> Any:
        """Nested (feature, cut, left, right), or the leaf's mean."""
        best: tuple[float, int, float] | None = None
        if depth < self.max_depth and len(np.unique(y)) > 1:
            for feature in range(x.shape[1]):
                values = np.unique(x[:, feature])
                for low, high in pairwise(values):
                    left = x[:, feature] <= low
                    if min(left.sum(), (~left).sum()) < self.min_leaf:
                        continue
                    gain = self.worth(y[left]) + self.worth(y[~left]) - self.worth(y)
                    if best is None or gain > best[0]:
                        best = (gain, feature, (low + high) / 2)
        enough = 0 if self.criterion == "squared_error" else -1e-9
        if best is None or best[0] <= enough:
            return float(y.mean())
        left = x[:, best[1]] < best[2]
        sides = [self.grow(x[side], y[side], depth + 1) for side in (left, ~left)]
        return (best[1], best[2], *sides)


def nested(forest: FittedForest, values: np.ndarray, node: int = 0) -> Any:
    """Our tree in the same form."""
    trees = forest.trees
    if trees.feature[node] == LEAF:
        return values[node]
    left = int(trees.left[node])
    sides = [nested(forest, values, child) for child in (left, left + 1)]
    return (int(trees.feature[node]), float(trees.cut[node]), *sides)


def same(one: Any, other: Any) -> bool:
    """Whether two nested trees agree, leaves to rounding."""
    if isinstance(one, tuple) != isinstance(other, tuple):
        return False
    if not isinstance(one, tuple):
        return bool(abs(one - other) < 1e-6)
    return bool(one[:2] == other[:2]) and same(one[2], other[2]) and same(one[3], other[3])


def federation(schema: Schema, table: np.ndarray, clients: np.ndarray) -> UngatedDisclosure:
    """The rows of a table among clients; the last column is the target."""
    return UngatedDisclosure(
        {
            str(client): Records(
                schema, table[clients == client, :-1], table[clients == client, -1]
            )
            for client in range(int(clients.max()) + 1)
        }
    )


ROWS = st.integers(8, 60)


@settings(max_examples=60, deadline=None)
@given(
    rows=ROWS,
    clients=st.integers(1, 5),
    distinct=st.integers(2, 12),
    min_leaf=st.integers(1, 6),
    depth=st.integers(1, 6),
    regression=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_trees_are_centralized_cart(
    rows: int, clients: int, distinct: int, min_leaf: int, depth: int, regression: bool, seed: int
) -> None:
    """Feature by feature and cut by cut, whatever the division among clients, ties and repeats."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, distinct, (rows, FEATURES)) / 2
    y = rng.integers(0, 17 if regression else 3, rows).astype(float)
    fed = federation(
        NUMBERS if regression else CLASSES,
        np.column_stack([x, y]),
        rng.integers(0, clients, rows),
    )
    kind = FedForestRegressor if regression else FedForestClassifier
    forest = kind(**CART, min_samples_leaf=min_leaf, max_depth=depth).fit(fed).forest_
    values = (forest.values[:, 0] + 0.5) * 16 if regression else forest.values @ np.arange(3.0)
    naive = Naive("squared_error" if regression else "gini", min_leaf, depth).grow(x, y)
    assert same(nested(forest, values), naive)


def test_few_candidates_are_not_enough() -> None:
    """The property has power: with two quantiles a level the trees differ."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.uniform(-9, 9, (60, FEATURES)), rng.uniform(0, 16, 60)])
    fed = federation(NUMBERS, table, rng.integers(0, 3, 60))
    coarse = CART | {"n_quantiles": 2, "candidates": "quantiles", "max_depth": 60}
    forests = [FedForestRegressor(**way).fit(fed).forest_ for way in (CART, coarse)]
    assert not same(*(nested(forest, forest.values[:, 0]) for forest in forests))


@pytest.mark.parametrize("depth", [3, 8])
def test_scikit_learn_grows_the_same(depth: int) -> None:
    """On continuous data, where nothing ties, predictions are those of scikit-learn's own tree."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-9, 9, (150, FEATURES)).astype(np.float32).astype(float)
    y = np.clip(8 + 4 * np.sin(x[:, 0]) + x[:, 1] / 3 + rng.normal(0, 1, 150), 0, 16)
    fed = federation(NUMBERS, np.column_stack([x, y]), rng.integers(0, 4, 150))
    ours = FedForestRegressor(**CART, min_samples_leaf=4, max_depth=depth).fit(fed)
    theirs = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=4).fit(x, y)
    assert np.allclose(ours.predict(x), theirs.predict(x), atol=1e-4)
    fresh = rng.uniform(-9, 9, (500, FEATURES))
    assert np.allclose(ours.predict(fresh), theirs.predict(fresh), atol=1e-4)


def test_any_division_among_clients_grows_the_same_forest() -> None:
    """One client or seven: sums on a grid add up alike, to the bit."""
    rng = np.random.default_rng(2)
    table = np.column_stack([rng.integers(0, 50, (120, FEATURES)) / 5, rng.uniform(0, 16, 120)])
    fits = [
        FedForestRegressor(**CART, min_samples_leaf=3)
        .fit(federation(NUMBERS, table, clients))
        .forest_
        for clients in (np.zeros(120, int), rng.integers(0, 7, 120))
    ]
    assert np.array_equal(fits[0].trees.cut, fits[1].trees.cut)
    assert np.array_equal(fits[0].values, fits[1].values)


def test_a_portion_of_the_pairs_at_a_time_is_as_good_as_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many pairs the server works on at once: the same cuts and values."""
    rng = np.random.default_rng(3)
    table = np.column_stack([rng.uniform(-9, 9, (200, FEATURES)), rng.uniform(0, 16, 200)])
    clients, fits = rng.integers(0, 3, 200), []
    for portion in (level_queries.PORTION, 3):
        monkeypatch.setattr(level_queries, "PORTION", portion)
        learner = FedForestRegressor(
            n_estimators=4, max_depth=4, clients_per_tree=2, random_state=0
        )
        fits.append(learner.fit(federation(NUMBERS, table, clients)).forest_)
    assert len(fits[0].trees) > 20
    assert np.array_equal(fits[0].trees.cut, fits[1].trees.cut)
    assert np.array_equal(fits[0].values, fits[1].values)


@pytest.mark.parametrize(
    ("kind", "few", "many"), [(FedForestRegressor, 5, 3), (FedForestClassifier, 0.15, 0.05)]
)
def test_the_least_decrease_is_weighed_by_the_nodes_share_of_all_records(
    kind: Any, few: float, many: float
) -> None:
    """As scikit-learn: of 100 records a split of 20 counts a fifth of its own decrease (16; gini .5)."""
    x = np.zeros((100, FEATURES))
    x[80:, 0], x[90:, 1] = 1, 1
    labels = np.repeat([0, 1, 2], [80, 10, 10])
    y = labels if kind is FedForestClassifier else 8 * labels
    schema = CLASSES if kind is FedForestClassifier else NUMBERS
    fed = federation(schema, np.column_stack([x, y]), np.arange(100) % 3)
    found = [kind(**CART, min_impurity_decrease=least).fit(fed) for least in (few, many)]
    assert [int((one.forest_.trees.feature != LEAF).sum()) for one in found] == [1, 2]


def test_a_row_of_an_unknown_owner_parts_by_the_owners_records() -> None:
    """Ninety records of mean 0 and ten of mean 16 make 1.6, not 8."""
    y, clients = np.repeat([0.0, 16.0], [90, 10]), np.repeat([0, 1], [90, 10])
    fed = federation(NUMBERS, np.column_stack([np.zeros((100, FEATURES)), y]), clients)
    learner = FedForestRegressor(**CART, client_splits=True).fit(fed)
    row = np.zeros((1, FEATURES))
    told = [learner.predict(row, client=name)[0] for name in ("0", "1")]
    assert np.allclose(told, [0, 16], atol=1e-4)
    assert learner.predict(row)[0] == pytest.approx(1.6, abs=1e-4)
