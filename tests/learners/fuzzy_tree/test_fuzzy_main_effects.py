"""Splits of a private tree on features whose effects are no lines."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.growth import FuzzyNode, FuzzySums, LevelSums
from privfed.learners.fuzzy_tree.linear import ResidualsBySet
from privfed.learners.fuzzy_tree.main_effects import GrownTree, beyond_line
from privfed.learners.fuzzy_tree.settings import SETTINGS

PEAKS = (0.0, 0.25, 0.5, 0.75, 1.0)
SCHEMA = Schema(
    tuple(Column(f"x{number}", "number", -1, 1) for number in range(5)),
    Column("y", "number", -4, 4),
)


def drawn(n: int, seed: int, curved: bool) -> pd.DataFrame:
    """A table whose target is a sum over its columns: of curves, or of lines."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 5))
    effect = 2 * x[:, 0] ** 2 + np.sin(3 * x[:, 1]) if curved else x[:, 0] + x[:, 1]
    table = pd.DataFrame(x, columns=SCHEMA.names)
    y = effect + 0.5 * x[:, 2] + rng.normal(0, 0.3, n)
    return table.assign(y=y - y.mean(), owner=rng.choice(["a", "b"], n))


def fitted(table: pd.DataFrame, epsilon: str, max_depth: int | None = None) -> FuzzyTreeRegressor:
    """A private tree of the table."""
    learner = FuzzyTreeRegressor(max_depth=max_depth)
    policy = learner.private(epsilon)
    return learner.fit(
        LocalDisclosure.from_frame(table, "y", client="owner", schema=SCHEMA, policy=policy, seed=0)
    )


def error(model: FuzzyTreeRegressor, curved: bool) -> float:
    """Its error on other records, over a constant's."""
    test = drawn(4000, 9, curved)
    left = test["y"] - model.predict(test[list(SCHEMA.names)])
    return float(np.sqrt((left**2).mean()) / test["y"].std())


def test_effects_that_are_no_lines_are_learned_by_splits_on_their_features() -> None:
    """Two curves of which a linear model sees little: five sets of each; without splits, twice the error."""
    table = drawn(6000, 0, curved=True)
    tree, line = fitted(table, "4"), fitted(table, "4", max_depth=0)
    assert tree.root_.split_features == {0, 1} and tree.n_leaves_ == 25
    assert error(tree, True) < 0.62 * error(line, True)
    assert fitted(table, "4", max_depth=1).n_leaves_ == 5


def test_lines_are_not_split() -> None:
    """A tree of lines is one rule, close to least squares."""
    model = fitted(drawn(6000, 0, curved=False), "4")
    assert model.n_leaves_ == 1 and error(model, False) < 0.4


@pytest.mark.parametrize("noise", [0.0, 5.0, 50.0])
def test_a_line_is_rejected_as_often_as_the_level_says(noise: float) -> None:
    """Of 2,000 draws of noise and sampling about a line, 5 % have a p-value below .05, within four deviations."""
    rng, weights = np.random.default_rng(0), np.array([200.0, 400.0, 400.0, 300.0, 100.0])
    line = weights * (0.1 - 0.3 * np.array(PEAKS))
    deviation = np.sqrt(noise**2 + weights * 0.02 / 2)
    sums = line + deviation * rng.normal(size=(2000, 5))
    low = np.mean([beyond_line(row, noise, weights, PEAKS, 0.02)[1] < 0.05 for row in sums])
    assert abs(low - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 2000)


def test_a_curve_is_no_line_and_explains_what_it_does() -> None:
    """The sum of squares about the line, less that of noise; two sets with records are always on a line."""
    weights, curve = np.full(5, 400.0), np.array([0.1, -0.05, -0.1, -0.05, 0.1])
    explained, p = beyond_line(weights * curve, 1.0, weights, PEAKS, 0.02)
    assert p < 1e-9 and explained == pytest.approx(400 * (curve**2).sum(), rel=0.02)
    few = np.array([400.0, 0.0, 0.0, 0.0, 400.0])
    assert beyond_line(few * curve, 1.0, few, PEAKS, 0.02) == (0.0, 1.0)


def grown(
    features: int = 3, peaks: tuple[float, ...] = PEAKS, depth: int | None = None
) -> GrownTree:
    """A tree of one node, of a hundred records in each set."""
    weights = np.full((1, features, len(peaks)), 100.0)
    means = np.linspace(-0.2, 0.2, len(peaks))
    cells = FuzzySums(weights, weights * means, weights)
    nodes = FuzzySums(*(np.array([total]) for total in (100.0 * len(peaks), 0.0, 1.0)))
    sums = LevelSums(
        cells, nodes, weights > 0, np.ones(1), weights < 0, (np.array(0.1), np.array(0.1))
    )
    uniform = (peaks,) * features
    root = FuzzyNode((), 0.0, 100.0 * len(peaks))
    return GrownTree(root, tuple(range(features)), uniform, uniform, (sums, uniform), depth)


def test_a_tree_splits_all_branches_while_leaves_are_few() -> None:
    """Means add up, weights multiply; not more features than set, or than leaves allow; nothing without features."""
    tree = grown()
    tree.split_on([])
    assert not tree.regrown and len(tree.leaves) == 1
    tree.split_on([2, 0, 1])
    assert tree.regrown and len(tree.leaves) == 25 <= SETTINGS.max_leaves
    assert {leaf.path[0][0] for leaf in tree.leaves} == {2}
    corner = next(leaf for leaf in tree.leaves if leaf.path == ((2, 4), (0, 0)))
    assert corner.mean == pytest.approx(0.0, abs=0.01) and corner.weight == pytest.approx(20.0)
    assert sum(leaf.weight for leaf in tree.leaves) == pytest.approx(500.0)
    one = grown(depth=1)
    one.split_on([2, 0])
    assert len(one.leaves) == 5
    none = grown(depth=0)
    none.split_on([2, 0])
    assert not none.regrown


def test_a_feature_without_records_in_its_sets_is_not_split_on() -> None:
    """Noise may hide all of them; the root stays a leaf, and another feature is split on."""
    tree = grown()
    assert tree.sums is not None
    cells = tree.sums[0].cells
    cells.weights[:, 1] = 0.0
    tree.split_on([1])
    assert len(tree.leaves) == 1 and tree.root.leaf
    other = grown()
    assert other.sums is not None
    other.sums[0].cells.weights[:, 1] = 0.0
    other.split_on([1, 0])
    assert len(other.leaves) == 5


def test_many_sets_are_joined() -> None:
    """Two features of seven sets have 49 leaves: the lowest, the middle and the highest of each remain."""
    tree = grown(peaks=tuple(np.linspace(0, 1, 7).tolist()))
    tree.split_on([0, 1])
    assert len(tree.leaves) == 9 and tree.sets[0] == (0.0, 0.5, 1.0) and len(tree.sets[2]) == 7


def test_a_policy_without_residuals_by_set_is_learned_from() -> None:
    """An owner's file written before that query existed: one split at most, and a finite model."""
    learner, table = FuzzyTreeRegressor(), drawn(2000, 0, curved=True)
    policy = learner.private("4")
    guards = {kind: own for kind, own in policy.guards.items() if kind != ResidualsBySet.kind}
    policy = replace(policy, guards=guards)
    federation = LocalDisclosure.from_frame(
        table, "y", client="owner", schema=SCHEMA, policy=policy, seed=0
    )
    assert learner.fit(federation).depth_ <= 1 and error(learner, True) < 1.05
