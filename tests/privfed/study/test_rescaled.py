"""An owner's own policy at another epsilon: the same fractions of another budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from privfed import Policy, Schema
from privfed.errors import StudyError
from privfed.learners import FuzzyTreeRegressor
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.policy import Guard
from privfed.study.price import Price, price
from privfed.study.rescaled import rescaled

MODEL = FuzzyTreeRegressor(max_depth=1, n_fuzzy_sets=2)


def priced(policy: Policy, schema: Schema) -> Price:
    """What the learner's plan costs under a policy."""
    return price(MODEL.plan(schema, policy), schema, policy)


@pytest.mark.parametrize("accountant", ["zcdp", "approximate"])
@pytest.mark.parametrize("epsilon", ["0.5", "3", "16"])
def test_a_plan_that_fills_its_budget_fills_another(
    accountant: str, epsilon: str, schema: Schema
) -> None:
    """To a thousandth, and never beyond it; delta and times stay."""
    own = MODEL.private(4, "1e-5", schema=schema)
    if accountant == "approximate":
        own = rescaled(replace(own, accountant=accountant), Fraction(3, 2), MODEL, schema)
    found = rescaled(own, Fraction(epsilon), MODEL, schema)
    told = priced(found, schema)
    ratio = priced(own, schema).epsilon / own.budget.epsilon  # type: ignore[union-attr,operator]
    assert told.fits and found.budget == Budget(Fraction(epsilon), Fraction(1, 10**5))
    assert float(told.epsilon or 0) == pytest.approx(float(ratio) * float(epsilon), rel=0.02)
    for kind, guards in own.guards.items():
        assert [g.times for g in guards] == [g.times for g in found.guards[kind]]


def test_losses_that_are_not_linear_in_spends_are_found_by_bisection(schema: Schema) -> None:
    """Laplace noise costs half the square of its spend in rho: the quotient of ceilings would not fit."""
    own = Policy(
        {"fuzzy_tree.level": (Guard.of("laplace", "weights", spend="0.3", cap="0.6", times=1),)},
        accountant="approximate",
        budget=Budget.of("2", "1e-5"),
        limits=(Limit(("round",), Budget.of("1", "1e-6")),),
    )
    found = rescaled(own, Fraction(4), MODEL, schema)

    def share(policy: Policy) -> float:
        assert policy.budget is not None
        (line,) = (line for line in priced(policy, schema).lines if line.loss and line.parts)
        return float(priced(policy, schema).share(line) or 0)

    assert share(found) == pytest.approx(share(own), rel=1e-4)
    (guard,) = found.guards["fuzzy_tree.level"]
    assert guard.cap is not None and guard.spend is not None
    assert float(guard.cap / guard.spend) == pytest.approx(2)
    assert found.limits[0].budget == Budget.of("2", "1e-6")


def test_a_policy_without_a_budget_has_no_other_epsilon(schema: Schema) -> None:
    """Nothing to rescale."""
    own = Policy({"fuzzy_tree.level": (Guard.of("laplace", spend="0.5"),)}, name="ours")
    with pytest.raises(StudyError, match=r"policy 'ours' has no \[budget\]"):
        rescaled(own, Fraction(4), MODEL, schema)


def test_the_same_epsilon_is_the_same_policy(tmp_path: Path, schema: Schema) -> None:
    """Digest included."""
    own = MODEL.private(4, "1e-5", schema=schema)
    assert rescaled(own, Fraction(4), MODEL, schema) is own


def test_a_study_says_so_with_a_file(
    write_study: Callable[..., Path], study_text: str, tmp_path: Path, schema: Schema
) -> None:
    """``epsilon`` beside a file's base is what the file is rescaled to."""
    from privfed.study import Study, dry_run

    MODEL.private(4, "1e-5", schema=schema).to_toml(tmp_path / "own.toml")
    written = study_text.replace('name = "private"', 'name = "own"\nbase = "own.toml"')
    study = Study.from_toml(write_study(written.replace('"4"', '"1"')))
    told = dry_run.prices(study)[1]
    assert told.policy.budget == Budget.of("1", "1e-5") and told.fits
    with pytest.raises(StudyError, match="write its delta there"):
        Study.from_toml(write_study(written.replace('"4"', '"1"\ndelta = "1e-6"')))
