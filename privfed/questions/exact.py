"""Exact numbers for budgets, parsed from decimal text, not from binary floats."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from numbers import Rational

from privfed.errors import InputError

Number = Fraction | int | float | str | Decimal
RESOLUTION = 10**15  #: Irrational costs are rounded up to a multiple of 1 / RESOLUTION
EXPONENT = 400  #: Maximum power of ten in text: "1e999999999" would exhaust memory
FLOATS = 300  #: Maximum power of ten in users' files: floats hold it and its root


def exact(value: Number, name: str = "value", *, zero: bool = False) -> Fraction:
    """Turn a number into an exact, finite, positive fraction; a float by its shortest decimal text.

    InputError, with the name: not a number, not finite, or not positive (0 is allowed if ``zero``).
    """
    number = _parse(value, name)
    if number < 0 or (number == 0 and not zero):
        condition = "at least 0" if zero else "greater than 0"
        raise InputError(f"{name} must be {condition}, not {value!r}; {_example(name)}")
    return number


def readable(value: Number, name: str = "value", *, zero: bool = False) -> Fraction:
    """Read a user's number like :func:`exact`, within the range of floats."""
    number = exact(value, name, zero=zero)
    if number and not Fraction(1, 10**FLOATS) <= number <= 10**FLOATS:
        raise InputError(_beyond(name, FLOATS))
    return number


def _example(name: str) -> str:
    return f"write for example '{'1e-5' if name.endswith('delta') else '0.5'}'"


def _beyond(name: str, max_exponent: int) -> str:
    return f"{name} must lie between 1e-{max_exponent} and 1e{max_exponent}; {_example(name)}"


def _parse(value: Number, name: str) -> Fraction:
    if isinstance(value, bool):
        raise InputError(f"{name} must be a number, not {value!r}; {_example(name)}")
    if isinstance(value, Rational):  # int() because numpy's integers overflow inside a Fraction
        return Fraction(int(value.numerator), int(value.denominator))
    text = repr(float(value)) if isinstance(value, float) else str(value).strip()
    try:
        if "/" in text:
            return Fraction(text)
        decimal = Decimal(text)
        if not decimal.is_finite():
            raise InputError(f"{name} must be finite, not {text!r}; {_example(name)}")
        if decimal and not -EXPONENT <= decimal.adjusted() <= EXPONENT:
            raise InputError(_beyond(name, FLOATS))
        return Fraction(decimal)
    except (InvalidOperation, ValueError, ZeroDivisionError):
        raise InputError(
            f"{name} must be a number, not {text!r}; {_example(name)} (with a point)"
        ) from None


def round_up(value: float) -> Fraction:
    """Round a computed cost up to the resolution, after adding a margin for float error."""
    if not math.isfinite(value) or value < 0:
        raise InputError(f"a cost must be finite and not negative, not {value!r}")
    outward = value * (1 + 1e-14)
    return Fraction(math.ceil(Fraction(outward) * RESOLUTION), RESOLUTION)


def float_up(value: Fraction) -> float:
    """Return the smallest float that is not below the fraction."""
    number = float(value)
    return number if Fraction(number) >= value else math.nextafter(number, math.inf)


def shown(value: Fraction | float, digits: int = 4) -> str:
    """Format an epsilon, rounded up to significant digits: a positive one is never shown as 0."""
    return _shown(value, digits, ROUND_CEILING)


def shown_percent(share: Fraction | float) -> str:
    """Format a bound on a fraction in per cent, rounded up to three digits."""
    return f"{shown(100 * share, 3)} %"


def apart(one: float, other: float) -> str:
    """Format two unequal numbers with as many digits as distinguish them: ``1.00000001, not 1``."""
    roundings = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in range(4, 18))
    return next((f"{a}, not {b}" for a, b in roundings if a != b), f"{one}, not {other}")


def shown_down(value: Fraction | float, digits: int = 4) -> str:
    """Format a remaining epsilon, rounded down to significant digits."""
    return _shown(value, digits, ROUND_FLOOR)


def shown_delta(value: Fraction | float) -> str:
    """Format a delta, rounded up to four digits: ``1e-05``, ``1.46e-05``, ``0``."""
    return f"{float(_rounded(value, 4, ROUND_CEILING)):g}"


def at_delta(value: Fraction | float) -> str:
    """Format a delta to follow its epsilon: `` at delta 1e-05``, empty for 0."""
    return f" at delta {shown_delta(value)}" if value else ""


def _shown(value: Fraction | float, digits: int, rounding: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf"
    data = _rounded(value, digits, rounding).normalize(Context(prec=digits))
    return f"{data:f}" if -5 < data.adjusted() < 7 else f"{data:e}"


def _rounded(value: Fraction | float, digits: int, rounding: str) -> Decimal:
    """Round a number to significant digits; a float counts as its shortest decimal text."""
    number = Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)
    return Context(prec=digits, rounding=rounding).divide(
        Decimal(number.numerator), Decimal(number.denominator)
    )


@lru_cache(maxsize=4096)
def text(value: Fraction) -> str:
    """Format a fraction exactly: as a decimal if one exists, else as ``p/q``."""
    twos, remainder = _divide_out(value.denominator, 2)
    fives, remainder = _divide_out(remainder, 5)
    if remainder != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = max(twos, fives)
    whole = abs(value.numerator) * 10**digits // value.denominator
    sign = "-" if value < 0 else ""
    if digits == 0:
        return f"{sign}{whole}"
    padded = str(whole).rjust(digits + 1, "0")
    return f"{sign}{padded[:-digits]}.{padded[-digits:]}"


def _divide_out(number: int, prime: int) -> tuple[int, int]:
    """Return how often a prime divides a number, and the remaining factor."""
    times = 0
    while number % prime == 0:
        number, times = number // prime, times + 1
    return times, number
