"""Do the 90 % intervals of short private RuleFit and a private forest cover? Known truths, new records and noise in each run.

    python benchmarks/private_intervals.py --epsilons 1 4 --records 2000 --seeds 200 --out runs.csv --results private_intervals

What ran is in the file of --out after each round of all settings: an interrupted command goes on, and a setting or
seed more adds its own runs alone. A run without terms is kept as one row without a factor.
Six correlated columns, two owners; the factor of the posterior's deviation is 1.75 for coefficients and 1 for
predictions (of a forest's partial dependence 1.25), and others are tried. "same" is what the model's own terms have when they are refitted to the same
records without noise; "truth" is the known function, or the terms' fit to 20,000 further records of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import PRIVATE_KEYS, arguments, progress, write_rows
from scipy.special import expit, logit
from scipy.stats import norm

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import private
from privfed.learners.private import PrivateModel
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
FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0)  #: of the posterior's deviation
SQUARES = tuple(norm.ppf(0.95) * factor for factor in FACTORS)
FREQUENT = 40  #: Of 20,000 records, that have a total
SHAPES = (0, 2)  #: Columns whose partial dependence is looked at
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


def one(truth: str, count: int, epsilon: str, seed: int) -> list[dict[str, Any]]:
    """Coverage of one model's intervals, by factors of its posterior's deviation; none where it has no terms."""
    rng = np.random.default_rng([seed, count])
    x, score = records(count, truth, rng)
    y = (rng.random(count) < expit(score)).astype(int)
    frame = pd.DataFrame(x, columns=NAMES).assign(y=y, owner=[f"c{k % 2}" for k in range(count)])
    policy = private.private(epsilon, "1e-5")
    held = LocalDisclosure.from_frame(
        frame, "y", client="owner", schema=SCHEMA, policy=policy, seed=seed
    )
    engine = private.learn(held, private.Outcome.of(SCHEMA, number=False), rng)
    model = shortened(engine, 20, rng)
    if model.covariance is None or not len(model.weights) > 1:
        return []
    more, further = records(20_000, truth, np.random.default_rng(1))
    encoded = Records.from_frame(frame, SCHEMA).x
    designs = model.terms.design(encoded), model.terms.design(more)
    wanted = {"same": fit(designs[0], y), "truth": fit(designs[1], expit(further))}
    spread = np.sqrt(np.diag(model.covariance))[1:]
    design = designs[1][:500]
    both = np.einsum("ij,jk,ik->i", design, model.covariance, design)
    each = np.sqrt(both + model.residual_variance)
    far = np.abs(engine.scores(more[:500])[:, 0] - further[:500])
    width = engine.score_deviations(more[:500])
    rows = [{"of": "forest's predictions, truth", "stray": far / width, "width": width.mean()}]
    for name, coefficients in wanted.items():
        aim = further[:500] if name == "truth" else design @ coefficients
        stray = np.abs(model.weights - coefficients)[1:] / spread
        rows += [{"of": f"coefficients, {name}", "stray": stray, "width": spread.mean()}]
        far = np.abs(design @ model.weights - aim) / each
        rows += [{"of": f"predictions, {name}", "stray": far, "width": each.mean()}]
    rows += [card_row(ScoreCard.from_ensemble(model), more, expit(further))]
    rows += [shape_row(engine, column, more[:300], truth) for column in SHAPES]
    return [
        {"of": row["of"], "width": row["width"], "factor": factor}
        | {"covered": float(np.average(row["stray"] < z, weights=row.get("weights")))}
        for row in rows
        for factor, z in zip(FACTORS, SQUARES, strict=True)
    ]


def card_row(card: ScoreCard, x: np.ndarray, chances: np.ndarray) -> dict[str, Any]:
    """How far the log-odds of all who have a record's total are from the card's, in deviations; by record, of frequent totals."""
    totals, place, count = np.unique(card.totals(x), return_inverse=True, return_counts=True)
    ends = logit(card.risk_intervals(totals, level=2 * norm.cdf(1) - 1))
    width = np.diff(ends, axis=1)[:, 0] / 2
    shares = (np.bincount(place, chances) / count).clip(1e-9, 1 - 1e-9)
    stray = np.abs(logit(shares) - ends.mean(axis=1)) / width
    usual = place[count[place] >= FREQUENT]
    return {"of": "score cards, truth", "stray": stray[usual], "width": width[usual].mean()}


def shape_row(engine: PrivateModel, column: int, x: np.ndarray, truth: str) -> dict[str, Any]:
    """How far a column's partial dependence is from the truth's over some records, in deviations, by bin and its share."""
    heights, width = engine.partial_dependence(column)
    cuts = engine.basis.grid.cuts[column]
    edges = np.array([min(-3.0, cuts[0] - 0.2), *cuts, max(3.0, cuts[-1] + 0.2)])
    places = np.tile(x, (len(heights), 1, 1))
    places[:, :, column] = ((edges[:-1] + edges[1:]) / 2)[:, None]
    wanted = TRUTHS[truth](places.transpose(2, 0, 1)).mean(axis=1)
    shares = engine.shares[column, : len(heights)] / engine.shares[column, : len(heights)].sum()
    stray = np.abs(heights - wanted + shares @ wanted) / width
    return {
        "of": "forest's shapes, truth",
        "stray": stray,
        "weights": shares,
        "width": width.mean(),
    }


def settled(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Coverage by setting, and its standard error over runs: intervals of one run hang together."""
    table = pd.DataFrame(rows).dropna(subset="factor")
    keys = ["truth", "records", "epsilon", "of", "factor"]
    groups = table.groupby(keys, sort=False)["covered"]
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
    for seed in progress(range(chosen.first_seed, chosen.first_seed + chosen.seeds), "runs"):
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
            f"{count.min()} to {count.max()} runs, two owners; coverage of 90 % intervals by the factor of the posterior's "
            "deviation; the spread is the mean's standard error over runs"
        )
        write_rows(table, chosen.results, PRIVATE_KEYS, seed=str(chosen.first_seed), note=note)


if __name__ == "__main__":
    main()
