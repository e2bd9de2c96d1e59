"""Shuffled yes-or-no answers: held against every crowd there is, and against a paper's figures."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.accountants.pld import distribution
from privfed.accountants.shuffled import ShuffledResponse, shuffled_epsilon
from privfed.errors import InputError

EPSILONS = np.array([-0.5, 0.0, 0.05, 0.2, 0.5, 0.9])


def ones(local: float, truths: list[int]) -> np.ndarray:
    """The probabilities of each number of ones, by convolution of every individual's answer."""
    lie = 1 / (math.exp(local) + 1)
    total = np.ones(1)
    for truth in truths:
        total = np.convolve(total, [lie, 1 - lie] if truth else [1 - lie, lie])
    return total


def told(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The hockey-stick divergence at each of the epsilons."""
    return np.array([np.maximum(p - math.exp(e) * q, 0).sum() for e in EPSILONS])


@settings(max_examples=40, deadline=None)
@given(local=st.floats(0.2, 4), others=st.lists(st.integers(0, 1), max_size=12))
def test_no_crowd_tells_more_than_the_pair(local: float, others: list[int]) -> None:
    """Whatever the others' truths, for either truth of hers."""
    bound = ShuffledResponse(local, len(others)).divergence(EPSILONS)
    one, none = (ones(local, [*others, mine]) for mine in (1, 0))
    for p, q in ((one, none), (none, one)):
        assert np.all(told(p, q) <= bound + 1e-12)


def test_a_crowd_that_is_counted_too_large_is_refuted() -> None:
    """The planted fault: twelve answer, of whom six tell the server what they said."""
    honest, all_of_them = ShuffledResponse(1.0, 5), ShuffledResponse(1.0, 11)
    exact = told(ones(1.0, [1, 1, 1, 1, 1, 1]), ones(1.0, [1, 1, 1, 1, 1, 0]))
    assert np.all(exact <= honest.divergence(EPSILONS) + 1e-12)
    assert np.any(exact > all_of_them.divergence(EPSILONS) * 1.05)


def test_two_questions_tell_no_more_than_two_pairs() -> None:
    """Exact products of two crowds' counts, the second crowd chosen by the first one's answer."""
    bound = distribution(Counter({ShuffledResponse(1.0, 4): 2}), 1e-3)
    first = [ones(1.0, [1, 1, 0, 0, mine]) for mine in (1, 0)]
    for chosen in product((0, 1), repeat=2):
        crowds = [[1] * 4 if chosen[count > 2] else [0] * 4 for count in range(6)]
        one, none = (
            np.concatenate([first[k][c] * ones(1.0, [*crowds[c], 1 - k]) for c in range(6)])
            for k in (0, 1)
        )
        for epsilon, exact in zip(EPSILONS, told(one, none), strict=True):
            assert exact <= bound.get_delta_for_epsilon(float(epsilon)) + 1e-9


@pytest.mark.parametrize(
    ("local", "people", "known"),
    [(0.5, 2000, 0.035), (1, 2000, 0.086), (1, 8000, 0.040), (2, 8000, 0.108), (4, 2000, 0.905)],
)
def test_figures_at_one_hundred_thousandth(local: float, people: int, known: float) -> None:
    """As computed once by another program from the pair's definition; and never above the local epsilon."""
    assert shuffled_epsilon(local, people) == pytest.approx(known, rel=0.03)


def test_more_people_tell_less_and_more_questions_more() -> None:
    """Alone nothing is gained; ten questions cost less than ten times one."""
    alone, few, many = (shuffled_epsilon(1, people) for people in (1, 100, 5000))
    assert alone == pytest.approx(1, abs=0.01) and many < few < alone
    one, ten = (shuffled_epsilon(1, 2000, questions) for questions in (1, 10))
    assert one < ten < 10 * one


@pytest.mark.parametrize(
    "wrong", [(0, 10, 1), (-1, 10, 1), (math.inf, 10, 1), (1, 0, 1), (1, 10, 0)]
)
def test_nobody_and_nothing_are_refused(wrong: tuple[float, int, int]) -> None:
    """No local epsilon, nobody who answers, no question."""
    with pytest.raises(InputError):
        shuffled_epsilon(*wrong)
