"""Numbers of long texts are those that the expression finds, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.leaks.reading import digits

WRITTEN = st.text("0123456789" * 2 + "..+-eExk_ ,:\n\u00e9\u0664", max_size=60)
ROUNDED = st.floats(-1e6, 1e6).flatmap(lambda x: st.integers(0, 9).map(lambda n: str(round(x, n))))


@pytest.fixture(params=[50, 1 << 20])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts, and such with many odd words, are read at once too, some in small pieces."""
    monkeypatch.setattr(digits, "SHORT", 0)
    monkeypatch.setattr(digits, "MANY", 1.0)
    monkeypatch.setattr(digits, "CHUNK", request.param)


def one_by_one(text: str) -> list[float]:
    """The naive twin."""
    return [float(one) for one in digits.NUMBER.findall(text)]


@pytest.mark.usefixtures("at_once")
class TestManyAtOnce:
    """Against the naive twin."""

    @given(st.lists(WRITTEN | ROUNDED, max_size=12).map(" ".join))
    def test_any_text(self, text: str) -> None:
        """Any text gives the same numbers in the same order."""
        assert digits.plain_numbers(text).tolist() == one_by_one(text)

    @pytest.mark.parametrize(
        "text",
        (
            *("E11.9", "v2.1 4f2a", "12.5kg", "1.2.3", "-3.5", "a-3", "2.-5", "12.x5", "1e-3"),
            *(".5 a.5", "9007199254740993", "0.1234567890123456789", "123456789012.125", "1,5", ""),
        ),
    )
    def test_odd_words(self, text: str) -> None:
        """Labels, signs, exponents and long numbers are read alike."""
        padded = f"{text} 1 2 3 4 {text}"
        assert digits.plain_numbers(padded).tolist() == one_by_one(padded)

    def test_nearest(self) -> None:
        """Each is the double nearest to what is written."""
        drawn = np.random.default_rng(0).uniform(-1e5, 1e5, 2000)
        text = " ".join(f"{one:.{at % 9}f}" for at, one in enumerate(drawn))
        assert digits.plain_numbers(text).tolist() == [float(one) for one in text.split()]


def test_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text is read many at a time."""
    monkeypatch.setattr(digits, "_one_by_one", None)
    text = "12:07 took 3.25 ms\n" * 1000
    assert digits.plain_numbers(text).tolist() == [12.0, 7.0, 3.25] * 1000
