"""Numbers of the results page."""

from __future__ import annotations

import pytest
from results_numbers import number, with_spread


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.97031, "0.9703"),
        (0.5, "0.5"),
        (3307.0, "3,307"),
        (55287.4, "55,287"),
        (0, "0"),
        (-0.0791, "-0.0791"),
        (5.96e-08, "< 0.0001"),
        (-4e-5, "-0.00004"),
        ("12", "12"),
        ("not told", "not told"),
        (None, ""),
        (float("nan"), ""),
    ],
)
def test_a_number_has_four_digits_and_no_exponent(value: object, shown: str) -> None:
    """Text stays as it is, nothing is nothing."""
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "spread", "shown"),
    [
        (0.95951, 0.0124, "0.960 ± 0.012"),
        (0.002245, 0.0026, "0.0022 ± 0.0026"),
        (-0.00003, 0.01, "0.000 ± 0.010"),
        (55290.0, 1123.0, "55,300 ± 1,100"),
        (0.0014118, 7.1e-06, "0.001412 ± 0.000007"),
        (0.8873, 4.9e-05, "0.8873 ± 0.0000"),
        (12.5, 0, "12.5 ± 0"),
        (0.25, None, "0.25"),
        ("-", None, "-"),
        (None, 0.1, ""),
    ],
)
def test_a_figure_has_no_more_digits_than_its_spread(
    value: object, spread: object, shown: str
) -> None:
    """The spread's second digit is the last, or the figure's fourth."""
    assert with_spread(value, spread) == shown
