"""Synthetic tables whose values are recognised wherever they turn up, and that validators accept.

Each column keeps the form of the one that it is made after: range, decimals, categories, dates, and
of texts the pattern (letters, digits, separators, what all share, check digits). Numbers lie apart
from one another, so that rounding leaves them different. Messages may show such values.
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

#: Share of a column's range that is left free at either end: bounds are public, and so is zero.
MARGIN = 0.04
INSIDE = 0.6  #: Share of a stratum in which its value lies, so that neighbours stay apart
LEARNT = 10  #: From so many values on, decimals and patterns are learnt; fewer only give a range
LONG = 16  #: From so many digits on, a number is drawn digit by digit
TRIES = 20  #: How often texts that there are already are drawn anew
KEPT = 0.2  #: A part of a text that this share of the values have is kept
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
        schema_or_frame: the public data dictionary, whose bounds and categories are kept to; or a
            table, whose columns, types, ranges, categories and patterns are.
        n: number of records.
        seed: of the values.
        like: a table after whose columns those of the schema are made that it has too.
        keys: for columns that refer to another table, the values that they may have; for several
            columns together, such as ``("zip", "city")``, a table of which they are rows.
        make: for columns of your own making, a function that gives one value, such as
            ``Faker().iban``; it is called n times.

    Returns:
        a DataFrame that :func:`assert_no_raw` knows as synthetic (``attrs["sentinels"]``).

    Raises:
        InputError: ``n`` is below 1, the first argument is neither of the two, or ``keys`` or
            ``make`` name a column that there is not.
    """
    if n < 1:
        raise InputError(f"sentinels need at least one record, and n is {n}")
    rng = np.random.default_rng([seed, n])
    columns = _columns(schema_or_frame, like, n, rng)
    keyed = {(name,) if isinstance(name, str) else name: of for name, of in (keys or {}).items()}
    named = {*chain.from_iterable(keyed), *(make or {})}
    if unknown := sorted(named - set(map(str, columns))):
        raise InputError(f"the table has no column {unknown}; write names of its columns")
    for names, rows in keyed.items():
        listed = list(rows) if len(names) == 1 else rows[list(names)].to_numpy().tolist()
        chosen = [listed[at] for at in _shuffled(np.arange(len(listed)), n, rng).tolist()]
        for at, name in enumerate(names):
            columns[name] = chosen if len(names) == 1 else [row[at] for row in chosen]
    for name, one in (make or {}).items():
        columns[name] = [one() for _ in range(n)]
    made = pd.DataFrame(columns)
    made.attrs["sentinels"] = True
    return made


def _columns(
    source: Any, like: pd.DataFrame | None, n: int, rng: np.random.Generator
) -> dict[Any, Any]:
    if isinstance(source, pd.DataFrame):
        if source.columns.empty:
            raise InputError("sentinels need at least one column, and the table has none")
        return {name: _like(source.iloc[:, at], n, rng) for at, name in enumerate(source.columns)}
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
            drawn = _whole if column.kind == "integer" else _spread
            low, high = column.bounds
            columns[column.name] = drawn(low, high, n, rng)
    return columns


def _like(series: pd.Series[Any], n: int, rng: np.random.Generator) -> Any:
    """Values of a column's own type, range and form."""
    known = series.dropna()
    if pd.api.types.is_datetime64_any_dtype(series):
        return _moments(series, known, n, rng)
    if isinstance(series.dtype, pd.CategoricalDtype):
        return pd.Categorical(_shuffled(np.array(list(series.cat.categories), object), n, rng))
    if pd.api.types.is_bool_dtype(series):
        return _shuffled(np.array([False, True]), n, rng)
    if pd.api.types.is_integer_dtype(series):
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1e6)
        return _whole(low, high, n, rng).astype(str(series.dtype).lower())
    if pd.api.types.is_numeric_dtype(series):
        finite = known[np.isfinite(known.to_numpy(dtype=float))]
        return _numbers(finite.to_numpy(dtype=float), n, rng).astype(str(series.dtype).lower())
    texts = [str(one) for one in known]
    different = sorted(set(texts))
    if texts and len(different) <= NAMING * len(texts):
        return _shuffled(np.array(different, dtype=object), n, rng)
    if len(texts) < LEARNT:
        return ["".join(rng.choice(_CONSONANTS, 16)) for _ in range(n)]
    return _texts(texts, n, rng)


def _moments(
    series: pd.Series[Any], known: pd.Series[Any], n: int, rng: np.random.Generator
) -> pd.Series[Any]:
    plain = pd.to_datetime(known, utc=True).astype("datetime64[ns, UTC]").astype("int64")
    first, last = (int(plain.min()), int(plain.max())) if len(plain) else (0, 10**18)
    step = 86_400 * 10**9
    daily = len(plain) >= LEARNT and bool((plain % step == 0).all())
    made = _spread(float(first), float(max(last, first + 10**15)), n, rng).astype(np.int64)
    stamps = pd.Series(pd.to_datetime(made // step * step if daily else made, utc=True))
    return stamps.dt.tz_convert(getattr(series.dtype, "tz", None)).astype(series.dtype)


def _numbers(known: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers in the range, with as many decimals as the column has."""
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1e6)
    made = _spread(low, high, n, rng)
    grades = decimals_of(known[known != 0])
    if len(known) < LEARNT or not len(grades) or (grades == NO_GRADE).any():
        return made
    decimals = max(0, int(grades.max()))
    step = step_of(known) or 10.0**-decimals
    steps = np.rint((made - known[0]) / step)
    if decimals and np.isclose(step, 10.0**-decimals):  # a last digit that no shorter number has
        last = np.rint((known[0] + steps * step) * 10**decimals) % 10
        steps = np.where(last == 0, steps + 1, steps)
    lowest, highest = np.rint((np.array([low, high]) - known[0]) / step)
    return np.asarray(np.round(known[0] + np.clip(steps, lowest, highest) * step, decimals))


def _texts(texts: list[str], n: int, rng: np.random.Generator) -> list[str]:
    """Texts of the patterns of others, all different where that can be."""
    dated = _date_format(texts)
    if dated:
        days = [datetime.strptime(one, dated).replace(tzinfo=UTC).timestamp() for one in texts]
        drawn = _spread(min(days), max(days), n, rng)
        return [datetime.fromtimestamp(one, UTC).strftime(dated) for one in drawn]
    tokens = [_TOKEN.findall(one) for one in texts]
    shapes = {tuple("" if part[0].isalnum() else part for part in one) for one in tokens}
    columns = list(zip(*tokens, strict=True)) if len(shapes) == 1 else []
    counts = Counter(part for one in tokens for part in set(one))
    kept = {part for part, count in counts.items() if count >= max(2, KEPT * len(texts))}
    made: list[str] = []
    unique = len(set(texts)) == len(texts)
    for turn in range(TRIES):
        taken, left, wide = {*texts, *made}, n - len(made), unique and turn > 2
        if columns:
            parts = [_parts(column, kept, left, rng, wide=wide) for column in columns]
            fresh = ["".join(one) for one in zip(*parts, strict=True)]
        else:
            chosen = [tokens[at] for at in rng.integers(len(tokens), size=left)]
            new = iter(_relettered([*chain.from_iterable(chosen)], rng, kept))
            fresh = ["".join(islice(new, len(one))) for one in chosen]
        made += [one for one in dict.fromkeys(_checked(texts, fresh)) if one not in taken]
        if len(made) == n:
            return made
    return [*made, *_shuffled(np.array(made or texts, object), n - len(made), rng)]


def _parts(
    column: Sequence[str], kept: set[str], n: int, rng: np.random.Generator, *, wide: bool
) -> list[str]:
    """One part of every text: a number in its range, a code of its alphabet place by place, a word.

    Where a running number has used up its range, ``wide`` takes all of its width.
    """
    widths = set(map(len, column))
    if set(column) <= kept:
        return [*map(str, rng.choice(column, n).tolist())]
    if all(one.isdecimal() for one in column) and max(widths) < LONG:
        padded = any(one[0] == "0" for one in column if len(one) > 1)
        if len(widths) == 1 or not padded:
            width = min(widths) if padded else 0
            low, high = min(map(int, column)), max(map(int, column))
            low, high = (0, 10**width - 1) if wide and width else (low, high)
            drawn = _whole(float(low), float(high), n, rng).astype(np.int64).tolist()
            return [f"{one:0{width}}" for one in drawn]
    if len(widths) == 1 and any(one.isdigit() for part in column for one in part):
        places = [sorted(set(place)) for place in zip(*column, strict=True)]
        if len(places) >= LONG and np.prod([len(one) for one in places], dtype=float) < 1e6 * n:
            places = [list("0123456789") if one[0].isdigit() else one for one in places]
        letters = np.column_stack([rng.choice(one, n) for one in places])
        return [*map(str, letters.view(f"U{len(places)}").ravel().tolist())]
    return _relettered(rng.choice(column, n).tolist(), rng, kept)


def _relettered(parts: Sequence[str], rng: np.random.Generator, kept: set[str]) -> list[str]:
    """Another letter for each letter, another digit for each digit; a vowel stays a vowel."""
    whole = "".join(parts)
    letters = np.array(list(whole), dtype="U1")
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(lengths)
    first = np.zeros(len(letters), dtype=bool)
    first[(ends - lengths)[lengths > 0]] = True
    digit, alphabetic = np.char.isdecimal(letters), np.char.isalpha(letters)
    vowel, upper = np.isin(letters, list("aeiouAEIOU")), np.char.isupper(letters)
    lowest = first & (letters != "0")  # no part begins with a zero that did not
    drawn = np.where(
        vowel, rng.choice(_VOWELS, len(letters)), rng.choice(_CONSONANTS, len(letters))
    )
    drawn = np.where(upper, np.char.upper(drawn), drawn)
    made = np.where(alphabetic, drawn, letters)
    made[digit] = rng.integers(lowest[digit], 10).astype("U1")
    new = "".join(made.tolist())
    each = zip(parts, (ends - lengths).tolist(), ends.tolist(), strict=True)
    return [part if part in kept else new[start:end] for part, start, end in each]


def _date_format(texts: Sequence[str]) -> str:
    """The form of dates that fits all texts, if any does."""
    for form in _DATES:
        try:
            if all(datetime.strptime(one, form).strftime(form) == one for one in texts):
                return form
        except ValueError:
            continue
    return ""


def _checked(texts: Sequence[str], made: list[str]) -> list[str]:
    """With check digits as IBANs, cards and products have them, where all the texts have them."""
    if all(_is_iban(one) for one in texts):
        country, rest = texts[0][:2], [one[4:] for one in made]
        return [f"{country}{98 - _iban(f'{country}00{one}'):02}{one}" for one in rest]
    for check in (_luhn, _ean):
        if all(check(one) == 0 for one in texts):
            return [one[:-1] + str((10 - check(one[:-1] + "0")) % 10) for one in made]
    return made


def _is_iban(text: str) -> bool:
    form = re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", text.replace(" ", ""))
    return form is not None and _iban(text) == 1


def _iban(text: str) -> int:
    """The check sum of an IBAN: 1 where its check digits are right."""
    plain = text.replace(" ", "")
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97


def _luhn(text: str) -> int:
    """The check sum of a card's digits; -1 where it is no card."""
    digits = _digits(text)[::-1]
    doubled = [one * 2 - 9 * (one > 4) if at % 2 else one for at, one in enumerate(digits)]
    return sum(doubled) % 10 if len(digits) >= 12 else -1


def _ean(text: str) -> int:
    """The check sum of a product's or a book's digits (EAN-13); -1 where it is none."""
    digits = _digits(text)
    return sum(digits[::2], 3 * sum(digits[1::2])) % 10 if len(digits) == 13 else -1


def _digits(text: str) -> list[int]:
    """Of digits, spaces and hyphens alone; else none."""
    return [int(one) for one in text if one.isdigit()] if re.fullmatch(r"[\d -]+", text) else []


def _spread(low: float, high: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Doubles with all their digits, one from each of n equal parts of the range, in any order."""
    if not high > low:
        low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))
    width = (high - low) * (1 - 2 * MARGIN) / n
    place = np.arange(n) + (1 - INSIDE) / 2 + INSIDE * rng.random(n)
    return np.asarray(rng.permutation(low + (high - low) * MARGIN + width * place))


def _whole(low: float, high: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers within bounds, different ones where there are enough."""
    first, last = int(np.ceil(low)), int(np.floor(high))
    if last - first + 1 < 4 * n:
        return _shuffled(np.arange(first, last + 1).astype(float), n, rng).astype(float)
    return np.asarray(np.rint(_spread(low, high, n, rng)))


def _shuffled(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Values as evenly often as n records allow, in any order."""
    return np.asarray(rng.permutation(np.resize(rng.permutation(values), n)))
