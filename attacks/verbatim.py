"""Verbatim scan for numbers of the raw table in the releases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from privfed.attacks.base import Attack, PublicSchema, Table, Truth, exact_parts, sound_parts, whole
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import POWER, Finding, Risk, Severity
from privfed.errors import WireError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript
from privfed.leaks.reading.digits import NUMBER
from privfed.leaks.shape import Shape

WHOLE_RECORDS = "whole records found in the releases, row by row"  #: A metric
DRAWS = 20  #: Tables drawn to count matches by chance
#: Draws for a small excess, and before a table is reported as disclosed; most cells drawn.
OFTEN, SURE, DRAWN = 200, 1000, 200_000
#: Distinct values that noisy numbers may match beyond chance: twenty draws miss rare matches.
NOISY = 2

#: The matches of one release by form: exact, or on the grid that numbers were truncated to.
Forms = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers that one client released in answers of one kind, sorted."""

    values: np.ndarray  #: released values and numbers inside artifacts
    grids: Mapping[float, np.ndarray]  #: for each grid, the whole units of exact sums

    @cached_property
    def short(self) -> np.ndarray:
        """The values as 32-bit floats."""
        return np.unique(self.values.astype(np.float32))

    @classmethod
    def of(cls, parts: list[ReleasedPart]) -> Numbers:
        """Collect from parts, suppressed cells left out."""
        values = [np.empty(0)]
        grids: dict[float, list[np.ndarray]] = {}
        for part in parts:
            visible = part.units if part.mask is None else part.units[~part.mask]
            if part.type == "artifact" and visible.dtype.kind in "ui":
                values.append(numbers_inside(visible.astype(np.uint8).tobytes()))
            elif part.type != "bits":
                distinct = np.unique(visible)
                values.append(distinct * float(part.grid))
                if part.grid != 1:
                    grids.setdefault(float(part.grid), []).append(distinct)
        merged = {grid: np.unique(np.concatenate(units)) for grid, units in grids.items()}
        kept = np.unique(np.concatenate(values))
        return cls(kept[np.isfinite(kept)], merged)


def numbers_inside(data: bytes) -> np.ndarray:
    """Every number in an artifact's bytes: written as text, or as 64- and 32-bit floats.

    Floats are read at every offset and in both byte orders; those of extreme magnitude, as of most
    arbitrary bytes, are left out.
    """
    text = [float(match) for match in NUMBER.findall(data.decode("latin-1"))]
    arrays = [np.array(text)]
    for kind in ("<f8", ">f8", "<f4", ">f4"):
        width = np.dtype(kind).itemsize
        for offset in range(width):
            usable = (len(data) - offset) // width * width
            if usable > 0:
                arrays.append(np.frombuffer(data[offset : offset + usable], kind).astype(float))
    array = np.concatenate(arrays)
    sane = np.isfinite(array) & ((array == 0) | ((np.abs(array) > 1e-6) & (np.abs(array) < 1e9)))
    return np.asarray(array[sane])


class Verbatim(Attack):
    """Looks for every cell of the raw table among the released numbers of its owner.

    A cell is found if a released number equals it exactly, within one unit in the last place, as a
    32-bit float, or after scaling to [0, 1] or [-1/2, 1/2] by the public bounds (the schema's, or
    the query's; truncated to the release's own grid). Cells at a bound are left out.

    The baseline is the number of matches by chance. Exact numbers are compared with independent tables: drawn
    from the other clients' columns, and from each column's own distribution, decimals and steps
    (:mod:`privfed.leaks`), whichever gives more. Noisy numbers are shifted to one of their nearest neighbours,
    which are as likely under noise, and compared with the same table: a leak in spite of the noise would no longer
    be found. One number may match many people with the same value; so a scan beats its baseline only if it does
    both by cells and by distinct values.

    Rows of exact tables are compared with whole records too: if every record of every client that
    answered is among them, and chance never gives them all, the table was disclosed.
    """

    name: ClassVar[str] = "verbatim"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "values of a record were released unchanged"
    question: ClassVar[str] = "Which raw values appear unchanged in the releases?"

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: findings for each kind of release, exact and noisy numbers apart.

        There are none without the truth.
        """
        if truth is None:
            return []
        deadline = self.deadline()
        kinds = sorted({entry.kind for entry in transcript if entry.release.parts})
        findings = [self._rows(transcript.of(kind), kind, truth) for kind in kinds]
        findings += [
            self._scan(transcript.of(kind), kind, noisy, truth, schema, deadline)
            for kind in kinds
            for noisy in (False, True)
        ]
        return [finding for finding in findings if finding is not None]

    def _scan(
        self,
        transcript: Transcript,
        kind: str,
        noisy: bool,
        truth: Truth,
        schema: PublicSchema | None,
        deadline: Deadline,
    ) -> Finding | None:
        """The finding of one kind; a significant one is repeated with more draws if they are cheap."""
        clients = [client for client in transcript.clients if client in truth]
        args = transcript, noisy, {name: truth[name] for name in clients}, truth, schema, deadline
        tally, read = _tally(*args, DRAWS)
        if not tally.cells:
            return None
        partial = deadline.partial(read, len(clients), "clients")
        finding = self._finding(kind, noisy, tally, partial)
        draws = n_draws(tally.cells)
        if finding.severity != Severity.SOME or draws == DRAWS:
            return finding
        tally, n_read = _tally(*args, draws)
        return self._finding(kind, noisy, tally, partial) if n_read == read else finding

    def _rows(self, transcript: Transcript, kind: str, truth: Truth) -> Finding | None:
        """The finding of whole records that are rows of an exact table; None without any."""
        released = [
            (client, rows)
            for client in transcript.clients
            if client in truth and len(rows := _tables(transcript.of(client=client), truth[client]))
        ]
        hits, by_chance = rows_found(released, truth, generators(DRAWS))
        if not hits:
            return None
        records = sum(len(truth[client].x) for client in transcript.clients if client in truth)
        if severity(hits, by_chance, 0) != Severity.BREACH:
            draws = n_draws(records, SURE if hits == records else OFTEN)
            hits, by_chance = rows_found(released, truth, generators(draws))
        grade = severity(hits, by_chance, 0)
        if hits == records > by_chance.max():
            # the whole table was disclosed, whatever the matches by chance
            grade = Severity.BREACH
        return self.finding(
            WHOLE_RECORDS,
            hits,
            of=records,
            baseline=float(by_chance.mean()),
            detectable=min_detectable(by_chance, 0),
            releases=(kind,),
            severity=grade,
        )

    def _finding(self, kind: str, noisy: bool, tally: Tally, partial: str) -> Finding:
        where = "among noisy numbers" if noisy else "in the releases"
        hits, margin = tally.forms.get("any", 0), NOISY if noisy else 0
        both = (
            severity(count, tally.by_chance[:, index], margin)
            for index, count in enumerate((hits, tally.values))
        )
        return self.finding(
            f"cells of the raw table found {where}",
            hits,
            of=tally.cells,
            baseline=float(tally.by_chance[:, 0].mean()),
            detectable=min_detectable(tally.by_chance[:, 0], margin),
            releases=(kind,),
            severity=min(both, key=list(Severity).index),
            detail={
                "forms": dict(tally.forms),
                "different values": tally.values,
                "different values by chance": float(tally.by_chance[:, 1].mean()),
            },
            partial=partial,
        )


def _tally(
    transcript: Transcript,
    noisy: bool,
    owners: Truth,
    truth: Truth,
    schema: PublicSchema | None,
    deadline: Deadline,
    draws: int,
) -> tuple[Tally, int]:
    """Count matches of owners' columns among their exact or noisy numbers, and the owners read in time."""
    tally, rngs, read = Tally(by_chance=np.zeros((draws, 2))), generators(draws), 0
    for client in owners:
        if deadline.over:
            break
        read += 1
        entries = transcript.of(client=client)
        released = [part for entry in entries for part in sound_parts(entry).values()]
        parts = [part for part in released if (part.noise is not None) == noisy]
        if not parts:
            continue
        numbers = Numbers.of(parts)
        if not len(numbers.values):
            continue
        shifted = [Numbers.of([_shifted(p, rng) for p in parts]) for rng in rngs if noisy]
        for column in _columns(truth, client, entries, schema):
            by_chance = (
                [column.count_matches(others) for others in shifted]
                if noisy
                else column.by_chance(numbers, rngs)
            )
            tally.add(column, numbers, by_chance)
    return tally, read


def n_draws(cells: int, max_draws: int = OFTEN) -> int:
    """Number of draws for rare matches: as many as are cheap, at least :data:`DRAWS`."""
    return max(DRAWS, min(max_draws, DRAWN // max(cells, 1)))


def generators(draws: int) -> list[np.random.Generator]:
    """A random generator for each draw, so that a longer run begins with the draws of a shorter one."""
    return [np.random.default_rng([0, draw]) for draw in range(draws)]


def rows_found(
    released: Sequence[tuple[str, np.ndarray]], truth: Truth, rngs: Sequence[np.random.Generator]
) -> tuple[int, np.ndarray]:
    """Number of clients' records among released rows, each row matched once; and by chance, for each draw.

    Args:
        released: clients and their released rows, shape (rows, columns), of features and perhaps the target.
        truth: the raw records by client.
        rngs: of the draws; each counts the larger of two: of the other clients' records, who may be
            few, and of this one's columns, drawn independently in their shapes.
    """
    hits, by_chance = 0, np.zeros(len(rngs))
    for client, rows in released:
        records, pool = (table[:, : rows.shape[1]] for table in own_and_others(truth, client))
        remaining = Counter(map(tuple, rows.tolist()))

        def present(table: np.ndarray, remaining: Counter[tuple[float, ...]] = remaining) -> int:
            return sum((remaining & Counter(map(tuple, table.tolist()))).values())

        hits += present(records)
        synthetic = SyntheticRecords(records, pool)
        by_chance += [max(map(present, synthetic.draw(rng))) for rng in rngs]
    return hits, by_chance


def own_and_others(truth: Truth, client: str) -> tuple[np.ndarray, np.ndarray]:
    """A client's records, features and target, and all others'."""
    records = whole(truth[client])
    others = [whole(table) for name, table in truth.items() if name != client]
    return records, np.concatenate([records[:0], *others])


@dataclass(frozen=True, eq=False)
class SyntheticRecords:
    """Tables as long as a client's that are independent of the releases.

    Args:
        records: the client's records, shape (records, columns).
        pool: all other clients' records, shape (others, columns).
    """

    records: np.ndarray
    pool: np.ndarray

    @cached_property
    def _shapes(self) -> list[list[Shape]]:
        """Shapes by column: of all its values, or of each of at most two, for there is nothing between them."""
        alone = 0 < len(self.records) <= 2
        columns = self.records.astype(float).T
        return [list(map(Shape.of, np.split(c, len(c)) if alone else [c])) for c in columns]

    def draw(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield others' records, if there are any, and the columns, shuffled and redrawn in their shapes."""
        if len(self.pool):
            yield np.asarray(rng.choice(self.pool, len(self.records)))
        in_order = np.tile(np.arange(len(self.records))[:, None], self.records.shape[1])
        order = rng.permuted(in_order, axis=0)
        drawn = self.records.astype(float)
        for column, places, shapes in zip(drawn.T, order.T, self._shapes, strict=True):
            if len(shapes) == 1:
                shapes[0].redraw(column, rng)
            else:
                for place in places:
                    shapes[place].redraw(column[place : place + 1], rng)
        yield np.take_along_axis(drawn, order, axis=0)


def _tables(transcript: Transcript, table: Table) -> np.ndarray:
    """The rows of all exact tables as wide as the client's own, the widest kind; none is empty."""
    exact = [
        part.units
        for entry in transcript
        for name, part in exact_parts(entry).items()
        if name in sound_parts(entry)
    ]
    for width in sorted({whole(table).shape[1], table.x.shape[1]}, reverse=True):
        tables = [rows for rows in exact if rows.ndim == 2 and rows.shape[1] == width and len(rows)]
        if tables:
            return np.concatenate(tables).astype(float)
    return np.empty((0, 0))


def severity(count: float, by_chance: np.ndarray, margin: float) -> Severity:
    """Severity of a count against those by chance, one for each draw, with a margin."""
    mean, std = float(by_chance.mean()), float(by_chance.std())
    if count <= max_by_chance(by_chance) + margin:
        return Severity.NONE
    return Severity.BREACH if count > mean + 6 * std + 3 + margin else Severity.SOME


def max_by_chance(by_chance: np.ndarray) -> float:
    """Largest count by chance: of all draws, or three standard deviations above the mean."""
    return max(float(by_chance.max()), float(by_chance.mean()) + 3 * float(by_chance.std()))


def min_detectable(by_chance: np.ndarray, margin: float) -> float:
    """Least expected count that is found with probability :data:`POWER`, if counts vary as those by chance."""
    return max_by_chance(by_chance) + margin + 1 + float(ndtri(POWER) * by_chance.std())


def _shifted(part: ReleasedPart, rng: np.random.Generator) -> ReleasedPart:
    """The part with each number shifted by one or two steps of its grid or of 32-bit precision.

    Adding as much noise again would widen the distribution, which then matches a dense column less often by chance.
    """
    if part.noise is None or not part.noise.additive:
        return part
    coarse = np.abs(np.spacing((part.units * float(part.grid)).astype(np.float32))) / float(
        part.grid
    )
    steps = rng.choice([-2, -1, 1, 2], part.units.shape) * np.maximum(1, np.ceil(2 * coarse))
    return replace(part, units=part.units + steps.astype(part.units.dtype))


@dataclass
class Tally:
    """Matches in one kind of release, over clients and columns.

    Attributes:
        forms: cells found, by form and in any.
        values: distinct values found, column by column.
        cells: number of cells searched for.
        by_chance: cells and distinct values found by chance, shape (draws, 2).
    """

    by_chance: np.ndarray
    forms: dict[str, int] = field(default_factory=dict)
    values: int = 0
    cells: int = 0

    def add(
        self,
        column: ColumnValues,
        numbers: Numbers,
        by_chance: Sequence[tuple[int, int]] | np.ndarray,
    ) -> None:
        """Add the matches of one column, and those by chance."""
        for form, hit in column.hits(numbers).items():
            self.forms[form] = self.forms.get(form, 0) + int(hit.sum())
        self.values += column.count_matches(numbers)[1]
        self.cells += int(column.usable.sum())
        self.by_chance += np.array(by_chance)


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """One column of one client's raw table, and the bounds by which it may have been scaled."""

    cells: np.ndarray  #: the raw values
    bounds: tuple[tuple[float, float], ...]  #: pairs of lower and upper bounds
    others: np.ndarray  #: the same column of all other clients

    @cached_property
    def usable(self) -> np.ndarray:
        """Cells that are no bound: those would match trivially."""
        return ~np.isin(self.cells, self._edges)

    @cached_property
    def _values(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct values of usable cells, ascending, and the index of each such cell's."""
        return np.unique(self.cells[self.usable], return_inverse=True)

    @property
    def _edges(self) -> np.ndarray:
        return np.array([0.0, *(edge for pair in self.bounds for edge in pair)])

    def hits(self, numbers: Numbers) -> Forms:
        """Which cells are found in each form, and in any."""
        index = self._values[1]
        return {form: hit[index] for form, hit in self._matches(numbers).items()}

    def _matches(self, numbers: Numbers) -> Forms:
        """The same for distinct values, ascending, which are faster to look up."""
        cells = self._values[0]
        exact = _within(numbers.values, cells, cells)
        ulp = _within(numbers.values, np.nextafter(cells, -np.inf), np.nextafter(cells, np.inf))
        single = _within(numbers.short, cells.astype(np.float32), cells.astype(np.float32))
        scaled = np.zeros(len(cells), dtype=bool)
        for low, high in dict.fromkeys(pair for pair in self.bounds if pair[0] < pair[1]):
            unit = (cells - low) / (high - low)
            near = np.spacing(np.abs(unit)) * 4
            inside = (unit > 0) & (unit < 1)
            for shift in (0.0, 0.5):
                shifted = unit - shift
                scaled |= inside & _within(numbers.values, shifted - near, shifted + near)
                for grid, units in numbers.grids.items():
                    steps = np.trunc(shifted / grid)
                    scaled |= inside & _within(units, steps, steps)
        any_ = exact | ulp | single | scaled
        return {"exact": exact, "last place": ulp, "32 bits": single, "scaled": scaled, "any": any_}

    def count_matches(self, numbers: Numbers) -> tuple[int, int]:
        """Number of cells found in any form, and of their distinct values."""
        hit, index = self._matches(numbers)["any"], self._values[1]
        return int(hit[index].sum()), int(hit.sum())

    @cached_property
    def _shape(self) -> Shape:
        return Shape.of(self.cells[self.usable])

    @cached_property
    def _other_cells(self) -> np.ndarray:
        """Others' cells that are no bound."""
        return self.others[~np.isin(self.others, self._edges)]

    def by_chance(self, numbers: Numbers, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """:meth:`count_matches` for similar columns that are independent of the releases, shape (draws, 2).

        The larger of two: of a column redrawn in this one's shape, and of as many cells of others. These may
        be few, or of another range, so that they alone would understate chance.
        """
        tables = self._drawn(rngs)
        together = replace(self, cells=tables.ravel())
        hit, (values, index) = together._matches(numbers)["any"], together._values
        hits = hit[index]
        rows = np.repeat(np.arange(len(tables)), tables.shape[1])[together.usable][hits]
        distinct = np.unique(rows * len(values) + index[hits]) // max(len(values), 1)
        counts = [np.bincount(each, minlength=len(tables)) for each in (rows, distinct)]
        return np.asarray(np.stack(counts, axis=1).reshape(len(rngs), -1, 2).max(axis=1))

    def _drawn(self, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Columns as long as the usable cells: redrawn, and, if there are any, of others' cells; one after the other."""
        cells, others = self.cells[self.usable], self._other_cells
        redrawn = self._shape.redraws(cells, rngs)
        if not len(others):
            return redrawn
        enough = len(others) >= len(cells)
        chosen = [rng.choice(others, len(cells), replace=not enough) for rng in rngs]
        return np.stack([redrawn, chosen], axis=1).reshape(2 * len(rngs), len(cells))


def _within(ordered: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether some number of a sorted array lies in each closed interval."""
    if not len(ordered):
        return np.zeros(len(low), dtype=bool)
    first = np.searchsorted(ordered, low, side="left")
    nearest = ordered[np.minimum(first, len(ordered) - 1)]
    return np.asarray((first < len(ordered)) & (nearest <= high))


def _columns(
    truth: Truth, client: str, transcript: Transcript, schema: PublicSchema | None
) -> Iterator[ColumnValues]:
    """The client's columns: features by the bounds of schema and questions, and the target."""
    raw = truth[client]
    others = [table for name, table in truth.items() if name != client]
    scalings = sorted({(tuple(q["lower"]), tuple(q["upper"])) for q in _scalings(transcript)})
    for feature in range(raw.x.shape[1] if len(raw.x) else 0):
        bounds = [(low[feature], high[feature]) for low, high in scalings]
        if schema is not None:
            bounds.append(schema.features[feature].bounds)
        pool = [table.x[:, feature] for table in others]
        yield ColumnValues(raw.x[:, feature], tuple(bounds), np.concatenate([np.empty(0), *pool]))
    if raw.y is not None and len(raw.y):
        target = None if schema is None else schema.target
        known = () if target is None else (target.bounds,)
        pool = [table.y for table in others if table.y is not None]
        yield ColumnValues(raw.y, known, np.concatenate([np.empty(0), *pool]))


def _scalings(transcript: Transcript) -> Iterator[Mapping[str, np.ndarray]]:
    for entry in transcript:
        try:
            query = entry.query
        except WireError:  # a foreign transcript may hold anything
            continue
        if isinstance(query.get("lower"), np.ndarray) and isinstance(
            query.get("upper"), np.ndarray
        ):
            yield {"lower": query["lower"], "upper": query["upper"]}
