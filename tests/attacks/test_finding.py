"""Findings hold only figures that mean something, and survive a round through plain data."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from privfed.attacks.finding import Finding
from privfed.errors import InputError


def test_round_trip_through_json() -> None:
    """What was written reads back equal."""
    finding = Finding(
        "a", "does it?", "records", 3, of=7, baseline=0.5, releases=("k",), detail={"n": 1}
    )
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding
    assert finding.share == 3 / 7
    assert Finding("a", "q", "m", 0, of=0).share is None


@pytest.mark.parametrize("name", ["value", "of", "low", "high", "baseline"])
def test_not_a_number_is_refused(name: str) -> None:
    """No figure may be NaN."""
    figures: dict[str, Any] = {"value": 1.0, name: math.nan}
    with pytest.raises(InputError, match=name):
        Finding("a", "q", "m", **figures)


def test_nonsense_is_refused() -> None:
    """An interval upside down, an unknown severity, an unknown key."""
    with pytest.raises(InputError, match="low"):
        Finding("a", "q", "m", 1, low=2, high=1)
    with pytest.raises(InputError, match="severity"):
        Finding("a", "q", "m", 1, severity="bad")
    with pytest.raises(InputError, match="atack"):
        Finding.from_dict({"atack": "a"})
