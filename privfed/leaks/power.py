"""What a pass could not have seen: which cells are too common to convict, and whether anything would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from privfed.leaks.artefact import Released
from privfed.leaks.precision import NO_GRADE, decimals_of
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import COMPUTED, ScanSettings, floor_of, scores, unexplained
from privfed.leaks.table import RawTable

#: How many records are planted, one after the other, and against how many re-drawn tables each is held.
PLANTED, TRIED = 3, 10


def single_cells(table: RawTable) -> Iterator[tuple[str, float]]:
    """For each column, how surprising its median cell is when it leaves alone, in nats.

    That is -log of the chance that a number of the column's range, as finely written, is some
    record's: of values that many records share it is 0.
    """
    for at, name in enumerate(table.names):
        own = np.unique(np.abs(table.own[:, at]))
        own = own[np.isfinite(own) & (own > 0)]
        if len(own) < 2:
            yield name, 0.0
            continue
        grades = decimals_of(own).astype(float)
        step = np.where(grades == NO_GRADE, np.spacing(own), 10.0**-grades)
        covered = len(own) * np.maximum(step, table.steps[at]) / np.ptp(own)
        yield name, float(-np.log(min(1.0, float(np.median(covered)))))
    for text in table.texts:
        nats = float(np.median(text.space)) - np.log(len(text.keys))
        yield text.name, max(0.0, nats) if text.naming else 0.0


def too_common(table: RawTable, settings: ScanSettings) -> list[str]:
    """The columns of which a single cell could leave unseen."""
    floor = floor_of("values", settings, 1) + np.log(4)  # precisions and blocks are looked at too
    seen = table.memoised("single cells", lambda: dict(single_cells(table)))
    return [name for name, nats in seen.items() if nats < floor]


def is_powerless(table: RawTable, settings: ScanSettings) -> bool:
    """Whether neither a cell, a record, a column nor the whole table would be noticed."""
    if len(too_common(table, settings)) < len(table.names) + len(table.texts):
        return False
    return table.memoised(
        ("powerless", settings),
        lambda: not any(_noticed(plant, table, settings) for plant in _plants(table)),
    )


def _plants(table: RawTable) -> Iterable[object]:
    complete = np.flatnonzero(np.isfinite(table.numbers).all(axis=1))
    for record in complete[:: max(1, len(complete) // PLANTED)][:PLANTED]:
        texts = [text.values[text.codes[record]] for text in table.texts]
        yield [*table.numbers[record].tolist(), *texts]
    yield from table.numbers.T
    yield from table.codes.T
    yield table.numbers


def _noticed(plant: object, table: RawTable, settings: ScanSettings) -> bool:
    leaves: Sequence[Leaf] = list(flatten(plant, "planted", rows=True))
    narrow = ScanSettings(settings.alpha, off=(*settings.off, *COMPUTED))
    told = [
        (evidence, score)
        for score, evidence in scores(table, Released.of(leaves), narrow)
        if evidence.nats >= floor_of(evidence.family, settings, 1)
    ]
    return bool(unexplained(told, table, narrow, draws=TRIED))
