"""Linear equations in the records, read from a transcript.

A query states what each record adds to its answer (``Query.contribution``,
``Query.equations``), so that any learner's answers can be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.attacks.base import (
    PublicSchema,
    Table,
    declared_parts,
    fitting_parts,
    question_of,
    sound_parts,
)
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import TranscriptEntry
from privfed.questions.query import Equations, Query, View

#: Error assumed of exact numbers, as a fraction of the most that a record adds to a cell.
EXACT = 1e-3
STATED = 1e-4  #: The same if the query states an error of its own


@dataclass(frozen=True, eq=False)
class LinearEquations:
    """One part's visible cells in standard deviations: ``released`` = sum over records of ``added``.

    ``added`` has shape (records, cells); ``exact`` if without noise.
    """

    added: np.ndarray
    released: np.ndarray
    exact: bool


def known_schema(schema: PublicSchema | None, table: Table) -> Any:
    """The public data dictionary, or the one that the records are encoded to."""
    return table.schema if schema is None else schema


def linear_equations(entry: TranscriptEntry, view: View) -> Iterator[LinearEquations]:
    """Yield a release's equations; nothing if they are unknown."""
    parts = sound_parts(entry)
    for name, equations in equations_of(entry, view).items():
        part = parts[name]
        seen = part.visible
        error = np.broadcast_to(equations.error, part.units.shape)[seen]
        yield from _scaled(equations.added[:, seen], np.asarray(equations.told)[seen], error, part)


def integer_sums(entry: TranscriptEntry, view: View) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a release's exact sums as integers, in grid units, part by part.

    As what each record adds, shape (cells, records), and the sums, shape (cells,).
    """
    query = question_of(entry)
    if query is None or not query.linear or type(query).equations is not Query.equations:
        return
    parts = sound_parts(entry)
    for name, equations in equations_of(entry, view).items():
        part = parts[name]
        seen = part.visible
        added, released = np.asarray(equations.added)[:, seen].T, part.units[seen]
        integers = np.abs(added).max(initial=0.0) < 2**53 and (added == np.rint(added)).all()
        if part.noise is None and released.dtype.kind in "biu" and integers:
            yield added.astype(np.int64), released.astype(np.int64)


def sample_equations(entry: TranscriptEntry, view: View) -> Iterator[tuple[str, LinearEquations]]:
    """Yield a release's equations for samples of the records, each with the name of its draw."""
    query = question_of(entry)
    declared = declared_parts(query, view.schema)
    if query is None or not declared or type(query).drawn is Query.drawn:
        return
    parts = fitting_parts(sound_parts(entry), declared)
    for sample in query.drawn(view):
        part = parts.get(sample.part)
        if part is not None:
            hidden = np.zeros(part.units.shape, bool) if part.mask is None else part.mask
            seen = ~hidden.ravel()[sample.cells]
            values = part.units.ravel()[sample.cells[seen]]
            for equations in _scaled(sample.added[:, seen], values, np.zeros(len(values)), part):
                yield sample.draw, equations


def _scaled(
    added: np.ndarray, released: np.ndarray, error: np.ndarray, part: ReleasedPart
) -> Iterator[LinearEquations]:
    """The cells with a nonzero contribution, in standard deviations."""
    added = np.asarray(added, float)
    largest = np.abs(added).max(axis=0, initial=0.0)
    noise = 0.0 if part.noise is None else part.noise.std
    std = noise + error + np.where(error > 0, STATED, EXACT) * largest
    counted = largest > 0
    std, released = std[counted], np.asarray(released, float)[counted]
    if len(released):
        yield LinearEquations(added[:, counted] / std, released / std, part.noise is None)


def equations_of(entry: TranscriptEntry, view: View) -> dict[str, Equations]:
    """A release's equations by part, if the query is known and the answer has its shape."""
    query, parts = question_of(entry), sound_parts(entry)
    if query is None or not parts:
        return {}
    declared = declared_parts(query, view.schema)
    fitting = {name: part.units for name, part in fitting_parts(parts, declared).items()}
    if len(fitting) < len(declared):
        fitting = {name: units for name, units in fitting.items() if declared[name].type.adds_up}
    return dict(query.equations(fitting, view)) if fitting else {}
