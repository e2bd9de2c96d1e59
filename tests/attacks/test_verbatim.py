"""The verbatim scan finds planted numbers in every form, and nothing where nothing is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from privfed.attacks import sketches, verbatim
from privfed.attacks.verbatim import Verbatim, numbers_inside
from privfed.exchange.messages import Release, ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.leaks.shape import Shape
from privfed.privacy.laws import DiscreteGaussian, DiscreteLaplace, Law
from privfed.questions import wire
from privfed.questions.part import GRID, PartType
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

SCHEMA = Schema((Column("a", lower=0, upper=10), Column("b", lower=-3, upper=7)))


def released(
    units: np.ndarray,
    type_: PartType,
    grid: Fraction = Fraction(1),
    noise: Law | None = None,
    client: str = "one",
) -> Transcript:
    """One release of one part by one client."""
    part = ReleasedPart(type_, tuple("xyz"[: units.ndim]), units, grid=grid, noise=noise)
    release = Release(client, "r", "planted", "", {"part": part})
    return Transcript((TranscriptEntry(client, "planted", wire.encode({}), release),))


@pytest.fixture
def truth() -> dict[str, Records]:
    """Two clients with continuous values."""
    rng = np.random.default_rng(0)
    return {n: Records(SCHEMA, rng.uniform([0, -3], [10, 7], (30, 2))) for n in ("one", "two")}


def _scaled(x: np.ndarray, shift: float) -> np.ndarray:
    return np.trunc(((x[:, 1] + 3) / 10 - shift) * float(1 / GRID)).astype(np.int64)


@pytest.mark.parametrize(
    ("form", "leak"),
    [
        ("exact", lambda x: released(x[:5], PartType.VALUES)),
        ("last place", lambda x: released(np.nextafter(x[:5], 99), PartType.VALUES)),
        ("32 bits", lambda x: released(x[:5].astype(np.float32).astype(float), PartType.VALUES)),
        ("scaled", lambda x: released((x[:10, 1] + 3) / 10, PartType.VALUES)),
        ("scaled", lambda x: released(_scaled(x[:10], 0), PartType.SUMS, GRID)),
        ("scaled", lambda x: released(_scaled(x[:10], 0.5), PartType.SUMS, GRID)),
        ("exact", lambda x: released(_artifact(repr(x[:5].tolist()).encode()), PartType.ARTIFACT)),
        ("exact", lambda x: released(_artifact(wire.encode(x[:5])), PartType.ARTIFACT)),
        (
            "exact",
            lambda x: released(
                _artifact(b"?" + struct.pack(">10d", *x[:5].ravel())), PartType.ARTIFACT
            ),
        ),
    ],
)
def test_planted_leaks_are_found(
    form: str, leak: Callable[[np.ndarray], Transcript], truth: dict[str, Records]
) -> None:
    """Ten planted cells, each form by name."""
    *_, found = Verbatim().run(leak(truth["one"].x), truth, SCHEMA)
    assert found.value == found.detail["forms"][form] == 10
    assert found.of == 60
    assert found.baseline == 0
    assert found.severity == "breach"


def _artifact(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def test_suppressed_cells_are_not_read(truth: dict[str, Records]) -> None:
    """A masked number did not leave."""
    part = ReleasedPart(PartType.VALUES, ("x",), truth["one"].x[:, 0], mask=np.arange(30) > 1)
    release = Release("one", "r", "planted", "", {"part": part})
    transcript = Transcript((TranscriptEntry("one", "planted", wire.encode({}), release),))
    assert Verbatim().run(transcript, truth, SCHEMA)[0].value == 2


def test_means_are_no_leak(truth: dict[str, Records]) -> None:
    """Numbers computed from many records are not found."""
    transcript = released(np.cumsum(truth["one"].x, axis=0)[5:], PartType.VALUES)
    (found,) = Verbatim().run(transcript, truth, SCHEMA)
    assert found.value == 0
    assert found.severity == "none"


def test_shared_values_match_by_chance_and_are_no_breach() -> None:
    """Small counts equal small ages: as often as in the other client's table."""
    rng = np.random.default_rng(1)
    schema = Schema((Column("age", "integer", 0, 99),))
    ages = {n: Records(schema, rng.integers(1, 40, (60, 1)).astype(float)) for n in ("one", "two")}
    transcript = released(np.arange(5, 25), PartType.COUNTS)
    (found,) = Verbatim().run(transcript, ages, schema)
    assert found.value > 20
    assert found.severity == "none"
    assert found.baseline == pytest.approx(found.value, rel=0.3)


def test_noisy_counts_are_not_accused_of_a_value_that_nearly_everybody_has() -> None:
    """One noisy count in eleven is 37 by chance, and 54 of 60 patients are that old."""
    rng = np.random.default_rng(2)
    schema = Schema((Column("age", "integer", 0, 99),))
    ages = np.where(np.arange(60) < 54, 37, rng.integers(1, 99, 60)).astype(float)
    truth = {
        "one": Records(schema, ages[:, None]),
        "two": Records(schema, rng.integers(1, 99, (60, 1)).astype(float)),
    }
    law = DiscreteLaplace(5.0)
    accused, matched = 0, 0
    for _ in range(100):
        counts = np.rint(37 + rng.laplace(0, 5.0, 3)).astype(np.int64)
        (found,) = Verbatim().run(released(counts, PartType.COUNTS, noise=law), truth, schema)
        matched += found.value > 50
        accused += found.severity != "none"
    assert matched > 10
    assert accused == 0


def test_noisy_counts_of_many_clients_match_small_integers_no_more_than_by_chance() -> None:
    """Wider numbers hit ages below forty less often: what chance gives is told by numbers as wide."""
    rng = np.random.default_rng(3)
    schema = Schema((Column("visits", "integer", 0, 40), Column("age", "integer", 0, 99)))
    names = [f"c{number}" for number in range(120)]
    truth = {
        name: Records(
            schema, np.column_stack([rng.poisson(9, 40), rng.integers(18, 90, 40)]).astype(float)
        )
        for name in names
    }
    entries = [
        released(
            np.rint(rng.normal(0, 15, 40)).astype(np.int64),
            PartType.COUNTS,
            noise=DiscreteGaussian(15.0),
            client=name,
        ).entries[0]
        for name in names
    ]
    (found,) = Verbatim().run(Transcript(tuple(entries)), truth, schema)
    assert found.value == pytest.approx(found.baseline, rel=0.02)
    assert found.severity == "none"


def test_a_mechanism_that_claims_noise_and_adds_none_is_convicted(
    truth: dict[str, Records],
) -> None:
    """Raw sums of single records stand out from the same numbers with noise."""
    raw = np.rint(truth["one"].x[:10] / float(GRID)).astype(np.int64)
    exact = {"one": Records(SCHEMA, raw * float(GRID)), "two": truth["two"]}
    law = DiscreteGaussian(float(1 / GRID))
    (found,) = Verbatim().run(released(raw, PartType.SUMS, GRID, law), exact, SCHEMA)
    assert found.value == 20 and found.severity == "breach"
    assert "noisy" in found.metric


def test_a_single_client_is_held_against_drawn_tables(truth: dict[str, Records]) -> None:
    """Without other clients the baseline is drawn over the column's range."""
    alone = {"one": truth["one"]}
    *_, found = Verbatim().run(released(truth["one"].x, PartType.VALUES), alone, SCHEMA)
    assert found.value == 60 and found.baseline == 0
    assert Verbatim().run(released(truth["one"].x, PartType.VALUES)) == []


def test_numbers_inside_text_and_bytes() -> None:
    """Signs, exponents, points; floats at odd offsets."""
    assert {1.5, -2.0, 3e-4, 0.25} <= set(numbers_inside(b"a 1.5, -2; 3e-4 .25"))
    assert 0.1 in numbers_inside(b"xyz" + struct.pack("<d", 0.1))


def test_published_diabetes_leaks_nothing_verbatim(findings) -> None:  # type: ignore[no-untyped-def]
    """On the real transcript, what matches, matches by chance."""
    for found in findings("published", "verbatim"):
        assert found.severity == "none"
        assert found.value == pytest.approx(found.baseline, rel=0.5, abs=5)


@pytest.mark.parametrize("type_", [PartType.VALUES, PartType.ARTIFACT])
def test_a_table_that_was_handed_over_is_a_breach_by_its_records(
    type_: PartType, truth: dict[str, Records]
) -> None:
    """Some rows are some records, all rows the table; the blind guess finds none."""
    own = truth["one"].x
    for rows in (own[:5], own[::-1]):
        found, _ = Verbatim().run(released(rows, type_), truth, SCHEMA)
        assert found.metric == "whole records found in the releases, row by row"
        assert (found.value, found.of, found.baseline) == (len(rows), 30, 0)
        assert found.severity == "breach"


def test_rows_of_a_client_without_records_are_nobody_s(truth: dict[str, Records]) -> None:
    """It has none to find, though the rows are another client's."""
    empty = {"one": Records(SCHEMA, np.empty((0, 2))), "two": truth["two"]}
    rows = released(truth["two"].x[:5], PartType.VALUES)
    assert Verbatim().run(rows, empty, SCHEMA) == []


def test_records_that_several_clients_handed_over_add_up(truth: dict[str, Records]) -> None:
    """Five of one, and three of the other."""
    entries = [
        released(truth[name].x[:size], PartType.VALUES, client=name).entries[0]
        for name, size in (("one", 5), ("two", 3))
    ]
    found, _ = Verbatim().run(Transcript(tuple(entries)), truth, SCHEMA)
    assert (found.value, found.of, found.severity) == (8, 60, "breach")


@pytest.mark.parametrize("clients", [("one",), ("one", "two")])
def test_no_blind_guess_finds_more_than_the_whole(clients: tuple[str, ...]) -> None:
    """Few values that everybody has: chance finds each of them, and the table left all the same."""
    rng = np.random.default_rng(1)
    bits = Schema((Column("a", "integer", 0, 3), Column("b", "integer", 0, 3)))
    sizes = {"one": 40, "two": 400}
    truth = {
        n: Records(bits, rng.choice(4, (sizes[n], 2), p=[0.7, 0.1, 0.1, 0.1])) for n in clients
    }
    rows, cells = Verbatim().run(released(truth["one"].x, PartType.ARTIFACT), truth, bits)
    for found in (rows, cells):
        assert found.of is not None and found.baseline is not None
        assert found.value == found.of
        assert found.baseline <= found.of
    assert cells.severity == "none"
    assert rows.severity == "breach"


def test_rows_of_everybody_s_kind_are_no_record_of_this_one() -> None:
    """A model's table as wide as the records, of values that all share, proves nothing."""
    same = Schema((Column("a", "integer", 0, 3),))
    truth = {n: Records(same, np.ones((30, 1))) for n in ("one", "two")}
    found = Verbatim().run(released(np.ones((4, 1)), PartType.VALUES), truth, same)
    assert (found[0].value, found[0].baseline, found[0].severity) == (4, 4.0, "none")


@pytest.mark.parametrize(
    ("records", "rows"),
    [
        ([[0, 0]], np.zeros((4, 2))),  # an empty table of counts
        (
            [[0, 1], [1, 1]],
            np.array([[0, 0], [0, 1], [1, 0], [1, 1]]),
        ),  # a public list of all there is
    ],
)
@pytest.mark.parametrize("clients", [("one",), ("one", "two")])
def test_records_that_any_table_holds_were_not_handed_over(
    records: list[list[int]], rows: np.ndarray, clients: tuple[str, ...]
) -> None:
    """However few they are: chance gives all of them too."""
    rng = np.random.default_rng(0)
    bits = Schema((Column("a", "integer", 0, 1), Column("b", "integer", 0, 1)))
    tables = {"one": np.array(records, float), "two": rng.integers(0, 2, (40, 2)).astype(float)}
    truth = {name: Records(bits, tables[name]) for name in clients}
    found = Verbatim().run(released(rows, PartType.VALUES), truth, bits)[0]
    assert found.metric == "whole records found in the releases, row by row"
    assert found.value == found.of == len(records) and found.severity == "none"


@pytest.mark.parametrize("records", [1, 2, 3])
def test_few_records_that_were_handed_over_are_a_breach(records: int) -> None:
    """Of a single client: values that nobody else would have."""
    truth = {
        "one": Records(SCHEMA, np.random.default_rng(0).uniform([0, -3], [10, 7], (records, 2)))
    }
    rows, _ = Verbatim().run(released(truth["one"].x, PartType.VALUES), truth, SCHEMA)
    assert rows.value == rows.of == records and rows.severity == "breach"


@pytest.mark.parametrize("sizes", [(3, 3), (10, 20)])
@pytest.mark.parametrize("apart", [0, 15])
def test_few_other_records_do_not_make_chance_rare(sizes: tuple[int, int], apart: int) -> None:
    """Counts of other people meet the ages of clients of few records, alike or not."""
    rng, runs, accused = np.random.default_rng(0), 40, 0
    schema = Schema((Column("age", "integer", 0, 99),))
    for _ in range(runs):
        truth = {
            name: Records(schema, rng.integers(1, 40, (size, 1)) + float(low))
            for name, size, low in zip(("one", "two"), sizes, (0, apart), strict=True)
        }
        (found,) = Verbatim().run(released(rng.poisson(20, 12), PartType.COUNTS), truth, schema)
        accused += found.severity != "none"
    assert accused / runs <= 0.05


@pytest.mark.parametrize("records", [0, 1, 2, 3, 40])
def test_a_drawn_table_has_each_column_s_values_shuffled_and_redrawn(records: int) -> None:
    """As its naive twin, which works out shapes anew for each draw, to the bit; of no records there is none."""
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 5, records), rng.integers(0, 99, records) / 10, rng.random(records)]
    table, pool = np.column_stack(columns), np.ones((3, 3))
    drawn = verbatim.SyntheticRecords(table, pool)
    for seed in range(20):
        rng, again = np.random.default_rng(seed), np.random.default_rng(seed)
        others, own = drawn.draw(rng)
        assert np.array_equal(others, np.ones((records, 3)))
        again.choice(pool, records)
        naive = again.permuted(table, axis=0)
        for column in naive.T:
            for part in [column] if records > 2 else np.split(column, max(records, 1)):
                Shape.of(part).redraw(part, again)
        assert np.array_equal(own, naive) and rng.random() == again.random()


@pytest.mark.parametrize("others", [0, 5, 90])
@pytest.mark.parametrize("cells", [0, 1, 40])
def test_matches_by_chance_are_those_of_each_draw_on_its_own(cells: int, others: int) -> None:
    """All draws are looked up at once; so many cells and so many different values as one by one."""
    rng = np.random.default_rng(0)
    column = verbatim.ColumnValues(
        rng.integers(0, 9, cells).astype(float), ((0.0, 8.0),), rng.integers(0, 12, others) / 2
    )
    numbers = verbatim.Numbers(np.array([1.0, 3.0, 4.5, 7.0]), {0.5**20: np.array([2**18])})
    together = column.by_chance(numbers, verbatim.generators(30))
    alone = [
        np.max([replace(column, cells=c).count_matches(numbers) for c in column._drawn([rng])], 0)
        for rng in verbatim.generators(30)
    ]
    assert np.array_equal(together, alone) and (together.any() or cells < 2)


def test_a_rare_coincidence_is_no_record_of_this_one() -> None:
    """Rows of other people equal one record in some of 60 runs; that eight records of one other clinic do not was taken for never."""
    wide, found = Schema(tuple(Column(name, "integer", 0, 30) for name in "ab")), []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = {
            n: Records(wide, rng.integers(0, 31, (8, 2)).astype(float)) for n in ("one", "two")
        }
        rows = rng.integers(0, 31, (12, 2)).astype(float)
        found += [
            each.severity
            for each in Verbatim().run(released(rows, PartType.VALUES), truth, wide)
            if each.metric.startswith("whole records")
        ]
    assert len(found) > 5 and sum(each != "none" for each in found) <= 1


def test_bits_of_individuals_hold_no_numbers_to_look_for(truth: dict[str, Records]) -> None:
    """Nothing is read, and so nothing is said to have been looked at."""
    assert Verbatim().run(released(np.ones((30, 2), bool), PartType.BITS), truth, SCHEMA) == []


@pytest.mark.parametrize("noise", [None, DiscreteLaplace(2.0)])
def test_a_longer_look_begins_with_a_shorter_one_s_draws(noise: Law | None) -> None:
    """Two looks at one release agree on what is found, and on what chance gives in each draw of both."""
    schema = Schema((Column("a", "integer", 0, 99), Column("b", "integer", 0, 99)))
    rng = np.random.default_rng(0)
    truth = {n: Records(schema, rng.integers(0, 40, (25, 2)).astype(float)) for n in ("one", "two")}
    rows = rng.integers(0, 40, (25, 2))
    transcript = Transcript((*released(rows, PartType.COUNTS, noise=noise),))
    owners = {"one": truth["one"]}
    asked = transcript, noise is not None, owners, truth, schema, Verbatim().deadline()
    shorter, longer = (verbatim._tally(*asked, draws)[0] for draws in (20, 200))
    assert (shorter.forms, shorter.values) == (longer.forms, longer.values)
    assert np.array_equal(shorter.by_chance, longer.by_chance[:20]) and longer.by_chance.std() > 0
    told = [(name, rows.astype(float)) for name in truth]
    few, many = (
        verbatim.rows_found(told, truth, verbatim.generators(draws)) for draws in (20, 200)
    )
    assert few[0] == many[0] and np.array_equal(few[1], many[1][:20])
    columns = [("one", np.unique(rows[:9, 0].astype(float)), truth["one"].x[:, 0], 0)] * 2
    brief, long = (sketches._by_chance(columns, truth, 0.0, draws) for draws in (20, 200))
    assert np.array_equal(brief, long[:20]) and long.std() > 0
