"""Joining of a further study by a data owner, with the same ledger, key and budget, after she has seen its price."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from privfed.engines.batches import schema_digest
from privfed.engines.owner_file import OwnerFile
from privfed.errors import InputError
from privfed.ledger.registry import Registry, identity_at
from privfed.ledger.statement import printable
from privfed.ledger.verified_file import verified
from privfed.privacy.policy_objects import accountant_of
from privfed.study.deployed import Deployment, agreeing
from privfed.study.dry_run import dry_run, learner
from privfed.study.ledger_commands import check_ledger, writable
from privfed.study.output import new_folder
from privfed.study.persistent_ledgers import PersistentLedgers
from privfed.study.price import Balance, Price, percent_of, price, priced
from privfed.study.private_evaluation import asks_evaluation, whole_plan


@dataclass(frozen=True)
class OneLedger(PersistentLedgers):
    """One owner's ledger, at any path; ``folder`` is the ledger's file."""

    owner: str = ""

    def files(self) -> dict[str, Path]:
        """Return the ledger, by its owner."""
        return {self.owner: self.folder}

    def check_heads(self, owners: Iterable[str]) -> None:
        """Verify the ledger at its registered path."""
        registry = Registry(witness=self.witness)
        registry.check_place(self.folder)
        verified(self.folder, registry)


@dataclass(frozen=True)
class Joining:
    """A study's price and files for one owner, before she agrees."""

    owner: OwnerFile  #: of the further study, in a folder of its own inside hers
    deployment: Deployment
    price: Price  #: under her own budget, unit and accountant
    balances: Sequence[Balance]  #: what her ledger has spent or reserved for other studies

    @classmethod
    def of(cls, folder: Path, deployment: Deployment) -> Joining:
        """Read an owner's folder, and price a study under her ledger.

        Raises:
            InputError: she is no client of the study, or has no ledger or budget yet.
            BudgetError: the study costs more than the remaining budget.
            PolicyError, StudyError, LedgerError: see :meth:`.PersistentLedgers.begin`.
        """
        existing, study = OwnerFile.from_toml(folder / "owner.toml"), deployment.study
        if existing.client not in deployment.clients:
            clients = ", ".join(deployment.clients)
            raise InputError(
                f"{existing.client!r} is not one of the study's clients, which are {clients}"
            )
        path = folder / existing.ledger
        check_ledger(path)
        dry_run(study, deployment.schema, attacks=False, deployed=True)
        ledger = OneLedger(path, existing.witness or "", existing.client)
        model, proposed = learner(study, deployment.choice), deployment.proposed
        if ledger.terms() is None or proposed.budget is None:
            raise InputError(
                f"{path}: there is no budget to share yet, or the study has no finite guarantee; serve "
                "the first study, or make a folder of its own: privfed owner new"
            )
        adopted = ledger.hold(study, deployment.choice, proposed)
        if adopted.masked is not None:
            adopted.masked.check_unmasked(accountant_of(adopted), adopted.budget)
        cost = price(whole_plan(model, deployment.schema, adopted), deployment.schema, adopted)
        ledger.begin(study, cost, deployment.schema, [existing.client])
        name = re.sub(r"[^a-z0-9]+", "-", study.name.lower()).strip("-") or "study"
        owner = replace(
            existing,
            data=_from_below(existing.data),
            schema="schema.toml",
            policy="policy.toml",
            ledger=_from_below(existing.ledger),
            signing_key=existing.signing_key and _from_below(existing.signing_key),
            witness=existing.witness and _from_below(existing.witness),
            log=existing.log and f"{name}.log",
            metrics=None,
            test=study.data.test if asks_evaluation(adopted) else 0.0,
            sockets={"server": "server.sock"},
            study=study.name,
            block=deployment.choice.block,
            agreed={"schema": schema_digest(deployment.schema), "ledger": identity_at(path)},
            folder=folder / name,
        )
        return cls(owner, deployment, cost, ledger.balances(study, adopted, [existing.client]))

    def summary(self) -> str:
        """Format what she agrees to: kinds of queries, noise, share of the budget, and who asks."""
        study, policy = self.deployment.study, self.price.policy
        assert policy.budget is not None
        fraction = percent_of(self.price.amount, accountant_of(policy).ceiling(policy.budget))
        purpose = study.about.purpose
        lines = [
            f"study {study.name!r} asks {self.owner.client}"
            + (f": {printable(purpose)}" if purpose else ""),
            f"asked by: anyone who may use {self.owner.folder / self.owner.sockets['server']}",
            *priced(self.price, self.balances).splitlines(),
        ]
        lines.append(
            f"reserved for it, once you agree: {fraction} of your budget; the unused part returns to it "
            "when the study is sealed"
        )
        return "\n".join(lines)

    def agree(self) -> OwnerFile:
        """Write the study's files into a new folder, and reserve its share in her ledger."""
        owner = self.owner
        with new_folder(owner.folder) as folder:
            self.deployment.schema.to_toml(folder / owner.schema)
            self.price.policy.to_toml(folder / owner.policy)
            *_, key = replace(owner, folder=folder).checked()
            agreed = agreeing(replace(owner, folder=folder), self.price.policy)
            with writable(folder / owner.ledger, key) as ledger:
                ledger.reserve_share(
                    owner.study, self.price.amount, accountant_of(self.price.policy)
                )
        return replace(agreed, folder=owner.folder)


def _from_below(path: str) -> str:
    """Return an owner file's relative path as seen from a subfolder."""
    return path if Path(path).is_absolute() or "://" in path else f"../{path}"
