"""The list that an attacker holds: a client's records, among its held-out ones and other clients'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.attacks.base import HELD_OUT, Truth


@dataclass(frozen=True, eq=False)
class CandidateRecords:
    """A candidate list: distinct records, their multiplicities, and who is a member, for scoring."""

    x: np.ndarray
    y: np.ndarray | None
    often: np.ndarray
    member: np.ndarray
    own: np.ndarray  #: where each of the client's records stands on it
    control: np.ndarray  #: who is no member, of the client's held-out records

    @classmethod
    def of(cls, truth: Truth, client: str, most: int, rng: np.random.Generator) -> CandidateRecords:
        """The client's own records among its held-out ones and others', at most ``most`` in all."""
        names = [name for name in (client, client + HELD_OUT) if name in truth]
        beside = len(truth[names[-1]].x) if len(names) > 1 else 0
        names += [name for name in truth if name not in names and not name.endswith(HELD_OUT)]
        tables = [truth[name] for name in names if len(truth[name].x)]
        target = all(table.y is not None for table in tables)
        rows = [
            np.column_stack([table.x, table.y]) if target and table.y is not None else table.x
            for table in tables
        ]
        own = len(truth[client].x)
        whole = np.concatenate(rows) if rows else np.zeros((0, 1))
        near = np.arange(own, own + beside)
        others = np.append(near, rng.permutation(np.arange(own + beside, len(whole))))
        kept = np.append(np.arange(own), np.sort(others[: max(0, most - own)])).astype(int)
        alike, at, often = np.unique(whole[kept], axis=0, return_inverse=True, return_counts=True)
        place = at.ravel()[:own]
        member = np.bincount(place, minlength=len(alike)) > 0
        control = np.bincount(at.ravel()[np.isin(kept, near)], minlength=len(alike)) > 0
        x, y = (alike[:, :-1], alike[:, -1]) if target else (alike, None)
        return cls(x, y, often.astype(float), member, place, control & ~member)

    def __len__(self) -> int:
        return len(self.often)

    @property
    def usable(self) -> bool:
        """Whether there are members to find, and others to take for them."""
        return bool(self.member.any() and not self.member.all())
