"""Do the 90 % intervals of short private RuleFit and a private forest cover? Known truths, new records and noise in each run.

    python benchmarks/private_intervals.py --epsilons 1 4 --records 2000 --seeds 200 --out runs.csv --results private_intervals

What ran is in the file of --out after each round of all settings: an interrupted command goes on, and a setting or
seed more adds its own runs alone. A run without terms is kept as one row without a factor.
Six correlated columns, two owners. Intervals are as the learners give them for each aim, times some factors. "same" is
the model of the same records without noise: the model's own terms refitted to them, or the forest that is learnt at
epsilon 300; "truth" is the known function, or the terms' fit to 20,000 further records of it. A forest's shapes are looked at by
bin and its share, as means over the bin's records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import arguments, progress, seeds_of, write_private
from scipy.special import expit, logit
from scipy.stats import norm

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import private
from privfed.learners.forest.private_way import PrivateForest
from privfed.learners.private import PrivateModel
from privfed.learners.private.model import Aim
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.scorecard import ScoreCard
from privfed.learners.rulefit.short import shortened
from privfed.tables.records import Records

NAMES = [f"x{number}" for number in range(6)]
SCHEMA = Schema(
    tuple(Column(name, "number", -4, 4) for name in NAMES), Column("y", "integer", 0, 1)
)
#: Log-odds of the second class, by columns.
TRUTHS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "steps and a pair": lambda x: (
        1.5 * (x[0] > 0.5) + (x[1] > -0.5) - 1.2 * (x[2] > 0) * (x[3] > 0) + 0.5 * x[4] - 1
    ),
    "lines": lambda x: 0.9 * x[0] - 0.6 * x[1] + 0.4 * x[2],
    "a sine and a square": lambda x: 1.2 * np.sin(2 * x[0]) + 0.5 * x[1] ** 2 - 0.7 * x[2] - 0.5,
    "rules": lambda x: (
        2 * (x[0] > 0) * (x[1] > 0) - 1.5 * (x[2] < -0.5) * (x[3] < 0.5) + (x[4] > 1) - 0.3
    ),
}
FACTORS = (0.6, 0.8, 1.0, 1.25, 1.5)  #: of the intervals
FREE = "300"  #: epsilon that adds next to no noise
FREQUENT = 40  #: Of 20,000 records, that have a total
SHAPES = (0, 2, 4)  #: Columns whose partial dependence is looked at
RUN = ("truth", "records", "epsilon", "seed")


def records(count: int, truth: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Columns, shape (records, 6), correlated by .3, and their log-odds."""
    latent = np.sqrt(0.7) * rng.normal(size=(count, 6)) + np.sqrt(0.3) * rng.normal(size=(count, 1))
    x = latent.clip(-4, 4)
    return x, TRUTHS[truth](x.T)


def fit(design: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Logistic coefficients of a design with its intercept, by Newton's steps, ridge 1e-4 for the mean loss."""
    found, ridge = np.zeros(design.shape[1]), np.full(design.shape[1], 1e-4)
    ridge[0] = 1e-12
    for _ in range(40):
        told = expit(design @ found)
        system = (design * (told * (1 - told))[:, None]).T @ design / len(design) + np.diag(ridge)
        slope = design.T @ (chances - told) / len(design) - ridge * found
        step = np.linalg.solve(system, slope)
        found += step * min(1.0, 5 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-12:
            break
    return found


def drawn(truth: str, count: int, seed: int) -> tuple[np.random.Generator, pd.DataFrame]:
    """One run's records, with their owners, and the generator that goes on."""
    rng = np.random.default_rng([seed, count])
    x, score = records(count, truth, rng)
    y = (rng.random(count) < expit(score)).astype(int)
    frame = pd.DataFrame(x, columns=NAMES).assign(y=y, owner=[f"c{k % 2}" for k in range(count)])
    return rng, frame


def learnt(
    truth: str, count: int, epsilon: str, seed: int
) -> tuple[PrivateModel, np.random.Generator]:
    """The private engine's model of one run."""
    rng, frame = drawn(truth, count, seed)
    policy = private.private(epsilon, "1e-5")
    held = LocalDisclosure.from_frame(
        frame, "y", client="owner", schema=SCHEMA, policy=policy, seed=seed
    )
    return private.learn(held, private.Outcome.of(SCHEMA, number=False), rng), rng


@lru_cache(maxsize=4)
def without_noise(truth: str, count: int, seed: int) -> PrivateModel:
    """The engine's model of the same records at a huge epsilon."""
    return learnt(truth, count, FREE, seed)[0]


def one(truth: str, count: int, epsilon: str, seed: int) -> list[dict[str, Any]]:
    """Coverage of one model's intervals, by factors of their width; none where it has no terms."""
    engine, rng = learnt(truth, count, epsilon, seed)
    (model,) = shortened(engine, 20, rng)
    if model.error is None or not len(model.weights) > 1:
        return []
    rows = ensemble_rows(model, truth, drawn(truth, count, seed)[1])
    rows += forest_rows(engine, without_noise(truth, count, seed), truth)
    return [
        {"of": row["of"], "width": row["width"], "factor": factor}
        | {"covered": float(np.average(row["stray"] < factor, weights=row.get("weights")))}
        for row in rows
        if len(row["stray"])
        for factor in FACTORS
    ]


def row_of(
    name: str, ends: np.ndarray, wanted: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, Any]:
    """How far what is wanted lies from the middle of intervals, shape (intervals, 2), in halves of them."""
    half = np.diff(ends, axis=1)[:, 0] / 2
    stray = np.abs(wanted - ends.mean(axis=1)) / np.maximum(half, 1e-12)
    return {"of": name, "stray": stray, "width": half.mean(), "weights": weights}


def ensemble_rows(model: RuleEnsemble, truth: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Of a short model: coefficients, predictions, shapes, importances, risks of its card."""
    more, further = records(20_000, truth, np.random.default_rng(1))
    design = model.terms.design(more)
    own = model.terms.design(Records.from_frame(frame, SCHEMA).x)
    wanted: dict[Aim, np.ndarray] = {
        "same": fit(own, frame["y"].to_numpy()),
        "truth": fit(design, expit(further)),
    }
    few, rows = more[:500], []
    for name, coefficients in wanted.items():
        other = replace(model, weights=coefficients)
        aim = further[:500] if name == "truth" else other.scores(few)
        ends = model.intervals(of=name)[1:]
        rows += [row_of(f"coefficients, {name}", ends, coefficients[1:])]
        rows += [row_of(f"predictions, {name}", model.score_intervals(few, of=name), aim)]
        shapes = [
            (model.shape_of(j, few[:100, j], of=name)[1], other.shape_of(j, few[:100, j])[0])
            for j in range(len(NAMES))
            if model.terms_of(j)[0]
        ]
        held = model.covariate_importances > 0
        deviations = (design if name == "truth" else own)[:, 1:].std(axis=0)
        others = replace(other, deviations=deviations).covariate_importances
        # an end at zero is as far below as the other above: no importance is less
        high = model.importance_intervals(of=name)[held, 1]
        ends = np.column_stack([2 * model.covariate_importances[held] - high, high])
        rows += [row_of(f"importances, {name}", ends, others[held])]
        if shapes:
            ends, heights = (np.concatenate(each) for each in zip(*shapes, strict=True))
            known = np.diff(ends, axis=1)[:, 0] > 0
            rows += [row_of(f"shapes, {name}", ends[known], heights[known])]
    return [*rows, card_row(ScoreCard.from_ensemble(model), more, expit(further))]


def forest_rows(engine: PrivateModel, free: PrivateModel, truth: str) -> list[dict[str, Any]]:
    """Of a forest: predictions, importances and shapes."""
    more, further = records(20_000, truth, np.random.default_rng(1))
    few, forest, rows = more[:500], PrivateForest(engine), []
    scores = engine.scores(few)[:, 0]
    aims: dict[Aim, np.ndarray] = {"same": free.scores(few)[:, 0], "truth": further[:500]}
    for name, aim in aims.items():
        reach = norm.ppf(0.95) * engine.score_deviations(few, name)[:, 0]
        ends = np.column_stack([scores - reach, scores + reach])
        rows += [row_of(f"forest's predictions, {name}", ends, aim)]
    used = known_importances(truth) > 0
    aims = {"same": importances(free), "truth": known_importances(truth)}
    for name, aim in aims.items():
        ends = forest.permutation_importances(0.9, name)[1]
        ends[ends[:, 0] == 0, 0] = -ends[ends[:, 0] == 0, 1]  # no importance is less
        rows += [row_of(f"forest's importances, {name}", ends[used], aim[used])]
    rows += [
        row_of("forest's importances of what has no part", ends[~used], np.zeros((~used).sum()))
    ]
    for column in SHAPES:
        free_heights = heights_of(free, column)
        codes, free_codes = (own.basis.grid.codes(few)[column] for own in (engine, free))
        each: dict[Aim, np.ndarray] = {
            "same": free_heights[free_codes],
            "truth": known_shape(truth, column),
        }
        for name, values in each.items():
            heights, reach = forest.partial_dependence(column, of=name)
            ends = np.column_stack([heights - reach, heights + reach])
            shares = np.bincount(codes, minlength=len(heights)) / len(few)
            sums = np.bincount(codes, values - values.mean(), minlength=len(heights))
            held = shares > 0
            means = sums[held] / (len(few) * shares[held])
            rows += [row_of(f"forest's shapes, {name}", ends[held], means, shares[held])]
    return rows


@lru_cache(maxsize=4)
def importances(free: PrivateModel) -> np.ndarray:
    """Permutation importances of a model without noise, shape (columns,)."""
    return free.permutation_importances(0.9)[0]


@lru_cache(maxsize=16)
def heights_of(free: PrivateModel, column: int) -> np.ndarray:
    """Partial dependence of a model without noise, by code."""
    return free.partial_dependence(column)[0]


@lru_cache(maxsize=8)
def known_importances(truth: str) -> np.ndarray:
    """Permutation importances of the truth, over further records, shape (columns,)."""
    rng = np.random.default_rng(1)
    more, further = records(20_000, truth, rng)
    found = []
    for column in range(more.shape[1]):
        moved = more.copy()
        moved[:, column] = rng.permutation(more[:, column])
        step = further - TRUTHS[truth](moved.T)
        found.append(np.sqrt(np.mean(step**2) / 2))
    return np.array(found)


@lru_cache(maxsize=64)
def known_shape(truth: str, column: int) -> np.ndarray:
    """Partial dependence of the truth at 500 further records' values, over 500 others."""
    more, _ = records(20_000, truth, np.random.default_rng(1))
    places = np.tile(more[500:1000], (500, 1, 1))
    places[:, :, column] = more[:500, column, None]
    scores = np.asarray(TRUTHS[truth](places.transpose(2, 0, 1)), float)
    return np.asarray(scores.mean(axis=1))


def card_row(card: ScoreCard, x: np.ndarray, chances: np.ndarray) -> dict[str, Any]:
    """The log-odds of all who have a record's total, by record, of frequent totals."""
    totals, place, count = np.unique(card.totals(x), return_inverse=True, return_counts=True)
    ends = logit(card.risk_intervals(totals))
    shares = (np.bincount(place, chances) / count).clip(1e-9, 1 - 1e-9)
    usual = place[count[place] >= FREQUENT]
    return row_of("score cards, truth", ends[usual], logit(shares)[usual])


def settled(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Coverage by setting, and its standard error over runs: intervals of one run hang together."""
    table = pd.DataFrame(rows).dropna(subset="factor")
    keys = ["truth", "records", "epsilon", "of", "factor"]
    runs = table.groupby([*keys, "seed"], sort=False)["covered"].mean()  # of several columns
    groups = runs.groupby(keys, sort=False)
    found = groups.agg(["mean", "sem", "count"]).reset_index()
    return found.assign(width=table.groupby(keys, sort=False)["width"].mean().to_numpy())


def main() -> None:
    parser = arguments(__doc__, seeds=25, first_seed=0, epsilons=["1", "4"], records=[2000])
    parser.add_argument("--truths", nargs="+", default=list(TRUTHS))
    parser.add_argument("--results", help="name of a table in benchmarks/results")
    parser.add_argument("--out", type=Path, default=Path("private_intervals.csv"))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    settings = list(product(chosen.truths, chosen.records, chosen.epsilons))
    kept = pd.DataFrame()
    if chosen.out.exists():
        kept = pd.read_csv(chosen.out, dtype={"epsilon": str})
    rows: list[dict[str, Any]] = kept.to_dict("records")  # type: ignore[assignment]
    known = {tuple(row[key] for key in RUN) for row in rows}
    for seed in progress(seeds_of(chosen), "runs"):
        for setting in settings:
            run = dict(zip(RUN, (*setting, seed), strict=True))
            if (*setting, seed) not in known:
                rows += [run | row for row in one(*setting, seed)] or [run]
        pd.DataFrame(rows).to_csv(chosen.out, index=False)  # what ran is kept
    found = settled(rows)
    print(found.round(3).to_string())
    if chosen.results:
        table = pd.DataFrame(
            {
                "set": found["truth"] + ", " + found["records"].astype(str),
                "epsilon": found["epsilon"],
                "learner": found["of"],
                "metric": found["factor"].map("{:g}".format),
                "value": found["mean"].round(4),
                "spread": found["sem"].round(4),
            }
        )
        count = found["count"]
        note = (
            f"{count.min()} to {count.max()} runs, two owners; coverage of 90 % intervals by factor of their "
            "width; the spread is the mean's standard error over runs"
        )
        write_private(table, chosen, note, str(chosen.first_seed))


if __name__ == "__main__":
    main()
