"""The assertion itself: messages, exceptions, what may leave, alpha, and its own test."""

from __future__ import annotations

import logging
from contextvars import Context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed import LocalDisclosure, Policy
from privfed.errors import InputError
from privfed.learners import FuzzyTreeRegressor
from privfed.testing import Powerless, RawValueLeft, assert_no_raw, sentinels, spending
from privfed.testing.assertions.alpha import ALONE, share
from privfed.testing.hospitals import NUMERIC, patients

TABLE = sentinels(NUMERIC, 60, seed=2)
AGES = TABLE["age"].to_numpy()
RNG = np.random.default_rng(5)


def test_the_message_can_be_acted_on() -> None:
    """Path, record, column, rule, remedy; the value only because the table is made up."""
    with pytest.raises(RawValueLeft) as caught:
        assert_no_raw({"a": [1.5, {"b": AGES[7]}]}, TABLE)
    text = str(caught.value)
    assert "left['a'][1]['b']" in text
    assert "record 7, column 'age'" in text
    assert repr(float(AGES[7])) in text
    assert "release a sum" in text


def test_no_value_of_a_real_table_is_repeated() -> None:
    """Neither in the message nor by way of a key in the path."""
    table = pd.DataFrame({"name": [f"Name{at:04}" for at in range(40)], "x": RNG.normal(size=40)})
    left = {"Name0007": {"deep": table["x"].iloc[7]}}
    with pytest.raises(RawValueLeft) as caught:
        assert_no_raw(left, table)
    assert "Name0007" not in str(caught.value)
    assert repr(float(table["x"].iloc[7]))[:8] not in str(caught.value)
    assert "record 7" in str(caught.value)


def test_owners_are_told_apart() -> None:
    """A mapping of owners to tables; the message says whose record it is."""
    owners = {"north": TABLE.iloc[:30], "south": TABLE.iloc[30:]}
    with pytest.raises(RawValueLeft, match="record 5, column 'age' of south"):
        assert_no_raw([AGES[35]], owners)


@pytest.mark.parametrize(
    "raw",
    [
        TABLE[["age"]],
        AGES,
        AGES.tolist(),
        {"age": AGES},
        TABLE["age"],
        [[value, 1.0] for value in AGES],
    ],
)
def test_raw_comes_in_any_form(raw: object) -> None:
    """A table, an array, a list, a mapping of columns, a series, rows."""
    with pytest.raises(RawValueLeft):
        assert_no_raw(AGES[3], raw)
    assert_no_raw(AGES.mean(), raw)


def test_what_may_leave() -> None:
    """Public values, texts and patterns of paths; and values that enough records share."""
    left = {"cut": AGES[3], "rest": 1.0}
    assert_no_raw(left, TABLE, allow=[AGES[3]])
    assert_no_raw(left, TABLE, allow=["left['cut']"])
    with pytest.raises(RawValueLeft):
        assert_no_raw(left, TABLE, allow=["left['rest']*"])
    shared = TABLE.assign(age=np.where(np.arange(60) < 5, AGES[0], AGES))
    assert_no_raw({"mode": AGES[0]}, shared)
    with pytest.raises(RawValueLeft):
        assert_no_raw({"mode": AGES[0]}, shared, k=6)


def test_tolerance_widens() -> None:
    """A value that is off by one part in 10^9 is found only if told to look there."""
    left = {"near": AGES[3] * (1 + 1e-9)}
    assert_no_raw(left, TABLE)
    with pytest.raises(RawValueLeft):
        assert_no_raw(left, TABLE, tolerance=1e-8)


@pytest.mark.parametrize(
    "left",
    ["12e999 7e350 8e340", [np.inf, np.inf, -np.inf], {"a": 1e308, "b": -1e308, "c": 5e-324}],
)
@pytest.mark.filterwarnings("error")
def test_numbers_at_the_ends_of_floats_are_no_warning(left: object) -> None:
    """A suite may turn those into errors; and beside them a record is still found."""
    odd = TABLE.assign(odd=np.r_[np.inf, np.full(len(TABLE) - 1, 1e300)])
    for table in (TABLE, odd):
        assert_no_raw(left, table)
        with pytest.raises(RawValueLeft):
            assert_no_raw([left, TABLE], table)


def test_nothing_at_all_is_no_pass() -> None:
    """Unless it is said that nothing may be there, as in a log."""
    nothing: tuple[Any, ...] = ({}, [], None)
    for left in nothing:
        with pytest.raises(AssertionError, match="nothing left at all"):
            assert_no_raw(left, TABLE)
        assert_no_raw(left, TABLE, may_be_empty=True)


def test_a_path_to_nothing_is_no_pass(tmp_path: Path) -> None:
    """A slip in a file's name would be green for ever, and so would a job that wrote no file."""
    for path in (tmp_path / "model.pkl", tmp_path):
        with pytest.raises(AssertionError, match="no file is at the path"):
            assert_no_raw(path, TABLE)
        assert_no_raw(path, TABLE, may_be_empty=True)
    (tmp_path / "metrics.json").write_text('{"r2": 0.5}')
    assert_no_raw(tmp_path, TABLE)


def test_a_finding_reads_as_its_column_does() -> None:
    """A date as a date, one record as one, and of many columns the first."""
    days = np.random.default_rng(0).integers(-7000, 12_000, 60)
    dates = pd.DataFrame({"born": days.astype("datetime64[D]").astype("datetime64[ns]")})
    dates.attrs["sentinels"] = True
    with pytest.raises(RawValueLeft, match=r"a raw value \(a date\), .* = 19\d\d-\d\d-\d\d, and"):
        assert_no_raw([str(day.date()) for day in dates["born"][:9]], dates)
    ids = sentinels(pd.DataFrame({"id": range(10_007, 90_000, 911)}), 60)
    with pytest.raises(RawValueLeft, match=r"a raw value \(a whole number\), .* = \d{5}, and"):
        assert_no_raw(ids["id"].tolist(), ids)
    with pytest.raises(Powerless, match="its 1 record of 1 numeric column look"):
        assert_no_raw([1.5], pd.DataFrame({"x": [1.25]}))
    few = pd.DataFrame({f"x{at}": [0.5, 1.0, 1.5] * 9 for at in range(40)}).assign(
        y=TABLE.iloc[:27, 0]
    )
    with pytest.raises(RawValueLeft, match=r"'x7' and 3. more are too common for one alone"):
        assert_no_raw(few.to_numpy(), few)


def test_it_says_when_it_is_powerless() -> None:
    """Three answers of yes or no look like anybody's: even the whole table would not be noticed."""
    with pytest.raises(Powerless, match="sentinels"):
        assert_no_raw({"n": 3}, np.array([[0], [1], [1]]))


def test_arguments_are_checked() -> None:
    """A table that is none, rates and group sizes that make no sense."""
    with pytest.raises(InputError, match="no value"):
        assert_no_raw([1.0], pd.DataFrame())
    with pytest.raises(InputError, match=r"not a table .NoneType."):
        assert_no_raw([1.0], None)
    with pytest.raises(InputError, match="at least one column"):
        sentinels(pd.DataFrame(), 9)
    for options in ({"k": 1}, {"tolerance": float("nan")}, {"alpha": 0.0}, {"alpha": 2.0}):
        with pytest.raises(InputError):
            assert_no_raw([1.0], TABLE, **options)


def test_logs_and_errors(caplog: pytest.LogCaptureFixture) -> None:
    """Two ways in which raw values leave by accident."""
    with caplog.at_level(logging.WARNING):
        logging.getLogger("client").warning("cannot use age %s", AGES[9])
    with pytest.raises(RawValueLeft, match="getMessage"):
        assert_no_raw(caplog, TABLE)
    with pytest.raises(RawValueLeft, match="text"):
        assert_no_raw(ValueError(f"bad record: {TABLE.iloc[9].tolist()}"), TABLE)


def test_shares_of_alpha_add_up() -> None:
    """However many assertions a test makes, they spend no more than it has."""
    assert Context().run(share, None) == ALONE  # outside any test
    with spending(0.01):
        spent = [share(None) for _ in range(2000)]
        assert share(0.5) == 0.5
    assert sum(spent) <= 0.01
    assert spent[0] == 0.005


def test_sentinels_keep_to_the_schema() -> None:
    """Within bounds, of known categories, all different, and the same for a seed."""
    for column in NUMERIC.columns:
        values = TABLE[column.name]
        if column.kind == "category":
            assert set(values) == set(column.categories)
        else:
            low, high = column.bounds
            assert values.between(low, high).all()
    assert TABLE["age"].is_unique and TABLE["days"].round(1).nunique() > 55
    assert TABLE.equals(sentinels(NUMERIC, 60, seed=2))
    assert not TABLE.equals(sentinels(NUMERIC, 60, seed=3))
    assert TABLE.attrs["sentinels"]
    with pytest.raises(InputError):
        sentinels(NUMERIC, 0)
    with pytest.raises(InputError):
        sentinels([1, 2], 5)  # type: ignore[arg-type]


def test_sentinels_take_after_a_frame() -> None:
    """Types, ranges and categories are those of the columns."""
    like = pd.DataFrame(
        {
            "x": [0.5, 9.5],
            "n": [1, 900],
            "yes": [True, False],
            "ward": pd.Categorical(["a", "b"]),
            "name": ["Ada", "Bob"],
            "when": pd.to_datetime(["2024-01-01", "2025-01-01"], utc=True),
            "single": np.array([1, 2], dtype=np.float32),
        }
    )
    made = sentinels(like, 50)
    assert made.dtypes.drop("name").equals(like.dtypes.drop("name"))
    assert made["x"].between(0.5, 9.5).all() and made["n"].between(1, 900).all()
    assert made["name"].is_unique and not set(made["name"]) & {"Ada", "Bob"}
    assert made["when"].between(like["when"].min(), like["when"].max()).all()


@pytest.mark.parametrize("private", [False, True])
def test_privfed_s_own_learner_keeps_to_it(private: bool) -> None:
    """A tree's releases over three hospitals, under both of its policies."""
    frame = patients(300)
    learner = FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=1)
    policy: Policy = learner.private(2) if private else learner.published()
    federation = LocalDisclosure.from_frame(
        frame[["age", "GCS", "noise", "sex", "hospital", "days"]],
        target="days",
        client="hospital",
        schema=NUMERIC,
        policy=policy,
        seed=1,
    )
    learner.fit(federation)
    owners = {str(name): part for name, part in frame.groupby("hospital")}
    assert_no_raw(federation.transcript(), owners, schema=NUMERIC)
