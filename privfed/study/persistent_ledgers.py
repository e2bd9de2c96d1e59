"""Persistent ledgers: one file per data owner, in a folder that is kept across studies.

One budget is in force in all of them. A study reserves a share, its maximum cost, when it starts, and
starts only if every owner's remaining budget covers it; :mod:`privfed.ledger.registry` keeps the last heads.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from privfed.errors import (
    BudgetError,
    LedgerError,
    Note,
    PolicyError,
    StudyError,
    file_errors,
    number_of,
)
from privfed.exchange.channel import read_heads
from privfed.exchange.messages import Head
from privfed.ledger import Ledger
from privfed.ledger.policy_constraints import check_countable
from privfed.ledger.registry import Registry
from privfed.ledger.study_blocks import kept
from privfed.ledger.verified_file import verified
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import accountant_of
from privfed.questions.exact import shown, shown_delta
from privfed.study.choices import PolicyChoice
from privfed.study.price import Balance, Price, lacking, remaining
from privfed.study.study import Study
from privfed.tables.schema import Schema

#: Ending of the file of heads that earlier versions kept next to the folder of ledgers.
HEADS = ".heads.json"
NAMED = 5  #: Maximum owners that a refusal names


def files_in(folder: Path) -> dict[str, Path]:
    """Return the ledgers' files in a folder, by data owner."""
    return {unquote(path.stem): path for path in sorted(folder.glob("*.db"))}


@dataclass(frozen=True)
class PersistentLedgers:
    """A folder of persistent ledgers."""

    folder: Path  #: the folder, which may not exist yet
    witness: str = ""  #: see :class:`.Registry`

    @classmethod
    def of(cls, study: Study) -> PersistentLedgers | None:
        """Return a study's persistent ledgers, or None."""
        return None if study.ledgers is None else cls(study.ledgers, study.witness)

    def __str__(self) -> str:
        return f"ledgers in {self.folder}"

    def files(self) -> dict[str, Path]:
        """Return the ledgers that were written to, by data owner."""
        return {owner: path for owner, path in files_in(self.folder).items() if Ledger.begun(path)}

    @property
    def earlier_heads_file(self) -> Path:
        """The file of heads that earlier versions kept next to the folder; it is still read."""
        return self.folder.with_name(self.folder.name + HEADS)

    def earlier_heads(self) -> dict[str, Head]:
        """Return the heads that earlier versions kept next to the folder."""
        return read_heads(self.earlier_heads_file) if self.earlier_heads_file.is_file() else {}

    def registry(self) -> Registry:
        """Return the registry of the ledgers' heads; creates the ledgers' folder (StudyError: it cannot)."""
        with file_errors(str(self), "written", "name another folder", StudyError):
            self.folder.mkdir(parents=True, exist_ok=True)
        return Registry(witness=self.witness)

    def check_outside(self, out: Path) -> None:
        """Check that the folder is not inside an output, which may be replaced (StudyError)."""
        if self.folder.is_relative_to(out.resolve()):
            raise StudyError(
                f"{self}: lie inside the output {out}, which --overwrite replaces; name a folder "
                "outside of it under [clients]"
            )

    # --- one budget for all studies --------------------------------------------------------------

    def terms(self) -> dict[str, Any] | None:
        """Return the terms in force in all ledgers (budget, unit, relation, accountant), or None."""
        by_owner: dict[str, dict[str, Any]] = {}
        for owner, path in self.files().items():
            with closing(Ledger.read(path)) as ledger:
                terms = ledger.terms
            if terms is None:
                continue
            by_owner[owner] = terms
            first = next(iter(by_owner))
            if terms != by_owner[first]:
                raise StudyError(
                    f"{self}: {first!r} and {owner!r} hold different budgets or units; let their "
                    "owners amend them to one, or give each a folder of its own"
                )
        return next(iter(by_owner.values()), None)

    def hold(self, study: Study, choice: PolicyChoice, proposed: Policy) -> Policy:
        """Return a study's policy with the owners' budget, limits and accountant in force.

        A policy file is unmodified; the ledgers check it. StudyError: the study states another budget
        than the one in force, has a policy without a guarantee, or one of replaced records, which coins may move.
        """
        if proposed.relation == "replace-one" and (not study.clients.column or study.data.test):
            raise StudyError(
                f'policy {choice.name!r} has relation = "replace-one", but where ledgers persist each record\'s own coin '
                "decides whether it is held out and, without a column of owners, whose it is; a replaced record may leave "
                'an owner\'s part as if it was removed; write relation = "add-or-remove"'
            )
        terms = self.terms()
        budget = proposed.budget
        stated = None if budget is None else study.clients.whole(budget.delta)
        if budget is None and study.clients.budget is not None:
            raise StudyError(
                f"policy {choice.name!r} has no finite guarantee, so that no budget can hold it; leave "
                'budget out under [clients], or write base = "private"'
            )
        if choice.base.endswith(".toml"):
            if stated not in (None, budget):
                raise StudyError(
                    f"policy {choice.name!r} is a file with a budget of its own; leave budget out "
                    "under [clients], or write the same"
                )
            return proposed
        if terms is None:
            return proposed if stated is None else replace(proposed, budget=stated)
        return self._in_force(terms, choice, proposed, stated)

    def _in_force(
        self,
        terms: Mapping[str, Any],
        choice: PolicyChoice,
        proposed: Policy,
        stated: Budget | None,
    ) -> Policy:
        stored = terms.get("budget")
        budget = None if stored is None else Budget.of(stored["epsilon"], stored["delta"])
        if (budget is None) != (proposed.budget is None):
            has = "a budget" if budget is not None else "no budget"
            raise StudyError(
                f"{self}: hold {has}, and policy {choice.name!r} has "
                f"{'no finite guarantee' if budget is not None else 'one'}; give it ledgers of its own, "
                "or let the owners amend theirs (privfed ledger set-budget)"
            )
        if budget is not None and stated not in (None, budget):
            raise StudyError(
                f"{self}: hold {budget} for all "
                "studies, not what budget under [clients] says; leave it out, or let the owners change "
                f"it: privfed ledger set-budget {shlex.quote(str(self.folder))} --epsilon ..."
            )
        limits = tuple(Limit.from_dict(entry) for entry in terms.get("limit", ()))
        keep = terms["accountant"] == "pure" and proposed.accountant != "pure"
        accountant = proposed.accountant if keep else terms["accountant"]
        return replace(proposed, budget=budget, limits=limits, accountant=accountant)

    # --- before a study begins -------------------------------------------------------------------

    def begin(self, study: Study, price: Price, schema: Schema, owners: Sequence[str]) -> None:
        """Refuse a study that the remaining budgets do not cover as a whole, before any query or charge.

        Raises:
            LedgerError: a ledger was rewritten, replaced by an older copy, or is missing.
            PolicyError: the ledgers have other terms, or another policy under the study's name.
            BudgetError: the cost exceeds a remaining budget.
            StudyError: an unprotected release under a budget.
        """
        self.check_heads(owners)  # before anything that needs a valid ledger
        self._check_policy(study, price.policy)
        if price.policy.budget is None:
            return
        if price.unprotected or schema.inferred:
            what = (
                "bounds that were read off the data" if schema.inferred else "unprotected answers"
            )
            raise StudyError(
                f"{self}: hold a budget, and study {study.name!r} would release {what}, which no budget "
                "covers; give it ledgers of its own, or a public schema and a finite guarantee"
            )
        balances = self.balances(study, price.policy, owners)
        _check_times(study, price, balances)
        check_affordable(study, price, balances, self.folder)

    def check_heads(self, owners: Sequence[str]) -> None:
        """Verify the owners' ledgers against the heads of earlier runs (LedgerError: one does not match)."""
        files, registry = self.files(), Registry(witness=self.witness)
        earlier, begun = self.earlier_heads(), dict[str, Path]()
        for known in registry.under(self.folder):
            registry.check_place(known.path)
        for owner in owners:
            place = self.folder / f"{quote(owner, safe=' ')}.db"
            registry.check_place(place)
            if owner not in files:
                if owner in earlier:
                    raise LedgerError(
                        f"{self}: that of {owner!r} is gone, though it answered before (head {earlier[owner]}); "
                        "restore it from its newest copy"
                    )
                begun[owner] = place
                continue
            state = verified(files[owner], registry, [earlier[owner]] if owner in earlier else [])
            if state.copy_of is not None:
                raise LedgerError(
                    f"{self}: that of {owner!r} is a copy of {state.copy_of}, which is still there, and "
                    "one budget cannot be spent in two places; go on with that one, or remove it first"
                )
            if state.secret_fault is not None:
                raise state.secret_fault
            if not state.known and state.head.seq > 1:
                warnings.warn(
                    f"{self}: that of {owner!r} has {number_of(state.head.seq, 'row')}, and no head of it is known "
                    "here, so an older copy would not be noticed; ask its owner for a head that was "
                    "published, and verify it",
                    Note,
                    stacklevel=2,
                )
        registry.warn_of_others(begun)

    def _check_policy(self, study: Study, adopted: Policy) -> None:
        for owner, path in self.files().items():
            with closing(Ledger.read(path)) as ledger:
                terms, policy = ledger.terms, ledger.policies().get(study.name)
                divisions = ledger.divisions()
            where = f"{self}, {owner!r}"
            if terms is not None:
                check_countable(where, terms, adopted.terms)
                if terms != adopted.terms:
                    raise PolicyError(
                        f"{where}: another budget is in force than that of policy {adopted.name!r}; "
                        f"write the same, or let the owners change it: privfed ledger set-budget {shlex.quote(str(self.folder))}"
                    )
            for earlier, division in divisions.items():
                if division != study.division:
                    raise StudyError(
                        f"{where}: study {earlier!r} divided its table by {_format_division(division)}, and "
                        f"this one by {_format_division(study.division)}, so that a record would be in several "
                        "ledgers and no budget would bound its privacy loss; write the same, or name a new "
                        "folder of ledgers"
                    )
            if policy is not None and policy.digest != adopted.digest:
                raise PolicyError(
                    f"{where}: study {study.name!r} was begun under another policy; give this one a "
                    "name of its own (the budget goes on)"
                )

    def balances(self, study: Study, adopted: Policy, owners: Sequence[str]) -> list[Balance]:
        """Return what each owner spent or reserved for other studies (LedgerError: see :meth:`check_heads`)."""
        self.check_heads(owners)
        files, accountant, balances = self.files(), accountant_of(adopted), []
        for owner in owners:
            spent, times = accountant.nothing, {}
            holding: tuple[str, ...] = ()
            if owner in files:
                with closing(Ledger.read(files[owner])) as ledger:
                    spent = ledger.taken(accountant, but=study.name)
                    times = ledger.times(study.name)
                    blocks = ledger.study_blocks().values()
                    others = [block for block in blocks if block.study != study.name]
                    holding = tuple(block.study for block in others if any(block.unspent))
            balances.append(Balance(owner, spent, times, holding))
        return balances

    @contextmanager
    def study_block(
        self, study: Study, price: Price, ledgers: Mapping[str, Ledger]
    ) -> Iterator[None]:
        """Reserve a study's share in all owners' ledgers, and seal the study on exit, also after errors.

        Ledgers are visited in the order of owners' names: of two concurrent studies, the first owner refuses
        the second, so that nothing stays reserved for it. See :meth:`.Ledger.reserve_share`.
        """
        reserved: list[Ledger] = []
        accountant = accountant_of(price.policy)
        try:
            for name in sorted(ledgers):
                book = ledgers[name]
                book.reserve_share(study.name, price.amount, accountant, study.division)
                reserved.append(book)
            yield
        finally:
            for ledger in reserved:
                ledger.seal_study(study.name)


def _format_division(division: Mapping[str, Any]) -> str:
    ordered = sorted(division.items(), key=lambda item: item[0] != "partition")
    return ", ".join(f"{key} = {value!r}" for key, value in ordered if value is not None)


def _check_times(study: Study, price: Price, balances: Sequence[Balance]) -> None:
    """Check the plan against each kind's maximum number of answers in this study."""
    for balance in balances:
        for line in price.lines:
            limits = [
                g.times for g in price.policy.guards.get(line.kind, ()) if g.times is not None
            ]
            used = balance.times.get(line.kind, 0)
            if limits and line.loss is not None and used + line.times > min(limits):
                raise BudgetError(
                    f"study {study.name!r} would ask {balance.owner!r} for {line.kind} {number_of(line.times, 'time')} more, "
                    f"and its policy allows {min(limits)} in one study, of which it has used {used}; give "
                    "the new try a name of its own (the budget goes on)"
                )


def check_affordable(study: Study, price: Price, balances: Sequence[Balance], folder: Path) -> None:
    """Refuse a study whose price exceeds an owner's remaining budget (BudgetError with both, by kind)."""
    short = sorted(lacking(price, balances), key=lambda balance: balance.owner)
    budget = price.policy.budget
    if budget is None or not (short or price.over):
        return
    has = ", ".join(
        f"{balance.owner} has epsilon {remaining(balance, price.policy)}"
        for balance in short[:NAMED]
    )
    has += f", and {len(short) - NAMED} more have too little" if len(short) > NAMED else ""
    why = f"less is left: {has}" if short else f"it exceeds {', '.join(price.over)}"
    why += kept({name for balance in short for name in balance.holding})
    raise BudgetError(
        f"study {study.name!r} is not begun, and nothing was asked or charged: it would take epsilon "
        f"{shown(price.epsilon or 0)} at delta {shown_delta(price.delta)} of each owner's budget of epsilon "
        f"{shown(budget.epsilon)} ({price.by_kind}), and {why}; write a smaller epsilon, or let the owners change "
        f"their budget: privfed ledger set-budget {shlex.quote(str(folder))} --epsilon ..."
    )
