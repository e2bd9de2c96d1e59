"""What a fitted tree or forest gives away, against counting by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privfed.attacks import fitted_tree_risks as risks
from privfed.attacks.finding import corrected
from privfed.attacks.fitted_trees import FittedTrees
from privfed.errors import InputError
from privfed.reports.text import finding_lines
from privfed.study.confined_reader import told

Table = tuple[np.ndarray, np.ndarray]


def table(records: int, seed: int = 0) -> Table:
    """Five features, of which one bears on a noisy class."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, 5))
    return x, (x[:, 0] + rng.normal(size=records) > 0).astype(float)


def fitted(model: Any, x: np.ndarray, y: np.ndarray, **changed: np.ndarray) -> FittedTrees:
    """A model's arrays, as its file's reader tells them."""
    arrays = told(model.fit(x, y))
    return FittedTrees.of(arrays | changed, json.loads(arrays["about"].tobytes()))


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(random_state=0),
        DecisionTreeRegressor(random_state=0),
        RandomForestClassifier(7, random_state=0),
        ExtraTreesClassifier(7, random_state=0),
        RandomForestRegressor(7, random_state=0, max_leaf_nodes=9),
    ],
)
def test_the_arrays_predict_what_the_model_does(model: Any) -> None:
    """To the last bit of a threshold: records lie on them."""
    x, y = table(120)
    x = np.round(x, 1)
    read, fresh = fitted(model, x, y), np.round(table(500, seed=1)[0], 1)
    predict = getattr(model, "predict_proba", model.predict)
    assert np.allclose(read.mean(fresh).squeeze(), predict(fresh).squeeze(), atol=1e-12)


def test_links_that_form_no_trees_are_refused() -> None:
    """A cycle, a leaf's child elsewhere, a feature that is not there."""
    x, y = table(50)
    arrays = told(DecisionTreeClassifier(max_depth=2).fit(x, y))
    back, wide = arrays["children_left"].copy(), arrays["feature"].copy()
    back[1], wide[0] = 0, 5
    for changed in ({"children_left": back}, {"feature": wide}, {"value": arrays["value"][:-1]}):
        with pytest.raises(InputError, match="form no trees"):
            fitted(DecisionTreeClassifier(max_depth=2), x, y, **changed)


def test_small_leaves_are_counted_as_by_hand() -> None:
    """Each record's other training records in its leaf, one by one; held-out ones alike."""
    (x, y), (others, z) = table(90), table(60, seed=1)
    model = DecisionTreeClassifier(max_leaf_nodes=20, random_state=0)
    read = fitted(model, x, y)
    scored = risks.small_leaves(
        read, risks.LabelledRecords(x, y), risks.LabelledRecords(others, z), size=5
    )
    place, elsewhere = model.apply(x), model.apply(others)
    members = [sum(place == place[i]) - 1 < 4 for i in range(90)]
    controls = [sum(place == leaf) < 4 for leaf in elsewhere]
    alone = (1 + sum(controls)) / 61
    assert scored.exposed[""].tolist() == [alone if member else 1.0 for member in members]
    assert scored.value == pytest.approx(np.mean(members))
    assert scored.baseline == pytest.approx(np.mean(controls))


def test_who_knows_all_others_tells_a_member_by_the_file_counts() -> None:
    """Of an exact tree: the file's count less the others' is 1 for each member."""
    x, y = table(60)
    read = fitted(DecisionTreeClassifier(min_samples_leaf=3, random_state=0), x, y)
    place = read.leaves(x)[0]
    for i in range(60):
        assert read.counts[place[i]] - (np.delete(place, i) == place[i]).sum() == 1


def test_a_stump_has_four_free_parameters() -> None:
    """A feature, a threshold, and a frequency for each of two leaves."""
    x, y = table(40)
    read = fitted(DecisionTreeClassifier(max_depth=1), x, y)
    assert risks.parameters(read, risks.LabelledRecords(x, y)).value == 4
    assert risks.parameters(read, risks.LabelledRecords(x[:4], y[:4])).state == "found"
    assert risks.parameters(read, risks.LabelledRecords(x, y)).state == "looked"


def test_outcomes_are_found_where_a_tree_learnt_by_heart_and_not_where_it_did_not() -> None:
    """Unanimous leaves of a full tree; the control is right as often where nothing was learnt by heart."""
    (x, y), (others, z) = table(300), table(300, seed=1)
    known, control = risks.LabelledRecords(x, y), risks.LabelledRecords(others, z)
    full = fitted(DecisionTreeClassifier(random_state=0), x, y)
    found = risks.outcomes(full, known, control)
    assert found.value == 1.0 and found.baseline is not None and found.baseline < 0.8
    assert found.state == "found" and found.risk == "inference"
    stump = fitted(DecisionTreeClassifier(max_depth=1), x, y)
    assert risks.outcomes(stump, known, control).state == "looked"
    number = fitted(DecisionTreeRegressor(random_state=0), x, x[:, 1])
    assert risks.outcomes(number, risks.LabelledRecords(x, x[:, 1]), None).value == 1.0


def test_members_are_told_apart_where_a_forest_overfits_and_not_where_it_cannot() -> None:
    """By confidence and by shadows; a stump of 300 records tells nobody."""
    (x, y), (others, z) = table(150), table(150, seed=1)
    known, control = risks.LabelledRecords(x, y), risks.LabelledRecords(others, z)

    def attacked(model: Any) -> list[float]:
        read = fitted(model, x, y)
        plain = risks.confidence(read, known, control)
        work = 8 * risks.shadow_work(read, 150)
        shadowed = risks.by_shadows(read, known, control, model.fit, max_work=work)
        assert shadowed.detail["shadow models"] == 8
        assert len(shadowed.exposed[""]) == len(plain.exposed[""]) == 150
        return [each.low or 0.0 for each in (plain, shadowed)]

    overfit = attacked(RandomForestClassifier(20, bootstrap=False, random_state=0))
    assert min(overfit) > 0.6
    assert max(attacked(DecisionTreeClassifier(max_depth=1))) < 0.5


def test_without_held_out_records_a_share_has_no_baseline() -> None:
    """None was measured, and the line of each finding says what would measure one."""
    x, y = table(80)
    read, known = (
        fitted(RandomForestClassifier(5, random_state=0), x, y),
        risks.LabelledRecords(x, y),
    )
    for attack in (risks.small_leaves, risks.outcomes):
        alone, beside = attack(read, known, None), attack(read, known, known)
        assert alone.baseline is None and beside.baseline is not None
        assert "no baseline: without held-out records" in finding_lines([alone])
        assert "; baseline " in finding_lines([beside])


def test_shadows_that_are_too_much_work_are_not_looked() -> None:
    """The work is counted, not timed; and without held-out records there is no control."""
    x, y = table(80)
    model = RandomForestClassifier(5, random_state=0)
    read, known = fitted(model, x, y), risks.LabelledRecords(x, y)
    small = risks.by_shadows(read, known, known, model.fit, max_work=1e3)
    assert small.state == "not looked" and "operations" in small.why_not
    for alone in (
        risks.by_shadows(read, known, None, model.fit),
        risks.confidence(read, known, None),
    ):
        assert alone.state == "not looked" and "--outsiders" in alone.why_not
        assert not alone.exposed


@pytest.mark.parametrize(
    ("train", "held", "rate"),
    [(1, 100, 0.3), (5, 100, 0.9), (3, 3, 0.5), (20, 300, 0.9), (100, 100, 0.05)],
)
def test_shares_of_few_records_that_differ_by_chance_are_no_finding(
    train: int, held: int, rate: float
) -> None:
    """Training and held-out records alike: all of five are no proof, nor is one of one."""
    rng, runs, found = np.random.default_rng(0), 400, []
    for _ in range(runs):
        groups = [(rng.random(size) < rate).astype(float) for size in (train, held)]
        found.append(risks._comparison(groups, "leaf sizes", "?", "share"))
    assert sum(each.severity != "none" for each in found) / runs <= 0.035
    assert all(each.p_value is not None for each in found)
    assert (
        sum(each.severity != "none" for one in found for each in corrected([one] * 10))
        <= 10 * 0.01 * runs
    )


@pytest.mark.parametrize("trees", [1, 50])
def test_shares_that_differ_are_found(trees: int) -> None:
    """The power twin: of single trees, and of averages over many, whose interval is the narrower."""
    rng = np.random.default_rng(0)
    groups = [(rng.random((100, trees)) < rate).mean(axis=1) for rate in (0.6, 0.3)]
    found = risks._comparison(groups, "leaf sizes", "?", "share")
    assert found.severity == "some" and found.low is not None and found.high is not None
    assert (found.high - found.low < 0.1) == (trees > 1)
    assert risks._comparison(groups[::-1], "leaf sizes", "?", "share").severity == "none"
