"""One rule's finding: its score against the raw table, and its rank among re-drawn tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """Released items that match raw ones by one rule.

    Args:
        family: the rule's family, by which it can be switched off.
        rule: what the items are of the raw values, such as ``"the square of a raw value"``.
        nats: how surprising the match is; comparable between tables, no probability.
        locate: works out the path to the first released item.
        origin: record and column, by position.
        count: how many released items match.
        precision: at what precision they match.
        value: the raw value, to be shown for synthetic tables alone.
        mend: what to do about it.
        plain: how plain the rule is, 0 the plainest; findings are told in this order.
        certain: whether no re-drawn table need be tried, as with digests.
    """

    family: str
    rule: str
    nats: float
    locate: Callable[[], str]
    origin: Callable[[], str]
    count: int = 1
    precision: str = ""
    value: Callable[[], str] = str
    mend: str = ""
    plain: int = 0
    certain: bool = False

    @property
    def where(self) -> str:
        """The path to the first released item."""
        return self.locate()

    @property
    def record(self) -> str:
        """Record and column, by position."""
        return self.origin()
