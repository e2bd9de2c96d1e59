"""Budget statements of a ledger (spent, reserved, remaining), and export of its rows as text."""

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from privfed.errors import InputError
from privfed.ledger.allowances import Allowances, asked_in, in_units, people_of
from privfed.ledger.charge import Total
from privfed.ledger.store import Entry
from privfed.ledger.study_blocks import StudyBlock
from privfed.privacy.accountant import Accountant, Amount, Budget, plus
from privfed.privacy.limit import ASPECTS, Limit
from privfed.privacy.loss import Loss, basis_in_words
from privfed.privacy.masked_sums import MaskedSums, if_masks_fail
from privfed.privacy.policy_objects import installed_accountant
from privfed.questions.exact import shown, text


@dataclass(frozen=True)
class Line:
    """One line of a budget statement."""

    by: str  #: the aspect, or ``"all"``
    name: str  #: its value
    spent: Amount  #: charged and answered, under the ledger's accountant
    reserved: Amount  #: charged and not (yet) answered; counts as spent
    components: tuple[str, ...] = ()  #: of an amount, such as ``("rho", "delta")``
    unprotected: int = 0  #: answers without a finite guarantee
    releases: int = 0  #: number of charges
    budget: Budget | None = None  #: the ceiling of this line, if any
    #: the guarantee (epsilon, delta, ceiling); see :class:`.PrivacyStatement`. For a study with a share: of the study's
    #: releases, given all before them, whatever comes later
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    ceiling: Fraction | None = None
    #: the epsilon that one more study may spend; None without a budget
    remaining: Fraction | None = None
    secure: bool = True  #: whether all noise was secure; test noise does not protect
    basis: str = ""  #: assumptions of the figures that are not derived here, in words; or empty
    #: epsilon if the masks of its sums fail; None without masks
    unmasked: Fraction | None = None
    share: Amount = ()  #: of a study: its reserved share of the budget, or empty

    @property
    def basis_in_words(self) -> str:
        """Return the figures' assumptions, and their values if masks fail, in words; or empty."""
        if self.unmasked is None:
            return self.basis
        alone = "by itself " if self.alone else ""
        bound = "epsilon" if self.share else f"{alone}at most epsilon"
        so_far = "" if self.share else " so far"
        return f"{self.basis}; if the masks fail, {bound} {shown(self.unmasked)}{so_far}"

    @property
    def alone(self) -> bool:
        """Whether its epsilon is of these charges by themselves, so that the lines' epsilons do not add up."""
        return self.by != "all" and not self.share and self.components[:1] != ("epsilon",)

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain data, numbers as text."""
        names = self.components or tuple(map(str, range(len(self.spent))))
        return {
            "by": self.by,
            "name": self.name,
            "spent": dict(zip(names, map(text, self.spent), strict=True)),
            "reserved": dict(zip(names, map(text, self.reserved), strict=True)),
            "epsilon": None if self.epsilon is None else text(self.epsilon),
            "delta": text(self.delta),
            "ceiling": None if self.ceiling is None else text(self.ceiling),
            "budget": None if self.budget is None else self.budget.to_dict(),
            "remaining": None if self.remaining is None else text(self.remaining),
            "unprotected": self.unprotected,
            "releases": self.releases,
            "secure_noise": self.secure,
            "basis": self.basis,
            "unmasked": None if self.unmasked is None else text(self.unmasked),
            "share": dict(zip(names, map(text, self.share), strict=False)),
        }


class _Sums:
    """Totals of answered and unanswered charges by name; in a cohort, the largest of any individual."""

    def __init__(self, accountant: str) -> None:
        self.spent: dict[str, Total] = {}
        self.reserved: dict[str, Total] = {}
        self.accountant = accountant  # until a charging row names it
        self.test: set[str] = set()  # names with some seeded noise
        self.alone: dict[str, Amount] = {}  # extra cost of masked charges if their masks fail
        self._each: dict[tuple[str, int], Allowances] = {}

    def add(self, names: Iterable[str], entry: Entry, answered: int, open_: int) -> None:
        """Add one charging row, with a block's answered and unanswered parts separately."""
        cost = tuple(map(Fraction, entry.body["amount"]))
        loss = entry.body["loss"]
        finite, basis = "unprotected" not in loss, tuple(loss.get("basis", ()))
        self.accountant = entry.body.get("accountant", self.accountant)
        accountant = installed_accountant(self.accountant) if "unmasked" in entry.body else None
        for name in names:
            if accountant is not None:
                alone = accountant.cost(Loss.from_dict(entry.body["unmasked"]))
                more = plus(alone, cost, -1)
                self.alone[name] = plus(
                    self.alone.get(name, accountant.nothing), more, answered + open_
                )
            if not entry.body.get("secure", True):
                self.test.add(name)
            for sums, count in ((self.spent, answered), (self.reserved, open_)):
                total = sums.get(name, Total(())).plus(cost, finite, count, basis)
                if people_of(entry) is not None and count:
                    upper_bound = self._most((name, id(sums)), entry, cost, count)
                    total = Total(upper_bound, total.unprotected, total.times, total.basis)
                sums[name] = total

    def _most(self, key: tuple[str, int], entry: Entry, cost: Amount, count: int) -> Amount:
        """Charge the individuals queried, and return the largest total of any individual."""
        people = people_of(entry) or 1
        each = self._each.setdefault(key, Allowances(people, len(cost)))
        each.charge(asked_in(entry), in_units(plus(cost, cost, count - 1)))
        return each.most


def statement(
    entries: Iterable[Entry],
    terms: Mapping[str, Any] | None,
    by: str | None,
    *,
    amended: bool = False,
    named: Iterable[Entry] = (),
    blocks: Mapping[str, StudyBlock] | None = None,
) -> list[Line]:
    """Add up a ledger's rows; see :meth:`privfed.ledger.Ledger.budget`."""
    if by not in (None, *ASPECTS):
        raise InputError(f"a budget is shown by {', '.join(ASPECTS)}, not by {by!r}")
    rows = list(_charging(entries))
    whole, parts = (_Sums((terms or {}).get("accountant", "")) for _ in range(2))
    for entry, answered, open_ in rows:
        whole.add(("",), entry, answered, open_)
        if by is not None:
            parts.add((_aspect(entry, by),), entry, answered, open_)
    named = list(named)
    lines = _lines("all", whole, terms or {}, amended, named)
    if by is None:
        return lines
    split = _lines(by, parts, terms or {}, amended, named)
    if by == "study" and blocks:
        split = [_of_block(line, blocks, whole.accountant, named) for line in split]
    return lines + split


def fixed_totals(entries: Iterable[Entry], accountant: Accountant) -> tuple[Amount, ...]:
    """Return the totals fixed before a ledger's first charge; see :meth:`.Ledger.fixed_totals`."""
    share: tuple[Amount, ...] = ()
    ceiling: tuple[Amount, ...] = ()
    for entry in entries:
        if entry.event in ("reserved", "block"):
            break
        if entry.event == "policy":
            data = entry.body["policy"].get("budget")
            budget = None if data is None else Budget.of(data["epsilon"], data["delta"])
            ceiling = () if budget is None else (accountant.ceiling(budget),)
        elif entry.event == "share" and not share:
            share = (tuple(map(Fraction, entry.body["share"])),)
    return (*share, *ceiling) if ceiling else ()


def _charging(entries: Iterable[Entry]) -> Iterator[tuple[Entry, int, int]]:
    """Yield charging rows with the numbers of answered and unanswered charges."""
    charges: dict[Any, Entry] = {}
    remaining: dict[Any, int] = {}
    for entry in entries:
        who = (entry.principal, entry.request)
        if entry.event in ("block", "reserved"):
            key: Any = entry.seq if entry.event == "block" else who
            charges[key], remaining[key] = entry, entry.body.get("count", 1)
        elif entry.event == "drawn":
            block = entry.body["block"]
            remaining[block] -= 1
            amount = charges[block].body["amount"]
            yield replace(entry, body={**entry.body, "amount": amount}), 1, 0
        elif entry.event in ("released", "failed") and who in charges:
            remaining[who] = 0
    for key, entry in charges.items():
        if entry.event == "block":
            yield entry, 0, remaining[key]
        else:
            yield entry, 1 - remaining[key], remaining[key]


def _aspect(entry: Entry, by: str) -> str:
    if by == "month":
        return entry.time[:7]
    return entry.principal if by == "principal" else str(entry.body.get(by, ""))


def _lines(
    by: str, sums: _Sums, terms: Mapping[str, Any], amended: bool, named: Sequence[Entry]
) -> list[Line]:
    accountant = installed_accountant(sums.accountant)
    names = list(sums.spent) or ([""] if by == "all" else [])
    lines = [_line(by, name, sums, accountant, terms) for name in names]
    if accountant is None:
        return lines
    fixed = fixed_totals(named, accountant)
    proved = [_proved(line, accountant, terms, amended, fixed) for line in lines]
    masked = _masks(named)
    if_unmasked = [masked.at_most(amount, accountant) for amount in fixed] if masked else []
    return [_unmasked(line, sums.alone.get(line.name), accountant, if_unmasked) for line in proved]


def _line(
    by: str, name: str, sums: _Sums, accountant: Accountant | None, terms: Mapping[str, Any]
) -> Line:
    nothing = Total(accountant.nothing if accountant else (Fraction(0), Fraction(0)))
    spent, reserved = sums.spent.get(name, nothing), sums.reserved.get(name, nothing)
    budget = _budget(by, name, terms)
    return Line(
        by,
        name,
        spent.amount,
        reserved.amount,
        accountant.components if accountant else (),
        spent.unprotected + reserved.unprotected,
        spent.times + reserved.times,
        budget,
        secure=name not in sums.test,
        basis=basis_in_words({*spent.basis, *reserved.basis}),
    )


def _proved(
    line: Line,
    accountant: Accountant,
    terms: Mapping[str, Any],
    amended: bool,
    fixed: tuple[Amount, ...],
) -> Line:
    """Add the guarantee to a line: under its own ceiling, or at the whole budget's delta."""
    total = plus(line.spent, line.reserved)
    whole = _budget("all", "", terms)
    stated = accountant.stated(total, line.budget or whole, amended=amended, fixed=fixed)
    proved = replace(line, epsilon=stated.epsilon, delta=stated.delta)
    if line.budget is None:
        return proved
    remaining = accountant.left(total, line.budget)
    return replace(proved, ceiling=stated.ceiling, remaining=remaining)


def _masks(named: Iterable[Entry]) -> MaskedSums | None:
    """Return the masks of the first policy in ``named``; None if it has none."""
    first = next((e.body["policy"] for e in named if e.event == "policy"), dict[str, Any]())
    return MaskedSums.from_dict(first["masked"]) if "masked" in first else None


def _unmasked(
    line: Line, more: Amount | None, accountant: Accountant, fixed: Sequence[Amount]
) -> Line:
    """Add to a line with masked sums the epsilon if the masks fail, from their extra cost."""
    if more is None:
        return line
    total = plus(plus(line.spent, line.reserved), more)
    epsilon = if_masks_fail(accountant, total, line.delta, fixed)
    return replace(line, unmasked=epsilon)


def _of_block(
    line: Line, blocks: Mapping[str, StudyBlock], accountant_name: str, named: Iterable[Entry]
) -> Line:
    """Add to a study's line the guarantee of its share, which holds permanently; others are unchanged."""
    accountant, block = installed_accountant(accountant_name), blocks.get(line.name)
    if accountant is None or block is None:
        return line
    epsilon, delta = accountant.guarantee(block.share, line.delta)
    stated = replace(line, epsilon=epsilon, delta=delta, share=block.share)
    masked = _masks(entry for entry in named if entry.body.get("study") == line.name)
    if line.unmasked is None or masked is None:
        return stated
    unmasked = accountant.guarantee(masked.at_most(block.share, accountant), line.delta)[0]
    return replace(stated, unmasked=unmasked)


def _budget(by: str, name: str, terms: Mapping[str, Any]) -> Budget | None:
    """Return the ceiling of this line, or None."""
    if by == "all":
        data = terms.get("budget")
        return None if data is None else Budget.of(data["epsilon"], data["delta"])
    for entry in terms.get("limit", ()):
        limit = Limit.from_dict(entry)
        if limit.aspects == (by,) and limit.applies({by: name}):
            return limit.budget
    return None


def export(entries: Iterable[Entry], format: str) -> Iterator[str]:
    """Yield rows as lines of text; see :meth:`privfed.ledger.Ledger.export`."""
    writers = {"jsonl": _json_lines, "csv": _csv_lines}
    if format not in writers:
        raise InputError(f"a ledger is exported as jsonl or csv, not {format!r}")
    return writers[format](entries)


def _json_lines(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        data = {**vars(entry), "payload": base64.b64encode(entry.payload).decode()}
        yield json.dumps(data, ensure_ascii=False, sort_keys=True) + "\n"


#: Columns of an exported table; ``count`` is the number of charges or refusals of a row, if not 1.
TABLE = [
    *("seq", "time", "event", "principal", "request", "study", "round", "client", "kind"),
    *("policy", "loss", "count", "unit", "relation", "secure", "reason", "payload_bytes", "hash"),
]


def _csv_lines(entries: Iterable[Entry]) -> Iterator[str]:
    yield _csv_line(TABLE)
    for entry in entries:
        cells = {**entry.body, **vars(entry), "payload_bytes": len(entry.payload)}
        yield _csv_line([_cell(cells.get(column, "")) for column in TABLE])


def _csv_line(cells: list[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def printable(text: str) -> str:
    """Quote a server's text if it has control characters or line breaks."""
    return text if text.isprintable() else json.dumps(text)


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet reads as a formula."""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
