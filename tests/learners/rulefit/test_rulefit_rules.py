"""Rules: canonical form, logical equality, absorption, text, boxes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import InputError, QueryError
from privfed.learners.rulefit import Condition, Rule
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.rules import Terms, rule_of, union
from privfed.tables.schema import Column, Schema

SCHEMA = Schema(tuple(Column(name, lower=-10, upper=10) for name in "ab"))
ends = st.one_of(st.none(), st.integers(-3, 3).map(float))
conditions = st.builds(Condition, st.sampled_from(["a", "b"]), ends, ends)
GRID = np.array([[a, b] for a in np.arange(-4, 4.5, 0.5) for b in np.arange(-4, 4.5, 0.5)])


def cutoffs(*cuts: tuple[float, ...]) -> Cutoffs:
    """Cut-offs with limits that do not matter."""
    count = len(cuts)
    return Cutoffs(cuts, np.full(count, -9.0), np.full(count, 9.0), np.ones(count))


def test_the_order_of_conditions_does_not_matter() -> None:
    """x1 > 1 and x2 < 1 is x2 < 1 and x1 > 1, the paper's own example."""
    one, other = Condition("x1", 1.0), Condition("x2", None, 1.0)
    assert Rule.of(one, other) == Rule.of(other, one)
    assert len({Rule.of(one, other), Rule.of(other, one)}) == 1


def test_a_tighter_condition_absorbs_a_looser_one() -> None:
    """x < 3 and x < 2 is x < 2."""
    assert Rule.of(Condition("x", None, 3.0), Condition("x", None, 2.0)) == Rule.of(
        Condition("x", None, 2.0)
    )


@given(st.lists(conditions, min_size=1, max_size=5), st.lists(conditions, min_size=1, max_size=5))
def test_equal_rules_are_exactly_those_that_hold_alike(
    first: list[Condition], second: list[Condition]
) -> None:
    """Canonical equality is logical equality, checked on a grid finer than all ends."""
    try:
        one, other = Rule.of(*first), Rule.of(*second)
    except InputError:
        return
    alike = np.array_equal(one.holds(GRID, ("a", "b")), other.holds(GRID, ("a", "b")))
    assert (one == other) == alike
    covered = bool((~one.holds(GRID, ("a", "b")) | other.holds(GRID, ("a", "b"))).all())
    assert one.implies(other) == covered


@given(st.lists(conditions, min_size=1, max_size=5))
def test_canonical_form_holds_where_all_conditions_hold(given_: list[Condition]) -> None:
    """Merging conditions changes nothing about who satisfies them."""
    naive = np.logical_and.reduce([c.holds(GRID[:, "ab".index(c.feature)]) for c in given_])
    try:
        rule = Rule.of(*given_)
    except InputError:
        assert naive.all() or not naive.any()
        return
    assert np.array_equal(rule.holds(GRID, ("a", "b")), naive)


def test_contradictions_and_empty_rules_are_errors() -> None:
    """A rule that nothing satisfies, and a rule without a condition, say so."""
    with pytest.raises(InputError, match="nothing satisfies"):
        Rule.of(Condition("x", 2.0), Condition("x", None, 2.0))
    with pytest.raises(InputError, match="at least one condition"):
        Rule.of(Condition("x"))
    with pytest.raises(InputError, match="finite"):
        Condition("x", float("nan"))


def test_text_reads_like_a_clinician_writes() -> None:
    """Numbers, intervals and categories each have their own form."""
    schema = Schema(
        (
            Column("GCS", "integer", 3, 15),
            Column("age", "number", 0, 100),
            Column("sex", "category", categories=("male", "female")),
            Column("site", "category", categories=("A", "B", "C")),
        )
    )
    rule = Rule.of(
        Condition("age", None, 57.23),
        Condition("GCS", 5.0),
        Condition("sex", 1.0),
        Condition("site", None, 2.0),
    )
    assert rule.text(schema) == "GCS >= 5 and age < 57.23 and sex = female and site in {A, B}"
    assert str(Rule.of(Condition("age", 20.0, 57.2))) == "20 <= age < 57.2"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2)), max_size=8))
def test_boxes_hold_where_their_rules_hold(drawn: list[tuple[int, int, int]]) -> None:
    """The fast way over codes equals the naive way over rule objects."""
    boxes = [[(a, b), (c, 3)] for a, b, c in drawn if a < b and (a, b, c) != (0, 4, 0)]
    terms = Terms(
        cutoffs((-1.0, 0.0, 2.0), (0.5, 1.5)),
        np.array(boxes, np.uint8).reshape(-1, 2, 2),
        (),
    )
    held = terms.rules(GRID)
    for k, box in enumerate(terms.boxes):
        rule = rule_of(box, terms.cutoffs.cuts, ("a", "b"))
        assert np.array_equal(held[:, k], rule.holds(GRID, ("a", "b")))


def test_union_drops_equal_rules_and_counts_them() -> None:
    """Two clients' common rule is one rule, grown as often as both together say."""
    box, other = [[0, 1], [0, 2]], [[1, 2], [0, 2]]
    first = np.array([box, other], np.uint8), np.array([2, 1])
    second = np.array([box], np.uint8), np.array([3])
    boxes, often = union([first, second], 2)
    assert boxes.tolist() == [box, other]
    assert often.tolist() == [5, 1]
    nothing, _ = union([(np.zeros((0, 2, 2), np.uint8), np.zeros(0))], 2)
    assert nothing.shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("boxes", "linear"),
    [
        (np.zeros((1, 2, 2), np.uint8), ()),
        (np.zeros((1, 3, 2), np.uint8), ()),
        (np.zeros((0, 2, 2), np.int64), ()),
        (np.zeros((0, 2, 2), np.uint8), (2,)),
        (np.zeros((0, 2, 2), np.uint8), (1, 0)),
    ],
)
def test_malformed_terms_are_refused(boxes: np.ndarray, linear: tuple[int, ...]) -> None:
    """Empty intervals, wrong shapes, unknown covariates."""
    with pytest.raises(QueryError):
        Terms(cutoffs((0.0,), ()), boxes, linear).check(SCHEMA)
