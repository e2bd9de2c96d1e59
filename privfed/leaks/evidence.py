"""One rule's finding: its score against the raw table, and its rank among re-drawn tables."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Evidence:
    """Released items that match raw ones by one rule."""

    family: str  #: the rule's family, by which it can be switched off
    rule: str  #: what the items are of the raw values, such as ``"the square of a raw value"``
    nats: float  #: how surprising the match is; comparable between tables, no probability
    #: works out the path to the first released item; like what follows, it may hold raw values, and is not shown
    locate: Callable[[], str] = field(repr=False)
    origin: Callable[[], str] = field(repr=False)  #: record and column, by position
    count: int = 1  #: how many released items match
    precision: str = ""  #: at what precision they match
    #: the raw value, to be shown for synthetic tables alone
    value: Callable[[], str] = field(default=str, repr=False)
    mend: str = ""  #: what to do about it
    plain: int = 0  #: how plain the rule is, 0 the plainest; findings are told in this order
    certain: bool = False  #: whether no re-drawn table need be tried, as with digests

    @property
    def where(self) -> str:
        """The path to the first released item."""
        return self.locate()

    @property
    def record(self) -> str:
        """Record and column, by position."""
        return self.origin()
