"""Ledgers of every format, as the code of their time wrote them, are read, verified and continued."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ledger_trials import edited, objects

from privfed.exchange.messages import Release, Request
from privfed.ledger import Ledger
from privfed.ledger.sqlite_store import EARLIER
from privfed.ledger.store import FORMAT, READABLE
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Guard, Policy
from privfed.questions.query import Query
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.testing.queries import AboveMiddle, LevelSums
from tests.asked_gate import reply

FILES = sorted((Path(__file__).parent / "formats").glob("*.db"))
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
#: What was asked of each file before, in this order, under these ids.
QUESTIONS: dict[str, Query] = {"1": LevelSums(((),)), "2": AboveMiddle(0, 40)}


def format_of(file: Path) -> int:
    """The format that a ledger's first row names."""
    with closing(Ledger.read(file)) as ledger:
        return int(next(ledger.entries()).body["format"])


def copied(file: Path, folder: Path) -> Path:
    """A file of another time among a test's own, with what lies beside it."""
    for one in file.parent.glob(f"{file.stem}.*"):
        shutil.copy(one, folder)
    return folder / file.name


def test_there_is_a_ledger_of_every_format() -> None:
    """Whoever makes another format keeps one of the old."""
    assert {format_of(file) for file in FILES} == {*READABLE} and FORMAT in READABLE


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_earlier_ledger_goes_on(file: Path, tmp_path: Path) -> None:
    """The same request gets its bytes again, the next is charged on top, and all of it verifies."""
    path = copied(file, tmp_path)
    with closing(Ledger.read(path)) as first:
        head = first.verify()
        stored = {e.request: e.payload for e in first.entries(events=("released",))}
    records = Records.from_frame(FRAME, SCHEMA)
    gate = Gate("d", records, POLICY, Ledger(path, "d"), queries=[LevelSums, AboveMiddle])
    spent = gate.ledger.spent(gate.accountant)
    again = gate.answer(Request.of("1", QUESTIONS["1"]))
    assert again.body == stored["1"]
    opened = again.open()
    assert isinstance(opened, Release)
    laws = {name: part.noise.name for name, part in opened.parts.items() if part.noise}
    assert laws == {"counts": "laplace", "sums": "gaussian"}
    assert gate.ledger.spent(gate.accountant) == spent
    assert isinstance(reply(gate, Request.of("3", QUESTIONS["1"])), Release)
    assert gate.ledger.spent(gate.accountant).total[0] > spent.total[0]
    assert gate.ledger.verify([head]).seq > head.seq
    (line,) = gate.ledger.budget(None)
    assert (line.releases, line.basis) == (3, "")
    gate.ledger.close()
    with closing(sqlite3.connect(path)) as database:
        assert (EARLIER,) not in database.execute("SELECT sql FROM sqlite_master").fetchall()


def test_an_edited_row_of_format_3_is_found(tmp_path: Path) -> None:
    """A scale of another size in a list, as in any other row."""
    path = copied(next(file for file in FILES if format_of(file) == 3), tmp_path)
    assert not objects(path)
    edited(path, """UPDATE entries SET body = replace(body, '"10.0"', '"20.0"') WHERE seq = 3""")
    assert objects(path)
