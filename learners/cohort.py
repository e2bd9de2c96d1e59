"""Learners whose federation is a cohort: many individuals, each with records of its own."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, Protocol

from privfed.learners.base import FederatedLearner
from privfed.tables.schema import Schema


class CohortRecords(Protocol):
    """What the individuals of a cohort hold."""

    @property
    def schema(self) -> Schema:
        """The public data dictionary."""

    def __len__(self) -> int:
        """How many individuals there are; public."""


class CohortLearner(FederatedLearner):
    """A learner that asks individuals, each for itself."""

    @abstractmethod
    def read(self, folder: Path, schema: Schema) -> CohortRecords:
        """Read each individual's file in a study's folder; InputError names a file, and none of its content."""

    @abstractmethod
    def held(self, records: Any) -> int:
        """How many records all individuals hold together."""

    @abstractmethod
    def assess(self, records: Any) -> dict[str, Any]:
        """Score the fitted model with the truth (what :meth:`read` gave): never a release.

        Returns:
            ``measure`` (the headline's name), ``better`` (``"lower"`` or ``"higher"``), ``value``,
            ``baseline`` (of a model that knows nothing), ``scores``; and perhaps ``told`` (the
            value in words) and ``hint`` (what would be enough to learn more).
        """
