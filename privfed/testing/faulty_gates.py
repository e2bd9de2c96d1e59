"""Gates with planted faults: test doubles that an audit must convict. Never use them.

Each charges what an honest gate would charge, and lets out more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from privfed.exchange.messages import Envelope, Request
from privfed.ledger import Entry, Ledger
from privfed.owner.gate import Gate
from privfed.owner.guards import capped
from privfed.privacy.policy import Policy


class LaxCapGate(Gate):
    """Keeps one record more of each person than the cap on which its charge stands."""

    def __init__(
        self, owner: str, records: Any, policy: Policy, ledger: Ledger, **settings: Any
    ) -> None:
        super().__init__(owner, records, policy, ledger, **settings)
        lax = replace(policy, cap=(policy.cap or 0) + 1)
        self._view = replace(self._view, records=capped(records, lax))


class AnewGate(Gate):
    """Answers a retry with noise drawn anew, and charges nothing for it."""

    def _again(self, request: Request, entry: Entry) -> Envelope:
        query, quote, _ = self._prepare(request)
        return self._evaluate(request, query, quote)
