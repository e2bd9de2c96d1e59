"""The queries' kit: an honest query passes, and each planted fault is convicted by the check for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from privfed.errors import QueryError
from privfed.questions.part import GRID, Bound, Part, PartType, Sensitivity, on_grid
from privfed.questions.query import Query, View
from privfed.tables.schema import Column, Schema
from privfed.testing.check_query import CHECKS, check_query
from privfed.testing.queries import Histogram, LevelSums
from privfed.testing.rows import hostile_fields, named_numbers, table_rows, values_of

SCHEMA = Schema(
    (
        Column("a", lower=0, upper=8),
        Column("n", "integer", 0, 9),
        Column("c", "category", categories=("x", "y", "z")),
    ),
    Column("y", lower=-3, upper=7),
)
UNITS = int(1 / GRID)


@dataclass(frozen=True)
class Scaled(Query):
    """A count, and the sum of one feature scaled by public bounds of the question's own.

    Sensitivity: one record more moves the count by 1, and the sum, clipped to [0, 1], by at most 1.
    """

    lower: float = 2.0
    upper: float = 6.0
    kind: ClassVar[str] = "test.scaled"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``count`` and ``sum``."""
        if not (np.isfinite([self.lower, self.upper]).all() and self.lower < self.upper):
            raise QueryError("malformed", "bounds must be finite and rise")
        return {
            "count": Part(PartType.COUNTS, (), (), Sensitivity(Bound(1, 1), Bound(0, 0))),
            "sum": Part(PartType.SUMS, (), (), Sensitivity.of(UNITS), GRID),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Clip, floor, add up."""
        scaled = self.scaled(view.table.x[:, 0])
        return {"count": np.array(len(scaled)), "sum": on_grid(scaled).sum()}

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Into [0, 1]; each bound is divided by itself, so that no width overflows."""
        width = self.upper / 2 - self.lower / 2
        with np.errstate(all="ignore"):
            return np.asarray(np.clip((values / 2 - self.lower / 2) / width, 0, 1))


def test_honest_queries_pass() -> None:
    """All checks run, on tables of every kind of column."""
    for query in (
        Scaled(),
        Averaged(),
        HONEST["clipped vectors"][0],
        Histogram(1, (0.0, 5.0, 9.0)),
    ):
        assert len(check_query(query, SCHEMA)) == len(CHECKS) == 13


def test_a_check_can_be_skipped_for_a_reason() -> None:
    """As in the other kits."""
    ran = check_query(Scaled(), SCHEMA, skip={"hostile_fields": "tried elsewhere"}, examples=5)
    assert len(ran) == len(CHECKS) - 1
    with pytest.raises(ValueError, match="reason"):
        check_query(Scaled(), SCHEMA, skip={"extremes": ""})


# --- planted faults --------------------------------------------------------------------------------


def shrunk(sensitivity: Sensitivity, l1: int, l2: int) -> Sensitivity:
    """A sensitivity declared too small by so much in either norm."""

    def smaller(bound: Bound | None) -> Bound | None:
        if bound is None:
            return None
        one = -(-bound.l1 // l1)
        return Bound(one, min(-(-bound.l2_squared // l2), one**2))

    once = smaller(sensitivity.add_or_remove)
    assert once is not None
    return Sensitivity(once, smaller(sensitivity.replace_one), smaller(sensitivity.anything))


def understated(query: Query, part: str, l1: int = 1, l2: int = 1) -> Query:
    """The same question, one part of which declares too little."""
    honest = type(query)

    class Understated(honest):  # type: ignore[misc,valid-type]
        def parts(self, schema: Schema) -> Mapping[str, Part]:
            parts = dict(super().parts(schema))
            sensitivity = shrunk(parts[part].sensitivity, l1, l2)
            return {**parts, part: replace(parts[part], sensitivity=sensitivity)}

    found: Query = Understated.from_fields(query.fields)
    return found


@dataclass(frozen=True, eq=False)
class Clipped(Query):
    """Sums of the scaled features, each record's vector shortened to a length of at most 1/2.

    Sensitivity: so one record more moves the F sums by 1/2 in L2, and sqrt(F) / 2 in L1.
    """

    lower: np.ndarray
    upper: np.ndarray
    kind: ClassVar[str] = "test.clipped"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``sums`` by feature."""
        features = len(schema.features)
        for bound in (self.lower, self.upper):
            if bound.shape != (features,) or bound.dtype != float or not (abs(bound) < 1e9).all():
                raise QueryError("malformed", "bounds must be numbers below a billion")
        if not (self.upper - self.lower > 1e-9).all():
            raise QueryError("malformed", "bounds must rise")
        l1 = int(np.ceil(np.sqrt(features) * UNITS / 2))
        moved = Sensitivity.of(l1, UNITS**2 // 4)
        return {"sums": Part(PartType.SUMS, ("feature",), (features,), moved, GRID)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Shorten, floor, add up."""
        scaled = np.clip((view.table.x - self.lower) / (self.upper - self.lower), 0, 1)
        length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
        shorter = scaled * np.minimum(1, 0.5 * (1 - 1e-12) / np.maximum(length, 1e-9))
        return {"sums": on_grid(shorter).sum(axis=0)}


HONEST: dict[str, tuple[Query, str]] = {
    "counts": (Histogram(0, (0.0, 1.0, 3.0, 8.0)), "counts"),
    "sums": (Scaled(), "sum"),
    "sums by node": (LevelSums((((0, 0),), ((0, 1), (1, 0)))), "sums"),
    "clipped vectors": (Clipped(np.zeros(3), np.array([8.0, 6.5, 2.0])), "sums"),
}
EACH = pytest.mark.parametrize(("query", "part"), HONEST.values(), ids=HONEST)


@EACH
@pytest.mark.parametrize("times", [2, 100])
def test_a_bound_declared_too_small(query: Query, part: str, times: int) -> None:
    """By 2 or by 100, in both norms (squared L2 by the square)."""
    with pytest.raises(AssertionError, match=rf"^(add_or_remove|replace_one): .*{part}"):
        check_query(understated(query, part, times, times**2), SCHEMA, examples=20)


@EACH
@pytest.mark.parametrize("times", [2, 100])
def test_an_l2_declared_too_small(query: Query, part: str, times: int) -> None:
    """The squared L2 alone."""
    with pytest.raises(AssertionError, match=f"{part}, .* squared L2 moves by"):
        check_query(understated(query, part, l2=times), SCHEMA)


def test_a_replaced_record_declared_too_little() -> None:
    """Two counts move, not one."""

    class Tight(Histogram):
        def parts(self, schema: Schema) -> Mapping[str, Part]:
            part = super().parts(schema)["counts"]
            return {"counts": replace(part, sensitivity=Sensitivity(Bound(1, 1), Bound(1, 1)))}

    with pytest.raises(AssertionError, match=r"^replace_one: .*counts, replace one: L1 moves by 2"):
        check_query(Tight(0, (0.0, 4.0, 8.0)), SCHEMA)


class Unclipped(Scaled):
    """Trusts that no value lies beyond the question's own bounds."""

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Without the clip."""
        return (values - self.lower) / (self.upper - self.lower)


class Centred(Scaled):
    """Takes the mean of the data off each value: one record more shifts all others."""

    linear: ClassVar[bool] = False

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """A data-dependent shift."""
        middle = values.mean() if len(values) else 0.0
        return np.asarray(np.clip(super().scaled(values - middle + 4), 0, 1))


class BinnedByData(Histogram):
    """Bins between the least and the greatest value of the data."""

    linear: ClassVar[bool] = False

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count between edges that each record can move."""
        values = view.table.x[:, self.feature]
        low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
        bins = len(self.edges) - 1
        counted, _ = np.histogram(values, bins, (low, max(high, low + 1e-9)))
        return {"counts": counted}


class DealtInOrder(Scaled):
    """A subsample drawn from a stream in the table's order."""

    linear: ClassVar[bool] = False

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Half of the records, by their places."""
        chosen = view.rng("half").random(len(view.table)) < 0.5
        return super().evaluate(replace(view, records=view.table.take(np.flatnonzero(chosen))))


class TossedByCoins(Scaled):
    """The honest twin: half of the records, by their own coins."""

    linear: ClassVar[bool] = False

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """A record may be drawn or not, so that one in another's place moves the count."""
        parts = dict(super().parts(schema))
        return {**parts, "count": replace(parts["count"], sensitivity=Sensitivity.of(1))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Half of the records."""
        chosen = view.coins("half") < 2**63
        return super().evaluate(replace(view, records=view.table.take(np.flatnonzero(chosen))))


class OffTheGrid(Scaled):
    """Adds up first, and floors the sum."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Fractions of a unit are lost or kept by the company they are in."""
        scaled = self.scaled(view.table.x[:, 0]) / 3
        return {"count": np.array(len(scaled)), "sum": on_grid(np.array(scaled.sum()))}


class Fractional(Scaled):
    """Never floors."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Units with a fraction."""
        scaled = self.scaled(view.table.x[:, 0]) / 3
        return {"count": np.array(len(scaled)), "sum": np.array(scaled.sum() * UNITS)}


class CutShort(Scaled):
    """Sums in pieces, and forgets all but the first."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Right for short tables."""
        return super().evaluate(
            replace(view, records=view.table.take(np.arange(min(len(view.table), 4096))))
        )


class OneAxisMore(Scaled):
    """Gives another shape than it declares."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """A list of one count."""
        return {**super().evaluate(view), "count": np.array([len(view.table)])}


class Unready(Scaled):
    """Has no answer for an empty table."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The mean of nothing is no number."""
        with np.errstate(all="ignore"):
            mean = self.scaled(view.table.x[:, 0]).sum() / len(view.table)
        return {**super().evaluate(view), "sum": on_grid(np.array(mean))}


class Kept(Scaled):
    """A planted fault: a default that is made once keeps the first answer for all tables."""

    def evaluate(
        self,
        view: View,
        kept: dict[str, np.ndarray] = {},  # noqa: B006
    ) -> Mapping[str, np.ndarray]:
        """The first."""
        if not kept:
            kept |= super().evaluate(view)
        return dict(kept)


class Counting(Scaled):
    """A planted fault: it counts the tables that it has seen."""

    seen: ClassVar[set[bytes]] = set()

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Beside the records."""
        self.seen.add(view.table.x.tobytes())
        answer = super().evaluate(view)
        return {**answer, "count": answer["count"] + len(self.seen)}


class Forgetful(Scaled):
    """Remembers an answer in the cache under a name that another answer has too."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Twice the answer the second time."""
        answer = super().evaluate(view)
        view.cache["seen"] = view.cache.get("seen", 0) + 1
        return {**answer, "count": answer["count"] * view.cache["seen"]}


class Boastful(Scaled):
    """Says that a record adds twice what it does."""

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """A fast formula gone wrong."""
        ones = np.ones(len(view.table))
        return {"count": ones, "sum": 2 * on_grid(self.scaled(view.table.x[:, 0]))}


class Trusting(Scaled):
    """Checks nothing of what a stranger sends."""

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Whatever the bounds are."""
        return Scaled(0.0, 1.0).parts(schema)


class Abrupt(Scaled):
    """Refuses with an error that is no query's."""

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """An assertion."""
        if not self.lower < self.upper:
            raise ValueError("bounds must rise")
        return super().parts(schema)


class Moody(Scaled):
    """Declares something else each time."""

    moods: ClassVar[Iterator[int]] = iter(range(10**9))

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """A shape that nobody can plan with."""
        parts = dict(super().parts(schema))
        return {
            **parts,
            "count": replace(parts["count"], sensitivity=Sensitivity.of(1 + next(self.moods))),
        }


@dataclass(frozen=True)
class SlotByRow(Query):
    """A bit for each person that another person's rows can set."""

    kind: ClassVar[str] = "test.slots"
    linear: ClassVar[bool] = False

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Claims that whatever one person holds sets one bit."""
        every = Bound(4, 4)
        part = Part(PartType.BITS, ("individual",), (4,), Sensitivity(every, every, Bound(1, 1)))
        return {"bits": part}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Slots by the row, not by the person."""
        bits = np.zeros(4, bool)
        bits[: len(view.table)] = view.table.x[:4, 0] >= 4
        return {"bits": bits}


class Averaged(Scaled):
    """The mean of a client's records, which all of them together move by no more than one of them may."""

    linear: ClassVar[bool] = False

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One, for a record and for a client."""
        wide = Sensitivity(Bound(UNITS, UNITS**2), client=Bound(UNITS, UNITS**2))
        return {"sum": replace(super().parts(schema)["sum"], sensitivity=wide)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Nothing of nobody."""
        units = on_grid(self.scaled(view.table.x[:, 0]))
        return {"sum": np.trunc(units.sum() / max(1, len(units)))}


class Summed(Averaged):
    """The same bound for a sum."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """As long as there is one record, right."""
        return {"sum": on_grid(self.scaled(view.table.x[:, 0])).sum()}


class Choosy(Scaled):
    """Fails for one value that hardly any record has."""

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """An error that tells that it is there."""
        if (values == 3.8125).any():
            raise ValueError("odd")
        return super().scaled(values)

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Through a function of the class, and beside its own number."""
        assert not (view.table.x[:, 0] == 6.9375).any()
        return super().evaluate(view)


FAULTS: dict[str, tuple[Query, str]] = {
    "an error for a rare record": (Choosy(), "total"),
    "a missing clip": (Unclipped(), "add_or_remove|shapes"),
    "a missing clip below": (Unclipped(6.0, 8.0), "add_or_remove|shapes"),
    "a shift by the data": (Centred(), "add_or_remove|extremes"),
    "bins by the data": (BinnedByData(0, (0.0, 1.0, 8.0)), "add_or_remove|extremes"),
    "a subsample by places": (DealtInOrder(), "order|add_or_remove"),
    "a sum that is floored last": (OffTheGrid(), "order|sums"),
    "units with a fraction": (Fractional(), "shapes"),
    "a piece forgotten": (CutShort(), "sums"),
    "another shape": (OneAxisMore(), "shapes"),
    "no answer for nobody": (Unready(), "shapes"),
    "a cache that tells": (Forgetful(), "repeats"),
    "the first answer for all": (Kept(), "repeats"),
    "a count of tables": (Counting(), "order"),
    "another contribution": (Boastful(), "contribution"),
    "hostile fields accepted": (Trusting(), "hostile_fields"),
    "another error": (Abrupt(), "hostile_fields"),
    "a declaration that changes": (Moody(), "fields"),
    "bits by the row": (SlotByRow(), "order|anything"),
    "a client of one record": (Summed(), "client"),
}


@pytest.mark.parametrize(("query", "check"), FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_convicted(query: Query, check: str) -> None:
    """Each by a check that is there for it."""
    with pytest.raises(AssertionError, match=f"^({check}): "):
        check_query(query, SCHEMA)


NAMES = [check.__name__.removeprefix("check_") for check in CHECKS]


def alone(name: str) -> dict[str, str]:
    """Skip all checks but one."""
    return dict.fromkeys(set(NAMES) - {name}, "one check at a time")


@pytest.mark.parametrize("name", ["add_or_remove", "replace_one", "extremes"])
def test_each_search_convicts_alone(name: str) -> None:
    """Half of what a histogram's bounds should be is found by each of the three."""
    half = understated(Histogram(0, (0.0, 4.0, 8.0)), "counts", 2, 4)
    if name == "add_or_remove":
        half = understated(Scaled(), "sum", 2, 4)
    with pytest.raises(AssertionError, match=f"^{name}: "):
        check_query(half, SCHEMA, skip=alone(name))


def test_persons_are_replaced_whole() -> None:
    """Bits that another person's rows can set are found by replacing persons alone."""
    with pytest.raises(AssertionError, match=r"^anything: "):
        check_query(SlotByRow(), SCHEMA, skip=alone("anything"))


def test_every_check_has_a_fault() -> None:
    """None is there that nothing above was planted for."""
    planted = {name for _, names in FAULTS.values() for name in names.split("|")}
    assert planted | {"replace_one", "extremes"} == set(NAMES)


def test_a_subsample_by_coins_passes() -> None:
    """The honest twin of the subsample by places."""
    assert len(check_query(TossedByCoins(), SCHEMA)) == len(CHECKS)


def test_a_rare_extreme_is_climbed_to() -> None:
    """A record that moves too much in one corner of many columns only, found column by column."""
    wide = Schema(tuple(Column(f"x{at}", lower=0, upper=1) for at in range(6)))

    @dataclass(frozen=True)
    class Steep(Query):
        kind: ClassVar[str] = "test.steep"

        def parts(self, schema: Schema) -> Mapping[str, Part]:
            return {"sum": Part(PartType.SUMS, (), (), Sensitivity.of(40))}

        def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
            x = view.table.x
            return {"sum": np.floor(10 * (x[:, [0, 3, 4]] + 1 - x[:, [1, 2, 5]]).sum(axis=1)).sum()}

    with pytest.raises(AssertionError, match=r"moves by \d+ units where 40"):
        check_query(Steep(), wide, skip=alone("extremes"))


# --- what the checks are made of -------------------------------------------------------------------


def test_values_to_try() -> None:
    """Bounds and beside them, categories, what a query names within the bounds, and what is beyond."""
    a, n, c = (values_of(column, [1.0, 77.0]) for column in SCHEMA.features)
    assert {0.0, 8.0, 4.0, 1.0, float(np.nextafter(1.0, 0)), 1e300} <= set(a) and 77.0 not in a
    assert {0.0, 9.0, 8.0} <= set(n)
    assert {0.0, 1.0, 2.0, 3.0, -1.0} <= set(c)
    assert all(any(np.isnan(value) for value in own) for own in (a, n, c))
    assert named_numbers(Histogram(2, (0.0, 0.5, 3.0))) == [0.0, 0.5, 2.0, 3.0]
    assert named_numbers(HONEST["clipped vectors"][0]) == [0.0, 2.0, 6.5, 8.0]


def test_tables_are_built_from_no_rows_up() -> None:
    """Values beyond the bounds are clipped as everywhere, and each row has its person."""
    rows = table_rows(SCHEMA)
    assert len(rows.build([])) == 0
    built = rows.build(rows.corners)
    assert (built.x >= SCHEMA.lower).all() and (built.x <= SCHEMA.upper).all()
    assert built.individual is not None and set(built.individual) == {0, 1, 2, 3}
    assert len(table_rows(Schema(SCHEMA.features)).build(rows.corners[:0])) == 0


def test_hostile_fields_change_one_value_each() -> None:
    """Huge, negative, missing, empty, longer, shorter, in lists and in arrays; none is the original."""
    query = HONEST["clipped vectors"][0]
    found = list(hostile_fields(query))
    assert query.fields not in found and len(found) > 60
    edges = [Histogram.from_fields(f).edges for f in hostile_fields(Histogram(0, (0.0, 1.0)))]
    assert {len(own) for own in edges} >= {0, 1, 2, 3, 80}
    assert {-1.0, 1e300} <= {own[0] for own in edges if own}
    assert any(np.isnan(own[0]) for own in edges if own)
