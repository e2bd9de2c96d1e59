"""Parses dates in common notations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

DAY = 86400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAME = "(?:" + "|".join(_MONTHS) + ")[a-z]*"
#: A time after a date: with colons, possibly on a 12-hour clock; or six digits.
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
    """Whether a text may contain a date: the name of a month, or digits with two separators."""
    lower = text.lower()
    return any(month in lower for month in _MONTHS) or _NUMERIC.search(text) is not None


def dates_in(text: str) -> Iterator[tuple[int, int, float, bool]]:
    """Yield each date in a text: start, end, seconds since 1970 (UTC), and whether it has a time.

    Both readings are given if the order of day and month is ambiguous.
    """
    for match in DATE.finditer(text):
        for seconds in sorted(set(_seconds(match))):
            yield match.start(), match.end(), seconds, (match[17] or match[21]) is not None


def column_of_dates(texts: Sequence[str | None]) -> np.ndarray | None:
    """Dates of a column in seconds, read in the one order that fits all; None if it is no column of dates."""
    matches = [None if text is None else DATE.fullmatch(text.strip()) for text in texts]
    if not any(matches) or any(m is None and t for m, t in zip(matches, texts, strict=True)):
        return None
    readings = [[] if match is None else list(_seconds(match)) for match in matches]
    for choice in (0, -1):
        if all(dates or match is None for dates, match in zip(readings, matches, strict=True)):
            return np.array([dates[choice] if dates else np.nan for dates in readings])
    return None


def _seconds(match: re.Match[str]) -> Iterator[float]:
    """Yield the possible readings of a match in seconds; none if there is no such day."""
    (y, m, d, a, _, b, short, name, day, year, day2, name2, year2, y8, m8, d8) = match.groups()[:16]
    (hour, minute, second, half) = match.groups()[16:20]
    if match[21]:
        (hour, minute, second) = match.groups()[20:]
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
    """Year with century: two digits up to 30 are of this century."""
    return int(year) if len(year) == 4 else int(year) + (2000 if int(year) <= 30 else 1900)
