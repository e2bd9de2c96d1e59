"""Models on disk: read back they predict the same to the bit, and damage is told in one line."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import is_regressor
from sklearn.exceptions import NotFittedError

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    GeneticTreeClassifier,
    GeneticTreeRegressor,
    RuleFitClassifier,
    RuleFitRegressor,
    RuleSearch,
    load,
    save,
)
from privfed.learners.base import FederatedLearner
from privfed.learners.baselines import (
    BayesianInference,
    CentralRuleFitClassifier,
    FedAvgLogistic,
    LocalForests,
    LocalRuleFitRegressor,
)
from privfed.learners.plain import LARGE, PACKED, plain, restored
from privfed.learners.rule_search.generator import Profile, generate
from privfed.tables.schema import Column, Schema
from privfed.testing import assert_no_raw
from privfed.testing.hospitals import BINARY, NAMES, NUMERIC, QUICK, gates, patients

FRAME = patients(300)
X = FRAME[list(NAMES)]
SMALL: dict[str, Any] = QUICK | {"n_estimators": 10, "n_rounds": 8}
LEARNERS: list[tuple[FederatedLearner, str]] = [
    (FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=2), "published"),
    (FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=1, features=["age", "GCS"]), "private"),
    (RuleFitClassifier(**SMALL), "published"),
    (RuleFitClassifier(**SMALL), "private"),
    (RuleFitRegressor(**SMALL, reference_rounds=3), "published"),
    (BayesianInference(), "published"),
    (FedAvgLogistic(n_rounds=3), "published"),
    (LocalForests(n_estimators=3), "published"),
    (CentralRuleFitClassifier(RuleFitClassifier(**SMALL)), "published"),
    (LocalRuleFitRegressor(RuleFitRegressor(**SMALL)), "published"),
]
MORE: list[FederatedLearner] = [
    FedForestClassifier(n_estimators=3, oob_score=True),
    FedForestRegressor(n_estimators=3),
    GeneticTreeClassifier(generations=2, max_depth=3),
    GeneticTreeRegressor(generations=2, max_depth=3),
]


def fitted(learner: FederatedLearner, way: str) -> FederatedLearner:
    """Learnt from the three hospitals."""
    schema = NUMERIC if is_regressor(learner) else BINARY
    if isinstance(learner, GeneticTreeClassifier):
        schema = Schema(NUMERIC.features, Column("died", "category", categories=("0", "1")))
    policy = learner.published() if way == "published" else learner.private(8, schema=schema)
    return learner.fit(gates(FRAME, policy, schema))


@pytest.mark.parametrize(("learner", "way"), LEARNERS)
def test_models_are_the_same_again(learner: FederatedLearner, way: str, tmp_path: Path) -> None:
    """Predictions to the bit, parameters, importances and text; saved again, the same file."""
    model = fitted(learner, way)
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert type(again) is type(model)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            assert np.array_equal(getattr(again, method)(X), getattr(model, method)(X))
    assert str(again.get_params(deep=False)) == str(model.get_params(deep=False))
    assert again.schema_ == model.schema_ and again.clients_ == model.clients_
    save(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()


@pytest.mark.parametrize("strategy", ["levels", "adaptive", "sampled"])
def test_a_search_s_rules_are_the_same_again(strategy: Any, tmp_path: Path) -> None:
    """Structures, shares and votes."""
    book = generate(Profile(400, 3_000, 80, 3, 1.6, 2, top=0.5), 2, values=True)
    search = RuleSearch(strategy, epsilon="200", min_support=0.05, max_operators=2, horizon=10)
    model = search.set_params(max_queries=40, slots=20, levels=2)
    model.fit(CohortDisclosure.of(book, model.private("300"), seed=1))
    assert model.found_
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    signals = np.random.default_rng(0).normal(0.5, 0.3, (50, 12, 3))
    assert np.array_equal(again.predict(signals), model.predict(signals))
    assert again.found_ == model.found_ and again.steps_ == model.steps_
    assert again.to_dict() == model.to_dict()


def test_a_saved_model_is_read_by_its_own_learner_and_no_other(tmp_path: Path) -> None:
    """One that is not installed is given by its class; another class is refused."""
    model = fitted(BayesianInference(), "published")
    save(model, tmp_path / "model.json")
    mine = type("MyInference", (BayesianInference,), {"__module__": "mine"})
    with pytest.raises(InputError, match=r"model\.json.*of 'BayesianInference', not of MyInf"):
        load(tmp_path / "model.json", learner=mine)
    data = model.to_dict() | {"learner": "MyInference"}
    (tmp_path / "mine.json").write_text(json.dumps(data))
    assert isinstance(load(tmp_path / "mine.json", learner=mine), mine)
    with pytest.raises(InputError, match="no learner called 'MyInference'"):
        load(tmp_path / "mine.json")


def test_a_file_of_the_first_format_is_read() -> None:
    """Kept from then, with what it predicted."""
    model = load(Path(__file__).parent / "formats" / "model-1.json")
    told = model.predict_proba(X.head(3))[:, 1]
    assert told.tolist() == [0.2131578947368421, 0.1955108359133127, 0.322829131652661]


def _no_nodes(data: dict[str, Any]) -> None:
    data["state"]["tree"]["children"] = [[0]]


def _short(data: dict[str, Any]) -> None:
    data["state"]["coefficients"]["values"].pop()


def _fewer(data: dict[str, Any]) -> None:
    data["state"]["coefficients"] = plain(np.zeros((1, 2)))


def _foreign(data: dict[str, Any]) -> None:
    data["parameters"]["colour"] = "red"


def _impossible(data: dict[str, Any]) -> None:
    data["parameters"]["n_fuzzy_sets"] = 0


def _objects(data: dict[str, Any]) -> None:
    data["state"]["lower_"]["dtype"] = "object"


def _newer(data: dict[str, Any]) -> None:
    data["format"] = "privfed model 99"


@pytest.mark.parametrize(
    "damage", [_no_nodes, _short, _fewer, _foreign, _impossible, _objects, _newer, dict.clear]
)
def test_damage_is_told(damage: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    """In one line that names the file."""
    data = json.loads(json.dumps(fitted(FuzzyTreeRegressor(max_depth=1), "published").to_dict()))
    damage(data)
    (tmp_path / "model.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"^model file .*model\.json: ") as caught:
        load(tmp_path / "model.json")
    assert "\n" not in str(caught.value)


def _places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = enumerate(data) if isinstance(data, list) else ()
    for key, item in data.items() if isinstance(data, dict) else pairs:
        yield from _places(item, (*path, key))


def _spoilt(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value in that place, or without it."""
    if not place:
        return value
    copy, (key, *rest) = (data.copy(), place)
    if rest or value is not MISSING:
        copy[key] = _spoilt(data[key], tuple(rest), value)
    else:
        del copy[key]
    return copy


MISSING = object()
ALL = [*LEARNERS, *((learner, way) for learner in MORE for way in ("published", "private"))]


@pytest.mark.parametrize(("learner", "way"), ALL)
def test_no_learner_reads_a_file_that_was_changed(
    learner: FederatedLearner, way: str, tmp_path: Path
) -> None:
    """NaN, an infinity, another number, a missing entry: anywhere in the file, and in a loaded and saved one."""
    path = tmp_path / "model.json"
    save(fitted(learner, way), path)
    save(load(path), path)
    data = json.loads(path.read_text())
    places = [place for place in _places(data) if place not in ((), ("digest",))]
    chosen = np.random.default_rng(0).integers(0, len(places), 12)
    values = itertools.cycle((float("nan"), {"number": "inf"}, 1e6, MISSING))
    for place in [places[k] for k in chosen] + [place for place in places if len(place) == 1]:
        for value in itertools.islice(values, 3):
            path.write_text(json.dumps(_spoilt(data, place, value)))
            with pytest.raises(InputError, match=r"^model file .*model\.json: "):
                load(path)


def test_files_without_a_digest_are_read_but_not_with_nan() -> None:
    """Those of before; they are read as they are."""
    data = fitted(BayesianInference(), "published").to_dict()
    assert BayesianInference.from_dict(data).schema_ == BINARY
    data["state"]["weights_"]["values"][0] = float("nan")
    with pytest.raises(InputError, match="damaged"):
        BayesianInference.from_dict(data)


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff", "[" * 100_000])
def test_what_is_no_model_at_all(text: str, tmp_path: Path) -> None:
    """Nothing, a list, half a file, no UTF-8, a file made to exhaust the stack."""
    (tmp_path / "model.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"^model file "):
        load(tmp_path / "model.json")


def test_trees_that_lead_in_a_circle_are_refused() -> None:
    """A saved forest whose child is its own parent would be walked for ever."""
    data = fitted(LocalForests(n_estimators=2), "published").to_dict()
    nodes = restored(data["state"]["forests_"][0])
    nodes[1, 3] = 0
    data["state"]["forests_"][0] = plain(nodes)
    with pytest.raises(InputError, match="damaged"):
        LocalForests.from_dict(data)


def test_what_was_not_fitted_cannot_be_saved(tmp_path: Path) -> None:
    """And leaves no file."""
    with pytest.raises(NotFittedError):
        save(RuleFitClassifier(), tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


def test_state_that_is_no_plain_data_says_what_to_write() -> None:
    """A learner with objects of its own."""
    model = fitted(BayesianInference(), "published")
    model.helper_ = object()
    with pytest.raises(InputError, match=r"write state\(\) and restore\(state\)"):
        model.to_dict()


ARRAYS = arrays.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | ARRAYS,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_plain_data_come_back_exactly(value: Any) -> None:
    """Through JSON's text: types, shapes, minus zero, NaN and infinities."""
    text = json.dumps(plain(value), allow_nan=False)
    again = restored(json.loads(text))
    assert repr(again) == repr(value)
    if isinstance(value, np.ndarray):
        assert (again.dtype, again.shape) == (value.dtype, value.shape)
        assert np.array_equal(again, value, equal_nan=value.dtype.kind == "f")


def test_narrow_floats_are_written_with_the_digits_they_have() -> None:
    """A model's file would be half as large again with the digits of their doubles."""
    assert plain(np.array([0.1, -2.5e-7], np.float32))["values"] == [0.1, -2.5e-7]


@pytest.mark.parametrize("shape", [(LARGE,), (1, LARGE), (3, 40, 40)], ids=str)
@pytest.mark.parametrize("kind", PACKED, ids=str)
def test_large_arrays_come_back_bit_for_bit(kind: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Any bits, NaN's too, in any order of the memory; symmetric matrices take half of the space."""
    sizes = int(np.prod(shape)), kind.itemsize
    bits = np.random.default_rng(0).integers(0, 256, sizes, dtype=np.uint8)
    value = bits.view(kind).reshape(shape)
    for array in (value, value.byteswap().view(kind.newbyteorder()), np.asfortranarray(value)):
        again = _again(array)
        assert (again.dtype, again.shape) == (kind, shape) and again.flags.writeable
        assert again.tobytes() == value.tobytes()
    if len(shape) == 3:
        lower = np.tril(np.ones(shape, bool))
        same = np.where(lower, value, value.swapaxes(1, 2))
        assert _again(same).tobytes() == same.tobytes()
        assert len(json.dumps(plain(same))) < 0.6 * len(json.dumps(plain(value)))


def _again(value: np.ndarray) -> np.ndarray:
    again: np.ndarray = restored(json.loads(json.dumps(plain(value), allow_nan=False)))
    return again


def test_zeros_of_two_signs_are_not_symmetric() -> None:
    """Nor are matrices that are not square, though all of their numbers are the same."""
    zeros = np.zeros((64, 64))
    zeros[3, 7] = -0.0
    assert "base64" in plain(zeros) and np.signbit(_again(zeros)).sum() == 1
    assert "base64" in plain(np.zeros((64, 128))) and _again(np.zeros((64, 128))).shape == (64, 128)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_raw_values_in_large_arrays_are_found(kind: type[np.floating[Any]]) -> None:
    """Forty of a table among five thousand others, by the scan of outputs; and none where there are none."""
    rng = np.random.default_rng(0)
    table, others = pd.DataFrame({"dose": rng.normal(50, 10, 500)}), rng.normal(50, 10, LARGE)
    kept = np.concatenate([others, table["dose"].head(40)]).astype(kind)
    assert_no_raw(json.dumps(plain(others.astype(kind))), table)
    with pytest.raises(AssertionError, match=r"base64.*float"):
        assert_no_raw(json.dumps(plain(kept)), table)


@pytest.mark.parametrize(
    "damage",
    [
        {"base64": "AAAA"}, {"base64": "?"}, {"base64": 3}, {"dtype": "object"}, {"dtype": "bool"},
        {"shape": [65, 64]}, {"shape": [-3, 5]}, {"triangle": "AAAA"}, {"shape": "long"},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_bytes_are_refused(damage: dict[str, Any]) -> None:
    """As other data that are no array."""
    data = plain(np.arange(4096.0).reshape(64, 64)) | damage
    if "triangle" in damage:
        del data["base64"]
    with pytest.raises((ValueError, TypeError)):
        restored(data)


@pytest.mark.parametrize(
    "shape", [[64, 63], [64, 65], [63, 64], [-64, -64], [2**40, 2**40], [64], []]
)
def test_damaged_triangles_are_refused(shape: list[int]) -> None:
    """Before memory of the stated size is taken."""
    data = plain(np.ones((64, 64))) | {"shape": shape}
    assert "triangle" in data
    with pytest.raises((ValueError, TypeError)):
        restored(data)


def test_a_triangle_of_no_square_matrix_is_refused_before_its_indices_are_made() -> None:
    """A few bytes that name a matrix of a million columns would take terabytes."""
    text = base64.b64encode(np.zeros(500_000, "<f4").tobytes()).decode()
    stored = {"dtype": "float32", "shape": [1, 10**6], "triangle": text}
    with pytest.raises(ValueError, match="square"):
        restored(stored)
