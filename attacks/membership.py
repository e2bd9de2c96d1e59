"""Membership by likelihood ratio.

The attacker is that of differential privacy: it knows every other record and the noise's
distribution, and decides about one (Neyman and Pearson 1933). For a member i it compares the
released sums under D with those under D without i; for an outsider j, under D with j and under D.
Exact numbers are the limit of vanishing noise: the nearer of the two is true.
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
    declared_parts,
    exact_parts,
    question_of,
    sound_parts,
)
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.linear import known_schema
from privfed.attacks.roc import FOUND_AT, RocCurve, auc_p_value, exposure, mean_points
from privfed.errors import number_of
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import DiscreteLaplace
from privfed.questions.query import View

CONFIDENCE = 0.95  #: The interval's confidence
ROWS = 1024  #: Records whose contributions are computed at a time
#: Fewest clients, each one draw of noise, for a rate at 1 % false positives to mean anything.
DRAWS = 100


class Membership(Attack):
    """Distinguishes members from other clients' records by all releases of a client together.

    Noisy and exact numbers are scored separately, and so are undeclared noisy ones, which differ from the exact
    answer without a declared distribution: these too are one draw of a client. The value is the ROC AUC, whose
    baseline is 1/2. All scores at one client share its one draw of noise, and within a draw, records with equal
    contributions are ordered by what the attacker knows already. So a member's noisy score is compared with
    those of outsiders at other clients, and the confidence interval is the wider of two: over
    scores (Hanley and McNeil 1982), and over clients, a draw each (Student's t). A single client's exact numbers
    are compared with its held-out records (``NAME, held out``), its noisy ones not at all.

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
        findings = [
            self._compare(LikelihoodRatios(truth, schema), transcript, deadline, drawn=True)
        ]
        unnamed: frozenset[tuple[str, str]] = frozenset()
        while True:
            exact = LikelihoodRatios(truth, schema, exact=True, unnamed=unnamed)
            exact_finding = self._compare(exact, transcript, deadline, drawn=False)
            if not exact.drawn:
                break
            unnamed |= exact.drawn
        findings.append(exact_finding)
        if unnamed:
            noise = LikelihoodRatios(truth, schema, exact=True, unnamed=unnamed, only=True)
            findings.append(self._compare(noise, transcript, deadline, drawn=True))
        return [finding for finding in findings if finding is not None]

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether a part adds up over records, and is exact or has known noise."""
        return any(readable(entry, exact) for exact in (False, True))

    def _compare(
        self, scores: LikelihoodRatios, transcript: Transcript, deadline: Deadline, *, drawn: bool
    ) -> Finding | None:
        """Read the releases and compare the scores; `drawn`: whether a client's share a draw."""
        clients = [client for client in transcript.clients if client in scores.truth]
        if not clients or not any(scores.chosen(entry) for entry in transcript):
            return None
        read = scores.read(transcript, deadline)
        partial = deadline.partial(read, len(transcript), "releases")
        scored = [scores.of(client) for client in clients]
        members = [by_owner.pop(client) for client, by_owner in zip(clients, scored, strict=True)]
        outsiders = [np.concatenate([np.empty(0), *others.values()]) for others in scored]
        result = compare_scores(members, outsiders, drawn=drawn)
        if result is None:
            return self.incomparable(drawn=drawn)
        finding = self._finding(result, scores.numbers, drawn, tuple(sorted(scores.kinds)), partial)
        return replace(finding, exposed=dict(zip(clients, result.exposed, strict=True)))

    def _finding(
        self,
        result: ScoreComparison,
        numbers: str,
        drawn: bool,
        kinds: tuple[str, ...],
        partial: str,
    ) -> Finding:
        detail: dict[str, Any] = {
            "members": result.members,
            "outsiders": result.outsiders,
            FOUND_AT: result.points,
        }
        if result.clients >= DRAWS:
            detail["members found at 1 % false positives"] = result.points["1 %"]
        elif drawn:
            detail["note"] = (
                f"{number_of(result.clients, 'draw')} of noise: a rate at 1 % needs {DRAWS}"
            )
        return self.finding(
            f"share of pairs of a used and an unused record told apart by {numbers}",
            **result.figures,
            releases=kinds,
            # However high, the stated epsilon may allow it: only an audit can reject a claim.
            severity="none" if result.low <= 0.5 else "some",
            detail=detail,
            # Pairs of a few clients share their draws: an interval needs many draws.
            limit="area" if not drawn or result.clients >= DRAWS else "",
            partial=partial,
        )


@dataclass(frozen=True)
class ScoreComparison:
    """ROC AUC, half its interval, its p-value, numbers compared (the fewest outsiders of a client), and TPR.

    ``points`` are the TPR by FPR, ``exposed`` the FPR at which each client's records are found.
    """

    roc_auc: float
    half: float
    p_value: float
    members: int
    outsiders: int
    points: dict[str, float]
    clients: int
    exposed: Sequence[np.ndarray]

    @property
    def low(self) -> float:
        """The interval's lower end."""
        return max(0.0, self.roc_auc - self.half)

    @property
    def high(self) -> float:
        """The interval's upper end."""
        return min(1.0, self.roc_auc + self.half)

    @property
    def figures(self) -> dict[str, Any]:
        """Arguments of a finding: the AUC with its baseline, interval and p-value."""
        ends = {"low": self.low, "high": self.high, "chance": self.p_value}
        return {"value": self.roc_auc, "of": 1.0, "baseline": 0.5, "measure": "area", **ends}


def compare_scores(
    members: Sequence[np.ndarray], outsiders: Sequence[np.ndarray], *, drawn: bool
) -> ScoreComparison | None:
    """Compare each client's members with outsiders, its own or (if `drawn`) at other clients; None without any.

    The AUC is over all pairs of records; for shared draws, the mean over all ordered pairs of clients, so that
    one large client's draw does not dominate.

    Args:
        members: scores of each client's own records.
        outsiders: scores of others' records at the same client.
        drawn: whether all scores at one client share a draw (of noise, or of its secret coins).
    """
    compared = list(other_groups(outsiders)) if drawn else list(outsiders)
    both = [index for index, pos in enumerate(members) if len(pos) and len(compared[index])]
    if not both:
        return None
    pairs = [(members[index], compared[index]) for index in both]
    weights = [len(pos) * len(neg) for pos, neg in pairs]
    aucs = np.array([auc(pos, neg) for pos, neg in pairs])
    roc_auc = float(np.average(aucs, weights=weights))
    n_members, n_outsiders = (sum(len(pos) for pos, _ in pairs), min(len(neg) for _, neg in pairs))
    by_outsiders = None
    if drawn and len(both) > 1:
        table = pairwise_aucs(*([side[index] for index in both] for side in (members, outsiders)))
        aucs, by_outsiders = np.nanmean(table, axis=1), np.nanmean(table, axis=0)
        roc_auc = float(aucs.mean())
    std, freedom = auc_std(roc_auc, n_members, n_outsiders), math.inf
    half = float(-ndtri((1 - CONFIDENCE) / 2)) * std
    if drawn:
        between, freedom = between_draws(aucs, by_outsiders), max(1, len(both) - 1)
        half = max(half, between)
        std = max(std, between / float(stdtrit(freedom, (1 + CONFIDENCE) / 2)))
    p_value = auc_p_value(roc_auc, n_members, n_outsiders, std, freedom)
    curves = [RocCurve.of(pos, neg) for pos, neg in pairs]
    points = mean_points(curves, [len(pos) for pos, _ in pairs])
    exposed = [exposure(pos, neg) for pos, neg in zip(members, compared, strict=True)]
    return ScoreComparison(
        roc_auc, half, p_value, n_members, n_outsiders, points, len(both), exposed
    )


def pairwise_aucs(members: Sequence[np.ndarray], outsiders: Sequence[np.ndarray]) -> np.ndarray:
    """AUC of each client's members against each other client's outsiders, NaN on the diagonal.

    Shape (clients, clients), ties counted half.
    """
    sizes, scores = [len(group) for group in members], np.concatenate(members)
    table = np.empty((len(sizes), len(sizes)))
    for column, neg in enumerate(map(np.sort, outsiders)):
        below = sum(np.searchsorted(neg, scores, side) for side in ("left", "right"))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        table[:, column] = np.bincount(owner, below) / (2 * len(neg) * np.array(sizes))
    np.fill_diagonal(table, np.nan)
    return table


def between_draws(
    areas: np.ndarray, by_outsiders: np.ndarray | None = None, weights: np.ndarray | None = None
) -> float:
    """Half the interval of a mean AUC, from the variance between clients.

    All scores at one client share one draw of its noise, so that only clients are independent; a single
    one gives no interval. Student's t of an unweighted mean is conservative if the variances differ, as those
    of clients of unequal sizes do (Ibragimov and Mueller 2010,
    "t-statistic based correlation and heterogeneity robust inference"). If members are compared with outsiders
    at other clients, each
    draw counts twice, once for its members and once for its outsiders: without client k the mean
    over all ordered pairs of n clients of an AUC A_kl changes by (A_k. + A_.k - 2 A..) / (n - 2),
    and the std is the jackknife's (Efron and Stein 1981, "The jackknife estimate of variance").

    Args:
        areas: AUC of each client's members against others' outsiders, shape (clients,).
        by_outsiders: AUC of others' members against each client's outsiders, shape (clients,); None if members
            are compared at their own client.
        weights: of the clients in the mean, without `by_outsiders`; uniform by default. The effective number
            of draws is 1 / sum of squared normalised weights (Kish 1965).
    """
    number = len(areas)
    if number < (2 if by_outsiders is None else 3):
        return 1.0
    quantile = float(stdtrit(number - 1, (1 + CONFIDENCE) / 2)) / math.sqrt(number)
    if weights is not None:
        normalised = weights / weights.sum()
        kept = float(normalised @ normalised)
        variance = float(normalised @ (areas - normalised @ areas) ** 2) * kept / (1 - kept)
        return min(1.0, float(stdtrit(1 / kept - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance))
    if by_outsiders is None:
        return quantile * float(np.std(areas, ddof=1))
    return quantile * float(np.std(areas + by_outsiders, ddof=1)) * (number - 1) / (number - 2)


def readable(entry: TranscriptEntry, exact: bool) -> dict[str, ReleasedPart]:
    """Parts that add up over records: exact ones, or those with noise of a known distribution."""
    query = question_of(entry)
    if query is None or not query.linear:
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
            would be infinite, count grid units, and reading stops when every record has a nonzero score.
        unnamed, only: parts, by kind and name, that are left out, or the `only` ones that are read.

    Attributes:
        kinds: of the releases that were read.
        drawn: parts without declared noise that differ from the exact answer, so that the mechanism drew
            undeclared noise.
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
        self._whole = {o: View(t, known_schema(schema, t)) for o, t in truth.items()}
        self._totals: dict[str, dict[str, np.ndarray]] = {}

    @property
    def numbers(self) -> str:
        """Name of the numbers that are read."""
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
            self._add_query([entry for entry in entries if entry.client in self.truth])
            read += len(entries)
        return read

    def _add_query(self, entries: Sequence[TranscriptEntry]) -> None:
        answered = [(e, parts) for e in entries if (parts := self._parts(e)) and self._open(e)]
        query = question_of(answered[0][0]) if answered else None
        if query is None:
            return
        self.kinds.add(answered[0][0].kind)
        noise = []
        for entry, parts in answered:
            exact = query.evaluate(self._whole[entry.client])
            noise.append({n: p.units - exact[n] for n, p in parts.items() if n in exact})
            if self._exact and not self._only:
                off = (n for n, drawn in noise[-1].items() if drawn[parts[n].visible].any())
                self.drawn |= {(entry.kind, name) for name in off}
        for owner, views in self._views.items():
            for rows, view in views:
                added = query.contribution(view)
                for (entry, parts), drawn in zip(answered, noise, strict=True):
                    score = self.of(entry.client)[owner]
                    for name in drawn:
                        contribution = np.asarray(added[name])
                        member = owner == entry.client
                        score[rows] += _ratio(parts[name], drawn[name], contribution, member)

    def _parts(self, entry: TranscriptEntry) -> dict[str, ReleasedPart]:
        """The parts to read; none if query, schema and answer do not fit."""
        parts = self.chosen(entry)
        if not parts:
            return {}
        sound = sound_parts(entry)
        declared = declared_parts(question_of(entry), self._whole[entry.client].schema)
        return {
            name: part
            for name, part in parts.items()
            if name in sound and name in declared and declared[name].shape == part.units.shape
        }

    def _open(self, entry: TranscriptEntry) -> bool:
        return not (self._exact and all(map(np.all, self.of(entry.client).values())))


def _views(table: Table, schema: PublicSchema | None) -> Iterator[tuple[slice, View]]:
    """Views in blocks, so that memory does not grow with the records."""
    view: Any = View(table, known_schema(schema, table))
    for first in range(0, len(table.x), ROWS):
        rows = np.arange(first, min(first + ROWS, len(table.x)))
        block = view.table if len(rows) == len(table.x) else view.table.take(rows)
        yield slice(first, first + len(rows)), View(block, view.schema)


def _ratio(part: ReleasedPart, noise: np.ndarray, added: np.ndarray, member: bool) -> np.ndarray:
    """ln f(noise with) - ln f(noise without), summed over the visible cells, f of one cell."""
    law = DiscreteLaplace(1.0) if part.noise is None else part.noise  # exact: in grid units
    present = noise[None] - (0.0 if member else added)
    absent = noise[None] + (added if member else 0.0)
    change = law.log_ratio(present, absent)
    if part.mask is not None:
        change = np.where(part.mask, 0.0, change)
    return np.asarray(change.reshape(len(added), -1).sum(axis=1))


def other_groups(groups: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield for each group all others concatenated."""
    for index in range(len(groups)):
        yield np.concatenate([np.empty(0), *groups[:index], *groups[index + 1 :]])


def auc(members: np.ndarray, outsiders: np.ndarray) -> float:
    """Probability that a member scores above an outsider, ties counted half."""
    if not len(members) or not len(outsiders):
        return 0.5
    if np.isnan(members).any() or np.isnan(outsiders).any():
        return math.nan
    ordered = np.sort(outsiders)
    twice = sum(ordered.searchsorted(members, side).sum() for side in ("left", "right"))
    return float(twice / 2 / (len(members) * len(outsiders)))


def auc_std(roc_auc: float, members: int, outsiders: int) -> float:
    """Standard deviation of an area under the curve (Hanley and McNeil 1982)."""
    if not members or not outsiders:
        return 0.5
    q1, q2 = roc_auc / (2 - roc_auc), 2 * roc_auc**2 / (1 + roc_auc)
    variance = roc_auc * (1 - roc_auc) + (members - 1) * (q1 - roc_auc**2)
    variance += (outsiders - 1) * (q2 - roc_auc**2)
    return float(np.sqrt(max(variance, 0.0) / (members * outsiders)))
