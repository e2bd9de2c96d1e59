"""Verification of a ledger from its rows only: the chain, the totals, the policies in force.

Whatever the file contains, verification raises only LedgerError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from privfed.errors import InputError, LedgerError
from privfed.exchange.messages import Head
from privfed.exchange.signing import check_handed
from privfed.ledger.allowances import Allowances, ceiling_in_units
from privfed.ledger.charge import Total, tracked
from privfed.ledger.policy_constraints import raised
from privfed.ledger.store import (
    GENESIS,
    READABLE,
    STATEFUL,
    Entry,
    Store,
    digest_of,
    encode_body,
    fits,
)
from privfed.ledger.study_blocks import BLOCKS, StudyBlock, read_blocks, reserved
from privfed.privacy.accountant import Accountant
from privfed.privacy.laws import Law, Unknown
from privfed.privacy.limit import ASPECTS, Limit
from privfed.privacy.loss import QUERIED, Loss, covers
from privfed.privacy.policy import terms_of
from privfed.privacy.policy_objects import installed_accountant
from privfed.questions import wire

_CHARGES = ("reserved", "block")
#: The parts of a charge that totals depend on: aspects in order, amount, and loss.
_Key = tuple[tuple[str, ...], tuple[str, ...], bytes]


class _Charged(msgspec.Struct):
    """A charging row's fields that totals depend on."""

    kind: str
    query: str
    loss: msgspec.Raw
    amount: tuple[str, ...]
    study: str = ""
    round: str = ""
    client: str = ""
    model: str = ""
    accountant: str = ""
    count: int = 1

    def key(self, principal: str, time: str) -> _Key:
        """Return its key in sums."""
        aspects = (self.study, self.round, self.kind, self.client, principal, time[:7], self.model)
        return aspects, self.amount, bytes(self.loss)


class _DrawRow(msgspec.Struct):
    """Fields of a row that draws on a block."""

    block: int
    kind: str
    query: str
    loss: msgspec.Raw


class _Replied(msgspec.Struct):
    """Fields of the row of a release or a failure."""

    query: str


class _Part(msgspec.Struct):
    noise: Law | None = None
    mechanism: str = ""


class _Release(msgspec.Struct):
    """A release's encoded fields that must match its charge."""

    request: str
    kind: str
    query: str
    parts: dict[str, _Part]


class _Adopted(msgspec.Struct):
    """Fields of a policy's row."""

    policy: dict[str, Any]
    digest: str
    study: str


class _Rotated(msgspec.Struct):
    """Fields of the row of a new signing key."""

    public: str
    replaces: str
    signature: str


class _Share(msgspec.Struct):
    """Fields of the row that reserves or seals a study's share."""

    study: str
    share: tuple[str, ...] = ()


class _Spoken(msgspec.Struct):
    """A row's digest of the state after it."""

    state: str


_READ_CHARGE = msgspec.json.Decoder(_Charged)
_READ_STATE = msgspec.json.Decoder(_Spoken)
_READ_RELEASE = msgspec.msgpack.Decoder(_Release, dec_hook=lambda kind, plain: Law.from_wire(plain))
#: Mechanisms whose losses above 0 always have laws, also in ledgers of format 3.
_LAWFUL = frozenset(["laplace", "gaussian", "randomized_response"])


@lru_cache(maxsize=4096)
def _loss_of(loss: bytes) -> Loss:
    return Loss.from_dict(msgspec.json.decode(loss))


def _noises(laws: Iterable[Law]) -> set[tuple[str, tuple[float, ...]]]:
    """Return laws as name and float parameters, as in releases of format 3."""
    return {(law.name, tuple(map(float, law.parameters))) for law in laws}


def _is_charged(release: _Release, loss: Loss, lawful: bool) -> bool:
    """Whether a release's stated noise is that of its charge.

    A repeated answer was charged earlier, and an unprotected one has no law.
    """
    noises = [part.noise for part in release.parts.values() if part.noise is not None]
    if loss.laws:
        known = not any(isinstance(each.law, Unknown) for each in loss.laws)
        return not known or _noises(noises) == _noises(each.law for each in loss.laws)
    ours = lawful or any(p.noise and p.mechanism in _LAWFUL for p in release.parts.values())
    claimed = any(each.partition(":")[0] != QUERIED for each in loss.basis)
    return not (noises and ours and not claimed and (loss.epsilon or loss.rho))


def verify(file: Store, published: Sequence[Head] = ()) -> Head:
    """Recompute a store's chain, totals and state, check published heads, and return the chain's end."""
    try:
        with file.snapshot():
            file.check_form()
            walk = _LedgerPass(file, published)
            for row in file.select():
                walk.step(row)
            return walk.finish()
    except (InputError, msgspec.MsgspecError, ArithmeticError, ValueError, TypeError) as error:
        reason = type(error).__name__
        raise LedgerError(f"{file}: an entry is not what a gate writes ({reason})") from None


def check_begun(file: Store, dataset: str | None) -> str:
    """Check the first row against the format and the data set, and return its data set."""
    try:
        begun = msgspec.json.decode(next(file.select(at=1))[5], type=dict[str, Any])
    except (StopIteration, TypeError, msgspec.MsgspecError):
        raise LedgerError(f"{file}: its first entry cannot be read; it was rewritten") from None
    if begun.get("format") not in READABLE:
        raise LedgerError(f"{file}: is written in another format; use the privfed that wrote it")
    if dataset is not None and begun.get("dataset") != dataset:
        raise LedgerError(
            f"{file}: belongs to data set {begun.get('dataset')!r}, not {dataset!r}; "
            "give each data set a ledger of its own"
        )
    return str(begun.get("dataset"))


class _LedgerPass:
    """One pass over the rows, deriving totals and state."""

    def __init__(self, file: Store, published: Sequence[Head]) -> None:
        self.file = file
        self.previous, self.seq, self.time = GENESIS, 0, ""
        self.awaited = {head.seq: head for head in published}
        if len(self.awaited) < len({(head.seq, head.hash) for head in published}):
            raise LedgerError(f"{file}: two published heads contradict each other")
        self.charges: Counter[_Key] = Counter()
        self.state: dict[str, Any] = {}
        self.limits: tuple[Limit, ...] = ()
        self.blocks: dict[int, tuple[int, bytes]] = {}
        self.open: dict[tuple[str, str], tuple[str, str, bytes]] = {}
        self.spoken, self.format, self.dataset = "", 0, ""

    def step(self, row: tuple[Any, ...]) -> None:
        """Check one row against the one before."""
        self.seq += 1
        if row[0] != self.seq or not fits(self.previous, row):
            raise LedgerError(f"{self.file}: entry {self.seq} does not fit the chain")
        head = self.awaited.pop(self.seq, None)
        if head is not None and head.hash != row[7]:
            raise LedgerError(f"{self.file}: the published head {head} is not on the chain")
        if row[1] < self.time:
            raise LedgerError(f"{self.file}: entry {self.seq} is older than the one before")
        self.previous, self.time = row[7], row[1]
        self._follow(row)

    def _follow(self, row: tuple[Any, ...]) -> None:
        event = row[2]
        if event in _CHARGES:
            self._charge(_READ_CHARGE.decode(row[5]), row)
        elif event == "drawn":
            self._draw(msgspec.json.decode(row[5], type=_DrawRow), row)
        elif event in ("released", "failed"):
            self._answer(msgspec.json.decode(row[5], type=_Replied), row)
        elif event == "policy":
            self._adopt(msgspec.json.decode(row[5], type=_Adopted))
        elif event == "counted":
            self.state["charged"] = self.seq
        elif event in ("share", "sealed"):
            self._share(msgspec.json.decode(row[5], type=_Share), event == "sealed")
        elif event == "begun" and self.seq == 1:
            begun = msgspec.json.decode(row[5])
            self.format, self.dataset = begun["format"], str(begun["dataset"])
            self._commit(begun)
        elif event == "secret":
            self._commit(msgspec.json.decode(row[5]))
        elif event == "key":
            self._hand_over(msgspec.json.decode(row[5], type=_Rotated))
        if event in STATEFUL:
            self.spoken = _READ_STATE.decode(row[5]).state

    def _commit(self, body: dict[str, Any]) -> None:
        if "secret" in body:
            self.state["secret"] = body["secret"]

    def _hand_over(self, key: _Rotated) -> None:
        """Check that a new key is signed by the one before; a lost key's row has no signature."""
        if key.replaces != self.state.get("key", ""):
            raise LedgerError(f"{self.file}: entry {self.seq} replaces a key that was not in use")
        if key.signature:
            earlier, successor = bytes.fromhex(key.replaces), bytes.fromhex(key.public)
            check_handed(self.dataset, earlier, successor, key.signature)
        self.state["key"] = key.public

    def _charge(self, charge: _Charged, row: tuple[Any, ...]) -> None:
        key = charge.key(row[3], row[1])
        self.charges[key] += charge.count
        self.state["charged"] = self.seq
        if row[2] == "block":
            self.blocks[self.seq] = (charge.count, key[2])
        else:
            self.open[row[3], row[4]] = (charge.kind, charge.query, key[2])
        if charge.accountant:
            self.state["accountant"] = charge.accountant

    def _draw(self, drawn: _DrawRow, row: tuple[Any, ...]) -> None:
        remaining, loss = self.blocks.get(drawn.block, (0, b""))
        if remaining < 1 or loss != bytes(drawn.loss):
            raise LedgerError(f"{self.file}: entry {self.seq} draws what was not reserved")
        self.blocks[drawn.block] = (remaining - 1, loss)
        self.open[row[3], row[4]] = (drawn.kind, drawn.query, loss)

    def _answer(self, reply: _Replied, row: tuple[Any, ...]) -> None:
        """Check that a reply answers one charge of the same query, with the noise charged for."""
        kind, query, loss = self.open.pop((row[3], row[4]), ("", "", b""))
        if not query or query != reply.query:
            raise LedgerError(f"{self.file}: entry {self.seq} answers what was not charged")
        if row[2] == "failed":
            self.state[f"failed:{kind}"] = self.state.get(f"failed:{kind}", 0) + 1
        elif row[6]:
            release = _READ_RELEASE.decode(row[6])
            consistent = release.query == query and release.request == row[4]
            if not consistent or not _is_charged(release, _loss_of(loss), self.format > 3):
                raise LedgerError(f"{self.file}: entry {self.seq} is not what was charged for")

    def _adopt(self, row: _Adopted) -> None:
        terms = terms_of(row.policy)
        in_force = self.state.get("terms")
        if "charged" in self.state and in_force is not None and raised(in_force["terms"], terms):
            self.state["amended"] = True
        self.limits = tuple(Limit.from_dict(entry) for entry in terms.get("limit", ()))
        self.state[f"policy:{row.study}"] = row.digest
        self.state["terms"] = {"digest": wire.digest(encode_body(terms)), "terms": terms}

    def _share(self, row: _Share, sealed: bool) -> None:
        """Check that a study's share is reserved once, never changes, and is sealed once."""
        blocks = self.state.setdefault(BLOCKS, {})
        known = blocks.get(row.study)
        if sealed is (known is None) or (known is not None and known["sealed"]):
            raise LedgerError(f"{self.file}: entry {self.seq} changes a study's share")
        blocks[row.study] = (
            {**known, "sealed": True} if known else reserved(tuple(map(Fraction, row.share)))
        )

    def _check_shares(self, totals: Mapping[str, Total]) -> None:
        """Check that no study charged more than its share; in a cohort, to any individual."""
        spent = {name: total.amount for name, total in totals.items()}
        for block in read_blocks(self.state.get(BLOCKS), spent.get).values():
            over = any(a > b for a, b in zip(block.spent, block.share, strict=True))
            if over and not self._shared_by_people(block):
                raise LedgerError(f"{self.file}: a study was charged more than its share")

    def _shared_by_people(self, block: StudyBlock) -> bool:
        """Whether a cohort's study charged no individual more than its share."""
        accountant = installed_accountant(self.state.get("accountant"))
        if accountant is None:
            return True  # its charges are its own statement, too
        people = Allowances.of(map(Entry.of, self.file.select(events=_CHARGES)), accountant)
        return people is not None and bool(
            (people.by(block.study) <= ceiling_in_units(block.share)).all()
        )

    def finish(self) -> Head:
        """Check the stored state against the derived one, and return the head."""
        if self.awaited:
            missing = min(self.awaited.values(), key=lambda head: head.seq)
            raise LedgerError(f"{self.file}: the published head {missing} is not on the chain")
        self.state["tip"] = [self.seq, self.previous]
        totals = _fold(self.charges, self.limits, None, self.state.get(BLOCKS, ()))
        for name, total in totals.items():
            self.state[f"total:{name}"] = total.to_plain()
        expected = {name: encode_body(value) for name, value in self.state.items()}
        stored = self.file.state()
        if self.spoken != (digest_of(expected) if self.spoken else ""):
            raise LedgerError(f"{self.file}: its last charge does not speak for its totals")
        for name in sorted({*expected, *stored}):
            if expected.get(name) != stored.get(name):
                raise LedgerError(f"{self.file}: its {name!r} does not follow from its entries")
        self._check_shares(totals)
        self._check_amounts()
        return Head(self.seq, self.previous)

    def _check_amounts(self) -> None:
        """Check the added amounts against the losses, if the ledger's accountant is installed."""
        accountant = installed_accountant(self.state.get("accountant"))
        if accountant is None:
            return
        for _, amount, loss in self.charges:
            charged = _loss_of(loss)
            if not covers(charged):
                raise LedgerError(f"{self.file}: a loss is smaller than that of its own noise")
            if tuple(map(str, accountant.cost(charged))) != amount:
                raise LedgerError(f"{self.file}: a charge does not add what its loss costs")


def totals_of(
    file: Store,
    limits: tuple[Limit, ...] = (),
    accountant: Accountant | None = None,
    blocks: Collection[str] = (),
) -> dict[str, Total]:
    """Recompute all totals, by scope: the whole, the kinds, ``limits``, and studies with a share.

    ``accountant`` converts losses to amounts; None: use the recorded amounts.
    """
    charges: Counter[_Key] = Counter()
    for row in file.select(events=_CHARGES):
        charge = _READ_CHARGE.decode(row[5])
        charges[charge.key(row[3], row[1])] += charge.count
    return _fold(charges, limits, accountant, blocks)


def stored_totals(file: Store) -> dict[str, Total]:
    """Return the stored running totals, by scope."""
    prefix = "total:"
    return {
        name.removeprefix(prefix): Total.from_plain(msgspec.json.decode(value))
        for name, value in file.state().items()
        if name.startswith(prefix)
    }


def _fold(
    charges: Counter[_Key],
    limits: tuple[Limit, ...],
    accountant: Accountant | None,
    blocks: Collection[str],
) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for (words, amount, data), count in charges.items():
        loss = _loss_of(data)
        cost = tuple(map(Fraction, amount)) if accountant is None else accountant.cost(loss)
        for name in tracked(dict(zip(ASPECTS, words, strict=True)), limits, blocks):
            totals[name] = totals.get(name, Total(())).plus(cost, loss.finite, count, loss.basis)
    return totals
