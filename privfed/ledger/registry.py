"""The last head of each ledger known on a user's machine, by the ledger's identity.

Only a head stored elsewhere reveals that a ledger was replaced by an older copy, begun anew, or copied. Heads are
stored in the user's state folder (``XDG_STATE_HOME``, or ``~/.local/state``), and by a witness.
"""

import fcntl
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import msgspec

from privfed.errors import InputError, LedgerError, Note, number_of
from privfed.exchange.messages import Head
from privfed.ledger.secret import give_to_owner
from privfed.ledger.sqlite_store import SqliteStore

PATIENCE = 30  #: Seconds to wait for a witness's address


def state_folder() -> Path:
    """Return the user's state folder for privfed, which may not exist yet."""
    named = os.environ.get("XDG_STATE_HOME")
    try:
        base = Path(named) if named else Path.home() / ".local" / "state"
    except RuntimeError:
        raise InputError("no home folder for the heads of ledgers; set XDG_STATE_HOME") from None
    return base / "privfed"


@dataclass(frozen=True)
class KnownLedger:
    """A known ledger: its identity, data set, path and last head."""

    identity: str
    dataset: str
    path: Path
    head: Head


def identity_at(path: Path) -> str:
    """Return the identity of the ledger at a path, the hash of its first row; empty if there is none."""
    if not path.is_file() or path.stat().st_size == 0:
        return ""
    store = SqliteStore(path, reading=True)
    try:
        return str(store.hash_at(1) or "")
    except LedgerError:  # some other file
        return ""
    finally:
        store.close()


class Registry:
    """Last heads of ledgers, one file per identity (LedgerError: they cannot be read or written).

    A witness is a file, or an ``http(s)`` address, to which every head is appended as a line
    ``identity seq:hash data set``. An address answers GET with all lines and accepts one by POST.
    """

    def __init__(self, folder: Path | None = None, witness: str = "") -> None:
        self.folder = state_folder() / "ledgers" if folder is None else folder
        self.witness = witness

    def known(self) -> list[KnownLedger]:
        """Return all known ledgers."""
        with self._faults():
            files = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
            return [self._read(file) for file in files]

    def of(self, identity: str) -> KnownLedger | None:
        """Return what is known of one ledger, or None."""
        with self._faults():
            file = self._file(identity)
            return self._read(file) if file.exists() else None

    def at(self, path: Path) -> KnownLedger | None:
        """Return the ledger that was last seen at a path, or None."""
        resolved = path.resolve()
        return next((one for one in self.known() if one.path == resolved), None)

    def under(self, folder: Path) -> list[KnownLedger]:
        """Return the ledgers that were last seen in a folder."""
        resolved = folder.resolve()
        return [one for one in self.known() if one.path.parent == resolved]

    def heads(self, identity: str) -> list[Head]:
        """Return all heads that the ledger's chain must contain, including the witness's."""
        known = self.of(identity)
        mine = [] if known is None else [known.head]
        lines = [line.split(" ", 2) for line in self._witnessed().splitlines() if line.strip()]
        return mine + [Head.parse(line[1]) for line in lines if line[0] == identity]

    def check_place(self, path: Path) -> None:
        """Check that a ledger seen at a path is still there (LedgerError: it is gone, or another is there)."""
        known = self.at(path)
        here = "" if known is None else identity_at(path)
        if known is not None and here != known.identity:
            what = "another one was here" if here else "is gone, though it answered before"
            raise LedgerError(
                f"ledger {path}: {what} (head {known.head}); restore it from its newest copy; if it was deleted "
                f"on purpose, with the record of what was spent: privfed ledger forget {shlex.quote(str(path))}"
            )

    def warn_of_others(self, begun: Mapping[str, Path]) -> None:
        """Warn of data sets whose ledger is new although one of that name is known elsewhere.

        Names may agree by chance, so that nothing is refused: only their owner knows whether both hold the same records.
        """
        others = [
            known
            for known in (self.known() if begun else ())
            if known.dataset in begun and known.path.is_file()
        ]
        if others:
            first, more = others[0], len({known.dataset for known in others}) - 1
            warnings.warn(
                f"ledger {begun[first.dataset]}: is new, with the whole budget, and data set {first.dataset!r} has "
                f"another, {first.path} (head {first.head}); if it holds the same records, write its path instead"
                + (f" ({number_of(more, 'data set')} more like it)" if more else ""),
                Note,
                stacklevel=2,
            )

    def check(self, identity: str, path: Path | None, passes: Callable[[Head], bool]) -> list[Head]:
        """Check a ledger against its known heads and path, and return the heads (LedgerError: one is missing)."""
        original = self.original(identity, path)
        if original is not None:
            raise LedgerError(
                f"ledger {path}: is a copy of {original}, which is still there, and one budget cannot be "
                "spent in two places; go on with that one, or remove it first"
            )
        heads = self.heads(identity)
        for head in heads:
            if not passes(head):
                raise LedgerError(
                    f"ledger {path}: does not pass through head {head} that it answered with before: it was "
                    "restored from an older copy, or rewritten; restore the newest copy"
                )
        return heads

    def original(self, identity: str, path: Path | None) -> Path | None:
        """Return another path of the same ledger, if it was last seen there and still is there."""
        known = self.of(identity)
        if known is None or path is None or known.path == path.resolve():
            return None
        return known.path if identity_at(known.path) == identity else None

    def keep(self, known: KnownLedger) -> None:
        """Store a ledger's head and path; an earlier head never replaces a later one."""
        with self._faults(), self._alone():
            file = self._file(known.identity)
            stored = self._read(file) if file.exists() else None
            head = known.head if stored is None or stored.head.seq < known.head.seq else stored.head
            data = [known.dataset, str(known.path), str(head)]
            partial = file.with_name(f".{file.name}.{os.getpid()}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with open(os.open(partial, flags, 0o600), "wb") as out:
                give_to_owner(out.fileno(), self.folder)
                out.write(msgspec.json.encode(data) + b"\n")
            partial.replace(file)

    def check_witness(self) -> None:
        """Check that a witness, if there is one, can be read (InputError: no such file)."""
        if self.witness and self._address is None and not Path(self.witness).is_file():
            raise InputError(
                f"witness {self.witness}: there is no such file; give the one that keeps the heads, or its address"
            )

    def bear_witness(self, known: KnownLedger) -> None:
        """Append a head to the witness, if there is one."""
        if not self.witness:
            return
        line = f"{known.identity} {known.head} {known.dataset}\n".encode()
        with self._faults():
            if self._address is not None:
                with urlopen(Request(self._address, data=line, method="POST"), timeout=PATIENCE):
                    return
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with open(os.open(self.witness, flags, 0o600), "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())

    def forget(self, path: Path) -> KnownLedger:
        """Forget the ledger that was last seen at a path, by the user's decision."""
        known = self.at(path)
        if known is None:
            raise InputError(f"{path}: no ledger is known there; nothing to forget")
        with self._faults():
            self._file(known.identity).unlink()
        return known

    # --- files -----------------------------------------------------------------------------------

    def _file(self, identity: str) -> Path:
        return self.folder / f"{identity}.json"

    def _read(self, file: Path) -> KnownLedger:
        try:
            dataset, path, head = msgspec.json.decode(file.read_bytes(), type=tuple[str, str, str])
            return KnownLedger(file.stem, dataset, Path(path), Head.parse(head))
        except (msgspec.MsgspecError, InputError):
            raise LedgerError(
                f"known heads {file}: cannot be read; restore the file from a copy, or remove it after "
                "verifying that ledger against a head that the server saw"
            ) from None

    @property
    def _address(self) -> str | None:
        return self.witness if urlparse(self.witness).scheme in ("http", "https") else None

    def _witnessed(self) -> str:
        if not self.witness:
            return ""
        with self._faults():
            if self._address is not None:
                with urlopen(self._address, timeout=PATIENCE) as reply:
                    return str(reply.read().decode())
            file = Path(self.witness)
            return file.read_text(encoding="utf-8") if file.exists() else ""

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            give_to_owner(lock, self.folder)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):
                os.close(lock)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = (error.strerror or str(error) or type(error).__name__).lower()
            where = f" at {error.filename}" if error.filename else ""
            raise LedgerError(
                f"heads of ledgers in {self.folder}{', ' + self.witness if self.witness else ''}: "
                f"cannot be kept ({why}{where}); let this user read and write there. Another folder, in "
                "XDG_STATE_HOME, knows none of these heads"
            ) from None
