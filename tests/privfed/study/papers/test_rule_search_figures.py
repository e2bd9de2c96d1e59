"""DP-RuL's figures: searches of a simulated population along epsilon, nu or theta."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed.learners.rule_search.generator import PROFILES, generate
from privfed.study.papers import TABLES, rule_search
from privfed.study.papers.simulated_asking import Truths
from privfed.study.papers.table import compared


def test_a_run_that_found_nothing_has_no_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts in coverage, and among the repetitions of coverage alone."""

    def cell(truths: Any, profile: str, method: str, *at: float) -> tuple[dict[str, Any], None]:
        epsilon, nu, theta, seed = at
        found = {"coverage": seed / 4, "precision": 0.5 if seed else np.nan}
        return {"epsilon": epsilon, "nu": nu, "theta": theta} | found, None

    monkeypatch.setattr(rule_search, "cell", cell)
    monkeypatch.setattr(rule_search, "population", lambda *_: None)
    told = compared(TABLES["rule-search/figure-8"].run({}, 3))
    first = told[told["row"] == f"{rule_search.LABELS['uct']}, nu 0.005"].set_index("column")
    assert first["ours"].tolist() == [0.25, 0.5]
    assert first["repetitions"].tolist() == [3, 2]
    assert len(told) == 2 * len(rule_search.FIXED) * len(rule_search.NUS)


def test_equal_shares_ask_each_question_at_one_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 7 over a small population: 3,000 nats in a thousand parts; others' questions differ."""
    small = Truths(generate(PROFILES["icu"].scaled(0.05), 1))
    monkeypatch.setattr(rule_search, "population", lambda *_: small)
    monkeypatch.setattr(rule_search, "EVERYBODY", ("equal1000",))
    told = compared(TABLES["rule-search/figure-7"].run({}, 1)).set_index("column")["ours"]
    assert told["least epsilon"] == told["median"] == told["most"] == 3
    assert 0 < told["questions"] <= 1000


def test_a_large_budget_finds_what_a_small_one_does_not() -> None:
    """By level over a small simulated population: coverage by epsilon, nothing wrong at the larger."""
    small = Truths(generate(PROFILES["icu"].scaled(0.1), 1))
    few, many = (
        rule_search.cell(small, "icu", "levels", epsilon, 0.05, 0.05, 0)[0] for epsilon in (1, 64)
    )
    assert few["coverage"] < many["coverage"] and many["precision"] > 0.9
