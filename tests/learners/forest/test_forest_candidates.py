"""Candidate cuts and their worth, against naive twins: mixtures, middles, gains, subsets, draws."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privfed.learners.forest import draws
from privfed.learners.forest.gains import best_cut, best_subset, decreases
from privfed.learners.forest.mixture import between_shown, candidate_cuts, middles
from privfed.learners.forest.splits import averaged_subset
from privfed.learners.impurity import Criterion

SEEDS = st.integers(0, 10**6)


def sketches(
    rng: np.random.Generator, clients: int, pairs: int, levels: int
) -> tuple[np.ndarray, np.ndarray, list[list[np.ndarray]]]:
    """Clients' order statistics at equal ranks, their sizes, and the values behind them."""
    counts = rng.integers(0, 40, (clients, pairs))
    counts[0] = np.maximum(counts[0], 1)
    knots = np.zeros((clients, pairs, levels + 1), np.float32)
    values = [[np.zeros(0, np.float32)] * pairs for _ in range(clients)]
    for client in range(clients):
        for pair in range(pairs):
            own = np.sort(np.round(rng.normal(client, 1, counts[client, pair]), 1)).astype(
                np.float32
            )
            values[client][pair] = own
            if len(own):
                knots[client, pair] = own[
                    np.rint(np.arange(levels + 1) * (len(own) - 1) / levels).astype(int)
                ]
    return knots, counts, values


def naive_height(knots: np.ndarray, counts: np.ndarray, at: float) -> float:
    """The mixture of piecewise-linear CDFs at a value (paper, Eq. 4), jumps included."""
    share = counts / counts.sum()
    total = 0.0
    for own, weight in zip(knots.astype(float), share, strict=True):
        levels = len(own) - 1
        if weight == 0 or at < own[0]:
            continue
        if at >= own[-1]:
            total += weight
            continue
        left = int(np.searchsorted(own, at, side="right")) - 1
        total += weight * (left + (at - own[left]) / (own[left + 1] - own[left])) / levels
    return float(total)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, clients=st.integers(1, 6), levels=st.integers(2, 12))
def test_cuts_invert_the_mixture(seed: int, clients: int, levels: int) -> None:
    """At each cut the mixture reaches its level, and just below it has not passed it.

    But where no client has a record around the cut: then the nearest level may lie half a step off.
    """
    knots, counts, _ = sketches(np.random.default_rng(seed), clients, 4, levels)
    cuts = candidate_cuts(knots, counts, levels - 1)
    assert (np.diff(cuts, axis=1) >= 0).all()
    for pair, row in enumerate(cuts):
        for number, cut in enumerate(row, start=1):
            above = np.nextafter(np.float32(cut), np.float32(np.inf)) + 1e-5
            own = (knots[:, pair], counts[:, pair])
            upto, below = (naive_height(*own, at) for at in (float(above), float(cut) - 2e-5))
            slack = 1e-3 + (0.5 / levels if upto == below else 0)
            assert upto >= number / levels - slack
            assert below <= number / levels + slack


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, levels=st.integers(2, 20))
def test_rank_error_bound(seed: int, levels: int) -> None:
    """Theorem 3.1: between distinct values the mixture errs by at most 1/Q, and 1/n a client here.

    (A nearest rank of n values is off by half a rank at most.)
    """
    knots, counts, values = sketches(np.random.default_rng(seed), 3, 2, levels)
    for pair in range(2):
        pooled = np.sort(np.concatenate([own[pair] for own in values]))
        for at in np.unique(pooled):
            true = np.searchsorted(pooled, at, side="right") / len(pooled)
            slack = (counts[:, pair] > 0).sum() / counts[:, pair].sum()
            told = naive_height(knots[:, pair], counts[:, pair], float(at))
            assert abs(true - told) <= 1 / levels + slack + 1e-6


def test_many_clients_corrupt_no_cut() -> None:
    """A thousand clients of eleven knots: a place among them needs more than eight bits."""
    rng = np.random.default_rng(0)
    knots = np.sort(rng.normal(size=(1000, 1, 11)), axis=2).astype(np.float32)
    counts = np.full((1000, 1), 9)
    heights = [
        naive_height(knots[:, 0], counts[:, 0], at) for at in candidate_cuts(knots, counts, 9)[0]
    ]
    assert np.allclose(heights, np.arange(1, 10) / 10, atol=1e-3)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, levels=st.integers(2, 12))
def test_where_no_client_has_a_record_a_cut_lies_in_the_middle(seed: int, levels: int) -> None:
    """As CART's: between clients that lie apart, whatever their sizes; but not beyond the last cut."""
    rng = np.random.default_rng(seed)
    knots = np.sort(rng.normal(size=(2, 1, levels + 1)), axis=2).astype(np.float32)
    knots[1] += 50
    counts = rng.integers(1, 40, (2, 1))
    cuts = candidate_cuts(knots, counts, levels - 1)[0]
    below = counts[0, 0] / counts.sum()
    assume(abs(below * levels % 1 - 0.5) > 1e-6)
    middle = (knots[0].max() + knots[1].min()) / 2
    assert np.isclose(cuts, middle).any() == (1 <= np.rint(below * levels) <= levels - 1)
    assert (np.diff(cuts) >= 0).all()


def test_silent_clients_and_constants() -> None:
    """A client without records moves nothing; where all values are one, so are all cuts."""
    knots = np.array([[[1, 1, 1]], [[-1e30, 0, 1e30]]], np.float32)
    assert candidate_cuts(knots, np.array([[7], [0]]), 3).tolist() == [[1, 1, 1]]
    assert candidate_cuts(knots, np.zeros((2, 1)), 2).tolist() == [[0, 0]]


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=12))
def test_middles_of_all_values(values: list[int]) -> None:
    """Every middle between two neighbouring different values, once, and nothing else."""
    knots = np.sort(np.array(values, np.float32))[None, None]
    found = np.unique(middles(knots, np.array([[len(values)]])))
    distinct = np.unique(values)
    expected = (distinct[1:] + distinct[:-1]) / 2
    assert np.array_equal(found, expected) or (not len(expected) and len(found) == 1)


def test_suppressed_ranks_lie_between_those_shown() -> None:
    """A line through what is shown, its ends level; nothing where nothing is shown."""
    knots = np.array([[9, 1, 9, 3, 9], [9, 9, 9, 9, 9]], float)
    mask = np.array([[1, 0, 1, 0, 1], [1, 1, 1, 1, 1]], bool)
    found = between_shown(knots, mask)
    assert found[0].tolist() == [1, 1, 2, 3, 3]
    assert np.isnan(found[1]).all()


def impurity(y: np.ndarray, criterion: Criterion) -> float:
    """By the definition (paper, Appendix C.4)."""
    if criterion == "squared_error":
        return float(np.var(y))
    share = np.bincount(y.astype(int)) / len(y)
    share = share[share > 0]
    return float(1 - (share**2).sum() if criterion == "gini" else -(share * np.log(share)).sum())


def statistics(y: np.ndarray, criterion: Criterion) -> np.ndarray:
    """Of a set: class counts, or count and sum."""
    if criterion == "squared_error":
        return np.array([len(y), y.sum()])
    return np.bincount(y.astype(int), minlength=4).astype(float)


CRITERIA: list[Criterion] = ["gini", "entropy", "squared_error"]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_decreases_are_those_of_the_definition(criterion: Criterion) -> None:
    """Impurity before less the weighted impurities after, times records, whatever the division."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        y = rng.integers(0, 4, 20).astype(float)
        side = rng.random(20) < rng.random()
        if not 0 < side.sum() < 20:
            continue
        parts = side.sum() * impurity(y[side], criterion) + (~side).sum() * impurity(
            y[~side], criterion
        )
        left, whole = statistics(y[side], criterion), statistics(y, criterion)
        found = decreases(left[None], whole, criterion)[0]
        assert found == pytest.approx(20 * impurity(y, criterion) - parts, abs=1e-9)
        assert decreases(left[None], whole, criterion, int(side.sum()) + 1)[0] == -np.inf


@pytest.mark.parametrize("criterion", CRITERIA)
def test_best_cut_is_the_first_best(criterion: Criterion) -> None:
    """The greatest decrease over all cuts, the first of equal ones, none where sides are too small."""
    bins = np.zeros((2, 4, 2))
    bins[0, [0, 3]] = [[6, 0], [0, 6]]
    if criterion == "squared_error":
        bins[0, [0, 3]] = [[6, 0], [6, 6]]
    best = best_cut(bins, criterion, 1)
    assert best.index[0] == 0 and best.gain[0] > 0
    assert best_cut(bins, criterion, 7).gain[0] == -np.inf


@pytest.mark.parametrize("criterion", CRITERIA)
def test_fisher_order_finds_the_best_of_all_subsets(criterion: Criterion) -> None:
    """For regression and two classes no division of the categories beats the contiguous ones."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        counts = rng.integers(1, 9, (1, 5, 2)).astype(float)
        if criterion == "squared_error":
            counts[..., 1] = counts[..., 0] * rng.normal(size=(1, 5))
        best, chosen = best_subset(counts, criterion, 1)
        every = [
            decreases(counts[0, list(own)].sum(axis=0)[None], counts[0].sum(axis=0), criterion)[0]
            for size in range(1, 5)
            for own in combinations(range(5), size)
        ]
        assert best.gain[0] == pytest.approx(max(every))
        told = decreases(counts[0, chosen[0]].sum(axis=0)[None], counts[0].sum(axis=0), criterion)[
            0
        ]
        assert told == pytest.approx(max(every))


def test_empty_categories_go_to_the_larger_side() -> None:
    """Where no record says where a category belongs, most records do."""
    counts = np.array([[[9, 0], [0, 2], [0, 0]]], float)
    _, chosen = best_subset(counts, "gini", 1)
    assert chosen[0, 2] == chosen[0, 0] and chosen[0, 0] != chosen[0, 1]


def test_averaged_subsets_sum_local_decreases() -> None:
    """One client: the exact decrease. Two that part by client alone: nothing to average."""
    groups = np.array([[[[4, 0], [0, 4]]]])
    worth, chosen = averaged_subset(groups, "gini", 1)
    assert worth[0] == pytest.approx(4) and chosen[0, 0] != chosen[0, 1]
    apart = np.array([[[[4, 0], [0, 0]]], [[[0, 0], [0, 4]]]])
    assert averaged_subset(apart, "gini", 1)[0][0] == 0


def test_draws_hang_on_names_alone() -> None:
    """A name's order of features is its own, uniform over names, and children are named apart."""
    names = draws.roots(7, 20_000)
    order = draws.ranking(names, 5)
    assert np.array_equal(order[:3], draws.ranking(names[:3], 5))
    assert (np.sort(order, axis=1) == np.arange(5)).all()
    assert np.abs(np.bincount(order[:, 0]) / 20_000 - 0.2).max() < 0.015
    below = draws.children(names)
    assert len(np.unique(np.concatenate([names, below.reshape(-1)]))) == 60_000
    assert not np.array_equal(names, draws.roots(8, 20_000))
