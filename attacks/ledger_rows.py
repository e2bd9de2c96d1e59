"""A whole ledger as one system of linear rows: what each released number adds up, point by point.

A question says what it would give about each record alone. Put to points of the data dictionary, or to
a list of people who may be in the data, that is the row of every released number, whichever release,
kind or study it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from privfed.attacks.base import PublicSchema, Table
from privfed.attacks.clock import Clock
from privfed.attacks.reading import finite_numbers, known_question
from privfed.errors import PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.query import View

#: Most points of a data dictionary that are looked at one by one, and most cells of one release.
POINTS, CELLS = 1024, 20_000
#: Laws of noise whose deviation says how far a number is off.
LAWS = ("laplace", "gaussian")


@dataclass(frozen=True, eq=False)
class Rows:
    """Released numbers, with what each point would add.

    Args:
        design: shape (rows, points).
        answers: shape (rows,), in the parts' own units.
        deviations: of each number's noise, 0 where it is exact; shape (rows,).
        counts: which rows count records, bool, shape (rows,).
        names: of each row: the release's place, the part's name, the cell's place.
    """

    design: np.ndarray
    answers: np.ndarray
    deviations: np.ndarray
    counts: np.ndarray
    names: tuple[tuple[int, str, int], ...]

    def __len__(self) -> int:
        return len(self.answers)

    def only(self, kept: np.ndarray) -> Rows:
        """Some of the rows, by a mask or by their places."""
        places = np.arange(len(self))[kept]
        return Rows(
            self.design[places],
            self.answers[places],
            self.deviations[places],
            self.counts[places],
            tuple(self.names[place] for place in places),
        )

    @property
    def exact(self) -> np.ndarray:
        """Which rows left without noise."""
        return np.asarray(self.deviations == 0)


def rows_of(transcript: Transcript, points: Table, *, most: int, clock: Clock) -> Rows:
    """Read every number that adds up over records, until there are enough or the time is up.

    Masked cells, text, numbers that are not finite and questions of unknown kinds are left out.

    Args:
        transcript: of one client; of several studies, one after another.
        points: records whose contributions the columns are.
        most: rows.
        clock: for how long.
    """
    view = View(points, points.schema)
    found: list[Rows] = []
    entries, known = list(transcript), dict[tuple[str, bytes], Mapping[str, np.ndarray]]()
    for place in clock.timely(len(entries)):
        entry = entries[place]
        asked = (entry.kind, entry.fields)
        if asked not in known:
            known[asked] = _added(entry, view)
        told = (_part(p, known[asked], place, name) for name, p in entry.release.parts.items())
        found += [rows for rows in told if rows is not None]
        if sum(map(len, found)) >= most:
            break
    return joined(found, len(points.x)).only(np.arange(sum(map(len, found))) < most)


def joined(several: Sequence[Rows], points: int) -> Rows:
    """Rows one below the other."""
    empty = np.empty(0)
    start = Rows(np.empty((0, points)), empty, empty, empty.astype(bool), ())
    whole = [start, *several]
    return Rows(
        np.concatenate([rows.design for rows in whole]),
        np.concatenate([rows.answers for rows in whole]),
        np.concatenate([rows.deviations for rows in whole]),
        np.concatenate([rows.counts for rows in whole]),
        tuple(name for rows in whole for name in rows.names),
    )


def _added(entry: TranscriptEntry, view: View) -> Mapping[str, np.ndarray]:
    """What each point alone would give, by part; nothing where that is not known."""
    asked = known_question(entry)
    sizes = (part.units.size for part in entry.release.parts.values() if part.type.adds_up)
    if asked is None or not asked.linear or not 0 < sum(sizes) <= CELLS:
        return {}
    try:
        return asked.contribution(view)
    except (PrivfedError, AttributeError, LookupError, TypeError, ValueError):
        return {}  # a question about records of another kind


def _part(
    part: ReleasedPart, added: Mapping[str, np.ndarray], place: int, name: str
) -> Rows | None:
    """The cells of a part that were shown, in the part's own units."""
    values = finite_numbers(part)
    known = part.noise is None or part.noise.law in LAWS
    if values is None or not known or name not in added or added[name].shape[1:] != values.shape:
        return None
    flat, grid = values.ravel(), float(part.grid)
    shown = np.flatnonzero(~np.isnan(flat))
    design = added[name].reshape(len(added[name]), -1).T[shown].astype(float) * grid
    off = 0.0 if part.noise is None else part.noise.deviation * grid
    spread, counts = np.full(len(shown), off), np.full(len(shown), part.type == "counts")
    names = tuple((place, name, int(cell)) for cell in shown)
    return Rows(design, flat[shown], spread, counts, names)


def gram_cells(
    transcript: Transcript, points: Table, *, clock: Clock
) -> dict[int, list[tuple[np.ndarray, np.ndarray]]]:
    """Exact parts that are normal equations: sums of w c c' over a cell's records, c with a leading 1.

    That they are shows in what each record adds: a matrix of rank one, its first row over its corner c.

    Returns:
        by the number of columns, for each part its cells, shape (cells, columns, columns), and the row
        of each point, NaN where it adds nothing, shape (points, columns).
    """
    view = View(points, points.schema)
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    entries = list(transcript)
    for place in clock.timely(len(entries)):
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
    """The row c of each point that adds w c c' to cells, or none where points add anything else."""
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
    """Records at other points than an example's, of the same kind."""
    made: Any = example
    table: Table = replace(made, x=x, y=y, individual=None, clipped=0)
    return table


def whole_domain(example: Table, schema: PublicSchema) -> Table | None:
    """Every point that a record can lie at, where columns are whole and these are few; or none."""
    columns = [*schema.features, *([] if schema.target is None else [schema.target])]
    levels = []
    for column in columns:
        low, high = column.bounds
        if column.kind == "number" or high - low >= POINTS:
            return None
        levels.append(np.arange(low, high + 1))
    if np.prod([float(len(level)) for level in levels]) > POINTS:
        return None
    points = np.array(list(product(*levels)), dtype=float)
    if schema.target is None:
        return at_points(example, x=points, y=None)
    return at_points(example, x=points[:, :-1], y=points[:, -1])


def drawn_points(example: Table, schema: PublicSchema, *, number: int) -> Table:
    """Points drawn evenly over the data dictionary's box."""
    rng = np.random.default_rng(0)
    columns = [*schema.features, *([] if schema.target is None else [schema.target])]
    drawn = []
    for column in columns:
        low, high = column.bounds
        whole = column.kind != "number"
        drawn.append(
            rng.integers(round(low), round(high) + 1, number).astype(float)
            if whole
            else rng.uniform(low, high, number)
        )
    points = np.column_stack(drawn)
    if schema.target is None:
        return at_points(example, x=points, y=None)
    return at_points(example, x=points[:, :-1], y=points[:, -1])
