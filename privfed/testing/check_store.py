"""Conformance of a ledger's store: durable, exclusive, atomic, and tampering is detected.

Forks and kills processes, so it requires ``os.fork``.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any
from unittest import TestCase

from privfed.errors import LedgerError
from privfed.exchange.messages import Head
from privfed.ledger.store import GENESIS, Store, digest_of, fits
from privfed.testing.conformance import Check, checks_of, run_checks

expected = TestCase().assertRaises  #: Context in which an exception of a type must be raised
KILLS, ROWS = 8, 25  #: Number of killed writing processes, and most rows before each kill
#: Processes that reserve concurrently, attempts of each, and the total that fits.
PROCESSES, TRIES, FITS = 4, 20, 50
FLIPS = 120  #: Number of single bits flipped in the files, one at a time


@dataclass
class StoreCase:
    """Stores in files of one folder, created or opened at a path by ``make``."""

    make: Callable[[Path], Store]
    folder: Path
    _made: int = field(default=0)

    def path(self) -> Path:
        """Return a path for a new store, in a new folder."""
        self._made += 1
        folder = self.folder / str(self._made)
        folder.mkdir()
        return folder / "ledger.db"

    @contextmanager
    def opened(self, path: Path | None = None) -> Iterator[Store]:
        """Open a store, by default a new one, and close it at the end."""
        with closing(self.make(self.path() if path is None else path)) as store:
            yield store


def check_store(
    make: Callable[[Path], Store], folder: Path, *, skip: Mapping[str, str] | None = None
) -> list[str]:
    """Run every check on a :class:`privfed.ledger.store.Store`; as :func:`.run_checks`.

    Args:
        make: opens a store at a path, creating it if there is none.
        folder: an empty folder for its files.
    """
    return run_checks(CHECKS, StoreCase(make, folder), skip)


def write(store: Store, number: int, payload: bytes = b"") -> Head:
    """Append one row with a state in a separate transaction."""
    with store.exclusive():
        return store.append(
            "reserved", "server", f"r{number}", {"number": number}, payload, state={"n": number}
        )


def contents(store: Store) -> tuple[list[tuple[Any, ...]], dict[str, bytes]]:
    """Return all rows and the whole state, verified.

    Raises:
        LedgerError: the chain or the state is broken.
    """
    store.check_form()
    rows, previous = list(store.select()), GENESIS
    for seq, row in enumerate(rows, 1):
        if row[0] != seq or not fits(previous, row):
            raise LedgerError(f"{store}: entry {seq} does not fit the chain")
        previous = row[7]
    store.check_last()
    store.check_state()
    return rows, store.state()


def sound(store: Store) -> tuple[list[tuple[Any, ...]], dict[str, bytes]]:
    """:func:`contents` of an untampered store."""
    try:
        return contents(store)
    except LedgerError as error:
        raise AssertionError(str(error)) from None


def in_child(work: Callable[[], object]) -> int:
    """Fork a process that does some work, with exit status 0 unless it raises; returns its id."""
    if child := os.fork():
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def check_rows_come_back(case: StoreCase) -> None:
    """What was written is read, by this opening and the next: all, by number, event and request."""
    path = case.path()
    with case.opened(path) as store:
        assert store.empty
        heads = [write(store, n, bytes(n * 700)) for n in range(1, 6)]
        with store.exclusive() as end:
            assert end.seq == 5
            heads.append(store.append("noted", "", "", {}, b"x"))
        assert not store.empty
        assert store.head == heads[-1]
        before = sound(store)
    with case.opened(path) as store:
        assert sound(store) == before
        assert [row[6] for row in store.select()][4] == bytes(3500)
        numbers = [
            [row[0] for row in store.select(**terms)]
            for terms in ({"at": 3}, {"after": 4}, {"events": ("noted",)}, {"newest": 2})
        ]
        assert numbers == [[3], [5, 6], [6], [6, 5]]
        entry = store.find("server", "r2")
        assert entry is not None and entry.seq == 2 and entry.body["number"] == 2
        assert store.charged("server", "r2") and not store.charged("other", "r2")
        assert store.hash_at(4) == heads[3].hash and store.hash_at(9) is None


def check_state_follows(case: StoreCase) -> None:
    """The state is what was put last, its digest is in the row, and what is forgotten is gone."""
    with case.opened() as store:
        with store.exclusive():
            store.append("counted", "", "", {}, state={"a:1": 1, "a:2": [2], "b": "3"})
            assert store.held("a:2", "b", "c") == [[2], "3", None]
        with store.exclusive():
            store.forget("a:")
            store.append("counted", "", "", {}, state={"a:3": 3})
        assert store.look("a:1", "a:3", "b") == [None, 3, "3"]
        rows, state = sound(store)
        assert set(state) == {"a:3", "b", "tip"}
        assert digest_of(state).encode() in rows[-1][5]


def check_all_or_nothing(case: StoreCase) -> None:
    """A transaction that fails leaves nothing, and takes the one around it along."""
    with case.opened() as store:
        write(store, 1)
        before = sound(store)
        undone: list[int] = []
        store.undone = lambda: undone.append(1)
        with expected(ValueError), store.exclusive():
            write(store, 2)
            raise ValueError
        with expected(LedgerError), store.exclusive():
            write(store, 3)
            with expected(ValueError), store.exclusive():
                raise ValueError
        assert sound(store) == before and len(undone) == 2
        assert write(store, 4).seq == 2


def check_nothing_is_charged_twice(case: StoreCase) -> None:
    """A second row of one request and event fails, except refusals; the first stays."""
    with case.opened() as store:
        write(store, 1)
        before = sound(store)
        with expected(LedgerError):
            write(store, 1)
        assert sound(store) == before
        for _ in range(2):
            with store.exclusive():
                store.append("refused", "server", "r2", {})
        assert not store.charged("server", "r2")


def check_killed_processes_lose_nothing(case: StoreCase) -> None:
    """What was told after a transaction is there after SIGKILL, and the chain is whole."""
    path, draw = case.path(), random.Random(1)
    reported = Head(0, GENESIS)
    for life in range(KILLS):
        ours, theirs = os.pipe()
        child = in_child(partial(_write_on, case, path, life, theirs))
        os.close(theirs)  # so that the lines end when the child does
        with os.fdopen(ours) as lines:
            lines.readline()  # it lives
            heads = [lines.readline() for _ in range(draw.randint(1, ROWS))]
            os.kill(child, signal.SIGKILL)  # while it goes on
            heads = [line for line in (*heads, *lines) if line.endswith("\n")]
        os.waitpid(child, 0)
        reported = Head.parse(heads[-1]) if heads else reported
        with case.opened(path) as store:
            rows, _ = sound(store) if not store.empty else ([], {})
            assert len(rows) >= reported.seq, f"{reported.seq - len(rows)} rows were lost"
            assert not reported.seq or store.hash_at(reported.seq) == reported.hash
    assert reported.seq > KILLS, "hardly anything was written between the kills"


def _write_on(case: StoreCase, path: Path, life: int, pipe: int) -> None:
    with case.opened(path) as store:
        os.write(pipe, b"open\n")
        for number in count(10_000 * (life + 1) + 1):
            os.write(pipe, f"{write(store, number, bytes(2000))}\n".encode())


def check_reserving_is_exclusive(case: StoreCase) -> None:
    """Processes that check and reserve at once never exceed what fits, and use all of it."""
    path = case.path()
    with case.opened(path) as store:
        write(store, 0)
    gate, opened = os.pipe()
    children = [
        in_child(partial(_reserve, case, path, n, (gate, opened))) for n in range(PROCESSES)
    ]
    os.close(gate)
    os.close(opened)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert not any(ends), "a process met an error"
    with case.opened(path) as store:
        rows, _ = sound(store)
        assert store.look("spent") == [FITS]
        assert len(rows) == FITS + 1, f"{len(rows) - 1} were reserved, and {FITS} fit"


def _reserve(case: StoreCase, path: Path, process: int, gate: tuple[int, int]) -> None:
    with case.opened(path) as store:
        store.look("spent")
        os.close(gate[1])
        os.read(gate[0], 1)  # returns at end of file, once every process has closed its end
        for number in range(TRIES):
            with store.exclusive():
                spent = store.held("spent")[0] or 0
                if spent < FITS:
                    name = f"{process}-{number}"
                    store.append("reserved", "server", name, {}, state={"spent": spent + 1})


def check_a_snapshot_is_one_moment(case: StoreCase) -> None:
    """What another opening appends meanwhile is not seen, and afterwards it is."""
    path = case.path()
    with case.opened(path) as first, case.opened(path) as second:
        write(first, 1)
        with first.snapshot():
            before = list(first.select())
            write(second, 2)
            assert list(first.select()) == before
        assert len(list(first.select())) == 2
        assert first.look("n") == [2]


def check_a_child_opens_its_own(case: StoreCase) -> None:
    """A store that was opened before a fork refuses in the child."""
    with case.opened() as store:
        write(store, 1)

        def used() -> None:
            for use in (lambda: write(store, 2), lambda: store.head, lambda: store.look("n")):
                with expected(LedgerError):
                    use()

        assert os.waitpid(in_child(used), 0)[1] == 0, "the child could use it"
        assert len(sound(store)[0]) == 1


def check_tampering_is_told(case: StoreCase) -> None:
    """After any one byte of the files is changed, it says so, or its contents are what they were."""
    path, draw = case.path(), random.Random(2)
    with case.opened(path) as store:
        for number in range(1, 12):
            write(store, number, draw.randbytes(number * 150))
        before = contents(store)
    noticed = 0
    for flip in range(FLIPS):
        folder = case.folder / f"flip {flip}"
        copytree(path.parent, folder)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        sizes = [file.stat().st_size for file in files]
        (file,) = draw.choices(files, sizes)
        data = bytearray(file.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
        try:
            with case.opened(folder / path.name) as store:
                after = contents(store)
        except LedgerError:
            noticed += 1
        else:
            assert after == before, (
                f"a change of {file.name} gives other contents, and no error is raised"
            )
    assert noticed > FLIPS / 20, "hardly any change was noticed: were the files changed at all?"


CHECKS: tuple[Check[StoreCase], ...] = checks_of(__name__)
