"""A policy's statement that a shuffler, trusted by everybody, passes answers on without their senders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from privfed.errors import PolicyError
from privfed.questions.exact import readable, text
from privfed.tables.toml_file import check_keys


@dataclass(frozen=True)
class TrustedShuffler:
    """Whom a policy trusts to shuffle each yes-or-no answer by itself, among how many people.

    A statement of trust that a price stands beside the local one with; no budget is charged by it. No
    gate can be this shuffler: a cohort's gate holds everybody's answers in order, and knows who was asked.
    """

    people: (
        int  #: who answer each question honestly and keep their answers from the receiver, at least
    )
    delta: Fraction = Fraction(1, 100_000)  #: at which the shuffled epsilon is stated

    def __post_init__(self) -> None:
        if type(self.people) is not int or self.people < 2:
            raise PolicyError("shuffled: people is a whole number of honest answerers, 2 or more")
        if not 0 < self.delta < 1:
            raise PolicyError('shuffled: delta is above 0 and below 1; write delta = "1e-5"')

    def to_dict(self) -> dict[str, Any]:
        """Give the statement as plain data, as in a policy's file."""
        return {"people": self.people, "delta": text(self.delta)}

    @classmethod
    def from_dict(cls, plain: Any, where: str = "policy") -> TrustedShuffler:
        """Read plain data."""
        if not isinstance(plain, Mapping) or "people" not in plain:
            raise PolicyError(f"{where}: shuffled is a table; write shuffled = {{ people = 2000 }}")
        check_keys(plain, {"people", "delta"}, f"{where}, shuffled", PolicyError)
        delta = readable(plain.get("delta", "1e-5"), f"{where}, shuffled: delta", zero=True)
        return cls(plain["people"], delta)
