"""Columns are drawn anew in their own shape: on their lattice, in their type, with their endings; lists stay."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest

from privfed.leaks.shape import Shape, step_of
from privfed.leaks.table import DRAWS, KEPT, Cells, raw_tables
from privfed.testing import RawValueLeft, assert_no_raw

Rng = np.random.Generator
ENDS = np.array([0.99, 0.49, 0.95, 0.0])


def bmi(r: Rng, n: int) -> np.ndarray:
    """Of whole centimetres and kilograms."""
    height = r.normal(170, 9, n).round()
    return (22 * height**2 / 1e4 + r.normal(0, 8, n)).round() / (height / 100) ** 2


#: Columns of which two draws have values in common that a computer writes with all its digits, or that end alike.
COMMON: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "prices": lambda r, n: r.integers(1, 300, n) + r.choice(ENDS, n, p=[0.6, 0.2, 0.1, 0.1]),
    "decimals in single": lambda r, n: r.normal(76, 14, n).round(1).astype(np.float32),
    "half": lambda r, n: r.normal(0, 1, n).astype(np.float16),
    "standardised ages": lambda r, n: (r.integers(18, 96, n) - 54.1234567) / 17.7654321,
    "shares": lambda r, n: r.binomial(60, 0.3, n) / r.integers(60, 160, n),
    "numbers of 13 digits": lambda r, n: 2024052100000 + r.integers(0, 20 * n, n),
    "logarithms of counts": lambda r, n: np.log1p(r.negative_binomial(2, 0.02, n)),
    "body mass index": bmi,
}


@pytest.mark.parametrize("form", ["list", "single", "bytes"])
@pytest.mark.parametrize("name", COMMON)
def test_another_draw_is_no_leak(name: str, form: str) -> None:
    """Of the same population, by itself."""
    raw, left = (COMMON[name](np.random.default_rng([3, seed]), 400) for seed in (0, 1))
    plain = np.asarray(left, dtype=float)
    made = {"list": plain.tolist(), "single": plain.astype(np.float32), "bytes": plain.tobytes()}
    assert_no_raw(made[form], pd.DataFrame({"x": raw}), alpha=1e-3)


@pytest.mark.parametrize("name", COMMON)
def test_whole_records_are_still_found(name: str) -> None:
    """Ten rows of three such columns."""
    columns = (COMMON[name](np.random.default_rng([4, seed]), 400) for seed in range(3))
    table = pd.DataFrame(dict(zip("abc", columns, strict=True)))
    with pytest.raises(RawValueLeft):
        assert_no_raw(table.iloc[50:60].to_numpy(float).tolist(), table, alpha=1e-3)


def drawn(values: np.ndarray) -> np.ndarray:
    """Another column of the shape."""
    column = np.asarray(values, dtype=float).copy()
    Shape.of(column.copy()).redraw(column, np.random.default_rng(1))
    return column


@pytest.mark.parametrize("records", [1, 2, 5, 90])
@pytest.mark.parametrize("name", COMMON)
def test_columns_redrawn_together_are_those_redrawn_alone(name: str, records: int) -> None:
    """To the bit, some cells missing, and each generator is left where it would have been."""
    column = np.asarray(COMMON[name](np.random.default_rng(6), records), dtype=float)
    column[3::4] = np.nan
    shape, alone = Shape.of(column), np.tile(column, (12, 1))
    together, each = ([np.random.default_rng(seed) for seed in range(12)] for _ in range(2))
    for row, rng in zip(alone, each, strict=True):
        shape.redraw(row, rng)
    redrawn = shape.redraws(column, together)
    assert np.array_equal(redrawn, alone, equal_nan=True)
    assert [rng.random() for rng in together] == [rng.random() for rng in each]
    assert len(np.unique(redrawn[:, 0])) > 1


def test_tables_redrawn_together_are_those_redrawn_alone() -> None:
    """All of a small table's, drawn in ever larger batches; of a large one each by itself."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 60), "fee": rng.normal(50, 9, 60).round(2)})
    frame = frame.assign(name=[f"P{at}" for at in rng.integers(10**6, 10**7, 60)])
    large = pd.DataFrame(rng.normal(size=(KEPT + 1, 1)))
    for raw, some in ((frame, range(DRAWS)), (large, range(2))):
        (table,) = raw_tables(raw)
        for number, redrawn in zip(some, table.redraws(), strict=False):
            (alone,) = table.redraw([np.random.default_rng([1, number])])
            assert np.array_equal(redrawn.numbers, alone.numbers)
            assert np.array_equal(redrawn.codes, alone.codes)
            for text, other in zip(redrawn.texts, alone.texts, strict=True):
                assert np.array_equal(text.keys, other.keys)
        assert len(table.memo["redraws"]) == (DRAWS if raw is frame else 0)


def test_zeros_at_the_end_are_kept() -> None:
    """Where the least value has none too: as many are whole thousands as were."""
    rng = np.random.default_rng(5)
    salary = np.where(
        rng.random(300) < 0.6,
        rng.normal(48, 12, 300).round() * 1000,
        rng.integers(10_000, 90_000, 300),
    )
    salary[0] = 9_871
    for column in (salary, drawn(salary)):
        assert 0.5 < (column % 1000 == 0).mean() < 0.7


def test_values_of_many_are_not_drawn() -> None:
    """A lattice of which every fifth value is shared, and two in five are missing."""
    lattice = np.arange(200.0)
    many, few = lattice[::5], lattice[(lattice % 5 == 1) | (lattice % 5 == 3)]
    column = np.concatenate([np.repeat(many, 6), few])
    own, made = np.where(np.isin(column, many), np.nan, column), column.copy()
    Shape.of(own, column).redraw(made, np.random.default_rng(1))
    assert not np.isin(made[np.isfinite(own)], many).any()
    assert len(np.unique(made[np.isfinite(own)])) == len(few)


def test_endings_are_kept() -> None:
    """Sixty prices in a hundred end with 99."""
    prices = COMMON["prices"](np.random.default_rng(5), 300)
    for column in (prices, drawn(prices)):
        assert 0.5 < np.isclose(column % 1, 0.99).mean() < 0.7


def test_a_float_stays_one() -> None:
    """Drawn values are decimals, as 32 bits hold them."""
    made = drawn(COMMON["decimals in single"](np.random.default_rng(5), 300))
    assert np.array_equal(made, made.round(1).astype(np.float32))


@pytest.mark.parametrize(
    ("values", "step"),
    [
        (np.array([9.0, 12.0, 30.0]), 3.0),
        (np.array([0.07, 0.11, 0.15]), 0.04),
        (np.arange(5) ** 2 / 7 + 0.123456789, 1 / 7),
        (np.array([76.3, 77.9], np.float32).astype(float), 1.6),
        (np.array([10.0**12 + 1, 10.0**13 + 4, 10.0**14 + 7]), 3.0),
        (np.sqrt(np.arange(2, 40)), 0.0),
        (np.array([1 / 7, 2 / 7, 5 / 7]), 0.0),
        (np.random.default_rng(0).normal(size=5000), 0.0),
    ],
)
def test_the_step_of_a_column(values: np.ndarray, step: float) -> None:
    """Short or long; of four long numbers none is told."""
    assert step_of(values) == pytest.approx(step, rel=1e-9)


@pytest.mark.parametrize("count", [5, 8, 50])
def test_no_step_is_seen_in_random_numbers(count: int) -> None:
    """However few there are."""
    assert not [
        seed for seed in range(200) if step_of(np.random.default_rng(seed).normal(size=count))
    ]


def test_columns_from_a_list_are_known() -> None:
    """By what records that have nothing else in common share; ages lie dense, and a record that stands in a table
    twice is one."""
    rng = np.random.default_rng(6)
    size = rng.normal(0, 1, 300)
    table = pd.DataFrame(
        {
            "bmi": bmi(rng, 300),
            "age": rng.integers(18, 96, 300),
            "size": size,
            "day": rng.integers(0, 10**6, 300),
        }
    )
    (once,) = raw_tables(table)
    (twice,) = raw_tables(pd.concat([table, table.iloc[:200]]))
    (visits,) = raw_tables(
        pd.concat([table, table.iloc[:200].assign(age=50, day=rng.integers(0, 10**6, 200))])
    )
    assert once.listed.tolist() == [0]
    assert 2 not in twice.listed and 2 not in visits.listed


def test_a_single_shared_value_is_no_list() -> None:
    """As a mean in place of what is missing; of fifty logarithms of counts a few pairs tell."""
    filled = np.random.default_rng(6).normal(size=60)
    filled[:4] = filled.mean()
    (one,) = raw_tables(pd.DataFrame({"x": filled}))
    (pairs,) = raw_tables(
        pd.DataFrame({"x": COMMON["logarithms of counts"](np.random.default_rng(6), 50)})
    )
    assert one.listed.tolist() == [] and pairs.listed.tolist() == [0]


def test_what_only_rounding_sets_apart_is_one_size() -> None:
    """Sums in another order are."""
    made = Cells.of(np.array([0.1 + 0.2, 0.3, -0.3, 0.3000001, 0.0, np.nan]))
    assert made.sizes.tolist() == [0.3, 0.3000001]


def test_digests_of_others_are_no_leak() -> None:
    """Of ids of six digits of which some are the table's too; a name's digest is."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame(
        {
            "id": rng.integers(10**5, 10**5 + 4000, 300),
            "name": [f"n{at:09}" for at in rng.integers(0, 10**9, 300)],
        }
    )
    others = rng.integers(10**5, 10**5 + 4000, 300)
    assert np.isin(others, table["id"]).any()
    left = [sha256(str(one).encode()).hexdigest() for one in others]
    assert_no_raw(left, table, alpha=1e-3)
    with pytest.raises(RawValueLeft, match="column 'name'"):
        assert_no_raw([*left, sha256(table["name"][4].encode()).hexdigest()], table, alpha=1e-3)


@pytest.mark.parametrize("records", [50, 119, 500])
def test_a_column_of_1_to_n_stays_full(records: int) -> None:
    """Multiples of ten are drawn as such, but none beyond the ends; a count as long is no leak, in any form."""
    column = np.random.default_rng(0).permutation(records) + 1.0
    for seed in range(20):
        drawn = column.copy()
        Shape.of(column).redraw(drawn, np.random.default_rng(seed))
        assert np.array_equal(np.sort(drawn), np.sort(column))
    table = pd.DataFrame({"id": column.astype(int)})
    for count in (
        np.arange(records) + 1,
        list(range(1, records + 1)),
        str([*range(1, records + 1)]),
    ):
        assert_no_raw(count, table)
