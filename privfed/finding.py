"""What an attack achieved, in numbers that can be checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """The outcome of one attack on one set of releases.

    Args:
        attack: the attack's name.
        question: what it tried, in one plain sentence.
        metric: what ``value`` counts, such as ``"records recovered exactly"``.
        value: what it achieved.
        of: what ``value`` is out of, or none.
        low: lower end of the confidence interval; equal to ``value`` for an exact count.
        high: upper end.
        baseline: the same metric for a guesser who saw no release.
        releases: the kinds of release that it used.
        severity: ``"none"``, ``"some"`` or ``"breach"``: whether it beats its baseline, and badly.
        detail: further public figures (never a raw value).
        simulation: whether the truth was needed to score it; then it is not publishable for real data.
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

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain data."""
        return asdict(self)
