"""Study files: what is written is what is read, and a slip of the pen is one clear error."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import Any

import pytest

from privfed import Column, Schema
from privfed.errors import InputError, StudyError
from privfed.learners import FuzzyTreeRegressor
from privfed.study import LearnerChoice, Study

GOOD = """
name = "a study"
[data]
source = "iris"
[clients]
count = 3
[learner]
name = "toy"
[[policy]]
name = "published"
[[policy]]
name = "tight"
base = "private"
epsilon = "0.1"
"""


def _with(old: str, new: str) -> dict[str, Any]:
    assert old in GOOD
    return tomllib.loads(GOOD.replace(old, new, 1))


def test_a_study_survives_its_own_file(tmp_path: Path) -> None:
    """Writing and reading again gives the same study; relative paths become absolute."""
    study = Study.from_dict(tomllib.loads(GOOD), folder=tmp_path)
    study.to_toml(tmp_path / "study.toml")
    again = Study.from_toml(tmp_path / "study.toml")
    assert again.to_dict() == study.to_dict()
    assert again.policies[1].exact_epsilon == Fraction(1, 10)


def test_paths_start_where_the_study_lies(tmp_path: Path) -> None:
    """A study can be copied elsewhere and still finds its table."""
    plain = _with('"iris"', '"table.csv"\nschema = "table.toml"')
    told = Study.from_dict(plain, folder=tmp_path).to_dict()["data"]
    assert told["source"] == str(tmp_path.resolve() / "table.csv")
    assert told["schema"] == str(tmp_path.resolve() / "table.toml")


def test_the_built_in_study_is_the_one_promised() -> None:
    """Diabetes, five clinics, published, strict, and private at epsilon 8."""
    study = Study.built_in()
    assert study.data.source == "diabetes"
    assert study.clients.names is not None and len(study.clients.names) == 5
    assert [policy.base for policy in study.policies] == ["published", "strict", "private"]
    assert study.policies[2].exact_epsilon == 8
    assert study.noise == "secure"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("count = 3", "cuont = 3", "unknown key 'cuont'; did you mean 'count'"),
        ('name = "a study"', 'nmae = "a study"', "unknown key 'nmae'; did you mean 'name'"),
        ('source = "iris"', 'source = "iris"\nzebra = 1', "unknown key 'zebra'; known are"),
        ('[[policy]]\nname = "published"\n[[policy]]', "[policy]", r"needs at least one \[\[pol"),
        (
            "count = 3",
            'count = "three"',
            r"expected int, got str at count; write a whole number, without quotes",
        ),
        ("count = 3", "count = [3]", "expected int, got list at count; write a whole number"),
        ('name = "a study"', "name = 3", "expected str, got int at name; write text in quotes"),
        (
            '[[policy]]\nname = "published"',
            '[[policy]]\nname = "published"\nunit = "x"',
            "write one of record, rule, individual, client$",
        ),
        ("count = 3", 'partition = "random"', "invalid enum value 'random'"),
        ("count = 3", 'partition = "column"', 'needs column = "..."'),
        ("count = 3", 'column = "site"', 'column goes with partition = "column"'),
        ('"tight"', '"published"', "two policies are called 'published'"),
        ('"tight"', '"../tight"', "must be letters, digits"),
        ('"tight"', '""', "must be letters, digits"),
        ('"tight"', '"tight"\nblock = 0', "policy 'tight': block must be at least 1"),
        ('base = "private"', 'base = "privat"', "needs base = one of published, strict, private"),
        ('source = "iris"', 'source = "iris"\ntest = 1', "test must lie between 0 and 1"),
        ('source = "iris"', 'source = "iris"\ntest = nan', "test must lie between 0 and 1"),
        ("[clients]\ncount = 3\n", "", r"\[clients\] with count = 5 is missing"),
        ('[learner]\nname = "toy"', "", r"\[learner\] with name"),
        ("[clients]\ncount = 3\n", "[[clients]]\ncount = 3\n", "must be a table"),
    ],
)
def test_a_slip_of_the_pen_is_one_clear_error(old: str, new: str, told: str) -> None:
    """It says where, what, and what to write instead."""
    with pytest.raises(StudyError, match=told) as caught:
        Study.from_dict(_with(old, new), "study file x.toml")
    assert str(caught.value).startswith("study file x.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", '"nan"', '"1,0"', "inf", '""', "true"])
def test_an_epsilon_that_is_none_is_refused(epsilon: str) -> None:
    """Zero, negative, NaN, infinite, empty, truth values and decimal commas."""
    with pytest.raises(InputError, match=r"epsilon"):
        Study.from_dict(_with('"0.1"', epsilon))


def test_private_needs_an_epsilon_and_a_delta_below_one() -> None:
    """No budget is no private policy."""
    with pytest.raises(StudyError, match='write epsilon = "1"'):
        Study.from_dict(_with('epsilon = "0.1"', ""))
    with pytest.raises(StudyError, match="delta must be below 1"):
        Study.from_dict(_with('epsilon = "0.1"', 'epsilon = "0.1"\ndelta = 1'))


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe", None])
def test_a_file_that_is_no_study_is_one_clear_error(tmp_path: Path, content: bytes | None) -> None:
    """Broken TOML, bytes that are no text, no file at all."""
    path = tmp_path / "study.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StudyError, match="study file"):
        Study.from_toml(path)


def test_a_learner_holds_another_one(tmp_path: Path) -> None:
    """It survives the way to a file and back; a misspelt key inside is told with its place."""
    plain = tomllib.loads(GOOD)
    plain["learner"] = {"name": "outer", "learner": {"name": "inner", "params": {"depth": 2}}}
    study = Study.from_dict(plain)
    assert study.learner.learner == LearnerChoice("inner", {"depth": 2})
    study.to_toml(tmp_path / "study.toml")
    assert Study.from_toml(tmp_path / "study.toml").learner == study.learner
    plain["learner"]["learner"]["parms"] = {}
    with pytest.raises(StudyError, match=r"\[learner\], learner: unknown key 'parms'"):
        Study.from_dict(plain)


def test_a_policy_may_bring_its_own_learner(tmp_path: Path) -> None:
    """A baseline stands under the same study, with its parameters checked like the others'."""
    plain = tomllib.loads(GOOD)
    plain["policy"].append({"name": "alone", "base": "published", "learner": {"name": "local"}})
    study = Study.from_dict(plain)
    assert study.learner_under("alone") == LearnerChoice("local")
    assert study.learners == ("toy", "local")
    study.to_toml(tmp_path / "study.toml")
    assert Study.from_toml(tmp_path / "study.toml").policies == study.policies
    plain["policy"][-1]["learner"]["parms"] = {}
    with pytest.raises(StudyError, match=r"\[\[policy\]\], learner: unknown key 'parms'"):
        Study.from_dict(plain)


def test_params_go_with_a_learners_own_policy() -> None:
    """A policy file holds its own."""
    plain = _with('base = "private"', 'base = "own.toml"\nparams = { depth = 1 }')
    with pytest.raises(StudyError, match="'tight' is a file; write its params there"):
        Study.from_dict(plain)
    plain = _with('base = "private"', 'base = "private"\nparams = { depth = 1 }')
    study = Study.from_dict(plain)
    assert study.policies[1].params == {"depth": 1}
    assert study.to_dict()["policy"][1]["params"] == {"depth": 1}


def test_a_sweep_changes_private_budgets_alone() -> None:
    """Policies without a budget stay as they are."""
    varied = Study.from_dict(tomllib.loads(GOOD)).at("4")
    assert [policy.epsilon for policy in varied.policies] == [None, "4"]


def test_notebooks_show_what_the_file_says(tmp_path: Path) -> None:
    """Of a study, a schema and a policy: its text, with whatever HTML would read as its own escaped."""
    study = Study.built_in()
    policy = FuzzyTreeRegressor().private("0.5")
    schema = Schema((Column("a<b", lower=0, upper=1),))
    for one in (study, schema, policy):
        one.to_toml(tmp_path / "file.toml")
        text = (tmp_path / "file.toml").read_text(encoding="utf-8")
        assert one._repr_html_() == f'<pre style="font-family:monospace">{escape(text)}</pre>'
    assert "a&lt;b" in schema._repr_html_()
