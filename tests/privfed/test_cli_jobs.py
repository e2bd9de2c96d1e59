"""The command line's whole jobs: what they write, and how they end."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.learners.fuzzy_tree.queries import Scaling
from privfed.questions import plugins
from privfed.questions.query import View
from privfed.study import simulation

pytestmark = pytest.mark.usefixtures("no_pictures", "short_audits")


def test_audit_writes_everything_that_it_promises(
    write_study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Study, ledgers, heads, metrics, findings, model, policy, report as page and as data."""
    out = tmp_path / "out"
    assert status(["audit", str(write_study()), "--out", str(out)]) == FINE
    for name in ("published", "private"):
        for file in ("metrics.json", "findings.json", "model.json", "heads.json"):
            json.loads((out / name / file).read_text())
        ledgers = sorted(path.name for path in (out / name / "ledgers").iterdir())
        assert [name for name in ledgers if name.endswith(".db")] == ["north.db", "south.db"]
        assert (out / name / "policy.toml").is_file()
    assert json.loads((out / "published" / "metrics.json").read_text())["simulation"] is True
    report = json.loads((out / "report.json").read_text())
    assert [policy["guarantee"] for policy in report["policies"]] == ["none", "none"]
    assert report["breaches"] == []
    assert "NO FINITE GUARANTEE" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out",
        "schema.toml",
        "study.toml",
        "table.csv",
    ]


def test_the_built_in_study_runs(tmp_path: Path) -> None:
    """No argument: diabetes in five clinics, private at epsilon 8 with a finite guarantee."""
    assert status(["run", "--out", str(tmp_path / "out")]) == FINE
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    published, _, private = report["policies"]
    assert published["guarantee"] == "none" and published["unprotected"] > 0
    assert private["guarantee"] == "finite" and private["unprotected"] == 0
    assert 0 < private["epsilon"] <= 8 * (1 + 1e-9)
    assert 0.01 < private["membership_detection_at_1_percent"] < 1
    assert len(private["clients"]) == 5


NOBODY = """
accountant = "zcdp"
[budget]
epsilon = "1"
delta = "1e-5"
[[guard]]
query = "fuzzy_tree.level"
mechanism = "gaussian"
spend = "100"
"""


def test_where_nothing_was_released_there_is_a_report_and_no_guarantee(
    write_study: Callable[..., Path],
    study_text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every question is beyond the budget: the report is written, and the exit status is 2."""
    (tmp_path / "own.toml").write_text(NOBODY)
    study = write_study(study_text.replace('name = "published"', 'name = "own"\nbase = "own.toml"'))
    out = tmp_path / "out"
    assert status(["run", str(study), "--out", str(out)]) == BAD_INPUT
    told = capsys.readouterr()
    assert "own              NOTHING RELEASED" in told.out
    assert "policy 'own': Nothing was released" in told.err
    assert "there is no guarantee, and no model" in told.err
    own, private = json.loads((out / "report.json").read_text())["policies"]
    assert (own["silent"], own["guarantee"], private["silent"]) == (True, "none", False)
    assert "Nothing released" in (out / "report.html").read_text()
    assert status(["report", str(out)]) == BAD_INPUT


def test_units_and_caps_of_a_study_and_persons_of_several_records(
    write_study: Callable[..., Path],
    study_text: str,
    small_table: pd.DataFrame,
    tmp_path: Path,
) -> None:
    """A record's guarantee beside a person's; the first says how many persons have several records."""
    table = small_table.assign(person=[f"p{row // 3}" for row in range(len(small_table))])
    text = study_text.replace(
        'schema = "schema.toml"', 'schema = "schema.toml"\nindividual = "person"'
    )
    own = 'name = "person"\nbase = "private"\nepsilon = "4"\nunit = "individual"\ncap = 2'
    text = text.replace('name = "published"', own).replace('noise = "test"', "")
    out = tmp_path / "out"
    assert status(["run", str(write_study(text, table=table)), "--out", str(out)]) == FINE
    person, rows = json.loads((out / "report.json").read_text())["policies"]
    assert (person["unit"], rows["unit"]) == ("individual", "record")
    train = sum(own["persons"] for own in rows["metrics"]["persons"].values())
    assert 0 < sum(own["several"] for own in rows["metrics"]["persons"].values()) <= train
    assert "have several records there, but" in " ".join(rows["remarks"])
    assert "have several records" not in " ".join(person["remarks"])


def test_the_report_page_stands_alone(finished: Path) -> None:
    """No element loads anything, every tag is closed, and the red words are there."""
    page = (finished / "report.html").read_text()

    class Reader(HTMLParser):
        open_: list[str] = []  # noqa: RUF012
        void = ("meta", "br", "path", "use", "image", "rect", "line", "circle", "link", "hr")

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for key, value in attrs:
                if key in ("src", "href", "xlink:href", "data") and tag != "a":
                    assert (value or "#").startswith(("#", "data:")), (tag, value)
            if tag not in self.void:
                self.open_.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in ("script", "iframe"):
                raise AssertionError(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in self.void:
                assert self.open_.pop() == tag

    reader = Reader()
    reader.feed(page)
    assert reader.open_ == []
    assert "<script" not in page and "@import" not in page and "url(http" not in page
    assert "Unprotected" in page and "Test noise" in page and "simulation" in page


def test_the_output_of_one_seed_of_test_noise_repeats(
    write_study: Callable[..., Path], tmp_path: Path
) -> None:
    """Models are equal to the byte; test noise is seeded and marked."""
    study = str(write_study())
    for out in ("one", "two"):
        assert status(["run", study, "--out", str(tmp_path / out)]) == FINE
    for name in ("published", "private"):
        one, two = ((tmp_path / out / name / "model.json").read_bytes() for out in ("one", "two"))
        assert one == two


def test_attack_and_report_work_on_a_finished_folder(finished: Path) -> None:
    """Both rewrite the report in place; the ledgers stay byte for byte, and no record is told."""
    before = (finished / "private" / "heads.json").read_bytes()
    (finished / "report.html").unlink()
    assert status(["report", str(finished)]) == FINE
    assert (finished / "report.html").is_file()
    assert not (finished / "private" / "findings.json").exists()
    assert status(["attack", str(finished)]) == FINE
    told = json.loads((finished / "private" / "findings.json").read_text())
    attacks = {finding["attack"] for finding in told["findings"]} | set(told["inapplicable"])
    assert attacks >= set(plugins.available("attacks"))
    assert "records" not in told  # those are for whoever asks, with --scores
    assert status(["attack", str(finished), "--attack-time-limit", "1e-9"]) == FINE
    told = json.loads((finished / "private" / "findings.json").read_text())
    assert any("in 1e-09 s" in finding["partial"] for finding in told["findings"])
    assert (finished / "private" / "heads.json").read_bytes() == before
    assert status(["ledger", "verify", str(finished)]) == FINE


def test_price_reads_no_records(
    write_study: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Costs come from plan, schema and policy: nothing is divided, encoded or asked."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("records were touched")

    for name in ("prepare", "run"):
        monkeypatch.setattr(simulation, name, never)
    assert status(["price", str(write_study())]) == FINE
    printed = capsys.readouterr().out
    assert "published: NO FINITE GUARANTEE" in printed
    assert re.search(r"private: at most epsilon 4 at delta 1e-05", printed)


def test_sweep_writes_a_tidy_table_and_a_picture(
    write_study: Callable[..., Path], tmp_path: Path
) -> None:
    """One row a run: published under each seed, private at each epsilon and seed."""
    out = tmp_path / "sweep"
    arguments = ["sweep", str(write_study()), "--epsilon", "1,8", "--runs", "2", "--out", str(out)]
    assert status(arguments) == FINE
    table = pd.read_csv(out / "sweep.csv")
    counted = table.groupby("policy").size().to_dict()
    assert counted == {"private": 4, "published": 2}
    assert set(table.loc[table["policy"] == "private", "epsilon"]) == {1.0, 8.0}
    assert "<svg" in (out / "sweep.html").read_text()


def test_plugins_of_one_group_say_what_each_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Who chooses a learner reads a sentence of each; a wrong group is told which there are."""
    assert status(["plugins", "learners"]) == FINE
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "learners"
    assert all(re.match(r"  \w+ +privfed \S+  [^`]+\.$", line) for line in printed[1:])
    assert any(line.endswith("A federated random forest for classes.") for line in printed)
    assert status(["plugins", "learner"]) == BAD_INPUT
    assert "the groups are laws, mechanisms" in capsys.readouterr().err


def test_a_plugin_that_cannot_be_loaded_is_listed_with_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stood there as all others do, without a word."""
    known = plugins.available("attacks")
    gone = EntryPoint("gone", "no_such_module:Gone", "privfed.attacks")
    monkeypatch.setattr(plugins, "available", lambda group: {**known, "gone": gone})
    assert status(["plugins", "attacks"]) == FINE
    (line,) = (row for row in capsys.readouterr().out.splitlines() if row.startswith("  gone"))
    assert "cannot be loaded: No module named 'no_such_module'" in line


def test_plugins_lists_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Names with the distribution that they come from."""
    assert status(["plugins"]) == FINE
    printed = capsys.readouterr().out
    assert all(group in printed for group in plugins.GROUPS)
    assert re.search(r"laplace +privfed", printed)
    for block in re.split(r"^\w+$", printed, flags=re.MULTILINE)[1:]:
        starts = {line.index("privfed ") for line in block.splitlines() if " privfed " in line}
        assert len(starts) == 1, "one column"


def test_what_a_library_warns_of_inside_a_gate_stays_there(
    write_study: Callable[..., Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the terminal nor any file of the output tells it; a learner's own note is told."""
    count = Scaling.evaluate

    def noisy(query: Scaling, view: View) -> Mapping[str, np.ndarray]:
        warnings.warn(f"record {view.table.x[0]} is odd: 7318.25", RuntimeWarning, stacklevel=1)
        warnings.warn("7318.25 did not converge", UserWarning, stacklevel=1)
        return count(query, view)

    monkeypatch.setattr(Scaling, "evaluate", noisy)
    out = tmp_path / "out"
    assert status(["run", str(write_study()), "--out", str(out)]) == FINE
    printed = capfd.readouterr()
    assert "7318.25" not in printed.out + printed.err
    texts = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert texts and not any(b"7318.25" in text for text in texts)


@pytest.mark.parametrize("reader", ["board", "regulator", "engineer"])
def test_a_finished_study_has_a_page_for_each_reader(
    reader: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page without any reference to the outside."""
    assert status(["report", str(finished), "--for", reader]) == FINE
    page = Path(capsys.readouterr().out.split()[-1])
    text = page.read_text(encoding="utf-8")
    assert page.parent == finished and "Made on 20" in text
    assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


def test_an_epsilon_in_odds_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    """What it means, the largest for given odds, and one clear error for what cannot be read."""
    assert status(["epsilon", "1"]) == FINE
    assert "at most 2.72 of 100 people" in capsys.readouterr().out
    assert status(["epsilon", "--risk", "at most 5 in 100"]) == FINE
    assert capsys.readouterr().out.startswith("epsilon 1.609")
    for words in (["epsilon"], ["epsilon", "1", "--risk", "1 in 2"], ["epsilon", "--risk", "few"]):
        assert status(words) == BAD_INPUT
        assert "write" in capsys.readouterr().err
