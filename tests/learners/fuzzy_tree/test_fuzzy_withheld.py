"""What nullification hides: branches that are withheld are no empty ones, and explain nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed import Column, Guard, LocalDisclosure, Policy, Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.growth import FuzzySums, LevelSums
from privfed.learners.fuzzy_tree.leaves import Known, solve
from privfed.learners.fuzzy_tree.queries import Leaves, Level

SCHEMA = Schema(
    (Column("x", "number", 0, 1), Column("z", "number", 0, 1)), Column("y", "number", -10, 10)
)


def table(few: int, seed: int = 0) -> pd.DataFrame:
    """Four clients; ``few`` records at each lie near the bottom of x, where y is far off."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(0.3, 1, 400), rng.uniform(0, 0.05, 4 * few)])
    frame = pd.DataFrame({"x": x, "z": rng.uniform(0, 1, len(x))})
    y = np.where(frame["x"] < 0.2, -9.0, 5 * np.round(4 * frame["x"]) % 4)
    return frame.assign(y=y, client=np.arange(len(x)) % 4)


def fitted(frame: pd.DataFrame, policy: Policy | None = None, **own: Any) -> FuzzyTreeRegressor:
    """A tree over four clients, its scaling public."""
    learner = FuzzyTreeRegressor(scaling="schema", **own)
    fed = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=SCHEMA, policy=policy or learner.published()
    )
    return learner.fit(fed)


BOTTOM = pd.DataFrame({"x": [0.01, 0.02], "z": [0.3, 0.7]})


def test_a_branch_that_every_client_withholds_is_predicted_by_its_own_records() -> None:
    """Two records at each client are nullified, yet the model knows that something is there."""
    hidden = fitted(table(2), max_depth=1)
    assert [path[0] for path in (leaf.path for leaf in hidden.leaves_)].count((0, 0)) == 1
    assert hidden.predict(BOTTOM) == pytest.approx([-9, -9], abs=1)


def test_where_its_equations_are_refused_it_is_known_by_what_is_left_of_the_node() -> None:
    """The node's sums less those of the told branches give the hidden one's mean."""
    policy = FuzzyTreeRegressor().published()
    guards = {kind: guard for kind, guard in policy.guards.items() if kind != Leaves.kind}
    hidden = fitted(table(2), Policy(guards), max_depth=1)
    assert hidden.predict(BOTTOM) == pytest.approx([-9, -9], abs=1.5)
    assert hidden.models_.constant.all()


def test_what_turns_out_empty_is_no_leaf() -> None:
    """A nullified tree has the leaves of the pooled one, and predicts alike where nothing lies."""
    frame = table(0)
    federated, pooled = fitted(frame), FuzzyTreeRegressor(scaling="schema")
    pooled.fit(UngatedDisclosure.from_frame(frame, SCHEMA))
    assert [leaf.path for leaf in federated.leaves_] == [leaf.path for leaf in pooled.leaves_]
    nobody = pd.DataFrame({"x": [0.0, 0.0], "z": [0.3, 0.7]})
    assert (federated.apply(nobody) == -1).all()
    assert np.array_equal(federated.predict(nobody), pooled.predict(nobody))


def test_a_row_beside_all_leaves_stands_by_the_equations_above() -> None:
    """The line of the node's own records goes on where its branch is empty, and not their mean."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(0, 0.24, 200), rng.uniform(0.76, 1, 200)])
    frame = pd.DataFrame({"x": x, "z": rng.uniform(0, 1, 400)}).assign(y=lambda f: 20 * f["z"] - 10)
    frame["y"] = (frame["y"] + np.where(frame["x"] < 0.5, 1, -1)).clip(-10, 10)
    model = FuzzyTreeRegressor(scaling="schema", max_depth=1, features=["x"])
    model.fit(UngatedDisclosure.from_frame(frame, SCHEMA))
    between = pd.DataFrame({"x": [0.5, 0.5], "z": [0.25, 0.75]})
    assert (model.apply(between) == -1).all()
    assert model.predict(between) == pytest.approx([-5, 5], abs=1)


def sums(told: np.ndarray, node: np.ndarray) -> LevelSums:
    """One node, one feature of three sets, rows of (WS, WLS, WSS)."""
    cells = FuzzySums(*told.T[:, None, None, :])
    shape = cells.weights.shape
    nodes = FuzzySums(*node[:, None])
    return LevelSums(cells, nodes, cells.weights > 0, np.ones(1), np.zeros(shape, bool))


def test_withheld_cells_explain_nothing() -> None:
    """Two told sets with one mean gain nothing, whatever the third hides; the literal form says so."""
    told = np.array([[10, 2, 1], [20, 4, 2], [0, 0, 0]], float)
    node = np.array([40, -4, 8], float)
    level = sums(told, node)
    assert level.gains("told")[0, 0] == pytest.approx(0)
    assert level.gains("literal")[0, 0] > 0.1
    whole = sums(told, told.sum(axis=0))
    assert whole.gains("told")[0, 0] == whole.gains("literal")[0, 0]


def test_the_gain_is_the_paper_s() -> None:
    """Fuzzy variance less the branches', weighted by their activations (Eqs. 14 and 18), by records."""
    rng = np.random.default_rng(0)
    below, y = rng.random(50), rng.random(50)
    mu = np.column_stack(
        [np.maximum(1 - 2 * below, 0), 1 - np.abs(2 * below - 1), np.maximum(2 * below - 1, 0)]
    )
    told = np.column_stack([mu.sum(axis=0), mu.T @ y, mu.T @ y**2])
    means = (mu.T @ y) / mu.sum(axis=0)
    inside = (mu * (y[:, None] - means) ** 2).sum()
    expected = ((y - y.mean()) ** 2).mean() - inside / mu.sum()
    for form in ("told", "literal"):
        assert sums(told, told.sum(axis=0)).gains(form)[0, 0] == pytest.approx(expected)


def test_a_naturally_split_feature_without_effect_is_not_chosen() -> None:
    """Each client has a range of x and a mean of its own; by what is told, only z matters."""
    rng = np.random.default_rng(2)
    client = np.repeat(np.arange(4), 100)
    x = np.array([0.0, 0.0, 0.25, 0.5])[client] + rng.uniform(0, 0.01, 400) * (client > 1)
    z = rng.uniform(0, 1, 400)
    y = np.array([-8.0, -8.0, 4.0, 4.0])[client] + 3 * (z > 0.5)
    frame = pd.DataFrame({"x": x, "z": z, "y": y, "client": client})
    told, literal = (fitted(frame, max_depth=1, gains=form) for form in ("told", "literal"))
    assert told.root_.feature == 1
    assert literal.root_.feature == 0


def known(paths: tuple[Any, ...], weights: list[float]) -> Known:
    """Nodes of some weight, with means to be told apart."""
    return Known(paths, np.linspace(0.1, 0.2, len(paths)), np.array(weights))


def test_a_leaf_of_which_nothing_is_told_takes_the_model_above() -> None:
    """Its own equations, else its own mean, else the equations of the node above."""
    gram = np.array([np.diag([8.0, 1]), np.zeros((2, 2)), np.zeros((2, 2))])
    moment = np.array([[4.0, 1], [0, 0], [0, 0]])
    leaves = (((0, 0),), ((0, 1),), ((0, 2),))
    models, above = solve((gram, moment), known(leaves, [8, 1, 0]), known(((),), [9]))
    assert above.tolist() == [[0.5, 1.0]]
    assert models.coefficients.tolist() == [[0.5, 1.0], [pytest.approx(0.15), 0], [0.5, 1.0]]
    assert models.constant.tolist() == [False, True, False]
    assert models.borrowed.tolist() == [False, False, True]


def test_equations_of_a_small_part_do_not_stand_for_a_node() -> None:
    """Where most of a node's weight is withheld, its mean does."""
    gram, moment = np.diag([2.0, 1])[None], np.array([[1.0, 1]])
    _, above = solve((gram, moment), known((((0, 0),),), [2]), known(((),), [9]))
    assert above.tolist() == [[pytest.approx(0.1), 0]]


def test_parameters_are_counted_as_the_paper_counts_them() -> None:
    """Inner nodes but the root, and as many coefficients as a leaf has (Eq. 31 and Table 5)."""
    frame = table(6)
    model = fitted(frame, max_depth=1)
    inner = model.n_nodes_ - model.n_leaves_
    assert inner == 0 and model.n_parameters_ == 3 * model.n_leaves_
    deep = fitted(frame, max_depth=2, leaf_features=["z"])
    assert deep.n_parameters_ == deep.n_nodes_ - deep.n_leaves_ + 2 * deep.n_leaves_
    flat = fitted(frame, Policy({Level.kind: (Guard.of("open"),)}), max_depth=1)
    assert flat.n_parameters_ == flat.n_leaves_ > 1
    assert fitted(frame, max_depth=0).n_parameters_ == 3
