"""Mechanisms without a guarantee, named for what they are: open, refuse, nullify."""

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection


class Open(Mechanism):
    """Releases exact values: no protection, and the total is then no finite guarantee."""

    name: ClassVar[str] = "open"

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Anything."""
        return True

    reason: ClassVar[str] = "released exactly, by the owner's policy"  #: Why nothing is proved

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Unprotected."""
        return Protection(self, group, spend, stated=Loss.open(self.reason))


class Refuse(Open):
    """Refuses whatever it guards: a policy's explicit no."""

    name: ClassVar[str] = "refuse"

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Nothing."""
        return False


class Nullify(Open):
    """Suppresses the cells that would give a record away (a disclosure-control rule, no DP).

    Suppressed cells (``reveals``) are zero and masked, which depends on data and is a release
    itself. Source: Corcuera Barcena et al. 2025, Algorithm 1, Check&Nullify, which subtraction
    undoes (``privfed.attacks.subtraction``); ``strict`` silences also what could be subtracted.
    """

    name: ClassVar[str] = "nullify"
    suppresses: ClassVar[bool] = True
    reason: ClassVar[str] = "small cells suppressed, which is no differential privacy"

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
