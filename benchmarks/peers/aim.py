"""AIM (McKenna et al. 2022) by OpenDP, and a boosted classifier or regressor trained on its synthetic table.

Numbers are cut into sixteen equal bins of their public bounds, a target into its two classes or sixteen bins; pairs of columns are the
workload. AIM is zero-concentrated; rho is the largest under (epsilon, delta).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from peers.problem import DELTA, Problem

ENVIRONMENT = "opendp[mbi,polars], beside privfed"
BINS = 16


def synthetic_table(problem: Problem) -> pd.DataFrame:
    """As many records as there are, with y; numbers are drawn within their bins."""
    import opendp.prelude as dp
    import polars as pl
    from opendp.extras import mbi

    from privfed.privacy.conversion import largest_rho
    from privfed.questions.exact import exact

    dp.enable_features("contrib")
    bounds = {one.name: one.bounds for one in problem.features} | {"y": problem.target}
    keys: dict[str, list[Any]] = {
        one.name: list(one.categories) for one in problem.features if not one.bounds
    }
    coded: dict[str, list[Any]] = {name: problem.train[name].astype(str).tolist() for name in keys}
    if problem.target is None:
        keys["y"], coded["y"] = [0, 1], problem.train["y"].astype(int).tolist()
    for name, known in bounds.items():
        if known:
            low, high = known
            place = (problem.train[name].to_numpy(float) - low) / (high - low)
            coded[name] = np.minimum(place * BINS, BINS - 1).astype(int).tolist()
            keys[name] = list(range(BINS))
    context = dp.Context.compositor(
        data=pl.DataFrame(coded).lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(
            rho=float(largest_rho(exact(str(problem.epsilon)), exact(str(DELTA))))
        ),
        split_evenly_over=1,
    )
    names = [*(one.name for one in problem.features), "y"]
    pairs = [mbi.Count(pair) for pair in itertools.combinations(names, 2)]
    table = (
        context.query()
        .select(*names)
        .contingency_table(keys=keys, algorithm=mbi.AIM(queries=pairs))
        .release()
    )
    made = table.synthesize(rows=len(problem.train)).to_pandas()
    made = made.dropna(subset=["y"]).reset_index(
        drop=True
    )  # the release has a cell for unknown keys
    for name, known in bounds.items():
        if known:
            low, high = known
            place = made[name].to_numpy(float) + problem.rng.random(len(made))
            made[name] = low + place / BINS * (high - low)
    return pd.DataFrame(made)


def aim(problem: Problem) -> np.ndarray:
    """Train on the synthetic table."""
    from peers.ours import boosted

    return boosted(problem, synthetic_table(problem))


METHODS = {"AIM": aim}
