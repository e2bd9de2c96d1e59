"""A study of a cohort: each individual owns a file, and a cohort's learner learns from all of them.

One process holds what everybody has, and one gate answers for everybody: a simulation of many
phones. It knows the truth, and so a learner can say what it missed; that is not publishable for real
data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privfed.engines.cohort import CohortDisclosure
from privfed.exchange.channel import HeadStore
from privfed.learners.base import FederatedLearner
from privfed.learners.cohort import CohortLearner, CohortRecords
from privfed.privacy.policy import Policy
from privfed.study import Study
from privfed.tables.records import Records
from privfed.tables.schema import Schema

NAME = "cohort"


@dataclass(frozen=True, eq=False)
class PreparedCohort:
    """A study's cohort.

    Args:
        study: the study.
        records: what everybody holds.
        learner: the study's learner, which has read it.
    """

    study: Study
    records: CohortRecords
    learner: CohortLearner

    @property
    def schema(self) -> Schema:
        """The public data dictionary of what they hold."""
        return self.records.schema

    def truth(self) -> dict[str, Records]:
        """No records: attacks on tables find nothing to be scored by."""
        return {}

    @property
    def owners(self) -> tuple[str, ...]:
        """The one client that everybody is asked as."""
        return (NAME,)

    def books(self) -> dict[str, CohortRecords]:
        """What everybody holds: for scoring attacks on individuals."""
        return {NAME: self.records}

    def federate(
        self, adopted: Policy, ledgers: Path, block: int, heads: HeadStore | None = None
    ) -> CohortDisclosure:
        """Put the cohort's gate before the rules, with one ledger.

        Raises:
            PolicyError: charges reserved in blocks, which no individual's budget could follow.
        """
        ledgers.mkdir(parents=True, exist_ok=True)
        return CohortDisclosure.of(
            self.records,
            adopted,
            seed=self.study.seed if self.study.noise == "test" else None,
            ledger=ledgers / f"{NAME}.db",
            name=NAME,
            study=self.study.name,
            block=block,
            heads=heads,
        )

    def score(self, model: FederatedLearner, schema: Schema) -> dict[str, Any]:
        """What the fitted learner itself says by the truth."""
        assert isinstance(model, CohortLearner)
        return model.assess(self.records)

    def facts(self) -> dict[str, Any]:
        """How much the cohort holds."""
        held = {NAME: self.learner.held(self.records)}
        return {"individuals": len(self.records), "records": held, "clipped": {}}


def prepare(study: Study, model: CohortLearner) -> PreparedCohort:
    """Read what everybody holds.

    Raises:
        InputError: a parameter that makes no sense, no such folder, or a file that does not fit.
    """
    records = model.read(study.folder / study.data.source, public_schema(study))
    return PreparedCohort(study, records, model)


def public_schema(study: Study) -> Schema:
    """The public bounds that a cohort's study names; no rule is read."""
    return Schema.from_toml(study.folder / str(study.data.schema))
