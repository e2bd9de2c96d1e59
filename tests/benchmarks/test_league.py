"""The league of private learners: its peers' accounting, and that it goes on where it stopped."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import league
import numpy as np
import pandas as pd
import pytest
from peers import linear, lumberjack, s_bdt
from peers.problem import Feature, Problem, methods, read
from results_private import league as league_tables
from scipy.stats import norm


def problem(rows: int = 300, seed: int = 0, number: bool = False) -> Problem:
    """Two numbers and a category, of which one number decides the target."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.uniform(0, 4, rows), "b": rng.uniform(-1, 1, rows), "c": rng.choice(["p", "q", "r"], rows)})  # fmt: skip
    y = table["a"] if number else (table["a"] > 2).astype(int)
    features = (Feature("a", (0, 4)), Feature("b", (-1, 1)), Feature("c", None, ("p", "q", "r")))
    half = rows // 2
    target = (0.0, 4.0) if number else None
    return Problem(table.assign(y=y)[:half], table[half:], features, target, 1.0, seed)


def test_mu_is_the_gaussian_mechanism_s_at_epsilon_and_delta() -> None:
    """Its privacy profile at mu is delta, by integration over the noise."""
    mu = problem().mu
    x = np.linspace(-12, 12, 200_001)
    gained = norm.pdf(x, mu) - math.e * norm.pdf(x)
    assert np.trapezoid(np.maximum(gained, 0), x) == pytest.approx(1e-5, rel=1e-3)


def test_a_sparse_histogram_s_delta_is_never_below_that_of_enumerated_neighbours() -> None:
    """One node that a record fills alone, one that others fill: outcomes by quadrature over the noise."""
    noise, threshold, epsilon = 3.0, 9.0, 0.8
    x = np.linspace(-60, 80, 400_001)
    told = x > 1 + threshold
    step = x[1] - x[0]

    def released(count: int) -> tuple[np.ndarray, float]:
        density = norm.pdf(x, count, noise) * told
        return density, 1 - float(density.sum() * step)

    worst = 0.0
    for alone in (0, 1, 2):
        others = 2 - alone
        with_it = [released(1)] * alone + [released(20)] * others
        without = [(np.zeros_like(x), 1.0)] * alone + [released(19)] * others
        for one, two in ((with_it, without), (without, with_it)):
            worst = max(worst, _hockey_stick(one, two, epsilon, step))
    assert worst > 1e-4  # there is something to bound
    assert worst <= lumberjack.sparse_delta(2, noise, threshold, epsilon) + 1e-6
    assert worst > 0.9 * lumberjack.sparse_delta(2, noise, threshold, epsilon)


def _hockey_stick(
    one: list[tuple[np.ndarray, float]],
    two: list[tuple[np.ndarray, float]],
    epsilon: float,
    step: float,
) -> float:
    """Of a pair of released counts, as the loss's distribution on a grid."""
    losses, masses = [np.zeros(1)], [np.ones(1)]
    for (p, p_none), (q, q_none) in zip(one, two, strict=True):
        density, other = (
            np.append(p[::200] * step * 200, p_none),
            np.append(q[::200] * step * 200, q_none),
        )
        known = density > 1e-15
        with np.errstate(divide="ignore"):
            loss = np.log(density[known]) - np.log(other[known])
        losses.append(np.add.outer(losses[-1], loss).ravel())
        masses.append(np.multiply.outer(masses[-1], density[known]).ravel())
    return float(np.sum(masses[-1] * np.maximum(0, -np.expm1(epsilon - losses[-1]))))


class Watched:
    """A tree's random numbers, noting which nodes get noise."""

    def __init__(self, tree: lumberjack.Tree) -> None:
        self.drawn, self.counts = tree.rng, tree.counts
        self.asked = [np.zeros(len(count), int) for count in tree.counts]

    def normal(self, mean: float, deviation: float, size: int) -> np.ndarray:
        """Draw noise for the nodes that the caller asks."""
        caller = sys._getframe(1).f_locals
        level, asked = caller["at"], caller["asked"]
        assert len(asked) == size and (self.counts[level][asked] > 0).all()
        self.asked[level][asked] += 1
        return self.drawn.normal(mean, deviation, size)


def test_a_record_meets_as_many_questions_as_lumberjack_pays_for() -> None:
    """Over trees and heavy and light records, one for each halving of the levels at most."""
    most = 0
    for seed in range(4):
        tree = lumberjack.Tree(problem(400, seed), noise=1.0, threshold=3.0)
        tree.rng = watched = Watched(tree)  # type: ignore[assignment]
        tree.mark(0, lumberjack.DEPTH, np.ones(1, bool))
        paths = [nodes[: tree.trained] for nodes in tree.nodes]
        met = sum(asked[path] for asked, path in zip(watched.asked, paths, strict=True))
        most = max(most, int(np.max(met)))
        assert any((marks == 1).any() for marks in tree.marks)
        for level in range(1, lumberjack.DEPTH):  # a heavy node's ancestors are heavy
            above = tree.parents[level][tree.marks[level] == 1]
            assert (tree.marks[level - 1][above] == 1).all()
    assert 3 < most <= 1 + int(math.log2(lumberjack.DEPTH))


def test_the_sampled_divergence_is_that_of_gaussians_by_quadrature() -> None:
    """(1 - gamma) N(0) + gamma N(mu) against N(0), whose divergence of order l is l mu^2 / 2 unsampled."""
    variance, gamma, alpha = 8.0, 0.2, 4
    mu = math.sqrt(2 / variance)
    x = np.linspace(-15, 15, 100_001)
    ratio = 1 - gamma + gamma * np.exp(mu * x - mu**2 / 2)
    exact = math.log(np.trapezoid(norm.pdf(x) * ratio**alpha, x)) / (alpha - 1)
    assert s_bdt.sampled(alpha, gamma, variance) == pytest.approx(exact, rel=1e-6)


def test_rows_of_the_linear_peers_lie_in_the_unit_ball() -> None:
    """What AdaSSP's and logistic regression's noise is scaled by: any row of any table within the bounds."""
    for seed in range(3):
        x = problem(100, seed).scaled(problem(100, seed).train) / math.sqrt(4)
        assert (np.linalg.norm(x, axis=1) <= 1 + 1e-12).all()


@pytest.mark.parametrize("method", ["logistic", "AdaSSP", "boosted AdaSSP", "S-BDT"])
def test_a_peer_learns_what_one_column_decides_and_says_the_same_after_a_journey(
    method: str, tmp_path: Path
) -> None:
    """At a large epsilon; written to a folder and read again the problem gives the same predictions."""
    given = problem(2000)
    given = Problem(given.train, given.test, given.features, given.target, 50.0, 3)
    given.write(tmp_path)
    stem = league.entrants()[method][0]
    told = methods(stem)[method](given)
    again = methods(stem)[method](read(tmp_path))
    np.testing.assert_allclose(told, again)
    truth = given.test["a"] > 2
    assert np.mean(told[truth]) > np.mean(told[~truth]) + 0.2


def test_an_interrupted_league_goes_on_and_an_unknown_method_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows stand in the file as they come; a second run carries out what is missing or stale alone."""
    problem(200).train.rename(columns={"y": "class"}).to_csv(tmp_path / "banknote.csv", index=False)
    monkeypatch.setattr(league, "DATA", tmp_path)
    league.load.cache_clear()
    out = tmp_path / "league.csv"
    command = ["league", "--data", "banknote", "--seeds", "1", "--out", str(out), "--epsilons", "1"]

    def run(*more: str) -> None:
        monkeypatch.setattr(sys, "argv", [*command, *more])
        league.main()

    run("--methods", "logistic")
    first = pd.read_csv(out)
    monkeypatch.setattr(linear, "METHODS", {"AdaSSP": linear.adassp})  # logistic would fail
    run("--methods", "logistic", "AdaSSP")
    rows = pd.read_csv(out)
    assert list(rows["method"]) == ["logistic", "AdaSSP"]
    assert rows["auc"].iloc[0] == first["auc"].iloc[0] and rows["auc"].between(0, 1).all()
    stale = rows.assign(code=["benchmarks/peers/linear.py 0", rows["code"][1]], auc=0.0)
    stale.to_csv(out, index=False)
    monkeypatch.undo()
    monkeypatch.setattr(league, "DATA", tmp_path)
    run("--methods", "logistic", "AdaSSP")
    again = pd.read_csv(out)
    assert list(again["auc"]) == [first["auc"].iloc[0], 0.0]  # the other's code has not changed
    assert list(again["code"]) == list(rows["code"])
    titles = [title for title, *_ in league_tables(rows)]
    assert titles[0].startswith("Mean ranks") and "1" in titles[1]
    with pytest.raises(SystemExit):
        run("--methods", "magic")
    assert "no method 'magic'" in capsys.readouterr().err
    with pytest.raises(SystemExit):  # fewer records than the others had
        run("--methods", "boosted AdaSSP", "--most", "50")
    assert "--most 100" in capsys.readouterr().err
    league.load.cache_clear()


def test_the_page_ranks_what_ran_everywhere_and_says_what_a_form_changes() -> None:
    """A method of one set has no rank; differences to the whole engine are of equal sets and splits."""
    aucs = {"ours": 0.8, "DP-EBM": 0.7, "ours, 10 terms": 0.78, "AIM": 0.9}
    rows = pd.DataFrame(
        {"set": name, "task": "classes", "method": method, "epsilon": 1.0, "split": split,
         "auc": auc + 0.01 * split + 0.05 * (name == "b"), "log loss - constant's": -auc, "seconds": 1.0}
        for method, auc in aucs.items() for name in ("a", "b") for split in (0, 1)
        if (method, name) != ("AIM", "b") and (method, split) != ("ours, 10 terms", 1)
    )  # fmt: skip
    ranked, shown, forms = league_tables(rows)
    assert ranked[2] == [["ours", "1"], ["DP-EBM", "2"]] and ranked[3].endswith("alone: AIM.")
    assert shown[2] == [
        ["a", "**0.805**", "0.705"],
        ["b", "**0.855**", "0.755"],
        ["mean", "0.830", "0.730"],
    ]
    assert forms[2] == [["ours, 10 terms", "-0.0200", "+0.0200"]]
