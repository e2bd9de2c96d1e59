"""Numbers of long texts are those that the expression finds, piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privfed.leaks.reading import digits

WRITTEN = st.text("0123456789" * 2 + "..+-eExk_ ,:\n\u00e9\u0664", max_size=60)
ROUNDED = st.floats(-1e6, 1e6).flatmap(lambda x: st.integers(0, 9).map(lambda n: str(round(x, n))))


def whole(text: str) -> list[float]:
    """The naive twin."""
    return [float(one) for one in digits.NUMBER.findall(text)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WRITTEN | ROUNDED, max_size=12).map(" ".join))
def test_any_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Read in small pieces, any text gives the same numbers in the same order."""
    monkeypatch.setattr(digits, "CHUNK", 50)
    assert digits.plain_numbers(text).tolist() == whole(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        *(("E11.9", []), ("v2.1 4f2a", []), ("12.5kg", [12.5]), ("-3.5", [-3.5]), ("1e-3", [1e-3])),
        *((".5 a.5", [0.5, 5.0]), ("9007199254740993", [9007199254740992.0]), ("1,5", [1.0, 5.0])),
    ),
)
def test_odd_words(text: str, expected: list[float]) -> None:
    """Labels are no numbers; signs, exponents and long numbers are read as ``float`` reads them."""
    assert digits.plain_numbers(text).tolist() == expected


def test_no_piece_cuts_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends between words, or where the next space is."""
    monkeypatch.setattr(digits, "CHUNK", 10)
    text = "12:07 took 3.25 ms\n" * 100 + "8" * 40
    assert digits.plain_numbers(text).tolist() == [12.0, 7.0, 3.25] * 100 + [float("8" * 40)]
