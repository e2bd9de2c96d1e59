"""Records pieced together from the nodes of many trees.

A sketch of a node with few records gives each feature's values, each sorted on its own. But all values
of a record are in the same nodes: two values belong to one record if they lie in the same nodes, among
those where both features were sketched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from privfed.attacks.base import Attack, PublicSchema, Truth
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk, Severity
from privfed.attacks.population import NEIGHBOURS
from privfed.attacks.reading import formed, well_formed
from privfed.attacks.sketches import NEAR, SKETCHES, counts_of, pairs_of, with_bins
from privfed.exchange.transcript import Transcript

COMMON = 0.5  #: Probability of a guess without releases from which a claim does not count
TINY = 1e-300  #: Least probability of a guess
RARE = 0.01  #: Most probable that guesses do as well, for a breach


@dataclass(frozen=True, eq=False)
class ReleasedNode:
    """A node with all values known of some features, in any order."""

    values: Mapping[int, np.ndarray]


@dataclass(frozen=True, eq=False)
class _Column:
    """A feature's distinct values, ascending; nodes by value, of 0 and 1; and the nodes that sketch it."""

    values: np.ndarray
    inside: csr_array
    sketched: np.ndarray


def pieced(nodes: Sequence[ReleasedNode], features: Sequence[int]) -> np.ndarray:
    """Join values that share their nodes.

    The first feature is the anchor. Two values are joined if they were sketched in the same nodes, at
    least one, and no other value of either feature in exactly those.

    Returns:
        a row for each claimed record, of two values at least, NaN for features without a match;
        shape (records, features).
    """
    columns = [_column(nodes, feature) for feature in features]
    if not columns or not len(columns[0].values):
        return np.empty((0, len(features)))
    rows = np.full((len(columns[0].values), len(features)), np.nan)
    rows[:, 0] = columns[0].values
    for index, other in enumerate(columns[1:], start=1):
        first, second = _matches(columns[0], other)
        rows[first, index] = other.values[second]
    return np.asarray(rows[(~np.isnan(rows)).sum(axis=1) > 1])


def _column(nodes: Sequence[ReleasedNode], feature: int) -> _Column:
    by_node = [np.unique(node.values.get(feature, np.empty(0))) for node in nodes]
    sizes = np.array([len(values) for values in by_node], dtype=int)
    values, index = np.unique(np.concatenate([np.empty(0), *by_node]), return_inverse=True)
    cells = (np.ones(len(index)), (index, np.repeat(np.arange(len(nodes)), sizes)))
    inside = csr_array(cells, shape=(len(values), len(nodes)))
    return _Column(values, inside, np.array([feature in node.values for node in nodes], bool))


def _matches(anchor: _Column, other: _Column) -> tuple[np.ndarray, np.ndarray]:
    """Indices of values that were sketched in exactly the same nodes, and no others in these."""
    both = np.flatnonzero(anchor.sketched & other.sketched)
    left, right = anchor.inside[:, both], other.inside[:, both]
    shared = (left @ right.T).toarray()
    same = (shared > 0) & (shared == np.asarray(left.sum(axis=1))[:, None])
    same &= shared == np.asarray(right.sum(axis=1))[None, :]
    alone = same & (same.sum(axis=0) == 1) & (same.sum(axis=1) == 1)[:, None]
    first, second = np.nonzero(alone)
    return np.asarray(first), np.asarray(second)


def released_nodes(transcript: Transcript, deadline: Deadline) -> list[ReleasedNode]:
    """The nodes of one client whose sketches hold all values, one sketch at a time."""
    nodes: list[ReleasedNode] = []
    for sketch, bins in with_bins(transcript):
        if deadline.over:
            break
        if bins is None or sketch.query["interpolate"]:
            continue
        features, knots, shown = pairs_of(sketch)
        if knots.dtype.kind != "f" or not np.isfinite(knots[shown]).all():
            continue
        counts = counts_of(bins)
        sizes = np.asarray(sketch.query["level"]["numeric"]["sizes"])
        complete = shown.all(axis=1) & (counts > 0) & (counts <= knots.shape[1])
        for pairs in np.split(np.arange(len(features)), np.cumsum(sizes)[:-1]):
            values = {int(features[pair]): knots[pair] for pair in pairs if complete[pair]}
            if len(values) > 1:
                nodes.append(ReleasedNode(values))
    return nodes


class PiecedRecords(Attack):
    """Pieces records together from a forest's sketches of small nodes.

    A claim is correct if it joins at least two values, all of one raw record. A guess without releases may join them
    too, by the frequency of each, or by similar people who have them together. A record counts if that guess is
    less likely than not, and all correct claims together are tested against such guesses.
    """

    name: ClassVar[str] = "pieced_records"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "whole records can be pieced together"
    question: ClassVar[str] = (
        "Which whole records can be assembled from the sketches of many trees?"
    )
    kinds: ClassVar[tuple[str, ...]] = (SKETCHES,)

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: records pieced together; without the truth how many are claimed."""
        transcript = well_formed(transcript, schema, truth)
        deadline, read, clients = self.deadline(), 0, transcript.clients
        claims = {}
        for client in deadline.each(clients):
            with formed(self.name, schema is not None or truth):
                nodes = released_nodes(transcript.of(client=client), deadline)
                claims[client] = _claims(nodes)
            read += not deadline.over
        partial = deadline.partial(read, len(clients), "clients")
        claimed = sum(map(len, claims.values()))
        if not claimed or not any(client in (truth or claims) for client in claims):
            return []
        if truth is None:
            return [
                self.finding(
                    "records claimed from small nodes",
                    claimed,
                    releases=(SKETCHES,),
                    severity="some",
                    simulation=False,
                    partial=partial,
                )
            ]
        known = {client: rows for client, rows in claims.items() if client in truth}
        scored = [
            Scored.of(rows, truth[client].x, [truth[o].x for o in truth if o != client])
            for client, rows in known.items()
        ]
        values = sum(int((~np.isnan(rows)).sum()) for rows in known.values())
        right = np.concatenate([result.right for result in scored])
        guess = np.concatenate([result.guess for result in scored])
        probability = chernoff_bound(right, guess)
        return [
            self.finding(
                "records pieced together from small nodes",
                sum(result.recovered for result in scored),
                of=sum(len(truth[client].x) for client in known),
                baseline=float(guess[guess < COMMON].sum()),
                releases=(SKETCHES,),
                severity=Severity.BREACH if probability <= RARE else Severity.NONE,
                detail={
                    "claimed": claimed,
                    "values of a claim": values / max(claimed, 1),
                    "so many right by guessing, with probability at most": probability,
                },
                partial=partial,
            )
        ]


def _claims(nodes: list[ReleasedNode]) -> np.ndarray:
    """Rows over all sketched features, by index; the anchor is the one with most values."""
    features = sorted({feature for node in nodes for feature in node.values})
    if len(features) < 2:
        return np.empty((0, 0))
    different = {
        feature: len(np.unique(np.concatenate([n.values.get(feature, []) for n in nodes])))
        for feature in features
    }
    order = sorted(features, key=lambda feature: -different[feature])
    claims = pieced(nodes, order)
    rows = np.full((len(claims), max(features) + 1), np.nan)
    rows[:, order] = claims
    return rows


@dataclass(frozen=True, eq=False)
class Scored:
    """Which of a client's claims are correct, the probability of guessing each, and the number of records found."""

    right: np.ndarray
    guess: np.ndarray
    recovered: int

    @classmethod
    def of(cls, claims: np.ndarray, records: np.ndarray, others: Sequence[np.ndarray]) -> Self:
        """Compare claims, NaN if missing, with raw records; `others` are other people's.

        Each claim is compared with the records that match its rarest value.
        """
        if not claims.size or not len(records):
            return cls(np.zeros(0, bool), np.zeros(0), 0)
        single = _claimed_columns(records, claims)
        reach = NEAR * np.maximum(np.ptp(single, axis=0), 1e-12)
        order = np.argsort(single, axis=0)
        first, last = np.empty(claims.shape, int), np.empty(claims.shape, int)
        for column, (rows, values) in enumerate(zip(order.T, claims.T, strict=True)):
            ranked, wide = single[rows, column], reach[column] * (1 + 1e-6)
            first[:, column] = np.searchsorted(ranked, values - wide, side="left")
            last[:, column] = np.searchsorted(ranked, values + wide, side="right")
        named = ~np.isnan(claims)
        n_near = np.where(named, last - first, len(records))
        rarest = np.where(named, n_near, len(records) + 1).argmin(axis=1)
        people = np.concatenate([_claimed_columns(rows, claims) for rows in (records[:0], *others)])
        guess = _guess(claims, n_near / len(records), rarest, people, reach) * len(records)
        guess, claimed = np.clip(guess, TINY, 1.0), named.sum(axis=1) > 1
        right, recovered = np.zeros(len(claims), bool), np.zeros(len(records), bool)
        for row in np.flatnonzero(claimed):
            column, known = rarest[row], named[row]
            near = order[first[row, column] : last[row, column], column]
            fits = np.abs(single[np.ix_(near, known)] - claims[row, known]) <= reach[known]
            right[row] = fits.all(axis=1).any()
            recovered[near[fits.all(axis=1)]] |= guess[row] < COMMON
        return cls(right[claimed], guess[claimed], int(recovered.sum()))


def _claimed_columns(records: np.ndarray, claims: np.ndarray) -> np.ndarray:
    """The columns that claims are about, as 32-bit floats."""
    return np.asarray(records[:, : claims.shape[1]].astype(np.float32).astype(float))


def _guess(
    claims: np.ndarray,
    frequency: np.ndarray,
    rarest: np.ndarray,
    people: np.ndarray,
    reach: np.ndarray,
) -> np.ndarray:
    """Probability that a record has all of a claim's values, by the frequency of each, or by other people.

    ``frequency`` is of each value among the records. Other people are the nearest in the claim's rarest value.
    """
    guess = frequency.prod(axis=1)
    for column in np.unique(rarest) if len(people) else []:
        rows = np.flatnonzero(rarest == column)
        count = [*range(1, min(NEIGHBOURS, len(people)) + 1)]
        _, near = cKDTree(people[:, [column]]).query(claims[rows][:, [column]], k=count)
        alike = np.ones(near.shape, bool)
        for other in np.delete(np.arange(claims.shape[1]), column):
            value = claims[rows, other][:, None]
            alike &= (np.abs(people[near, other] - value) <= reach[other]) | np.isnan(value)
        guess[rows] = np.maximum(guess[rows], frequency[rows, column] * alike.mean(axis=1))
    return np.asarray(guess)


def chernoff_bound(right: np.ndarray, guess: np.ndarray) -> float:
    """Upper bound on the probability that guesses are correct on as many claims, or on rarer ones.

    A correct claim weighs minus the log probability of its guess. The sum's tail is bounded by its exponential moments
    (Chernoff 1952), as if claims were independent, and by the probability that any guess is correct.
    """
    if not right.any():
        return 1.0
    weight = -np.log(guess[right]).sum()
    exponents = np.linspace(0, 1, 101)
    bounds = [np.log1p(guess ** (1 - t) - guess).sum() - t * weight for t in exponents]
    return min(float(np.exp(min(bounds))), float(guess.sum()))
