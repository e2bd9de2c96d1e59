"""All rules, one after the other, and what they find beyond chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from privfed.testing.rules.arithmetic import arithmetic_in
from privfed.testing.rules.binary import bytes_in
from privfed.testing.rules.columns import columns_in
from privfed.testing.rules.functions import derived
from privfed.testing.rules.match import Match
from privfed.testing.rules.records import records_in
from privfed.testing.rules.released import Released
from privfed.testing.rules.rows import rows_in
from privfed.testing.rules.table import RawTable
from privfed.testing.rules.values import compare
from privfed.testing.rules.words import words_in

#: How alpha is split over the families of rules; within a family evenly over the tests that are made.
SHARES = {"values": 1 / 2, "rows": 1 / 4, "functions": 1 / 4}
#: Rules about whole rows, and about raw values in bytes and texts.
ROWS = (rows_in, records_in, bytes_in, words_in)
#: Rules about what is computed from raw values, or from what left.
COMPUTED = (columns_in, arithmetic_in)


def search(
    tables: Iterable[RawTable],
    released: Released,
    *,
    alpha: float,
    smallest: int = 5,
    tolerance: float = 0.0,
    functions: bool = True,
) -> list[Match]:
    """What chance does not explain, the surest first.

    Args:
        tables: the raw values, a table for each owner.
        released: what left.
        alpha: how often a release that has nothing to do with the tables may be convicted.
        smallest: how many records make a group that is no longer small.
        tolerance: share of a value by which released numbers may differ on top of their precision.
        functions: whether to look for functions of raw values too.
    """
    found: list[tuple[str, Match]] = []
    tests = dict.fromkeys(SHARES, 0)
    for table in tables:
        for family, match in _tests(table, released, smallest, tolerance, functions):
            tests[family] += 1
            if match is not None:
                found.append((family, match))
    limits = {family: alpha * SHARES[family] / max(1, count) for family, count in tests.items()}
    sure = [match for family, match in found if match.chance <= limits[family]]
    return sorted(sure, key=lambda match: (match.chance, not match.main))


def _tests(
    table: RawTable, released: Released, smallest: int, tolerance: float, functions: bool
) -> Iterator[tuple[str, Match | None]]:
    """Every test that is made: its family, and what it found."""
    rules = derived(table, smallest)
    for rule in rules if functions else islice(rules, 1):
        for match in compare(rule, table, released, tolerance):
            yield "values" if rule.main else "functions", match
    for match in chain.from_iterable(rule(table, released) for rule in ROWS):
        yield "rows", match
    computed = COMPUTED if functions else COMPUTED[:1]
    for match in chain.from_iterable(rule(table, released) for rule in computed):
        yield "functions", match
