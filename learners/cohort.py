"""Base class of learners for cohorts: federations of many individuals, each with own records."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, Protocol

from privfed.learners.base import FederatedLearner
from privfed.tables.schema import Schema


class CohortRecords(Protocol):
    """The records of a cohort's individuals."""

    @property
    def schema(self) -> Schema:
        """The public data dictionary."""

    def __len__(self) -> int:
        """Return the number of individuals; public."""


class CohortLearner(FederatedLearner):
    """A learner that queries individuals."""

    @abstractmethod
    def read(self, folder: Path, schema: Schema) -> CohortRecords:
        """Read each individual's file in a study's folder (InputError: names the file, without its content)."""

    @abstractmethod
    def held(self, records: Any) -> int:
        """Return the number of records of all individuals."""

    @abstractmethod
    def assess(self, records: Any) -> dict[str, Any]:
        """Score the fitted model by the true records (the output of :meth:`read`); this is no release.

        Returns:
            ``measure`` (the main metric's name), ``better`` (``"lower"`` or ``"higher"``), ``value``,
            ``baseline`` (the value of a trivial model), ``scores``; optionally ``told`` (the value in
            words) and ``hint`` (what would suffice to learn more).
        """
