"""Precision of released numbers, and the probability of simple numbers.

A number rounded to one decimal matches everything within a tenth, often by chance; a double with all
its digits matches almost nothing by chance. Each released number is therefore compared at its
precision, which is inferred from the number.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privfed.leaks.reading.dates import DAY

#: Numbers with more significant digits than this count as unrounded.
DIGITS = 12
SHORT_DIGITS = 5  #: The same for 32-bit floats, which hold seven digits
NO_GRADE = 99  #: Grade of an unrounded number
DAYS = -2  #: Grade of a date without a time: 86,400 seconds are a multiple of 100
#: Significant bits of the float types, including the leading one.
BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
SPARE = 10  #: Zero bits at the end of every number of a block from which it counts as fixed-point
DENOMINATOR = 1000  #: Greatest denominator of fractions that count as simple


@dataclass(frozen=True)
class Precision:
    """One rounding that released numbers may have undergone."""

    name: str  #: used in messages
    bits: int | None = None  #: significant bits of a float; None for a fixed step
    step: float | None = None  #: distance between neighbouring numbers; None for floats

    def spacing(self, values: np.ndarray) -> np.ndarray:
        """Distance between neighbouring numbers of this precision, at each value."""
        if self.step is not None:
            return np.full(np.shape(values), self.step)
        assert self.bits is not None
        _, exponent = np.frexp(values)
        return np.asarray(np.ldexp(1.0, exponent - self.bits))

    def keys(self, values: np.ndarray) -> np.ndarray:
        """Integers that are equal for values equal after rounding; 0 on overflow."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            if self.bits == BITS["float32"]:
                return values.astype(np.float32).view(np.int32).astype(np.int64)
            step = self.spacing(values)
            scaled = np.rint(values / step)
        if self.step is None:
            scaled = np.where(step > 0, scaled, 0.0) * step
            return np.where(np.isfinite(scaled), scaled, 0.0).view(np.int64)
        return np.where(np.abs(scaled) < 2**62, scaled, 0.0).astype(np.int64)


DOUBLE = Precision("all its digits", bits=BITS["float64"])
SINGLE = Precision("a 32-bit float", bits=BITS["float32"])
HALF = Precision("a 16-bit float", bits=BITS["float16"])
BRAIN = Precision("a bfloat16", bits=BITS["bfloat16"])


def decimals_of(values: np.ndarray, digits: int = DIGITS) -> np.ndarray:
    """Decimals of each finite nonzero number: 1 for 47.3, -2 for 1200; shape of ``values``.

    ``NO_GRADE`` for numbers with more than ``digits`` significant digits.
    """
    grade = np.full(values.shape, NO_GRADE, dtype=np.int16)
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log10(np.abs(values))).astype(np.int64)
    shift = digits - 1 - exponent
    usable = np.abs(shift) < 300
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * 10.0 ** np.where(usable, shift, 0)
        integer = np.rint(scaled)
        slack = 2.0**-50 if digits == DIGITS else 2.0**-22
        short = usable & (np.abs(scaled - integer) <= slack * np.abs(scaled))
    digits_of = np.abs(integer[short]).astype(np.int64)
    grade[short] = shift[short] - _trailing_zeros(digits_of)
    if digits == DIGITS:  # integers of any length are exact
        integer = ~short & (np.abs(values) < 2.0**53) & (values == np.rint(values))
        grade[integer] = -_trailing_zeros(np.abs(values[integer]).astype(np.int64))
    return grade


def _trailing_zeros(integers: np.ndarray) -> np.ndarray:
    """Number of trailing zeros of each integer."""
    count, power = np.zeros(integers.shape, dtype=np.int64), 10
    while (ends := (integers % power == 0) & (integers != 0)).any():
        count += ends
        power *= 10
    return count


def fits(values: np.ndarray, bits: int) -> np.ndarray:
    """Whether a float with ``bits`` significant bits represents each number exactly."""
    mantissa, _ = np.frexp(values)
    scaled = np.ldexp(mantissa, bits)
    return np.asarray(scaled == np.rint(scaled))


def widths_of(values: np.ndarray) -> np.ndarray:
    """Distance between neighbouring numbers at each number's own precision."""
    sizes = np.abs(values)
    safe = np.where((sizes > 1e-30) & (sizes < 1e30), sizes, 1.0)
    grades = decimals_of(safe)
    gaps = np.spacing(safe)
    single = fits(safe, 24)
    gaps = np.where(single, np.spacing(safe.astype(np.float32)).astype(float), gaps)
    return np.where(grades != NO_GRADE, np.maximum(gaps, 10.0 ** -grades.astype(float)), gaps)


def precisions_of(
    values: np.ndarray, kind: str = "float64"
) -> Iterator[tuple[Precision, np.ndarray]]:
    """Yield each precision and the positions of its numbers; short numbers may have several precisions.

    Whole days in seconds have one precision together, however many zeros each ends with.

    Args:
        values: finite and nonzero.
        kind: name of the NumPy type that held them.
    """
    single = kind in ("float32", "float16")
    grades = decimals_of(values, SHORT_DIGITS if single else DIGITS)
    grades[(grades < DAYS) & (values % DAY == 0)] = DAYS
    long = grades == NO_GRADE
    fits_single = np.ones(len(values), bool) if single else fits(values, BITS["float32"])
    yield DOUBLE, np.flatnonzero(long & ~fits_single)
    yield SINGLE, np.flatnonzero(long & fits_single)
    half = np.flatnonzero(fits_single & (long | (grades > 0)))
    half = half[fits(values[half], BITS["float16"])]
    yield HALF, half
    yield BRAIN, half[fits(values[half], BITS["bfloat16"])]
    for grade in np.unique(grades[~long]):
        yield (
            Precision(_name_of(int(grade)), step=10.0 ** -int(grade)),
            np.flatnonzero(grades == grade),
        )


def _name_of(grade: int) -> str:
    if grade <= 0:
        return "a whole number" if grade == 0 else f"a multiple of {10**-grade}"
    return f"{grade} decimal{'s' if grade > 1 else ''}"


def split_by_grid(
    values: np.ndarray, blocks: np.ndarray
) -> Iterator[tuple[Precision, np.ndarray, np.ndarray]]:
    """Separate blocks whose numbers are all multiples of one power of two, too coarse to be chance.

    Args:
        values: doubles, nonzero.
        blocks: block of each.

    Yields:
        precision, its numbers, and their blocks.
    """
    if not len(values):
        return
    mantissa, exponent = np.frexp(values)
    integers = np.ldexp(mantissa, BITS["float64"]).astype(np.int64)
    zeros = np.log2((integers & -integers).astype(float)).astype(np.int16)
    count = int(blocks.max()) + 1
    min_zeros = np.full(count, 99, dtype=np.int16)
    np.minimum.at(min_zeros, blocks, zeros)
    coarse = min_zeros[blocks] >= SPARE
    yield DOUBLE, values[~coarse], blocks[~coarse]
    if not coarse.any():
        return
    min_power = np.full(count, 9999, dtype=np.int32)
    np.minimum.at(min_power, blocks[coarse], (exponent - BITS["float64"] + zeros)[coarse])
    for power in np.unique(min_power[blocks[coarse]]):
        chosen = coarse & (min_power[blocks] == power)
        grid = Precision(f"a multiple of 2^{power}", step=2.0 ** int(power))
        yield grid, values[chosen], blocks[chosen]


def simplicity(values: np.ndarray) -> np.ndarray:
    """Prior probability of each number: 1 for 0, 1/2 for 1, 1/474 for 47.3; shape of ``values``.

    A number written with the integer k (its decimal digits, its binary digits, or numerator times
    denominator of a simple fraction) has probability 1 / (1 + k). Simple numbers are often counts,
    settings or fractions.
    """
    flat = np.abs(np.asarray(values, dtype=float)).ravel()
    probability = np.zeros(flat.shape)
    usable = np.isfinite(flat) & (flat > 1e-250) & (flat < 1e250)
    kept = flat[usable]
    grades = decimals_of(kept)
    short = grades != NO_GRADE
    decimal = np.rint(kept * 10.0 ** np.where(short, grades, 0).astype(float))
    best = np.where(short, decimal, np.inf)
    mantissa, _ = np.frexp(kept)
    integers = np.ldexp(mantissa, 53).astype(np.int64)
    best = np.minimum(best, integers / np.maximum(integers & -integers, 1))
    best = np.minimum(best, np.multiply(*_fractions(kept)))
    probability[usable] = 1 / (1 + best)
    probability[flat == 0] = 1.0
    return probability.reshape(np.shape(values))


def denominators_of(values: np.ndarray) -> np.ndarray:
    """Denominator of each number that is a simple fraction; infinity for others."""
    return _fractions(np.abs(values))[1]


def _fractions(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numerator and denominator of the simple fraction equal up to rounding; infinity if there is none."""
    fractions = np.full((2, *values.shape), np.inf)
    last_numerator, numerator = np.ones_like(values), np.floor(values)
    last_denominator, denominator = np.zeros_like(values), np.ones_like(values)
    remainder = values - np.floor(values)
    for _ in range(12):
        with np.errstate(all="ignore"):
            is_near = np.abs(numerator / denominator - values) <= 4 * np.spacing(values)
            simple = is_near & (denominator <= DENOMINATOR) & np.isinf(fractions[0])
            fractions[:, simple] = np.maximum(numerator, 1)[simple], denominator[simple]
            inverse = 1 / remainder
            digit = np.floor(inverse)
            remainder = inverse - digit
            numerator, last_numerator = digit * numerator + last_numerator, numerator
            denominator, last_denominator = digit * denominator + last_denominator, denominator
    return fractions[0], fractions[1]
