"""How surprising matches are, in nats: a score that re-drawn tables then put into its place."""

from __future__ import annotations

import numpy as np

DULL = 3.0  #: Scores below this are not worth a closer look
NEIGHBOURS = 16  #: How many raw values on each side tell how dense they lie
ONE_SIDE, UNEVEN = 8, 4.0  #: From how many on, and how many times denser, one side's tell alone


def densities(ordered: np.ndarray, places: np.ndarray, deviations: float = 2.0) -> np.ndarray:
    """How many raw values lie in a unit of length near some of them.

    The count of neighbours is raised by some of its standard deviations, so that a gap that chance
    made does not pass for a rare value; and where those on one side alone lie much denser, as at the
    end of a column beside which another begins far away, they tell.

    Args:
        ordered: different raw values, ascending.
        places: positions in it.
        deviations: by how many.
    """
    first = np.maximum(places - NEIGHBOURS, 0)
    last = np.minimum(places + NEIGHBOURS, len(ordered) - 1)
    here, below, above = ordered[places], ordered[first], ordered[last]
    near = np.abs(here)
    spread = above - below
    dense = _raised(last - first + 1.0, deviations)
    dense /= np.where(spread > 0, spread, np.where(near > 0, near, 1.0))
    for count, width in ((places - first, here - below), (last - places, above - here)):
        told = (count >= ONE_SIDE) & (width > 0)
        side = _raised(count, deviations) / np.where(told, width, np.inf)
        dense = np.where(side > UNEVEN * dense, side, dense)
    return dense


def _raised(counts: np.ndarray, deviations: float) -> np.ndarray:
    return np.asarray(counts + deviations * np.sqrt(counts))


def surprises(groups: np.ndarray, chances: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """How surprising each group's matches are, as improbable as these and as many.

    Of the j most improbable matches of a group, the least improbable has probability p; that j of n
    trials match with probability p or less is bounded by Chernoff's exp(-n KL(j / n, p)). The
    greatest -log over the j that are powers of two or the last, less the log of how many were tried.

    Args:
        groups: the group of each match, integers below the length of ``trials``.
        chances: of each match, at most 1.
        trials: for each group, how many numbers might have matched.

    Returns:
        nats, one a group; 0 where nothing matched.
    """
    best = np.zeros(len(trials))
    if not len(groups):
        return best
    order = np.lexsort((chances, groups)) if len(trials) > 1 else np.argsort(chances)
    group, chance = groups[order], chances[order]
    starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    sizes = np.diff(starts, append=len(group))[:, None]
    powers = 1 << np.arange(int(sizes.max()).bit_length())
    ranks = np.concatenate([np.minimum(powers, sizes), sizes], axis=1)
    tried = np.concatenate([powers < sizes, sizes > 0], axis=1)
    likely = np.maximum(chance[starts[:, None] + ranks - 1], 1e-300)
    found = group[starts]
    nats = chernoff(ranks, np.maximum(trials[found][:, None], sizes), likely)
    best[found] = np.where(tried, nats, 0.0).max(axis=1) - np.log(tried.sum(axis=1))
    return np.maximum(best, 0.0)


def chernoff(hits: np.ndarray, trials: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """A lower bound on -log of the chance of at least so many hits in so many trials; exact for one."""
    share = hits / trials
    with np.errstate(divide="ignore", invalid="ignore"):
        misses = np.where(
            share < 1, (1 - share) * np.log((1 - share) / np.maximum(1 - chance, 1e-300)), 0.0
        )
        nats = trials * (share * np.log(share / chance) + misses)
        one = -np.log(-np.expm1(trials * np.log1p(-np.minimum(chance, 1 - 1e-16))))
    return np.asarray(np.where(hits == 1, one, np.where(share > chance, nats, 0.0)))


def surprise(chances: np.ndarray, trials: int) -> float:
    """The same for one group."""
    groups = np.zeros(len(chances), dtype=np.int64)
    return float(surprises(groups, np.asarray(chances, dtype=float), np.array([trials]))[0])
