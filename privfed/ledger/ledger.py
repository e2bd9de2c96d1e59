"""The durable, append-only, hash-chained record of every charge, release and refusal.

There is one store per data set, for all its studies, under one budget. A charge is durable before
data are read, a release's bytes before they are sent; nothing is refunded. Rows have public facts
only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from privfed.errors import BudgetError, LedgerError, PolicyError
from privfed.exchange.messages import Envelope, Head, Reason, Release
from privfed.exchange.signing import Signer, check_signature
from privfed.exchange.transcript import TranscriptEntry
from privfed.ledger.allowances import Allowances
from privfed.ledger.charge import (
    COUNTED,
    Charge,
    Refuse,
    Reserved,
    Spent,
    Total,
    block_key,
    kind_of,
    most,
    within_share,
)
from privfed.ledger.custody import Custody
from privfed.ledger.policy_constraints import check_countable, check_in_force, raised, terms_digest
from privfed.ledger.refusals import Refusals
from privfed.ledger.registry import KnownLedger, Registry
from privfed.ledger.secret import commitment, secret_beside
from privfed.ledger.sqlite_store import SqliteStore
from privfed.ledger.statement import Line, export, fixed_totals, statement
from privfed.ledger.store import FORMAT, OWN_EVENTS, Entry, Store, Tip
from privfed.ledger.study_blocks import BLOCKS, StudyBlock, committed, kept, read_blocks, reserved
from privfed.ledger.verification import check_begun, stored_totals, totals_of, verify
from privfed.privacy.accountant import Accountant, Amount, Budget, plus
from privfed.privacy.limit import WHOLE, Limit, scope
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import accountant_of, installed_accountant
from privfed.questions import plugins

__all__ = ["Charge", "Entry", "Ledger", "Reserved", "Spent"]


class Ledger(Custody):
    """An open ledger.

    Args:
        path: an SQLite file; ``None`` in memory (tests, ephemeral simulations); or another store.
        dataset: the data set's name; a ledger of another one is refused.
        clock: returns the time for rows.
        key: the owner's Ed25519 key (32 bytes), to sign every published head; or None. The ledger commits to its
            public half, and to the secret next to its file.
        registry: stores the heads of persistent ledgers; or None.

    Raises:
        LedgerError: the file is no ledger, another data set's, or was rewritten; another key signs it; or the
            registry has a later head, another ledger at its path, or a copy.
    """

    def __init__(
        self,
        path: str | Path | Store | None = None,
        dataset: str = "",
        clock: Callable[[], datetime] | None = None,
        key: bytes | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.dataset = dataset
        self._registry, self._identity, self._secret = registry, "", b""
        self._signer = None if key is None else Signer(key, dataset)
        if registry is not None and isinstance(path, str | Path):
            registry.check_place(Path(path))
        self._store = path if isinstance(path, Store) else SqliteStore(path, clock)
        self._blocks: dict[bytes, tuple[int, int]] = {}  # reserved blocks: row, remaining
        self._drawn: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._store.undone = self._forget_blocks
        self._refusals = Refusals(self._store)
        with self._store.exclusive():
            if self._store.empty:
                self._begin()
            else:
                check_begun(self._store, dataset)
                self._store.check_last()
                self._store.check_state()
        if registry is not None and self.path is not None:  # before the second row
            registry.check(self.identity, self.path, self.passes)
            registry.keep(self._known(self._store.head))
            self._store.written = lambda head: registry.keep(self._known(head))
        if self._signer is not None:
            self._commit_key(self._signer)

    def _known(self, head: Head) -> KnownLedger:
        assert self.path is not None
        return KnownLedger(self.identity, self.dataset, self.path.resolve(), head)

    def _begin(self) -> None:
        """Write the first row; a ledger on disk commits to the secret next to it."""
        begun: dict[str, Any] = {"dataset": self.dataset, "format": FORMAT}
        state = {}
        if self.path is not None:
            state["secret"] = begun["secret"] = commitment(secret_beside(self.path, begun=False))
        self._store.append("begun", "", "", begun, state=state)

    @classmethod
    def read(cls, path: str | Path) -> Ledger:
        """Open an existing ledger of any data set, only for reading and verifying."""
        ledger = cls.__new__(cls)
        ledger._store = SqliteStore(path, reading=True)
        ledger.dataset = check_begun(ledger._store, None)
        ledger._signer, ledger._blocks, ledger._drawn = None, {}, {}
        ledger._refusals = Refusals(ledger._store)
        ledger._registry, ledger._identity, ledger._secret = None, "", b""
        return ledger

    @staticmethod
    def begun(path: str | Path) -> bool:
        """Whether a file has rows (not if its creator was killed at once)."""
        if Path(path).stat().st_size == 0:
            return False
        with closing(SqliteStore(path, reading=True)) as store:
            return not store.empty

    @property
    def path(self) -> Path | None:
        """Where it is kept; ``None`` in memory."""
        return self._store.path

    def together(self) -> AbstractContextManager[object]:
        """Return a context in which all writes become durable together at its end, before releases are sent."""
        return self._store.exclusive()

    # --- for the gate -------------------------------------------------------------------

    def adopt(self, policy: Policy, study: str = "", *, amend: bool = False) -> None:
        """Put a policy in force for a study.

        ``amend``, the owner's choice, replaces a different policy in force; it is recorded, and gates with the old
        policy refuse from then on.

        Raises:
            PolicyError: another policy or budget is in force; or past charges would lose their meaning (accountant,
                unit, relation, cap).
        """
        with self._store.exclusive():
            if not self.has_in_force(policy, study, amend=amend):
                self._put_in_force(policy, study, self._store.held(f"policy:{study}")[0])

    def has_in_force(self, policy: Policy, study: str = "", *, amend: bool = False) -> bool:
        """Whether a policy is in force for a study (PolicyError: it cannot be adopted)."""
        in_force, current, charged = self._store.look("terms", f"policy:{study}", "charged")
        if in_force is not None and current == policy.digest and in_force["terms"] == policy.terms:
            return True
        if in_force is not None and charged is not None:
            check_countable(self._store, in_force["terms"], policy.terms)
        if not amend:
            check_in_force(self._store, in_force, current, policy, study)
        elif charged is not None and in_force["terms"].get("budget") != policy.terms.get("budget"):
            self._check_holds(policy)
        return False

    def _check_holds(self, policy: Policy) -> None:
        """Check that an amended budget is not below what was spent or reserved."""
        accountant, budget = accountant_of(policy), policy.budget
        taken = self.taken(accountant)
        if budget is not None and not accountant.fits(taken, accountant.ceiling(budget)):
            raise PolicyError(
                f"{self._store}: has spent more than {budget} already, or studies have reserved it; write a budget that holds it"
            )

    def _put_in_force(self, policy: Policy, study: str, replaced: str | None) -> None:
        in_force, charged = self._store.held("terms", "charged")
        terms = {"digest": terms_digest(policy), "terms": policy.terms}
        state: dict[str, Any] = {f"policy:{study}": policy.digest, "terms": terms}
        changed = charged is not None and in_force != terms
        if changed and raised(in_force["terms"], policy.terms):
            state["amended"] = True
        body = {"policy": policy.to_dict(), "digest": policy.digest, "study": study}
        body["replaces"] = replaced or ""
        head = self._store.append("policy", "", "", body, state=state)
        if changed:
            self._count_again(policy.limits, head.seq + 1)

    def _count_again(self, limits: tuple[Limit, ...], row: int) -> None:
        """Recompute all totals for new limits, in a row with the new limits."""
        self._store.forget("total:")
        (blocks,) = self._store.held(BLOCKS)
        counted = totals_of(self._store, limits, blocks=blocks or ())
        totals = {n: total.to_plain() for n, total in counted.items()}
        state = {**_named(totals), "charged": row}
        self._store.append("counted", "", "", {"totals": {WHOLE: totals.get(WHOLE)}}, state=state)

    def reserve_share(
        self,
        study: str,
        share: Amount,
        accountant: Accountant,
        division: Mapping[str, Any] | None = None,
    ) -> Head:
        """Reserve a study's share of the budget in force, before its first charge.

        ``division`` describes how a table was divided among owners. See :mod:`privfed.ledger.study_blocks`.
        BudgetError: less remains; or the study has another share, or was sealed, or begun without one.
        """
        with self._store.exclusive():
            in_force, data = self._store.held("terms", BLOCKS)
            blocks = self._study_blocks(data)
            if study in blocks:
                return self._same_share(blocks[study], share)
            if self.times(study):
                raise BudgetError(
                    f"{self._store}: study {study!r} was charged before it had a share; give the new "
                    "try a name of its own (the budget goes on)"
                )
            taken = plus(self.taken(accountant), share)
            budget = in_force and in_force["terms"].get("budget")
            ceiling = budget and accountant.ceiling(Budget.of(budget["epsilon"], budget["delta"]))
            if ceiling and not accountant.fits(taken, ceiling):
                others = kept(name for name, one in blocks.items() if any(one.unspent))
                raise BudgetError(
                    f"{self._store}: study {study!r} is not begun: less of the budget is left than its "
                    f"share{others}; write a smaller epsilon"
                )
            body: dict[str, Any] = {"study": study, "share": list(map(str, share))}
            body |= {"accountant": accountant.name}
            body |= {"division": dict(division)} if division else {}
            state = {BLOCKS: {**(data or {}), study: reserved(share)}}
            return self.sign(self._store.append("share", "", "", body, state=state))

    def _same_share(self, block: StudyBlock, share: Amount) -> Head:
        if any(a > b for a, b in zip(share, block.unspent, strict=True)):
            why = "is sealed" if block.sealed else "has a share, which never grows"
            raise BudgetError(
                f"{self._store}: study {block.study!r} {why}; give the new try a name of its own (the "
                "budget goes on)"
            )
        return self.head

    def seal_study(self, study: str) -> Head:
        """Close a study permanently: the uncharged part of its share returns to the budget."""
        with self._store.exclusive():
            (data,) = self._store.held(BLOCKS)
            block = self._study_blocks(data).get(study)
            if block is None or block.sealed:
                return self.head
            state = {BLOCKS: {**data, study: {**data[study], "sealed": True}}}
            return self.sign(self._store.append("sealed", "", "", {"study": study}, state=state))

    def taken(self, accountant: Accountant, but: str = "") -> Amount:
        """Return all charges plus other studies' uncharged reservations (not ``but``'s); in a cohort, the largest."""
        with self._store.reading():
            data, whole = self._store.held(BLOCKS, f"total:{WHOLE}")
            others = [x for x in self._study_blocks(data).values() if x.study != but]
            people = self._people(accountant)
        if people is not None:
            return people.most_with(others)
        return committed(Total.from_plain(whole).amount or accountant.nothing, others)

    def _people(self, accountant: Accountant) -> Allowances | None:
        """Return the charges by individual of a cohort; None for a table's ledger."""
        return Allowances.of(self.entries(events=("reserved",)), accountant)

    def _study_blocks(self, data: Any) -> dict[str, StudyBlock]:
        def spent_in(name: str) -> Amount:
            return Total.from_plain(self._store.held(f"total:{name}")[0]).amount

        return read_blocks(data, spent_in)

    def reserve(
        self,
        charge: Charge,
        accountant: Accountant,
        refuse: Refuse,
        payload: bytes = b"",
        block: int = 1,
    ) -> Reserved:
        """Check every budget and reserve the charge, in one exclusive transaction.

        Args:
            refuse: returns the reason to refuse a charge, from the spending after it, or None.
            payload: the query's public values, for the transcript.
            block: how many such charges to reserve at once, if they fit; later ones draw on them. What remains
                counts as spent when the process ends.

        Returns:
            the head after it, unsigned; and the recorded reason if nothing was charged. Otherwise the charge is
            durable.
        """
        who = charge.principal, charge.request
        with self._store.exclusive() as end:
            if self._store.charged(*who):
                return Reserved(Head(end.seq, end.hash), Reason.INTERRUPTED)
            superseded, totals, spent, block_of = self._before(charge, accountant, end)
            if block_of is not None:
                refuse = within_share(charge, block_of, accountant, refuse)
            key = block_key(charge, spent) if block > 1 or self._blocks else b""
            if superseded is None and self._draw(charge, key, payload):
                return Reserved(spent.head)
            cost = accountant.cost(charge.loss)
            refused = superseded or refuse(spent.after(cost, charge.kind, 1))
            if refused is not None:
                return Reserved(self._refusals.record(*who, refused, charge.body()), refused)
            count = 1 if block == 1 else most(block, spent, cost, charge.kind, refuse)
            head = self._charge(charge, accountant.name, cost, totals, count, payload, end.seq + 1)
            if count > 1:
                self._blocks[key] = (head.seq, count)
                self._draw(charge, key, payload)
            return Reserved(head)

    def would_refuse(self, charge: Charge, accountant: Accountant, refuse: Refuse) -> Reason | None:
        """Return the reason that :meth:`reserve` would give now; nothing is charged or recorded."""
        with self._store.reading() as end:
            superseded, _, spent, block_of = self._before(charge, accountant, end)
            if block_of is not None:
                refuse = within_share(charge, block_of, accountant, refuse)
            return superseded or refuse(spent.after(accountant.cost(charge.loss), charge.kind, 1))

    def _before(
        self, charge: Charge, accountant: Accountant, end: Tip
    ) -> tuple[Reason | None, dict[str, Total], Spent, StudyBlock | None]:
        """Return the reason if the policy is superseded, the charge's totals, earlier spending, its study's share."""
        terms, counts_by, in_force, data = self._store.held(
            "terms", "accountant", f"policy:{charge.study}", BLOCKS
        )
        bound = counts_by or (terms and terms["terms"]["accountant"])
        if bound not in (None, accountant.name) and charge.loss.counted:
            raise LedgerError(
                f"{self._store}: adds up under the accountant {bound!r}, not {accountant.name!r}; "
                "give each accounting a ledger of its own"
            )
        stale = charge.policy and in_force not in (None, charge.policy)
        stale = stale or (charge.terms and terms is not None and terms["digest"] != charge.terms)
        aspects, names = charge.scopes(end.time, terms and terms["terms"], data or ())
        stored = self._store.held(*map("total:{}".format, names))
        totals = {name: Total.from_plain(x) for name, x in zip(names, stored, strict=True)}
        head = Head(end.seq, end.hash)
        spent = Spent.before(aspects, totals, accountant.nothing, end.time, head)
        block_of = None
        if data:
            blocks = self._study_blocks(data)
            block_of = blocks.pop(charge.study, None)
            total = committed(spent.total, blocks.values())
            study_block = {} if block_of is None else {charge.study: block_of}
            spent = replace(spent, total=total, blocks={**blocks, **study_block})
        return Reason.SUPERSEDED if stale else None, totals, spent, block_of

    def _charge(
        self,
        charge: Charge,
        accountant: str,
        cost: Amount,
        totals: Mapping[str, Total],
        count: int,
        payload: bytes,
        row: int,
    ) -> Head:
        """Append a charge, or a block of equal ones, with the new totals."""
        finite, basis = charge.loss.finite, charge.loss.basis
        after = {n: t.plus(cost, finite, count, basis).to_plain() for n, t in totals.items()}
        body = {**charge.body(), "amount": list(map(str, cost)), "totals": after}
        state = {**_named(after), "charged": row}
        if charge.loss.counted:
            body["accountant"] = state["accountant"] = accountant
        if count > 1:
            block = {**body, "count": count}
            return self._store.append("block", charge.principal, "", block, state=state)
        who = charge.principal, charge.request
        return self._store.append("reserved", *who, body, payload, state=state)

    def _draw(self, charge: Charge, key: bytes, payload: bytes) -> bool:
        """Take one charge from a reserved block; it is recorded with the reply's bytes."""
        row, remaining = self._blocks.get(key, (0, 0))
        if remaining == 0:
            return False
        self._blocks[key] = (row, remaining - 1)
        self._drawn[charge.principal, charge.request] = (row, payload)
        return True

    def _forget_blocks(self) -> None:
        """Forget all blocks: an undone block was not charged; what remains of others is lost."""
        self._blocks.clear()
        self._drawn.clear()

    def release(self, charge: Charge, payload: bytes) -> Head:
        """Make a reply's bytes durable; only then may they be sent."""
        return self._reply("released", charge, payload)

    def fail(self, charge: Charge, payload: bytes) -> Head:
        """Record that a charged request failed."""
        return self._reply("failed", charge, payload)

    def _reply(self, event: str, charge: Charge, payload: bytes) -> Head:
        """Record a reply, with the time of the row before: its own would reveal how long evaluation took."""
        who, state = (charge.principal, charge.request), None
        with self._store.exclusive():
            if who in self._drawn:
                row, fields = self._drawn.pop(who)
                self._store.append("drawn", *who, {**charge.body(), "block": row}, fields)
            elif not self._store.charged(*who):
                raise LedgerError(f"{self._store}: nothing is reserved for request {who[1]!r}")
            if event == "failed":
                name = f"failed:{charge.kind}"
                state = {name: (self._store.held(name)[0] or 0) + 1}
            body = {"query": charge.query}
            return self.sign(
                self._store.append(event, *who, body, payload, state=state, same_time=True)
            )

    def refuse(self, principal: str, request: str, reason: Reason, body: dict[str, Any]) -> Head:
        """Record a refusal, which charges nothing."""
        return self.sign(self._refusals.record(principal, request, reason, body))

    def note(self, event: str, body: dict[str, Any]) -> Head:
        """Record a public fact, such as the start of a study."""
        if event in OWN_EVENTS:
            raise LedgerError(f"an event {event!r} is the ledger's own; note it under another word")
        with self._store.exclusive():
            return self.sign(self._store.append(event, "", "", body))

    def failures(self, kind: str) -> int:
        """Return how often charged queries of a kind failed, in all processes."""
        return int(self._store.look(f"failed:{kind}")[0] or 0)

    def find(self, principal: str, request: str) -> Entry | None:
        """Return the latest entry of a charged request, or None."""
        return self._store.find(principal, request)

    def sign(self, head: Head) -> Head:
        """The head with the owner's signature, if the ledger has a key."""
        return head if self._signer is None else replace(head, signature=self._signer.sign(head))

    def seal(self, envelope: Envelope) -> Envelope:
        """Return a reply with the owner's signature over it and its head, if the ledger has a key."""
        return envelope if self._signer is None else self._signer.seal(envelope)

    def passes(self, head: Head) -> bool:
        """Whether the chain contains a published head."""
        with self._store.reading():
            return self._store.hash_at(head.seq) == head.hash

    # --- for reports ---------------------------------------------------------------------

    def spent(self, accountant: Accountant) -> Spent:
        """Return all charges including reservations, from the stored totals if the accountant is the same."""
        with self._store.reading():
            if self._store.held("accountant")[0] in (None, accountant.name):
                totals = stored_totals(self._store)
            else:
                totals = totals_of(self._store, (), accountant)
        whole = totals.get(WHOLE, Total(()))
        times: Counter[str] = Counter()  # by kind, over all studies
        for name, total in totals.items():
            if kind := kind_of(name):
                times[kind] += total.times
        within = {name: total.amount or accountant.nothing for name, total in totals.items()}
        amount = whole.amount or accountant.nothing
        return Spent(amount, whole.unprotected, dict(times), within, basis=whole.basis)

    @property
    def terms(self) -> dict[str, Any] | None:
        """Return the terms of all policies of this data set (budgets, unit, relation, accountant)."""
        (in_force,) = self._store.look("terms")
        return None if in_force is None else dict(in_force["terms"])

    def policies(self) -> dict[str, Policy]:
        """Return the policy in force for each study, by the study's name."""
        return {
            str(entry.body["study"]): Policy.from_dict(entry.body["policy"])
            for entry in self.entries(events=("policy",))
        }

    def times(self, study: str) -> dict[str, int]:
        """Return how often each kind was charged in one study, for guards' ``times``."""
        with self._store.reading():
            totals = stored_totals(self._store)
        kinds = {kind for name in totals if (kind := kind_of(name))}
        counted = {k: totals.get(scope(COUNTED, {"study": study, "kind": k})) for k in kinds}
        return {kind: total.times for kind, total in counted.items() if total is not None}

    def study_blocks(self) -> dict[str, StudyBlock]:
        """Return the studies' shares in the order reserved; in a cohort, with the largest charge to an individual."""
        with self._store.reading():
            data, counts_by = self._store.held(BLOCKS, "accountant")
            blocks = self._study_blocks(data)
        accountant = installed_accountant(counts_by) if blocks else None
        if accountant is not None and (people := self._people(accountant)) is not None:
            blocks = {s: replace(x, spent=people.most_of(s)) for s, x in blocks.items()}
        order = [str(row.body["study"]) for row in self.entries(events=("share",))]
        return {study: blocks[study] for study in order}

    def divisions(self) -> dict[str, dict[str, Any]]:
        """Return how a table was divided among owners, by the study that recorded it."""
        rows = self.entries(events=("share",))
        return {x.body["study"]: x.body["division"] for x in rows if "division" in x.body}

    def fixed_totals(self, accountant: Accountant) -> tuple[Amount, ...]:
        """Return totals fixed before any charge, for the odometer: the first study's share, the first budget."""
        return fixed_totals(self.entries(), accountant)

    @property
    def amended(self) -> bool:
        """Whether there were charges under another budget than that in force."""
        return bool(self._store.look("amended")[0])

    def entries(self, after: int = 0, events: tuple[str, ...] = ()) -> Iterator[Entry]:
        """Yield rows in order: all of them, or those after a row's number and of some events."""
        self._store.check_process()
        return map(Entry.of, self._store.select(after=after, events=events))

    def grown(self, after: int, events: tuple[str, ...]) -> list[Entry]:
        """Return durable rows of some events after a row's number, while other threads write."""
        with self._store.reading():
            return list(self.entries(after, events))

    def disclosed(self, session: str = "") -> Iterator[tuple[str, TranscriptEntry]]:
        """Yield releases in order, with their times; of one run, by its prefix of request ids."""
        fields_by_request: dict[tuple[str, str], bytes] = {}
        for entry in self.entries():
            if not entry.request.startswith(session):
                continue
            if entry.event in ("reserved", "drawn"):
                fields_by_request[entry.principal, entry.request] = entry.payload
            elif entry.event == "released":
                fields = fields_by_request.pop((entry.principal, entry.request))
                reply = Envelope("release", entry.payload).open()
                assert isinstance(reply, Release)
                yield entry.time, TranscriptEntry(reply.client, reply.kind, fields, reply)

    @property
    def head(self) -> Head:
        """The end of the chain."""
        return self.sign(self._store.head)

    def verify(
        self, heads: Head | Iterable[Head] | None = None, public: bytes | None = None
    ) -> Head:
        """Recompute the whole chain and every total, and return the end of the chain.

        Args:
            heads: published heads; the chain must contain them.
            public: the owner's public key, if those heads must be signed.

        Raises:
            LedgerError: a row was changed, removed, added or moved, a total is false, or a head is not
                on the chain.
        """
        published = (heads,) if isinstance(heads, Head) else tuple(heads or ())
        for head in published:
            if public is not None:
                check_signature(head, self.dataset, public)
        return verify(self._store, published)

    def export(self, format: str = "jsonl") -> Iterator[str]:
        """Yield all rows as lines of text: ``jsonl`` (JSON lines) or ``csv``."""
        return export(self.entries(), format)

    def budget(self, by: str | None = None) -> list[Line]:
        """Return the budget statement: spent, reserved and remaining, in total and by values of an aspect."""
        with self._store.snapshot():
            whole, *lines = statement(
                self.entries(),
                self.terms,
                by,
                amended=self.amended,
                named=self.entries(),
                blocks=self.study_blocks() if by == "study" else None,
            )
        if whole.remaining is not None and whole.budget is not None:
            accountant = plugins.load("accountants", (self.terms or {})["accountant"])()
            whole = replace(whole, remaining=accountant.left(self.taken(accountant), whole.budget))
        return [whole, *lines]

    def close(self) -> None:
        """Close the store, after sending the last head to the registry's witness."""
        try:
            self._refusals.close()
            if self._registry is not None:
                self._registry.bear_witness(self._known(self._store.head))
        finally:
            self._store.close()


def _named(totals: Mapping[str, Any]) -> dict[str, Any]:
    return {f"total:{name}": total for name, total in totals.items()}
