"""A study's output: one folder, written whole or not at all.

FOLDER/study.toml                     the study as run
FOLDER/data.stamp                     modification time of the data, checked before later attacks
FOLDER/files.sha256                   SHA-256 of each of these files that a report or certificate is made from
FOLDER/report.html, report.json       the budget report
FOLDER/<policy>/policy.toml           the policy that the data owners adopted
FOLDER/<policy>/ledgers/<client>.db   one ephemeral ledger for each data owner, unless they are persistent;
                                      next to it, not to be published, .secret and .noise (sums)
FOLDER/<policy>/session.json          the session of this study's requests in persistent ledgers
FOLDER/<policy>/heads.json            the ledgers' heads, as the server saw them
FOLDER/<policy>/metrics.json          utility on held-out records (simulation)
FOLDER/<policy>/findings.json         what the attacks achieved, and which do not apply (simulation)
FOLDER/<policy>/noise.json            whether the noise drawn was of its laws (simulation)
FOLDER/<policy>/model.json            the model, readable without privfed
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from privfed.errors import InputError, LedgerError, Note, file_errors
from privfed.exchange.masked_totals import in_time
from privfed.exchange.messages import Head
from privfed.exchange.transcript import Transcript
from privfed.ledger import Ledger
from privfed.questions.wire import digest
from privfed.study import Study
from privfed.study.persistent_ledgers import PersistentLedgers, files_in

STUDY = "study.toml"
#: File of the session by which a study's requests are found in persistent ledgers.
SESSION = "session.json"
JOURNAL = "journal"  #: All replies of owners on other machines
HEADS = "heads.json"  #: The ledgers' heads, as the server saw them
FILES = "files.sha256"  #: Digests of an output's files, as sha256sum writes them
#: What is listed there: all that pages and certificates read, but the ledgers, which have chains of their own.
LISTED = ("*.toml", "*.stamp", "*/*.toml", "*/*.json")
NOISE = "noise.json"  #: File of the finding on the noise that a simulation drew
#: File that lists an output's entries, one per line; a folder without it is no output.
CONTENTS = ".privfed"
#: Pages that may be added to a finished output, and their PDF files.
PAGES = {
    f"{page}.{form}"
    for page in ("report", "board", "regulator", "comparison")
    for form in ("html", "pdf")
}


@contextmanager
def written_whole(folder: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling folder, which replaces the target if no error is raised.

    It is locked while this process lives; unlocked siblings are of killed processes, and are removed.
    """
    target = Path(folder).resolve()
    _clear(target)
    _check_free(target, overwrite)
    with file_errors(f"--out {target}", "written"):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial, lock = _new_sibling(target)
    try:
        yield partial
        write_text(partial / CONTENTS, "\n".join([CONTENTS, *entries(partial)]) + "\n")
        partial.chmod(0o755)
        _swap(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def _new_sibling(target: Path) -> tuple[Path, int]:
    """Return a new sibling folder, and the descriptor of its lock."""
    while True:
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}{CONTENTS}.", dir=target.parent))
        lock = os.open(partial, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if partial.exists():
            return partial, lock
        os.close(lock)


def _clear(target: Path) -> None:
    """Remove siblings of a folder left by killed processes; restore an output that one was replacing."""
    named = re.compile(re.escape(f".{target.name}{CONTENTS}.") + r"[a-z0-9_]{8}(\.old)?")
    siblings = target.parent.iterdir() if target.parent.is_dir() else ()
    for stale in sorted((path for path in siblings if named.fullmatch(path.name)), reverse=True):
        sibling = stale.with_suffix("") if stale.suffix == ".old" else stale
        with suppress(OSError), _claim(sibling):
            if stale.suffix == ".old" and not target.exists():
                os.replace(stale, target)
            else:
                shutil.rmtree(stale)
                warnings.warn(f"removed {stale}, which a killed run left", Note, stacklevel=3)


@contextmanager
def _claim(folder: Path) -> Iterator[None]:
    """Lock a folder, if it exists (OSError: another process holds the lock)."""
    if not folder.exists():
        yield
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def _check_free(target: Path, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / CONTENTS).is_file():
        raise InputError(f"--out {target}: holds something else than an output; name a new folder")
    foreign = entries(target) - set((target / CONTENTS).read_text(encoding="utf-8").split("\n"))
    if foreign:
        raise InputError(
            f"--out {target}: holds {min(foreign)!r} as well, which no study wrote; move it away, or "
            "name a new folder"
        )
    if not overwrite:
        kind, warning = "output", ""
        if (target / STUDY).is_file():
            kind = "study"
        if any(target.glob("*/ledgers/*.db")):
            warning = " (which removes its ephemeral ledgers, and so the record of what was spent)"
        raise InputError(
            f"--out {target}: holds an earlier {kind}; name a new folder, or add --overwrite{warning}"
        )


def entries(folder: Path) -> set[str]:
    """Return the names of a folder's entries."""
    return {path.name for path in folder.iterdir()}


def _swap(partial: Path, target: Path) -> None:
    old = partial.with_name(f"{partial.name}.old")
    if target.exists():
        os.replace(target, old)
    os.replace(partial, target)
    shutil.rmtree(old, ignore_errors=True)


class Output:
    """An output folder, new or finished."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def opened(cls, folder: str | Path) -> Output:
        """Open a finished output (InputError: there is none)."""
        if not Path(folder).exists():
            raise InputError(f"{folder}: there is no such folder or file")
        if not (Path(folder) / STUDY).is_file() or not cls(folder).policies:
            within = sorted(child for child in Path(folder).glob("*/") if files_in(child))
            ledgers = f", or for its ledgers {within[0]}" if within else ""
            if runs := sorted(Path(folder).glob(f"cells/[!.]*/{STUDY}")):
                raise InputError(
                    f"folder {folder}: holds a sweep; give one of its runs, such as {runs[0].parent}"
                )
            raise InputError(
                f"folder {folder}: holds no study's output; give the --out of `privfed audit`{ledgers}"
            )
        return cls(folder)

    @property
    def study(self) -> Study:
        """The study as run."""
        return Study.from_toml(self.folder / STUDY)

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that were run, in the study's order."""
        names = (policy.name for policy in self.study.policies)
        return tuple(name for name in names if (self.folder / name / "policy.toml").is_file())

    def list_pages(self) -> None:
        """Add pages written later to the output's entries, which ``overwrite`` may remove."""
        path = self.folder / CONTENTS
        known = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
        later = sorted((entries(self.folder) & PAGES) - set(known))
        if known and later:
            write_text(path, "\n".join([*known, *later]) + "\n")

    def policy(self, name: str) -> Path:
        """Return one policy's folder."""
        return self.folder / name

    def ledger_files(self, name: str) -> dict[str, Path]:
        """Return one policy's ledger files, by client (InputError: none, or one that is of no owner of this study)."""
        if (self.policy(name) / SESSION).is_file():
            ledgers, heads = PersistentLedgers.of(self.study), self.heads(name)
            files = {} if ledgers is None else ledgers.files()
            return {client: path for client, path in files.items() if client in heads}
        ephemeral = files_in(self.policy(name) / "ledgers")
        if not ephemeral:
            raise InputError(f"folder {self.policy(name)}: {self._without_ledgers(name)}")
        for client, path in ephemeral.items():
            self._check_own(client, path)
        return ephemeral

    def _check_own(self, client: str, path: Path) -> None:
        """Check that a ledger is of this client and study; one that cannot be read is told where it is verified."""
        with suppress(LedgerError), closing(Ledger.read(path)) as ledger:
            if ledger.dataset != client:
                instead = f"name it {quote(ledger.dataset, safe=' ')}.db, if that owner took part"
                raise InputError(
                    f"ledger {path}: is of data set {ledger.dataset!r}; move it away, or {instead}"
                )
            ended = (self.folder / STUDY).is_file()  # written after the ledgers
            if ended and self.study.name not in ledger.policies():
                raise InputError(
                    f"ledger {path}: has no row of the study {self.study.name!r}; move it away"
                )

    def _without_ledgers(self, name: str) -> str:
        if not (self.policy(name) / JOURNAL).is_file():
            return "holds no ledgers; run the study again"
        if not (self.policy(name) / HEADS).is_file():
            return "the study has not ended; run it again, and it goes on from its journal"
        return f"holds no ledgers yet; {self._ask_owners(sorted(self.heads(name)))}"

    def _ask_owners(self, owners: Sequence[str]) -> str:
        names = ", ".join(f"{quote(owner, safe=' ')}.db" for owner in owners)
        return f"each owner gives a copy of hers, once her gate is stopped: put it into ledgers as {names}"

    def check_given(self, name: str) -> None:
        """Check that each owner on another machine gave a copy of her ledger (InputError: one is missing)."""
        if (self.policy(name) / JOURNAL).is_file():
            present = self.ledger_files(name)
            if missing := sorted(set(self.heads(name)) - set(present)):
                problem = f"lacks the ledger of {', '.join(missing)}; {self._ask_owners(missing)}"
                raise InputError(f"folder {self.policy(name)}: {problem}")

    @contextmanager
    def ledgers(self, name: str) -> Iterator[dict[str, Ledger]]:
        """Open one policy's ledgers for reading, by client, and close them afterwards."""
        opened: dict[str, Ledger] = {}
        try:
            for client, path in self.ledger_files(name).items():
                opened[client] = Ledger.read(path)
            yield opened
        finally:
            for ledger in opened.values():
                ledger.close()

    def transcript(self, name: str) -> Transcript:
        """Return all releases of this study under one policy, in order of time: all that an attack may read."""
        session = str(self.read(name, SESSION) or "")
        with self.ledgers(name) as ledgers:
            return in_time(
                entry for ledger in ledgers.values() for entry in ledger.disclosed(session)
            )

    def heads(self, name: str) -> dict[str, Head]:
        """Return the heads that the server saw, by client; a verified chain must contain them."""
        seen = self.read(name, HEADS) or {}
        return {client: Head(int(seq), str(hash_)) for client, (seq, hash_) in seen.items()}

    def write_heads(self, name: str, heads: Mapping[str, Head | None]) -> None:
        """Write the heads that the server saw; None: a client that never answered."""
        seen = {client: [head.seq, head.hash] for client, head in heads.items() if head}
        self.write(name, HEADS, seen)

    def write(self, name: str, file: str, data: Any) -> None:
        """Write one policy's JSON file, in one step, and its digest if the output's are listed already."""
        write_text(self.policy(name) / file, json.dumps(finite(data), indent=2) + "\n")
        if (listed := self.listed()) is not None:
            path = f"{name}/{file}"
            self._list({**listed, path: digest((self.folder / path).read_bytes())})

    def list_files(self) -> None:
        """List the digests of a finished output's files."""
        self._list(self._digests())

    def listed(self) -> dict[str, str] | None:
        """Return the listed digests by path; None if an earlier version wrote the output, it has not ended, or the list was removed."""
        path = self.folder / FILES
        if not path.is_file():
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return {
            name or FILES: hashed for hashed, _, name in (line.partition("  ") for line in lines)
        }

    def edited(self) -> list[str]:
        """Return the files that were changed, added or removed since they were listed.

        That proves nothing about whoever can write the folder: they can write the list anew, too.
        """
        listed, found = self.listed(), self._digests()
        if listed is None:
            known = self.folder / CONTENTS
            was_listed = known.is_file() and FILES in known.read_text(encoding="utf-8").split("\n")
            return [FILES] if was_listed else []
        return sorted(
            name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name)
        )

    def _digests(self) -> dict[str, str]:
        files = {path for pattern in LISTED for path in self.folder.glob(pattern) if path.is_file()}
        return {
            path.relative_to(self.folder).as_posix(): digest(path.read_bytes())
            for path in sorted(files)
        }

    def _list(self, digests: Mapping[str, str]) -> None:
        lines = (f"{hashed}  {name}\n" for name, hashed in sorted(digests.items()))
        write_text(self.folder / FILES, "".join(lines))

    def read(self, name: str, file: str) -> Any:
        """Read one policy's JSON file; None if there is no such file, InputError if it is no JSON."""
        path = self.policy(name) / file
        if not path.is_file():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{path}: is not JSON; run `privfed audit` again") from None


def write_out(out: Path, text: str, *, overwrite: bool) -> None:
    """Write the file of a command's ``--out``, in one step (InputError: it exists or cannot be written)."""
    if out.exists() and not overwrite:
        raise InputError(f"--out {out}: exists already; name another file, or add --overwrite")
    with file_errors(f"--out {out}", "written"):
        write_text(out, text)


def check_empty(folder: Path) -> None:
    """Check that a folder is new or empty (InputError: it is not)."""
    if folder.is_file():
        raise InputError(f"{folder}: is a file, where a new folder is to be made; name another one")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"folder {folder}: not empty; name a new one")


@contextmanager
def new_folder(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a hidden sibling of a new or empty folder, which replaces it if no error is raised."""
    check_empty(folder)
    partial = folder.parent / f".{folder.resolve().name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(mode, parents=True)
        yield partial
        if folder.exists():
            for path in list(partial.iterdir()):
                os.replace(path, folder / path.name)
        else:
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a file in one step: readers see the old text or the new one; OSError names it."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def finite(data: Any) -> Any:
    """Convert to plain data for JSON: infinities become text, NaN becomes None."""
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    if isinstance(data, np.ndarray):
        return finite(data.tolist())
    if isinstance(data, np.generic):
        return finite(data.item())
    if isinstance(data, float) and not math.isfinite(data):
        return None if math.isnan(data) else ("infinity" if data > 0 else "-infinity")
    return data
