"""What a server may ask: frozen public values, and what a client computes from them."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, is_dataclass, replace
from dataclasses import fields as fields_of
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self, final

import numpy as np

from privfed.questions import coins, wire
from privfed.questions.part import Part
from privfed.tables.records import Records
from privfed.tables.schema import Schema

REMEMBERED = 2**24  #: Largest query that is remembered, in bytes
ROW, CALL = 3e4, 3e7  #: Work of evaluating a query on one record, and on none, in multiply-adds


@dataclass(frozen=True, eq=False)
class View:
    """What a query sees at a client."""

    records: Any  #: the owner's records, already clipped to the schema
    schema: Schema  #: the public data dictionary
    secret: bytes = b""  #: a durable secret of the client; never leaves it
    cache: MutableMapping[Any, Any] = field(default_factory=dict)  #: may vanish at any time

    @property
    def table(self) -> Records:
        """The records as a table; an error where they are something else."""
        if not isinstance(self.records, Records):
            raise TypeError("this query needs tabular records")
        return self.records

    def rng(self, label: str) -> np.random.Generator:
        """The client's secret, repeatable random stream for a purpose.

        A stream knows no records: one more or less may change the values of all others. For a
        subsample or a bootstrap use :meth:`coins`.
        """
        seed = hashlib.sha256(self.secret + b"\x00" + label.encode()).digest()
        return np.random.default_rng(np.frombuffer(seed, dtype=np.uint32))

    def coins(self, label: str) -> np.ndarray:
        """Each record's secret, repeatable coin for a purpose: uniform uint64, shape (records,).

        A coin follows from the client's secret, the label and the record's content (equal records
        are told apart by a counter), so one record more or less changes no other's: a sum over the
        records whose coin lies below a threshold has the sensitivity of the whole sum. TypeError:
        the records are no table, or the client has no secret.
        """
        if not self.secret:
            raise TypeError("coins need a client's secret; without one everybody could toss them")
        if "coins" not in self.cache:
            self.cache["coins"] = coins.record_keys(self.table, self.secret)
        return coins.toss(self.cache["coins"], label)

    @classmethod
    def of(cls, schema: Schema, x: np.ndarray, y: np.ndarray | None = None) -> Self:
        """A view of records that an attacker makes up: encoded, (records, features), and targets."""
        return cls(Records(schema, x, y), schema)


@dataclass(frozen=True, eq=False)
class Equations:
    """What one part of an answer says of its members: ``added`` summed over them is ``told``."""

    added: np.ndarray  #: what each record would add, shape (records, *cells)
    told: np.ndarray  #: the sum before any noise, shape (cells)
    error: np.ndarray | float = 0.0  #: largest difference, in the same units, (cells) or scalar


@dataclass(frozen=True, eq=False)
class Drawn:
    """What some cells of an answer sum, where secret coins decide how often each record counts."""

    draw: str  #: of the coins; its cells count a record equally often (a bootstrap)
    part: str  #: the part
    cells: np.ndarray  #: flat indices into the part, shape (cells,)
    added: np.ndarray  #: what each record would add, counted once, shape (records, cells)


@dataclass(frozen=True, eq=False)
class LocalView(View):
    """What a local effect sees at a client; its cache is shared with no other query."""

    shelf: MutableMapping[str, Any] = field(default_factory=dict)  #: durable plain data, by name


class Query(ABC):
    """A query: a frozen dataclass of public values.

    ``evaluate`` is pure in (records, query, client secret): the query carries the tree or the
    state.
    """

    kind: ClassVar[str]  #: What a policy's line names, such as ``"fuzzy_tree.level"``
    #: Whether counts, sums and scores are sums over the records of what each alone would give. Not
    #: where records are judged together (an order statistic, a cap by person) or coins are tossed.
    linear: ClassVar[bool] = True
    #: Whether it is put to the records that the owner keeps from training
    held_out: ClassVar[bool] = False

    @abstractmethod
    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """All that can leave, derived without data (QueryError: the query makes no sense)."""

    @abstractmethod
    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute every part from the records: integer grid units, or floats for values.

        Total: it answers for any records that the schema allows, from none on. A protected query
        that fails for some of them tells by it that they are there.
        """

    def memory(self, cells: int) -> int:
        """Most bytes that evaluating so many cells takes beside the records, whatever their number.

        A query that takes more than a few copies of its answer says so; the gate refuses what is
        too large before anything is charged or read.
        """
        return 2**26 + 6 * 8 * cells

    def work(self, records: int) -> float:
        """Multiply-adds of evaluating it on so many records, by which attacks count what they put again."""
        return CALL + ROW * records

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mark the cells that would give a record away; a mask for each part that has any.

        ``strict`` also marks what could be used to subtract such a cell.
        """
        return {}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """What the answer would be for each record alone, in grid units, before any noise.

        Each part that adds up, shape (records, *the part's own); its sum over the records is
        :meth:`evaluate`'s. Empty if not :attr:`linear`. A faster override must agree with this
        default.
        """
        if not self.linear:
            return {}
        declared = {name: p for name, p in self.parts(view.schema).items() if p.type.adds_up}
        alone = [
            self.evaluate(replace(view, records=view.table.take(np.array([row])), cache={}))
            for row in range(len(view.table))
        ]
        return {
            name: np.array([one[name] for one in alone]).reshape(len(alone), *part.shape)
            for name, part in declared.items()
        }

    def equations(self, answer: Mapping[str, np.ndarray], view: View) -> Mapping[str, Equations]:
        """What an answer, each part as released, in grid units, says of who was there.

        By default the members' contributions add up to it. Overridden by queries whose answers
        become such a sum for those who saw them (a mean, or local steps from a public state).
        """
        added = self.contribution(view)
        return {
            name: Equations(added[name], np.asarray(answer[name], float))
            for name in added
            if name in answer
        }

    def drawn(self, view: View) -> Iterator[Drawn]:
        """What each record would add, were it drawn: for answers over secret samples (a bootstrap)."""
        return iter(())

    @cached_property
    def fields(self) -> bytes:
        """The query's public values as deterministic bytes, in the types that it declares."""
        return wire.canonical(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the kind and the public values."""
        return wire.query_digest(self.kind, self.fields)

    @classmethod
    def from_fields(cls, fields: bytes) -> Self:
        """Read the query's public values; unknown, missing or ill-typed ones are a WireError."""
        return wire.decode(fields, cls)

    @classmethod
    def from_canonical(cls, fields: bytes) -> Self:
        """Read a query's canonical form, its arrays read-only; any other form is a WireError.

        The last two are cached: in one process the same query reaches every client's gate.
        """
        small = len(fields) <= REMEMBERED
        query: Self = (_frozen if small else _frozen.__wrapped__)(cls, fields)
        return query


@lru_cache(maxsize=2)
def _frozen(kind: type[Any], fields: bytes) -> Any:
    query = wire.decode_canonical(fields, kind)
    _freeze(query)
    return query


def _freeze(value: object) -> None:
    if isinstance(value, float | int | str):  # most of what a query holds
        return
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
        _freeze(value.base)
    elif isinstance(value, list | tuple):
        for inner in value:
            _freeze(inner)
    elif isinstance(value, Mapping):
        _freeze(tuple(value.values()))
    elif is_dataclass(value):
        _freeze([getattr(value, known.name) for known in fields_of(value)])


class LocalEffect(Query):
    """A request to keep something, of which nothing leaves: neither a part nor whether it worked.

    It costs nothing, and is allowed by a policy's ``local`` list. Its effect comes after its ledger
    row is durable, and once, however often it is sent.
    """

    @final
    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Nothing, once the values make sense."""
        self.check(schema)
        return {}

    @final
    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Nothing."""
        return {}

    def check(self, schema: Schema) -> None:
        """Check the query's own values against the schema, without data (QueryError)."""

    @abstractmethod
    def take_effect(self, view: LocalView) -> None:
        """Work on the records and the shelf; whatever it raises, only the owner learns of it."""


class CohortQuery(Query):
    """A query to the individuals of a cohort: each asked one gives one column of the answer."""

    linear: ClassVar[bool] = False

    def fits(self, records: Any) -> bool:
        """Whether it was written for such records, by public facts of theirs alone."""
        return True

    @abstractmethod
    def asked(self, people: int) -> np.ndarray:
        """Who is asked: distinct positions in a cohort; public (QueryError: one of another size)."""

    def unhashed(self) -> tuple[CohortQuery, np.ndarray] | None:
        """The other query of whose bits the answers are public hashes, or ``None``.

        An individual sets at most one of its bits; with it, whether that bit would set the answer
        to this one, shape (the other's bits, individuals asked).
        """
        return None
