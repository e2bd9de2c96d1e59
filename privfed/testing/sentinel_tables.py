"""Made-up tables whose values are recognised wherever they turn up, in nearly any form.

Numbers have all their digits and lie apart from one another, so that rounding leaves them different;
texts that name records are words that nobody else writes. Messages may show such values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.tables.schema import Column, Schema

#: Share of a column's range that is left free at either end: bounds are public, and so is zero.
MARGIN = 0.04
#: Share of a stratum in which its value lies, so that neighbours stay apart.
INSIDE = 0.6
#: From what share of different texts on a column names its records.
NAMING = 0.5
_LETTERS = np.array(list("bcdfghjklmnpqrstvwxz"))


def sentinels(schema_or_frame: Schema | pd.DataFrame, n: int, *, seed: int = 0) -> pd.DataFrame:
    """Make a table of recognisable values.

    Args:
        schema_or_frame: the public data dictionary, whose bounds and categories are kept to; or a
            table, whose columns, types, ranges and categories are.
        n: number of records.
        seed: of the values.

    Returns:
        a DataFrame that :func:`assert_no_raw` knows as made up (``attrs["sentinels"]``).

    Raises:
        InputError: ``n`` is below 1, or the first argument is neither of the two.
    """
    if n < 1:
        raise InputError(f"sentinels need at least one record, and n is {n}")
    rng = np.random.default_rng([seed, n])
    if isinstance(schema_or_frame, pd.DataFrame):
        frame = schema_or_frame
        columns: dict[Any, Any] = {
            name: _like(frame.iloc[:, place], n, rng) for place, name in enumerate(frame.columns)
        }
    elif isinstance(schema_or_frame, Schema):
        columns = {column.name: _of(column, n, rng) for column in schema_or_frame.columns}
    else:
        raise InputError("sentinels are made from a Schema or a DataFrame")
    made = pd.DataFrame(columns)
    made.attrs["sentinels"] = True
    return made


def _of(column: Column, n: int, rng: np.random.Generator) -> np.ndarray:
    low, high = column.bounds
    if column.kind == "category":
        return _shuffled(np.array(column.categories, dtype=object), n, rng)
    return _whole(low, high, n, rng) if column.kind == "integer" else _spread(low, high, n, rng)


def _like(series: pd.Series[Any], n: int, rng: np.random.Generator) -> Any:
    """Values of a column's own type and range."""
    known = series.dropna()
    if pd.api.types.is_datetime64_any_dtype(series):
        plain = pd.to_datetime(known, utc=True).astype("datetime64[ns, UTC]").astype("int64")
        first, last = (int(plain.min()), int(plain.max())) if len(plain) else (0, 10**18)
        made = _spread(float(first), float(max(last, first + 10**15)), n, rng)
        stamps = pd.Series(pd.to_datetime(made.astype(np.int64), utc=True))
        zone = getattr(series.dtype, "tz", None)
        return stamps.dt.tz_convert(zone).astype(series.dtype)
    if isinstance(series.dtype, pd.CategoricalDtype):
        return pd.Categorical(_shuffled(np.array(list(series.cat.categories), object), n, rng))
    if pd.api.types.is_bool_dtype(series):
        return _shuffled(np.array([False, True]), n, rng)
    if pd.api.types.is_integer_dtype(series):
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1e6)
        return _whole(low, high, n, rng).astype(np.int64)
    if pd.api.types.is_numeric_dtype(series):
        finite = known[np.isfinite(known.to_numpy(dtype=float))]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1e6)
        return _spread(low, high, n, rng).astype(str(series.dtype).lower())
    different = known.unique()
    if len(different) > NAMING * len(known) or not len(different):
        return [_word(rng) for _ in range(n)]
    return _shuffled(np.array(list(different), dtype=object), n, rng)


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


def _word(rng: np.random.Generator) -> str:
    """Sixteen consonants."""
    return "".join(rng.choice(_LETTERS, 16))
