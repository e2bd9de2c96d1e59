"""One finding of a rule: what matched, where, and how likely that is by chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Match:
    """Released items that match raw ones by one rule.

    Args:
        rule: what they are of the raw values, such as ``"the square of a raw value"``.
        locate: works out the path to the first released item.
        origin: record and column, by position.
        chance: the p-value, corrected for all that the rule looked at.
        count: how many released items match.
        precision: at what precision they match.
        value: the raw value, to be shown for made-up tables alone.
        mend: what to do about it.
        main: whether the rule is about raw values as they are; those share half of alpha.
    """

    rule: str
    locate: Callable[[], str]
    origin: str
    chance: float
    count: int = 1
    precision: str = ""
    value: str = ""
    mend: str = ""
    main: bool = False

    @property
    def where(self) -> str:
        """The path to the first released item."""
        return self.locate()
