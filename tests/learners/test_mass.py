"""Where a column's mass lies by noisy counts: against a naive sum, at wide bounds, and under any counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from privfed.learners.mass import EMPTY, HIDING, PRIOR, STRAYS, Mass, likely_cells

CELLS = 32


def mass(counts: np.ndarray, std: float, records: float, tail: float = 0.01) -> Mass:
    """The posterior of one column."""
    return Mass.from_counts(counts[None], np.array([std**2]), np.array([records]), tail)


def naive(counts: np.ndarray, std: float, records: float, tail: float) -> np.ndarray:
    """Posterior means, one hypothesis after another, and in each of them every set of empty cells."""
    cells, logs, means = len(counts), [], []
    for length in range(1, cells + 1):
        for first in range(cells - length + 1):
            inside = (np.arange(cells) >= first) & (np.arange(cells) < first + length)
            outer = tail if length < cells else 0.0
            t = outer / max(cells - length, 1) * records
            for stray, empty, prior in zip(STRAYS[:, 0], EMPTY[:, 0], PRIOR[:, 0], strict=True):
                m = (1 - outer) / length / (1 - empty) * records
                between = range(first + 1, first + length - 1)
                for bare in subsets(between) if empty else [()]:
                    mean, spread = np.where(inside, m, t), np.where(inside, stray * m, t) ** 2
                    mean[list(bare)] = spread[list(bare)] = 0
                    both = spread + std**2
                    log = -((counts - mean) ** 2 / both + np.log(both)).sum() / 2
                    log += len(bare) * np.log(empty or 1) + (len(between) - len(bare)) * np.log1p(
                        -empty
                    )
                    logs.append(log + prior - np.log(length * (cells - length + 1)))
                    means.append(np.maximum(mean + spread / both * (counts - mean), 0))
    chances = np.exp(np.array(logs) - max(logs))
    return np.asarray(chances @ np.array(means) / chances.sum())


def subsets(places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All of them, the empty one first."""
    return chain.from_iterable(combinations(places, size) for size in range(len(places) + 1))


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), cells=st.integers(1, 7), tail=st.sampled_from([0.0, 0.01, 0.2]))
def test_posterior_means_are_those_of_all_runs_one_by_one(
    seed: int, cells: int, tail: float
) -> None:
    """Whatever the counts, their noise and the share of the tails."""
    rng = np.random.default_rng(seed)
    counts = rng.normal(0, 30, cells) + 200 * (rng.random(cells) < 0.3)
    found = mass(counts, 20.0, 300.0, tail).counts[0]
    assert found == pytest.approx(naive(counts, 20.0, 300.0, tail), rel=1e-6, abs=1e-6)


def test_a_far_cell_of_noise_is_left_out() -> None:
    """Three standard deviations of noise far off are no mass; records beside the mass are."""
    counts = np.zeros(CELLS)
    counts[[4, 5, 6]], counts[25] = (300, 500, 200), 90
    assert mass(counts, 30.0, 1000.0).run(0, 0.05) == (4, 6)
    assert mass(np.full(CELLS, 31.0), 5.0, 1000.0).run(0, 0.05) == (0, CELLS - 1)


def test_posterior_means_lie_nearer_the_truth_than_the_counts() -> None:
    """A bell of 300 records under noise of 40 a cell: a quarter of the squared error."""
    truth = 300 * np.diff(ndtr((np.linspace(0, 1, 33) - 0.3) / 0.08))
    told, drawn = [], []
    for seed in range(20):
        noisy = truth + np.random.default_rng(seed).normal(0, 40, CELLS)
        told.append(((noisy - truth) ** 2).mean())
        drawn.append(((mass(noisy, 40.0, 300.0).counts[0] - truth) ** 2).mean())
    assert np.mean(drawn) < 0.25 * np.mean(told)


def test_a_tail_that_stands_out_of_the_noise_is_kept() -> None:
    """Five percent of the records far from the others, and next to no noise: the run reaches them."""
    counts = np.zeros(CELLS)
    counts[4:8], counts[28] = 237, 50
    found = mass(counts, 1.0, 1000.0)
    assert found.run(0, 0.05) == (4, 28)
    assert found.counts[0] == pytest.approx(counts, abs=3)


def test_a_column_of_few_values_is_seen_whole() -> None:
    """Counts of visits, four in five of them none: what noise lets be seen lies inside, and cells between are empty."""
    counts = np.zeros(CELLS)
    counts[[0, 10, 20]] = 2900, 500, 240
    lost, empty = [], []
    for seed in range(20):
        found = mass(counts + np.random.default_rng(seed).normal(0, 50, CELLS), 50.0, 3640.0)
        first, last = found.run(0, 0.05)
        lost.append(1 - counts[first : last + 1].sum() / counts.sum())
        empty.append(found.counts[0][counts == 0].sum())
    assert max(lost) < 0.07 and np.mean(lost) < 0.01  # at 240, noise may feign none
    assert np.mean(empty) < 150  # a count cut at zero has 29 cells of 50 / sqrt(2 pi), 580


@example(counts=[0.0] * 7 + [-430422.0, 0.0, 0.0], std=9538.0, records=40879.0)
@settings(max_examples=50)
@given(
    counts=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=100),
    std=st.floats(0, 1e5),
    records=st.floats(0, 1e6),
)
def test_any_counts_have_a_posterior(counts: list[float], std: float, records: float) -> None:
    """Finite, none negative, runs that begin and end: noise may be anything, or nothing."""
    found = mass(np.array(counts), std, records)
    assert np.isfinite(found.counts).all() and (found.counts >= 0).all()
    assert found.begun[0, -1] == pytest.approx(1) and found.ended[0, 0] == pytest.approx(1)
    first, last = found.run(0, 0.05)
    assert 0 <= first <= last < len(counts)


def test_columns_are_looked_at_each_by_itself() -> None:
    """All at once or one after another is the same."""
    counts = np.random.default_rng(0).normal(50, 40, (3, CELLS))
    variance, records = np.array([1.0, 100.0, 1e4]), np.array([100.0, 1000.0, 500.0])
    together = Mass.from_counts(counts, variance, records)
    for j in range(3):
        alone = mass(counts[j], float(np.sqrt(variance[j])), records[j])
        assert np.allclose(together.counts[j], alone.counts[0], rtol=1e-12)
        assert np.allclose(together.begun[j], alone.begun[0], rtol=1e-12)


@pytest.mark.parametrize("place", [0, 11, CELLS - 1])
def test_a_target_in_one_cell_is_found_under_noise_that_hides_it(place: int) -> None:
    """400 records, noise of 60 in each of 32 cells: its cell is kept, and mostly few others."""
    rng, lengths = np.random.default_rng(place), []
    for _ in range(20):
        counts = rng.normal(0, 60, CELLS)
        counts[place] += 400
        first, last = likely_cells(np.linspace(-3, 5, CELLS + 1), counts, 60.0**2, 400)
        assert first <= place <= last
        lengths.append(last - first + 1)
    assert np.quantile(lengths, 0.8) < 4


def test_a_target_of_two_values_keeps_both_under_noise() -> None:
    """Half of 400 records in the first cell, half in the last, noise of 30: one half alone is no interval."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        counts = rng.normal(0, 30, CELLS)
        counts[[0, -1]] += 200
        assert likely_cells(np.linspace(0, 1, CELLS + 1), counts, 30.0**2, 400) == (0, CELLS - 1)


def test_noise_alone_makes_no_narrow_interval() -> None:
    """Records that are everywhere, or too few to be seen anywhere: nearly all cells are likely."""
    rng = np.random.default_rng(0)
    for records in (400, 20):
        lengths = []
        for _ in range(20):
            counts = records / CELLS + rng.normal(0, 60, CELLS)
            first, last = likely_cells(np.linspace(0, 1, CELLS + 1), counts, 60.0**2, records)
            lengths.append(last - first + 1)
        assert np.mean(lengths) > 0.7 * CELLS


@pytest.mark.parametrize("records", [400.0, 0.0, -50.0])
def test_cells_are_all_likely_where_noise_hides_none(records: float) -> None:
    """Up to a fraction of the records, of which there are one at least; and without any noise."""
    edges, counts = np.linspace(0, 1, CELLS + 1), np.r_[records, np.zeros(CELLS - 1)]
    for std in (0.0, HIDING * max(records, 1)):
        assert likely_cells(edges, counts, std**2, records) == (0, CELLS - 1)
    assert likely_cells(np.zeros(CELLS + 1) + edges.round(), counts, 1e9, records) == (0, CELLS - 1)
