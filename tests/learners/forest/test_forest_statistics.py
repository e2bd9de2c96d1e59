"""A client's statistics against naive twins, whatever is kept between questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Column, Schema
from privfed.learners.forest import columns, statistics
from privfed.learners.forest import node_index as levels
from privfed.learners.forest.columns import ordered, unordered
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.queries import BinStatistics, LocalGains, Shortlist, Sketches
from privfed.learners.forest.samples import CAP, Sampling
from privfed.learners.forest.statistics import local_gains
from privfed.learners.forest.trees import LEAF, BinaryTrees
from privfed.questions.query import View
from privfed.tables.records import Records

SCHEMA = Schema(
    (
        Column("a", "number", -3, 3),
        Column("b", "number", -3, 3),
        Column("c", "category", categories=("u", "v", "w")),
    ),
    Column("y", "integer", 0, 2),
)
RECORDS = 80


def view(records: int = RECORDS, seed: int = 0) -> View:
    """Records with repeated values and one category that is rare."""
    rng = np.random.default_rng(seed)
    x = np.column_stack(
        [rng.normal(size=records), rng.integers(-2, 3, records), rng.integers(0, 3, records)]
    )
    return View(Records(SCHEMA, x, rng.integers(0, 3, records)), SCHEMA, b"secret")


def stump_and_root(way: str = "all", classes: int = 3) -> OpenNodes:
    """Two trees: the first split on ``a`` at 0.25 and its right child by category, the second a root."""
    trees = BinaryTrees(
        2,
        np.array([0, LEAF, LEAF, 2, LEAF, LEAF]),
        np.array([0.25, 0, 0, 0, 0, 0], np.float32),
        np.array([2, 0, 0, 4, 0, 0]),
        np.array([-1, -1, -1, 0, -1, -1]),
        np.array([[True, False, True]]),
    )
    open_ = np.array([2, 4, 5, 1])
    numeric = NodeFeatures(np.array([2, 1, 0, 2]), np.array([0, 1, 1, 0, 1]))
    grouped = NodeFeatures(np.array([1, 0, 1, 1]), np.array([2, 2, 2]))
    return OpenNodes(trees, Sampling(way, 5, np.arange(2), 2), open_, numeric, grouped, classes)


def members(own: View, level: OpenNodes, node: int) -> np.ndarray:
    """The instances in a node, by its conditions."""
    x = own.table.x.astype(np.float32)
    rows = level.sampling.rows(own, 0 if node != 1 else 1)
    left = x[rows, 0] <= np.float32(0.25)
    among = np.isin(x[rows, 2], [0, 2])
    inside = {2: left, 4: ~left & among, 5: ~left & ~among, 1: np.ones(len(rows), bool)}[node]
    return np.asarray(rows[inside])


@pytest.mark.parametrize("way", ["all", "bootstrap", "poisson", "split"])
@pytest.mark.parametrize("classes", [0, 1, 3])
@pytest.mark.parametrize("interpolate", [False, True])
@pytest.mark.parametrize("widest", [0, 22])
def test_sketches_and_totals(
    way: str, classes: int, interpolate: bool, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order statistics, numpy's quantiles, and totals, node by node, with keys of 32 or of 64 bits."""
    monkeypatch.setattr(columns, "WIDEST", widest)
    own, level = view(), stump_and_root(way, classes)
    found = Sketches(level, 4, interpolate).evaluate(own)
    x = own.table.x.astype(np.float32)
    for pair, (node, feature) in enumerate(
        zip(level.numeric.nodes, level.numeric.features, strict=True)
    ):
        values = np.sort(x[members(own, level, level.nodes[node]), feature])
        told = found["knots"][pair]
        if interpolate:
            assert np.allclose(told, np.quantile(values, np.arange(5) / 4), atol=1e-6)
        else:
            rank = np.rint(np.arange(5) * (len(values) - 1) / 4).astype(int)
            assert np.array_equal(told, values[rank])
    for place, node in enumerate(level.nodes):
        rows = members(own, level, node)
        if classes == 3:
            counted = np.bincount(own.table.target[rows].astype(int), minlength=3)
            assert np.array_equal(found["counts"][place], counted)
        else:
            assert found["counts"][place].tolist() == [len(rows)]


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize("widest", [0, 22])
@pytest.mark.parametrize("way", ["all", "bootstrap", "poisson", "split"])
@pytest.mark.parametrize("classes", [0, 1, 2, 3])
def test_bins_and_categories(
    way: str, classes: int, few: int, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records between cuts and of each category, one by one; sums of targets beside them.

    Whether cuts are looked up in sorted keys, of 32 bits or of 64, or compared with each record.
    """
    monkeypatch.setattr(statistics, "FEW", few)
    monkeypatch.setattr(columns, "WIDEST", widest)
    own, level = view(), stump_and_root(way, classes)
    cuts = np.sort(np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32), axis=1)
    cuts[1], cuts[4] = [-1, -1, 0], [-9, 2, 9]
    found = BinStatistics(level, cuts).evaluate(own)
    x, y = own.table.x.astype(np.float32), own.table.target
    units = np.trunc((y / 2 - 0.5) * 2**20)
    for pair, (node, feature) in enumerate(
        zip(level.numeric.nodes, level.numeric.features, strict=True)
    ):
        rows = members(own, level, level.nodes[node])
        place = (x[rows, feature][:, None] > cuts[pair]).sum(axis=1)
        for bin_ in range(4):
            check(
                found,
                "bin",
                (pair, bin_),
                y[rows[place == bin_]],
                units[rows[place == bin_]],
                classes,
            )
    for pair, node in enumerate(level.grouped.nodes):
        rows = members(own, level, level.nodes[node])
        for code in range(3):
            inside = rows[x[rows, 2] == code]
            check(found, "group", (pair, code), y[inside], units[inside], classes)


def check(
    found: Any, of: str, cell: tuple[int, int], y: np.ndarray, units: np.ndarray, classes: int
) -> None:
    """One cell against the records that are in it."""
    counts = found[f"{of}s"][cell]
    if classes > 1:
        expected = np.bincount(np.minimum(y, classes - 1).astype(int), minlength=classes)
        assert np.array_equal(counts, expected)
    else:
        assert counts.tolist() == [len(y)]
    if classes == 0:
        assert found[f"{of}_sums"][cell] == units.sum()


def test_what_is_kept_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, runs copied one by one, no room to keep anything, a cache that vanished: the same answers."""
    cuts = np.tile(np.array([-0.5, 0.5], np.float32), (5, 1))
    questions = [
        Sketches(stump_and_root("bootstrap"), 4),
        BinStatistics(stump_and_root("bootstrap"), cuts),
    ]
    kept = view()
    before = [question.evaluate(kept) for question in questions]
    for room, block, short in ((levels.KEPT, 1, 300), (0, 40_000, 0), (600, 50, 0)):
        monkeypatch.setattr(levels, "SHORT", short)
        monkeypatch.setattr(levels, "KEPT", room)
        monkeypatch.setattr(levels, "BLOCK", block)
        other = view()
        for question, expected in zip(
            [*questions, questions[0]], [*before, before[0]], strict=True
        ):
            found = question.evaluate(other)
            assert all(np.array_equal(found[name], expected[name]) for name in expected)
            other.cache.clear()


def test_parts_of_another_number_of_trees_are_other_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A split into three is not answered from one into two, whatever was kept."""
    cuts = np.tile(np.array([-0.5, 0.5], np.float32), (5, 1))
    monkeypatch.setattr(levels, "BLOCK", 1)
    level = stump_and_root("split")
    three = replace(level, sampling=Sampling("split", 5, np.arange(2), 3))
    seen = view()
    BinStatistics(level, cuts).evaluate(seen)
    found, expected = (
        BinStatistics(three, cuts).evaluate(seen),
        BinStatistics(three, cuts).evaluate(view()),
    )
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    other = BinStatistics(level, cuts).evaluate(view())
    assert not all(np.array_equal(other[name], expected[name]) for name in expected)


def test_grown_trees_are_walked_on_from_where_they_were() -> None:
    """Asked about the roots first, then about their children, a client says what a fresh one says."""
    level = stump_and_root("bootstrap")
    none = NodeFeatures(np.zeros(2, int), np.zeros(0, int))
    roots = OpenNodes(BinaryTrees.stumps(2), level.sampling, np.arange(2), none, none, 3)
    own = view()
    Sketches(roots, 1).evaluate(own)
    assert np.array_equal(
        Sketches(level, 4).evaluate(own)["knots"], Sketches(level, 4).evaluate(view())["knots"]
    )


def test_samples_are_drawn_once_though_subsets_widen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees whose first subsets came since, or wider ones, are walked on from where they were."""
    level, drawn, rows = stump_and_root("bootstrap"), [], Sampling.rows
    monkeypatch.setattr(Sampling, "rows", lambda *of: drawn.append(of[2]) or rows(*of))
    none = NodeFeatures(np.zeros(2, int), np.zeros(0, int))
    roots = OpenNodes(BinaryTrees.stumps(2), level.sampling, np.arange(2), none, none, 3)
    wider = replace(level.trees, subsets=np.pad(level.trees.subsets, ((0, 0), (0, 2))))
    own = view()
    for asked in (roots, level, replace(level, trees=wider)):
        Sketches(asked, 2).evaluate(own)
    assert drawn == [0, 1]


@pytest.mark.parametrize("kinds", [[0], [1], [0, 1], [1, 0, 1]])
def test_cuts_and_subsets_in_one_step_down(kinds: list[int]) -> None:
    """Nodes split by a cut, and by a subset, send each record where its own rule says, one by one."""
    rng = np.random.default_rng(len(kinds))
    columns_ = np.stack([rng.normal(size=40), rng.integers(0, 3, 40)]).astype(np.float32)
    roots, by_set = len(kinds), np.array(kinds) > 0
    none = np.full(2 * roots, LEAF)
    trees = BinaryTrees(
        roots,
        np.append(kinds, none),
        np.append(np.where(by_set, 0, 0.1), 0 * none).astype(np.float32),
        np.append(roots + 2 * np.arange(roots), 0 * none),
        np.append(np.where(by_set, 0, -1), none),
        np.array([[True, False, True]]),
    )
    counts = rng.integers(1, 9, roots)
    rows = rng.integers(0, 40, counts.sum())
    told = trees.goes_right(np.arange(roots), rows, columns_, counts)
    expected = [
        columns_[1, row] == 1 if kind else columns_[0, row] > np.float32(0.1)
        for kind, row in zip(np.repeat(kinds, counts), rows, strict=True)
    ]
    assert told.tolist() == expected
    assert (
        trees.goes_right(np.repeat(np.arange(roots), counts), rows, columns_).tolist() == expected
    )


@pytest.mark.parametrize("block", [1, 40_000])
def test_leaves_that_were_not_asked_about_are_found_again(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Asked about some leaves, then others, then all, a client says what a fresh one says."""
    monkeypatch.setattr(levels, "BLOCK", block)
    whole, own = stump_and_root("bootstrap"), view()
    for kept in ([0], [2, 3], [1], [0, 1, 2, 3]):
        numeric, grouped = (
            NodeFeatures(p.sizes[kept], p.features[np.isin(p.nodes, kept)])
            for p in (whole.numeric, whole.grouped)
        )
        level = replace(whole, nodes=whole.nodes[kept], numeric=numeric, grouped=grouped)
        question = BinStatistics(level, np.zeros((len(numeric), 1), np.float32))
        found, expected = question.evaluate(own), question.evaluate(view())
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2))
def test_ordered_bits_sort_like_their_floats(values: list[float]) -> None:
    """Unsigned integers in the order of the floats, and back; minus zero is zero."""
    array = np.array(values, np.float32)
    order = np.argsort(ordered(array), kind="stable")
    assert np.array_equal(array[order], np.sort(array))
    assert np.array_equal(unordered(ordered(array)), array)
    assert ordered(np.array([-0.0]))[0] == ordered(np.array([0.0]))[0]


def test_samples() -> None:
    """A bootstrap is as long as the table and repeats; coins split records and cap their repeats."""
    own, trees = view(2000), np.arange(40)
    ways = {way: Sampling(way, 3, trees, 40) for way in ("bootstrap", "poisson", "split", "all")}
    assert all(len(ways["bootstrap"].rows(own, tree)) == 2000 for tree in range(3))
    split = np.concatenate([ways["split"].rows(own, tree) for tree in range(40)])
    assert np.array_equal(np.sort(split), np.arange(2000))
    counts = np.bincount(ways["poisson"].rows(own, 0), minlength=2000)
    assert counts.max() <= CAP
    assert abs(counts.mean() - 1) < 0.1 and abs((counts == 0).mean() - np.exp(-1)) < 0.05
    other = Sampling("bootstrap", 4, trees, 40)
    assert not np.array_equal(other.rows(own, 0), ways["bootstrap"].rows(own, 0))
    assert np.array_equal(ways["bootstrap"].rows(view(2000), 0), ways["bootstrap"].rows(own, 0))


def test_local_gains_and_shortlists() -> None:
    """A client's gains follow from its own bins; its shortlist is led by the feature that matters."""
    own, level = view(400), stump_and_root()
    x = own.table.x
    target = (x[:, 1] > 0).astype(float) * 2
    own = View(Records(SCHEMA, x, target), SCHEMA, b"secret")
    cuts = np.tile(np.array([-1.5, -0.5, 0.5], np.float32), (5, 1))
    gains = LocalGains(level, cuts, "gini").evaluate(own)["gains"]
    assert np.array_equal(gains, local_gains(BinStatistics(level, cuts).evaluate(own), "gini"))
    assert gains[1].argmax() == 2
    told = Shortlist(level, 4, 2, "gini").evaluate(own)
    assert told["features"][0, 0] == 1 and told["features"][3, 0] == 1
    assert (told["gains"][:, 0] >= told["gains"][:, 1]).all()
