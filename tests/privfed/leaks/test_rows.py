"""Rows of narrow tables: common cells in pairs, which only many rows together tell from chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.leaks.artefact import Released
from privfed.leaks.chance import chernoff
from privfed.leaks.precision import Precision
from privfed.leaks.reading.walk import flatten
from privfed.leaks.rows import Stream, _Records
from privfed.leaks.table import raw_tables
from privfed.testing import assert_no_raw

WHOLE = Precision("a whole number", step=1.0)


def stays(seed: int, records: int = 400) -> pd.DataFrame:
    """Ages and lengths of stay: every cell is common, and one record in six has an equal."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"age": rng.integers(18, 95, records), "stay": rng.integers(1, 30, records)}
    )


def doses(seed: int, records: int = 400) -> pd.DataFrame:
    """A dose that follows from the age but for one: pairs repeat far more often than cells drawn alone would."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 95, records)
    return pd.DataFrame({"age": age, "dose": 3 * age + rng.integers(0, 2, records)})


FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "frame": lambda rows: rows,
    "array": lambda rows: rows.to_numpy(),
    "columns": lambda rows: rows.to_numpy().T,
    "lists": lambda rows: rows.to_numpy().tolist(),
    "dictionaries": lambda rows: rows.to_dict("records"),
    "CSV": lambda rows: rows.to_csv(index=False),
    "beside others": lambda rows: rows.assign(fold=np.arange(len(rows)) % 3),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_thirty_rows_of_common_pairs_are_found(form: Callable[[pd.DataFrame], Any]) -> None:
    """In any form: each pair alone may be anybody's, but not thirty of thirty."""
    table = stays(0)
    with pytest.raises(AssertionError, match="a record, column by column"):
        assert_no_raw(form(table.sample(30, random_state=1)), table)


@pytest.mark.parametrize("make", [stays, doses])
@pytest.mark.parametrize("seed", range(1, 7))
def test_rows_of_other_people_are_no_leak(make: Callable[..., pd.DataFrame], seed: int) -> None:
    """Another draw of the same population repeats as many pairs as records of one draw repeat each other."""
    assert_no_raw(make(seed).to_numpy(), make(0))


def test_an_axis_of_pairs_is_no_leak_but_who_was_there_is() -> None:
    """All months of a series, all visits of a panel: public. The visits that took place are the records' own."""
    rng = np.random.default_rng(0)
    axis = [(year, month) for year in range(2015, 2021) for month in range(1, 13)]
    series = pd.DataFrame(axis, columns=["year", "month"]).assign(cases=rng.poisson(40, 72))
    grid = np.array([(patient, visit) for patient in range(1, 51) for visit in range(1, 5)])
    panel = pd.DataFrame(grid, columns=["patient", "visit"]).assign(score=rng.integers(0, 30, 200))
    came = panel[rng.random(200) < 0.5]
    for public, table in ((axis, series), (axis[10:40], series), (grid, panel), (grid, came)):
        assert_no_raw(public, table)
    with pytest.raises(AssertionError, match="a record, column by column"):
        assert_no_raw(came[["patient", "visit"]].to_numpy(), came)


def test_pairs_that_five_records_share_do_not_count() -> None:
    """A table of pairs in common with many names nobody."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"grade": rng.integers(1, 6, 400), "term": rng.integers(1, 5, 400)})
    assert table.value_counts().min() >= 5
    assert_no_raw(table.head(40).to_numpy(), table)


def test_chance_is_that_of_records_with_few_equals() -> None:
    """By hand: of ten records two are equal, six are shared; drawn column by column two of ten are rarer."""
    frame = pd.DataFrame({"a": [1, 1, 2, 3, 4, 4, 4, 4, 4, 4], "b": [5, 5, 6, 7, 8, 8, 8, 8, 8, 8]})
    (table,) = raw_tables(frame)
    (records,) = _Records.rounded_and_truncated(table, (False, 0, 2), WHOLE)
    assert sorted(records.sizes.tolist()) == [1, 1, 2, 2, *[6] * 6]
    assert records.chance(5) == pytest.approx((2 + 2 * 2**0.5 + 3) / 10)
    assert records.chance(1) == pytest.approx((0 + 0 + 3) / 10)


def test_chance_is_that_of_columns_drawn_alone_where_no_record_has_equals() -> None:
    """All pairs of twenty values: an unrelated row is one of them. A number beside them is not theirs."""
    numbers = np.arange(400)
    frame = pd.DataFrame({"number": numbers, "a": numbers // 20, "b": numbers % 20})
    (records,) = _Records.rounded_and_truncated(raw_tables(frame)[0], (False, 1, 3), WHOLE)
    assert records.chance(5) == pytest.approx(1)


def test_hits_are_counted_by_the_rows_of_each_block() -> None:
    """As its naive twin: rows of a matrix, and of a list as wide as a record, from the same place on."""
    rng = np.random.default_rng(0)
    (matrix,) = Released.of(list(flatten(rng.integers(0, 50, (20, 3)), "matrix"))).blocks
    (listed,) = Released.of(list(flatten(rng.integers(0, 50, 30), "listed"))).blocks
    stream = Stream(WHOLE, [matrix, listed], transposed=False)
    positions = np.sort(rng.choice(90, 40, replace=False))
    best = 0.0
    for start, size, period in ((0, 60, 3), (60, 30, 2)):
        for offset in range(period):
            hits = sum(
                1 for p in positions if start <= p < start + size and (p - start) % period == offset
            )
            nats = chernoff(np.array([hits]), np.array([size // period]), np.array([0.1]))[0]
            best = max(best, float(nats) - np.log(period))
    found = stream.aligned_surprise(positions, 2, 0.1)
    assert found == pytest.approx(best - np.log(2)) and found > 1
    assert stream.aligned_surprise(positions[:0], 2, 0.1) <= 0
