"""One experiment as a file: data, clients, learner, policies, attacks, seed.

A study is plain public data in TOML. Reading it checks all keys and types; nothing is loaded yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

from privfed.errors import Faults, StudyError
from privfed.study.choices import (
    AboutChoice,
    ClientsChoice,
    DataChoice,
    LearnerChoice,
    PolicyChoice,
    ShadowChoice,
    holding_learner,
    policies,
)
from privfed.tables.csv_text import FILES
from privfed.tables.partition import named
from privfed.tables.toml_file import InToml, check_keys, naming, read_toml
from privfed.tables.toml_table import meant_keys, section, typed

KEYS = "keys"  #: Folder of the owners' public keys, ``<client>.pub``, next to the study's file
BUILT_IN = "diabetes"


@dataclass(frozen=True)
class Study(InToml):
    """A whole experiment."""

    name: str  #: for reports
    data: DataChoice  #: the table
    clients: ClientsChoice  #: who owns which record
    learner: LearnerChoice
    policies: tuple[PolicyChoice, ...]  #: what it learns under, one run each
    #: plugins' names, or tables of a ``name`` and parameters; ``"*"`` is all installed ones that apply
    attacks: tuple[str | dict[str, Any], ...] = ("*",)
    #: time limit of each attack, which then reports partial results; default: each attack's own
    attack_seconds: float | None = None
    shadows: ShadowChoice | None = None  #: membership inference from the model alone, if any
    seed: int = 0  #: of the partition, the held-out records and the learner; never of the noise
    #: ``secure``, or ``test``: repeatable noise that protects nobody and is marked so
    noise: Literal["secure", "test"] = "secure"
    #: whether all policies are carried out on the same records, so that only their composed total
    #: holds; otherwise they are alternatives in a simulation
    together: bool = False
    runs: int = 1  #: number of runs per policy, with fresh noise each
    #: whether whole trainings on planted records audit each private policy
    audit_training: bool = False
    #: who answers for it, and why it is done
    about: AboutChoice = field(default_factory=AboutChoice)
    folder: Path = Path()  #: where relative paths start

    @classmethod
    def from_toml(cls, path: str | Path) -> Study:
        """Read a study's file (StudyError: all faults and their remedies)."""
        where = f"study file {path}"
        data = read_toml(path, where, StudyError)
        with naming(where):
            return cls.from_dict(data, where, Path(path).resolve().parent)

    @classmethod
    def built_in(cls, name: str = BUILT_IN) -> Study:
        """Read a study that is installed with privfed."""
        with as_file(files("privfed.study") / "built_in" / f"{name}.toml") as path:
            return cls.from_toml(path)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], where: str = "study", folder: Path | None = None
    ) -> Study:
        """Read plain data (StudyError: all faults)."""
        faults = Faults()
        with faults.collected():
            check_keys(data, _TOP | set(_READERS), where, StudyError)
        meant = meant_keys(data, set(_EXAMPLES))
        for key in (key for key in _EXAMPLES if key not in data and key not in meant):
            faults.add(StudyError(f"{where}: {_EXAMPLES[key]} is missing; write it"))
        values: dict[str, Any] = {}
        with faults.collected():
            top = {key: data[key] for key in sorted(_TOP & set(data))}
            values |= typed(top, cls, where, StudyError)
        for key, reader in _READERS.items():
            with faults.collected():
                if key in data:
                    values["policies" if key == "policy" else key] = reader(data[key], where)
        if {"data", "clients", "learner", "policies"} <= set(values):
            study = cls(**{"name": "", **values}, folder=folder or Path())
            for check in _CHECKS:
                with faults.collected():
                    check(study, where)
        faults.tell(StudyError)
        return study

    @property
    def ledgers(self) -> Path | None:
        """The folder of persistent ledgers, or None."""
        return self._resolved(self.clients.ledgers)

    @property
    def keys(self) -> Path | None:
        """The folder of the owners' keys, or None."""
        return self._resolved(self.clients.keys)

    @property
    def division(self) -> dict[str, Any]:
        """The settings that, with a record, determine its owner under persistent ledgers."""
        clients, uneven = self.clients, self.clients.partition in ("dirichlet", "quantity")
        if clients.partition in ("column", "cohort"):
            return {"partition": clients.partition, "column": clients.column}
        return {
            "partition": clients.partition,
            "names": list(named(clients.count, clients.names)),
            "alpha": clients.alpha if uneven else None,
            "individual": self.data.individual,
        }

    def _resolved(self, path: str | None) -> Path | None:
        return None if path is None else (self.folder / path).resolve()

    @property
    def witness(self) -> str:
        """The file or address of the ledgers' witness; empty without one."""
        path = self.clients.witness or ""
        return path if not path or "://" in path else str((self.folder / path).resolve())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data in the form of the file, with absolute paths."""
        clients = self.clients
        if clients.ledgers is not None:
            clients = replace(clients, ledgers=str(self.ledgers))
        if clients.keys is not None:
            clients = replace(clients, keys=str(self.keys))
        if clients.witness is not None:
            clients = replace(clients, witness=self.witness)
        data = replace(
            self.data,
            source=self._absolute(self.data.source, *FILES, "/"),
            schema=None if self.data.schema is None else self._absolute(self.data.schema, ".toml"),
        )
        policies = [replace(p, base=self._absolute(p.base, ".toml")) for p in self.policies]
        limit = self.attack_seconds
        return {
            **{key: getattr(self, key) for key in ("name", "seed", "noise", "together", "runs")},
            "attacks": list(self.attacks),
            **({} if limit is None else {"attack_seconds": limit}),
            **({"audit_training": True} if self.audit_training else {}),
            "data": _without_none(asdict(data)),
            "clients": _without_none(asdict(clients)),
            "learner": _without_none(asdict(self.learner)),
            **({} if self.shadows is None else {"shadows": _without_none(asdict(self.shadows))}),
            **({} if self.about == AboutChoice() else {"about": _without_none(asdict(self.about))}),
            "policy": [_without_none(asdict(policy)) for policy in policies],
        }

    def learner_under(self, policy: str) -> LearnerChoice:
        """Return the learner under a policy, by the policy's name."""
        learners = {choice.name: choice.learner for choice in self.policies}
        return learners[policy] or self.learner

    @property
    def learners(self) -> tuple[str, ...]:
        """The distinct names of all learners."""
        return tuple(
            dict.fromkeys(self.learner_under(policy.name).name for policy in self.policies)
        )

    def at(self, epsilon: str | None = None, delta: str | None = None) -> Study:
        """Return the study with another epsilon for every policy with a finite budget, including policy files.

        Delta is set in private policies only; a file keeps its own.
        """
        if epsilon is None and delta is None:
            return self
        if not any(map(self.budgeted, self.policies)):
            raise StudyError(
                "no policy is private or has a budget in its file, so there is no epsilon to try; write "
                'base = "private"'
            )
        changes: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        changes = {key: value for key, value in changes.items() if value is not None}
        epsilon_only = {key: value for key, value in changes.items() if key == "epsilon"}
        policies = tuple(
            replace(p, **(changes if p.base == "private" else epsilon_only))
            if self.budgeted(p)
            else p
            for p in self.policies
        )
        for policy in policies:
            policy.check(f"study {self.name!r}")
        return replace(self, policies=policies)

    def budgeted(self, policy: PolicyChoice) -> bool:
        """Whether a policy has an epsilon: it is private, or its file has a budget."""
        if not policy.base.endswith(".toml"):
            return policy.base == "private"
        return "budget" in read_toml(
            self.folder / policy.base, f"policy file {policy.base}", StudyError
        )

    def _absolute(self, text: str, *endings: str) -> str:
        if not text.endswith(endings):
            return text
        return str((self.folder / text).resolve()) + "/" * text.endswith("/")


#: The keys outside of any table.
_TOP = {"name", "attacks", "attack_seconds", "seed", "noise", "together", "runs", "audit_training"}
_EXAMPLES = {
    "name": 'name = "..."',
    "data": '[data] with source = "diabetes"',
    "clients": "[clients] with count = 5",
    "learner": '[learner] with name = "..."',
    "policy": '[[policy]] with name = "published"',
}


def _table(key: str, type_: type[Any]) -> Callable[[Any, str], Any]:
    return lambda data, where: section(data, type_, f"{where}, [{key}]", StudyError)


#: Reads each table of a study.
_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "data": _table("data", DataChoice),
    "clients": _table("clients", ClientsChoice),
    "learner": lambda data, where: holding_learner(data, LearnerChoice, f"{where}, [learner]"),
    "policy": policies,
    "about": _table("about", AboutChoice),
    "shadows": _table("shadows", ShadowChoice),
}


def _check_top(study: Study, where: str) -> None:
    if study.seed < 0:
        raise StudyError(f"{where}: seed must be at least 0, not {study.seed}")
    if study.runs < 1:
        raise StudyError(f"{where}: runs must be at least 1, not {study.runs}")
    limit = study.attack_seconds
    if limit is not None and not limit > 0:
        raise StudyError(
            f"{where}: attack_seconds must be above 0, not {limit:g}; write attack_seconds = 60"
        )


def _check_cohort(study: Study, where: str) -> None:
    cohort, data = study.clients.partition == "cohort", study.data
    if cohort != data.source.endswith("/"):
        raise StudyError(
            f'{where}: partition = "cohort" goes with a folder of rule files; write both '
            'source = "rules/" under [data] and partition = "cohort" under [clients], or neither'
        )
    if cohort and data.schema is None:
        raise StudyError(
            f'{where}, [data]: rules need public bounds of their variables; write schema = "...toml"'
        )
    others = replace(study.clients, partition="cohort", ledgers=None, budget=None)
    if cohort and others != ClientsChoice("cohort"):
        raise StudyError(
            f"{where}, [clients]: every individual of a cohort owns one file; leave "
            "column, count, names and alpha out"
        )


def _check_ledgers(study: Study, where: str) -> None:
    """A persistent ledger takes one policy, once, with secure noise."""
    if study.ledgers is None:
        return
    if len(study.policies) > 1:
        raise StudyError(
            f"{where}: has {len(study.policies)} policies, and persistent ledgers take one; keep one "
            "[[policy]] here, and compare policies in a study without ledgers"
        )
    if study.runs > 1:
        raise StudyError(
            f"{where}: runs = {study.runs} repeats a policy as a simulation; leave runs out with "
            "persistent ledgers"
        )
    if study.noise == "test":
        raise StudyError(
            f'{where}: noise = "test" protects nobody, and a persistent ledger keeps it for ever; '
            "leave noise out, or ledgers"
        )


def _check_shadows(study: Study, where: str) -> None:
    if study.shadows is None:
        return
    if study.ledgers is not None or study.clients.partition == "cohort":
        raise StudyError(
            f"{where}, [shadows]: trains further models on a table that nothing is charged for; leave "
            "it out with persistent ledgers or a cohort"
        )
    study.shadows.check(f"{where}, [shadows]")


#: Checks of values, and of tables together.
_CHECKS: tuple[Callable[[Study, str], None], ...] = (
    _check_top,
    lambda study, where: study.data.check(f"{where}, [data]"),
    lambda study, where: study.clients.check(f"{where}, [clients]"),
    _check_cohort,
    _check_ledgers,
    _check_shadows,
)


def _without_none(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data without absent values (TOML has no null)."""
    present = {k: v for k, v in data.items() if v not in (None, {}) or (k == "masked" and v == {})}
    return {key: _without_none(v) if isinstance(v, Mapping) else v for key, v in present.items()}
