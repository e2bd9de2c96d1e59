"""Masked sums, which reveal only the owners' total: who takes part, and the noise that each adds.

Each of K owners adds a share of the noise, and a mask that cancels in the sum over all K, or over
the remaining h or more. Up to t may collude with the server, so that h - t shares count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from privfed.errors import PolicyError
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.laws import Charged, DiscreteGaussian, Law, SumOfGaussians
from privfed.privacy.loss import Loss, covers, lost
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection, is_drawn_here, unmasked
from privfed.privacy.noise import Noise
from privfed.questions.exact import shown
from privfed.questions.part import Bound, PartType
from privfed.tables.toml_file import check_keys

#: Minimum sigma of one owner's share, in grid units, for which tau (see :class:`.SumOfGaussians`) is below 1e-34 for
#: any number of owners.
MIN_SIGMA = 3.0
#: The owners' exact cells add up to at most this magnitude: each cell is clipped, which does not increase sensitivity.
#: So does their noise, of sigma at most 2^54: 64-bit integers hold the total.
LARGEST = 2**62
MOST_OWNERS, MOST_STEPS = 512, 2**18  #: Owners; owners times refinement, as cells reach 2^44
SUMS = (PartType.COUNTS, PartType.SUMS)  #: Parts that are sums over records


@dataclass(frozen=True)
class MaskedSums:
    """A policy's terms for masked sums (PolicyError: fewer than two shares count)."""

    #: each owner's masking key, 32 bytes in hexadecimal (``privfed key masking``), by name,
    #: including the policy's own owner; other text until a simulation fills it in
    keys: Mapping[str, str]
    colluding: int = 0  #: t, owners who may collude; each adds 1 / (h - t) of the variance
    unmasked: Budget | None = None  #: ceiling of the spending if the masks fail
    #: h, the minimum number of owners in a total; 0: all owners, none may drop out
    least: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.keys, Mapping):
            raise PolicyError("masked: owners have keys; write MaskedSums({OWNER: KEY, ...})")
        if type(self.colluding) is not int or self.colluding < 0:
            raise PolicyError("masked: colluding is a whole number of owners, 0 or more")
        if type(self.least) is not int or not 0 <= self.least <= len(self.keys):
            raise PolicyError(
                "masked: least is a whole number of owners, at most as many as are named"
            )
        if self.counted < 2:
            raise PolicyError(
                f"masked: the noise of {max(self.counted, 0)} of the owners counts ({self.fewest} less "
                f"{self.colluding} colluding), and 2 are the fewest; name at least 2 more owners than may collude"
            )
        if not 2 * self.fewest > len(self.keys) + self.colluding:
            raise PolicyError(
                f"masked: with least = {self.least} two groups of the {len(self.keys)} owners could each open "
                f"a total of one question; write least = "
                f"{(len(self.keys) + self.colluding) // 2 + 1} or more"
            )
        if len(self.keys) > MOST_OWNERS:
            raise PolicyError(f"masked: name at most {MOST_OWNERS} owners")
        for owner, key in self.keys.items():
            if not isinstance(key, str) or not re.fullmatch("([0-9a-f]{64})?", key):
                raise PolicyError(
                    f"masked: the key of {owner!r} is not a masking key, which has 64 hexadecimal digits"
                )
        owned = [key for key in self.keys.values() if key]
        if same := [owner for owner, key in self.keys.items() if owned.count(key) > 1]:
            raise PolicyError(
                f"masked: {' and '.join(map(repr, same))} have one masking key; give each her own"
            )

    @property
    def counted(self) -> int:
        """h - t, the number of counted shares of noise."""
        return self.fewest - self.colluding

    @property
    def fewest(self) -> int:
        """h, the minimum number of owners in a total."""
        return self.least or len(self.keys)

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners, sorted."""
        return tuple(sorted(self.keys))

    def check_mechanisms(self, kinds: Iterable[Iterable[Mechanism]]) -> None:
        """Check that some kind's guards can mask sums (else PolicyError)."""
        if not any(mechanisms and all(map(_masks, mechanisms)) for mechanisms in map(tuple, kinds)):
            raise PolicyError(
                "masked: no kind of query has gaussian noise on all of its parts, so nothing would be masked; "
                "guard sums with it, or leave masked out"
            )

    def check_unmasked(self, accountant: Accountant, budget: Budget | None) -> None:
        """Check the budget's cost without masks against ``unmasked`` (PolicyError: above it).

        An owner's own share has 1 / m of the variance, so that a release of cost rho then costs m
        rho: m times the ceiling bounds every exchange, whatever the server queries.
        """
        if self.unmasked is None:
            return
        if budget is None:
            raise PolicyError("masked: unmasked bounds a budget; write [budget] with it")
        upper_bound = self.at_most(accountant.ceiling(budget), accountant)
        if not accountant.fits(upper_bound, accountant.ceiling(self.unmasked)):
            needed = accountant.guarantee(upper_bound, self.unmasked.delta)[0]
            raise PolicyError(
                f"masked: if the masks fail, this budget is epsilon {shown(needed, 4)}, and unmasked allows "
                f"{shown(self.unmasked.epsilon, 4)}; raise it, lower the budget, or name fewer owners"
            )

    def epsilon_unmasked(self, accountant: Accountant, budget: Budget | None) -> Fraction | None:
        """Return the epsilon of the whole budget if the masks fail; None without a budget."""
        if budget is None:
            return None
        upper_bound = self.at_most(accountant.ceiling(budget), accountant)
        return accountant.guarantee(upper_bound, budget.delta)[0]

    def in_words(self, epsilon: Fraction | None) -> str:
        """Return the price without masks in words, to append to the first; empty if unknown."""
        if epsilon is None:
            return ""
        more = f"{self.colluding + 1} or more" if self.colluding else "any"
        return f"; if {more} do, an owner's own share of the noise still holds epsilon {shown(epsilon)}"

    def at_most(self, total: Amount, accountant: Accountant) -> Amount:
        """Return an upper bound on a total if the masks fail; masked losses have no delta."""
        named = zip(accountant.components, total, strict=True)
        return tuple(part if name == "delta" else part * self.counted for name, part in named)

    def with_keys(self, keys: Mapping[str, str]) -> MaskedSums:
        """Return the same terms with the owners' keys; keys that are already set stay."""
        return replace(self, keys={o: known or keys.get(o, "") for o, known in self.keys.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as plain data, as in a policy file."""
        data: dict[str, Any] = {"with": dict(sorted(self.keys.items()))}
        data["colluding"] = self.colluding
        if self.least:
            data["least"] = self.least
        if self.unmasked is not None:
            data["unmasked"] = self.unmasked.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Any, where: str = "policy") -> MaskedSums:
        """Read plain data; ``with`` is a table of keys by owner, or a list of names."""
        if isinstance(data, Mapping):
            known = {"with", "colluding", "least", "unmasked"}
            check_keys(data, known, f"{where}, masked", PolicyError)
        if not isinstance(data, Mapping) or "with" not in data:
            raise PolicyError(
                f'{where}: masked is a table; write masked = {{ with = {{ owner = "key" }}, colluding = 0 }}'
            )
        named, limit = data["with"], data.get("unmasked")
        if not isinstance(named, Mapping):
            listed = named if isinstance(named, list | tuple) else ()
            named = dict.fromkeys((each for each in listed if isinstance(each, str)), "")
        if limit is not None and not (isinstance(limit, Mapping) and "epsilon" in limit):
            raise PolicyError(
                f'{where}, masked: unmasked is a budget; write unmasked = {{ epsilon = "8", delta = "1e-5" }}'
            )
        budget = None if limit is None else Budget.of(limit["epsilon"], limit.get("delta", 0))
        return cls(dict(named), data.get("colluding", 0), budget, data.get("least", 0))


def if_masks_fail(
    accountant: Accountant, total: Amount, delta: Fraction, fixed: Sequence[Amount]
) -> Fraction:
    """Return a running total's epsilon at ``delta`` if the masks fail; ``fixed``: see :meth:`.Accountant.odometer`."""
    epsilon, at = accountant.odometer(total, delta, fixed)
    if at > delta:  # the odometer adds the losses' own deltas
        epsilon, _ = accountant.odometer(total, 2 * delta - at, fixed)
    if fixed and accountant.fits(total, fixed[-1]):
        return min(epsilon, accountant.guarantee(fixed[-1], delta)[0])
    return epsilon


def _masks(mechanism: Mechanism) -> bool:
    """Whether a mechanism's noise may be divided among owners."""
    drawn_here = is_drawn_here(mechanism) and not mechanism.suppresses
    return drawn_here and mechanism.currency == "rho"


@dataclass(frozen=True)
class MaskedProtection:
    """A mechanism applied to a group of sums, with one owner's share of its noise."""

    total: Protection  #: of all owners' total: its laws, and the cost to one owner
    refined: Mapping[str, int]  #: by part, refined grid units per original unit
    owners: int = MOST_OWNERS  #: K, the maximum number of owners in a total

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that protects the parts."""
        return self.total.mechanism

    @property
    def group(self) -> Mapping[str, BoundedPart]:
        """The parts on their refined grids, with their bounds."""
        return self.total.group

    @property
    def laws(self) -> Mapping[str, Law]:
        """The law of the noise in a total of the minimum number of owners, by part."""
        return self.total.laws

    def protect(
        self, exact: Mapping[str, np.ndarray], noise: Noise, _reveals: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ma.MaskedArray]:
        """Refine exact cells and add this owner's share; see :meth:`.Protection.protect`."""
        released = {}
        for name, cells in exact.items():
            units, law = self.on_grid(name, cells), self.drawn.get(name)
            if law is not None:
                units = units + law.draw(noise, cells.size).reshape(cells.shape)
            released[name] = unmasked(units)
        return released

    @cached_property
    def drawn(self) -> Mapping[str, Law]:
        """The law of one owner's share, by part."""
        laws = self.laws.items()
        return {name: law.share for name, law in laws if isinstance(law, SumOfGaussians)}

    def on_grid(self, name: str, cells: np.ndarray) -> np.ndarray:
        """Return a part's exact cells in refined grid units, clipped to :data:`LARGEST` / K."""
        fine = self.refined[name]
        limit = min(2**53, LARGEST // (self.owners * fine))
        return np.asarray(np.clip(cells.astype(np.int64), -limit, limit) * fine)

    @cached_property
    def alone(self) -> Loss:
        """The loss if the masks fail, when only the owner's own share protects her."""
        each = [
            lost(Charged(charged.law.share, charged.units))
            for charged in self.total.charged
            if isinstance(charged.law, SumOfGaussians)
        ]
        return sum(each, Loss.free())


#: Protection of a group of parts, by one owner or by several
AnyProtection = Protection | MaskedProtection


def masked(protection: Protection, terms: MaskedSums) -> MaskedProtection | None:
    """Divide a Gaussian mechanism's noise among all owners; None if the parts cannot be masked.

    ValueError: 64-bit integers cannot hold the total.
    """
    kinds = {bounded.part.type for bounded in protection.group.values()}
    gaussian = all(type(law) is DiscreteGaussian for law in protection.laws.values())
    sums = kinds <= set(SUMS) and gaussian and protection.laws and not protection.bare
    if not (sums and _masks(protection.mechanism)):
        return None
    group, refined = dict(protection.group), dict.fromkeys(protection.group, 1)
    by_law: dict[tuple[Fraction, Law], list[str]] = {}
    for name, law in protection.laws.items():
        by_law.setdefault((group[name].part.grid, law), []).append(name)
    laws: dict[str, SumOfGaussians] = {}
    for (_, alone), names in by_law.items():
        cells = sum(group[name].part.size for name in names)
        fine = refinement(alone.parameter / math.sqrt(terms.counted))
        if fine * len(terms.keys) > MOST_STEPS:
            raise ValueError("64-bit integers cannot hold the total of so many owners")
        law = SumOfGaussians(alone.parameter * fine, terms.counted, terms.fewest, cells)
        for name in names:
            part_here, refined[name], laws[name] = group[name], fine, law
            finer = (
                Bound(part_here.bound.l1 * fine, part_here.bound.l2_squared * fine**2)
                if part_here.bound
                else None
            )
            group[name] = replace(
                part_here,
                part=replace(part_here.part, grid=part_here.part.grid / fine),
                bound=finer,
            )
    stated = replace(protection.loss, laws=(), basis=())
    total = Protection(protection.mechanism, group, protection.spend, laws, stated)
    return MaskedProtection(total, refined, len(terms.keys)) if covers(total.loss) else None


def all_masked(
    protections: Sequence[Protection], terms: MaskedSums | None
) -> tuple[MaskedProtection, ...]:
    """Divide the noise of all protections of one answer; empty unless every part can be masked."""
    if terms is None:
        return ()
    each = [masked(protection, terms) for protection in protections]
    return (
        tuple(masked_one for masked_one in each if masked_one is not None)
        if None not in each
        else ()
    )


def refinement(sigma: float) -> int:
    """Return the smallest power of two that brings a share's sigma to :data:`MIN_SIGMA`; it costs no privacy."""
    return 1 << max(0, math.ceil(math.log2(MIN_SIGMA / sigma)))
