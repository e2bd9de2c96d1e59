"""What a server may ask: frozen public values, and what they can make a client say."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from privfed import wire
from privfed.part import Part
from privfed.records import Records
from privfed.schema import Schema


@dataclass(frozen=True, eq=False)
class View:
    """What a query sees at a client.

    Args:
        records: the owner's records, already clipped to the schema.
        schema: the public data dictionary.
        secret: a durable secret of the client; never leaves it.
        cache: results worth keeping between queries; may vanish at any time.
        shelf: where a local effect keeps what never leaves; no other query reads it.
    """

    records: Any
    schema: Schema
    secret: bytes = b""
    cache: MutableMapping[Any, Any] = field(default_factory=dict)
    shelf: MutableMapping[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> Records:
        """The records as a table; an error where they are something else."""
        if not isinstance(self.records, Records):
            raise TypeError("this query needs tabular records")
        return self.records

    def rng(self, label: str) -> np.random.Generator:
        """Give the client's own secret, repeatable randomness for a purpose (a bootstrap, say)."""
        seed = hashlib.sha256(self.secret + b"\x00" + label.encode()).digest()
        return np.random.default_rng(np.frombuffer(seed, dtype=np.uint32))


class Query(ABC):
    """A question: a frozen dataclass of public values.

    ``evaluate`` is pure in (records, query, client secret): the query carries the tree or the state,
    so that it can be asked again, of another client, or after a restart.
    """

    #: What a policy's line names, such as ``"fuzzy_tree.level"``.
    kind: ClassVar[str]

    @abstractmethod
    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Say, without data, all that can leave; an empty mapping is a local effect.

        Raises:
            QueryError: the query's own values make no sense (false partition, unknown feature).
        """

    @abstractmethod
    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute every part from the records: whole grid units, or floats for values."""

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mark the cells that would give a record away; a mask for each part that has any.

        Args:
            exact: what :meth:`evaluate` gave.
            view: the records again, for what the parts do not show.
            strict: whether to mark also what could be used to subtract such a cell.
        """
        return {}

    @cached_property
    def fields(self) -> bytes:
        """The query's public values as deterministic bytes, in the types that it declares."""
        return wire.encode(self.from_fields(wire.encode(self)))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the kind and the public values."""
        return wire.digest(wire.encode({"kind": self.kind, "fields": self.fields}))

    @classmethod
    def from_fields(cls, fields: bytes) -> Self:
        """Read the query's public values; unknown, missing or ill-typed ones are a WireError."""
        return wire.decode(fields, cls)


class CohortQuery(Query):
    """A question to the individuals of a cohort: each asked one gives one column of the answer."""

    def fits(self, records: Any) -> bool:
        """Whether it was written for such records, by public facts of theirs alone."""
        return True

    @abstractmethod
    def asked(self, people: int) -> np.ndarray:
        """Who is asked: positions in a cohort of so many individuals, each once; public.

        Raises:
            QueryError: the question is meant for a cohort of another size.
        """
