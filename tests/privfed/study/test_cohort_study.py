"""From everybody's rule files to a report by one command, and what a person can get wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.accountants.pure import PureEpsilon
from privfed.cli import BAD_INPUT, FINE, status
from privfed.errors import InputError
from privfed.learners.rule_search.local_rules import write_cohort
from privfed.learners.rule_search.population_rules import summary
from privfed.learners.stl.grammar import Symbols
from privfed.learners.stl.parser import parse
from privfed.ledger import Ledger

pytestmark = pytest.mark.usefixtures("short_audits")

STUDY = """
name = "phones"
seed = 1
noise = "test"
[data]
source = "rules/"
schema = "vitals.toml"
[clients]
partition = "cohort"
[learner]
name = "RuleSearch"
[learner.params]
strategy = "levels"
epsilon = "12"
parameter_epsilon = "8"
min_support = 0.2
levels = 3
max_operators = 1
[[policy]]
name = "private"
epsilon = "20"
"""
SCHEMA = """
[[column]]
name = "hr"
lower = 20
upper = 220
[[column]]
name = "map"
lower = 20
upper = 200
"""


@pytest.fixture
def cohort(tmp_path: Path) -> Callable[..., Path]:
    """Writes a cohort of 200: half hold one rule, a third another, and some none."""

    def written(study: str = STUDY, schema: str = SCHEMA, people: int = 200) -> Path:
        (tmp_path / "rules").mkdir()
        for person in range(people):
            lines = ["# learnt at home"]
            lines += [f"G[0,{2 + person % 3}](hr >= {95 + person % 10})"] * (person % 2 == 0)
            lines += ["map <= 60 & hr >= 110.5"] * (person % 3 == 0)
            (tmp_path / "rules" / f"{person:03}.stl").write_text("\n".join(lines))
        (tmp_path / "vitals.toml").write_text(schema)
        (tmp_path / "study.toml").write_text(study)
        return tmp_path / "study.toml"

    return written


def metrics_of(command: str, study: Path, out: Path) -> Any:
    """Carry a study out; what is measured of its private policy."""
    assert status([command, str(study), "--out", str(out)]) == FINE
    return json.loads((out / "private" / "metrics.json").read_text())


def test_a_cohort_s_study_runs_and_is_reported(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both common structures are found; the ledger verifies; the report has a finite epsilon."""
    out = tmp_path / "out"
    metrics = metrics_of("audit", cohort(STUDY.replace('"test"', '"secure"')), out)
    model = json.loads((out / "private" / "model.json").read_text())
    shapes = sorted("G" if rule["rule"].startswith("G") else "&" for rule in model["rules"])
    assert shapes == ["&", "G"]
    assert metrics["simulation"] is True
    assert (metrics["individuals"], metrics["value"]) == (200, 1.0)
    (private,) = json.loads((out / "report.json").read_text())["policies"]
    assert private["guarantee"] == "finite"
    assert 12 < private["epsilon"] <= 20
    assert status(["ledger", "verify", str(out)]) == FINE
    assert "coverage" in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "200 individuals answered" in page and "data owners answered" not in page
    assert private["strength"] == "weak" and "Finite, but weak" in page


def test_the_documented_example_runs(cohort: Callable[..., Path], tmp_path: Path) -> None:
    """The schema and the study of the documentation, as they stand there."""
    page = (Path(__file__).parents[3] / "docs" / "rule-search.md").read_text()
    schema, study = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = cohort(study, schema, people=400)
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == FINE
    model = json.loads((tmp_path / "out" / "private" / "model.json").read_text())
    assert len(model["rules"]) == 2


def test_trajectories_become_a_cohort_s_files_and_a_model(
    cohort: Callable[..., Path], tmp_path: Path
) -> None:
    """The documented code, on a fever that the positive class has: its shape is found."""
    page = (Path(__file__).parents[3] / "docs" / "rule-search.md").read_text()
    code, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    path = cohort(people=0)
    rng = np.random.default_rng(3)
    people, labels = np.repeat(np.arange(60), 6), np.tile([True, False], 180)
    signals = rng.normal([100, 80], 4, (360, 8, 2))
    signals[labels, :, 0] += 40
    given = {"signals": signals, "labels": labels, "people": people}
    code = code.replace('"rules"', repr(str(tmp_path / "rules")))
    code = code.replace(
        "GeneticRules(grammar)", "GeneticRules(grammar, population=6, generations=1)"
    )
    exec(compile(code, "docs", "exec"), given)  # noqa: S102 - the documentation's own code
    assert len(list((tmp_path / "rules").glob("*.stl"))) == 60
    study = STUDY.replace("max_operators = 1", "max_operators = 2").replace('"12"', '"40"')
    path.write_text(study.replace('"20"', '"60"'))
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == FINE
    model = json.loads((tmp_path / "out" / "private" / "model.json").read_text())
    assert any(rule["rule"].startswith("hr >=") for rule in model["rules"])


def test_names_that_are_no_files_are_refused(tmp_path: Path) -> None:
    """Nothing is written outside the folder."""
    for name in ("../eve", "", ".hidden", "a/b"):
        with pytest.raises(InputError, match="cannot name a file"):
            write_cohort(tmp_path / "rules", {name: []})
    assert not (tmp_path / "rules").exists()


def test_a_smaller_cohort_is_not_joined_by_who_was_there_before(tmp_path: Path) -> None:
    """Rules learned anew replace a person's own; those of others, who would be counted, stop it before anything is written."""
    folder = tmp_path / "rules"
    rule = parse("hr >= 98.5")
    write_cohort(folder, {"ann": [rule], "bob": [rule]})
    write_cohort(folder, {"ann": [], "bob": [rule], "eve": []})
    with pytest.raises(InputError, match="holds the rules of 2 who are not of this cohort") as told:
        write_cohort(folder, {"ann": [rule]})
    assert "bob" not in str(told.value)
    assert (folder / "ann.stl").read_text() == ""


def test_the_output_s_study_runs_again(cohort: Callable[..., Path], tmp_path: Path) -> None:
    """Its folder of rules is absolute; test noise gives the same model."""
    once, again = tmp_path / "once", tmp_path / "again"
    assert status(["run", str(cohort()), "--out", str(once)]) == FINE
    assert status(["run", str(once / "study.toml"), "--out", str(again)]) == FINE
    models = [(out / "private" / "model.json").read_text() for out in (once, again)]
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('partition = "cohort"', "count = 3", 'partition = "cohort"'),
        ('source = "rules/"', 'source = "rules.csv"', 'source = "rules/"'),
        ('source = "rules/"', 'source = "nowhere/"', "name a folder of rule files"),
        ('partition = "cohort"', 'partition = "cohort"\ncount = 3', "leave"),
        ('schema = "vitals.toml"', "", "schema"),
        ('"RuleSearch"\n[learner.params]', '"FuzzyTreeRegressor"\n[learner.other]', "other"),
    ],
)
def test_what_does_not_go_together(
    cohort: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    message: str,
) -> None:
    """One line says what to write instead, and nothing is left behind."""
    assert old in STUDY
    path = cohort(STUDY.replace(old, new))
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == BAD_INPUT
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_learners_and_sources_must_fit(
    cohort: Callable[..., Path], write_study: Callable[..., Path], study_text: str,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A tree learns from no rules, and a rule search from no table."""
    tree = STUDY.split("[learner]")[0] + '[learner]\nname = "FuzzyTreeRegressor"\n'
    path = cohort(tree + '[[policy]]\nname = "published"\n')
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == BAD_INPUT
    assert 'name = "RuleSearch"' in capsys.readouterr().err
    table = study_text.replace('"FuzzyTreeRegressor"', '"RuleSearch"')
    path = write_study(table.replace("params = { max_depth = 1, n_fuzzy_sets = 2 }", ""))
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == BAD_INPUT
    assert 'partition = "cohort"' in capsys.readouterr().err


def test_a_rule_outside_the_grammar_is_named_by_its_line(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file and the line, and nothing of what it says."""
    path = cohort()
    (tmp_path / "rules" / "007.stl").write_text("hr >= 90\nlactate >= 61.5\n")
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == BAD_INPUT
    told = capsys.readouterr().err
    assert "007.stl, line 2" in told
    assert "61.5" not in told
    assert "lactate" not in told


def test_an_empty_cohort(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without rule files says what to put there."""
    assert status(["run", str(cohort(people=0)), "--out", str(tmp_path / "out")]) == BAD_INPUT
    assert "holds no rule file" in capsys.readouterr().err


def test_charges_in_blocks_are_refused(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A block is charged before it is known whom its questions ask."""
    path = cohort(STUDY + "block = 10\n")
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == BAD_INPUT
    assert "leave block at 1" in capsys.readouterr().err


WHOLE = ("at most epsilon 20", "OVER")
UNDECIDED = ("up to ε 12 in total, for any number of queries", "templates    x1")


@pytest.mark.parametrize(
    ("strategy", "said", "unsaid"),
    [
        *((strategy, *WHOLE) for strategy in ("levels", "equal", "adaptive", "parts", "sampled")),
        *((strategy, *UNDECIDED) for strategy in ("adaptive", "uct")),
    ],
)
def test_every_strategy_s_price_is_its_epsilon(
    cohort: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    strategy: str,
    said: str,
    unsaid: str,
) -> None:
    """The sum of its plan, however many questions there are; of a search that decides itself how often it asks, in words."""
    path = cohort(STUDY.replace('"levels"', f'"{strategy}"'), people=0)
    assert status(["price", str(path)]) == FINE
    told = capsys.readouterr().out
    assert said in told
    assert unsaid not in told


def test_a_price_names_every_question_of_the_levels(
    cohort: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Three levels and the last question, each at its own epsilon."""
    assert status(["price", str(cohort(people=0))]) == FINE
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if "templates" in line and "ε " in line]
    amounts = [float(line.split("ε ")[1].split()[0]) for line in lines]
    assert len(amounts) == 4 and amounts == sorted(amounts)
    assert sum(amounts) == pytest.approx(12, abs=1e-2), "each is rounded up to four digits"


@pytest.mark.parametrize("command", ["price", "run"])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "min_support = 0.2",
            "min_support = 2",
            "min_support must be a number above 0 and at most 1, not 2",
        ),
        ("min_support = 0.2", "min_support = 0.2\nhorizon = 0", "horizon must be a whole number"),
        ('"levels"', '"guess"', "strategy must be one of"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_told_before_anything_is_asked(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    command: str, old: str, new: str, message: str,
) -> None:  # fmt: skip
    """By one line, whether the study is priced or run."""
    path, out = cohort(STUDY.replace(old, new)), tmp_path / "out"
    arguments = [command, str(path)] + ["--out", str(out)] * (command == "run")
    assert status(arguments) == BAD_INPUT
    told = capsys.readouterr().err
    assert message in told and ("write for example" in told or "one of equal, adaptive" in told)
    assert told.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("found", "valid", "words"),
    [
        ([], [], "no rule is valid; nothing found"),
        ([(1,)], [], "no rule is valid; 1 found"),
        ([], [(1,), (2,)], "nothing found of 2 valid rules"),
        ([(1,), (3,)], [(1,), (2,)], "1 of 2 valid rules found, 1 found wrongly"),
    ],
)
def test_what_was_found_is_told_in_words(
    found: list[Symbols], valid: list[Symbols], words: str
) -> None:
    """Nothing is never called a whole."""
    assert summary(found, valid) == words


def test_where_no_rule_is_valid_coverage_is_undefined(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither 1 nor 0 in any file, and words on the console and the page."""
    out = tmp_path / "out"
    rare = cohort(STUDY.replace("min_support = 0.2", "min_support = 0.9"))
    metrics = metrics_of("run", rare, out)
    assert (metrics["value"], metrics["scores"]["precision"]) == (None, None)
    assert "no rule is valid; nothing found" in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "no rule is valid; nothing found" in page
    assert "coverage" not in page


def test_a_cohort_that_is_too_small_is_told_what_would_be_enough(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the console and the page, where nothing valid was found."""
    path = cohort(STUDY.replace('"levels"', '"uct"').replace('"12"', '"3"'), people=20)
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == FINE
    line = "epsilon 3 is small for 20 individuals"
    assert line in capsys.readouterr().out
    assert line in (tmp_path / "out" / "report.html").read_text()


def test_a_cohort_s_ledger_may_last(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its individuals' budgets go on from study to study, and the next is refused when they are gone."""
    lasting = STUDY.replace('noise = "test"\n', "").replace(
        'partition = "cohort"', 'partition = "cohort"\nledgers = "phones"'
    )
    study = cohort(lasting)
    assert status(["run", str(study), "--out", str(tmp_path / "one")]) == FINE
    second = tmp_path / "second.toml"
    second.write_text(lasting.replace('name = "phones"', 'name = "phones again"', 1))
    assert status(["run", str(second), "--out", str(tmp_path / "two")]) == BAD_INPUT
    assert "less is left: cohort has epsilon" in capsys.readouterr().err
    assert status(["ledger", "verify", str(tmp_path / "phones")]) == FINE


def test_each_individual_of_a_cohort_has_a_share_for_each_study(
    cohort: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reserved when it begins, though it charges her less; what she did not pay comes back when it is sealed."""
    lasting = STUDY.replace('noise = "test"\n', "").replace(
        'partition = "cohort"',
        'partition = "cohort"\nledgers = "phones"\nbudget = { epsilon = "50", delta = "1e-5" }',
    )
    study, ledger = cohort(lasting), tmp_path / "phones" / "cohort.db"
    assert status(["run", str(study), "--out", str(tmp_path / "one")]) == FINE
    with closing(Ledger(ledger, "cohort")) as book:
        block = book.study_blocks()["phones"]
        assert block.sealed and block.share[0] == 20 >= block.spent[0] > 0
        assert book.taken(PureEpsilon()) == block.spent
        book.reserve_share("another", (Fraction(15), Fraction(0)), PureEpsilon())
    second = tmp_path / "second.toml"
    second.write_text(lasting.replace('name = "phones"', 'name = "phones again"', 1))
    assert status(["run", str(second), "--out", str(tmp_path / "two")]) == BAD_INPUT
    assert "less is left: cohort has epsilon 15" in capsys.readouterr().err
    assert status(["ledger", "seal", str(ledger), "another"]) == FINE
    assert status(["run", str(second), "--out", str(tmp_path / "two")]) == FINE
    capsys.readouterr()
    assert status(["ledger", "budget", str(tmp_path / "phones"), "--by", "study"]) == FINE
    told = capsys.readouterr().out
    assert "study phones: a share of 40 %, sealed, charged 40 % of the budget" in told
    assert "study phones again: a share of 40 %, sealed, charged" in told
    assert "Epsilon does not" not in told  # under pure epsilon it adds up
    page = (tmp_path / "two" / "report.html").read_text()
    assert "This study's block: ε&nbsp;20" in page or "This study's block: ε 20" in page
