"""Membership by likelihood ratio on noisy releases: was this record among the client's?

The attacker is the one that differential privacy speaks of: it knows every other record and the law
of the noise, and decides about one (Neyman and Pearson 1933). For a member i it compares the
released sums under D with those under D without i; for a record j of somebody else, under D with j
and under D.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from privfed.attacks.base import Attack, PublicSchema, Table, Truth
from privfed.attacks.contributions import CONTRIBUTIONS
from privfed.finding import Finding
from privfed.release import Disclosed, ReleasedPart, Transcript

#: The interval's confidence.
CONFIDENCE = 0.95
#: Fewest outsiders for whom a rate at 1 % false positives means anything.
OUTSIDERS = 1000


class Membership(Attack):
    """Tells members from records of other clients by all of a client's noisy releases together.

    The value is the probability that a member scores above an outsider (the area under the ROC
    curve); a guesser has 1/2. All scores at one client share its one draw of noise, which the
    confidence interval (Hanley and McNeil 1982) does not see.
    """

    name: ClassVar[str] = "membership"
    question: ClassVar[str] = (
        "Knowing all other records, can one tell whether a person's record was there?"
    )
    kinds: ClassVar[tuple[str, ...]] = tuple(CONTRIBUTIONS)

    def attackable(self, transcript: Transcript) -> bool:
        """Whether some part of a known kind left with noise on it."""
        return any(True for entry in transcript for _ in noisy_parts(entry))

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: one finding; none without the truth, which this attacker knows."""
        if truth is None or not self.attackable(transcript):
            return []
        members, outsiders = [np.empty(0)], [np.empty(0)]
        for client in (client for client in transcript.clients if client in truth):
            heard = transcript.of(client=client)
            for name, table in truth.items():
                scores = ratios(heard, truth[client], table, schema, name == client)
                (members if name == client else outsiders).append(scores)
        kinds = sorted({entry.kind for entry in transcript if any(noisy_parts(entry))})
        return [self._judged(np.concatenate(members), np.concatenate(outsiders), tuple(kinds))]

    def _judged(
        self, members: np.ndarray, outsiders: np.ndarray, kinds: tuple[str, ...]
    ) -> Finding:
        area = auc(members, outsiders)
        half = float(-ndtri((1 - CONFIDENCE) / 2)) * auc_deviation(
            area, len(members), len(outsiders)
        )
        low, high = max(0.0, area - half), min(1.0, area + half)
        detail: dict[str, float] = {"members": len(members), "outsiders": len(outsiders)}
        if len(outsiders) >= OUTSIDERS:
            bar = np.quantile(outsiders, 0.99)
            detail["members found at 1 % false positives"] = float((members > bar).mean())
        # However high, it may be what the stated epsilon allows: only an audit convicts a claim.
        severity = "none" if low <= 0.5 else "some"
        return self.finding(
            "probability of ranking a member above an outsider",
            area,
            of=1.0,
            low=low,
            high=high,
            baseline=0.5,
            releases=kinds,
            severity=severity,
            detail=detail,
        )


def noisy_parts(entry: Disclosed) -> Iterator[tuple[str, ReleasedPart]]:
    """Parts with additive noise, of a kind whose contributions are known."""
    if entry.kind in CONTRIBUTIONS:
        for name, part in entry.release.parts.items():
            if part.noise is not None and part.noise.law in ("laplace", "gaussian"):
                yield name, part


def ratios(
    transcript: Transcript, owner: Table, table: Table, schema: PublicSchema | None, member: bool
) -> np.ndarray:
    """Log likelihood ratio, with the record against without it, for each record of a table.

    Args:
        transcript: one client's releases.
        owner: that client's records, all of which the attacker knows but the one in question.
        table: the records in question.
        schema: the public data dictionary.
        member: whether they are the owner's own.
    """
    total = np.zeros(len(table.x))
    for entry in transcript:
        parts = dict(noisy_parts(entry))
        if not parts or not len(table.x):
            continue
        known = CONTRIBUTIONS[entry.kind](entry.query, owner, schema)
        asked = CONTRIBUTIONS[entry.kind](entry.query, table, schema)
        for name, part in parts.items():
            if name in known:
                noise = part.units - known[name].sum(axis=0)
                total += _ratio(part, noise, asked[name], member)
    return total


def _ratio(part: ReleasedPart, noise: np.ndarray, moved: np.ndarray, member: bool) -> np.ndarray:
    """ln f(noise with) - ln f(noise without), summed over cells; f is the law of one cell."""
    assert part.noise is not None
    scale = part.noise.parameter
    present = noise[None] - (0.0 if member else moved)
    absent = noise[None] + (moved if member else 0.0)
    if part.noise.law == "laplace":
        change = (np.abs(absent) - np.abs(present)) / scale
    else:
        change = (absent - present) * (absent + present) / (2 * scale**2)
    return np.asarray(change.reshape(len(moved), -1).sum(axis=1))


def auc(members: np.ndarray, outsiders: np.ndarray) -> float:
    """Probability that a member scores above an outsider, ties counted half."""
    if not len(members) or not len(outsiders):
        return 0.5
    ranks = rankdata(np.concatenate([members, outsiders]))[: len(members)]
    wins = ranks.sum() - len(members) * (len(members) + 1) / 2
    return float(wins / (len(members) * len(outsiders)))


def auc_deviation(area: float, members: int, outsiders: int) -> float:
    """Standard deviation of an area under the curve (Hanley and McNeil 1982)."""
    if not members or not outsiders:
        return 0.5
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (members - 1) * (one - area**2)
    variance += (outsiders - 1) * (two - area**2)
    return float(np.sqrt(max(variance, 0.0) / (members * outsiders)))
