"""Columns that tell of one another are known, and count once; others go on counting each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from leak_alarms import alarms
from leak_tables import DIRECTORY, customers, records

from privfed.leaks.dependence import dependent, strata_of
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


def answers(rng: np.random.Generator, count: int) -> pd.DataFrame:
    """Ten questions from 1 to 5 about one thing."""
    factor = rng.normal(size=(count, 1))
    told = np.rint(3 + 1.2 * (0.85 * factor + 0.5 * rng.normal(size=(count, 10))))
    return pd.DataFrame(np.clip(told, 1, 5).astype(int)).add_prefix("q")


def born(rng: np.random.Generator, count: int) -> pd.DataFrame:
    """Ages beside years of birth."""
    age = rng.integers(18, 96, count)
    return pd.DataFrame(
        {
            "age": age,
            "born": 2024 - age - rng.integers(0, 2, count),
            "ward": rng.choice(list("ABC"), count),
        }
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [answers, born])
def test_other_people_s_records_are_alike(
    make: Callable[[np.random.Generator, int], pd.DataFrame], seed: int
) -> None:
    """Columns that have a factor in common meet as often in other records."""
    table, others = (make(np.random.default_rng([seed, at]), 50) for at in (1, 2))
    for left in (others.to_dict("records"), others.to_numpy(), others.to_csv(index=False)):
        assert_no_raw(left, table, alpha=1e-3)


def test_strata_are_those_of_a_common_factor() -> None:
    """Few and equal ones; none of independent columns, of a few records, or of a single column."""
    table = answers(RNG, 400).to_numpy(float)
    strata = strata_of(table)
    assert np.bincount(strata).tolist() == [50] * 8
    means = [table[strata == one].mean() for one in range(8)]
    assert means == sorted(means) or means == sorted(means, reverse=True)
    alone = (
        RNG.normal(size=(400, 10)),
        RNG.integers(1, 6, (400, 10)).astype(float),
        table[:20],
        table[:, :1],
        table[:0],
    )
    for columns in alone:
        assert not strata_of(columns).any()


def test_an_answer_sheet_that_is_nobody_else_s_is_found() -> None:
    """Forty questions of two sorts; ten sheets as they are."""
    rng = np.random.default_rng(3)
    table = pd.concat([answers(rng, 200).add_prefix(name) for name in "abcd"], axis=1)
    with pytest.raises(RawValueLeft, match=r"a record|cells of one record"):
        assert_no_raw(table.iloc[20:30].to_numpy(), table, alpha=1e-3)


@pytest.mark.parametrize("arms", [2, 3, 5])
def test_arms_that_are_taken_in_turn_divide_nobody(arms: int) -> None:
    """As folds are."""
    turns = np.arange(60) % arms
    table = pd.DataFrame({"arm": np.array(list("ABCDE"))[turns], "x": RNG.normal(size=60)})
    assert_no_raw({"fold": turns, "one": turns == 1}, table, alpha=1e-3)


@pytest.mark.parametrize(("noise", "groups"), [(0.4, 1), (1.0, 2)])
def test_ranks_that_are_nearly_the_same_are_one(noise: float, groups: int) -> None:
    """Correlated .93 or .71; their classes have less than half in common."""
    rng = np.random.default_rng(4)
    one = rng.normal(size=300)
    assert len(set(dependent([one, one + noise * rng.normal(size=300)]).tolist())) == groups
