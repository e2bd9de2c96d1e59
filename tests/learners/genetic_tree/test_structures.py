"""Strings of features: positions, what is connected, what crosses the wire, and whence they come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from privfed.learners.genetic_tree.structures import (
    NIL,
    connected,
    length,
    levels,
    of_tree,
    pack,
    positions,
    random_structures,
    spans,
    trimmed,
    unpack,
)


def _reached(genes: list[int], at: int, span: int) -> set[int]:
    """The naive twin: decision nodes that the root reaches, by recursion."""
    if span == 0 or genes[at] == NIL:
        return set()
    half = span // 2
    return {at} | _reached(genes, at + 1, half) | _reached(genes, at + 1 + half, half)


STRINGS = st.tuples(st.integers(1, 6), st.integers(0, 2**31), st.floats(0, 1))


@given(STRINGS)
def test_what_is_connected_is_what_recursion_reaches(drawn: tuple[int, int, float]) -> None:
    """Whatever share of the genes is nil."""
    depth, seed, nil = drawn
    genes = random_structures(3, depth, 5, nil, np.random.default_rng(seed))
    for row, alive in zip(genes, connected(genes, depth), strict=True):
        assert set(np.flatnonzero(alive)) == _reached(row.tolist(), 0, length(depth))


@given(STRINGS)
def test_connected_nodes_cross_the_wire_and_nothing_else(drawn: tuple[int, int, float]) -> None:
    """Read back, trees are the same with nil for what was detached; the code is no longer than due."""
    depth, seed, nil = drawn
    genes = random_structures(4, depth, 300, nil, np.random.default_rng(seed))
    codes = pack(genes, depth)
    assert np.array_equal(unpack(codes, positions(codes, depth), depth), trimmed(genes, depth))
    assert len(codes) <= 2 * connected(genes, depth).sum() + 4


def test_codes_are_bytes_where_they_fit() -> None:
    """255 features fit into a byte each, 256 do not."""
    assert pack(np.array([[254]]), 1).dtype == np.uint8
    assert pack(np.array([[255]]), 1).dtype == np.int64
    codes = pack(np.array([[255]]), 1)
    assert unpack(codes, positions(codes, 1), 1).tolist() == [[255]]


@pytest.mark.parametrize("depth", [1, 2, 5, 15])
def test_levels_and_spans_cover_the_string(depth: int) -> None:
    """Each position stands on one level; a subtree spans itself and both halves."""
    found = np.concatenate(list(levels(depth)))
    assert sorted(found.tolist()) == list(range(length(depth)))
    sizes = spans(depth)
    assert sizes[0] == length(depth) and (sizes == 1).sum() == 2 ** (depth - 1)


def test_wrong_lengths_end_elsewhere() -> None:
    """Codes that break off, or go on, do not end where whole trees end."""
    assert positions(np.array([1, 0, 0]), 2)[-1] == length(2)
    assert positions(np.array([1, 0]), 2)[-1] < length(2)
    assert positions(np.array([1, 0, 0, 2]), 2)[-1] % length(2) != 0


def test_a_grown_tree_becomes_its_features_in_pre_order() -> None:
    """Cut at a smaller depth, the string is the tree of that depth."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
    deep, flat = (
        DecisionTreeClassifier(max_depth=d, random_state=0).fit(x, y).tree_ for d in (6, 3)
    )
    strings = [of_tree(t.feature, t.children_left, t.children_right, 3) for t in (deep, flat)]
    assert np.array_equal(strings[0], strings[1])
    inner = flat.feature[flat.feature >= 0]
    assert strings[0][strings[0] != NIL].tolist() == inner.tolist()


def test_random_structures_use_all_features_and_the_share_of_nil() -> None:
    """Any feature anywhere, and about one gene of a hundred nil."""
    genes = random_structures(100, 8, 7, 0.01, np.random.default_rng(0))
    assert set(np.unique(genes)) == set(range(-1, 7))
    assert 0.005 < (genes == NIL).mean() < 0.015
