"""The paper's Appendix B: AUC, accuracy, F1, processor time and number of rules over bins and cut-offs.

    python benchmarks/rulefit_cutoffs.py --repetitions 5 --models 1 2

Both models of the simulations, five clients, all rules kept. Without a histogram every client splits
midway between its own values, and shares its exact thresholds with its rules; the terms are those
rules alone with linear terms scaled by the exact pooled moments, and dual averaging is the same.
"""

from __future__ import annotations

import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import arguments, write_rows

from privfed import LocalDisclosure
from privfed.learners import RuleFitClassifier
from privfed.learners.rulefit.averaging import (
    Centred,
    LocalStepParams,
    largest_eigenvalue,
    local_steps,
    primal,
    stable_step,
)
from privfed.learners.rulefit.boosting import Boosting, grow_rules
from privfed.study.papers.simulations import (
    BOUND,
    NAMES,
    RECORDS,
    SCHEMA,
    draw,
    scored,
    scores,
    split,
)

SETTINGS: tuple[dict[str, Any], ...] = (
    *({"n_bins": bins, "n_quantiles": 20} for bins in (50, 100, 200)),
    *({"n_bins": 100, "n_quantiles": cutoffs} for cutoffs in (5, 10, 40)),
    {"n_bins": 0, "n_quantiles": 0},
)


def with_histogram(
    setting: dict[str, Any], train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> dict[str, float]:
    learner = RuleFitClassifier(
        **setting, max_rules=None, solver="averaging", n_rounds=100, random_state=seed
    )
    gates = LocalDisclosure.from_frame(
        train, "y", client="client", schema=SCHEMA, policy=learner.published(1), seed=seed
    )
    start = time.process_time()
    learner.fit(gates)
    row = {"seconds": time.process_time() - start, "candidates": len(learner.model_.terms.boxes)}
    return {**row, "rules": len(learner.rules_), **scores(learner, test)}


def own_rules(x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """A client's rules as intervals of the covariates, split midway between its own values."""
    values = [np.unique(column) for column in x.T]
    codes = np.column_stack([np.searchsorted(v, c) for v, c in zip(values, x.T, strict=True)])
    sizes = np.array([len(v) for v in values])
    boosting = Boosting(333, 4.0, 0.01, 0.0, 5, True)
    boxes, _ = grow_rules(codes, y, sizes, boosting, np.random.default_rng(seed))
    ends = [np.concatenate([[-np.inf], (v[1:] + v[:-1]) / 2, [np.inf]]) for v in values]
    return np.stack([own[boxes[:, j]] for j, own in enumerate(ends)], axis=1)


def design(
    x: np.ndarray, intervals: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    held = np.ones((len(x), len(intervals)), bool)
    for j, column in enumerate(x.T):
        held &= (column[:, None] >= intervals[:, j, 0]) & (column[:, None] < intervals[:, j, 1])
    clipped = np.clip(x, lower, upper)
    return np.column_stack([np.ones(len(x)), held, 0.4 * clipped / clipped.std(axis=0)])


def without_histogram(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> dict[str, float]:
    start = time.process_time()
    parts = [
        (own[NAMES].to_numpy(), own["y"].to_numpy(float)) for _, own in train.groupby("client")
    ]
    rules = [own_rules(x, y, 100 * seed + k) for k, (x, y) in enumerate(parts)]
    intervals = np.unique(np.concatenate(rules), axis=0)
    pooled = np.concatenate([x for x, _ in parts])
    lower, upper = np.quantile(pooled, [0.025, 0.975], axis=0)
    whole = design(pooled, intervals, lower, upper)
    means = whole.mean(axis=0)
    means[0] = 0.0
    ends = np.cumsum([0, *(len(x) for x, _ in parts)])
    designs = [Centred(whole[a:b], means) for a, b in pairwise(ends)]
    steep = [
        largest_eigenvalue(d, len(y), len(means)) for d, (_, y) in zip(designs, parts, strict=True)
    ]
    step = stable_step(float(np.average(steep, weights=np.diff(ends))), True, steep)
    dual, rounds, local, penalty = np.zeros(len(means)), 100, 5, 0.005
    for number in range(rounds):
        order = LocalStepParams(step, step * local * number, local, penalty)
        moved = [
            local_steps(d, y, dual, order, True) for d, (_, y) in zip(designs, parts, strict=True)
        ]
        dual += np.average(moved, axis=0, weights=[len(y) for _, y in parts])
    weights = primal(dual, step * local * rounds * penalty)
    row = {"seconds": time.process_time() - start, "candidates": len(intervals)}
    row["rules"] = int(np.count_nonzero(weights[1 : 1 + len(intervals)]))
    x = np.clip(test[NAMES].to_numpy(), -BOUND, BOUND)
    chance = Centred(design(x, intervals, lower, upper), means).scores(weights)
    return {**row, **scored(test["y"], 1 / (1 + np.exp(-chance)))}


def one(model: int, setting: dict[str, Any], number: int) -> dict[str, Any]:
    rng = np.random.default_rng([model, number])
    test, train = draw(model, RECORDS, rng), split(draw(model, RECORDS, rng), (0.2,) * 5)
    if setting["n_bins"]:
        found = with_histogram(setting, train, test, number)
    else:
        found = without_histogram(train, test, number)
    return {"model": model, **setting, **found}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=Path("cutoffs"), help="cells there are kept")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    kept, keys = chosen.out / "cutoffs.csv", ["model", *SETTINGS[0], "repetition"]
    table = pd.read_csv(kept) if kept.exists() else pd.DataFrame(columns=keys)
    known = set(table[keys].itertuples(index=False, name=None))
    for n, model, setting in product(range(chosen.repetitions), chosen.models, SETTINGS):
        if (model, *setting.values(), n) in known:
            continue
        row = {"repetition": n, **one(model, setting, n)}
        print({name: round(value, 3) for name, value in row.items()}, flush=True)
        table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
        write_rows(table, kept, keys, seed="repetition")
    print(f"{len(NAMES)} covariates, {RECORDS} records, 5 clients; medians; 0 bins: no histogram")
    medians = table.groupby(keys[:-1], sort=False).median(numeric_only=True)
    print(medians.round(4).to_string())


if __name__ == "__main__":
    main()
