"""Columns that tell of one another are known, and count once; others go on counting each."""

from __future__ import annotations

import numpy as np
import pytest
from leak_alarms import alarms
from leak_tables import DIRECTORY, customers, records

from privfed.leaks.dependence import dependent
from privfed.leaks.table import raw_tables
from privfed.testing import RawValueLeft, assert_no_raw

RNG = np.random.default_rng(17)


def groups_of(table: object) -> list[set[str]]:
    """The names of the columns of each group."""
    (raw,) = raw_tables(table)
    names = np.array([*raw.names, *(text.name for text in raw.texts)])
    return [set(names[raw.groups == one]) for one in np.unique(raw.groups)]


def test_a_postcode_tells_the_town() -> None:
    """And net tells gross; the date of a first order tells neither."""
    found = groups_of(customers(300, 4))
    assert {"zip", "city", "region"} in found and {"net", "gross"} in found
    assert {"since"} in found and {"items"} in found


def test_an_identifier_tells_no_category() -> None:
    """Though it has one sex only: that is no rule that others know."""
    found = groups_of(records(300, 4))
    assert {"sex"} in found and {"icd"} in found and {"age"} in found


@pytest.mark.parametrize("count", [2, 5, 60, 5000])
def test_independent_columns_stay_apart(count: int) -> None:
    """Of any kind, a constant one and one without any value among them."""
    columns = [
        RNG.normal(size=count),
        RNG.integers(0, 4, count).astype(float),
        np.zeros(count),
        np.full(count, np.nan),
        RNG.permutation(count).astype(float),
    ]
    assert len(set(dependent(columns).tolist())) == len(columns)


def test_the_order_of_records_does_not_matter() -> None:
    """Groups are the columns' own."""
    table = customers(300, 5)
    mixed = table.sample(frac=1, random_state=3)
    assert sorted(map(sorted, groups_of(table))) == sorted(map(sorted, groups_of(mixed)))


def test_a_directory_of_places_is_innocent() -> None:
    """Postcodes are a category; every pair of postcode and town stands in an atlas."""
    names = ["postcodes and towns", "directory of places", "branches"]
    assert alarms(names, ["customers"], range(80, 84), 300) == ([], 12)


def test_a_customer_beside_a_town_is_not() -> None:
    """The same columns with what no atlas knows."""
    table = customers(300, 6)
    row = table.iloc[41]
    with pytest.raises(RawValueLeft, match="cells of one record"):
        assert_no_raw(
            f"{row['since']:%d.%m.%Y} {row['zip']} {row['city']}: {row['net']} EUR for {row['items']}",
            table,
            alpha=1e-3,
        )
    assert len(DIRECTORY) == 400
