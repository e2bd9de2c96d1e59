"""The last correction: scores that go too far are drawn back, as far as the records bear it out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from privfed.learners.private.calibration import PlattScaling, with_means
from privfed.learners.private.queries import COUNT
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.target_link import Outcome

START = np.array([-0.5])


def corrected(truth: float, move: float, noise: float, seed: int) -> tuple[float, float]:
    """What is found where log-odds are ``move`` more than start + truth times the score, of 20,000."""
    rng = np.random.default_rng(seed)
    added, own = rng.normal(0, 1.5, (2, 20_000, 1))
    found = PlattScaling.from_scores(Outcome("binary"), START, own[:2_000], np.ones(2_000))
    assert found is not None
    y = rng.uniform(size=added.shape) < expit(START + move + truth * added)
    bins = np.searchsorted(found.cuts[0], START + added[:, 0], side="right")
    rest = (y - expit(START + added))[:, 0]
    sums = np.array(
        [
            [np.bincount(bins, rest, SETTINGS.score_bins)],
            [np.bincount(bins, minlength=SETTINGS.score_bins) * float(COUNT)],
        ]
    )
    factor, moved = found.corrected(sums + rng.normal(0, noise, sums.shape), noise, 20_000)
    return factor, float(moved[0])


@pytest.mark.parametrize(("truth", "move"), [(0.5, 0.0), (1.0, 0.0), (1.6, 0.0), (0.8, 0.3)])
def test_factor_and_move_are_found(truth: float, move: float) -> None:
    """Within a twentieth, from sums with a noise of ten records."""
    factor, moved = corrected(truth, move, 10.0, 0)
    assert factor == pytest.approx(truth, abs=0.05)
    assert moved == pytest.approx(move, abs=0.05)


def test_sums_that_tell_nothing_change_nothing() -> None:
    """Under noise of a hundred times the records the model stays as it is, nearly."""
    for seed in range(5):
        factor, moved = corrected(0.3, 1.0, 2e6, seed)
        assert factor == pytest.approx(1, abs=0.05) and moved == pytest.approx(0, abs=0.05)


def test_scores_that_are_all_alike_are_left() -> None:
    """There is nothing to multiply."""
    assert (
        PlattScaling.from_scores(Outcome("binary"), START, np.zeros((50, 1)), np.ones(50)) is None
    )


def test_cut_offs_rise_where_many_scores_are_alike() -> None:
    """Nine in ten made-up records with the same score, three classes."""
    added = np.zeros((100, 3))
    added[:10] = np.random.default_rng(0).normal(size=(10, 3))
    found = PlattScaling.from_scores(Outcome("classes", 3, 0, 2), np.zeros(3), added, np.ones(100))
    assert found is not None and (np.diff(found.cuts, axis=1) > 0).all()


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_given_mean_predictions_are_met(kind: str) -> None:
    """Over weighted records, also where scores vary by more than the classes' odds."""
    rng = np.random.default_rng(0)
    outcome = Outcome("binary") if kind == "binary" else Outcome("classes", 3)
    means = np.array([0.013]) if kind == "binary" else np.array([0.9, 0.09, 0.01])
    added = rng.normal(0.5, 1.5, (2_000, outcome.classes))
    shares = rng.uniform(0.5, 1.5, 2_000)
    intercept = with_means(means, outcome, outcome.start(means), added, shares)
    assert shares @ outcome.predictions(intercept + added) / shares.sum() == pytest.approx(means)
    assert intercept.shape == (outcome.classes,)


def test_no_rounds_leave_the_intercept() -> None:
    """Without functions every record has the share already."""
    means, added = np.array([0.02]), np.zeros((10, 1))
    start = Outcome("binary").start(means)
    assert with_means(means, Outcome("binary"), start, added, np.ones(10)) == pytest.approx(start)
