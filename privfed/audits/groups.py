"""Audits of a guard on its real group: all parts and cells that it protects, as a gate builds them.

A record moves the group in several ways that its bounds allow: one part alone, all parts at once,
with opposite signs, spread over cells, far from zero, and in the second of two queries. The cells that move are
those of the least noise, and those whose noise correlates with theirs are watched beside them.
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
#: Fewest and most runs in which the noise of each cell is measured before anything is moved.
PILOT = (32, 512)
WATCHED = 16  #: Most cells that a linear rule weighs beside those that move
ALL = 1024  #: Most cells that are all watched; of more those that a linear rule weighs
FAR = 64  #: How far from zero answers are tried as well, in deviations of the noise
#: Fraction of alpha for the audit on one cell: faults of scale are small, those of a group are not.
ALONE_ALPHA = 0.75
ALONE = 4  #: Parts that are moved alone, at most


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
    """Audit a mechanism on one cell with the owner's own noise, and on its real group; the finding that convicts, else that proves more.

    One cell that moves as far as all parts together tells most about the noise's scale and source;
    the group tells whether every part and cell gets noise of its own. Arguments as in
    :func:`audit_group`, but

    Args:
        trials: outputs on one cell, which is fast, and on the group.
        noise: the owner's source of noise; secure unless given.
    """
    mechanism, levels = build(), (ALONE_ALPHA * alpha, (1 - ALONE_ALPHA) * alpha)
    asked: dict[str, Any] = {"delta": delta, "noise": noise}
    steps = steps_of(mechanism, group)
    alone = audit(mechanism, spend, steps=steps, trials=trials[0], alpha=levels[0], **asked)
    whole = audit_group(build, group, spend, trials=trials[1], alpha=levels[1], **asked)
    worse = max(alone, whole, key=lambda found: (found.severity == Severity.BREACH, found.value))
    worse.detail.update(confidence=1 - alpha, trials=sum(trials))
    worse.detail["proven"] = {"one cell": alone.value, "the group": whole.value}
    return worse


def steps_of(mechanism: Mechanism, group: Group) -> int:
    """Grid units (of bits: bits) that a record moves in one cell that stands for a whole group."""
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
        build: gives a mechanism as the policy names it, anew.
        group: the parts with their bounds.
        spend: what one release spends, in the mechanism's currency.
        delta: where a claim in rho is stated.
        trials: outputs in all; fewer for wide groups.
        alpha: how often an innocent mechanism may be convicted.
        noise: where noise comes from; by default a fast source of the same distributions.
    """
    priced = build().price(group, spend)
    if is_gaussian(priced):
        group = widened(group)
        priced = build().price(group, spend)
    claim = claim_of(priced, delta)
    narrow = {name: narrowed(bounded) for name, bounded in group.items()}
    case = GroupCase(build, narrow, spend, noise or TestNoise(secrets.randbits(64)))
    runs = max(100, min(trials, DRAWN // case.size))
    found = audit_moves(case.moves(), claim, trials=runs, alpha=alpha, name=priced.mechanism.name)
    cells = sum(bounded.part.size for bounded in group.values())
    found.detail.update(parts=list(group), cells=cells, cells_run=case.size)
    return found


def widened(group: Group) -> Group:
    """The group with bounds so wide that discrete noise is nearly continuous, on every grid."""
    grids = {bounded.part.grid for bounded in group.values()}
    alike = [{n: b for n, b in group.items() if b.part.grid == grid} for grid in grids]
    norms = [joint(each).l2_squared for each in alike]
    steps = -(-WIDE // max(1, math.isqrt(min(filter(None, norms), default=1))))
    return {
        name: replace(bounded, bound=None if bounded.bound is None else bounded.bound.times(steps))
        for name, bounded in group.items()
    }


def narrowed(bounded: BoundedPart) -> BoundedPart:
    """The part with at most :data:`CELLS` cells, and its bound: fewer cells move no further."""
    shape = list(bounded.part.shape)
    while math.prod(shape) > CELLS:
        longest = int(np.argmax(shape))
        shape[longest] = (shape[longest] + 1) // 2
    return replace(bounded, part=replace(bounded.part, shape=tuple(shape)))


@dataclass(frozen=True)
class GroupCase:
    """A mechanism on trial with one group; its answers are laid out as one row of cells."""

    build: Callable[[], Mechanism]
    group: Group
    spend: Fraction
    noise: Noise

    @cached_property
    def priced(self) -> Protection:
        """The mechanism at work that answers, unless each answer comes from a new one."""
        return self.build().price(self.group, self.spend)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each part lies in a row."""
        ends = np.cumsum([0, *(bounded.part.size for bounded in self.group.values())]).tolist()
        return dict(zip(self.group, map(slice, ends[:-1], ends[1:]), strict=True))

    @property
    def size(self) -> int:
        """Cells of a row."""
        return sum(bounded.part.size for bounded in self.group.values())

    def answer(self, priced: Protection, exact: Mapping[str, np.ndarray]) -> np.ndarray:
        """One protected answer, shape (cells,); a suppressed cell holds zero."""
        told = priced.protect(exact, self.noise)
        return np.concatenate([np.asarray(told[name].data).ravel() for name in self.group])

    def exact(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """The parts of a row, in their shapes and types."""
        return {
            name: row[self.places[name]]
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
        exact, found = [self.exact(each) for each in rows], np.empty((runs, 2 * len(seen)))
        for run in range(runs):
            builds = len(exact) if restarted else 1
            both = [replace(self.priced, mechanism=self.build()) for _ in range(builds)]
            told = [self.answer(p, each)[seen] for p, each in zip(cycle(both), exact, strict=False)]
            found[run] = np.concatenate(told)
        return found

    @cached_property
    def noises(self) -> np.ndarray:
        """Noise alone, measured in a few runs, shape (runs, cells)."""
        least, most = PILOT
        runs = min(most, max(least, 2**20 // self.size))
        return self.answers(np.zeros(self.size), np.arange(self.size), runs)

    def thinnest(self, name: str) -> np.ndarray:
        """The cells of a part, those of the least noise first."""
        place = self.places[name]
        spread = self.noises[:, place].std(axis=0)
        return np.asarray(place.start + np.argsort(spread, kind="stable"))

    def beside(self, moved: np.ndarray) -> np.ndarray:
        """Indices of the cells that move, and of those whose noise correlates most with theirs."""
        centred = self.noises - self.noises.mean(axis=0)
        scaled = centred / np.maximum(np.sqrt((centred**2).sum(axis=0)), 1e-300)
        shared = np.abs(scaled[:, moved[:WATCHED]].T @ scaled).max(axis=0)
        shared[moved] = -1.0
        others = np.argsort(-shared, kind="stable")[: min(WATCHED, self.size - len(moved))]
        return np.sort(np.concatenate([moved, others]))

    def moves(self) -> list[Move]:
        """What one record may do to the group, within the bounds of every part."""
        able = [name for name, bounded in self.group.items() if bounded.bound and bounded.bound.l1]
        single = {name: self._shift(name, _concentrated) for name in able}
        spread = {name: self._shift(name, _spread) for name in able}
        widest = {name: self._shift(name, _widest) for name in able}
        moves = [
            self._move("all parts at once", list(single.values())),
            self._move("all parts, each spread over cells", list(spread.values())),
            self._move("all parts, with opposite signs", _opposed(list(spread.values()))),
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
        """By how much a part's cells move, as a row."""
        bounded, row = self.group[name], np.zeros(self.size)
        assert bounded.bound is not None
        if bounded.part.type == PartType.BITS:
            sizes = _turned
        steps = sizes(bounded.bound, bounded.part.size)
        row[self.thinnest(name)[: len(steps)]] = steps
        return np.asarray(row)

    def _far(self) -> np.ndarray:
        """A row of answers far from zero; bits are as near as can be."""
        row = np.ceil(FAR * self.noises.std(axis=0))
        for name, bounded in self.group.items():
            if bounded.part.type == PartType.BITS:
                row[self.places[name]] = 0
        return np.asarray(row)

    def _rows(
        self, shifts: Sequence[np.ndarray], base: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Both inputs, none below the base, the cells to watch, and where those near lie in them."""
        shift = np.sum(shifts, axis=0)
        absent, near = np.maximum(-shift, 0) + base, self.beside(np.flatnonzero(shift))
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
        """The log-likelihood ratio of answers by the laws that the mechanism tells; or none."""
        moving = np.flatnonzero(present[seen] != absent[seen])
        laws = [
            next(
                (law for n, law in self.priced.laws.items() if _within(cell, self.places[n])), None
            )
            for cell in seen[moving]
        ]
        if not all(law is not None and law.additive for law in laws):
            return None

        def ratio(outputs: np.ndarray) -> np.ndarray:
            each = (
                law.log_ratio(outputs[:, at] - present[seen[at]], outputs[:, at] - absent[seen[at]])
                for at, law in zip(moving, laws, strict=True)
                if law is not None
            )
            return np.asarray(sum(each))

        return ratio

    def _repeated(
        self, name: str, shifts: Sequence[np.ndarray], *, restarted: bool = False
    ) -> Move:
        """A record that the first query does not see: noise that comes again gives it away."""
        present, absent, _, _ = self._rows(shifts)
        seen = self.beside(np.flatnonzero(present != absent))
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
    """Over as many cells as both norms can be met with."""
    number = max(1, min(cells, bound.l1**2 // max(1, bound.l2_squared)))
    step = min(bound.l1 // number, math.isqrt(bound.l2_squared // number))
    return np.full(number, step) if step else _concentrated(bound, cells)


def _widest(bound: Bound, cells: int) -> np.ndarray:
    """Over as many cells as can be moved, by as much as both norms allow."""
    return np.full(*(spreads(bound, cells) or [(1, 0)])[-1])


def _odd(shifts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same shifts, together by an odd number of grid units: what a lowest bit may tell."""
    row = np.sum(shifts, axis=0)
    row[np.argmax(row)] -= row.max() > 1 and row.sum() % 2 == 0
    return [row]


def _within(cell: int, place: slice) -> bool:
    return bool(place.start <= cell < place.stop)


def _turned(bound: Bound, cells: int) -> np.ndarray:
    """Bits, as many as one unit can turn."""
    return np.ones(min(cells, bound.l1))


def _opposed(shifts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same shifts with every second cell that moves going down."""
    row = np.sum(shifts, axis=0)
    moved = np.flatnonzero(row)
    row[moved[1::2]] *= -1
    return [row]
