"""Base class of Laplace and Gaussian mechanisms: independent integer noise on every cell."""

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from privfed.privacy.laws import Law
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection, are_numbers, shares
from privfed.questions.part import Bound


class AdditiveNoise(Mechanism):
    """Adds independent integer noise to every cell of a group.

    Parts on one grid get noise of one scale, from their joint sensitivity. Parts on different grids
    have no common unit, so the spend is divided equally among the k grids: with joint sensitivities
    D_1, ..., D_k, each in its own units, grid i gets the noise for D_i at spend / k.

    Derivation: noise is independent, so this is k releases, each of cost spend / k by the law's own
    theorem; pure epsilon and zCDP add up (basic composition) to k (spend / k) = spend, exactly.
    Grids that no record can change are released unmodified, at no cost, and get no part of it.
    """

    law: ClassVar[type[Law]]  #: The law of the noise, built from its scale

    @abstractmethod
    def scale(self, bound: Bound, spend: Fraction) -> float:
        """Return the noise scale in grid units, rounded up (TooWide: 64 bits cannot hold it)."""

    def loss(self, bound: Bound, spend: Fraction, scale: float) -> Loss:
        """Return the loss of parts with that joint sensitivity at that scale: the spend."""
        return Loss.pure(spend) if self.currency == "epsilon" else Loss.zcdp(spend)

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Whether all parts are numbers on a grid with a finite sensitivity (not bits)."""
        return are_numbers(group)

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Choose one law per grid, and add up their costs."""
        losses: list[Loss] = []
        laws: dict[str, Law] = {}
        for names, bound, part_spend in shares(group, spend):
            scale = self.scale(bound, part_spend)
            losses.append(self.loss(bound, part_spend, scale))
            laws |= dict.fromkeys(names, self.law(scale))
        return Protection(self, group, spend, laws, sum(losses[1:], losses[0]) if losses else None)
