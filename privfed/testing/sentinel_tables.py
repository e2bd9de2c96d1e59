"""Synthetic tables whose values are recognisable in any output, and that validators accept.

Each column has the form of its source: range, decimals, categories, dates, and the pattern of texts
(letters, digits, separators, common parts, check digits). Numbers are spaced, so that they stay distinct
after rounding. Messages may show such values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.leaks.precision import NO_GRADE, decimals_of
from privfed.leaks.shape import step_of
from privfed.leaks.texts import NAMING

if TYPE_CHECKING:
    from privfed.tables.schema import Schema

#: Fraction of a column's range that is unused at either end, since bounds and zero are public.
MARGIN = 0.04
INSIDE = 0.6  #: Fraction of a stratum that may hold its value, so that neighbours stay apart
LEARNT = 10  #: Fewest values that determine decimals and patterns; fewer determine only a range
LONG = 16  #: Numbers of at least this many digits are drawn digit by digit
TRIES = 20  #: Attempts to draw texts that do not exist yet
KEPT = 0.2  #: A part of a text that this fraction of the values share is kept
_TOKEN = re.compile(r"[^\W_]+|[\W_]+")
_DATES = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y%m%d", "%d-%m-%Y", "%Y-%m-%dT%H:%M:%S")
_CONSONANTS, _VOWELS = np.array(list("bdfgklmprstvwxz")), np.array(list("aeiou"))


def sentinels(
    schema_or_frame: Schema | pd.DataFrame,
    n: int,
    *,
    seed: int = 0,
    like: pd.DataFrame | None = None,
    keys: Mapping[str | tuple[str, ...], Any] | None = None,
    make: Mapping[str, Callable[[], Any]] | None = None,
) -> pd.DataFrame:
    """Make a table of recognisable values in the form of a schema's or another table's.

    Args:
        schema_or_frame: the public data dictionary, whose bounds and categories are used; or a
            table, whose columns, types, ranges, categories and patterns are.
        n: number of records.
        seed: of the values.
        like: a table whose columns determine the form of the schema's columns of the same name.
        keys: for columns that refer to another table, their possible values; for several columns
            together, such as ``("zip", "city")``, a table of their possible rows.
        make: for custom columns, a function that returns one value, such as ``Faker().iban``; it is
            called n times.

    Returns:
        a DataFrame that :func:`assert_no_raw` recognises as synthetic (``attrs["sentinels"]``).

    Raises:
        InputError: ``n`` is below 1, the first argument is neither of the two, or ``keys`` or
            ``make`` name an unknown column.
    """
    if n < 1:
        raise InputError(f"sentinels need at least one record, and n is {n}")
    rng = np.random.default_rng([seed, n])
    columns = _columns(schema_or_frame, like, n, rng)
    keyed = {(name,) if isinstance(name, str) else name: v for name, v in (keys or {}).items()}
    named = {*chain.from_iterable(keyed), *(make or {})}
    if unknown := sorted(named - set(map(str, columns))):
        raise InputError(f"the table has no column {unknown}; write names of its columns")
    for names, rows in keyed.items():
        values = list(rows) if len(names) == 1 else rows[list(names)].to_numpy().tolist()
        chosen = [values[i] for i in _shuffled(np.arange(len(values)), n, rng).tolist()]
        for i, name in enumerate(names):
            columns[name] = chosen if len(names) == 1 else [row[i] for row in chosen]
    for name, draw in (make or {}).items():
        columns[name] = [draw() for _ in range(n)]
    table = pd.DataFrame(columns)
    table.attrs["sentinels"] = True
    return table


def _columns(
    source: Any, like: pd.DataFrame | None, n: int, rng: np.random.Generator
) -> dict[Any, Any]:
    if isinstance(source, pd.DataFrame):
        if source.columns.empty:
            raise InputError("sentinels need at least one column, and the table has none")
        return {name: _like(source.iloc[:, i], n, rng) for i, name in enumerate(source.columns)}
    if not hasattr(source, "columns") or not hasattr(source, "features"):
        raise InputError("sentinels are made from a Schema or a DataFrame")
    known = {} if like is None else {str(name): like[name] for name in like.columns}
    columns: dict[Any, Any] = {}
    for column in source.columns:
        if column.name in known:
            columns[column.name] = _like(known[column.name], n, rng)
        elif column.kind == "category":
            columns[column.name] = _shuffled(np.array(column.categories, dtype=object), n, rng)
        else:
            draw = _integers if column.kind == "integer" else _stratified
            low, high = column.bounds
            columns[column.name] = draw(low, high, n, rng)
    return columns


def _like(series: pd.Series[Any], n: int, rng: np.random.Generator) -> Any:
    """Values of a column's type, range and form."""
    known = series.dropna()
    if pd.api.types.is_datetime64_any_dtype(series):
        return _timestamps(series, known, n, rng)
    if isinstance(series.dtype, pd.CategoricalDtype):
        return pd.Categorical(_shuffled(np.array(list(series.cat.categories), object), n, rng))
    if pd.api.types.is_bool_dtype(series):
        return _shuffled(np.array([False, True]), n, rng)
    if pd.api.types.is_integer_dtype(series):
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1e6)
        return _integers(low, high, n, rng).astype(str(series.dtype).lower())
    if pd.api.types.is_numeric_dtype(series):
        finite = known[np.isfinite(known.to_numpy(dtype=float))]
        return _numbers(finite.to_numpy(dtype=float), n, rng).astype(str(series.dtype).lower())
    texts = [str(value) for value in known]
    distinct = sorted(set(texts))
    if texts and len(distinct) <= NAMING * len(texts):
        return _shuffled(np.array(distinct, dtype=object), n, rng)
    if len(texts) < LEARNT:
        return ["".join(rng.choice(_CONSONANTS, 16)) for _ in range(n)]
    return _texts(texts, n, rng)


def _timestamps(
    series: pd.Series[Any], known: pd.Series[Any], n: int, rng: np.random.Generator
) -> pd.Series[Any]:
    stamps = pd.to_datetime(known, utc=True).astype("datetime64[ns, UTC]").astype("int64")
    first, last = (int(stamps.min()), int(stamps.max())) if len(stamps) else (0, 10**18)
    step = 86_400 * 10**9
    daily = len(stamps) >= LEARNT and bool((stamps % step == 0).all())
    drawn = _stratified(float(first), float(max(last, first + 10**15)), n, rng).astype(np.int64)
    result = pd.Series(pd.to_datetime(drawn // step * step if daily else drawn, utc=True))
    return result.dt.tz_convert(getattr(series.dtype, "tz", None)).astype(series.dtype)


def _numbers(known: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers in the column's range, with its decimals."""
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1e6)
    drawn = _stratified(low, high, n, rng)
    grades = decimals_of(known[known != 0])
    if len(known) < LEARNT or not len(grades) or (grades == NO_GRADE).any():
        return drawn
    decimals = max(0, int(grades.max()))
    step = step_of(known) or 10.0**-decimals
    steps = np.rint((drawn - known[0]) / step)
    if decimals and np.isclose(step, 10.0**-decimals):  # a nonzero last digit
        last = np.rint((known[0] + steps * step) * 10**decimals) % 10
        steps = np.where(last == 0, steps + 1, steps)
    low_step, high_step = np.rint((np.array([low, high]) - known[0]) / step)
    return np.asarray(np.round(known[0] + np.clip(steps, low_step, high_step) * step, decimals))


def _texts(texts: list[str], n: int, rng: np.random.Generator) -> list[str]:
    """Texts with the patterns of others, distinct if possible."""
    dated = _date_format(texts)
    if dated:
        days = [datetime.strptime(text, dated).replace(tzinfo=UTC).timestamp() for text in texts]
        drawn = _stratified(min(days), max(days), n, rng)
        return [datetime.fromtimestamp(day, UTC).strftime(dated) for day in drawn]
    tokens = [_TOKEN.findall(text) for text in texts]
    shapes = {tuple("" if part[0].isalnum() else part for part in parts) for parts in tokens}
    columns = list(zip(*tokens, strict=True)) if len(shapes) == 1 else []
    counts = Counter(part for parts in tokens for part in set(parts))
    kept = {part for part, count in counts.items() if count >= max(2, KEPT * len(texts))}
    made: list[str] = []
    unique = len(set(texts)) == len(texts)
    for turn in range(TRIES):
        taken, missing, wide = {*texts, *made}, n - len(made), unique and turn > 2
        if columns:
            parts = [_parts(column, kept, missing, rng, wide=wide) for column in columns]
            fresh = ["".join(row) for row in zip(*parts, strict=True)]
        else:
            chosen = [tokens[i] for i in rng.integers(len(tokens), size=missing)]
            new = iter(_replace_letters([*chain.from_iterable(chosen)], rng, kept))
            fresh = ["".join(islice(new, len(row))) for row in chosen]
        made += [t for t in dict.fromkeys(_check_digits(texts, fresh)) if t not in taken]
        if len(made) == n:
            return made
    return [*made, *_shuffled(np.array(made or texts, object), n - len(made), rng)]


def _parts(
    column: Sequence[str], kept: set[str], n: int, rng: np.random.Generator, *, wide: bool
) -> list[str]:
    """One part of every text: a number in its range, a code with its alphabet at each position, or a word.

    ``wide`` draws numbers of the same width from all its digits, if the range is exhausted.
    """
    widths = set(map(len, column))
    if set(column) <= kept:
        return [*map(str, rng.choice(column, n).tolist())]
    if all(part.isdecimal() for part in column) and max(widths) < LONG:
        padded = any(part[0] == "0" for part in column if len(part) > 1)
        if len(widths) == 1 or not padded:
            width = min(widths) if padded else 0
            low, high = min(map(int, column)), max(map(int, column))
            low, high = (0, 10**width - 1) if wide and width else (low, high)
            drawn = _integers(float(low), float(high), n, rng).astype(np.int64).tolist()
            return [f"{number:0{width}}" for number in drawn]
    if len(widths) == 1 and any(letter.isdigit() for part in column for letter in part):
        alphabets = [sorted(set(characters)) for characters in zip(*column, strict=True)]
        if len(alphabets) >= LONG and np.prod([len(a) for a in alphabets], dtype=float) < 1e6 * n:
            alphabets = [list("0123456789") if a[0].isdigit() else a for a in alphabets]
        letters = np.column_stack([rng.choice(alphabet, n) for alphabet in alphabets])
        return [*map(str, letters.view(f"U{len(alphabets)}").ravel().tolist())]
    return _replace_letters(rng.choice(column, n).tolist(), rng, kept)


def _replace_letters(parts: Sequence[str], rng: np.random.Generator, kept: set[str]) -> list[str]:
    """Replace letters by letters (vowels by vowels) and digits by digits, except in parts that are kept."""
    joined = "".join(parts)
    letters = np.array(list(joined), dtype="U1")
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(lengths)
    first = np.zeros(len(letters), dtype=bool)
    first[(ends - lengths)[lengths > 0]] = True
    digit, alphabetic = np.char.isdecimal(letters), np.char.isalpha(letters)
    vowel, upper = np.isin(letters, list("aeiouAEIOU")), np.char.isupper(letters)
    min_digit = first & (letters != "0")  # no new leading zeros
    drawn = np.where(
        vowel, rng.choice(_VOWELS, len(letters)), rng.choice(_CONSONANTS, len(letters))
    )
    drawn = np.where(upper, np.char.upper(drawn), drawn)
    replaced = np.where(alphabetic, drawn, letters)
    replaced[digit] = rng.integers(min_digit[digit], 10).astype("U1")
    new = "".join(replaced.tolist())
    spans = zip(parts, (ends - lengths).tolist(), ends.tolist(), strict=True)
    return [part if part in kept else new[start:end] for part, start, end in spans]


def _date_format(texts: Sequence[str]) -> str:
    """The date format of all texts; empty if there is none."""
    for form in _DATES:
        try:
            if all(datetime.strptime(text, form).strftime(form) == text for text in texts):
                return form
        except ValueError:
            continue
    return ""


def _check_digits(texts: Sequence[str], made: list[str]) -> list[str]:
    """Set the check digits of IBANs, cards or product codes, if all source texts have valid ones."""
    if all(_is_iban(text) for text in texts):
        country, bodies = texts[0][:2], [text[4:] for text in made]
        return [f"{country}{98 - _iban(f'{country}00{text}'):02}{text}" for text in bodies]
    for check in (_luhn, _ean):
        if all(check(text) == 0 for text in texts):
            return [text[:-1] + str((10 - check(text[:-1] + "0")) % 10) for text in made]
    return made


def _is_iban(text: str) -> bool:
    form = re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", text.replace(" ", ""))
    return form is not None and _iban(text) == 1


def _iban(text: str) -> int:
    """Checksum of an IBAN: 1 if its check digits are valid."""
    bare = text.replace(" ", "")
    return int("".join(str(int(character, 36)) for character in bare[4:] + bare[:4])) % 97


def _luhn(text: str) -> int:
    """Luhn checksum of a card number, 0 if valid; -1 if the text is none."""
    digits = _digits(text)[::-1]
    doubled = [digit * 2 - 9 * (digit > 4) if i % 2 else digit for i, digit in enumerate(digits)]
    return sum(doubled) % 10 if len(digits) >= 12 else -1


def _ean(text: str) -> int:
    """Checksum of an EAN-13 (products, books), 0 if valid; -1 if the text is none."""
    digits = _digits(text)
    return sum(digits[::2], 3 * sum(digits[1::2])) % 10 if len(digits) == 13 else -1


def _digits(text: str) -> list[int]:
    """Digits of a text of digits, spaces and hyphens; empty for other texts."""
    return [int(c) for c in text if c.isdigit()] if re.fullmatch(r"[\d -]+", text) else []


def _stratified(low: float, high: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Doubles with all their digits, one from each of n strata of the range, shuffled."""
    if not high > low:
        low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))
    width = (high - low) * (1 - 2 * MARGIN) / n
    position = np.arange(n) + (1 - INSIDE) / 2 + INSIDE * rng.random(n)
    return np.asarray(rng.permutation(low + (high - low) * MARGIN + width * position))


def _integers(low: float, high: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Integers within bounds, distinct if there are enough."""
    first, last = int(np.ceil(low)), int(np.floor(high))
    if last - first + 1 < 4 * n:
        return _shuffled(np.arange(first, last + 1).astype(float), n, rng).astype(float)
    return np.asarray(np.rint(_stratified(low, high, n, rng)))


def _shuffled(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n values with frequencies as equal as possible, shuffled."""
    return np.asarray(rng.permutation(np.resize(rng.permutation(values), n)))
