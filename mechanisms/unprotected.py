"""Mechanisms without a guarantee, named for what they are: open, refuse, nullify."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.loss import Loss
from privfed.mechanism import Guarded, Mechanism, Protected, unmasked
from privfed.noise import Noise


class Open(Mechanism):
    """Releases exact values: no protection, and the total is then no finite guarantee."""

    name: ClassVar[str] = "open"

    def supports(self, group: Mapping[str, Guarded]) -> bool:
        """Anything."""
        return True

    def cost(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """Unprotected."""
        return Loss.open("released exactly, by the owner's policy")

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """The exact arrays."""
        return {name: unmasked(exact[name]) for name in group}


class Refuse(Open):
    """Refuses whatever it guards: a policy's explicit no."""

    name: ClassVar[str] = "refuse"

    def supports(self, group: Mapping[str, Guarded]) -> bool:
        """Nothing."""
        return False


class Nullify(Open):
    """Suppresses the cells that would give a record away (a disclosure-control rule, no DP).

    Which cells those are is the query's knowledge (``reveals``). Suppressed cells are zero and
    masked; that a cell is masked depends on data and is a release itself.

    Source: Corcuera Barcena et al. 2025, Algorithm 1, Check&Nullify, which subtraction undoes
    (``privfed.attacks.subtraction``); ``strict`` silences also what could be subtracted.
    """

    name: ClassVar[str] = "nullify"

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    def cost(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """Unprotected: suppression is data-dependent and bounds nothing."""
        return Loss.open("small cells suppressed, which is no differential privacy")

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """The exact arrays with revealing cells masked."""
        return {name: unmasked(exact[name], reveals.get(name)) for name in group}
