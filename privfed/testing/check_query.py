"""Conformance of a query: its declarations hold for every two neighbouring tables.

Neighbours are searched for by hypothesis, between corners of the schema, and by climbing from the
corners towards whatever moves an answer most.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure

from privfed.errors import QueryError, WireError
from privfed.questions import wire
from privfed.questions.part import Bound, Part
from privfed.questions.query import CohortQuery, Query, View
from privfed.tables.schema import Schema
from privfed.testing.conformance import Check, checks_of, run_checks
from privfed.testing.rows import Rows, hostile_fields, table_rows

#: The client's secret under which neighbours are compared: the same for both.
SECRET = b"a client's durable secret"
#: Most cells that a stranger's question is answered with; where floats end being whole numbers.
MOST_CELLS, LARGEST = 2**20, 2.0**53
#: Equal records of a crowd; records of a table longer than any piece that it may be summed in.
CROWD, LONG = 30, 20_000
#: Columns and values of a column that a climb tries, and how often it goes round.
COLUMNS, VALUES, ROUNDS = 8, 8, 2

Answer = Mapping[str, np.ndarray]
Table = Sequence[Any]


@dataclass(frozen=True, eq=False)
class QueryCase:
    """A query under test, its schema, a source of tables, and how many neighbours are tried."""

    query: Query
    schema: Schema
    rows: Rows
    examples: int

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """What the query declares."""
        return self.query.parts(self.schema)

    @cached_property
    def bounded(self) -> Mapping[str, Part]:
        """The parts with a sensitivity."""
        return {name: part for name, part in self.parts.items() if part.sensitivity is not None}

    @cached_property
    def bounds(self) -> Mapping[str, Mapping[str, Bound | None]]:
        """What these declare for each relation; none where one declares nothing for it."""
        return {
            relation: {name: declared(part, relation) for name, part in self.bounded.items()}
            for relation in ("add_or_remove", "replace_one", "anything", "client")
        }

    @property
    def crowds(self) -> list[list[Any]]:
        """Tables of many equal records: where records are judged together, one more moves them all."""
        return [[corner] * CROWD for corner in self.rows.corners[:3]]

    def view(self, table: Table) -> View:
        """What the query sees of a table."""
        return View(self.rows.build(table), self.schema, SECRET)

    def answer(self, table: Table) -> Answer:
        """The exact answer, held to its declared shapes."""
        return checked(self.query.evaluate(self.view(table)), self.parts)

    def search(self, strategy: st.SearchStrategy[Any], hold: Callable[[Any], None]) -> None:
        """Hold a property for whatever hypothesis draws; the same each time."""

        @settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.generate, Phase.target, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def property_(drawn: Any) -> None:
            hold(drawn)

        try:
            property_()
        except FlakyFailure as error:
            raise AssertionError("asked again of the same table it gives another answer") from error

    def tables(self) -> st.SearchStrategy[list[Any]]:
        """Tables from no rows up, some of them of many equal rows."""
        few = st.lists(self.rows.row, max_size=8)
        equal = st.builds(lambda row, times: [row] * times, self.rows.row, st.integers(1, 40))
        return st.one_of(few, equal, st.builds(lambda one, other: one + other, few, equal))


def check_query(
    query: Query,
    schema: Schema,
    *,
    rows: Rows | None = None,
    examples: int = 60,
    skip: Mapping[str, str] | None = None,
) -> list[str]:
    """Run every check on a query, over tables of a schema; as :func:`.run_checks`.

    Args:
        query: the query, with public values that make sense.
        rows: where tables come from, for records that are no table; see :class:`Rows`.
        examples: pairs of neighbours that hypothesis tries, for each relation.
    """
    case = QueryCase(query, schema, rows or table_rows(schema, query), examples)
    return run_checks(CHECKS, case, skip)


def check_fields(case: QueryCase) -> None:
    """Read from its own bytes the question has the same bytes, and declares the same twice."""
    again = type(case.query).from_fields(case.query.fields)
    assert wire.encode(again) == case.query.fields == again.fields
    declared = {name: (part.type, part.axes, part.shape) for name, part in case.parts.items()}
    for query in (case.query, again):
        assert dict(query.parts(case.schema)) == dict(case.parts), "another declaration"
    assert declared or not case.query.evaluate(case.view([])), "an answer without a declaration"


def check_shapes(case: QueryCase) -> None:
    """Every part comes in its declared shape, in whole units, from no records up."""
    corners = case.rows.corners
    for table in ([], *([corner] for corner in corners), corners, *case.crowds):
        case.answer(table)


def check_total(case: QueryCase) -> None:
    """It answers for all records, rare ones too: a query that fails for some tells that they are there."""
    rare = list(case.rows.rare)
    beside = ([row, *case.rows.corners] for row in rare[:50])
    for table in (rare, *([row] for row in rare), *beside):
        try:
            case.query.evaluate(case.view(table))
        except Exception as error:
            count = "some record" if len(table) > 1 else "a record alone"
            raise AssertionError(f"fails with {type(error).__name__} for {count}") from error


def check_repeats(case: QueryCase) -> None:
    """Asked again it gives the same, from the cache and without it, and keeps nothing of its own between tables."""
    table, kept = list(case.rows.corners), ", ".join(made_once(type(case.query)))
    view = case.view(table)
    first, again = (dict(case.query.evaluate(view)) for _ in range(2))
    fresh = case.query.evaluate(case.view(table))
    for name in case.parts:
        for other in (again, fresh):
            assert np.array_equal(first[name], other[name]), f"{name}: another answer"
    assert not kept, f"a default of {kept} is made once and kept for the next table; write None"


def made_once(kind: type[Query]) -> Iterator[str]:
    """Names of methods with a list, table or set for a default, which Python makes once."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        defaults = (*(method.__defaults__ or ()), *(method.__kwdefaults__ or {}).values())
        if any(isinstance(each, list | dict | set) for each in defaults):
            yield name


def check_order(case: QueryCase) -> None:
    """The order of the table does not matter, where a sensitivity is declared."""

    def hold(table: list[Any]) -> None:
        before = case.answer(table)
        for other in (table[::-1], table[1:] + table[:1]):
            after = case.answer(other)
            for name in case.bounded:
                assert np.array_equal(before[name], after[name]), f"{name}: the order shows"

    if case.bounded:
        case.search(case.tables(), hold)


def check_add_or_remove(case: QueryCase) -> None:
    """One record more or less moves no part beyond its bounds."""

    def hold(drawn: tuple[list[Any], Any]) -> None:
        table, row = drawn
        target(assert_within(case, table, [row, *table], "add_or_remove"))

    if case.bounded:
        case.search(st.tuples(case.tables(), case.rows.row), hold)


def check_replace_one(case: QueryCase) -> None:
    """One record in another's place moves no part beyond its bounds."""

    def hold(drawn: tuple[list[Any], Any, Any]) -> None:
        table, row, other = drawn
        instead = case.rows.instead(row, other)
        target(assert_within(case, [row, *table], [instead, *table], "replace_one"))

    if case.bounded:
        case.search(st.tuples(case.tables(), case.rows.row, case.rows.row), hold)


def check_anything(case: QueryCase) -> None:
    """All rows of one person replaced by any others move no part beyond its bounds for that."""
    person = case.rows.person
    if person is None or not any(case.bounds["anything"].values()):
        return

    def hold(drawn: tuple[list[Any], list[Any], Any]) -> None:
        table, others, whose = drawn
        kept = [row for row in table if person(row) != person(whose)]
        theirs = [row for row in others if person(row) == person(whose)]
        assert_within(case, [*table, whose], [*kept, *theirs], "anything")

    tables = case.tables()
    case.search(st.tuples(tables, tables, case.rows.row), hold)


def check_client(case: QueryCase) -> None:
    """All records of a client, added or removed together, move no part beyond its bounds for that."""
    if not any(case.bounds["client"].values()):
        return

    def hold(table: Table) -> None:
        target(assert_within(case, [], table, "client"))

    for table in (case.rows.corners, *case.crowds):
        assert_within(case, [], table, "client")
    case.search(case.tables(), hold)


def check_extremes(case: QueryCase) -> None:
    """Records planted where they move most keep to the bounds, added or put in each other's place."""
    if not case.bounded:
        return
    for base in ([], *(case.crowds[:1] if case.query.linear else case.crowds)):
        seen = Moves(case, base)
        for row in case.rows.corners:
            for other in case.rows.corners:
                seen.replaced(row, other)
        for name in case.bounded:
            for norm in ("l1", "l2_squared"):
                most = seen.climb(name, norm)
                seen.climb(name, norm, instead_of=most)


def check_sums(case: QueryCase) -> None:
    """Counts and sums add up: over parts of a table, and over one too long for any piece."""
    adding = [name for name, part in case.parts.items() if part.type.adds_up]
    if not case.query.linear or not adding:
        return

    def hold(drawn: tuple[list[Any], list[Any]]) -> None:
        one, other = drawn
        whole, first, rest = (case.answer(table) for table in (one + other, one, other))
        for name in adding:
            assert np.array_equal(whole[name], first[name] + rest[name]), f"{name}: no sum"

    case.search(st.tuples(case.tables(), case.tables()), hold)
    corners = list(case.rows.corners)
    times = LONG // len(corners) + 1
    short, long = case.answer(corners), case.answer(corners * times)
    for name in adding:
        assert np.array_equal(long[name], short[name] * times), f"{name}: no sum in a long table"


def check_contribution(case: QueryCase) -> None:
    """What it says of single records is what it gives of each alone."""
    adding = {name for name, part in case.parts.items() if part.type.adds_up}

    def hold(table: list[Any]) -> None:
        view = case.view(table)
        said, alone = case.query.contribution(view), Query.contribution(case.query, view)
        expected = adding if case.query.linear else set()
        assert said.keys() == alone.keys() == expected, "other parts than those that add up"
        for name in said:
            assert said[name].shape == (len(table), *case.parts[name].shape), f"{name}: shape"
            assert np.array_equal(said[name], alone[name]), f"{name}: another contribution"

    if adding:
        case.search(case.tables(), hold)


def check_hostile_fields(case: QueryCase) -> None:
    """Whatever a stranger sends is refused before a record is read, or answered within its bounds."""
    corners = list(case.rows.corners)
    # one owner's caches, as a gate keeps them from question to question
    views = [case.view(table) for table in ([], corners, *([row] for row in corners))]
    for fields in hostile_fields(case.query):
        query = opened(type(case.query), fields, case)
        if query is not None:
            hostile = replace(case, query=query)
            try:
                without, _, *alone = (
                    checked(query.evaluate(view), hostile.parts) for view in views
                )
                for answer in alone:
                    within(hostile, without, answer, "add_or_remove")
            except AssertionError:
                raise
            except Exception as error:
                text = f"{_shown(query)} is accepted and then fails: {error!r}"
                raise AssertionError(text) from error


def opened(kind: type[Query], fields: bytes, case: QueryCase) -> Query | None:
    """A stranger's question as a gate would open it; none where it is refused."""
    try:
        query = kind.from_fields(fields)
        if wire.encode(query) != fields:
            return None
        parts = query.parts(case.schema)
        if isinstance(query, CohortQuery):
            records = case.rows.build([])
            query.asked(len(records))
            if not query.fits(records):
                return None
    except (WireError, QueryError):
        return None
    except Exception as error:
        raise AssertionError(f"fields are refused by {error!r}, not by a QueryError") from error
    return query if sum(part.size for part in parts.values()) <= MOST_CELLS else None


class Moves:
    """How far single records, added to a base table, move the answer, held to the bounds."""

    def __init__(self, case: QueryCase, base: Table) -> None:
        self.case, self.base = case, list(base)
        self._without = case.answer(self.base)
        self._with: dict[str, Answer] = {}
        self._moves: dict[tuple[str, ...], Mapping[str, Bound]] = {}

    def answer(self, row: Any) -> Answer:
        """The answer with one record more."""
        if repr(row) not in self._with:
            self._with[repr(row)] = self.case.answer([row, *self.base])
        return self._with[repr(row)]

    def added(self, row: Any) -> Mapping[str, Bound]:
        """What one record more moves."""
        key = (repr(row),)
        if key not in self._moves:
            self._moves[key] = within(self.case, self._without, self.answer(row), "add_or_remove")
        return self._moves[key]

    def replaced(self, row: Any, other: Any) -> Mapping[str, Bound]:
        """What one record in another's place moves."""
        instead = self.case.rows.instead(row, other)
        key = repr(row), repr(instead)
        if key not in self._moves:
            answers = self.answer(row), self.answer(instead)
            self._moves[key] = within(self.case, *answers, "replace_one")
        return self._moves[key]

    def climb(self, part: str, norm: str, instead_of: Any = None) -> Any:
        """The row that moves a part most, added or instead of another one, one column at a time."""

        def height(row: Any) -> int:
            moves = self.added(row) if instead_of is None else self.replaced(instead_of, row)
            return int(getattr(moves[part], norm))

        best = max(self.case.rows.corners, key=height)
        rng = np.random.default_rng(0)
        choices = self.case.rows.choices
        for _ in range(ROUNDS if choices else 0):
            for column in rng.permutation(len(choices))[:COLUMNS]:
                values = [choices[column][at] for at in rng.permutation(len(choices[column]))]
                others = ((*best[:column], v, *best[column + 1 :]) for v in values[:VALUES])
                best = max([best, *others], key=height)
        return best


def assert_within(case: QueryCase, one: Table, other: Table, relation: str) -> float:
    """Two neighbouring tables' answers lie within their bounds; gives the greatest share of an L1."""
    changes = within(case, case.answer(one), case.answer(other), relation)
    bounds = case.bounds[relation].items()
    shares = [changes[name].l1 / bound.l1 for name, bound in bounds if bound and bound.l1]
    return max(shares, default=0.0)


def within(case: QueryCase, one: Answer, other: Answer, relation: str) -> Mapping[str, Bound]:
    """How far each bounded part moves between two answers, held to its declared bounds.

    Bounds of several parts add up, so that parts within theirs are within their joint one as well.
    """
    changes = {name: moved(one[name], other[name]) for name in case.bounded}
    for name, bound in case.bounds[relation].items():
        change = changes[name]
        if bound is None:
            continue
        norms = {"L1": (change.l1, bound.l1), "squared L2": (change.l2_squared, bound.l2_squared)}
        for norm, (far, most) in norms.items():
            assert far <= most, (
                f"{name}, {relation.replace('_', ' ')}: {norm} moves by {far} units where {most} "
                f"are declared, {_shown(case.query)}"
            )
    return changes


def declared(part: Part, relation: str) -> Bound | None:
    """What a part declares for a relation; none where it declares nothing for it."""
    assert part.sensitivity is not None
    if relation in ("anything", "client"):
        told: Bound | None = getattr(part.sensitivity, relation)
        return told
    if relation == "replace_one":
        return part.sensitivity.under("record", "replace-one", None)
    return part.sensitivity.add_or_remove


def moved(one: np.ndarray, other: np.ndarray) -> Bound:
    """L1 and squared L2 of a change, in exact integers."""
    steps = (np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)).ravel()
    whole = [abs(int(step)) for step in steps[steps != 0].tolist()]
    return Bound(sum(whole), sum(step**2 for step in whole))


def checked(answer: Answer, parts: Mapping[str, Part]) -> Answer:
    """An answer, held to its declaration."""
    assert answer.keys() == parts.keys(), f"gives {sorted(answer)}, declares {sorted(parts)}"
    for name, part in parts.items():
        array = np.asarray(answer[name])
        fits = part.admits(array.shape)
        assert fits, f"{name}: has shape {array.shape}, declares {part.shape}"
        if part.exact:
            assert np.isfinite(array).all(), f"{name}: not every cell is a finite number"
            assert (np.trunc(array) == array).all(), f"{name}: not every cell is whole units"
            assert np.abs(array, dtype=float).max(initial=0) <= LARGEST, f"{name}: beyond 2^53"
    return answer


def _shown(query: Query) -> str:
    text = repr(query)
    return text if len(text) < 500 else f"{text[:500]}..."


CHECKS: tuple[Check[QueryCase], ...] = checks_of(__name__)
