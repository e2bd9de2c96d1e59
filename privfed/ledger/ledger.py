"""The durable, append-only, hash-chained record of every charge, release and refusal.

One SQLite file for one data set, with many studies and data versions in it, under one budget. A
charge is durable before the data are read, a release's bytes before they are sent; nothing is ever
refunded. Rows hold public fields and released bytes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from privfed.errors import LedgerError
from privfed.exchange.messages import Envelope, Head, Reason, Release
from privfed.exchange.signing import Signer, check_signature
from privfed.exchange.transcript import Disclosed
from privfed.ledger.chain import FORMAT, OWN_EVENTS, Entry, encode_body
from privfed.ledger.charge import Charge, Refuse, Spent, block_key, most
from privfed.ledger.statement import Line, export, statement
from privfed.ledger.storage import BY_REQUEST, ChainFile
from privfed.ledger.terms import check_countable, check_in_force, raised, terms_digest
from privfed.ledger.total import COUNTED, Total, kind_of, limits_of, tracked
from privfed.ledger.verification import check_begun, stored_totals, totals_of, verify
from privfed.privacy.accountant import Accountant, Amount
from privfed.privacy.limit import WHOLE, Limit, scope
from privfed.privacy.policy import Policy

__all__ = ["Charge", "Entry", "Ledger", "Spent"]


class Ledger:
    """An open ledger.

    Args:
        path: the file, or none for one in memory (tests, throw-away simulations).
        dataset: names the data set; a ledger of another one is refused.
        clock: gives the time written into rows.
        key: the owner's Ed25519 key (32 bytes), to sign every head that leaves; or none.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        dataset: str = "",
        clock: Callable[[], datetime] | None = None,
        key: bytes | None = None,
    ) -> None:
        self.dataset = dataset
        self._signer = None if key is None else Signer(key, dataset)
        self._file = ChainFile(path, clock)
        self._blocks: dict[bytes, tuple[int, int]] = {}  # what was reserved ahead: row, rest
        self._drawn: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._file.undone = self._forget_blocks
        self._begin()

    def _begin(self) -> None:
        with self._file.exclusive():
            if self._file.empty:
                begun = {"dataset": self.dataset, "format": FORMAT}
                self._file.append("begun", "", "", begun)
                return
            check_begun(self._file, self.dataset)
            self._file.check_last()
            self._file.check_state()

    @classmethod
    def read(cls, path: str | Path) -> Ledger:
        """Open an existing ledger of any data set, to look at and verify only.

        Raises:
            LedgerError: there is no such file, or it is no ledger of this format.
        """
        ledger = cls.__new__(cls)
        ledger._file = ChainFile(path, reading=True)
        ledger.dataset = check_begun(ledger._file, None)
        ledger._signer, ledger._blocks, ledger._drawn = None, {}, {}
        return ledger

    @staticmethod
    def begun(path: str | Path) -> bool:
        """Whether anything was ever written to a file: one whose maker was killed at once is empty.

        Raises:
            LedgerError: it is no database.
        """
        if Path(path).stat().st_size == 0:
            return False
        file = ChainFile(path, reading=True)
        try:
            return bool(file.query("SELECT 1 FROM sqlite_master LIMIT 1")) and not file.empty
        finally:
            file.close()

    @property
    def path(self) -> Path | None:
        """The file, or none for a ledger in memory."""
        return self._file.path

    def together(self) -> AbstractContextManager[None]:
        """Make all that is written inside durable at once, when it ends: all of it or nothing.

        What was released inside may be sent only afterwards.
        """
        return self._file.exclusive()

    # --- what the gate calls -------------------------------------------------------------------

    def adopt(self, policy: Policy, study: str = "", *, amend: bool = False) -> None:
        """Put a policy in force for a study.

        Args:
            policy: the owner's policy.
            study: the study that it is for.
            amend: the owner's choice to change what is in force; it is recorded as a new version,
                and gates that know the old one only refuse from then on.

        Raises:
            PolicyError: the study runs under another policy, or the data set under other budgets;
                or the change would make past charges meaningless (accountant, unit, relation, cap).
        """
        with self._file.exclusive():
            held, current = self._file.get("terms"), self._file.get(f"policy:{study}")
            if held is not None and current == policy.digest and held["terms"] == policy.terms:
                return
            if held is not None and self._file.get("charged") is not None:
                check_countable(self._file, held["terms"], policy.terms)
            if not amend:
                check_in_force(self._file, held, current, policy, study)
            self._put_in_force(policy, study, current)

    def _put_in_force(self, policy: Policy, study: str, replaced: str | None) -> None:
        body = {"policy": policy.to_dict(), "digest": policy.digest, "study": study}
        held = self._file.get("terms")
        terms = {"digest": terms_digest(policy), "terms": policy.terms}
        changed = self._file.get("charged") is not None and held != terms
        if changed and raised(held["terms"], policy.terms):
            self._file.put("amended", value=True)
        self._file.put(f"policy:{study}", policy.digest)
        self._file.put("terms", terms)
        self._file.append_stateful("policy", "", "", {**body, "replaces": replaced or ""})
        if changed:
            self._count_again(policy.limits)

    def _count_again(self, limits: tuple[Limit, ...]) -> None:
        """New limits have totals of their own: add up all charges once more."""
        self._file.forget("total:")
        for name, total in totals_of(self._file, limits).items():
            self._file.put(f"total:{name}", total)
        # The next opening holds totals against a row: give it one that knows the new limits.
        self._file.put("charged", self._file.following)
        counted = {"totals": {WHOLE: self._file.get(f"total:{WHOLE}")}}
        self._file.append_stateful("counted", "", "", counted)

    def reserve(
        self,
        charge: Charge,
        accountant: Accountant,
        refuse: Refuse,
        payload: bytes = b"",
        block: int = 1,
    ) -> Reason | None:
        """Check every budget and reserve the charge, in one exclusive transaction.

        Args:
            charge: what the release would cost.
            accountant: how losses add up.
            refuse: gives the reason why a charge on top of what is spent is refused, or none.
            payload: the query's public values, for the transcript.
            block: how many such charges to reserve at once, if they fit; later ones draw on them.
                What is left of a block when the process ends counts as spent.

        Returns:
            None if the charge is now durable, else the reason, which is recorded.
        """
        with self._file.exclusive():
            if self._file.charged(charge.principal, charge.request):
                return Reason.INTERRUPTED
            spent = self._spent_before(charge, accountant)
            key = block_key(charge, spent) if block > 1 or self._blocks else b""
            reason = self._superseded(charge)
            if reason is None and self._draw(charge, key, payload):
                return None
            reason = reason or refuse(spent)
            if reason is not None:
                body = {**charge.body(), "reason": reason}
                self._file.append("refused", charge.principal, charge.request, body)
                return reason
            cost = accountant.cost(charge.loss)
            count = most(block, spent, cost, charge.kind, refuse)
            self._charge(charge, accountant.name, cost, spent, count, payload)
            if count > 1:
                self._blocks[key] = (self._file.get("charged"), count)
                self._draw(charge, key, payload)
        return None

    def would_refuse(self, charge: Charge, accountant: Accountant, refuse: Refuse) -> Reason | None:
        """What :meth:`reserve` would say, with nothing charged or recorded."""
        with self._file.reading_lock():
            return self._superseded(charge) or refuse(self._spent_before(charge, accountant))

    def _superseded(self, charge: Charge) -> Reason | None:
        in_force = self._file.get(f"policy:{charge.study}")
        terms = self._file.get("terms")
        stale = charge.policy and in_force not in (None, charge.policy)
        stale = stale or (charge.terms and terms is not None and terms["digest"] != charge.terms)
        return Reason.SUPERSEDED if stale else None

    def _spent_before(self, charge: Charge, accountant: Accountant) -> Spent:
        self._check_accountant(charge, accountant)
        time = self._file.now()
        aspects = charge.aspects(time)
        totals = {name: self._total(name) for name in tracked(aspects, self._limits())}
        whole, kind = totals[WHOLE], totals[scope(COUNTED, aspects)]
        within = {name: total.amount or accountant.nothing for name, total in totals.items()}
        times = {charge.kind: kind.times}
        return Spent(within[WHOLE], whole.unprotected, times, within, aspects, time, whole.basis)

    def _check_accountant(self, charge: Charge, accountant: Accountant) -> None:
        held = self._file.get("terms")
        bound = self._file.get("accountant") or (held and held["terms"]["accountant"])
        if bound not in (None, accountant.name) and charge.loss.counted:
            raise LedgerError(
                f"{self._file}: adds up under the accountant {bound!r}, not {accountant.name!r}; "
                "give each accounting a ledger of its own"
            )

    def _total(self, name: str) -> Total:
        return Total.of(self._file.get(f"total:{name}"))

    def _limits(self) -> tuple[Limit, ...]:
        held = self._file.get("terms")
        return () if held is None else limits_of(encode_body(held["terms"].get("limit", [])))

    def _charge(
        self,
        charge: Charge,
        accountant: str,
        cost: Amount,
        spent: Spent,
        count: int,
        payload: bytes,
    ) -> None:
        """Append a charge, or a block of equal ones, with the totals after it."""
        finite, basis = charge.loss.finite, charge.loss.basis
        totals = {name: self._total(name).plus(cost, finite, count, basis) for name in spent.within}
        for name, total in totals.items():
            self._file.put(f"total:{name}", total)
        body = {**charge.body(), "amount": list(map(str, cost)), "totals": totals}
        if charge.loss.counted:
            body["accountant"] = accountant
            self._file.put("accountant", accountant)
        self._file.put("charged", self._file.following)
        if count > 1:
            block = {**body, "count": count}
            self._file.append_stateful("block", charge.principal, "", block, b"", spent.time)
        else:
            who = charge.principal, charge.request
            self._file.append_stateful("reserved", *who, body, payload, spent.time)

    def _draw(self, charge: Charge, key: bytes, payload: bytes) -> bool:
        """Take one charge from what was reserved ahead; recorded with the reply's bytes."""
        row, left = self._blocks.get(key, (0, 0))
        if left == 0:
            return False
        self._blocks[key] = (row, left - 1)
        self._drawn[charge.principal, charge.request] = (row, payload)
        return True

    def _forget_blocks(self) -> None:
        """A block whose row was undone was never paid for; better to waste what is left of others."""
        self._blocks.clear()
        self._drawn.clear()

    def release(self, charge: Charge, payload: bytes) -> Head:
        """Make a reply's bytes durable; only then may they be sent."""
        return self._reply("released", charge, payload)

    def fail(self, charge: Charge, payload: bytes) -> Head:
        """Record that a charged request came to nothing."""
        return self._reply("failed", charge, payload)

    def _reply(self, event: str, charge: Charge, payload: bytes) -> Head:
        """Record a reply at the time of the row before: how long evaluating took tells of records."""
        who = charge.principal, charge.request
        with self._file.exclusive():
            if who in self._drawn:
                row, fields = self._drawn.pop(who)
                self._file.append("drawn", *who, {**charge.body(), "block": row}, fields)
            elif not self._file.charged(*who):
                raise LedgerError(f"{self._file}: nothing is reserved for request {who[1]!r}")
            body, time = {"query": charge.query}, self._file.last_time
            if event == "failed":
                name = f"failed:{charge.kind}"
                self._file.put(name, (self._file.get(name) or 0) + 1)
                return self.sign(self._file.append_stateful(event, *who, body, payload, time))
            return self.sign(self._file.append(event, *who, body, payload, time))

    def refuse(self, principal: str, request: str, reason: Reason, body: dict[str, Any]) -> Head:
        """Record a refusal; nothing was charged."""
        with self._file.exclusive():
            refused = {**body, "reason": reason}
            return self.sign(self._file.append("refused", principal, request, refused))

    def note(self, event: str, body: dict[str, Any]) -> Head:
        """Record a public fact, such as a study begun."""
        if event in OWN_EVENTS:
            raise LedgerError(f"an event {event!r} is the ledger's own; note it under another word")
        with self._file.exclusive():
            return self.sign(self._file.append(event, "", "", body))

    def failures(self, kind: str) -> int:
        """How often charged questions of a kind came to nothing, in all processes."""
        with self._file.reading_lock():
            return int(self._file.get(f"failed:{kind}") or 0)

    def find(self, principal: str, request: str) -> Entry | None:
        """The latest entry of a request that was charged, or none."""
        with self._file.reading_lock():
            return next(self._file.select(BY_REQUEST, (principal, request)), None)

    def sign(self, head: Head) -> Head:
        """The head with the owner's signature, if the ledger has a key."""
        return head if self._signer is None else replace(head, signature=self._signer.sign(head))

    def seal(self, envelope: Envelope) -> Envelope:
        """A reply with the owner's signature over it and its head, if the ledger has a key."""
        return envelope if self._signer is None else self._signer.seal(envelope)

    def passes(self, head: Head) -> bool:
        """Whether the chain passes through a head that was published earlier."""
        with self._file.reading_lock():
            found = next(self._file.select("WHERE seq = ?", (head.seq,)), None)
        return found is not None and found.hash == head.hash

    # --- what reports read ---------------------------------------------------------------------

    def spent(self, accountant: Accountant) -> Spent:
        """What has been charged so far, reservations included.

        From the running totals; under another accountant than the ledger's own, from all entries.
        """
        with self._file.reading_lock():
            if self._file.get("accountant") in (None, accountant.name):
                totals = stored_totals(self._file)
            else:
                totals = totals_of(self._file, (), accountant)
        whole = totals.get(WHOLE, Total(()))
        times: Counter[str] = Counter()  # of each kind, over all studies
        for name, total in totals.items():
            if kind := kind_of(name):
                times[kind] += total.times
        within = {name: total.amount or accountant.nothing for name, total in totals.items()}
        amount = whole.amount or accountant.nothing
        return Spent(amount, whole.unprotected, dict(times), within, basis=whole.basis)

    @property
    def terms(self) -> dict[str, Any] | None:
        """What all policies over this data set share (budgets, unit, relation, accountant)."""
        with self._file.reading_lock():
            held = self._file.get("terms")
        return None if held is None else dict(held["terms"])

    def policies(self) -> dict[str, Policy]:
        """The policy in force for each study, by the study's name."""
        return {
            str(entry.body["study"]): Policy.from_dict(entry.body["policy"])
            for entry in self._file.select("WHERE event = 'policy' ORDER BY seq")
        }

    def times(self, study: str) -> dict[str, int]:
        """How often each kind was charged in one study: what guards' ``times`` are held against."""
        with self._file.reading_lock():
            totals = stored_totals(self._file)
        kinds = {kind for name in totals if (kind := kind_of(name))}
        counted = {k: totals.get(scope(COUNTED, {"study": study, "kind": k})) for k in kinds}
        return {kind: total.times for kind, total in counted.items() if total is not None}

    @property
    def amended(self) -> bool:
        """Whether something was charged under another budget than the one in force.

        A filter certifies the ceiling that it was given in advance; see
        :meth:`privfed.privacy.accountant.Accountant.stated`.
        """
        with self._file.reading_lock():
            return bool(self._file.get("amended"))

    def entries(self) -> Iterator[Entry]:
        """All rows in order."""
        return self._file.select()

    def disclosed(self, session: str = "") -> Iterator[tuple[str, Disclosed]]:
        """What left, in order, with its time: the transcript of this data owner.

        Args:
            session: what the ids of one run's requests begin with; none gives all that ever left.
        """
        asked: dict[tuple[str, str], bytes] = {}
        for entry in self.entries():
            if not entry.request.startswith(session):
                continue
            if entry.event in ("reserved", "drawn"):
                asked[entry.principal, entry.request] = entry.payload
            elif entry.event == "released":
                fields = asked.pop((entry.principal, entry.request))
                reply = Envelope("release", entry.payload).open()
                assert isinstance(reply, Release)
                yield entry.time, Disclosed(reply.client, reply.kind, fields, reply)

    @property
    def head(self) -> Head:
        """The end of the chain."""
        return self.sign(self._file.head)

    def verify(
        self, heads: Head | Iterable[Head] | None = None, public: bytes | None = None
    ) -> Head:
        """Recompute the whole chain and every total.

        Args:
            heads: heads published earlier; the chain must still pass through them.
            public: the owner's public key, where those heads must be signed.

        Returns:
            the end of the chain.

        Raises:
            LedgerError: a row was changed, removed, added or reordered, a total is false, or a head
                is not on the chain.
        """
        published = (heads,) if isinstance(heads, Head) else tuple(heads or ())
        for head in published:
            if public is not None:
                check_signature(head, self.dataset, public)
        return verify(self._file, published)

    def export(self, format: str = "jsonl") -> Iterator[str]:
        """All rows as text, line by line: ``jsonl`` (JSON lines) or ``csv``.

        Raises:
            InputError: an unknown format.
        """
        return export(self.entries(), format)

    def budget(self, by: str | None = None) -> list[Line]:
        """What is spent, reserved and remaining, in all and by an aspect.

        Args:
            by: ``study``, ``kind``, ``month``, ``client``, ``principal``, ``round`` or ``model``;
                none for the whole data set alone.

        Returns:
            the whole first, then each value of the aspect.

        Raises:
            InputError: an unknown aspect.
        """
        with self._file.snapshot():
            return statement(
                self.entries(), self.terms, by, amended=bool(self._file.get("amended"))
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()
