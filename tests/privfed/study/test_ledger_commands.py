"""The command line on one ledger's file."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from ledger_trials import charge, edited, fill

from privfed.accountants.pure import PureEpsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.cli import BAD_INPUT, BREACH, FINE, status
from privfed.engines.local import LocalDisclosure
from privfed.exchange.signing import Signer
from privfed.ledger import Ledger
from privfed.ledger.statement import Line
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import shown_down
from privfed.reports.account import read
from privfed.reports.budget import PolicyReport
from privfed.reports.ledger_text import spending
from privfed.reports.remarks import unspent
from privfed.study.ledger_commands import _format_line, remaining_text, share_of
from privfed.study.ledger_commands import budget as lines
from privfed.study.price import Balance, percent_of, remaining
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import LevelSums


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger's file."""
    ledger = Ledger(tmp_path / "clinic.db", "clinic")
    fill(ledger, 20)
    ledger.close()
    return tmp_path / "clinic.db"


def test_a_file_is_verified_against_published_heads(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fine, or a breach, and never a traceback."""
    head = str(Ledger.read(path).head)
    assert status(["ledger", "verify", str(path), "--head", head]) == FINE
    assert head in capsys.readouterr().out
    assert status(["ledger", "verify", str(path), "--head", "9:" + "0" * 64]) == BREACH
    assert status(["ledger", "verify", str(path), "--head", "nonsense"]) == BAD_INPUT
    edited(path, "DELETE FROM entries WHERE seq = 4")
    assert status(["ledger", "verify", str(path)]) == BREACH
    assert "BROKEN" in capsys.readouterr().err


def test_ledgers_alone_are_of_no_policy(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy chooses among a study's; where there are ledgers alone, the option is what is wrong."""
    for place in (path, path.parent):
        assert status(["ledger", "show", str(place), "--policy", "private"]) == BAD_INPUT
        assert "--policy private: " in (told := capsys.readouterr().err) and "leave it out" in told


def test_signatures_are_checked_with_the_public_key(tmp_path: Path) -> None:
    """A head with the owner's signature passes, one without does not."""
    key = b"k" * 32
    ledger = Ledger(tmp_path / "l.db", "d", key=key)
    head = ledger.head
    ledger.close()
    public = tmp_path / "public"
    public.write_bytes(Signer(key, "d").public)
    command = ["ledger", "verify", str(tmp_path / "l.db"), "--public-key", str(public), "--head"]
    assert status([*command, f"{head}:{head.signature}"]) == FINE
    assert status([*command, str(head)]) == BREACH
    assert status([*command[:4], str(tmp_path / "none"), "--head", str(head)]) == BAD_INPUT


def test_a_files_budget_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In all and by an aspect; an unknown one is bad input, and a spoilt file is broken."""
    assert status(["ledger", "budget", str(path), "--by", "kind"]) == FINE
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("all: 10 charges; epsilon 1 spent + 0 reserved")
    assert shown[1].startswith("kind k: 10 charges")
    assert status(["ledger", "budget", str(path), "--by", "colour"]) == BAD_INPUT
    assert status(["ledger", "budget", str(path.parent), "--by", "kind"]) == FINE
    assert capsys.readouterr().out.startswith("clinic: all: 10 charges")
    assert status(["ledger", "verify", str(path.parent), "--head", "1:" + "0" * 64]) == BAD_INPUT
    path.write_bytes(b"no ledger")
    assert status(["ledger", "budget", str(path)]) == BREACH


def test_a_budget_before_the_first_charge_is_in_the_accountants_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a kill between a policy's row and the first charge: nothing is spent, and of what is named."""
    with closing(Ledger(tmp_path / "l.db", "d")) as ledger:
        ledger.adopt(Policy({}, budget=Budget.of("8", "1e-5"), accountant="zcdp"), "s")
    assert status(["ledger", "budget", str(tmp_path / "l.db")]) == FINE
    told = capsys.readouterr().out
    assert told.startswith("all: 0 charges; rho 0 spent + 0 reserved; at most epsilon 0 so far")


def test_why_more_than_the_budget_is_spent_so_far_is_said() -> None:
    """As on the page: what is left stands beside it, and the proof at any moment is wider than the budget."""
    line = Line(
        *("all", "", (Fraction(1),), (Fraction(0),), ("rho",)),
        budget=Budget.of("12", "1e-5"),
        epsilon=Fraction("12.64"),
        remaining=Fraction(5),
    )
    assert "(a loose bound: it holds wherever a study stops)" in _format_line(line)
    both = replace(
        line,
        components=("rho", "delta"),
        spent=(Fraction(1), Fraction(0)),
        reserved=(Fraction(0),) * 2,
    )
    assert "; rho 1 spent" in _format_line(both) and "delta 0" not in _format_line(both)
    assert "loose" not in _format_line(replace(line, remaining=Fraction(0)))
    assert "loose" not in _format_line(replace(line, epsilon=Fraction(8)))


def test_what_is_left_is_one_figure_wherever_it_is_told(tmp_path: Path) -> None:
    """In the statement, the command, the price, the report and Python: without what other studies reserved."""
    accountant, budget = ZeroConcentrated(), Budget.of("8", "1e-5")
    guards = {"small.level": (Guard.of("gaussian", spend="0.02"),)}
    policy = Policy(guards, accountant="zcdp", budget=budget)
    schema = Schema((Column("age", lower=0, upper=9),), Column("risk", lower=0, upper=1))
    frame = pd.DataFrame({"site": "a", "age": range(10), "risk": 0.5})
    federation = LocalDisclosure.from_frame(
        frame, "risk", client="site", schema=schema, policy=policy, ledgers=tmp_path, study="one"
    )
    ledger = federation.gates["a"].ledger
    assert remaining_text(ledger).startswith(
        "100 % of the budget, room for a study of epsilon 8 at"
    )
    assert federation.budget().remaining[0] == 8
    federation.ask(LevelSums(((),)))
    share = percent_of(ledger.spent(accountant).total, accountant.ceiling(budget))
    whole, kind, *_ = lines(ledger, "kind").splitlines()
    one, in_force = lines(ledger, "study").splitlines()[1:3]
    assert (
        f"study one: 1 charge; rho 0.02 spent + 0 reserved; {share} of the budget; by itself" in one
    )
    assert "by itself at most epsilon" in kind and "by itself" not in whole
    assert in_force == "budget in force: epsilon 8 at delta 1e-05, which is rho 1.23"
    assert spending("p", "a", ledger.budget("kind")[1]).endswith("  by itself")
    assert f"; {share} of the budget; " in kind and share not in whole
    assert share_of(ledger, ledger.budget("kind")[1]) == share
    alone = float(federation.budget().remaining[0])
    ledger.adopt(policy, "two")
    ledger.reserve_share("two", (accountant.ceiling(budget)[0] / 2, Fraction(0)), accountant)
    room = accountant.left(ledger.taken(accountant), budget)
    assert 3 < room < alone - 1
    assert ledger.budget()[0].remaining == room == ledger.budget("study")[0].remaining
    assert federation.budget().remaining[0] == float(room)
    assert f"room for a study of epsilon {shown_down(room)} at" in remaining_text(ledger)
    assert remaining(Balance("a", ledger.taken(accountant)), policy) == shown_down(room)
    account = read(policy, {"a": ledger}, {})
    assert unspent(PolicyReport(account, (), {}, {})).endswith(f"up to ε {shown_down(room)}")
    ledger.adopt(replace(policy, budget=Budget.of("9", "1e-5")), "two", amend=True)
    assert "; it replaced an earlier one after the first charge" in lines(ledger, None)
    ledger.adopt(policy, "two", amend=True)
    rest = accountant.ceiling(budget)[0] - ledger.taken(accountant)[0]
    ledger.adopt(policy, "three")
    ledger.reserve_share("three", (rest * Fraction(999999, 10**6), Fraction(0)), accountant)
    assert accountant.left(ledger.taken(accountant), budget) == 0, "what rounding leaves is nothing"
    assert remaining_text(ledger) == "nothing"
    assert remaining(Balance("a", ledger.taken(accountant)), policy) == "0"
    assert read(policy, {"a": ledger}, {}).clients[0].room == 0, "nor on the page"


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM entries WHERE event IN ('reserved', 'released')",
        "UPDATE entries SET body = replace(body, '\"1/10\"', '\"1/1000\"') WHERE event = 'reserved'",
    ],
)
@pytest.mark.parametrize("command", ["budget", "show", "export", "set-budget"])
def test_no_command_believes_an_edited_ledger(
    path: Path, edit: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deleted charges and edited amounts: no comfortable number, and an exit status that says so."""
    edited(path, edit)
    more = ["--epsilon", "9"] if command == "set-budget" else []
    assert status(["ledger", command, str(path), *more]) in (BREACH, BAD_INPUT)
    told = capsys.readouterr()
    assert told.out == "" and "ledger" in told.err


@pytest.mark.parametrize("command", [["show"], ["budget", "--by", "round"]])
def test_words_of_an_asker_s_own_move_nothing_on_a_console(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kind or a round that clears the screen, or reads as a line of another owner, stands in quotes."""
    evil, path = "\x1b[2Jall\u202e\nremaining: all of the budget", tmp_path / "a.db"
    with closing(Ledger(path, "a")) as ledger:
        named = replace(charge(1), kind=f"k{evil}", round=f"r{evil}")
        ledger.reserve(named, PureEpsilon(), lambda spent: None)
    status(["ledger", command[0], str(path), *command[1:]])
    told = capsys.readouterr().out
    assert "\\u001b[2Jall" in told and "\nremaining: all" not in told
    assert all(line.isprintable() for line in told.splitlines())
