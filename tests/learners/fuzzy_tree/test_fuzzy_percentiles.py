"""Percentiles in rounds: how exact they are, what noise leaves of them, and what an outlier does."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import QueryError
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.percentiles import (
    Histograms,
    ScalingBounds,
    rounds,
    widened,
)
from privfed.learners.fuzzy_tree.queries import Scaling
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.questions.query import View
from privfed.tables.records import Records

FAR = 1e4
SCHEMA = Schema(
    (Column("tail", "number", 0, FAR), Column("even", "number", 0, 1)),
    Column("y", "number", -5, 5),
)


def table(rows: int, seed: int) -> pd.DataFrame:
    """A column whose records nearly all lie in a thousandth of its bounds, and one that is even."""
    rng = np.random.default_rng(seed)
    tail, even = rng.lognormal(0, 0.8, rows), rng.uniform(0, 1, rows)
    y = np.clip(np.log(tail) + even + rng.normal(0, 0.2, rows), -5, 5)
    return pd.DataFrame({"tail": tail, "even": even, "y": y, "client": np.arange(rows) % 3})


def gated(frame: pd.DataFrame, learner: FuzzyTreeRegressor) -> LocalDisclosure:
    """A federation under the learner's published policy."""
    return LocalDisclosure.from_frame(
        frame, "y", client="client", schema=SCHEMA, policy=learner.published()
    )


def error(model: FuzzyTreeRegressor, frame: pd.DataFrame) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((model.predict(frame) - frame["y"]) ** 2)))


def exact(counts: list[list[int]], edges: list[list[float]], *ends: float) -> Histograms:
    """Histograms without noise."""
    return Histograms(np.array(counts), np.array(edges), np.zeros(len(counts)), (ends[0], ends[1]))


def test_percentiles_are_read_off_histograms() -> None:
    """Linear inside a bin; nothing at all gives the bounds."""
    edges = [[0.0, 1, 2, 3, 4]] * 2
    lower, upper = exact([[0, 10, 10, 0], [0, 0, 0, 0]], edges, 0.25, 0.75).percentiles()
    assert lower == pytest.approx([1.5, 0.0]) and upper == pytest.approx([2.5, 4.0])


@pytest.mark.parametrize("bins", [7, 16, 32, 256])
def test_percentiles_are_exact_to_a_millionth_of_the_bounds(bins: int) -> None:
    """Whatever the column's shape, they lie where as many records lie beyond them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"tail": rng.lognormal(0, 2, 999), "even": rng.normal(0.5, 0.1, 999)})
    frame = frame.assign(y=0.0).clip(upper=FAR)
    model = FuzzyTreeRegressor(n_bins=bins).fit(UngatedDisclosure.from_frame(frame, SCHEMA))
    for place, name in enumerate(("tail", "even")):
        ordered = np.sort(frame[name].to_numpy())
        slack = 1e-6 * (FAR if name == "tail" else 1)
        assert ordered[24] - slack <= model.lower_[place] <= ordered[25] + slack
        assert ordered[-26] - slack <= model.upper_[place] <= ordered[-25] + slack
    assert rounds(bins) >= 4 and rounds(2) == 1


@settings(max_examples=10)
@given(seed=st.integers(0, 2**20), push=st.floats(0, 1))
def test_an_outlier_moves_nobody_elses_prediction(seed: int, push: float) -> None:
    """A record's largest value pushed towards the far bound leaves the others where they were."""
    frame = table(200, seed)
    last = int(frame["tail"].argmax())
    far = frame.copy()
    pushed_to = float(frame["tail"].max()) * (1 - push) + push * FAR
    far["tail"] = far["tail"].where(np.arange(len(far)) != last, pushed_to)
    rest = frame.drop(index=last)
    near, after = (
        FuzzyTreeRegressor().fit(UngatedDisclosure.from_frame(f, SCHEMA)).predict(rest)
        for f in (frame, far)
    )
    assert np.abs(near - after).mean() < 0.01 * frame["y"].std()


def test_a_heavy_tail_costs_a_nullified_tree_nothing() -> None:
    """Bounds a thousand times as wide as the records, and hardly any branch is hidden."""
    train, test = table(900, 0), table(400, 1)
    published = FuzzyTreeRegressor().fit(gated(train, FuzzyTreeRegressor()))
    pooled = FuzzyTreeRegressor().fit(UngatedDisclosure.from_frame(train, SCHEMA))
    assert error(published, test) < 1.05 * error(pooled, test) < 0.5 * test["y"].std()


def test_noisy_ends_are_those_of_what_is_likely() -> None:
    """Even counts stay even under moderate noise, and where all is noise the bounds stay."""
    counts, edges = np.full((1, 32), 100.0), np.linspace(0, 32, 33)[None]
    rng = np.random.default_rng(0)
    for noise, inside in ((0.0, 0.81), (30.0, 2.5)):
        lower, upper = Histograms(
            counts + rng.normal(0, noise, counts.shape), edges, np.array([noise])
        ).percentiles()
        assert 0 <= lower[0] <= inside and 32 - inside <= upper[0] <= 32
    drowned = Histograms(rng.normal(0, 500, (1, 32)), edges, np.array([500.0]))
    lower, upper = drowned.percentiles()
    assert upper[0] - lower[0] > 16


def test_a_crowded_first_bin_is_found_under_noise_that_hides_the_rest() -> None:
    """Eight hundred records in one bin, with noise of ninety in each."""
    counts = np.random.default_rng(0).normal(0, 90, (1, 32))
    counts[0, 0] += 800
    told = Histograms(counts, np.linspace(0, 32, 33)[None], np.array([90.0]))
    lower, upper = told.percentiles()
    assert 0 <= lower[0] < upper[0] <= 4


def test_an_interval_is_not_narrowed_by_noise() -> None:
    """Targets spread over their bounds stay between these, however noisy the counts."""
    edges = np.linspace(0, 1, 33)
    for noise in (20.0, 60.0, 120.0):
        cut = 0
        for seed in range(20):
            counts = 10 + np.random.default_rng(seed).normal(0, noise, (1, 32))
            lower, upper = Histograms(counts, edges[None], np.array([noise])).percentiles()
            cut += bool(
                widened(
                    float(lower[0]), float(upper[0]), bounds=(0, 1), share=SETTINGS.narrow_target
                )
            )
        assert cut <= 4, noise


def test_a_target_that_noise_hides_has_the_ends_of_its_probable_interval() -> None:
    """400 records in the first of 32 bins, noise of 60: mostly a few bins, where a feature's percentiles reach further."""
    edges, ends = np.tile(np.linspace(0, 32, 33), (2, 1)), []
    for seed in range(20):
        counts = np.random.default_rng(seed).normal(0, 60.0, (2, 32))
        counts[:, 0] += 400
        ends.append(Histograms(counts, edges, np.full(2, 60.0)).noisy_ends()[1])
    feature, target = np.median(ends, axis=0)
    assert target < 4 and feature > 6


def test_with_noise_a_crowded_corner_is_looked_at_again() -> None:
    """All records in one of many bins: the second round divides that bin, and no other."""
    counts = np.zeros((1, 16))
    counts[0, 0] = 5000
    told = Histograms(counts, np.linspace(0, 16, 17)[None], np.array([20.0]))
    again = told.refined()[0]
    assert (np.diff(again) >= 0).all() and (again <= 1).sum() == 16 and again[-1] == 16


def test_two_rounds_over_the_same_bins_are_averaged() -> None:
    """Their noise is that of a mean of two; other bins are taken as they are."""
    edges = np.array([[0.0, 1, 2], [0, 1, 2]])
    first = Histograms(np.array([[2.0, 4], [1, 1]]), edges, np.array([2.0, 2.0]))
    moved = np.array([[0.0, 1, 2], [0, 0.5, 2]])
    second = Histograms(np.array([[4.0, 2], [3, 3]]), moved, np.array([2.0, 2.0]))
    joined = second.with_former(first)
    assert joined.counts.tolist() == [[3, 3], [3, 3]]
    assert joined.noise == pytest.approx([2**0.5, 2.0])


def test_a_targets_interval_is_narrowed_only_where_that_is_worth_it() -> None:
    """A tenth of the bounds becomes three twentieths; half of them, and nothing at all, stay."""
    bounds = (0.0, 10.0)
    assert widened(1.0, 2.0, bounds=bounds, share=0.5) == (0.75, 2.25)
    assert widened(0.0, 1.0, bounds=bounds, share=0.5) == (0.0, 1.25)
    assert widened(2.0, 7.0, bounds=bounds, share=0.5) == ()
    assert widened(2.0, 2.0, bounds=bounds, share=0.5) == ()


@pytest.mark.parametrize(
    "edges",
    [
        ((0.0, 1.0, 2.0),),
        ((0.0, 1.0),) * 3,
        ((0.0, 2.0, 1.0),) * 3,
        ((0.0, float("nan"), 1.0),) * 3,
    ],
    ids=["too few columns", "too few edges", "falling", "no number"],
)
def test_edges_that_make_no_bins_are_refused(edges: tuple[tuple[float, ...], ...]) -> None:
    """Told from public values alone, before any record is looked at."""
    with pytest.raises(QueryError, match="edge"):
        Scaling(2, edges).parts(SCHEMA)


@given(
    x=st.lists(st.floats(0, FAR), min_size=1, max_size=8),
    edges=st.lists(st.floats(-9, FAR), min_size=4, max_size=4),
)
def test_every_record_has_one_bin_wherever_the_edges_lie(
    x: list[float], edges: list[float]
) -> None:
    """So one record more moves one count of each column by one, and L1 is their number."""
    query = Scaling(3, (tuple(sorted(edges)),) * 3)
    values = np.column_stack([x, np.clip(x, 0, 1)])
    records = Records(SCHEMA, values, np.clip(np.array(x), -5, 5))
    exact_counts = query.evaluate(View(records, SCHEMA))
    assert (exact_counts["counts"].sum(axis=1) == len(x)).all()
    assert exact_counts["target"].sum() == len(x)
    alone = query.contribution(View(records, SCHEMA))
    assert np.array_equal(alone["counts"].sum(axis=0), exact_counts["counts"])
    assert np.array_equal(alone["target"].sum(axis=0), exact_counts["target"])


def test_a_clip_is_wider_only_if_it_would_cut_off_most_of_the_variance() -> None:
    """For even counts the least; where a fortieth far away has nearly all, the multiple that cuts off half: by hand."""
    even = Histograms(np.full((1, 32), 100.0), np.linspace(0, 32, 33)[None], np.zeros(1))
    assert even.clip(0) == SETTINGS.clips[0]
    counts = np.zeros((1, 32))
    counts[0, [0, 31]] = 25, 975
    # deviations are 31 * .975 and 31 * .025, their variance 31^2 * .024375: squares in it 39 and 1 / 39
    wanted = np.sqrt(39 - SETTINGS.clipped_variance / 0.025)
    far = Histograms(counts, np.linspace(0, 32, 33)[None], np.zeros(1))
    assert far.clip(0) == pytest.approx(wanted, abs=0.1) and 4 < far.clip(0) < SETTINGS.clips[1]
    far.counts[0, 0] = 1
    assert replace(far).clip(0) == SETTINGS.clips[1]


def test_a_targets_interval_reaches_few_records_that_noise_does_not_explain() -> None:
    """Two in a hundred, beyond the percentile; not as few as noise explains, nor beyond a refined range."""
    counts = np.zeros((2, 32))
    counts[:, 20:24], counts[:, 2] = 1000, 80
    edges = np.tile(np.linspace(0, 32, 33), (2, 1))
    for noise, low in ((5.0, 2.0), (40.0, 19.0)):
        lower, upper = Histograms(counts, edges, np.full(2, noise)).noisy_ends()
        assert lower[-1] == pytest.approx(low, abs=1.2) and 23 < upper[-1] < 27
        assert lower[0] > 15
    edges[-1] = np.concatenate([[0.0], np.linspace(19, 24, 31), [32.0]])
    counts[-1] = 0
    counts[-1, 5:20], counts[-1, 0] = 250, 80
    lower, upper = Histograms(counts, edges, np.full(2, 5.0)).noisy_ends()
    assert lower[-1] > 15 and upper[-1] < 24


def test_ends_are_looked_for_as_finely_as_noise_allows() -> None:
    """Where a hundredth of the records is within noise, not at all; categories have none."""
    counts = np.full((3, 32), 100.0)
    columns = (Column("x", "number", 0, 32), Column("kind", categories=("a", "b")))
    edges = np.array([np.linspace(0, high, 33) for high in (32, 1, 32)])
    for noise, number in ((1.0, 4), (30.0, 2), (100.0, 0)):
        ends = ScalingBounds(Schema(columns, Column("y", "number", 0, 32)))
        ends._take_noisy(Histograms(counts, edges, np.full(3, noise)))
        assert len(ends.end_fractions) == number
        if number:
            assert ends.end_values is not None and ends.end_values.shape == (2, number, 2)
            assert np.isnan(ends.end_values[:, :, 1]).all()
            wanted = np.array([ends.end_fractions, 1 - np.array(ends.end_fractions)])
            assert ends.end_values[:, :, 0] == pytest.approx(wanted, abs=0.01)


def test_a_constant_column_of_whole_numbers_has_no_slope() -> None:
    """Else a value that no record had would move predictions without limit; a rare value keeps its slope."""
    rng = np.random.default_rng(5)
    rare = (np.arange(900) % 100 == 0).astype(int)
    frame = pd.DataFrame(
        {"x": rng.uniform(0, 1, 900), "wards": 7, "sex": "f", "rare": rare, "top": 10}
    )
    frame = frame.assign(y=3 * frame["x"] + 2 * rare, client=np.arange(900) % 3)
    whole = [Column(name, "integer", 0, 10) for name in ("wards", "rare", "top")]
    columns = (Column("x", "number", 0, 1), *whole, Column("sex", categories=("m", "f", "o")))
    learner = FuzzyTreeRegressor(max_depth=0)
    learner.fit(
        LocalDisclosure.from_frame(
            frame,
            "y",
            client="client",
            schema=Schema(columns, Column("y", "number", 0, 10)),
            policy=learner.published(),
        )
    )
    other = frame.assign(wards=8, sex="o", top=0)
    assert np.array_equal(learner.predict(frame), learner.predict(other))
    assert set(learner.rules_[0].slopes) == {"x", "wards", "rare", "top", "sex"}
    assert [name for name, slope in learner.rules_[0].slopes.items() if slope] == ["x", "rare"]
    assert re.search(r"= \S{3,9} [+-] 3\.\d{0,3} x \+ [12]\.?\d{0,3} rare\n", learner.describe())


def test_a_column_is_constant_only_if_one_whole_number_has_all_records() -> None:
    """A bin of two numbers is not; the last bin has its own upper edge."""
    edges = [[0.0, 6.9, 7.4, 10], [0.0, 6.9, 8.4, 10], [0.0, 3, 9.5, 10], [0.0, 6.9, 7.4, 10]]
    counts = [[0, 9, 0], [0, 9, 0], [0, 0, 9], [1, 400, 0]]
    read = exact(counts, edges, 0.25, 0.75)
    lower, upper = read.without_constants(np.full(4, True))
    assert (lower[[0, 2]] == [7, 10]).all() and (upper[[0, 2]] == [7, 10]).all()
    assert (lower[[1, 3]] < upper[[1, 3]]).all()
    assert (np.diff(read.without_constants(np.full(4, False)), axis=0) > 0).all()
