"""Disjointness checked from public descriptions; a false claim is caught."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import QueryError
from privfed.questions.cells import DEPTH, check_edges, check_paths

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


def test_deep_paths_take_no_more_room_than_their_steps() -> None:
    """A stranger's short question of many deep nodes does not fill a gate's memory."""
    bits = np.random.default_rng(0).integers(0, 2, (300, DEPTH)).tolist()
    paths = [tuple(enumerate(own)) for own in bits]
    tracemalloc.start()
    check_paths(paths, DEPTH, 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * DEPTH * 300


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


def test_absurd_depth() -> None:
    """A path of a hundred thousand steps is refused before it is walked."""
    with pytest.raises(QueryError) as caught:
        check_paths([((0, 0),) * 100_000], 1, 1)
    assert caught.value.reason == "malformed"
