"""The configuration file of a data owner's side: table, policy, ledger, and who may query it."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from privfed.engines.batches import schema_digest
from privfed.engines.owner_side import OwnerSide, Rounds
from privfed.engines.sockets import SocketServer
from privfed.errors import InputError, LedgerError, Note, PolicyError, SchemaError, number_of
from privfed.exchange.messages import Head
from privfed.exchange.signing import read_key
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry, identity_at
from privfed.ledger.secret import read_secret, secret_beside
from privfed.ledger.verified_file import verified
from privfed.owner.gate import Gate
from privfed.owner.masking import MaskingKey
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import kinds_of
from privfed.questions import coins
from privfed.tables.csv_text import Text
from privfed.tables.data_quality import DataQuality
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.tables.sources import read_table
from privfed.tables.table_faults import check_table
from privfed.tables.toml_file import check_keys, naming, read_toml
from privfed.tables.toml_table import section

#: File of an owner's public masking key; elsewhere it is called ``<client>.mask``.
MASKING_KEY = "owner.mask"


@dataclass(frozen=True)
class OwnerFile:
    """How one data owner serves one data set."""

    client: str  #: the owner's public name
    data: str  #: the table, a .csv file
    schema: str  #: file of the public data dictionary
    policy: str  #: file of the owner's policy
    ledger: str  #: the ledger's file, with the secret and the shelf next to it
    #: the socket of each principal, by the name that the owner's engine authenticates
    sockets: dict[str, str]
    study: str = ""  #: the study's name in the ledger
    individual: str | None = None  #: the column with each record's person
    #: fraction of the records held out by secret coins, a person's together, for queries of a model's errors
    test: float = 0.0
    sep: str = ","  #: the table's column separator
    encoding: str = "utf-8"  #: the table's encoding
    decimal: str = "."  #: decimal separator
    thousands: str = ""  #: thousands separator
    #: file of the key that signs replies and the ledger's heads, or None
    signing_key: str | None = None
    #: what limits per round count by: ``asker``, ``minute``, ``hour`` or ``day``
    rounds: Rounds = "asker"
    block: int = 1  #: how many equal charges a ledger reserves at once
    witness: str | None = None  #: file or address to which the ledger's heads are appended, or None
    #: local port for ``/health`` and Prometheus's ``/metrics``, or None
    metrics: int | None = None
    log: str | None = None  #: file of the log, of limited size; None: standard error
    #: agreed digests of ``schema`` and ``policy``, and of the first row of ``ledger``, checked at the start
    agreed: dict[str, str] = field(default_factory=dict)
    folder: Path = Path()  #: where relative paths start

    @classmethod
    def from_toml(cls, path: str | Path, changed: Mapping[str, Any] | None = None) -> OwnerFile:
        """Read a file, with some keys replaced (InputError, with remedies)."""
        where = f"owner file {path}"
        with naming(where):
            written = read_toml(path, where, InputError)
            return cls.from_dict({**written, **(changed or {})}, where, Path(path).resolve().parent)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], where: str = "owner", folder: Path | None = None
    ) -> OwnerFile:
        """Read plain data."""
        made = section(data, cls, where, InputError, examples=_EXAMPLES, without=["folder"])
        made._check(where)
        return replace(made, folder=folder or Path())

    def _check(self, where: str) -> None:
        if not self.client or not self.sockets or not all(self.sockets):
            empty = f"write {_EXAMPLES['client']}, and {_EXAMPLES['sockets']}"
            raise InputError(f"{where}: empty name; {empty}")
        check_keys(self.agreed, {"schema", "policy", "ledger"}, f"{where}, [agreed]", InputError)
        if self.block < 1:
            raise InputError(f"{where}: block must be at least 1")
        if not 0 <= self.test < 1:
            raise InputError(f"{where}: test must lie between 0 and 1; write test = 0.25")

    def to_toml(self, path: str | Path) -> None:
        """Write the file without keys at their defaults."""
        data = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "folder" and getattr(self, each.name) != _default(each)
        }
        Path(path).write_text(tomli_w.dumps(data), encoding="utf-8")

    # --- masked sums ---------------------------------------------------------------------------

    def agree_on_masks(self, keys: Path) -> Mapping[str, str]:
        """Write all owners' masking keys, ``<client>.mask`` in a folder, into this owner's policy.

        Returns:
            the keys by owner. Anyone who replaces all other owners' keys by their own can unmask this owner's share, so
            compare the keys over another channel.

        Raises:
            PolicyError: the policy has no masks, or another key of this owner.
            InputError: a key is missing or invalid.
        """
        path = self._path(self.policy)
        policy = Policy.from_toml(path)
        if policy.masked is None:
            raise PolicyError(f"policy file {path}: masks no sums; there is nothing to agree on")
        for owner, known in policy.masked.keys.items():
            given = keys / f"{owner}.mask"
            if known and given.is_file() and read_mask(given, owner) != known:
                raise PolicyError(
                    f"policy file {path}: has another masking key of {owner!r} than {given}, and keeps it; if the "
                    f'file\'s is hers, write {owner!r} = "" under [masked.with], and agree again'
                )
        adopted = with_masking_keys(policy, keys)
        assert adopted.masked is not None
        masking_key = MaskingKey(secret_beside(self._path(self.ledger)))
        masking_key.check(adopted.masked.keys, self.client)
        adopted.to_toml(path)
        agreed = {**self.agreed, "policy": adopted.digest}
        replace(self, agreed=agreed).to_toml(self.folder / "owner.toml")
        return adopted.masked.keys

    # --- served ----------------------------------------------------------------------------------

    def opened(
        self, *, amend: bool = False, confirm: Callable[[list[str]], None] | None = None
    ) -> OwnerSide:
        """Open the gate; ``amend`` replaces a different policy in force.

        ``confirm`` is called with warnings on the table under this schema, if any, before the ledger is opened; it
        raises to stop.

        Raises:
            SchemaError: the schema is not the agreed one, was inferred, or does not fit the records.
            PolicyError: the policy is not the agreed one, or another one is in force.
            LedgerError: the ledger cannot be opened, does not verify, or is another data set's.
        """
        policy, table, records, key = self.checked(amend=amend, confirm=confirm)
        book = Ledger(self._path(self.ledger), self.client, key=key, registry=self.registry)
        with ExitStack() as opened:
            opened.callback(book.close)
            secret = book.secret()
            keys = coins.table_keys(table, secret, self.individual)
            held_out = coins.held_out(keys, self.test)
            gate = Gate(
                self.client,
                records.take(np.flatnonzero(~held_out)),
                policy,
                book,
                study=self.study,
                secret=secret,
                held_out=records.take(np.flatnonzero(held_out)),
                amend=amend,
                block=self.block,
            )
            opened.pop_all()
        return OwnerSide(gate, rounds=self.rounds)

    def checked(
        self, *, amend: bool = False, confirm: Callable[[list[str]], None] | None = None
    ) -> tuple[Policy, pd.DataFrame, Records, bytes | None]:
        """Run the checks of :meth:`opened` without writing; return policy, table, records and signing key."""
        schema = Schema.from_toml(self._path(self.schema))
        policy = Policy.from_toml(self._path(self.policy))
        self._check_agreed(schema, policy)
        evaluated = [kind for kind, made in kinds_of(policy, ()).items() if made.held_out]
        if evaluated and not self.test:
            raise PolicyError(
                f"policy file {self.policy}: answers {evaluated[0]} from held-out records, and the owner file "
                "keeps none; write test = 0.25"
            )
        if self.test and policy.relation == "replace-one" and policy.unit in ("record", "rule"):
            raise PolicyError(
                f'policy file {self.policy}: has relation = "replace-one", and the owner file holds out records by '
                "their own coins, so that a replaced record may leave the training part, as if it was removed; "
                'write relation = "add-or-remove" in the policy, or test = 0 in the owner file'
            )
        text = Text(self.sep, self.encoding, self.decimal, self.thousands)
        path = self._path(self.data)
        table = read_table(path, text=text, schema=schema)
        check_table(table, schema, f"data file {path}", individual=self.individual)
        records = Records.from_frame(table, schema, self.individual, self.client)
        doubts = [] if confirm is None else DataQuality.of(table, schema).warnings()
        if confirm is not None and doubts:
            confirm(doubts)
        key = None if self.signing_key is None else read_key(self._path(self.signing_key))
        return self._check_ledger(policy, key, amend), table, records, key

    def check_masks(self, policy: Policy) -> None:
        """Check that a policy with masked sums has all owners' keys, including this one's (else PolicyError)."""
        if policy.masked is not None:
            masking_key = MaskingKey(read_secret(self._path(self.ledger)))
            masking_key.check(policy.masked.keys, self.client)

    def _check_ledger(self, policy: Policy, key: bytes | None, amend: bool) -> Policy:
        """Check the ledger, if it was begun: its rows, known heads, owner, secret, key and policy.

        Returns:
            the policy, under the ledger's budget if the owner agreed on it and then changed the budget there.
        """
        ledger, registry = self._path(self.ledger), self.registry
        if not ledger.parent.is_dir():
            raise InputError(f"ledger {ledger}: no folder {ledger.parent}; make it")
        registry.check_place(ledger)
        self._check_agreed_ledger(ledger)
        if not (ledger.is_file() and Ledger.begun(ledger)):
            registry.warn_of_others({self.client: ledger})
            return policy
        state = verified(ledger, registry)
        if not state.known and state.head.seq > 1:
            warnings.warn(
                f"ledger {ledger}: has {number_of(state.head.seq, 'row')}, and no head of it is known here, so an older "
                "copy would not be noticed; ask the server for the last head that it saw, and check it: privfed "
                f"ledger verify {shlex.quote(str(ledger))} --head SEQ:HASH",
                Note,
                stacklevel=2,
            )
        with closing(Ledger.read(ledger)) as book:
            book.check_owner(self.client, key)
            book.check_secret()
            if "policy" in self.agreed and not amend:
                policy = self._under_budget(policy, (book.terms or {}).get("budget"))
            book.has_in_force(policy, self.study, amend=amend)
            if policy.masked is not None and not policy.masked.least and book.head.seq > 1:
                _check_known(ledger, registry.heads(book.identity))
        return policy

    def _under_budget(self, policy: Policy, in_force: Mapping[str, str] | None) -> Policy:
        """Return the agreed policy under the budget in force, which ``privfed ledger set-budget`` may have changed."""
        if policy.budget is None or in_force is None or in_force == policy.budget.to_dict():
            return policy
        adopted = replace(policy, budget=Budget.of(**in_force))
        warnings.warn(
            f"policy file {self.policy}: states {policy.budget}, and the budget in force in {self.ledger} "
            f"counts, {adopted.budget}",
            Note,
            stacklevel=2,
        )
        return adopted

    def _check_agreed_ledger(self, ledger: Path) -> None:
        """Check that a further study finds the ledger that it joined, which another place would begin anew."""
        agreed = self.agreed.get("ledger")
        if agreed is not None and identity_at(ledger) != agreed:
            raise LedgerError(
                f"ledger {ledger}: is not the one that study {self.study!r} joined, or is not there, and a new one "
                'would begin with the whole budget; write the path of that one, ledger = "..."'
            )

    @property
    def sealed(self) -> bool:
        """Whether the study was sealed in the ledger, so that new queries are refused."""
        ledger = self._path(self.ledger)
        if not (self.study and ledger.is_file() and Ledger.begun(ledger)):
            return False
        with closing(Ledger.read(ledger)) as book:
            block = book.study_blocks().get(self.study)
        return block is not None and block.sealed

    @property
    def log_file(self) -> Path | None:
        """The log's file, or None for standard error."""
        return None if self.log is None else self._path(self.log)

    @property
    def registry(self) -> Registry:
        """Return the registry of the ledger's heads."""
        witness = self.witness or ""
        local = witness and "://" not in witness
        return Registry(witness=str(self._path(witness)) if local else witness)

    def open_sockets(self, side: OwnerSide) -> list[SocketServer]:
        """Open a socket for each principal; if one fails, the others are closed."""
        opened: list[SocketServer] = []
        try:
            for principal, path in self.sockets.items():
                answer: Callable[[bytes], bytes] = partial(side.answer, principal=principal)
                opened.append(SocketServer(self._path(path), answer))
        except InputError:
            for server in opened:
                server.close()
            raise
        return opened

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _check_agreed(self, schema: Schema, policy: Policy) -> None:
        if schema.inferred:
            raise SchemaError(
                f"schema file {self.schema}: inferred from records, a release that no epsilon covers; "
                "write public bounds and remove inferred = true"
            )
        if self.agreed.get("schema", schema_digest(schema)) != schema_digest(schema):
            raise SchemaError(f"schema file {self.schema}: not the agreed one; put that one there")
        if self.agreed.get("policy", policy.digest) != policy.digest:
            raise PolicyError(f"policy file {self.policy}: not the agreed one; put that one there")


def _check_known(ledger: Path, heads: Sequence[Head]) -> None:
    """Check that an older copy of the ledger would be detected: it would reuse masks with other noise."""
    if not heads:
        raise LedgerError(
            f"ledger {ledger}: no head of it is known on this machine, and an older copy would use its masks "
            "again; ask the server for the last head that it saw, move the ledger away, and put its backup there: "
            f"privfed ledger restore BACKUP {shlex.quote(str(ledger))} --head SEQ:HASH"
        )


def read_mask(path: Path, owner: str) -> str:
    """Read an owner's public masking key (InputError: it cannot be read)."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(
            f"masking key {path}: cannot be read; it is {owner}'s {MASKING_KEY}, which "
            "privfed owner new wrote"
        ) from None


def with_masking_keys(policy: Policy, folder: Path, *, everyone: bool = True) -> Policy:
    """Return a policy with the masking keys ``<client>.mask`` of a folder; keys that are set stay.

    With ``everyone``, a missing key is an InputError.
    """
    if policy.masked is None:
        return policy
    keys = {}
    for owner, known in policy.masked.keys.items():
        path = folder / f"{owner}.mask"
        if not known and (everyone or path.is_file()):
            keys[owner] = read_mask(path, owner)
    return replace(policy, masked=policy.masked.with_keys(keys))


def _default(key: Any) -> Any:
    return key.default if key.default_factory is MISSING else key.default_factory()


_EXAMPLES = {
    "client": 'client = "Ashford"',
    "data": 'data = "patients.csv"',
    "schema": 'schema = "schema.toml"',
    "policy": 'policy = "policy.toml"',
    "ledger": 'ledger = "ashford.db"',
    "sockets": '[sockets] with server = "server.sock"',
}
