"""Dividing a table among clients: everybody is served, nobody twice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import InputError
from privfed.tables.partition import (
    FEWEST,
    by_column,
    by_quantity,
    check_sizes,
    dirichlet,
    iid,
    named,
)

NAMES = ("north", "south", "west")


@given(st.integers(1, 200), st.integers(1, 12), st.integers(0, 99))
def test_iid_shares_differ_by_one_record_at_most(records: int, count: int, seed: int) -> None:
    """Every record has one owner, and no owner has two records more than another."""
    owners = iid(records, named(count), np.random.default_rng(seed))
    sizes = [int((owners == name).sum()) for name in named(count)]
    assert sum(sizes) == records
    assert max(sizes) - min(sizes) <= 1


@given(st.floats(0.5, 50), st.integers(0, 99))
def test_quantity_gives_every_client_the_fewest(alpha: float, seed: int) -> None:
    """However uneven the shares, each client owns at least the fewest records."""
    owners = by_quantity(300, NAMES, alpha, np.random.default_rng(seed))
    assert len(owners) == 300
    assert min((owners == name).sum() for name in NAMES) >= FEWEST


def test_small_alpha_makes_sizes_less_even() -> None:
    """Alpha means what it says: small is uneven, large is even."""

    def spread(alpha: float) -> float:
        rng = np.random.default_rng(5)
        draws = [by_quantity(300, NAMES, alpha, rng) for _ in range(40)]
        return float(np.mean([np.std([(d == n).sum() for n in NAMES]) for d in draws]))

    assert spread(0.5) > 5 * spread(100.0)


@pytest.mark.parametrize("numeric", [True, False])
def test_dirichlet_makes_mixtures_uneven(numeric: bool) -> None:
    """Clients see other classes (or other ranges of a number) when alpha is small."""
    values = np.random.default_rng(1).normal(size=600)
    labels = pd.Series(values if numeric else np.where(values > 0, "yes", "no"))
    high = values > 0

    def unevenness(alpha: float) -> float:
        owners = dirichlet(labels, NAMES, alpha, np.random.default_rng(7))
        return float(np.ptp([high[owners == name].mean() for name in NAMES]))

    assert unevenness(0.3) > unevenness(100.0) + 0.1


def test_a_division_is_the_seeds_own() -> None:
    """One seed gives one division."""
    labels = pd.Series(np.arange(100.0))
    one, other = (dirichlet(labels, NAMES, 1.0, np.random.default_rng(3)) for _ in range(2))
    assert (one == other).all()


def test_a_column_names_the_owners() -> None:
    """Spaces around a name do not make another owner."""
    owners = by_column(pd.DataFrame({"site": ["a ", "a ", "b"]}), "site")
    assert list(owners) == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("sites", "told"),
    [
        (["a", "a ", "b"], "two clients are called 'a'"),
        (["a", None, "b"], "leaves 1 of 3 records without a client"),
        (["a", "", "b"], "has no name"),
    ],
)
def test_a_bad_column_is_one_clear_error(sites: list[str | None], told: str) -> None:
    """Two owners with one name, records of nobody and nameless owners are refused."""
    with pytest.raises(InputError, match=told):
        by_column(pd.DataFrame({"site": sites}), "site")


@pytest.mark.parametrize("count", [0, -1, True, 2.5, 10**20])
def test_a_count_is_a_whole_number(count: object) -> None:
    """No clients, minus one client, True clients and half a client are refused."""
    with pytest.raises(InputError, match="count must be a whole number"):
        named(count)  # type: ignore[arg-type]


def test_names_or_count_and_not_both() -> None:
    """Contradicting or absent choices are refused, and so are two clients with one name."""
    for count, names in ((3, ["a"]), (None, None)):
        with pytest.raises(InputError, match="write either"):
            named(count, names)
    with pytest.raises(InputError, match="two clients are called 'a'"):
        named(None, ["a", "b", "a"])


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf"), "1,0", True])
def test_alpha_is_a_positive_number(alpha: object) -> None:
    """NaN and text fail as zero does."""
    with pytest.raises(InputError, match="alpha must be a number above 0"):
        by_quantity(50, NAMES, alpha, np.random.default_rng(0))  # type: ignore[arg-type]


def test_too_few_records_end_in_an_error_and_not_in_a_loop() -> None:
    """Five records cannot serve three clients two each."""
    with pytest.raises(InputError, match="write a larger alpha or fewer clients"):
        by_quantity(5, NAMES, 1.0, np.random.default_rng(0))


@pytest.mark.parametrize(("size", "told"), [(0, "0 records"), (1, "1 record,")])
def test_a_client_with_no_or_one_record_is_refused(size: int, told: str) -> None:
    """It says whose, and what to do."""
    owners = np.array(["north"] * 5 + ["south"] * size, dtype=object)
    with pytest.raises(InputError, match=f"client 'south' has {told}"):
        check_sizes(owners, ("north", "south"))
