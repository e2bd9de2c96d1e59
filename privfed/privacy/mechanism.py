"""Base class of mechanisms, which protect a group of parts jointly."""

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

#: Maximum noise scale, in grid units. Samplers of 64-bit integers saturate, and a saturated draw
#: added to an exact value reveals it; noise of this scale reaches 2^62 with probability below
#: exp(-4096), and exact values stay below 2^53.
WIDEST = 2.0**50

Cells = Mapping[str, np.ndarray]  #: Arrays of a group's parts, by name
Protected = Mapping[str, np.ma.MaskedArray]  #: Released arrays; suppressed cells are masked


@dataclass(frozen=True)
class BoundedPart:
    """A part and its sensitivity under the owner's unit and relation (None: not finite)."""

    part: Part
    bound: Bound | None


class Mechanism(ABC):
    """Chooses the noise for a group of parts jointly; independent of learners and accountants.

    The core draws the noise, adds it, and derives the loss from the joint bounds; ``finish`` is
    given noisy values only. If a mechanism overrides :meth:`draw` or :meth:`protect`, its loss is
    claimed by its author, and every total that contains the loss says so.
    """

    name: ClassVar[str]  #: Its name in policies
    currency: ClassVar[str | None] = None  #: Unit of ``spend``: ``"epsilon"``, ``"rho"`` or None
    memoises: ClassVar[bool] = False  #: Whether a repeated query gets the stored answer free
    strict: bool = False  #: Whether cells that allow subtraction are suppressed too
    suppresses: ClassVar[bool] = False  #: Whether cells that reveal a record are masked; not DP

    @abstractmethod
    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Whether the mechanism can protect these parts."""

    @abstractmethod
    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Choose each part's noise and state the cost, from the arguments only."""

    def dearest(self, spend: Fraction) -> Loss | None:
        """Return a loss that dominates every release at this spend, or None.

        A loss without a law is that of randomized response, which dominates every epsilon-DP
        release (Kairouz, Oh and Viswanath 2015); a rho is dominated by its Renyi curve.
        """
        if self.currency is None:
            return None
        return Loss.pure(spend) if self.currency == "epsilon" else Loss.zcdp(spend)

    def finish(self, noisy: Cells, priced: Protection) -> Cells:
        """Post-process noisy arrays, such as by clamping, keeping shapes; by default unchanged."""
        return noisy

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        """Draw one part's noise; an override makes the loss the author's claim."""
        return type(law).draw(law, noise, cells)

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        """Add noise, finish and mask; an override makes the loss the author's claim.

        ``reveals`` marks each part's cells that would reveal a record; suppressed cells are masked
        and hold zero.
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
    overridden = type(mechanism).draw is not Mechanism.draw  # the author's claim, which audits test
    if drawn.shape != (exact.size,) or not (overridden or drawn.dtype.kind in "biu"):
        description = f"{drawn.dtype} of shape {drawn.shape}"
        raise PluginError(
            f"law {law.name!r} draws {description}, not integers of shape ({exact.size},)"
        )
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
            f"mechanism {mechanism.name!r}: finish must return part {name!r} as numbers of shape "
            f"{noisy[name].shape}, without NaN"
        )
    return array


class OpenDPMechanism(Mechanism):
    """Wraps an OpenDP measurement on integer vectors, at the cost given by its own map.

    OpenDP draws the noise, always securely, and no law is stated. Parts on one grid form one
    vector; each grid gets an equal share of the spend. A user's own measurement is the user's
    claim.
    """

    @abstractmethod
    def measurement(self, bound: Bound, spend: Fraction) -> Measurement:
        """Return the measurement for vectors of ``i64``, in units of one grid.

        Its map, at the bound in the norm of its input metric, must stay within the spend.
        """

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Whether all parts are numbers on a grid with a finite sensitivity."""
        return are_numbers(group)

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Price the sum of the maps, each rounded up, in epsilon or rho as its output measure says."""
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
        """Measure the parts of each grid as one vector; parts that no record can change stay exact."""
        released = {name: unmasked(exact[name]) for name in priced.group}
        for names, bound, share in shares(priced.group, priced.spend):
            vector = np.concatenate([exact[name].ravel() for name in names]).astype(np.int64)
            released_vector = np.array(self.measurement(bound, share)(vector))
            ends = np.cumsum([exact[name].size for name in names])
            if released_vector.shape != vector.shape:
                raise PluginError(f"mechanism {self.name!r}: its measurement changes the size")
            for name, cells in zip(names, np.split(released_vector, ends[:-1]), strict=True):
                released[name] = unmasked(cells.reshape(exact[name].shape))
        return released


def basis_of(mechanism: Mechanism, laws: Iterable[Law]) -> tuple[str, ...]:
    """Return the assumptions of a mechanism's losses that are not derived here; see :class:`.Loss`.

    Methods are looked up on the class: instance attributes of these names are never called.
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
    """Whether draws and protection are the core's, not the mechanism's own code."""
    kind = type(mechanism)
    return (kind.draw, kind.protect) == (Mechanism.draw, Mechanism.protect)


@dataclass(frozen=True)
class Protection:
    """A mechanism applied to one group of parts, with its price; public facts only."""

    mechanism: Mechanism  #: the mechanism
    group: Mapping[str, BoundedPart]  #: the parts, with their sensitivities
    spend: Fraction  #: spent on all parts, in the mechanism's currency
    laws: Mapping[str, Law] = field(default_factory=dict)  #: of each part's noise, if any
    stated: Loss | None = None  #: the mechanism's own price, or None; see :attr:`loss`

    @property
    def drawn(self) -> Mapping[str, Law]:
        """The law of the noise drawn here, by part."""
        return self.laws

    def on_grid(self, name: str, cells: np.ndarray) -> np.ndarray:
        """Return a part's exact cells in units of the grid on which noise is added."""
        return cells

    @cached_property
    def bare(self) -> tuple[str, ...]:
        """Parts that a record can change and that have no bound or no law."""
        return tuple(
            name
            for name, bounded in self.group.items()
            if bounded.bound is None or (bounded.bound.l1 and name not in self.laws)
        )

    @cached_property
    def charged(self) -> tuple[Charged, ...]:
        """Each law with the joint sensitivity of its parts on one grid; empty if parts are bare.

        Noise is independent: the losses of vectors on several grids, or of several laws, add up.
        """
        by_law: dict[tuple[Fraction, Law], dict[str, BoundedPart]] = {}
        for name, law in self.laws.items():
            if name in self.group:
                by_law.setdefault((self.group[name].part.grid, law), {})[name] = self.group[name]
        if self.bare:
            return ()
        each = [Charged(law, law.units(joint(parts))) for (_, law), parts in by_law.items()]
        return tuple(charged for charged in each if charged.units)

    @cached_property
    def loss(self) -> Loss:
        """The loss: the stated one, else that of the spend or of the laws; with laws and assumptions."""
        stated = self._default() if self.stated is None else self.stated
        basis = basis_of(self.mechanism, self.laws.values()) if stated.counted else ()
        if stated.delta:  # it is not compared with the laws: see covers
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
        """Return the protected form of exact arrays; see :meth:`Mechanism.protect`."""
        return type(self.mechanism).protect(self.mechanism, exact, self, noise, reveals or {})


def are_numbers(group: Mapping[str, BoundedPart]) -> bool:
    """Whether all parts are numbers on a grid with a finite sensitivity."""
    return all(
        g.bound is not None and g.part.exact and g.part.type != PartType.BITS
        for g in group.values()
    )


def shares(
    group: Mapping[str, BoundedPart], spend: Fraction
) -> Iterator[tuple[list[str], Bound, Fraction]]:
    """Divide a spend equally among the grids on which a record can change something.

    Yields, for each grid, the names of its parts, their joint sensitivity in its units, and its
    share.
    """
    grids: dict[Fraction, dict[str, BoundedPart]] = {}
    for name, bounded in group.items():
        grids.setdefault(bounded.part.grid, {})[name] = bounded
    bounds = {grid: joint(parts) for grid, parts in grids.items()}
    changing = [grid for grid, bound in bounds.items() if bound.l1]
    for grid in changing:
        yield list(grids[grid]), bounds[grid], spend / len(changing)


def spreads(bound: Bound, cells: int) -> list[tuple[int, int]]:
    """Return ways in which a neighbour may change cells: (number of cells, units each).

    All are within both norms; the numbers of cells are the powers of two below the maximum, and it.
    """
    max_cells = min(cells, bound.l1, bound.l2_squared)
    numbers = sorted({max_cells, *(2**power for power in range(max_cells.bit_length()))} - {0})
    steps = ((k, min(bound.l1 // k, math.isqrt(bound.l2_squared // k))) for k in numbers)
    return [(k, step) for k, step in steps if step and k <= max_cells]


def joint(group: Mapping[str, BoundedPart]) -> Bound:
    """Return the joint bound of a group's parts, each in its grid's units (ValueError: not finite)."""
    bounds = []
    for name, bounded in group.items():
        if bounded.bound is None:
            raise ValueError(f"part {name!r} has no finite sensitivity")
        bounds.append(bounded.bound)
    return Bound(sum(b.l1 for b in bounds), sum(b.l2_squared for b in bounds))


class TooWide(ValueError):
    """Noise is wider than :data:`WIDEST`; not an error of the mechanism."""


def within_range(scale: float) -> float:
    """Return a noise scale that 64-bit integers can hold (TooWide: above :data:`WIDEST`)."""
    if not 0 < scale <= WIDEST:
        raise TooWide("the spend is too small: 64-bit integers cannot hold its noise")
    return scale


def unmasked(array: np.ndarray, mask: np.ndarray | None = None) -> np.ma.MaskedArray:
    """Return a masked copy for release, whose masked cells are overwritten with zero."""
    if mask is None:
        return array.copy().view(np.ma.MaskedArray)
    return np.ma.MaskedArray(np.where(mask, np.zeros((), array.dtype), array), mask=mask)
