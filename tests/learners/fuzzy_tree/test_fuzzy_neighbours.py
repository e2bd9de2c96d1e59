"""The fuzzy tree's sensitivities by brute force at the corners, inside and outside the scaling."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Column, Schema
from privfed.errors import QueryError
from privfed.learners.fuzzy_tree.fuzzy import Memberships, to_unit
from privfed.learners.fuzzy_tree.linear import Coordinates, Moments, Residuals, ResidualsBySet
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.questions.cells import Path
from privfed.questions.part import Bound
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from tests.neighbours import Row, check_neighbours, moved, units

FEATURES, SETS = 3, 3
ALL = tuple(range(FEATURES))
SCHEMA = Schema(
    tuple(Column(f"x{number}", "number", -4, 4) for number in range(FEATURES)),
    Column("y", "number", -2, 2),
)
#: Where the released scaling puts each feature's [0, 1]; records lie anywhere in [-4, 4].
SCALINGS = {
    "the bounds": (np.full(3, -4.0), np.full(3, 4.0)),
    "narrow": (np.full(3, -1.0), np.full(3, 1.0)),
    "one-sided": (np.array([2.0, -4.0, 0.0]), np.array([4.0, -3.0, 0.5])),
    "beside all records": (np.array([5.0, -9.0, 5.0]), np.array([6.0, -8.0, 9.0])),
    "without width": (np.array([0.0, 1.0, -4.0]), np.array([0.0, 1.0, 4.0])),
    "upside down": (np.full(3, 1.0), np.full(3, -1.0)),
    "a hair": (np.full(3, 0.0), np.full(3, 1e-9)),
}
SCALED = pytest.mark.parametrize(("lower", "upper"), SCALINGS.values(), ids=SCALINGS)
TREES: dict[str, tuple[Path, ...]] = {
    "the root": ((),),
    "a level": (((1, 0),), ((1, 1),), ((1, 2),)),
    "leaves of two depths": (
        ((1, 0),),
        ((1, 2),),
        ((1, 1), (0, 0)),
        ((1, 1), (0, 1)),
        ((1, 1), (0, 2)),
    ),
    "all leaves at depth two": tuple(((1, a), (0, b)) for a, b in product(range(3), repeat=2)),
}
#: Of a second round of histograms, by feature and last of the target; records lie on and beyond them.
EDGES = ((-4.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0), (-9.0, -4.0, 4.0, 9.0), (-2.0, 0.1, 0.1, 2.0))
#: Of linear models: public ones, and ones so far off and so stretched that the unit ball holds nothing.
COORDINATE_SYSTEMS = (
    Coordinates.public(ALL),
    Coordinates((2,), np.array([0.4]), np.array([-30.0]), 0.01),
    Coordinates(ALL, np.array([-0.5, 0.5, 9.0]), np.array([5.0, 0.0, 1e5]), -2.0),
    Coordinates((), np.zeros(0), np.zeros(0), 1.0),
)


def _queries(lower: np.ndarray, upper: np.ndarray) -> list[Query]:
    scale = (lower, upper)
    questions: list[Query] = [Scaling(7), Scaling(3, EDGES)]
    for nodes in TREES.values():
        more = {"partition": (2, 3, 2), "target": (-0.5, 0.25)}
        peaks = {**more, "peaks": ((0.1, 0.2), (0.0, 0.5, 0.501), (0.0, 1.0))}
        questions += [Level(nodes, SETS, *scale, ALL, **peaks)]  # type: ignore[arg-type]
        questions += [Leaves(nodes, SETS, *scale, ALL, **peaks)]  # type: ignore[arg-type]
        questions += [Activations(nodes, SETS, *scale, **peaks)]  # type: ignore[arg-type]
        questions += [Level(nodes, SETS, *scale, ALL, **more)]  # type: ignore[arg-type]
        questions += [Leaves(nodes, SETS, *scale, ALL, **more)]  # type: ignore[arg-type]
        questions += [Activations(nodes, SETS, *scale, **more)]  # type: ignore[arg-type]
        questions += [Level(nodes, SETS, *scale, ALL), Level(nodes, SETS, *scale, (2,))]
        questions += [Leaves(nodes, SETS, *scale, ALL), Leaves(nodes, SETS, *scale, (0,))]
        questions += [Activations(nodes, SETS, *scale)]
        for coordinates in COORDINATE_SYSTEMS:
            model = np.linspace(-1, 1, coordinates.width)
            for own in (more, peaks):
                questions += [Residuals(nodes, SETS, *scale, coordinates, model, 0.3, **own)]
                common = (((),), SETS, *scale, coordinates, model, 0.3)
                questions += [ResidualsBySet(*common, ALL, **own), ResidualsBySet(*common, (2,))]
    questions += [Moments(((),), SETS, *scale, coordinates) for coordinates in COORDINATE_SYSTEMS]
    return questions


#: Corners of the bounds, which lie outside most scalings, with both ends of the target.
CORNERS: list[Row] = [
    (-4.0, -4.0, -4.0, -2.0),
    (4.0, 4.0, 4.0, 2.0),
    (4.0, -4.0, 4.0, -2.0),
    (-4.0, 0.0, 4.0, 2.0),
    (0.0, 0.0, 0.0, 2.0),
    (1e99, -1e99, float("nan"), -1e99),
]


@SCALED
def test_corner_records(lower: np.ndarray, upper: np.ndarray) -> None:
    """However far outside the released scaling, a record moves no part by more than is derived."""
    for query in _queries(lower, upper):
        check_neighbours(query, [], CORNERS, SCHEMA)
        check_neighbours(query, CORNERS[:2], CORNERS[2:5], SCHEMA)


COORDINATES = st.one_of(st.sampled_from([-4.0, -1.0, 0.0, 0.5, 1.0, 4.0]), st.floats(-9, 9))
ROWS = st.tuples(COORDINATES, COORDINATES, COORDINATES, st.sampled_from([-2.0, 0.1, 2.0]))


@settings(max_examples=25)
@given(
    base=st.lists(ROWS, max_size=3),
    records=st.tuples(ROWS, ROWS),
    tree=st.sampled_from(list(TREES.values())),
    ends=st.lists(st.floats(-5, 5), min_size=6, max_size=6),
)
def test_any_records_under_any_scaling(
    base: list[Row], records: tuple[Row, Row], tree: tuple[Path, ...], ends: list[float]
) -> None:
    """The same for any records, inside and outside of any finite scaling."""
    scale = np.array(ends[:3]), np.array(ends[3:])
    drawn = Coordinates(ALL, np.array(ends[1:4]) / 5, np.array(ends[2:5]), ends[0])
    query: Query
    for query in (
        Level(tree, SETS, *scale, ALL),
        Leaves(tree, SETS, *scale, ALL),
        Activations(tree, SETS, *scale),
        Moments(((),), SETS, *scale, drawn),
        Residuals(tree, SETS, *scale, drawn, np.array(ends[:4]), abs(ends[5]) / 6 + 0.01),
        ResidualsBySet(
            ((),), SETS, *scale, drawn, np.array(ends[:4]), abs(ends[5]) / 6 + 0.01, (0, 2)
        ),
    ):
        check_neighbours(query, base, list(records), SCHEMA)


# --- what the sensitivities stand on ---------------------------------------------------------------


@given(
    st.lists(st.tuples(COORDINATES, COORDINATES, COORDINATES), min_size=1, max_size=5),
    st.lists(st.floats(-5, 5), min_size=6, max_size=6),
)
def test_scaled_features_lie_between_nought_and_one(
    rows: list[tuple[float, float, float]], ends: list[float]
) -> None:
    """Values outside the scaling become its ends, and a feature without width nought."""
    lower, upper = np.array(ends[:3]), np.array(ends[3:])
    unit = to_unit(np.array(rows), lower, upper)
    assert ((unit >= 0) & (unit <= 1)).all()
    assert (unit[:, upper <= lower] == 0).all()


def test_outside_the_scaling_are_its_ends() -> None:
    """Below is nought, above is one, between is the share of the way."""
    lower, upper = np.array([-1.0]), np.array([1.0])
    values = np.array([[-4.0], [-1.0], [-0.5], [1.0], [1.0 + 1e-9], [1e300]])
    assert to_unit(values, lower, upper).ravel().tolist() == [0, 0, 0.25, 1, 1, 1]


@SCALED
def test_memberships_are_degrees(lower: np.ndarray, upper: np.ndarray) -> None:
    """Two neighbouring sets share each value between them, whatever the scaling."""
    table = np.nan_to_num(np.array(CORNERS)[:, :FEATURES])
    members = Memberships.from_unit(to_unit(table, lower, upper), SETS)
    assert ((members.rest >= 0) & (members.rest <= 1)).all()
    assert ((members.below >= 0) & (members.below <= SETS - 2)).all()


@SCALED
@pytest.mark.parametrize("target", [-2.0, 0.0, 2.0])
def test_targets_are_centred(lower: np.ndarray, upper: np.ndarray, target: float) -> None:
    """Both ends of the target count one half, and its middle nothing at all."""
    exact = units(Level(((),), SETS, lower, upper, ALL), [(4.0, -4.0, 0.0, target)], SCHEMA)
    unit = exact["node_weights"][0]
    assert exact["node_linear"][0] == unit * target / 4
    assert exact["node_squares"][0] == unit * (target / 4) ** 2
    assert np.abs(exact["linear"]).sum() == FEATURES * unit * abs(target) / 4


@SCALED
def test_leaf_designs_are_centred(lower: np.ndarray, upper: np.ndarray) -> None:
    """A column of a leaf's design is at most one half, at either end of its feature."""
    for row in CORNERS:
        gram = units(Leaves(((),), SETS, lower, upper, ALL), [row], SCHEMA)["gram"][0]
        unit = gram[0, 0]
        assert (np.abs(gram[0, 1:]) <= unit / 2).all()
        assert (np.abs(gram[1:, 1:]) <= unit / 4).all()
        assert np.trace(gram) <= unit * (1 + FEATURES / 4)


def test_leaf_sums_attain_their_bounds_at_either_end() -> None:
    """Outside the scaling on any side, a record moves the equations by all that is allowed."""
    query = Leaves(((),), SETS, *SCALINGS["narrow"], ALL)
    for ends in product((-4.0, 4.0), repeat=FEATURES):
        for target in (-2.0, 2.0):
            exact = units(query, [(*ends, target)], SCHEMA)
            for name, part in query.parts(SCHEMA).items():
                assert part.sensitivity is not None
                change = moved(exact[name], np.zeros_like(exact[name]))
                assert change == part.sensitivity.add_or_remove


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_counts_attain_their_bounds_halfway_between_sets(depth: int) -> None:
    """A record halfway between two sets of each feature reaches two to the depth nodes."""
    sets, order = 4, (1, 0, 2)[:depth]
    nodes = tuple(tuple(zip(order, way, strict=True)) for way in product(range(sets), repeat=depth))
    free = tuple(feature for feature in ALL if feature not in order)
    scale = np.full(3, -3.0), np.full(3, 3.0)
    reach = {"node_counts": 2**depth, "node_strong": 2**depth, "records": 1}
    reach["counts"] = 2 * len(free) * 2**depth
    query: Query
    for query, names in (
        (Level(nodes, sets, *scale, free), reach),
        (Activations(nodes, sets, *scale), {"counts": 2**depth}),
    ):
        none, low, high = (
            units(query, rows, SCHEMA)
            for rows in ([], [(-2.0,) * 3 + (2.0,)], [(2.0,) * 3 + (-2.0,)])
        )
        parts = query.parts(SCHEMA)
        for name, cells in names.items():
            sensitivity = parts[name].sensitivity
            assert sensitivity is not None
            assert moved(low[name], none[name]) == sensitivity.add_or_remove == Bound(cells, cells)
            if name != "records":
                swapped = moved(low[name], high[name])
                assert swapped == sensitivity.replace_one == Bound(2 * cells, 2 * cells)


def test_moments_and_residuals_attain_their_bounds_on_the_unit_sphere() -> None:
    """A record far outside the unit ball moves both by one unit of length, and by no more."""
    far = Coordinates(ALL, np.zeros(3), np.full(3, 50.0), 1.0)
    scale = np.full(3, -4.0), np.full(3, 4.0)
    moments = Moments(((),), SETS, *scale, far)
    residuals = Residuals(((),), SETS, *scale, far, np.array([9.0, 0, 0, 0]), 0.25)
    for query in (moments, residuals):
        (part,), (exact,) = (
            query.parts(SCHEMA).values(),
            units(query, [CORNERS[1]], SCHEMA).values(),
        )
        assert part.sensitivity is not None
        length = math.sqrt(moved(exact, np.zeros_like(exact)).l2_squared)
        bound = math.sqrt(part.sensitivity.add_or_remove.l2_squared)
        shrunk = 1 if query is moments else np.linalg.norm([1, 25, 25, 25])
        assert 0.999 * bound <= length * shrunk <= bound


def test_residuals_by_set_attain_their_bounds() -> None:
    """A record at a peak of every feature, far from the model: clip in each feature, in both norms."""
    near = Coordinates(ALL, np.zeros(3), np.full(3, 0.01), 0.5)
    common = (((),), SETS, np.full(3, -4.0), np.full(3, 4.0), near)
    query = ResidualsBySet(*common, np.array([9.0, 0, 0, 0]), 0.25, ALL)
    (part,), (exact,) = (
        query.parts(SCHEMA).values(),
        units(query, [CORNERS[1]], SCHEMA).values(),
    )
    assert part.sensitivity is not None
    change, bound = moved(exact, np.zeros_like(exact)), part.sensitivity.add_or_remove
    assert 0.999 * bound.l2_squared <= change.l2_squared <= bound.l2_squared
    assert 0.999 * bound.l1 <= change.l1 <= bound.l1


def test_residuals_by_set_are_of_all_records() -> None:
    """Neither of leaves, nor of no feature, nor of one twice."""
    scale, model = SCALINGS["the bounds"], np.zeros(4)
    for nodes, features in ((TREES["a level"], ALL), (((),), ()), (((),), (1, 1))):
        query = ResidualsBySet(nodes, SETS, *scale, Coordinates.public(ALL), model, 0.5, features)
        with pytest.raises(QueryError):
            query.parts(SCHEMA)


def test_without_the_unit_ball_a_record_moves_moments_by_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault that these tests must catch: a record that is not shrunk."""

    def unshrunk(self: Coordinates, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.of(unit), np.ones(len(unit))

    monkeypatch.setattr(Coordinates, "clipped", unshrunk)
    query = Moments(((),), SETS, *SCALINGS["the bounds"], Coordinates.public(ALL))
    with pytest.raises(AssertionError):
        check_neighbours(query, [], CORNERS, SCHEMA)


def test_a_model_that_cancels_reads_each_record_alone() -> None:
    """To the last bit, whoever else is there: a matrix product rounds a record by its neighbours."""
    rng = np.random.default_rng(0)
    for width in (4, 12, 24):
        coordinates = Coordinates.public(tuple(range(width)))
        unit, model = rng.random((400, width)), 2.0**19 * rng.standard_normal(width + 1)
        alone = [coordinates.predicted(unit[row : row + 1], model)[0] for row in range(len(unit))]
        assert coordinates.predicted(unit, model).tolist() == alone
        assert (coordinates.of(unit) @ model).tolist() != alone


@pytest.mark.parametrize(
    "fault",
    [
        {"features": (0, 0, 1)},
        {"features": (0, 1, 7)},
        {"centre": np.zeros(2)},
        {"scale": np.array([1.0, np.nan, 1.0])},
        {"lead": 2.0**30},
    ],
    ids=["twice", "unknown", "too few", "no number", "too long"],
)
def test_coordinates_that_make_no_sense_are_refused(fault: dict[str, object]) -> None:
    """Told from public values alone, before any record is looked at."""
    coordinates = replace(Coordinates.public(ALL), **fault)  # type: ignore[arg-type]
    with pytest.raises(QueryError):
        Moments(((),), SETS, *SCALINGS["the bounds"], coordinates).parts(SCHEMA)


@pytest.mark.parametrize(
    ("model", "clip"),
    [
        (np.zeros(3), 0.5),
        (np.array([0, 0, 0, np.inf]), 0.5),
        (np.zeros(4), 0.0),
        (np.zeros(4), 9.0),
    ],
)
def test_residuals_of_no_model_are_refused(model: np.ndarray, clip: float) -> None:
    """A model of another width, one without end, and a limit of nothing or of more than there is."""
    public = Coordinates.public(ALL)
    with pytest.raises(QueryError):
        Residuals(((),), SETS, *SCALINGS["the bounds"], public, model, clip).parts(SCHEMA)


def test_moments_are_of_all_records() -> None:
    """Leaves have no moments of their own."""
    leaves, scale = TREES["a level"], SCALINGS["the bounds"]
    with pytest.raises(QueryError, match="all records"):
        Moments(leaves, SETS, *scale, Coordinates.public(ALL)).parts(SCHEMA)


def test_contributions_add_up_to_the_answers() -> None:
    """What each record adds, one by one, is what is released together."""
    rows: list[Row] = [(-1.0, 0.5, 3.0, -2.0), (2.0, 0.3, -0.2, 1.1), (0.0, -3.0, 1.0, 0.4)]
    records = Records(SCHEMA, np.array(rows)[:, :3], np.array(rows)[:, 3])
    for query in _queries(np.full(3, -3.0), np.full(3, 3.0)):
        if isinstance(query, Moments | Residuals | ResidualsBySet):
            (exact,) = query.evaluate(View(records, SCHEMA)).values()
            (each,) = query.contribution(View(records, SCHEMA)).values()
            assert np.array_equal(each.sum(axis=0), exact)
