"""Ledgers as HTML pages: an overview of spending and integrity, and one page per ledger with its rows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from privfed.exchange.messages import EXPLANATIONS, Reason
from privfed.ledger import Entry, Ledger
from privfed.ledger.refusals import EACH, refusals_in
from privfed.ledger.statement import Line
from privfed.privacy.loss import Loss
from privfed.questions.exact import shown
from privfed.reports.ledger_text import facts
from privfed.reports.page import render
from privfed.reports.words import in_words

ROWS = 500  #: Most rows on a page, the newest


@dataclass(frozen=True)
class RowView:
    """One row of a ledger."""

    seq: int
    time: str
    event: str
    study: str
    what: str  #: kind, reason, data set or budget
    cost: str
    hash: str

    @classmethod
    def of(cls, entry: Entry) -> RowView:
        """Format a row."""
        body = entry.body
        what = ", ".join(facts(entry))
        cost = in_words(Loss.from_dict(body["loss"])) if "loss" in body else ""
        time = entry.time[:19].replace("T", " ")
        return cls(entry.seq, time, entry.event, str(body.get("study", "")), what, cost, entry.hash)

    def has(self, words: Sequence[str]) -> bool:
        """Whether it contains all words."""
        text = f"{self.seq} {self.time} {self.event} {self.study} {self.what} {self.cost}".lower()
        return all(word in text for word in words)


@dataclass(frozen=True)
class LedgerView:
    """Content of one ledger's page; only the reason if the ledger is not intact."""

    name: str  #: its owner, with the policy in a study's output
    place: str  #: address of its page
    folder: Path
    broken: str = ""  #: why it is not intact, or empty
    intact: str = ""  #: rows, head, and whether the head is known from elsewhere
    head: str = ""  #: the end of its chain
    whole: Line | None = None  #: all charges
    studies: tuple[Line, ...] = ()  #: charges by study
    joined: int = 0  #: number of studies with a policy or a share, charged or not
    kinds: tuple[Line, ...] = ()  #: charges by kind
    left: str = ""  #: remaining budget
    failed: str = ""  #: note that a protected query failed, which no epsilon covers, or empty
    sentences: tuple[str, ...] = ()  #: shares, spending and remaining budget, as printed
    refused: tuple[tuple[str, str, int, str], ...] = ()  #: kind, reason, count, last time
    noise: str = ""  #: result of the noise monitor
    convicted: bool = False  #: whether the noise differs from the charged distribution
    keys: tuple[str, ...] = ()  #: public keys that signed heads, in order
    words: str = ""  #: words by which rows are selected
    rows: tuple[RowView, ...] = ()  #: newest first
    found: int = 0  #: number of rows that contain the words

    def read(self, ledger: Ledger, words: str | None = None) -> LedgerView:
        """Return the view filled in from a verified ledger; with ``words``, also with the rows that contain them all."""
        count, rows = 0, deque[RowView](maxlen=ROWS)
        for entry in () if words is None else ledger.entries():
            row = RowView.of(entry)
            if row.has((words or "").lower().split()):
                count += 1
                rows.appendleft(row)
        return replace(
            self,
            head=str(ledger.head),
            whole=ledger.budget()[0],
            studies=tuple(ledger.budget("study")[1:]),
            joined=len({*ledger.policies(), *ledger.study_blocks()}),
            kinds=tuple(ledger.budget("kind")[1:]),
            refused=_refused(ledger),
            keys=tuple(str(entry.body["public"]) for entry in ledger.signing_keys()),
            words=words or "",
            rows=tuple(rows),
            found=count,
        )

    @property
    def refusals(self) -> int:
        """Number of refused queries."""
        return sum(count for _, _, count, _ in self.refused)


def _refused(ledger: Ledger) -> tuple[tuple[str, str, int, str], ...]:
    counts: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], str] = {}
    for entry in ledger.entries(events=("refused",)):
        key = str(entry.body.get("kind", "")), EXPLANATIONS[Reason(entry.body["reason"])]
        counts[key] += refusals_in(entry)
        last[key] = entry.time[:19].replace("T", " ")
    return tuple((*key, count, last[key]) for key, count in counts.most_common())


def spent(line: Line) -> str:
    """Return the proven epsilon of all charges so far, and the budget's."""
    if line.unprotected or not line.secure:
        return "no finite guarantee"
    text = "nothing" if line.epsilon is None else f"at most ε {shown(line.epsilon)}"
    return text if line.budget is None else f"{text} of {shown(line.budget.epsilon)}"


def ledgers_page(views: Sequence[LedgerView]) -> str:
    """Return the page of all ledgers."""
    return render("ledgers.html", views=views, spent=spent, each=EACH, now=_now())


def ledger_page(view: LedgerView) -> str:
    """Return the page of one ledger."""
    return render("ledger.html", view=view, each=EACH, now=_now())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
