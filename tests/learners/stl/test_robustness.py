"""Robustness agrees with an independent monitor on random formulas and signals."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import InputError
from privfed.learners.stl import formula as stl
from privfed.learners.stl.canonical import canonical
from privfed.learners.stl.formula import robustness

VARIABLES = ("a", "b")
INTERVALS = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda ab: tuple(sorted(ab)))
ATOMS = st.builds(
    stl.Atom,
    st.sampled_from(VARIABLES),
    st.sampled_from(["<=", ">="]),
    st.integers(-8, 8).map(lambda k: k / 4),
)


def _grown(parts: st.SearchStrategy[stl.Formula]) -> st.SearchStrategy[stl.Formula]:
    return st.one_of(
        st.builds(stl.Not, parts),
        st.builds(stl.Connective, st.sampled_from(["&", "|", "->"]), parts, parts),
        st.builds(stl.Temporal, st.sampled_from(["F", "G"]), INTERVALS, parts),
        st.builds(stl.Until, INTERVALS, parts, parts),
    )


FORMULAS = st.recursive(ATOMS, _grown, max_leaves=5)
SIGNALS = st.integers(0, 2**32 - 1).map(
    lambda seed: np.round(np.random.default_rng(seed).normal(0, 2, (1, 9, 2)), 3)
)


def _monitored(formula: stl.Formula, signal: np.ndarray) -> list[float]:
    rtamt = pytest.importorskip("rtamt")
    with contextlib.redirect_stdout(io.StringIO()):
        monitor = rtamt.StlDiscreteTimeSpecification()
        for name in VARIABLES:
            monitor.declare_var(name, "float")
        monitor.spec = _spelt(formula)
        monitor.parse()
        data = {"time": list(range(signal.shape[0]))}
        data |= {name: signal[:, i].tolist() for i, name in enumerate(VARIABLES)}
        return [value for _, value in monitor.evaluate(data)]


def _steps(formula: stl.Temporal | stl.Until) -> str:
    assert formula.interval is not None
    return "[{}:{}]".format(*formula.interval)


def _spelt(formula: stl.Formula) -> str:
    """The formula in the monitor's own language."""
    if isinstance(formula, stl.Atom):
        return f"({formula.variable} {formula.relation} {formula.threshold})"
    if isinstance(formula, stl.Not):
        return f"(not {_spelt(formula.child)})"
    if isinstance(formula, stl.Temporal):
        word = {"F": "eventually", "G": "always"}[formula.operator]
        return f"({word}{_steps(formula)} {_spelt(formula.child)})"
    assert not isinstance(formula, stl.Hole)
    left, right = _spelt(formula.left), _spelt(formula.right)
    if isinstance(formula, stl.Until):
        return f"({left} until{_steps(formula)} {right})"
    word = {"&": "and", "|": "or", "->": "implies"}[formula.operator]
    return f"({left} {word} {right})"


@settings(max_examples=150)
@given(FORMULAS, SIGNALS)
def test_it_agrees_with_rtamt(formula: stl.Formula, signals: np.ndarray) -> None:
    """The independent monitor computes the same robustness wherever the formula's end is seen.

    At the first step always: what lies beyond the end is empty for both.
    """
    theirs = _monitored(formula, signals[0])
    ours = [robustness(formula, signals[:, step:], VARIABLES)[0] for step in range(9)]
    seen = max(1, 9 - _reach(formula))
    assert ours[:seen] == pytest.approx(theirs[:seen])


def test_a_wrong_monitor_would_be_noticed() -> None:
    """The power twin: until that demands its left part at the last step, too, is told apart."""
    signals = np.array([[[1.0, -1.0], [-2.0, 3.0], [0.0, 0.0]]])
    until = stl.Until((1, 1), stl.Atom("a", ">=", 0.0), stl.Atom("b", ">=", 0.0))
    strict = stl.Until((1, 1), until.left, stl.Connective("&", until.left, until.right))
    ours = robustness(until, signals, VARIABLES)[0]
    assert ours == pytest.approx(_monitored(until, signals[0])[0])
    assert ours != pytest.approx(_monitored(strict, signals[0])[0])


def _reach(formula: stl.Formula) -> int:
    """How many steps ahead a formula looks at most."""
    own = (
        formula.interval[1]
        if isinstance(formula, stl.Temporal | stl.Until) and formula.interval
        else 0
    )
    return own + max((_reach(child) for child in stl.children(formula)), default=0)


@settings(max_examples=200)
@given(FORMULAS, SIGNALS)
def test_the_canonical_form_keeps_robustness(formula: stl.Formula, signals: np.ndarray) -> None:
    """Rewriting into the canonical form changes no value at all."""
    ours = robustness(formula, signals, VARIABLES)
    assert np.array_equal(robustness(canonical(formula), signals, VARIABLES), ours)


def test_a_known_until() -> None:
    """(a >= 0) U[0,2] (b >= 1) on a signal worked out by hand."""
    signals = np.array([[[3.0, -5.0], [2.0, 0.0], [-1.0, 4.0]]])
    until = stl.Until((0, 2), stl.Atom("a", ">=", 0.0), stl.Atom("b", ">=", 1.0))
    assert robustness(until, signals, VARIABLES)[0] == 2.0


@pytest.mark.parametrize(
    "signals",
    [np.zeros((2, 3)), np.zeros((1, 0, 2)), np.full((1, 3, 2), np.nan), np.zeros((1, 3, 5))],
)
def test_malformed_trajectories_are_refused(signals: np.ndarray) -> None:
    """A wrong shape or a value that is no number is one clear error."""
    with pytest.raises(InputError, match="trajectories"):
        robustness(stl.Atom("a", ">=", 0.0), signals, VARIABLES)


@pytest.mark.parametrize(
    "formula",
    [stl.Hole(), stl.Atom("a", "<=", None), stl.Temporal("F", None, stl.Atom("a", "<=", 1.0))],
)
def test_templates_have_no_robustness(formula: stl.Formula) -> None:
    """An open part cannot be monitored."""
    with pytest.raises(stl.RuleError, match="complete rule"):
        robustness(formula, np.zeros((1, 2, 2)), VARIABLES)


def test_an_unknown_variable_is_named() -> None:
    """The error names the variable that the trajectories lack."""
    with pytest.raises(stl.RuleError, match="'speed'"):
        robustness(stl.Atom("speed", ">=", 1.0), np.zeros((1, 2, 2)), VARIABLES)
