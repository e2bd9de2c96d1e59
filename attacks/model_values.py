"""Raw values in a model's file: records that a learner read outside its queries, and kept."""

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

ALPHA = 1e-6  #: False positive rate for models independent of the table
RARE = 0.01  #: Largest probability that the budget's answers explain the values, for a breach


def model_values(
    written: bytes,
    columns: Mapping[str, np.ndarray],
    schema: PublicSchema,
    transcript: Transcript,
    allowed: tuple[float, float],
) -> list[Finding]:
    """Look for the records' numbers in a model, as JSON, if all releases are noisy; else no finding.

    Values that synthetic tables do not explain as well (:mod:`privfed.leaks`) are in the model through the answers,
    or because its learner read the records outside its queries, which no ledger counts. The finding is a breach
    if the budget's answers explain as many values too rarely (:func:`by_answers`).
    ``allowed`` are epsilon and delta; an infinite epsilon explains everything.
    """
    if not columns or not len(transcript) or any(map(exact_parts, transcript)):
        return []
    settings = ScanSettings(ALPHA, off=FAMILIES[PLAIN:])
    with np.errstate(all="ignore"):  # what a model holds may be infinite
        tables = raw_tables(dict(columns), schema)
        hits = search(tables, Released.of(flatten(json.loads(written), rows=True)), settings)
        blind = any(is_powerless(table, settings) for table in tables)
    records = max(map(len, columns.values()))
    bound = min((by_answers(hit, records, *allowed) for hit in hits), default=1.0)
    severity = Severity.BREACH if bound <= RARE else Severity.SOME
    return [
        Finding(
            "model reader verbatim",
            "Do numbers of the raw table stand in the model's file?",
            "raw values and rows found in the model's file",
            max((hit.count for hit in hits), default=0),
            baseline=0.0,
            severity=severity if hits else Severity.NONE,
            detail={"as much by the answers alone, with probability at most": bound},
            partial="" if hits or not blind else "the table's values are too common to recognise",
            risk="singling out",
            harm="the model's file has values of a record",
        )
    ]


def by_answers(evidence: Evidence, records: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability that a model computed from the answers holds as many items.

    An item that a model without the record holds with probability p is held with at most e^epsilon p + delta, so
    that of n records n (e^epsilon p + delta) items are at most expected, and k are held with at most 1 / k of that
    (Markov). p is e^(-nats / k), by the scan's own model of chance.
    """
    probability = math.exp(min(epsilon - evidence.nats / evidence.count, 0.0)) + delta
    return min(1.0, records / evidence.count * probability)
