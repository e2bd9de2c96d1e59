"""Sentinels keep a column's form, so that validators accept them, and are recognised all the same."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from leak_tables import DIRECTORY, records
from validating import RULES, WARDS, patients, refused

from privfed.errors import InputError
from privfed.testing import RawValueLeft, assert_no_raw, sentinels
from privfed.testing.hospitals import NUMERIC
from privfed.testing.sentinel_tables import _is_iban, _luhn

LIKE = records(120, 1).assign(
    iban=[f"DE{98 - int(f'{x:018}131400') % 97:02}{x:018}" for x in range(10**17, 10**17 + 120)],
    card=["4539 1488 0343 6467"] * 60 + ["6011 0009 9013 9424"] * 30 + ["5555 5555 5555 4444"] * 30,
    visit=[f"{1 + at % 28:02}/{1 + at % 12:02}/2023" for at in range(120)],
)
LIKE["card"] = [f"4539 1488 {at:04} 0000" for at in range(120)]
LIKE["card"] = [one[:-1] + str((10 - _luhn(one)) % 10) for one in LIKE["card"]]
MADE = sentinels(LIKE, 120, seed=3)

#: What a pipeline checks before it takes a record.
VALID = {
    "name": r"[A-Z][a-z]+ [A-Z][a-z]+-[A-Z][a-z]+",
    "email": r"[a-z]+\.[a-z]+\d+@example\.org",
    "phone": r"\+49 \d{2,3} \d{7,8}",
    "zip": r"\d{5}",
    "visit": r"(0[1-9]|[12]\d|3[01])/(0[1-9]|1[0-2])/2023",
    "card": r"\d{4} \d{4} \d{4} \d{4}",
}


@pytest.mark.parametrize("column", VALID)
def test_patterns_are_kept(column: str) -> None:
    """Every record passes the pipeline's own check."""
    assert all(re.fullmatch(VALID[column], one) for one in MADE[column])
    assert not set(MADE[column]) & set(LIKE[column]) or column == "visit"


def test_check_digits_are_right() -> None:
    """Of IBANs and cards, as the column's own are."""
    assert all(map(_is_iban, LIKE["iban"])) and all(map(_is_iban, MADE["iban"]))
    assert {_luhn(one) for one in LIKE["card"]} == {_luhn(one) for one in MADE["card"]} == {0}


def test_numbers_keep_range_and_decimals() -> None:
    """Money with one decimal stays so; dates without a time of day, categories and types too."""
    assert MADE.dtypes.equals(LIKE.dtypes)
    for column, decimals in {"salary": 1, "creatinine": 3, "weight": 1}.items():
        assert np.allclose(MADE[column], MADE[column].round(decimals), atol=1e-12, rtol=0)
        assert MADE[column].between(LIKE[column].min(), LIKE[column].max()).all()
    assert MADE["salary"].is_unique and MADE["email"].is_unique
    assert (MADE["birth"] == MADE["birth"].dt.normalize()).all()
    assert set(MADE["icd"]) <= set(LIKE["icd"]) and set(MADE["sex"]) == {"F", "M"}


def test_a_schema_may_be_made_after_a_table_and_refer_to_another() -> None:
    """Columns of ``like`` in their form, keys among those given, and what a function makes."""
    like = pd.DataFrame({"age": np.arange(20, 60) / 2})
    wards = ["W1", "W2", "W3"]
    made = sentinels(NUMERIC, 40, like=like, keys={"sex": wards}, make={"days": lambda: 7.5})
    assert (made["age"] * 2 % 1 == 0).all() and set(made["sex"]) == set(wards)
    assert (made["days"] == 7.5).all()
    with pytest.raises(InputError, match="no column"):
        sentinels(NUMERIC, 5, keys={"wards": wards})


def test_a_pipeline_accepts_every_record() -> None:
    """Thirty columns of as many forms; what refers to another table goes on doing so."""
    keys: dict[str | tuple[str, ...], object] = {("zip", "city"): DIRECTORY, "ward": WARDS["id"]}
    for seed in range(3):
        like = patients(300, seed)
        assert len(RULES) == 30 and not refused(like)
        made = sentinels(like, (120, 120, 3000)[seed], seed=seed, keys=keys)
        assert refused(made) == {}
        assert all(made[name].is_unique for name in ("email", "iban", "key", "card"))
    assert set(refused(sentinels(like, 120, keys={"ward": WARDS["id"]}))) == {"zip, city"}


def test_the_pipeline_refuses_what_is_malformed() -> None:
    """Words for addresses, fifteen digits for money: what sentinels once were."""
    like = patients(60)
    for column in ("email", "iban", "card", "isbn", "key", "address", "clock", "amount"):
        assert column in refused(like.assign(**{column: "bdfgklmprstvwxzb"}))
    assert "salary" in refused(like.assign(salary=like["salary"] + 0.123456789))


@pytest.mark.parametrize("column", ["name", "email", "phone", "iban", "card"])
def test_each_is_recognised(column: str) -> None:
    """A single value is enough for one assertion, without separators and in capitals."""
    left = f"x {MADE[column][5]} y".upper().replace(" ", "  ")
    with pytest.raises(RawValueLeft, match="a raw text"):  # a suite's share shrinks as it grows
        assert_no_raw(left, MADE, off=["lines"], alpha=1e-3)
