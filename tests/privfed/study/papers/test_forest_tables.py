"""FedForest's tables: the divisions and simulations of the paper, scores paired on the same records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.learners import FedForestRegressor
from privfed.learners.baselines import CentralForestRegressor
from privfed.study.papers import TABLES, forest
from privfed.study.papers.table import compared


def few(**_: Any) -> Mapping[str, Any]:
    """Two forests of three trees."""
    return {
        forest.CENTRAL: partial(CentralForestRegressor, n_estimators=3),
        forest.OURS: partial(FedForestRegressor, n_estimators=3),
    }


def test_records_of_a_group_are_divided_by_the_groups_own_shares() -> None:
    """At a small alpha nearly all records of each tenth along the first component have one owner."""
    rng = np.random.default_rng(0)
    along = rng.normal(size=500)
    frame = pd.DataFrame({"a": along, "b": along + 1e-3 * rng.normal(size=500), "y": 0})
    owners = forest.divided(frame, 0.001, 5, rng)
    groups = np.argsort(np.argsort(along)) * forest.GROUPS // 500
    largest = [np.bincount(owners[groups == g]).max() for g in range(forest.GROUPS)]
    assert np.mean(largest) > 45
    even = forest.divided(frame, 1e6, 5, rng)
    assert max(np.bincount(even)) < 150


def test_clients_lie_apart_in_what_the_regime_says() -> None:
    """Covariates, outcomes, both (Appendix F.2), or neither."""
    apart = {}
    for name, regime in forest.REGIMES.items():
        covariates = forest.simulated(1, **regime).groupby("client")["x0"].mean().to_numpy()
        residual = forest.simulated(1, **{**regime, "separation": 0.0})
        outcomes = residual.groupby("client")["y"].mean().to_numpy()
        apart[name] = tuple(bool(each.max() - each.min() > 3) for each in (covariates, outcomes))
    assert list(apart.values()) == [(False, False), (True, False), (False, True), (True, True)]


def test_a_table_has_scores_and_paired_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both methods by setting; the difference is that of the same records."""
    monkeypatch.setattr(forest, "methods", few)
    told = compared(TABLES["forest/appendix-f2"].run({}, 2)).set_index("column")
    assert set(told["row"]) == {"covariate and outcome shift"}
    paired = told.loc[f"{forest.OURS} less {forest.CENTRAL}", "ours"]
    ours, central = told.loc[forest.OURS, "ours"], told.loc[forest.CENTRAL, "ours"]
    assert paired == pytest.approx(float(str(ours)) - float(str(central)))
    assert (told["repetitions"] == 2).all() and 0 < float(str(central)) < 5
