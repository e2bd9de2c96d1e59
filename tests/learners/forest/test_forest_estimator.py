"""FedForest as an estimator: what it learns, what it writes, and what it makes of bad input."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from privfed import Column, LocalDisclosure, Policy, Schema
from privfed.errors import InputError, NobodyAnswered, SchemaError
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FedForestClassifier, FedForestRegressor, GeneticTreeRegressor
from privfed.learners.forest import growth
from privfed.learners.forest.estimator import features_of
from privfed.learners.forest.rules import described, drawn, lines
from privfed.learners.forest.settings import ForestSettings
from privfed.learners.forest.trees import LEAF
from privfed.testing.check_learner import CHECKS, check_learner

FEATURES = (
    Column("a", "number", -5, 5),
    Column("b", "number", -5, 5),
    Column("kind", "category", categories=("u", "v", "w", "never")),
)
NUMERIC = Schema(FEATURES, Column("y", "number", -12, 12))
THREE = Schema(FEATURES, Column("y", "category", categories=("low", "middle", "high")))
QUICK: dict[str, Any] = {"n_estimators": 15, "max_depth": 6, "random_state": 0}


def table(records: int = 900, seed: int = 0, shift: float = 0.0) -> pd.DataFrame:
    """A step in ``a``, a slope in ``b``, an effect of the category, and one of the client."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=records),
            "b": rng.normal(size=records),
            "kind": rng.choice(["u", "v", "w"], records),
            "client": rng.choice(["A", "B", "C", "D"], records),
        }
    )
    effect = frame["kind"].map({"u": 0.0, "v": 2.0, "w": 0.0}).to_numpy()
    by_client = shift * frame["client"].map({"A": 0.0, "B": 0.0, "C": 1.0, "D": -1.0}).to_numpy()
    frame["y"] = (
        3 * (frame["a"] > 0) + frame["b"] + effect + by_client + rng.normal(0, 0.3, records)
    )
    return frame


def classes(frame: pd.DataFrame) -> pd.DataFrame:
    """The target in three classes."""
    return frame.assign(
        y=pd.cut(frame["y"], [-99, 0.5, 2.5, 99], labels=["low", "middle", "high"]).astype(str)
    )


def federation(
    frame: pd.DataFrame, schema: Schema, policy: Policy, seed: int = 0
) -> LocalDisclosure:
    """The table among its clients, through gates."""
    return LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=policy, seed=seed
    )


def r_squared(learner: Any, test: pd.DataFrame, **known: Any) -> float:
    """On a table; with the rows' clients or without."""
    error = test["y"] - learner.predict(test, **known)
    return float(1 - (error**2).mean() / test["y"].var())


def fitted(frame: pd.DataFrame, schema: Schema = NUMERIC, **ways: Any) -> Any:
    """A forest without gates."""
    kind = FedForestRegressor if schema is NUMERIC else FedForestClassifier
    return kind(**(QUICK | ways)).fit(UngatedDisclosure.from_frame(frame, schema, "client"))


def test_leaves_have_as_many_different_records_as_scikit_learns() -> None:
    """Forests of pure noise grow until leaves are too small: to as many nodes as scikit-learn's."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(800, 2)), columns=["a", "b"])
    frame = frame.assign(y=rng.normal(size=800), kind="u", client=rng.choice(["A", "B"], 800))
    ways: dict[str, Any] = {"max_depth": 20, "max_features": None}
    nodes = len(fitted(frame, **ways).forest_.trees)
    peer = RandomForestRegressor(15, max_depth=20, min_samples_leaf=5, random_state=0)
    grown = peer.fit(frame[["a", "b"]].to_numpy(), frame["y"])
    assert 0.8 < nodes / sum(tree.tree_.node_count for tree in grown.estimators_) < 1.2


@pytest.mark.parametrize(
    "ways",
    [
        {},
        {"gain_aggregation": "average"},
        {"top_k": 2, "max_features": None},
        {"gain_aggregation": "average", "top_k": 2, "max_features": None},
        {"sampling": "poisson"},
        {"sampling": "all", "max_features": 2},
        {"clients_per_tree": 2},
        {"interpolate": True},
        {"candidates": "midpoints", "n_quantiles": 50},
        {"candidates": "range"},
        {"min_impurity_decrease": 0.05},
        {"max_features": 1},
        {"max_features": "third", "n_estimators": 30},
    ],
)
def test_every_way_learns(ways: dict[str, Any]) -> None:
    """Each way of choosing, sampling and asking learns most of what there is."""
    assert r_squared(fitted(table(), **({"max_features": None} | ways)), table(seed=1)) > 0.75


def test_it_is_as_good_as_scikit_learn() -> None:
    """Regression and three classes, over gates, beside the pooled forest of the same settings."""
    train, test = table(1500), table(1500, seed=1)
    learner = FedForestRegressor(**QUICK, min_samples_leaf=5)
    learner.fit(federation(train, NUMERIC, learner.published()))
    theirs = RandomForestRegressor(15, max_depth=6, min_samples_leaf=5, random_state=0)
    x, z = (frame[["a", "b"]].assign(v=frame["kind"] == "v") for frame in (train, test))
    theirs.fit(x, train["y"])
    assert r_squared(learner, test) > theirs.score(z, test["y"]) - 0.01
    classifier = FedForestClassifier(**QUICK, max_features=None)
    classifier.fit(federation(classes(train), THREE, classifier.published()))
    central = RandomForestClassifier(15, max_depth=6, min_samples_leaf=5, random_state=0)
    central.fit(x, classes(train)["y"])
    right = (classifier.predict(test) == classes(test)["y"].to_numpy()).mean()
    assert right > central.score(z, classes(test)["y"]) - 0.02
    assert classifier.classes_.tolist() == ["low", "middle", "high"]
    shares = classifier.predict_proba(test)
    assert shares.shape == (1500, 3) and np.allclose(shares.sum(axis=1), 1)


def test_splits_on_the_client() -> None:
    """Where outcomes differ by client, knowing it is worth much; not knowing it still gives a mean."""
    train, test = table(2000, shift=4.0), table(2000, seed=1, shift=4.0)
    blind, seeing = (
        fitted(train, max_features=None),
        fitted(train, max_features=None, client_splits=True),
    )
    known = {"client": test["client"].tolist()}
    assert r_squared(seeing, test, **known) > 0.9
    assert r_squared(blind, test) < 0.5
    assert r_squared(seeing, test) == pytest.approx(r_squared(blind, test), abs=0.1)
    assert seeing.client_importance_ > 0.3 and blind.client_importance_ == 0
    one = test[test["client"] == "C"]
    assert np.array_equal(
        seeing.predict(one, client="C"), seeing.predict(one, client=["C"] * len(one))
    )
    with pytest.raises(InputError, match="no client 'E'"):
        seeing.predict(test, client="E")
    with pytest.raises(InputError, match="one for each"):
        seeing.predict(test, client=["A", "B"])


def test_the_out_of_bag_score_is_that_of_left_out_records() -> None:
    """Near the score on fresh records, below that on learned ones; in classes too; NaN if withheld."""
    train = table(1200)
    learner = fitted(train, oob_score=True, n_estimators=40)
    assert abs(learner.oob_score_ - r_squared(learner, table(1200, seed=1))) < 0.03
    assert learner.oob_score_ < r_squared(learner, train)
    classifier = fitted(classes(train), THREE, oob_score=True, n_estimators=40)
    assert 0.6 < classifier.oob_score_ < (classifier.predict(train) == classes(train)["y"]).mean()
    some = fitted(train, oob_score=True, clients_per_tree=2, client_splits=True, n_estimators=40)
    assert some.oob_score_ > 0.7
    silent = learner.published()
    silent = replace(
        silent, guards={k: g for k, g in silent.guards.items() if k != "forest.out_of_bag"}
    )
    withheld = FedForestRegressor(**QUICK, oob_score=True).fit(federation(train, NUMERIC, silent))
    assert np.isnan(withheld.oob_score_)


def test_small_cells_are_suppressed_and_it_still_learns() -> None:
    """Under ``nullified`` no count from 1 to 4 and no extreme leaves, and the forest is no constant."""
    learner = FedForestRegressor(**QUICK, oob_score=True)
    fed = federation(table(1500), NUMERIC, learner.nullified())
    learner.fit(fed)
    assert r_squared(learner, table(seed=1)) > 0.7
    for entry in fed.transcript():
        for name, part in entry.release.parts.items():
            if name in ("bins", "groups", "counts"):
                size = part.units.sum(axis=-1)
                few = (size > 0) & (size < 5)
                assert not few.any()
            if name == "knots" and len(part.units):
                assert part.mask is not None and part.mask[:, [0, -1]].all()
    assert (fed.budget()["unprotected"] > 0).all()


def test_importances() -> None:
    """Shares that sum to one, the step and the slope first, the category beside them."""
    learner = fitted(table(2000), max_features=None)
    shares = learner.feature_importances_
    assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
    assert shares[0] > shares[1] > shares[2] > 0.02
    assert fitted(table(), max_depth=0).feature_importances_.tolist() == [0, 0, 0]


def test_plain_data_and_text_give_the_same_forest_back() -> None:
    """JSON and text rules, category and client splits included; predictions stay to the bit or ulp."""
    train, test = table(shift=2.0), table(seed=1, shift=2.0)
    for learner in (
        fitted(train, client_splits=True),
        fitted(classes(train), THREE, client_splits=True, criterion="entropy"),
    ):
        kind = type(learner)
        again = kind.from_dict(json.loads(json.dumps(learner.to_dict())))
        read = kind.from_text(learner.to_text())
        for client in (None, "C"):
            told = learner._values_of(test, client)
            assert np.array_equal(again._values_of(test, client), told)
            assert np.allclose(read._values_of(test, client), told, atol=1e-12)
        assert np.allclose(again.feature_importances_, learner.feature_importances_)
        assert np.allclose(read.feature_importances_, learner.feature_importances_)
        assert read.to_text() == learner.to_text()
        assert len(printed(learner, 1)) == leaves(learner, 1)


def printed(learner: Any, tree: int = 0) -> list[str]:
    """The rules of a described tree, without the heading and the notes."""
    return [line for line in learner.describe(tree).splitlines() if " => " in line]


def leaves(learner: Any, tree: int) -> int:
    """Leaves of one tree."""
    trees = learner.forest_.trees
    return int(((trees.feature == LEAF) & (trees.tree_of == tree)).sum())


def test_rules_say_what_they_mean() -> None:
    """A row that meets a rule's conditions is predicted by it."""
    learner = fitted(table(), n_estimators=1, max_depth=2, max_features=None)
    heading, rules = learner.describe().splitlines()[0], printed(learner)
    assert heading.startswith("tree 0, from 0 to 0, whose mean is the model")
    assert 2 <= len(rules) <= 4
    with pytest.raises(InputError, match="the last is 0"):
        learner.describe(1)
    assert all(re.search(r"\b[ab] (?:<=|>)", rule) for rule in rules)


def test_described_rules_are_short_and_name_classes_as_the_schema_does() -> None:
    """Numbers have four significant digits (cuts six) and shares three at most, means are in the target's unit; the text to read
    back stays exact.
    """
    whole = Schema(FEATURES, Column("y", "integer", 3, 5))
    numbered = classes(table()).replace({"y": {"low": 3, "middle": 4, "high": 5}})
    number = r"-?[0-9.]+(?:e-?[0-9]+)?"
    for train, schema, names in (
        (table(), NUMERIC, ("",)),
        (classes(table()), THREE, ("low=", "middle=", "high=")),
        (numbered, whole, ("3=", "4=", "5=")),
    ):
        learner = fitted(train, schema)
        exact, said = learner.to_text(), learner.describe()
        for rule in printed(learner):
            value = rule.rpartition(": ")[2]
            leaf = re.fullmatch(", ".join(f"{name}({number})" for name in names), value)
            assert leaf and all(digits(each) <= 4 - bool(names[0]) for each in leaf.groups())
        cuts = re.findall(rf"(?:<=|>) ({number})", said)
        assert cuts and all(digits(each) <= 6 for each in cuts)
        assert max(map(digits, re.findall(rf"(?:<=|>) ({number})", exact))) > 6
    tree: dict[str, list[Any]] = {
        "feature": ["a", None, None],
        "cut": [12345.6, None, None],
        "left_if": [None] * 3,
    }
    tree |= {"left": [1, None, None], "right": [2, None, None], "records": [[5], [2], [3]]}
    assert described({**tree, "value": [[0.4], [100 / 11], [1.0]]}) == [
        "a <= 12345.6 => 2: 9.091",
        "a > 12345.6 => 3: 1",
    ]
    whole = Schema((Column("a", "integer", 0, 300_000),), Column("y", "number", 0, 10))
    for cut, columns, text in ((12345.678, None, "12345.7"), (123456.5, whole, "123456")):
        rounded = {**tree, "cut": [cut, None, None], "value": [[0.4]] * 3}
        assert described(rounded, schema=columns)[0] == f"a <= {text} => 2: 0.4"
    assert described({**tree, "cut": [5.0, None, None], "value": [[0.4]] * 3})[0].startswith(
        "a <= 5 =>"
    )


@pytest.mark.parametrize(("low", "noted"), [(0.0, False), (1e3, False), (1e9, True)])
@pytest.mark.parametrize("learner", [FedForestRegressor, GeneticTreeRegressor])
def test_columns_that_32_bit_floats_do_not_tell_apart_are_noted(
    learner: Any, low: float, noted: bool
) -> None:
    """Once, and with what to do about it: such a column is a constant to trees, and a model without it is told as good."""
    schema = Schema((Column("at", "number", low, low + 6),), Column("y", "number", 0, 6))
    at = low + np.linspace(0, 6, 60)
    frame = pd.DataFrame({"at": at, "y": at - low, "client": ["a", "b"] * 30})
    fed = UngatedDisclosure.from_frame(frame, schema, "client")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        learner(max_depth=2, random_state=0).fit(fed)
    said = [str(one.message) for one in told if "32-bit floats" in str(one.message)]
    assert len(said) == noted and all("1000000000 say" in one for one in said)


def test_described_rules_tell_apart_what_lies_far_from_zero() -> None:
    """Cuts and means have four digits of their column's width, and cuts of an integer are whole."""
    columns = (Column("pay", "number", 1e6, 1e6 + 100), Column("year", "integer", 1990, 2030))
    schema = Schema(columns, Column("y", "number", 1e9, 1e9 + 1))
    tree: dict[str, list[Any]] = {
        "feature": ["pay", None, "year", None, None],
        "cut": [1e6 + 62.5, None, 2012.5, None, None],
        "left_if": [None] * 5,
        "left": [1, None, 3, None, None],
        "right": [2, None, 4, None, None],
        "records": [[3], [1], [2], [1], [1]],
        "value": [[1e9 + 0.5], [1e9 + 0.25], [1e9 + 0.5], [1e9], [1e9 + 1]],
    }
    assert described(tree, (), schema) == [
        "pay <= 1000062.5 => 1: 1000000000.25",
        "pay > 1000062.5 and year <= 2012 => 1: 1000000000",
        "pay > 1000062.5 and year >= 2013 => 1: 1000000001",
    ]
    (left, _), (right, inner) = drawn(tree, (), schema).branches
    assert (left, right) == ("pay <= 1000062.5", "pay > 1000062.5")
    assert inner.branches[0][0] == "year <= 2012"


def test_a_described_rule_has_one_condition_for_each_feature() -> None:
    """The tightest of its path; letters beyond ASCII as they are, which the text to read back escapes."""
    deep: dict[str, list[Any]] = {
        "feature": ["ö", "ö", "c", None, None, "c", None, None, None],
        "cut": [5.0, 2.0, *[None] * 7],
        "left_if": [None, None, ["x", "y", "z"], None, None, ["x"], None, None, None],
        "left": [1, 3, 4, None, None, 6, None, None, None],
        "right": [8, 2, 5, None, None, 7, None, None, None],
        "records": [[1]] * 9,
        "value": [[0.0]] * 9,
    }
    said = [rule.partition(" => ")[0] for rule in described(deep)]
    assert said == [
        *("ö <= 2", "2 < ö <= 5 and c in {x, y, z}", "2 < ö <= 5 and c in {}"),
        *("2 < ö <= 5 and c not in {x, y, z}", "ö > 5"),
    ]
    names = tuple(f"w{k:02}" for k in range(40))
    wards: dict[str, list[Any]] = {
        "feature": ["ward one", "ward one", None, None, None],
        "cut": [None] * 5,
        "left_if": [[*names[30:20:-1], "w02"], ["w02"], None, None, None],
        "left": [1, 3, None, None, None],
        "right": [2, 4, None, None, None],
        "records": [[1]] * 5,
        "value": [[0.0]] * 5,
    }
    schema = Schema((Column("ward one", categories=names),), Column("y", "number", 0, 1))
    assert [rule.partition(" => ")[0] for rule in described(wards, schema=schema)] == [
        *("ward one = w02", "ward one in {w21, w22, w23, w24, w25, w26, w27, w28, w29, w30}"),
        "ward one not in {w02, w21, ..., w30}",
    ]
    assert lines(deep)[1].startswith('"\\u00f6" <= 5.0 and "\\u00f6" > 2.0 and ')


def test_a_column_may_be_called_as_a_split_on_the_client_is() -> None:
    """It is saved as the column; where there are such splits, the name is refused."""
    columns = (*FEATURES[:-1], replace(FEATURES[-1], name="(client)"))
    frame = table().rename(columns={FEATURES[-1].name: "(client)"})
    frame, schema = classes(frame), Schema(columns, THREE.target)
    learner = fitted(frame, schema, max_features=None)
    again = FedForestClassifier.from_dict(json.loads(json.dumps(learner.to_dict())))
    assert np.array_equal(again.predict(frame), learner.predict(frame))
    with pytest.raises(InputError, match="client_splits"):
        fitted(frame, schema, client_splits=True)


def test_described_leaves_and_pictures_have_means_in_the_targets_unit() -> None:
    """A described leaf holds what the tree predicts for the records that reach it."""
    learner = fitted(table(), NUMERIC)
    model, target = learner.model_, table()["y"]
    means = [float(rule.rpartition(": ")[2]) for rule in printed(learner)]
    low, high = NUMERIC.target.bounds  # type: ignore[union-attr]
    leaves = model.tree_dict(0)
    scaled = [
        value[0]
        for value, name in zip(leaves["value"], leaves["feature"], strict=True)
        if name is None
    ]
    exact = np.sort((np.array(scaled) + 0.5) * (high - low) + low)
    assert np.allclose(np.sort(means), exact, rtol=1e-3)
    assert min(target) <= min(means) and max(means) <= max(target)

    def shown(node: Any) -> Iterator[float]:
        if not node.branches:
            yield float(node.text)
        for _, branch in node.branches:
            yield from shown(branch)

    assert sorted(shown(model.drawn(0))) == sorted(means)


def digits(number: str) -> int:
    """Significant digits of a number as it is written."""
    return len(number.partition("e")[0].replace("-", "").replace(".", "").strip("0"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace("{", "", 1), "first line"),
        (lambda text: text.replace("<=", "<", 1), "is not a rule"),
        (lambda text: text.replace(" => ", " -> ", 1), "is not a rule"),
        (lambda text: "\n".join(text.splitlines()[:-1]), "two sides|part at one condition"),
        (lambda text: text.replace("tree 0:", "", 1), "before the first"),
        (lambda text: text + "tree 1:\n", "no rules"),
        (lambda text: text.replace('"a" <=', '"z" <=').replace('"a" >', '"z" >'), "damaged"),
        (lambda text: text.replace("FedForestRegressor", "FedForestClassifier"), "is of"),
    ],
)
def test_text_that_is_no_forest_is_told(change: Any, told: str) -> None:
    """One clear error for each way to spoil a text."""
    text = fitted(table(), n_estimators=1, max_depth=2, max_features=None).to_text()
    with pytest.raises(InputError, match=told):
        FedForestRegressor.from_text(change(text))


# --- bad input -----------------------------------------------------------------------------------


def test_one_client_and_clients_of_one_class() -> None:
    """K = 1; and clients that each hold a single class, or a single record."""
    train = classes(table())
    alone = fitted(train.assign(client="A"), THREE, max_features=None)
    apart = fitted(train.assign(client=train["y"]), THREE, max_features=None)
    test = classes(table(seed=1))
    for learner in (alone, apart):
        assert (learner.predict(test) == test["y"].to_numpy()).mean() > 0.75
    few = table(30).assign(client=[str(number) for number in range(30)])
    assert np.isfinite(fitted(few, min_samples_leaf=1).predict(few)).all()


def test_empty_clients_and_constants() -> None:
    """A client without records, features constant at every client, a constant target."""
    train = table(300)
    schema = NUMERIC
    records = UngatedDisclosure.from_frame(train, schema, "client")
    empty = UngatedDisclosure.from_frame(train.iloc[:0].assign(client="E"), schema)
    records.clients = (*records.clients, "pooled")
    records._views |= empty._views
    learner = FedForestRegressor(**QUICK).fit(records)
    assert learner.forest_.records[-1].sum() == 0
    flat = train.assign(a=1.5, kind="u")
    assert set(split_features(fitted(flat))) == {1}
    same = fitted(train.assign(y=1.25))
    assert split_features(same) == [] and np.allclose(same.predict(train), 1.25, atol=1e-4)
    still = fitted(train.assign(a=0.0, b=0.0, kind="u"))
    assert split_features(still) == []


def test_clients_of_other_trees_may_look_at_other_kinds_of_features() -> None:
    """Here one looks at no number, or at shorter lists of categories, than the others."""
    short, long = (tuple("abcdefgh"[:size]) for size in (2, 8))
    columns = Column("a", "category", categories=short), Column("b", "category", categories=long)
    schema = Schema((*columns, Column("x", "number", 0, 1)), Column("y", "integer", 0, 1))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(short, 400), "b": rng.choice(long, 400)})
    frame = frame.assign(x=rng.random(400), client=rng.choice(["p", "q", "r"], 400))
    frame["y"] = ((frame["a"] == "a") ^ (frame["b"] < "d")).astype(int)
    for seed in range(4):
        fitted(frame, schema, n_estimators=3, max_features=1, clients_per_tree=1, random_state=seed)


def split_features(learner: Any) -> list[int]:
    """What the forest's nodes split on."""
    feature = learner.forest_.trees.feature
    return [int(each) for each in feature[feature != LEAF]]


def test_a_node_of_constants_draws_other_features() -> None:
    """With one feature a node, a constant one does not end the branch."""
    train = table(400).assign(a=0.0, kind="u")
    learner = fitted(train, max_features=1, n_estimators=20)
    roots = learner.forest_.trees.feature[:20]
    assert (roots == 1).all()


def test_missing_and_unseen_values() -> None:
    """A missing value has the schema's fill or is an error; a category that none had is predicted."""
    learner = fitted(table())
    rows = table(5, seed=2)
    with pytest.raises(SchemaError, match="no value in"):
        learner.predict(rows.assign(a=[np.nan] * 5))
    with pytest.raises(SchemaError, match="no value in"):
        learner.predict(np.array([[np.nan, 0, 0]]))
    with pytest.raises(SchemaError, match="category"):
        learner.predict(rows.assign(kind="strange"))
    assert np.isfinite(learner.predict(rows.assign(kind="never"))).all()
    filled = Schema((replace(FEATURES[0], fill=0.5), *FEATURES[1:]), NUMERIC.target)
    forgiving = FedForestRegressor(**QUICK).fit(
        UngatedDisclosure.from_frame(table(), filled, "client")
    )
    told = forgiving.predict(np.array([[np.nan, 0, 0], [0.5, 0, 0]]))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "ways",
    [
        {"n_estimators": 0},
        {"n_estimators": 2.5},
        {"max_depth": -1},
        {"max_depth": 61},
        {"min_samples_leaf": 0},
        {"min_impurity_decrease": -1},
        {"min_impurity_decrease": float("nan")},
        {"criterion": "gini"},
        {"max_features": 0},
        {"max_features": "half"},
        {"max_features": 1.5},
        {"n_quantiles": 1},
        {"candidates": "all"},
        {"gain_aggregation": "local"},
        {"top_k": 0},
        {"sampling": "chunks"},
        {"sampling": "all", "oob_score": True},
        {"clients_per_tree": 9},
    ],
)
def test_parameters_are_checked(ways: dict[str, Any]) -> None:
    """A parameter that makes no sense is one clear error, before anything is asked."""
    with pytest.raises(InputError):
        fitted(table(50), **ways)


def test_targets_are_checked() -> None:
    """Classes for the classifier, numbers for the regressor."""
    with pytest.raises(InputError, match="categories"):
        FedForestClassifier().check(NUMERIC.__class__(FEATURES, Column("y", "number", 0, 0.5)))
    with pytest.raises(InputError, match="numeric"):
        FedForestRegressor().check(THREE)


def test_features_a_node() -> None:
    """Words, shares and numbers."""
    assert [features_of(way, 10) for way in (None, "sqrt", "third", 4, 99, 0.25)] == [
        10,
        3,
        3,
        4,
        10,
        2,
    ]


def test_depth_and_leaf_limits_hold() -> None:
    """No path longer, no leaf smaller than asked, no split of less worth."""
    learner = fitted(table(), max_depth=3, min_samples_leaf=20)
    trees = learner.forest_.trees
    assert trees.depth().max() == 3
    assert learner.forest_.sizes[trees.feature == LEAF].min() >= 20
    rough, fine = (fitted(table(), min_impurity_decrease=way) for way in (0.2, 0.0))
    assert 0 < len(split_features(rough)) < len(split_features(fine))


def test_large_levels_are_asked_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever portions a level is asked, the forest is the same."""
    whole = fitted(table())
    monkeypatch.setattr(growth, "MOST_CELLS", 500)
    monkeypatch.setattr(growth, "SETTINGS", ForestSettings(max_quantile_cells=0))
    small = fitted(table())
    monkeypatch.setattr(growth, "MOST_CELLS", 10**9)
    again = fitted(table())
    assert small.rounds_ > again.rounds_
    assert np.allclose(small.predict(table(seed=3)), again.predict(table(seed=3)))
    assert whole.rounds_ == again.rounds_


def test_refusals() -> None:
    """Nobody willing is a typed error; one silent client of four is no end."""
    learner = FedForestRegressor(**QUICK)
    with pytest.raises(NobodyAnswered):
        clone(learner).fit(federation(table(), NUMERIC, Policy({})))
    everything = learner.published()
    policies = dict.fromkeys("ABC", everything) | {"D": Policy({})}
    mixed = LocalDisclosure.from_frame(
        table(), "y", client="client", schema=NUMERIC, policy=policies, seed=0
    )
    assert r_squared(learner.fit(mixed), table(seed=1)) > 0.7
    assert learner.forest_.records[list(mixed.clients).index("D")].sum() == 0


@pytest.mark.parametrize("schema", [NUMERIC, THREE], ids=["numbers", "classes"])
def test_conformance(schema: Schema) -> None:
    """The kit's checks but that of the forest's questions; the private way has its own tests."""
    frame = table(200) if schema is NUMERIC else classes(table(200))
    kind = FedForestRegressor if schema is NUMERIC else FedForestClassifier
    learner = kind(n_estimators=4, max_depth=3, oob_score=True, client_splits=True)
    ran = check_learner(
        learner,
        lambda policy: federation(frame, schema, policy),
        frame.drop(columns=["y", "client"]),
        skip={"queries": "test_every_query has them"},
    )
    assert len(ran) == len(CHECKS) - 1


@pytest.mark.parametrize("schema", [NUMERIC, THREE], ids=["numbers", "classes"])
def test_the_private_way(schema: Schema) -> None:
    """Finite epsilon end to end: it learns, is saved, says what weighs, and is no set of rules."""
    frame, test = table(4000), table(1500, seed=1)
    if schema is THREE:
        frame, test = classes(frame), classes(test)
    kind = FedForestRegressor if schema is NUMERIC else FedForestClassifier
    learner = kind(random_state=0, oob_score=True)
    policy = learner.private(4)
    fed = federation(frame, schema, policy)
    learner.fit(fed)
    assert (
        learner.private_
        and not kind(**QUICK).fit(federation(frame, schema, kind().published())).private_
    )
    assert not any(entry.kind.startswith("forest.") for entry in fed.transcript())
    assert (fed.budget()["unprotected"] == 0).all()
    assert learner.score(test.drop(columns=["y", "client"]), test["y"]) > 0.8
    assert np.isnan(learner.oob_score_) and learner.client_importance_ == 0
    assert learner.feature_importances_.sum() == pytest.approx(1)
    assert "where a feature has another record's value" in learner.describe()
    again = kind.from_dict(json.loads(json.dumps(learner.to_dict())))
    assert np.array_equal(again.predict(test), learner.predict(test))
    assert np.array_equal(learner.predict(test, client="A"), learner.predict(test))
    with pytest.raises(InputError, match="to_sklearn"):
        learner.to_text()
    planned = {line.query.kind for line in learner.plan(schema, policy)}
    assert planned == set(policy.guards)
    data = learner.to_dict()
    data["state"]["private"]["start"]["values"][0] = {"number": "nan"}
    with pytest.raises(InputError, match="damaged"):
        kind.from_dict(data)


def apart(seed: int) -> pd.DataFrame:
    """Two clients on either side of a step in the first of eight features, which alone matters."""
    rng = np.random.default_rng(seed)
    client = np.repeat([0, 1], 200)
    frame = pd.DataFrame(rng.normal(size=(400, 8)), columns=list("abcdefgh"))
    frame["a"] += np.where(client == 0, -5, 5)
    frame["y"] = 2.0 * (frame["a"] > 0) + rng.normal(0, 0.5, 400)
    return frame.assign(client=client.astype(str))


def test_averaged_gains_miss_a_split_between_supports() -> None:
    """No client sees both sides: the exact gain does, and so do averaged ones with the client's."""
    train, test = apart(0), apart(1)
    columns = tuple(Column(name, "number", -12, 12) for name in "abcdefgh")
    federation = UngatedDisclosure.from_frame(
        train, Schema(columns, Column("y", "number", -9, 9)), "client"
    )
    rows = test.drop(columns=["y", "client"])

    def error(known: list[str] | None = None, **ways: Any) -> float:
        model = FedForestRegressor(n_estimators=20, max_depth=3, random_state=0, **ways).fit(
            federation
        )
        return float(np.mean((model.predict(rows, client=known) - test["y"]) ** 2))

    assert error() < 0.32
    assert error(gain_aggregation="average") > 0.6
    assert error(list(test["client"]), gain_aggregation="average", client_splits=True) < 0.32


@pytest.mark.parametrize(("small", "chosen"), [(40, 0), (2000, 1)])
def test_averaged_gains_are_weighted_by_records(small: int, chosen: int) -> None:
    """Of a half that a large client gains and a whole that a small one does, records decide."""
    rng = np.random.default_rng(0)

    def side(records: int, feature: int, right: float) -> pd.DataFrame:
        x = rng.random((records, 2))
        told = np.where(rng.random(records) < right, x[:, feature] > 0.5, rng.random(records) > 0.5)
        names = pd.DataFrame(x, columns=["a", "b"])
        return names.assign(y=told.astype(int), client=f"c{feature}")

    frame = pd.concat([side(500, 0, 0.6), side(small, 1, 1.0)])
    bounds = tuple(Column(name, "number", 0, 1) for name in "ab")
    data = UngatedDisclosure.from_frame(
        frame, Schema(bounds, Column("y", "integer", 0, 1)), "client"
    )
    ways: dict[str, Any] = {
        "n_estimators": 1,
        "max_depth": 1,
        "max_features": None,
        "random_state": 0,
    }
    forest = FedForestClassifier(gain_aggregation="average", **ways).fit(data)
    assert int(np.argmax(forest.feature_importances_)) == chosen


def test_private_classes_are_listed() -> None:
    """Real numbers and too many categories are refused before anything is spent."""
    frame = table(60)
    many = tuple(f"v{number}" for number in range(65))
    for target, values in (
        (Column("y", "number", 3, 8), np.arange(60) % 6 + 3.0),
        (Column("y", "integer", 0, 40), np.arange(60) % 41),
        (Column("y", "category", categories=many), [many[at] for at in range(60)]),
    ):
        schema = Schema(FEATURES, target)
        learner = FedForestClassifier(**QUICK)
        owners = federation(frame.assign(y=values), schema, learner.private("4"))
        with pytest.raises(InputError, match="categor"):
            learner.fit(owners)
        assert (owners.budget()["spent"] == 0).all()
        with pytest.raises(InputError, match="categor"):
            learner.plan(schema, learner.private("4"))


def test_private_classes_may_be_integers() -> None:
    """Wherever they start: what is learned are the same chances as of categories."""
    frame = table(1500)
    codes = pd.cut(frame["y"], [-99, 0.5, 2.5, 99], labels=False).astype(int)
    learner = FedForestClassifier(random_state=0)
    told = []
    for target, values in (
        (Column("y", "integer", 3, 5), codes + 3),
        (THREE.target, codes.map({0: "low", 1: "middle", 2: "high"})),
    ):
        schema = Schema(FEATURES, target)
        owners = federation(frame.assign(y=values), schema, learner.private("8"))
        told.append(learner.fit(owners).predict_proba(frame))
        assert (learner.predict(frame) == values).mean() > 0.7
    assert np.array_equal(told[0], told[1])


def test_a_parameter_is_called_by_its_own_name() -> None:
    """Of clients that do not exist."""
    with pytest.raises(InputError, match="clients_per_tree must lie between 1 and 4, not 9"):
        fitted(table(60), clients_per_tree=9)


def test_how_fine_upper_levels_look_is_a_parameter() -> None:
    """Up to 64 quantiles where nodes are few; no more than everywhere else on request."""
    frame = table(300)
    for most, levels in ((64, 64), (30, 30), (1, 10)):
        learner = FedForestRegressor(**QUICK, max_quantiles=most)
        fed = federation(frame, NUMERIC, learner.published())
        learner.fit(fed)
        asked = [entry.query["levels"] for entry in fed.transcript().of(kind="forest.sketches")]
        assert asked[0] == levels == max(asked)


def test_a_described_rule_holds_for_the_values_that_reach_its_leaf() -> None:
    """Of whole numbers, flags, decimals and categories: all values, by the exact text and by the one for readers."""
    columns = (
        Column("n", "integer", 0, 6),
        Column("flag", "integer", 0, 1),
        Column("x", "number", -1, 1),
        Column("c", categories=("a", "b", "d")),
    )
    cells = list(product(range(7), range(2), (np.arange(-10, 11) / 10).tolist(), "abd"))
    frame = pd.DataFrame(cells, columns=[column.name for column in columns])
    frame["y"] = (frame["n"] * 3 + 4 * frame["flag"] + 9 * frame["x"].abs()) % 5
    frame["client"] = np.arange(len(frame)) % 2
    schema = Schema(columns, Column("y", "number", 0, 5))
    learner = FedForestRegressor(n_estimators=2, max_depth=5, max_features=None, random_state=0)
    learner.fit(UngatedDisclosure.from_frame(frame, schema, "client"))
    said = learner.describe(0)
    assert not re.search(r"\b(?:n|flag|c) (?:[<>] |not in \{\w\})|flag [<>]=", said)
    exact = learner.to_text().split("tree 1:")[0].splitlines()[2:]
    readable = printed(learner)
    assert len(exact) == len(readable) > 10
    for cell in cells:
        names = dict(zip(("n", "flag", "x", "c"), cell, strict=True))
        held = [[_holds(rule, names) for rule in rules] for rules in (exact, readable)]
        assert held[0] == held[1] and sum(held[0]) == 1


def _holds(rule: str, values: dict[str, Any]) -> bool:
    """Whether a record satisfies a printed rule."""
    text = re.sub(r'"(n|flag|x|c)" ', r"\1 ", rule.partition(" => ")[0])
    text = re.sub("(?<![<>])= ([a-d])", r'== "\1"', text)
    text = re.sub("(?<![<>=])= ", "== ", text)
    text = re.sub(r"\{([^}]*)\}", lambda m: str(set(m[1].split(", "))), text)
    return bool(eval(text, {**values, "always": True}))
