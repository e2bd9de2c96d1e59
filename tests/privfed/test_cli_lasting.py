"""Ledgers that last: one budget over studies, processes that are killed, and copies put back."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.cli import BAD_INPUT, BREACH, FINE, status
from privfed.cli.common import INTERRUPTED
from privfed.learners import FuzzyTreeRegressor
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry, state_folder
from privfed.ledger.sqlite_store import SCHEMA

pytestmark = pytest.mark.usefixtures("no_pictures")

Written = Callable[..., Path]
#: A study of the small table over lasting ledgers, with what changes from one to the next.
LASTING = """
name = "{name}"
[data]
source = "table.csv"
target = "risk"
schema = "schema.toml"
[clients]
partition = "column"
column = "site"
ledgers = "owners"
budget = {{ epsilon = "8", delta = "1e-5" }}
[learner]
name = "FuzzyTreeRegressor"
params = {{ max_depth = 1, n_fuzzy_sets = 2 }}
[[policy]]
name = "private"
epsilon = "{epsilon}"
"""
#: Runs a study and stops inside a client, once its charge is durable, until a signal comes.
#: How many questions the private tree asks each owner: two scalings, a level, moments twice, residuals four times and
#: once by set.
EACH = 10
STOPPING = """
import signal, sys, time
from privfed.cli import main
from privfed.learners.fuzzy_tree.linear import Residuals
# A suite that a shell runs in the background ignores Control-C, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
def wait(query, view):
    print("charged", flush=True)
    time.sleep(600)
Residuals.evaluate = wait
main(sys.argv[1:])
"""


@pytest.fixture
def study(
    write_study: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Writes a study over the same two owners, and gives its path; their ledgers are known to its test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_study()

    def written(name: str, epsilon: str = "4", old: str = "", new: str = "") -> str:
        text = LASTING.format(name=name, epsilon=epsilon)
        assert old in text
        path = tmp_path / f"{name}.toml"
        path.write_text(text.replace(old, new, 1))
        return str(path)

    return written


def run(study: str, out: Path, *more: str) -> int:
    """Carry a study out by the command line."""
    return status(["run", study, "--out", str(out), *more])


def spent(tmp_path: Path, owner: str = "north") -> float:
    """The rho that an owner's ledger says is spent, reservations included."""
    with closing(Ledger.read(tmp_path / "owners" / f"{owner}.db")) as ledger:
        line = ledger.budget()[0]
        return float(line.spent[0] + line.reserved[0])


def test_a_second_study_goes_on_with_the_budget_until_it_is_gone(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three studies at epsilon 4 fit 8 under zCDP; the fourth is refused with what is left."""
    for number, name in enumerate(("one", "two", "three"), 1):
        assert run(study(name), tmp_path / "out", "--overwrite") == FINE
        told = capsys.readouterr().out
        assert "epsilon 8 at delta 1e-05\n" in told and f"{2 * EACH * number} releases" in told
        assert "ledgers: persistent" in told
    before = spent(tmp_path)
    assert run(study("four"), tmp_path / "out", "--overwrite") == BAD_INPUT
    told = capsys.readouterr().err
    assert "would take epsilon 4 at delta 1e-05 of each owner's budget of epsilon 8" in told
    assert re.search(r"fuzzy_tree.level [\d.]+ %, fuzzy_tree.moments [\d.]+ %", told)
    assert "north has epsilon 2.0" in told and "south has epsilon 2.0" in told
    assert spent(tmp_path) == before
    assert run(study("less", "2"), tmp_path / "less") == FINE
    assert status(["ledger", "verify", str(tmp_path / "owners")]) == FINE
    assert [path.name for path in sorted((tmp_path / "owners").glob("*.db*"))] == [
        "north.db",
        "south.db",
    ]


def test_overwrite_replaces_the_output_and_not_what_was_spent(
    study: Callable[..., str], tmp_path: Path
) -> None:
    """The second study's output takes the first one's place; both are charged."""
    assert run(study("one"), tmp_path / "out") == FINE
    once = spent(tmp_path)
    assert run(study("two"), tmp_path / "out", "--overwrite") == FINE
    assert spent(tmp_path) == pytest.approx(2 * once)
    heads = json.loads((tmp_path / "out" / "private" / "heads.json").read_text())
    assert set(heads) == {"north", "south"}
    assert not (tmp_path / "out" / "private" / "ledgers").exists()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_stopped_has_spent_what_it_charged(
    sent: signal.Signals, study: Callable[..., str], tmp_path: Path
) -> None:
    """Control-C and kill -9, inside a client after its charge: the next study finds it spent."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING, "run", study("one", "6"), "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "charged\n"
    process.send_signal(sent)
    _, told = process.communicate(timeout=60)
    assert process.returncode == (INTERRUPTED if sent == signal.SIGINT else -signal.SIGKILL)
    assert ("Persistent ledgers keep what was charged" in told) == (sent == signal.SIGINT)
    assert not (tmp_path / "out").exists()
    reserved = []
    for name in ("north", "south"):
        with closing(Ledger.read(tmp_path / "owners" / f"{name}.db")) as ledger:
            (whole,) = ledger.budget()
            assert 0 < whole.releases < EACH
            reserved.append(whole.reserved[0])
            ledger.verify()
    assert max(reserved) > 0
    assert run(study("two", "7"), tmp_path / "out") == BAD_INPUT
    assert run(study("three", "1"), tmp_path / "out") == FINE


@pytest.mark.parametrize("lost", ["older", "gone"])
def test_a_ledger_put_back_from_a_copy_is_refused(
    lost: str, study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The asking side kept a later head, beside the folder; nothing is asked, nothing is said to remain, and ledger commands say so."""
    owners, copy = tmp_path / "owners", tmp_path / "copy"
    assert run(study("one"), tmp_path / "one") == FINE
    shutil.copytree(owners, copy)
    assert run(study("two"), tmp_path / "two") == FINE
    shutil.rmtree(owners)
    shutil.copytree(copy, owners)
    if lost == "gone":
        (owners / "south.db").unlink()
    expected = "restored from an older copy" if lost == "older" else "is gone, though it answered"
    capsys.readouterr()
    assert status(["price", study("three")]) == BAD_INPUT
    assert expected in capsys.readouterr().err
    assert run(study("three"), tmp_path / "three") == BAD_INPUT
    assert "restored from an older copy" in (told := capsys.readouterr().err) or expected in told
    for command in ("verify", "noise"):
        assert status(["ledger", command, str(owners)]) == BREACH
        assert "BROKEN south" in capsys.readouterr().err
    assert spent(tmp_path) == pytest.approx(spent_in(copy))


def spent_in(folder: Path) -> float:
    """The rho spent in a folder's northern ledger."""
    with closing(Ledger.read(folder / "north.db")) as ledger:
        return float(ledger.budget()[0].spent[0])


def test_a_ledger_whose_state_was_emptied_is_refused(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Totals that were deleted are not begun anew."""
    assert run(study("one"), tmp_path / "one") == FINE
    with sqlite3.connect(tmp_path / "owners" / "north.db") as database:
        database.execute("DELETE FROM state WHERE name = 'charged' OR name LIKE 'total:%'")
    database.close()
    capsys.readouterr()
    for command in ("run", "price"):
        more = ["--out", str(tmp_path / "two")] if command == "run" else []
        assert status([command, study("two"), *more]) == BAD_INPUT
        told = capsys.readouterr()
        assert told.out == "" and "does not follow from its entries" in told.err


def test_a_project_that_was_copied_has_no_second_budget(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy's ledgers are refused as long as the first ones are there; once moved, they go on."""
    assert run(study("one"), tmp_path / "one") == FINE
    shutil.copytree(tmp_path / "owners", tmp_path / "forked")
    forked = study("two", "4", 'ledgers = "owners"', 'ledgers = "forked"')
    assert run(forked, tmp_path / "two") == BAD_INPUT
    assert "is a copy of" in capsys.readouterr().err
    held = (tmp_path / "forked" / "north.db").read_bytes()
    assert (
        status(["ledger", "set-budget", str(tmp_path / "forked"), "--epsilon", "20"]) == BAD_INPUT
    )
    assert "a copy is never written" in capsys.readouterr().err
    assert status(["ledger", "renew-secret", str(tmp_path / "forked" / "north.db")]) == BAD_INPUT
    assert (tmp_path / "forked" / "north.db").read_bytes() == held
    shutil.rmtree(tmp_path / "owners")
    assert run(forked, tmp_path / "two") == FINE
    (tmp_path / "forked" / "north.secret").unlink()
    assert run(study("three", "1", '"owners"', '"forked"'), tmp_path / "three") == BAD_INPUT
    assert "is lost; restore it" in capsys.readouterr().err


def test_ledgers_of_which_no_head_is_known_are_said_to_be(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On another machine, say, nobody can tell them from an older copy."""
    assert run(study("one", "2"), tmp_path / "one") == FINE
    shutil.rmtree(state_folder())
    assert run(study("two", "2"), tmp_path / "two") == FINE
    assert re.search(r"'north' has \d+ rows, and no head of it is known", capsys.readouterr().err)


def test_keys_sign_what_lasting_ledgers_answer(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the folder that the study names; a wrong one ends it before anything is charged."""
    named = 'ledgers = "owners"', 'ledgers = "owners"\nkeys = "keys"'
    (tmp_path / "keys").mkdir()
    for owner in ("north", "south"):
        assert status(["key", "new", str(tmp_path / "keys" / f"{owner}.key")]) == FINE
    assert run(study("one", "2", *named), tmp_path / "one") == FINE
    north = str(tmp_path / "owners" / "north.db")
    assert status(["key", "check", north, str(tmp_path / "keys" / "north.key.pub")]) == FINE
    before = spent(tmp_path)
    shutil.copy(tmp_path / "keys" / "south.key", tmp_path / "keys" / "north.key")
    assert run(study("two", "2", *named), tmp_path / "two") == BAD_INPUT
    assert "signed by another key" in capsys.readouterr().err
    (tmp_path / "keys" / "north.key").chmod(0o644)
    assert run(study("two", "2", *named), tmp_path / "two") == BAD_INPUT
    assert "others than its owner can read it" in capsys.readouterr().err
    assert spent(tmp_path) == before


def test_times_count_by_study_and_a_name_stands_for_one_policy(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same study again has used up its times; under another policy it needs another name."""
    assert run(study("one", "2"), tmp_path / "one") == FINE
    assert run(study("one", "2"), tmp_path / "two") == BAD_INPUT
    assert re.search(r"allows 2 in one study, of which it has used 2", capsys.readouterr().err)
    assert run(study("one", "1"), tmp_path / "two") == BAD_INPUT
    assert "was begun under another policy; give this one a name" in capsys.readouterr().err


def test_a_refusal_names_the_study_that_was_killed_with_a_share(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And how its owner frees what it left; then the refused study fits."""
    assert run(study("one", "2"), tmp_path / "one") == FINE
    for owner in ("north", "south"):  # as a study that is killed before it asks
        with closing(
            Ledger(tmp_path / "owners" / f"{owner}.db", owner, registry=Registry())
        ) as book:
            book.reserve_share("cut off", (Fraction(1, 2), Fraction(0)), ZeroConcentrated())
    refused = study("two", "7", 'budget = { epsilon = "8", delta = "1e-5" }', "")
    assert run(refused, tmp_path / "two") == BAD_INPUT
    told = capsys.readouterr().err
    assert "is kept for 'cut off', not ended yet" in told and "privfed ledger seal" in told
    assert status(["price", refused]) == BAD_INPUT
    assert "is kept for 'cut off'" in capsys.readouterr().out
    assert status(["ledger", "seal", str(tmp_path / "owners"), "cut off"]) == FINE
    assert run(refused, tmp_path / "two") == FINE


def test_the_owners_amend_their_budget_and_it_is_recorded(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study cannot: it names what is in force, or nothing; afterwards a refused study fits."""
    assert run(study("one", "8"), tmp_path / "one") == FINE
    named = 'budget = { epsilon = "8", delta = "1e-5" }'
    raised = named.replace('"8"', '"20"')
    assert run(study("two", "4", named, raised), tmp_path / "two") == BAD_INPUT
    assert "hold epsilon 8 at delta 1e-05 for all studies" in capsys.readouterr().err
    assert run(study("two", "4", named, ""), tmp_path / "two") == BAD_INPUT
    assert "less is left" in capsys.readouterr().err
    assert status(["ledger", "set-budget", str(tmp_path / "owners"), "--epsilon", "20"]) == FINE
    assert "north: epsilon 20 at delta 1e-05 is in force" in capsys.readouterr().out
    assert run(study("two", "4", named, ""), tmp_path / "two") == FINE
    assert status(["ledger", "verify", str(tmp_path / "owners")]) == FINE
    report = json.loads((tmp_path / "two" / "report.json").read_text())
    assert all(client["amended"] for client in report["policies"][0]["clients"])
    assert status(["report", str(tmp_path / "one")]) == FINE  # nothing beyond what is in force now


def test_a_budget_below_what_is_spent_is_refused(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would accuse the owner of what was answered before."""
    assert run(study("one", "4"), tmp_path / "one") == FINE
    owners = str(tmp_path / "owners")
    for epsilon, told in (
        ("1", "has spent more than epsilon 1"),
        ("1e400", "between 1e-300"),
        ("inf", "finite"),
    ):
        assert status(["ledger", "set-budget", owners, "--epsilon", epsilon]) == BAD_INPUT
        assert told in capsys.readouterr().err
    assert status(["ledger", "set-budget", owners, "--epsilon", "5"]) == FINE
    with closing(Ledger.read(tmp_path / "owners" / "north.db")) as ledger:
        held = ledger.head
    (tmp_path / "owners" / "south.db").write_bytes(b"no ledger")
    assert status(["ledger", "set-budget", owners, "--epsilon", "6"]) == BAD_INPUT
    with closing(Ledger.read(tmp_path / "owners" / "north.db")) as ledger:
        assert ledger.head == held  # all owners' budgets are set, or nobody's


@pytest.mark.parametrize("left", ["nothing", "tables"])
def test_a_process_killed_while_it_makes_a_ledger_leaves_a_new_one(
    left: str, study: Callable[..., str], tmp_path: Path
) -> None:
    """An empty file, or tables without a row, are begun by the next study."""
    owners = tmp_path / "owners"
    owners.mkdir()
    if left == "nothing":
        (owners / "north.db").touch()
    else:
        with sqlite3.connect(owners / "north.db") as database:
            for statement in SCHEMA:
                database.execute(statement)
        database.close()
    assert run(study("one"), tmp_path / "one") == FINE
    assert status(["ledger", "verify", str(owners)]) == FINE
    assert status(["ledger", "verify", str(tmp_path / "one")]) == FINE


def test_attacks_read_what_their_own_study_released(
    study: Callable[..., str], tmp_path: Path
) -> None:
    """A second study's transcript leaves the first one's releases out; the report counts both."""
    from privfed.study.output import Output

    for name in ("one", "two"):
        assert status(["run", study(name, "2"), "--out", str(tmp_path / name)]) == FINE
    assert len(Output.opened(tmp_path / "two").transcript("private")) == 2 * EACH
    report = json.loads((tmp_path / "two" / "report.json").read_text())
    assert report["policies"][0]["released"] == 2 * 2 * EACH
    assert report["ledgers"].startswith("persistent, one file per data owner in")
    assert "These ledgers are persistent" in (tmp_path / "two" / "report.html").read_text()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "one"', 'name = "one"\nnoise = "test"', 'noise = "test" protects nobody'),
        ('name = "one"', 'name = "one"\nruns = 2', "runs = 2 repeats a policy"),
        ("[[policy]]", '[[policy]]\nname = "published"\n[[policy]]', "keep one"),
        ('ledgers = "owners"', 'ledgers = "out/owners"', "lie inside the output"),
        ('ledgers = "owners"', "", "budget is the owners' total"),
        ('ledgers = "owners"', 'ledgers = "table.csv"', "cannot be written"),
        ('epsilon = "8", delta', "delta", "write budget = { epsilon"),
        ('name = "private"\nepsilon = "4"', 'name = "published"', "has no finite guarantee"),
        ('delta = "1e-5" }', 'detla = "1e-5" }', "unknown key 'detla'"),
    ],
)
def test_what_lasting_ledgers_cannot_hold_is_one_line(
    old: str,
    new: str,
    told: str,
    study: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Told before anything is asked, charged or written."""
    assert run(study("one", "4", old, new), tmp_path / "out") == BAD_INPUT
    printed = capsys.readouterr().err
    assert told in printed and printed.count("\n") == 1
    assert not (tmp_path / "out").exists() and not (tmp_path / "owners").exists()


def test_a_sweep_over_lasting_ledgers_is_refused(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would charge nobody for what are releases."""
    assert status(["sweep", study("one"), "--out", str(tmp_path / "sweep")]) == BAD_INPUT
    assert "a sweep is a simulation that charges nobody" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_what_no_guarantee_covers_is_kept_from_ledgers_with_a_budget(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A published policy after a private one would undo what the owners were promised."""
    assert run(study("one", "2"), tmp_path / "one") == FINE
    budget = 'budget = { epsilon = "8", delta = "1e-5" }'
    path = Path(study("two", "4", 'name = "private"\nepsilon = "4"', 'name = "published"'))
    path.write_text(path.read_text().replace(budget, ""))
    before = spent(tmp_path)
    assert run(str(path), tmp_path / "two") == BAD_INPUT
    assert (
        "hold a budget, and policy 'published' has no finite guarantee" in capsys.readouterr().err
    )
    assert spent(tmp_path) == before


def test_without_the_key_ledgers_are_called_throw_away(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the console, on the page and in the data."""
    assert status(["report", str(finished)]) == FINE
    assert "ledgers: ephemeral" in capsys.readouterr().out
    assert "These ledgers are ephemeral" in (finished / "report.html").read_text()
    assert json.loads((finished / "report.json").read_text())["ledgers"].startswith("ephemeral")


def test_a_plain_folder_is_shown_summed_up_and_exported(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same commands as for an output, by client, and for one file."""
    assert run(study("one", "2"), tmp_path / "one") == FINE
    owners = tmp_path / "owners"
    capsys.readouterr()
    assert status(["ledger", "show", str(owners), "--client", "north"]) == FINE
    told = capsys.readouterr().out
    assert "fuzzy_tree.residuals" in told and "south" not in told
    assert re.search(r" policy +budget: epsilon 8 at delta 1e-05 \| study one\n", told)
    assert re.search(r" share +rho 0\.\d+ of the budget \| study one\n", told)
    assert re.search(r" sealed +study one\n", told)
    assert status(["ledger", "budget", str(owners), "--by", "study"]) == FINE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == 4 * ["north"] + 4 * ["south"] + ["note"]
    whole, one, budget, left = lines[:4]
    assert "budget in force: epsilon 8 at delta 1e-05, which is rho 1.23" in budget
    assert f"all: {EACH} charges" in whole and "epsilon 8 for any further queries" in whole
    assert "study one: a share of" in one and "epsilon 2 at delta 1e-05 given everything" in one
    assert f"{EACH} charges" in one and "room for a study of epsilon" in left
    assert status(["ledger", "export", str(owners)]) == FINE
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status(["ledger", "export", str(owners / "north.db")]) == FINE
    assert len(rows) == 2 * len(capsys.readouterr().out.splitlines())
    assert status(["ledger", "show", str(owners), "--client", "nort"]) == BAD_INPUT
    assert "did you mean 'north'" in capsys.readouterr().err
    assert status(["ledger", "budget", str(tmp_path / "one" / "private")]) == BAD_INPUT


@pytest.mark.parametrize("column", [True, False])
def test_replaced_records_are_refused_where_coins_divide_them(
    study: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str], column: bool
) -> None:
    """A replaced record may be held out, or go to another owner; nothing is charged."""
    policy = FuzzyTreeRegressor(max_depth=1, n_fuzzy_sets=2).private("4", "1e-5")
    replace(policy, relation="replace-one").to_toml(tmp_path / "replaced.toml")
    path = Path(study("one", "4", 'name = "private"\nepsilon = "4"', 'name = "replaced.toml"'))
    if not column:
        parts = 'partition = "iid"\ncount = 2\n'
        path.write_text(path.read_text().replace('partition = "column"\ncolumn = "site"\n', parts))
    assert run(str(path), tmp_path / "out") == BAD_INPUT
    assert "a replaced record may leave an owner's part" in capsys.readouterr().err
    assert not (tmp_path / "owners").exists()
