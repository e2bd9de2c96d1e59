"""Conformance of a mechanism: the properties that gates rely on, and audits by sampling."""

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
LEVEL = 1e-6  #: Probability that a sound mechanism fails one audit, over all its events
#: Bounds whose units may be distributed over cells, and cells per block; blocks per shift.
VECTORS, BLOCKS = ((Bound(4, 16), 4), (Bound(16, 16), 16)), 20_000
#: Runs of the audit of a whole group, and cells of each part.
GROUP_RUNS, GROUP_CELLS = 2000, 8
#: Deltas of the (epsilon, delta) statements at which a zCDP loss is tested.
DELTAS = (0.3, 0.1, 0.03, 0.01, 0.001)


@dataclass(frozen=True)
class MechanismCase:
    """A mechanism under test: its spend, noise from a seed, cells of the audited part, groups."""

    mechanism: Mechanism
    spend: Fraction
    noise: Callable[[int], Noise] = TestNoise
    cells: int = CELLS
    groups: Mapping[str, Mapping[str, BoundedPart]] = field(default_factory=dict)

    def supported(self) -> Iterator[Mapping[str, BoundedPart]]:
        """Return the groups that the mechanism supports."""
        return (group for group in self.groups.values() if self.mechanism.supports(group))

    def price(self, group: Mapping[str, BoundedPart]) -> Protection:
        """Return the mechanism's price of a group."""
        return self.mechanism.price(group, self.spend)

    def protect(
        self, exact: Mapping[str, np.ndarray], group: Mapping[str, BoundedPart], seed: int = 1
    ) -> Protected:
        """Protect with noise from a seed; every second cell of every part is marked as revealing."""
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
        spend: cost of one release, in the mechanism's currency; 0.1 to 4 for a powerful audit.
        noise: returns a source of noise for a seed.
    """
    case = MechanismCase(mechanism, exact(spend, "spend"), noise, groups=groups())
    return run_checks(CHECKS, case, skip)


def groups(cells: int = 200) -> dict[str, dict[str, BoundedPart]]:
    """Return groups of parts of every type, the last without a finite bound."""

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
    """Return a constant array for each part of a group."""
    return {
        name: np.full(g.part.shape, value, bool if g.part.type == PartType.BITS else np.int64)
        for name, g in group.items()
    }


def check_supports_something(case: MechanismCase) -> None:
    """At least one style of parts can be protected."""
    assert list(case.supported()), f"supports refuses {', '.join(case.groups)}"


def check_unbounded_is_unprotected(case: MechanismCase) -> None:
    """A part without a finite bound is refused, or its loss is called unprotected."""
    group = case.groups["unbounded"]
    if case.mechanism.supports(group):
        assert not case.price(group).loss.finite, (
            "it supports a part without a bound, at a finite cost; return False, or state Loss.open(reason)"
        )


def check_cost_repeats(case: MechanismCase) -> None:
    """Pricing gives a loss, without data, and the same one again."""
    for group in case.supported():
        loss = case.price(group).loss
        assert isinstance(loss, Loss), f"the loss is {type(loss).__name__}, no Loss"
        assert loss == case.price(group).loss, "the second price differs; draw nothing in price"


def check_currency(case: MechanismCase) -> None:
    """What is spent in the mechanism's currency is what is charged, no less, and no more than its ``dearest``."""
    for group in case.supported():
        loss, limit = case.price(group).loss, case.mechanism.dearest(case.spend)
        assert not (excess := _excess(loss, limit)), f"{excess}, which dearest leaves out"
        if case.mechanism.currency is None:
            assert loss == case.mechanism.price(group, 2 * case.spend).loss, (
                'twice the spend costs something else: name its currency, such as "epsilon"'
            )
            continue
        charged = getattr(loss, case.mechanism.currency)
        assert charged is not None and charged >= case.spend, (
            f"of a spend of {case.mechanism.currency} {float(case.spend):g} it charges {charged}"
        )


def _excess(loss: Loss, limit: Loss | None) -> str:
    """First component in which a loss exceeds its limit, in words; empty if there is none."""
    for name in ("epsilon", "rho", "delta") if limit is not None and limit.finite else ():
        value, bound = getattr(loss, name), getattr(limit, name)
        if bound is not None and (value is None or value > bound * (1 + Fraction(TOLERANCE))):
            return f"a release may have {name} {value if value is None else apart(float(value), float(bound))}"
    return ""


def check_shapes(case: MechanismCase) -> None:
    """Every part comes back, masked array for array, in its shape."""
    for group in case.supported():
        protected = case.protect(exact_cells(group), group)
        assert set(protected) == set(group), f"gives {sorted(protected)}, not {sorted(group)}"
        for name, bounded in group.items():
            array = protected[name]
            assert isinstance(array, np.ma.MaskedArray), f"{name} is no masked array: see unmasked"
            assert array.shape == bounded.part.shape, f"{name} has shape {array.shape}"


def check_input_is_left(case: MechanismCase) -> None:
    """The exact arrays are neither changed nor handed out."""
    for group in case.supported():
        before = exact_cells(group)
        protected = case.protect(before, group)
        for name, array in exact_cells(group).items():
            assert np.array_equal(before[name], array), f"{name}: the exact array is changed"
            assert not np.shares_memory(before[name], protected[name].data), (
                f"{name}: the exact array itself is released"
            )


def check_masks_hold_zero(case: MechanismCase) -> None:
    """Under a mask there is nothing."""
    for group in case.supported():
        for array in case.protect(exact_cells(group), group).values():
            under = np.asarray(array.data)[np.ma.getmaskarray(array)]
            assert not under.any(), (
                "a suppressed cell keeps its number under the mask; see unmasked"
            )


def check_noise_is_the_sources(case: MechanismCase) -> None:
    """Randomness comes from the given source alone: a seed repeats, another one differs."""
    if not case.noise(1).secure:
        for group in case.supported():
            a, b, c = (case.protect(exact_cells(group), group, seed) for seed in (1, 1, 2))
            same, other = (
                all(np.array_equal(a[name].data, again[name].data) for name in group)
                for again in (b, c)
            )
            assert same, "one seed gives two releases; draw from the noise argument alone"
            assert not (other and case.price(group).loss.finite), (
                "two seeds give one release, at a finite cost: there is no noise"
            )


def check_scale_is_exact(case: MechanismCase) -> None:
    """What is stated covers the laws of the noise, all together, in exact fractions."""
    try:
        for group in case.supported():
            if case.price(group).loss.finite:
                checked(case.mechanism, group, case.spend)
    except PluginError as error:
        raise AssertionError(str(error)) from None


def check_law_is_kept(case: MechanismCase) -> None:
    """The noise drawn has the published deviation, within 6 % (some six standard errors), and distribution.

    Drawn as by the core, before ``finish``; if the mechanism overrides ``protect``, as released. The
    empirical distribution function stays within its confidence band (Massart 1990).
    """
    kind = type(case.mechanism)
    for group in audited_groups(case):
        for name, law in case.price(group).laws.items():
            if kind.protect is Mechanism.protect:
                drawn = kind.draw(case.mechanism, law, case.noise(1), case.cells)
            else:
                drawn = case.protect(exact_cells(group, 0), group)[name].data
            std = float(np.asarray(drawn, dtype=float).std())
            assert abs(std / law.std - 1) < 0.06, f"{law}: drawn {apart(std, law.std)}"
            _check_shape(law, np.asarray(drawn, dtype=float))


def _check_shape(law: Law, drawn: np.ndarray) -> None:
    points = law.window
    if points[-1] - points[0] >= points.size:
        return  # too wide a law for every point
    mass = np.exp(law.log_mass(points))
    assert abs(mass.sum() - 1) < 1e-6, (
        f"{law}: the probabilities of log_mass add up to {apart(mass.sum(), 1)}"
    )
    cdf = np.searchsorted(np.sort(drawn), points, side="right") / drawn.size
    distance = np.abs(cdf - mass.cumsum())
    worst = int(distance.argmax())
    assert distance[worst] < math.sqrt(math.log(2 / LEVEL) / 2 / drawn.size), (
        f"{law}: {100 * cdf[worst]:.1f} % of draws are at most {points[worst]}, and "
        f"{100 * mass[: worst + 1].sum():.1f} % by log_mass"
    )


def check_audit(case: MechanismCase) -> None:
    """No event tells neighbours apart better than the charge allows (Clopper and Pearson 1934).

    A lower bound on p = P(event | one) and an upper bound on q = P(event | other) must not
    contradict p <= e^epsilon q + delta, for any (epsilon, delta) that the loss implies.
    """
    for group in audited_groups(case):
        loss = case.price(group).loss
        if loss.finite:
            hold_events(loss, draws(case, group, 1), draws(case, group, 0))


def hold_events(loss: Loss, a: np.ndarray, b: np.ndarray, move: str = "a cell moved") -> None:
    """Assert that threshold events of outputs on two neighbours, shape (runs,), do not violate a loss."""
    statements = implied_statements(loss)
    events = [*threshold_events(a, b), *threshold_events(b, a)]
    level = LEVEL / (2 * len(events))
    for first, second in events:
        low, high = (
            float(clopper_pearson(hits.sum(), hits.size, level)[end])
            for end, hits in enumerate((first, second))
        )
        for epsilon, delta in statements:
            text = f"{move}: P >= {low:.4f} against P <= {high:.4f} beats epsilon {epsilon:.3f}"
            assert low <= math.exp(epsilon) * high + delta, f"{text}, delta {delta:g}"


def check_all_cells(case: MechanismCase) -> None:
    """Moving all cells at once, by every step that the bound allows, tells no more than the charge.

    All blocks of cells are protected in one call. The test statistic is a block's likelihood ratio under
    the noise distribution, or, if it is unknown, a ratio learned from half of the blocks.
    """
    for bound, cells in VECTORS:
        group = {"part": BoundedPart(Part(PartType.COUNTS, ("cell",), (BLOCKS * cells,)), bound)}
        if case.mechanism.supports(group) and (priced := case.price(group)).loss.finite:
            for moved, step in spreads(bound, cells):
                shift = step * (np.arange(cells) < moved)
                _check_shift(case, priced, shift, f"{number_of(moved, 'cell')} moved by {step}")


def _check_shift(case: MechanismCase, priced: Protection, shift: np.ndarray, move: str) -> None:
    samples = []
    for seed, units in ((20, np.zeros_like(shift)), (21, shift)):
        source = case.noise(seed)
        fast = TestNoise(seed) if source.secure else source
        noisy = priced.protect({"part": np.tile(units, BLOCKS)}, fast)["part"]
        samples.append(np.asarray(noisy.data, dtype=float).reshape(BLOCKS, len(shift)))
    law = priced.laws.get("part")
    if law is None:
        ratio = learned_ratio(shift, samples[0][::2], samples[1][::2])
    else:
        ratio = partial(likelihood_ratio, law, shift)
    absent, present = (ratio(sample[1::2]) for sample in samples)
    hold_events(priced.loss, present, absent, move)


def likelihood_ratio(law: Law, shift: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Log-likelihood ratio of outputs under a shift against zero, shape (runs,)."""
    return np.asarray(law.log_ratio(outputs - shift, outputs).sum(axis=1))


def check_group(case: MechanismCase) -> None:
    """Every part and cell of a group has noise of its own, however a record moves them."""
    for name, group in groups(GROUP_CELLS).items():
        if case.mechanism.supports(group) and case.price(group).loss.finite:
            source = case.noise(3)
            finding = audit_group(
                lambda: case.mechanism,
                group,
                case.spend,
                delta=DELTAS[-1],
                trials=GROUP_RUNS,
                alpha=LEVEL,
                noise=None if source.secure else source,  # secure noise is slow: the audit's own
            )
            text = f"proves epsilon {finding.value:.3f} of {finding.of:.3f}: {finding.detail}"
            assert finding.severity == "none", f"{name}: {text}"


def audited_groups(case: MechanismCase) -> Iterator[Mapping[str, BoundedPart]]:
    """Yield groups of one part with many cells, each of which a neighbour changes by one."""
    for kind in (PartType.COUNTS, PartType.BITS):
        group = {"part": BoundedPart(Part(kind, ("cell",), (case.cells,)), Bound(1, 1))}
        if case.mechanism.supports(group):
            yield group


def draws(case: MechanismCase, group: Mapping[str, BoundedPart], value: int) -> np.ndarray:
    """Return independent outputs of cells whose exact value is ``value``."""
    return np.asarray(case.protect(exact_cells(group, value), group, 10 + value)["part"].data)


def threshold_events(a: np.ndarray, b: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for both neighbours, whether each output is on either side of each of a few thresholds."""
    pooled = np.concatenate([a, b]).astype(float)
    thresholds = np.unique(np.quantile(pooled, [0.01, 0.03, *(np.arange(1, 10) / 10), 0.97, 0.99]))
    sides = [np.less_equal, np.greater]
    return [(side(a, t), side(b, t)) for t in thresholds for side in sides]


def implied_statements(loss: Loss) -> list[tuple[float, float]]:
    """Return (epsilon, delta) statements that a loss implies."""
    delta = float(loss.delta)
    if loss.epsilon is not None:
        return [(float(loss.epsilon), delta)]
    assert loss.rho is not None, "a loss without epsilon and rho"
    return [(to_epsilon(float(loss.rho), d), d + delta) for d in DELTAS]


CHECKS: tuple[Check[MechanismCase], ...] = checks_of(__name__)
