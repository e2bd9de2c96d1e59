"""A data owner's side as one file: what is held, what is allowed, where it is recorded, who may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from privfed.engines.batches import schema_digest
from privfed.engines.doors import Door
from privfed.engines.owner_side import OwnerSide, Rounds
from privfed.errors import InputError, PolicyError, SchemaError
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.owner.secret import secret_beside
from privfed.privacy.policy import Policy
from privfed.tables.csv_text import Text
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.tables.sources import read_table
from privfed.tables.toml_file import naming, read_toml

#: Bytes of an Ed25519 key.
KEY = 32


@dataclass(frozen=True)
class OwnerFile:
    """How one data owner serves one data set.

    Args:
        client: the owner's public name.
        data: the table, a .csv file.
        schema: the public data dictionary that everybody goes by.
        policy: what the owner allows.
        ledger: where everything is recorded; beside it lie the secret and the shelf.
        doors: by the name of each asker that the owner's engine authenticates, the door it uses.
        study: names the study in the ledger.
        individual: the column that names the person behind each record.
        sep: what splits the table's columns.
        encoding: of its text.
        key: file with the key that signs the ledger's heads, or none.
        rounds: what limits per round count by: ``asker``, ``minute``, ``hour`` or ``day``.
        block: how many equal charges a ledger reserves at once.
        agreed: digests that ``schema`` and ``policy`` must have, where the parties agreed on them.
        folder: where relative paths start.
    """

    client: str
    data: str
    schema: str
    policy: str
    ledger: str
    doors: dict[str, str]
    study: str = ""
    individual: str | None = None
    sep: str = ","
    encoding: str = "utf-8"
    key: str | None = None
    rounds: Rounds = "asker"
    block: int = 1
    agreed: dict[str, str] = field(default_factory=dict)
    folder: Path = Path()

    @classmethod
    def from_toml(cls, path: str | Path, changed: Mapping[str, Any] | None = None) -> OwnerFile:
        """Read a file, some of whose keys may be given anew.

        Raises:
            InputError: a fault in the file; it says what to write instead.
        """
        where = f"owner file {path}"
        with naming(where):
            plain = read_toml(path, where, InputError) | dict(changed or {})
            return cls.from_dict(plain, where, Path(path).resolve().parent)

    @classmethod
    def from_dict(
        cls, plain: Mapping[str, Any], where: str = "owner", folder: Path | None = None
    ) -> OwnerFile:
        """Read plain data."""
        keys = [each.name for each in fields(cls) if each.name != "folder"]
        for key in sorted(set(plain) - set(keys)):
            close = get_close_matches(key, keys, 1)
            hint = f"write {close[0]!r}" if close else f"known are {', '.join(keys)}"
            raise InputError(f"{where}: unknown key {key!r}; {hint}")
        for key in ("client", "data", "schema", "policy", "ledger", "doors"):
            if key not in plain:
                raise InputError(f"{where}: {key} is missing; write {_EXAMPLES[key]}")
        try:
            made = msgspec.convert(dict(plain), cls)
        except msgspec.ValidationError as error:
            raise InputError(f"{where}: {str(error).replace('`', '')}") from None
        made._check(where)
        return replace(made, folder=folder or Path())

    def _check(self, where: str) -> None:
        if not self.client or not self.doors or not all(self.doors):
            raise InputError(f"{where}: names nobody; write {_EXAMPLES['client']}, and under [doors] "
                             f"{_EXAMPLES['doors']}")  # fmt: skip
        for key in sorted(set(self.agreed) - {"schema", "policy"}):
            raise InputError(f"{where}, [agreed]: unknown key {key!r}; known are policy, schema")
        if self.block < 1:
            raise InputError(f"{where}: block must be at least 1")

    def to_toml(self, path: str | Path) -> None:
        """Write the file; keys at their defaults are left out."""
        plain = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "folder" and getattr(self, each.name) != _default(each)
        }
        Path(path).write_text(tomli_w.dumps(plain), encoding="utf-8")

    # --- served ----------------------------------------------------------------------------------

    def opened(self, *, amend: bool = False) -> OwnerSide:
        """Put the gate before the records.

        Args:
            amend: the owner's choice to put this policy in force where another one is.

        Raises:
            SchemaError: the schema is not the agreed one, was read off the data, or does not fit them.
            PolicyError: the policy is not the agreed one, or another one is in force.
            LedgerError: the ledger cannot be opened or trusted, or is another data set's.
            InputError: a file that cannot be read.
        """
        schema = Schema.from_toml(self._path(self.schema))
        policy = Policy.from_toml(self._path(self.policy))
        self._check_agreed(schema, policy)
        table = read_table(self._path(self.data), text=Text(self.sep, self.encoding))
        records = Records.from_frame(table, schema, self.individual, self.client)
        ledger = self._path(self.ledger)
        if not ledger.parent.is_dir():
            raise InputError(f"ledger {ledger}: there is no folder {ledger.parent}; make it")
        gate = Gate(
            self.client,
            records,
            policy,
            Ledger(ledger, self.client, key=self._signing()),
            study=self.study,
            secret=secret_beside(ledger),
            amend=amend,
            block=self.block,
        )
        return OwnerSide(gate, rounds=self.rounds)

    def open_doors(self, side: OwnerSide) -> list[Door]:
        """Open a door for each asker.

        Raises:
            InputError: a door cannot be made; none is open then.
        """
        opened: list[Door] = []
        try:
            for principal, path in self.doors.items():
                answer: Callable[[bytes], bytes] = partial(side.answer, principal=principal)
                opened.append(Door(self._path(path), answer))
        except InputError:
            for door in opened:
                door.close()
            raise
        return opened

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _signing(self) -> bytes | None:
        if self.key is None:
            return None
        try:
            key = self._path(self.key).read_bytes()
        except OSError as error:
            raise InputError(
                f"key file {self.key}: {error.strerror}; make one with privfed key"
            ) from None
        if len(key) != KEY:
            raise InputError(f"key file {self.key}: holds no key; make one with privfed key")
        return key

    def _check_agreed(self, schema: Schema, policy: Policy) -> None:
        if schema.inferred:
            raise SchemaError(
                f"schema file {self.schema}: was read off records, a release that no epsilon covers; "
                "put public bounds there and remove inferred = true"
            )
        if self.agreed.get("schema", schema_digest(schema)) != schema_digest(schema):
            raise SchemaError(
                f"schema file {self.schema}: is not the one that was agreed on; put that one there"
            )
        if self.agreed.get("policy", policy.digest) != policy.digest:
            raise PolicyError(
                f"policy file {self.policy}: is not the one that was agreed on; put that one there"
            )


def _default(key: Any) -> Any:
    return key.default if key.default_factory is MISSING else key.default_factory()


_EXAMPLES = {
    "client": 'client = "Ashford"',
    "data": 'data = "patients.csv"',
    "schema": 'schema = "schema.toml"',
    "policy": 'policy = "policy.toml"',
    "ledger": 'ledger = "ashford.db"',
    "doors": '[doors] with server = "server.sock"',
}
