"""Cut-offs, limits and scales off histograms, with and without noise."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import Note, QueryError
from privfed.learners.rulefit.cutoffs import Cutoffs, distribution, inner_edges, read_cutoffs
from privfed.tables.schema import Column, Schema

NUMBER = Column("x", "number", 0, 10)


def counts_of(values: np.ndarray, column: Column, bins: int) -> np.ndarray:
    """A client's exact histogram."""
    inner = inner_edges(column, bins)
    return np.bincount(np.searchsorted(inner, values, side="right"), minlength=len(inner) + 1)


def test_linear_terms_follow_the_papers_formula() -> None:
    """0.4 l(x) / s, winsorised (Eq. 1), but for a constant."""
    cutoffs = Cutoffs(((5.0,),), np.array([2.0]), np.array([8.0]), np.array([1.5]))
    terms = cutoffs.linear(np.array([[0.0], [2.0], [5.0], [9.0]]))[:, 0]
    assert terms - terms[0] == pytest.approx(0.4 * np.array([0, 0, 3, 6]) / 1.5)


def test_scales_are_the_same_on_every_machine() -> None:
    """Sums are exact before they are rounded; a dot product's last bit hangs on the processor."""
    edges = np.linspace(0, 10, 251)
    for seed in range(50):
        values = np.random.default_rng(seed).gamma(2, 1, 997).clip(0, 10)
        counts = counts_of(values, NUMBER, 250)
        found = read_cutoffs(counts[None], Schema((NUMBER,)), 250, 9)
        masses = np.diff(distribution(counts, np.ones(250))[0])
        held = np.clip((edges[:-1] + edges[1:]) / 2, found.lower[0], found.upper[0])
        mean = float(sum(map(Fraction, masses * held)))
        assert found.scale[0] == math.sqrt(sum(map(Fraction, masses * (held - mean) ** 2)))


def test_cutoffs_follow_the_papers_formula() -> None:
    """min of the bin ends whose share reaches q / (Q + 1), bin by bin."""
    values = np.random.default_rng(0).uniform(0, 10, 997)
    counts = counts_of(values, NUMBER, 50)
    cutoffs = read_cutoffs(counts[None], Schema((NUMBER,)), 50, 9)
    ends, shares = np.linspace(0, 10, 51)[1:], np.cumsum(counts) / counts.sum()
    expected = [
        min(end for end, share in zip(ends, shares, strict=True) if share >= q / 10)
        for q in range(1, 10)
    ]
    assert cutoffs.cuts[0] == pytest.approx(sorted(set(expected)))
    assert cutoffs.lower[0] <= np.quantile(values, 0.025) <= cutoffs.lower[0] + 0.2
    assert cutoffs.upper[0] - 0.2 <= np.quantile(values, 0.975) <= cutoffs.upper[0]
    winsorised = np.clip(values, cutoffs.lower[0], cutoffs.upper[0])
    assert cutoffs.scale[0] == pytest.approx(winsorised.std(), rel=0.01)


def test_integers_and_categories_get_whole_edges() -> None:
    """GCS >= 5 and not GCS >= 4.87; a bin for each category."""
    assert inner_edges(Column("GCS", "integer", 3, 15), 100).tolist() == list(range(4, 16))
    assert inner_edges(Column("c", "category", categories=("a", "b", "c")), 2).tolist() == [1, 2]
    wide = inner_edges(Column("n", "integer", 0, 1000), 20)
    assert len(wide) <= 19
    assert (wide == np.round(wide)).all()


@given(st.lists(st.integers(-40, 60), min_size=2, max_size=30))
def test_a_noisy_distribution_still_rises_from_zero_to_one(noisy: list[int]) -> None:
    """Negative counts never make a share fall or leave [0, 1]."""
    reached, lost = distribution(np.array(noisy), np.ones(len(noisy)))
    assert reached[0] == 0
    assert reached[-1] == pytest.approx(1)
    assert (np.diff(reached) >= -1e-12).all()
    assert lost == (sum(noisy) <= 0)


def test_all_negative_counts_warn_and_give_even_cutoffs() -> None:
    """The budget was too small for so many bins; quantiles are still defined."""
    with pytest.warns(UserWarning, match="budget is too small for 20 bins"):
        cutoffs = read_cutoffs(np.full((1, 20), -3), Schema((NUMBER,)), 20, 4)
    assert cutoffs.cuts[0] == pytest.approx((2.0, 4.0, 6.0, 8.0))
    cutoffs.check(Schema((NUMBER,)))


def test_what_bins_can_tell_apart_is_no_reason_to_warn() -> None:
    """Most records in one bin of numbers are; classes and counts that are mostly 0 are not."""
    kinds = Column("c", "category", categories=("a", "b"))
    for column in (NUMBER, kinds, Column("n", "integer", 0, 9)):
        values = np.r_[
            np.zeros(85 if column is NUMBER else 99), np.ones(15 if column is NUMBER else 1)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_cutoffs(counts_of(values, column, 20)[None], Schema((column,)), 20, 4)


def test_cutoffs_that_collapse_stay_valid() -> None:
    """A constant covariate has one cut-off or none, and a positive scale; one bin holds all of it."""
    counts = counts_of(np.full(100, 3.3), NUMBER, 10)
    with pytest.warns(Note, match="^by its histogram, more than 90 %.* one bin of 'x', which"):
        cutoffs = read_cutoffs(counts[None], Schema((NUMBER,)), 10, 20)
    two = Schema((NUMBER, Column("z", lower=0, upper=10)))
    with pytest.warns(Note, match=r"one bin of 'x' \(and of 1 more\), which"):
        read_cutoffs(np.tile(counts, (2, 1)), two, 10, 20)
    cutoffs.check(Schema((NUMBER,)))
    assert len(cutoffs.cuts[0]) == 1
    assert cutoffs.scale[0] > 0


@given(
    upper=st.integers(1, 200),
    held=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 10**6)), min_size=1, max_size=3),
    kind=st.sampled_from(["integer", "number"]),
)
def test_nearly_constant_covariates_give_cutoffs_that_clients_admit(
    upper: int, held: list[tuple[int, int]], kind: str
) -> None:
    """Whatever rounding makes of a spread that is none."""
    column = Column("x", kind, 0, upper)  # type: ignore[arg-type]
    counts = np.zeros(len(inner_edges(column, 100)) + 1)
    for place, count in held:
        counts[place % len(counts)] += count
    schema = Schema((column,))
    read_cutoffs(counts[None], schema, 100, 20).check(schema)


@pytest.mark.filterwarnings("ignore::privfed.errors.Note")
@pytest.mark.parametrize("records", [100, 600, 2000])
def test_linear_terms_of_one_crowded_bin_are_no_longer_than_others(records: int) -> None:
    """Whatever the noise: no term is beyond two, the middle being zero."""
    schema = Schema((Column("still", lower=0, upper=5),))
    for seed in range(50):
        rng = np.random.default_rng(seed)
        counts = np.rint(rng.laplace(0, 1, (1, 100)))
        counts[0, 40] += records
        cutoffs = read_cutoffs(counts, schema, 100, 20)
        assert np.abs(cutoffs.linear(np.array([[0.0], [2.02], [5.0]]))).max() <= 2 + 1e-9


def test_codes_agree_with_comparisons() -> None:
    """x >= cuts[k] exactly if code > k, on the cuts themselves too."""
    cutoffs = Cutoffs(((1.0, 2.0),), np.zeros(1), np.ones(1), np.ones(1))
    x = np.array([[0.5], [1.0], [1.5], [2.0], [9.0]])
    assert cutoffs.codes(x)[:, 0].tolist() == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "broken",
    [
        Cutoffs(((2.0, 1.0),), np.zeros(1), np.ones(1), np.ones(1)),
        Cutoffs(((float("nan"),),), np.zeros(1), np.ones(1), np.ones(1)),
        Cutoffs(((1.0,),), np.array([np.nan]), np.ones(1), np.ones(1)),
        Cutoffs(((1.0,),), np.zeros(1), np.ones(1), np.zeros(1)),
        Cutoffs(((1.0,), ()), np.zeros(1), np.ones(1), np.ones(1)),
        Cutoffs(((1.0,),), np.zeros(1), np.full(1, 1e300), np.ones(1)),
        Cutoffs(((1.0,),), np.ones(1), np.zeros(1), np.ones(1)),
        Cutoffs(((1.0,),), np.zeros(1), np.ones(1), np.full(1, 1e-300)),
    ],
)
def test_malformed_cutoffs_are_refused(broken: Cutoffs) -> None:
    """Cut-offs that fall, NaN, a scale of zero, other covariates, sizes that overflow."""
    with pytest.raises(QueryError):
        broken.check(Schema((NUMBER,)))
