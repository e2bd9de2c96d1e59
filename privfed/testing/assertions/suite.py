"""State of a suite's leak assertions: disabled rules, accepted findings, and results."""

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

FORMAT = "privfed-leaks-baseline 1"  #: Format of a baseline file
SHOWN = 8  #: Most columns named in a session's report


@dataclass(frozen=True)
class Looked:
    """Result of one assertion: findings, columns whose single cells are too common to be detected, and
    reasons why something was not read in full, with counts."""

    findings: int
    blind: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    accepted: int = 0  #: findings that a reviewer has accepted


@dataclass
class Suite:
    """Settings of a suite, and results of its assertions."""

    off: tuple[str, ...] = ()  #: Families of rules that are switched off
    #: Descriptions of accepted findings, by their digests.
    accepted: dict[str, str] = field(default_factory=dict)
    recording: bool = False  #: Whether findings that fail a test are accepted
    test: str = ""
    seen: list[Looked] = field(default_factory=list)
    #: Findings of the last assertion that were not accepted, by digest.
    last: dict[str, str] = field(default_factory=dict)
    #: Digests of accepted findings that occurred, and the tests that ran.
    used: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)  #: Tests that ended at an accepted finding
    #: Raw tables of the running test, whose values must not be printed.
    tables: list[RawTable] = field(default_factory=list)

    def keep_back(self, raw: object) -> None:
        """Redact the values of a table, if it is one, in failures of the running test."""
        with suppress(InputError):
            self.tables += raw_tables(raw)

    def unaccepted(
        self, findings: Sequence[Evidence], looked: Looked, redact: Callable[[str], str]
    ) -> list[Evidence]:
        """Return the findings not accepted, by digests of test, path (redacted) and rule."""
        new = []
        self.last.clear()
        for finding in findings:
            text = "\0".join((self.test, redact(finding.where), finding.rule))
            key = hashlib.sha256(text.encode()).hexdigest()[:24]
            if key in self.accepted:
                self.used.add(key)
            else:
                new.append(finding)
                self.last[key] = f"{self.test}: {finding.rule}"
        self.seen.append(replace(looked, accepted=len(findings) - len(new)))
        return new

    def accept_last(self) -> None:
        """Accept the findings of the last assertion."""
        self.accepted |= self.last
        self.used |= set(self.last)
        self.stopped |= {text.rpartition(": ")[0] for text in self.last.values()}
        self.seen[-1] = replace(self.seen[-1], accepted=self.seen[-1].findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the results that a worker sends to the session, as JSON-like data."""
        return {
            "seen": [[r.findings, list(r.blind), dict(r.unread), r.accepted] for r in self.seen],
            "used": sorted(self.used),
            "ran": sorted(self.ran),
            "stopped": sorted(self.stopped),
            "accepted": self.accepted,
        }

    def merge(self, data: dict[str, Any]) -> None:
        """Add the results of a worker."""
        self.seen += [
            Looked(findings, tuple(blind), unread, accepted)
            for findings, blind, unread, accepted in data["seen"]
        ]
        self.used |= set(data["used"])
        self.ran |= set(data["ran"])
        self.stopped |= set(data["stopped"])
        self.accepted |= data["accepted"]

    def summary(self) -> list[str]:
        """Return lines for the session's report; empty if no assertion ran."""
        if not self.seen:
            return []
        n_findings = sum(item.findings for item in self.seen)
        looked = f"{number_of(len(self.seen), 'assertion')} looked for raw values: {number_of(n_findings, 'finding')}"
        accepted = sum(item.accepted for item in self.seen)
        lines = [f"{looked}, {accepted} of them accepted by the baseline"]
        if self.off:
            lines.append(f"switched off: {', '.join(self.off)}")
        blind = Counter(name for item in self.seen for name in item.blind)
        if blind:
            columns = [
                f"{name!r} ({number_of(count, 'time')})" for name, count in blind.most_common()
            ]
            lines.append(too_common_alone(columns))
        unread = sum((Counter(item.unread) for item in self.seen), Counter[str]())
        lines += [f"not read in full: {count} x {why}" for why, count in unread.most_common(SHOWN)]
        if self.stopped:
            lines.append(
                f"{number_of(len(self.stopped), 'test')} ended where a finding was accepted: update the baseline again "
                "for what may follow there"
            )
        stale = len(set(self.accepted) - self.used)
        return [*lines, f"{number_of(stale, 'accepted finding')} not met again"] if stale else lines

    def write(self, path: Path) -> None:
        """Write the accepted findings, sorted for comparison: those that occurred, and those of tests that
        did not run."""
        items = sorted(self.accepted.items())
        not_run = {key for key, entry in items if entry.rpartition(": ")[0] not in self.ran}
        kept = {key: entry for key, entry in items if key in self.used | not_run}
        text = json.dumps({"format": FORMAT, "accepted": kept}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def too_common_alone(columns: Sequence[str]) -> str:
    """Return a sentence naming columns whose single cells would not be detected."""
    more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return (
        f"most cells of {', '.join(columns[:SHOWN])}{more} are too common for one alone to convict"
    )


def read_baseline(path: Path) -> dict[str, str]:
    """Return the accepted findings of a file; empty if it does not exist, InputError if it is no baseline."""
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] == FORMAT:
            return {str(key): str(text) for key, text in data["accepted"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(f"{path.name} is not a baseline; write it with --privfed-update-baseline")


_suite: ContextVar[Suite | None] = ContextVar("the running suite", default=None)


def current() -> Suite:
    """Return the running suite, or a new one with default settings."""
    return _suite.get() or Suite()


@contextmanager
def running(suite: Suite, test: str = "") -> Iterator[Suite]:
    """Context in which assertions belong to a suite and one of its tests."""
    suite.test = test
    suite.ran.add(test)
    suite.tables.clear()
    token = _suite.set(suite)
    try:
        yield suite
    finally:
        _suite.reset(token)
