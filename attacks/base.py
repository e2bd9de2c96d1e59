"""The base class of attacks: each reads a transcript; the truth only scores it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import methodcaller
from typing import Any, ClassVar, Protocol

import numpy as np

from privfed.attacks.deadline import MAX_WORK, Deadline
from privfed.attacks.finding import FAILED, Finding, Risk
from privfed.errors import InputError, PluginError, PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import Unknown
from privfed.questions import plugins
from privfed.questions.part import Part, Relation
from privfed.questions.query import Query


class Table(Protocol):
    """One client's raw records, for scoring (``privfed.tables.records.Records`` is one)."""

    @property
    def x(self) -> np.ndarray:
        """Encoded features, shape (records, features)."""

    @property
    def y(self) -> np.ndarray | None:
        """Target, shape (records,), or None."""

    @property
    def schema(self) -> Any:
        """The public data dictionary that they are encoded to."""


def whole(table: Table) -> np.ndarray:
    """Features and target of each record, if there is one."""
    return np.asarray(table.x if table.y is None else np.column_stack([table.x, table.y]))


class PublicColumn(Protocol):
    """One public column of the data dictionary (``privfed.tables.schema.Column`` is one)."""

    @property
    def name(self) -> str:
        """Name of the column."""

    @property
    def kind(self) -> str:
        """``number``, ``integer`` or ``category``."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of the encoded values."""


class PublicSchema(Protocol):
    """The public data dictionary (``privfed.tables.schema.Schema`` is one)."""

    @property
    def features(self) -> Sequence[PublicColumn]:
        """The features, in the order of the records' columns."""

    @property
    def target(self) -> PublicColumn | None:
        """The target, or None."""


Truth = Mapping[str, Table]  #: The raw records by client
#: After a client's name, the name of its records that no release is of: a control, where the truth holds them.
HELD_OUT = ", held out"


class Attack(ABC):
    """One question put to a transcript, from releases and public values alone.

    Without the truth it reports its claims; with it, how many of them are correct.
    """

    name: ClassVar[str]  #: What studies and reports call it
    question: ClassVar[str]  #: What it tries, in one plain sentence
    #: The kinds of release that it reads; empty for every kind.
    kinds: ClassVar[tuple[str, ...]] = ()
    #: The regulators' risk that it measures, and what a success means for a person.
    risk: ClassVar[Risk] = ""
    harm: ClassVar[str] = ""
    controls: ClassVar[bool] = False  #: Whether it compares with a client's held-out records
    #: Neighbouring relation of the owners' policy, which is public; a study sets it.
    relation: Relation = "add-or-remove"
    #: Attacker: the server (empty), or the data owner of this name (:mod:`.viewpoint`)
    viewpoint: str = ""
    #: Work after which nothing new is begun, in multiply-adds; about a minute on one core.
    max_work: float = MAX_WORK
    bounds: Deadline | None = None  #: What bounds the last run
    time_limit: float | None = None  #: Seconds after which a run begins nothing new

    def __init__(self, *, time_limit: float | None = None) -> None:
        """Prepare an attack that reports partial results after `time_limit` seconds (None: counted work only; InputError)."""
        if time_limit is not None and not time_limit > 0:
            raise InputError(f"attack {self.name!r}: time_limit must be above 0")
        self.time_limit = time_limit

    def check(self, schema: PublicSchema) -> None:  # noqa: B027  # most have nothing to check
        """Check its parameters against a study's columns, before anything is charged (InputError)."""

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether it interprets the numbers of this release: by default of its :attr:`kinds`."""
        return entry.kind in self.kinds

    def attackable(self, transcript: Transcript) -> bool:
        """Whether the transcript holds anything to work on."""
        scans = not self.kinds and type(self).reads is Attack.reads
        return any(scans or self.reads(entry) for entry in transcript)

    @abstractmethod
    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """Attack.

        Args:
            transcript: the releases of all clients.
            truth: the raw records by client, for scoring; None if unknown.
            schema: the public data dictionary, which sharpens some attacks.

        Returns:
            one finding for each metric; an empty list if there is nothing to work on.
        """

    def findings(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """Run the attack (PluginError: :meth:`run` returns something else; TypeError: what JSON cannot hold)."""
        findings = self.run(transcript, truth, schema)
        if not isinstance(findings, list) or not all(isinstance(f, Finding) for f in findings):
            raise PluginError("run gives no list of findings; write return [...]")
        json.dumps([f.to_dict() for f in findings], default=methodcaller("tolist"), skipkeys=True)
        return findings

    def unfinished(self) -> Finding:
        """The finding of an attack that spent its time or work before any result: no pass."""
        bounds = self.bounds or Deadline(self.time_limit)
        more = f"; it takes {bounds.work:.0e} at least" if bounds.work > bounds.max_work else ""
        partial = f"none {bounds}{more}"
        return self.finding("findings before the time was up", 0, partial=partial, simulation=False)

    def failure(self, error: Exception) -> Finding:
        """The finding of an attack that raised an error; no pass.

        Its text, which may hold data of the truth, is repeated only if privfed itself raised it.
        """
        ours = isinstance(error, PrivfedError) and plugins.raised_here(error)
        told = str(error) if ours else plugins.located(error)
        figures = {
            "partial": f"it failed{':' if ours else ' with'} {told}",
            "detail": {FAILED: told},
        }
        return self.finding("findings before it failed", 0, **figures, simulation=False)

    def incomparable(self, *, drawn: bool) -> Finding:
        """The finding of an attack without records to compare with: no pass.

        ``drawn``: whether all releases of an owner depend on one draw, of noise or of secret coins.
        """
        why = (
            "one owner's noise or other randomness is drawn only once, and there is no second owner to compare with"
            if drawn
            else "no records to compare with: there is one owner, and none are held out"
        )
        return self.finding("records compared", 0, partial=why, simulation=False)

    def deadline(self) -> Deadline:
        """The bounds on this run, from now on."""
        self.bounds = Deadline(self.time_limit, self.max_work)
        return self.bounds

    def finding(self, metric: str, value: float, **figures: Any) -> Finding:
        """Build a finding of this attack."""
        fields = {"risk": self.risk, "harm": self.harm} | figures
        return Finding(self.name, self.question, metric, value, **fields)


def question_of(entry: TranscriptEntry) -> Query | None:
    """The query behind an entry, from its public values; None if unknown or unreadable."""
    return _load_query(entry.kind, entry.fields)


@lru_cache(maxsize=32)
def _load_query(kind: str, fields: bytes) -> Query | None:
    if kind not in plugins.available("queries"):
        return None
    try:
        query: Query = plugins.load("queries", kind).from_fields(fields)
    except (PrivfedError, TypeError, ValueError):  # a foreign transcript may hold anything
        return None
    return query


def declared_parts(query: Query | None, schema: Any) -> Mapping[str, Part]:
    """The parts that a query declares; none if it is unknown, or written for another schema."""
    try:
        return {} if query is None else query.parts(schema)
    except PrivfedError:
        return {}


def fitting_parts(
    parts: Mapping[str, ReleasedPart], declared: Mapping[str, Part]
) -> dict[str, ReleasedPart]:
    """The parts of a release that have the declared shape."""
    return {n: p for n, p in parts.items() if n in declared and declared[n].admits(p.units.shape)}


def exact_parts(entry: TranscriptEntry) -> dict[str, ReleasedPart]:
    """The parts of a release without noise of a law, by name; a mechanism's own draw declares none."""
    return {name: part for name, part in entry.release.parts.items() if part.noise is None}


def sound_parts(entry: TranscriptEntry) -> dict[str, ReleasedPart]:
    """The parts of a release that are finite numbers, by name."""
    return {
        name: part
        for name, part in entry.release.parts.items()
        if part.units.dtype.kind in "biuf"
        and np.isfinite(part.units).all()
        and not isinstance(part.noise, Unknown)
    }
