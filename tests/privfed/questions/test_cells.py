"""Disjointness checked from public descriptions; a false claim is caught."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import QueryError
from privfed.questions.cells import check_edges, check_paths, overlap

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=3, unique_by=lambda step: step[0]
)
PATHS = st.lists(STEPS.map(tuple), min_size=1, max_size=4)


def reached(path: tuple[tuple[int, int], ...], record: tuple[int, ...]) -> bool:
    """Whether a record of three bits passes a node's path."""
    return all(record[feature] == branch for feature, branch in path)


@settings(max_examples=300)
@given(PATHS)
def test_accepted_nodes_are_disjoint(paths: list[tuple[tuple[int, int], ...]]) -> None:
    """If the check lets nodes through, no record reaches two of them."""
    try:
        check_paths(paths, 3, 2)
    except QueryError:
        return
    for record in itertools.product((0, 1), repeat=3):
        assert sum(reached(path, record) for path in paths) <= 1


@pytest.mark.parametrize(
    "paths",
    [
        [((0, 0),), ((0, 0),)],
        [((0, 0),), ((1, 0),)],
        [((0, 0),), ((0, 0), (1, 1))],
        [(), ((0, 1),)],
        [((0, 0), (1, 0)), ((0, 0), (2, 1))],
    ],
)
def test_false_partitions(paths: list[tuple[tuple[int, int], ...]]) -> None:
    """The same node, a node above another, and two different splits are caught."""
    with pytest.raises(QueryError) as caught:
        check_paths(paths, 3, 2)
    assert caught.value.reason == "false-partition"


@pytest.mark.parametrize("step", [(3, 0), (-1, 0), (0, 2), (0, -1)])
def test_unknown_steps(step: tuple[int, int]) -> None:
    """A feature or branch that does not exist is malformed."""
    with pytest.raises(QueryError) as caught:
        check_paths([(step,)], 3, 2)
    assert caught.value.reason == "malformed"


def test_a_whole_level_is_a_partition() -> None:
    """Both branches of one split pass."""
    check_paths([((0, 0),), ((0, 1), (1, 0)), ((0, 1), (1, 1))], 3, 2)


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        ([0.0], "malformed"),
        ([0.0, np.nan], "malformed"),
        ([0.0, np.inf], "malformed"),
        ([0.0, 0.0], "false-partition"),
        ([1.0, 0.0], "false-partition"),
    ],
)
def test_bad_edges(edges: list[float], reason: str) -> None:
    """Edges are finite and rise."""
    with pytest.raises(QueryError) as caught:
        check_edges(np.array(edges))
    assert caught.value.reason == reason


BOXES = st.lists(
    st.tuples(*[st.tuples(st.integers(0, 3), st.integers(1, 3))] * 2), min_size=0, max_size=5
)


@given(BOXES)
def test_overlap_is_the_deepest_point(boxes: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    """The most boxes over one point, beside a search over all points."""
    corners = np.array(boxes, dtype=float).reshape(-1, 2, 2)
    lower = corners[:, :, 0]
    upper = lower + corners[:, :, 1]
    inside = [
        int(np.sum(np.all((lower <= point) & (point < upper), axis=1)))
        for point in itertools.product(range(7), repeat=2)
    ]
    assert overlap(lower, upper) == max(inside)


def test_a_long_search_is_cut_short() -> None:
    """Sixty boxes in eight dimensions: a bound at once, never below the truth at any point."""
    rng = np.random.default_rng(0)
    lower = rng.random((60, 8)) * 0.3
    upper = lower + 0.6
    bound = overlap(lower, upper)
    points = rng.random((2000, 8)) * 0.4 + 0.2
    inside = np.all((lower <= points[:, None]) & (points[:, None] < upper), axis=2)
    assert inside.sum(axis=1).max() <= bound <= 60


def test_absurd_depth() -> None:
    """A path of a hundred thousand steps is refused before it is walked."""
    with pytest.raises(QueryError) as caught:
        check_paths([((0, 0),) * 100_000], 1, 1)
    assert caught.value.reason == "malformed"
