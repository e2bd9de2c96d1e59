"""A gate for many individuals, with one vector and one ledger row per query, and a budget for each.

It simulates many phones in one process. A query is charged to the individuals it queries, who are
public, and refused as a whole if it exceeds any of their budgets.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from privfed.errors import InputError, LedgerError, PolicyError, QueryError
from privfed.exchange.messages import Head, Reason, Request
from privfed.ledger import Charge, Entry, Ledger, Reserved, Spent
from privfed.ledger.allowances import BEYOND, UNITS, Allowances, ceiling_in_units, in_units
from privfed.ledger.charge import NOTHING
from privfed.owner.gate import Gate
from privfed.owner.guards import Quote, Refused
from privfed.privacy.accountant import Amount
from privfed.privacy.policy import Policy
from privfed.questions.part import Part
from privfed.questions.query import CohortQuery, Query


class CohortGate(Gate):
    """Answers for a cohort; see :class:`privfed.owner.gate.Gate` for the arguments.

    Only a :class:`CohortQuery` is answered. The default secret is stored next to the ledger's file (for a ledger in
    memory, in memory). Budgets are a function of the ledger's rows. Even without a budget, no individual may be charged
    :data:`.BEYOND`.

    Raises:
        InputError: an empty cohort, or charges reserved in blocks, which are charged before it is known whom
            they query.
        PolicyError: sub-budgets (``limit``).
        LedgerError: the ledger holds budgets of other individuals, or in another order.
    """

    def __init__(
        self, owner: str, records: Any, policy: Policy, ledger: Ledger, **settings: Any
    ) -> None:
        self.people = len(records)
        if not settings.get("secret"):
            settings["secret"] = ledger.secret()
        #: Identifies the individuals and their order; None for records without names. Keyed by the owner's secret, as a
        #: plain hash of few known names would reveal the others.
        roster = str(getattr(records, "roster", "")).encode()
        self.roster = hmac.new(settings["secret"], roster, "sha256").hexdigest() if roster else ""
        if self.people < 1:
            raise InputError("a cohort needs at least one individual; this one is empty")
        if settings.get("block", 1) != 1:
            raise InputError("a cohort charges each question to those it asks; leave block at 1")
        if policy.limits:
            raise PolicyError(
                "a cohort keeps one budget for each individual and no sub-budgets; leave limit out "
                "of its policy"
            )
        super().__init__(owner, records, policy, ledger, **settings)
        self._limit = ceiling_in_units(self._ceiling or [BEYOND] * len(self.accountant.components))
        self._seen, self._allowances = NOTHING, self._unspent()
        self._catch_up(ledger.head)

    def allowances(self) -> np.ndarray:
        """Return each individual's spending, shape (people, components), in the accountant's units."""
        return np.asarray(self._allowances.spent / UNITS)

    @property
    def most(self) -> Amount:
        """Return the largest total of any individual."""
        return self._allowances.most

    def _prepare(self, request: Request) -> tuple[Query, Quote, Charge]:
        query = self._decode(request)
        if not isinstance(query, CohortQuery):
            raise Refused(Reason.UNSUPPORTED)
        if not query.fits(self._view.records):
            raise Refused(Reason.MALFORMED)
        try:
            queried = query.asked(self.people)
        except QueryError:
            raise Refused(Reason.MALFORMED) from None
        if not _distinct(queried, self.people):
            raise Refused(Reason.MALFORMED)
        self._number = len(queried)
        self._asked = slice(None) if self._number == self.people else queried
        return super()._prepare(request)

    def _parts(self, query: Query) -> Mapping[str, Part]:
        """Return a query's declared parts, checked to have one column per individual it queries and charges."""
        parts = super()._parts(query)
        axis_sizes = (dict(zip(part.axes, part.shape, strict=True)) for part in parts.values())
        if any(sizes.get("individual", self._number) != self._number for sizes in axis_sizes):
            raise Refused(Reason.MALFORMED)
        return parts

    def _charge(self, request: Request, quote: Quote) -> Charge:
        """Return the charge with the numbers of individuals queried and in the cohort, for the ledger."""
        charge = super()._charge(request, quote)
        cohort_facts = {"asked": self._number, "people": self.people, "roster": self.roster}
        return replace(charge, facts={**charge.facts, **cohort_facts})

    def _affordable(self, after: Spent, charge: Charge) -> bool:
        self._catch_up(after.head)
        self._units = in_units(self.accountant.cost(charge.loss))
        scope = self._limit, charge.study, after.blocks
        return self._allowances.fits(self._asked, self._units, *scope)

    def _reserved(self, charge: Charge, reserved: Reserved) -> None:
        """Count a reserved charge; its row follows the head that :meth:`_affordable` had read up to."""
        if reserved.refused is None:
            self._allowances.charge(self._asked, self._units, charge.study)
            self._seen = reserved.head

    def _check_roster(self, entry: Entry) -> None:
        """Check that the ledger has the same individuals in the same order, as budgets are by position."""
        people, roster = entry.body.get("people"), entry.body.get("roster", "")
        if people != self.people or roster != self.roster:
            raise LedgerError(
                f"{self.ledger.path or 'the ledger'}: holds the budgets of another cohort"
                f"{'' if people is None else f' of {people} individuals'}; give the same ones in the "
                "same order, or give other people a ledger of their own"
            )

    def _unspent(self) -> Allowances:
        return Allowances(self.people, len(self.accountant.components))

    def _catch_up(self, head: Head) -> None:
        """Read the charges between this gate's head and the ledger's."""
        if head == self._seen:
            return
        if self._seen.seq and not self.ledger.passes(self._seen):  # counted charges were undone
            self._seen, self._allowances = NOTHING, self._unspent()
        for entry in self.ledger.entries(self._seen.seq, events=("reserved",)):
            self._check_roster(entry)
            self._allowances.follow(entry, self.accountant, self._kinds)
        self._seen = head


def _distinct(indices: np.ndarray, people: int) -> bool:
    """Whether positions are distinct, so that each individual is charged for every answer."""
    in_range = len(indices) == 0 or (indices.min() >= 0 and indices.max() < people)
    return bool(in_range) and int(np.bincount(indices, minlength=1).max()) <= 1
