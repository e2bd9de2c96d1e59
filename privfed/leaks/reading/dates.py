"""Dates as people and programs write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

DAY = 86400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAME = "(?:" + "|".join(_MONTHS) + ")[a-z]*"
#: A time behind a date: with colons, perhaps of twelve hours; or six digits.
_TIME = r"(?:(?:T|:|,? )(\d\d?):(\d\d)(?::(\d\d(?:[.,]\d{1,9})?))?(?: ?([ap])\.?m\b)?|T(\d\d)(\d\d)(\d\d))?"
#: Every notation: year first, day or month first, the month by name, eight digits.
DATE = re.compile(
    rf"(?<![\w.])(?:(\d{{4}})[-/.](\d\d?)[-/.](\d\d?)"
    rf"|(\d\d?)([-/.])(\d\d?)\5(\d{{4}}|\d\d)"
    rf"|({_NAME})\.? (\d\d?)(?:st|nd|rd|th)?,? (\d{{4}})"
    rf"|(\d\d?)(?:st|nd|rd|th|\.)?[ /-]({_NAME})\.?,?[ /-](\d{{4}}|\d\d)"
    rf"|((?:19|20)\d\d)([01]\d)([0-3]\d)){_TIME}(?![\d])",
    re.IGNORECASE,
)
_NUMERIC = re.compile(r"\d[-/.]\d\d?[-/.]\d|(?<!\d)(?:19|20)\d{6}(?!\d)")


def may_be_dated(text: str) -> bool:
    """Whether a text holds what a date has: the name of a month, or digits set apart twice."""
    lower = text.lower()
    return any(month in lower for month in _MONTHS) or _NUMERIC.search(text) is not None


def dates_in(text: str) -> Iterator[tuple[int, int, float, bool]]:
    """Dates of a text: where each begins and ends, seconds since 1970 (UTC), and whether timed.

    Where day and month can be told apart in two ways, both are given.
    """
    for found in DATE.finditer(text):
        for seconds in sorted(set(_seconds(found))):
            yield found.start(), found.end(), seconds, (found[17] or found[21]) is not None


def column_of_dates(texts: Sequence[str | None]) -> np.ndarray | None:
    """A column of dates as seconds, read in the one order that fits all; none if it is no such."""
    matches = [None if one is None else DATE.fullmatch(one.strip()) for one in texts]
    if not any(matches) or any(m is None and t for m, t in zip(matches, texts, strict=True)):
        return None
    read = [[] if match is None else list(_seconds(match)) for match in matches]
    for which in (0, -1):
        if all(one or match is None for one, match in zip(read, matches, strict=True)):
            return np.array([one[which] if one else np.nan for one in read])
    return None


def _seconds(found: re.Match[str]) -> Iterator[float]:
    """What a match may mean; nothing where there is no such day."""
    (y, m, d, a, _, b, short, name, day, year, day2, name2, year2, y8, m8, d8) = found.groups()[:16]
    (hour, minute, second, half) = found.groups()[16:20]
    if found[21]:
        (hour, minute, second) = found.groups()[20:]
    hours = int(hour or 0) % 12 + 12 * (half.lower() == "p") if half else int(hour or 0)
    time = timedelta(
        hours=hours, minutes=int(minute or 0), seconds=float((second or "0").replace(",", "."))
    ).total_seconds()
    if y:
        readings = [(y, m, d)]
    elif a:
        readings = [(_whole(short), b, a), (_whole(short), a, b)]
    elif name:
        readings = [(year, _month(name), day)]
    elif name2:
        readings = [(_whole(year2), _month(name2), day2)]
    else:
        readings = [(y8, m8, d8)]
    for reading in readings:
        try:
            moment = datetime(*(int(part) for part in reading), tzinfo=UTC)  # type: ignore[misc, arg-type]
        except ValueError:
            continue
        yield (moment - _EPOCH).total_seconds() + time


def _month(name: str) -> int:
    return _MONTHS.index(name[:3].lower()) + 1


def _whole(year: str) -> int:
    """Two digits are of this century up to 30."""
    return int(year) if len(year) == 4 else int(year) + (2000 if int(year) <= 30 else 1900)
