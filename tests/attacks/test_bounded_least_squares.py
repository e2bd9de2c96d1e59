"""Least squares within a box is the optimum, by its own conditions and beside SciPy's solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from privfed.attacks import bounded_least_squares as box
from privfed.attacks.bounded_least_squares import solve_bounded
from privfed.attacks.deadline import Deadline


def system(seed: int, unknowns: int, equations: int) -> tuple[np.ndarray, np.ndarray]:
    """Equations of very different weight, solved by some unknowns at a bound and others not."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(equations, unknowns)) * np.exp(2 * rng.normal(size=(equations, 1)))
    true = np.clip(rng.normal(0.3, 1, unknowns), 0, 1)
    told = rows @ true + 0.1 * rng.normal(size=equations)
    return rows.T @ rows + 4 * np.eye(unknowns), rows.T @ told + 1.2


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), unknowns=st.integers(1, 40), equations=st.integers(1, 60))
def test_no_slope_leads_on_within_the_box(seed: int, unknowns: int, equations: int) -> None:
    """Where it is above zero it is flat, at zero it rises; however it is solved."""
    gram, right = system(seed, unknowns, equations)
    most = np.full(unknowns, 1e3)
    found = solve_bounded(gram, right, most, Deadline(60))
    slope = (gram @ found - right) / np.abs(gram).max()
    assert found.min() >= 0 and (slope[found <= 0] > -1e-8).all()
    assert np.abs(slope[found > 0]).max(initial=0.0) < 1e-8


@pytest.mark.parametrize(("unknowns", "equations"), [(4, 3), (40, 400), (200, 150)])
def test_it_is_what_scipy_finds(unknowns: int, equations: int) -> None:
    """By its solver for bounded variables, to the value that is sought."""
    gram, right = system(1, unknowns, equations)
    root = np.linalg.cholesky(gram).T
    aim = np.linalg.solve(root.T, right)
    known = lsq_linear(root, aim, bounds=(0, 1), method="bvls", tol=1e-14).x
    found = solve_bounded(gram, right, np.ones(unknowns), Deadline(60))

    def value(at: np.ndarray) -> float:
        return float(at @ gram @ at / 2 - right @ at)

    assert value(found) <= value(known) + 1e-9 * abs(value(known))


def test_what_goes_round_in_circles_is_solved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without patience the slower way is taken, to the same end."""
    gram, right = system(3, 30, 50)
    wide = np.full(30, 50.0)
    found = solve_bounded(gram, right, wide, Deadline(60))
    monkeypatch.setattr(box, "PATIENCE", 0)
    assert (found == 0).any() and solve_bounded(gram, right, wide, Deadline(60)) == pytest.approx(
        found, abs=1e-6
    )


def test_nothing_is_solved_at_once_and_time_that_is_up_ends_it() -> None:
    """No unknowns; and without time what was reached lies within the box."""
    assert solve_bounded(np.zeros((0, 0)), np.zeros(0), np.zeros(0), Deadline(1)).shape == (0,)
    gram, right = system(2, 30, 20)
    found = solve_bounded(gram, right, np.full(30, 0.5), Deadline(1e-9))
    assert ((found >= 0) & (found <= 0.5)).all()
