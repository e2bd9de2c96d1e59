"""Refusals in a ledger: one row each at first, then one for many, so that a server cannot fill the disk."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from privfed.errors import LedgerError
from privfed.exchange.messages import Head, Reason
from privfed.ledger.store import Entry, Store

#: Number of refusals of one study for one reason that have a row each; afterwards a row covers several, once they are 1
#: / PARTS of all, and when the ledger is closed.
EACH, PARTS = 64, 8


@dataclass
class _Refused:
    """Refusals of one study for one reason: all, those not in a row yet, up to two of their kinds, and the last."""

    total: int = 0
    unrecorded: int = 0
    kinds: set[str] = field(default_factory=set)
    last: tuple[str, str, dict[str, Any]] = field(default=("", "", {}))


class Refusals:
    """Counts the refusals of one opening of a ledger, and records them in its rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[tuple[str, Reason], _Refused] = {}

    def record(self, principal: str, request: str, reason: Reason, body: dict[str, Any]) -> Head:
        """Count a refusal and return the head, after its row if it has one."""
        with self._store.exclusive() as end:
            refused = self._counted.setdefault((str(body.get("study", "")), reason), _Refused())
            refused.total, refused.unrecorded = refused.total + 1, refused.unrecorded + 1
            if len(refused.kinds) < 2:  # the server chooses the names
                refused.kinds.add(str(body.get("kind", "")))
            refused.last = principal, request, {**body, "reason": reason}
            if refused.total <= EACH or refused.unrecorded * PARTS >= refused.total:
                return self._record(refused)
            return Head(end.seq, end.hash)

    def close(self) -> None:
        """Record all refusals that are not in a row yet."""
        with suppress(LedgerError):  # a full disk, or a lock by another process
            for refused in self._counted.values():
                if refused.unrecorded:
                    with self._store.exclusive():
                        self._record(refused)

    def _record(self, refused: _Refused) -> Head:
        """Append a row for the last refusal, without the kind if there were several."""
        principal, request, body = refused.last
        if refused.unrecorded > 1:
            body["count"] = refused.unrecorded
        if len(refused.kinds) > 1:
            body.pop("kind", None)
        refused.unrecorded, refused.kinds = 0, set()
        return self._store.append("refused", principal, request, body)


def refusals_in(entry: Entry) -> int:
    """Return how many refusals a row covers."""
    return int(entry.body.get("count", 1))
