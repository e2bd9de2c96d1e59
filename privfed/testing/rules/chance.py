"""How likely what was found is by chance alone.

Nothing is guessed: from the raw values that lie near a released number, and from the precision at
which it came, follows how likely a number that has nothing to do with them would match as well.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

#: How many raw values on each side tell how dense they lie.
NEIGHBOURS = 16


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


def tails(groups: np.ndarray, probabilities: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """How likely chance alone gives each group matches as improbable as these, and as many.

    Of the j most improbable matches of a group, the least improbable has probability p; that j of n
    trials match with probability p or less has a binomial tail. The least tail over the j that are
    powers of two or the last, times how many were tried.

    Args:
        groups: the group of each match, whole numbers below the length of ``trials``.
        probabilities: of each match by chance.
        trials: for each group, how many numbers might have matched.

    Returns:
        p-values, one a group; 1 where nothing matched.
    """
    found = np.ones(len(trials))
    if not len(groups):
        return found
    order = np.lexsort((probabilities, groups))
    group, chance = groups[order], np.minimum(probabilities[order], 1.0)
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    sizes = np.diff(np.r_[starts, len(group)])
    rank = np.arange(len(group)) - np.repeat(starts, sizes) + 1
    last = rank == np.repeat(sizes, sizes)
    tried = np.flatnonzero(((rank & (rank - 1)) == 0) | last)
    count = np.maximum(trials[group[tried]], np.repeat(sizes, sizes)[tried])
    tail = binom.sf(rank[tried] - 1, count, chance[tried])
    np.minimum.at(found, group[tried], tail)
    looks = np.bincount(group[tried], minlength=len(trials))
    return np.asarray(np.minimum(found * np.maximum(looks, 1), 1.0))


def tail(probabilities: np.ndarray, trials: int) -> float:
    """The same for one group."""
    groups = np.zeros(len(probabilities), dtype=np.int64)
    return float(tails(groups, np.asarray(probabilities, dtype=float), np.array([trials]))[0])
