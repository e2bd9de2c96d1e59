"""Base classes of queries: frozen public values, and the computation at a client."""

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

REMEMBERED = 2**24  #: Maximum size of a cached query, in bytes
ROW, CALL = 3e4, 3e7  #: Default work per record, and per evaluation, in multiply-adds


@dataclass(frozen=True, eq=False)
class View:
    """What a query can read at a client."""

    records: Any  #: the owner's records, already clipped to the schema
    schema: Schema  #: the public data dictionary
    secret: bytes = b""  #: a durable secret of the client; never leaves it
    cache: MutableMapping[Any, Any] = field(default_factory=dict)  #: may vanish at any time

    @property
    def table(self) -> Records:
        """The records as a table (TypeError: they are something else)."""
        if not isinstance(self.records, Records):
            raise TypeError("this query needs tabular records")
        return self.records

    def rng(self, label: str) -> np.random.Generator:
        """Return a repeatable random generator for a purpose, seeded by the client's secret.

        Its values do not belong to records: adding or removing one may shift the values of all
        others. For a subsample or a bootstrap use :meth:`coins`.
        """
        seed = hashlib.sha256(self.secret + b"\x00" + label.encode()).digest()
        return np.random.default_rng(np.frombuffer(seed, dtype=np.uint32))

    def coins(self, label: str) -> np.ndarray:
        """Return each record's secret, repeatable coin for a purpose: uniform uint64, shape (records,).

        A coin depends on the client's secret, the label and the record's content (equal records are
        numbered), so adding or removing a record changes no other's coin: a sum over the records
        whose coin is below a threshold has the sensitivity of the sum over all. TypeError: the
        records are no table, or the client has no secret.
        """
        if not self.secret:
            raise TypeError("coins need a client's secret; without one everybody could toss them")
        if "coins" not in self.cache:
            self.cache["coins"] = coins.record_keys(self.table, self.secret)
        return coins.toss(self.cache["coins"], label)

    @classmethod
    def of(cls, schema: Schema, x: np.ndarray, y: np.ndarray | None = None) -> Self:
        """Build a view of synthetic records for attacks: encoded features (records, features), and targets."""
        return cls(Records(schema, x, y), schema)


@dataclass(frozen=True, eq=False)
class Equations:
    """Linear equations from one part of an answer: the members' ``added`` sum to ``told``."""

    added: np.ndarray  #: each record's contribution, shape (records, *cells)
    told: np.ndarray  #: the released sum, shape (cells)
    error: np.ndarray | float = 0.0  #: maximum error, in the same units, (cells) or scalar


@dataclass(frozen=True, eq=False)
class Drawn:
    """Contributions to cells of an answer in which secret coins weight each record."""

    draw: str  #: label of the coins; its cells have the same weights (a bootstrap)
    part: str  #: the part
    cells: np.ndarray  #: flat indices into the part, shape (cells,)
    added: np.ndarray  #: what each record would add, counted once, shape (records, cells)


@dataclass(frozen=True, eq=False)
class LocalView(View):
    """What a local effect can access at a client; its cache is not shared with other queries."""

    shelf: MutableMapping[str, Any] = field(default_factory=dict)  #: durable plain data, by name


class Query(ABC):
    """Base class of queries: frozen dataclasses of public values.

    ``evaluate`` is a pure function of (records, query, client secret): any tree or state is in the
    query.
    """

    kind: ClassVar[str]  #: Its name in policies, such as ``"fuzzy_tree.level"``
    #: Whether counts, sums and scores are sums of each record's answer alone. False if records are
    #: evaluated together (an order statistic, a cap by person) or coins are drawn.
    linear: ClassVar[bool] = True
    #: Whether it is evaluated on the owner's held-out records
    held_out: ClassVar[bool] = False

    @abstractmethod
    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return all parts that can be released, derived without data (QueryError: invalid query)."""

    @abstractmethod
    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute every part from the records: integer grid units, or floats for values.

        It must succeed for all records that the schema allows, including none: a failure that
        depends on the records would reveal them.
        """

    def memory(self, cells: int) -> int:
        """Return the maximum memory for evaluating ``cells`` cells, in bytes, without the records.

        Override if it takes more than a few copies of the answer; the gate refuses queries that are
        too large before charging or reading anything.
        """
        return 2**26 + 6 * 8 * cells

    def work(self, records: int) -> float:
        """Return the work of one evaluation in multiply-adds, for attacks' limits on repeated evaluations."""
        return CALL + ROW * records

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Return a mask of the cells that would reveal a record, for each part that has any.

        ``strict`` also marks cells from which such a cell could be computed by subtraction.
        """
        return {}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return the answer for each record alone, in grid units, without noise.

        Each additive part has shape (records, *the part's shape); its sum over the records equals
        :meth:`evaluate`. Empty if not :attr:`linear`. A faster override must agree with this
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
        """Return linear equations in the members from an answer, released parts in grid units.

        By default the members' contributions add up to the answer. Override if an answer can be
        turned into such a sum (a mean, or local steps from a public state).
        """
        added = self.contribution(view)
        return {
            name: Equations(added[name], np.asarray(answer[name], float))
            for name in added
            if name in answer
        }

    def drawn(self, view: View) -> Iterator[Drawn]:
        """Yield each record's contribution if it is drawn, for answers over secret samples (a bootstrap)."""
        return iter(())

    @cached_property
    def fields(self) -> bytes:
        """The query's public values as deterministic bytes, in its declared types."""
        return wire.canonical(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the kind and the public values."""
        return wire.query_digest(self.kind, self.fields)

    @classmethod
    def from_fields(cls, fields: bytes) -> Self:
        """Read the query's public values; WireError: unknown, missing or ill-typed ones."""
        return wire.decode(fields, cls)

    @classmethod
    def from_canonical(cls, fields: bytes) -> Self:
        """Read a query's canonical form, with read-only arrays (WireError: any other form).

        The last two are cached: in one process every client's gate reads the same query.
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
    if isinstance(value, float | int | str):  # the most frequent types
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
    """A request to store something at the client; releases nothing, not even whether it succeeded.

    It costs nothing, and is allowed by a policy's ``local`` list. It takes effect after its ledger
    row is durable, and only once, even if it is sent repeatedly.
    """

    @final
    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return nothing, after :meth:`check`."""
        self.check(schema)
        return {}

    @final
    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Return nothing."""
        return {}

    def check(self, schema: Schema) -> None:
        """Check the query's own values against the schema, without data (QueryError)."""

    @abstractmethod
    def take_effect(self, view: LocalView) -> None:
        """Work on the records and the shelf; exceptions are reported only to the owner."""


class CohortQuery(Query):
    """A query to the individuals of a cohort; each queried one gives one column of the answer."""

    linear: ClassVar[bool] = False

    def fits(self, records: Any) -> bool:
        """Whether the query is for such records, judged by their public facts only."""
        return True

    @abstractmethod
    def asked(self, people: int) -> np.ndarray:
        """Return who is queried: distinct positions in the cohort; public (QueryError: a cohort of another size)."""

    def unhashed(self) -> tuple[CohortQuery, np.ndarray] | None:
        """Return the query whose bits are hashed to these answers, with the hash, or None.

        An individual sets at most one bit of that query. The hash is whether that bit sets the
        answer to this query, shape (the other's bits, individuals queried).
        """
        return None
