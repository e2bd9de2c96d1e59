"""The list that an attacker holds: a client's records, among its held-out ones and other clients'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.attacks.base import HELD_OUT, Truth, whole
from privfed.attacks.deadline import Deadline
from privfed.attacks.lattice import ExactSums


@dataclass(frozen=True, eq=False)
class CandidateRecords:
    """A candidate list: distinct records, their multiplicity, and how many are members, for scoring."""

    x: np.ndarray
    y: np.ndarray | None
    copies: np.ndarray  #: people on the list whose records are this one
    members: np.ndarray  #: how many of them are the client's
    own_index: np.ndarray  #: index on it of each of the client's records
    controls: np.ndarray  #: how many of them are the client's held-out ones

    @classmethod
    def of(cls, truth: Truth, client: str, size: int, rng: np.random.Generator) -> CandidateRecords:
        """The client's records among its held-out ones and others', at most ``size`` in all."""
        names = [name for name in (client, client + HELD_OUT) if name in truth]
        n_held_out = len(truth[names[-1]].x) if len(names) > 1 else 0
        names += [name for name in truth if name not in names and not name.endswith(HELD_OUT)]
        tables = [truth[name] for name in names if len(truth[name].x)]
        target = all(table.y is not None for table in tables)
        rows = [whole(table) if target else table.x for table in tables]
        n_own = len(truth[client].x)
        listed = np.concatenate(rows) if rows else np.zeros((0, 1))
        held_out = np.arange(n_own, n_own + n_held_out)
        others = np.append(held_out, rng.permutation(np.arange(n_own + n_held_out, len(listed))))
        kept = np.append(np.arange(n_own), np.sort(others[: max(0, size - n_own)])).astype(int)
        distinct, index, counts = np.unique(
            listed[kept], axis=0, return_inverse=True, return_counts=True
        )
        own_index = index.ravel()[:n_own]
        members = np.bincount(own_index, minlength=len(distinct))
        controls = np.bincount(index.ravel()[np.isin(kept, held_out)], minlength=len(distinct))
        X, y = (distinct[:, :-1], distinct[:, -1]) if target else (distinct, None)
        return cls(X, y, counts.astype(float), members, own_index, controls)

    def __len__(self) -> int:
        return len(self.copies)

    @property
    def outsiders(self) -> np.ndarray:
        """Multiplicity among non-members, shape (candidates,)."""
        return np.asarray(self.copies.astype(int) - self.members)

    @property
    def repeats(self) -> tuple[float, float, float]:
        """Mean number of equal records, over members, over outsiders and over controls."""
        groups = (self.members, self.outsiders, self.controls)
        members, outsiders, controls = (float((n**2).sum() / max(n.sum(), 1)) for n in groups)
        return members, outsiders, controls

    @property
    def usable(self) -> bool:
        """Whether there are members and outsiders."""
        return bool(self.members.any() and self.outsiders.any())


@dataclass(frozen=True)
class Named:
    """Number of people that a client's exact sums identify as members, correctly so, and decide in all.

    Equal records are identified only if all of them are members, or none.

    ``sums`` and ``list`` are the bits of the sums together and of the list.
    """

    members: int
    correct: int
    decided: int
    sums: float
    list: float
    cut_short: bool

    @classmethod
    def of(cls, exact: ExactSums, records: CandidateRecords, deadline: Deadline) -> Named:
        """Compare the decisions with the truth."""
        cut_short = deadline.over and not exact.decided.all()
        named, excluded = exact.low == records.copies, exact.high == 0
        people, decided = (int(records.copies[mask].sum()) for mask in (named, named | excluded))
        return cls(people, int(records.members[named].sum()), decided, *exact.bits, cut_short)
