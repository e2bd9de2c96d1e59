"""What an attack achieved, in numbers that can be checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, Self, get_args

from privfed.errors import InputError


class Severity(StrEnum):
    """Whether an attack beats a guesser who saw no release, and how badly."""

    NONE = "none"  #: no better than the guesser
    SOME = "some"  #: better, as any release may let it be that tells anything at all
    BREACH = (
        "breach"  #: people or values were identified; where a guarantee is claimed, it is broken
    )


#: What a guarantee says of a finding's value: the most that any test can get by it.
Limit = Literal["", "area", "found at 1 %"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one attack on one set of releases.

    Args:
        attack: the attack's name.
        question: what it tried, in one plain sentence.
        metric: what ``value`` counts, such as ``"records recovered exactly"``.
        value: what it achieved.
        of: what ``value`` is out of, or None.
        low, high: the confidence interval; None for an exact count.
        baseline: the same metric for a guesser who saw no release.
        releases: the kinds of release that it used.
        severity: see :class:`Severity`.
        detail: further public figures (never a raw value).
        simulation: whether the truth was needed to score it; then it is not publishable for real
            data.
        limit: what a guarantee bounds the value by: the ROC AUC of a membership test, its TPR at 1
            % FPR, or nothing.
        partial: why it is not all that the attack could find, or empty.

    Raises:
        InputError: a figure is NaN, the interval is upside down, or the severity unknown.
    """

    attack: str
    question: str
    metric: str
    value: float
    of: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    releases: tuple[str, ...] = ()
    severity: str = "none"
    detail: dict[str, Any] = field(default_factory=dict)
    simulation: bool = True
    limit: Limit = ""
    partial: str = ""

    def __post_init__(self) -> None:
        for name in ("value", "of", "low", "high", "baseline"):
            figure = getattr(self, name)
            if figure is not None and math.isnan(figure):
                raise InputError(f"finding of {self.attack!r}: {name} is not a number")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InputError(f"finding of {self.attack!r}: low lies above high")
        if self.severity not in set(Severity):
            known = ", ".join(Severity)
            raise InputError(f"finding of {self.attack!r}: severity must be one of {known}")
        if self.limit not in get_args(Limit):
            raise InputError(f"finding of {self.attack!r}: limit must be one of {get_args(Limit)}")

    @property
    def share(self) -> float | None:
        """``value`` as a fraction of ``of``; None without one."""
        return self.value / self.of if self.of else None

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote, from JSON too; an unknown key is an InputError."""
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(set(plain) - known)
        if unknown:
            raise InputError(f"finding: unknown key {unknown[0]!r}; known are {sorted(known)}")
        return cls(**{**plain, "releases": tuple(plain.get("releases", ()))})
