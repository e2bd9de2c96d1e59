"""What a whole ledger adds up to: cells, small groups, values and outcomes that no release tells
alone.

Six ways: cells that follow from margins (:mod:`contingency` for exact answers,
:mod:`least_squares` for noisy repeats), the table under which all answers are likeliest, small groups by subtracting one count from another, values
from power sums, records from normal equations, and binary outcomes by linear programming. They read
every query that says what a record adds, of one study or of several.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.attacks.base import HELD_OUT, Attack, PublicSchema, Table, Truth, whole
from privfed.attacks.contingency import likeliest, ranges
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.joint_equations import CELLS, joint_records, of_few_records, sharing
from privfed.attacks.least_squares import combined, nested
from privfed.attacks.ledger_rows import (
    LinearSystem,
    at_points,
    drawn_points,
    gram_cells,
    rows_of,
    whole_domain,
)
from privfed.attacks.population import inferred
from privfed.attacks.power_sums import values
from privfed.attacks.roc import interval
from privfed.attacks.subset_sums import rebuilt_bits
from privfed.errors import number_of
from privfed.exchange.transcript import Transcript

SMALL = 5  #: Groups of fewer records than this are small
ROWS, PAIRED = 4000, 2000  #: Most rows that are read, and most that are compared in pairs
CANDIDATES = 12_000  #: Most candidates and drawn points of one list
#: Points drawn beside the candidates, so that no predicate implies another by accident.
DRAWN = 1000
#: A count is claimed where its deviation is at most this: then rounding is right 19 times in 20.
CLAIMED = 0.25
#: Most numbers times cells of an integer program for the likeliest table, and the operations of each.
PROGRAM, SOLVING = 300_000, 1e5
SOLVED = 1500  #: Most records whose outcomes are solved for at a time
#: Why no table is held against the records of an owner who keeps none out.
NO_CONTROL = "an owner without held-out records has no others to compare with"
NEAR = 1e-6  #: Numbers nearer than this share of their size are one


@dataclass
class SuccessCounts:
    """Correct claims, claims (or what there is), and correct ones of a guesser who saw less.

    ``controls`` is of how many others the guesser's share was read off; 0 if it is no estimate. ``short`` says
    what was too large to be looked at.
    """

    found: float = 0.0
    claimed: float = 0.0
    chance: float = 0.0
    controls: float = 0.0
    short: str = ""

    def add(self, other: SuccessCounts | None) -> None:
        """Add another client's."""
        if other is not None:
            self.found += other.found
            self.claimed += other.claimed
            self.chance += other.chance
            self.controls += other.controls
            self.short = self.short or other.short

    @property
    def interval(self) -> tuple[float, float]:
        """Of what is found, as much wider as the guesser's share is uncertain (Zou and Donner 2008)."""
        share, guess = self.found / self.claimed, self.chance / self.claimed
        low, high = interval(self.found, round(self.claimed))
        least, most = guess, guess
        if self.controls:
            least, most = interval(guess * self.controls, round(self.controls))
        below, above = (
            math.hypot(share - low, most - guess),
            math.hypot(high - share, guess - least),
        )
        return max(self.found - below * self.claimed, 0.0), self.found + above * self.claimed


class Reconstruction(Attack):
    """Rebuilds cells, small groups, values and outcomes from all releases together."""

    name: ClassVar[str] = "reconstruction"
    controls: ClassVar[bool] = True
    risk: ClassVar[Risk] = "inference"
    harm: ClassVar[str] = "values of few records follow from all totals together"
    question: ClassVar[str] = "What do all releases together reveal that no single one does?"

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: a finding for each way that found something to work on.

        None without the truth, which is the list of candidates and scores what is claimed.
        """
        clients = [c for c in transcript.clients if truth and c in truth and len(truth[c].x)]
        if not clients or truth is None:
            return []
        held_out = {name: table for name, table in truth.items() if name.endswith(HELD_OUT)}
        truth = {name: table for name, table in truth.items() if name not in held_out}
        candidates = DRAWN + sum(len(table.x) for table in truth.values())
        if candidates > CANDIDATES:
            short = f"{candidates:,} candidates and points: at most {CANDIDATES:,} are looked at"
            return [self.finding(TOGETHER, 0, partial=short, simulation=False)]
        known: PublicSchema = schema or truth[clients[0]].schema
        tallies: dict[str, SuccessCounts] = {}
        deadline = self.deadline()
        read = 0
        for place in deadline.range(len(clients)):
            client = clients[place]
            own = transcript.of(client=client)
            others = [table for name, table in truth.items() if name != client]
            beside = held_out.get(client + HELD_OUT)
            control = [] if beside is None or not len(beside.x) else [beside]
            for metric, tally in _ways(own, truth[client], others, control, known, deadline):
                if tally is not None:
                    tallies.setdefault(metric, SuccessCounts()).add(tally)
            read += not deadline.over
        kinds = tuple(sorted({entry.kind for entry in transcript}))
        partial = deadline.partial(read, len(clients), "clients")
        return [self._told(metric, tally, kinds, partial) for metric, tally in tallies.items()]

    def _told(
        self, metric: str, tally: SuccessCounts, kinds: tuple[str, ...], partial: str
    ) -> Finding:
        guessed = metric in (OUTCOMES, LIKELIEST) and tally.claimed
        low, high = tally.interval if guessed else (None, None)
        return self.finding(
            metric,
            tally.found,
            of=tally.claimed,
            low=low,
            high=high,
            baseline=tally.chance,
            releases=kinds,
            severity="some" if (tally.found if low is None else low) > tally.chance else "none",
            partial="; ".join(filter(None, (tally.short, partial))),
        )


TOGETHER = "findings from all releases together"  #: What is measured
TABLE = "records in cells whose count follows from all totals"
LIKELIEST = "records whose values stand in the table under which all numbers are likeliest"
GROUPS = "groups of fewer than 5 records isolated by subtraction"
SINGLE = "values of a single record that subtraction gives"
MOMENTS = "values that follow from power sums of small groups"
EQUATIONS = "records that follow from normal equations of several cells"
OUTCOMES = "binary outcomes solved for, all features known"


def _ways(
    transcript: Transcript,
    own: Table,
    others: list[Table],
    control: list[Table],
    schema: PublicSchema,
    deadline: Deadline,
) -> Iterator[tuple[str, SuccessCounts | None]]:
    domain = whole_domain(own, schema)
    if domain is not None:
        rows = rows_of(transcript, domain, most=ROWS, deadline=deadline)
        if rows.counts.any():
            held = _records_at(own, domain)
            yield TABLE, _of_some(rows, cells(rows, held, deadline=deadline))
            beside = sum((_records_at(each, domain) for each in control), np.zeros(len(held)))
            yield LIKELIEST, _of_some(rows, rebuilt(rows, held, beside, deadline=deadline))
    points = _candidates(own, others, schema)
    rows = rows_of(transcript, points, most=ROWS, deadline=deadline)
    members = slice(0, len(own.x))
    exact = rows.only(rows.exact)
    if len(exact):
        groups, single = differences(exact, members, deadline=deadline)
        yield GROUPS, _of_some(rows, groups)
        if single.claimed:
            yield SINGLE, _of_some(rows, single)
        moments = power_sums(exact, members)
        if moments.claimed:
            yield MOMENTS, _of_some(rows, moments)
    elif rows.unread:
        yield GROUPS, _of_some(rows, SuccessCounts())
    yield EQUATIONS, equations(transcript, own, deadline=deadline)
    target = schema.target
    known = [*others, *control]
    if target is not None and target.kind != "number" and target.bounds[1] - target.bounds[0] == 1:
        yield (
            OUTCOMES,
            outcomes(transcript, own, others=known, bounds=target.bounds, deadline=deadline),
        )


def _of_some(rows: LinearSystem, tally: SuccessCounts | None) -> SuccessCounts | None:
    """A tally, which says of how many numbers it is where there were too many."""
    if rows.unread and tally is not None and not tally.short:
        tally.short = f"{len(rows):,} of {len(rows) + rows.unread:,} numbers are looked at"
    return tally


def _candidates(own: Table, others: list[Table], schema: PublicSchema) -> Table:
    """The client's records first, then all others', then points of the box."""
    tables = [own, *others, drawn_points(own, schema, number=DRAWN)]
    y = None
    if own.y is not None:
        y = np.concatenate([table.y for table in tables if table.y is not None])
    return at_points(own, x=np.concatenate([table.x for table in tables]), y=y)


def _records_at(own: Table, domain: Table) -> np.ndarray:
    """Number of records at each point of the domain, shape (points,)."""

    points, records = whole(domain), whole(own)
    alike, places = np.unique(np.concatenate([points, records]), axis=0, return_inverse=True)
    held = np.bincount(places[len(points) :], minlength=len(alike))
    return np.asarray(held[places[: len(points)]])


def cells(rows: LinearSystem, held: np.ndarray, *, deadline: Deadline) -> SuccessCounts | None:
    """Records in cells whose count is determined by all totals, noisy ones combined.

    A cell is a set of points that no row tells apart; ``held`` records really lie at each point.
    The baseline is the records in cells that an exact count gives outright.
    """
    atoms, place = np.unique(rows.design, axis=1, return_inverse=True)
    true = np.bincount(place.ravel(), held, atoms.shape[1])
    together = combined(atoms, rows.answers, deviations=rows.deviations)
    claims = np.where(together.deviation <= CLAIMED, np.rint(together.estimate), np.nan)
    exact = rows.exact & rows.counts
    if exact.any() and not deadline.over:
        told = rows.answers[exact]
        possible = ranges(
            atoms[exact], low=told - NEAR, high=told + NEAR, time_limit=deadline.remaining
        )
        if possible is not None:
            claims = np.where(possible.determined, possible.least, claims)
    alone = (atoms[exact] != 0).sum(axis=1) == 1
    outright = (atoms[exact][alone] != 0).any(axis=0)
    return SuccessCounts(
        float(true[claims == true].sum()), float(held.sum()), float(true[outright].sum())
    )


def rebuilt(
    rows: LinearSystem, held: np.ndarray, control: np.ndarray, *, deadline: Deadline
) -> SuccessCounts | None:
    """Records at points of the likeliest table, by every number and the law of its noise.

    The baseline is how many of the control's records stand in it, who had no part in the numbers: the
    client's held-out ones, for others' may differ. By (epsilon, delta) a record stands there with at most
    e^epsilon times the chance of one like it that has no part in them, plus delta. Nothing is looked at without
    a control.

    Args:
        rows: of one client's numbers.
        held, control: its records, and the control's, at each point; shape (points,).
    """
    atoms, place = np.unique(rows.design, axis=1, return_inverse=True)
    if not held.any():
        return None
    if not control.any():
        return SuccessCounts(short=NO_CONTROL)
    if atoms.size > PROGRAM or not deadline.spend(SOLVING * atoms.size):
        size = f"{number_of(len(rows), 'number')} of {number_of(atoms.shape[1], 'cell')}"
        return SuccessCounts(short=f"{size} would take {SOLVING * atoms.size:.0e} operations")
    table = likeliest(
        atoms,
        rows.answers,
        deviations=rows.deviations,
        laplace=rows.laplace,
        time_limit=deadline.remaining,
    )
    if table is None:
        return None
    inside = (table > 0)[place.ravel()]
    everybody, others = float(held.sum()), float(control.sum())
    chance = float(control[inside].sum()) / others
    return SuccessCounts(float(held[inside].sum()), everybody, chance * everybody, others)


def differences(
    rows: LinearSystem, members: slice, *, deadline: Deadline
) -> tuple[SuccessCounts, SuccessCounts]:
    """Small groups between two nested exact counts, and what sums tell of a group of one.

    Groups isolated that no count gives outright, and values of single records among them; `members` are the
    columns that are the client's own records.
    """
    crisp = np.flatnonzero(rows.counts & np.isin(rows.design, (0, 1)).all(axis=1))
    counts = rows.only(crisp[:PAIRED])
    inside = counts.design > 0
    wide, narrow = nested(inside)
    held = counts.answers[wide] - counts.answers[narrow]
    small = (held > 0) & (held < SMALL)
    outright = {row.tobytes() for row in np.packbits(inside, axis=1)}
    groups, single, seen = SuccessCounts(), SuccessCounts(), set(outright)
    if len(crisp) > PAIRED:
        groups.short = f"{PAIRED:,} of {len(crisp):,} counts are compared in pairs"
    places = {name: row for row, name in enumerate(rows.names)}
    parts: dict[int, set[str]] = {}
    for release, part, _ in rows.names:
        parts.setdefault(release, set()).add(part)
    pairs = np.column_stack([wide, narrow])[small]
    for place in deadline.range(len(pairs)):
        one, other = pairs[place]
        between = inside[one] & ~inside[other]
        key = np.packbits(between).tobytes()
        if key in seen:
            continue
        seen.add(key)
        claimed = counts.answers[one] - counts.answers[other]
        groups.add(SuccessCounts(float(between[members].sum() == claimed), 1.0))
        if claimed == 1:
            (upper, _, cell), (lower, _, inner) = counts.names[one], counts.names[other]
            beside = [
                (places.get((upper, part, cell)), places.get((lower, part, inner)))
                for part in parts[upper]
            ]
            single.add(_values(rows, beside, between=between, members=members))
    return groups, single


def _values(
    rows: LinearSystem,
    pairs: Iterable[tuple[int | None, int | None]],
    *,
    between: np.ndarray,
    members: slice,
) -> SuccessCounts:
    """What the sums beside two counts, in rows of these pairs, say of the one record between them.

    They say it if they weigh all others alike, so that their difference is of those between alone.
    """
    really, found = np.flatnonzero(between[members]), SuccessCounts()
    for one, two in pairs:
        if one is None or two is None or rows.counts[one]:
            continue
        alone = rows.design[one] - rows.design[two]
        size = max(float(np.abs(rows.design[one]).max()), 1e-12)
        if np.abs(alone[~between]).max(initial=0.0) > NEAR * size:
            continue
        value = rows.answers[one] - rows.answers[two]
        right = len(really) == 1 and abs(alone[really[0]] - value) <= NEAR * size
        found.add(SuccessCounts(float(right), 1.0))
    return found


def power_sums(rows: LinearSystem, members: slice) -> SuccessCounts:
    """Values of groups of one or two whose count, sum and sum of squares were released together.

    Which part holds the squares of which shows in what points add: b is 0 outside the group, and c
    = s b^2 inside, with one scale s for all. Counts values right to a part in 10^4, of those
    claimed.
    """
    tally = SuccessCounts()
    by_cell: dict[tuple[int, int], list[int]] = {}
    for row, (release, _, cell) in enumerate(rows.names):
        by_cell.setdefault((release, cell), []).append(row)
    for beside in by_cell.values():
        for count in (row for row in beside if rows.counts[row]):
            if round(float(rows.answers[count])) in (1, 2):
                tally.add(_of_group(rows, count, [r for r in beside if r != count], members))
    return tally


def _of_group(
    rows: LinearSystem, count: int, beside: list[int], members: slice
) -> SuccessCounts | None:
    inside = rows.design[count] > 0
    for one in beside:
        for two in beside:
            scale = _squared(rows.design[one], rows.design[two], inside)
            if one == two or scale is None:
                continue
            sums = rows.answers[one], rows.answers[two] / scale
            found = values(np.array(sums[: round(float(rows.answers[count]))]))
            if found is None:
                return None
            true = np.sort(rows.design[one, members][inside[members]])
            size = max(float(np.abs(true).max(initial=0.0)), 1e-12)
            right = len(true) == len(found) and np.abs(true - found).max() <= 1e-4 * size
            return SuccessCounts(len(found) * float(right), float(len(found)))
    return None


def _squared(one: np.ndarray, two: np.ndarray, inside: np.ndarray) -> float | None:
    """The scale s for which the second is s times the square of the first, or None."""
    if one[~inside].any() or two[~inside].any() or not one[inside].any():
        return None
    square = one**2
    scale = float(square @ two) / float(square @ square)
    if not scale > 0 or np.abs(two - scale * square).max() > 1e-4 * np.abs(two).max():
        return None
    different = len(np.unique(np.round(one[inside], 9))) > 2
    return scale if different else None


def equations(transcript: Transcript, own: Table, *, deadline: Deadline) -> SuccessCounts | None:
    """Records in exact normal equations, of one cell or of two that share records.

    Counts members whose row is right to a part in 10^4 of a column's scale, of all; None if no part
    is of this kind.
    """
    told = gram_cells(transcript, own, deadline=deadline)
    if not told:
        return None
    found, every, read = np.zeros(len(own.x), bool), 0, 0
    for parts in told.values():
        grams = of_few_records(np.concatenate([cells for cells, _ in parts]))
        every, grams, claims = every + len(grams), grams[:CELLS], []
        read += len(grams)
        for group in sharing(grams):
            if deadline.over:
                break
            claims.append(joint_records(grams[group]))
        for claim in np.concatenate(claims) if claims else ():
            for _, rows in parts:
                reach = 1e-4 * np.nanmax(np.abs(rows), axis=0)
                found |= (np.abs(rows - claim) <= reach).all(axis=1)
    short = f"{read:,} of {every:,} cells of few records are paired" if read < every else ""
    return SuccessCounts(float(found.sum()), float(len(found)), short=short)


def outcomes(
    transcript: Transcript,
    own: Table,
    *,
    others: list[Table],
    bounds: tuple[float, float],
    deadline: Deadline,
) -> SuccessCounts | None:
    """Binary outcomes of individuals whose features are known, from all numbers that they move.

    Correct ones of all, beside a guesser's; None if no number depends on outcomes, or out of time. Of too many
    records it says that they are.

    Args:
        transcript, own: the client's, and its records.
        others: records of others, held-out ones among them, from which a guesser learns outcomes from features.
        bounds: the two values that an outcome has.
        deadline: bounds the linear program.
    """
    people = len(own.x)
    if own.y is None or deadline.over:
        return None
    if people > SOLVED:
        return SuccessCounts(
            short=f"{people:,} records: of at most {SOLVED:,} outcomes are solved for"
        )
    low, high = (
        rows_of(
            transcript,
            at_points(own, x=own.x, y=np.full(people, bound)),
            most=ROWS,
            deadline=deadline,
        )
        for bound in bounds
    )
    if low.names != high.names or not len(low):
        return None
    moved = high.design - low.design
    telling = (moved != 0).any(axis=1)
    if not telling.any():
        return None
    least = moved[telling]
    size = np.abs(least).max(axis=1)
    answers = (low.answers - low.design.sum(axis=1))[telling] / size
    spread = np.maximum(low.deviations[telling] / size, 1e-3)
    bits = rebuilt_bits(
        least / size[:, None], answers, deviations=spread, time_limit=deadline.remaining
    )
    if bits is None:
        return SuccessCounts(short=f"outcomes of {people:,} records were not solved for in time")
    true = own.y == bounds[1]
    guess = guessed(own, others, upper=bounds[1])
    return _of_some(low, SuccessCounts(float((bits == true).sum()), float(people), guess))


def guessed(own: Table, others: list[Table], *, upper: float) -> float:
    """Correct outcomes without any release: the commoner one, or by a line fitted elsewhere, or by similar people.

    What features say of outcomes anywhere is no leak of these individuals'.
    """
    true = np.asarray(own.y == upper)
    best = float(max(int(true.sum()), len(true) - int(true.sum())))
    known = [table for table in others if table.y is not None and len(table.x)]
    if known:
        x = np.concatenate([table.x for table in known])
        y = np.concatenate([table.y == upper for table in known]).astype(float)
        spread = np.where(np.ptp(x, axis=0) > 0, np.std(x, axis=0), 1.0)
        rows, asked = ((each - x.mean(axis=0)) / spread for each in (x, own.x))
        ridge = rows.T @ rows + np.eye(rows.shape[1])
        slope = np.linalg.solve(ridge, rows.T @ (y - y.mean()))
        best = max(best, float(((asked @ slope + y.mean() > 0.5) == true).sum()))
        alike = inferred(own.x, x, y, category=True)
        best = max(best, float(((alike > 0.5) == true).sum()))
    return best
