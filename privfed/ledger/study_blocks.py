"""Study blocks: the share of a persistent budget that each study reserves when it begins.

Theorem. Let study k reserve a share r_k (in zCDP's rho; or in pure epsilon), where k's start, the share, its queries
and their order may depend on all earlier releases, of this study and of concurrent ones. A charge is refused if it
would exceed r_k for study k, or, with other studies' reserved and uncharged shares, the ceiling C for the whole, which
is fixed before the first charge.

1. Whatever was released before study k began, its own releases are r_k-zCDP given that. This holds for
   ever: nothing that is asked later changes it.
2. Everything together is C-zCDP, whatever is asked and whenever it stops.
3. Sealing a study returns what it did not charge to the budget, and 1 and 2 still hold.

Proof. For one pair of neighbours and a > 1 let R_t be the sum of the rhos charged up to release t, and M_t = exp((a -
1)(L_t - a R_t)) with L_t the privacy loss of the first t releases. Given the past, which fixes the next query and its
charge before it is answered, release t + 1 is rho-zCDP, so that E[exp((a - 1) loss)] <= exp((a - 1) a rho) and M is a
supermartingale. By optional stopping E[M] <= 1 at any stopping time at which all is over. (2) The reserving rule keeps
R <= C always, hence E[exp((a - 1) L)] <= exp((a - 1) a C). (1) The same with only study k's charges, conditionally on
the past at its beginning: its share is known then, and R <= r_k. If studies are concurrent, L and R sum over study k's
own releases only, each given everything before it. (3) Both sums are over charges, not shares, and sealing changes
neither. For pure epsilon, L_t <= R_t surely.

These are the filters of Rogers et al. (2016), for zCDP those of Feldman and Zrnic (2021) and Whitehouse et al. (2023);
stopping is covered because a filter bounds the process stopped at any time. The bound on blocks *so far* is
:func:`privfed.accountants.zcdp.odometer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from privfed.privacy.accountant import Amount, plus
from privfed.privacy.limit import scope

STUDY = ("study",)  #: Aspects of a study's total
BLOCKS = "studies"  #: Name of the blocks in a ledger's state

NAMED = 5  #: Maximum studies that a refusal names


@dataclass(frozen=True)
class StudyBlock:
    """One study's share of a persistent budget."""

    study: str  #: its name
    share: Amount  #: maximum total of its charges, under the ledger's accountant
    #: whether it has ended, and the uncharged part of its share returned to the budget
    sealed: bool = False
    spent: Amount = ()  #: charged so far

    @classmethod
    def from_plain(cls, study: str, data: Mapping[str, Any]) -> StudyBlock:
        """Read one value of the state."""
        return cls(study, tuple(map(Fraction, data["share"])), data["sealed"])

    @property
    def total(self) -> str:
        """The scope of its charges."""
        return scope(STUDY, {"study": self.study})

    @property
    def unspent(self) -> Amount:
        """The reserved and uncharged amount."""
        if self.sealed:
            return (Fraction(0),) * len(self.share)
        return tuple(max(a - b, Fraction(0)) for a, b in zip(self.share, self.spent, strict=True))


def reserved(share: Amount) -> dict[str, Any]:
    """Return a newly reserved share as a value of the state."""
    return {"share": list(map(str, share)), "sealed": False}


def read_blocks(data: Any, spent_in: Callable[[str], Amount | None]) -> dict[str, StudyBlock]:
    """Read all blocks from a ledger's state; ``spent_in`` returns the total of a scope, or None."""
    blocks = {}
    for study, one in (data or {}).items():
        block = StudyBlock.from_plain(study, one)
        spent = spent_in(block.total) or (Fraction(0),) * len(block.share)
        blocks[study] = StudyBlock(study, block.share, block.sealed, spent)
    return blocks


def committed(total: Amount, blocks: Iterable[StudyBlock]) -> Amount:
    """Return a total plus all reserved and uncharged shares of studies."""
    for block in blocks:
        total = plus(total, block.unspent)
    return total


def kept(studies: Iterable[str]) -> str:
    """Return a refusal's note on open studies with a share; empty if there are none."""
    names = sorted(studies)
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"; part of the budget is kept for {', '.join(map(repr, names[:NAMED]))}{more}, not ended yet: of a study "
        "that was killed, privfed ledger seal FOLDER STUDY frees the rest"
    )
