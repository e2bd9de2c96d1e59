"""All rules, one after the other, and what they find that re-drawn tables do not explain.

A rule scores the raw table in nats. Only a score beyond what its own model of chance allows is
looked at further: 200 tables of the same shape are drawn, and the rule scores what left against each.
It convicts where the raw table scores half as much again as every one of them, and as many nats more
as the rate of false alarms asks for beyond 1 in 200. So where the model is wrong (a grid whose sums meet
every age, counts that are everybody's), the re-drawn tables score as much, and nothing is said.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import merge
from itertools import groupby, islice

import numpy as np

from privfed.leaks import binary, words
from privfed.leaks.arithmetic import combinations_of
from privfed.leaks.artefact import Released
from privfed.leaks.cells import compared
from privfed.leaks.chance import DULL
from privfed.leaks.columns import RULES, alike, vectors_of
from privfed.leaks.directions import parallel
from privfed.leaks.evidence import Evidence
from privfed.leaks.functions import FUNCTIONS
from privfed.leaks.lines import Lines, of_two_records, together
from privfed.leaks.rows import aligned, spans_of, streams_of
from privfed.leaks.table import DRAWS, RawTable

#: Families of rules, the plainest first, by which they can be switched off.
FAMILIES = (
    *("values", "names", "rows", "lines", "bytes", "digits", "digests", "masked"),
    *("bounds", "functions", "scalings", "columns", "directions", "few", "combinations"),
)
PLAIN = 4  #: How many of them are plain
#: Families that are not looked at where functions are not asked for.
COMPUTED = ("bounds", "functions", "scalings", "few", "combinations", "directions")
WRONG = 1.5  #: By how many times a score must exceed a re-drawn table's
Score = Callable[[RawTable], Evidence | None]


@dataclass(frozen=True)
class ScanSettings:
    """How a search is made."""

    alpha: float  #: how often what has nothing to do with the tables may be convicted
    #: share of a value by which released numbers may differ on top of their precision
    tolerance: float = 0.0
    off: tuple[str, ...] = ()  #: families of rules that are switched off


def floor_of(family: str, settings: ScanSettings, tables: int) -> float:
    """Nats below which a family's score is not looked at further; two thirds of alpha are the plain's."""
    plain = FAMILIES.index(family) < PLAIN
    ways = 1.5 * PLAIN if plain else 3.0 * (len(FAMILIES) - PLAIN)
    return float(np.log(ways * tables / settings.alpha))


def search(
    tables: Sequence[RawTable], released: Released, settings: ScanSettings
) -> list[Evidence]:
    """What re-drawn tables do not explain, the plainest first.

    Once a rule has convicted, less plain ones are not asked: what they would find follows from it.
    """
    listed = merge(
        *(_scored(table, released, settings) for table in tables), key=lambda one: one[0].plain
    )
    for _, plain in groupby(listed, lambda one: one[0].plain):
        asked = [
            one for one in plain if one[0].nats >= floor_of(one[0].family, settings, len(tables))
        ]
        found = []
        for table in tables:
            of = [one[:2] for one in asked if one[2] is table]
            found += unexplained(of, table, settings, len(tables))
        if found:
            return sorted(found, key=lambda one: -one.nats)
    return []


def _scored(
    table: RawTable, released: Released, settings: ScanSettings
) -> Iterator[tuple[Evidence, Score, RawTable]]:
    for score, evidence in scores(table, released, settings):
        yield evidence, score, table


def unexplained(
    scored: list[tuple[Evidence, Score]],
    table: RawTable,
    settings: ScanSettings,
    tables: int = 1,
    draws: int = DRAWS,
) -> list[Evidence]:
    """The scores beyond every re-drawn table's by enough nats, and by half of it.

    Where re-drawn tables score much, the model of chance is off, and so is its scale.
    """
    left = [one for one in scored if not one[0].certain]
    for drawn in islice(table.redraws(), draws) if left else ():
        for one in left.copy():
            evidence, score = one
            beyond = max(1.0, floor_of(evidence.family, settings, tables) - float(np.log(DRAWS)))
            other = score(drawn)
            least = max(DULL, other.nats if other else DULL)
            if WRONG * least + beyond >= evidence.nats:
                left.remove(one)
        if not left:
            break
    return [one[0] for one in scored if one[0].certain or one in left]


def scores(
    table: RawTable, released: Released, settings: ScanSettings
) -> Iterator[tuple[Score, Evidence]]:
    """Each rule that is not switched off, the plainest first, and its score of the raw table, if any.

    Of a family of n rules each scores log(n) less.
    """
    for family, listed in _families(table, released, settings.tolerance):
        rules = [] if family in settings.off else list(listed)
        for rule in rules:
            score = partial(_one_of, rule, float(np.log(len(rules))))
            evidence = score(table)
            if evidence is not None:
                yield score, evidence


def _one_of(score: Score, nats: float, table: RawTable) -> Evidence | None:
    evidence = score(table)
    return None if evidence is None else replace(evidence, nats=evidence.nats - nats)


def _families(
    table: RawTable, released: Released, tolerance: float
) -> Iterator[tuple[str, Iterable[Score]]]:
    """The rules of each family as functions of the table; what they need else is worked out once."""
    numeric = table.numbers.shape[1] > 0
    functions: dict[str, list[Score]] = {one.family: [] for one in FUNCTIONS}
    for one in FUNCTIONS if numeric else ():
        functions[one.family].append(partial(compared, one, released, tolerance))
    naming = [at for at, column in enumerate(table.texts) if column.naming]
    yield "values", functions["values"]
    yield "names", [partial(words.names_in, released, at) for at in naming]
    streams = streams_of(released) if numeric else []
    if numeric and table.numbered_words:
        streams += streams_of(released.without(table.numbered_words))
    yield "rows", [partial(aligned, span, streams) for span in spans_of(table) if streams]
    lines = Lines.of(released, table)
    beside = [partial(one, lines) for one in (together, of_two_records) if len(lines)]
    yield "lines", beside[:1]
    yield "bytes", [partial(binary.bytes_in, released)] if released.strings and numeric else []
    masked = words.masked_of(released) if naming else []
    yield "masked", [partial(words.masked_in, masked, at) for at in naming if masked]
    digests = binary.digests_of(released)
    yield "digests", [partial(binary.digests_in, digests)] if digests else []
    windows = binary.windows_of(released) if numeric else []
    yield "digits", [partial(binary.digits_in, windows)] if windows else []
    yield "bounds", functions["bounds"]
    yield "functions", functions["functions"]
    yield "scalings", functions["scalings"]
    vectors = vectors_of(released, table.records) if numeric else []
    yield "columns", [partial(alike, rule, vectors) for rule in RULES if vectors]
    yield "directions", [partial(parallel, released, log) for log in (False, True) if numeric]
    yield "few", functions["few"]
    yield "lines", beside[1:]
    if numeric:
        yield "combinations", (one.score for one in combinations_of(released, table.records))
