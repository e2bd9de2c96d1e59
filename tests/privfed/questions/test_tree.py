"""Trees as values: one convention, hostile ones refused, walked as the naive twin walks them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from privfed.errors import QueryError, WireError
from privfed.questions import tree as trees
from privfed.questions import wire
from privfed.questions.cells import DEPTH
from privfed.questions.part import Bound
from privfed.questions.tree import Forest, Tree, cuts_of_thresholds
from privfed.tables.schema import Column, Schema

SCHEMA = Schema(
    (
        Column("age", "integer", 0, 99),
        Column("site", "category", categories=("a", "b", "c")),
        Column("dose", lower=-1, upper=1),
    )
)
#: Values at, just below and beyond everything that the trees here are cut at.
VALUES = [-np.inf, -1.0, -0.5, 0.0, 1.0, 1.5, 2.0, np.nextafter(2, 0), 3.0, 99.0, np.inf, np.nan]


def small(**changes: Any) -> Tree:
    """age < 2 | 2 <= age < 50 | age >= 50, and below the first site in {a, c} or not."""
    arrays = {
        "feature": np.array([0, 1, -1, -1, -1, -1]),
        "children": np.array([[1, 2, 3], [4, 5, -1], *[[-1] * 3] * 4]),
        "cuts": np.array([[2.0, 50.0], *[[np.inf] * 2] * 5]),
        "categories": np.array([[0, 0, 0], [1, 0, 1], *[[0, 0, 0]] * 4], bool),
    }
    return Tree(**arrays | changes)


def grown(rng: np.random.Generator, features: int = 3, most: int = 5) -> Tree:
    """A random tree of random splits, by cuts (among them equal values) and by categories."""
    feature, children, cuts, listed = [-1], [[-1] * 4], [[np.inf] * 3], [[False] * 3]
    for _ in range(int(rng.integers(most + 1))):
        node = int(rng.choice(np.flatnonzero(np.array(feature) < 0)))
        by_category = bool(rng.random() < 0.3)
        branches = 2 if by_category else int(rng.integers(2, 5))
        feature[node] = int(rng.integers(features))
        children[node] = [*range(len(feature), len(feature) + branches), *[-1] * (4 - branches)]
        if by_category:
            listed[node][int(rng.integers(3))] = True
        else:
            drawn = sorted(rng.choice([-0.5, 0.0, 1.0, 2.0, 3.0], branches - 1, replace=False))
            cuts[node] = [*drawn, *[np.inf] * (4 - branches)]
        feature += [-1] * branches
        children += [[-1] * 4 for _ in range(branches)]
        cuts += [[np.inf] * 3 for _ in range(branches)]
        listed += [[False] * 3 for _ in range(branches)]
    return Tree(np.array(feature), np.array(children), np.array(cuts), np.array(listed))


def naive(tree: Tree, row: np.ndarray) -> int:
    """The leaf of one record, step by step."""
    node = 0
    while tree.feature[node] >= 0:
        value = float(row[tree.feature[node]])
        below = [int(child) for child in tree.children[node] if child >= 0]
        codes = {float(code) for code in np.flatnonzero(tree.categories[node])}
        if codes:
            node = below[0] if value in codes else below[1]
        else:
            met = [child for child, cut in zip(below, tree.cuts[node], strict=False) if value < cut]
            node = met[0] if met else below[-1]
    return node


SEEDS = st.integers(0, 2**32)


def rows(rng: np.random.Generator, count: int = 40) -> np.ndarray:
    """Records of awkward values."""
    return rng.choice(VALUES, (count, 3))


@settings(max_examples=200)
@given(seed=SEEDS)
def test_records_walk_as_the_naive_twin_does(seed: int) -> None:
    """One tree and several together, also by blocks of one record or tree."""
    rng = np.random.default_rng(seed)
    several = [grown(rng) for _ in range(int(rng.integers(1, 5)))]
    forest, x = Forest.of(several), rows(rng)
    expected = np.array([[naive(tree, row) for tree in several] for row in x])
    assert np.array_equal(forest.reach(x) - forest.roots, expected)
    assert np.array_equal(several[0].reach(x), expected[:, 0])
    assert all(np.isin(expected[:, at], tree.leaves).all() for at, tree in enumerate(several))


@pytest.mark.parametrize("pairs", [1, 3, 40, 41, 100])
def test_blocks_do_not_show(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few pairs of record and tree walk together."""
    rng = np.random.default_rng(1)
    forest, x = Forest.of([grown(rng) for _ in range(7)]), rows(rng)
    values = rng.random((len(forest.feature), 2))
    whole, mean = forest.reach(x), forest.mean(x, values)
    assert np.allclose(mean, values[whole].mean(axis=1), rtol=0, atol=1e-12)
    monkeypatch.setattr(trees, "_PAIRS", pairs)
    assert np.array_equal(forest.reach(x), whole)
    assert np.array_equal(forest.mean(x, values), mean)
    assert max(reached.size for *_, reached in forest.blocks(x)) <= pairs


@settings(max_examples=100)
@given(seed=SEEDS)
def test_a_path_holds_for_exactly_the_records_that_pass(seed: int) -> None:
    """Of numbers, the spans of a leaf's path hold for those that reach it and for no others."""
    rng = np.random.default_rng(seed)
    tree, x = grown(rng), rows(rng)
    x = x[np.isfinite(x).all(axis=1)]
    reached, paths = tree.reach(x), tree.paths()
    for leaf in tree.leaves:
        met = [span.holds(x[:, span.feature]) for span in paths[leaf]]
        assert np.array_equal(np.all([np.ones(len(x), bool), *met], axis=0), reached == leaf)
        assert len({span.feature for span in paths[leaf]}) == len(paths[leaf])


def test_the_convention() -> None:
    """A value on a cut goes up; missing numbers and unknown categories take the last branch."""
    tree = small()
    x = np.array([[np.nextafter(2, 0), 0, 0], [2, 0, 0], [50, 0, 0], [np.nan, 0, 0]])
    assert tree.reach(x).tolist() == [4, 2, 3, 3]
    sites = np.array([[0, site, 0] for site in (0, 1, 2, 3, -1, 0.5, np.nan, np.inf)])
    assert tree.reach(sites).tolist() == [4, 5, 4, 5, 5, 5, 5, 5]


def test_what_a_tree_is() -> None:
    """Leaves, depths and the text."""
    tree = small()
    tree.check(SCHEMA)
    assert (tree.depth, tree.leaves.tolist(), tree.depths.tolist()) == (
        *(2, [2, 3, 4, 5]),
        [0, 1, 1, 1, 2, 2],
    )
    assert tree.to_text(SCHEMA, leaf="-> {}".format).splitlines() == [
        "age <= 1",
        "  site in {a, c}: -> 4",
        "  site = b: -> 5",
        "2 <= age <= 49: -> 2",
        "age >= 50: -> 3",
    ]
    stump = Tree(np.array([-1]), np.full((1, 2), -1), np.full((1, 1), np.inf))
    assert (stump.to_text(SCHEMA), stump.depth, len(stump.paths())) == ("leaf 0", 0, 1)
    assert stump.reach(np.zeros((3, 1))).tolist() == [0, 0, 0]


def test_a_text_leaves_out_what_no_record_can_reach() -> None:
    """A second cut beyond the first, or the bounds, parts nothing: its split is passed over, and what is left is as the tree decides."""
    feature, cut = np.array([0, 0, -1, -1, 0, -1, -1]), np.array([30.0, 40, 0, 0, -5, 0, 0])
    left, right = np.array([1, 2, -1, -1, 5, -1, -1]), np.array([4, 3, -1, -1, 6, -1, -1])
    tree = Tree.binary(feature, cut, left, right)
    assert tree.to_text(SCHEMA).splitlines() == ["age <= 29: leaf 2", "age >= 30: leaf 6"]
    assert tree.reach(np.array([[0.0, 0, 0], [35, 0, 0]])).tolist() == [2, 6]
    alone = Tree.binary(feature[1:4], cut[1:4] + 500, np.array([1, -1, -1]), np.array([2, -1, -1]))
    assert alone.to_text(SCHEMA) == "leaf 1"


def test_thresholds_are_as_exact_as_their_column() -> None:
    """Three digits of its width where eight are not exact, however far from zero it lies; an integer's are whole, as 2012 meets year < 2012.5."""
    pay, year = (
        Column("pay", lower=1_000_000, upper=1_000_100),
        Column("year", "integer", 1990, 2030),
    )
    assert trees.Span(0, 1_000_055.123, 1_000_062.5).text(pay) == "1000055.1 <= pay < 1000062.5"
    assert [trees.Span(0, 2012.5).text(year), trees.Span(0, upper=2011.5).text(year)] == [
        "year >= 2013",
        "year <= 2011",
    ]
    assert trees.Span(0, 41.2345678912).text(Column("age", lower=0, upper=100)) == "age >= 41.2"
    assert trees.number_text(-1e9 + 0.25, 2.0) == "-999999999.75"
    assert [trees.number_text(own) for own in (12345.678, 1234.5678, 0.0)] == [
        "12345.7",
        "1235",
        "0",
    ]


def test_large_numbers_and_zero_are_written_as_people_do() -> None:
    """Without a power of ten, and without a sign of nothing."""
    assert [trees.number_text(own) for own in (-6_251_712.0, 3_006_000.0, -0.0, 2.5e20)] == [
        "-6251710",
        "3006000",
        "0",
        "2.5e+20",
    ]
    assert [trees.digits_text(own, 3) for own in (131_951.0, -119.6, -0.0)] == [
        "132000",
        "-120",
        "0",
    ]
    assert trees.Span(0, upper=-0.5).text(Column("days", "integer", -1, 99)) == "days <= -1"


def test_a_whole_number_alone_is_told_as_one() -> None:
    """And not as what lies from it to the next; of numbers with fractions both ends stand."""
    whole, number = Column("score", "integer", 3, 15), Column("age", lower=0, upper=100)
    assert trees.Span(0, 13.5, 14.5).text(whole) == "score = 14"
    assert trees.Span(0, 14, 16).text(whole) == "14 <= score <= 15"
    assert trees.Span(0, 14, 15).text(number) == "14 <= age < 15"
    texts = [(3, 3, 5, "score <= 3"), (3, 3, 4, "score = 3"), (0, 0, 9, "score = 0")]
    for end, low, high, text in texts:
        column = Column("score", "integer", low, high)
        assert trees.Span(0, upper=end + 0.5).text(column) == text


def test_names_that_read_as_more_than_a_name_are_in_quotes() -> None:
    """A comma in a set of categories, a comparison or a further condition in a column's name."""
    site = Column("pain and fever", "category", categories=("arm, left", "leg", "<18"))
    assert trees.Span(0, besides=frozenset({1})).text(site) == (
        '"pain and fever" in {"arm, left", "<18"}'
    )
    assert trees.Span(0, among=frozenset({1})).text(site) == '"pain and fever" = leg'


def test_a_branch_names_the_categories_that_are_left() -> None:
    """Below site in {b, c} a second cut of the codes leaves b and c alone, not {a, b}."""
    feature, cut = np.array([1, -1, 1, -1, -1]), np.array([1.0, 0, 2.0, 0, 0])
    left, right = np.array([1, -1, 3, -1, -1]), np.array([2, -1, 4, -1, -1])
    tree = Tree.binary(feature, cut, left, right)
    assert tree.to_text(SCHEMA).splitlines() == [
        "site = a: leaf 1",
        "site in {b, c}",
        "  site = b: leaf 3",
        "  site = c: leaf 4",
    ]


def test_forests_keep_their_trees() -> None:
    """Put side by side and taken apart again, each tree is what it was but for empty columns."""
    rng = np.random.default_rng(3)
    several = [small(), *(grown(rng) for _ in range(5))]
    forest, x = Forest.of(several), rows(rng)
    assert len(forest) == len(forest.trees) == 6
    again = Forest.of([Forest.of(several[:2]), *several[2:]])
    assert again.roots.tolist() == forest.roots.tolist()
    for tree, kept in zip(several, forest.trees, strict=True):
        assert np.array_equal(tree.reach(x), kept.reach(x))
        assert tree.paths() == kept.paths()


# --- the wire, and strangers' trees ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Carrying:
    """Stands for a query that carries a tree and a forest."""

    tree: Tree
    forest: Forest


def test_trees_travel() -> None:
    """As fields of a question: read again they are equal, and their bytes too."""
    sent = Carrying(small(), Forest.of([small(), grown(np.random.default_rng(0))]))
    data = wire.encode(sent)
    read = wire.decode(data, Carrying)
    assert wire.encode(read) == data
    assert read.tree.paths() == sent.tree.paths()
    assert np.array_equal(read.forest.roots, sent.forest.roots)


def test_trees_are_frozen() -> None:
    """What was checked once stays as it was checked."""
    feature = np.array([0, 1, -1, -1, -1, -1])
    tree = small(feature=feature)
    feature[0] = 77
    assert tree.feature[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        tree.children[0, 0] = 0


def changed(name: str, at: Any, value: float) -> Callable[[], Any]:
    """The small tree with one cell changed."""

    def build() -> Tree:
        array = np.array(getattr(small(), name))
        array[at] = value
        return small(**{name: array})

    return build


def chain(depth: int) -> Tree:
    """Each left child is split again."""
    nodes = 2 * depth + 1
    inner = np.arange(nodes) % 2 == 0
    inner[-1] = False
    left = np.minimum(np.arange(nodes) + 2, nodes - 1)
    return Tree.binary(np.where(inner, 0, -1), np.zeros(nodes), left, np.arange(nodes) + 1)


def forest_of(**changes: Any) -> Forest:
    """Two small trees, with some of the arrays changed."""
    whole = Forest.of([small(), small()])
    names = ("feature", "children", "cuts", "categories", "roots")
    return Forest(**{name: getattr(whole, name) for name in names} | changes)


crossed = np.array(Forest.of([small(), small()]).children)
crossed[[0, 6], 1] = 8, 2

HOSTILE: dict[str, Callable[[], Any]] = {
    "feature below -1": changed("feature", 0, -2),
    "a leaf that splits": changed("feature", 2, 1),
    "a split that is a leaf": changed("feature", 1, -1),
    "a child beyond the nodes": changed("children", (0, 2), 6),
    "a child below -1": changed("children", (2, 0), -2),
    "a node with two parents": changed("children", (0, 2), 2),
    "a node without a parent": changed("children", (0, 2), -1),
    "the root as a child": changed("children", (0, 2), 0),
    "a circle": lambda: small(children=np.array([[2, 3, 4], [1, 5, -1], *[[-1] * 3] * 4])),
    "a child before its parent": lambda: small(
        feature=np.array([0, -1, 1, -1, -1, -1]),
        children=np.array([[2, 3, 4], [-1] * 3, [1, 5, -1], *[[-1] * 3] * 3]),
        cuts=np.array([[2.0, 50.0], [np.inf] * 2, [1.0, np.inf], *[[np.inf] * 2] * 3]),
        categories=np.zeros((6, 0), bool),
    ),
    "an empty branch": lambda: small(children=np.array([[1, 2, 3], [4, -1, 5], *[[-1] * 3] * 4])),
    "one branch": lambda: Tree.binary(
        np.array([0, -1]), np.zeros(2), np.array([1, 1]), np.array([-1, -1])
    ),
    "a cut of no number": changed("cuts", (0, 0), np.nan),
    "a missing cut": changed("cuts", (0, 1), np.inf),
    "a cut of minus infinity": changed("cuts", (0, 0), -np.inf),
    "a cut too many": changed("cuts", (2, 0), 1.0),
    "a cut beside categories": changed("cuts", (1, 0), 1.0),
    "minus infinity for no cut": changed("cuts", (2, 0), -np.inf),
    "cuts that fall": changed("cuts", (0, 1), 1.0),
    "equal cuts": changed("cuts", (0, 1), 2.0),
    "no cut and no category": changed("categories", (1, slice(None)), False),
    "categories of a leaf": changed("categories", (2, 0), True),
    "categories of three branches": changed("categories", (0, 0), True),
    "too deep": lambda: chain(DEPTH + 1),
    "far too deep": lambda: chain(5_000),
    "features that are floats": lambda: small(feature=small().feature.astype(float)),
    "small whole numbers": lambda: small(children=small().children.astype(np.int32)),
    "single precision": lambda: small(cuts=small().cuts.astype(np.float32)),
    "foreign byte order": lambda: small(cuts=small().cuts.astype(">f8")),
    "categories as numbers": lambda: small(categories=small().categories.astype(np.int64)),
    "lists": lambda: small(feature=[0, 1, -1, -1, -1, -1]),
    "a table of features": lambda: small(feature=small().feature[:, None]),
    "too few features": lambda: small(feature=small().feature[:-1]),
    "too few rows of cuts": lambda: small(cuts=small().cuts[:-1]),
    "too few columns of cuts": lambda: small(cuts=small().cuts[:, :-1]),
    "too few rows of categories": lambda: small(categories=small().categories[:-1]),
    "one column of children": lambda: small(children=small().children[:, :1]),
    "too many branches": lambda: small(
        children=np.full((6, 300), -1), cuts=np.full((6, 299), np.inf)
    ),
    "no node": lambda: Tree(np.zeros(0, int), np.zeros((0, 2), int), np.zeros((0, 1))),
    "too many nodes": lambda: Tree(
        np.full(trees.MOST_NODES + 1, -1),
        np.broadcast_to(np.array([-1]), (trees.MOST_NODES + 1, 2)),
        np.broadcast_to(np.array([np.inf]), (trees.MOST_NODES + 1, 1)),
    ),
    "no tree": lambda: Forest.of([]),
    "no roots": lambda: forest_of(roots=np.zeros(0, int)),
    "roots that are floats": lambda: forest_of(roots=np.array([0.0, 6.0])),
    "a root elsewhere": lambda: forest_of(roots=np.array([0, 5])),
    "a root after the first node": lambda: forest_of(roots=np.array([1, 6])),
    "a root twice": lambda: forest_of(roots=np.array([0, 0, 6])),
    "a root beyond the nodes": lambda: forest_of(roots=np.array([0, 6, 12])),
    "one root for two trees": lambda: forest_of(roots=np.array([0])),
    "trees with each other's nodes": lambda: forest_of(children=crossed),
}


@pytest.mark.parametrize("build", HOSTILE.values(), ids=HOSTILE)
def test_hostile_trees_are_refused(build: Callable[[], Any]) -> None:
    """Nothing but a tree becomes one, and the reason is a gate's."""
    with pytest.raises(QueryError) as told:
        build()
    assert told.value.reason == "malformed"


def test_a_deep_tree_that_is_allowed() -> None:
    """The deepest one."""
    assert chain(DEPTH).depth == DEPTH


@settings(max_examples=300)
@given(seed=SEEDS)
def test_scrambled_trees_are_refused_or_walk(seed: int) -> None:
    """Any cells changed at random: a typed error, or a tree in which every walk ends in a leaf."""
    rng = np.random.default_rng(seed)
    base = grown(rng)
    arrays = {name: np.array(getattr(base, name)) for name in ("feature", "children", "cuts")}
    for _ in range(int(rng.integers(1, 4))):
        name = str(rng.choice(list(arrays)))
        cells = arrays[name].ravel()
        cells[rng.integers(len(cells))] = rng.choice([-1, 0, 1, 2, 3])
    try:
        tree = Tree(**arrays, categories=base.categories)
        tree.check(SCHEMA)
    except QueryError:
        return
    assert np.isin(tree.reach(rows(rng)), tree.leaves).all()


@pytest.mark.parametrize(
    "tree",
    [
        small(feature=np.array([3, 1, -1, -1, -1, -1])),
        small(feature=np.array([0, 0, -1, -1, -1, -1])),
        small(categories=np.array([[0] * 3, [1, 1, 1], *[[0] * 3] * 4], bool)),
        small(categories=np.array([[0] * 4, [1, 0, 0, 1], *[[0] * 4] * 4], bool)),
    ],
    ids=["an unknown feature", "a number by categories", "all categories", "an unknown category"],
)
def test_trees_are_held_to_the_schema(tree: Tree) -> None:
    """What the arrays alone cannot show."""
    with pytest.raises(QueryError, match="malformed"):
        tree.check(SCHEMA)


def test_records_need_the_features_that_are_split() -> None:
    """Too few columns are told, and no other record's numbers are read for them."""
    with pytest.raises(QueryError, match="unknown feature"):
        small().reach(np.zeros((5, 1)))


def test_a_hostile_tree_on_the_wire_is_a_typed_error() -> None:
    """Read from bytes it is refused as it is when built."""
    plain = {"tree": {"feature": [0]}, "forest": {}}
    with pytest.raises((QueryError, WireError)):
        wire.decode(wire.encode(plain), Carrying)


# --- scikit-learn's trees --------------------------------------------------------------------------


@settings(max_examples=60)
@given(seed=SEEDS, scale=st.sampled_from([0.01, 1.0, 3.7, 1e20]))
def test_scikit_learn_agrees(seed: int, scale: float) -> None:
    """Every record goes where scikit-learn sends it, those on a boundary of its rounding too."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((60, 2)) * scale
    x[::3] = np.round(x[::3])
    fitted = DecisionTreeRegressor(random_state=0).fit(x, rng.random(60))
    inner = fitted.tree_
    cuts = cuts_of_thresholds(inner.threshold)
    tree = Tree.binary(inner.feature, cuts, inner.children_left, inner.children_right)
    splits = np.flatnonzero(inner.feature >= 0)
    at = rng.choice(splits, 200)
    column, cut = inner.feature[at], cuts[at]
    near = x[rng.integers(60, size=200)]
    near[np.arange(200), column] = rng.choice(
        [cut, np.nextafter(cut, -np.inf), inner.threshold[at]]
    )
    both = np.concatenate([x, near])
    assert np.array_equal(tree.reach(both), fitted.apply(both))


@settings(max_examples=300)
@given(threshold=st.floats(-1e30, 1e30))
def test_cuts_lie_where_rounding_turns(threshold: float) -> None:
    """Just below the cut a number goes left after rounding to single precision; on it, it does not."""
    cut = cuts_of_thresholds(np.array([threshold]))[0]
    assert float(np.float32(np.nextafter(cut, -np.inf))) <= threshold < float(np.float32(cut))


# --- sensitivity -----------------------------------------------------------------------------------


def counts(forest: Forest, x: np.ndarray) -> np.ndarray:
    """Records by leaf, over all trees."""
    return np.bincount(forest.reach(x).ravel(), minlength=len(forest.feature))


def moved(one: np.ndarray, other: np.ndarray) -> Bound:
    """How far apart two answers are."""
    steps = np.abs(one - other)
    return Bound(int(steps.sum()), int((steps**2).sum()))


@settings(max_examples=100)
@given(seed=SEEDS)
def test_a_record_moves_one_cell_of_each_tree(seed: int) -> None:
    """Added exactly one of each tree; put in another's place at most two."""
    rng = np.random.default_rng(seed)
    forest = Forest.of([grown(rng) for _ in range(int(rng.integers(1, 5)))])
    x, bound = rows(rng, 6), forest.sensitivity()
    assert bound.replace_one is not None
    for at in range(6):
        fewer = counts(forest, np.delete(x, at, axis=0))
        assert moved(counts(forest, x), fewer) == bound.add_or_remove
        other = x.copy()
        other[at] = rows(rng, 1)
        change = moved(counts(forest, x), counts(forest, other))
        assert change.l1 <= bound.replace_one.l1
        assert change.l2_squared <= bound.replace_one.l2_squared


def test_the_bound_is_met_and_overlapping_cells_would_exceed_it() -> None:
    """The power twin: two copies of a tree under the bound of one are convicted."""
    tree = small()
    low, high = np.array([[0.0, 0, 0]]), np.array([[99.0, 0, 0]])
    one, two = Forest.of([tree]), Forest.of([tree, tree])
    change = moved(counts(one, low), counts(one, high))
    assert change == one.sensitivity().replace_one == Bound(2, 2)
    assert moved(counts(two, low), counts(two, high)).l1 > one.sensitivity().add_or_remove.l1 * 2
    assert two.sensitivity(10) == replace(two.sensitivity(10), add_or_remove=Bound(20, 200))


@given(st.integers(-99_999, 99_999), st.integers(0, 5), st.booleans())
def test_a_printed_threshold_decides_as_the_model_does(
    digits: int, decimals: int, middle: bool
) -> None:
    """A decimal, or halfway between two: printed in full, so that no recorded value changes sides."""
    value = (digits + middle / 2) / 10**decimals
    text = trees.interval_text("x", -np.inf, value, Column("x", "number", -1e5, 1e5))
    assert float(text.removeprefix("x < ")) == value
    assert trees.interval_text("x", 2 / 3, np.inf) == "x >= 0.667"


ENDS = st.sampled_from([-np.inf, *np.arange(-3, 6, 0.25).tolist(), np.inf])


@given(st.integers(-2, 2), st.integers(1, 5), ENDS, ENDS)
def test_a_printed_condition_on_integers_holds_for_those_that_the_model_means(
    low: int, width: int, lower: float, upper: float
) -> None:
    """All integers of the column, in signs and in words; none has a fraction."""
    column = Column("n", "integer", low, low + width)
    lower, upper = min(lower, upper), max(lower, upper)
    values = np.arange(low, low + width + 1)
    held = (values >= lower) & (values < upper)
    assume(held.any())
    text = trees.interval_text("n", lower, upper, column)
    code = re.sub("(?<![<>])=", "==", text.removeprefix("any n")) or "True"
    assert [bool(eval(code, {"n": n})) for n in values.tolist()] == held.tolist()
    words = trees.range_text(lower, upper, column)
    assert "." not in text + words and "-0" not in text + words
    numbers = [int(number) for number in re.findall(r"-?\d+", words)]
    first = -np.inf if "less" in words or words == "any" else numbers[0]
    last = np.inf if "more" in words or words == "any" else numbers[-1]
    assert ((values >= first) & (values <= last)).tolist() == held.tolist()


@given(
    st.lists(st.integers(-99, 99), min_size=1, max_size=4, unique=True), st.sampled_from([1, 10])
)
def test_ranges_in_words_have_every_number_once(cuts: list[int], unit: int) -> None:
    """Consecutive ones, at their ends and between."""
    ends = [-np.inf, *(cut / unit for cut in sorted(cuts)), np.inf]
    texts = [trees.range_text(*pair, Column("x", "number", -100, 100)) for pair in pairwise(ends)]
    for value in {*ends[1:-1], *(cut / unit - 0.01 for cut in cuts), -100.0, 100.0}:
        met = []
        for text in texts:
            words = ("-inf" + f" {text}").replace("-inf below", "-inf to below").split()
            begin, end = (words[1], "inf") if "more" in words else (words[-4], words[-1])
            met.append(float(begin) <= value < float(end))
        assert sum(met) == 1


def test_ranges_of_rounding_errors_say_on_which_side_the_decimal_lies() -> None:
    """As conditions in signs do; and neighbours that four digits do not tell apart have more."""
    column, above = Column("x", "number", 0, 1), np.nextafter(0.56, 1)
    assert trees.range_text(-np.inf, above, column) == "0.56 or less"
    assert trees.range_text(above, 0.7, column) == "above 0.56 to below 0.7"
    assert trees.range_text(above, np.inf, column) == "above 0.56"
    assert trees.range_text(0.3, above, column) == "0.3 to 0.56"
    assert trees.range_text(-np.inf, np.inf, column) == "any"
    ends = 1 / 3, 1 / 3 + 1e-5
    assert trees.interval_text("x", *ends, column) == "0.33333333 <= x < 0.33334333"


def test_an_end_just_above_a_decimal_has_the_decimal_below() -> None:
    """As the 56th of a hundred bins may begin above 0.56, and so a record of 0.56 is not in it; just below, it is."""
    above, below = np.nextafter(0.56, 1), np.nextafter(0.7, 0)
    assert trees.interval_text("x", -np.inf, above) == "x <= 0.56"
    assert trees.interval_text("x", above, np.inf) == "x > 0.56"
    assert trees.interval_text("x", above, below) == "0.56 < x < 0.7"
    assert trees.interval_text("x", 0.56, 0.7) == "0.56 <= x < 0.7"
    assert trees.interval_text("x", -np.inf, np.inf) == "any x"
    whole = Column("n", "integer", 0, 2e6)
    assert trees.interval_text("n", 1234566.5, 1234568, whole) == "n = 1234567"


def test_many_categories_are_named_by_the_ends_of_their_runs() -> None:
    """Up to ten one by one; single ones and short runs in full; in the schema's order."""
    column = Column("ward", categories=tuple(f"w{k:02}" for k in range(40)))
    codes = np.arange(40)
    assert trees.categories_text(column, codes < 20) == "ward in {w00, ..., w19}"
    assert trees.categories_text(column, codes < 26) == "ward in {w00, ..., w25}"
    assert trees.categories_text(column, codes < 27) == "ward not in {w27, ..., w39}"
    assert trees.categories_text(column, codes < 37) == "ward not in {w37, w38, w39}"
    assert trees.categories_text(column, codes < 40) == "ward in {w00, ..., w39}"
    assert trees.categories_text(column, codes < 20, most=20).count("w") == 21
    assert trees.categories_text(column, codes == 4) == "ward = w04"
    assert trees.categories_text(column, codes < 10).count("w") == 11
    some = np.isin(codes, [0, 2, 3, *range(10, 21), 39])
    assert trees.categories_text(column, some) == "ward in {w00, w02, w03, w10, ..., w20, w39}"


def test_both_ends_of_a_range_have_digits_that_tell_them_apart() -> None:
    """Seconds of a minute among a billion; but not ends that differ by a rounding error, as of a constant."""
    assert trees.ends_text(1700000000.0, 1700000060.0) == "1700000000 and 1700000060"
    assert trees.ends_text(np.nextafter(1, 0), np.nextafter(1, 2)) == "1 and 1"


@given(st.integers(-9999, 9999), st.integers(0, 4))
def test_a_note_says_where_printed_thresholds_are_rounded(digits: int, decimals: int) -> None:
    """Not of decimals, nor the next number to one, nor of whole numbers and categories, nor without an end; but of a third."""
    x, n = Column("x", "number", -1e5, 1e5), Column("n", "integer", -9, 9)
    value = digits / 10**decimals
    exact = [(x, value), (x, float(np.nextafter(value, np.inf))), (x, np.inf), (n, 1 / 3)]
    assert trees.rounding_note(exact) == []
    assert trees.rounding_note([*exact, (x, 1 / 3), (x, 2 / 3)]) == [trees.ROUNDED]


def test_a_threshold_at_zero_is_printed_as_zero() -> None:
    """Also the next number to it, which is what a cut of at most zero becomes."""
    after = float(np.nextafter(0, 1))
    assert trees.interval_text("x", -np.inf, after) == "x <= 0"
    assert trees.interval_text("x", after, np.inf) == "x > 0"
    assert trees.interval_text("x", 0.0, np.inf) == "x >= 0"
