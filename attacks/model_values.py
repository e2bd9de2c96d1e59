"""Raw values in a model's file: what a learner read beside its questions, and kept."""

import json
from collections.abc import Mapping

import numpy as np

from privfed.attacks.base import PublicSchema, exact_parts
from privfed.attacks.finding import Finding, Severity
from privfed.exchange.transcript import Transcript
from privfed.leaks.artefact import Released
from privfed.leaks.power import is_powerless
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import FAMILIES, PLAIN, ScanSettings, search
from privfed.leaks.table import raw_tables

ALPHA = 1e-6  #: How often a model that has nothing to do with the table may be convicted


def model_values(
    written: bytes, columns: Mapping[str, np.ndarray], schema: PublicSchema, transcript: Transcript
) -> list[Finding]:
    """Look for the records' numbers in a model, as JSON, where all that left has noise; else no finding.

    A model that follows from noisy answers holds none that drawn tables would not explain as well
    (:mod:`privfed.leaks`). One that does comes of a learner that read the records beside its questions, which no
    ledger counts.
    """
    if not columns or not len(transcript) or any(map(exact_parts, transcript)):
        return []
    settings = ScanSettings(ALPHA, off=FAMILIES[PLAIN:])
    tables = raw_tables(dict(columns), schema)
    found = search(tables, Released.of(flatten(json.loads(written), rows=True)), settings)
    blind = any(is_powerless(table, settings) for table in tables)
    return [
        Finding(
            "model reader verbatim",
            "Do numbers of the raw table stand in the model's file?",
            "raw values and rows found in the model's file",
            max((each.count for each in found), default=0),
            baseline=0.0,
            severity=Severity.BREACH if found else Severity.NONE,
            partial="" if found or not blind else "the table's values look like anybody's",
            risk="singling out",
            harm="the model's file has values of a record, which its learner read beside its questions",
        )
    ]
