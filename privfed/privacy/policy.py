"""A data owner's policy: allowed queries, their protection, and the privacy budget.

It is plain data, written by a person. Kinds of query that no guard names are refused; parts that no guard covers are
withheld.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from privfed.errors import Faults, InputError, PolicyError, did_you_mean
from privfed.privacy.accountant import Accountant, Budget
from privfed.privacy.limit import Limit
from privfed.privacy.masked_sums import MaskedSums
from privfed.privacy.mechanism import Mechanism
from privfed.questions import plugins, wire
from privfed.questions.exact import Number, exact, readable, text
from privfed.questions.part import Relation, Unit
from privfed.tables.toml_file import InToml, check_keys, naming, read_toml

CELLS = 20_000_000  #: Maximum cells of one answer; more are refused before anything is built
#: A proposed spend is a multiple of 1 / PROPOSED, or has a denominator of at most SHORT; others are rounded down. Else
#: each would add twelve digits to a sum's common denominator, which no ledger could read.
PROPOSED, SHORT = 10**12, 1000


def _all_are(wanted: type, listed: object) -> bool:
    return isinstance(listed, list | tuple) and all(isinstance(each, wanted) for each in listed)


def whole(value: object) -> bool:
    """Whether a value is an integer from 1 to the largest that a ledger can store."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63


@dataclass(frozen=True)
class Guard:
    """The joint protection of one group of parts."""

    mechanism: str | Mechanism  #: a plugin's name, or the object itself
    parts: tuple[str, ...] = ("*",)  #: ``"*"`` is every part that no other guard names
    spend: Fraction | None = None  #: of one release, in the mechanism's currency
    cap: Fraction | None = None  #: maximum that a request may propose; default ``spend``
    times: int | None = None  #: how often the kind may be answered; None: no limit
    options: Mapping[str, Any] = field(default_factory=dict)  #: parameters of the mechanism

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, str | Mechanism):
            raise PolicyError(
                'a guard\'s mechanism is a name, such as "laplace", or an object derived from Mechanism, such as '
                "Laplace(); a class is none"
            )
        if not isinstance(self.mechanism, str) and not isinstance(
            getattr(self.mechanism, "name", None), str
        ):
            raise PolicyError("a mechanism's name is text; write name = ... in its class")
        for name in ("spend", "cap"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, readable(value, f"guard {name}"))
        listed = isinstance(self.parts, list | tuple)
        if not listed or not all(isinstance(name, str) for name in self.parts):
            raise PolicyError('a guard\'s parts are a list of names; write parts = ["..."]')
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise PolicyError('a guard needs parts; write parts = ["*"] for all of them')
        if not isinstance(self.options, Mapping):
            raise PolicyError("a guard's options are a table; write options = { name = value }")
        if self.times is not None and not whole(self.times):
            raise PolicyError("a guard's times must be at least 1; leave it out for no limit")
        if self.spend is not None and self.cap is not None and self.cap < self.spend:
            raise PolicyError("a guard's cap is the most it may spend; write at least its spend")

    @classmethod
    def of(
        cls,
        mechanism: str | Mechanism,
        *parts: str,
        spend: Number | None = None,
        cap: Number | None = None,
        times: int | None = None,
        **options: Any,
    ) -> Guard:
        """Build a guard from numbers or decimal text; no parts named means every part."""
        amounts = [None if value is None else exact(value, "spend") for value in (spend, cap)]
        return cls(mechanism, parts or ("*",), amounts[0], amounts[1], times, options)

    @property
    def called(self) -> str:
        """The mechanism's name."""
        return self.mechanism if isinstance(self.mechanism, str) else self.mechanism.name

    def amount(self, proposed: Fraction | None) -> Fraction:
        """Return what a request spends: its proposal, at most the cap, or the guard's own spend."""
        spend = self.spend or Fraction(0)
        if proposed is None:
            return spend
        if proposed.denominator > SHORT and PROPOSED % proposed.denominator:
            proposed = Fraction(math.floor(proposed * PROPOSED), PROPOSED)
        return min(proposed, self.cap if self.cap is not None else spend)

    def to_dict(self) -> dict[str, Any]:
        """Return the guard as plain data."""
        data: dict[str, Any] = {"mechanism": self.called, "parts": list(self.parts)}
        for name in ("spend", "cap"):
            value = getattr(self, name)
            if value is not None:
                data[name] = text(value)
        if self.times is not None:
            data["times"] = self.times
        if self._options:
            data["options"] = self._options
        return data

    @property
    def _options(self) -> dict[str, Any]:
        if isinstance(self.mechanism, str):
            return dict(self.options)
        known = vars(self.mechanism).items()
        return {k: v for k, v in known if isinstance(v, str | int | float)}


@dataclass(frozen=True)
class Policy(InToml):
    """What a data owner allows: the guards, the unit of privacy and the budget."""

    guards: Mapping[str, tuple[Guard, ...]]  #: by kind of query; empty for a local effect
    unit: Unit = "record"  #: the unit of privacy
    relation: Relation = "add-or-remove"  #: ``add-or-remove`` or ``replace-one`` of one unit
    cap: int | None = None  #: maximum records of one unit (``individual``, ``client``)
    accountant: str | Accountant = "pure"  #: a plugin's name, or the object itself
    budget: Budget | None = None  #: the ceiling; None: spending is only counted
    name: str = ""  #: for reports
    cells: int = CELLS  #: maximum cells of one answer
    limits: tuple[Limit, ...] = ()  #: sub-budgets; see :class:`.Limit`
    masked: MaskedSums | None = None  #: owners among whom sums with Gaussian noise are masked
    shuffled: TrustedShuffler | None = None  #: a trusted shuffler; priced, never charged

    def __post_init__(self) -> None:
        self._convert()
        faults = [*self._faults()]
        for kind, guards in self.guards.items():
            named = [part for guard in guards for part in guard.parts]
            faults += [
                f"query {kind!r}: part {part!r} is guarded twice; give it to one guard"
                for part in sorted({part for part in named if named.count(part) > 1})
            ]
        if faults:
            raise PolicyError(*faults)

    def _convert(self) -> None:
        """Lists become tuples, and a single guard a list."""
        if not isinstance(self.guards, Mapping):
            raise PolicyError(
                'guards are listed by kind of query; write {"KIND": [Guard.of("laplace", spend="0.1")]}'
            )
        listed = {
            kind: (guards,) if isinstance(guards, Guard) else guards
            for kind, guards in self.guards.items()
        }
        for kind, guards in listed.items():
            if not _all_are(Guard, guards):
                raise PolicyError(
                    f'query {kind!r}: write its guards as [Guard.of("laplace", spend="0.1")]'
                )
        if not _all_are(Limit, self.limits):
            raise PolicyError('limits are a list; write [Limit(("QUERY",), Budget.of("0.5"))]')
        object.__setattr__(self, "guards", {kind: tuple(found) for kind, found in listed.items()})
        object.__setattr__(self, "limits", tuple(self.limits))

    def _faults(self) -> Iterator[str]:
        for name, known in (("unit", get_args(Unit)), ("relation", get_args(Relation))):
            value = getattr(self, name)
            if value not in known:
                hint = did_you_mean(value, known)
                yield f"{name} must be one of {', '.join(known)}, not {value!r}{hint}"
        if self.cap is not None and not whole(self.cap):
            yield "cap must be a whole number of at least 1 record of one unit"
        if not whole(self.cells):
            yield "cells must be a whole number of at least 1"
        if not isinstance(self.name, str):
            yield 'name is text; write name = "..."'
        for name, kind, example in (
            ("budget", Budget, 'Budget.of("2", "1e-5")'),
            ("masked", MaskedSums, "MaskedSums(keys)"),
            ("shuffled", TrustedShuffler, "TrustedShuffler(people)"),
        ):
            if not isinstance(getattr(self, name), kind | None):
                yield f"{name} must be a {kind.__name__} or None; write {name} = {example}"
        if not isinstance(self.accountant, str | Accountant):
            yield 'accountant must be a name, such as "pure", or an object derived from Accountant'
        elif not isinstance(getattr(self.accountant, "name", ""), str):
            yield "an accountant's name is text; write name = ... in its class"

    @cached_property
    def digest(self) -> str:
        """Return SHA-256 of the policy's plain data, for the ledger."""
        return wire.digest(wire.encode(self.to_dict()))

    @property
    def terms(self) -> dict[str, Any]:
        """Return what all policies of one data set share: how losses are counted, and every ceiling."""
        return terms_of(self.to_dict())

    def renamed(self, name: str) -> Policy:
        """Return the same policy under another name."""
        return replace(self, name=name)

    def masked_among(
        self,
        owners: Iterable[str],
        colluding: int = 0,
        unmasked: Budget | None = None,
        least: int = 0,
    ) -> Policy:
        """Return the same policy with masked sums among these owners; see :class:`.MaskedSums`."""
        terms = MaskedSums(dict.fromkeys(owners, ""), colluding, unmasked, least)
        return replace(self, masked=terms)

    def union(self, other: Policy) -> Policy:
        """Return a policy that allows what either allows; unit, relation, accountant and budgets must agree."""
        if self.terms != other.terms:
            raise PolicyError(
                "two policies join only under one unit, relation, accountant and budget"
            )
        for kind in self.guards.keys() & other.guards.keys():
            if self.guards[kind] != other.guards[kind]:
                raise PolicyError(f"two policies guard query {kind!r} differently; keep one")
        return replace(self, guards={**self.guards, **other.guards})

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain data, in the form of its TOML file."""
        called = self.accountant if isinstance(self.accountant, str) else self.accountant.name
        data: dict[str, Any] = {
            "name": self.name,
            "unit": self.unit,
            "relation": self.relation,
            "accountant": called,
            "cells": self.cells,
        }
        if self.cap is not None:
            data["cap"] = self.cap
        if self.budget is not None:
            data["budget"] = self.budget.to_dict()
        if self.limits:
            data["limit"] = [limit.to_dict() for limit in self.limits]
        if self.masked is not None:
            data["masked"] = self.masked.to_dict()
        if self.shuffled is not None:
            data["shuffled"] = self.shuffled.to_dict()
        data["local"] = sorted(kind for kind, guards in self.guards.items() if not guards)
        data["guard"] = [
            {"query": kind, **guard.to_dict()}
            for kind in sorted(self.guards)
            for guard in self.guards[kind]
        ]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "policy") -> Policy:
        """Read plain data; a misspelt key is an error that lists the known ones."""
        plainly = ("unit", "relation", "cap", "accountant", "name", "cells")
        terms: dict[str, Any] = {"masked": MaskedSums, "shuffled": TrustedShuffler}
        known = {*plainly, *terms, "budget", "local", "guard", "limit"}
        faults, budget, limits = Faults(), None, []
        with faults.collected():
            check_keys(data, known, where, PolicyError)
        guards: dict[str, tuple[Guard, ...]] = {}
        with faults.collected():
            guards = {str(kind): () for kind in _list(data, "local", '["kind of query"]', where)}
        for number, entry in enumerate(_listed(data, "guard", faults, where), 1):
            with faults.collected(), _numbered(number, data["guard"], where):
                kind, guard = _guard(entry, where)
                guards[kind] = (*guards.get(kind, ()), guard)
        for entry in _listed(data, "limit", faults, where):
            with faults.collected():
                limits.append(Limit.from_dict(entry, where))
        with faults.collected():
            budget = _budget(data.get("budget"), where)
        chosen = {key: data[key] for key in plainly if key in data}
        for key, term in terms.items():
            with faults.collected():
                if key in data:
                    chosen[key] = term.from_dict(data[key], where)
        with faults.collected():
            made = cls(guards, budget=budget, limits=tuple(limits), **chosen)
        faults.tell(PolicyError)
        return made

    @classmethod
    def from_toml(cls, path: str | Path) -> Policy:
        """Read a policy file."""
        where = f"policy file {path}"
        data, faults = read_toml(path, where, PolicyError), Faults()
        with faults.collected(), naming(where):
            made = cls.from_dict(data, where)
        plugins.check_all(_named(data), where, faults)
        faults.tell(PolicyError)
        return made


def _named(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    accountant, guards = data.get("accountant", "pure"), data.get("guard", ())
    if isinstance(accountant, str):
        yield "accountants", accountant
    for guard in guards if isinstance(guards, list) else ():
        if isinstance(guard, Mapping) and isinstance(guard.get("mechanism"), str):
            yield "mechanisms", guard["mechanism"]


def _list(data: Mapping[str, Any], key: str, example: str, where: str) -> list[Any]:
    value = data.get(key, [])
    if not isinstance(value, list | tuple):
        raise PolicyError(f"{where}: {key} must be a list; write {example}")
    return list(value)


def _listed(data: Mapping[str, Any], key: str, faults: Faults, where: str) -> list[Any]:
    with faults.collected():
        return _list(data, key, f"[[{key}]] tables", where)
    return []


@contextmanager
def _numbered(number: int, guards: Any, where: str) -> Iterator[None]:
    """Add the guard's number to a fault if there are several guards."""
    try:
        yield
    except InputError as error:
        if len(guards) > 1:
            faults = (fault.removeprefix(where).removeprefix(": ") for fault in error.faults)
            error.args = tuple(
                f"{where}: guard {number}: {fault.removeprefix(', ')}" for fault in faults
            )
        raise


def terms_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return :meth:`Policy.terms` of a policy given as plain data."""
    shared = ("unit", "relation", "cap", "accountant", "budget", "limit")
    return {key: data[key] for key in shared if key in data}


def _guard(entry: Mapping[str, Any], where: str) -> tuple[str, Guard]:
    check_keys(
        entry,
        {"query", "mechanism", "parts", "spend", "cap", "times", "options"},
        f"{where}, [[guard]]",
        PolicyError,
    )
    for key in ("query", "mechanism"):
        if not isinstance(entry.get(key), str):
            raise PolicyError(f'{where}: every [[guard]] needs {key} = "..."')
    data = {key: entry[key] for key in ("spend", "cap", "times", "options") if key in entry}
    return entry["query"], Guard(entry["mechanism"], entry.get("parts", ("*",)), **data)


def _budget(data: Mapping[str, Any] | None, where: str) -> Budget | None:
    if data is None:
        return None
    check_keys(data, {"epsilon", "delta"}, f"{where}, [budget]", PolicyError)
    if "epsilon" not in data:
        raise PolicyError(f'{where}: [budget] needs epsilon = "..."')
    return Budget.of(data["epsilon"], data.get("delta", 0))


# --- a policy's statement of trust in a shuffler, which passes answers on without their senders


@dataclass(frozen=True)
class TrustedShuffler:
    """A trusted shuffler of yes-or-no answers, one at a time, among ``people`` respondents.

    Prices state the shuffled epsilon next to the local one; budgets are charged the local one. No gate can be this
    shuffler: a cohort's gate has all answers in order, and knows who was queried.
    """

    #: the minimum number who answer each query honestly and hide their answers from the receiver
    people: int
    delta: Fraction = Fraction(1, 100_000)  #: of the shuffled epsilon

    def __post_init__(self) -> None:
        if not whole(self.people) or self.people < 2:
            raise PolicyError("shuffled: people is a whole number of honest answerers, 2 or more")
        if not 0 < self.delta < 1:
            raise PolicyError('shuffled: delta is above 0 and below 1; write delta = "1e-5"')

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain data, as in a policy file."""
        return {"people": self.people, "delta": text(self.delta)}

    @classmethod
    def from_dict(cls, data: Any, where: str = "policy") -> TrustedShuffler:
        """Read plain data."""
        if not isinstance(data, Mapping) or "people" not in data:
            raise PolicyError(f"{where}: shuffled is a table; write shuffled = {{ people = 2000 }}")
        check_keys(data, {"people", "delta"}, f"{where}, shuffled", PolicyError)
        delta = readable(data.get("delta", "1e-5"), f"{where}, shuffled: delta", zero=True)
        return cls(data["people"], delta)
