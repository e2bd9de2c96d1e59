"""Posterior probabilities are calibrated, and the best list is the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.learners.rule_search.best_first import best_list, listed, validity

NU = 0.01


def _population(seed: int, noise: float, number: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """True shares, of which nine of ten are nobody's, and their estimates."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(number) < 0.9, 0.0, 0.003 * rng.pareto(1.0, number)).clip(0, 1)
    return truth, truth + noise * rng.normal(size=number)


@pytest.mark.parametrize("noise", [0.002, 0.005, 0.02])
def test_probabilities_are_calibrated(noise: float) -> None:
    """Of the structures in each band of probability, about that many are valid."""
    truth, estimate = _population(1, noise, 20_000)
    chance = validity(estimate, np.full(len(estimate), noise), NU)
    for low in (0.0, 0.2, 0.5, 0.8):
        band = (chance >= low) & (chance < low + 0.2)
        if band.sum() > 50:
            assert np.mean(truth[band] >= NU) == pytest.approx(chance[band].mean(), abs=0.1)


def test_a_wrong_deviation_is_not_calibrated() -> None:
    """The power twin: deviations stated at a third of what they are make noise look certain."""
    truth, estimate = _population(1, 0.02, 20_000)
    chance = validity(estimate, np.full(len(estimate), 0.02 / 3), NU)
    sure = chance > 0.9
    assert np.mean(truth[sure] >= NU) < chance[sure].mean() - 0.2


def test_exact_estimates_are_judged_exactly() -> None:
    """Without noise to speak of, valid is what lies at or above nu."""
    shares = np.array([0.0, 0.009, 0.0101, 0.3])
    assert validity(shares, np.full(4, 1e-5), NU).round(3).tolist() == [0, 0, 1, 1]


def test_noise_alone_says_nothing() -> None:
    """Where the noise is larger than the population, all have nearly the same probability."""
    _, estimate = _population(2, 5.0)
    assert np.ptp(validity(estimate, np.full(len(estimate), 5.0), NU)) < 0.1


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8), st.floats(0.0, 10.0))
def test_no_other_list_is_expected_to_be_better(chances: list[float], expected: float) -> None:
    """By enumeration of all lists."""
    chance = np.array(chances)
    total = max(expected, float(chance.sum()))

    def score(list_: np.ndarray) -> float:
        return float(2 * chance[list_].sum() / (len(list_) + total))

    every = [
        np.flatnonzero([bits >> place & 1 for place in range(len(chance))])
        for bits in range(1, 2 ** len(chance))
    ]
    assert score(best_list(chance, expected)) == pytest.approx(max(map(score, every)))


def test_no_structures_no_list() -> None:
    """An empty list of an empty search."""
    assert best_list(np.zeros(0)).tolist() == []


def test_doubtful_entries_do_not_spoil_a_list_of_sure_ones() -> None:
    """Ten sure and five doubtful ones: the sure; two sure and forty doubtful ones: all."""
    many = np.r_[np.full(10, 0.99), np.full(5, 0.3)]
    assert sorted(listed(many, 100)) == list(range(10))
    few = np.r_[np.full(2, 0.99), np.full(40, 0.3)]
    assert sorted(listed(few, 100)) == list(range(42))


def test_a_long_list_for_less_than_one_valid_structure_is_not_given() -> None:
    """Hundreds of structures of which none is likely, and not one expected to be valid."""
    nothing = np.full(500, 0.002)
    assert len(listed(nothing, 400)) == 0
    one = np.concatenate([[0.99], nothing])
    assert listed(one, 400).tolist() == [0]
