"""Privacy loss distributions: against closed forms, references, and the un-bucketed composition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_trials import QUERY, SMALL
from scipy.stats import binom

from privfed.accountants import pld, rdp
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import UnsupportedLoss
from privfed.exchange.messages import Request
from privfed.ledger import Ledger
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.randomized_response import flip_probability
from privfed.owner.gate import Gate
from privfed.privacy.laws import BitFlips, Charged, DiscreteGaussian, DiscreteLaplace
from privfed.privacy.loss import Loss
from privfed.privacy.pairs import DominatingPair, GaussianPair, LaplacePair, ResponsePair
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import dearest_of
from privfed.tables.records import Records
from privfed.testing.queries import Histogram


@pytest.mark.parametrize("epsilon", [720, 10**6])
def test_no_epsilon_is_too_large_for_a_page(epsilon: int) -> None:
    """e^720 is no float, and a curve up to 10^6 fits no memory: the accountant's own figure is stated."""
    allowed = (pld.KindAllowance("kind", 3, (Loss.pure(epsilon),)),)
    told = pld.retrospective(allowed, 1e-5, 3.0 * epsilon)
    assert (told.epsilon, told.method) == (3.0 * epsilon, "filter")


def laplace(epsilon: float, steps: int = 1000) -> Loss:
    """Laplace noise of that epsilon over a fine grid."""
    return Loss.pure(repr(epsilon), Charged(DiscreteLaplace(steps / epsilon), steps))


def response(epsilon: float) -> Loss:
    """One randomized bit of that epsilon."""
    flip = flip_probability(Fraction(repr(epsilon)))
    return Loss.pure(repr(epsilon), Charged(BitFlips(flip), 1))


def gaussian(mu: float) -> Loss:
    """Gaussian noise of that sensitivity in standard deviations."""
    return Loss.zcdp(repr(mu**2 / 2), Charged(DiscreteGaussian(1000 / mu), 1000000))


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_counts_under_laplace_noise_agree_with_the_reference(delta: float) -> None:
    """A hundred integer counts, whose discrete noise costs more than continuous noise would."""
    ours = pld.epsilon_at([Loss.pure("0.05", Charged(DiscreteLaplace(20.0), 1))] * 100, delta)
    theirs = reference.from_discrete_laplace_mechanism(
        0.05, value_discretization_interval=1e-4
    ).self_compose(100)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=0.012)


def test_gaussians_add_up_in_squares() -> None:
    """Composition of Gaussians is Gaussian: the analytic formula."""
    mu = math.sqrt(25 * 0.01 + 10 * 0.09)
    exact = float(GaussianPair(mu).curve(np.array([2.0]))[0])
    ours = pld.epsilon_at([gaussian(0.1)] * 25 + [gaussian(0.3)] * 10, exact)
    assert ours == pytest.approx(2.0, rel=0.01)
    assert ours >= 2.0 * (1 - 1e-9)


def test_randomized_responses_are_not_forgotten() -> None:
    """Twenty bits cost what twenty bits cost (one library's accountant counts one of them)."""
    twenty = pld.epsilon_at([response(math.log(3))] * 20, 1e-6)
    theirs = reference.from_randomized_response(
        0.5, 2, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).self_compose(20)
    assert twenty == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=0.01)
    assert twenty > 10
    one = Loss.pure("20", Charged(BitFlips(flip_probability(Fraction(1))), 20))
    assert pld.epsilon_at([one], 1e-6) == pytest.approx(
        pld.epsilon_at([response(1.0)] * 20, 1e-6), rel=1e-9
    )


@pytest.mark.parametrize("size", [0.03, 0.4, 2.0])
@pytest.mark.parametrize("steps", [1, 2, 7, 64, 100])
def test_the_discrete_laplace_curve_is_that_of_its_probabilities(size: float, steps: int) -> None:
    """sum over k of (P(k - D) - e^eps P(k))+, and never above randomized response."""
    k = np.arange(-60 * steps - 3000, 60 * steps + 3000)
    p = math.exp(-size / steps)
    law = (1 - p) / (1 + p) * p ** np.abs(k)
    shifted = (1 - p) / (1 + p) * p ** np.abs(k - steps)
    grid = np.linspace(-size, size, 41)
    exact = [np.maximum(shifted - math.exp(e) * law, 0).sum() for e in grid]
    ours = LaplacePair(size, steps).curve(grid)
    np.testing.assert_allclose(ours, exact, atol=1e-9 + p ** (3000 + 59 * steps))
    assert (ours <= ResponsePair(size).curve(grid) + 1e-12).all()


@pytest.mark.parametrize("split", [(0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.3)])
@pytest.mark.parametrize("size", [0.2, 1.0, 3.0])
def test_one_cell_that_moves_is_worse_than_several(size: float, split: tuple[float, ...]) -> None:
    """An L1 shift spread over independent cells is dominated by the same shift of one cell."""
    interval = size / 2000
    parts = [
        reference.from_laplace_mechanism(1 / (size * s), value_discretization_interval=interval)
        for s in split
    ]
    spread = parts[0]
    for part in parts[1:]:
        spread = spread.compose(part)
    grid = np.linspace(0, size, 101)
    whole = LaplacePair(size, 1000).curve(grid)
    assert (np.array(spread.get_delta_for_epsilon(grid.tolist())) <= whole + 5e-4 * size).all()


@settings(max_examples=15)
@given(st.lists(st.sampled_from([0.05, 0.1, 0.3]), min_size=1, max_size=12), st.data())
def test_never_above_the_sum_and_never_below_one(
    epsilons: list[float], data: st.DataObject
) -> None:
    """A composed figure lies between the costliest release and basic composition."""
    make = st.sampled_from([laplace, response])
    losses = [data.draw(make)(epsilon) for epsilon in epsilons]
    total = pld.epsilon_at(losses, 1e-9)
    assert total <= sum(epsilons) + 1e-12
    assert total >= pld.epsilon_at([losses[0]], 1e-9) * 0.985


def test_buckets_and_grid_cost_under_a_hundredth() -> None:
    """A mixed schedule of many different releases, against one without buckets."""
    rng = np.random.default_rng(1)
    sizes = rng.uniform(0.5, 1.5, 150) / math.sqrt(150)
    losses = [(laplace, response, gaussian)[i % 3](float(e)) for i, e in enumerate(sizes)]
    found = pld.pairs(losses)
    fine = pld.distribution(found, 2e-4).get_epsilon_for_delta(1e-6)
    ours = pld.epsilon_at(losses, 1e-6)
    assert fine <= ours * (1 + 1e-6)
    assert ours == pytest.approx(fine, rel=0.01)
    assert len(pld.bucketed(found)) < len(found) * 0.8


def test_buckets_only_round_up() -> None:
    """Each bucket is at least as costly as what is sorted into it, by at most its step."""
    found: Counter[DominatingPair] = Counter(
        {LaplacePair(size, 8): 1 for size in (0.011, 0.5, 1.0, 3.3)}
    )
    for (before, _), (after, _) in zip(sorted_(found), sorted_(pld.bucketed(found)), strict=True):
        assert before.size <= after.size <= before.size * 1.0101


def sorted_(found: Counter[Any]) -> list[Any]:
    """Pairs by size."""
    return sorted(found.items(), key=lambda item: item[0].size)


def test_what_has_no_curve_is_refused_and_falls_back() -> None:
    """An open release, a bare zCDP loss, a Gaussian too narrow for the lattice."""
    for loss in (
        Loss.open("why"),
        Loss.zcdp("0.1"),
        Loss(Fraction(1), delta=Fraction(1, 10**6)),
        Loss.zcdp("0.1", Charged(DiscreteGaussian("2.0"), 4)),
    ):
        with pytest.raises(UnsupportedLoss):
            pld.epsilon_at([loss], 1e-6)
    assert pld.retrospective((allowed(Loss.open("why")),), 1e-6, 3.0).method == "filter"


def allowed(*losses: Loss, times: int = 1) -> pld.KindAllowance:
    """A kind that may be answered so often, at such losses."""
    return pld.KindAllowance("kind", times, losses)


def test_a_bare_zcdp_loss_is_composed_by_renyi_curves() -> None:
    """Where the law is not known the Rényi figure stands, close to the filter's own."""
    kinds = (allowed(Loss.zcdp("0.01"), times=10), allowed(laplace(0.1), times=10))
    rhos = [loss.rho * kind.times for kind in kinds for loss in kind.losses if loss.rho]
    total = (sum(rhos, Fraction(0)), Fraction(0))
    own = ZeroConcentrated().guarantee(total, Fraction(1, 10**6))[0]
    figure = pld.retrospective(kinds, 1e-6, float(own) + 1e-3)
    assert figure.method == "rdp"
    assert figure.epsilon <= float(own) + 1e-3


def _exchange(first: float, many: int, each: float, one: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities under two inputs of all that a server sees who chooses by the first bit.

    A bit at epsilon ``first``; after a yes so many bits at ``each``, after a no one bit at ``one``.
    """
    truth = [1 / (1 + math.exp(-e)) for e in (first, each, one)]
    branches = []
    for a, b, c in (truth, [1 - share for share in truth]):
        counts = binom.pmf(np.arange(many + 1), many, b)
        branches.append(np.concatenate([a * counts, [(1 - a) * c, (1 - a) * (1 - c)]]))
    return branches[0], branches[1]


def test_a_tight_figure_holds_against_a_server_that_chooses_by_what_it_saw() -> None:
    """The laws of what was charged say 1.7, which fails one time in five; what was allowed holds."""
    told, other = _exchange(1.0, 400, 0.01, 4.0)
    charged = [response(1.0)] + [response(0.01)] * 400
    naive = pld.epsilon_at(charged, 1e-5)
    assert naive == pytest.approx(1.714, abs=0.02)
    assert np.maximum(told - math.exp(naive) * other, 0).sum() > 0.15
    kinds = (allowed(Loss.pure(1)), allowed(Loss.pure(4)))
    figure = pld.retrospective(kinds, 1e-5, 99.0)
    for one, two in ((told, other), (other, told)):
        assert np.maximum(one - math.exp(figure.epsilon) * two, 0).sum() <= 1e-5


def test_without_a_bound_on_what_may_be_asked_the_filters_figure_stands() -> None:
    """A tight total is reported for what was allowed before the first charge only, and says so."""
    planned = pld.retrospective((allowed(laplace(0.1), times=50),), 1e-6, 5.0)
    adaptive = pld.retrospective((), 1e-6, 5.0)
    assert (planned.method, planned.label) == ("pld", pld.PLANNED) and planned.epsilon < 4
    assert (adaptive.epsilon, adaptive.label) == (5.0, pld.ADAPTIVE)


def test_nothing_costs_nothing() -> None:
    """No releases, or free ones."""
    assert pld.epsilon_at([], 1e-6) == pld.epsilon_at([Loss.free()], 1e-6) == 0.0
    assert rdp.epsilon_at([], 1e-6) == rdp.epsilon_at([Loss.free()], 1e-6) == 0.0


@pytest.mark.parametrize("make", [laplace, response, gaussian])
@pytest.mark.parametrize("times", [1, 30])
def test_renyi_figures_are_above_and_near_the_distributions(
    make: Callable[..., Any], times: int
) -> None:
    """Two independent ways to compose: neither is far below the other."""
    losses = [make(0.2)] * times
    tight, renyi = pld.epsilon_at(losses, 1e-5), rdp.epsilon_at(losses, 1e-5)
    assert tight * 0.985 <= renyi <= tight * 1.6
    with pytest.raises(UnsupportedLoss):
        rdp.epsilon_at([Loss.open("why")], 1e-5)


def _counted(
    times: int | None, asked: int, *, proposed: bool = False, block: int = 1
) -> pld.ComposedGuarantee:
    """The figure of a ledger that charged some counts at a tenth each, of so many allowed."""
    policy = Policy({QUERY.kind: (Guard.of("laplace", spend="0.1", cap="0.1", times=times),)})
    records = Records(SMALL, np.array([[1.0], [70.0]]))
    gate = Gate("c", records, policy, Ledger(), queries=(Histogram,), block=block)
    for number in range(asked - proposed):
        gate.answer(Request.of(f"r{number}", QUERY))
    if proposed:
        gate.answer(Request.of("proposed", QUERY, spend=Fraction(1, 20)))
    return pld.of_entries(gate.ledger.entries(), _allowed(policy), 1e-6, 5.0)


def _allowed(policy: Policy) -> list[pld.KindAllowance] | None:
    found = dearest_of(policy)
    if found is None:
        return None
    return [pld.KindAllowance(kind, times, most) for kind, (times, most) in found.items()]


@pytest.mark.parametrize(
    ("asked", "proposed", "block"), [(50, False, 1), (50, False, 10), (3, False, 1), (9, True, 1)]
)
def test_a_ledgers_figure_is_that_of_all_its_policy_allows(
    asked: int, proposed: bool, block: int
) -> None:
    """Fifty counts may be asked, however many were, in any blocks, at what was proposed or not."""
    figure = _counted(50, asked, proposed=proposed, block=block)
    assert (figure.method, figure.label) == ("pld", pld.PLANNED) and 2.5 < figure.epsilon < 4
    assert figure == _counted(50, 50)


def test_a_ledgers_figure_is_the_filters_where_nothing_bounds_the_number() -> None:
    """A policy that never says how often allows more than any composition could hold."""
    assert _counted(None, 50).method == "filter"


def test_a_policy_adopted_after_a_charge_keeps_the_filters_figure() -> None:
    """What was written down after the first answer may have been chosen by it."""
    policy = Policy({QUERY.kind: (Guard.of("laplace", spend="0.1", times=50),)})
    ledger, records = Ledger(), Records(SMALL, np.array([[1.0], [70.0]]))
    Gate("c", records, policy, ledger, queries=(Histogram,)).answer(Request.of("r", QUERY))
    Gate("c", records, policy, ledger, queries=(Histogram,), study="second")
    assert pld.of_entries(ledger.entries(), _allowed(policy), 1e-6, 5.0).method == "filter"


def test_a_charge_beyond_what_was_allowed_keeps_the_filters_figure() -> None:
    """Every charge is held against what was written down: another kind, a dearer one, one too many."""
    kind, small = allowed(Loss.pure("0.1"), times=2), Loss.pure("0.1").to_dict()
    begun = SimpleNamespace(event="policy", body={})
    dear = Loss.pure("0.2").to_dict()
    failing = Loss(Fraction(1, 10), delta=Fraction(1, 1000)).to_dict()

    def figure(*bodies: dict[str, Any]) -> str:
        rows = [SimpleNamespace(event="reserved", body=body) for body in bodies]
        return pld.of_entries([begun, *rows], [kind], 1e-6, 5.0).label

    fine = {"kind": "kind", "loss": small}
    assert figure(fine, fine) == pld.PLANNED
    assert figure({"kind": "kind", "loss": failing}) != pld.PLANNED
    for wrong in ({"kind": "other", "loss": small}, {"kind": "kind", "loss": dear}):
        assert figure(fine, wrong) == pld.ADAPTIVE
    assert figure(fine, fine, fine) == pld.ADAPTIVE


@pytest.mark.parametrize("rho", ["0.0001", "0.01", "0.05"])
def test_the_dearest_gaussian_dominates_every_sensitivity(rho: str) -> None:
    """At one rho the coarsest lattice tells the most: a sensitivity of one grid unit."""
    dearest = pld.epsilon_at([Gaussian().dearest(Fraction(rho))], 1e-6)
    for squared in (1, 2, 10, 10**6):
        sigma = math.sqrt(squared / (2 * float(rho)))
        one = Loss.zcdp(rho, Charged(DiscreteGaussian(sigma), squared))
        assert pld.epsilon_at([one], 1e-6) <= dearest * (1 + 1e-9)


@pytest.mark.parametrize("sigma", [3.0, 5.0, 20.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_discrete_gaussian_noise_tells_no_more_than_its_curve(sigma: float, shift: int) -> None:
    """The exact sum over the lattice stays below the padded curve; without padding it does not."""
    lattice = np.arange(-int(40 * sigma), int(40 * sigma) + 1)
    still, moved = (np.exp(-((lattice - at) ** 2) / (2 * sigma**2)) for at in (0, shift))
    still, moved = still / still.sum(), moved / moved.sum()
    epsilon = np.linspace(0, 8 * shift / sigma, 200)
    exact = np.array([np.maximum(moved - np.exp(e) * still, 0).sum() for e in epsilon])
    loss = Loss(rho=Fraction(1), laws=(Charged(DiscreteGaussian(sigma), shift**2),))
    (pair,) = pld.pairs([loss])
    assert (pair.curve(epsilon) >= exact - 1e-14).all()
    assert (GaussianPair(shift / sigma).curve(epsilon) < exact - 1e-14).any()


def test_a_law_stands_for_no_more_than_itself() -> None:
    """What dominates an answer by a law covers noise of that law alone, and no more than it loses."""
    gaussian_ = Gaussian().dearest(Fraction(1, 2))
    allowed = pld.KindAllowance("kind", 1, (gaussian_,))
    sigma = math.sqrt(9 / (2 * 0.5))
    assert allowed.covers(Loss.zcdp("0.5", Charged(DiscreteGaussian(sigma), 9)))
    other = Loss(rho=Fraction(1, 2), laws=(Charged(DiscreteLaplace(1.0), 1),))
    assert not allowed.covers(other)
    forged = Loss.zcdp("0.5", Charged(DiscreteGaussian(1e9), 1))
    assert not pld.KindAllowance("kind", 1, (forged,)).covers(other)
    assert not pld.KindAllowance("kind", 1, (forged,)).covers(forged)
