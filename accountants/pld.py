"""Tight guarantees: privacy loss distributions of everything that a policy allowed in advance.

Hockey-stick curves of dominating pairs are discretized into privacy loss distributions by
connecting the dots (Doroshenko et al. 2022, Algorithm 1) and composed by convolution. A composed
distribution is not a filter: it holds for pairs fixed before the first answer, not for the laws of
the charges, which depend on queries that a server may have chosen from earlier answers.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from privfed.accountants import rdp
from privfed.errors import UnsupportedLoss
from privfed.privacy.loss import Loss
from privfed.privacy.pairs import DominatingPair, GaussianPair, ResponsePair

BUCKET = 0.01  #: Relative width of buckets of noise, rounded up
MOST_POINTS = 2**21  #: Maximum points of one pair's grid, to bound the memory


def pairs(losses: Iterable[Loss]) -> Counter[DominatingPair]:
    """Return the dominating pairs of some releases, with their multiplicities.

    A loss without a law counts by its epsilon (randomized response dominates every pure loss).
    UnsupportedLoss: a loss has neither a law nor a pure epsilon, or no finite guarantee.
    """
    counts: Counter[DominatingPair] = Counter()
    for loss, times in Counter(losses).items():  # Counter(Counter) keeps the counts
        if not loss.finite or loss.delta:
            raise UnsupportedLoss("a release without a pure or concentrated guarantee has no curve")
        for charged in loss.laws:
            for pair, number in charged.law.pairs(charged.units).items():
                counts[pair] += times * number
        if not loss.laws and not loss.nothing:
            if loss.epsilon is None:
                raise UnsupportedLoss("a zCDP loss without the law of its noise has no curve")
            counts[ResponsePair(float(loss.epsilon))] += times
    return counts


def bucketed(counts: Counter[DominatingPair]) -> Counter[DominatingPair]:
    """Group pairs into few buckets, rounding up to the largest; Gaussian shifts add in squares."""
    buckets: Counter[DominatingPair] = Counter()
    squares = sum(n * pair.size**2 for pair, n in counts.items() if isinstance(pair, GaussianPair))
    if squares:
        buckets[GaussianPair(math.sqrt(squares))] += 1
    for pair, times in counts.items():
        if not isinstance(pair, GaussianPair):
            rounds = math.ceil(math.log(pair.size) / math.log1p(BUCKET) - 1e-9)
            size = max(pair.size, math.exp(rounds * math.log1p(BUCKET)))
            buckets[replace(pair, size=size)] += times
    return buckets


def distribution(
    counts: Counter[DominatingPair], interval: float | None = None
) -> PrivacyLossDistribution:
    """Compose one or more dominating pairs into a privacy loss distribution.

    ``interval`` is the width of the grid of losses, by default a thirtieth of the typical loss. UnsupportedLoss: a loss
    is too large for it.
    """
    width = interval or _interval(counts)
    queue: list[tuple[int, int, PrivacyLossDistribution]] = []
    for number, (pair, times) in enumerate(counts.items()):
        part = _discretised(pair, width)
        part = part if times == 1 else part.self_compose(times)
        heapq.heappush(queue, (_support(part), number, part))
    while len(queue) > 1:
        _, _, first = heapq.heappop(queue)
        _, number, second = heapq.heappop(queue)
        both = first.compose(second)
        heapq.heappush(queue, (_support(both), number, both))
    return queue[0][2]


def _interval(counts: Counter[DominatingPair]) -> float:
    squares = sum(times * min(pair.reach, pair.size) ** 2 for pair, times in counts.items())
    typical = math.sqrt(squares / counts.total())
    return min(max(typical / 30, 1e-6), 1e-3)


def _discretised(pair: DominatingPair, width: float) -> PrivacyLossDistribution:
    top = math.ceil(pair.reach / width)
    if 2 * top > MOST_POINTS:
        raise UnsupportedLoss("a release of so large a loss has no curve that fits into memory")
    grid = np.arange(-top, top + 1)
    deltas = np.minimum.accumulate(pair.curve(grid * width))
    return PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(width, grid, deltas))


def _support(distribution: PrivacyLossDistribution) -> int:
    return int(distribution._pmf_remove.size)


class Recorded(Protocol):
    """The fields of a ledger's row that are used here."""

    @property
    def event(self) -> str:
        """The row's event: ``reserved`` or ``block`` for charges."""

    @property
    def body(self) -> Mapping[str, Any]:
        """Its public facts, including ``loss`` and ``schedule``."""


@dataclass(frozen=True)
class ComposedGuarantee:
    """An (epsilon, delta) guarantee of all releases of one data owner."""

    epsilon: float  #: rounded up
    delta: float  #: as requested
    method: str  #: ``pld``, ``rdp`` or the accountant's own ``filter``
    label: str  #: what it covers, in words


PLANNED = (
    "valid for any queries and any stopping time: it counts everything that the policy allowed, at the highest "
    "cost, and no other policy has been in force since before the first charge"
)
ADAPTIVE = "valid for adaptively chosen amounts"


@dataclass(frozen=True)
class KindAllowance:
    """The number of answers that a policy allows for one kind of query, and their maximum loss."""

    kind: str  #: the kind of query
    times: int  #: maximum number of answers
    losses: tuple[Loss, ...]  #: by guard: the loss that dominates each of its releases

    def covers(self, loss: Loss) -> bool:
        """Whether an answer's loss is within the allowed one, law by law.

        A law covers only noise of the same name; a pure loss without a law dominates every pure law.
        """
        if loss.delta > sum(allowed.delta for allowed in self.losses):
            return False  # no pure loss dominates one with a delta
        names = {charged.law.name for allowed in self.losses for charged in allowed.laws}
        pure = any(not allowed.laws for allowed in self.losses)
        for charged in loss.laws if names else ():
            if charged.law.name not in names and not (pure and charged.law.measure == "epsilon"):
                return False
        if not all(_complete(allowed) for allowed in self.losses if allowed.laws):
            return False
        for name in ("epsilon", "rho"):
            bounds = [getattr(allowed, name) for allowed in self.losses]
            if None not in bounds:
                value = getattr(loss, name)
                return value is not None and value <= sum(bounds, Fraction(0))
        return False


def _complete(loss: Loss) -> bool:
    """Whether the laws of a loss account for its stated epsilon or rho."""
    return sum(c.law.loses(c.units) for c in loss.laws) >= (loss.epsilon or loss.rho or 0)


@lru_cache(maxsize=256)  # owners of one policy, and a sweep's seeds, have equal arguments
def retrospective(
    allowed: tuple[KindAllowance, ...], delta: float, enforced: float
) -> ComposedGuarantee:
    """Return the smallest epsilon at a delta that holds for everything that a policy allowed.

    However a server chooses its queries, every answer of a kind is a randomized function of one
    draw from that kind's dominating pair. So the whole exchange, stopped at any time, is a function
    of all draws, which are independent. This holds because the policy was fixed before the first
    answer. ``enforced`` is the enforcing accountant's epsilon.
    """
    best = ComposedGuarantee(enforced, delta, "filter", ADAPTIVE)
    if delta <= 0 or not allowed:
        return best
    losses = _in_all(allowed)
    for method, epsilon in (("pld", epsilon_at), ("rdp", rdp.epsilon_at)):
        try:
            value = epsilon(losses, delta)
        except UnsupportedLoss:
            continue
        if value < best.epsilon:
            best = ComposedGuarantee(value, delta, method, PLANNED)
    return best


def _in_all(allowed: Sequence[KindAllowance]) -> Counter[Loss]:
    losses: Counter[Loss] = Counter()
    for kind in allowed:
        losses.update({loss: kind.times * kind.losses.count(loss) for loss in kind.losses})
    return losses


def distribution_of(allowed: Sequence[KindAllowance]) -> PrivacyLossDistribution:
    """Return the composed distribution of all allowed answers; see :func:`pairs`."""
    return distribution(bucketed(pairs(_in_all(allowed))))


def rdp_epsilons(allowed: Sequence[KindAllowance]) -> list[tuple[float, float]]:
    """Return (epsilon, delta) pairs from the Renyi curve of all allowed answers."""
    losses = _in_all(allowed)
    return [(rdp.epsilon_at(losses, 10.0**-power), 10.0**-power) for power in range(1, 13)]


def of_entries(
    entries: Iterable[Recorded],
    allowed: Sequence[KindAllowance] | None,
    delta: float,
    enforced: float,
) -> ComposedGuarantee:
    """Return the smallest epsilon that holds for a ledger; ``enforced`` is its accountant's epsilon.

    ``allowed`` is None if the policy in force does not bound number or loss of answers.
    """
    covered = tuple(allowed) if allowed is not None and _covered(list(entries), allowed) else ()
    return retrospective(covered, delta, enforced)


def _covered(rows: Sequence[Recorded], allowed: Sequence[KindAllowance]) -> bool:
    """Whether one policy was in force before the first charge, and all charges are within it."""
    kinds = {kind.kind: kind for kind in allowed}
    policies, times = 0, Counter[str]()
    for row in rows:
        if row.event == "policy":
            policies += 1
            if times:
                return False
        elif row.event in ("reserved", "block"):
            kind = kinds.get(row.body["kind"])
            if kind is None or not kind.covers(Loss.from_dict(row.body["loss"])):
                return False
            times[kind.kind] += row.body.get("count", 1)
    return policies == 1 and all(kind.times >= times[kind.kind] for kind in allowed)


def epsilon_at(losses: Iterable[Loss], delta: float) -> float:
    """Return the smallest epsilon at a delta, by the composed distribution; 0 for no releases.

    It is at most the sum of pure epsilons, which a few releases on a grid could exceed.
    """
    counted = Counter(losses)
    buckets = bucketed(pairs(counted))
    if not buckets:
        return 0.0
    composed = float(distribution(buckets).get_epsilon_for_delta(delta))
    stated = [loss.epsilon * times for loss, times in counted.items() if loss.epsilon is not None]
    return min(composed, float(sum(stated))) if len(stated) == len(counted) else composed
