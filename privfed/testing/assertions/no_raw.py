"""Asserts that no raw value left, nor a function of too few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privfed.errors import InputError
from privfed.testing.assertions.alpha import share
from privfed.testing.left.leaf import Leaf
from privfed.testing.left.walk import flatten
from privfed.testing.rules.match import Match
from privfed.testing.rules.released import Released
from privfed.testing.rules.search import search
from privfed.testing.rules.table import RawTable, raw_tables

#: How many findings a message tells of.
SHOWN = 4
#: How many records are planted, one after the other, before an assertion says that it is powerless.
PLANTED = 3


class RawValueLeft(AssertionError):
    """Raw values left.

    Args:
        message: what is found, where, and how to mend it.
        matches: the findings, the surest first.
    """

    def __init__(self, message: str, matches: Sequence[Match] = ()) -> None:
        super().__init__(message)
        self.matches = tuple(matches)


class Powerless(AssertionError):
    """The assertion would not notice a leak in this table: its values look like anybody's."""


def assert_no_raw(
    left: object,
    raw: object,
    *,
    allow: object = (),
    tolerance: float | None = None,
    k: int = 5,
    schema: Any = None,
    alpha: float | None = None,
    may_be_empty: bool = False,
) -> None:
    """Assert that no raw value left, nor a function of fewer than k records, in any form.

    What left is taken apart down to numbers, texts and bytes (:mod:`privfed.testing.left`) and held
    against the raw table by the rules of :mod:`privfed.testing.rules`: values as they are, rounded,
    as shorter floats, as text, as bytes, encoded and compressed; functions of one value, of two
    records, of a column, of a small group; rows and columns scaled, shifted or in order; values that
    released numbers give away together. What chance explains is no finding: raw values that
    k records share, numbers as small and round as any count.

    Args:
        left: whatever left, in any nesting: containers, arrays, tables, tensors, models, bytes,
            pickles (never loaded), texts, files, log records, exceptions, replies.
        raw: the table that must not leave: a DataFrame, an array, a mapping of columns, or a mapping
            of owners to tables. Tables of :func:`sentinels` are recognised in nearly any form.
        allow: public values that may leave (numbers, texts), and patterns of paths to leave out, such
            as ``"left['metrics']*"``.
        tolerance: share of a value by which released numbers may differ on top of their own rounding.
        k: a value that k records share is nobody's own, and a group of k records is not small.
        schema: the public data dictionary, by whose bounds values may have been scaled.
        alpha: how often it may convict a release that has nothing to do with the table; the share of
            the running test, or ``ALONE``, unless given.
        may_be_empty: whether it is fine that nothing left at all, as in a log without a line.

    Raises:
        RawValueLeft: something was found; an AssertionError.
        Powerless: a planted record would not have been found; an AssertionError.
        AssertionError: nothing left at all.
        InputError: the raw data are no table, or an argument makes no sense.
    """
    __tracebackhide__ = True
    slack = 0.0 if tolerance is None else tolerance
    if not (k >= 2 and 0 <= slack < 1):
        raise InputError("write k of at least 2, and a tolerance of at least 0 and below 1")
    numbers, texts = _allowed(allow)
    tables = [_without(one, texts) for one in raw_tables(raw, schema, numbers, k)]
    released = Released.of(flatten(left), texts)
    if released.empty:
        if may_be_empty:
            return
        raise AssertionError(
            "nothing left at all, so that there is nothing to look through; pass what was released, "
            "or may_be_empty=True where that may be nothing"
        )
    rate = share(alpha)
    found = search(tables, released, alpha=rate, smallest=k, tolerance=slack)
    if found:
        raise RawValueLeft(_message(found, tables), found)
    _check_power(tables, rate / max(1, len(released.blocks)))


def _allowed(allow: object) -> tuple[np.ndarray, list[str]]:
    """The numbers and the texts among what may leave."""
    listed = [allow] if isinstance(allow, str) else allow
    leaves = list(flatten(listed))
    numbers = [
        leaf.value.ravel().astype(float) for leaf in leaves if isinstance(leaf.value, np.ndarray)
    ]
    texts = [leaf.value for leaf in leaves if isinstance(leaf.value, str)]
    return np.concatenate([np.empty(0), *numbers]), [t for text in texts for t in text.split("\n")]


def _without(table: RawTable, texts: Iterable[str]) -> RawTable:
    """The table less the texts that may leave."""
    public = set(texts)
    kept = {
        column: ["" if value in public else value for value in values]
        for column, values in table.texts.items()
    }
    return replace(table, texts=kept)


def _message(found: Sequence[Match], tables: Sequence[RawTable]) -> str:
    sentinel = all(table.sentinel for table in tables)
    rules = list({match.rule: match for match in reversed(found)}.values())
    chosen = sorted(rules, key=lambda match: (match.chance, not match.main))[:SHOWN]
    lines = [f"raw values left ({len(found)} finding{'s' if len(found) > 1 else ''}):"]
    for match in chosen:
        lines.append(f"- {_hidden(match.where, tables, sentinel)}: {_told(match, sentinel)}")
        if match.mend:
            lines.append(f"  {match.mend}")
    if len(rules) > len(chosen):
        lines.append(f"and {len(rules) - len(chosen)} more in other forms")
    return "\n".join(lines)


def _told(match: Match, sentinel: bool) -> str:
    value = f" = {match.value}" if sentinel and match.value else ""
    more = f", and {match.count - 1} more" if match.count > 1 else ""
    form = f" ({match.precision})" if match.precision else ""
    return f"{match.rule}{form}, {match.origin}{value}{more}; by chance {match.chance:.0e}"


def _hidden(path: str, tables: Sequence[RawTable], sentinel: bool) -> str:
    """A path without the raw texts that keys of a dictionary may be."""
    if sentinel:
        return path
    for table in tables:
        for values in table.texts.values():
            for value in values:
                if value and value in path:
                    path = path.replace(value, "...")
    return path


def _check_power(tables: Sequence[RawTable], alpha: float) -> None:
    """Plant a record, a column, the whole table; what is not even found then is beyond the rules.

    Raises:
        Powerless: none of them is found.
    """
    for table in tables:
        if not any(_noticed(plant, table, alpha) for plant in _plants(table)):
            raise Powerless(
                f"a planted copy of the raw table would not have been noticed among what left: its "
                f"{table.records} records of {table.numbers.shape[1]} numeric columns look like "
                "anybody's; use a longer table, or privfed.testing.sentinels(schema_or_frame, n)"
            )


def _plants(table: RawTable) -> Iterable[object]:
    for column in table.texts.values():
        yield column[0]
    complete = np.flatnonzero(np.isfinite(table.numbers).all(axis=1))
    for record in complete[:: max(1, len(complete) // PLANTED)][:PLANTED]:
        yield table.numbers[record]
    yield from table.numbers.T
    yield from table.codes.T
    yield table.numbers


def _noticed(plant: object, table: RawTable, alpha: float) -> bool:
    leaf = [Leaf("planted", plant)] if isinstance(plant, str | np.ndarray) else []
    return bool(search([table], Released.of(leaf), alpha=alpha, functions=False))
