"""Bounds that are too wide: intervals tell where the mass is though no bin does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.learners.private.marginals import ColumnEstimate
from privfed.learners.private.support_posterior import SupportPosterior, shared
from privfed.tables.schema import Column

EDGES = np.linspace(0, 1, 17)
WIDE = Column("x", "number", -500, 600)


def told(values: np.ndarray, noise: float, rng: np.random.Generator) -> ColumnEstimate:
    """Three looks at values in bounds from -500 to 600."""
    own = ColumnEstimate.in_an_interval(WIDE)
    for look in range(3):
        own = own.closer(12) if look else own
        bins = len(own.cuts) + 1
        counts = np.bincount(np.searchsorted(own.cuts, values, side="right"), minlength=bins)
        own = own.updated(counts + rng.normal(0, noise, bins), noise**2, len(values))
    return own


@given(seed=st.integers(0, 2**32), bins=st.integers(1, 40))
def test_shares_below_rise_from_none_to_all(seed: int, bins: int) -> None:
    """Over any edges, under every interval, before and after noisy counts."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0.0], np.sort(rng.uniform(0.01, 0.99, bins - 1)), [1.0]])
    blank = SupportPosterior.blank(EDGES)
    joined = blank.updated(rng.normal(0, 1, 16), 0.1)
    for own in (blank, joined):
        finer = own.over(edges)
        assert (finer.shares >= -1e-12).all()
        assert np.allclose(finer.shares.sum(axis=1), own.shares.sum(axis=1))
        assert own.probabilities.sum() == pytest.approx(1) and (own.probabilities >= 0).all()


def test_counts_are_joined_as_gaussians_are() -> None:
    """Under each interval: prior N(m, max(m, 1/16)^2), noise v, and the marginal likelihood of both."""
    blank, variance = SupportPosterior.blank(EDGES), 0.3
    noisy = np.random.default_rng(0).normal(0, 1, 16)
    found = blank.updated(noisy, variance)
    for k in (0, 5, 200):
        mean, prior = blank.shares[k], np.maximum(blank.shares[k], 1 / 16) ** 2
        wanted = (mean / prior + noisy / variance) / (1 / prior + 1 / variance)
        assert np.allclose(found.shares[k], np.maximum(wanted, 0))
    each = np.maximum(blank.shares, 1 / 16) ** 2 + variance
    logs = -((noisy - blank.shares) ** 2 / each + np.log(each)).sum(axis=1) / 2
    moved = found.logs - blank.logs
    assert np.allclose(moved - moved[0], logs - logs[0])


def test_a_mass_that_no_single_bin_shows_is_found() -> None:
    """400 values in an eleventh of the bounds, noise of 100 in each count: ranks follow the values."""
    rng, ranks = np.random.default_rng(1), []
    for _ in range(10):
        values = rng.uniform(0, 100, 400)
        own = told(values, 100, rng)
        reached = (own.cdf[:-1] + own.cdf[1:] - 1)[np.searchsorted(own.cuts, values, side="right")]
        ranks.append(float(np.std(reached)) * np.sqrt(3))  # 1 where ranks are even, 1/11 if unknown
    assert np.mean(ranks) > 0.6


def test_tight_bounds_are_not_taken_for_wide_ones() -> None:
    """The twin of the above: even values keep quantiles within a fifth of the bounds of where they are."""
    rng, far = np.random.default_rng(2), []
    for _ in range(10):
        own = told(rng.uniform(-500, 600, 400), 100, rng)
        found = own.quantiles(np.array([0.1, 0.5, 0.9]))
        far.append(np.abs(found - np.array([-390, 50, 490])).max() / 1100)
    assert np.mean(far) < 0.2


def test_columns_tell_each_other_how_wide_bounds_are() -> None:
    """Where nine columns lie in an eighth of their bounds, a tenth of which little is told does likelier."""
    clear = np.zeros(16)
    clear[6:8] = 0.5
    known = [SupportPosterior.blank(EDGES).updated(clear, 0.01) for _ in range(9)]
    vague = SupportPosterior.blank(EDGES).updated(clear, 4.0)
    together = shared([*known, vague])[-1]
    assert vague.narrow < 0.7 < together.narrow
    assert shared([vague])[0].narrow == pytest.approx(vague.narrow)
