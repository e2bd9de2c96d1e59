"""Reconstruction from a whole ledger: cells, small groups, values and outcomes that no single release gives.

Six methods: cells that follow from margins (:mod:`contingency` for exact answers,
:mod:`least_squares` for noisy repeats), the table under which all answers are likeliest, small groups by subtracting one count from another, values
from power sums, records from normal equations, and binary outcomes by linear programming. They read
every query that states what a record adds, of one study or of several.
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
from privfed.attacks.joint_equations import CELLS, joint_records, rank_deficient, sharing
from privfed.attacks.least_squares import combined, nested
from privfed.attacks.ledger_rows import (
    LinearSystem,
    at_points,
    drawn_points,
    gram_cells,
    rows_of,
    whole_domain,
)
from privfed.attacks.population import infer_by_neighbours
from privfed.attacks.power_sums import values
from privfed.attacks.roc import interval
from privfed.attacks.subset_sums import rebuilt_bits
from privfed.errors import number_of
from privfed.exchange.transcript import Transcript

SMALL = 5  #: Groups of fewer records than this are small
ROWS, PAIRED = 4000, 2000  #: Most rows that are read, and most that are compared in pairs
CANDIDATES = 12_000  #: Most candidates and drawn points of one list
#: Points drawn in addition to the candidates, so that no predicate implies another by accident.
DRAWN = 1000
#: A count is claimed if its standard deviation is at most this: then rounding is correct 19 times in 20.
CLAIMED = 0.25
#: Most numbers times cells of an integer program for the likeliest table, and the operations of each.
PROGRAM, SOLVING = 300_000, 1e5
SOLVED = 1500  #: Most records whose outcomes are solved for at a time
#: Why an owner without held-out records is left out.
NO_CONTROL = "an owner without held-out records has no others to compare with"
NEAR = 1e-6  #: Numbers nearer than this fraction of their size are equal


@dataclass
class SuccessCounts:
    """Correct claims, all claims (or records), and correct ones of the baseline.

    ``controls`` is the number of others that the baseline is estimated from; 0 if it is no estimate. ``short``
    states what was too large to be examined.
    """

    correct: float = 0.0
    claimed: float = 0.0
    baseline: float = 0.0
    controls: float = 0.0
    short: str = ""

    def add(self, other: SuccessCounts | None) -> None:
        """Add another client's."""
        if other is not None:
            self.correct += other.correct
            self.claimed += other.claimed
            self.baseline += other.baseline
            self.controls += other.controls
            self.short = self.short or other.short

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the correct claims, widened by the baseline's uncertainty (Zou and Donner 2008)."""
        fraction, guess = self.correct / self.claimed, self.baseline / self.claimed
        low, high = interval(self.correct, round(self.claimed))
        guess_low, guess_high = guess, guess
        if self.controls:
            guess_low, guess_high = interval(guess * self.controls, round(self.controls))
        below = math.hypot(fraction - low, guess_high - guess)
        above = math.hypot(high - fraction, guess - guess_low)
        return max(self.correct - below * self.claimed, 0.0), self.correct + above * self.claimed


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
        """See :class:`Attack`: a finding for each applicable method.

        None without the truth, which is the list of candidates and scores the claims.
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
        for client in deadline.each(clients):
            seen = transcript.of(client=client)
            others = [table for name, table in truth.items() if name != client]
            unseen = held_out.get(client + HELD_OUT)
            control = [] if unseen is None or not len(unseen.x) else [unseen]
            for metric, tally in _tallies(seen, truth[client], others, control, known, deadline):
                if tally is not None:
                    tallies.setdefault(metric, SuccessCounts()).add(tally)
            read += not deadline.over
        kinds = tuple(sorted({entry.kind for entry in transcript}))
        partial = deadline.partial(read, len(clients), "clients")
        return [self._finding(metric, tally, kinds, partial) for metric, tally in tallies.items()]

    def _finding(
        self, metric: str, tally: SuccessCounts, kinds: tuple[str, ...], partial: str
    ) -> Finding:
        estimated = metric in (OUTCOMES, LIKELIEST) and tally.claimed
        low, high = tally.interval if estimated else (None, None)
        return self.finding(
            metric,
            tally.correct,
            of=tally.claimed,
            low=low,
            high=high,
            baseline=tally.baseline,
            releases=kinds,
            severity="some" if (tally.correct if low is None else low) > tally.baseline else "none",
            partial="; ".join(filter(None, (tally.short, partial))),
        )


TOGETHER = "findings from all releases together"  #: The metrics
TABLE = "records in cells whose count follows from all totals"
LIKELIEST = "records whose values stand in the table under which all numbers are likeliest"
GROUPS = "groups of fewer than 5 records isolated by subtraction"
SINGLE = "values of a single record that subtraction gives"
MOMENTS = "values that follow from power sums of small groups"
EQUATIONS = "records that follow from normal equations of several cells"
OUTCOMES = "binary outcomes solved for, all features known"


def _tallies(
    transcript: Transcript,
    records: Table,
    others: list[Table],
    control: list[Table],
    schema: PublicSchema,
    deadline: Deadline,
) -> Iterator[tuple[str, SuccessCounts | None]]:
    domain = whole_domain(records, schema)
    if domain is not None:
        rows = rows_of(transcript, domain, max_rows=ROWS, deadline=deadline)
        if rows.counts.any():
            counts = _counts_at(records, domain)
            yield TABLE, _note_unread(rows, cells(rows, counts, deadline=deadline))
            controls = sum((_counts_at(table, domain) for table in control), np.zeros(len(counts)))
            yield LIKELIEST, _note_unread(rows, rebuild(rows, counts, controls, deadline=deadline))
    points = _candidates(records, others, schema)
    rows = rows_of(transcript, points, max_rows=ROWS, deadline=deadline)
    members = slice(0, len(records.x))
    exact = rows.only(rows.exact)
    if len(exact):
        groups, single = differences(exact, members, deadline=deadline)
        yield GROUPS, _note_unread(rows, groups)
        if single.claimed:
            yield SINGLE, _note_unread(rows, single)
        moments = power_sums(exact, members)
        if moments.claimed:
            yield MOMENTS, _note_unread(rows, moments)
    elif rows.unread:
        yield GROUPS, _note_unread(rows, SuccessCounts())
    yield EQUATIONS, equations(transcript, records, deadline=deadline)
    target = schema.target
    known = [*others, *control]
    if target is not None and target.kind != "number" and target.bounds[1] - target.bounds[0] == 1:
        yield (
            OUTCOMES,
            outcomes(transcript, records, others=known, bounds=target.bounds, deadline=deadline),
        )


def _note_unread(rows: LinearSystem, tally: SuccessCounts | None) -> SuccessCounts | None:
    """A tally, with a note if there were too many numbers to read."""
    if rows.unread and tally is not None and not tally.short:
        tally.short = f"{len(rows):,} of {len(rows) + rows.unread:,} numbers are looked at"
    return tally


def _candidates(records: Table, others: list[Table], schema: PublicSchema) -> Table:
    """The client's records first, then all others', then points of the box."""
    tables = [records, *others, drawn_points(records, schema, number=DRAWN)]
    y = None
    if records.y is not None:
        y = np.concatenate([table.y for table in tables if table.y is not None])
    return at_points(records, x=np.concatenate([table.x for table in tables]), y=y)


def _counts_at(table: Table, domain: Table) -> np.ndarray:
    """Number of records at each point of the domain, shape (points,)."""

    points, records = whole(domain), whole(table)
    alike, index = np.unique(np.concatenate([points, records]), axis=0, return_inverse=True)
    counts = np.bincount(index[len(points) :], minlength=len(alike))
    return np.asarray(counts[index[: len(points)]])


def cells(rows: LinearSystem, counts: np.ndarray, *, deadline: Deadline) -> SuccessCounts | None:
    """Records in cells whose count is determined by all totals, noisy ones combined.

    A cell is a set of points that no row distinguishes; ``counts`` are the true records at each point.
    The baseline is the records in cells that a single exact count gives.
    """
    atoms, atom = np.unique(rows.design, axis=1, return_inverse=True)
    true = np.bincount(atom.ravel(), counts, atoms.shape[1])
    together = combined(atoms, rows.answers, deviations=rows.deviations)
    claims = np.where(together.deviation <= CLAIMED, np.rint(together.estimate), np.nan)
    exact = rows.exact & rows.counts
    if exact.any() and not deadline.over:
        released = rows.answers[exact]
        possible = ranges(
            atoms[exact], low=released - NEAR, high=released + NEAR, time_limit=deadline.remaining
        )
        if possible is not None:
            claims = np.where(possible.determined, possible.least, claims)
    alone = (atoms[exact] != 0).sum(axis=1) == 1
    outright = (atoms[exact][alone] != 0).any(axis=0)
    return SuccessCounts(
        float(true[claims == true].sum()), float(counts.sum()), float(true[outright].sum())
    )


def rebuild(
    rows: LinearSystem, counts: np.ndarray, control: np.ndarray, *, deadline: Deadline
) -> SuccessCounts | None:
    """Records at points of the likeliest table, by every number and the law of its noise.

    The baseline is the fraction of the control's records in it, which are not in the numbers: the
    client's held-out ones, since others' may differ. By (epsilon, delta) a record is in it with at most
    e^epsilon times the probability of an equal record outside the data, plus delta. Nothing is reported
    without a control.

    Args:
        rows: of one client's numbers.
        counts, control: its records, and the control's, at each point; shape (points,).
    """
    atoms, atom = np.unique(rows.design, axis=1, return_inverse=True)
    if not counts.any():
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
    inside = (table > 0)[atom.ravel()]
    n_records, n_controls = float(counts.sum()), float(control.sum())
    fraction = float(control[inside].sum()) / n_controls
    return SuccessCounts(float(counts[inside].sum()), n_records, fraction * n_records, n_controls)


def differences(
    rows: LinearSystem, members: slice, *, deadline: Deadline
) -> tuple[SuccessCounts, SuccessCounts]:
    """Small groups between two nested exact counts, and the values of single records by sums.

    Groups isolated that no single count gives, and values of single records among them; `members` are the
    columns of the client's own records.
    """
    crisp = np.flatnonzero(rows.counts & np.isin(rows.design, (0, 1)).all(axis=1))
    counts = rows.only(crisp[:PAIRED])
    inside = counts.design > 0
    wide, narrow = nested(inside)
    sizes = counts.answers[wide] - counts.answers[narrow]
    small = (sizes > 0) & (sizes < SMALL)
    outright = {row.tobytes() for row in np.packbits(inside, axis=1)}
    groups, single, seen = SuccessCounts(), SuccessCounts(), set(outright)
    if len(crisp) > PAIRED:
        groups.short = f"{PAIRED:,} of {len(crisp):,} counts are compared in pairs"
    row_of = {name: row for row, name in enumerate(rows.names)}
    parts: dict[int, set[str]] = {}
    for release, part, _ in rows.names:
        parts.setdefault(release, set()).add(part)
    pairs = np.column_stack([wide, narrow])[small]
    for wide_row, narrow_row in deadline.each(pairs):
        between = inside[wide_row] & ~inside[narrow_row]
        key = np.packbits(between).tobytes()
        if key in seen:
            continue
        seen.add(key)
        claimed = counts.answers[wide_row] - counts.answers[narrow_row]
        groups.add(SuccessCounts(float(between[members].sum() == claimed), 1.0))
        if claimed == 1:
            (upper, _, cell), (lower, _, inner) = counts.names[wide_row], counts.names[narrow_row]
            row_pairs = [
                (row_of.get((upper, part, cell)), row_of.get((lower, part, inner)))
                for part in parts[upper]
            ]
            single.add(_values(rows, row_pairs, between=between, members=members))
    return groups, single


def _values(
    rows: LinearSystem,
    pairs: Iterable[tuple[int | None, int | None]],
    *,
    between: np.ndarray,
    members: slice,
) -> SuccessCounts:
    """Values of the single record between two counts, from the sums of the same cells, in these pairs of rows.

    Those count that weigh all other records equally, so that their difference is that record's alone.
    """
    actual, tally = np.flatnonzero(between[members]), SuccessCounts()
    for first, second in pairs:
        if first is None or second is None or rows.counts[first]:
            continue
        alone = rows.design[first] - rows.design[second]
        size = max(float(np.abs(rows.design[first]).max()), 1e-12)
        if np.abs(alone[~between]).max(initial=0.0) > NEAR * size:
            continue
        value = rows.answers[first] - rows.answers[second]
        right = len(actual) == 1 and abs(alone[actual[0]] - value) <= NEAR * size
        tally.add(SuccessCounts(float(right), 1.0))
    return tally


def power_sums(rows: LinearSystem, members: slice) -> SuccessCounts:
    """Values of groups of one or two whose count, sum and sum of squares were released together.

    A sum b and its squares c are recognised by what points add: b is 0 outside the group, and c
    = s b^2 inside, with one scale s for all. Counts values correct to a part in 10^4, of those
    claimed.
    """
    tally = SuccessCounts()
    by_cell: dict[tuple[int, int], list[int]] = {}
    for row, (release, _, cell) in enumerate(rows.names):
        by_cell.setdefault((release, cell), []).append(row)
    for same_cell in by_cell.values():
        for count in (row for row in same_cell if rows.counts[row]):
            if round(float(rows.answers[count])) in (1, 2):
                tally.add(_of_group(rows, count, [r for r in same_cell if r != count], members))
    return tally


def _of_group(
    rows: LinearSystem, count: int, others: list[int], members: slice
) -> SuccessCounts | None:
    inside = rows.design[count] > 0
    for first in others:
        for second in others:
            scale = _squared(rows.design[first], rows.design[second], inside)
            if first == second or scale is None:
                continue
            sums = rows.answers[first], rows.answers[second] / scale
            claimed = values(np.array(sums[: round(float(rows.answers[count]))]))
            if claimed is None:
                return None
            true = np.sort(rows.design[first, members][inside[members]])
            size = max(float(np.abs(true).max(initial=0.0)), 1e-12)
            right = len(true) == len(claimed) and np.abs(true - claimed).max() <= 1e-4 * size
            return SuccessCounts(len(claimed) * float(right), float(len(claimed)))
    return None


def _squared(first: np.ndarray, second: np.ndarray, inside: np.ndarray) -> float | None:
    """The scale s for which the second is s times the square of the first, or None."""
    if first[~inside].any() or second[~inside].any() or not first[inside].any():
        return None
    square = first**2
    scale = float(square @ second) / float(square @ square)
    if not scale > 0 or np.abs(second - scale * square).max() > 1e-4 * np.abs(second).max():
        return None
    different = len(np.unique(np.round(first[inside], 9))) > 2
    return scale if different else None


def equations(transcript: Transcript, table: Table, *, deadline: Deadline) -> SuccessCounts | None:
    """Records in exact normal equations, of one cell or of two that share records.

    Counts members whose row is correct to a part in 10^4 of a column's scale, of all; None without
    such parts.
    """
    by_width = gram_cells(transcript, table, deadline=deadline)
    if not by_width:
        return None
    recovered, n_cells, read = np.zeros(len(table.x), bool), 0, 0
    for parts in by_width.values():
        grams = rank_deficient(np.concatenate([cells for cells, _ in parts]))
        n_cells, grams, claims = n_cells + len(grams), grams[:CELLS], []
        read += len(grams)
        for group in sharing(grams):
            if deadline.over:
                break
            claims.append(joint_records(grams[group]))
        for claim in np.concatenate(claims) if claims else ():
            for _, rows in parts:
                reach = 1e-4 * np.nanmax(np.abs(rows), axis=0)
                recovered |= (np.abs(rows - claim) <= reach).all(axis=1)
    short = f"{read:,} of {n_cells:,} cells of few records are paired" if read < n_cells else ""
    return SuccessCounts(float(recovered.sum()), float(len(recovered)), short=short)


def outcomes(
    transcript: Transcript,
    records: Table,
    *,
    others: list[Table],
    bounds: tuple[float, float],
    deadline: Deadline,
) -> SuccessCounts | None:
    """Binary outcomes of individuals whose features are known, from all numbers that depend on them.

    Correct ones of all, and the baseline's; None if no number depends on outcomes, or out of time; a note if there
    are too many records.

    Args:
        transcript, records: the client's releases and records.
        others: records of others, including held-out ones, from which the baseline predicts outcomes by features.
        bounds: the two values of an outcome.
        deadline: bounds the linear program.
    """
    n_records = len(records.x)
    if records.y is None or deadline.over:
        return None
    if n_records > SOLVED:
        return SuccessCounts(
            short=f"{n_records:,} records: of at most {SOLVED:,} outcomes are solved for"
        )
    low, high = (
        rows_of(
            transcript,
            at_points(records, x=records.x, y=np.full(n_records, bound)),
            max_rows=ROWS,
            deadline=deadline,
        )
        for bound in bounds
    )
    if low.names != high.names or not len(low):
        return None
    change = high.design - low.design
    informative = (change != 0).any(axis=1)
    if not informative.any():
        return None
    effects = change[informative]
    size = np.abs(effects).max(axis=1)
    answers = (low.answers - low.design.sum(axis=1))[informative] / size
    std = np.maximum(low.deviations[informative] / size, 1e-3)
    bits = rebuilt_bits(
        effects / size[:, None], answers, deviations=std, time_limit=deadline.remaining
    )
    if bits is None:
        return SuccessCounts(short=f"outcomes of {n_records:,} records were not solved for in time")
    true = records.y == bounds[1]
    guess = guess_outcomes(records, others, upper=bounds[1])
    return _note_unread(low, SuccessCounts(float((bits == true).sum()), float(n_records), guess))


def guess_outcomes(records: Table, others: list[Table], *, upper: float) -> float:
    """Correct outcomes without any release: by the majority, by ridge regression on others, or by nearest neighbours.

    An association of features and outcomes in the population is no leak of these individuals.
    """
    true = np.asarray(records.y == upper)
    best = float(max(int(true.sum()), len(true) - int(true.sum())))
    known = [table for table in others if table.y is not None and len(table.x)]
    if known:
        X = np.concatenate([table.x for table in known])
        y = np.concatenate([table.y == upper for table in known]).astype(float)
        std = np.where(np.ptp(X, axis=0) > 0, np.std(X, axis=0), 1.0)
        rows, own_rows = ((features - X.mean(axis=0)) / std for features in (X, records.x))
        ridge = rows.T @ rows + np.eye(rows.shape[1])
        slope = np.linalg.solve(ridge, rows.T @ (y - y.mean()))
        best = max(best, float(((own_rows @ slope + y.mean() > 0.5) == true).sum()))
        alike = infer_by_neighbours(records.x, X, y, category=True)
        best = max(best, float(((alike > 0.5) == true).sum()))
    return best
