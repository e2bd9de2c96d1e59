"""Innocent artefacts are not convicted, and planted leaks are: the trials of benchmarks/, run small."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from innocent import INNOCENT
from leak_alarms import alarms
from leak_planted import found, tables
from leak_tables import KINDS
from planted import PLANTED

from privfed.testing import RawValueLeft, assert_no_raw

#: What the first review saw convicted 31 of 32 times and more.
SEEN = ("range to 121", "percent done", "confusion of 5", "durations, 3 decimals", "accuracies, 3")
#: What it saw pass.
PASSED = (
    *("an email in capitals", "a name in title case", "dates, day first", "dates in words"),
    *("a telephone without spaces", "money with quotes", "a masked email"),
    *("two values and their names", "mean of two records", "means of n and n - 1"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_innocent_artefact(kind: str) -> None:
    """All kinds against a table each; benchmarks/leak_alarms.py has 30 tables of each."""
    assert len(INNOCENT) >= 100
    names = list(INNOCENT)
    chosen = names[list(KINDS).index(kind) :: len(KINDS)]
    convicted, looked = alarms(chosen, [kind], range(40, 41), 300)
    assert looked == len(chosen) and convicted == []


@pytest.mark.parametrize("name", SEEN)
def test_what_cried_wolf(name: str) -> None:
    """Against freshly drawn tables of ages, measurements, money and codes."""
    assert alarms([name], ["narrow"], range(60, 68), 300) == ([], 8)


@pytest.mark.parametrize("made", ["plain", "sentinels"])
def test_what_passed(made: str) -> None:
    """On a table as systems hold it, and on sentinels made after it."""
    assert len(PLANTED) == 61
    rules = found(tables(300, 7)[made], list(PASSED), range(7, 8))
    assert [name for (name, _), rule in rules.items() if not rule] == []
    assert len(rules) == len(PASSED)


def test_means_of_two_are_told_by_few_digits_too() -> None:
    """Of these three records 45.5 or 82.3 is all that a column says; their last digit is coarse."""
    assert all(found(tables(300, 0)["plain"], ["mean of two records"], range(1, 4)).values())


def test_labels_are_no_numbers() -> None:
    """A code such as E11.9, a version or an identifier is no 11.9."""
    from privfed.testing import flatten

    left = "E11.9 v2.17 x86_64 id47.5 p95"
    values = [leaf.value for leaf in flatten(left) if isinstance(leaf.value, np.ndarray)]
    assert values == []


def test_digests_of_a_count_tell_of_nobody() -> None:
    """Those of 1 to n are every age's too; those of ages alone are not, and a salary among a count is seen."""
    rng = np.random.default_rng(3)
    ages, salary = rng.choice(95, 60, replace=False) + 1, rng.lognormal(10, 0.4, 60).round(2)
    table = pd.DataFrame({"age": ages, "salary": salary})
    count = [sha256(str(one).encode()).hexdigest() for one in range(1, 301)]
    assert_no_raw(count, table)
    for left in (
        [count[age - 1] for age in ages],
        [*count, sha256(str(salary[7]).encode()).hexdigest()],
    ):
        with pytest.raises(RawValueLeft, match="sha256 digest"):
            assert_no_raw(left, table, alpha=1e-3)


def test_a_columns_statistics_are_no_record_that_is_zero() -> None:
    """A zero less its column's mean is that mean, and left out of the total it is the total: of all records, not of one."""
    rng = np.random.default_rng(11)
    heat = rng.normal(-3, 8, 300).round(1)
    heat[[247, 12]] = 0.0
    table = pd.DataFrame({"heat": heat, "flow": rng.normal(0, 1, 300).round(3)})
    table.loc[90, "flow"] = 0.0
    for told in (table.mean(), table.sum(), table.mean() / table.std(), table.describe().iloc[:3]):
        assert_no_raw(told.to_dict(), table, alpha=0.05)
    with pytest.raises(RawValueLeft, match="less its column's mean"):
        assert_no_raw((table["flow"][3:20] - table["flow"].mean()).tolist(), table)
