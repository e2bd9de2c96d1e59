"""Laws of noise: probabilities, losses by brute force over neighbours, and their forms in data."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import InputError, UnsupportedLoss, WireError
from privfed.owner.opendp_maps import understated
from privfed.privacy.laws import (
    BitFlips,
    Charged,
    DiscreteGaussian,
    DiscreteLaplace,
    Law,
    Unknown,
    law_of,
    mapped,
    proven,
)
from privfed.privacy.loss import Loss, basis_in_words, covers
from privfed.privacy.mechanism import spreads
from privfed.privacy.noise import TestNoise
from privfed.questions import wire
from privfed.questions.part import Bound
from tests.own_law import Mixture, Staircase

LAWS = [DiscreteLaplace(1.3), DiscreteLaplace(40.0), DiscreteGaussian(0.6), DiscreteGaussian(5.0)]
SHIFTS = st.lists(st.integers(-3, 3), min_size=1, max_size=3)


@pytest.mark.parametrize("law", [*LAWS, Mixture(2.0), Staircase(1.0, 4)])
def test_probabilities_sum_to_one_and_are_those_of_the_draws(law: Law) -> None:
    """Over a wide window; frequencies of 100,000 draws are within 5 standard errors."""
    points = np.arange(-1200, 1201)
    mass = np.exp(law.log_mass(points))
    assert mass.sum() == pytest.approx(1, abs=1e-9)
    drawn = law.draw(TestNoise(1), 100_000)
    for point in (0, 1, -2):
        p = float(np.exp(law.log_mass(np.array([point])))[0])
        assert abs((drawn == point).mean() - p) < 5 * math.sqrt(p / 100_000) + 1e-4
    assert law.std == pytest.approx(math.sqrt(mass @ points**2), rel=1e-3)
    assert drawn.std() == pytest.approx(law.std, rel=0.02)


@settings(max_examples=40)
@given(SHIFTS, st.sampled_from([0.7, 2.0, 5.5]))
def test_what_a_laplace_vector_loses(shift: list[int], scale: float) -> None:
    """Brute force over all outputs of a small lattice: the largest log-ratio is L1 / scale."""
    law = DiscreteLaplace(scale)
    outputs = np.array(list(product(range(-5, 6), repeat=len(shift))))
    ratio = law.log_mass(outputs - np.array(shift)) - law.log_mass(outputs)
    lost = float(law.loses(int(np.abs(shift).sum())))
    assert np.abs(ratio.sum(axis=1)).max() == pytest.approx(lost)
    assert law.log_ratio(outputs - np.array(shift), outputs) == pytest.approx(ratio)


@settings(max_examples=40)
@given(SHIFTS, st.sampled_from([0.6, 1.0, 3.0]), st.sampled_from([1.01, 2.0, 8.0]))
def test_what_a_gaussian_vector_loses(shift: list[int], sigma: float, order: float) -> None:
    """The Renyi divergence of a vector, summed over the lattice, is at most order times rho."""
    law, points = DiscreteGaussian(sigma), np.arange(-150, 151)
    divergence = 0.0
    for step in shift:  # of independent cells it adds up
        one, other = law.log_mass(points - step), law.log_mass(points)
        terms = order * one + (1 - order) * other
        divergence += float(np.logaddexp.reduce(terms)) / (order - 1)
    rho = float(law.loses(sum(step**2 for step in shift)))
    assert divergence <= order * rho * (1 + 1e-9) + 1e-12
    if sigma >= 1:  # tight but for the lattice
        assert divergence >= 0.99 * order * rho - 1e-12


@given(st.integers(1, 3), st.fractions(Fraction(1, 100), Fraction(1, 2)))
def test_what_flipped_bits_lose(bits: int, flip: Fraction) -> None:
    """Over all answers: the largest log-ratio is bits ln((1 - q) / q), and loses is hardly less."""
    law = BitFlips(flip)
    answers = np.array(list(product((0, 1), repeat=bits)))
    ratio = law.log_mass(answers).sum(axis=1) - law.log_mass(1 - answers).sum(axis=1)
    worst = float(np.abs(ratio).max())
    assert worst * (1 - 1e-11) - 1e-11 <= float(law.loses(bits)) <= worst * (1 + 1e-14) + 1e-15
    assert float(law.concentrated(bits)) <= worst * math.tanh(worst / bits / 2) + 1e-15


@pytest.mark.parametrize("law", LAWS)
def test_opendp_says_the_same(law: Law) -> None:
    """Its maps exceed the exact loss by their outward rounding at most."""
    units = 9 if law.norm == 1 else 81
    assert mapped(Charged(law, units)) == pytest.approx(float(law.loses(units)), rel=1e-6)


def test_a_staircase_is_refuted_by_its_own_probabilities() -> None:
    """Right for one cell that moves by the width; four cells that move by a quarter lose four times it."""
    law = Staircase(1.0, 4)
    assert understated(law, Bound(4, 16), 1) == ""
    assert understated(law, Bound(4, 16), 4) == (
        "law 'staircase': 2 cells moved by 2 lose 2, not 1"
    )
    assert 4 * law.worst(1) == pytest.approx(4)
    assert understated(Mixture(2.0), Bound(4, 16), 4) == ""


@given(st.integers(1, 200), st.integers(1, 30), st.data())
def test_moves_keep_within_both_norms(l1: int, cells: int, data: st.DataObject) -> None:
    """And one cell, and as many cells as can be, are among them."""
    bound = Bound(l1, data.draw(st.integers(l1, l1**2)))
    found = spreads(bound, cells)
    assert all(k <= cells and k * d <= l1 and k * d * d <= bound.l2_squared for k, d in found)
    assert {found[0][0], found[-1][0]} == {1, min(cells, l1)}


@pytest.mark.parametrize(
    "law", [*LAWS, BitFlips(Fraction(123456789, 2**64)), Unknown("x", "a", "1/3")]
)
def test_one_form_in_data(law: Law) -> None:
    """What is written is read again, exactly; a flip stays a fraction."""
    read = wire.decode(wire.encode(law), Law)  # type: ignore[type-abstract]
    assert read == law and hash(read) == hash(law) and read.to_wire() == law.to_wire()
    charged = Charged(law, 7)
    assert Charged.from_plain(charged.to_plain()) == charged
    assert read != DiscreteLaplace(99.0) and proven(read) == (not isinstance(law, Unknown))


OLD: list[tuple[list[str], Charged]] = [
    (["laplace", "4", "8.0"], Charged(DiscreteLaplace(8.0), 4)),
    (["gaussian", "16", "2.5"], Charged(DiscreteGaussian(2.5), 16)),
    (["randomized-response", "1/3", "5"], Charged(BitFlips(Fraction(1, 3)), 5)),
    (["staircase", "4", "8.0"], Charged(Unknown("staircase", "4", "8.0"), 0)),
]


@pytest.mark.parametrize(("plain", "charged"), OLD[:3])
def test_laws_of_format_3_are_read(plain: list[str], charged: Charged) -> None:
    """Lists in ledgers, and a name with one float in releases."""
    assert Charged.from_plain(plain) == charged
    name = {"randomized-response": "flip"}.get(plain[0], plain[0])
    old = {"law": name, "parameter": charged.law.parameter}
    read = wire.convert(old, Law)  # type: ignore[type-abstract]
    assert type(read) is type(charged.law) and read.parameter == charged.law.parameter
    loss = {"epsilon": "9", "rho": "40.5", "laws": [plain]}
    assert Loss.from_dict(loss).laws == (charged,)


def test_what_is_not_installed_proves_nothing() -> None:
    """It is told of as it was written; it has no curve and no deviation, and covers no charge."""
    law = Charged.from_plain(OLD[3][0]).law
    assert law.name == "staircase" and not proven(law) and not law.additive
    assert covers(Loss(Fraction(1), laws=(Charged(law, 0),)))
    for use in (lambda: law.std, lambda: law.pairs(1), lambda: law.draw(TestNoise(1), 1)):
        with pytest.raises(UnsupportedLoss, match="'staircase' is not installed here"):
            use()


@pytest.mark.parametrize(
    "plain",
    [
        None,
        3,
        {"law": 1, "parameters": ["1"]},
        {"law": "laplace"},
        {"law": "laplace", "parameters": ["nan"]},
        {"law": "laplace", "parameters": ["0"]},
        {"law": "laplace", "parameters": ["-1"]},
        {"law": "gaussian", "parameters": ["inf"]},
        {"law": "gaussian", "parameters": ["1", "2"]},
        {"law": "laplace", "parameters": ["word"]},
        {"law": "laplace", "parameters": ["1/0"]},
        {"law": "flip", "parameter": 0.6},
        {"law": "flip", "parameter": -0.1},
        {"law": "laplace", "parameters": [{}]},
    ],
)
def test_nonsense_is_no_law(plain: Any) -> None:
    """Typed errors, whatever was written."""
    with pytest.raises((WireError, InputError)):
        wire.convert(plain, Law)  # type: ignore[type-abstract]
    with pytest.raises(InputError):
        Charged.from_plain(plain if not isinstance(plain, dict) else {**plain, "units": 1})


def test_laws_are_no_more_than_their_class_and_parameters() -> None:
    """A subclass of a proven law is not proven, and equals nothing of its parent's."""

    class Mine(DiscreteLaplace):
        pass

    assert not proven(Mine(2.0)) and proven(DiscreteLaplace(2.0))
    assert Mine(2.0) != DiscreteLaplace(2.0) and law_of("laplace", "2.0") == DiscreteLaplace(2.0)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_group_privacy_moves_the_units(steps: int) -> None:
    """L1 grows by the steps, squared L2 by their square."""
    assert Charged(DiscreteLaplace(2.0), 3).times(steps).units == 3 * steps
    assert Charged(DiscreteGaussian(2.0), 3).times(steps).units == 3 * steps**2


@given(st.lists(st.sampled_from(["claimed:a", "claimed:b", "opendp:c"]), max_size=3), st.data())
def test_a_basis_reaches_every_sum(words: list[str], data: st.DataObject) -> None:
    """Whatever a claimed loss is added to, an open or a free one too, the sum says whose word it is."""
    others = st.sampled_from([Loss.pure(1), Loss.zcdp(1), Loss.open("x"), Loss.free()])
    total = data.draw(others)
    for word in words:
        total += Loss(Fraction(0), Fraction(0), basis=(word,))
        total += data.draw(others)
    assert set(total.basis) == set(words)
    assert Loss.from_dict(total.to_dict()) == total


def test_a_basis_in_words() -> None:
    """Plain words, each kind once; nothing where all is derived."""
    assert basis_in_words(()) == ""
    told = basis_in_words(["claimed:b", "opendp:c", "claimed:a"])
    assert told == "by OpenDP's map of c; on the word of b, a, not derived here"
    masks = [
        basis_in_words(each) for each in (["masked:0"], ["masked:3", "masked:1"], ["masked:2 of 9"])
    ]
    assert [each.partition(" with the server")[0] for each in masks] == [
        "if no owner colludes",
        "if at most 1 owner colludes",
        "if at most 2 owners collude",
    ]


def test_pure_and_concentrated_laws_add_up() -> None:
    """One release of Laplace and Gaussian noise is covered by its rho, which has both; less is not."""
    loss = Loss.pure(1, Charged(DiscreteLaplace(1.0), 1)) + Loss.zcdp(
        "0.5", Charged(DiscreteGaussian(1.0), 1)
    )
    assert loss.epsilon is None and covers(loss)
    assert loss.rho is not None
    assert not covers(Loss(rho=loss.rho - Fraction(1, 100), laws=loss.laws))
    assert not covers(Loss(Fraction(2), loss.rho, laws=loss.laws))
