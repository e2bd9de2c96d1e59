"""Exact spending of each individual of a cohort: a query is charged only to those it queries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from privfed.errors import LedgerError, PluginError, QueryError, WireError
from privfed.ledger.store import Entry
from privfed.ledger.study_blocks import StudyBlock
from privfed.privacy.accountant import Accountant, Amount, plus
from privfed.privacy.loss import Loss
from privfed.questions import plugins
from privfed.questions.query import CohortQuery, Query

#: An individual's spending is counted in multiples of 1 / UNITS, as all proposed spends are.
UNITS = 10**12
#: More than any individual is charged, in units: an amount of 2.3 million, above any budget. Larger amounts are reduced
#: to it, so that 64 bits hold a total, reservations and one more charge.
BEYOND = 2**61


class Allowances:
    """Each individual's spending, in total and by study, in multiples of 1 / UNITS, rounded up; int64."""

    def __init__(self, people: int, components: int) -> None:
        self.spent = np.zeros((people, components), dtype=np.int64)
        self._by_study: dict[str, np.ndarray] = {}

    @classmethod
    def of(cls, entries: Iterable[Entry], accountant: Accountant) -> Allowances | None:
        """Return the sums of a ledger's charges, or None unless they are a cohort's."""
        allowances = None
        for entry in entries:
            people = people_of(entry)
            if people is None:
                return None
            allowances = allowances or cls(people, len(accountant.components))
            allowances.follow(entry, accountant)
        return allowances

    def charge(self, queried: np.ndarray | slice, units: np.ndarray, study: str = "") -> None:
        """Add an amount to the individuals whom a study queried (LedgerError: :data:`BEYOND` is reached)."""
        if not (self.spent[queried] < BEYOND - units).all():
            raise LedgerError(
                f"an individual is charged more than {BEYOND // UNITS:,} in all, which no gate does and no "
                "budget allows; verify the ledger, and restore it from a copy"
            )
        self.spent[queried] += units
        self.by(study)[queried] += units

    def by(self, study: str) -> np.ndarray:
        """Return one study's charges, shape (people, components)."""
        return self._by_study.setdefault(study, np.zeros_like(self.spent))

    def reserved(self, blocks: Iterable[StudyBlock]) -> np.ndarray:
        """Return the studies' reserved and uncharged amounts of each individual's budget, same shape."""
        total = np.zeros_like(self.spent)
        for block in blocks:
            if not block.sealed:
                total += np.maximum(in_units(block.share) - self.by(block.study), 0)
                total = np.minimum(total, BEYOND)
        return total

    def follow(
        self, entry: Entry, accountant: Accountant, kinds: Mapping[str, type[Query]] | None = None
    ) -> None:
        """Add a ledger's row: a charge to the individuals it queried, a block to all."""
        if entry.event not in ("reserved", "block"):
            return
        cost = accountant.cost(Loss.from_dict(entry.body["loss"]))
        count = entry.body["count"] if entry.event == "block" else 1
        units = in_units(plus(cost, cost, count - 1))
        self.charge(asked_in(entry, kinds), units, str(entry.body.get("study", "")))

    def fits(
        self,
        queried: np.ndarray | slice,
        units: np.ndarray,
        ceiling: np.ndarray,
        study: str = "",
        blocks: Mapping[str, StudyBlock] = MappingProxyType({}),
    ) -> bool:
        """Whether a study's charge fits the ceiling less others' reservations, and its share, for all queried."""
        others = [block for name, block in blocks.items() if name != study]
        within = (self.spent + self.reserved(others))[queried] <= ceiling - units
        if study in blocks:
            within_block = self.by(study)[queried] <= ceiling_in_units(blocks[study].share) - units
            within &= within_block & (not blocks[study].sealed)
        return bool(within.all())

    def most_of(self, study: str) -> Amount:
        """Return the largest amount that a study charged any individual, by component."""
        return _most(self.by(study))

    def most_with(self, blocks: Iterable[StudyBlock]) -> Amount:
        """Return the largest amount spent or reserved by any individual, by component."""
        return _most(self.spent + self.reserved(blocks))

    @property
    def most(self) -> Amount:
        """The largest total of any individual, by component."""
        return _most(self.spent)


def _most(units: np.ndarray) -> Amount:
    return tuple(Fraction(int(maximum), UNITS) for maximum in units.max(axis=0))


def in_units(amount: Sequence[Fraction]) -> np.ndarray:
    """Return an amount in units, rounded up, at most :data:`BEYOND`, shape (components,)."""
    return np.array([min(BEYOND, math.ceil(part * UNITS)) for part in amount], dtype=np.int64)


def ceiling_in_units(ceiling: Sequence[Fraction | int]) -> np.ndarray:
    """Return a ceiling in units, rounded down, below :data:`BEYOND`, shape (components,)."""
    return np.array([min(BEYOND - 1, math.floor(part * UNITS)) for part in ceiling], dtype=np.int64)


def people_of(entry: Entry) -> int | None:
    """Return the size of the charged cohort; None if there is no cohort."""
    people = entry.body.get("people")
    return people if isinstance(people, int) and people > 0 else None


def asked_in(entry: Entry, kinds: Mapping[str, type[Query]] | None = None) -> np.ndarray | slice:
    """Return whom a cohort's row charged: those whom its query queries; all, if its class is unknown."""
    kind, people = entry.body["kind"], people_of(entry)
    try:
        class_: type[Query] = (kinds or {}).get(kind) or plugins.load("queries", kind)
        query = class_.from_fields(entry.payload)
        if isinstance(query, CohortQuery) and people is not None:
            return query.asked(people)
        return slice(None)
    except (PluginError, WireError, QueryError):
        return slice(None)
