"""Asserts that no raw value left, nor a function of too few."""

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

SHOWN = 4  #: How many findings a message tells of
_NOTHING = (
    "nothing left at all, so that there is nothing to look through; pass what was released, or "
    "may_be_empty=True where that may be nothing"
)
_NOWHERE = (
    "nothing left at all: no file is at the path that was passed, or its folder is empty; pass the path of "
    "what was written, or may_be_empty=True where that may be nothing"
)


class RawValueLeft(AssertionError):
    """Raw values left; ``matches`` are the findings, the plainest first."""

    def __init__(self, message: str, matches: Sequence[Evidence] = ()) -> None:
        super().__init__(message)
        self.matches = tuple(matches)


class Powerless(AssertionError):
    """The assertion would not notice a leak in this table: its values look like anybody's."""


def assert_no_raw(  # noqa: PLR0913  # each is a decision of one test, by name
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
    """Assert that no raw value left, nor a function of fewer than k records, in any form.

    What left is taken apart (:mod:`privfed.leaks.reading`) and scored by the rules of
    :mod:`privfed.leaks`. A rule convicts only where the raw table explains what left better than each
    of 200 tables that are drawn anew in its shape.

    Args:
        left: whatever left, in any nesting: containers, arrays, tables, tensors, models, bytes,
            pickles (never loaded), texts, files, log records, exceptions, replies.
        raw: the table that must not leave: a DataFrame, an array, a mapping of columns, or a mapping
            of owners to tables. Messages show values of :func:`sentinels` alone.
        allow: public values that may leave (numbers, texts), and patterns of paths to leave out, such
            as ``"left['metrics']*"``.
        tolerance: share of a value by which released numbers may differ on top of their own rounding.
        k: a value that k records share is nobody's own, and a group of k records is not small.
        schema: the public data dictionary, by whose bounds values may have been scaled.
        alpha: how often it may convict a release that has nothing to do with the table; the running
            test's share unless given.
        may_be_empty: whether it is fine that nothing left at all, as in a log without a line.
        off: families of rules to switch off, beside those of the suite (``privfed_off``).

    Raises:
        RawValueLeft: something was found; an AssertionError.
        Powerless: a planted record would not have been found; an AssertionError.
        AssertionError: nothing left at all.
        InputError: the raw data are no table, or an argument makes no sense.
    """
    __tracebackhide__ = True
    suite, slack = current(), 0.0 if tolerance is None else tolerance
    _check(k, slack, off := (*off, *suite.off))
    with np.errstate(all="ignore"):  # what left may be infinite, or hardly above zero
        numbers, texts = _allowed(allow)
        suite.tables += (tables := _without(texts, raw_tables(raw, schema, numbers, k)))
        released = Released.of(flatten(left, rows=True), texts)
        if released.empty or _is_nowhere(left):
            if may_be_empty and not released.unread:
                return
            told = [f"{often} x {why}" for why, often in released.unread.items()]
            nothing = _NOWHERE if _is_nowhere(left) else _NOTHING
            raise AssertionError("; not read: ".join([nothing, *told]))
        settings = ScanSettings(share(alpha), slack, off)
        found = search(tables, released, settings)
        blind = [name for table in tables for name in too_common(table, settings)]
        looked = Looked(len(found), tuple(dict.fromkeys(blind)), released.unread)
        found = suite.judged(found, looked, Redaction(tables).of)
        if found:
            raise RawValueLeft(_message(found, tables, blind), found)
        _check_power(tables, settings)


def _is_nowhere(left: object) -> bool:
    """Whether it is the path of no file, or of an empty folder: only a name would be looked at."""
    return isinstance(left, Path) and not (left.is_file() or any(left.glob("*")))


def _check(k: int, tolerance: float, off: Sequence[str]) -> None:
    if not (k >= 2 and 0 <= tolerance < 1):
        raise InputError("write k of at least 2, and a tolerance of at least 0 and below 1")
    if unknown := sorted(set(off) - set(FAMILIES)):
        raise InputError(f"no rule is called {unknown}; the rules are {', '.join(FAMILIES)}")


def _allowed(allow: object) -> tuple[np.ndarray, list[str]]:
    """The numbers and the texts among what may leave."""
    values = [leaf.value for leaf in flatten([allow] if isinstance(allow, str) else allow)]
    numbers = [value.ravel().astype(float) for value in values if isinstance(value, np.ndarray)]
    texts = [value for value in values if isinstance(value, str)]
    return np.concatenate([np.empty(0), *numbers]), [t for text in texts for t in text.split("\n")]


def _without(texts: Sequence[str], tables: Sequence[RawTable]) -> Sequence[RawTable]:
    """Tables of which some texts may leave."""
    if not texts:
        return tables
    return [replace(t, texts=tuple(c.without(texts) for c in t.texts)) for t in tables]


def _message(found: Sequence[Evidence], tables: Sequence[RawTable], blind: Sequence[str]) -> str:
    sentinel = all(table.sentinel for table in tables)
    rules = list({one.rule: one for one in reversed(found)}.values())
    chosen = sorted(rules, key=lambda one: (one.complexity, -one.nats))[:SHOWN]
    redaction = Redaction(tables)
    lines = [f"raw values left ({number_of(len(found), 'finding')}):"]
    for one in chosen:
        lines.append(f"- {redaction.of(one.where)}: {_told(one, sentinel)}")
        if one.mend:
            lines.append(f"  {one.mend}")
    if len(rules) > len(chosen):
        lines.append(f"and {len(rules) - len(chosen)} more in other forms")
    if blind:
        lines.append(f"({too_common_alone([repr(name) for name in blind])})")
    return "\n".join(lines)


def _told(one: Evidence, sentinel: bool) -> str:
    value = f" = {one.value()}" if sentinel and one.value() else ""
    more = f", and {one.count - 1} more" if one.count > 1 else ""
    form = f" ({one.precision})" if one.precision else ""
    rank = f"explained better than by {DRAWS} of {DRAWS} re-drawn tables"
    if one.certain:
        rank = "no other value has this digest or these bytes"
    return f"{one.rule}{form}, {one.record}{value}{more}; {rank} [{one.family}]"


def _check_power(tables: Sequence[RawTable], settings: ScanSettings) -> None:
    for table in tables:
        if is_powerless(table, settings):
            raise Powerless(
                f"a planted copy of the raw table would not have been noticed among what left: its "
                f"{number_of(table.records, 'record')} of "
                f"{number_of(table.numbers.shape[1], 'numeric column')} look like anybody's; use a longer table, or privfed.testing.sentinels(schema_or_frame, n)"
            )
