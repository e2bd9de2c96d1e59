"""Conformance of a mechanism: what every gate relies on, with an audit by drawing."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import numpy as np

from privfed.attacks.roc import clopper_pearson
from privfed.audits.groups import audit_group
from privfed.audits.test_statistics import learned_ratio
from privfed.errors import PluginError, number_of
from privfed.owner.opendp_maps import TOLERANCE, checked
from privfed.privacy.conversion import to_epsilon
from privfed.privacy.laws import Law
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protected, Protection, spreads
from privfed.privacy.noise import Noise, TestNoise
from privfed.questions.exact import Number, apart, exact
from privfed.questions.part import GRID, Bound, Part, PartType
from privfed.testing.conformance import Check, checks_of, run_checks

CELLS = 20_000  #: Cells of the audited part; each is one independent draw
LEVEL = 1e-6  #: Probability that a sound mechanism fails the audit, all of its events together
#: Bounds whose units may be spread over cells, with the cells of one block; blocks of one move.
VECTORS, BLOCKS = ((Bound(4, 16), 4), (Bound(16, 16), 16)), 20_000
#: Runs in which a whole group is audited, and cells of each of its parts.
GROUP_RUNS, GROUP_CELLS = 2000, 8
#: Where a zCDP statement is put to the test: deltas of the (epsilon, delta) statements it implies.
DELTAS = (0.3, 0.1, 0.03, 0.01, 0.001)


@dataclass(frozen=True)
class MechanismCase:
    """A mechanism on the bench: its spend, noise from a seed, cells of the audited part, groups."""

    mechanism: Mechanism
    spend: Fraction
    noise: Callable[[int], Noise] = TestNoise
    cells: int = CELLS
    groups: Mapping[str, Mapping[str, BoundedPart]] = field(default_factory=dict)

    def supported(self) -> Iterator[Mapping[str, BoundedPart]]:
        """The groups that the mechanism says it can protect."""
        return (group for group in self.groups.values() if self.mechanism.supports(group))

    def price(self, group: Mapping[str, BoundedPart]) -> Protection:
        """What the mechanism says of a group."""
        return self.mechanism.price(group, self.spend)

    def protect(
        self, exact: Mapping[str, np.ndarray], group: Mapping[str, BoundedPart], seed: int = 1
    ) -> Protected:
        """Protect with noise of a seed; every second cell of every part is said to reveal."""
        reveals = {name: np.arange(array.size) % 2 == 0 for name, array in exact.items()}
        return self.price(group).protect(exact, self.noise(seed), reveals)


def check_mechanism(
    mechanism: Mechanism,
    spend: Number = 1,
    *,
    noise: Callable[[int], Noise] = TestNoise,
    skip: Mapping[str, str] | None = None,
) -> list[str]:
    """Run every check on a mechanism; as :func:`.run_checks`.

    Args:
        spend: what one release costs, in the mechanism's currency; from 0.1 to 4 for a strong audit.
        noise: makes a source of noise from a seed.
    """
    bench = MechanismCase(mechanism, exact(spend, "spend"), noise, groups=groups())
    return run_checks(CHECKS, bench, skip)


def groups(cells: int = 200) -> dict[str, dict[str, BoundedPart]]:
    """Groups of parts of every style, the last without a finite bound."""

    def bounded(kind: PartType, bound: Bound | None, grid: Fraction = Fraction(1)) -> BoundedPart:
        return BoundedPart(Part(kind, ("cell",), (cells,), grid=grid), bound)

    return {
        "counts": {"counts": bounded(PartType.COUNTS, Bound(1, 1))},
        "joint": {
            "counts": bounded(PartType.COUNTS, Bound(2, 2)),
            "sums": bounded(PartType.SUMS, Bound(2**30, 2**60)),
        },
        "grids": {
            "counts": bounded(PartType.COUNTS, Bound(2, 2)),
            "sums": bounded(PartType.SUMS, Bound(2**30, 2**60), GRID),
            "squares": bounded(PartType.SUMS, Bound(2**29, 2**58), GRID),
        },
        "bits": {"bits": bounded(PartType.BITS, Bound(1, 1))},
        "unbounded": {"values": bounded(PartType.VALUES, None)},
    }


def exact_cells(group: Mapping[str, BoundedPart], value: int = 1) -> dict[str, np.ndarray]:
    """Exact arrays of one value for each part of a group."""
    return {
        name: np.full(g.part.shape, value, bool if g.part.type == PartType.BITS else np.int64)
        for name, g in group.items()
    }


def check_supports_something(bench: MechanismCase) -> None:
    """At least one style of parts can be protected."""
    assert list(bench.supported())


def check_unbounded_is_unprotected(bench: MechanismCase) -> None:
    """A part without a finite bound is refused, or its loss is called unprotected."""
    group = bench.groups["unbounded"]
    if bench.mechanism.supports(group):
        assert not bench.price(group).loss.finite


def check_cost_repeats(bench: MechanismCase) -> None:
    """Pricing gives a loss, without data, and the same one again."""
    for group in bench.supported():
        loss = bench.price(group).loss
        assert isinstance(loss, Loss)
        assert loss == bench.price(group).loss


def check_currency(bench: MechanismCase) -> None:
    """What is spent in the mechanism's currency is what is charged, no less, and no more than its ``dearest``."""
    for group in bench.supported():
        loss, most = bench.price(group).loss, bench.mechanism.dearest(bench.spend)
        assert not (told := _dearer(loss, most)), f"{told}, which dearest leaves out"
        if bench.mechanism.currency is None:
            assert loss == bench.mechanism.price(group, 2 * bench.spend).loss
            continue
        charged = getattr(loss, bench.mechanism.currency)
        assert charged is not None and charged >= bench.spend


def _dearer(loss: Loss, most: Loss | None) -> str:
    """By which statement a loss exceeds what is to dominate it, in words; or nothing."""
    for name in ("epsilon", "rho", "delta") if most is not None and most.finite else ():
        own, bound = getattr(loss, name), getattr(most, name)
        if bound is not None and (own is None or own > bound * (1 + Fraction(TOLERANCE))):
            return f"a release may have {name} {own if own is None else apart(float(own), float(bound))}"
    return ""


def check_shapes(bench: MechanismCase) -> None:
    """Every part comes back, masked array for array, in its shape."""
    for group in bench.supported():
        protected = bench.protect(exact_cells(group), group)
        assert set(protected) == set(group)
        for name, bounded in group.items():
            assert isinstance(protected[name], np.ma.MaskedArray)
            assert protected[name].shape == bounded.part.shape


def check_input_is_left(bench: MechanismCase) -> None:
    """The exact arrays are neither changed nor handed out."""
    for group in bench.supported():
        before = exact_cells(group)
        protected = bench.protect(before, group)
        for name, array in exact_cells(group).items():
            assert np.array_equal(before[name], array)
            assert not np.shares_memory(before[name], protected[name].data)


def check_masks_hold_zero(bench: MechanismCase) -> None:
    """Under a mask there is nothing."""
    for group in bench.supported():
        for array in bench.protect(exact_cells(group), group).values():
            assert not np.asarray(array.data)[np.ma.getmaskarray(array)].any()


def check_noise_is_the_sources(bench: MechanismCase) -> None:
    """Randomness comes from the given source alone: a seed repeats, another one differs."""
    if not bench.noise(1).secure:
        for group in bench.supported():
            one, again, other = (
                bench.protect(exact_cells(group), group, seed) for seed in (1, 1, 2)
            )
            assert all(np.array_equal(one[name].data, again[name].data) for name in group)
            if bench.price(group).loss.finite:
                assert any(not np.array_equal(one[name].data, other[name].data) for name in group)


def check_scale_is_exact(bench: MechanismCase) -> None:
    """What is stated covers the laws of the noise, all together, in exact fractions."""
    try:
        for group in bench.supported():
            if bench.price(group).loss.finite:
                checked(bench.mechanism, group, bench.spend)
    except PluginError as error:
        raise AssertionError(str(error)) from None


def check_law_is_kept(bench: MechanismCase) -> None:
    """The noise drawn has the published deviation, within 6 % (some six standard errors), and distribution.

    Drawn as the core draws it, before ``finish`` changes it; by a mechanism's own ``protect``, as released.
    The share of draws up to any point errs by no more than chance lets it (Massart 1990).
    """
    kind = type(bench.mechanism)
    for group in audited(bench):
        for name, law in bench.price(group).laws.items():
            if kind.protect is Mechanism.protect:
                drawn = kind.draw(bench.mechanism, law, bench.noise(1), bench.cells)
            else:
                drawn = bench.protect(exact_cells(group, 0), group)[name].data
            found = float(np.asarray(drawn, dtype=float).std())
            assert abs(found / law.std - 1) < 0.06, f"{law}: drawn {apart(found, law.std)}"
            _check_shape(law, np.asarray(drawn, dtype=float))


def _check_shape(law: Law, drawn: np.ndarray) -> None:
    points = law.window
    if points[-1] - points[0] >= points.size:
        return  # too wide a law for every point
    mass = np.exp(law.log_mass(points))
    assert abs(mass.sum() - 1) < 1e-6, (
        f"{law}: the probabilities of log_mass add up to {apart(mass.sum(), 1)}"
    )
    share = np.searchsorted(np.sort(drawn), points, side="right") / drawn.size
    apart_at = np.abs(share - mass.cumsum())
    worst = int(apart_at.argmax())
    assert apart_at[worst] < math.sqrt(math.log(2 / LEVEL) / 2 / drawn.size), (
        f"{law}: {100 * share[worst]:.1f} % of draws are at most {points[worst]}, and "
        f"{100 * mass[: worst + 1].sum():.1f} % by log_mass"
    )


def check_audit(bench: MechanismCase) -> None:
    """No event tells neighbours apart better than the charge allows (Clopper and Pearson 1934).

    A lower bound on p = P(event | one) and an upper bound on q = P(event | other) must not
    contradict p <= e^epsilon q + delta, for any (epsilon, delta) that the loss implies.
    """
    for group in audited(bench):
        loss = bench.price(group).loss
        if loss.finite:
            hold_events(loss, draws(bench, group, 1), draws(bench, group, 0))


def hold_events(loss: Loss, one: np.ndarray, other: np.ndarray, move: str = "a cell moved") -> None:
    """Hold thresholds of one number for each output, of two neighbours, against a loss."""
    statements = implied(loss)
    events = [*threshold_events(one, other), *threshold_events(other, one)]
    level = LEVEL / (2 * len(events))
    for first, second in events:
        low, high = (
            float(clopper_pearson(hits.sum(), hits.size, level)[end])
            for end, hits in enumerate((first, second))
        )
        for epsilon, delta in statements:
            text = f"{move}: P >= {low:.4f} against P <= {high:.4f} beats epsilon {epsilon:.3f}"
            assert low <= math.exp(epsilon) * high + delta, f"{text}, delta {delta:g}"


def check_all_cells(bench: MechanismCase) -> None:
    """Moving all cells at once, by every step that the bound allows, tells no more than the charge.

    Blocks of cells are answered in one call; the score is the likelihood ratio of a block by the law
    of the noise, or where there is none, by frequencies learned from half of the blocks.
    """
    for bound, cells in VECTORS:
        group = {"part": BoundedPart(Part(PartType.COUNTS, ("cell",), (BLOCKS * cells,)), bound)}
        if bench.mechanism.supports(group) and (priced := bench.price(group)).loss.finite:
            for moved, step in spreads(bound, cells):
                shift = step * (np.arange(cells) < moved)
                _check_shift(bench, priced, shift, f"{number_of(moved, 'cell')} moved by {step}")


def _check_shift(bench: MechanismCase, priced: Protection, shift: np.ndarray, move: str) -> None:
    arms = []
    for seed, units in ((20, np.zeros_like(shift)), (21, shift)):
        source = bench.noise(seed)
        fast = TestNoise(seed) if source.secure else source
        noisy = priced.protect({"part": np.tile(units, BLOCKS)}, fast)["part"]
        arms.append(np.asarray(noisy.data, dtype=float).reshape(BLOCKS, len(shift)))
    law = priced.laws.get("part")
    if law is None:
        ratio = learned_ratio(shift, arms[0][::2], arms[1][::2])
    else:
        ratio = partial(likelihood_ratio, law, shift)
    absent, present = (ratio(arm[1::2]) for arm in arms)
    hold_events(priced.loss, present, absent, move)


def likelihood_ratio(law: Law, shift: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """ln of how much likelier outputs are around a shift than around zero, shape (runs,)."""
    return np.asarray(law.log_ratio(outputs - shift, outputs).sum(axis=1))


def check_group(bench: MechanismCase) -> None:
    """Every part and cell of a group has noise of its own, however a record moves them."""
    for name, group in groups(GROUP_CELLS).items():
        if bench.mechanism.supports(group) and bench.price(group).loss.finite:
            source = bench.noise(3)
            finding = audit_group(
                lambda: bench.mechanism,
                group,
                bench.spend,
                delta=DELTAS[-1],
                trials=GROUP_RUNS,
                alpha=LEVEL,
                noise=None if source.secure else source,  # secure noise is slow: the audit's own
            )
            text = f"proves epsilon {finding.value:.3f} of {finding.of:.3f}: {finding.detail}"
            assert finding.severity == "none", f"{name}: {text}"


def audited(bench: MechanismCase) -> Iterator[Mapping[str, BoundedPart]]:
    """Groups of one part of many cells, of which a neighbour moves one by one."""
    for kind in (PartType.COUNTS, PartType.BITS):
        group = {"part": BoundedPart(Part(kind, ("cell",), (bench.cells,)), Bound(1, 1))}
        if bench.mechanism.supports(group):
            yield group


def draws(bench: MechanismCase, group: Mapping[str, BoundedPart], value: int) -> np.ndarray:
    """Independent outputs of one cell whose exact value is ``value``."""
    return np.asarray(bench.protect(exact_cells(group, value), group, 10 + value)["part"].data)


def threshold_events(one: np.ndarray, other: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """How often outputs fall on either side of each of a few thresholds, for both neighbours."""
    pooled = np.concatenate([one, other]).astype(float)
    cuts = np.unique(np.quantile(pooled, [0.01, 0.03, *(np.arange(1, 10) / 10), 0.97, 0.99]))
    sides = [np.less_equal, np.greater]
    return [(side(one, cut), side(other, cut)) for cut in cuts for side in sides]


def implied(loss: Loss) -> list[tuple[float, float]]:
    """(epsilon, delta) statements that a loss implies."""
    delta = float(loss.delta)
    if loss.epsilon is not None:
        return [(float(loss.epsilon), delta)]
    assert loss.rho is not None
    return [(to_epsilon(float(loss.rho), left), left + delta) for left in DELTAS]


CHECKS: tuple[Check[MechanismCase], ...] = checks_of(__name__)
