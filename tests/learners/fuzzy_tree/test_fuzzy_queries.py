"""The fuzzy tree's queries: sums against a naive twin, and sensitivities by brute force."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Column, Schema
from privfed.errors import QueryError
from privfed.learners.fuzzy_tree.linear import Coordinates, Residuals
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.learners.fuzzy_tree.sums import revealing
from privfed.questions.part import GRID
from privfed.questions.query import Query, View
from privfed.tables.records import Records

FEATURES, SETS = 3, 3
SCHEMA = Schema(
    tuple(Column(f"x{number}", "number", 0, 1) for number in range(FEATURES)),
    Column("y", "number", -2, 2),
)
SCALE = (np.zeros(FEATURES), np.ones(FEATURES))
ALL = tuple(range(FEATURES))
#: One tree: the root splits on feature 1, its middle branch on feature 0.
LEVELS = {
    0: ((),),
    1: (((1, 0),), ((1, 1),), ((1, 2),)),
    2: (((1, 1), (0, 0)), ((1, 1), (0, 1)), ((1, 1), (0, 2)), ((1, 0), (2, 1))),
}
LEAVES = (((1, 0),), ((1, 2),), ((1, 1), (0, 0)), ((1, 1), (0, 1)), ((1, 1), (0, 2)))
values = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1, width=32))
rows = st.lists(st.tuples(values, values, values, st.floats(-2, 2, width=32)), max_size=6)


def view(records: Sequence[tuple[float, ...]]) -> View:
    """A client with some records."""
    table = np.array(records, dtype=float).reshape(-1, FEATURES + 1)
    return View(Records(SCHEMA, table[:, :FEATURES], table[:, FEATURES]), SCHEMA)


def queries() -> list[Query]:
    """One of each kind, the level at each depth."""
    levels = [Level(nodes, SETS, *SCALE, ALL) for nodes in LEVELS.values()]
    return [
        *levels,
        Leaves(LEAVES, SETS, *SCALE, ALL),
        Activations(LEAVES, SETS, *SCALE),
        Scaling(7),
    ]


@settings(max_examples=60)
@given(records=rows, more=rows.filter(bool))
def test_one_record_moves_each_part_by_no_more_than_its_sensitivity(
    records: Sequence[tuple[float, ...]], more: Sequence[tuple[float, ...]]
) -> None:
    """Brute force over neighbours, everything at the client rebuilt from the neighbouring data."""
    for query in queries():
        parts = query.parts(SCHEMA)
        without, with_one = query.evaluate(view(records)), query.evaluate(view([*records, more[0]]))
        for name, part in parts.items():
            moved = (with_one[name] - without[name]).ravel()
            assert part.sensitivity is not None
            bound = part.sensitivity.add_or_remove
            assert np.abs(moved).sum() <= bound.l1, (query.kind, name)
            squared = sum(int(step) ** 2 for step in moved)
            assert squared <= bound.l2_squared, (query.kind, name)


@settings(max_examples=40)
@given(records=rows, old=rows.filter(bool), new=rows.filter(bool))
def test_a_replaced_record_moves_each_part_by_no_more_than_its_sensitivity(
    records: Sequence[tuple[float, ...]],
    old: Sequence[tuple[float, ...]],
    new: Sequence[tuple[float, ...]],
) -> None:
    """The same for replace-one."""
    for query in queries():
        before, after = (
            query.evaluate(view([*records, old[0]])),
            query.evaluate(view([*records, new[0]])),
        )
        for name, part in query.parts(SCHEMA).items():
            assert part.sensitivity is not None
            bound = part.sensitivity.under("record", "replace-one", None)
            moved = (after[name] - before[name]).ravel()
            assert np.abs(moved).sum() <= bound.l1
            assert sum(int(step) ** 2 for step in moved) <= bound.l2_squared


def test_the_sums_bounds_are_attained() -> None:
    """A record at a corner moves the joint sums by all that is allowed, so no bound is slack."""
    query = Level(LEVELS[0], SETS, *SCALE, ALL)
    exact = query.evaluate(view([(0.0, 1.0, 0.5, 2.0)]))
    for name in ("weights", "linear", "squares"):
        sensitivity = query.parts(SCHEMA)[name].sensitivity
        assert sensitivity is not None
        assert np.abs(exact[name]).sum() == sensitivity.add_or_remove.l1
        assert sum(int(v) ** 2 for v in exact[name].ravel()) == sensitivity.add_or_remove.l2_squared
    gram = Leaves(((),), SETS, *SCALE, ALL)
    corner = gram.evaluate(view([(0.0, 1.0, 1.0, 2.0)]))
    for name in ("gram", "moment"):
        sensitivity = gram.parts(SCHEMA)[name].sensitivity
        assert sensitivity is not None
        assert (
            sum(int(v) ** 2 for v in corner[name].ravel()) == sensitivity.add_or_remove.l2_squared
        )


def test_a_planted_fault_in_a_sensitivity_is_caught() -> None:
    """With scaling worked out from the records themselves one record moves sums by more."""
    records = [(0.1, 0.2, 0.3, 1.0)] * 30
    far = (1.0, 1.0, 1.0, 1.0)

    def own_scale(rows: Sequence[tuple[float, ...]]) -> dict[str, np.ndarray]:
        table = np.array(rows)[:, :FEATURES]
        query = Level(((),), SETS, table.min(axis=0) - 0.1, table.max(axis=0), ALL)
        return dict(query.evaluate(view(rows)))

    moved = np.abs(own_scale([*records, far])["weights"] - own_scale(records)["weights"]).sum()
    bound = Level(((),), SETS, *SCALE, ALL).parts(SCHEMA)["weights"].sensitivity
    assert bound is not None
    assert moved > bound.add_or_remove.l1


def naive(records: Sequence[tuple[float, ...]], path: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Activation of a node, record by record, by the definition of a triangle."""

    def membership(value: float, fuzzy_set: int) -> float:
        return max(0.0, 1 - abs(value * (SETS - 1) - fuzzy_set))

    return np.array([np.prod([membership(r[f], s) for f, s in path]) for r in records])


@settings(max_examples=60)
@given(records=rows)
def test_sums_equal_a_naive_twin(records: Sequence[tuple[float, ...]]) -> None:
    """Vectorised sums over nodes, features and sets equal a loop over the definition."""
    grid = float(GRID)
    for nodes in LEVELS.values():
        exact = Level(nodes, SETS, *SCALE, ALL).evaluate(view(records))
        for number, path in enumerate(nodes):
            target = np.array([r[3] / 4 for r in records])
            for feature in set(ALL) - {f for f, _ in path}:
                for fuzzy_set in range(SETS):
                    w = naive(records, (*path, (feature, fuzzy_set)))
                    cell = (number, feature, fuzzy_set)
                    for name, power in (("weights", 0), ("linear", 1), ("squares", 2)):
                        expected = (w * target**power).sum()
                        assert abs(exact[name][cell] * grid - expected) < 1e-6
                    assert exact["counts"][cell] == (w >= float(GRID)).sum()
            strong = (naive(records, path) >= 0.5 ** len(path)).sum()
            assert exact["node_strong"][number] == strong


@settings(max_examples=40)
@given(records=rows)
def test_an_empty_cache_changes_nothing(records: Sequence[tuple[float, ...]]) -> None:
    """The cache may vanish at any time: a level evaluated afresh equals one after its parents."""
    seen = view(records)
    for nodes in LEVELS.values():
        query = Level(nodes, SETS, *SCALE, ALL)
        warm, fresh = query.evaluate(seen), query.evaluate(view(records))
        assert all(np.array_equal(warm[name], fresh[name]) for name in fresh)


def many(records: int) -> View:
    """A client with many records."""
    rng = np.random.default_rng(3)
    table = np.column_stack([rng.uniform(size=(records, FEATURES)), rng.normal(size=records)])
    return view(table.tolist())


def test_pieces_of_the_records_sum_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records are worked on at a time."""
    whole = [query.evaluate(many(50)) for query in queries()]
    for limit in ("CELLS", "ACTIVATIONS"):
        monkeypatch.setattr(f"privfed.learners.fuzzy_tree.fuzzy.{limit}", 20)
    for query, expected in zip(queries(), whole, strict=True):
        for name, values in query.evaluate(many(50)).items():
            assert np.asarray(values).tobytes() == np.asarray(expected[name]).tobytes()


def test_a_client_holds_little_more_than_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places among the sets, and activations: no table in units, no product by record and cell."""
    for limit in ("CELLS", "ACTIVATIONS"):
        monkeypatch.setattr(f"privfed.learners.fuzzy_tree.fuzzy.{limit}", 4096)
    own = many(20_000)
    for query in (Level(LEVELS[1], SETS, *SCALE, ALL), Leaves(LEVELS[1], SETS, *SCALE, ALL)):
        tracemalloc.start()
        query.evaluate(View(own.records, SCHEMA))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3_200_000


def test_a_deep_level_takes_no_more_memory_with_more_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All records reach all of 2^6 nodes by 12 features; four times the records peak as high."""
    wide = Schema(
        tuple(Column(f"x{k}", lower=0, upper=1) for k in range(7)), Column("y", lower=0, upper=1)
    )
    nodes = tuple(tuple(enumerate(own)) for own in itertools.product((0, 1), repeat=6))
    level = Level(nodes, 2, wide.lower, wide.upper, (6,))
    still = np.zeros(4)
    of_all = Residuals(nodes, 2, wide.lower, wide.upper, Coordinates.public((0, 1, 2)), still, 1.0)
    for limit in ("CELLS", "ACTIVATIONS"):
        monkeypatch.setattr(f"privfed.learners.fuzzy_tree.fuzzy.{limit}", 2**14)
    for query in (level, of_all):
        peaks = []
        for records in (2_000, 8_000):
            x = np.random.default_rng(0).uniform(0.4, 0.6, (records, 7))
            seen = View(Records(wide, x, x[:, 0]), wide)
            Level(((),), 2, wide.lower, wide.upper, (6,)).evaluate(seen)  # places among the sets
            tracemalloc.start()
            query.evaluate(seen)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < 1.1 * peaks[0] < 8_000 * 2**6 * 16


@pytest.mark.parametrize("strict", [False, True])
def test_a_query_takes_no_more_memory_than_it_says(
    strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the records, whose places among the sets it keeps: what it says, not half of that held back.

    Blocks are small here, so that what grows with nodes and cells is what counts.
    """
    for limit in ("fuzzy.CELLS", "fuzzy.ACTIVATIONS", "queries.ACTIVATIONS"):
        monkeypatch.setattr(f"privfed.learners.fuzzy_tree.{limit}", 2**14)
    features = 10
    wide = Schema(
        tuple(Column(f"x{k}", lower=0, upper=1) for k in range(features)),
        Column("y", lower=0, upper=1),
    )
    x = np.random.default_rng(0).uniform(0.4, 0.6, (500, features))
    for depth in (0, 4, 8):
        nodes = tuple(tuple(enumerate(own)) for own in itertools.product((0, 1), repeat=depth))
        query = Level(nodes, 2, wide.lower, wide.upper, tuple(range(features)))
        cells = sum(part.size for part in query.parts(wide).values())
        seen = View(Records(wide, x, x[:, 0]), wide)
        tracemalloc.start()
        exact = query.evaluate(seen)
        if strict:
            query.reveals(exact, seen, strict=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak - x.nbytes * 3 < query.memory(cells) - 2**26 + 2**21


@settings(max_examples=40)
@given(records=rows)
def test_a_features_sets_sum_to_the_node(records: Sequence[tuple[float, ...]]) -> None:
    """Strong partition: weights over a feature's sets are the node's, up to the grid's floor."""
    exact = Level(LEVELS[1], SETS, *SCALE, ALL).evaluate(view(records))
    sums = exact["weights"].sum(axis=2)
    slack = SETS * max(len(records), 1)
    for feature in (0, 2):
        assert (np.abs(sums[:, feature] - exact["node_weights"]) <= slack).all()


def test_leaf_equations_are_those_of_weighted_least_squares() -> None:
    """The gram matrix and the moment equal the matrix products that they stand for."""
    rng = np.random.default_rng(3)
    records = [tuple(row) for row in rng.random((40, 4))]
    table = np.array(records)
    exact = Leaves(LEAVES, SETS, *SCALE, ALL).evaluate(view(records))
    design = np.column_stack([np.ones(40), table[:, :3] - 0.5])
    for number, path in enumerate(LEAVES):
        w = naive(records, path)
        gram = design.T @ (w[:, None] * design)
        assert np.allclose(exact["gram"][number] * float(GRID), gram, atol=1e-6)
        moment = design.T @ (w * table[:, 3] / 4)
        assert np.allclose(exact["moment"][number] * float(GRID), moment, atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ((((0, 0),), ((0, 0),)), "false-partition"),
        ((((0, 0),), ((1, 0),)), "false-partition"),
        (((), ((0, 0),)), "false-partition"),
        ((((9, 0),),), "malformed"),
        ((((0, 9),),), "malformed"),
        ((), "malformed"),
    ],
)
def test_nodes_that_are_no_tree_are_refused(nodes: tuple[object, ...], reason: str) -> None:
    """Overlapping nodes would break the sensitivity, so they are found from public values."""
    with pytest.raises(QueryError) as caught:
        Level(nodes, SETS, *SCALE, ALL).parts(SCHEMA)  # type: ignore[arg-type]
    assert caught.value.reason == reason


def test_scaling_that_is_not_finite_is_refused() -> None:
    """NaN in the public scaling is a malformed query."""
    lower = np.array([0.0, np.nan, 0.0])
    with pytest.raises(QueryError):
        Level(((),), SETS, lower, np.ones(3), ALL).parts(SCHEMA)


def cells(
    weights: list[int], counts: list[int], root: bool = False, strict: bool = False
) -> list[bool]:
    """Which of one feature's sets reveal; weights in halves of a record."""
    grid = int(1 / GRID)
    w = np.array(weights, dtype=float)[None, None] * grid / 2
    return [bool(v) for v in revealing(w, np.array(counts)[None, None], [root], strict)[0, 0]]


def test_the_papers_three_conditions_nullify() -> None:
    """Few records; a set between empty ones, borders included; full weights at the root."""
    assert cells([3, 8, 5], [2, 8, 6]) == [True, False, False]
    assert cells([0, 8, 0], [0, 8, 0]) == [True, True, True]
    assert cells([8, 0, 6], [8, 0, 6]) == [True, True, True]
    assert cells([10, 6, 4], [5, 6, 4], root=True) == [True, False, False]
    assert cells([10, 6, 4], [5, 6, 4]) == [False, False, False]


def test_strict_nullification_leaves_empty_cells_alone() -> None:
    """An empty cell reveals nobody, and hiding it would silence everything."""
    assert cells([0, 8, 9], [0, 9, 9], strict=True) == [False, False, False]
    assert cells([0, 2, 9], [0, 2, 9], strict=True) == [False, True, False]


def test_strictly_a_node_is_silent_with_its_siblings() -> None:
    """If one branch of a split holds two records, every branch and all below are silent."""
    rng = np.random.default_rng(0)
    crowd = [(float(a), float(b), float(c), 0.0) for a, b, c in rng.uniform(0, 0.45, (40, 3))]
    records = [*crowd, (0.2, 0.9, 0.2, 1.0), (0.3, 0.95, 0.1, 1.0)]
    seen = view(records)
    query = Level(LEVELS[1], SETS, *SCALE, ALL)
    masks = query.reveals(query.evaluate(seen), seen, strict=True)
    assert masks["node_weights"].all() and masks["weights"].all()
    calm = view(crowd)
    assert not query.reveals(query.evaluate(calm), calm, strict=True)["node_weights"].any()


def test_grid_units_are_a_power_of_two() -> None:
    """Halves and quarters of a unit stay whole, so the integer bounds are exact."""
    assert Fraction(1) / GRID == 2**30


@pytest.mark.parametrize(
    "own",
    [
        {"target": (1.0,)},
        {"target": (1.0, 1.0)},
        {"target": (0.0, float("inf"))},
        {"partition": (3, 3)},
        {"partition": (3, 1, 3)},
        {"partition": (3, 4, 3)},
        {"peaks": ((0.0, 0.5, 1.0),) * 2},
        {"peaks": ((0.0, 1.0),) * 3},
        {"peaks": ((0.0, 0.5, 0.5),) * 3},
        {"peaks": ((0.0, 0.5, 1.5),) * 3},
        {"peaks": ((-0.5, 0.5, 1.0),) * 3},
        {"peaks": ((0.0, float("nan"), 1.0),) * 3},
    ],
    ids=str,
)
def test_intervals_and_partitions_that_make_no_sense_are_refused(own: dict[str, Any]) -> None:
    """One end, no width or no number; too few features, sets or peaks, more than the most; peaks that do not rise in [0, 1]."""
    for query in (
        Level(((),), SETS, *SCALE, ALL, **own),
        Leaves(((),), SETS, *SCALE, ALL, **own),
        Activations(((),), SETS, *SCALE, **own),
    ):
        with pytest.raises(QueryError, match=r"interval|sets|peak"):
            query.parts(SCHEMA)
