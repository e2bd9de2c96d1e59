"""A policy's trust in a shuffler: written, read, refused where it makes no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privfed.errors import PolicyError
from privfed.privacy.policy import Guard, Policy, TrustedShuffler

PLAIN = Policy({"small.bit": (Guard.of("randomized_response", spend="1"),)})


def test_a_policys_file_keeps_the_statement(tmp_path: Path) -> None:
    """A policy without one has the digest that it had before there was the key."""
    trusting = replace(PLAIN, shuffled=TrustedShuffler(2000))
    trusting.to_toml(tmp_path / "policy.toml")
    assert Policy.from_toml(tmp_path / "policy.toml") == trusting
    assert "shuffled" not in PLAIN.to_dict() and trusting.digest != PLAIN.digest


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (2000, "shuffled is a table"),
        ({}, "shuffled is a table"),
        ({"people": 1}, "2 or more"),
        ({"people": "2000"}, "2 or more"),
        ({"people": True}, "2 or more"),
        ({"people": 20, "delta": "0"}, "delta"),
        ({"people": 20, "delta": "1"}, "below 1"),
        ({"people": 20, "peple": 3}, "peple"),
    ],
)
def test_what_says_nothing_is_refused(wrong: Any, told: str) -> None:
    """One line each, with what to write."""
    with pytest.raises(PolicyError, match=told):
        Policy.from_dict({**PLAIN.to_dict(), "shuffled": wrong})
