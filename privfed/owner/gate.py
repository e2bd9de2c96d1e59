"""The gate: the only way out of one data owner's one data set.

For each request, in this order: check it; resend if it was answered before; price it; check every
budget and reserve the charge durably; only then read the data; protect; store the bytes; send.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from privfed.errors import InputError, LedgerError, QueryError, SchemaError, WireError
from privfed.exchange.messages import (
    DryRun,
    DryRunReply,
    Envelope,
    Failure,
    Head,
    Reason,
    Refusal,
    Release,
    ReleasedPart,
    Reply,
    Request,
)
from privfed.exchange.survivors import STEPS
from privfed.ledger import Charge, Entry, Ledger, Reserved, Spent
from privfed.ledger.policy_constraints import terms_digest
from privfed.ledger.secret import new_secret
from privfed.owner.guards import Quote, Refused, as_released, assign, capped, guards_of
from privfed.owner.local_store import LocalStore
from privfed.owner.masking import MaskingKey, view_of
from privfed.owner.noise_monitor import NoiseMonitor
from privfed.owner.release_cache import ReleaseCache
from privfed.owner.unmasking import Unmasking, new_seed
from privfed.privacy.accountant import Accountant
from privfed.privacy.loss import Loss
from privfed.privacy.masked_sums import AnyProtection
from privfed.privacy.mechanism import Cells
from privfed.privacy.noise import Noise, SecureNoise
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import accountant_of, kinds_of
from privfed.questions import wire
from privfed.questions.part import Part, PartType, as_declared
from privfed.questions.query import LocalEffect, LocalView, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema

__all__ = ["Gate", "Refused", "assign", "open_reply"]

REQUEST_LIMIT = 64 * 2**20  #: Maximum size of a decoded request, in bytes
#: Maximum failures of one unprotected kind, ever, as a failure can disclose more than the answers. After one failure of
#: a protected query the gate closes: see :meth:`Gate.close_after`.
MOST_FAILURES = 3
#: Maximum local effects of one kind in a study: they cost nothing, and each takes disk space of the owner's.
MOST_EFFECTS = 1000
#: Maximum memory for evaluating a query, as it declares, in bytes, without the records.
MOST_MEMORY = 2**32
#: Maximum bytes of an answer's cells: a larger reply would be charged, but not fit into a message.
MOST_BYTES = wire.LIMIT - 2**20
#: Type of reply by the event that recorded it.
_SEALED = {"released": "release", "failed": "failure"}
_Known = Callable[[], object | None]  #: Returns a value, None if it was freed
_NOTHING: tuple[_Known, _Known, Mapping[str, Part]] = (lambda: None, lambda: None, {})
NAME_LIMIT = 200  #: Maximum length of id, principal or kind, which the ledger stores


class Gate:
    """Answers requests about one owner's records, under the owner's policy.

    Args:
        owner: the client's public name.
        records: the records, encoded to the schema.
        policy: what the owner allows, and the budget.
        ledger: the ledger that records everything.
        schema: the public data dictionary, if the records have none.
        noise: the source of noise; default secure, others for tests.
        queries: query classes beyond the installed ones.
        study: the study's name in the ledger.
        secret: the client's durable secret for repeatable local randomness; default random.
        data: public label of the data's version, for the ledger.
        amend: whether the owner chooses to replace a different policy in force.
        block: how many equal charges to reserve at once; unused ones count as spent when the process ends.
        held_out: records of the same data set, used only by queries of a model's errors; default none.
            One ledger composes the queries of both.
    """

    def __init__(  # noqa: PLR0913 - by name after four
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
        held_out: Records | None = None,
    ) -> None:
        self.owner, self.policy, self.ledger, self.study = owner, policy, ledger, study
        self.data, self.block = data, block
        self.schema = _schema_of(records, schema)
        self.accountant = accountant_of(policy)
        self._noise = noise or SecureNoise()
        self._kinds = kinds_of(policy, queries)
        self._guards = guards_of(policy, self.accountant)
        self._ceiling = None if policy.budget is None else self.accountant.ceiling(policy.budget)
        self._limits = [(x, self.accountant.ceiling(x.budget)) for x in policy.limits]
        self._terms = terms_digest(policy)
        secret = secret or new_secret()
        self._view = View(capped(records, policy), self.schema, secret)
        if held_out is None and isinstance(records, Records):
            held_out = records.take(np.arange(0))
        self._held_out = replace(self._view, records=capped(held_out, policy), cache={})
        if policy.masked is not None:
            self._masking = MaskingKey(secret)  #: Masks this owner's shares of sums
            self._masking.check(policy.masked.keys, owner)
            policy.masked.check_unmasked(self.accountant, policy.budget)
            self._unmasking = Unmasking(owner, policy.masked, self._masking, ledger)
        #: Storage of local effects; queries with answers have no access.
        self.shelf = LocalStore.beside(ledger.path, ledger.dataset)
        if any(issubclass(kind, LocalEffect) for kind in self._kinds.values()):
            self.shelf.open()
        #: Monitor of this gate's noise; for the owner only.
        self.noise_monitor = NoiseMonitor(ledger.path, ledger.dataset, secret)
        self._kept: dict[Any, Any] = {}
        #: For the owner only: evaluation failures by kind in this process, why the ledger could not be written at the
        #: last such request,
        self.faults, self.ledger_fault = Counter[str](), ""
        #: and failures of protected queries by kind, over restarts, which no epsilon covers: see :meth:`reopen`.
        self.breaches: Counter[str] = Counter(self.shelf.faults)
        self._lock, self._lasts = threading.Lock(), ledger.path is not None
        ledger.adopt(policy, study, amend=amend)
        if self.schema.inferred:
            _record_inferred(ledger, self.accountant, owner, self.schema, study)
        mechanisms = [each for guards in self._guards.mechanisms.values() for each in guards]
        self._cache = (
            ReleaseCache(ledger, mechanisms, self._noise.secure, policy.limits)
            if any(mechanism.memoises for mechanism in mechanisms)
            else None
        )

    @property
    def secure(self) -> bool:
        """Whether the noise is secure; test noise does not protect."""
        return self._noise.secure

    def serve(self, data: bytes, *, principal: str = "", round: str = "") -> bytes:
        """Answer an encoded request or dry run with an encoded envelope; never raises.

        ``principal`` and ``round``, if the owner's channel knows them, override the request's.
        """
        message = _read(data)
        if message is None:
            refused = self._refuse(Request("", "", b"", principal), Reason.UNREADABLE)
            return wire.encode(self.ledger.seal(refused))
        request = message.about if isinstance(message, DryRun) else message
        request = replace(
            request, principal=principal or request.principal, round=round or request.round
        )
        if isinstance(message, DryRun):
            return wire.encode(self.offer(DryRun(request)))
        return wire.encode(self.answer(request))

    def offer(self, inquiry: DryRun) -> Envelope:
        """Return whether a query would be answered now; nothing is read, charged or recorded."""
        about = inquiry.about
        reply = DryRunReply(self.owner, about.id[:NAME_LIMIT], self.dry_run(about))
        return self.ledger.seal(Envelope.seal(reply))

    def answer(self, request: Request) -> Envelope:
        """Answer one request; refusals and failures are returned, not raised."""
        with self._lock:
            return self.ledger.seal(self._reply(request))

    def _reply(self, request: Request) -> Envelope:
        try:
            _check_names(request)
            self._check_seen(request)
            if request.kind in STEPS and self.policy.masked is not None:
                return self._unmask(request)
            stored = self._stored(request)
            return self._answer(request) if stored is None else self._again(request, stored)
        except Refused as refused:
            return self._refuse(request, refused.reason, refused.why)
        except LedgerError as error:
            return self._unrecorded(request, error)
        except Exception as error:  # a plugin's error while pricing, before any data are read
            return self._refuse(request, Reason.UNSUPPORTED, _raised(error))

    def _check_seen(self, request: Request) -> None:
        """Check that the ledger contains the server's last head, which an older copy does not."""
        try:
            passes = not request.seen or self.ledger.passes(Head.parse(request.seen))
        except InputError:
            raise Refused(Reason.MALFORMED) from None
        if not passes:
            raise Refused(Reason.REWRITTEN)

    def _stored(self, request: Request) -> Entry | None:
        """Return the last row of a request that was charged before, which is answered again."""
        entry = self.ledger.find(request.principal, request.id)
        if entry is None:
            return None
        if entry.body["query"] != request.digest:
            raise Refused(Reason.MISMATCH)
        if entry.event not in _SEALED and not self._finishes(request, entry):
            raise Refused(Reason.INTERRUPTED)
        return entry

    def _finishes(self, request: Request, entry: Entry) -> bool:
        """Whether an interrupted request may be completed under its existing charge.

        Bytes that were not durable were never sent, so an answer with noise drawn anew is the only one to that charge.
        The charge must be the same now, of whatever version of the policy, and its study not have ended; a local effect
        releases nothing.
        """
        if issubclass(self._kinds.get(request.kind, Query), LocalEffect):
            return True
        *_, charge = self._prepare(request)
        then = {name: entry.body.get(name) for name in ("policy", "round")}
        if entry.body != entry.body | charge.body() | then:
            return False
        free = replace(charge, loss=Loss.free())
        return self.ledger.would_refuse(free, self.accountant, lambda _: None) is None

    def _again(self, request: Request, entry: Entry) -> Envelope:
        """Return the stored bytes, or complete an interrupted request."""
        if entry.event in _SEALED:
            return Envelope(_SEALED[entry.event], entry.payload, self.ledger.sign(entry.head))
        return self._answer(request, charged=True)

    def dry_run(self, request: Request) -> Reason | None:
        """Return why a request would be refused now, or None; nothing is read, charged or recorded."""
        with self._lock:
            try:
                _check_names(request)
                if self._stored(request) is not None:
                    return None
                *_, charge = self._prepare(request)
                return self.ledger.would_refuse(
                    charge, self.accountant, lambda after: self._over(after, charge)
                )
            except Refused as refused:
                return refused.reason
            except LedgerError:
                return Reason.LEDGER
            except Exception:
                return Reason.UNSUPPORTED

    def _prepare(self, request: Request) -> tuple[Query, Quote, Charge]:
        if self.breaches or (self._lasts and self.shelf.faults):  # in another gate of the ledger
            raise Refused(Reason.CLOSED)
        query = self._decode(request)
        if self.ledger.failures(request.kind) >= MOST_FAILURES:
            raise Refused(Reason.FAULTY)
        quote = self._guards.quote(type(query), self._parts(query), request.spend)
        charge = self._charge(request, quote)
        return query, quote, charge if self._cache is None else self._cache.spare(charge)

    def _answer(self, request: Request, *, charged: bool = False) -> Envelope:
        query, quote, charge = self._prepare(request)
        if not charged:
            reserved = self.ledger.reserve(
                charge,
                self.accountant,
                lambda after: self._over(after, charge),
                request.fields,
                self.block,
            )
            self._reserved(charge, reserved)
            if reserved.refused is not None:
                refusal = Refusal(self.owner, request.id, reserved.refused)
                return Envelope.seal(refusal, self.ledger.sign(reserved.head))
        again = None if self._cache is None else self._cache.again(charge, self.owner)
        sealed = self._evaluate(request, query, quote) if again is None else again
        record = self.ledger.release if sealed.status == "release" else self.ledger.fail
        head = record(charge, sealed.body)
        if self._cache is not None:
            self._cache.keep(charge, sealed)
        return Envelope(sealed.status, sealed.body, head)

    def _unmask(self, request: Request) -> Envelope:
        """Answer a step that opens a masked sum: from the ledger only, once, at no cost."""
        entry = self.ledger.find(request.principal, request.id)
        if entry is not None and entry.body["query"] != request.digest:
            raise Refused(Reason.MISMATCH)
        if entry is not None and entry.event in _SEALED:
            return Envelope(_SEALED[entry.event], entry.payload, self.ledger.sign(entry.head))
        shares, view = self._unmasking.shares(request)
        header = (self.owner, request.id, request.kind, request.digest)
        sealed = Envelope.seal(Release(*header, {}, self.secure, view=view, told=shares))
        charge = self._charge(request, Quote((), Loss.free(), "central", {}))
        if entry is None:
            free = self.ledger.reserve(charge, self.accountant, lambda _: None, request.fields)
            if free.refused is not None:
                refusal = Refusal(self.owner, request.id, free.refused)
                return Envelope.seal(refusal, self.ledger.sign(free.head))
        return replace(sealed, head=self.ledger.release(charge, sealed.body))

    def _reserved(self, charge: Charge, reserved: Reserved) -> None:
        """Hook for gates with their own accounts, called after every attempt to reserve."""

    # --- before the data are read --------------------------------------------------------------

    def _decode(self, request: Request) -> Query:
        kind = self._kinds.get(request.kind)
        if kind is None:
            raise Refused(Reason.UNKNOWN_KIND)
        try:
            return kind.from_canonical(request.fields)
        except Exception:
            raise Refused(Reason.MALFORMED) from None

    def _parts(self, query: Query) -> Mapping[str, Part]:
        """Return a query's declared parts, checked against the policy's maximum size."""
        try:
            parts = _declared(query, self.schema)
        except QueryError as error:
            known = error.reason in set(Reason)
            raise Refused(Reason(error.reason) if known else Reason.MALFORMED) from None
        except Exception as error:
            raise Refused(Reason.MALFORMED, _raised(error)) from None
        cells = sum(part.size for part in parts.values())
        bits = sum(part.size for part in parts.values() if part.type == PartType.BITS)
        carried = 8 * (cells - bits) + bits // 8 <= MOST_BYTES
        if cells > self.policy.cells or not carried or query.memory(cells) > MOST_MEMORY:
            raise Refused(Reason.OVERSIZED)
        return parts

    def _charge(self, request: Request, quote: Quote) -> Charge:
        # local noise covers any input of an individual; other units are as in the policy
        anything = quote.model == "local" and self.policy.unit == "individual"
        facts = {
            "relation": "any-input" if anything else self.policy.relation,
            "unit": self.policy.unit,
            "cap": self.policy.cap,
            "data": self.data,
            "schedule": "fixed" if request.spend is None else "proposed",
            **quote.facts,
        }
        return Charge(
            request.principal,
            request.id,
            request.kind,
            request.digest,
            quote.loss,
            self.study,
            self.policy.digest,
            self._noise.secure,
            facts,
            self.owner,
            request.round,
            quote.model,
            self._terms,
        )

    def _over(self, after: Spent, charge: Charge) -> Reason | None:
        """Check the total after a charge against all limits of the policy: times, budget, sub-budgets."""
        guards = self.policy.guards[charge.kind]
        limits = [g.times for g in guards if g.times is not None] if guards else [MOST_EFFECTS]
        if limits and after.times[charge.kind] > min(limits):
            return Reason.TIMES
        return None if self._affordable(after, charge) else Reason.BUDGET

    def _affordable(self, after: Spent, charge: Charge) -> bool:
        ceilings = [(after.total, self._ceiling)] if self._ceiling is not None else []
        ceilings += [
            (after.within[limit.scope(after.aspects)], ceiling)
            for limit, ceiling in self._limits
            if limit.applies(after.aspects)
        ]
        return all(self.accountant.fits(total, ceiling) for total, ceiling in ceilings)

    # --- after the charge is durable -----------------------------------------------------------

    def _evaluate(self, request: Request, query: Query, quote: Quote) -> Envelope:
        """Return the sealed release, or the same failure for every error."""
        if isinstance(query, LocalEffect):
            return self._take_effect(request, query)
        if not quote.protections:
            return self._sealed(request, {})
        try:
            return self._sealed(request, self._protected(request, query, quote), quote)
        except Exception:
            self.faults[request.kind] += 1
        with suppress(Exception):  # an error of a mechanism on constants depends on no record
            if quote.loss.finite:
                self.close_after(request.kind)
                return self._sealed(request, self._around_nothing(request, quote), quote)
        return Envelope.seal(Failure(self.owner, request.id))

    def close_after(self, kind: str) -> None:
        """Close the gate after a protected query failed, and tell the owner.

        A failure that depends on the records reveals whether they are present, whatever is sent instead, and no epsilon
        bounds that. So it happens once: the reply is noise around zeros, and all later requests are refused.
        """
        self.breaches[kind] += 1
        with suppress(LedgerError):  # a full disk; this process stays closed
            self.shelf.add_fault(kind)

    @property
    def uncovered(self) -> Counter[str]:
        """Return all failures of protected queries by kind, in all gates of the ledger, reopened or not."""
        return Counter(self.shelf.faults_ever) | self.breaches

    def reopen(self) -> None:
        """Answer again after a failure, by the owner's decision."""
        self.shelf.clear_faults()
        self.breaches.clear()

    def _protected(self, request: Request, query: Query, quote: Quote) -> dict[str, ReleasedPart]:
        view = self._held_out if query.held_out else self._view
        exact = query.evaluate(view)
        released: dict[str, ReleasedPart] = {}
        for protection in quote.masked or quote.protections:
            mechanism = protection.mechanism
            reveals = query.reveals(exact, view, mechanism.strict) if mechanism.suppresses else {}
            released |= self._protect(request, exact, protection, reveals)
        return released

    def _around_nothing(self, request: Request, quote: Quote) -> dict[str, ReleasedPart]:
        """Return noise of the declared distributions around zeros, to replace a failed answer."""
        released: dict[str, ReleasedPart] = {}
        for protection in quote.masked or quote.protections:
            zeros = {
                name: np.zeros(bounded.part.shape, np.int64)
                for name, bounded in protection.group.items()
            }
            released |= self._protect(request, zeros, protection, {})
        return released

    def _take_effect(self, request: Request, query: LocalEffect) -> Envelope:
        """Apply a local effect to the shelf; the acknowledgement is always the same."""
        view_of_owner = self._view
        shelf = self.shelf.of(self.study, request.principal)
        view = LocalView(
            view_of_owner.records, view_of_owner.schema, view_of_owner.secret, self._kept, shelf
        )
        key, done = (request.principal, request.id, request.kind), False
        with suppress(LedgerError):  # a full disk may reveal how much is stored
            done = self.shelf.apply(*key, lambda: query.take_effect(view))
        if not done:
            self.faults[request.kind] += 1
        return self._sealed(request, {})

    def _sealed(
        self, request: Request, released: dict[str, ReleasedPart], quote: Quote | None = None
    ) -> Envelope:
        owners: tuple[str, ...] = ()
        view, seed, min_owners, sealed_shares = b"", b"", 0, dict[str, bytes]()
        if quote is not None and quote.masked and self.policy.masked is not None:
            terms = self.policy.masked
            owners, min_owners = terms.owners, terms.least
            view = view_of(request, terms, released)
            if min_owners:
                seed = new_seed()
                sealed_shares = self._unmasking.sealed(seed, view)
            released = self._masking.hidden(released, terms.keys, self.owner, view, seed)
        header = (
            self.owner,
            request.id,
            request.kind,
            request.digest,
            released,
            self._noise.secure,
        )
        return Envelope.seal(Release(*header, owners, view.hex(), min_owners, sealed_shares))

    def _protect(
        self, request: Request, exact: Cells, protection: AnyProtection, reveals: Cells
    ) -> dict[str, ReleasedPart]:
        mechanism, parts, laws = protection.mechanism, protection.group, protection.laws
        mine = {name: as_declared(exact[name], bounded.part) for name, bounded in parts.items()}
        protected = protection.protect(mine, self._noise, reveals)
        self.noise_monitor.observe(request.kind, request.digest, protection, mine, protected)
        return {
            name: as_released(protected[name], bounded.part, mechanism.name, laws.get(name))
            for name, bounded in parts.items()
        }

    def _refuse(self, request: Request, reason: Reason, why: str = "") -> Envelope:
        names = (request.principal, request.id, request.kind)
        principal, name, kind = (text[:NAME_LIMIT] for text in names)
        body = {"kind": kind, "query": request.digest, "study": self.study}
        if why:
            body["why"] = why
        try:
            head = self.ledger.refuse(principal, name, reason, body)
        except Exception as error:
            return self._unrecorded(request, error)
        return Envelope.seal(Refusal(self.owner, name, reason), head)

    def _unrecorded(self, request: Request, error: Exception) -> Envelope:
        self.ledger_fault = str(error) if isinstance(error, LedgerError) else type(error).__name__
        return Envelope.seal(Refusal(self.owner, request.id[:NAME_LIMIT], Reason.LEDGER))


def _raised(error: Exception) -> str:
    """Describe a plugin's error before any record was read, for the owner, without text chosen by the server."""
    return f"the plugin raises {type(error).__name__}"


def _schema_of(records: Any, given: Schema | None) -> Schema:
    """Return the schema that records were clipped to (SchemaError: none, or another was given)."""
    schema_of_records: Schema | None = getattr(records, "schema", None)
    known = given if schema_of_records is None else schema_of_records
    if known is None or (given is not None and given != known):
        raise SchemaError(
            "a gate's schema is the one that its records were clipped to, or bounds would hold of other "
            "values; encode the records again: Records.from_frame(table, schema)"
        )
    return known


def _record_inferred(
    ledger: Ledger, accountant: Accountant, owner: str, schema: Schema, study: str
) -> None:
    """Charge and release an inferred schema like an unprotected answer, once per ledger."""
    fields = wire.encode(schema.to_dict())
    digest = wire.digest(fields)
    request = f"schema {digest}"
    if ledger.find("server", request) is not None:
        return
    loss = Loss.open("the schema's bounds and categories were read off the data")
    charge = Charge("server", request, "schema.infer", digest, loss, study, client=owner)
    ledger.reserve(charge, accountant, lambda after: None, wire.encode({}))
    release = Release(owner, request, "schema.infer", digest, {})
    ledger.release(charge, wire.encode(release))


def _read(data: bytes) -> Request | DryRun | None:
    """Decode a message of the server; None if invalid."""
    kinds: tuple[type[Request | DryRun], ...] = (Request, DryRun)
    for kind in kinds:
        try:
            return wire.decode(data, kind, REQUEST_LIMIT)
        except WireError:
            continue
    return None


#: Declared parts of live queries, with their schema.
_DECLARED: WeakKeyDictionary[Query, tuple[_Known, _Known, Mapping[str, Part]]] = WeakKeyDictionary()


def _declared(query: Query, schema: Schema) -> Mapping[str, Part]:
    """Return a query's declared parts, cached by identity for all gates of a process."""
    try:
        known_query, known_schema, parts = _DECLARED.get(query, _NOTHING)
    except TypeError:  # a plugin's query with unhashable lists
        return query.parts(schema)
    if known_query() is not query or known_schema() is not schema:
        parts = MappingProxyType(dict(query.parts(schema)))
        _DECLARED[query] = ref(query), ref(schema), parts
    return parts


def _check_names(request: Request) -> None:
    names = (request.id, request.principal, request.kind, request.round)
    if not request.id or max(map(len, names)) > NAME_LIMIT:
        raise Refused(Reason.MALFORMED)


def open_reply(data: bytes) -> Reply:
    """Decode an envelope's reply."""
    reply = wire.decode(data, Envelope).open()
    if isinstance(reply, DryRunReply):
        raise WireError("not a reply: an offer")
    return reply
