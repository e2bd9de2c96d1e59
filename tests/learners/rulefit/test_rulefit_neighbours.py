"""RuleFit's sensitivities by brute force: neighbouring tables, moderate and extreme parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.queries import CovariateHistogram, Supports
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.spreads import Spreads
from privfed.questions.part import Bound
from privfed.questions.query import Query
from privfed.tables.schema import Column, Schema
from tests.neighbours import FEATURES, Row, check_neighbours, moved, rows_of, units

P = len(FEATURES)
BINARY = Schema(FEATURES, Column("y", "integer", 0, 1))
CUTOFFS = Cutoffs(
    ((0.5,), (0.0, 500.0), (5.0,), (1.0, 2.0)),
    np.array([0.05, -40.0, 0.0, 0.0]),
    np.array([0.95, 900.0, 9.0, 2.0]),
    np.array([0.2, 300.0, 2.0, 1.0]),
)
ANY = [[0, 2], [0, 3], [0, 2], [0, 3]]


def _rule(feature: int, low: int, high: int) -> list[list[int]]:
    return [[low, high] if number == feature else ends for number, ends in enumerate(ANY)]


#: Rules that a record above meets and one below does not, the other way round, and the whole table.
ABOVE = [_rule(0, 1, 2), _rule(1, 2, 3), _rule(2, 1, 2), _rule(3, 2, 3)]
BELOW = [_rule(0, 0, 1), _rule(1, 0, 1), _rule(2, 0, 1)]
TERMS = Terms(CUTOFFS, np.array([*ABOVE, *BELOW, ANY], np.uint8), (0, 1, 2))
#: Two rows that differ in every column, and one in the middle.
TOP, BOTTOM, MIDDLE = (1.0, 1000.0, 9.0, 2.0, 7.0), (0.0, -50.0, 0.0, 0.0, -3.0), (0.5,) * 5
CORNERS: list[Row] = [
    TOP,
    BOTTOM,
    MIDDLE,
    (0.0, 1000.0, 0.0, 2.0, 7.0),
    (1.0, -50.0, 9.0, 0.0, -3.0),
    (9e9, -9e9, 9e9, 9.0, 9e9),
]
ROW = rows_of(CORNERS)
TABLE = st.lists(ROW, max_size=4)


ALL = (0, 1, 2, 3)
COUNTING: dict[str, Query] = {
    **{f"histogram of {bins} bins": CovariateHistogram(ALL, bins) for bins in (2, 1000)},
    **{f"histogram {chosen}": CovariateHistogram(chosen, 7) for chosen in ((0,), (1, 3), ALL)},
    "spreads": Spreads(TERMS.cutoffs, (0, 1)),
    "supports": Supports(TERMS),
    "supports of none": Supports(replace(TERMS, boxes=TERMS.boxes[:0])),
    "supports of one": Supports(replace(TERMS, boxes=TERMS.boxes[:1])),
    "supports of one rule many times": Supports(
        replace(TERMS, boxes=np.repeat(TERMS.boxes[:1], 40, axis=0))
    ),
}
COUNTS = pytest.mark.parametrize("query", COUNTING.values(), ids=COUNTING)


@COUNTS
def test_counts_between_corners(query: Query) -> None:
    """Every corner added, and put in every other one's place, over an empty and a full table."""
    for base in ([], CORNERS[:2], CORNERS):
        check_neighbours(query, base, CORNERS, BINARY)


@COUNTS
@settings(max_examples=30)
@given(base=TABLE, one=ROW, other=ROW)
def test_counts_between_any_rows(query: Query, base: list[Row], one: Row, other: Row) -> None:
    """The same for any tables and rows."""
    check_neighbours(query, base, [one, other], BINARY)


@pytest.mark.parametrize("p", range(1, P + 1))
def test_a_record_moves_one_bin_of_each_covariate(p: int) -> None:
    """The bounds are attained: p bins by a record more, 2 p by one in another's place."""
    query = CovariateHistogram(tuple(range(p)), 7)
    sensitivity = query.parts(BINARY)["counts"].sensitivity
    assert sensitivity is not None
    none, top, bottom = (units(query, rows, BINARY)["counts"] for rows in ([], [TOP], [BOTTOM]))
    assert moved(top, none) == sensitivity.add_or_remove == Bound(p, p)
    assert moved(top, bottom) == sensitivity.replace_one == Bound(2 * p, 2 * p)


@pytest.mark.parametrize("rules", [1, 3, 40])
def test_a_record_moves_every_support(rules: int) -> None:
    """The bounds are attained: all rules and the size by a record more, all rules by a replaced one."""
    terms = replace(TERMS, boxes=np.repeat(TERMS.boxes[:1], rules, axis=0))
    parts = Supports(terms).parts(BINARY)
    none, top, bottom = (units(Supports(terms), rows, BINARY) for rows in ([], [TOP], [BOTTOM]))
    for name, more, other in (("counts", rules, rules), ("size", 1, 0)):
        sensitivity = parts[name].sensitivity
        assert sensitivity is not None
        assert moved(top[name], none[name]) == sensitivity.add_or_remove == Bound(more, more)
        assert moved(top[name], bottom[name]) == sensitivity.replace_one == Bound(other, other)
