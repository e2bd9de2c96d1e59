"""Power of the search: which cells are too common to be detected, and whether anything would be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from privfed.leaks.artefact import Released
from privfed.leaks.precision import NO_GRADE, decimals_of
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import COMPUTED, ScanSettings, floor_of, scores, unexplained
from privfed.leaks.table import RawTable

#: Records that are planted, one at a time, and redrawn tables that each is compared with.
PLANTED, TRIED = 3, 10


def single_cells(table: RawTable) -> Iterator[tuple[str, float]]:
    """Yield each column's name and the surprise, in nats, of its median cell released alone.

    That is -log of the probability that a number in the column's range, at its precision, equals some
    record's value; 0 for values shared by many records.
    """
    for column, name in enumerate(table.names):
        values = np.unique(np.abs(table.identifying[:, column]))
        values = values[np.isfinite(values) & (values > 0)]
        if len(values) < 2:
            yield name, 0.0
            continue
        grades = decimals_of(values).astype(float)
        step = np.where(grades == NO_GRADE, np.spacing(values), 10.0**-grades)
        covered = len(values) * np.maximum(step, table.steps[column]) / np.ptp(values)
        yield name, float(-np.log(min(1.0, float(np.median(covered)))))
    for text in table.texts:
        nats = float(np.median(text.space)) - np.log(len(text.keys))
        yield text.name, max(0.0, nats) if text.naming else 0.0


def too_common(table: RawTable, settings: ScanSettings) -> list[str]:
    """Names of columns whose single cells would not be detected."""
    floor = floor_of("values", settings, 1) + np.log(4)  # precisions and blocks are searched too
    scores_of = table.memoised("single cells", lambda: dict(single_cells(table)))
    return [name for name, nats in scores_of.items() if nats < floor]


def is_powerless(table: RawTable, settings: ScanSettings) -> bool:
    """Whether neither a cell, a record, a column nor the whole table would be detected."""
    if len(too_common(table, settings)) < len(table.names) + len(table.texts):
        return False
    return table.memoised(
        ("powerless", settings),
        lambda: not any(_is_detected(plant, table, settings) for plant in _plants(table)),
    )


def _plants(table: RawTable) -> Iterable[object]:
    complete = np.flatnonzero(np.isfinite(table.numbers).all(axis=1))
    for record in complete[:: max(1, len(complete) // PLANTED)][:PLANTED]:
        texts = [text.values[text.codes[record]] for text in table.texts]
        yield [*table.numbers[record].tolist(), *texts]
    yield from table.numbers.T
    yield from table.codes.T
    yield table.numbers


def _is_detected(plant: object, table: RawTable, settings: ScanSettings) -> bool:
    leaves: Sequence[Leaf] = list(flatten(plant, "planted", rows=True))
    narrow = ScanSettings(settings.alpha, off=(*settings.off, *COMPUTED))
    scored = [
        (evidence, score)
        for score, evidence in scores(table, Released.of(leaves), narrow)
        if evidence.nats >= floor_of(evidence.family, settings, 1)
    ]
    return bool(unexplained(scored, table, narrow, draws=TRIED))
