"""Raw values that a forest's quantile sketches give away: verbatim, and by least squares.

A sketch of a node gives the values at the ranks 0, 1/Q, ..., 1. Order statistics are raw values.
Interpolated ones are weighted means of two neighbours in order, with weights that follow from the
number of records alone: with no fewer levels than records the system has full rank, and least
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
from privfed.attacks.verbatim import DRAWS, more_draws, severity, sources
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.leaks.shape import Shape

SKETCHES, BINS = "forest.sketches", "forest.bins"
#: Two numbers are one value when they differ by less than this share of the column's range.
NEAR = 1e-5


@dataclass(frozen=True, eq=False)
class ClientSketches:
    """By feature, ascending: one client's sketched values, and these with the solved ones."""

    told: Mapping[int, np.ndarray]
    solved: Mapping[int, np.ndarray]


def read_sketches(transcript: Transcript, deadline: Deadline) -> ClientSketches:
    """Read one client's transcript, until the time is up."""
    told: dict[int, list[np.ndarray]] = {}
    solved: dict[int, list[np.ndarray]] = {}
    for sketch, bins in in_turn(transcript):
        if deadline.over:
            break
        features, knots, shown = pairs_of(sketch)
        for feature in np.unique(features):
            own = features == feature
            told.setdefault(int(feature), []).append(knots[own][shown[own]])
        if sketch.query["interpolate"] and bins is not None:
            counts = counts_of(bins)
            for feature, values in _solutions(
                features, knots, np.where(shown.all(axis=1), counts, -1)
            ):
                solved.setdefault(feature, []).append(values)
    both = {feature: [*told[feature], *solved.get(feature, [])] for feature in told}
    return ClientSketches(
        *({f: np.unique(np.concatenate(v)) for f, v in each.items()} for each in (told, both))
    )


def in_turn(transcript: Transcript) -> Iterator[tuple[TranscriptEntry, TranscriptEntry | None]]:
    """Each sketch with the next bins of the same nodes, or None."""
    entries = [entry for entry in transcript if entry.kind in (SKETCHES, BINS)]
    for entry, following in zip(entries, [*entries[1:], None], strict=False):
        if entry.kind == SKETCHES and "knots" in entry.release and len(entry.release["knots"]):
            same = following is not None and following.kind == BINS and _same(entry, following)
            yield entry, following if same else None


def _same(sketch: TranscriptEntry, bins: TranscriptEntry) -> bool:
    one, other = sketch.query["level"], bins.query["level"]
    return bool(
        np.array_equal(one["nodes"], other["nodes"])
        and np.array_equal(one["numeric"]["features"], other["numeric"]["features"])
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
    told = bins.release["bins"]
    hidden = np.ma.getmaskarray(told).any(axis=(1, 2))
    return np.where(hidden, -1, np.asarray(told.data).sum(axis=(1, 2)))


def _solutions(
    features: np.ndarray, knots: np.ndarray, counts: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """The values of every node of few records, by feature."""
    levels = knots.shape[1] - 1
    for records in range(2, levels + 2):
        for feature in np.unique(features[counts == records]):
            own = knots[(counts == records) & (features == feature)]
            yield int(feature), (own @ unmixing(records, levels).T).reshape(-1)


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

    The baseline is chance: as many cells of the other clients' columns, and drawn anew in the column's shape,
    whichever gives more, held against the same sketches.
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
        deadline, read, heard = self.deadline(), 0, {}
        for place in deadline.range(len(clients)):
            client = clients[place]
            heard[client] = read_sketches(transcript.of(client=client), deadline)
            read += not deadline.over
        partial = deadline.partial(read, len(clients), "clients")
        ways: tuple[
            tuple[str, Callable[[ClientSketches], Mapping[int, np.ndarray]], float], ...
        ] = (
            ("cells that stand in the sketches", lambda h: h.told, 0.0),
            ("cells recovered with least squares", lambda h: h.solved, NEAR),
        )
        return [
            self._scored(metric, truth, heard, values, near, partial)
            for metric, values, near in ways
        ]

    def _scored(
        self,
        metric: str,
        truth: Truth,
        heard: Mapping[str, ClientSketches],
        values: Callable[[ClientSketches], Mapping[int, np.ndarray]],
        near: float,
        partial: str,
    ) -> Finding:
        asked = [
            (client, known, truth[client].x[:, feature], feature)
            for client, own in heard.items()
            for feature, known in values(own).items()
            if len(truth[client].x)
        ]
        cells = sum(len(column) for *_, column, _ in asked)
        found = sum(
            matches(known, column, near * float(np.ptp(column))) for _, known, column, _ in asked
        )

        chance = _by_chance(asked, truth, near, DRAWS)
        if severity(found, chance, 0) == Severity.SOME:
            chance = _by_chance(asked, truth, near, more_draws(cells))
        told: dict[str, Any] = {"of": cells, "baseline": float(chance.mean()), "partial": partial}
        grade = severity(found, chance, 0)
        return self.finding(metric, found, releases=(SKETCHES,), severity=grade, **told)


def _by_chance(
    asked: Sequence[tuple[str, np.ndarray, np.ndarray, int]], truth: Truth, near: float, draws: int
) -> np.ndarray:
    """How many cells of clients' columns would be found if they were drawn, of all columns together, by draw.

    ``asked`` has the client, its known values, its column and the feature.
    """
    each, chance = sources(draws), np.zeros(draws)
    for client, known, column, feature in asked:
        others = [table.x[:, feature] for name, table in truth.items() if name != client]
        shape, pool = Shape.of(column.astype(float)), np.concatenate([np.empty(0), *others])
        reach = near * float(np.ptp(column))
        for draw, rng in enumerate(each):
            drawn = _drawn(column, shape, pool, rng)
            chance[draw] += max(matches(known, cells, reach) for cells in drawn)
    return chance


def matches(known: np.ndarray, cells: np.ndarray, reach: float) -> int:
    """Number of cells, as 32-bit floats, within reach of some known value."""
    single = cells.astype(np.float32).astype(float)
    first = np.searchsorted(known, single - reach, side="left")
    last = np.searchsorted(known, single + reach, side="right")
    return int((last > first).sum())


def _drawn(
    column: np.ndarray, shape: Shape, pool: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """As many cells that the sketches know nothing of: in the column's shape, and of others if there are any."""
    own = column.astype(float)
    shape.redraw(own, rng)
    yield own
    if len(pool):
        yield np.asarray(rng.choice(pool, len(column)))
