"""Linear equations in the records, read from a transcript.

A query says itself what each record adds to its answer (``Query.contribution``,
``Query.equations``), so that any learner's answers are read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.attacks.base import PublicSchema, Table, question_of, sound_parts
from privfed.errors import PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import TranscriptEntry
from privfed.questions.query import Equations, Query, View

#: How far exact numbers are trusted, as a share of the most that a record adds to a cell.
EXACT = 1e-3
STATED = 1e-4  #: The same where a question states an error of its own


@dataclass(frozen=True, eq=False)
class LinearEquations:
    """One part's visible cells in standard deviations: ``told`` = sum over records of ``added``.

    ``added`` has shape (records, cells); ``exact`` if without noise.
    """

    added: np.ndarray
    told: np.ndarray
    exact: bool


def known_schema(schema: PublicSchema | None, table: Table) -> Any:
    """The public data dictionary, or the one that the records are encoded to."""
    return table.schema if schema is None else schema


def linear_equations(entry: TranscriptEntry, view: View) -> Iterator[LinearEquations]:
    """A release's equations; nothing if nobody knows how to read it."""
    parts = sound_parts(entry)
    for name, equations in equations_of(entry, view).items():
        part = parts[name]
        seen = part.visible
        error = np.broadcast_to(equations.error, part.units.shape)[seen]
        yield from _told(equations.added[:, seen], np.asarray(equations.told)[seen], error, part)


def integer_sums(entry: TranscriptEntry, view: View) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A release's exact sums as integers, in grid units, part by part.

    Yields what each record adds, shape (cells, records), and the sums, shape (cells,).
    """
    asked = question_of(entry)
    if asked is None or not asked.linear or type(asked).equations is not Query.equations:
        return
    parts = sound_parts(entry)
    for name, equations in equations_of(entry, view).items():
        part = parts[name]
        seen = part.visible
        added, told = np.asarray(equations.added)[:, seen].T, part.units[seen]
        whole = np.abs(added).max(initial=0.0) < 2**53 and (added == np.rint(added)).all()
        if part.noise is None and told.dtype.kind in "biu" and whole:
            yield added.astype(np.int64), told.astype(np.int64)


def sample_equations(entry: TranscriptEntry, view: View) -> Iterator[tuple[str, LinearEquations]]:
    """A release's equations about samples of the records, each with the name of its draw."""
    asked, parts = question_of(entry), sound_parts(entry)
    if asked is None or type(asked).drawn is Query.drawn:
        return
    try:
        declared = asked.parts(view.schema)
    except PrivfedError:  # written for another schema
        return
    for each in asked.drawn(view):
        part = parts.get(each.part)
        if part is not None and declared[each.part].admits(part.units.shape):
            hidden = np.zeros(part.units.shape, bool) if part.mask is None else part.mask
            seen = ~hidden.ravel()[each.cells]
            told = part.units.ravel()[each.cells[seen]]
            for one in _told(each.added[:, seen], told, np.zeros(len(told)), part):
                yield each.draw, one


def _told(
    added: np.ndarray, told: np.ndarray, error: np.ndarray, part: ReleasedPart
) -> Iterator[LinearEquations]:
    """The cells that some record may add to, in standard deviations."""
    added = np.asarray(added, float)
    most = np.abs(added).max(axis=0, initial=0.0)
    noise = 0.0 if part.noise is None else part.noise.std
    deviation = noise + error + np.where(error > 0, STATED, EXACT) * most
    counted = most > 0
    deviation, told = deviation[counted], np.asarray(told, float)[counted]
    if len(told):
        yield LinearEquations(added[:, counted] / deviation, told / deviation, part.noise is None)


def equations_of(entry: TranscriptEntry, view: View) -> dict[str, Equations]:
    """A release's equations by part, if the query is known and the answer has its shape."""
    asked, parts = question_of(entry), sound_parts(entry)
    if asked is None or not parts:
        return {}
    try:
        declared = asked.parts(view.schema)
    except PrivfedError:  # written for another schema
        return {}
    fitting = {
        name: part.units
        for name, part in parts.items()
        if name in declared and declared[name].admits(part.units.shape)
    }
    if len(fitting) < len(declared):
        fitting = {name: units for name, units in fitting.items() if declared[name].type.adds_up}
    return dict(asked.equations(fitting, view)) if fitting else {}
