"""What Laplace and Gaussian noise share: independent integer noise on every cell, by its grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import (
    BoundedPart,
    Mechanism,
    Noised,
    Protected,
    Protection,
    joint,
    unmasked,
)
from privfed.privacy.noise import Noise
from privfed.questions.part import Bound, PartType


class AdditiveNoise(Mechanism):
    """Adds independent integer noise to every cell of a group.

    Parts of one grid get noise of one scale, which follows from their joint sensitivity. Parts of
    different grids have no common unit (one record, and 2^-30 of a target's range), so that one
    scale for all of them would drown the coarser ones. The spend is divided equally among the
    grids, and each grid's parts are protected by themselves: for k grids with joint sensitivities
    D_1, ..., D_k, each in its own units, the noise on grid i is what D_i needs at spend / k.

    Derivation: the noises are independent, so the release is k releases, of which the i-th costs
    spend / k by the law's own theorem; pure epsilon and zCDP add up (basic composition), in all
    k (spend / k) = spend, exactly. Each part's noise stays proportional to the sensitivity of its
    own grid: restating a grid changes no released value. A group of one grid is the case k = 1.

    Grids that no record can change are released as they are, for nothing, and take no share.
    """

    #: What estimators and attacks know the noise by; see :class:`.Noised`.
    law: ClassVar[Literal["laplace", "gaussian"]]
    suppresses: ClassVar[bool] = False

    @abstractmethod
    def scale(self, bound: Bound, spend: Fraction) -> float:
        """Scale of the noise in grid units, never less than the sensitivity asks for.

        Raises:
            ValueError: 64-bit integers cannot hold noise that wide.
        """

    @abstractmethod
    def loss(self, bound: Bound, spend: Fraction, scale: float) -> Loss:
        """What parts of that joint sensitivity cost at that scale."""

    @abstractmethod
    def draw(self, noise: Noise, cells: int, scale: float) -> np.ndarray:
        """That many independent integers, from the law at that scale."""

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Parts on a grid with a finite sensitivity; bits are for randomized response."""
        return all(
            g.bound is not None and g.part.exact and g.part.type != PartType.BITS
            for g in group.values()
        )

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """The law's loss on each grid, with its name and scale for tight retrospective accounting."""
        losses: list[Loss] = []
        noised: dict[str, Noised] = {}
        for names, bound, share in shares(group, spend):
            scale = self.scale(bound, share)
            losses.append(self.loss(bound, share, scale))
            noised |= dict.fromkeys(names, Noised(self.law, scale))
        loss = sum(losses[1:], losses[0]) if losses else Loss.free()
        return Protection(self, group, spend, loss, noised)

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        priced: Protection,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Add the noise in integers, part by part."""
        laws = priced.noised
        return {name: self._noisy(exact[name], laws.get(name), noise) for name in priced.group}

    def _noisy(self, exact: np.ndarray, law: Noised | None, noise: Noise) -> np.ma.MaskedArray:
        if law is None:
            return unmasked(exact)
        return unmasked(exact + self.draw(noise, exact.size, law.parameter).reshape(exact.shape))


def shares(
    group: Mapping[str, BoundedPart], spend: Fraction
) -> Iterator[tuple[list[str], Bound, Fraction]]:
    """Divide a spend equally among the grids on which a record can change something.

    Yields:
        the names of one grid's parts, their joint bound in its units, and the grid's share.
    """
    grids: dict[Fraction, dict[str, BoundedPart]] = {}
    for name, bounded in group.items():
        grids.setdefault(bounded.part.grid, {})[name] = bounded
    bounds = {grid: joint(own) for grid, own in grids.items()}
    changing = [grid for grid, bound in bounds.items() if bound.l1]
    for grid in changing:
        yield list(grids[grid]), bounds[grid], spend / len(changing)
