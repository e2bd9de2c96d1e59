"""Innocent artefacts are not convicted, and planted leaks are: the trials of benchmarks/, run small."""

from __future__ import annotations

import numpy as np
import pytest
from innocent import INNOCENT
from leak_alarms import alarms
from leak_planted import found, tables
from leak_tables import KINDS
from planted import PLANTED

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


@pytest.mark.parametrize("name", PASSED)
def test_what_passed(name: str) -> None:
    """On a table as systems hold it, and on sentinels made after it."""
    assert len(PLANTED) == 61
    for table in tables(300, 7).values():
        assert found(table, [name], range(7, 8))[name, 7]


def test_labels_are_no_numbers() -> None:
    """A code such as E11.9, a version or an identifier is no 11.9."""
    from privfed.testing import flatten

    left = "E11.9 v2.17 x86_64 id47.5 p95"
    values = [leaf.value for leaf in flatten(left) if isinstance(leaf.value, np.ndarray)]
    assert values == []
