"""RuleFit's benchmarks keep every cell that ran, and their tables come of what they keep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import results_tables
import rulefit_cutoffs
import rulefit_simulations


def test_cutoffs_are_kept_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting once, and none anew by the same command."""
    ran: list[int] = []

    def one(model: int, setting: dict[str, Any], number: int) -> dict[str, Any]:
        ran.append(number)
        figures = dict.fromkeys(("auc", "accuracy", "f1", "seconds", "candidates", "rules"), 0.5)
        return {"model": model, **setting, **figures}

    monkeypatch.setattr(rulefit_cutoffs, "one", one)
    for repetitions in ("1", "2"):
        given = ["cutoffs", "--repetitions", repetitions, "--models", "1", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", given)
        rulefit_cutoffs.main()
    assert ran == [0] * 7 + [1] * 7
    rows = list(results_tables.cutoffs(tmp_path))
    assert len(rows) == 7 * 6 and {row.ours for row in rows} == {0.5}
    assert "2 repetitions" in str(rows[0].note)


def test_simulations_are_kept_by_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All methods of a cell are rows of their own."""

    def repetition(model: int, number: int, known: set[Any]) -> Iterator[list[dict[str, Any]]]:
        cell = {"model": model, "scenario": "clients", "setting": "M=2", "repetition": number}
        figures = {
            name: 0.1 for one in rulefit_simulations.METRICS for name in (one, f"central_{one}")
        }
        if (model, "clients", "M=2", number) not in known:
            yield [{**cell, "method": method, **figures} for method in rulefit_simulations.METHODS]

    monkeypatch.setattr(rulefit_simulations, "repetition", repetition)
    monkeypatch.setattr(rulefit_simulations, "plot", lambda *given: None)
    for _ in range(2):
        given = ["simulations", "--repetitions", "2", "--models", "1", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", given)
        rulefit_simulations.main()
    rows = list(results_tables.simulations(tmp_path))
    assert len(rows) == 3 * 6 and "2 repetitions" in str(rows[0].note)
