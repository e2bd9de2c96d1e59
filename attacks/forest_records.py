"""Records pieced together from the nodes of many trees.

A sketch of a node with few records gives each feature's values, sorted by themselves. But a record
is in the same nodes with all its values: two values belong to one record if they lie in the same
nodes, as far as both features were sketched there.
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
from privfed.attacks.sketches import NEAR, SKETCHES, counts_of, in_turn, pairs_of
from privfed.exchange.transcript import Transcript

COMMON = 0.5  #: A claim that whoever saw no release makes this likely is about nobody
TINY = 1e-300  #: Least probability of a guess
RARE = 0.01  #: How rarely guesses may do as well for records to count as pieced together


@dataclass(frozen=True, eq=False)
class ReleasedNode:
    """A node of which all values of some features are known, in any order."""

    values: Mapping[int, np.ndarray]


@dataclass(frozen=True, eq=False)
class _Column:
    """A feature's distinct values, ascending; nodes by value, of 0 and 1; and which nodes told it."""

    values: np.ndarray
    inside: csr_array
    told: np.ndarray


def pieced(nodes: Sequence[ReleasedNode], features: Sequence[int]) -> np.ndarray:
    """Join values that share their nodes.

    The first feature is the anchor. Two values are joined if they were told in the same nodes, one
    at least, and no other value of either feature was told in exactly those.

    Returns:
        a row for each claimed record, of two values at least, NaN for features without a match;
        shape (records, features).
    """
    columns = [_column(nodes, feature) for feature in features]
    if not columns or not len(columns[0].values):
        return np.empty((0, len(features)))
    rows = np.full((len(columns[0].values), len(features)), np.nan)
    rows[:, 0] = columns[0].values
    for place, other in enumerate(columns[1:], start=1):
        first, second = _matches(columns[0], other)
        rows[first, place] = other.values[second]
    return np.asarray(rows[(~np.isnan(rows)).sum(axis=1) > 1])


def _column(nodes: Sequence[ReleasedNode], feature: int) -> _Column:
    each = [np.unique(node.values.get(feature, np.empty(0))) for node in nodes]
    sizes = np.array([len(values) for values in each], dtype=int)
    values, places = np.unique(np.concatenate([np.empty(0), *each]), return_inverse=True)
    cells = (np.ones(len(places)), (places, np.repeat(np.arange(len(nodes)), sizes)))
    inside = csr_array(cells, shape=(len(values), len(nodes)))
    return _Column(values, inside, np.array([feature in node.values for node in nodes], bool))


def _matches(one: _Column, other: _Column) -> tuple[np.ndarray, np.ndarray]:
    """Indices of values that were told in exactly the same nodes, and alone so."""
    both = np.flatnonzero(one.told & other.told)
    left, right = one.inside[:, both], other.inside[:, both]
    shared = (left @ right.T).toarray()
    same = (shared > 0) & (shared == np.asarray(left.sum(axis=1))[:, None])
    same &= shared == np.asarray(right.sum(axis=1))[None, :]
    alone = same & (same.sum(axis=0) == 1) & (same.sum(axis=1) == 1)[:, None]
    first, second = np.nonzero(alone)
    return np.asarray(first), np.asarray(second)


def released_nodes(transcript: Transcript, deadline: Deadline) -> list[ReleasedNode]:
    """The nodes of one client all of whose values were told, one sketch at a time."""
    found: list[ReleasedNode] = []
    for sketch, bins in in_turn(transcript):
        if deadline.over:
            break
        if bins is None or sketch.query["interpolate"]:
            continue
        features, knots, shown = pairs_of(sketch)
        if knots.dtype.kind != "f" or not np.isfinite(knots[shown]).all():
            continue
        counts = counts_of(bins)
        sizes = np.asarray(sketch.query["level"]["numeric"]["sizes"])
        whole = shown.all(axis=1) & (counts > 0) & (counts <= knots.shape[1])
        for pairs in np.split(np.arange(len(features)), np.cumsum(sizes)[:-1]):
            own = {int(features[pair]): knots[pair] for pair in pairs if whole[pair]}
            if len(own) > 1:
                found.append(ReleasedNode(own))
    return found


class PiecedRecords(Attack):
    """Pieces records together from a forest's sketches of small nodes.

    A claim is right where two of its values at least are joined and all that are belong to one raw record. Whoever
    saw no release may join them as well: by how common each is, or because people alike have them together. A
    record counts where that is less likely than not, and all right claims together are held to such guesses.
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
        for place in deadline.range(len(clients)):
            with formed(self.name, schema is not None or truth):
                nodes = released_nodes(transcript.of(client=clients[place]), deadline)
                claims[clients[place]] = _claims(nodes)
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
        right = np.concatenate([each.right for each in scored])
        guess = np.concatenate([each.guess for each in scored])
        chance = chance_of(right, guess)
        return [
            self.finding(
                "records pieced together from small nodes",
                sum(each.found for each in scored),
                of=sum(len(truth[client].x) for client in known),
                baseline=float(guess[guess < COMMON].sum()),
                releases=(SKETCHES,),
                severity=Severity.BREACH if chance <= RARE else Severity.NONE,
                detail={
                    "claimed": claimed,
                    "values of a claim": values / max(claimed, 1),
                    "so many right by guessing, with probability at most": chance,
                },
                partial=partial,
            )
        ]


def _claims(nodes: list[ReleasedNode]) -> np.ndarray:
    """Rows over all told features, by number; the anchor is the one of most values."""
    features = sorted({feature for node in nodes for feature in node.values})
    if len(features) < 2:
        return np.empty((0, 0))
    different = {
        feature: len(np.unique(np.concatenate([n.values.get(feature, []) for n in nodes])))
        for feature in features
    }
    order = sorted(features, key=lambda feature: -different[feature])
    told = pieced(nodes, order)
    rows = np.full((len(told), max(features) + 1), np.nan)
    rows[:, order] = told
    return rows


@dataclass(frozen=True, eq=False)
class Scored:
    """Which of a client's claims are right, how likely a guess of each is, and how many records are found."""

    right: np.ndarray
    guess: np.ndarray
    found: int

    @classmethod
    def of(cls, claims: np.ndarray, records: np.ndarray, others: Sequence[np.ndarray]) -> Self:
        """Compare claims, NaN where they say nothing, with raw records; `others` are other people's.

        Of each claim only those records are compared that fit its rarest value.
        """
        if not claims.size or not len(records):
            return cls(np.zeros(0, bool), np.zeros(0), 0)
        single = _single(records, claims)
        reach = NEAR * np.maximum(np.ptp(single, axis=0), 1e-12)
        order = np.argsort(single, axis=0)
        first, last = np.empty(claims.shape, int), np.empty(claims.shape, int)
        for place, (rows, values) in enumerate(zip(order.T, claims.T, strict=True)):
            ranked, wide = single[rows, place], reach[place] * (1 + 1e-6)
            first[:, place] = np.searchsorted(ranked, values - wide, side="left")
            last[:, place] = np.searchsorted(ranked, values + wide, side="right")
        named = ~np.isnan(claims)
        often = np.where(named, last - first, len(records))
        rarest = np.where(named, often, len(records) + 1).argmin(axis=1)
        people = np.concatenate([_single(rows, claims) for rows in (records[:0], *others)])
        guess = _guess(claims, often / len(records), rarest, people, reach) * len(records)
        guess, told = np.clip(guess, TINY, 1.0), named.sum(axis=1) > 1
        right, found = np.zeros(len(claims), bool), np.zeros(len(records), bool)
        for row in np.flatnonzero(told):
            place, own = rarest[row], named[row]
            near = order[first[row, place] : last[row, place], place]
            fits = np.abs(single[np.ix_(near, own)] - claims[row, own]) <= reach[own]
            right[row] = fits.all(axis=1).any()
            found[near[fits.all(axis=1)]] |= guess[row] < COMMON
        return cls(right[told], guess[told], int(found.sum()))


def _single(records: np.ndarray, claims: np.ndarray) -> np.ndarray:
    """The columns that claims are about, as 32-bit floats."""
    return np.asarray(records[:, : claims.shape[1]].astype(np.float32).astype(float))


def _guess(
    claims: np.ndarray,
    share: np.ndarray,
    rarest: np.ndarray,
    people: np.ndarray,
    reach: np.ndarray,
) -> np.ndarray:
    """Probability that a record has all of a claim's values, for whoever knows how common each is, or other people.

    ``share`` is that of each value among the records. Other people are those most alike in the claim's rarest value.
    """
    guess = share.prod(axis=1)
    for place in np.unique(rarest) if len(people) else []:
        rows = np.flatnonzero(rarest == place)
        count = [*range(1, min(NEIGHBOURS, len(people)) + 1)]
        _, near = cKDTree(people[:, [place]]).query(claims[rows][:, [place]], k=count)
        alike = np.ones(near.shape, bool)
        for other in np.delete(np.arange(claims.shape[1]), place):
            value = claims[rows, other][:, None]
            alike &= (np.abs(people[near, other] - value) <= reach[other]) | np.isnan(value)
        guess[rows] = np.maximum(guess[rows], share[rows, place] * alike.mean(axis=1))
    return np.asarray(guess)


def chance_of(right: np.ndarray, guess: np.ndarray) -> float:
    """Probability that guesses are right of so many claims, or of rarer ones, at most.

    A right claim weighs -ln of how likely its guess is. The sum's tail is bounded by its exponential moments
    (Chernoff 1952), as if claims were independent, and by the probability that any guess is right.
    """
    if not right.any():
        return 1.0
    weight = -np.log(guess[right]).sum()
    exponents = np.linspace(0, 1, 101)
    bounds = [np.log1p(guess ** (1 - each) - guess).sum() - each * weight for each in exponents]
    return min(float(np.exp(min(bounds))), float(guess.sum()))
