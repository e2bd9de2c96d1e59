"""Raw values in a model's file: what a learner read beside its questions, and kept."""

import json
import math
from collections.abc import Mapping

import numpy as np

from privfed.attacks.base import PublicSchema, exact_parts
from privfed.attacks.finding import Finding, Severity
from privfed.exchange.transcript import Transcript
from privfed.leaks.artefact import Released
from privfed.leaks.evidence import Evidence
from privfed.leaks.power import is_powerless
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import FAMILIES, PLAIN, ScanSettings, search
from privfed.leaks.table import raw_tables

ALPHA = 1e-6  #: How often values are found in a model that has nothing to do with the table
RARE = (
    0.01  #: How often, at most, the budget's answers may tell as much of what is called a violation
)


def model_values(
    written: bytes,
    columns: Mapping[str, np.ndarray],
    schema: PublicSchema,
    transcript: Transcript,
    allowed: tuple[float, float],
) -> list[Finding]:
    """Look for the records' numbers in a model, as JSON, where all that left has noise; else no finding.

    Values that drawn tables do not explain as well (:mod:`privfed.leaks`) are in the model by what the answers
    told, or because its learner read the records beside its questions, which no ledger counts. The first is
    excluded where the budget's answers tell so much too rarely (:func:`by_answers`): the finding is a breach then.
    ``allowed`` are epsilon and delta; no finite epsilon excludes nothing.
    """
    if not columns or not len(transcript) or any(map(exact_parts, transcript)):
        return []
    settings = ScanSettings(ALPHA, off=FAMILIES[PLAIN:])
    with np.errstate(all="ignore"):  # what a model holds may be infinite
        tables = raw_tables(dict(columns), schema)
        found = search(tables, Released.of(flatten(json.loads(written), rows=True)), settings)
        blind = any(is_powerless(table, settings) for table in tables)
    records = max(map(len, columns.values()))
    honest = min((by_answers(each, records, *allowed) for each in found), default=1.0)
    severity = Severity.BREACH if honest <= RARE else Severity.SOME
    return [
        Finding(
            "model reader verbatim",
            "Do numbers of the raw table stand in the model's file?",
            "raw values and rows found in the model's file",
            max((each.count for each in found), default=0),
            baseline=0.0,
            severity=severity if found else Severity.NONE,
            detail={"as much by the answers alone, with probability at most": honest},
            partial="" if found or not blind else "the table's values are too common to recognise",
            risk="singling out",
            harm="the model's file has values of a record",
        )
    ]


def by_answers(found: Evidence, records: int, epsilon: float, delta: float) -> float:
    """Probability, at most, that a model which follows from the answers holds so many items.

    An item that a model without the record holds with probability p is held with at most e^epsilon p + delta, so
    that of n records n (e^epsilon p + delta) items are at most expected, and k are held with at most 1 / k of that
    (Markov). p is e^(-nats / k), by the scan's own model of chance.
    """
    each = math.exp(min(epsilon - found.nats / found.count, 0.0)) + delta
    return min(1.0, records / found.count * each)
