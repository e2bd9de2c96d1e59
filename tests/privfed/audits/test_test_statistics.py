"""What outputs are looked at for: each score says what its name promises."""

from __future__ import annotations

import numpy as np

from privfed.audits.test_statistics import (
    DECIMALS,
    Statistic,
    Truths,
    decimals,
    lowest_bit,
    statistics,
)


def named(found: list[Statistic], name: str) -> Statistic:
    """The one score of a name."""
    (only,) = [score for score in found if score.name == name]
    return only


def test_decimals_are_the_fewest_that_leave_a_float_as_it_is() -> None:
    """Whole numbers have none, thirds more than are counted."""
    values = np.array([0.0, 3.0, 0.5, 0.125, -7.25, 1 / 3])
    assert decimals(values).tolist() == [0, 0, 1, 3, 2, DECIMALS + 1]


def test_noise_rounded_before_it_is_added_leaves_other_floats() -> None:
    """A sum of a whole number and a rounded one is now and then no float that rounding gives."""
    noise = np.round(np.random.default_rng(0).laplace(0, 1, 5000), 3)
    assert (decimals(noise) <= 3).all()
    assert (decimals(7 + noise) > 3).mean() > 0.05


def test_lowest_bits_of_a_grid() -> None:
    """Numbers on a dyadic grid show it, sums of floats do not."""
    rng = np.random.default_rng(0)
    grid = np.rint(rng.normal(size=1000) * 2**20) / 2**20
    assert lowest_bit(grid).min() >= -20
    assert lowest_bit(rng.normal(size=1000)).min() < -40


def test_whole_outputs_have_no_bits_to_look_at() -> None:
    """Bits are scored where fractions are, and nowhere else."""
    rng = np.random.default_rng(1)
    for whole in (True, False):
        one, other = (rng.normal(0, 9, (50, 2)) for _ in range(2))
        found = statistics(np.rint(one), np.rint(other)) if whole else statistics(one, other)
        assert any(score.family == "bits" for score in found) is not whole


def test_exact_and_clipped_scores_know_the_truth() -> None:
    """One, minus one or nothing at the very truths; clipped values stay between them."""
    truths = Truths(np.array([4.0, 0.0, 2.0]), np.array([0.0, 0.0, 5.0]))
    assert truths.moved.tolist() == [0, 2]
    outputs = np.array([[4.0, 9, 2], [0, 9, 5], [4, 9, 5], [9, 9, -9]])
    found = statistics(outputs, outputs[::-1], truths)
    assert named(found, "exact").of(outputs).tolist() == [1, -1, 0, 0]
    assert named(found, "exact 0").of(outputs).tolist() == [1, -1, 1, 0]
    clipped = named(found, "clipped").of(outputs)
    assert clipped[0] == clipped.max() == clipped[3] and clipped[1] == clipped.min()


def test_cells_that_share_noise_are_compared() -> None:
    """Their difference is exact; cells of independent noise are not compared at all."""
    rng = np.random.default_rng(2)
    noise = np.rint(rng.laplace(0, 99, (400, 2)))
    shared = np.hstack([noise, noise[:, :1]])
    truths = Truths(np.array([1.0, 0, 0]), np.zeros(3))
    found = statistics(shared + truths.present, shared[::-1] + truths.absent, truths)
    together = [score.name for score in found if score.family == "together"]
    assert together == ["difference 0 and 2"]
    assert (named(found, together[0]).of(shared + truths.present) == 1).all()
