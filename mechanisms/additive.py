"""What Laplace and Gaussian noise share: independent integer noise on every cell, by its grid."""

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

    Parts of one grid get noise of one scale, by their joint sensitivity. Parts of different grids
    have no common unit, so the spend is divided equally among the k grids: with joint sensitivities
    D_1, ..., D_k, each in its own units, the noise on grid i is what D_i needs at spend / k.

    Derivation: the noises are independent, so the release is k releases, of which the i-th costs
    spend / k by the law's own theorem; pure epsilon and zCDP add up (basic composition), in all k
    (spend / k) = spend, exactly. Grids that no record can change are released as they are, for
    nothing, and take no share.
    """

    law: ClassVar[type[Law]]  #: The law of the noise, by its scale

    @abstractmethod
    def scale(self, bound: Bound, spend: Fraction) -> float:
        """Scale of the noise in grid units, no less than needed (TooWide: 64 bits do not hold it)."""

    def loss(self, bound: Bound, spend: Fraction, scale: float) -> Loss:
        """State what parts of that joint sensitivity cost at that scale: the spend, no less."""
        return Loss.pure(spend) if self.currency == "epsilon" else Loss.zcdp(spend)

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Parts on a grid with a finite sensitivity; bits are for randomized response."""
        return are_numbers(group)

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """One law for each grid, and the sum of what they cost."""
        losses: list[Loss] = []
        laws: dict[str, Law] = {}
        for names, bound, share in shares(group, spend):
            scale = self.scale(bound, share)
            losses.append(self.loss(bound, share, scale))
            laws |= dict.fromkeys(names, self.law(scale))
        return Protection(self, group, spend, laws, sum(losses[1:], losses[0]) if losses else None)
