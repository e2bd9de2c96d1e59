"""Membership by likelihood ratio: was this record among the client's?

The attacker is that of differential privacy: it knows every other record and the noise's
distribution, and decides about one (Neyman and Pearson 1933). For a member i it compares the
released sums under D with those under D without i; for a record j of somebody else, under D with j
and under D. Exact numbers are the limit of little noise: the nearer of the two is true.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri, stdtrit

from privfed.attacks.base import (
    Attack,
    PublicSchema,
    Table,
    Truth,
    exact_parts,
    question_of,
    sound_parts,
)
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.linear import known_schema
from privfed.attacks.roc import FOUND_AT, RocCurve, area_chance, exposure, mean_points
from privfed.errors import PrivfedError, number_of
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import DiscreteLaplace
from privfed.questions.query import View

CONFIDENCE = 0.95  #: The interval's confidence
ROWS = 1024  #: Records whose contributions are judged at a time
#: Fewest clients, each one draw of noise, for a rate at 1 % false positives to mean anything.
DRAWS = 100


class Membership(Attack):
    """Tells members from other clients' records by all releases of a client together.

    Noisy and exact numbers are judged apart, and so are those that left as if exactly and are not what the
    records come to: their noise has no name, and is one draw of a client all the same. The value is the area
    under the ROC curve, whose baseline is 1/2. All scores at one client share its one draw of noise, and within a draw,
    records that add alike are ranked by who knows more. So a member's noisy score is compared with
    those of outsiders at other clients, and the confidence interval is the wider of two: over
    scores (Hanley and McNeil 1982), and over clients, a draw each (Student's t). A single client's exact numbers
    are judged by its held-out records (``NAME, held out``), its noise not at all.

    It reads every kind whose query says what a record adds (``Query.contribution``).
    """

    name: ClassVar[str] = "membership"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "someone who knows all other records can tell whether a record was used"
    question: ClassVar[str] = (
        "Knowing all other records, can one tell whether a person's record was used?"
    )

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: findings for noisy and for exact numbers; none without the truth."""
        if truth is None:
            return []
        deadline = self.deadline()
        found = [self._judged(LikelihoodRatios(truth, schema), transcript, deadline, drawn=True)]
        unnamed: frozenset[tuple[str, str]] = frozenset()
        while True:
            exact = LikelihoodRatios(truth, schema, exact=True, unnamed=unnamed)
            told = self._judged(exact, transcript, deadline, drawn=False)
            if not exact.drawn:
                break
            unnamed |= exact.drawn
        found.append(told)
        if unnamed:
            noise = LikelihoodRatios(truth, schema, exact=True, unnamed=unnamed, only=True)
            found.append(self._judged(noise, transcript, deadline, drawn=True))
        return [finding for finding in found if finding is not None]

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether a part adds up over records, and left exactly or with known noise."""
        return any(readable(entry, exact) for exact in (False, True))

    def _judged(
        self, scores: LikelihoodRatios, transcript: Transcript, deadline: Deadline, *, drawn: bool
    ) -> Finding | None:
        """Read what these scores are of, and judge them; `drawn`: whether a client's share a draw."""
        clients = [client for client in transcript.clients if client in scores.truth]
        if not clients or not any(scores.chosen(entry) for entry in transcript):
            return None
        read = scores.read(transcript, deadline)
        partial = deadline.partial(read, len(transcript), "releases")
        scored = [scores.of(client) for client in clients]
        members = [own.pop(client) for client, own in zip(clients, scored, strict=True)]
        outsiders = [np.concatenate([np.empty(0), *others.values()]) for others in scored]
        told = judged(members, outsiders, drawn=drawn)
        if told is None:
            return self.incomparable(drawn=drawn)
        found = self._told(told, scores.numbers, drawn, tuple(sorted(scores.kinds)), partial)
        return replace(found, exposed=dict(zip(clients, told.exposed, strict=True)))

    def _told(
        self, told: Judged, numbers: str, drawn: bool, kinds: tuple[str, ...], partial: str
    ) -> Finding:
        detail: dict[str, Any] = {
            "members": told.members,
            "outsiders": told.outsiders,
            FOUND_AT: told.points,
        }
        if told.clients >= DRAWS:
            detail["members found at 1 % false positives"] = told.points["1 %"]
        elif drawn:
            detail["note"] = (
                f"{number_of(told.clients, 'draw')} of noise: a rate at 1 % needs {DRAWS}"
            )
        return self.finding(
            f"share of pairs of a used and an unused record told apart by {numbers}",
            **told.figures,
            releases=kinds,
            # However high, it may be what the stated epsilon allows: only an audit convicts a claim.
            severity="none" if told.low <= 0.5 else "some",
            detail=detail,
            # Pairs of a few clients share their draws: only many draws make an interval.
            limit="area" if not drawn or told.clients >= DRAWS else "",
            partial=partial,
        )


@dataclass(frozen=True)
class Judged:
    """ROC AUC, half its interval, numbers compared (the fewest outsiders of a client), and TPR.

    ``chance`` is the probability of so large an area where scores tell nothing, ``points`` the TPR by FPR,
    ``exposed`` the FPR at which each client's records are found.
    """

    area: float
    half: float
    chance: float
    members: int
    outsiders: int
    points: dict[str, float]
    clients: int
    exposed: Sequence[np.ndarray]

    @property
    def low(self) -> float:
        """The interval's lower end."""
        return max(0.0, self.area - self.half)

    @property
    def high(self) -> float:
        """The interval's upper end."""
        return min(1.0, self.area + self.half)

    @property
    def figures(self) -> dict[str, Any]:
        """The area as a finding has it, beside that of a coin, with its interval and chance."""
        ends = {"low": self.low, "high": self.high, "chance": self.chance}
        return {"value": self.area, "of": 1.0, "baseline": 0.5, "measure": "area", **ends}


def judged(
    members: Sequence[np.ndarray], outsiders: Sequence[np.ndarray], *, drawn: bool
) -> Judged | None:
    """Judge each client's members by outsiders, own or (if `drawn`) at other clients; None without any.

    The area is that of all pairs of records; of shared draws, that of all ordered pairs of clients, each
    of which counts once: a mean of draws that one large client outweighs would be that client's luck.

    Args:
        members: scores of each client's own records.
        outsiders: scores of others' records at the same client.
        drawn: whether all scores at one client share a draw (of noise, or of its secret coins).
    """
    compared = list(elsewhere(outsiders)) if drawn else list(outsiders)
    both = [place for place, own in enumerate(members) if len(own) and len(compared[place])]
    if not both:
        return None
    pairs = [(members[place], compared[place]) for place in both]
    weights = [len(own) * len(rest) for own, rest in pairs]
    areas = np.array([auc(own, rest) for own, rest in pairs])
    area = float(np.average(areas, weights=weights))
    heard, least = (sum(len(own) for own, _ in pairs), min(len(rest) for _, rest in pairs))
    accused = None
    if drawn and len(both) > 1:
        table = areas_elsewhere(*([side[place] for place in both] for side in (members, outsiders)))
        areas, accused = np.nanmean(table, axis=1), np.nanmean(table, axis=0)
        area = float(areas.mean())
    std, freedom = auc_deviation(area, heard, least), math.inf
    half = float(-ndtri((1 - CONFIDENCE) / 2)) * std
    if drawn:
        between, freedom = between_draws(areas, accused), max(1, len(both) - 1)
        half = max(half, between)
        std = max(std, between / float(stdtrit(freedom, (1 + CONFIDENCE) / 2)))
    chance = area_chance(area, heard, least, std, freedom)
    curves = [RocCurve.of(own, rest) for own, rest in pairs]
    points = mean_points(curves, [len(own) for own, _ in pairs])
    exposed = [exposure(own, rest) for own, rest in zip(members, compared, strict=True)]
    return Judged(area, half, chance, heard, least, points, len(both), exposed)


def areas_elsewhere(members: Sequence[np.ndarray], outsiders: Sequence[np.ndarray]) -> np.ndarray:
    """Areas under the curve of each client's members above each other one's outsiders, NaN for its own.

    Shape (clients, clients), ties counted half.
    """
    sizes, everybody = [len(own) for own in members], np.concatenate(members)
    table = np.empty((len(sizes), len(sizes)))
    for place, rest in enumerate(map(np.sort, outsiders)):
        below = sum(np.searchsorted(rest, everybody, side) for side in ("left", "right"))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        table[:, place] = np.bincount(owner, below) / (2 * len(rest) * np.array(sizes))
    np.fill_diagonal(table, np.nan)
    return table


def between_draws(
    areas: np.ndarray, accused: np.ndarray | None = None, weights: np.ndarray | None = None
) -> float:
    """Half the interval of a mean of areas, from their variance between clients.

    All scores at one client share one draw of its noise, so that only clients are independent; of a
    single one nothing is known. Student's t of a mean in which all count alike errs on the safe side where
    their variances differ, as those of clients of unequal sizes do (Ibragimov and Mueller 2010,
    "t-statistic based correlation and heterogeneity robust inference"). Where members are compared with outsiders
    at other clients, each
    draw counts twice, once for its members and once for its outsiders: without client k the mean
    over all ordered pairs of n clients of an area A_kl changes by (A_k. + A_.k - 2 A..) / (n - 2),
    and the std is the jackknife's (Efron and Stein 1981, "The jackknife estimate of variance").

    Args:
        areas: of each client's members above others' outsiders, shape (clients,).
        accused: of others' members above each client's outsiders, shape (clients,); None if members
            are compared with nobody elsewhere.
        weights: of the clients in the mean, without `accused`; all alike unless given. A mean that one of them
            outweighs is of hardly more than one draw (Kish 1965: of 1 / sum of squared shares).
    """
    number = len(areas)
    if number < (2 if accused is None else 3):
        return 1.0
    quantile = float(stdtrit(number - 1, (1 + CONFIDENCE) / 2)) / math.sqrt(number)
    if weights is not None:
        shares = weights / weights.sum()
        kept = float(shares @ shares)
        spread = float(shares @ (areas - shares @ areas) ** 2) * kept / (1 - kept)
        return min(1.0, float(stdtrit(1 / kept - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(spread))
    if accused is None:
        return quantile * float(np.std(areas, ddof=1))
    return quantile * float(np.std(areas + accused, ddof=1)) * (number - 1) / (number - 2)


def readable(entry: TranscriptEntry, exact: bool) -> dict[str, ReleasedPart]:
    """Parts that add up over records: exact ones, or those with noise of a known distribution."""
    asked = question_of(entry)
    if asked is None or not asked.linear:
        return {}
    if exact:
        parts = exact_parts(entry)
    else:
        noisy = entry.release.parts.items()
        parts = {name: part for name, part in noisy if part.noise and part.noise.additive}
    return {name: part for name, part in parts.items() if part.type.adds_up}


class LikelihoodRatios:
    """Log likelihood ratios of all records at every client, query by query.

    Args:
        truth: the records in question, by owner.
        schema: the public data dictionary.
        exact: whether to read the exact numbers instead of the noisy ones; then the ratios, which
            would be infinite, count grid units, and reading stops when they tell all records apart.
        unnamed, only: parts, by kind and name, that are left out, or the `only` ones that are read.

    Attributes:
        kinds: of the releases that were read.
        drawn: parts that left as if exactly and are not what the records come to, for a mechanism that
            names no noise has drawn them all the same.
    """

    def __init__(
        self,
        truth: Truth,
        schema: PublicSchema | None,
        exact: bool = False,
        *,
        unnamed: frozenset[tuple[str, str]] = frozenset(),
        only: bool = False,
    ) -> None:
        self.kinds: set[str] = set()
        self.drawn: frozenset[tuple[str, str]] = frozenset()
        self.truth, self._schema, self._exact = truth, schema, exact
        self._unnamed, self._only = unnamed, only
        self._views = {owner: list(_views(table, schema)) for owner, table in truth.items()}
        self._whole = {o: View(own, known_schema(schema, own)) for o, own in truth.items()}
        self._totals: dict[str, dict[str, np.ndarray]] = {}

    @property
    def numbers(self) -> str:
        """What is read, in words."""
        named = "exact numbers" if self._exact else "noisy numbers"
        return "noisy numbers of undeclared meaning" if self._only else named

    def chosen(self, entry: TranscriptEntry) -> dict[str, ReleasedPart]:
        """The parts of a release that are to be read."""
        return {
            name: part
            for name, part in readable(entry, self._exact).items()
            if ((entry.kind, name) in self._unnamed) == self._only
        }

    def of(self, client: str) -> dict[str, np.ndarray]:
        """The scores at one client, with the record against without it, by the records' owner."""
        if client not in self._totals:
            self._totals[client] = {o: np.zeros(len(t.x)) for o, t in self.truth.items()}
        return self._totals[client]

    def read(self, transcript: Transcript, deadline: Deadline | None = None) -> int:
        """Add up the releases of clients whose records are known; return how many in time."""
        groups: dict[tuple[str, bytes], list[TranscriptEntry]] = {}
        for entry in transcript:
            groups.setdefault((entry.kind, entry.fields), []).append(entry)
        read = 0
        for entries in groups.values():
            if deadline is not None and deadline.over:
                break
            self._question([entry for entry in entries if entry.client in self.truth])
            read += len(entries)
        return read

    def _question(self, entries: Sequence[TranscriptEntry]) -> None:
        heard = [(e, parts) for e in entries if (parts := self._parts(e)) and self._open(e)]
        asked = question_of(heard[0][0]) if heard else None
        if asked is None:
            return
        self.kinds.add(heard[0][0].kind)
        noise = []
        for entry, parts in heard:
            own = asked.evaluate(self._whole[entry.client])
            noise.append({n: p.units - own[n] for n, p in parts.items() if n in own})
            if self._exact and not self._only:
                off = (n for n, drawn in noise[-1].items() if drawn[parts[n].visible].any())
                self.drawn |= {(entry.kind, name) for name in off}
        for owner, views in self._views.items():
            for at, view in views:
                added = asked.contribution(view)
                for (entry, parts), drawn in zip(heard, noise, strict=True):
                    score = self.of(entry.client)[owner]
                    for name in drawn:
                        moved = np.asarray(added[name])
                        member = owner == entry.client
                        score[at] += _ratio(parts[name], drawn[name], moved, member)

    def _parts(self, entry: TranscriptEntry) -> dict[str, ReleasedPart]:
        """The parts to read; none if query, schema and answer do not fit."""
        parts, asked = self.chosen(entry), question_of(entry)
        if asked is None or not parts:
            return {}
        sound = sound_parts(entry)
        try:
            declared = asked.parts(self._whole[entry.client].schema)
        except PrivfedError:
            return {}
        return {
            name: part
            for name, part in parts.items()
            if name in sound and name in declared and declared[name].shape == part.units.shape
        }

    def _open(self, entry: TranscriptEntry) -> bool:
        return not (self._exact and all(map(np.all, self.of(entry.client).values())))


def _views(table: Table, schema: PublicSchema | None) -> Iterator[tuple[slice, View]]:
    """Views in blocks, so that memory does not grow with the records."""
    whole: Any = View(table, known_schema(schema, table))
    for first in range(0, len(table.x), ROWS):
        rows = np.arange(first, min(first + ROWS, len(table.x)))
        block = whole.table if len(rows) == len(table.x) else whole.table.take(rows)
        yield slice(first, first + len(rows)), View(block, whole.schema)


def _ratio(part: ReleasedPart, noise: np.ndarray, moved: np.ndarray, member: bool) -> np.ndarray:
    """ln f(noise with) - ln f(noise without), summed over the visible cells, f of one cell."""
    law = DiscreteLaplace(1.0) if part.noise is None else part.noise  # exact: in grid units
    present = noise[None] - (0.0 if member else moved)
    absent = noise[None] + (moved if member else 0.0)
    change = law.log_ratio(present, absent)
    if part.mask is not None:
        change = np.where(part.mask, 0.0, change)
    return np.asarray(change.reshape(len(moved), -1).sum(axis=1))


def elsewhere(groups: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """For each group all others together, one at a time."""
    for at in range(len(groups)):
        yield np.concatenate([np.empty(0), *groups[:at], *groups[at + 1 :]])


def auc(members: np.ndarray, outsiders: np.ndarray) -> float:
    """Probability that a member scores above an outsider, ties counted half."""
    if not len(members) or not len(outsiders):
        return 0.5
    if np.isnan(members).any() or np.isnan(outsiders).any():
        return math.nan
    ordered = np.sort(outsiders)
    twice = sum(ordered.searchsorted(members, side).sum() for side in ("left", "right"))
    return float(twice / 2 / (len(members) * len(outsiders)))


def auc_deviation(area: float, members: int, outsiders: int) -> float:
    """Standard deviation of an area under the curve (Hanley and McNeil 1982)."""
    if not members or not outsiders:
        return 0.5
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (members - 1) * (one - area**2)
    variance += (outsiders - 1) * (two - area**2)
    return float(np.sqrt(max(variance, 0.0) / (members * outsiders)))
