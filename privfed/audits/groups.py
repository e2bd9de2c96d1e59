"""Audits of a guard on its real group: all parts and cells that it protects, as a gate builds them.

A record moves the group in several ways that its bounds allow: one part alone, all parts at once,
with opposite signs, spread over cells, far from zero, and in the second of two queries. The cells with the least
noise move, and those whose noise correlates with theirs are observed too.
"""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np

from privfed.attacks.finding import Finding, Severity
from privfed.audits.mechanisms import WIDE, Group, audit, claim_of, is_gaussian
from privfed.audits.paired_trials import Move, audit_moves
from privfed.audits.test_statistics import Truths
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection, joint, spreads
from privfed.privacy.noise import Noise, TestNoise
from privfed.questions.part import Bound, PartType

CELLS = 256  #: Most cells of one part that are run; of a wider one the first along each axis
#: Most cells that are drawn in one audit, which bounds its time: wider groups are run less often.
DRAWN = 2**25
#: Fewest and most runs for measuring the noise of each cell beforehand.
PILOT = (32, 512)
WATCHED = 16  #: Most cells that a linear rule weighs in addition to those that move
ALL = 1024  #: Most cells that are all observed; of more those that a linear rule weighs
FAR = 64  #: Distance from zero of further answers, in standard deviations of the noise
#: Fraction of alpha for the audit on one cell: faults of scale are small, those of a group are not.
ALONE_ALPHA = 0.75
ALONE = 4  #: Most parts that are moved alone


def audit_guarded(
    build: Callable[[], Mechanism],
    group: Group,
    spend: Fraction,
    *,
    delta: float = 0.0,
    trials: tuple[int, int] = (40_000, 10_000),
    alpha: float = 0.05,
    noise: Noise | None = None,
) -> Finding:
    """Audit a mechanism on one cell with the owner's noise, and on its real group; return the finding of a breach, else the larger bound.

    One cell that moves as far as all parts together has the most power against the noise's scale and source;
    the group, against noise shared by parts or cells. Arguments as in :func:`audit_group`, but

    Args:
        trials: outputs on one cell, which is fast, and on the group.
        noise: the owner's source of noise; secure by default.
    """
    mechanism, levels = build(), (ALONE_ALPHA * alpha, (1 - ALONE_ALPHA) * alpha)
    options: dict[str, Any] = {"delta": delta, "noise": noise}
    steps = steps_of(mechanism, group)
    one_cell = audit(mechanism, spend, steps=steps, trials=trials[0], alpha=levels[0], **options)
    in_group = audit_group(build, group, spend, trials=trials[1], alpha=levels[1], **options)
    worst = max(one_cell, in_group, key=lambda f: (f.severity == Severity.BREACH, f.value))
    worst.detail.update(confidence=1 - alpha, trials=sum(trials))
    worst.detail["proven"] = {"one cell": one_cell.value, "the group": in_group.value}
    return worst


def steps_of(mechanism: Mechanism, group: Group) -> int:
    """Grid units (of bits: bits) that a record moves in one cell that represents a whole group."""
    bound = joint(group)
    numbers = all(bounded.part.type != PartType.BITS for bounded in group.values())
    euclidean = mechanism.currency == "rho" and numbers
    return math.isqrt(bound.l2_squared) if euclidean else bound.l1


def audit_group(
    build: Callable[[], Mechanism],
    group: Group,
    spend: Fraction,
    *,
    delta: float = 0.0,
    trials: int = 40_000,
    alpha: float = 0.05,
    noise: Noise | None = None,
) -> Finding:
    """Audit a mechanism on a group of parts, at its own claim; the finding's detail names the move and the event.

    Args:
        build: returns a new mechanism by the policy.
        group: the parts with their bounds.
        spend: of one release, in the mechanism's currency.
        delta: at which a claim in rho is stated.
        trials: outputs in all; fewer for wide groups.
        alpha: probability of rejecting a correct mechanism's claim.
        noise: source of noise; by default a fast source of the same distributions.
    """
    priced = build().price(group, spend)
    if is_gaussian(priced):
        group = widen(group)
        priced = build().price(group, spend)
    claim = claim_of(priced, delta)
    narrowed = {name: narrow(bounded) for name, bounded in group.items()}
    case = GroupCase(build, narrowed, spend, noise or TestNoise(secrets.randbits(64)))
    runs = max(100, min(trials, DRAWN // case.size))
    finding = audit_moves(case.moves(), claim, trials=runs, alpha=alpha, name=priced.mechanism.name)
    cells = sum(bounded.part.size for bounded in group.values())
    finding.detail.update(parts=list(group), cells=cells, cells_run=case.size)
    return finding


def widen(group: Group) -> Group:
    """Widen the group's bounds until discrete noise is nearly continuous, on every grid."""
    grids = {bounded.part.grid for bounded in group.values()}
    by_grid = [{n: b for n, b in group.items() if b.part.grid == grid} for grid in grids]
    norms = [joint(g).l2_squared for g in by_grid]
    steps = -(-WIDE // max(1, math.isqrt(min(filter(None, norms), default=1))))
    return {
        name: replace(bounded, bound=None if bounded.bound is None else bounded.bound.times(steps))
        for name, bounded in group.items()
    }


def narrow(bounded: BoundedPart) -> BoundedPart:
    """Narrow a part to at most :data:`CELLS` cells, with its bound: fewer cells move no further."""
    shape = list(bounded.part.shape)
    while math.prod(shape) > CELLS:
        longest = int(np.argmax(shape))
        shape[longest] = (shape[longest] + 1) // 2
    return replace(bounded, part=replace(bounded.part, shape=tuple(shape)))


@dataclass(frozen=True)
class GroupCase:
    """A mechanism under audit on one group; its answers are laid out as one row of cells."""

    build: Callable[[], Mechanism]
    group: Group
    spend: Fraction
    noise: Noise

    @cached_property
    def priced(self) -> Protection:
        """The mechanism that answers, unless each answer comes from a new one."""
        return self.build().price(self.group, self.spend)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The slice of each part in a row."""
        ends = np.cumsum([0, *(bounded.part.size for bounded in self.group.values())]).tolist()
        return dict(zip(self.group, map(slice, ends[:-1], ends[1:]), strict=True))

    @property
    def size(self) -> int:
        """Cells of a row."""
        return sum(bounded.part.size for bounded in self.group.values())

    def answer(self, priced: Protection, exact: Mapping[str, np.ndarray]) -> np.ndarray:
        """One protected answer, shape (cells,); a suppressed cell holds zero."""
        released = priced.protect(exact, self.noise)
        return np.concatenate([np.asarray(released[name].data).ravel() for name in self.group])

    def exact(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """The parts of a row, in their shapes and types."""
        return {
            name: row[self.slices[name]]
            .astype(bool if bounded.part.type == PartType.BITS else np.int64)
            .reshape(bounded.part.shape)
            for name, bounded in self.group.items()
        }

    def answers(self, row: np.ndarray, seen: np.ndarray, runs: int) -> np.ndarray:
        """Independent answers about one row, shape (runs, cells seen)."""
        exact = self.exact(row)
        return np.array([self.answer(self.priced, exact)[seen] for _ in range(runs)], float)

    def twice(
        self, rows: Sequence[np.ndarray], seen: np.ndarray, runs: int, *, restarted: bool
    ) -> np.ndarray:
        """Answers about two rows by one mechanism, or by one each, shape (runs, 2 * cells seen)."""
        exact, outputs = [self.exact(row) for row in rows], np.empty((runs, 2 * len(seen)))
        for run in range(runs):
            builds = len(exact) if restarted else 1
            both = [replace(self.priced, mechanism=self.build()) for _ in range(builds)]
            parts = [self.answer(p, e)[seen] for p, e in zip(cycle(both), exact, strict=False)]
            outputs[run] = np.concatenate(parts)
        return outputs

    @cached_property
    def noises(self) -> np.ndarray:
        """Noise alone, measured in a few runs, shape (runs, cells)."""
        fewest, limit = PILOT
        runs = min(limit, max(fewest, 2**20 // self.size))
        return self.answers(np.zeros(self.size), np.arange(self.size), runs)

    def least_noisy(self, name: str) -> np.ndarray:
        """The cells of a part, by increasing noise."""
        cells = self.slices[name]
        std = self.noises[:, cells].std(axis=0)
        return np.asarray(cells.start + np.argsort(std, kind="stable"))

    def with_correlated(self, moving: np.ndarray) -> np.ndarray:
        """Indices of the cells that move, and of those whose noise correlates most with theirs."""
        centred = self.noises - self.noises.mean(axis=0)
        scaled = centred / np.maximum(np.sqrt((centred**2).sum(axis=0)), 1e-300)
        shared = np.abs(scaled[:, moving[:WATCHED]].T @ scaled).max(axis=0)
        shared[moving] = -1.0
        others = np.argsort(-shared, kind="stable")[: min(WATCHED, self.size - len(moving))]
        return np.sort(np.concatenate([moving, others]))

    def moves(self) -> list[Move]:
        """The moves of one record, within the bounds of every part."""
        able = [name for name, bounded in self.group.items() if bounded.bound and bounded.bound.l1]
        single = {name: self._shift(name, _concentrated) for name in able}
        spread = {name: self._shift(name, _spread) for name in able}
        widest = {name: self._shift(name, _widest) for name in able}
        moves = [
            self._move("all parts at once", list(single.values())),
            self._move("all parts, each spread over cells", list(spread.values())),
            self._move("all parts, with opposite signs", _alternating(list(spread.values()))),
            self._move("all parts, over as many cells as can be", list(widest.values())),
            self._repeated("in the second of two questions", list(single.values())),
            self._repeated(
                "in the second question, after a restart", list(single.values()), restarted=True
            ),
            self._move("all parts at once, by odd steps", _odd(list(single.values()))),
            self._move("all parts at once, far from zero", list(single.values()), self._far()),
        ]
        if len(able) > 1:
            moves += [self._move(f"{name} alone", [single[name]]) for name in able[:ALONE]]
        if all(np.array_equal(widest[name], spread[name]) for name in able):
            del moves[3]
        if all(np.array_equal(single[name], spread[name]) for name in able):
            del moves[1]
        return moves

    def _shift(self, name: str, sizes: Callable[[Bound, int], np.ndarray]) -> np.ndarray:
        """The shifts of a part's cells, as a row."""
        bounded, row = self.group[name], np.zeros(self.size)
        assert bounded.bound is not None
        if bounded.part.type == PartType.BITS:
            sizes = _bit_flips
        steps = sizes(bounded.bound, bounded.part.size)
        row[self.least_noisy(name)[: len(steps)]] = steps
        return np.asarray(row)

    def _far(self) -> np.ndarray:
        """A row of answers far from zero; bits are 0."""
        row = np.ceil(FAR * self.noises.std(axis=0))
        for name, bounded in self.group.items():
            if bounded.part.type == PartType.BITS:
                row[self.slices[name]] = 0
        return np.asarray(row)

    def _rows(
        self, shifts: Sequence[np.ndarray], base: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Both inputs, none below the base, the cells to observe, and the indices of correlated ones in them."""
        shift = np.sum(shifts, axis=0)
        absent, near = np.maximum(-shift, 0) + base, self.with_correlated(np.flatnonzero(shift))
        seen = np.arange(self.size) if self.size <= ALL else near
        return absent + shift, absent, seen, np.searchsorted(seen, near)

    def _move(
        self, name: str, shifts: Sequence[np.ndarray], base: np.ndarray | float = 0.0
    ) -> Move:
        present, absent, seen, near = self._rows(shifts, base)
        return Move(
            name,
            lambda runs: self.answers(present, seen, runs),
            lambda runs: self.answers(absent, seen, runs),
            Truths(present[seen], absent[seen], self._ratio(present, absent, seen), near),
        )

    def _ratio(
        self, present: np.ndarray, absent: np.ndarray, seen: np.ndarray
    ) -> Callable[[np.ndarray], np.ndarray] | None:
        """The log-likelihood ratio of answers by the mechanism's laws, or None."""
        moving = np.flatnonzero(present[seen] != absent[seen])
        laws = [
            next(
                (law for n, law in self.priced.laws.items() if _within(cell, self.slices[n])), None
            )
            for cell in seen[moving]
        ]
        if not all(law is not None and law.additive for law in laws):
            return None

        def ratio(outputs: np.ndarray) -> np.ndarray:
            ratios = (
                law.log_ratio(outputs[:, i] - present[seen[i]], outputs[:, i] - absent[seen[i]])
                for i, law in zip(moving, laws, strict=True)
                if law is not None
            )
            return np.asarray(sum(ratios))

        return ratio

    def _repeated(
        self, name: str, shifts: Sequence[np.ndarray], *, restarted: bool = False
    ) -> Move:
        """A record that only the second query sees: repeated noise would disclose it."""
        present, absent, _, _ = self._rows(shifts)
        seen = self.with_correlated(np.flatnonzero(present != absent))
        return Move(
            name,
            lambda runs: self.twice((absent, present), seen, runs, restarted=restarted),
            lambda runs: self.twice((absent, absent), seen, runs, restarted=restarted),
            Truths(
                np.concatenate([absent[seen], present[seen]]),
                np.concatenate([absent[seen], absent[seen]]),
            ),
        )


def _concentrated(bound: Bound, cells: int) -> np.ndarray:
    """All in one cell, within both norms."""
    return np.array([min(bound.l1, math.isqrt(bound.l2_squared))])


def _spread(bound: Bound, cells: int) -> np.ndarray:
    """Over as many cells as attain both norms."""
    number = max(1, min(cells, bound.l1**2 // max(1, bound.l2_squared)))
    step = min(bound.l1 // number, math.isqrt(bound.l2_squared // number))
    return np.full(number, step) if step else _concentrated(bound, cells)


def _widest(bound: Bound, cells: int) -> np.ndarray:
    """Over as many cells as can be moved, by as much as both norms allow."""
    return np.full(*(spreads(bound, cells) or [(1, 0)])[-1])


def _odd(shifts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same shifts, by an odd total of grid units, which a lowest bit may disclose."""
    row = np.sum(shifts, axis=0)
    row[np.argmax(row)] -= row.max() > 1 and row.sum() % 2 == 0
    return [row]


def _within(cell: int, cells: slice) -> bool:
    return bool(cells.start <= cell < cells.stop)


def _bit_flips(bound: Bound, cells: int) -> np.ndarray:
    """As many bits as one unit can change."""
    return np.ones(min(cells, bound.l1))


def _alternating(shifts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same shifts with every second sign reversed."""
    row = np.sum(shifts, axis=0)
    moving = np.flatnonzero(row)
    row[moving[1::2]] *= -1
    return [row]
