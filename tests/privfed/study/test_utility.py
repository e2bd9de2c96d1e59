"""What error a budget leaves for counts and means, before any record is read."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from privfed import Budget, Column, Policy, Schema
from privfed.cli import FINE, status
from privfed.privacy.policy_objects import accountant_of
from privfed.study.new_study import NewStudy
from privfed.study.utility import utility, utility_text

SCHEMA = Schema(
    (Column("age", lower=0, upper=110), Column("sex", "category", categories=("f", "m"))),
    Column("days", lower=-10, upper=50),
)


def test_gaussian_errors_follow_from_the_budget() -> None:
    """Four questions of equal rho: sigma is the root of 4 / (2 rho); a sum moves by half a width."""
    policy = Policy({}, accountant="zcdp", budget=Budget.of(2, "1e-5"))
    found = utility(policy, SCHEMA)
    assert found is not None and found.categorical == ("sex",)
    assert policy.budget is not None
    rho = float(accountant_of(policy).ceiling(policy.budget)[0])
    assert found.count == pytest.approx(sqrt(4 / (2 * rho)), rel=1e-6)
    assert found.means["age"] == pytest.approx(55 * found.count, rel=1e-6)
    assert found.of_mean("days", 1000) == pytest.approx(30 * found.count / 1000, rel=1e-6)


def test_laplace_errors_follow_from_the_budget() -> None:
    """A quarter of epsilon each; a discrete Laplace's deviation."""
    found = utility(Policy({}, accountant="pure", budget=Budget.of(2)), SCHEMA)
    ratio = np.exp(-1 / 2)
    assert found is not None
    assert found.count == pytest.approx(sqrt(2 * ratio) / (1 - ratio), rel=1e-6)


def test_no_records_sum_moves_by_more_than_half_a_width() -> None:
    """One more, whatever it holds, about the middle of its bounds."""
    low, high = SCHEMA.column("age").bounds
    values = np.linspace(low, high, 221)
    assert np.abs(values - (low + high) / 2).max() == (high - low) / 2 == 55


def test_a_person_of_several_records_costs_more() -> None:
    """By the cap."""
    policy = Policy({}, accountant="zcdp", budget=Budget.of(2, "1e-5"))
    one, three = utility(policy, SCHEMA), utility(replace(policy, unit="individual", cap=3), SCHEMA)
    assert one is not None and three is not None
    assert three.count == pytest.approx(3 * one.count, rel=1e-6)
    assert utility(Policy({}), SCHEMA) is None


def test_a_price_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the cost, column by column."""
    NewStudy(tmp_path / "new", "diabetes", "progression").write()
    assert status(["price", str(tmp_path / "new/study.toml"), "--utility"]) == FINE
    text = capsys.readouterr().out
    assert "age, 15 to 95" in text and "2.24 times as much for the total" in text


def test_categories_alone_and_wide_bounds_are_told() -> None:
    """A schema without a number has no means (its price ended in an error); money has no powers of ten."""
    policy = Policy({}, name="one", accountant="zcdp", budget=Budget.of(2, "1e-5"))
    sex = Column("sex", "category", categories=("f", "m"))
    ill = Column("ill", "category", categories=("yes", "no"))
    alike = utility_text(utility(policy, Schema((sex,), ill)), policy, Schema((sex,), ill), 1)
    assert "in a category of sex, ill: the same" in alike and "mean over" not in alike
    pay = Schema((sex,), Column("pay", lower=0, upper=2e5))
    text = utility_text(utility(policy, pay), policy, pay, 1)
    assert "pay, 0 to 200,000" in text and "e+0" not in text
