"""Shares of noise that add up: what a masked total costs, exactly, and what a policy says of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from privfed import Budget, Policy
from privfed.accountants.approximate import ApproximateZeroConcentrated as Approximate
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import InputError, PolicyError
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.mechanisms.unprotected import Nullify
from privfed.privacy.accountant import STATED
from privfed.privacy.laws import DiscreteGaussian, Law, SumOfGaussians, proven
from privfed.privacy.loss import Loss, covers
from privfed.privacy.masked_sums import (
    LARGEST,
    MIN_SIGMA,
    MaskedSums,
    if_masks_fail,
    masked,
    refinement,
)
from privfed.privacy.mechanism import WIDEST, BoundedPart, Mechanism, Protection
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Bound, Part, PartType, Sensitivity


def mass_of_sum(sigma: float, shares: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and exact probabilities of the sum of some discrete Gaussians."""
    reach = math.ceil(14 * sigma) + 2
    points = np.arange(-reach, reach + 1)
    one = np.exp(-(points**2) / (2 * sigma**2))
    one /= one.sum()
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return np.arange(len(total)) - len(total) // 2, total


def renyi(mass: np.ndarray, step: int, order: float) -> float:
    """The Renyi divergence of a law from itself moved by a step, over their common support."""
    p, q = mass[step:], mass[: len(mass) - step]
    kept = (p > 1e-280) & (q > 1e-280)
    powers = order * np.log(p[kept]) + (1 - order) * np.log(q[kept])
    return float(np.logaddexp.reduce(powers)) / (order - 1)


@settings(max_examples=40, deadline=None)
@given(
    sigma=st.floats(0.8, 4),
    counted=st.integers(2, 12),
    step=st.integers(1, 3),
    order=st.sampled_from([1.5, 2.0, 4.0, 8.0]),
)
def test_a_sum_loses_no_more_than_the_theorem(
    sigma: float, counted: int, step: int, order: float
) -> None:
    """By exact masses: one cell that moves by a step, at several orders of divergence."""
    law = SumOfGaussians(sigma * math.sqrt(counted), counted, counted, 1)
    _, mass = mass_of_sum(law.share.parameter, counted)
    assert renyi(mass, step, order) <= order * float(law.loses(step**2)) * (1 + 1e-9) + 1e-9


def test_a_law_that_counts_one_share_too_many_is_refuted() -> None:
    """The planted fault: an owner who colludes is counted as noise."""
    law = SumOfGaussians(3 * math.sqrt(5), 5, 5, 1)
    _, mass = mass_of_sum(law.share.parameter, 4)
    assert renyi(mass, 2, 2.0) > 2 * float(law.loses(4)) * 1.1


@pytest.mark.parametrize("rho", ["0.001", "0.05", "1", "4"])
@pytest.mark.parametrize(("owners", "colluding"), [(2, 0), (5, 0), (20, 6), (100, 0)])
def test_shares_cost_what_was_asked(rho: str, owners: int, colluding: int) -> None:
    """On a grid fine enough for each share; a share alone costs its number of times as much."""
    each = shared(rho, owners, colluding)
    law = each.laws["counts"]
    assert isinstance(law, SumOfGaussians)
    assert each.total.loss.rho == Fraction(rho)
    assert covers(each.total.loss) and proven(law)
    assert each.total.loss.basis == (f"masked:{colluding}",)
    assert law.share.parameter >= MIN_SIGMA
    assert each.alone.rho is not None
    assert_allclose(float(each.alone.rho), float(Fraction(rho)) * (owners - colluding), rtol=1e-9)
    least = Gaussian().scale(Bound(1, 1), Fraction(rho))
    assert_allclose(law.parameter / each.refined["counts"], least, rtol=1e-12)
    assert_allclose(law.std, law.parameter * math.sqrt(owners / (owners - colluding)), rtol=1e-12)


@settings(max_examples=200, deadline=None)
@given(sigma=st.floats(1e-2, 2.0**50), counted=st.integers(2, 512))
def test_shares_that_count_have_all_of_the_variance(sigma: float, counted: int) -> None:
    """In whole fractions: m times the variance of a share is no less than the one that was priced."""
    assume(sigma / math.sqrt(counted) >= 0.5)
    law = SumOfGaussians(sigma, counted, counted, 1)
    assert counted * Fraction(law.share.parameter) ** 2 >= Fraction(sigma) ** 2


def shared(rho: str, owners: int, colluding: int = 0) -> Any:
    """A count of one cell, masked."""
    part = Part(PartType.COUNTS, ("cell",), (1,), Sensitivity.of(1))
    group = {"counts": BoundedPart(part, Bound(1, 1))}
    terms = MaskedSums({f"o{i:03d}": "" for i in range(owners)}, colluding)
    found = masked(Gaussian().price(group, Fraction(rho)), terms)
    assert found is not None
    return found


def test_totals_have_the_stated_spread() -> None:
    """Twenty owners of whom six may collude: the noise of all twenty is in the total."""
    each, source = shared("0.5", 20, 6), TestNoise(3)
    exact = {"counts": np.full(4000, 7)}
    total = sum(each.protect(exact, source, {})["counts"].data for _ in range(20))
    noise = np.asarray(total) / each.refined["counts"] - 20 * 7
    wanted = each.laws["counts"].std / each.refined["counts"]
    assert_allclose(noise.std(), wanted, rtol=0.05)
    assert abs(noise.mean()) < 4 * wanted / math.sqrt(4000)


@pytest.mark.parametrize("cell", [2**62, -(2**62), np.iinfo(np.int64).max, np.iinfo(np.int64).min])
def test_no_total_overflows(cell: int) -> None:
    """Whatever the cells hold, all exact cells together stay below 2^62: they are clipped first."""
    each = shared("4", 512)
    units = each.protect({"counts": np.array([cell])}, TestNoise(1), {})["counts"].data
    noise = 40 * each.laws["counts"].share.parameter
    assert abs(int(units[0])) * 512 <= LARGEST + 512 * noise
    assert np.sign(units[0]) == np.sign(cell)


def test_the_widest_noise_fits() -> None:
    """Of the widest scale that a gate draws, at the most owners, fifty deviations beside all cells."""
    terms = MaskedSums({f"o{i:03d}": "" for i in range(512)}, 510)
    part = Part(PartType.COUNTS, ("cell",), (1,), Sensitivity.of(1))
    wide = Protection(
        Gaussian(), {"counts": BoundedPart(part, Bound(1, 1))}, Fraction(1),
        {"counts": DiscreteGaussian(WIDEST)}, Loss.zcdp(1),
    )  # fmt: skip
    each = masked(wide, terms)
    assert each is not None
    assert LARGEST + 50 * each.laws["counts"].std < 2**63


class InEpsilon(Gaussian):
    """A plugin whose spend is no rho, though it says so; its price is right."""

    def price(self, group: Any, spend: Fraction) -> Protection:
        """Noise of a rho of half the spend's square."""
        rho = spend**2 / 2
        return replace(super().price(group, rho), mechanism=self, spend=spend)


class Squeezed(Gaussian):
    """A plugin that gives two parts of one grid noise of two scales."""

    def price(self, group: Any, spend: Fraction) -> Protection:
        """The second part has a tenth of the noise, at a hundred times its price."""
        known = super().price(group, spend)
        first, second = known.laws
        laws = {
            first: known.laws[first],
            second: DiscreteGaussian(known.laws[first].parameter / 10),
        }
        return Protection(self, group, spend, laws, Loss.zcdp(101 * spend))


@pytest.mark.parametrize("plugin", [InEpsilon, Squeezed])
def test_a_plugins_price_is_the_sums(plugin: type[Gaussian]) -> None:
    """What was priced and checked for one owner's noise is what the total costs, by each part's own law."""
    part = Part(PartType.COUNTS, ("cell",), (2,), Sensitivity.of(1))
    group = {name: BoundedPart(part, Bound(1, 1)) for name in ("a", "b")}
    priced = plugin().price(group, Fraction(6))
    each = masked(priced, MaskedSums({"a": "", "b": "", "c": ""}))
    assert each is not None
    assert each.total.loss.rho == priced.loss.rho and covers(each.total.loss)
    for name in group:
        assert each.laws[name].parameter == priced.laws[name].parameter * each.refined[name]


def test_a_policy_that_masks_nothing_is_refused() -> None:
    """With Laplace noise, suppression, bits, or one such part beside a Gaussian one."""
    terms = MaskedSums({"a": "", "b": ""})
    terms.check_mechanisms([[Laplace()], [Gaussian(), Gaussian()]])
    refused: list[list[list[Mechanism]]] = [
        [],
        [[]],
        [[Laplace()], [Nullify()]],
        [[Gaussian(), Laplace()]],
        [[RandomizedResponse()]],
    ]
    for kinds in refused:
        with pytest.raises(PolicyError, match="nothing would be masked"):
            terms.check_mechanisms(kinds)


def test_what_is_no_sum_under_gaussian_noise_stays_per_owner() -> None:
    """Laplace noise, scores and exact parts are not masked."""
    terms = MaskedSums({"a": "", "b": ""})
    counts = Part(PartType.COUNTS, ("cell",), (1,), Sensitivity.of(1))
    scores = Part(PartType.SCORES, ("cell",), (1,), Sensitivity.of(1))
    for mechanism, part in ((Laplace(), counts), (Gaussian(), scores)):
        priced = mechanism.price({"part": BoundedPart(part, Bound(1, 1))}, Fraction(1))
        assert masked(priced, terms) is None
    fixed = Gaussian().price({"part": BoundedPart(counts, Bound(0, 0))}, Fraction(1))
    assert masked(fixed, terms) is None


def test_parts_of_two_grids_are_refined_each_by_itself() -> None:
    """A count and a sum on a fine grid: each has its share of the spend, and its own refinement."""
    counts = Part(PartType.COUNTS, ("cell",), (2,), Sensitivity.of(1))
    sums = Part(PartType.SUMS, ("cell",), (3,), Sensitivity.of(2**20), Fraction(1, 2**20))
    group = {
        "counts": BoundedPart(counts, Bound(1, 1)),
        "sums": BoundedPart(sums, Bound(2**20, 2**40)),
    }
    found = masked(Gaussian().price(group, Fraction(1)), MaskedSums({"a": "", "b": "", "c": ""}))
    assert found is not None
    assert found.refined["counts"] > 1 == found.refined["sums"]
    assert found.group["counts"].part.grid == Fraction(1, found.refined["counts"])
    assert [law.cells for law in (found.laws["counts"], found.laws["sums"])] == [2, 3]  # type: ignore[attr-defined]
    assert found.total.loss.rho == 1 and covers(found.total.loss)


def test_a_refinement_is_a_power_of_two() -> None:
    """The least that is enough."""
    assert [refinement(s) for s in (9.0, 3.0, 2.999, 0.1)] == [1, 1, 2, 32]
    assert all(b >= a for a, b in pairwise(refinement(s) for s in np.geomspace(5, 1e-3, 50)))


def test_the_law_is_written_and_read() -> None:
    """By its name and four parameters; a discrete Gaussian of the same spread is its mass."""
    law = SumOfGaussians(7.5, 3, 5, 100)
    assert Law.from_wire(law.to_wire()) == law
    points = np.arange(-20, 21)
    assert_allclose(law.log_mass(points), DiscreteGaussian(law.std).log_mass(points))
    exact_points, mass = mass_of_sum(law.share.parameter, 5)
    near = np.abs(exact_points) <= 20
    assert_allclose(np.log(mass[near]), law.log_mass(exact_points[near]), atol=1e-6)
    assert law.loses(0) == 0


@pytest.mark.parametrize(
    "parameters",
    [(5, 6, 5, 1), (5, 0, 5, 1), (5, 2.5, 5, 1), (0.5, 4, 4, 1), (-1, 2, 2, 1), (5, 2, 2, 0)],
)
def test_a_law_of_no_sum_is_refused(parameters: tuple[float, ...]) -> None:
    """More shares that count than owners, none, broken ones; too little noise for the theorem."""
    with pytest.raises(InputError):
        SumOfGaussians(*parameters)


def test_terms_are_written_and_read(tmp_path: Any) -> None:
    """In a policy's file, keys by owner; a list of names leaves the keys to be filled in."""
    key = "ab" * 32
    policy = Policy({}, masked=MaskedSums({"b": key, "a": ""}, 0, Budget.of(9, "1e-5")))
    policy.to_toml(tmp_path / "policy.toml")
    assert Policy.from_toml(tmp_path / "policy.toml") == policy
    listed = MaskedSums.from_dict({"with": ["a", "b"]})
    assert listed.with_keys({"a": key}).keys == {"a": key, "b": ""}
    assert Policy({}).masked_among(["a", "b"]).masked == listed


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        ({"with": ["a"]}, "the noise of 1 of the owners counts .1 less 0 colluding."),
        ({"with": ["a", "b", "c"], "colluding": 2}, "at least 2 more"),
        ({"with": ["a", "b"], "colluding": -1}, "colluding"),
        ({"with": {"a": "key", "b": ""}}, "masking key"),
        ({"with": [f"o{i}" for i in range(513)]}, "at most 512"),
        ({"colluding": 1}, "masked is a table"),
        ({"with": ["a", "b"], "unmasked": {"delta": "1e-5"}}, "unmasked is a budget; write"),
        ({"with": ["a", "b"], "unmasked": "8"}, "unmasked is a budget; write"),
        ({"with": ["a", "b"], "most": 2}, "unknown key 'most'; known are colluding, least,"),
        ({"with": [*"abcde"], "least": 6}, "at most as many"),
        ({"with": [*"abcde"], "least": "4"}, "whole number"),
        ({"with": [*"abcdefg"], "least": 4, "colluding": 1}, "write least = 5"),
        ({"with": [*"abcd"], "least": 3, "colluding": 2}, "at least 2 more"),
    ],
)
def test_bad_terms_are_refused(plain: dict[str, Any], told: str) -> None:
    """With what is wrong, and what to write."""
    with pytest.raises(PolicyError, match=told):
        MaskedSums.from_dict(plain)


def test_the_second_price_in_words() -> None:
    """Who would have to collude, and what is left then; nothing where there is no budget."""
    told = [MaskedSums(dict.fromkeys("abcde", ""), t).in_words(Fraction(5, 2)) for t in (0, 1, 3)]
    ends = "an owner's own share of the noise still holds epsilon 2.5"
    assert told == [f"; if {who} do, {ends}" for who in ("any", "2 or more", "4 or more")]
    assert MaskedSums({"a": "", "b": ""}).in_words(None) == ""


def test_the_price_without_masks_is_capped() -> None:
    """m times the ceiling must stay within what may be spent if the masks fail."""
    keys, accountant, budget = (
        {f"o{i}": "" for i in range(20)},
        ZeroConcentrated(),
        Budget.of(1, "1e-5"),
    )
    MaskedSums(keys, 0, Budget.of(6, "1e-5")).check_unmasked(accountant, budget)
    with pytest.raises(PolicyError, match=r"is epsilon 5\.3"):
        MaskedSums(keys, 0, Budget.of(5, "1e-5")).check_unmasked(accountant, budget)
    with pytest.raises(PolicyError, match="budget"):
        MaskedSums(keys, 0, Budget.of(5, "1e-5")).check_unmasked(accountant, None)


def test_deltas_are_not_multiplied_where_the_masks_fail() -> None:
    """They are of what is not masked: twice a budget's own deltas would leave no finite price at all."""
    keys, accountant, budget = {"north": "", "south": ""}, Approximate(), Budget.of(1, "1e-5")
    terms = MaskedSums(keys, 0, Budget.of(3, "1e-5"))
    rho, own = accountant.ceiling(budget)
    assert terms.at_most((rho, own), accountant) == (terms.counted * rho, own)
    terms.check_unmasked(accountant, budget)
    alone = terms.epsilon_unmasked(accountant, budget)
    assert alone is not None and 1 < alone <= 3


def test_what_is_left_without_masks_is_told_at_the_delta_beside_it() -> None:
    """Losses' own deltas are inside it: it was told at a delta larger by them."""
    accountant, total = Approximate(), (Fraction(1, 10), Fraction(1, 10**6))
    stated = accountant.stated(total, None)
    assert stated.delta == STATED + total[1]
    assert if_masks_fail(accountant, total, stated.delta, []) == stated.epsilon
