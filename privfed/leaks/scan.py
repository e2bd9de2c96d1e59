"""All rules, one after the other, and what they find that re-drawn tables do not explain.

A rule scores the raw table in nats. Only a score beyond what its own model of chance allows is
looked at further: 200 tables of the same shape are drawn, and the rule scores what left against each.
It convicts where the raw table scores half as much again as every one of them, and as many nats more
as the rate of false alarms asks for beyond 1 in 200. So where the model is wrong (a grid whose sums meet
every age, counts that are everybody's), the re-drawn tables score as much, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privfed.leaks import binary, words
from privfed.leaks.arithmetic import combinations_of
from privfed.leaks.artefact import Released
from privfed.leaks.cells import compare
from privfed.leaks.columns import RULES, alike, vectors_of
from privfed.leaks.directions import parallel
from privfed.leaks.evidence import DRAWS, Evidence
from privfed.leaks.functions import Function, functions
from privfed.leaks.lines import Lines, of_two_records, together
from privfed.leaks.rows import aligned, spans_of, streams_of
from privfed.leaks.table import RawTable

#: Families of rules, the plainest first, by which they can be switched off.
FAMILIES = (
    *("values", "names", "rows", "lines", "bytes", "digits", "digests", "masked"),
    *("bounds", "functions", "scalings", "columns", "directions", "few", "combinations"),
)
#: How many of them are plain.
PLAIN = 4
#: Families that are not looked at where functions are not asked for.
COMPUTED = ("bounds", "functions", "scalings", "few", "combinations", "directions")
#: By how many times a score must exceed a re-drawn table's.
WRONG = 1.5
#: Tables of so few cells are kept once they are drawn.
KEPT = 20_000
Score = Callable[[RawTable], Evidence | None]


@dataclass(frozen=True)
class Settings:
    """How a search is made.

    Args:
        alpha: how often what has nothing to do with the tables may be convicted.
        smallest: how many records make a group that is no longer small.
        tolerance: share of a value by which released numbers may differ on top of their precision.
        off: families of rules that are switched off.
    """

    alpha: float
    smallest: int = 5
    tolerance: float = 0.0
    off: tuple[str, ...] = ()


def floor_of(family: str, settings: Settings, tables: int) -> float:
    """Nats below which a family's score is not looked at further; two thirds of alpha are the plain's."""
    plain = FAMILIES.index(family) < PLAIN
    ways = 1.5 * PLAIN if plain else 3.0 * (len(FAMILIES) - PLAIN)
    return float(np.log(ways * tables / settings.alpha))


def search(tables: Sequence[RawTable], released: Released, settings: Settings) -> list[Evidence]:
    """What re-drawn tables do not explain, the plainest first.

    Once a rule has convicted, less plain ones are not asked: what they would find follows from it.
    """
    found: list[Evidence] = []
    scored = [
        (evidence, score, table)
        for table in tables
        for score, evidence in scores(table, released, settings)
    ]
    drawn = {id(table): Redrawn(table) for table in tables}
    for evidence, score, table in sorted(scored, key=lambda one: (one[0].plain, -one[0].nats)):
        if found and evidence.plain > found[0].plain:
            break
        floor = floor_of(evidence.family, settings, len(tables))
        beyond = max(1.0, floor - float(np.log(DRAWS)))
        if evidence.nats >= floor and (
            evidence.certain or drawn[id(table)].beaten(score, evidence.nats, beyond)
        ):
            found.append(evidence)
    return found


class Redrawn:
    """Re-drawn tables of one shape, the same for every rule."""

    def __init__(self, table: RawTable) -> None:
        self._table = table
        self._kept: list[RawTable] = []

    def __iter__(self) -> Iterator[RawTable]:
        small = self._table.numbers.size + self._table.codes.size <= KEPT
        for number in range(DRAWS):
            if number < len(self._kept):
                yield self._kept[number]
                continue
            drawn = self._table.redrawn(np.random.default_rng([1, number]))
            if small:
                self._kept.append(drawn)
            yield drawn

    def beaten(self, score: Score, nats: float, beyond: float) -> bool:
        """Whether a score is beyond every re-drawn table's by so many nats, and by half of it.

        Where re-drawn tables score much, the model of chance is off, and so is its scale.
        """
        for table in self:
            evidence = score(table)
            if evidence is not None and max(0.0, WRONG * evidence.nats) + beyond >= nats:
                return False
        return True


def scores(
    table: RawTable, released: Released, settings: Settings
) -> Iterator[tuple[Score, Evidence]]:
    """Each rule that is not switched off, and its score of the raw table, where there is one."""
    counted: dict[str, int] = {}
    listed = []
    for family, score in rules(table, released, settings):
        evidence = score(table)
        counted[family] = counted.get(family, 0) + 1
        if evidence is not None:
            listed.append((score, evidence))
    for score, evidence in listed:
        several = float(np.log(counted[evidence.family]))
        yield _less(score, several), _lessened(evidence, several)


def _less(score: Score, nats: float) -> Score:
    def lessened(table: RawTable) -> Evidence | None:
        evidence = score(table)
        return None if evidence is None else _lessened(evidence, nats)

    return lessened


def _lessened(evidence: Evidence, nats: float) -> Evidence:
    return replace(evidence, nats=evidence.nats - nats)


def rules(table: RawTable, released: Released, settings: Settings) -> Iterator[tuple[str, Score]]:
    """Every rule as a function of the table alone; what it needs of what left is worked out once."""
    for family, listed in _families(table, released, settings):
        if family not in settings.off:
            yield from ((family, rule) for rule in listed())


def _families(
    table: RawTable, released: Released, settings: Settings
) -> Iterator[tuple[str, Callable[[], Iterable[Score]]]]:
    numeric = table.numbers.shape[1] > 0
    every = functions(settings.smallest) if numeric else []
    for family in ("values", "bounds", "functions", "scalings", "few"):
        mine = [one for one in every if one.family == family]
        yield family, partial(_comparisons, mine, released, settings.tolerance)
    naming = [at for at, column in enumerate(table.texts) if column.naming]
    masked = words.masked_of(released) if naming else []
    yield "names", lambda: [partial(words.names_in, released, at) for at in naming]
    yield "masked", lambda: [partial(words.masked_in, masked, at) for at in naming if masked]
    lines = Lines.of(released, table)
    if len(lines):
        yield "lines", lambda: [partial(together, lines), partial(of_two_records, lines)]
    digests = binary.digests_of(released)
    yield "digests", lambda: [partial(binary.digests_in, digests)] if digests else []
    if numeric:
        yield from _numeric_families(table, released)


def _numeric_families(
    table: RawTable, released: Released
) -> Iterator[tuple[str, Callable[[], Iterable[Score]]]]:
    yield "bytes", lambda: [partial(binary.bytes_in, released)] if released.strings else []
    windows = binary.windows_of(released)
    yield "digits", lambda: [partial(binary.digits_in, windows)] if windows else []
    streams = streams_of(released)
    spans = list(spans_of(table)) if streams else []
    yield "rows", lambda: [partial(aligned, span, streams) for span in spans]
    vectors = vectors_of(released, table.records)
    yield "columns", lambda: [partial(alike, rule, vectors) for rule in RULES] if vectors else []
    yield "directions", lambda: [partial(parallel, released, log) for log in (False, True)]
    combined = combinations_of(released, table.records)
    yield "combinations", lambda: [one.score for one in combined]


def _comparisons(mine: list[Function], released: Released, tolerance: float) -> list[Score]:
    def score(function: Function) -> Score:
        return lambda table: compare(function, table, released, tolerance)

    return [score(function) for function in mine]
