"""What a gate remembers: randomized responses are given once, and repeated free of charge.

Fresh noise on the same question could be averaged away. So the same question, asked again at no
greater epsilon, gets the very bits that left before: a function of an earlier release, which costs
nothing. A greater epsilon, or a question that is merely related, is another charge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from privfed.exchange.messages import Envelope, Failure, Release
from privfed.ledger import Charge, Ledger
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import Mechanism


@dataclass(frozen=True)
class Remembered:
    """An earlier release: what was spent on it, and where it stands in the ledger."""

    epsilon: Fraction
    principal: str
    request: str


class Repeats:
    """All releases of one ledger that may be repeated.

    Args:
        ledger: where they are.
        mechanisms: the gate's mechanisms; those that memoise are remembered.
        secure: whether the gate's noise is secure; test noise is never repeated as secure.
    """

    def __init__(self, ledger: Ledger, mechanisms: Iterable[Mechanism], secure: bool) -> None:
        self._ledger, self._secure = ledger, secure
        self._names = {mechanism.name for mechanism in mechanisms if mechanism.memoises}
        self._known: dict[str, Remembered] = {}
        if self._names:
            self._read()

    def _read(self) -> None:
        charged: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in self._ledger.entries():
            if entry.event in ("reserved", "drawn"):
                charged[entry.principal, entry.request] = entry.body
            elif entry.event == "released":
                body = charged.get((entry.principal, entry.request), {})
                if body.get("secure") is self._secure:
                    loss = Loss.from_dict(body["loss"])
                    self._add(body, body["query"], loss, entry.principal, entry.request)

    def _add(
        self, facts: dict[str, Any], query: str, loss: Loss, principal: str, request: str
    ) -> None:
        names = set(facts.get("mechanisms", {}).values())
        if not names or not names <= self._names or "remembers" in facts or loss.epsilon is None:
            return
        known = self._known.get(query)
        if known is None or known.epsilon < loss.epsilon:
            self._known[query] = Remembered(loss.epsilon, principal, request)

    def spare(self, charge: Charge) -> Charge:
        """The charge, or a free one if its question was answered at no smaller epsilon."""
        known = self._known.get(charge.query)
        asked = charge.loss.epsilon
        if known is None or asked is None or asked > known.epsilon:
            return charge
        facts = {**charge.facts, "remembers": [known.principal, known.request]}
        return replace(charge, loss=Loss.free(), facts=facts)

    def again(self, charge: Charge, owner: str) -> Envelope | None:
        """The earlier release under a spared charge's request, or none for any other charge."""
        if "remembers" not in charge.facts:
            return None
        entry = self._ledger.find(*charge.facts["remembers"])
        reply = None if entry is None else Envelope("release", entry.payload).open()
        if not isinstance(reply, Release):
            return Envelope.seal(Failure(owner, charge.request))
        return Envelope.seal(replace(reply, request=charge.request))

    def keep(self, charge: Charge, sealed: Envelope) -> None:
        """Remember a release, if its mechanisms do."""
        if sealed.status == "release":
            self._add(charge.facts, charge.query, charge.loss, charge.principal, charge.request)
