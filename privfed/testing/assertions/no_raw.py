"""Asserts that no raw value was released, nor a function of too few records."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privfed.errors import InputError, number_of
from privfed.leaks.artefact import Released
from privfed.leaks.evidence import Evidence
from privfed.leaks.power import is_powerless, too_common
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import FAMILIES, ScanSettings, search
from privfed.leaks.table import DRAWS, RawTable, raw_tables
from privfed.testing.assertions.alpha import share
from privfed.testing.assertions.suite import Looked, current, too_common_alone
from privfed.testing.redaction import Redaction

SHOWN = 4  #: Most findings in a message
_NOTHING = (
    "nothing left at all, so that there is nothing to look through; pass what was released, or "
    "may_be_empty=True where that may be nothing"
)
_NOWHERE = (
    "nothing left at all: no file is at the path that was passed, or its folder is empty; pass the path of "
    "what was written, or may_be_empty=True where that may be nothing"
)


class RawValueLeft(AssertionError):
    """Raw values were released; ``matches`` are the findings, the simplest first."""

    def __init__(self, message: str, matches: Sequence[Evidence] = ()) -> None:
        super().__init__(message)
        self.matches = tuple(matches)


class Powerless(AssertionError):
    """The assertion has no power on this table: its values identify no record."""


def assert_no_raw(  # noqa: PLR0913  # keyword arguments of a test
    left: object,
    raw: object,
    *,
    allow: object = (),
    tolerance: float | None = None,
    k: int = 5,
    schema: Any = None,
    alpha: float | None = None,
    may_be_empty: bool = False,
    off: Sequence[str] = (),
) -> None:
    """Assert that no raw value was released, nor a function of fewer than k records, in any form.

    The released objects are flattened (:mod:`privfed.leaks.reading`) and scored by the rules of
    :mod:`privfed.leaks`. A rule reports a finding only if the raw table explains the outputs better than
    each of 200 redrawn tables of the same shape.

    Args:
        left: the released objects, in any nesting: containers, arrays, tables, tensors, models, bytes,
            pickles (never loaded), texts, files, log records, exceptions, replies.
        raw: the table that must not be released: a DataFrame, an array, a mapping of columns, or a
            mapping of owners to tables. Messages show values of :func:`sentinels` only.
        allow: public values that may be released (numbers, texts), and patterns of paths to ignore,
            such as ``"left['metrics']*"``.
        tolerance: relative difference allowed between released numbers and values, beyond rounding.
        k: a value that k records share identifies none of them, and a group of k records is not small.
        schema: the public data dictionary, by whose bounds values may have been scaled.
        alpha: largest probability of a finding in outputs independent of the table; by default the
            running test's part.
        may_be_empty: whether there may be no output, as for an empty log.
        off: families of rules to switch off, in addition to the suite's (``privfed_off``).

    Raises:
        RawValueLeft: something was found; an AssertionError.
        Powerless: a planted record would not have been found; an AssertionError.
        AssertionError: nothing was released.
        InputError: the raw data are no table, or an argument is invalid.
    """
    __tracebackhide__ = True
    suite, slack = current(), 0.0 if tolerance is None else tolerance
    _check(k, slack, off := (*off, *suite.off))
    with np.errstate(all="ignore"):  # outputs may be infinite or subnormal
        numbers, texts = _allowed(allow)
        suite.tables += (tables := _without(texts, raw_tables(raw, schema, numbers, k)))
        released = Released.of(flatten(left, rows=True), texts)
        if released.empty or _is_nowhere(left):
            if may_be_empty and not released.unread:
                return
            reasons = [f"{count} x {why}" for why, count in released.unread.items()]
            nothing = _NOWHERE if _is_nowhere(left) else _NOTHING
            raise AssertionError("; not read: ".join([nothing, *reasons]))
        settings = ScanSettings(share(alpha), slack, off)
        findings = search(tables, released, settings)
        blind = [name for table in tables for name in too_common(table, settings)]
        looked = Looked(len(findings), tuple(dict.fromkeys(blind)), released.unread)
        findings = suite.unaccepted(findings, looked, Redaction(tables).of)
        if findings:
            raise RawValueLeft(_message(findings, tables, blind), findings)
        _check_power(tables, settings)


def _is_nowhere(left: object) -> bool:
    """Whether it is the path of no file, or of an empty folder, so that only a name would be searched."""
    return isinstance(left, Path) and not (left.is_file() or any(left.glob("*")))


def _check(k: int, tolerance: float, off: Sequence[str]) -> None:
    if not (k >= 2 and 0 <= tolerance < 1):
        raise InputError("write k of at least 2, and a tolerance of at least 0 and below 1")
    if unknown := sorted(set(off) - set(FAMILIES)):
        raise InputError(f"no rule is called {unknown}; the rules are {', '.join(FAMILIES)}")


def _allowed(allow: object) -> tuple[np.ndarray, list[str]]:
    """Numbers and texts of the allowed values."""
    values = [leaf.value for leaf in flatten([allow] if isinstance(allow, str) else allow)]
    numbers = [value.ravel().astype(float) for value in values if isinstance(value, np.ndarray)]
    texts = [value for value in values if isinstance(value, str)]
    return np.concatenate([np.empty(0), *numbers]), [t for text in texts for t in text.split("\n")]


def _without(texts: Sequence[str], tables: Sequence[RawTable]) -> Sequence[RawTable]:
    """Tables without texts that may be released."""
    if not texts:
        return tables
    return [replace(t, texts=tuple(c.without(texts) for c in t.texts)) for t in tables]


def _message(findings: Sequence[Evidence], tables: Sequence[RawTable], blind: Sequence[str]) -> str:
    sentinel = all(table.sentinel for table in tables)
    rules = list({finding.rule: finding for finding in reversed(findings)}.values())
    chosen = sorted(rules, key=lambda finding: (finding.complexity, -finding.nats))[:SHOWN]
    redaction = Redaction(tables)
    lines = [f"raw values left ({number_of(len(findings), 'finding')}):"]
    for finding in chosen:
        lines.append(f"- {redaction.of(finding.where)}: {_describe(finding, sentinel)}")
        if finding.remedy:
            lines.append(f"  {finding.remedy}")
    if len(rules) > len(chosen):
        lines.append(f"and {len(rules) - len(chosen)} more in other forms")
    if blind:
        lines.append(f"({too_common_alone([repr(name) for name in blind])})")
    return "\n".join(lines)


def _describe(finding: Evidence, sentinel: bool) -> str:
    value = f" = {finding.value()}" if sentinel and finding.value() else ""
    more = f", and {finding.count - 1} more" if finding.count > 1 else ""
    form = f" ({finding.precision})" if finding.precision else ""
    rank = f"explained better than by {DRAWS} of {DRAWS} re-drawn tables"
    if finding.certain:
        rank = "no other value has this digest or these bytes"
    return f"{finding.rule}{form}, {finding.record}{value}{more}; {rank} [{finding.family}]"


def _check_power(tables: Sequence[RawTable], settings: ScanSettings) -> None:
    for table in tables:
        if is_powerless(table, settings):
            raise Powerless(
                f"a planted copy of the raw table would not have been noticed among what left: its "
                f"{number_of(table.records, 'record')} of "
                f"{number_of(table.numbers.shape[1], 'numeric column')} look like anybody's; use a longer table, or privfed.testing.sentinels(schema_or_frame, n)"
            )
