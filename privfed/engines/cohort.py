"""A cohort of many individuals in this process, queried as one client."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from privfed.engines.local import LocalDisclosure, proved
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry
from privfed.owner.cohort_gate import CohortGate
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.privacy.policy import Policy
from privfed.questions.query import Query


class CohortDisclosure(LocalDisclosure):
    """A cohort in this process, asked as one client."""

    def __init__(self, gate: CohortGate) -> None:
        super().__init__({gate.owner: gate})
        self.people = gate.people
        self._gate = gate

    @classmethod
    def of(  # noqa: PLR0913 - by name after two
        cls,
        records: Any,
        policy: Policy,
        *,
        queries: Iterable[type[Query]] = (),
        seed: int | None = None,
        ledger: str | Path | None = None,
        name: str = "cohort",
        study: str = "",
        block: int = 1,
        registry: Registry | None = None,
        key: bytes | None = None,
    ) -> CohortDisclosure:
        """Build a gate for a cohort's records; see :class:`CohortGate` and :class:`.Ledger`.

        Args:
            records: the individuals' records; has a length and a schema.
            seed: None for secure noise; an integer makes everything repeatable, marked as test
                noise.
            ledger: an SQLite file, with the cohort's secret next to it. None: both in memory.
        """
        noise = SecureNoise() if seed is None else TestNoise(seed)
        book = Ledger(ledger, name, key=key, registry=registry)
        gate = CohortGate(
            name,
            records,
            policy,
            book,
            noise=noise,
            queries=queries,
            study=study,
            block=block,
            secret=book.secret() if seed is None else f"test secret {seed}".encode(),
        )
        return cls(gate)

    def budget(self) -> pd.DataFrame:
        """See the base class, for the largest spending; also columns people and least (smallest spending)."""
        frame, gate = super().budget(), self._gate
        if np.isfinite(frame["spent"]).all():
            frame = frame.assign(**proved(gate, gate.most, 0))
        return frame.assign(people=self.people, least=gate.allowances()[:, 0].min())
