"""How much a released number says by itself: its last digit, and how simple it is.

A number that was rounded to one decimal matches whatever lies within a tenth, and so do many numbers
by chance; a double with all its digits matches next to nothing by chance. So each released number is
compared at its own precision, which is read off the number.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

#: A number with more significant digits than this is one whose digits were not rounded away.
DIGITS = 12
SHORT_DIGITS = 5  #: The same for numbers that came as 32-bit floats, which hold seven
NO_GRADE = 99  #: The grade of a number that has more digits
#: Significant bits, the leading one included, of what a float holds.
BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
SPARE = 10  #: Zero bits at the end of every number of a block from which it counts as fixed-point
DENOMINATOR = 1000  #: Greatest denominator of fractions that count as simple


@dataclass(frozen=True)
class Precision:
    """One way of rounding that released numbers may have gone through."""

    name: str  #: what messages call it
    bits: int | None = None  #: significant bits of a float; none for a fixed step
    step: float | None = None  #: distance between neighbouring numbers; none for floats

    def cell(self, values: np.ndarray) -> np.ndarray:
        """The distance between neighbouring numbers of this precision, at each value."""
        if self.step is not None:
            return np.full(np.shape(values), self.step)
        assert self.bits is not None
        _, exponent = np.frexp(values)
        return np.asarray(np.ldexp(1.0, exponent - self.bits))

    def keys(self, values: np.ndarray) -> np.ndarray:
        """Whole numbers that are equal where values are, once rounded; what overflows is 0."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            if self.bits == BITS["float32"]:
                return values.astype(np.float32).view(np.int32).astype(np.int64)
            step = self.cell(values)
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
    """How many decimals each finite number but 0 has: 1 for 47.3, -2 for 1200; shape of ``values``.

    ``NO_GRADE`` for those that take more than so many significant ``digits``.
    """
    grade = np.full(values.shape, NO_GRADE, dtype=np.int16)
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log10(np.abs(values))).astype(np.int64)
    shift = digits - 1 - exponent
    usable = np.abs(shift) < 300
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * 10.0 ** np.where(usable, shift, 0)
        whole = np.rint(scaled)
        slack = 2.0**-50 if digits == DIGITS else 2.0**-22
        short = usable & (np.abs(scaled - whole) <= slack * np.abs(scaled))
    kept = np.abs(whole[short]).astype(np.int64)
    grade[short] = shift[short] - _zeros(kept)
    if digits == DIGITS:  # a whole number has no further digits, however long it is
        whole = ~short & (np.abs(values) < 2.0**53) & (values == np.rint(values))
        grade[whole] = -_zeros(np.abs(values[whole]).astype(np.int64))
    return grade


def _zeros(whole: np.ndarray) -> np.ndarray:
    """How many zeros each whole number ends with."""
    count, power = np.zeros(whole.shape, dtype=np.int64), 10
    while (ends := (whole % power == 0) & (whole != 0)).any():
        count += ends
        power *= 10
    return count


def fits(values: np.ndarray, bits: int) -> np.ndarray:
    """Whether a float of so many significant bits holds each number as it is."""
    mantissa, _ = np.frexp(values)
    scaled = np.ldexp(mantissa, bits)
    return np.asarray(scaled == np.rint(scaled))


def widths_of(values: np.ndarray) -> np.ndarray:
    """The distance of neighbouring numbers, at the precision of each number itself."""
    sizes = np.abs(values)
    safe = np.where((sizes > 1e-30) & (sizes < 1e30), sizes, 1.0)
    grades = decimals_of(safe)
    cells = np.spacing(safe)
    single = fits(safe, 24)
    cells = np.where(single, np.spacing(safe.astype(np.float32)).astype(float), cells)
    return np.where(grades != NO_GRADE, np.maximum(cells, 10.0 ** -grades.astype(float)), cells)


def precisions_of(
    values: np.ndarray, kind: str = "float64"
) -> Iterator[tuple[Precision, np.ndarray]]:
    """Each precision, and the positions of the numbers of it; a short one may fit several.

    ``values`` are finite and not zero, and came in a type, ``kind``.
    """
    single = kind in ("float32", "float16")
    grades = decimals_of(values, SHORT_DIGITS if single else DIGITS)
    long = grades == NO_GRADE
    narrow = np.ones(len(values), bool) if single else fits(values, BITS["float32"])
    yield DOUBLE, np.flatnonzero(long & ~narrow)
    yield SINGLE, np.flatnonzero(long & narrow)
    half = np.flatnonzero(narrow & (long | (grades > 0)))
    half = half[fits(values[half], BITS["float16"])]
    yield HALF, half
    yield BRAIN, half[fits(values[half], BITS["bfloat16"])]
    for grade in np.unique(grades[~long]):
        yield (
            Precision(_rounded(int(grade)), step=10.0 ** -int(grade)),
            np.flatnonzero(grades == grade),
        )


def _rounded(grade: int) -> str:
    if grade <= 0:
        return "a whole number" if grade == 0 else f"a multiple of {10**-grade}"
    return f"{grade} decimal{'s' if grade > 1 else ''}"


def split_by_grid(
    values: np.ndarray, blocks: np.ndarray
) -> Iterator[tuple[Precision, np.ndarray, np.ndarray]]:
    """Part blocks whose numbers are all multiples of one power of two, too coarse to be chance.

    Of doubles, none of them zero, and the block of each: precisions, with their numbers and blocks.
    """
    if not len(values):
        return
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, BITS["float64"]).astype(np.int64)
    spare = np.log2((whole & -whole).astype(float)).astype(np.int16)
    count = int(blocks.max()) + 1
    least = np.full(count, 99, dtype=np.int16)
    np.minimum.at(least, blocks, spare)
    coarse = least[blocks] >= SPARE
    yield DOUBLE, values[~coarse], blocks[~coarse]
    if not coarse.any():
        return
    lowest = np.full(count, 9999, dtype=np.int32)
    np.minimum.at(lowest, blocks[coarse], (exponent - BITS["float64"] + spare)[coarse])
    for power in np.unique(lowest[blocks[coarse]]):
        chosen = coarse & (lowest[blocks] == power)
        grid = Precision(f"a multiple of 2^{power}", step=2.0 ** int(power))
        yield grid, values[chosen], blocks[chosen]


def simplicity(values: np.ndarray) -> np.ndarray:
    """How likely each number is to turn up for no reason: 1 for 0 and 1, 1/474 for 47.3.

    A number that takes the whole number k to write it (its decimal digits, its binary digits, or
    numerator times denominator of a simple fraction) has 1 / (1 + k): few numbers are so simple, and
    they are counts, settings and shares. Probabilities, shape of ``values``.
    """
    flat = np.abs(np.asarray(values, dtype=float)).ravel()
    likely = np.zeros(flat.shape)
    usable = np.isfinite(flat) & (flat > 1e-250) & (flat < 1e250)
    kept = flat[usable]
    grades = decimals_of(kept)
    short = grades != NO_GRADE
    decimal = np.rint(kept * 10.0 ** np.where(short, grades, 0).astype(float))
    best = np.where(short, decimal, np.inf)
    mantissa, _ = np.frexp(kept)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    best = np.minimum(best, whole / np.maximum(whole & -whole, 1))
    best = np.minimum(best, np.multiply(*_fractions(kept)))
    likely[usable] = 1 / (1 + best)
    likely[flat == 0] = 1.0
    return likely.reshape(np.shape(values))


def denominators_of(values: np.ndarray) -> np.ndarray:
    """Of each number the denominator of the simple fraction that it is; infinity for all others."""
    return _fractions(np.abs(values))[1]


def _fractions(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numerator and denominator where a simple fraction is as near as rounding; else infinity."""
    found = np.full((2, *values.shape), np.inf)
    before, now = np.ones_like(values), np.floor(values)
    low, high = np.zeros_like(values), np.ones_like(values)
    rest = values - np.floor(values)
    for _ in range(12):
        with np.errstate(all="ignore"):
            near = np.abs(now / high - values) <= 4 * np.spacing(values)
            simple = near & (high <= DENOMINATOR) & np.isinf(found[0])
            found[:, simple] = np.maximum(now, 1)[simple], high[simple]
            inverse = 1 / rest
            digit = np.floor(inverse)
            rest = inverse - digit
            now, before = digit * now + before, now
            high, low = digit * high + low, high
    return found[0], found[1]
