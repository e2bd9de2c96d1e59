"""The base of every mechanism: it protects a group of parts jointly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import Measurement

from privfed.errors import PluginError
from privfed.privacy.laws import Charged, Law, SumOfGaussians, proven
from privfed.privacy.loss import CLAIMED, MAPPED, MASKED, Loss, lost
from privfed.privacy.noise import Noise
from privfed.questions.part import Bound, Part, PartType

#: Widest noise that may be asked for, in grid units. Samplers of 64-bit integers saturate, and a
#: saturated draw added to an exact value gives it away; noise of this scale reaches 2^62 with
#: probability below exp(-4096), and exact values stay below 2^53.
WIDEST = 2.0**50

Cells = Mapping[str, np.ndarray]  #: Arrays of a group's parts, by name
Protected = Mapping[str, np.ma.MaskedArray]  #: What leaves; suppressed cells are masked


@dataclass(frozen=True)
class BoundedPart:
    """A part together with its bound under the owner's unit and relation (none: no finite one)."""

    part: Part
    bound: Bound | None


class Mechanism(ABC):
    """Chooses laws of noise for a group of parts jointly; knows no learner and no accountant.

    The core draws from the laws, adds, and derives the loss from the joint bounds; ``finish`` sees
    noisy values alone. One that overrides :meth:`draw` or :meth:`protect` is on its author's word,
    and every total that contains its losses says so.
    """

    name: ClassVar[str]  #: What policies call it
    currency: ClassVar[str | None] = None  #: Of ``spend``: ``"epsilon"``, ``"rho"`` or nothing
    memoises: ClassVar[bool] = False  #: Whether a question asked again gets the answer free
    strict: bool = False  #: Whether what could be subtracted is suppressed too
    suppresses: ClassVar[bool] = False  #: Whether cells that reveal a record are masked; no DP

    @abstractmethod
    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Whether it can protect these parts."""

    @abstractmethod
    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Choose the law of the noise on each part, and state the cost; by the arguments alone."""

    def dearest(self, spend: Fraction) -> Loss | None:
        """Give a loss that dominates any release at this spend, whatever is asked; or none.

        Randomized response, which a loss without a law stands for, dominates every epsilon-DP
        release (Kairouz, Oh and Viswanath 2015); a rho is dominated by its Renyi curve.
        """
        if self.currency is None:
            return None
        return Loss.pure(spend) if self.currency == "epsilon" else Loss.zcdp(spend)

    def finish(self, noisy: Cells, priced: Protection) -> Cells:
        """Change noisy arrays for release, shapes kept (clamp them, say); unchanged by default."""
        return noisy

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        """Draw one part's noise; overriding it is on the author's word."""
        return type(law).draw(law, noise, cells)

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        """Add noise, finish and mask; overriding it is on the author's word.

        ``reveals`` marks the cells of each part that would give a record away: suppressed ones are
        masked and hold zero.
        """
        noisy = {
            name: _noisy(self, exact[name], priced.laws.get(name), noise) for name in priced.group
        }
        masks = reveals if self.suppresses and not priced.loss.finite else {}
        finished = self.finish(noisy, priced)
        return {
            name: unmasked(_finished(self, finished, noisy, name), masks.get(name))
            for name in priced.group
        }


def _noisy(mechanism: Mechanism, exact: np.ndarray, law: Law | None, noise: Noise) -> np.ndarray:
    if law is None:
        return exact if type(mechanism).finish is Mechanism.finish else exact.copy()
    drawn = np.asarray(type(mechanism).draw(mechanism, law, noise, exact.size))
    own = type(mechanism).draw is not Mechanism.draw  # on its author's word: audits convict it
    if drawn.shape != (exact.size,) or not (own or drawn.dtype.kind in "biu"):
        found = f"{drawn.dtype} of shape {drawn.shape}"
        raise PluginError(f"law {law.name!r} draws {found}, not integers of shape ({exact.size},)")
    drawn = drawn.reshape(exact.shape)
    return np.asarray(exact + drawn if law.additive else exact.astype(bool) ^ drawn)


def _finished(mechanism: Mechanism, finished: Cells, noisy: Cells, name: str) -> np.ndarray:
    """A part as ``finish`` gave it back: numbers, shapes kept (PluginError)."""
    if type(mechanism).finish is Mechanism.finish:
        return noisy[name]
    known = isinstance(finished, Mapping) and name in finished
    array = np.asarray(finished[name] if known else None)
    if array.shape != noisy[name].shape or array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise PluginError(
            f"mechanism {mechanism.name!r}: finish gives part {name!r} back as no numbers of shape {noisy[name].shape}"
        )
    return array


class OpenDPMechanism(Mechanism):
    """Wraps a measurement of OpenDP's on integer vectors, at what its own map says it costs.

    Its draws are OpenDP's, from secure noise alone, and no law is told. The parts of one grid are
    one vector; each grid has an equal share of the spend. A user's own measurement is on its word.
    """

    @abstractmethod
    def measurement(self, bound: Bound, spend: Fraction) -> Measurement:
        """Build the measurement for vectors of ``i64``, in units of one grid.

        Its map, at the bound in the norm of its input metric, must stay within the spend.
        """

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Parts on a grid with a finite sensitivity."""
        return are_numbers(group)

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """The sum of the maps, each rounded up; in epsilon or rho as the output measures say."""
        losses = [self._mapped(bound, share) for _, bound, share in shares(group, spend)]
        return Protection(self, group, spend, stated=sum(losses[1:], losses[0]) if losses else None)

    def _mapped(self, bound: Bound, share: Fraction) -> Loss:
        built = self.measurement(bound, share)
        if not isinstance(built, Measurement):
            raise PluginError(f"mechanism {self.name!r}: measurement gives none of OpenDP's")
        euclidean = built.input_metric == l2_distance(T="f64")
        if not euclidean and built.input_metric != l1_distance(T="i64"):
            raise PluginError(
                f"mechanism {self.name!r}: its metric is neither L1 (i64) nor L2 (f64)"
            )
        change = math.nextafter(math.sqrt(bound.l2_squared), math.inf) if euclidean else bound.l1
        cost = Fraction(float(built.map(change)))  # type: ignore[no-untyped-call]
        if built.output_measure == max_divergence():
            return Loss.pure(cost)
        if built.output_measure == zero_concentrated_divergence():
            return Loss.zcdp(cost)
        raise PluginError(f"mechanism {self.name!r}: its measure is neither pure epsilon nor zCDP")

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        """Measure the parts of each grid as one vector; what no record can move is left as it is."""
        released = {name: unmasked(exact[name]) for name in priced.group}
        for names, bound, share in shares(priced.group, priced.spend):
            vector = np.concatenate([exact[name].ravel() for name in names]).astype(np.int64)
            told = np.array(self.measurement(bound, share)(vector))
            ends = np.cumsum([exact[name].size for name in names])
            if told.shape != vector.shape:
                raise PluginError(f"mechanism {self.name!r}: its measurement changes the size")
            for name, cells in zip(names, np.split(told, ends[:-1]), strict=True):
                released[name] = unmasked(cells.reshape(exact[name].shape))
        return released


def basis_of(mechanism: Mechanism, laws: Iterable[Law]) -> tuple[str, ...]:
    """What a mechanism's losses rest on beside what is derived here; see :class:`.Loss`.

    Methods are looked up on the class: what an instance holds under their names is never called.
    """
    kind, laws = type(mechanism), set(laws)
    basis = {f"{CLAIMED}:{law.name}" for law in laws if not proven(law)}
    masked = (law for law in laws if isinstance(law, SumOfGaussians))
    basis |= {f"{MASKED}:{law.owners - law.counted}" for law in masked}
    if not is_drawn_here(mechanism):
        theirs = OpenDPMechanism
        wraps = (kind.protect, getattr(kind, "price", None)) == (theirs.protect, theirs.price)
        wraps &= getattr(kind, "_mapped", None) is theirs._mapped
        basis.add(f"{MAPPED if wraps else CLAIMED}:{mechanism.name}")
    return tuple(sorted(basis))


def is_drawn_here(mechanism: Mechanism) -> bool:
    """Whether the core draws and protects, not the mechanism's own code."""
    kind = type(mechanism)
    return (kind.draw, kind.protect) == (Mechanism.draw, Mechanism.protect)


@dataclass(frozen=True)
class Protection:
    """A mechanism at work on one group of parts, priced: all that is public about it."""

    mechanism: Mechanism  #: what protects them
    group: Mapping[str, BoundedPart]  #: the parts, with their bounds
    spend: Fraction  #: what is spent on them, in the mechanism's currency
    laws: Mapping[str, Law] = field(default_factory=dict)  #: of each part's noise, if any
    stated: Loss | None = None  #: the mechanism's own price; else spend, nothing or the laws'

    @property
    def drawn(self) -> Mapping[str, Law]:
        """The law of what is drawn here for each part."""
        return self.laws

    def on_grid(self, name: str, cells: np.ndarray) -> np.ndarray:
        """A part's exact cells in units of the grid on which noise is added."""
        return cells

    @cached_property
    def bare(self) -> tuple[str, ...]:
        """Parts that a record can change, without a bound or without a law."""
        return tuple(
            name
            for name, own in self.group.items()
            if own.bound is None or (own.bound.l1 and name not in self.laws)
        )

    @cached_property
    def charged(self) -> tuple[Charged, ...]:
        """The laws with the joint bound of what each hides on one grid; none if parts are bare.

        Noises are independent: the losses of vectors of several grids or laws add up.
        """
        alike: dict[tuple[Fraction, Law], dict[str, BoundedPart]] = {}
        for name, law in self.laws.items():
            if name in self.group:
                alike.setdefault((self.group[name].part.grid, law), {})[name] = self.group[name]
        if self.bare:
            return ()
        each = [Charged(law, law.units(joint(parts))) for (_, law), parts in alike.items()]
        return tuple(charged for charged in each if charged.units)

    @cached_property
    def loss(self) -> Loss:
        """What it costs: the stated amount, with its laws, and what it rests on."""
        stated = self._default() if self.stated is None else self.stated
        basis = basis_of(self.mechanism, self.laws.values()) if stated.counted else ()
        if stated.delta:  # no laws are held to it: see covers
            basis = tuple(sorted({*basis, f"{CLAIMED}:{self.mechanism.name}"}))
        return replace(stated, laws=self.charged, basis=basis)

    def _default(self) -> Loss:
        if self.bare and is_drawn_here(self.mechanism):
            return Loss.open("leaves the owner without noise")
        if not self.charged and not self.bare:
            return Loss.free()
        spent = self.mechanism.dearest(self.spend)
        if spent is not None:
            return replace(spent, laws=())
        return sum((lost(charged) for charged in self.charged), Loss.free())

    def protect(self, exact: Cells, noise: Noise, reveals: Cells | None = None) -> Protected:
        """Turn exact arrays into what may leave; see :meth:`Mechanism.protect`."""
        return type(self.mechanism).protect(self.mechanism, exact, self, noise, reveals or {})


def are_numbers(group: Mapping[str, BoundedPart]) -> bool:
    """Whether all parts are numbers on a grid, with a finite sensitivity."""
    return all(
        g.bound is not None and g.part.exact and g.part.type != PartType.BITS
        for g in group.values()
    )


def shares(
    group: Mapping[str, BoundedPart], spend: Fraction
) -> Iterator[tuple[list[str], Bound, Fraction]]:
    """Divide a spend equally among the grids on which a record can change something.

    Yields the names of one grid's parts, their joint bound in its units, and the grid's share.
    """
    grids: dict[Fraction, dict[str, BoundedPart]] = {}
    for name, bounded in group.items():
        grids.setdefault(bounded.part.grid, {})[name] = bounded
    bounds = {grid: joint(own) for grid, own in grids.items()}
    changing = [grid for grid, bound in bounds.items() if bound.l1]
    for grid in changing:
        yield list(grids[grid]), bounds[grid], spend / len(changing)


def spreads(bound: Bound, cells: int) -> list[tuple[int, int]]:
    """Ways in which a neighbour may move cells: how many of them, and each by how many units.

    Within both norms; the number of cells doubles from one to the most, which is among them.
    """
    most = min(cells, bound.l1, bound.l2_squared)
    numbers = sorted({most, *(2**power for power in range(most.bit_length()))} - {0})
    steps = ((k, min(bound.l1 // k, math.isqrt(bound.l2_squared // k))) for k in numbers)
    return [(k, step) for k, step in steps if step and k <= most]


def joint(group: Mapping[str, BoundedPart]) -> Bound:
    """The joint bound of a group's parts, each in its grid's units (ValueError: none is finite)."""
    bounds = []
    for name, bounded in group.items():
        if bounded.bound is None:
            raise ValueError(f"part {name!r} has no finite sensitivity")
        bounds.append(bounded.bound)
    return Bound(sum(b.l1 for b in bounds), sum(b.l2_squared for b in bounds))


class TooWide(ValueError):
    """Noise is wider than :data:`WIDEST`, which no fault of a mechanism is."""


def within_range(scale: float) -> float:
    """Give back a noise scale that 64-bit integers can hold (TooWide: above :data:`WIDEST`)."""
    if not 0 < scale <= WIDEST:
        raise TooWide("the spend is too small: 64-bit integers cannot hold its noise")
    return scale


def unmasked(array: np.ndarray, mask: np.ndarray | None = None) -> np.ma.MaskedArray:
    """Wrap a copy for release; masked cells are overwritten with zero, not merely hidden."""
    if mask is None:
        return array.copy().view(np.ma.MaskedArray)
    return np.ma.MaskedArray(np.where(mask, np.zeros((), array.dtype), array), mask=mask)
