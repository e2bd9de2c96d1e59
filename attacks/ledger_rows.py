"""A whole ledger as one linear system: what each point adds to each released number.

A query says what it would release about each record alone. Put to points of the data dictionary, or
to a list of candidates, that is the row of every released number, of any release, kind or study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from privfed.attacks.base import PublicColumn, PublicSchema, Table, question_of
from privfed.attacks.deadline import Deadline
from privfed.attacks.reading import finite_numbers
from privfed.errors import PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import DiscreteLaplace
from privfed.questions.query import View

#: Most points of a data dictionary that are looked at one by one, and most cells of one release.
POINTS, CELLS = 1024, 20_000
ADDED = 1e8  #: Most cells of one release times points


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """Released numbers in the parts' own units, with what each point would add.

    ``design`` has shape (rows, points); ``deviations`` of the noise are 0 if exact; ``counts``
    marks rows that count records, ``laplace`` those of Laplace noise; ``names`` are (release, part, cell)
    of each row.
    """

    design: np.ndarray
    answers: np.ndarray
    deviations: np.ndarray
    counts: np.ndarray
    laplace: np.ndarray
    names: tuple[tuple[int, str, int], ...]
    unread: int = 0  #: numbers that were left out, for there were too many

    def __len__(self) -> int:
        return len(self.answers)

    def only(self, kept: np.ndarray) -> LinearSystem:
        """Some of the rows, by a mask or by indices."""
        places = np.arange(len(self))[kept]
        return LinearSystem(
            self.design[places],
            self.answers[places],
            self.deviations[places],
            self.counts[places],
            self.laplace[places],
            tuple(self.names[place] for place in places),
        )

    @property
    def exact(self) -> np.ndarray:
        """Which rows left without noise."""
        return np.asarray(self.deviations == 0)


def rows_of(
    transcript: Transcript, points: Table, *, most: int, deadline: Deadline
) -> LinearSystem:
    """Read every number that adds up over records, at most ``most`` and until the time is up.

    Masked cells, text, non-finite numbers and unknown kinds are left out. The columns are the
    contributions of ``points``.
    """
    view, unread = View(points, points.schema), 0
    found: list[LinearSystem] = []
    entries, known = list(transcript), dict[tuple[str, bytes], Mapping[str, np.ndarray]]()
    for place in deadline.range(len(entries)):
        entry = entries[place]
        asked = (entry.kind, entry.fields)
        if asked not in known:
            cells = sum(part.units.size for part in entry.release.parts.values())
            if not deadline.spend(float(cells * len(points.x))):
                break
            known[asked] = _added(entry, view)
        told = (_part(p, known[asked], place, name) for name, p in entry.release.parts.items())
        found += [rows for rows in told if rows is not None]
        unread += _adding(entry) if _too_wide(entry, view) else 0
        if sum(map(len, found)) >= most:
            unread += sum(map(len, found)) - most + sum(map(_adding, entries[place + 1 :]))
            break
    rows = joined(found, len(points.x)).only(np.arange(sum(map(len, found))) < most)
    return replace(rows, unread=unread)


def joined(several: Sequence[LinearSystem], points: int) -> LinearSystem:
    """Systems one below the other."""
    empty = np.empty(0)
    none = empty.astype(bool)
    start = LinearSystem(np.empty((0, points)), empty, empty, none, none, ())
    whole = [start, *several]
    return LinearSystem(
        np.concatenate([rows.design for rows in whole]),
        np.concatenate([rows.answers for rows in whole]),
        np.concatenate([rows.deviations for rows in whole]),
        np.concatenate([rows.counts for rows in whole]),
        np.concatenate([rows.laplace for rows in whole]),
        tuple(name for rows in whole for name in rows.names),
    )


def _added(entry: TranscriptEntry, view: View) -> Mapping[str, np.ndarray]:
    """What each point alone would give, by part; empty if unknown."""
    asked = question_of(entry)
    if asked is None or not _adding(entry) or _too_wide(entry, view):
        return {}
    try:
        return asked.contribution(view)
    except (PrivfedError, AttributeError, LookupError, TypeError, ValueError):
        return {}  # a question about records of another kind


def _adding(entry: TranscriptEntry) -> int:
    """How many numbers of a release add up over records; 0 if nobody knows what they are."""
    asked = question_of(entry)
    sizes = (part.units.size for part in entry.release.parts.values() if part.type.adds_up)
    return sum(sizes) if asked is not None and asked.linear else 0


def _too_wide(entry: TranscriptEntry, view: View) -> bool:
    """Whether a release has too many cells to say what each point adds to all of them."""
    return _adding(entry) > min(CELLS, ADDED / max(len(view.table), 1))


def _part(
    part: ReleasedPart, added: Mapping[str, np.ndarray], place: int, name: str
) -> LinearSystem | None:
    values = finite_numbers(part)
    known = part.noise is None or part.noise.additive
    if values is None or not known or name not in added or added[name].shape[1:] != values.shape:
        return None
    flat, grid = values.ravel(), float(part.grid)
    shown = np.flatnonzero(~np.isnan(flat))
    design = added[name].reshape(len(added[name]), -1).T[shown].astype(float) * grid
    off = 0.0 if part.noise is None else part.noise.std * grid
    spread, counts = np.full(len(shown), off), np.full(len(shown), part.type == "counts")
    laplace = np.full(len(shown), isinstance(part.noise, DiscreteLaplace))
    names = tuple((place, name, int(cell)) for cell in shown)
    return LinearSystem(design, flat[shown], spread, counts, laplace, names)


def gram_cells(
    transcript: Transcript, points: Table, *, deadline: Deadline
) -> dict[int, list[tuple[np.ndarray, np.ndarray]]]:
    """Exact parts that are normal equations: sums of w c c' over a cell's records, c with a leading 1.

    That they are shows in what each record adds: a matrix of rank one, its first row over its
    corner c.

    Returns:
        by the number of columns, for each part its cells, shape (cells, columns, columns), and the
        row of each point, NaN if it adds nothing, shape (points, columns).
    """
    view = View(points, points.schema)
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    entries = list(transcript)
    for place in deadline.range(len(entries)):
        square = {
            name: part
            for name, part in entries[place].release.parts.items()
            if part.noise is None and part.units.ndim > 1 and len(set(part.units.shape[-2:])) == 1
        }
        added = _added(entries[place], view) if square else {}
        for name, part in square.items():
            values, columns = finite_numbers(part), part.units.shape[-1]
            if values is None or name not in added or added[name].shape[1:] != values.shape:
                continue
            cells = values.reshape(-1, columns, columns)
            each = added[name].reshape(len(added[name]), *cells.shape) * float(part.grid)
            rows = _rows_of_rank_one(each)
            if rows is not None and columns > 1:
                shown = ~np.isnan(cells).any(axis=(1, 2))
                found.setdefault(columns, []).append((cells[shown], rows))
    return found


def _rows_of_rank_one(added: np.ndarray) -> np.ndarray | None:
    """The row c of each point that adds w c c' to cells; None if points add anything else."""
    corner = added[:, :, 0, 0]
    strongest = np.argmax(corner, axis=1)
    points = np.arange(len(added))
    top = corner[points, strongest]
    if not (top > 0).any():
        return None
    rows = added[points, strongest, 0] / np.where(top > 0, top, np.nan)[:, None]
    expected = corner[:, :, None, None] * np.einsum("pi,pj->pij", rows, rows)[:, None]
    known = top > 0
    size = np.abs(added[known]).max()
    same = np.abs(added[known] - expected[known]).max() <= 1e-4 * size
    return rows if same and not added[~known].any() else None


def several_studies(transcripts: Mapping[str, Transcript] | Sequence[Transcript]) -> Transcript:
    """The releases of several studies of the same owners, as one transcript."""
    each = transcripts.values() if isinstance(transcripts, Mapping) else transcripts
    return Transcript(tuple(entry for transcript in each for entry in transcript))


def at_points(example: Table, *, x: np.ndarray, y: np.ndarray | None) -> Table:
    """Records of an example's kind at other points."""
    made: Any = example
    table: Table = replace(made, x=x, y=y, individual=None, clipped=0)
    return table


def integer_points(columns: Sequence[PublicColumn], most: int) -> np.ndarray | None:
    """Every point of integer columns, shape (points, columns); None if not so, or above ``most``."""
    bounds = [column.bounds for column in columns]
    if any(column.kind == "number" for column in columns):
        return None
    if np.prod([np.ceil(high - low + 1) for low, high in bounds]) > most:
        return None
    return np.array(list(product(*(np.arange(low, high + 1) for low, high in bounds))), float)


def whole_domain(example: Table, schema: PublicSchema) -> Table | None:
    """Every point that a record can lie at, or None if these are not few."""
    points = integer_points(_columns(schema), POINTS)
    return None if points is None else divided(example, points)


def drawn_points(example: Table, schema: PublicSchema, *, number: int) -> Table:
    """Points drawn uniformly over the data dictionary's box."""
    rng, drawn = np.random.default_rng(0), []
    for column in _columns(schema):
        low, high = column.bounds
        if column.kind == "number":
            drawn.append(rng.uniform(low, high, number))
        else:
            drawn.append(rng.integers(round(low), round(high) + 1, number).astype(float))
    return divided(example, np.column_stack(drawn))


def _columns(schema: PublicSchema) -> list[PublicColumn]:
    return [*schema.features, *([] if schema.target is None else [schema.target])]


def divided(example: Table, rows: np.ndarray) -> Table:
    """Records of an example's kind, of rows of features and perhaps the target."""
    width = example.x.shape[1]
    y = rows[:, width] if rows.shape[1] > width else None
    return at_points(example, x=rows[:, :width], y=y)
