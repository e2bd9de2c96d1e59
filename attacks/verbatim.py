"""Verbatim scan: which numbers of the raw table stand in the releases as they are?"""

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

DRAWS = 20  #: Tables that are drawn to see how many matches come by chance
#: How many are drawn where some stand out by little, and before a table is said to be handed over; of how many cells
#: at most.
OFTEN, SURE, DRAWN = 200, 1000, 200_000
#: How many different values noisy numbers may hit beyond chance: twenty draws do not see rare hits.
NOISY = 2

#: The numbers of one release in each form: exact, or through the grid that they were truncated to.
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
            heard = part.units if part.mask is None else part.units[~part.mask]
            if part.type == "artifact" and heard.dtype.kind in "ui":
                values.append(numbers_inside(heard.astype(np.uint8).tobytes()))
            elif part.type != "bits":
                different = np.unique(heard)
                values.append(different * float(part.grid))
                if part.grid != 1:
                    grids.setdefault(float(part.grid), []).append(different)
        merged = {grid: np.unique(np.concatenate(units)) for grid, units in grids.items()}
        kept = np.unique(np.concatenate(values))
        return cls(kept[np.isfinite(kept)], merged)


def numbers_inside(data: bytes) -> np.ndarray:
    """Every number in an artifact's bytes: written as text, or as 64- and 32-bit floats.

    Floats are looked for at every offset and in both byte orders; those of absurd size, which
    arbitrary bytes nearly always make, are left out.
    """
    text = [float(found) for found in NUMBER.findall(data.decode("latin-1"))]
    found = [np.array(text)]
    for kind in ("<f8", ">f8", "<f4", ">f4"):
        width = np.dtype(kind).itemsize
        for offset in range(width):
            usable = (len(data) - offset) // width * width
            if usable > 0:
                found.append(np.frombuffer(data[offset : offset + usable], kind).astype(float))
    every = np.concatenate(found)
    sane = np.isfinite(every) & ((every == 0) | ((np.abs(every) > 1e-6) & (np.abs(every) < 1e9)))
    return np.asarray(every[sane])


class Verbatim(Attack):
    """Looks for every cell of the raw table among the released numbers of its owner.

    A cell is found when a released number equals it exactly, within one unit in the last place, as a
    32-bit float, or after scaling to [0, 1] or [-1/2, 1/2] by the public bounds (the schema's, or
    those that a question carried; truncated to the release's own grid). Cells at a bound are left
    out.

    The baseline is what matches by chance. Numbers that left exactly are held against tables that
    have nothing to do with them: drawn from the other clients' columns, and anew from each column's own
    distribution, decimals and steps (:mod:`privfed.leaks`), whichever gives more. Numbers that left with noise are
    moved to one of their nearest neighbours, which are as likely under noise, and held against the same table: truth
    that leaks in spite of the noise would no longer be found. Many people share one value, and one number then
    matches all of them at once; so a scan beats its baseline only if it does by cells and by different values alike.

    Rows of exact tables are held against whole records too: where every record of everybody who
    answered is among them, and chance never gives them all, the table was handed over.
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
        found = [self._rows(transcript.of(kind), kind, truth) for kind in kinds]
        found += [
            self._scan(transcript.of(kind), kind, noisy, truth, schema, deadline)
            for kind in kinds
            for noisy in (False, True)
        ]
        return [finding for finding in found if finding is not None]

    def _scan(
        self,
        transcript: Transcript,
        kind: str,
        noisy: bool,
        truth: Truth,
        schema: PublicSchema | None,
        deadline: Deadline,
    ) -> Finding | None:
        """What is found of one kind; where it stands out, held against more draws if these are little work."""
        clients = [client for client in transcript.clients if client in truth]
        asked = transcript, noisy, {name: truth[name] for name in clients}, truth, schema, deadline
        tally, read = _tally(*asked, DRAWS)
        if not tally.cells:
            return None
        partial = deadline.partial(read, len(clients), "clients")
        found = self._judged(kind, noisy, tally, partial)
        more = more_draws(tally.cells)
        if found.severity != Severity.SOME or more == DRAWS:
            return found
        tally, again = _tally(*asked, more)
        return self._judged(kind, noisy, tally, partial) if again == read else found

    def _rows(self, transcript: Transcript, kind: str, truth: Truth) -> Finding | None:
        """Whole records that left as rows of an exact table; none where no row is one."""
        told = [
            (client, rows)
            for client in transcript.clients
            if client in truth and len(rows := _tables(transcript.of(client=client), truth[client]))
        ]
        found, chance = rows_found(told, truth, sources(DRAWS))
        if not found:
            return None
        records = sum(len(truth[client].x) for client in transcript.clients if client in truth)
        if severity(found, chance, 0) != Severity.BREACH:
            draws = more_draws(records, SURE if found == records else OFTEN)
            found, chance = rows_found(told, truth, sources(draws))
        grade = severity(found, chance, 0)
        if found == records > chance.max():
            # the table was handed over, however much of it chance would give
            grade = Severity.BREACH
        return self.finding(
            "whole records found in the releases, row by row",
            found,
            of=records,
            baseline=float(chance.mean()),
            detectable=least_found(chance, 0),
            releases=(kind,),
            severity=grade,
        )

    def _judged(self, kind: str, noisy: bool, tally: Tally, partial: str) -> Finding:
        where = "among noisy numbers" if noisy else "in the releases"
        found, doubt = tally.forms.get("any", 0), NOISY if noisy else 0
        both = (
            severity(count, tally.chance[:, place], doubt)
            for place, count in enumerate((found, tally.values))
        )
        return self.finding(
            f"cells of the raw table found {where}",
            found,
            of=tally.cells,
            baseline=float(tally.chance[:, 0].mean()),
            detectable=least_found(tally.chance[:, 0], doubt),
            releases=(kind,),
            severity=min(both, key=list(Severity).index),
            detail={
                "forms": dict(tally.forms),
                "different values": tally.values,
                "different values by chance": float(tally.chance[:, 1].mean()),
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
    """What is found of some owners' columns among their exact or noisy numbers, and of how many owners in time."""
    tally, each, read = Tally(chance=np.zeros((draws, 2))), sources(draws), 0
    for client in owners:
        if deadline.over:
            break
        read += 1
        heard = transcript.of(client=client)
        released = [part for entry in heard for part in sound_parts(entry).values()]
        parts = [part for part in released if (part.noise is not None) == noisy]
        if not parts:
            continue
        numbers = Numbers.of(parts)
        if not len(numbers.values):
            continue
        moved = [Numbers.of([_moved(p, rng) for p in parts]) for rng in each if noisy]
        for column in _columns(truth, client, heard, schema):
            by_chance = (
                [column.found(others) for others in moved]
                if noisy
                else [column.by_chance(numbers, rng) for rng in each]
            )
            tally.add(column, numbers, by_chance)
    return tally, read


def more_draws(cells: int, most: int = OFTEN) -> int:
    """How many draws say what a rare match is worth: as many as are little work, :data:`DRAWS` at least."""
    return max(DRAWS, min(most, DRAWN // max(cells, 1)))


def sources(draws: int) -> list[np.random.Generator]:
    """A source of randomness for each draw, so that a longer look begins with the draws of a shorter one."""
    return [np.random.default_rng([0, draw]) for draw in range(draws)]


def rows_found(
    told: Sequence[tuple[str, np.ndarray]], truth: Truth, each: Sequence[np.random.Generator]
) -> tuple[int, np.ndarray]:
    """How many clients' records stand among released rows, each row counted for one record; and by chance.

    Args:
        told: clients and their released rows, shape (rows, columns), of features and perhaps the target.
        truth: the raw records by client.
        each: draws a table that chance is told by, the more of two: of the other clients' records, who may be
            few, and of this one's columns, each by itself and in its shape.
    """
    found, chance = 0, np.zeros(len(each))
    for client, rows in told:
        own, pool = (table[:, : rows.shape[1]] for table in own_and_others(truth, client))
        left = Counter(map(tuple, rows.tolist()))

        def there(table: np.ndarray, left: Counter[tuple[float, ...]] = left) -> int:
            return sum((left & Counter(map(tuple, table.tolist()))).values())

        found += there(own)
        chance += [max(map(there, made_up(own, pool, rng))) for rng in each]
    return found, chance


def own_and_others(truth: Truth, client: str) -> tuple[np.ndarray, np.ndarray]:
    """A client's records, features and target, and everybody else's."""
    own = whole(truth[client])
    others = [whole(table) for name, table in truth.items() if name != client]
    return own, np.concatenate([own[:0], *others])


def made_up(own: np.ndarray, pool: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """As many records that the releases know nothing of, of others and made up."""
    if len(pool):
        yield np.asarray(rng.choice(pool, len(own)))
    drawn = rng.permuted(own.astype(float), axis=0)
    for column in drawn.T:
        # of two values each is moved by itself, for between them there is nothing
        for some in [column] if len(own) > 2 else np.split(column, len(own)):
            Shape.of(some).redraw(some, rng)
    yield drawn


def _tables(heard: Transcript, own: Table) -> np.ndarray:
    """The rows of all exact tables as wide as the client's own, the widest kind; none is empty."""
    exact = [
        part.units
        for entry in heard
        for name, part in exact_parts(entry).items()
        if name in sound_parts(entry)
    ]
    for width in sorted({whole(own).shape[1], own.x.shape[1]}, reverse=True):
        tables = [rows for rows in exact if rows.ndim == 2 and rows.shape[1] == width and len(rows)]
        if tables:
            return np.concatenate(tables).astype(float)
    return np.empty((0, 0))


def severity(found: float, chance: np.ndarray, doubt: float) -> Severity:
    """Whether a count stands out from those by chance, one for each draw, by more than `doubt`."""
    mean, spread = float(chance.mean()), float(chance.std())
    if found <= usual(chance) + doubt:
        return Severity.NONE
    return Severity.BREACH if found > mean + 6 * spread + 3 + doubt else Severity.SOME


def usual(chance: np.ndarray) -> float:
    """The most that chance gives: of all draws, or three standard deviations."""
    return max(float(chance.max()), float(chance.mean()) + 3 * float(chance.std()))


def least_found(chance: np.ndarray, doubt: float) -> float:
    """The least expected count that stands out with probability :data:`POWER`, where counts vary as chance's do."""
    return usual(chance) + doubt + 1 + float(ndtri(POWER) * chance.std())


def _moved(part: ReleasedPart, rng: np.random.Generator) -> ReleasedPart:
    """The part with each number one or two steps away: of its grid, or what 32 bits tell apart; other scales stay.

    As much noise again would widen the whole distribution, which then hits a dense column less often by chance.
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
    """What was found in one kind of release, over clients and columns.

    Attributes:
        forms: cells found, by form and in any.
        values: different values found, column by column.
        cells: how many were looked for.
        chance: cells and different values found by chance, shape (draws, 2).
    """

    chance: np.ndarray
    forms: dict[str, int] = field(default_factory=dict)
    values: int = 0
    cells: int = 0

    def add(
        self, column: ColumnValues, numbers: Numbers, by_chance: Sequence[tuple[int, int]]
    ) -> None:
        """Add what was found of one column, and by chance."""
        for form, hit in column.hits(numbers).items():
            self.forms[form] = self.forms.get(form, 0) + int(hit.sum())
        self.values += column.found(numbers)[1]
        self.cells += int(column.usable.sum())
        self.chance += np.array(by_chance)


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """One column of one client's raw table, and the bounds by which it may have been scaled."""

    cells: np.ndarray  #: the raw values
    bounds: tuple[tuple[float, float], ...]  #: pairs of lower and upper bounds
    others: np.ndarray  #: the same column of all other clients

    @cached_property
    def usable(self) -> np.ndarray:
        """Cells that are no bound: those would match without saying anything."""
        return ~np.isin(self.cells, self._edges)

    @cached_property
    def _values(self) -> tuple[np.ndarray, np.ndarray]:
        """The different values of usable cells, rising, and which of them each such cell has."""
        return np.unique(self.cells[self.usable], return_inverse=True)

    @property
    def _edges(self) -> np.ndarray:
        return np.array([0.0, *(edge for pair in self.bounds for edge in pair)])

    def hits(self, numbers: Numbers) -> Forms:
        """Which cells are found in each form, and in any."""
        place = self._values[1]
        return {form: hit[place] for form, hit in self._different(numbers).items()}

    def _different(self, numbers: Numbers) -> Forms:
        """The same for different values, rising: what is looked up in order is looked up fast."""
        cells = self._values[0]
        exact = _within(numbers.values, cells, cells)
        one = _within(numbers.values, np.nextafter(cells, -np.inf), np.nextafter(cells, np.inf))
        single = _within(numbers.short, cells.astype(np.float32), cells.astype(np.float32))
        scaled = np.zeros(len(cells), dtype=bool)
        for unit in self._scaled(cells):
            near = np.spacing(np.abs(unit)) * 4
            inside = (unit > 0) & (unit < 1)
            for shift in (0.0, 0.5):
                moved = unit - shift
                scaled |= inside & _within(numbers.values, moved - near, moved + near)
                for grid, units in numbers.grids.items():
                    whole = np.trunc(moved / grid)
                    scaled |= inside & _within(units, whole, whole)
        any_ = exact | one | single | scaled
        return {"exact": exact, "last place": one, "32 bits": single, "scaled": scaled, "any": any_}

    def _scaled(self, cells: np.ndarray) -> Iterator[np.ndarray]:
        for low, high in dict.fromkeys(self.bounds):
            if low < high:
                yield (cells - low) / (high - low)

    def found(self, numbers: Numbers) -> tuple[int, int]:
        """How many cells are found in any form, and how many different values they have."""
        hit, place = self._different(numbers)["any"], self._values[1]
        return int(hit[place].sum()), int(hit.sum())

    @cached_property
    def _shape(self) -> Shape:
        return Shape.of(self.cells[self.usable])

    @cached_property
    def _strangers(self) -> np.ndarray:
        """Others' cells that are no bound."""
        return self.others[~np.isin(self.others, self._edges)]

    def by_chance(self, numbers: Numbers, rng: np.random.Generator) -> tuple[int, int]:
        """What :meth:`found` comes to for columns that the releases know nothing of, much like this one.

        The more of two: of a column drawn anew in this one's shape, and of as many cells of others. These may
        be few, or of another range, so that they alone would let chance seem rarer than it is.
        """
        drawn = self.cells[self.usable]
        self._shape.redraw(drawn, rng)
        tables = [drawn]
        if len(self._strangers):
            enough = len(self._strangers) >= len(drawn)
            tables.append(rng.choice(self._strangers, len(drawn), replace=not enough))
        told = [replace(self, cells=cells).found(numbers) for cells in tables]
        return max(count for count, _ in told), max(values for _, values in told)


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
    mine = truth[client]
    others = [table for name, table in truth.items() if name != client]
    asked = sorted({(tuple(q["lower"]), tuple(q["upper"])) for q in _scalings(transcript)})
    for feature in range(mine.x.shape[1] if len(mine.x) else 0):
        bounds = [(low[feature], high[feature]) for low, high in asked]
        if schema is not None:
            bounds.append(schema.features[feature].bounds)
        pool = [table.x[:, feature] for table in others]
        yield ColumnValues(mine.x[:, feature], tuple(bounds), np.concatenate([np.empty(0), *pool]))
    if mine.y is not None and len(mine.y):
        target = None if schema is None else schema.target
        known = () if target is None else (target.bounds,)
        pool = [table.y for table in others if table.y is not None]
        yield ColumnValues(mine.y, known, np.concatenate([np.empty(0), *pool]))


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
