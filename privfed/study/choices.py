"""The tables of a study's file, as plain data, each with its own checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, TypeVar

from privfed.errors import Faults, StudyError, did_you_mean
from privfed.privacy.accountant import Budget, written_epsilon
from privfed.privacy.masked_sums import MaskedSums
from privfed.privacy.policy import Policy
from privfed.questions.exact import readable
from privfed.questions.part import Unit
from privfed.tables.csv_text import PLAIN, WRITTEN, Text
from privfed.tables.partition import check_alpha, named
from privfed.tables.toml_file import check_keys, naming
from privfed.tables.toml_table import section

Holder = TypeVar("Holder", "LearnerChoice", "PolicyChoice")
Partition = Literal["iid", "column", "dirichlet", "quantity", "cohort"]
#: Shadow-model attacks: ``privfed.attacks.shadow_models.WAYS``, without its imports.
ModelReader = Literal["lira", "lira-offline", "rmia", "rmia-offline"]
DELTA = "1e-5"  #: Delta of a private policy that names none
MAX_SHADOWS = 1000  #: Maximum number of shadow models per policy: each is a whole training


@dataclass(frozen=True)
class DataChoice:
    """The table: ``[data]``."""

    #: a bundled set's name, a path ending in ``.csv``, ``.csv.gz``, ``.zip`` or ``.xlsx``,
    #: ``openml:NAME``, or, for a cohort, a folder ending in ``/`` with one file of rules per individual
    source: str
    target: str | None = None  #: the column to predict, if the source does not name it
    #: path of a schema file, if the source has none; without one, bounds are inferred from the
    #: records, which every ledger records as an unprotected release
    schema: str | None = None
    individual: str | None = None  #: the column that names the person behind each record
    test: float = 0.25  #: fraction of each client's records that is held out
    sep: str = ","  #: column separator of a ``.csv``
    encoding: str = "utf-8"  #: of a ``.csv``
    decimal: str = "."  #: before the decimals of its numbers
    thousands: str = ""  #: between groups of three digits
    #: the positive one of the target's two categories; default: the second
    positive: str | None = None
    #: columns of categories, or that of the owners, by which a simulation reports its error
    groups: list[str] = field(default_factory=list)

    @property
    def text(self) -> Text:
        """Format of a ``.csv``; an InputError if it is contradictory."""
        return Text(self.sep, self.encoding, self.decimal, self.thousands)

    def check(self, where: str) -> None:
        """Check the values (StudyError: the first fault)."""
        with naming(where):
            text = self.text
        if text != PLAIN and not self.source.endswith(WRITTEN):
            raise StudyError(
                f"{where}: sep, encoding, decimal and thousands are of a CSV file; leave them out"
            )
        if not 0 < self.test < 1:
            raise StudyError(f"{where}: test must lie between 0 and 1; write test = 0.25")


@dataclass(frozen=True)
class AboutChoice:
    """The study's purpose and the persons responsible: ``[about]``. Public text, shown on its pages."""

    purpose: str = ""  #: what the model is for
    controller: str = ""  #: who answers for the data
    contact: str = ""  #: whom to ask
    legal_basis: str = ""  #: such as a consent, a statute, a decision of an ethics board
    period: str = ""  #: when the data were collected
    data_description: str = ""  #: whose data, and what of them
    approver: str = ""  #: who approved the study
    registry: dict[str, str] = field(default_factory=dict)  #: further fields of a register

    @property
    def missing(self) -> tuple[str, ...]:
        """The keys without a text."""
        return tuple(key for key, text in vars(self).items() if key != "registry" and not text)


@dataclass(frozen=True)
class ClientsChoice:
    """Who owns which record: ``[clients]``."""

    #: ``column``, ``iid``, ``dirichlet`` (label skew), ``quantity`` (size skew), or ``cohort``:
    #: each individual owns one file of rules, and one gate simulates them all
    partition: Partition = "iid"
    column: str | None = None  #: the column that names the owners (``column``)
    count: int | None = None  #: number of clients (unless by ``column``), or their names
    names: list[str] | None = None
    alpha: float = 1.0  #: evenness of the partition (``dirichlet``, ``quantity``)
    #: folder of persistent ledgers, one per owner, under one budget for all studies; without it,
    #: every run has ephemeral ledgers in its own output
    ledgers: str | None = None
    #: the owners' total budget for all studies, ``epsilon`` and ``delta``; put in force in new
    #: ledgers, compared with that of existing ones
    budget: dict[str, str | int | float] | None = None
    #: folder of the owners' keys: ``<client>.key``, which sign the heads of persistent ledgers, or,
    #: on the server of several machines, ``<client>.pub``
    keys: str | None = None
    #: file or address to which the heads of persistent ledgers are appended
    witness: str | None = None

    def whole(self, delta: Fraction) -> Budget | None:
        """Return the owners' total budget, if the study states it; ``delta`` is the default delta."""
        if self.budget is None:
            return None
        return Budget.of(self.budget["epsilon"], self.budget.get("delta", delta))

    def check(self, where: str) -> None:
        """Check the values (StudyError: the first fault)."""
        by_column = self.partition == "column"
        if by_column and self.column is None:
            raise StudyError(f'{where}: partition "column" needs column = "..."')
        if not by_column and self.column is not None:
            raise StudyError(f'{where}: column goes with partition = "column"')
        if by_column and (self.count is not None or self.names is not None):
            raise StudyError(f"{where}: the column names the clients; leave count and names out")
        if self.partition in ("iid", "dirichlet", "quantity"):
            named(self.count, self.names)
            check_alpha(self.alpha)
        if self.witness is not None and self.ledgers is None:
            raise StudyError(
                f'{where}: witness is for persistent ledgers; write ledgers = "folder"'
            )
        if self.budget is None:
            return
        if self.ledgers is None:
            raise StudyError(
                f"{where}: budget is the owners' total for all studies and goes with "
                'ledgers = "folder"'
            )
        check_keys(self.budget, {"epsilon", "delta"}, f"{where}, budget", StudyError)
        if "epsilon" not in self.budget:
            raise StudyError(f'{where}: write budget = {{ epsilon = "8" }}')
        self.whole(Fraction(0))


@dataclass(frozen=True)
class LearnerChoice:
    """The learner: ``[learner]``, a plugin's name and its parameters."""

    name: str  #: the plugin's name
    params: dict[str, Any] = field(default_factory=dict)  #: the constructor's parameters
    #: what a baseline wraps, such as the learner of ``LocalRuleFitClassifier``
    learner: LearnerChoice | None = None


@dataclass(frozen=True)
class PolicyChoice:
    """One data owner's policy to run under: ``[[policy]]``."""

    name: str  #: its name, and its folder's in the output
    #: ``published``, ``strict`` (published with strict suppression), ``private``, or the path of a
    #: policy file; default: the name
    base: str = ""
    #: total budget of ``private``; with a file, the epsilon that its spends are rescaled to
    epsilon: str | int | float | None = None
    delta: str | int | float = DELTA  #: its delta
    #: further arguments of the learner's policy, such as ``depth``
    params: dict[str, Any] = field(default_factory=dict)
    #: how many equal charges a ledger reserves at once; long trainings wait less for disks, and the
    #: rest of the last block counts as spent
    block: int = 1
    #: what learns under this policy instead of the study's learner, such as a baseline
    learner: LearnerChoice | None = None
    #: privacy unit, instead of the base's: ``record``, ``individual`` (the person that ``[data]
    #: individual`` names) or ``client``
    unit: Unit | None = None
    cap: int | None = None  #: maximum number of records used per unit
    #: masks sums among all of the study's owners; ``{ least = 4, colluding = 1 }`` or ``{}``, see
    #: :class:`.MaskedSums`. A policy file says so itself
    masked: dict[str, Any] | None = None
    #: share of a ``private`` budget that is kept for questions of the model's errors on held-out records;
    #: default: a tenth among owners' own machines, else none
    evaluation: float | None = None
    #: states trust in a shuffler, ``{ people = 2000 }``; see :class:`.TrustedShuffler`
    shuffled: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base or self.name)

    @property
    def exact_epsilon(self) -> Fraction:
        """The budget as an exact number; an InputError if it is none."""
        if self.epsilon is None:
            raise StudyError(f'policy {self.name!r} is private; write epsilon = "1" for its budget')
        return written_epsilon(self.epsilon, f"policy {self.name!r}: epsilon")

    @property
    def exact_delta(self) -> Fraction:
        """Delta as an exact number below one; an InputError if it is none."""
        delta = readable(self.delta, f"policy {self.name!r}: delta", zero=True)
        if delta >= 1:
            raise StudyError(f'policy {self.name!r}: delta must be below 1; write delta = "1e-5"')
        return delta

    def masked_among(self, proposed: Policy, owners: Sequence[str]) -> Policy:
        """Return a policy with sums masked among the owners, if the study requests it."""
        if self.masked is None or not owners:
            return proposed
        terms = {"with": list(owners), **self.masked}
        masked = MaskedSums.from_dict(terms, f"policy {self.name!r}")
        return replace(proposed, masked=masked)

    def check(self, where: str) -> None:
        """Check the values (StudyError: the first fault)."""
        is_file, where = self.base.endswith(".toml"), f"{where}: policy {self.name!r}"
        bases = ("published", "strict", "private")
        if self.base not in bases and not is_file:
            raise StudyError(
                f"{where} needs base = one of published, strict, private, or the path of a policy "
                f"file ending in .toml{did_you_mean(self.base, bases)}"
            )
        if self.block < 1:
            raise StudyError(f"{where}: block must be at least 1")
        if self.masked is not None and self.base != "private":
            raise StudyError(f'{where}: masked needs base = "private"; or write it into the file')
        if self.evaluation is not None and self.base != "private":
            raise StudyError(f'{where}: evaluation needs base = "private"; or write a [[guard]]')
        if self.evaluation is not None and not 0 <= self.evaluation < 1:
            raise StudyError(f"{where}: evaluation is a share below 1; write evaluation = 0.1")
        if self.shuffled is not None and is_file:
            raise StudyError(f"{where} is a file; write shuffled there")
        if self.params and is_file:
            raise StudyError(f"{where} is a file; write its params there")
        if self.base == "private":
            _ = self.exact_epsilon, self.exact_delta
        elif is_file and self.delta != DELTA:
            raise StudyError(f"{where} is a file; write its delta there")
        elif is_file and self.epsilon is not None:
            _ = self.exact_epsilon
        elif self.epsilon is not None or self.delta != DELTA:
            raise StudyError(
                f"{where} has another base than private, so its epsilon and delta have no effect; "
                'leave them out, or write them with base = "private"'
            )


@dataclass(frozen=True)
class ShadowChoice:
    """Membership inference from the model alone: ``[shadows]``. Each shadow costs one training per policy."""

    number: int = 16  #: approximate number of shadow models per policy
    seconds: float = 120.0  #: time limit of their training
    #: attacks: ``lira``, ``rmia``, or either with ``-offline``
    ways: tuple[ModelReader, ...] = ("lira", "rmia")

    def check(self, where: str) -> None:
        """Check the values (StudyError: the first fault)."""
        if not 2 <= self.number <= MAX_SHADOWS:
            raise StudyError(
                f"{where}: number must lie between 2 and {MAX_SHADOWS}, not {self.number}; write "
                "number = 16"
            )
        if not self.seconds > 0:
            raise StudyError(f"{where}: seconds must be above 0; write seconds = 120")
        if not self.ways:
            raise StudyError(f'{where}: ways is empty; write ways = ["lira", "rmia"], or omit it')


def holding_learner(data: Any, type_: type[Holder], where: str) -> Holder:
    """Read a table that may contain a learner's table, whose keys are checked, too."""
    faults, inner = Faults(), None
    with faults.collected():
        choice = section(data, type_, where, StudyError)
    with faults.collected():
        if isinstance(data, Mapping) and isinstance(data.get("learner"), Mapping):
            inner = holding_learner(data["learner"], LearnerChoice, f"{where}, learner")
    faults.tell(StudyError)
    return replace(choice, learner=inner)


def policies(data: Any, where: str) -> tuple[PolicyChoice, ...]:
    """Read all ``[[policy]]`` tables (StudyError: all their faults)."""
    if not isinstance(data, list) or not data:
        raise StudyError(f"{where}: needs at least one [[policy]] (two brackets on each side)")
    faults, chosen = Faults(), []
    for entry in data:
        with faults.collected():
            chosen.append(holding_learner(entry, PolicyChoice, f"{where}, [[policy]]"))
    names = [policy.name for policy in chosen]
    for name in dict.fromkeys(names):
        with faults.collected():
            if (
                not name.replace("-", "").replace("_", "").replace(".", "").isalnum()
                or name[0] == "."
            ):
                raise StudyError(f"{where}: policy name {name!r} must be letters, digits, - and _")
            if names.count(name) > 1:
                raise StudyError(f"{where}: two policies are called {name!r}; rename one")
    for policy in chosen:
        with faults.collected():
            policy.check(where)
    faults.tell(StudyError)
    return tuple(chosen)
