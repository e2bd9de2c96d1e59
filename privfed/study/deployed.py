"""A study on several machines: the server's side, and its proposals to data owners.

The server holds no table. It learns from the releases of the owners' gates over an engine, and keeps the
heads of their ledgers and a journal from which an interrupted study resumes. The report is made from
copies of the owners' ledgers, which hold only public values and releases.

Its output is that of :mod:`privfed.study.output`, with FOLDER/<policy>/journal, all replies in order.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from privfed.engines.batches import schema_digest
from privfed.engines.journal import Journal
from privfed.engines.owner_file import MASKING_KEY, OwnerFile, with_masking_keys
from privfed.engines.received import received_privacy
from privfed.engines.remote import RemoteDisclosure
from privfed.errors import (
    InputError,
    NobodyAnswered,
    Note,
    PrivfedError,
    StudyError,
    collected_notes,
    number_of,
    unknown,
)
from privfed.exchange.channel import HeadStore
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.exchange.signing import Identity, Signer, read_public
from privfed.exchange.transcript import Transcript
from privfed.learners.saved import save
from privfed.ledger.registry import state_folder
from privfed.ledger.secret import secret_beside
from privfed.owner.masking import MaskingKey
from privfed.privacy.policy import Policy
from privfed.study import PolicyChoice, Study
from privfed.study.dry_run import dry_run, learner, policy
from privfed.study.output import JOURNAL, STUDY, Output, check_empty, new_folder
from privfed.study.private_evaluation import asks_evaluation, evaluated
from privfed.study.schema_of_study import public_schema
from privfed.study.study import KEYS
from privfed.tables.schema import Schema
from privfed.tables.sources import bundled

#: File of the training log: rounds, missing replies, and how it ended.
PROGRESS = "progress"
#: File of the heads that a server saw, in the user's state folder; earlier versions wrote it into the study's folder.
HEADS = "heads.json"
#: Key of the metrics, who did not answer the last query; the study may be run again for that.
UNANSWERED = "unanswered"
#: What ends the text of a study that may be run again.
AGAIN = "run the study again, and it goes on; what was answered is not charged again"


#: Builds an engine's disclosure from schema, clients, and keyword arguments of :class:`.RemoteDisclosure`.
Connect = Callable[..., RemoteDisclosure]


def _log(path: Path, line: str) -> None:
    """Append a line with its time to a file, and print it to standard error."""
    text = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {line}\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    sys.stderr.write(text)
    sys.stderr.flush()


@dataclass(frozen=True)
class Deployment:
    """A study under one policy, as its server runs it."""

    study: Study  #: the study; its table is never read
    choice: PolicyChoice
    out: Path  #: the output folder

    @classmethod
    def of(cls, study: Study, out: str | Path, policy_name: str = "") -> Deployment:
        """Choose a policy by its name; default: the first (InputError: no such policy)."""
        choices = {choice.name: choice for choice in study.policies}
        name = policy_name or next(iter(choices))
        if name not in choices:
            raise InputError(unknown("policy", name, choices))
        return cls(study, choices[name], Path(out))

    @property
    def clients(self) -> tuple[str, ...]:
        """The owners' names."""
        if not self.study.clients.names:
            raise StudyError(
                'a study of several machines names its owners; write names = ["...", "..."] under '
                "[clients]"
            )
        return tuple(self.study.clients.names)

    @property
    def schema(self) -> Schema:
        """The public schema."""
        if self.study.data.schema is None and self.study.data.source not in bundled():
            raise StudyError(
                'a study of several machines needs a schema; write schema = "schema.toml"'
            )
        return public_schema(self.study, deployed=True)

    @property
    def proposed(self) -> Policy:
        """The policy proposed to the owners, without their masking keys, on which they agree among themselves."""
        model = learner(self.study, self.choice)
        proposed = policy(self.choice, model, self.schema, self.study.folder, deployed=True)
        return self.choice.masked_among(proposed, self.clients)

    @property
    def policy(self) -> Policy:
        """The policy proposed to the owners, with the masking keys in :attr:`keys_folder`."""
        return with_masking_keys(self.proposed, self.keys_folder, everyone=False)

    @property
    def keys_folder(self) -> Path:
        """The folder of the owners' public keys: ``<client>.pub``, and ``<client>.mask`` for masked sums."""
        return self.study.keys or self.study.folder / KEYS

    @property
    def keys(self) -> dict[str, Identity]:
        """The public keys that replies must be signed with; empty without a folder of keys."""
        folder = self.keys_folder
        if not any(folder.glob("*.pub")):
            warnings.warn(
                f"there are no keys in {folder}, so replies are accepted unsigned: anyone who runs the engine "
                "could answer in an owner's place",
                Note,
                stacklevel=2,
            )
            return {}
        return {
            client: Identity(client, read_public(folder / f"{client}.pub"))
            for client in self.clients
        }

    # --- carried out -----------------------------------------------------------------------------

    def run(self, connect: Connect, **options: Any) -> Path:
        """Train, and write the policy's folder; an interrupted study resumes.

        Rounds, missing replies, and how it ended are logged to standard error and to the folder's ``progress``.

        Args:
            connect: builds the disclosure.
            options: see :class:`.RemoteDisclosure`: patience.

        Raises:
            InputError: a fault of the study, its schema, a key or the output folder.
            LedgerError: a reply is not signed, or a ledger was rewritten.
            NobodyAnswered: no owner released anything, or too few did for a masked total; partial output is written.
        """
        dry_run(self.study, self.schema, attacks=False, deployed=True)
        folder = self._folder()
        tell = partial(_log, folder / PROGRESS)
        with closing(Journal(folder / JOURNAL)) as journal:
            try:
                if journal.replies:
                    tell(f"resumed: the journal holds {number_of(len(journal.replies), 'reply')}")
                keys = self.keys
                disclosure = connect(
                    self.schema,
                    self.clients,
                    journal=journal,
                    keys=keys,
                    heads=self._heads(keys),
                    tell=tell,
                    privacy=partial(received_privacy, self.policy, self.schema, journal),
                    **options,
                )
                for text in self._learn(disclosure, folder):
                    tell(f"note: {text}")
                tell("learned")
            except NobodyAnswered as error:
                tell(f"stopped: {error}; once they can, {AGAIN}")
                raise
            except PrivfedError as error:
                tell(f"stopped: {error}")
                raise
        return folder

    def _heads(self, keys: Mapping[str, Identity]) -> HeadStore:
        """Return the known heads of ledgers signed by these keys, including those in the study's folder."""
        if not keys:
            return HeadStore()
        heads = HeadStore(state_folder() / HEADS, keys)
        for client, head in HeadStore(self.study.folder / HEADS).items():
            is_newer = client not in heads or heads[client].seq < head.seq
            if is_newer and client in keys and keys[client].signed(head):
                heads[client] = head
        return heads

    def _folder(self) -> Path:
        folder = self.out / self.choice.name
        metrics = Output(self.out).read(self.choice.name, "metrics.json")  # written last
        finished = metrics is not None and not {"stopped", UNANSWERED} & set(metrics)
        if (folder / "model.json").exists() and finished:
            raise InputError(f"folder {folder}: holds a finished study; name a new folder")
        path, single = self.out / STUDY, replace(self.study, policies=(self.choice,))
        if path.exists() and Study.from_toml(path).to_dict() != single.to_dict():
            raise InputError(
                f"folder {self.out}: holds another study, or another policy's; name a new folder"
            )
        (folder / "ledgers").mkdir(parents=True, exist_ok=True)
        single.to_toml(path)
        self.policy.to_toml(folder / "policy.toml")
        return folder

    def _learn(self, disclosure: RemoteDisclosure, folder: Path) -> list[str]:
        """Train, and write model and metrics, even if no owner answered; return the notes."""
        output, model = Output(self.out), learner(self.study, self.choice)
        started = perf_counter()
        metrics: dict[str, Any] = {"simulation": False}
        stopped: NobodyAnswered | None = None
        unmeasured = {"told": "performance not measured", "value": None}
        with collected_notes() as notes:
            try:
                model.fit(disclosure)
                save(model, folder / "model.json")
                evaluates = asks_evaluation(self.policy)
                metrics |= evaluated(model, disclosure) if evaluates else unmeasured
            except NobodyAnswered as error:
                stopped, metrics = error, metrics | {**unmeasured, "stopped": str(error)}
        notes += [
            f"{client} did not answer in {count} of {number_of(disclosure.reached[client], 'round')} that asked it: "
            "its answers there are missing"
            for client, count in disclosure.silent.items()
        ]
        notes += [
            f"{client} did not offer to answer {number} of the queries that others did: its policy, its "
            "budget or a closed gate does not allow it"
            for client, number in disclosure.declined.items()
        ]
        unanswered = sorted({line.client for line in disclosure.pending})
        if unanswered and stopped is None:
            metrics[UNANSWERED] = unanswered
            notes.append(f"{', '.join(unanswered)} did not answer the last query: {AGAIN}")
        metrics["warnings"] = list(dict.fromkeys(notes))
        output.write_heads(self.choice.name, disclosure.heads)
        metrics |= {"seconds": perf_counter() - started}
        metrics |= {"queries": disclosure.questions, "rounds": disclosure.rounds}
        output.write(self.choice.name, "metrics.json", metrics)
        output.list_files()
        if stopped is not None:
            raise stopped
        return list(metrics["warnings"])

    # --- before and after ------------------------------------------------------------------------

    def propose(self, folder: Path, client: str) -> OwnerFile:
        """Write a data owner's files into a new folder: schema, policy, key and owner.toml."""
        if client not in self.clients:
            raise InputError(unknown("client", client, self.clients))
        check_empty(folder)
        dry_run(self.study, self.schema, attacks=False, deployed=True)
        schema, adopted = self.schema, self.proposed
        owner = OwnerFile(
            client,
            data="records.csv",
            schema="schema.toml",
            policy="policy.toml",
            ledger="ledger.db",
            sockets={"server": "server.sock"},
            study=self.study.name,
            individual=self.study.data.individual,
            test=self.study.data.test if asks_evaluation(adopted) else 0.0,
            **vars(self.study.data.text),
            signing_key="owner.key",
            block=self.choice.block,
            agreed={"schema": schema_digest(schema)},
        )
        with new_folder(folder) as temporary:
            schema.to_toml(temporary / "schema.toml")
            adopted.to_toml(temporary / "policy.toml")
            (temporary / "owner.pub").write_bytes(Signer.generate(temporary / "owner.key"))
            owner = agreeing(replace(owner, folder=temporary), adopted)
        return replace(owner, folder=folder)

    @property
    def transcript(self) -> Transcript:
        """All releases that the server received."""
        return self._journal.transcript

    @property
    def _journal(self) -> Journal:
        return Journal.read(self.out / self.choice.name / JOURNAL)

    def replay(self) -> Any:
        """Repeat the training from the transcript; return the fitted learner."""
        model, journal = learner(self.study, self.choice), self._journal
        model.fit(ReplayDisclosure(self.schema, journal.transcript, self.clients))
        model.privacy_ = received_privacy(self.policy, self.schema, journal)
        return model


def agreeing(owner: OwnerFile, adopted: Policy) -> OwnerFile:
    """Write an owner's file with its agreed policy; with masked sums, her public masking key instead."""
    if adopted.masked is not None:
        key = MaskingKey(secret_beside(owner.folder / owner.ledger)).public
        (owner.folder / MASKING_KEY).write_text(key + "\n", encoding="ascii")
    else:
        owner = replace(owner, agreed=owner.agreed | {"policy": adopted.digest})
    owner.to_toml(owner.folder / "owner.toml")
    return owner
