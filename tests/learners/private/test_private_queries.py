"""The private questions against naive twins, and hostile values refused before a record is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from privfed.errors import QueryError
from privfed.learners.private import basis as basis_module
from privfed.learners.private import queries
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.grid import BinEdges
from privfed.learners.private.target_link import Outcome, ResidualBounds
from privfed.questions import wire
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

FEATURES = tuple(Column(name, "number", 0, 1) for name in "abc")
BINARY = Schema(FEATURES, Column("y", "integer", 0, 1))
NUMERIC = Schema(FEATURES, Column("y", "number", 0, 10))
CLASSES = Schema(FEATURES, Column("y", "category", categories=("u", "v", "w")))
SCHEMAS = {"binary": BINARY, "number": NUMERIC, "classes": CLASSES}


def basis_of(rng: np.random.Generator) -> Basis:
    """A random basis over three columns."""
    cuts = tuple(tuple(np.sort(rng.random(int(rng.integers(0, 6)))).tolist()) for _ in range(3))
    grid = BinEdges(cuts)
    shape = (3, int(grid.sizes.max()))
    trees = tuple(
        Trees(
            rng.integers(0, 3, (count, depth)),
            rng.integers(0, 6, (count, depth)).astype(np.uint8),
            float(rng.uniform(0.1, 1)),
        )
        for count, depth in ((3, 2), (2, 4), (1, 8))
    )
    return Basis(
        grid,
        rng.uniform(-1, 1, shape),
        rng.integers(0, 4, shape).astype(np.uint8),
        rng.random(3),
        rng.random(3),
        trees,
    )


def question(kind: type[Query], rng: np.random.Generator, schema: Schema) -> Query:
    """A random question of a kind."""
    basis = basis_of(rng)
    if kind is queries.FeatureHistogram:
        return queries.FeatureHistogram(BinEdges((*basis.grid.cuts, (0.5,))))
    if kind is queries.TargetHistogram:
        return queries.TargetHistogram(BinEdges((tuple(np.sort(rng.random(4) * 9).tolist()),)))
    if kind is queries.Correlations:
        ranks = rng.uniform(-1, 1, basis.values.shape)
        return queries.Correlations(basis.grid, ranks, float(rng.uniform(0.1, 3)))
    if kind is queries.BasisLeafCounts:
        return queries.BasisLeafCounts(basis)
    outcome = Outcome.of(schema, schema is NUMERIC)
    least = 0.5 if schema is NUMERIC else 0.0
    low, high = np.sort(rng.random((2, outcome.classes)), axis=0) - least
    weights = rng.normal(0, 2, (basis.size, outcome.classes))
    window = ResidualBounds(low, high, float(rng.uniform(0.1, 1)))
    start = rng.normal(size=outcome.classes)
    if kind is queries.CalibrationSums:
        cuts = np.sort(rng.normal(0, 2, (outcome.classes, 4)), axis=1)
        return queries.CalibrationSums(basis, outcome, window, weights, start, cuts)
    return queries.Gradient(basis, outcome, window, weights, start)


def table(rng: np.random.Generator, schema: Schema, records: int) -> Records:
    """Random records, some of them equal."""
    assert schema.target is not None
    y = rng.uniform(0, schema.target.bounds[1], records)
    y = y if schema is NUMERIC else np.round(y)
    return Records(schema, rng.choice(rng.random((records + 1, 3)), records), y)


# --- naive twins: dense arithmetic from the public values alone ------------------------------------

#: Grid units of one: of a product of two ranks, and of a gradient.
RANK_UNIT, GRADIENT_UNIT = 2.0**12, 2.0**20


def twin_histogram(query: Mapping[str, Any], table: Records) -> dict[str, np.ndarray]:
    """One count in a bin of each column, the target last (``private.histogram``)."""
    values = np.column_stack([table.x, table.target])
    reached = codes(query["grid"]["cuts"], values)
    widest = max(len(own) for own in query["grid"]["cuts"]) + 1
    return {"counts": reached[..., None] == np.arange(widest)}


def twin_target(query: Mapping[str, Any], table: Records) -> dict[str, np.ndarray]:
    """One count in one bin of the target (``private.target``)."""
    reached = codes(query["grid"]["cuts"], table.target[:, None])
    return {"counts": reached == np.arange(len(query["grid"]["cuts"][0]) + 1)}


def twin_correlations(query: Mapping[str, Any], table: Records) -> dict[str, np.ndarray]:
    """Products of every two ranks, of a record no longer than the clip (``private.correlations``)."""
    reached = codes(query["grid"]["cuts"], table.x)
    ranks = query["ranks"][np.arange(reached.shape[1]), reached]
    norms = np.sqrt((ranks**2).sum(axis=1))
    longest = np.sqrt(query["clip"])
    units = np.trunc(ranks * (longest / np.maximum(norms, longest))[:, None] * RANK_UNIT)
    first, second = np.triu_indices(ranks.shape[1], 1)
    return {"products": units[:, first] * units[:, second]}


def twin_masses(query: Mapping[str, Any], table: Records) -> dict[str, np.ndarray]:
    """One count in a leaf of each tree (``private.masses``)."""
    leaves = [held for held, _ in _leaves(query["basis"], table.x)]
    return {"counts": np.concatenate(leaves, axis=1)}


def twin_gradient(query: Mapping[str, Any], table: Records) -> dict[str, np.ndarray]:
    """The record's functions, no longer than one, times its residuals (``private.gradient``)."""
    functions = design(query["basis"], table.x)
    scores = query["start"] + functions @ query["weights"]
    rest = _residuals(query["outcome"], query["window"], table.target, scores)
    shorter = functions / np.maximum(1, np.linalg.norm(functions, axis=1, keepdims=True))
    return {"sums": np.trunc(shorter[:, :, None] * rest[:, None, :] * GRADIENT_UNIT)}


def twin_scores(query: Mapping[str, Any], table: Records) -> dict[str, np.ndarray]:
    """The record's residual and a half, in the bin of each output's score (``private.scores``)."""
    scores = query["start"] + design(query["basis"], table.x) @ query["weights"]
    rest = _residuals(query["outcome"], query["window"], table.target, scores)
    reached = (scores[:, :, None] >= query["cuts"]).sum(axis=2)
    here = reached[:, :, None] == np.arange(query["cuts"].shape[1] + 1)
    each = np.stack([rest, np.full_like(rest, 0.5)], axis=1)
    return {"sums": np.trunc(here[:, None] * each[..., None] * GRADIENT_UNIT)}


def codes(cuts: list[list[float]], x: np.ndarray) -> np.ndarray:
    """How many cut-offs each value has reached, shape (records, columns)."""
    found = [(x[:, [j]] >= np.array(own)).sum(axis=1) for j, own in enumerate(cuts)]
    return np.stack(found, axis=1)


def design(basis: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """All functions: linear terms, bins by column, leaves by tree; shape (records, functions)."""
    reached = codes(basis["grid"]["cuts"], x)
    columns = np.arange(reached.shape[1])
    lines = basis["values"][columns, reached] * basis["linear"]
    bins = basis["bins"][columns, reached]
    binned = [
        (bins[:, [j]] == np.arange(basis["bins"][j].max() + 1)) * basis["binned"][j]
        for j in columns
    ]
    leaves = [held * scale for held, scale in _leaves(basis, x)]
    return np.concatenate([lines, *binned, *leaves], axis=1)


def _leaves(basis: Mapping[str, Any], x: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """For each tree, which leaf each record reaches, and the scale."""
    reached = codes(basis["grid"]["cuts"], x)
    found = []
    for trees in basis["trees"]:
        for features, cuts in zip(trees["features"], trees["cuts"], strict=True):
            right = reached[:, features] >= cuts
            leaf = right @ (2 ** np.arange(len(cuts)))
            found.append((leaf[:, None] == np.arange(2 ** len(cuts)), trees["scale"]))
    return found


def _residuals(
    outcome: Mapping[str, Any], window: Mapping[str, Any], y: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """Targets less clipped predictions, clipped; shape (records, outputs)."""
    if outcome["kind"] == "number":
        low, high = outcome["lower"], outcome["upper"]
        targets = ((np.clip(y, low, high) - (low + high) / 2) / (high - low))[:, None]
        predictions = scores
    elif outcome["kind"] == "binary":
        targets, predictions = y[:, None], expit(scores)
    else:
        targets = (y[:, None] == np.arange(outcome["classes"])).astype(float)
        predictions = softmax(scores, axis=1)
    rest = targets - np.clip(predictions, window["low"], window["high"])
    return np.asarray(np.clip(rest, -window["clip"], window["clip"]))


TWINS: dict[type[Query], Callable[[Mapping[str, Any], Records], dict[str, np.ndarray]]] = {
    queries.FeatureHistogram: twin_histogram,
    queries.TargetHistogram: twin_target,
    queries.Correlations: twin_correlations,
    queries.BasisLeafCounts: twin_masses,
    queries.Gradient: twin_gradient,
    queries.CalibrationSums: twin_scores,
}


@pytest.mark.parametrize("kind", list(TWINS))
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), records=st.integers(0, 12))
def test_sums_are_those_of_the_records_alone(
    kind: type[Query], schema: Schema, seed: int, records: int
) -> None:
    """Each record adds the same whoever else is there: federated equals pooled to the bit."""
    rng = np.random.default_rng(seed)
    query, held = question(kind, rng, schema), table(rng, schema, records)
    whole = query.evaluate(View(held, schema))
    assert {name: array.shape for name, array in whole.items()} == {
        name: part.shape for name, part in query.parts(schema).items()
    }
    alone = [query.evaluate(View(held.take(np.array([k])), schema)) for k in range(records)]
    told = query.contribution(View(held, schema))
    for name, array in whole.items():
        assert array.dtype.kind == "i"
        assert all(
            np.array_equal(own, one[name]) for own, one in zip(told[name], alone, strict=True)
        )
        assert np.array_equal(array, sum((one[name] for one in alone), np.zeros_like(array)))


@pytest.mark.parametrize("kind", list(TWINS))
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_sums_are_an_independent_twins(kind: type[Query], schema: Schema, seed: int) -> None:
    """Dense arithmetic from the public values gives the same, up to a unit of rounding a record."""
    rng = np.random.default_rng(seed)
    query, held = question(kind, rng, schema), table(rng, schema, 9)
    twin = TWINS[kind](wire.decode_plain(query.fields), held)
    exact = query.evaluate(View(held, schema))
    assert twin.keys() == exact.keys()
    for name, each in twin.items():
        far = (
            0
            if kind in (queries.FeatureHistogram, queries.TargetHistogram, queries.BasisLeafCounts)
            else 9 * 4096
            if kind is queries.Correlations
            else 9
        )
        assert np.abs(exact[name] - np.asarray(each, float).sum(axis=0)).max(initial=0) <= far


@pytest.mark.parametrize(
    "kind",
    [queries.Correlations, queries.BasisLeafCounts, queries.Gradient, queries.CalibrationSums],
)
def test_small_blocks_and_no_cache_give_the_same(
    kind: type[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by blocks; neither they nor kept codes change a bit."""
    rng = np.random.default_rng(3)
    query, held = question(kind, rng, BINARY), table(rng, BINARY, 200)
    whole = query.evaluate(View(held, BINARY))
    monkeypatch.setattr(basis_module, "BLOCK", 64)
    monkeypatch.setattr(queries, "BLOCK", 64)
    monkeypatch.setattr(queries, "KEPT", 0)
    pieces = query.evaluate(View(held, BINARY))
    assert all(np.array_equal(whole[name], pieces[name]) for name in whole)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_what_hangs_on_a_column_is_all_that_changes_with_it(seed: int, column: int) -> None:
    """Weighted sums before and after differ by those of its line, its bins and the trees that ask for it."""
    rng = np.random.default_rng(seed)
    basis = basis_of(rng)
    codes = np.array([rng.integers(0, size, 20) for size in basis.grid.sizes]).astype(np.uint8)
    moved, weights = codes.copy(), rng.normal(size=(basis.size, 2))
    moved[column] = rng.permutation(codes[column])
    step = basis.by_column(moved, column, weights) - basis.by_column(codes, column, weights)
    whole = basis.scores(basis.cells(moved), weights) - basis.scores(basis.cells(codes), weights)
    assert np.allclose(step, whole)


def test_codes_are_kept_for_one_grid_alone() -> None:
    """Another grid's question on the same view is not answered by the first one's codes."""
    rng = np.random.default_rng(0)
    first, second = (question(queries.BasisLeafCounts, rng, BINARY) for _ in range(2))
    held = table(rng, BINARY, 50)
    shared = View(held, BINARY)
    for query in (first, second, first):
        fresh = query.evaluate(View(held, BINARY))["counts"]
        assert np.array_equal(query.evaluate(shared)["counts"], fresh)


def _basis(**changes: Any) -> Callable[[queries.Gradient], queries.Gradient]:
    return lambda query: replace(query, basis=replace(query.basis, **changes))


def _tree(**changes: Any) -> Callable[[queries.Gradient], queries.Gradient]:
    def change(query: queries.Gradient) -> queries.Gradient:
        return _basis(trees=(replace(query.basis.trees[0], **changes),))(query)

    return change


NAN = float("nan")
HOSTILE: dict[str, Callable[[queries.Gradient], queries.Gradient]] = {
    "a grid of too few columns": _basis(grid=BinEdges(((0.5,),))),
    "cuts that fall": _basis(grid=BinEdges(((0.5, 0.4), (), ()))),
    "cuts that are none": _basis(grid=BinEdges(((NAN,), (), ()))),
    "too many cuts": _basis(grid=BinEdges((tuple(np.linspace(0, 1, 251).tolist()), (), ()))),
    "scales above one": _basis(binned=np.array([2.0, 0, 0])),
    "slopes too steep": _basis(linear=np.array([17.0, 0, 0])),
    "scales below zero": _basis(binned=np.array([-1.0, 0, 0])),
    "scales that are none": _basis(linear=np.array([NAN, 0, 0])),
    "scales of other columns": _basis(linear=np.ones(2)),
    "scales in whole numbers": _basis(linear=np.ones(3, np.int64)),
    "values above one": _basis(values=np.full((3, 6), 2.0)),
    "values of the wrong shape": _basis(values=np.zeros((3, 99))),
    "bins of the wrong type": _basis(bins=np.zeros((3, 6))),
    "too many functions": _basis(
        trees=(Trees(np.zeros((999, 8), np.int64), np.zeros((999, 8), np.uint8), 0.1),)
    ),
    "an unknown column": _tree(features=np.full((3, 2), 3)),
    "a column below the first": _tree(features=np.full((3, 2), -1)),
    "a tree too deep": _tree(features=np.zeros((1, 9), np.int64), cuts=np.zeros((1, 9), np.uint8)),
    "cuts of another shape": _tree(cuts=np.zeros((1, 1), np.uint8)),
    "no trees of a depth": _tree(
        features=np.zeros((0, 2), np.int64), cuts=np.zeros((0, 2), np.uint8)
    ),
    "a scale that is none": _tree(scale=NAN),
    "weights that are none": lambda q: replace(q, weights=q.weights * NAN),
    "weights too great": lambda q: replace(q, weights=q.weights * 0 + 2.0**21),
    "weights of other functions": lambda q: replace(q, weights=q.weights[:-1]),
    "a start of other outputs": lambda q: replace(q, start=np.zeros(2)),
    "an endless start": lambda q: replace(q, start=np.array([np.inf])),
    "limits that fall": lambda q: replace(q, window=ResidualBounds(np.ones(1), np.zeros(1), 1.0)),
    "limits outside": lambda q: replace(
        q, window=ResidualBounds(np.zeros(1), np.array([2.0]), 1.0)
    ),
    "limits that are none": lambda q: replace(
        q, window=ResidualBounds(np.array([NAN]), np.ones(1), 1.0)
    ),
    "a clip of nothing": lambda q: replace(q, window=replace(q.window, clip=0.0)),
    "a clip that is none": lambda q: replace(q, window=replace(q.window, clip=NAN)),
    "classes of a number": lambda q: replace(q, outcome=Outcome("classes", 2)),
    "two outputs of one chance": lambda q: replace(q, outcome=Outcome("binary", 2)),
    "a number without width": lambda q: replace(q, outcome=Outcome("number", 1, 0.5, 0.5)),
    "a number beyond its bounds": lambda q: replace(q, outcome=Outcome("number", 1, -9.0, 9.0)),
}


def honest() -> queries.Gradient:
    """A question of which nothing is wrong."""
    query = question(queries.Gradient, np.random.default_rng(1), BINARY)
    assert isinstance(query, queries.Gradient)
    values = np.zeros((3, 6))
    basis = replace(
        query.basis,
        grid=BinEdges(((0.1, 0.2, 0.3, 0.4, 0.5), (0.5,), ())),
        values=values,
        bins=values.astype(np.uint8),
        trees=query.basis.trees[:1],
    )
    return replace(query, basis=basis, weights=np.zeros((basis.size, 1)))


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused(change: Callable[[queries.Gradient], queries.Gradient]) -> None:
    """In `parts`, before any record is read; the same question without the change is admitted."""
    assert honest().parts(BINARY)
    with pytest.raises(QueryError):
        change(honest()).parts(BINARY)


def scores_at(cuts: np.ndarray) -> queries.CalibrationSums:
    """An honest question about scores, but for its cut-offs."""
    own = honest()
    return queries.CalibrationSums(own.basis, own.outcome, own.window, own.weights, own.start, cuts)


def test_cut_offs_of_scores_that_rise_are_admitted() -> None:
    """The twin of the refusals below."""
    assert scores_at(np.array([[0.0, 1.0]])).parts(BINARY)["sums"].shape == (2, 1, 3)


@pytest.mark.parametrize(
    "query",
    [
        queries.FeatureHistogram(BinEdges(((), (), ()))),
        queries.TargetHistogram(BinEdges(((), ()))),
        queries.TargetHistogram(BinEdges(((0.5, 0.5),))),
        queries.Correlations(BinEdges(((), (), ())), np.zeros((3, 1)), NAN),
        queries.Correlations(BinEdges(((), (), ())), np.zeros((3, 1)), 9.0),
        queries.Correlations(BinEdges(((), (), ())), np.full((3, 1), NAN), 1.0),
        queries.Correlations(BinEdges(((), (), ())), np.zeros((3, 2)), 1.0),
        queries.BasisLeafCounts(replace(honest().basis, trees=())),
        scores_at(np.array([[0.0, 0.0]])),
        scores_at(np.array([[1.0, 0.0]])),
        scores_at(np.array([[NAN]])),
        scores_at(np.array([[0], [1]])),
        scores_at(np.zeros((1, 0))),
        scores_at(np.zeros(3)),
        scores_at(np.arange(65.0)[None]),
    ],
    ids=lambda query: query.kind,
)
def test_other_hostile_questions_are_refused(query: Query) -> None:
    """Columns, clips and ranks that make no sense, and leaves of no tree."""
    with pytest.raises(QueryError):
        query.parts(BINARY)


def test_a_target_is_needed() -> None:
    """Without one there is nothing to learn."""
    with pytest.raises(QueryError):
        honest().parts(Schema(FEATURES))
    for query in (
        queries.FeatureHistogram(BinEdges(((), (), ()))),
        queries.TargetHistogram(BinEdges(((),))),
    ):
        with pytest.raises(QueryError):
            query.parts(Schema(FEATURES))


@pytest.mark.parametrize("kind", list(TWINS))
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_questions_survive_the_wire(kind: type[Query], schema: Schema) -> None:
    """Public values come back as they were, with the same digest."""
    query = question(kind, np.random.default_rng(5), schema)
    again = type(query).from_fields(query.fields)
    assert again.digest == query.digest
    assert again.parts(schema) == query.parts(schema)
