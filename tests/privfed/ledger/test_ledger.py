"""The ledger: charges, replies, totals, blocks, statements, exports."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ledger_trials import charge, edited, fill, objects, reply

from privfed.accountants.pure import PureEpsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import InputError, LedgerError
from privfed.exchange.messages import Reason
from privfed.exchange.signing import Signer, check_signature
from privfed.ledger import Charge, Ledger, Spent
from privfed.ledger.sqlite_store import SqliteStore
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Guard, Policy

PURE = PureEpsilon()


def yes(after: Spent) -> None:
    """Refuse nothing."""


def up_to(ceiling: str) -> Any:
    """Refuse what exceeds a ceiling."""

    def refuse(after: Spent) -> Reason | None:
        return Reason.BUDGET if after.total[0] > Fraction(ceiling) else None

    return refuse


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a ledger's file goes."""
    return tmp_path / "ledger.db"


def test_charges_and_replies_survive_a_restart(path: Path) -> None:
    """Totals, kinds and stored bytes are there again when the file is opened again."""
    ledger = Ledger(path, "d")
    assert ledger.reserve(charge(1), PURE, yes, b"fields").refused is None
    ledger.release(charge(1), reply(charge(1), 5))
    ledger.close()
    again = Ledger(path, "d")
    assert again.spent(PURE).total == (Fraction(1, 10), 0)
    assert again.spent(PURE).times == {"k": 1}
    found = again.find("server", "r1")
    assert found is not None
    assert (found.event, found.payload) == ("released", reply(charge(1), 5))
    assert again.verify() == again.head


def test_three_tenths_fit_exactly_and_nothing_latches(path: Path) -> None:
    """A refused charge changes nothing: a smaller one still fits."""
    ledger = Ledger(path, "d")
    for number in range(3):
        assert ledger.reserve(charge(number), PURE, up_to("0.3")).refused is None
    assert ledger.reserve(charge(3), PURE, up_to("0.3")).refused == Reason.BUDGET
    assert ledger.spent(PURE).total[0] == Fraction(3, 10)
    small = Charge("server", "small", "k", "q", Loss.pure("0.01"))
    assert ledger.reserve(small, PURE, up_to("0.31")).refused is None


def test_a_request_is_charged_and_answered_once(path: Path) -> None:
    """The file itself forbids a second charge or a second answer for one request."""
    ledger = Ledger(path, "d")
    assert ledger.reserve(charge(1), PURE, yes).refused is None
    assert ledger.reserve(charge(1), PURE, yes).refused == Reason.INTERRUPTED
    ledger.release(charge(1), reply(charge(1), 3))
    with pytest.raises(LedgerError):
        ledger.release(charge(1), reply(charge(1), 7))
    found = ledger.find("server", "r1")
    assert found is not None and found.payload == reply(charge(1), 3)


def test_two_openings_of_one_file_share_its_totals(path: Path) -> None:
    """What one process reserves, the other one counts."""
    one, other = Ledger(path, "d"), Ledger(path, "d")
    for number in range(6):
        ledger = (one, other)[number % 2]
        assert ledger.reserve(charge(number), PURE, up_to("0.6")).refused is None
    assert one.reserve(charge(6), PURE, up_to("0.6")).refused == Reason.BUDGET
    assert other.spent(PURE).total[0] == Fraction(6, 10)


def test_together_is_all_or_nothing(path: Path) -> None:
    """An error inside one durable write undoes all of it, even where the code inside went on."""
    ledger = Ledger(path, "d")
    before = ledger.head
    with pytest.raises(LedgerError, match="nothing was kept"), ledger.together():
        ledger.reserve(charge(1), PURE, yes)
        with pytest.raises(ZeroDivisionError):
            ledger.reserve(charge(2), PURE, lambda spent: 1 // 0)  # type: ignore[arg-type,return-value]
    assert ledger.head == before
    assert ledger.spent(PURE).total[0] == 0


def test_a_block_is_reserved_ahead_and_what_is_left_of_it_is_spent(path: Path) -> None:
    """Later charges draw on it; a process that ends leaves the rest spent."""
    ledger = Ledger(path, "d")
    for number in range(3):
        assert ledger.reserve(charge(number), PURE, up_to("10"), b"f", block=8).refused is None
        assert ledger.spent(PURE).total[0] == Fraction(8, 10)
        ledger.release(charge(number), reply(charge(number), 1))
    ledger.verify()
    ledger.close()
    again = Ledger(path, "d")
    assert again.spent(PURE).total[0] == Fraction(8, 10)
    assert again.reserve(charge(9), PURE, up_to("10"), block=8).refused is None
    assert again.spent(PURE).total[0] == Fraction(16, 10)
    whole = again.budget()[0]
    assert (whole.spent[0], whole.reserved[0]) == (Fraction(3, 10), Fraction(13, 10))


def test_a_block_shrinks_to_what_fits(path: Path) -> None:
    """Ten charges of a tenth fit a budget of one, whatever blocks they come in."""
    ledger = Ledger(path, "d")
    for number in range(10):
        assert ledger.reserve(charge(number), PURE, up_to("1"), block=8).refused is None
        ledger.release(charge(number), reply(charge(number), 1))
    assert ledger.reserve(charge(10), PURE, up_to("1"), block=8).refused == Reason.BUDGET
    assert ledger.spent(PURE).total[0] == 1


def test_a_block_is_drawn_by_equal_charges_only(path: Path) -> None:
    """Another principal, study or loss has to be reserved itself."""
    ledger = Ledger(path, "d")
    ledger.reserve(charge(1), PURE, yes, block=4)
    ledger.reserve(charge(2, principal="other"), PURE, yes)
    assert ledger.spent(PURE).total[0] == Fraction(5, 10)


@pytest.mark.parametrize("per", ["round", "month", "kind"])
@pytest.mark.parametrize("limited", [True, False])
def test_a_block_of_one_limits_total_is_not_drawn_for_anothers(per: str, limited: bool) -> None:
    """What was reserved for this round or month is charged to it; without such a limit rounds and months share a block."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    ledger = Ledger(None, "d", clock=lambda: now[0])
    limits = (Limit((per,), Budget.of("1")),) if limited else ()
    ledger.adopt(Policy({"k": (Guard.of("laplace", spend="0.1"),)}, limits=limits), "s")
    for number, (round_, month) in enumerate([("1", 1), ("1", 1), ("2", 2)]):
        now[0] = datetime(2026, month, 1, tzinfo=UTC)
        asked = Charge("server", str(number), "k", "q", Loss.pure("0.1"), "s", round=round_)
        assert ledger.reserve(asked, PURE, yes, block=4).refused is None
    shared = not limited or per == "kind"
    assert ledger.spent(PURE).total[0] == Fraction(4 if shared else 8, 10)


def test_an_unanswered_draw_is_no_trace_and_no_answer(path: Path) -> None:
    """A crash between draw and reply leaves the id free; the charge stays spent in its block."""
    ledger = Ledger(path, "d")
    ledger.reserve(charge(1), PURE, yes, block=4)
    ledger.close()
    assert Ledger(path, "d").find("server", "r1") is None


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM entries WHERE seq = (SELECT MAX(seq) FROM entries)",
        "UPDATE entries SET hash = '00' || substr(hash, 3) WHERE seq = (SELECT MAX(seq) FROM entries)",
    ],
    ids=["removed", "changed"],
)
def test_rows_that_go_while_a_gate_has_the_file_open_are_missed(path: Path, edit: str) -> None:
    """It would go on from an older end of the chain, and charge again what was forgotten."""
    ledger = Ledger(path, "d")
    fill(ledger, 4)
    edited(path, edit)
    for again in range(2):
        with pytest.raises(LedgerError, match="removed or changed while it was open"):
            ledger.reserve(charge(10 + again), PURE, yes)


def test_another_data_set_is_refused(path: Path) -> None:
    """The error names both data sets and says what to do."""
    Ledger(path, "d").close()
    with pytest.raises(LedgerError, match=r"data set 'd', not 'e'; give each"):
        Ledger(path, "e")


def test_a_newer_format_is_refused(path: Path) -> None:
    """A ledger of an unknown format is left alone."""
    Ledger(path, "d").close()
    db = sqlite3.connect(path)
    db.execute("UPDATE entries SET body = ?", (b'{"dataset":"d","format":99}',))
    db.commit()
    with pytest.raises(LedgerError, match="another format"):
        Ledger(path, "d")


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to look at" * 40])
def test_what_is_no_ledger_is_no_ledger(path: Path, content: bytes) -> None:
    """An empty file, a text, another database: each a typed error when it is to be read."""
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        Ledger.read(path)
    other = path.with_name("other.db")
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE things (x)")
    db.commit()
    with pytest.raises(LedgerError, match="another kind of database"):
        Ledger(other, "d")


def test_reading_makes_no_file(path: Path) -> None:
    """A misspelt path is an error, not an empty ledger."""
    with pytest.raises(LedgerError):
        Ledger.read(path)
    assert not path.exists()


def test_a_read_ledger_cannot_be_written(path: Path) -> None:
    """Who looks does not change."""
    Ledger(path, "d").close()
    with pytest.raises(LedgerError, match="readonly"):
        Ledger.read(path).note("seen", {})


def test_the_accountant_of_a_ledger_stays(path: Path) -> None:
    """Amounts under another accountant do not add up with those that are there."""
    ledger = Ledger(path, "d")
    ledger.reserve(charge(1), PURE, yes)
    with pytest.raises(LedgerError, match="adds up under the accountant 'pure'"):
        ledger.reserve(charge(2), ZeroConcentrated(), yes)
    assert ledger.spent(ZeroConcentrated()).total[0] == charge(1).loss.rho


def test_opening_looks_at_the_end_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows are read for a long ledger as for a short one."""
    read = []
    genuine = SqliteStore.select

    def counting(self: Any, **which: Any) -> Any:
        for row in genuine(self, **which):
            read.append(row[0])
            yield row

    monkeypatch.setattr(SqliteStore, "select", counting)
    seen = []
    for rows in (20, 2000):
        ledger = Ledger(path, "d")
        fill(ledger, rows)
        ledger.close()
        read.clear()
        Ledger(path, "d").close()
        seen.append(len(read))
        path.unlink()
    assert seen == [4, 4], "the first row, the last two, and the last that speaks for the state"


def test_opening_finds_a_false_last_row(path: Path) -> None:
    """The last row, the tip and the totals at hand are checked whenever a ledger is opened."""
    for statement in (
        "UPDATE entries SET payload = x'00' WHERE seq = (SELECT max(seq) FROM entries)",
        "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)",
        "UPDATE state SET value = CAST('[\"1/10\",\"0\",0,1]' AS BLOB) WHERE name = 'total:[]'",
    ):
        ledger = Ledger(path, "d")
        fill(ledger, 10)
        ledger.close()
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()
        with pytest.raises(LedgerError):
            Ledger(path, "d")
        path.unlink()


def test_time_does_not_run_back(path: Path) -> None:
    """A clock that jumps back writes no earlier time, so that no month's limit begins anew."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    times = iter([now, now + timedelta(days=40), now - timedelta(days=400), now])
    ledger = Ledger(path, "d", clock=lambda: next(times, now))
    for number in range(3):
        ledger.note("noted", {"number": number})
    written = [entry.time for entry in ledger.entries()]
    assert written == sorted(written)
    assert written[-1].startswith("2026-12-31")
    ledger.verify()


def test_a_fork_does_not_share_a_connection(path: Path) -> None:
    """A ledger opened before a fork says so in the child instead of harming the file."""
    ledger = Ledger(path, "d")
    child = os.fork()
    if child == 0:
        try:
            ledger.note("noted", {})
        except LedgerError as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_ledger_that_was_not_closed_before_a_fork_is_not_opened_after_it(path: Path) -> None:
    """Its child would hold no lock on the file, and others take away the log that it writes to."""
    ledger = Ledger(path, "d")

    def opened() -> int:
        child = os.fork()
        if child == 0:
            try:
                Ledger(path, "d").close()
            except LedgerError as error:
                os._exit(1 if "not closed" in str(error) else 2)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert opened() == 1
    ledger.close()
    assert opened() == 0


def test_own_events_cannot_be_noted() -> None:
    """Nobody writes a release by way of a note."""
    with pytest.raises(LedgerError, match="the ledger's own"):
        Ledger().note("released", {})


def test_signed_heads_bind_the_owner(path: Path, tmp_path: Path) -> None:
    """A head's signature is the owner's, and of this data set."""
    public = Signer.generate(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    key = (tmp_path / "key").read_bytes()
    ledger = Ledger(path, "d", key=key)
    head = ledger.note("noted", {})
    check_signature(head, "d", public)
    assert ledger.verify([head], public) == head
    for dataset, owner in (("e", public), ("d", Signer(b"x" * 32, "d").public)):
        with pytest.raises(LedgerError, match="not signed"):
            check_signature(head, dataset, owner)
    with pytest.raises(LedgerError, match="not signed"):
        check_signature(Ledger(None, "d").head, "d", public)
    with pytest.raises(InputError, match="give a new file"):
        Signer.generate(tmp_path / "key")
    with pytest.raises(InputError, match="32 bytes"):
        Signer(b"short", "d")


def test_the_budget_is_shown_by_study_kind_and_month() -> None:
    """Spent, reserved and remaining, in all and for each value of an aspect."""
    ledger = Ledger()
    policy = Policy(
        {"k": (Guard.of("laplace", spend="0.1"),)},
        budget=Budget.of("1"),
        limits=(Limit(("study",), Budget.of("0.5")),),
    )
    ledger.adopt(policy, "study")
    for number in range(3):
        ledger.reserve(charge(number), PURE, yes)
    ledger.release(charge(0), reply(charge(0), 1))
    ledger.fail(charge(1), b"x")
    whole, study = ledger.budget("study")
    assert (whole.spent[0], whole.reserved[0]) == (Fraction(2, 10), Fraction(1, 10))
    assert whole.remaining == Fraction(7, 10)
    assert (study.name, study.remaining, study.releases) == ("study", Fraction(2, 10), 3)
    (_, kind), (_, month) = ledger.budget("kind"), ledger.budget("month")
    assert kind.name == "k" and kind.budget is None and kind.epsilon == Fraction(3, 10)
    assert len(month.name) == 7
    json.dumps(whole.to_dict())
    with pytest.raises(InputError, match="by 'colour'"):
        ledger.budget("colour")


def test_exports_hold_every_row(path: Path) -> None:
    """JSON lines give back what the chain covers; a table's cells are no formulas."""
    ledger = Ledger(path, "d")
    ledger.refuse("=cmd()", "r", Reason.BUDGET, {"kind": "k"})
    fill(ledger, 4)
    lines = [json.loads(line) for line in ledger.export("jsonl")]
    assert [line["seq"] for line in lines] == list(range(1, 7))
    assert lines[-1]["hash"] == ledger.head.hash
    rows = list(csv.DictReader(io.StringIO("".join(ledger.export("csv")))))
    assert len(rows) == 6
    assert rows[1]["principal"] == "'=cmd()"
    ledger.reserve(charge(9), PURE, yes, block=3)
    *_, block = csv.DictReader(io.StringIO("".join(ledger.export("csv"))))
    assert (block["event"], block["count"], rows[2]["count"]) == ("block", "3", "")
    with pytest.raises(InputError, match="not 'xml'"):
        ledger.export("xml")


def test_verification_of_a_copy_needs_no_gate(path: Path) -> None:
    """An officer verifies a file as it is, by its path alone."""
    ledger = Ledger(path, "d")
    fill(ledger, 20)
    head = ledger.head
    ledger.close()
    assert Ledger.read(path).dataset == "d"
    assert not objects(path, head)


def test_without_a_ceiling_the_odometer_is_shown() -> None:
    """A zCDP total that nothing bounds is stated so that it holds at any moment."""
    ledger, zcdp = Ledger(), ZeroConcentrated()
    for number in range(5):
        ledger.reserve(charge(number), zcdp, yes)
    (whole,) = ledger.budget()
    total = ledger.spent(zcdp).total
    assert Ledger().budget()[0].spent == (0, 0), "nothing spent is a statement too"
    assert whole.budget is None and whole.delta == Fraction(1, 10**5)
    assert whole.epsilon == zcdp.odometer(total, whole.delta)[0]
    assert whole.epsilon > zcdp.guarantee(total, whole.delta)[0]


def test_a_block_that_was_undone_cannot_be_drawn(path: Path) -> None:
    """A transaction that fails takes its block along: later charges are reserved themselves."""
    ledger = Ledger(path, "d")
    with pytest.raises(ZeroDivisionError), ledger.together():
        ledger.reserve(charge(1), PURE, yes, block=8)
        _ = 1 // 0
    with pytest.raises(LedgerError, match="nothing is reserved for request 'r1'"):
        ledger.release(charge(1), reply(charge(1), 6))
    assert ledger.reserve(charge(2), PURE, yes).refused is None
    ledger.release(charge(2), reply(charge(2), 4))
    assert ledger.spent(PURE).total[0] == Fraction(1, 10)
    ledger.verify()


def test_nothing_is_released_that_was_not_reserved() -> None:
    """Order of events: a release without a charge is an error, and leaves no row."""
    ledger = Ledger()
    head = ledger.head
    for record in (ledger.release, ledger.fail):
        with pytest.raises(LedgerError, match="nothing is reserved"):
            record(charge(1), b"bytes")
    assert ledger.head == head


def test_a_hash_that_is_none_is_found_at_opening(path: Path) -> None:
    """The last row's predecessor with an unreadable hash is a typed error."""
    ledger = Ledger(path, "d")
    fill(ledger, 4)
    ledger.close()
    edited(path, "UPDATE entries SET hash = 'z' || substr(hash, 2) WHERE seq = 4")
    with pytest.raises(LedgerError):
        Ledger(path, "d")
    assert objects(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM state WHERE name = 'charged' OR name LIKE 'total:%'",
        "DELETE FROM state WHERE name LIKE 'total:%kind%'",
        "DELETE FROM state WHERE name = 'terms'",
        "DELETE FROM state WHERE name != 'tip'",
        "INSERT INTO state VALUES ('total:x', '[\"0\",\"0\",0,0]')",
        "UPDATE state SET value = '[\"1/10\",\"0\",0,1]' WHERE name LIKE 'total:%'",
    ],
)
def test_what_is_kept_of_totals_is_not_trusted_at_opening(path: Path, statement: str) -> None:
    """A spent budget cannot be spent again by removing or rewriting what the file keeps beside it."""
    policy = Policy({"k": (Guard.of("laplace", spend="0.1"),)}, budget=Budget.of("0.5"))
    ledger = Ledger(path, "d")
    ledger.adopt(policy)
    for number in range(5):
        assert ledger.reserve(charge(number), PURE, up_to("0.5")).refused is None
    ledger.close()
    edited(path, statement)
    with pytest.raises(LedgerError, match="does not follow from its entries"):
        Ledger(path, "d")


def test_a_reply_s_row_tells_no_time_of_its_own(path: Path) -> None:
    """How long an answer took depends on records: its row has the time of the row before."""
    moments = iter(range(100))
    ledger = Ledger(path, "d", clock=lambda: datetime.fromtimestamp(next(moments), UTC))
    ledger.reserve(charge(1), PURE, yes)
    ledger.release(charge(1), reply(charge(1)))
    *_, reserved, released = ledger.entries()
    assert (reserved.event, released.event) == ("reserved", "released")
    assert reserved.time == released.time
