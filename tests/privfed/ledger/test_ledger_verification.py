"""The verifier: whatever an editor does to a ledger's file, it says so and never crashes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger_trials import charge, edited, every_flip, fill, objects, reply, some_flips

from privfed.accountants.pure import PureEpsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import InputError, LedgerError
from privfed.exchange.messages import Head, Release, ReleasedPart
from privfed.ledger import Charge, Ledger
from privfed.ledger.store import encode_body, fits, link
from privfed.privacy.laws import Charged, DiscreteGaussian, DiscreteLaplace
from privfed.privacy.loss import Loss
from privfed.questions import wire
from privfed.questions.part import PartType

ROWS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small ledger's file with charges, releases, a refusal and a block."""
    file = tmp_path / "ledger.db"
    ledger = Ledger(file, "d")
    fill(ledger, ROWS)
    ledger.reserve(charge(900), PureEpsilon(), lambda spent: None, block=4)
    ledger.release(charge(900), reply(charge(900)))
    ledger.close()
    return file


def test_a_sound_ledger_is_sound(path: Path) -> None:
    """No false alarm."""
    assert not objects(path)


def test_every_single_bit_flip_of_every_value_is_found(path: Path) -> None:
    """Exhaustively on the rows' columns, and at random through the file and the whole verifier."""
    tried, unnoticed = every_flip(path)
    assert tried > 100_000
    assert unnoticed == 0
    assert some_flips(path, 150, seed=1) == (150, 0)
    assert not objects(path)


def test_types_are_held_to(path: Path) -> None:
    """Text that becomes a blob of the same bytes is another row."""
    edited(path, "UPDATE entries SET event = CAST(event AS BLOB) WHERE seq = 5")
    assert objects(path)


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM entries WHERE seq = 7"],
        ["DELETE FROM entries WHERE seq > 30"],
        ["DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)"],
        ["DELETE FROM entries"],
        ["DELETE FROM entries", "DELETE FROM state"],
        [
            "UPDATE entries SET seq = -1 WHERE seq = 8",
            "UPDATE entries SET seq = 8 WHERE seq = 10",
            "UPDATE entries SET seq = 10 WHERE seq = -1",
        ],
        [
            "DELETE FROM entries WHERE seq = 9",
            "UPDATE entries SET seq = seq - 1 WHERE seq > 9",
        ],
        [
            """INSERT INTO entries SELECT seq + 1000, time, 'noted', principal, request, body,
            payload, hash, packed FROM entries WHERE seq = 3"""
        ],
        ["UPDATE entries SET body = NULL || body WHERE 0", "UPDATE entries SET body = x''"],
        ["UPDATE entries SET body = CAST('[1]' AS BLOB)"],
        ["UPDATE state SET value = x'ff' WHERE name = 'tip'"],
        ["UPDATE state SET name = 'total:x' WHERE name = 'total:[]'"],
        ["DELETE FROM state WHERE name LIKE 'total:%'"],
        ["INSERT INTO state VALUES ('more', x'31')"],
        ["DROP INDEX once"],
        ["CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END"],
        ["DROP TABLE state"],
        ["DROP TABLE entries"],
        ["ALTER TABLE entries ADD COLUMN more"],
    ],
)
def test_edits_are_found(path: Path, statements: list[str]) -> None:
    """Deleted, truncated, swapped, moved, duplicated rows; false state; tables changed."""
    edited(path, *statements)
    assert objects(path)


def test_a_rolled_back_file_is_found_by_a_published_head(path: Path, tmp_path: Path) -> None:
    """An old copy is sound in itself, and lacks what was published since."""
    old = tmp_path / "old.db"
    shutil.copy(path, old)
    ledger = Ledger(path, "d")
    published = ledger.note("noted", {})
    ledger.close()
    assert not objects(path, published)
    assert not objects(old)
    assert objects(old, published)


def test_a_forged_history_is_found_by_a_published_head(path: Path, tmp_path: Path) -> None:
    """A ledger written anew from its first row differs from what was published."""
    other = tmp_path / "other.db"
    ledger = Ledger(other, "d")
    fill(ledger, ROWS + 10)
    ledger.close()
    honest = Ledger(path, "d")
    assert objects(other, honest.head)
    seq = honest.head.seq
    assert objects(path, Head(seq, "0" * 64))
    assert objects(path, honest.head, Head(seq, "0" * 64))
    assert objects(path, Head(seq, "0" * 64), honest.head)


def _rewritten(path: Path, seq: int, change: dict[str, object]) -> None:
    """An editor who computes every later hash anew."""
    import sqlite3

    import msgspec

    db = sqlite3.connect(path)
    rows = db.execute("SELECT * FROM entries ORDER BY seq").fetchall()
    previous = "0" * 64
    for row in rows:
        columns = list(row[:7])
        if row[0] == seq:
            columns[5] = encode_body({**msgspec.json.decode(row[5]), **change})
        digest = link(previous, tuple(columns))
        db.execute(
            "UPDATE entries SET body = ?, hash = ? WHERE seq = ?", (columns[5], digest, row[0])
        )
        previous = digest
    tip = encode_body([rows[-1][0], previous])
    db.execute("UPDATE state SET value = ? WHERE name = 'tip'", (tip,))
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "change",
    [
        {"amount": ["1/20", "0"]},
        {"amount": ["x", "0"]},
        {"amount": []},
        {"loss": {"epsilon": "-1"}},
        {"loss": {"epsilon": "0.05"}},
        {"loss": 7},
        {"loss": {"epsilon": "0.001", "laws": [["laplace", "1", "1.0"]]}, "amount": ["0.001", "0"]},
        {"loss": {"epsilon": "0.1", "laws": [["laplace", "1", "1.0"]]}},
        {"query": "1" * 64},
        {"kind": 3},
    ],
)
def test_a_chain_made_anew_over_false_charges_is_found(path: Path, change: dict[str, Any]) -> None:
    """Totals follow from the charges, and charges from their losses."""
    assert not objects(path)
    _rewritten(path, 2, change)
    assert objects(path)


def test_raw_damage_of_the_file_is_a_typed_error(path: Path) -> None:
    """Bytes overwritten anywhere: sound content or a typed error, never another exception."""
    data = path.read_bytes()
    honest = Ledger(path, "d").head
    found = 0
    for offset in range(0, len(data), 257):
        path.with_name("ledger.db-wal").unlink(missing_ok=True)
        path.with_name("ledger.db-shm").unlink(missing_ok=True)
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x10]) + data[offset + 1 :])
        found += objects(path, honest)
    assert found > 20
    for size in (0, 100, 4096, len(data) // 2):
        path.write_bytes(data[:size])
        assert objects(path)


def test_the_canonical_form_is_injective_in_lengths() -> None:
    """Moving a byte from one column to the next is another row."""
    one = (1, "t", "ab", "c", "d", b"", b"")
    other = (1, "t", "a", "bc", "d", b"", b"")
    assert link("0" * 64, one) != link("0" * 64, other)
    assert fits("0" * 64, (*one, link("0" * 64, one)))
    assert not fits("0" * 64, (*one, link("0" * 64, one).upper()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "7:xyz",
        "-1:" + "0" * 64,
        "1:" + "G" * 64,
        ":" + "0" * 64,
        "9" * 5000 + ":" + "0" * 64,
    ],
)
def test_heads_are_read_strictly(text: str) -> None:
    """A misspelt head is one clear error."""
    with pytest.raises(InputError, match="is not a head"):
        Head.parse(text)


def test_no_chain_passes_through_a_row_before_its_first() -> None:
    """Row 0 was taken for the first one."""
    ledger = Ledger(None, "d")
    assert ledger.passes(ledger.head)
    assert not ledger.passes(Head(0, ledger.head.hash))


def test_heads_are_written_and_read() -> None:
    """What is printed can be given back."""
    head = Ledger(None, "d").head
    assert Head.parse(str(head)) == head


@pytest.mark.parametrize(
    ("times", "change", "sound"),
    [
        (3, {}, True),
        (4, {}, False),
        (1, {"loss": {"epsilon": "0.05"}}, False),
        (1, {"block": 2}, False),
    ],
    ids=["its charges", "one more", "another loss", "no block"],
)
def test_draws_beyond_a_block_are_found(
    path: Path, times: int, change: dict[str, Any], sound: bool
) -> None:
    """A drawn row must name a block that has a charge left, of the same loss; of this one's four one is used."""
    ledger = Ledger(path, "d")
    (block,) = ledger.entries(events=("block",))
    own = {"block": block.seq, "kind": "k", "query": "q", "loss": block.body["loss"]}
    with ledger._store.exclusive():
        for number in range(times):
            ledger._store.append("drawn", "s", f"q{number}", {**own, **change})
    ledger.close()
    assert objects(path) != sound


class Halving(PureEpsilon):
    """A planted fault: adds half of every loss, under the honest one's name."""

    def amount(self, loss: Loss) -> tuple[Fraction, ...]:
        """Half of it."""
        return tuple(part / 2 for part in super().amount(loss))


@pytest.mark.parametrize(
    ("loss", "accountant", "why"),
    [
        (Loss.pure("0.1"), Halving(), "does not add what its loss costs"),
        (
            Loss.pure("0.1", Charged(DiscreteLaplace(5.0), 1)),
            PureEpsilon(),
            "a loss is smaller than that of its own noise",
        ),
    ],
)
def test_a_gate_that_charges_too_little_is_found(
    loss: Loss, accountant: PureEpsilon, why: str, tmp_path: Path
) -> None:
    """Chain, totals and state follow from each other; what was added, and the laws of the noise, contradict them."""
    ledger = Ledger(tmp_path / "ledger.db", "d")
    one = replace(charge(1), loss=loss)
    assert ledger.reserve(one, accountant, lambda spent: None).refused is None
    with pytest.raises(LedgerError, match=why):
        ledger.verify()


def test_a_row_from_before_its_predecessor_is_found(path: Path) -> None:
    """An earlier month's limit would be charged for it."""
    ledger = Ledger(path, "d")
    with ledger._store.exclusive():
        ledger._store._now = "2001-01-01T00:00:00.000000+00:00"
        ledger._store.append("noted", "", "", {})
    with pytest.raises(LedgerError, match="is older than the one before"):
        ledger.verify()


@pytest.mark.parametrize("replaces", ["", "cd" * 32])
def test_no_key_takes_anothers_place_unseen(tmp_path: Path, replaces: str) -> None:
    """One that says it is the first, or follows one that never signed, would not be told as a lost key's successor."""
    pytest.importorskip("cryptography")
    ledger, public = Ledger(tmp_path / "ledger.db", "d", key=bytes(range(32))), "ab" * 32
    ledger.verify()
    with ledger._store.exclusive():
        row = {"public": public, "replaces": replaces, "signature": ""}
        ledger._store.append("key", "", "", row, state={"key": public})
    with pytest.raises(LedgerError, match="replaces a key that was not in use"):
        ledger.verify()


def test_a_release_without_its_charge_is_found(path: Path) -> None:
    """Every reply answers one charge of the same question, once."""
    ledger = Ledger(path, "d")
    one = charge(901)
    with ledger._store.exclusive():
        ledger._store.append("released", "server", "r901", {"query": one.query}, reply(one))
    with pytest.raises(LedgerError, match="answers what was not charged"):
        ledger.verify()


@pytest.mark.parametrize("salt", ["noise", "question", "request"])
def test_a_release_that_is_not_what_was_charged_for_is_found(path: Path, salt: str) -> None:
    """Its bytes tell of the noise that the charge stands for, of its question and request."""
    ledger, one = Ledger(path, "d"), charge(901)
    other = {
        "noise": replace(one, loss=one.loss),
        "question": replace(one, query="1" * 64),
        "request": replace(one, request="r1"),
    }[salt]
    ledger.reserve(one, PureEpsilon(), lambda spent: None)
    said = reply(other)
    if salt == "noise":
        said = said.replace(wire.encode("10.0"), wire.encode("20.0"))
    with ledger._store.exclusive():
        ledger._store.append("released", "server", "r901", {"query": one.query}, said)
    with pytest.raises(LedgerError, match="is not what was charged for"):
        ledger.verify()


def test_a_loss_that_names_no_law_beside_noise_of_a_known_one_is_found(tmp_path: Path) -> None:
    """A thousandth charged for Gaussian noise of scale 1, which loses a half for each unit squared."""
    ledger = Ledger(tmp_path / "l.db", "d")
    one = Charge("s", "r", "k", "0" * 64, Loss(rho=Fraction(1, 1000)))
    ledger.reserve(one, ZeroConcentrated(), lambda spent: None)
    noise = DiscreteGaussian(1.0)
    part = ReleasedPart(
        PartType.COUNTS, ("cell",), np.arange(3), None, mechanism="gaussian", noise=noise
    )
    ledger.release(one, wire.encode(Release("d", "r", "k", "0" * 64, {"counts": part})))
    with pytest.raises(LedgerError, match="is not what was charged for"):
        ledger.verify()
