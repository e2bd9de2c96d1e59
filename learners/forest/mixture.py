"""Candidate cuts from the clients' quantiles, on the server (paper, Section 3.1)."""

import numpy as np

from privfed.learners.forest.columns import ordered, unordered

CHUNK = 512  #: Pairs that are processed at once
#: Knots closer than this fraction of a pair's range count as one value, at which the CDF jumps.
NEAR = 1e-7
LEVEL = 1e-9  #: The mixture is flat if it increases by less than this fraction of the records


def candidate_cuts(knots: np.ndarray, counts: np.ndarray, cuts: int) -> np.ndarray:
    """Invert the mixture of the clients' piecewise-linear CDFs at 1/(C+1), ..., C/(C+1) (paper, Eq. 4).

    Args:
        knots: shape (clients, pairs, Q + 1), each row ascending.
        counts: records of each client at each pair's node, shape (clients, pairs).
        cuts: C, candidates of a pair.

    Returns:
        shape (pairs, C), ascending, 32-bit floats; zero if no client has records.
    """
    pairs = knots.shape[1]
    candidates = np.zeros((pairs, cuts), np.float32)
    for first in range(0, pairs, CHUNK):
        part = slice(first, min(first + CHUNK, pairs))
        block, weights = (
            knots[:, part].transpose(1, 0, 2).astype(np.float32, "C"),
            counts[:, part].T,
        )
        candidates[part] = _invert(_shown(block, weights), weights, cuts)
    return candidates


def _shown(knots: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the knots of clients with records; for others the pair's lowest, without weight."""
    finite = np.isfinite(knots)
    if not finite.all():
        knots[~finite] = 0
    pair, client = np.nonzero(counts <= 0)
    if len(pair):
        minimum = np.where(counts > 0, knots[:, :, 0], np.float32(np.inf)).min(axis=1)[pair]
        knots[pair, client] = np.where(np.isfinite(minimum), minimum, np.float32(0))[:, None]
    return knots


def _invert(knots: np.ndarray, counts: np.ndarray, cuts: int) -> np.ndarray:
    """Invert a few pairs' mixtures: knots of shape (pairs, clients, Q + 1), counts (pairs, clients)."""
    pairs, _, width = knots.shape
    step = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) / (width - 1)
    step = np.repeat(step, width - 1, axis=1).reshape(pairs, -1, width - 1)
    gaps = knots[:, :, 1:] - knots[:, :, :-1]
    extent = knots[:, :, -1].max(axis=1) - knots[:, :, 0].min(axis=1)
    near = NEAR * np.maximum(extent, np.finfo(np.float32).tiny)
    jumps = gaps <= near[:, None, None]
    slopes = step / np.where(jumps, np.float32(np.inf), gaps)
    turn, jump = np.empty(knots.shape), np.empty(knots.shape)
    turn[:, :, :-1], turn[:, :, -1] = slopes, 0
    turn[:, :, 1:] -= slopes
    jump[:, :, 0] = 0
    np.multiply(jumps, step, out=jump[:, :, 1:])
    values, turn, jump = _sort_rows(knots.reshape(pairs, -1), turn, jump)
    slope = np.cumsum(turn, axis=1, out=turn)
    np.maximum(slope, 0.0, out=slope)
    widths = values[:, 1:] - values[:, :-1]
    rises = slope[:, :-1] * widths
    apart = (rises < LEVEL) & (widths > near[:, None])
    jump[:, 1:] += rises
    height = np.cumsum(jump, axis=1, out=jump)
    candidates = _at_levels(values, height, slope, cuts)
    _centre(candidates, apart, values, height)
    return candidates


def _centre(cuts: np.ndarray, apart: np.ndarray, values: np.ndarray, height: np.ndarray) -> None:
    """Move the candidate nearest to each gap without records to its midpoint, as in CART."""
    rows, columns = np.nonzero(apart)
    level = np.rint(height[rows, columns] * (cuts.shape[1] + 1)).astype(np.int64) - 1
    inside = (level >= 0) & (level < cuts.shape[1])
    rows, columns, level = rows[inside], columns[inside], level[inside]
    cuts[rows, level] = (values[rows, columns] + values[rows, columns + 1]) / 2


def _sort_rows(
    values: np.ndarray, turn: np.ndarray, jump: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort each row of values, with its turns and jumps, by one sort of values above indices."""
    pairs, width = values.shape
    bits = max(width - 1, 1).bit_length()
    keys = ordered(values).astype(np.uint64)
    keys <<= np.uint64(bits)
    keys |= np.arange(width, dtype=np.uint64)
    keys.sort(axis=1)
    indices = (keys & np.uint64((1 << bits) - 1)).view(np.int64)
    indices += width * np.arange(pairs)[:, None]
    keys >>= np.uint64(bits)
    sorted_ = unordered(keys.astype(np.uint32)).astype(float)
    return sorted_, turn.reshape(-1).take(indices), jump.reshape(-1).take(indices)


def _at_levels(values: np.ndarray, height: np.ndarray, slope: np.ndarray, cuts: int) -> np.ndarray:
    """Invert each row's CDF at the levels; rows are shifted by 2, for a single search."""
    pairs, width = values.shape
    levels = np.arange(1, cuts + 1) / (cuts + 1)
    shift, first = 2.0 * np.arange(pairs)[:, None], width * np.arange(pairs)[:, None]
    indices = np.searchsorted((height + shift).reshape(-1), (levels + shift).reshape(-1))
    upper = np.clip(indices.reshape(pairs, cuts), first, first + width - 1)
    lower = np.maximum(upper - 1, first)
    bottom, top = values.reshape(-1).take(lower), values.reshape(-1).take(upper)
    base, rate = height.reshape(-1).take(lower), slope.reshape(-1).take(lower)
    steep = rate > 0
    inside = bottom + (levels - base) / np.where(steep, rate, 1.0)
    cut = np.where(steep, np.clip(inside, bottom, top), top)
    return np.maximum.accumulate(cut.astype(np.float32), axis=1)


def equal_steps(low: np.ndarray, high: np.ndarray, bins: int) -> np.ndarray:
    """Return cuts that divide each pair's range into bins of equal width, shape (pairs, bins - 1)."""
    low, high = (np.where(low < high, end, 0)[:, None] for end in (low, high))
    return np.asarray(low + (high - low) * np.arange(1, bins) / bins, np.float32)


def between_shown(knots: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Interpolate sketches' suppressed ranks, constant beyond the outermost; NaN in rows without any."""
    rank, last = np.arange(knots.shape[1]), knots.shape[1] - 1
    before = np.maximum.accumulate(np.where(mask, -1, rank), axis=1)
    after = np.minimum.accumulate(np.where(mask, last + 1, rank)[:, ::-1], axis=1)[:, ::-1]
    low, high = np.where(before < 0, after, before), np.where(after > last, before, after)
    low, high = np.minimum(low, last), np.maximum(high, 0)
    first, second = (np.take_along_axis(knots, index, axis=1) for index in (low, high))
    fraction = np.where(high > low, (rank - low) / np.maximum(high - low, 1), 0)
    return np.where(mask.all(axis=1, keepdims=True), np.nan, first + (second - first) * fraction)


def middles(knots: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return midpoints between neighbouring values of all clients' knots (paper, Appendix E), 32-bit floats.

    With as many knots as a node has records these are centralized CART's candidates. Shape (pairs, maximum distinct
    values minus 1, at least 1); rows of fewer values repeat their last cut.
    """
    clients, pairs, width = knots.shape
    shown = np.where(counts[:, :, None] > 0, knots, np.float32(np.inf))
    values = np.sort(shown.transpose(1, 0, 2).reshape(pairs, clients * width), axis=1)
    low, high = values[:, :-1], values[:, 1:]
    with np.errstate(invalid="ignore"):
        middle = (low / 2 + high / 2).astype(np.float32)
    middle = np.where(middle >= high, low, middle)
    middle = np.where((low < high) & np.isfinite(high), middle, np.float32(np.inf))
    middle = np.sort(middle, axis=1)
    n_cuts = max(int(np.isfinite(middle).sum(axis=1).max(initial=0)), 1)
    kept = middle[:, :n_cuts]
    last = np.where(np.isfinite(kept), kept, -np.inf).max(axis=1)
    last = np.where(np.isfinite(last), last, 0).astype(np.float32)
    return np.asarray(np.where(np.isfinite(kept), kept, last[:, None]))
