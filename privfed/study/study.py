"""One experiment as a file: data, clients, learner, policies, attacks, seed.

A study is plain public data in TOML. Reading it checks every key and type; nothing is loaded yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from fractions import Fraction
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
import tomli_w

from privfed.errors import Faults, StudyError, did_you_mean
from privfed.privacy.accountant import Budget, written_epsilon
from privfed.questions.exact import readable
from privfed.questions.part import Unit
from privfed.study.shadow_choice import ShadowChoice, check_shadows
from privfed.tables.csv_text import PLAIN, Text
from privfed.tables.partition import check_alpha, named
from privfed.tables.toml_file import naming, read_toml

T = TypeVar("T")
Holder = TypeVar("Holder", "LearnerChoice", "PolicyChoice")
Partition = Literal["iid", "column", "dirichlet", "quantity", "cohort"]
BUILT_IN = "diabetes"


@dataclass(frozen=True)
class DataChoice:
    """The table: ``[data]``.

    Args:
        source: a bundled set's name, a path ending in ``.csv``, ``openml:NAME``, or, for a cohort, a
            folder ending in ``/`` with one file of rules for each individual.
        target: the column to predict, where the source does not say it.
        schema: path of a schema file, where the source has none; without one the bounds are read
            off the data, which every ledger records as an unprotected release.
        individual: the column that names the person behind each record.
        test: share of each client's records that is held out to measure utility by.
        sep: what splits the columns of a ``.csv``.
        encoding: of a ``.csv``'s text.
        positive: which of the target's two categories counts as the positive one; the second unless
            given.
    """

    source: str
    target: str | None = None
    schema: str | None = None
    individual: str | None = None
    test: float = 0.25
    sep: str = ","
    encoding: str = "utf-8"
    positive: str | None = None

    @property
    def text(self) -> Text:
        """How a ``.csv`` is written; an InputError where that makes no sense."""
        return Text(self.sep, self.encoding)


@dataclass(frozen=True)
class ClientsChoice:
    """Who owns which record: ``[clients]``.

    Args:
        partition: ``column``, ``iid``, ``dirichlet`` (uneven mixtures), ``quantity`` (uneven sizes),
            or ``cohort``: each individual owns one file of rules, and one gate simulates them all.
        column: the column that names the owners (``column``).
        count: how many clients (the other three), or
        names: what they are called.
        alpha: how even the shares are (``dirichlet``, ``quantity``).
        ledgers: the folder of the owners' lasting ledgers, one file each, under one budget for all
            studies; without it every run has throw-away ledgers in its own output.
        budget: the owners' whole budget, ``epsilon`` and ``delta``, for all studies together; put in
            force where the ledgers are new, and otherwise only compared.
    """

    partition: Partition = "iid"
    column: str | None = None
    count: int | None = None
    names: list[str] | None = None
    alpha: float = 1.0
    ledgers: str | None = None
    budget: dict[str, str | int | float] | None = None

    def whole(self, delta: Fraction) -> Budget | None:
        """The owners' whole budget, where the study names it.

        Args:
            delta: its delta, where the study names none.
        """
        if self.budget is None:
            return None
        return Budget.of(self.budget["epsilon"], self.budget.get("delta", delta))


#: Delta of a private policy that names none.
DELTA = "1e-5"


@dataclass(frozen=True)
class LearnerChoice:
    """What learns: ``[learner]``, a plugin's name and the parameters of its constructor.

    Args:
        name: the plugin's name.
        params: the constructor's parameters.
        learner: what a baseline runs inside, such as the learner of ``LocalRuleFitClassifier``.
    """

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    learner: LearnerChoice | None = None


@dataclass(frozen=True)
class PolicyChoice:
    """One data owner's policy to run under: ``[[policy]]``.

    Args:
        name: its name, and its folder's in the output.
        base: ``published``, ``strict`` (published with strict suppression), ``private``, or the
            path of a policy file; the name itself unless given.
        epsilon: the whole budget of ``private``.
        delta: its delta.
        params: further arguments of the learner's own policy, such as ``depth``.
        block: how many equal charges a ledger reserves at once; long trainings wait less for their
            disks, and what is left of the last block counts as spent.
        learner: what learns under this policy instead of the study's learner: a baseline, say.
        unit: what the guarantee protects, instead of what the base says: ``record``, ``individual``
            (the person that ``[data] individual`` names) or ``client``.
        cap: the most records of one such unit that are used.
    """

    name: str
    base: str = ""
    epsilon: str | int | float | None = None
    delta: str | int | float = DELTA
    params: dict[str, Any] = field(default_factory=dict)
    block: int = 1
    learner: LearnerChoice | None = None
    unit: Unit | None = None
    cap: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base or self.name)

    @property
    def exact_epsilon(self) -> Fraction:
        """The budget as an exact number; an InputError where it is none."""
        if self.epsilon is None:
            raise StudyError(f'policy {self.name!r} is private; write epsilon = "1" for its budget')
        return written_epsilon(self.epsilon, f"policy {self.name!r}: epsilon")

    @property
    def exact_delta(self) -> Fraction:
        """Delta as an exact number below one; an InputError where it is none."""
        delta = readable(self.delta, f"policy {self.name!r}: delta", zero=True)
        if delta >= 1:
            raise StudyError(f'policy {self.name!r}: delta must be below 1; write delta = "1e-5"')
        return delta


@dataclass(frozen=True)
class Study:
    """A whole experiment.

    Args:
        name: for reports.
        data: the table.
        clients: who owns which record.
        learner: what learns.
        policies: what it learns under, one run each.
        attacks: plugins' names; ``"*"`` is every installed one that finds something to work on.
        attack_seconds: after which each attack stops and reports what it found so far; each one's own
            bound unless given.
        shadows: readers of the model alone, where they are asked for.
        seed: decides partition, held-out part and the learner's own chance; never the noise.
        noise: ``secure``, or ``test`` for repeatable noise that protects nobody and is marked so.
        together: whether all its policies count as carried out on the same records, so that only
            their composed total holds; otherwise they are alternatives in a simulation.
        runs: how often each policy is run, with fresh noise each time; one run is one draw.
        folder: where relative paths start.
    """

    name: str
    data: DataChoice
    clients: ClientsChoice
    learner: LearnerChoice
    policies: tuple[PolicyChoice, ...]
    attacks: tuple[str, ...] = ("*",)
    attack_seconds: float | None = None
    shadows: ShadowChoice | None = None
    seed: int = 0
    noise: Literal["secure", "test"] = "secure"
    together: bool = False
    runs: int = 1
    folder: Path = Path()

    @classmethod
    def from_toml(cls, path: str | Path) -> Study:
        """Read a study file; any fault is one StudyError that says what to write instead."""
        where = f"study file {path}"
        plain = read_toml(path, where, StudyError)
        with naming(where):
            return cls.from_dict(plain, where, Path(path).resolve().parent)

    @classmethod
    def built_in(cls, name: str = BUILT_IN) -> Study:
        """Read a study that is installed with privfed."""
        with as_file(files("privfed.study") / "built_in" / f"{name}.toml") as path:
            return cls.from_toml(path)

    @classmethod
    def from_dict(
        cls, plain: Mapping[str, Any], where: str = "study", folder: Path | None = None
    ) -> Study:
        """Read plain data.

        Raises:
            StudyError: it tells every fault at once.
        """
        top, faults = {name.name for name in fields(_Top)}, Faults()
        with faults.collected():
            _known(plain, top | set(_READERS), where)
        meant = _meant(plain, set(_EXAMPLES))
        for key in (key for key in _EXAMPLES if key not in plain and key not in meant):
            faults.add(StudyError(f"{where}: {_EXAMPLES[key]} is missing; write it"))
        read: dict[str, Any] = {}
        with faults.collected():
            read |= _typed({key: plain[key] for key in sorted(top & set(plain))}, _Top, where)
        for key, reader in _READERS.items():
            with faults.collected():
                if key in plain:
                    name, value = reader(plain[key], where)
                    read[name] = value
        if {"data", "clients", "learner", "policies"} <= set(read):
            study = cls(**{"name": "", **read}, folder=folder or Path())
            for check in _CHECKS:
                with faults.collected():
                    check(study, where)
        faults.tell(StudyError)
        return study

    @property
    def ledgers(self) -> Path | None:
        """The folder of the owners' lasting ledgers; none where they are thrown away."""
        named = self.clients.ledgers
        return None if named is None else (self.folder / named).resolve()

    def to_dict(self) -> dict[str, Any]:
        """Give the study as plain data, the form of its file, with its paths made absolute."""
        clients = self.clients
        if clients.ledgers is not None:
            clients = replace(clients, ledgers=str((self.folder / clients.ledgers).resolve()))
        data = replace(
            self.data,
            source=self._absolute(self.data.source, ".csv", "/"),
            schema=None if self.data.schema is None else self._absolute(self.data.schema, ".toml"),
        )
        policies = [replace(p, base=self._absolute(p.base, ".toml")) for p in self.policies]
        limit = self.attack_seconds
        return {
            "name": self.name,
            "seed": self.seed,
            "noise": self.noise,
            "together": self.together,
            "runs": self.runs,
            "attacks": list(self.attacks),
            **({} if limit is None else {"attack_seconds": limit}),
            "data": _plain(data),
            "clients": _plain(clients),
            "learner": _plain(self.learner),
            **({} if self.shadows is None else {"shadows": _plain(self.shadows)}),
            "policy": [_plain(policy) for policy in policies],
        }

    def to_toml(self, path: str | Path) -> None:
        """Write a study file."""
        Path(path).write_text(tomli_w.dumps(self.to_dict()), encoding="utf-8")

    def learner_under(self, policy: str) -> LearnerChoice:
        """What learns under a policy, by the policy's name."""
        own = {choice.name: choice.learner for choice in self.policies}
        return own[policy] or self.learner

    @property
    def learners(self) -> tuple[str, ...]:
        """The names of all that learn, each once."""
        return tuple(
            dict.fromkeys(self.learner_under(policy.name).name for policy in self.policies)
        )

    def under(self, epsilon: str, seed: int) -> Study:
        """The same study with every private policy at another epsilon, and another seed."""
        policies = tuple(
            replace(p, epsilon=epsilon) if p.base == "private" else p for p in self.policies
        )
        return replace(self, policies=policies, seed=seed)

    def at(self, epsilon: str | None, delta: str | None) -> Study:
        """The same study with every private policy at another epsilon, delta, or both.

        Raises:
            StudyError: no policy is private, or a number is none.
        """
        if epsilon is None and delta is None:
            return self
        if not any(policy.base == "private" for policy in self.policies):
            raise StudyError(
                'no policy has base = "private", so there is no epsilon to try; policies in files have '
                "their own budgets"
            )
        tried = {key: x for key, x in (("epsilon", epsilon), ("delta", delta)) if x is not None}
        policies = tuple(
            replace(p, **tried) if p.base == "private" else p  # type: ignore[arg-type]
            for p in self.policies
        )
        for policy in policies:
            _check_policy(policy, f"study {self.name!r}")
        return replace(self, policies=policies)

    def _absolute(self, text: str, *endings: str) -> str:
        if not text.endswith(endings):
            return text
        return str((self.folder / text).resolve()) + "/" * text.endswith("/")


@dataclass(frozen=True)
class _Top:
    name: str = ""
    attacks: tuple[str, ...] = ("*",)
    attack_seconds: float | None = None
    seed: int = 0
    noise: Literal["secure", "test"] = "secure"
    together: bool = False
    runs: int = 1


_EXAMPLES = {
    "name": 'name = "..."',
    "data": '[data] with source = "diabetes"',
    "clients": "[clients] with count = 5",
    "learner": '[learner] with name = "..."',
    "policy": '[[policy]] with name = "published"',
}


def _known(plain: Mapping[str, Any], known: set[str], where: str) -> None:
    if not isinstance(plain, Mapping):
        raise StudyError(f"{where}: must be a table of keys and values")
    unknown = sorted(set(plain) - known)
    if unknown:
        raise StudyError(*(f"{where}: unknown key {key!r}; {_hint(key, known)}" for key in unknown))


def _meant(plain: Mapping[str, Any], known: set[str]) -> set[str]:
    """The keys that misspelt ones stand for: they are not missing as well."""
    hints = [did_you_mean(key, known) for key in set(plain) - known]
    return {key for key in known for hint in hints if repr(key) in hint}


def _hint(key: str, known: set[str]) -> str:
    return did_you_mean(key, known).removeprefix("; ") or f"known are {', '.join(sorted(known))}"


def _typed(plain: Mapping[str, Any], type_: type[Any], where: str) -> dict[str, Any]:
    """Check each value's type against a dataclass; msgspec's texts name types, never values."""
    hints, faults = get_type_hints(type_), Faults()
    made = {}
    for key, value in plain.items():
        try:
            made[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            text = str(error).replace("`", "").replace(" - at $", f" at {key}")
            text = text if " at " in text else f"{text} at {key}"
            known = ", ".join(map(str, get_args(hints[key])))
            text += f"; write one of {known}" if "enum" in text else ""
            text += unquoted(text)
            faults.add(StudyError(f"{where}: {text[0].lower()}{text[1:]}"))
    faults.tell(StudyError)
    return made


def unquoted(text: str) -> str:
    """What to write where text stands for a number or a truth value; empty where it does not."""
    wanted = {"expected int": "a whole number", "expected float": "a number"}
    wanted["expected bool"] = "true or false"
    meant = [
        word for start, word in wanted.items() if start in text.lower() and text.count("got str")
    ]
    return f"; write {meant[0]}, without quotes" if meant else ""


def _section(plain: Any, type_: type[T], where: str) -> T:
    assert isinstance(type_, type)
    known, faults = {f.name: f for f in fields(type_)}, Faults()  # type: ignore[arg-type]
    with faults.collected():
        _known(plain, set(known), where)
    if isinstance(plain, Mapping):
        meant = _meant(plain, set(known))
        for name, key in known.items():
            needed = key.default is MISSING and key.default_factory is MISSING
            if needed and name not in plain and name not in meant:
                faults.add(StudyError(f'{where}: {name} is missing; write {name} = "..."'))
        with faults.collected():
            told = _typed({key: plain[key] for key in plain if key in known}, type_, where)
    faults.tell(StudyError)
    return type_(**told)


def _holding_learner(plain: Any, type_: type[Holder], where: str) -> Holder:
    """Read a table that may hold a learner's, so that no key inside it passes unseen."""
    faults, inner = Faults(), None
    with faults.collected():
        made = _section(plain, type_, where)
    with faults.collected():
        if isinstance(plain, Mapping) and isinstance(plain.get("learner"), Mapping):
            inner = _holding_learner(plain["learner"], LearnerChoice, f"{where}, learner")
    faults.tell(StudyError)
    return replace(made, learner=inner)


def _policies(plain: Any, where: str) -> tuple[PolicyChoice, ...]:
    if not isinstance(plain, list) or not plain:
        raise StudyError(f"{where}: needs at least one [[policy]] (two brackets on each side)")
    faults, chosen = Faults(), []
    for one in plain:
        with faults.collected():
            chosen.append(_holding_learner(one, PolicyChoice, f"{where}, [[policy]]"))
    names = [policy.name for policy in chosen]
    for name in dict.fromkeys(names):
        with faults.collected():
            _check_name(name, names, where)
    for policy in chosen:
        with faults.collected():
            _check_policy(policy, where)
    faults.tell(StudyError)
    return tuple(chosen)


def _check_name(name: str, names: list[str], where: str) -> None:
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name[0] == ".":
        raise StudyError(f"{where}: policy name {name!r} must be letters, digits, - and _")
    if names.count(name) > 1:
        raise StudyError(f"{where}: two policies are called {name!r}; rename one")


def _check_policy(policy: PolicyChoice, where: str) -> None:
    if policy.base not in ("published", "strict", "private") and not policy.base.endswith(".toml"):
        raise StudyError(
            f"{where}: policy {policy.name!r} needs base = one of published, strict, private, or "
            "the path of a policy file ending in .toml"
            + did_you_mean(policy.base, ("published", "strict", "private"))
        )
    if policy.block < 1:
        raise StudyError(f"{where}: policy {policy.name!r}: block must be at least 1")
    if policy.params and policy.base.endswith(".toml"):
        raise StudyError(f"{where}: policy {policy.name!r} is a file; write its params there")
    if policy.base != "private" and (policy.epsilon is not None or policy.delta != DELTA):
        its = "the policy's own file" if policy.base.endswith(".toml") else 'base = "private"'
        raise StudyError(
            f"{where}: policy {policy.name!r} has another base than private, so its epsilon and "
            f"delta would do nothing; leave them out, or write them with {its}"
        )
    if policy.base == "private":
        _ = policy.exact_epsilon, policy.exact_delta


def _check_top(study: Study, where: str) -> None:
    if study.seed < 0:
        raise StudyError(f"{where}: seed must be at least 0, not {study.seed}")
    if study.runs < 1:
        raise StudyError(f"{where}: runs must be at least 1, not {study.runs}")
    if study.attack_seconds is not None and not study.attack_seconds > 0:
        raise StudyError(
            f"{where}: attack_seconds must be above 0, not {study.attack_seconds:g}; write attack_seconds = 60"
        )


def _check_data(study: Study, where: str) -> None:
    data = study.data
    with naming(f"{where}, [data]"):
        written = data.text
    if written != PLAIN and not data.source.endswith(".csv"):
        raise StudyError(f"{where}, [data]: sep and encoding are of a .csv; leave them out")
    if not 0 < data.test < 1:
        raise StudyError(f"{where}, [data]: test must lie between 0 and 1; write test = 0.25")


def _check_clients(study: Study, where: str) -> None:
    clients = study.clients
    by_column = clients.partition == "column"
    if by_column and clients.column is None:
        raise StudyError(f'{where}, [clients]: partition "column" needs column = "..."')
    if not by_column and clients.column is not None:
        raise StudyError(f'{where}, [clients]: column goes with partition = "column"')
    if by_column and (clients.count is not None or clients.names is not None):
        raise StudyError(
            f"{where}, [clients]: the column names the clients; leave count and names out"
        )
    if clients.partition in ("iid", "dirichlet", "quantity"):
        named(clients.count, clients.names)
        check_alpha(clients.alpha)


def _check_cohort(study: Study, where: str) -> None:
    cohort, data = study.clients.partition == "cohort", study.data
    if cohort != data.source.endswith("/"):
        raise StudyError(
            f'{where}: partition = "cohort" goes with a folder of rule files; write both '
            'source = "rules/" under [data] and partition = "cohort" under [clients], or neither'
        )
    if cohort and data.schema is None:
        raise StudyError(
            f'{where}, [data]: rules need the public bounds of their variables; write schema = "...toml"'
        )
    others = replace(study.clients, partition="cohort", ledgers=None, budget=None)
    if cohort and others != ClientsChoice("cohort"):
        raise StudyError(
            f"{where}, [clients]: every individual of a cohort owns one file; leave "
            "column, count, names and alpha out"
        )


def _check_lasting(study: Study, where: str) -> None:
    """Ledgers that last are for what is carried out: one policy, once, with noise that protects."""
    clients = study.clients
    if clients.budget is not None:
        if clients.ledgers is None:
            raise StudyError(
                f"{where}, [clients]: budget is the owners' own for all studies, and goes with "
                'ledgers = "folder"'
            )
        _known(clients.budget, {"epsilon", "delta"}, f"{where}, [clients], budget")
        if "epsilon" not in clients.budget:
            raise StudyError(f'{where}, [clients]: write budget = {{ epsilon = "8" }}')
        clients.whole(Fraction(0))
    if clients.ledgers is None:
        return
    if len(study.policies) > 1:
        raise StudyError(
            f"{where}: has {len(study.policies)} policies, and in a lasting ledger one is carried out; "
            "keep one [[policy]] here, and compare policies in a study without ledgers"
        )
    if study.runs > 1:
        raise StudyError(
            f"{where}: runs = {study.runs} repeats a policy as a simulation; leave runs out where "
            "ledgers last"
        )
    if study.noise == "test":
        raise StudyError(
            f'{where}: noise = "test" protects nobody, and a lasting ledger keeps it for ever; leave '
            "noise out, or ledgers"
        )


#: Reads each table of a study, and says which argument it is.
_READERS: Mapping[str, Callable[[Any, str], tuple[str, Any]]] = {
    "data": lambda plain, where: ("data", _section(plain, DataChoice, f"{where}, [data]")),
    "clients": lambda plain, where: (
        "clients",
        _section(plain, ClientsChoice, f"{where}, [clients]"),
    ),
    "learner": lambda plain, where: (
        "learner",
        _holding_learner(plain, LearnerChoice, f"{where}, [learner]"),
    ),
    "policy": lambda plain, where: ("policies", _policies(plain, where)),
    "shadows": lambda plain, where: (
        "shadows",
        _section(plain, ShadowChoice, f"{where}, [shadows]"),
    ),
}
#: What the tables are held to together.
_CHECKS: tuple[Callable[[Study, str], None], ...] = (
    _check_top,
    _check_data,
    _check_clients,
    _check_cohort,
    _check_lasting,
    check_shadows,
)


def _plain(choice: Any) -> dict[str, Any]:
    """A dataclass as plain data, absent values left out (TOML has no null)."""
    return _present(asdict(choice))


def _present(plain: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in plain.items() if value not in (None, {})}
    return {key: _present(v) if isinstance(v, Mapping) else v for key, v in kept.items()}
