"""Runs all rules and keeps the evidence that redrawn tables do not explain.

A rule scores the raw table in nats. A score above the threshold of the rule's model is checked further:
200 tables of the same shape are drawn, and the rule scores the outputs against each. The evidence is kept
if the raw table's score exceeds 1.5 times every redrawn score by the nats that the false alarm rate requires
beyond 1 in 200. If the model is wrong (a grid whose sums meet every age, counts that anyone has), redrawn
tables score as high, and nothing is reported.
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
from privfed.leaks.cells import compare
from privfed.leaks.chance import DULL
from privfed.leaks.columns import RULES, best_vector, vectors_of
from privfed.leaks.directions import parallel_rows
from privfed.leaks.evidence import Evidence
from privfed.leaks.functions import FUNCTIONS
from privfed.leaks.lines import Lines, one_record, two_records
from privfed.leaks.rows import aligned_rows, spans_of, streams_of
from privfed.leaks.table import DRAWS, RawTable

#: Families of rules, the simplest first, by which they can be switched off.
FAMILIES = (
    *("values", "names", "rows", "lines", "bytes", "digits", "digests", "masked"),
    *("bounds", "functions", "scalings", "columns", "directions", "few", "combinations"),
)
PLAIN = 4  #: Number of simple families
#: Families that are skipped if functions of raw values are not searched.
COMPUTED = ("bounds", "functions", "scalings", "few", "combinations", "directions")
WRONG = 1.5  #: Ratio by which a score must exceed a redrawn table's
Score = Callable[[RawTable], Evidence | None]


@dataclass(frozen=True)
class ScanSettings:
    """Settings of a search."""

    alpha: float  #: largest rate of false alarms
    #: relative difference allowed between released numbers and values, beyond their precision
    tolerance: float = 0.0
    off: tuple[str, ...] = ()  #: families of rules that are switched off


def floor_of(family: str, settings: ScanSettings, tables: int) -> float:
    """Threshold in nats of a family's scores; the simple families share two thirds of alpha."""
    is_plain = FAMILIES.index(family) < PLAIN
    n_rules = 1.5 * PLAIN if is_plain else 3.0 * (len(FAMILIES) - PLAIN)
    return float(np.log(n_rules * tables / settings.alpha))


def search(
    tables: Sequence[RawTable], released: Released, settings: ScanSettings
) -> list[Evidence]:
    """Evidence that redrawn tables do not explain, of the simplest rules that have any.

    More complex rules are then skipped: their matches would follow from these.
    """
    scored = merge(
        *(_table_scores(table, released, settings) for table in tables),
        key=lambda s: s[0].complexity,
    )
    for _, group in groupby(scored, lambda s: s[0].complexity):
        candidates = [s for s in group if s[0].nats >= floor_of(s[0].family, settings, len(tables))]
        evidence = []
        for table in tables:
            of_table = [s[:2] for s in candidates if s[2] is table]
            evidence += unexplained(of_table, table, settings, len(tables))
        if evidence:
            return sorted(evidence, key=lambda s: -s.nats)
    return []


def _table_scores(
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
    """Evidence whose score exceeds ``WRONG`` times every redrawn table's by enough nats.

    High redrawn scores mean that the model of chance is wrong, and so is its scale.
    """
    remaining = [item for item in scored if not item[0].certain]
    for drawn in islice(table.redraws(), draws) if remaining else ():
        for item in remaining.copy():
            evidence, score = item
            margin = max(1.0, floor_of(evidence.family, settings, tables) - float(np.log(DRAWS)))
            redrawn = score(drawn)
            redrawn_nats = max(DULL, redrawn.nats if redrawn else DULL)
            if WRONG * redrawn_nats + margin >= evidence.nats:
                remaining.remove(item)
        if not remaining:
            break
    return [item[0] for item in scored if item[0].certain or item in remaining]


def scores(
    table: RawTable, released: Released, settings: ScanSettings
) -> Iterator[tuple[Score, Evidence]]:
    """Yield each enabled rule with evidence on the raw table, the simplest first.

    Each rule of a family of n scores log(n) less.
    """
    for family, family_rules in _families(table, released, settings.tolerance):
        rules = [] if family in settings.off else list(family_rules)
        for rule in rules:
            score = partial(_adjusted, rule, float(np.log(len(rules))))
            evidence = score(table)
            if evidence is not None:
                yield score, evidence


def _adjusted(score: Score, nats: float, table: RawTable) -> Evidence | None:
    evidence = score(table)
    return None if evidence is None else replace(evidence, nats=evidence.nats - nats)


def _families(
    table: RawTable, released: Released, tolerance: float
) -> Iterator[tuple[str, Iterable[Score]]]:
    """Yield each family's name and its rules, as functions of the table."""
    numeric = table.numbers.shape[1] > 0
    functions: dict[str, list[Score]] = {f.family: [] for f in FUNCTIONS}
    for f in FUNCTIONS if numeric else ():
        functions[f.family].append(partial(compare, f, released, tolerance))
    naming = [index for index, column in enumerate(table.texts) if column.naming]
    yield "values", functions["values"]
    yield "names", [partial(words.names_in, released, index) for index in naming]
    streams = streams_of(released) if numeric else []
    if numeric and table.numbered_words:
        streams += streams_of(released.without(table.numbered_words))
    yield "rows", [partial(aligned_rows, span, streams) for span in spans_of(table) if streams]
    lines = Lines.of(released, table)
    line_rules = [partial(f, lines) for f in (one_record, two_records) if len(lines)]
    yield "lines", line_rules[:1]
    yield "bytes", [partial(binary.bytes_in, released)] if released.strings and numeric else []
    masked = words.masked_of(released) if naming else []
    yield "masked", [partial(words.masked_in, masked, index) for index in naming if masked]
    digests = binary.digests_of(released)
    yield "digests", [partial(binary.digests_in, digests)] if digests else []
    windows = binary.windows_of(released) if numeric else []
    yield "digits", [partial(binary.digits_in, windows)] if windows else []
    yield "bounds", functions["bounds"]
    yield "functions", functions["functions"]
    yield "scalings", functions["scalings"]
    vectors = vectors_of(released, table.records) if numeric else []
    yield "columns", [partial(best_vector, rule, vectors) for rule in RULES if vectors]
    yield "directions", [partial(parallel_rows, released, log) for log in (False, True) if numeric]
    yield "few", functions["few"]
    yield "lines", line_rules[1:]
    if numeric:
        yield "combinations", (f.score for f in combinations_of(released, table.records))
