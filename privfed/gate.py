"""The one exit of one data owner's one data set.

Order of events for each request, and no other: is it known and sane; was it answered before; what
would it cost; does that fit every budget; reserve the charge durably; only then read the data;
protect; make the bytes durable; send.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from privfed import wire
from privfed.errors import (
    LedgerError,
    PolicyError,
    QueryError,
    UnsupportedLoss,
    WireError,
)
from privfed.ledger import Charge, Ledger, Spent
from privfed.ledger.terms import terms_digest
from privfed.loss import Loss
from privfed.mechanism import Guarded
from privfed.memory import Memory
from privfed.named import accountant_of, kinds_of, mechanism_of
from privfed.noise import Noise, SecureNoise
from privfed.part import Part
from privfed.policy import Policy
from privfed.query import Query, View
from privfed.release import (
    Envelope,
    Failure,
    Reason,
    Refusal,
    Release,
    ReleasedPart,
    Reply,
    Request,
)
from privfed.schema import Schema
from privfed.shield import (
    Refused,
    Shield,
    as_declared,
    as_released,
    assign,
    capped,
    check_supported,
    described,
    is_local,
    sound,
)

__all__ = ["Gate", "Refused", "Shield", "assign", "open_reply"]

#: Largest request that is decoded, in bytes.
REQUEST_LIMIT = 64 * 2**20
#: Most failures of one kind: that a question failed can tell one bit, which no budget covers.
MOST_FAILURES = 3
#: Longest id, principal or kind, in characters: they are written into the ledger.
NAME_LIMIT = 200


class Gate:
    """Answers requests about one owner's records, under the owner's policy.

    Args:
        owner: the client's public name.
        records: the records, encoded to the schema.
        policy: what the owner allows.
        ledger: where everything is recorded.
        schema: the public data dictionary; the records' own unless given.
        noise: where noise comes from; secure unless a test injects its own.
        queries: query classes beyond the installed ones (Python callers need no registry).
        study: names the study in the ledger.
        secret: the client's durable secret for repeatable local randomness.
        data: public label of the data's version, for the ledger (never anything of their content).
        amend: the owner's choice to put this policy in force where another one is.
        block: how many equal charges to reserve at once, so that later ones need not wait for the
            disk; what is left of a block when the process ends counts as spent.
    """

    def __init__(
        self,
        owner: str,
        records: Any,
        policy: Policy,
        ledger: Ledger,
        *,
        schema: Schema | None = None,
        noise: Noise | None = None,
        queries: Iterable[type[Query]] = (),
        study: str = "",
        secret: bytes = b"",
        data: str = "",
        amend: bool = False,
        block: int = 1,
    ) -> None:
        self.owner, self.policy, self.ledger, self.study = owner, policy, ledger, study
        self.data, self.block = data, block
        self.schema: Schema = records.schema if schema is None else schema
        self.accountant = accountant_of(policy)
        self._noise = noise or SecureNoise()
        self._kinds = kinds_of(policy, queries)
        self._mechanisms = {
            kind: [mechanism_of(g) for g in guards] for kind, guards in policy.guards.items()
        }
        self._ceiling = None if policy.budget is None else self.accountant.ceiling(policy.budget)
        self._limits = [(x, self.accountant.ceiling(x.budget)) for x in policy.limits]
        self._terms = terms_digest(policy)
        self._view = View(capped(records, policy), self.schema, secret)
        #: What local effects kept for the owner; no question with an answer can read it.
        self.shelf: dict[str, Any] = {}
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()
        ledger.adopt(policy, study, amend)
        self._memory = Memory(ledger, chain(*self._mechanisms.values()), self._noise.secure)

    def serve(self, data: bytes) -> bytes:
        """Answer an encoded request with an encoded envelope; never raises, never leaks a text."""
        try:
            request = wire.decode(data, Request, REQUEST_LIMIT)
        except WireError:
            return wire.encode(self._refuse(Request("", "", b""), Reason.UNREADABLE))
        return wire.encode(self.answer(request))

    def answer(self, request: Request) -> Envelope:
        """Answer one request; refusals and failures are values."""
        with self._lock:
            try:
                _check_names(request)
                again = self._answered(request)
                return again if again is not None else self._answer(request)
            except Refused as refused:
                return self._refuse(request, refused.reason, refused.why)
            except LedgerError:
                return self._unrecorded(request)
            except Exception:  # a plugin's own fault while pricing, before any data are read
                return self._refuse(request, Reason.UNSUPPORTED)

    def _answered(self, request: Request) -> Envelope | None:
        """Give the stored bytes of a request that was answered before."""
        entry = self.ledger.find(request.principal, request.id)
        if entry is None:
            return None
        if entry.body["query"] != request.digest:
            raise Refused(Reason.MISMATCH)
        if entry.event not in ("released", "failed"):
            raise Refused(Reason.INTERRUPTED)
        status = "release" if entry.event == "released" else "failure"
        return Envelope(status, entry.payload, self.ledger.sign(entry.head))

    def dry_run(self, request: Request) -> Reason | None:
        """Why a request would be refused now, or none: nothing is read, charged or recorded."""
        with self._lock:
            try:
                if self._answered(request) is not None:
                    return None
                *_, charge = self._prepare(request)
                return self.ledger.would_refuse(
                    charge, self.accountant, lambda spent: self._over(spent, charge)
                )
            except Refused as refused:
                return refused.reason
            except LedgerError:
                return Reason.LEDGER
            except Exception:
                return Reason.UNSUPPORTED

    def _prepare(self, request: Request) -> tuple[Query, list[Shield], Charge]:
        query = self._decode(request)
        if self._failures[request.kind] >= MOST_FAILURES:
            raise Refused(Reason.FAULTY)
        shields = self._shields(query, self._parts(query), request.spend)
        return query, shields, self._memory.spare(self._charge(request, shields))

    def _answer(self, request: Request) -> Envelope:
        query, shields, charge = self._prepare(request)
        refused = self.ledger.reserve(
            charge,
            self.accountant,
            lambda spent: self._over(spent, charge),
            request.fields,
            self.block,
        )
        if refused is not None:
            return Envelope.seal(Refusal(self.owner, request.id, refused), self.ledger.head)
        again = self._memory.again(charge, self.owner)
        sealed = self._evaluate(request, query, shields) if again is None else again
        record = self.ledger.release if sealed.status == "release" else self.ledger.fail
        head = record(charge, sealed.body)
        self._memory.keep(charge, sealed)
        return Envelope(sealed.status, sealed.body, head)

    # --- before the data are read --------------------------------------------------------------

    def _decode(self, request: Request) -> Query:
        kind = self._kinds.get(request.kind)
        if kind is None:
            raise Refused(Reason.UNKNOWN_KIND)
        try:
            query = kind.from_fields(request.fields)
            canonical = wire.encode(query) == request.fields
        except Exception:
            raise Refused(Reason.MALFORMED) from None
        if not canonical:
            raise Refused(Reason.MALFORMED)
        return query

    def _parts(self, query: Query) -> Mapping[str, Part]:
        try:
            parts = query.parts(self.schema)
        except QueryError as error:
            known = error.reason in set(Reason)
            raise Refused(Reason(error.reason) if known else Reason.MALFORMED) from None
        except Exception:
            raise Refused(Reason.MALFORMED) from None
        if sum(part.size for part in parts.values()) > self.policy.cells:
            raise Refused(Reason.OVERSIZED)
        return parts

    def _shields(
        self, query: Query, parts: Mapping[str, Part], proposed: Fraction | None
    ) -> list[Shield]:
        guards = self.policy.guards[query.kind]
        shields = []
        for guard, mechanism, names in zip(
            guards, self._mechanisms[query.kind], assign(guards, parts), strict=True
        ):
            if names:
                group = {name: self._guarded(parts[name]) for name in names}
                shields.append(Shield(mechanism, group, guard.amount(proposed)))
        for shield in shields:
            check_supported(shield)
        return shields

    def _guarded(self, part: Part) -> Guarded:
        if part.sensitivity is None:
            return Guarded(part, None)
        policy = self.policy
        try:
            return Guarded(part, part.sensitivity.under(policy.unit, policy.relation, policy.cap))
        except PolicyError:  # no finite bound for the policy's unit
            return Guarded(part, None)

    def _charge(self, request: Request, shields: list[Shield]) -> Charge:
        losses = [sound(shield) for shield in shields]
        loss = losses[0] if len(losses) == 1 else sum(losses, Loss.free())
        try:
            self.accountant.cost(loss)
        except (UnsupportedLoss, ValueError, ArithmeticError):
            raise Refused(Reason.UNSUPPORTED) from None
        model = "local" if is_local(shields) else "central"
        facts = {
            "relation": self._relation(model),
            "unit": self.policy.unit,
            "cap": self.policy.cap,
            "data": self.data,
            "schedule": "fixed" if request.spend is None else "proposed",
            **described(shields, loss),
        }
        return Charge(
            request.principal,
            request.id,
            request.kind,
            request.digest,
            loss,
            self.study,
            self.policy.digest,
            self._noise.secure,
            facts,
            self.owner,
            request.round,
            model,
            self._terms,
        )

    def _relation(self, model: str) -> str:
        """Local noise covers any input of an individual; over other units, what the policy says."""
        anything = model == "local" and self.policy.unit == "individual"
        return "any-input" if anything else self.policy.relation

    def _over(self, spent: Spent, charge: Charge) -> Reason | None:
        """Hold one more charge against every limit of this policy: times, budget, sub-budgets."""
        limits = [g.times for g in self.policy.guards[charge.kind] if g.times is not None]
        if limits and spent.times.get(charge.kind, 0) >= min(limits):
            return Reason.TIMES
        return None if self._affordable(spent, charge) else Reason.BUDGET

    def _affordable(self, spent: Spent, charge: Charge) -> bool:
        after = spent.after(self.accountant.cost(charge.loss), charge.kind, 1)
        held = [(after.total, self._ceiling)] if self._ceiling is not None else []
        held += [
            (after.within[limit.scope(spent.aspects)], ceiling)
            for limit, ceiling in self._limits
            if limit.applies(spent.aspects)
        ]
        return all(self.accountant.fits(total, ceiling) for total, ceiling in held)

    # --- after the charge is durable -----------------------------------------------------------

    def _evaluate(self, request: Request, query: Query, shields: list[Shield]) -> Envelope:
        """Give the sealed release, or one constant failure whatever went wrong."""
        if not shields:
            return self._take_effect(request, query)
        try:
            exact = query.evaluate(self._view)
            released: dict[str, ReleasedPart] = {}
            for shield in shields:
                released |= self._protect(query, exact, shield)
            return self._sealed(request, released)
        except Exception:
            if not self._failures[request.kind]:
                self._failures[request.kind] = _failed(self.ledger, request.kind)
            self._failures[request.kind] += 1
            return Envelope.seal(Failure(self.owner, request.id))

    def _take_effect(self, request: Request, query: Query) -> Envelope:
        """Let a query without parts work on the shelf; its acknowledgement is always the same."""
        try:
            query.evaluate(replace(self._view, shelf=self.shelf))
        except Exception:
            self.shelf["failed"] = query.kind
        return self._sealed(request, {})

    def _sealed(self, request: Request, released: dict[str, ReleasedPart]) -> Envelope:
        secure = self._noise.secure
        return Envelope.seal(
            Release(self.owner, request.id, request.kind, request.digest, released, secure)
        )

    def _protect(
        self, query: Query, exact: Mapping[str, np.ndarray], shield: Shield
    ) -> dict[str, ReleasedPart]:
        mine = {
            name: as_declared(exact[name], guarded.part) for name, guarded in shield.group.items()
        }
        reveals = query.reveals(exact, self._view, shield.mechanism.strict)
        protected = shield.mechanism.protect(mine, shield.group, shield.spend, self._noise, reveals)
        laws = shield.mechanism.noised(shield.group, shield.spend)
        return {
            name: as_released(protected[name], guarded.part, shield.mechanism.name, laws.get(name))
            for name, guarded in shield.group.items()
        }

    def _refuse(self, request: Request, reason: Reason, why: str = "") -> Envelope:
        names = (request.principal, request.id, request.kind)
        principal, name, kind = (text[:NAME_LIMIT] for text in names)
        body = {"kind": kind, "query": request.digest, "study": self.study}
        if why:
            body["why"] = why
        try:
            head = self.ledger.refuse(principal, name, reason, body)
        except Exception:
            return self._unrecorded(request)
        return Envelope.seal(Refusal(self.owner, name, reason), head)

    def _unrecorded(self, request: Request) -> Envelope:
        return Envelope.seal(Refusal(self.owner, request.id[:NAME_LIMIT], Reason.LEDGER))


def _failed(ledger: Ledger, kind: str) -> int:
    """How many questions of a kind came to nothing in earlier processes; reads every row."""
    asked: dict[tuple[str, str], str] = {}
    failed = 0
    for entry in ledger.entries():
        who = entry.principal, entry.request
        if entry.event in ("reserved", "drawn"):
            asked[who] = entry.body["kind"]
        failed += entry.event == "failed" and asked.get(who) == kind
    return failed


def _check_names(request: Request) -> None:
    names = (request.id, request.principal, request.kind, request.round)
    if not request.id or max(map(len, names)) > NAME_LIMIT:
        raise Refused(Reason.MALFORMED)


def open_reply(data: bytes) -> Reply:
    """Read an encoded envelope's reply."""
    return wire.decode(data, Envelope).open()
