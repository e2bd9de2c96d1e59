"""Surprise of matches, in nats; calibrated against redrawn tables in ``scan``."""

from __future__ import annotations

import numpy as np

DULL = 3.0  #: Scores below this are ignored
NEIGHBOURS = 16  #: Raw values on each side that estimate the density
#: Fewest values on one side, and how many times denser they must be, for that side alone to estimate it.
ONE_SIDE, UNEVEN = 8, 4.0


def densities(ordered: np.ndarray, indices: np.ndarray, n_std: float = 2.0) -> np.ndarray:
    """Upper estimate of the density of raw values, per unit of length, at some of them.

    The count of neighbours is raised by some of its standard deviations, so that a random gap is not
    taken for a rare value. If the values on one side are much denser, as at the end of a column
    followed by another far away, that side alone is used.

    Args:
        ordered: distinct raw values, ascending.
        indices: positions in it.
        n_std: standard deviations that are added.
    """
    first = np.maximum(indices - NEIGHBOURS, 0)
    last = np.minimum(indices + NEIGHBOURS, len(ordered) - 1)
    here, below, above = ordered[indices], ordered[first], ordered[last]
    magnitude = np.abs(here)
    extent = above - below
    density = _raised(last - first + 1.0, n_std)
    density /= np.where(extent > 0, extent, np.where(magnitude > 0, magnitude, 1.0))
    for count, width in ((indices - first, here - below), (last - indices, above - here)):
        usable = (count >= ONE_SIDE) & (width > 0)
        side = _raised(count, n_std) / np.where(usable, width, np.inf)
        density = np.where(side > UNEVEN * density, side, density)
    return density


def _raised(counts: np.ndarray, n_std: float) -> np.ndarray:
    return np.asarray(counts + n_std * np.sqrt(counts))


def surprises(groups: np.ndarray, probabilities: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """Surprise of each group's matches, given their number and probabilities.

    Of the j most improbable matches of a group, the least improbable has probability p; that j of n
    trials match with probability p or less is bounded by Chernoff's exp(-n KL(j / n, p)). The score is
    the maximum of -log of the bound over j = 1, 2, 4, ... and the last, less the log of their number.

    Args:
        groups: group of each match, integers below the length of ``trials``.
        probabilities: of each match, at most 1.
        trials: numbers in each group that might have matched.

    Returns:
        nats, shape (groups,); 0 for groups without a match.
    """
    scores = np.zeros(len(trials))
    if not len(groups):
        return scores
    order = np.lexsort((probabilities, groups)) if len(trials) > 1 else np.argsort(probabilities)
    group, probability = groups[order], probabilities[order]
    starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    sizes = np.diff(starts, append=len(group))[:, None]
    powers = 1 << np.arange(int(sizes.max()).bit_length())
    ranks = np.concatenate([np.minimum(powers, sizes), sizes], axis=1)
    valid = np.concatenate([powers < sizes, sizes > 0], axis=1)
    p = np.maximum(probability[starts[:, None] + ranks - 1], 1e-300)
    present = group[starts]
    nats = chernoff(ranks, np.maximum(trials[present][:, None], sizes), p)
    scores[present] = np.where(valid, nats, 0.0).max(axis=1) - np.log(valid.sum(axis=1))
    return np.maximum(scores, 0.0)


def chernoff(hits: np.ndarray, trials: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Lower bound on -log P(at least ``hits`` of ``trials`` succeed), each with probability ``p``; exact for one hit."""
    rate = hits / trials
    with np.errstate(divide="ignore", invalid="ignore"):
        misses = np.where(
            rate < 1, (1 - rate) * np.log((1 - rate) / np.maximum(1 - p, 1e-300)), 0.0
        )
        nats = trials * (rate * np.log(rate / p) + misses)
        single = -np.log(-np.expm1(trials * np.log1p(-np.minimum(p, 1 - 1e-16))))
    return np.asarray(np.where(hits == 1, single, np.where(rate > p, nats, 0.0)))


def surprise(probabilities: np.ndarray, trials: int) -> float:
    """:func:`surprises` of a single group."""
    groups = np.zeros(len(probabilities), dtype=np.int64)
    return float(surprises(groups, np.asarray(probabilities, dtype=float), np.array([trials]))[0])
