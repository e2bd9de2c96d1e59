"""Releases that are repeated at no cost: randomized responses to the same query."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from privfed.exchange.messages import Envelope, Failure, Release
from privfed.ledger import Charge, Entry, Ledger
from privfed.privacy.limit import Limit
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import Mechanism


@dataclass(frozen=True)
class MemoizedRelease:
    """An earlier release: its spend, its row in the ledger, and the limits that it was charged to."""

    epsilon: Fraction
    principal: str
    request: str
    scopes: frozenset[str]


class ReleaseCache:
    """All releases of one ledger that may be repeated, that is, randomized responses.

    Fresh noise on the same query could be averaged out. So the same query at no greater epsilon gets the stored bits, a
    function of an earlier release, which costs nothing. A greater epsilon, or a related query, is charged. So is a
    query that counts against a limit that the earlier release did not: one principal, study or round cannot take what
    another paid for. Test noise is never repeated as ``secure``.
    """

    def __init__(
        self,
        ledger: Ledger,
        mechanisms: Iterable[Mechanism],
        secure: bool,
        limits: Iterable[Limit] = (),
    ) -> None:
        self._ledger, self._secure, self._limits = ledger, secure, tuple(limits)
        self._names = {mechanism.name for mechanism in mechanisms if mechanism.memoises}
        self._known: dict[str, list[MemoizedRelease]] = {}
        if self._names:
            self._read()

    def _read(self) -> None:
        charged: dict[tuple[str, str], Entry] = {}
        for entry in self._ledger.entries():
            who = entry.principal, entry.request
            if entry.event in ("reserved", "drawn"):
                charged[who] = entry
            elif entry.event == "released" and who in charged:
                body, time = charged[who].body, charged[who].time
                if body.get("secure") is self._secure:
                    aspects = {**body, "principal": entry.principal, "month": time[:7]}
                    self._add(body, body["query"], Loss.from_dict(body["loss"]), aspects, who)

    def _add(
        self,
        facts: dict[str, Any],
        query: str,
        loss: Loss,
        aspects: Mapping[str, str],
        who: tuple[str, str],
    ) -> None:
        names = set(facts.get("mechanisms", {}).values())
        if not names or not names <= self._names or "remembers" in facts or loss.epsilon is None:
            return
        known = MemoizedRelease(loss.epsilon, *who, self._scopes(aspects))
        self._known.setdefault(query, []).append(known)

    def _scopes(self, aspects: Mapping[str, str]) -> frozenset[str]:
        """Return the scopes of limits that a charge with these aspects counts towards."""
        return frozenset(each.scope(aspects) for each in self._limits if each.applies(aspects))

    def spare(self, charge: Charge) -> Charge:
        """Return the charge, or a free one if its query was answered at no smaller epsilon."""
        epsilon, every = charge.loss.epsilon, self._known.get(charge.query)
        if not every or epsilon is None:
            return charge
        counts = self._scopes(charge.aspects(_now()))
        fit = [known for known in every if epsilon <= known.epsilon and counts <= known.scopes]
        if not fit:
            return charge
        known = max(fit, key=lambda each: each.epsilon)
        facts = {**charge.facts, "remembers": [known.principal, known.request]}
        return replace(charge, loss=Loss.free(), facts=facts)

    def again(self, charge: Charge, owner: str) -> Envelope | None:
        """Return the earlier release, under the request of a spared charge; None for other charges."""
        if "remembers" not in charge.facts:
            return None
        entry = self._ledger.find(*charge.facts["remembers"])
        reply = None if entry is None else Envelope("release", entry.payload).open()
        if not isinstance(reply, Release):
            return Envelope.seal(Failure(owner, charge.request))
        return Envelope.seal(replace(reply, request=charge.request))

    def keep(self, charge: Charge, sealed: Envelope) -> None:
        """Store a release if its mechanisms memoise."""
        if sealed.status == "release":
            who = charge.principal, charge.request
            self._add(charge.facts, charge.query, charge.loss, charge.aspects(_now()), who)


def _now() -> str:
    """Return the current month, as in rows."""
    return datetime.now(UTC).isoformat()
