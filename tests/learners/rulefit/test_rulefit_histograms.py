"""Noisy histograms: covariates that agree on the number of records, and no more bins than bearable."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import RuleFitClassifier
from privfed.learners.rulefit.cutoffs import Cutoffs, distribution
from privfed.learners.rulefit.histograms import COARSE_BINS, Marginal, bearable_bins, consistent

SCHEMA = Schema(
    tuple(Column(name, "number", -4, 4) for name in "abcd"), Column("y", "integer", 0, 1)
)


def marginal(total: float, spread: float) -> Marginal:
    """What a coarse histogram of four covariates said."""
    return Marginal(np.ones((4, COARSE_BINS)), {}, 1.0, spread, total, COARSE_BINS)


def federation(records: int, epsilon: str) -> LocalDisclosure:
    """Two clients under a private policy."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(records, 4)).clip(-4, 4), columns=list("abcd"))
    frame = frame.assign(y=(frame["a"] > 0).astype(int), client=rng.choice(["A", "B"], records))
    policy = RuleFitClassifier().private(epsilon)
    return LocalDisclosure.from_frame(frame, "y", "client", schema=SCHEMA, policy=policy, seed=1)


@settings(max_examples=50)
@given(st.lists(st.integers(2, 6), min_size=1, max_size=4), st.integers(0, 10**6))
def test_agreement_is_least_squares_under_equal_totals(bins: list[int], seed: int) -> None:
    """The nearest counts whose rows add up alike; against a general solver."""
    real, noisy = np.array(bins), np.random.default_rng(seed).normal(5, 9, (len(bins), 6))
    moved, total = consistent(noisy, real)
    member = np.repeat(np.eye(len(bins)), bins, axis=1)
    alike = member[:-1] - member[1:]
    flat = np.concatenate([noisy[row, :k] for row, k in enumerate(bins)])
    nearest = flat - np.linalg.pinv(alike) @ alike @ flat if len(bins) > 1 else flat
    found = np.concatenate([moved[row, :k] for row, k in enumerate(bins)])
    assert found == pytest.approx(nearest, abs=1e-8)
    assert total == pytest.approx(max(1.0, float(moved[0].sum())))


def test_the_agreed_total_is_as_precise_as_all_covariates_together() -> None:
    """Nine covariates of forty bins: a third of the noise that one covariate's total has."""
    rng = np.random.default_rng(0)
    noisy = 25.0 + rng.normal(0, 15, (400, 9, 40))
    agreed = np.std([consistent(counts, np.full(9, 40))[1] for counts in noisy])
    single = np.std([counts[0].sum() for counts in noisy])
    assert agreed == pytest.approx(15 * np.sqrt(40 / 9), rel=0.15)
    assert single == pytest.approx(15 * np.sqrt(40), rel=0.15)


def test_bins_that_a_budget_bears() -> None:
    """B counts add up with noise s sqrt(B), a tenth of the records at most."""
    assert bearable_bins(marginal(1000, 10)) == 100
    assert bearable_bins(marginal(1000, 100)) == 1


@pytest.mark.parametrize(("records", "epsilon", "asked"), [(6000, "4", 2), (300, "1", 1)])
def test_a_second_histogram_is_asked_for_where_it_is_worth_it(
    records: int, epsilon: str, asked: int
) -> None:
    """Either way the whole budget is used, and never more."""
    gates = federation(records, epsilon)
    RuleFitClassifier(random_state=0).fit(gates)
    kinds = [entry.kind for entry in gates.transcript()]
    assert kinds.count("rulefit.marginals") == 2 * asked
    spent = gates.budget()["spent"]
    assert (spent <= float(epsilon)).all()
    assert (spent > 0.99 * float(epsilon)).all()


def test_counts_that_are_all_negative_give_even_cutoffs_and_a_warning() -> None:
    """Nobody's records can be told from the noise: fifty bins' worth of nothing."""
    moved, total = consistent(np.full((4, 50), -3.0), np.full(4, 50))
    assert total == 1.0
    reached, lost = distribution(moved[0], np.ones(50))
    assert lost
    assert reached == pytest.approx(np.linspace(0, 1, 51))


def test_limits_move_to_the_bounds_as_noise_grows() -> None:
    """Halfway where the noise in a covariate's counts is half the records; never beyond."""
    assert marginal(1000, 125).noise_share == 0.5
    assert marginal(1000, 1e9).noise_share == 1.0
    ends = np.full(4, -1.0), np.full(4, 2.0)
    cutoffs = Cutoffs(((0.0,),) * 4, *ends, np.ones(4))
    halfway = cutoffs.widened(SCHEMA, 0.5)
    assert halfway.lower == pytest.approx(np.full(4, -2.5))
    assert halfway.upper == pytest.approx(np.full(4, 3.0))
    assert cutoffs.widened(SCHEMA, 0.0).lower == pytest.approx(cutoffs.lower)
