"""What a whole suite says of its leak assertions: rules switched off, findings accepted, what was seen."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privfed.errors import InputError, number_of
from privfed.leaks.evidence import Evidence
from privfed.leaks.table import RawTable, raw_tables

FORMAT = "privfed-leaks-baseline 1"  #: The form of a baseline file
SHOWN = 8  #: How many columns a session's report names


@dataclass(frozen=True)
class Looked:
    """One assertion that looked: its findings, columns of which a cell was too common to convict, and what was
    not read or not in full: why, and how often."""

    findings: int
    blind: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    accepted: int = 0  #: how many of the findings a reviewer has accepted


@dataclass
class Suite:
    """The settings of a suite, and what its assertions saw."""

    off: tuple[str, ...] = ()  #: Families of rules that are switched off
    #: What a reviewer reads of accepted findings, by their digests.
    accepted: dict[str, str] = field(default_factory=dict)
    recording: bool = False  #: Whether findings that fail a test are accepted
    test: str = ""
    seen: list[Looked] = field(default_factory=list)
    #: By digest, the findings of the last assertion that nobody had accepted.
    last: dict[str, str] = field(default_factory=dict)
    #: Digests of accepted findings that were met, and the tests that ran.
    used: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)  #: Tests that ended where a finding was accepted
    #: The raw tables of the running test, none of whose values is to be printed.
    tables: list[RawTable] = field(default_factory=list)

    def keep_back(self, raw: object) -> None:
        """Let a failure of the running test print no value of a table, where it is one."""
        with suppress(InputError):
            self.tables += raw_tables(raw)

    def judged(
        self, found: Sequence[Evidence], looked: Looked, hidden: Callable[[str], str]
    ) -> list[Evidence]:
        """The findings that nobody has accepted, by digests of test, path (without raw texts), rule."""
        new = []
        self.last.clear()
        for one in found:
            text = "\0".join((self.test, hidden(one.where), one.rule))
            key = hashlib.sha256(text.encode()).hexdigest()[:24]
            if key in self.accepted:
                self.used.add(key)
            else:
                new.append(one)
                self.last[key] = f"{self.test}: {one.rule}"
        self.seen.append(replace(looked, accepted=len(found) - len(new)))
        return new

    def accept_last(self) -> None:
        """Accept what the last assertion found."""
        self.accepted |= self.last
        self.used |= set(self.last)
        self.stopped |= {told.rpartition(": ")[0] for told in self.last.values()}
        self.seen[-1] = replace(self.seen[-1], accepted=self.seen[-1].findings)

    def told(self) -> dict[str, Any]:
        """All that a worker tells the session, as plain data."""
        return {
            "seen": [
                [one.findings, list(one.blind), dict(one.unread), one.accepted] for one in self.seen
            ],
            "used": sorted(self.used),
            "ran": sorted(self.ran),
            "stopped": sorted(self.stopped),
            "accepted": self.accepted,
        }

    def hear(self, told: dict[str, Any]) -> None:
        """Add what a worker tells."""
        self.seen += [
            Looked(found, tuple(blind), unread, accepted)
            for found, blind, unread, accepted in told["seen"]
        ]
        self.used |= set(told["used"])
        self.ran |= set(told["ran"])
        self.stopped |= set(told["stopped"])
        self.accepted |= told["accepted"]

    def summary(self) -> list[str]:
        """What the session's report says; nothing where no assertion looked."""
        if not self.seen:
            return []
        found = sum(one.findings for one in self.seen)
        looked = f"{number_of(len(self.seen), 'assertion')} looked for raw values: {number_of(found, 'finding')}"
        accepted = sum(one.accepted for one in self.seen)
        lines = [f"{looked}, {accepted} of them accepted by the baseline"]
        if self.off:
            lines.append(f"switched off: {', '.join(self.off)}")
        blind = Counter(name for one in self.seen for name in one.blind)
        if blind:
            often = [
                f"{name!r} ({number_of(count, 'time')})" for name, count in blind.most_common()
            ]
            lines.append(too_common_alone(often))
        unread = sum((Counter(one.unread) for one in self.seen), Counter[str]())
        lines += [f"not read in full: {count} x {why}" for why, count in unread.most_common(SHOWN)]
        if self.stopped:
            lines.append(
                f"{number_of(len(self.stopped), 'test')} ended where a finding was accepted: update the baseline again "
                "for what may follow there"
            )
        stale = len(set(self.accepted) - self.used)
        return [*lines, f"{number_of(stale, 'accepted finding')} not met again"] if stale else lines

    def write(self, path: Path) -> None:
        """Write the accepted findings, in a form that two reviews can be compared by: those that were met,
        and those of tests that did not run."""
        listed = sorted(self.accepted.items())
        away = {key for key, told in listed if told.rpartition(": ")[0] not in self.ran}
        kept = {key: told for key, told in listed if key in self.used | away}
        text = json.dumps({"format": FORMAT, "accepted": kept}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def too_common_alone(columns: Sequence[str]) -> str:
    """Of which columns a single cell would not be noticed, the first ones by name."""
    more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return (
        f"most cells of {', '.join(columns[:SHOWN])}{more} are too common for one alone to convict"
    )


def read_baseline(path: Path) -> dict[str, str]:
    """The accepted findings of a file, none where there is none; an InputError if it is no baseline."""
    if not path.exists():
        return {}
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["format"] == FORMAT:
            return {str(key): str(told) for key, told in held["accepted"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(f"{path.name} is no baseline; write it with --privfed-update-baseline")


_suite: ContextVar[Suite | None] = ContextVar("the running suite", default=None)


def current() -> Suite:
    """The running suite, or one without settings that remembers nothing."""
    return _suite.get() or Suite()


@contextmanager
def running(suite: Suite, test: str = "") -> Iterator[Suite]:
    """Within it, assertions belong to a suite, and to one of its tests."""
    suite.test = test
    suite.ran.add(test)
    suite.tables.clear()
    token = _suite.set(suite)
    try:
        yield suite
    finally:
        _suite.reset(token)
