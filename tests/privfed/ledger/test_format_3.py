"""Ledgers that were written before laws had one form are read, verified and continued."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ledger_trials import edited, objects

from privfed.exchange.messages import Release, Request
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import Charged, Law
from privfed.privacy.policy import Guard, Policy
from privfed.questions.query import Query
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.testing.gates import reply
from privfed.testing.queries import AboveMiddle, LevelSums

FRAME = pd.DataFrame({"x": np.linspace(0, 1, 40), "y": np.linspace(0, 1, 40)})
SCHEMA = replace(Schema.infer(FRAME, "y"), inferred=False)
POLICY = Policy(
    {
        LevelSums.kind: (
            Guard.of("laplace", "counts", spend="0.1"),
            Guard.of("gaussian", "sums", spend="0.01"),
        ),
        AboveMiddle.kind: (Guard.of("randomized_response", spend="0.1"),),
    },
    budget=Budget.of("8", "1e-5"),
    accountant="zcdp",
)
QUESTIONS: dict[str, Query] = {"1": LevelSums(((),)), "2": AboveMiddle(0, 40)}


def old_charge(charged: Charged) -> list[str]:
    """A law in a charge of format 3."""
    parameter = charged.law.parameters[0]
    if isinstance(parameter, float):
        return [charged.law.name, str(charged.units), repr(parameter)]
    return ["randomized-response", str(parameter), str(charged.units)]


def old_release(law: Law) -> dict[str, Any]:
    """A law in a release of format 3: a flip had become a float."""
    return {"law": law.name if law.additive else "flip", "parameter": law.parameter}


def opened(path: Path) -> Gate:
    """A gate over the ledger."""
    records = Records.from_frame(FRAME, SCHEMA)
    return Gate("d", records, POLICY, Ledger(path, "d"), queries=[LevelSums, AboveMiddle])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two answers, written as format 3 wrote them."""
    file = tmp_path / "old.db"
    with monkeypatch.context() as old:
        old.setattr("privfed.ledger.ledger.FORMAT", 3)
        old.setattr(Charged, "to_plain", old_charge)
        old.setattr(Law, "to_wire", old_release)
        gate = opened(file)
        for name, query in QUESTIONS.items():
            assert isinstance(reply(gate, Request.of(name, query)), Release)
        gate.ledger.close()
    return file


def test_a_ledger_of_format_3_is_read_verified_and_continued(path: Path) -> None:
    """Its rows hold lists, its releases floats; the same request gets its bytes again."""
    first = Ledger.read(path)
    rows = [entry.body["loss"]["laws"] for entry in first.entries() if entry.event == "reserved"]
    assert [law[0] for laws in rows for law in laws] == [
        "laplace",
        "gaussian",
        "randomized-response",
    ]
    head = first.verify()
    first.close()
    gate = opened(path)
    again = reply(gate, Request.of("1", QUESTIONS["1"]))
    assert isinstance(again, Release)
    laws = {name: part.noise.name for name, part in again.parts.items() if part.noise}
    assert laws == {"counts": "laplace", "sums": "gaussian"}
    spent = gate.ledger.spent(gate.accountant)
    assert isinstance(reply(gate, Request.of("3", QUESTIONS["1"])), Release)
    assert gate.ledger.spent(gate.accountant).total[0] > spent.total[0]
    assert gate.ledger.verify([head]).seq > head.seq
    (line,) = gate.ledger.budget(None)
    assert (line.releases, line.basis) == (3, "")


def test_an_edited_row_of_format_3_is_found(path: Path) -> None:
    """A scale of another size in a list, as in any other row."""
    assert not objects(path)
    edited(path, """UPDATE entries SET body = replace(body, '"10.0"', '"20.0"') WHERE seq = 3""")
    assert objects(path)
