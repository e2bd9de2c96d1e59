"""Where the mass is: counts that records explain, and bins that follow tails."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from privfed.learners.private.grid import one_bin_each
from privfed.learners.private.marginals import ColumnEstimate, project, total_of
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.support_posterior import with_full_bins
from privfed.tables.schema import Column

WIDE = Column("y", "number", 0, 1000)


@given(
    counts=st.lists(st.floats(-100, 100), min_size=1, max_size=12),
    total=st.floats(1, 200),
)
def test_held_counts_are_the_nearest_that_records_explain(
    counts: list[float], total: float
) -> None:
    """None negative, no more than the total together, and no other such counts are nearer."""
    noisy = np.array(counts)
    found = project(noisy, total)
    assert (found >= 0).all() and found.sum() <= total * (1 + 1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = rng.dirichlet(np.ones(len(noisy))) * total * rng.random()
        assert ((found - noisy) ** 2).sum() <= ((other - noisy) ** 2).sum() + 1e-6


@given(
    low=st.floats(-1e16, 1e16),
    width=st.floats(1e-9, 1e12),
    kind=st.sampled_from(["number", "integer"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_bin_has_a_width_however_far_from_zero_the_bounds_are(
    low: float, width: float, kind: Literal["number", "integer"], seed: int
) -> None:
    """As a fraction of the bounds, in each of three rounds, of which the next is made from noisy counts."""
    if kind == "integer":
        low, width = float(np.floor(low)), float(np.ceil(width))
    assume(low + width > low)
    column = Column("x", kind, low, low + width)
    assume(not one_bin_each(column))
    rng, found = np.random.default_rng(seed), ColumnEstimate.in_an_interval(column)
    for _ in range(3):
        assert (np.diff(found.positions) > 0).all()
        noisy = np.round(rng.dirichlet(np.full(len(found.counts), 0.2)) * 600)
        found = found.updated(noisy, 25.0, 600)
        assert np.isfinite(found.counts).all()
        found = found.closer(64)


def test_a_mass_in_one_bin_is_not_spread_by_noise() -> None:
    """2,400 records in the first of 16 bins, noise of 100: the mean stays near the first bin."""
    rng = np.random.default_rng(0)
    means = []
    for _ in range(20):
        noisy = rng.normal(0, 100, 16)
        noisy[0] += 2400
        shares = ColumnEstimate.blank(WIDE).updated(noisy, 100.0**2, 2400).shares
        means.append(float(shares @ (np.arange(16) + 0.5)))
    assert np.mean(means) < 2.0  # of 16 bins; cut at zero alone, the noise makes it 3.2 and more


def test_even_columns_come_out_evener_than_their_noise() -> None:
    """The power twin of the above: where all bins are alike, half of the noise's square is gone."""
    rng, left = np.random.default_rng(1), []
    for _ in range(20):
        noisy = 150 + rng.normal(0, 100, 16)
        counts = ColumnEstimate.blank(WIDE).updated(noisy, 100.0**2, 2400).counts
        left.append(((counts - 150) ** 2).sum() / ((noisy - 150) ** 2).sum())
    assert np.mean(left) < 0.5


def test_three_looks_find_the_tail_of_a_heavy_column() -> None:
    """The 99 % quantile of log-normal values is found within a factor of two, not the bound."""
    values = np.exp(np.random.default_rng(2).normal(0, 1.5, 5000)).clip(0, 1000)
    own = ColumnEstimate.blank(WIDE)
    for _ in range(3):
        counts = np.bincount(np.searchsorted(own.cuts, values, side="right"))
        padded = np.pad(counts, (0, len(own.cuts) + 1 - len(counts)))
        known, own = own.updated(padded, 1.0, 5000), own.updated(padded, 1.0, 5000).closer(16)
    told, true = float(known.quantiles(np.array([0.99]))[0]), float(np.quantile(values, 0.99))
    assert true / 2 < told < 2 * true


def test_noise_hides_no_fractions_without_a_support_or_a_fraction() -> None:
    """Then all bins keep their own."""
    noisy = np.r_[2400.0, np.zeros(15)]
    for blank, fraction in ((ColumnEstimate.blank(WIDE), 1), (ColumnEstimate.of_target(WIDE), -1)):
        own = blank.updated(noisy, 1.0, 2400)
        assert own.within_support(2400, fraction, 0.05).shares == pytest.approx(own.shares)


@pytest.mark.parametrize("place", [0, 8, 15])
def test_a_target_in_one_bin_of_its_bounds_is_found_under_noise(place: int) -> None:
    """400 records in one of 16 bins, noise of 60: hardly any fraction is far from it, where even bounds have most."""
    rng, found, counted = np.random.default_rng(place), [], []
    for _ in range(20):
        noisy = rng.normal(0, 60, 16)
        noisy[place] += 400
        own = ColumnEstimate.of_target(WIDE).updated(noisy, 60.0**2, 400)
        near = np.abs(np.arange(16) - place) < 2
        found.append(own.within_support(400, 0.4, 0.05).shares[~near].sum())
        counted.append(own.shares[~near].sum())
    assert np.mean(found) < 0.05 < np.mean(counted)


def test_a_target_of_few_whole_values_is_found_under_noise() -> None:
    """400 records of value 0 among 0 to 15: their bin, though the last one has no width."""
    noisy = np.random.default_rng(1).normal(0, 60, 16)
    noisy[0] += 400
    own = ColumnEstimate.of_target(Column("y", "integer", 0, 15)).updated(noisy, 60.0**2, 400)
    assert own.within_support(400, 0.4, 0.05).shares[:4].sum() > 0.95 > own.shares[:4].sum()


def test_whole_numbers_to_predict_share_bins_until_their_mass_is_located() -> None:
    """400 records at 8 to 12 of 1 to 29, noise of 60 in two rounds: a bin each has more noise in the mean."""
    column, rng = Column("y", "integer", 1, 29), np.random.default_rng(2)
    y = rng.integers(8, 13, 400)
    errors = []
    for blank in (ColumnEstimate.of_target(column), ColumnEstimate.blank(column)):
        for _ in range(100):
            own = blank
            for finer in (False, True):
                own = own.closer(6) if finer else own
                exact = np.bincount(
                    np.searchsorted(own.cuts, y, side="right"), minlength=len(own.counts)
                )
                own = own.updated(exact + rng.normal(0, 60, len(exact)), 60.0**2, 400)
            errors.append(own.shares @ (own.cells[:-1] + own.cells[1:]) / 2 - y.mean())
    shared, single = np.abs(errors).reshape(2, 100).mean(axis=1)
    assert shared < 0.8 * single
    assert len(ColumnEstimate.of_target(column).cuts) == 15
    last = ColumnEstimate.of_target(column).updated(np.r_[np.zeros(15), 400.0], 1e-9, 400)
    assert 28 in last.closer(16).cuts


@pytest.mark.parametrize("others", [np.r_[np.zeros(14), 1.0], np.full(15, 1 / 15)])
def test_a_target_that_is_often_zero_keeps_its_bounds_under_noise(others: np.ndarray) -> None:
    """Half of 400 records at one end, the others at the other end or all over, noise of 30: both halves are kept."""
    rng, kept = np.random.default_rng(4), []
    for _ in range(20):
        noisy = 200 * np.r_[1.0, others] + rng.normal(0, 30, 16)
        own = ColumnEstimate.of_target(WIDE).updated(noisy, 30.0**2, 400)
        kept.append(own.within_support(400, 0.1, 0.05).shares[1:].sum())
    assert min(kept) > 0.25


def test_limits_of_whole_numbers_are_values_that_records_have() -> None:
    """Zeros and ones, and few others; also if all are 0, and in bins of several values."""
    few, many = Column("y", "integer", 0, 15), Column("y", "integer", -5, 1000)
    counts = np.r_[400.0, 400, 200, np.zeros(13)]
    own = ColumnEstimate.of_target(few).updated(counts, 1e-9, 1000)
    assert own.limits(0.002) == (0, 2) and own.limits(0.25) == (0, 1)
    own = ColumnEstimate.of_target(few).updated(np.r_[1000.0, np.zeros(15)], 1e-9, 1000)
    assert own.limits(0.002) == (0, 1)
    low, high = ColumnEstimate.of_target(many).limits(0.0)
    assert (low, high) == (-5, 1000)
    assert np.allclose(np.diff(ColumnEstimate.of_target(few).cells), 1)


def test_a_target_all_over_its_bounds_keeps_them_under_noise() -> None:
    """400 records evenly in 16 bins, noise of 60: nearly all of the bounds remain between the quantiles."""
    rng, widths = np.random.default_rng(3), []
    for _ in range(20):
        noisy = 25 + rng.normal(0, 60, 16)
        own = (
            ColumnEstimate.of_target(WIDE)
            .updated(noisy, 60.0**2, 400)
            .within_support(400, 0.4, 0.05)
        )
        low, high = own.quantiles(np.array([0.05, 0.95]))
        widths.append((high - low) / (own.edges[-1] - own.edges[0]))
    assert np.mean(widths) > 0.7


def test_the_total_weighs_columns_by_their_noise() -> None:
    """A column of half the variance counts twice, and one of half the bins too."""
    rows = [np.full(4, 25.0), np.full(2, 60.0)]
    assert total_of(rows, [1.0, 1.0])[0] == pytest.approx((100 + 2 * 120) / 3)
    assert total_of(rows, [1.0, 2.0])[0] == pytest.approx(110)
    assert total_of(rows, [1.0, 2.0])[1] == pytest.approx(2)


def test_counts_without_any_noise_are_taken_as_they_are() -> None:
    """Twice over the same grid: certain counts leave nothing to be weighed, and divide nothing by nothing."""
    counts = np.r_[30.0, np.zeros(14), 10.0]
    own = ColumnEstimate.blank(WIDE)
    with np.errstate(all="raise"):
        for _ in range(3):
            own = own.updated(counts, 0.0, 40)
    assert own.counts == pytest.approx(counts)


@pytest.mark.parametrize("values", [(0.0,), (0.4,), (0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0)])
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_columns_of_few_values_have_no_mass_elsewhere(values: tuple[float, ...], kind: str) -> None:
    """Noise counts 30 records or so in each of 20 to 36 bins: those without records have a fortieth at most."""
    column = Column("x", kind, 0, 1 if kind == "number" else 20)  # type: ignore[arg-type]
    rng, at = np.random.default_rng(3), np.array(values) * column.bounds[1]
    records = rng.choice(at, 3000)
    for _ in range(5):
        own = ColumnEstimate.in_an_interval(column)
        for look in range(3):
            own = own.closer(32) if look else own
            counts = np.bincount(np.searchsorted(own.cuts, records, side="right"))
            counts = np.pad(counts, (0, len(own.cuts) + 1 - len(counts)))
            own = own.updated(counts + rng.normal(0, 30, len(counts)), 30.0**2, 3000)
        full = np.unique(np.searchsorted(own.cuts, at, side="right"))
        sharp = own.sharpened(3000)
        phantoms = [1 - one.shares[full].sum() for one in (own, sharp)]
        assert phantoms[1] < min(0.03, phantoms[0] / 2)
        assert np.ptp(sharp.shares[full]) < 0.1


def test_columns_that_fill_their_bins_stay_as_they_are() -> None:
    """The power twin: of a normal column, no bin is emptied, and the estimate is no worse."""
    rng, errors = np.random.default_rng(4), []
    for _ in range(10):
        records = rng.normal(0.5, 0.15, 3000).clip(0, 1)
        own = ColumnEstimate.in_an_interval(Column("x", "number", 0, 1))
        for look in range(3):
            own = own.closer(32) if look else own
            counts = np.bincount(
                np.searchsorted(own.cuts, records, side="right"), minlength=len(own.cuts) + 1
            )
            own = own.updated(counts + rng.normal(0, 30, len(counts)), 30.0**2, 3000)
        each = [np.abs(one.shares - counts / 3000).sum() for one in (own, own.sharpened(3000))]
        errors.append(each)
    before, after = np.mean(errors, axis=0)
    assert after < before + 0.005


def test_with_full_bins_is_the_posterior_of_its_mixture() -> None:
    """An oracle: the mean over all assignments of three bins to the two kinds, by hand."""
    noisy, v = np.array([0.7, 0.05, 0.3]), 0.01
    expected, spread = np.full((1, 3), 1 / 3), np.full((1, 3), 1 / 9)
    found = with_full_bins(noisy, v, expected, spread, np.zeros(1))
    pairs = [(w, f) for w in SETTINGS.low_fractions for f in SETTINGS.low_factors]
    total, mean = 0.0, np.zeros(3)
    prior = [(1 - SETTINGS.full_bins, 0.0, 1.0)]
    prior += [(SETTINGS.full_bins / len(pairs), *pair) for pair in pairs]
    for chance, w, f in prior:
        for low in product((True, False), repeat=3):
            factor = np.where(low, f, (1 - f * w) / (1 - w))
            m, s = factor / 3, (factor / 3) ** 2
            likely = chance * np.prod(np.where(low, w, 1 - w))
            likely *= np.prod(np.exp(-((noisy - m) ** 2) / (s + v) / 2) / np.sqrt(s + v))
            total += likely
            mean += likely * np.maximum(m + s / (s + v) * (noisy - m), 0)
    assert np.allclose(found, mean / total)
