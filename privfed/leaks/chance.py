"""How surprising matches are, in nats: a score that re-drawn tables then put into its place."""

from __future__ import annotations

import numpy as np

NEIGHBOURS = 16  #: How many raw values on each side tell how dense they lie


def densities(ordered: np.ndarray, places: np.ndarray, deviations: float = 2.0) -> np.ndarray:
    """How many raw values lie in a unit of length near some of them.

    The count of neighbours is raised by some of its standard deviations, so that a gap that chance
    made does not pass for a rare value.

    Args:
        ordered: different raw values, ascending.
        places: positions in it.
        deviations: by how many.
    """
    size = len(ordered)
    first = np.maximum(places - NEIGHBOURS, 0)
    last = np.minimum(places + NEIGHBOURS, size - 1)
    counted = last - first + 1.0
    spread = ordered[last] - ordered[first]
    near = np.abs(ordered[places])
    width = np.where(spread > 0, spread, np.where(near > 0, near, 1.0))
    return np.asarray((counted + deviations * np.sqrt(counted)) / width)


def surprises(groups: np.ndarray, chances: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """How surprising each group's matches are, as improbable as these and as many.

    Of the j most improbable matches of a group, the least improbable has probability p; that j of n
    trials match with probability p or less is bounded by Chernoff's exp(-n KL(j / n, p)). The
    greatest -log over the j that are powers of two or the last, less the log of how many were tried.

    Args:
        groups: the group of each match, integers below the length of ``trials``.
        chances: of each match.
        trials: for each group, how many numbers might have matched.

    Returns:
        nats, one a group; 0 where nothing matched.
    """
    best = np.zeros(len(trials))
    if not len(groups):
        return best
    order = np.lexsort((chances, groups))
    group, chance = groups[order], np.clip(chances[order], 1e-300, 1.0)
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    sizes = np.diff(np.r_[starts, len(group)])
    rank = np.arange(len(group)) - np.repeat(starts, sizes) + 1
    tried = np.flatnonzero(((rank & (rank - 1)) == 0) | (rank == np.repeat(sizes, sizes)))
    count = np.maximum(trials[group[tried]], np.repeat(sizes, sizes)[tried]).astype(float)
    np.maximum.at(best, group[tried], chernoff(rank[tried], count, chance[tried]))
    looks = np.bincount(group[tried], minlength=len(trials))
    return np.asarray(np.maximum(best - np.log(np.maximum(looks, 1)), 0.0))


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
