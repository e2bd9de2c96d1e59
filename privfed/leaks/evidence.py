"""The result of one rule: its score against the raw table."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Evidence:
    """Released items that match raw ones by one rule."""

    family: str  #: the rule's family, by which it can be switched off
    rule: str  #: relation of the items to the raw values, such as ``"the square of a raw value"``
    nats: float  #: surprise of the match; comparable between tables, not a probability
    #: returns the path to the first released item; like the following, may hold raw values and is not in the repr
    locate: Callable[[], str] = field(repr=False)
    origin: Callable[[], str] = field(repr=False)  #: record and column, by position
    count: int = 1  #: released items that match
    precision: str = ""  #: precision at which they match
    #: the raw value; shown for synthetic tables only
    value: Callable[[], str] = field(default=str, repr=False)
    remedy: str = ""  #: what to release instead
    complexity: int = 0  #: of the rule, 0 for the simplest; findings are listed in this order
    certain: bool = False  #: whether redrawn tables need not be tried, as for digests

    @property
    def where(self) -> str:
        """The path to the first released item."""
        return self.locate()

    @property
    def record(self) -> str:
        """Record and column, by position."""
        return self.origin()
