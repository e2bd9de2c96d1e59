"""A ledger as one linear system: what each point adds to each released number.

A query states what each record contributes. Evaluated at points of the data dictionary, or on a list of
candidates, that is the row of every released number, of any release, kind or study.
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

#: Most points of a data dictionary that are enumerated, and most cells of one release.
POINTS, CELLS = 1024, 20_000
ADDED = 1e8  #: Most cells of one release times points
_BY_ROW = ("design", "answers", "deviations", "counts", "laplace")  #: Arrays of a system, by row


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
    unread: int = 0  #: numbers that were left out as too many

    def __len__(self) -> int:
        return len(self.answers)

    def only(self, kept: np.ndarray) -> LinearSystem:
        """Some of the rows, by a mask or by indices."""
        indices = np.arange(len(self))[kept]
        arrays: dict[str, Any] = {name: getattr(self, name)[indices] for name in _BY_ROW}
        return LinearSystem(**arrays, names=tuple(self.names[index] for index in indices))

    @property
    def exact(self) -> np.ndarray:
        """Which rows left without noise."""
        return np.asarray(self.deviations == 0)


def rows_of(
    transcript: Transcript, points: Table, *, max_rows: int, deadline: Deadline
) -> LinearSystem:
    """Read every number that adds up over records, at most ``max_rows`` and until the time is up.

    Masked cells, text, non-finite numbers and unknown kinds are left out. The columns are the
    contributions of ``points``.
    """
    view, unread = View(points, points.schema), 0
    read: list[LinearSystem] = []
    entries, known = list(transcript), dict[tuple[str, bytes], Mapping[str, np.ndarray]]()
    for index in deadline.range(len(entries)):
        entry = entries[index]
        key = (entry.kind, entry.fields)
        if key not in known:
            cells = sum(part.units.size for part in entry.release.parts.values())
            if not deadline.spend(float(cells * len(points.x))):
                break
            known[key] = _added(entry, view)
        parts = (_system(p, known[key], index, name) for name, p in entry.release.parts.items())
        read += [rows for rows in parts if rows is not None]
        unread += _n_additive(entry) if _too_wide(entry, view) else 0
        if sum(map(len, read)) >= max_rows:
            unread += sum(map(len, read)) - max_rows + sum(map(_n_additive, entries[index + 1 :]))
            break
    rows = stack_systems(read, len(points.x)).only(np.arange(sum(map(len, read))) < max_rows)
    return replace(rows, unread=unread)


def stack_systems(systems: Sequence[LinearSystem], points: int) -> LinearSystem:
    """Stack systems vertically."""
    empty = np.empty(0)
    none = empty.astype(bool)
    base = LinearSystem(np.empty((0, points)), empty, empty, none, none, ())
    stacked = [base, *systems]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(rows, name) for rows in stacked]) for name in _BY_ROW
    }
    return LinearSystem(**arrays, names=tuple(name for rows in stacked for name in rows.names))


def _added(entry: TranscriptEntry, view: View) -> Mapping[str, np.ndarray]:
    """What each point contributes, by part; empty if unknown."""
    query = question_of(entry)
    if query is None or not _n_additive(entry) or _too_wide(entry, view):
        return {}
    try:
        return query.contribution(view)
    except (PrivfedError, AttributeError, LookupError, TypeError, ValueError):
        return {}  # a question about records of another kind


def _n_additive(entry: TranscriptEntry) -> int:
    """Count the numbers of a release that add up over records; 0 if the query is unknown."""
    query = question_of(entry)
    sizes = (part.units.size for part in entry.release.parts.values() if part.type.adds_up)
    return sum(sizes) if query is not None and query.linear else 0


def _too_wide(entry: TranscriptEntry, view: View) -> bool:
    """Whether a release has too many cells for the contribution of each point."""
    return _n_additive(entry) > min(CELLS, ADDED / max(len(view.table), 1))


def _system(
    part: ReleasedPart, added: Mapping[str, np.ndarray], index: int, name: str
) -> LinearSystem | None:
    values = finite_numbers(part)
    known = part.noise is None or part.noise.additive
    if values is None or not known or name not in added or added[name].shape[1:] != values.shape:
        return None
    flat, grid = values.ravel(), float(part.grid)
    shown = np.flatnonzero(~np.isnan(flat))
    design = added[name].reshape(len(added[name]), -1).T[shown].astype(float) * grid
    off = 0.0 if part.noise is None else part.noise.std * grid
    std, counts = np.full(len(shown), off), np.full(len(shown), part.type == "counts")
    laplace = np.full(len(shown), isinstance(part.noise, DiscreteLaplace))
    names = tuple((index, name, int(cell)) for cell in shown)
    return LinearSystem(design, flat[shown], std, counts, laplace, names)


def gram_cells(
    transcript: Transcript, points: Table, *, deadline: Deadline
) -> dict[int, list[tuple[np.ndarray, np.ndarray]]]:
    """Exact parts that are normal equations: sums of w c c' over a cell's records, c with a leading 1.

    They are recognised by what each record adds: a matrix of rank one, whose first row over its
    corner is c.

    Returns:
        by the number of columns, for each part its cells, shape (cells, columns, columns), and the
        row of each point, NaN if it adds nothing, shape (points, columns).
    """
    view = View(points, points.schema)
    by_width: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for entry in deadline.each(transcript):
        square = {
            name: part
            for name, part in entry.release.parts.items()
            if part.noise is None and part.units.ndim > 1 and len(set(part.units.shape[-2:])) == 1
        }
        added = _added(entry, view) if square else {}
        for name, part in square.items():
            values, columns = finite_numbers(part), part.units.shape[-1]
            if values is None or name not in added or added[name].shape[1:] != values.shape:
                continue
            cells = values.reshape(-1, columns, columns)
            contributions = added[name].reshape(len(added[name]), *cells.shape) * float(part.grid)
            rows = _rows_of_rank_one(contributions)
            if rows is not None and columns > 1:
                shown = ~np.isnan(cells).any(axis=(1, 2))
                by_width.setdefault(columns, []).append((cells[shown], rows))
    return by_width


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
    studies = transcripts.values() if isinstance(transcripts, Mapping) else transcripts
    return Transcript(tuple(entry for transcript in studies for entry in transcript))


def at_points(example: Table, *, x: np.ndarray, y: np.ndarray | None) -> Table:
    """Records of an example's kind at other points."""
    records: Any = example
    table: Table = replace(records, x=x, y=y, individual=None, clipped=0)
    return table


def integer_points(columns: Sequence[PublicColumn], max_points: int) -> np.ndarray | None:
    """Every point of integer columns, shape (points, columns); None if others, or above ``max_points``."""
    bounds = [column.bounds for column in columns]
    if any(column.kind == "number" for column in columns):
        return None
    if np.prod([np.ceil(high - low + 1) for low, high in bounds]) > max_points:
        return None
    return np.array(list(product(*(np.arange(low, high + 1) for low, high in bounds))), float)


def whole_domain(example: Table, schema: PublicSchema) -> Table | None:
    """Every possible record, or None above :data:`POINTS`."""
    points = integer_points(_columns(schema), POINTS)
    return None if points is None else as_table(example, points)


def drawn_points(example: Table, schema: PublicSchema, *, number: int) -> Table:
    """Points drawn uniformly over the data dictionary's box."""
    rng, drawn = np.random.default_rng(0), []
    for column in _columns(schema):
        low, high = column.bounds
        if column.kind == "number":
            drawn.append(rng.uniform(low, high, number))
        else:
            drawn.append(rng.integers(round(low), round(high) + 1, number).astype(float))
    return as_table(example, np.column_stack(drawn))


def _columns(schema: PublicSchema) -> list[PublicColumn]:
    return [*schema.features, *([] if schema.target is None else [schema.target])]


def as_table(example: Table, rows: np.ndarray) -> Table:
    """Split rows into features and perhaps the target, as records of an example's kind."""
    width = example.x.shape[1]
    y = rows[:, width] if rows.shape[1] > width else None
    return at_points(example, x=rows[:, :width], y=y)
