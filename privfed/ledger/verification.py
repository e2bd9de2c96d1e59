"""Checking a ledger from its rows alone: the chain, the totals, the policies in force.

Everything wrong is a :class:`~privfed.errors.LedgerError`; whatever the file holds, checking it
never fails otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec

from privfed import plugins, wire
from privfed.accountant import Accountant
from privfed.errors import InputError, LedgerError
from privfed.ledger.chain import FORMAT, GENESIS, encode_body, fits
from privfed.ledger.storage import SCHEMA, ChainFile
from privfed.ledger.total import Total, tracked
from privfed.limit import ASPECTS, Limit
from privfed.loss import Loss
from privfed.policy import terms_of
from privfed.release import Head

_CHARGES = ("reserved", "block")
#: A charge as far as totals go: its aspects in order, its amount, and its loss.
_Key = tuple[tuple[str, ...], tuple[str, ...], bytes]


class _Charged(msgspec.Struct):
    """What a charging row says, as far as totals go."""

    kind: str
    loss: msgspec.Raw
    amount: tuple[str, ...]
    study: str = ""
    round: str = ""
    client: str = ""
    model: str = ""
    accountant: str = ""
    count: int = 1

    def key(self, principal: str, time: str) -> _Key:
        """What tells it apart in a sum."""
        aspects = (self.study, self.round, self.kind, self.client, principal, time[:7], self.model)
        return aspects, self.amount, bytes(self.loss)


class _Drawn(msgspec.Struct):
    """What a row says that draws on a block."""

    block: int
    loss: msgspec.Raw


class _Adopted(msgspec.Struct):
    """What a policy's row says."""

    policy: dict[str, Any]
    digest: str
    study: str


_READ_CHARGE = msgspec.json.Decoder(_Charged)


def verify(file: ChainFile, published: Sequence[Head] = ()) -> Head:
    """Recompute the chain, the totals and the state of a ledger's file.

    Args:
        file: an open file.
        published: heads that the chain must pass through.

    Returns:
        the end of the chain.

    Raises:
        LedgerError: something does not follow from the rows, or a head is not on the chain.
    """
    try:
        with file.snapshot():
            _check_database(file)
            walk = _Walk(file, published)
            for row in file.raw("ORDER BY seq"):
                walk.step(row)
            return walk.finish()
    except (InputError, msgspec.MsgspecError, ArithmeticError, ValueError, TypeError) as error:
        reason = type(error).__name__
        raise LedgerError(f"{file}: an entry is not what a gate writes ({reason})") from None


def _check_database(file: ChainFile) -> None:
    """Tables and index as we make them, no trigger or view beside them, and a sound file."""
    found = {sql for (sql,) in file.query("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if found != set(SCHEMA):
        raise LedgerError(f"{file}: its tables are not those of a ledger")
    if file.query("PRAGMA integrity_check(1)") != [("ok",)]:
        raise LedgerError(f"{file}: the file is damaged")


def check_begun(file: ChainFile, dataset: str | None) -> str:
    """Hold the first row against the format and the data set; give its data set."""
    tables = file.query("SELECT name FROM sqlite_master WHERE type = 'table'")
    if not {("entries",), ("state",)} <= set(tables):
        raise LedgerError(f"{file}: is no ledger; give the file that a gate wrote")
    first = file.query("SELECT body FROM entries WHERE seq = 1")
    try:
        begun = msgspec.json.decode(first[0][0], type=dict[str, Any])
    except (IndexError, TypeError, msgspec.MsgspecError):
        raise LedgerError(f"{file}: its first entry cannot be read; it was rewritten") from None
    if begun.get("format") != FORMAT:
        raise LedgerError(f"{file}: is written in another format; use the privfed that wrote it")
    if dataset is not None and begun.get("dataset") != dataset:
        raise LedgerError(
            f"{file}: belongs to data set {begun.get('dataset')!r}, not {dataset!r}; "
            "give each data set a ledger of its own"
        )
    return str(begun.get("dataset"))


class _Walk:
    """One pass over the rows, and what follows from them."""

    def __init__(self, file: ChainFile, published: Sequence[Head]) -> None:
        self.file = file
        self.previous, self.seq, self.time = GENESIS, 0, ""
        self.awaited = {head.seq: head for head in published}
        if len(self.awaited) < len({(head.seq, head.hash) for head in published}):
            raise LedgerError(f"{file}: two published heads contradict each other")
        self.charges: Counter[_Key] = Counter()
        self.state: dict[str, Any] = {}
        self.limits: tuple[Limit, ...] = ()
        self.blocks: dict[int, tuple[int, bytes]] = {}

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
            self._draw(msgspec.json.decode(row[5], type=_Drawn))
        elif event == "policy":
            self._adopt(msgspec.json.decode(row[5], type=_Adopted))
        elif event == "counted":
            self.state["charged"] = self.seq

    def _charge(self, charge: _Charged, row: tuple[Any, ...]) -> None:
        key = charge.key(row[3], row[1])
        self.charges[key] += charge.count
        self.state["charged"] = self.seq
        if row[2] == "block":
            self.blocks[self.seq] = (charge.count, key[2])
        if charge.accountant:
            self.state["accountant"] = charge.accountant

    def _draw(self, drawn: _Drawn) -> None:
        left, loss = self.blocks.get(drawn.block, (0, b""))
        if left < 1 or loss != bytes(drawn.loss):
            raise LedgerError(f"{self.file}: entry {self.seq} draws what was not reserved")
        self.blocks[drawn.block] = (left - 1, loss)

    def _adopt(self, row: _Adopted) -> None:
        terms = terms_of(row.policy)
        self.limits = tuple(Limit.from_dict(entry) for entry in terms.get("limit", ()))
        self.state[f"policy:{row.study}"] = row.digest
        self.state["terms"] = {"digest": wire.digest(encode_body(terms)), "terms": terms}

    def finish(self) -> Head:
        """Hold the stored state against what follows from the rows."""
        if self.awaited:
            missing = min(self.awaited.values(), key=lambda head: head.seq)
            raise LedgerError(f"{self.file}: the published head {missing} is not on the chain")
        self.state["tip"] = [self.seq, self.previous]
        for name, total in _fold(self.charges, self.limits, None).items():
            self.state[f"total:{name}"] = total
        expected = {name: encode_body(value) for name, value in self.state.items()}
        stored = self.file.state()
        for name in sorted({*expected, *stored}):
            if expected.get(name) != stored.get(name):
                raise LedgerError(f"{self.file}: its {name!r} does not follow from its entries")
        self._check_amounts()
        return Head(self.seq, self.previous)

    def _check_amounts(self) -> None:
        """Hold what was added against the losses, where the ledger's accountant is installed."""
        name = self.state.get("accountant")
        if name not in plugins.available("accountants"):
            return
        accountant: Accountant = plugins.load("accountants", name)()
        for _, amount, loss in self.charges:
            cost = accountant.cost(Loss.from_dict(msgspec.json.decode(loss)))
            if tuple(map(str, cost)) != amount:
                raise LedgerError(f"{self.file}: a charge does not add what its loss costs")


def totals_of(
    file: ChainFile, limits: tuple[Limit, ...] = (), accountant: Accountant | None = None
) -> dict[str, Total]:
    """Add up all charges anew, by scope.

    Args:
        file: an open file.
        limits: which scopes to keep apart, beside everything and the kinds.
        accountant: how losses add up, if not as they were added.
    """
    charges: Counter[_Key] = Counter()
    for row in file.raw("WHERE event IN ('reserved', 'block') ORDER BY seq"):
        charge = _READ_CHARGE.decode(row[5])
        charges[charge.key(row[3], row[1])] += charge.count
    return _fold(charges, limits, accountant)


def stored_totals(file: ChainFile) -> dict[str, Total]:
    """The running totals as they are kept, by scope."""
    prefix = "total:"
    return {
        name.removeprefix(prefix): Total.of(msgspec.json.decode(value))
        for name, value in file.state().items()
        if name.startswith(prefix)
    }


def _fold(
    charges: Counter[_Key], limits: tuple[Limit, ...], accountant: Accountant | None
) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for (words, amount, plain), count in charges.items():
        loss = Loss.from_dict(msgspec.json.decode(plain))
        cost = tuple(map(Fraction, amount)) if accountant is None else accountant.cost(loss)
        for name in tracked(dict(zip(ASPECTS, words, strict=True)), limits):
            totals[name] = totals.get(name, Total(())).plus(cost, loss.finite, count)
    return totals
