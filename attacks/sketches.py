"""Raw values disclosed by a forest's quantile sketches: verbatim, and by least squares.

A sketch of a node gives the values at the ranks 0, 1/Q, ..., 1. Order statistics are raw values.
Interpolated ones are weighted means of two adjacent order statistics, with weights that follow from the
number of records alone: with at least as many levels as records the system has full rank, and least
squares gives every value. The number of records is the sum of any feature's bins.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from privfed.attacks.base import Attack, PublicSchema, Truth
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk, Severity
from privfed.attacks.reading import well_formed
from privfed.attacks.verbatim import DRAWS, generators, n_draws, severity
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.leaks.shape import Shape

SKETCHES, BINS = "forest.sketches", "forest.bins"
#: Two numbers are equal if they differ by less than this fraction of the column's range.
NEAR = 1e-5


@dataclass(frozen=True, eq=False)
class ClientSketches:
    """By feature, ascending: one client's sketched values, and these with the solved ones."""

    sketched: Mapping[int, np.ndarray]
    solved: Mapping[int, np.ndarray]


def read_sketches(transcript: Transcript, deadline: Deadline) -> ClientSketches:
    """Read one client's transcript, until the time is up."""
    sketched: dict[int, list[np.ndarray]] = {}
    solved: dict[int, list[np.ndarray]] = {}
    for sketch, bins in with_bins(transcript):
        if deadline.over:
            break
        features, knots, shown = pairs_of(sketch)
        for feature in np.unique(features):
            mask = features == feature
            sketched.setdefault(int(feature), []).append(knots[mask][shown[mask]])
        if sketch.query["interpolate"] and bins is not None:
            counts = counts_of(bins)
            for feature, values in _solutions(
                features, knots, np.where(shown.all(axis=1), counts, -1)
            ):
                solved.setdefault(feature, []).append(values)
    both = {feature: [*sketched[feature], *solved.get(feature, [])] for feature in sketched}
    return ClientSketches(
        *({f: np.unique(np.concatenate(v)) for f, v in by.items()} for by in (sketched, both))
    )


def with_bins(transcript: Transcript) -> Iterator[tuple[TranscriptEntry, TranscriptEntry | None]]:
    """Yield each sketch with the next bins of the same nodes, or None."""
    entries = [entry for entry in transcript if entry.kind in (SKETCHES, BINS)]
    for entry, following in zip(entries, [*entries[1:], None], strict=False):
        if entry.kind == SKETCHES and "knots" in entry.release and len(entry.release["knots"]):
            same = following is not None and following.kind == BINS and _same(entry, following)
            yield entry, following if same else None


def _same(sketch: TranscriptEntry, bins: TranscriptEntry) -> bool:
    first, second = sketch.query["level"], bins.query["level"]
    return bool(
        np.array_equal(first["nodes"], second["nodes"])
        and np.array_equal(first["numeric"]["features"], second["numeric"]["features"])
        and "bins" in bins.release
    )


def pairs_of(sketch: TranscriptEntry) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The feature of each pair, its knots, and which of them are visible."""
    knots = sketch.release["knots"]
    shown: np.ndarray = ~np.ma.getmaskarray(knots)
    features: np.ndarray = sketch.query["level"]["numeric"]["features"]
    return features, np.asarray(knots.data), shown


def counts_of(bins: TranscriptEntry) -> np.ndarray:
    """Records of each pair's node, -1 if some bin is withheld."""
    table = bins.release["bins"]
    hidden = np.ma.getmaskarray(table).any(axis=(1, 2))
    return np.where(hidden, -1, np.asarray(table.data).sum(axis=(1, 2)))


def _solutions(
    features: np.ndarray, knots: np.ndarray, counts: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the values of every node of few records, by feature."""
    levels = knots.shape[1] - 1
    for records in range(2, levels + 2):
        for feature in np.unique(features[counts == records]):
            node_knots = knots[(counts == records) & (features == feature)]
            yield int(feature), (node_knots @ unmixing(records, levels).T).reshape(-1)


@lru_cache(maxsize=4096)
def unmixing(records: int, levels: int) -> np.ndarray:
    """The least-squares inverse of interpolating quantiles, shape (records, levels + 1)."""
    rank = np.arange(levels + 1) * (records - 1) / levels
    below = np.minimum(np.floor(rank).astype(int), records - 2)
    mixing = np.zeros((levels + 1, records))
    mixing[np.arange(levels + 1), below] = 1 - (rank - below)
    mixing[np.arange(levels + 1), below + 1] += rank - below
    return np.asarray(np.linalg.pinv(mixing))


class SketchedValues(Attack):
    """Looks for every raw cell of the sketched columns in a client's sketches.

    The baseline is chance: as many cells of the other clients' columns, and redrawn in the column's shape,
    whichever gives more, compared with the same sketches.
    """

    name: ClassVar[str] = "sketches"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "values of a record stand in the released quantiles"
    question: ClassVar[str] = "Which raw values do a forest's quantile sketches reveal?"
    kinds: ClassVar[tuple[str, ...]] = (SKETCHES,)

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: cells in the sketches, and cells solved for; none without truth."""
        transcript = well_formed(transcript, schema, truth)
        if truth is None or not self.attackable(transcript):
            return []
        clients = [client for client in transcript.clients if client in truth]
        deadline, read, sketches = self.deadline(), 0, {}
        for client in deadline.each(clients):
            sketches[client] = read_sketches(transcript.of(client=client), deadline)
            read += not deadline.over
        partial = deadline.partial(read, len(clients), "clients")
        metrics: tuple[
            tuple[str, Callable[[ClientSketches], Mapping[int, np.ndarray]], float], ...
        ] = (
            ("cells that stand in the sketches", lambda h: h.sketched, 0.0),
            ("cells recovered with least squares", lambda h: h.solved, NEAR),
        )
        return [
            self._scored(metric, truth, sketches, values, near, partial)
            for metric, values, near in metrics
        ]

    def _scored(
        self,
        metric: str,
        truth: Truth,
        sketches: Mapping[str, ClientSketches],
        values: Callable[[ClientSketches], Mapping[int, np.ndarray]],
        near: float,
        partial: str,
    ) -> Finding:
        columns = [
            (client, known, truth[client].x[:, feature], feature)
            for client, sketched in sketches.items()
            for feature, known in values(sketched).items()
            if len(truth[client].x)
        ]
        cells = sum(len(column) for *_, column, _ in columns)
        found = sum(
            matches(known, column, near * float(np.ptp(column))) for _, known, column, _ in columns
        )

        null = _by_chance(columns, truth, near, DRAWS)
        if severity(found, null, 0) == Severity.SOME:
            null = _by_chance(columns, truth, near, n_draws(cells))
        fields: dict[str, Any] = {"of": cells, "baseline": float(null.mean()), "partial": partial}
        grade = severity(found, null, 0)
        return self.finding(metric, found, releases=(SKETCHES,), severity=grade, **fields)


def _by_chance(
    columns: Sequence[tuple[str, np.ndarray, np.ndarray, int]],
    truth: Truth,
    near: float,
    draws: int,
) -> np.ndarray:
    """Number of cells found by chance if clients' columns were drawn, over all columns, for each draw.

    ``columns`` has the client, its known values, its column and the feature.
    """
    rngs, counts = generators(draws), np.zeros(draws)
    for client, known, column, feature in columns:
        others = [table.x[:, feature] for name, table in truth.items() if name != client]
        shape, pool = Shape.of(column.astype(float)), np.concatenate([np.empty(0), *others])
        reach = near * float(np.ptp(column))
        for draw, rng in enumerate(rngs):
            drawn = _random_cells(column, shape, pool, rng)
            counts[draw] += max(matches(known, cells, reach) for cells in drawn)
    return counts


def matches(known: np.ndarray, cells: np.ndarray, reach: float) -> int:
    """Number of cells, as 32-bit floats, within reach of some known value."""
    single = cells.astype(np.float32).astype(float)
    first = np.searchsorted(known, single - reach, side="left")
    last = np.searchsorted(known, single + reach, side="right")
    return int((last > first).sum())


def _random_cells(
    column: np.ndarray, shape: Shape, pool: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """As many cells independent of the sketches: in the column's shape, and of others if there are any."""
    redrawn = column.astype(float)
    shape.redraw(redrawn, rng)
    yield redrawn
    if len(pool):
        yield np.asarray(rng.choice(pool, len(column)))
