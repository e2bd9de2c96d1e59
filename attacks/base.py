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
from privfed.errors import InputError, PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import Unknown
from privfed.questions import plugins
from privfed.questions.part import Relation
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
        """What it is called."""

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

    Without the truth it reports what it claims to have found; with it, how much of that is right.
    """

    name: ClassVar[str]  #: What studies and reports call it
    question: ClassVar[str]  #: What it tries, in one plain sentence
    #: The kinds of release that it reads; empty for every kind.
    kinds: ClassVar[tuple[str, ...]] = ()
    #: Which of the regulators' three risks it measures, and what a success means for a person.
    risk: ClassVar[Risk] = ""
    harm: ClassVar[str] = ""
    controls: ClassVar[bool] = False  #: Whether it compares with a client's held-out records
    #: What one step between neighbours is by the owners' policy, which is public; a study sets it.
    relation: Relation = "add-or-remove"
    #: Whose eyes it sees with: the server's, or those of the data owner of this name (:mod:`.viewpoint`)
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
            transcript: what left, of all clients.
            truth: the raw records by client, to score by; None if nobody has them.
            schema: the public data dictionary, which sharpens some attacks.

        Returns:
            one finding for each metric; an empty list if there is nothing to work on.
        """

    def findings(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """What :meth:`run` found (TypeError: it gave something else, or what cannot be written down)."""
        told = self.run(transcript, truth, schema)
        if not isinstance(told, list) or not all(isinstance(each, Finding) for each in told):
            raise TypeError(
                f"attack {self.name!r}: run gives no list of findings; write return [...]"
            )
        json.dumps([each.to_dict() for each in told], default=methodcaller("tolist"), skipkeys=True)
        return told

    def unfinished(self) -> Finding:
        """The finding of an attack that ran out of time or work before it found anything: no pass."""
        bounds = self.bounds or Deadline(self.time_limit)
        more = f"; it takes {bounds.work:.0e} at least" if bounds.work > bounds.max_work else ""
        return self.finding(
            "findings before the time was up",
            0,
            partial=f"none {bounds}{more}",
            simulation=False,
        )

    def failure(self, error: Exception) -> Finding:
        """The finding of an attack that ended with an error, told by its kind, for its text may hold data: no pass."""
        kind = type(error).__name__
        told = {"partial": f"it failed with {kind}", "detail": {FAILED: kind}}
        return self.finding("findings before it failed", 0, **told, simulation=False)

    def incomparable(self, *, drawn: bool) -> Finding:
        """The finding of an attack on records that no others can be compared with: no pass.

        ``drawn``: whether all that is read of an owner depends on one draw, of noise or of secret coins.
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
        told = {"risk": self.risk, "harm": self.harm} | figures
        return Finding(self.name, self.question, metric, value, **told)


def question_of(entry: TranscriptEntry) -> Query | None:
    """The query behind an entry, from its public values; None if unknown or unreadable."""
    return _question(entry.kind, entry.fields)


@lru_cache(maxsize=32)
def _question(kind: str, fields: bytes) -> Query | None:
    if kind not in plugins.available("queries"):
        return None
    try:
        asked: Query = plugins.load("queries", kind).from_fields(fields)
    except (PrivfedError, TypeError, ValueError):  # a foreign transcript may hold anything
        return None
    return asked


def exact_parts(entry: TranscriptEntry) -> dict[str, ReleasedPart]:
    """The parts of a release that left without noise of a law, by name; what a mechanism draws by itself has none."""
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
