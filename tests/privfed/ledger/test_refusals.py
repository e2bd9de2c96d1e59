"""Refusals: a row for each at first, later one for many, and none that no row tells of in the end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.accountants.pure import PureEpsilon
from privfed.errors import LedgerError
from privfed.exchange.messages import Reason
from privfed.ledger import Charge, Ledger
from privfed.ledger.refusals import EACH, PARTS, refusals_in
from privfed.owner.gate import Gate
from privfed.privacy.loss import Loss
from privfed.reports.ledger_pages import LedgerView
from privfed.reports.ledger_text import row
from tests.asked_gate import MakeGate, request

MANY = 3000


def _told(ledger: Ledger) -> list[int]:
    return [refusals_in(entry) for entry in ledger.entries(events=("refused",))]


def _refuse(ledger: Ledger, number: int, reason: Reason = Reason.BUDGET, study: str = "") -> None:
    ledger.refuse("server", str(number), reason, {"kind": "k", "query": "q", "study": study})


def test_asking_again_and_again_makes_a_ledger_hardly_longer(tmp_path: Path) -> None:
    """The first 64 have a row each; at any moment rows tell of all but an eighth, and of all when it is closed."""
    path = tmp_path / "ledger.db"
    with closing(Ledger(path, "d")) as ledger:
        for number in range(1, MANY + 1):
            _refuse(ledger, number)
            told = _told(ledger) if number % 97 == 0 else []
            assert not told or number * (1 - 1 / PARTS) < sum(told) <= number
        assert _told(ledger)[:EACH] == [1] * EACH
    with closing(Ledger.read(path)) as ledger:
        assert sum(told := _told(ledger)) == MANY and len(told) < 2 * EACH
        ledger.verify()
        assert LedgerView("d", "", tmp_path).read(ledger).refusals == MANY
        last = list(ledger.entries())[-1]
        assert f"{told[-1]} of them" in row(last, "") and (last.request, told[-1] > 1) == (
            "3000",
            True,
        )


def test_studies_and_reasons_are_counted_apart() -> None:
    """One that was refused for another reason, or in another study, is told at once."""
    ledger = Ledger(None, "d")
    for number in range(MANY):
        _refuse(ledger, number)
    rows = len(_told(ledger))
    _refuse(ledger, MANY, Reason.TIMES)
    _refuse(ledger, MANY, study="other")
    assert _told(ledger)[rows:] == [1, 1]


def test_a_refused_charge_is_counted_as_any_other(make_gate: MakeGate) -> None:
    """A gate whose budget is spent answers each request, and its head stands still between rows."""
    gate: Gate = make_gate(budget="0.05")
    heads = {gate.answer(request(str(number))).head for number in range(MANY)}
    assert len(heads) == len(_told(gate.ledger)) < 2 * EACH
    assert sum(_told(gate.ledger)) > MANY * (1 - 1 / PARTS)


def test_nothing_a_server_names_keeps_refusals_apart(make_gate: MakeGate) -> None:
    """Kinds, principals and questions of its own choice make no more rows."""
    gate: Gate = make_gate()
    for number in range(MANY):
        asked = request(str(number), principal=f"server {number}")
        object.__setattr__(asked, "kind", f"kind {number}")
        gate.answer(asked)
        (counted,) = gate.ledger._refusals._counted.values()
        assert len(counted.kinds) <= 2
    assert len(_told(gate.ledger)) < 2 * EACH
    for entry in gate.ledger.entries(events=("refused",)):
        assert ("kind" in entry.body) is (refusals_in(entry) == 1)


def test_what_a_full_disk_kept_from_the_rows_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that cannot be written any more is closed all the same."""
    ledger = Ledger(tmp_path / "ledger.db", "d")
    for number in range(EACH + 2):
        _refuse(ledger, number)

    def full(*_: object) -> None:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(ledger._store, "insert", full)
    ledger.close()
    with closing(Ledger.read(tmp_path / "ledger.db")) as read:
        assert sum(_told(read)) == EACH


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*Reason][:3]), st.sampled_from("ab"), st.integers(1, 90)))
)
def test_whatever_is_refused_is_told_in_the_end(refused: list[tuple[Reason, str, int]]) -> None:
    """For each study and reason the rows add up to what was refused."""
    ledger = Ledger(None, "d")
    expected = dict.fromkeys({(reason, study) for reason, study, _ in refused}, 0)
    for reason, study, times in refused:
        for number in range(times):
            _refuse(ledger, number, reason, study)
        expected[reason, study] += times
    ledger._refusals.close()
    found = dict.fromkeys(expected, 0)
    for entry in ledger.entries(events=("refused",)):
        found[Reason(entry.body["reason"]), entry.body["study"]] += refusals_in(entry)
    assert found == expected


def test_charges_between_refusals_are_rows_of_their_own() -> None:
    """Counting refusals changes nothing of what is charged."""
    ledger, accountant = Ledger(None, "d"), PureEpsilon()
    for number in range(2 * EACH):
        _refuse(ledger, number)
        charge = Charge("server", str(number), "k", "q", Loss.pure("0.1"))
        assert ledger.reserve(charge, accountant, lambda _: None).refused is None
    assert len(list(ledger.entries(events=("reserved",)))) == 2 * EACH
    ledger.verify()
