"""What a study names is built with its parameters, or told before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed.errors import PolicyError, PrivfedError, StudyError
from privfed.learners import FuzzyTreeRegressor, RuleFitRegressor
from privfed.learners.base import Planned
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Guard, Policy
from privfed.questions import plugins
from privfed.questions.part import Part, Sensitivity
from privfed.questions.query import View
from privfed.study import LearnerChoice, PolicyChoice, Study, dry_run, simulation
from privfed.study.price import priced
from privfed.study.schema_of_study import public_schema
from privfed.tables.schema import Schema
from privfed.testing.queries import Histogram
from tests.own_accountant import PureOnly


@pytest.fixture(scope="module")
def study() -> Study:
    """The built-in study."""
    return Study.built_in()


def test_strict_uses_the_learners_own_form_or_makes_every_guard_strict() -> None:
    """A learner that suppresses nothing has no strict form."""

    class Plain(FuzzyTreeRegressor):
        def published(self) -> Policy:  # type: ignore[override]
            return Policy({"a": (Guard.of("nullify", times=2),), "b": (Guard.of("open"),)})

    made = dry_run.strict(Plain())
    assert made.guards["a"][0].options == {"strict": True}
    assert made.guards["a"][0].times == 2
    assert made.guards["b"][0].options == {}
    own = dry_run.strict(FuzzyTreeRegressor())
    assert own.guards == FuzzyTreeRegressor().published(strict=True).guards

    class Open(FuzzyTreeRegressor):
        def published(self) -> Policy:  # type: ignore[override]
            return Policy({"a": (Guard.of("open"),)})

    with pytest.raises(PolicyError, match="suppresses nothing"):
        dry_run.strict(Open())


def test_a_baseline_runs_the_learner_that_the_study_puts_inside(study: Study) -> None:
    """With its own parameters, and the study's seed."""
    inside = LearnerChoice("RuleFitRegressor", {"n_rounds": 7})
    made = dry_run.learner(
        replace(study, learner=LearnerChoice("LocalRuleFitRegressor", learner=inside))
    )
    params = made.get_params()
    assert params["learner__n_rounds"] == 7
    assert params["learner__random_state"] == study.seed


def test_a_learners_chance_comes_from_the_studys_seed(study: Study) -> None:
    """Unless the study fixes it for the learner alone."""
    assert dry_run.learner(study).get_params()["random_state"] == study.seed
    fixed = replace(study, learner=LearnerChoice("FuzzyTreeRegressor", {"random_state": 5}))
    assert dry_run.learner(fixed).get_params()["random_state"] == 5


def test_a_study_takes_a_learners_preset(study: Study) -> None:
    """The paper's settings, with any of them changed; what else the study says stands beside them."""
    chosen = LearnerChoice("RuleFitRegressor", {"preset": "paper", "max_rules": 7})
    made = dry_run.learner(replace(study, learner=chosen)).get_params()
    assert made == RuleFitRegressor.paper(max_rules=7, random_state=study.seed).get_params()
    assert made != RuleFitRegressor(max_rules=7, random_state=study.seed).get_params()
    wrong = LearnerChoice("RuleFitRegressor", {"preset": "papers"})
    with pytest.raises(StudyError, match=r"no preset 'papers'; it has \"paper\""):
        dry_run.learner(replace(study, learner=wrong))
    own = LearnerChoice("FuzzyTreeRegressor", {"preset": "paper"})
    assert dry_run.learner(replace(study, learner=own)).get_params()["gains"] == "literal"
    without = LearnerChoice("LocalForests", {"preset": "paper"})
    with pytest.raises(StudyError, match="no preset 'paper'; it has none"):
        dry_run.learner(replace(study, learner=without))


def test_an_attack_takes_parameters_and_several_settings(study: Study) -> None:
    """A table beside names; the star stands for all installed ones, each as it is."""
    chosen: list[Any] = ["verbatim", {"name": "pool", "unknown": ["bmi"], "max_candidates": 50}]
    first, second = dry_run.attacks_of(Study.from_dict(study.to_dict() | {"attacks": chosen}))
    assert (first.name, second.name) == ("verbatim", "pool")
    assert second.unknown == ("bmi",) and second.max_candidates == 50
    every = replace(study, attacks=("*", {"name": "pool", "unknown": ["bmi"]}), attack_seconds=7)
    built = dry_run.attacks_of(every)
    assert len(built) == len(plugins.available("attacks")) + 2
    assert [one.viewpoint for one in built if one.name == "pool"] == ["", "largest", ""]
    assert {one.time_limit for one in built} == {7}
    assert Study.from_dict(every.to_dict()).attacks == every.attacks


@pytest.mark.parametrize(
    ("chosen", "fault"),
    [
        ({"name": "pool", "unknwon": ["bmi"]}, "no parameter 'unknwon'.*'unknown'"),
        ({"unknown": ["bmi"]}, "needs the attack's name"),
        ({"name": "pool", "max_candidates": "many"}, "max_candidates"),
        ({"name": "pole"}, "'pool'"),
        ({"name": "pool", "viewpoint": 3}, 'write "largest"'),
        (3, "attacks"),
    ],
)
def test_an_attack_that_cannot_be_built_is_told(study: Study, chosen: Any, fault: str) -> None:
    """With what was meant."""
    with pytest.raises(PrivfedError, match=fault):
        dry_run.attacks_of(Study.from_dict(study.to_dict() | {"attacks": [chosen]}))


def test_columns_that_attacks_name_are_there(study: Study) -> None:
    """Every unknown one is told before anything is charged, of all attacks at once."""
    chosen = [{"name": "pool", "unknown": ["target", name]} for name in ("bmi", "bim", "blood")]
    asked = Study.from_dict(study.to_dict() | {"attacks": chosen})
    schema = simulation.prepare(study).schema
    with pytest.raises(StudyError, match=r"(?s)no column 'bim'.*no column 'blood'"):
        dry_run.dry_run(asked, schema)
    dry_run.dry_run(replace(asked, attacks=asked.attacks[:1]), schema)


def test_a_viewpoint_is_an_owners(study: Study) -> None:
    """Told before anything is learnt."""
    chosen = {"name": "pool", "viewpoint": "Ashfrod"}
    asked = Study.from_dict(study.to_dict() | {"attacks": [chosen]})
    with pytest.raises(StudyError, match=r"no owner 'Ashfrod'.*did you mean 'Ashford'"):
        dry_run.check_viewpoints(asked, ["Ashford", "Dunmore"])
    dry_run.check_viewpoints(asked, ["Ashfrod"])


def test_none_stands_for_what_toml_has_no_word_for(study: Study) -> None:
    """Where the parameter may be none; elsewhere, and written otherwise, it is refused."""
    written = LearnerChoice("RuleFitRegressor", {"max_terms": "none"})
    assert dry_run.learner(replace(study, learner=written)).get_params()["max_terms"] is None
    otherwise = LearnerChoice("RuleFitRegressor", {"max_terms": "all"})
    with pytest.raises(StudyError, match='expected int or "none", got str'):
        dry_run.learner(replace(study, learner=otherwise))
    never = LearnerChoice("RuleFitRegressor", {"n_rounds": "none"})
    with pytest.raises(StudyError, match="n_rounds expected int, got str"):
        dry_run.learner(replace(study, learner=never))


def test_a_fault_of_a_policys_own_learner_names_the_policy(study: Study) -> None:
    """Several policies may have learners of one name."""
    wrong = LearnerChoice("RuleFitRegressor", {"n_rounds": "many"})
    policies = tuple(replace(one, learner=wrong) for one in study.policies)
    with pytest.raises(StudyError) as told:
        dry_run.dry_run(replace(study, policies=policies), public_schema(study))
    assert [f"policy {one.name!r}: learner" in str(told.value) for one in policies] == [
        True for _ in policies
    ]


def test_a_price_is_behind_masks_where_only_the_table_names_the_owners(study: Study) -> None:
    """No record is read to count them, and what masks promise is still no promise without."""
    choice = PolicyChoice("private", epsilon="1", masked={"least": 3})
    rulefit = replace(study, learner=LearnerChoice("RuleFitRegressor"), policies=(choice,))
    (named,) = dry_run.dry_run(rulefit, public_schema(study), attacks=False)
    clients = replace(study.clients, partition="column", column="site", names=None)
    (unnamed,) = dry_run.dry_run(
        replace(rulefit, clients=clients), public_schema(study), attacks=False
    )
    assert "if any do, an owner's own share" in named.basis
    lines = tuple(replace(line, loss=Loss.pure(1)) for line in named.lines)
    assert replace(named, lines=lines).basis == ""  # nothing is behind masks: nobody can "do"
    assert "behind masks where its sums are masked" in unnamed.basis
    assert f"\n  this holds {unnamed.basis}\n" in priced(unnamed)
    (plain,) = dry_run.dry_run(
        replace(rulefit, clients=clients, policies=(replace(choice, masked=None),)),
        public_schema(study),
        attacks=False,
    )
    assert not plain.basis and plain.epsilon == unnamed.epsilon


class Understated(Histogram):
    """Another author's histogram, which states that no record moves it."""

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Its counts, at no sensitivity."""
        own = super().parts(schema)
        return {name: replace(part, sensitivity=Sensitivity.of(0)) for name, part in own.items()}


class Unanswerable(Histogram):
    """Another author's histogram, which fails wherever records are few."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """As if three were needed."""
        if len(view.table.x) < 3:
            raise ValueError("too few")
        return super().evaluate(view)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Histogram, ""),
        (Understated, r"move counts further than declared.*correct its parts\(\)"),
        (Unanswerable, r"ValueError: too few.*correct its evaluate\(\)"),
    ],
)
def test_what_disproves_a_querys_statement_is_told_before_anything_is_charged(
    study: Study, asked: type[Histogram], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found among the attacks, after the training that it did not protect, and by no ``privfed run``."""
    adopted = Policy({asked.kind: (Guard.of("laplace", spend="1"),)}, budget=Budget.of(1))
    planned = [Planned(asked(0, (-1.0, 0.0, 1.0)), 1)]
    monkeypatch.setattr(dry_run, "adopt", lambda *_: adopted)
    monkeypatch.setattr(dry_run, "whole_plan", lambda *_: planned)
    with pytest.raises(StudyError, match=told) if told else nullcontext():
        assert dry_run.dry_run(study, public_schema(study))


class Forgetful(PureOnly):
    """Another author's accountant, which forgets most of each charge."""

    def amount(self, loss: Loss) -> Amount:
        """A tenth."""
        return (super().amount(loss)[0] / 10,)


@pytest.mark.parametrize(
    ("accountant", "told"),
    [
        (PureOnly(), ""),
        (Forgetful(), "accountant 'pure_only': .*: the guarantee is too strong; correct it, with"),
    ],
)
def test_an_accountant_that_composes_falsely_is_told_before_anything_is_charged(
    study: Study, accountant: Accountant, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its price, its ledger and its report would state a tenth."""
    guards = {Histogram.kind: (Guard.of("laplace", spend="1"),)}
    adopted = Policy(guards, budget=Budget.of(2), accountant=accountant)
    monkeypatch.setattr(dry_run, "adopt", lambda *_: adopted)
    monkeypatch.setattr(dry_run, "whole_plan", lambda *_: [Planned(Histogram(0, (-1.0, 1.0)), 1)])
    with pytest.raises(StudyError, match=told) if told else nullcontext():
        assert dry_run.dry_run(study, public_schema(study))
