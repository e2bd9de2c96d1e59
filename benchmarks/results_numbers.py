"""Numbers as a reader wants them: no more digits than their spread lets stand, and no exponents."""

from __future__ import annotations

import math

#: Significant digits of a figure at most, and of a spread.
DIGITS, OF_SPREAD = 4, 2
#: A figure nearer to zero than this, of which no spread is known, is told as below it.
LEAST = 1e-4


def number(value: object, digits: int = DIGITS) -> str:
    """To so many significant digits; text as it is, nothing for what is missing."""
    known = _known(value)
    if known is None:
        return "" if _missing(value) else str(value)
    if 0 < known < LEAST:
        return f"< {_fixed(LEAST, 4)}"
    shown = _fixed(known, max(_decimals(known, digits), 0))
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def with_spread(value: object, spread: object) -> str:
    """ "0.960 ± 0.012": both to the second digit of the spread, or the fourth of the figure."""
    known, deviation = _known(value), _known(spread)
    if known is None or deviation is None:
        return number(value)
    if not deviation:
        return f"{number(value)} ± 0"
    decimals = _decimals(deviation, OF_SPREAD)
    if known:
        decimals = min(decimals, max(_decimals(known, DIGITS), 0))
    return f"{_fixed(known, decimals)} ± {_fixed(deviation, decimals)}"


def _known(value: object) -> float | None:
    try:
        known = float(str(value))
    except ValueError:
        return None
    return known if math.isfinite(known) else None


def _missing(value: object) -> bool:
    return value is None or str(value) in ("nan", "<NA>", "")


def _decimals(value: float, digits: int) -> int:
    """Places after the point of so many significant digits; negative before it."""
    return digits - 1 - math.floor(math.log10(abs(value))) if value else 0


def _fixed(value: float, decimals: int) -> str:
    rounded = round(value, decimals) + 0.0
    return f"{rounded:,.{max(decimals, 0)}f}"
