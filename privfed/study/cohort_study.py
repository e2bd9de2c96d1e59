"""A study of a cohort: each individual owns a file, and one gate answers for all of them.

One process holds all data: a simulation of many phones, not publishable for real data.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privfed.engines.cohort import CohortDisclosure
from privfed.engines.local import signing_keys
from privfed.exchange.transcript import Transcript
from privfed.learners.base import FederatedLearner
from privfed.learners.cohort import CohortLearner, CohortRecords
from privfed.ledger.registry import Registry
from privfed.privacy.policy import Policy
from privfed.study import Study
from privfed.study.schema_of_study import public_schema
from privfed.tables.records import Records
from privfed.tables.schema import Schema

NAME = "cohort"


@dataclass(frozen=True, eq=False)
class PreparedCohort:
    """A study's cohort."""

    study: Study
    records: CohortRecords  #: all individuals' data
    learner: CohortLearner  #: the study's learner, which has read them

    @property
    def schema(self) -> Schema:
        """The public data dictionary."""
        return self.records.schema

    def truth(self, transcript: Transcript | None = None) -> dict[str, Records]:
        """Return no records: attacks on tables do not apply."""
        return {}

    @property
    def owners(self) -> tuple[str, ...]:
        """The single client that represents the cohort."""
        return (NAME,)

    def books(self) -> dict[str, CohortRecords]:
        """Return all individuals' data, to score attacks on individuals."""
        return {NAME: self.records}

    def federate(
        self, adopted: Policy, ledgers: Path, block: int, registry: Registry | None = None
    ) -> CohortDisclosure:
        """Build the cohort's gate and its ledger; charges cannot be reserved in blocks."""
        ledgers.mkdir(parents=True, exist_ok=True)
        keys = None if registry is None else self.study.keys
        return CohortDisclosure.of(
            self.records,
            adopted,
            seed=self.study.seed if self.study.noise == "test" else None,
            ledger=ledgers / f"{NAME}.db",
            name=NAME,
            study=self.study.name,
            block=block,
            registry=registry,
            key=None if keys is None else signing_keys(keys, [NAME])[NAME],
        )

    def score(self, model: FederatedLearner, schema: Schema) -> dict[str, Any]:
        """Return the scores that the fitted learner computes itself."""
        assert isinstance(model, CohortLearner)
        return model.assess(self.records)

    def facts(self) -> dict[str, Any]:
        """Return the cohort's size."""
        counts = {NAME: self.learner.held(self.records)}
        return {"individuals": len(self.records), "records": counts, "clipped": {}}


def prepare(study: Study, model: CohortLearner) -> PreparedCohort:
    """Read all individuals' data (InputError: the folder is missing, or a file does not fit the schema)."""
    records = model.read(study.folder / study.data.source, public_schema(study))
    return PreparedCohort(study, records, model)
