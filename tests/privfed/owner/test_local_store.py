"""The shelf itself: plain values, bounds, and what is left after a process was killed."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from privfed import Column, Gate, Ledger, Policy, Records, Schema
from privfed.errors import LedgerError
from privfed.exchange.messages import Request
from privfed.owner import local_store as module
from privfed.owner.local_store import LocalStore
from privfed.testing.check_store import in_child
from tests.privfed.owner.test_local_effects import KeepMean


@dataclass(frozen=True)
class Pair:
    """A value of two fields."""

    left: int
    right: tuple[float, ...]


def test_values_are_read_back_as_plain_data(tmp_path: Path) -> None:
    """Arrays as arrays, wherever they stand; dataclasses as mappings; after closing, too."""
    kept = LocalStore(tmp_path / "a.shelf", "a")
    array = np.arange(6, dtype=float).reshape(2, 3)
    kept["tree"] = {"cuts": array, "deep": [{"bits": np.array([True, False])}], "name": "t"}
    kept["pair"] = Pair(1, (0.5, 2.0))
    kept.close()
    found = LocalStore(tmp_path / "a.shelf", "a")
    assert list(found) == ["pair", "tree"] and len(found) == 2
    assert np.array_equal(found["tree"]["cuts"], array)
    assert found["tree"]["deep"][0]["bits"].tolist() == [True, False]
    assert found["pair"] == {"left": 1, "right": [0.5, 2.0]}
    del found["pair"]
    assert "pair" not in found
    with pytest.raises(KeyError):
        del found["pair"]


def test_what_has_no_wire_form_is_not_kept() -> None:
    """No pickle: an object of any class is a mistake, and so is a name that is none."""
    kept = LocalStore()
    with pytest.raises(TypeError, match="no wire form"):
        kept["x"] = object()
    for name in ("", "x" * 201, 3):
        with pytest.raises(ValueError, match="1 to 200"):
            kept[name] = 1  # type: ignore[index]
    assert not len(kept)


def test_an_effect_is_whole_or_nothing_and_once() -> None:
    """A failed one leaves the shelf as it was; a repeated one is passed over."""
    kept, calls = LocalStore(), []

    def half() -> None:
        kept["half"] = 1
        raise RuntimeError

    def add() -> None:
        calls.append(1)
        kept["sum"] = kept.get("sum", 0) + 1

    kept.apply("server", "1", "k", half)
    assert not len(kept) and kept.failed == {"k": 1}
    for request in ("2", "2", "3"):
        kept.apply("server", request, "k", add)
    kept.apply("other", "2", "k", add)
    assert kept["sum"] == len(calls) == 3


def test_a_shelf_holds_no_more_than_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be too much fails as a whole, and the owner can see that it did."""
    monkeypatch.setattr(module, "MOST_THINGS", 2)
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    kept = LocalStore()

    def put(name: str, size: int) -> None:
        kept.apply("server", f"{name}{size}", "k", lambda: kept.update({name: "x" * size}))

    put("a", 400)
    put("a", 1100)
    put("b", 400)
    put("c", 1)
    assert sorted(kept) == ["a", "b"] and len(kept["a"]) == 400
    assert kept.failed == {"k": 2}


def test_a_file_that_is_no_shelf_is_told(tmp_path: Path) -> None:
    """One line: what, where, what to do."""
    (tmp_path / "a.shelf").write_text("no database " * 100)
    with pytest.raises(
        LedgerError, match=r"a\.shelf: is damaged.*restore it from a backup, or name another file"
    ):
        len(LocalStore(tmp_path / "a.shelf", "a"))
    with pytest.raises(LedgerError, match=r"belongs to data set 'a', not 'b'"):
        len(_of(tmp_path / "b.shelf", "a") or LocalStore(tmp_path / "b.shelf", "b"))


def _of(path: Path, dataset: str) -> LocalStore | None:
    owned = LocalStore(path, dataset)
    owned["x"] = 1
    owned.close()
    return None


def gate_of(folder: Path) -> Gate:
    """A gate that is told to keep the mean of its records, over a ledger and a shelf in a folder."""
    schema = Schema((Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)))
    records, policy = Records(schema, np.full((4, 2), 0.25)), Policy({KeepMean.kind: ()})
    ledger = Ledger(folder / "c.db", "c")
    return Gate("c", records, policy, ledger, queries=(KeepMean,), secret=b"s")


@pytest.mark.parametrize("moment", ["reserved", "effect", "kept"])
def test_a_killed_process_loses_nothing_and_does_nothing_twice(moment: str, tmp_path: Path) -> None:
    """Killed after the charge, in the middle of the effect, or after it: sent again, done once."""

    def kill(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def killed() -> None:
        gate, patched = gate_of(tmp_path), pytest.MonkeyPatch()
        if moment == "reserved":
            patched.setattr(gate.shelf, "apply", kill)
        elif moment == "effect":
            patched.setattr(
                KeepMean, "take_effect", lambda _, view: (view.shelf.update(half=1), kill())
            )
        else:
            patched.setattr(gate.ledger, "release", kill)
        gate.answer(Request.of("1", KeepMean(0)))

    assert os.WTERMSIG(os.waitpid(in_child(killed), 0)[1]) == signal.SIGKILL
    kept = dict(LocalStore(tmp_path / "c.shelf", "c").of_study(""))
    assert kept == ({"mean": 0.25, "times": 1} if moment == "kept" else {})
    gate = gate_of(tmp_path)
    gate.answer(Request.of("1", KeepMean(0)))
    gate.ledger.verify()
    assert dict(gate.shelf.of_study("")) == {"mean": 0.25, "times": 1}
    gate.ledger.close()


def test_studies_and_principals_keep_their_own() -> None:
    """Things of one name stand apart; by the bare name one is found only where it is the only one."""
    shelf = LocalStore(None, "c")
    shelf.of("one", "server")["tree"] = 1
    assert shelf["tree"] == 1
    assert dict(shelf.of_study("one")) == {"tree": 1}
    shelf.of("two", "server")["tree"] = 2
    shelf.of("two", "another")["tree"] = 3
    assert dict(shelf.of("one", "server")) == {"tree": 1}
    assert shelf.of("two", "server")["tree"] == 2
    assert dict(shelf.of_study("two")) == {}
    assert "tree" not in shelf
    del shelf.of("two", "another")["tree"]
    assert dict(shelf.of_study("two")) == {"tree": 2}
    with pytest.raises(KeyError):
        del shelf.of("two", "another")["tree"]
    for name in ("", "x" * 201):
        with pytest.raises(ValueError, match="1 to 200"):
            shelf.of("one", "server")[name] = 1
    assert len(shelf.of("one", "server")) == 1


def test_faults_are_remembered_until_they_are_cleared(tmp_path: Path) -> None:
    """Over restarts; asking for them makes no file."""
    path = tmp_path / "c.shelf"
    assert LocalStore(path, "c").faults == {} and not path.exists()
    shelf = LocalStore(path, "c")
    for kind in ("level", "level", "count"):
        shelf.add_fault(kind)
    shelf.close()
    again = LocalStore(path, "c")
    assert again.faults == {"count": 1, "level": 2}
    again.clear_faults()
    assert again.faults == {}
    assert again.faults_ever == {"count": 1, "level": 2}
