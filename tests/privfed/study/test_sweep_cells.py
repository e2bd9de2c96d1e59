"""A sweep's cells: carried out once, whatever ends the process, and known again by what decides them."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from privfed.attacks.finding import Finding
from privfed.attacks.roc import FOUND_AT
from privfed.attacks.verbatim import WHOLE_RECORDS
from privfed.audits.bounds import verdict
from privfed.cli import BAD_INPUT, FINE, status
from privfed.cli.common import INTERRUPTED
from privfed.errors import LedgerError, PluginError
from privfed.learners import FuzzyTreeRegressor
from privfed.ledger import Ledger
from privfed.questions.wire import digest
from privfed.study import Study
from privfed.study.simulation import prepare
from privfed.study.sweep import (
    DIGESTS,
    Cell,
    Sweep,
    _attack_columns,
    _run,
    cells,
    digests,
    table,
    values,
)

pytestmark = pytest.mark.usefixtures("short_audits")

Written = Callable[..., Path]


def sweep(study: Path, out: Path, *more: str, epsilon: str = "1,8", runs: int = 1) -> int:
    """Carry a sweep out by the command line."""
    return status(
        ["sweep", str(study), "--epsilon", epsilon, "--runs", str(runs), "--out", str(out), *more]
    )


def made(out: Path) -> dict[str, int]:
    """When each cell's figures were written."""
    return {
        path.parent.name: path.stat().st_mtime_ns for path in out.glob("cells/[!.]*/metrics.json")
    }


def keys(study: Path, **changed: Any) -> set[str]:
    """The keys of a study's cells."""
    arguments: dict[str, Any] = {"epsilons": ["1"], "runs": 1} | changed
    return {cell.key for cell in cells(Study.from_toml(study), **arguments)}


def test_growing_a_sweep_runs_only_what_is_new(write_study: Written, tmp_path: Path) -> None:
    """More epsilons and more seeds leave the cells that are there byte for byte."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, epsilon="1") == FINE
    before = made(out)
    assert sweep(study, out, epsilon="1,8", runs=2) == FINE
    assert len(before) == 2 and len(made(out)) == 6
    assert before.items() <= made(out).items()
    assert len(pd.read_csv(out / "sweep.csv")) == 6
    assert sweep(study, out, epsilon="8") == FINE
    assert set(pd.read_csv(out / "sweep.csv")["epsilon"].dropna()) == {8.0}
    before = made(out)
    assert sweep(study, out, "--overwrite", epsilon="8") == FINE
    assert len(made(out)) == 2 and not made(out).items() & before.items()


def test_a_sweep_that_grows_by_a_factor_has_it_in_every_row(
    write_study: Written, tmp_path: Path
) -> None:
    """Cells of before too, and without what was varied then: else one series became two."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, "--vary", "data.test=0.25", epsilon="4") == FINE
    before = made(out)
    assert sweep(study, out, "--vary", "policy.delta=1e-5,1e-6", epsilon="4") == FINE
    assert before.items() <= made(out).items()
    table = pd.read_csv(out / "sweep.csv")
    assert "data.test" not in table
    assert table.loc[table["policy"] == "private", "policy.delta"].tolist() == [1e-5, 1e-6]


def test_a_cell_that_does_not_verify_is_run_anew(write_study: Written, tmp_path: Path) -> None:
    """One byte of a ledger, or a file that is gone."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out) == FINE
    (ledger, *_), (gone, *_) = (
        out.glob("cells/*/private/ledgers/north.db"),
        out.glob("cells/*/published/model.json"),
    )
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    gone.unlink()
    before = made(out)
    assert sweep(study, out) == FINE
    changed = {key for key, time in made(out).items() if before[key] != time}
    assert changed == {ledger.parents[2].name, gone.parents[1].name}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_goes_on_after_its_process_ended(
    how: signal.Signals, write_study: Written, tmp_path: Path
) -> None:
    """A real process, ended in the middle of a cell: the cells before it stay, and the rest is run."""
    study, out = write_study(), tmp_path / "sweep"
    command = ["sweep", str(study), "--epsilon", "1,8", "--runs", "3", "--out", str(out)]
    started = subprocess.Popen(
        [sys.executable, "-m", "privfed", *command], stderr=subprocess.PIPE, text=True
    )
    while len(made(out)) < 2 and started.poll() is None:
        sleep(0.01)
    started.send_signal(how)
    told = started.communicate(timeout=60)[1]
    before = made(out)
    assert 2 <= len(before) < 9
    if how is signal.SIGINT:
        assert started.returncode == 130
        assert re.search(r"holds \d of 9 runs", told) and "the same command continues" in told
    assert status(command) == FINE
    assert len(pd.read_csv(out / "sweep.csv")) == len(made(out)) == 9
    kept = before.items() & made(out).items()
    assert len(before) - len(kept) <= 1, (
        "a cell may have been killed between its files and its name"
    )
    assert not list(out.glob("cells/.*")), "nothing half-written is left"


def test_an_interrupt_that_a_library_hides_ends_a_sweep_all_the_same(
    write_study: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An import that is interrupted fails as a learner that cannot be loaded: no fault of its cell."""

    def cut(*_: object) -> None:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise PluginError("learner 'FuzzyTreeRegressor' cannot be loaded")

    monkeypatch.setattr("privfed.study.sweep._run", cut)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert sweep(write_study(), tmp_path / "sweep") == INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)
    assert "holds 0 of 3 runs" in capsys.readouterr().err


def test_the_attacks_of_a_finished_cell_are_added_to_it(
    write_study: Written, study_text: str, tmp_path: Path
) -> None:
    """Its ledgers are attacked; nothing is trained again."""
    text = study_text.replace("[data]", 'attacks = ["verbatim", "membership"]\n[data]', 1)
    study, out = write_study(text), tmp_path / "sweep"
    assert sweep(study, out, epsilon="4") == FINE
    models = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/*/model.json")}
    assert "audited" not in pd.read_csv(out / "sweep.csv")
    assert sweep(study, out, "--attacks", epsilon="4") == FINE
    assert models == {path: path.stat().st_mtime_ns for path in models}
    table = pd.read_csv(out / "sweep.csv").set_index("policy")
    assert table["attack membership"]["published"] == 1 and "attack verbatim" in table
    assert np.isnan(table["attack membership"]["private"]), "so few records: it could not look"
    assert (table["audited"] < table["epsilon"])["private"]
    attacked = made(out)
    assert sweep(study, out, "--attacks", epsilon="4") == FINE
    assert made(out) == attacked


def test_a_cell_whose_attack_was_killed_is_attacked_and_not_trained_again(
    write_study: Written, study_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its findings were written, and before its figures: the finished training stays."""
    text = study_text.replace("[data]", 'attacks = ["verbatim"]\n[data]', 1)
    study, out = write_study(text), tmp_path / "sweep"
    assert sweep(study, out, epsilon="4") == FINE
    models = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/*/model.json")}

    def killed(_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("privfed.study.sweep.assembly.gather", killed)
        assert sweep(study, out, "--attacks", epsilon="4") == INTERRUPTED
    assert list(out.glob("cells/*/*/findings.json"))
    assert sweep(study, out, "--attacks", epsilon="4") == FINE
    assert models == {path: path.stat().st_mtime_ns for path in models}


def test_cells_are_listed_without_being_run(
    write_study: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is done of them, by the names of their folders."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, "--list") == FINE
    assert "3 runs, 0 done and 3 to run" in capsys.readouterr().out
    assert not out.exists()
    assert sweep(study, out, epsilon="8") == FINE
    capsys.readouterr()
    assert sweep(study, out, "--list") == FINE
    listed = capsys.readouterr().out
    assert "3 runs, 2 done and 1 to run" in listed
    assert all(folder.name in listed.split() for folder in (out / "cells").iterdir())


def test_a_key_tells_apart_what_decides_a_run(
    write_study: Written, study_text: str, schema_text: str, small_table: pd.DataFrame
) -> None:
    """Data by their contents; never the name, the folder or the attacks."""
    study = write_study()
    before = keys(study)
    assert len(before) == 2
    for changed in (
        study_text.replace('"two sites"', '"two other sites"'),
        study_text.replace("[data]", 'attacks = ["verbatim"]\naudit_training = true\n[data]', 1),
    ):
        assert keys(write_study(changed)) == before
    for changed in (
        study_text.replace("seed = 1", "seed = 2"),
        study_text.replace("max_depth = 1", "max_depth = 2"),
        study_text.replace('noise = "test"', ""),
        study_text.replace("[clients]", "test = 0.4\n[clients]"),
    ):
        assert not keys(write_study(changed)) & before
    write_study(schema=schema_text.replace("upper = 100\n", "upper = 101\n"))
    assert not keys(study) & before
    write_study(table=small_table.assign(age=50.0))
    assert not keys(study) & before
    write_study()
    assert keys(study) == before == keys(study, epsilons=["1.0"])
    fields: list[dict[str, Any]] = [{"delta": "1e-6"}, {"masked": {}}, {"unit": "client", "cap": 9}]
    for field in fields:
        varied = keys(study, vary={f"policy.{key}": [value] for key, value in field.items()})
        assert len(varied & before) == 1, "the published policy has no epsilon and stays"


def test_any_factor_of_the_file_is_varied(
    write_study: Written, study_text: str, tmp_path: Path
) -> None:
    """By its dotted key; each is a column."""
    text = study_text.replace('partition = "column"\ncolumn = "site"', "count = 2")
    study, out = write_study(text), tmp_path / "sweep"
    vary = ("--vary", "clients.count=2,3", "--vary", "policy.delta=1e-5,1e-6")
    assert sweep(study, out, *vary, "--jobs", "2", epsilon="4") == FINE
    table = pd.read_csv(out / "sweep.csv")
    assert (table["policy"] == "published").sum() == 2, "once for each number of owners"
    table = table[table["policy"] == "private"]
    assert sorted(zip(table["owners"], table["delta"], strict=True)) == [
        (2, 1e-6),
        (2, 1e-5),
        (3, 1e-6),
        (3, 1e-5),
    ]
    assert {"commit", "version", "memory MB", "bytes", "run seconds", "mechanism"} <= set(table)
    assert (table["bytes"] > 0).all() and table["simulation"].all()


def test_a_factors_values_are_of_one_type_in_the_table(
    write_study: Written, tmp_path: Path
) -> None:
    """Tables and words beside numbers are texts, as Parquet takes no others."""
    study = write_study()
    for key, written in (("policy.masked", "{}"), ("learner.params.n_thresholds", '7,"none"')):
        planned = cells(Study.from_toml(study), ["4"], 1, {key: values(written)})
        out = tmp_path / key
        for cell in planned:
            (out / "cells" / cell.key).mkdir(parents=True)
            for file, plain in (
                ("params", {"factors": cell.factors, "made": {"version": "1", "commit": ""}}),
                ("metrics", {}),
            ):
                (out / "cells" / cell.key / f"{file}.json").write_text(json.dumps(plain))
        told = table(planned, Sweep(out))[key].dropna()
        assert len(told) and told.map(lambda value: isinstance(value, str)).all()


def test_a_page_in_a_cell_does_not_make_it_new(write_study: Written, tmp_path: Path) -> None:
    """`privfed report` writes one beside its files."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, epsilon="4") == FINE
    before = made(out)
    assert status(["report", str(out / "cells" / next(iter(before)))]) == FINE
    assert sweep(study, out, epsilon="4") == FINE
    assert made(out) == before


def test_values_are_tomls_or_words() -> None:
    """Numbers stay numbers; names need no quotes."""
    assert values("3,5") == [3, 5]
    assert values("1e-5,0.1") == [1e-5, 0.1]
    assert values("{ colluding = 1 }, {}") == [{"colluding": 1}, {}]
    assert values("RuleFitClassifier, FedForestClassifier") == [
        "RuleFitClassifier",
        "FedForestClassifier",
    ]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--vary=clients.count", "--vary clients.count: has no values; write clients.count=3,5"),
        ("--vary=clients.count=", "has no values"),
        ("--vary=seed=1,2", "--vary seed: is not a factor; write --runs"),
        ("--vary=policy.epsilon=1,2", "is not a factor; write --epsilon"),
        ("--vary=name=a,b", "is not a factor; it changes no run"),
        ("--jobs=0", "--jobs must be at least 1"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    option: str, told: str, write_study: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No sweep of no cell, and no factor that its own option overwrites."""
    assert sweep(write_study(), tmp_path / "sweep", option) == BAD_INPUT
    assert told in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_a_factor_that_is_given_twice_has_all_its_values(
    write_study: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second --vary of a key adds to the first."""
    more = ("--vary", "data.test=0.3", "--vary", "data.test=0.4", "--list")
    assert sweep(write_study(), tmp_path / "sweep", *more, epsilon="1") == FINE
    assert "4 runs" in capsys.readouterr().out


def test_scores_of_clients_own_models_are_marked(
    write_study: Written, study_text: str, tmp_path: Path
) -> None:
    """A mean over clients is no score of all records; a run of one model has no mark."""
    more = 'learner = { name = "GeneticTreeRegressor", params = { generations = 1 } }'
    text = f'{study_text}\n[[policy]]\nname = "own"\nbase = "published"\n{more}\n'
    out = tmp_path / "sweep"
    assert sweep(write_study(text), out, epsilon="1") == FINE
    marks = pd.read_csv(out / "sweep.csv").groupby("policy")["scored"].first()
    assert marks["own"] == "mean over clients" and marks.drop("own").isna().all()


def test_an_attacks_column_runs_from_a_guess_to_all_there_is() -> None:
    """None for an attack that did not look, nor for what stands beside a charge."""
    pairs: dict[str, Any] = {
        "attack": "membership",
        "question": "?",
        "metric": "pairs",
        "of": 1.0,
        "baseline": 0.5,
    }
    found = _attack_columns([Finding(**pairs, value=1.0, severity="some")])
    assert found == {"attack membership": 1.0}
    assert _attack_columns([Finding(**pairs, value=0.75, severity="some")]) == {
        "attack membership": 0.5
    }
    measured = Finding(**pairs, value=0.75, measure="area")
    assert _attack_columns([measured]) == {"attack membership": 0.5, "area": 0.75}
    assert _attack_columns([Finding(**pairs, value=0.5, partial="cut short")]) == {}
    training = verdict("RuleFitClassifier", 3.0, 8.0, {"answers": 5})
    found = _attack_columns(
        [verdict("gaussian", 1.0, 2.0, {}), verdict("laplace", 0.5, 1, {}), training]
    )
    assert found == {"audited": 1.0, "audited training": 3.0}
    reached = Finding("worst_record", "?", "mu reached by the worst record found", 0.2, of=0.2)
    rate = Finding("worst_record", "?", "share of draws", 0.018, of=1.0, measure="found at 1 %")
    told = _attack_columns([reached, rate])
    assert told == {"worst record": 0.018}, (
        "a charge used up is no success, an expectation none found"
    )


def test_what_is_found_of_the_members_is_what_an_attack_measured() -> None:
    """Its true positive rate, unless of too few; all of them, where whole records were released."""
    area: dict[str, Any] = {"attack": "membership", "question": "?", "metric": "pairs", "of": 1.0}
    area |= {"baseline": 0.5, "value": 0.75, "measure": "area"}
    rates = {FOUND_AT: {"1 %": 0.2, "10 %": 0.6}}
    columns = {"attack membership": 0.5, "area": 0.75}
    assert _attack_columns([Finding(**area, detail=rates)]) == columns | {"found": 0.2}
    assert _attack_columns([Finding(**area, detail={**rates, "note": "few"})]) == columns
    listed = Finding("pool", "?", "share", 0.4, of=1.0, baseline=0.01, measure="found at 1 %")
    assert _attack_columns([Finding(**area, detail=rates), listed])["found"] == 0.4
    released = Finding("verbatim", "?", WHOLE_RECORDS, 331, of=331, baseline=0.0)
    assert _attack_columns([released]) == {"found": 1.0, "attack verbatim": 1.0}


def test_an_owners_own_policy_is_swept(
    write_study: Written, study_text: str, tmp_path: Path
) -> None:
    """A file with a budget is rescaled to each epsilon; one without is run once a seed."""
    own = FuzzyTreeRegressor(max_depth=1, n_fuzzy_sets=2).private(2)
    own.to_toml(tmp_path / "own.toml")
    text = study_text.replace('name = "private"\nepsilon = "4"', 'name = "own"\nbase = "own.toml"')
    out = tmp_path / "sweep"
    assert sweep(write_study(text), out) == FINE
    table = pd.read_csv(out / "sweep.csv")
    told = table[table["policy"] == "own"]
    assert told["epsilon"].tolist() == [1.0, 8.0]
    assert told["claimed"].tolist() == pytest.approx([1.0, 8.0], rel=1e-3)
    assert (table["policy"] == "published").sum() == 1


def test_a_folder_of_something_else_is_left_alone(
    finished: Path, write_study: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    """An audit's output, or anybody's files."""
    assert sweep(write_study(), finished) == BAD_INPUT
    assert "which no sweep wrote; name a new folder" in capsys.readouterr().err
    assert sweep(write_study(), finished / "report.html") == BAD_INPUT
    assert "report.html: is a file; name a folder" in capsys.readouterr().err
    assert (finished / "report.html").is_file()


def test_two_sweeps_do_not_run_in_one_folder(
    write_study: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second would take the first's cells for remains."""
    out = tmp_path / "sweep"
    with Sweep(out).opened():
        assert sweep(write_study(), out) == BAD_INPUT
    assert "another sweep is running in it" in capsys.readouterr().err


def test_a_sweep_says_what_else_its_folder_holds(
    write_study: Written, study_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs before a setting was changed are kept, and are not in the table."""
    out = tmp_path / "sweep"
    assert sweep(write_study(), out, epsilon="4") == FINE
    assert "also holds" not in capsys.readouterr().out
    changed = write_study(study_text.replace("max_depth = 1", "max_depth = 0"))
    assert sweep(changed, out, epsilon="4") == FINE
    told = capsys.readouterr().out
    assert f"{out / 'cells'} also holds 2 finished runs of other settings or data" in told
    assert len(pd.read_csv(out / "sweep.csv")) == 2 and len(made(out)) == 4


def test_runs_of_other_versions_of_privfed_are_told(
    write_study: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of installed packages, which have no commit."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, epsilon="4") == FINE
    (first, *_) = out.glob("cells/*/params.json")
    params = json.loads(first.read_text())
    params["made"] |= {"version": "0.0.1", "commit": ""}
    first.write_text(json.dumps(params))
    listed = first.with_name("digests.json")
    entries = json.loads(listed.read_text())
    listed.write_text(json.dumps({**entries, "params.json": digest(first.read_bytes())}))
    capsys.readouterr()
    assert sweep(study, out, epsilon="4") == FINE
    told = capsys.readouterr().err
    assert "made by 2 versions of privfed: " in told and "0.0.1" in told


def test_a_table_that_is_edited_while_a_sweep_runs_is_not_mixed_with_the_one_before(
    write_study: Written,
    tmp_path: Path,
    small_table: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The runs after the edit fail, and the same command runs all on the new table."""
    study, out, load = write_study(), tmp_path / "sweep", prepare
    monkeypatch.setattr("privfed.study.sweep._check", lambda *_: None)

    def edited(of: Study) -> Any:
        if of.policies[0].name == "private":
            small_table.assign(age=50.0).to_csv(tmp_path / "table.csv", index=False)
        return load(of)

    monkeypatch.setattr("privfed.study.simulation.prepare", edited)
    assert sweep(study, out, epsilon="4") == BAD_INPUT
    assert "changed while the sweep ran; run the same command again" in capsys.readouterr().err
    assert pd.read_csv(out / "sweep.csv")["policy"].tolist() == ["published"]
    assert sweep(study, out, epsilon="4") == FINE
    assert pd.read_csv(out / "sweep.csv")["data digest"].nunique() == 1 and len(made(out)) == 3


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "metrics.json")


def _unrecorded(*_: Any) -> None:
    raise LedgerError("ledger north.db: database or disk is full; give a file that can be written")


def _killed(*_: Any) -> None:
    raise BrokenProcessPool("of a worker")


@pytest.mark.parametrize(
    ("where", "ended", "told"),
    [
        (
            "simulation.run",
            _full,
            "metrics.json: no space left on device; once it can be written, the",
        ),
        (
            "simulation.run",
            _unrecorded,
            "ledger north.db: database or disk is full; once it can be written, the",
        ),
        (
            "carry_out",
            _killed,
            "one of the --jobs was killed, as where memory is short; with fewer, the same",
        ),
    ],
)
def test_what_ends_a_sweep_is_one_line_and_what_is_done_stays(
    where: str,
    ended: Callable[..., None],
    told: str,
    write_study: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A full disk, a ledger that cannot be written, a worker killed for its memory: no other run is tried."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, epsilon="4") == FINE
    before, table_before = made(out), (out / "sweep.csv").read_bytes()
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(f"privfed.study.sweep.{where}", ended)
        assert sweep(study, out, epsilon="4,8") == BAD_INPUT
    err = capsys.readouterr().err
    assert told in err and f"{out} holds 2 of 3 runs" in err and len(err.splitlines()) == 1
    assert made(out) == before and (out / "sweep.csv").read_bytes() == table_before
    assert sweep(study, out, epsilon="4,8") == FINE
    assert before.items() <= made(out).items() and len(made(out)) == 3


def test_answers_that_no_ledger_could_record_make_no_finished_run(
    write_study: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner stops with what it has, as with owners who refuse; a disk that was full is no result."""
    refuse = LedgerError("ledger north.db: database or disk is full")
    monkeypatch.setattr(Ledger, "reserve", Mock(side_effect=refuse))
    out = tmp_path / "sweep"
    assert sweep(write_study(), out, epsilon="4") == BAD_INPUT
    assert not made(out)


def test_one_cell_that_cannot_run_does_not_lose_the_others(
    write_study: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str], study_text: str
) -> None:
    """Its fault is told, and the table has the rest."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, epsilon="4") == FINE
    planned = cells(Study.from_toml(study), ["4"], 2)
    broken: list[Cell] = [cell for cell in planned if cell.study.seed == 2]
    for cell in broken:
        (out / "cells" / cell.key).write_text("a file where a folder should be")
    assert sweep(study, out, epsilon="4", runs=2) == BAD_INPUT
    assert "2 faults" in capsys.readouterr().err
    assert len(pd.read_csv(out / "sweep.csv")) == 2


def test_what_is_said_of_records_names_its_cell(
    write_study: Written,
    tmp_path: Path,
    small_table: pd.DataFrame,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each cell holds other records out: what their bounds clip is told once, with the cell that it was counted in."""
    study = write_study(table=small_table.assign(age=np.arange(60) * 4.0))
    assert sweep(study, tmp_path / "sweep", epsilon="4", runs=2) == FINE
    (told,) = (line for line in capsys.readouterr().err.splitlines() if "bounds clip" in line)
    assert "4 runs, one of them " in told and ", seed 1: north, south: the schema's bounds" in told


def test_a_learner_that_fails_does_not_lose_the_other_cells(
    write_study: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plugin's own error is a fault of its cell; what a file manager left among the cells is none."""
    run, out = _run, tmp_path / "sweep"

    def failing(cell: Cell, *more: Any) -> None:
        if cell.choice.epsilon is None:
            raise ZeroDivisionError("data")
        run(cell, *more)

    (out / "cells").mkdir(parents=True)
    for folder in (out, out / "cells"):
        (folder / ".DS_Store").touch()
    monkeypatch.setattr("privfed.study.sweep._run", failing)
    assert sweep(write_study(), out, epsilon="4") == BAD_INPUT
    told = capsys.readouterr().err
    assert "published, seed 1: internal error (ZeroDivisionError)" in told and "data" not in told
    assert pd.read_csv(out / "sweep.csv")["policy"].tolist() == ["private"]
    assert "1 further run failed" in (out / "sweep.html").read_text()


def test_figures_are_plain_json(write_study: Written, tmp_path: Path) -> None:
    """No NaN and no infinity, so that any reader takes them."""
    out = tmp_path / "sweep"
    assert sweep(write_study(), out) == FINE

    def never(name: str) -> None:
        raise AssertionError(name)

    for path in out.glob("cells/*/*.json"):
        json.loads(path.read_text(), parse_constant=never)


def test_runs_of_earlier_versions_have_their_queries_in_the_same_column(
    write_study: Written, tmp_path: Path
) -> None:
    """They called them questions."""
    study, out = write_study(), tmp_path / "sweep"
    assert sweep(study, out, epsilon="1") == FINE
    for path in out.glob("cells/*/metrics.json"):
        path.write_text(path.read_text().replace('"queries"', '"questions"'))
        (path.parent / DIGESTS).write_text(json.dumps(digests(path.parent)))
    before = made(out)
    assert sweep(study, out, epsilon="1,8") == FINE
    table = pd.read_csv(out / "sweep.csv")
    assert len(table) == 3 and table["queries"].notna().all() and "questions" not in table
    assert before.items() <= made(out).items()  # none was run anew


class Tracker(ModuleType):
    """MLflow as far as a sweep asks it, in memory: runs with tags, parameters and metrics."""

    MlflowException = ArithmeticError

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.runs: list[SimpleNamespace] = []
        self.experiment = ""

    def set_experiment(self, name: str) -> None:
        """Choose where runs go."""
        self.experiment = name

    def search_runs(self, output_format: str) -> list[SimpleNamespace]:
        """Return all runs."""
        assert output_format == "list"
        return [SimpleNamespace(data=run) for run in self.runs]

    @contextmanager
    def start_run(self, run_name: str) -> Iterator[None]:
        """Begin a run."""
        assert run_name
        self.runs.append(SimpleNamespace(tags={}, params={}, metrics={}))
        yield

    def set_tag(self, key: str, value: str) -> None:
        """Tag the last run."""
        self.runs[-1].tags[key] = value

    def log_params(self, told: dict[str, Any]) -> None:
        """Keep the last run's parameters."""
        self.runs[-1].params.update(told)

    def log_metrics(self, told: dict[str, float]) -> None:
        """Keep the last run's metrics."""
        self.runs[-1].metrics.update(told)


def test_cells_are_logged_to_mlflow_once(
    write_study: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Factors as parameters, figures as metrics; a cell that is there is not logged again."""
    tracker, study, out = Tracker(), write_study(), tmp_path / "sweep"
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    assert sweep(study, out, "--mlflow", epsilon="1") == FINE
    assert len(tracker.runs) == len(pd.read_csv(out / "sweep.csv")) == 2
    assert sweep(study, out, "--mlflow") == FINE
    assert len(tracker.runs) == 3
    private = next(run for run in tracker.runs if run.metrics.get("epsilon") == 1)
    table = pd.read_csv(out / "sweep.csv").set_index("key")
    key = private.tags["privfed.cell"].split()[0]
    assert private.metrics["value"] == pytest.approx(float(str(table.loc[key, "value"])))
    assert private.params["unit"] == "record"


def test_a_server_of_mlflow_that_fails_is_told(
    write_study: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The sweep is written all the same."""
    tracker, out = Tracker(), tmp_path / "sweep"

    def refused(_: str) -> None:
        raise ArithmeticError("refused\nby the server")

    monkeypatch.setattr(tracker, "set_experiment", refused)
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    assert sweep(write_study(), out, "--mlflow", epsilon="1") == BAD_INPUT
    assert "--mlflow: refused; check MLflow's own settings" in capsys.readouterr().err
    assert (out / "sweep.csv").is_file()


def test_without_mlflow_nothing_is_run(
    write_study: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says what to install."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert sweep(write_study(), tmp_path / "sweep", "--mlflow") == BAD_INPUT
    assert "pip install mlflow-skinny" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()
