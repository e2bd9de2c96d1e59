"""The list that an attacker holds: a client's records, among its held-out ones and other clients'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.attacks.base import HELD_OUT, Truth, whole
from privfed.attacks.deadline import Deadline
from privfed.attacks.lattice import ExactSums


@dataclass(frozen=True, eq=False)
class CandidateRecords:
    """A candidate list: distinct records, how many people each stands for, and how many are members, for scoring."""

    x: np.ndarray
    y: np.ndarray | None
    often: np.ndarray  #: people on the list whose records are this one
    members: np.ndarray  #: how many of them are the client's
    own: np.ndarray  #: where each of the client's records stands on it
    controls: np.ndarray  #: how many of them are the client's held-out ones

    @classmethod
    def of(cls, truth: Truth, client: str, most: int, rng: np.random.Generator) -> CandidateRecords:
        """The client's own records among its held-out ones and others', at most ``most`` in all."""
        names = [name for name in (client, client + HELD_OUT) if name in truth]
        beside = len(truth[names[-1]].x) if len(names) > 1 else 0
        names += [name for name in truth if name not in names and not name.endswith(HELD_OUT)]
        tables = [truth[name] for name in names if len(truth[name].x)]
        target = all(table.y is not None for table in tables)
        rows = [whole(table) if target else table.x for table in tables]
        own = len(truth[client].x)
        listed = np.concatenate(rows) if rows else np.zeros((0, 1))
        near = np.arange(own, own + beside)
        others = np.append(near, rng.permutation(np.arange(own + beside, len(listed))))
        kept = np.append(np.arange(own), np.sort(others[: max(0, most - own)])).astype(int)
        alike, at, often = np.unique(listed[kept], axis=0, return_inverse=True, return_counts=True)
        place = at.ravel()[:own]
        members = np.bincount(place, minlength=len(alike))
        controls = np.bincount(at.ravel()[np.isin(kept, near)], minlength=len(alike))
        x, y = (alike[:, :-1], alike[:, -1]) if target else (alike, None)
        return cls(x, y, often.astype(float), members, place, controls)

    def __len__(self) -> int:
        return len(self.often)

    @property
    def outsiders(self) -> np.ndarray:
        """How many of those alike are no members, shape (candidates,)."""
        return np.asarray(self.often.astype(int) - self.members)

    @property
    def alike(self) -> tuple[float, float, float]:
        """How many people are alike, on average over members, over outsiders and over controls."""
        each = (self.members, self.outsiders, self.controls)
        members, outsiders, controls = (float((who**2).sum() / max(who.sum(), 1)) for who in each)
        return members, outsiders, controls

    @property
    def usable(self) -> bool:
        """Whether there are members to find, and others to take for them."""
        return bool(self.members.any() and self.outsiders.any())


@dataclass(frozen=True)
class Named:
    """People whom a client's exact sums decide: named as members (and rightly), and in all.

    That some of several alike were there names nobody: all of them must have been, or none.

    ``sums`` and ``list`` are the bits of the sums together and of the list.
    """

    members: int
    right: int
    decided: int
    sums: float
    list: float
    cut_short: bool

    @classmethod
    def of(cls, exact: ExactSums, listed: CandidateRecords, deadline: Deadline) -> Named:
        """Compare what is decided with the truth."""
        cut_short = deadline.over and not exact.decided.all()
        named, cleared = exact.low == listed.often, exact.high == 0
        people, decided = (int(listed.often[who].sum()) for who in (named, named | cleared))
        return cls(people, int(listed.members[named].sum()), decided, *exact.bits, cut_short)
