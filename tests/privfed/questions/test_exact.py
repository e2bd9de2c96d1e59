"""Exact numbers: parsed from decimal text, written back exactly, and bad ones refused."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import InputError
from privfed.questions.exact import (
    RESOLUTION,
    exact,
    float_up,
    readable,
    round_up,
    shown,
    shown_delta,
    shown_down,
    shown_percent,
    text,
)


def test_three_tenths_fit() -> None:
    """Three times 0.1 is 0.3, from text and from floats alike."""
    assert 3 * exact("0.1") == exact("0.3") == 3 * exact(0.1)


@pytest.mark.parametrize(
    "value", ["1,0", "", "epsilon", "nan", "inf", "-inf", float("nan"), float("inf"), True, "1/0"]
)
def test_no_number(value: object) -> None:
    """What is no finite number is refused, by the name of what it was to be."""
    with pytest.raises(InputError, match="budget epsilon"):
        exact(value, "budget epsilon")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, "0", -1, "-0.5", Decimal("-1e-9"), Fraction(-1, 3)])
def test_not_positive(value: object) -> None:
    """Zero and negative numbers are refused where a positive one is due."""
    with pytest.raises(InputError, match="greater than 0"):
        exact(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["1e999999999", "1e-999999999", "1e401", "1e-401"])
def test_exponent_is_bounded(value: str) -> None:
    """Eleven letters cannot make a number of a billion digits."""
    with pytest.raises(InputError, match="between 1e-300 and 1e300"):
        exact(value)


@pytest.mark.parametrize(
    "value", ["1e400", "1e-400", 10**400, f"1/{10**301}", Fraction(1, 10**301)]
)
def test_what_people_write_fits_into_floats(value: str) -> None:
    """As text, whole number or ratio; what goes over the wire may be smaller."""
    with pytest.raises(InputError, match="budget must lie between 1e-300 and 1e300"):
        readable(value, "budget")
    assert readable("1e-300") > 0 and readable("0", zero=True) == 0


def test_zero_where_allowed() -> None:
    """A delta may be zero."""
    assert exact("0", zero=True) == 0
    with pytest.raises(InputError, match="at least 0"):
        exact("-1", zero=True)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.float64, np.float32])
def test_numpy_numbers_do_not_overflow(kind: type) -> None:
    """A numpy number becomes Python's own, which never wraps around."""
    assert exact(kind(3)) ** 60 == 3**60


@given(st.fractions(min_value=0))
def test_text_round_trip(value: Fraction) -> None:
    """Written text is read back as the same number."""
    assert exact(text(value), zero=True) == value


@given(st.floats(min_value=0, max_value=1e12))
def test_round_up_is_outward(value: float) -> None:
    """A computed cost is never rounded down, nor up by more than its resolution."""
    rounded = round_up(value)
    assert (
        Fraction(value)
        <= rounded
        <= Fraction(value) * (1 + Fraction(1, 10**13)) + Fraction(1, 10**15)
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-300])
def test_round_up_refuses(value: float) -> None:
    """A cost that is no finite non-negative number is refused."""
    with pytest.raises(InputError):
        round_up(value)


@given(st.fractions(min_value=Fraction(1, 10**20), max_value=10**20))
def test_float_up_is_the_next_float(value: Fraction) -> None:
    """The float is not below the fraction, and the float before it is."""
    number = float_up(value)
    assert Fraction(number) >= value
    assert Fraction(float(np.nextafter(number, 0))) < value


@pytest.mark.parametrize(
    ("value", "written"),
    [("0.5", "0.5"), ("2", "2"), ("0.00001", "0.00001"), ("1/3", "1/3"), ("0.125", "0.125")],
)
def test_text_is_readable(value: str, written: str) -> None:
    """Decimals are written as decimals, thirds as fractions."""
    assert text(exact(value)) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Fraction(1, 3), "0.3334"),
        (1e-30, "1e-30"),
        (Fraction(1, 10**30), "1e-30"),
        (0.0, "0"),
        (8.0, "8"),
        (100.0, "100"),
        (0.1, "0.1"),
        (2.6800001, "2.681"),
        (1.23e9, "1.23e+9"),
        (math.inf, "inf"),
    ],
)
def test_shown_rounds_up_and_hides_nothing(value: Fraction | float, written: str) -> None:
    """Four digits for people, never below the value, and 0 for nothing but 0."""
    assert shown(value) == written


@given(st.fractions(min_value=Fraction(1, 10**40), max_value=10**9))
def test_shown_is_never_below(value: Fraction) -> None:
    """What is printed of an epsilon is at least the epsilon, and at most a thousandth more."""
    told = Fraction(shown(value))
    assert value <= told <= value * Fraction(1002, 1000)


@given(st.floats(1e-12, 1))
def test_a_bound_in_per_cent_is_never_below(share: float) -> None:
    """At most 32.94 per cent are 33, and not 32.9."""
    assert Fraction(shown_percent(share).removesuffix(" %")) >= 100 * Fraction(repr(share)) * (
        1 - Fraction(1, 10**15)
    )
    assert shown_percent(0.32941) == shown_percent(np.float64(0.32941)) == "33 %"


@given(st.fractions(Fraction(1, 10**30), Fraction(999, 1000)))
def test_a_delta_is_never_shown_below(value: Fraction) -> None:
    """1.4e-5 is no 1e-05, which would promise more."""
    assert Fraction(repr(float(shown_delta(value)))) >= value * (1 - Fraction(1, 10**12))


@pytest.mark.parametrize(
    "value, written",
    [(1e-5, "1e-05"), (Fraction("1.46e-5"), "1.46e-05"), (1.46781e-5, "1.468e-05"), (0, "0")],
)
def test_a_delta_is_never_told_smaller_than_it_is(value: Fraction | float, written: str) -> None:
    """Nor as a 0 of many digits."""
    assert shown_delta(value) == written


@pytest.mark.parametrize("cost", [1e-9, 0.1, 1.0, 3.7, 1e6])
def test_a_computed_cost_is_rounded_beyond_its_own_float_error(cost: float) -> None:
    """The last few bits of a float are no proof: a cost is charged as if it were so much larger."""
    assert Fraction(cost) * (1 + Fraction(9, 10**15)) <= round_up(cost)
    assert round_up(cost) <= Fraction(cost) * (1 + Fraction(11, 10**15)) + Fraction(1, RESOLUTION)


@pytest.mark.parametrize(
    ("left", "told"), [("0.12399", "0.1239"), ("1.99999", "1.999"), ("0", "0")]
)
def test_what_is_left_of_an_epsilon_is_never_shown_as_more(left: str, told: str) -> None:
    """Rounded down, where what was spent is rounded up."""
    assert shown_down(Fraction(left)) == told
    assert Fraction(shown_down(Fraction(left))) <= Fraction(left) <= Fraction(shown(Fraction(left)))
