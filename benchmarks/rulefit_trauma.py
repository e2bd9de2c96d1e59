"""Trauma (three hospitals, 371 patients): the paper's Section 4 beside Bayesian Federated Inference.

    PRIVFED_DATA=... python benchmarks/rulefit_trauma.py --splits 50

Each hospital's patients are split 70/30; both learners go through gates under their `published`
policies (Figure 4: AUC and variable importances). Then models of all patients: variable importances,
the top rules as in Table 1, mortality inside and outside each (Figure 3; from the patients
themselves: an evaluation, and no release), and how far dual averaging is from the optimum
(`--splits 0` prints these alone). "paper" has the settings that the paper prints. `--counts 5` tells how
many rules have a coefficient, for five seeds of each reading of what the paper does not print.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import arguments
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import RuleFitClassifier
from privfed.learners.baselines import BayesianInference

DATA = Path(os.environ.get("PRIVFED_DATA", Path(__file__).parents[2] / "shared" / "data"))
SCHEMA = Schema(
    (
        Column("sex", "category", categories=("0", "1"), description="0 male, 1 female"),
        Column("age", "number", 0, 100),
        Column("ISS", "integer", 1, 75),
        Column("GCS", "integer", 3, 15),
    ),
    Column("mortality", "integer", 0, 1),
)
#: The paper's Table 1: exp(coef.), importance and support.
TABLE_1 = {
    "age < 57.23 & GCS >= 5.086 & ISS < 57.66": (0.80, 100, 0.50),
    "age >= 22.27 & ISS >= 26.73": (1.21, 83, 0.50),
    "age < 56.64 & ISS < 57.66": (0.82, 82, 0.68),
    "age < 57.23 & ISS < 57.66": (0.82, 80, 0.69),
    "age < 33.4 & GCS >= 3.703 & ISS < 57.66": (0.84, 79, 0.43),
}
#: Readings of what the paper leaves open, as changes of its settings; it counts 82 rules.
READINGS: dict[str, dict[str, Any]] = {
    "Algorithm 1 to the letter": {},
    "trees on Friedman and Popescu's subsamples": {"subsample": 0},
    "leaves of at least five records": {"min_samples_leaf": 5},
    "both": {"subsample": 0, "min_samples_leaf": 5},
    "steps until convergence": {"client_learning_rate": None},
    "loss a sum over each client's records": {"client_learning_rate": 1.24, "alpha": 0.01 / 124},
    "penalty a third": {"alpha": 0.01 / 3},
    "stumps": {"tree_size": 2},
    "three leaves on average": {"tree_size": 3},
    "six leaves on average": {"tree_size": 6},
}


def fitted(learner: Any, train: pd.DataFrame, seed: int) -> Any:
    gates = LocalDisclosure.from_frame(
        train, "mortality", client="hospital", schema=SCHEMA, policy=learner.published(), seed=seed
    )
    return learner.fit(gates)


def one_split(frame: pd.DataFrame, seed: int) -> dict[str, float]:
    parts = [
        train_test_split(own, test_size=0.3, random_state=seed)
        for _, own in frame.groupby("hospital")
    ]
    train, test = (pd.concat(side) for side in zip(*parts, strict=True))
    row = {}
    for name, learner in (
        ("rulefit", RuleFitClassifier(random_state=seed)),
        ("paper", RuleFitClassifier.paper(random_state=seed)),
        ("bfi", BayesianInference()),
    ):
        model = fitted(learner, train, seed)
        row[name] = float(roc_auc_score(test["mortality"], model.predict_proba(test)[:, 1]))
        row[f"{name} rules"] = len(getattr(model, "rules_", []))
        for covariate, importance in zip(SCHEMA.names, importances(model, train), strict=True):
            row[f"{name} {covariate}"] = float(importance)
    return row


def importances(model: Any, train: pd.DataFrame) -> np.ndarray:
    """Of the covariates, the largest 1; a linear model's are |coefficient| times standard deviation.

    So Friedman and Popescu 2008, Section 6.1, weigh linear terms. The deviation is that of the
    training part: an evaluation, and no release.
    """
    if not isinstance(model, BayesianInference):
        return np.asarray(model.feature_importances_)
    sizes = np.abs(model.weights_[1:]) * train[list(SCHEMA.names)].std().to_numpy()
    return np.asarray(sizes / sizes.max())


def counted(frame: pd.DataFrame, seeds: int) -> pd.DataFrame:
    """How many candidate rules there are, and how many have a coefficient, by reading and seed."""
    rows = []
    for name, changes in READINGS.items():
        for seed in range(seeds):
            model = fitted(RuleFitClassifier.paper(random_state=seed, **changes), frame, seed)
            kept = {"candidates": len(model.model_.rules), "rules": len(model.rules_)}
            rows.append({"reading": name, "seed": seed, **kept})
    return pd.DataFrame(rows)


def paired(table: pd.DataFrame, name: str) -> str:
    gain = table[name] - table["bfi"]
    ratio = table[name].mean() / table["bfi"].mean()
    return (
        f"{name:<8} AUC {table[name].mean():.4f}, ratio to BFI {ratio:.4f}, "
        f"mean difference {gain.mean():+.4f}, standard error {np.std(gain, ddof=1) / len(gain) ** 0.5:.4f}"
    )


def top_rules(model: RuleFitClassifier, rows: int, frame: pd.DataFrame) -> pd.DataFrame:
    """The paper's Table 1 and Figure 3: the most important rules with support of a tenth or more.

    Mortality is that of the patients who satisfy a rule, and of the others.
    """
    table = model.table(least_support=0.1)
    rules = table[~table["term"].str.startswith("linear: ")].head(rows)
    named = rules.rename(columns={"term": "rule", "exp_coefficient": "exp(coef.)"})
    named["importance"] = (named["importance"] * 100 / named["importance"].max()).round()
    held = model.model_.terms.rules(model._encode(frame))
    texts = [rule.text(SCHEMA) for rule in model.model_.rules]
    inside = [held[:, texts.index(rule)] for rule in named["rule"]]
    named["inside"] = [float(frame.loc[own, "mortality"].mean()) for own in inside]
    named["outside"] = [float(frame.loc[~own, "mortality"].mean()) for own in inside]
    return named[["rule", "exp(coef.)", "importance", "support", "inside", "outside"]]


def papers_rules(frame: pd.DataFrame) -> pd.DataFrame:
    """Support of the paper's own five rules, and mortality inside and outside them.

    ``support`` is of all patients (Eq. 2), ``hospitals`` the mean of the three hospitals' supports.
    """
    rows = []
    for rule in TABLE_1:
        held = np.asarray(frame.eval(rule.replace("&", "and")), dtype=bool)
        died = frame["mortality"].to_numpy()
        each = pd.Series(held).groupby(frame["hospital"].to_numpy()).mean()
        rows.append({"rule": rule, "support": held.mean(), "hospitals": each.mean(),
                     "inside": died[held].mean(), "outside": died[~held].mean()})  # fmt: skip
    return pd.DataFrame(rows)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--rules", type=int, default=8, help="rows of the table of rules")
    parser.add_argument("--counts", type=int, default=0, help="seeds of each reading")
    parser.add_argument("--out", type=Path, help="folder for the tables")
    chosen = parser.parse_args()
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
    frame = pd.read_csv(DATA / "trauma.csv")
    print(papers_rules(frame).round(2).to_string(index=False))
    if chosen.out:
        papers_rules(frame).to_csv(chosen.out / "rules-paper.csv", index=False)
    if chosen.counts:
        counts = counted(frame, chosen.counts)
        print(counts.groupby("reading", sort=False).mean().round(1).to_string())
        if chosen.out:
            counts.to_csv(chosen.out / "counts.csv", index=False)
    if chosen.splits:
        table = pd.DataFrame([one_split(frame, seed) for seed in range(chosen.splits)])
        print(table.agg(["mean", "median", "std"]).T.round(4).to_string())
        if chosen.out:
            table.to_csv(chosen.out / "splits.csv", index=False)
        print(paired(table, "rulefit"), paired(table, "paper"), sep="\n")
    for name, learner in (
        ("defaults", RuleFitClassifier(random_state=0, reference_rounds=300)),
        ("the paper's settings", RuleFitClassifier.paper(random_state=0, reference_rounds=300)),
        (
            "the paper's settings, subsamples",
            RuleFitClassifier.paper(random_state=0, reference_rounds=300, **READINGS["both"]),
        ),
    ):
        model = fitted(learner, frame, 0)
        found = zip(SCHEMA.names, np.round(model.feature_importances_, 2), strict=True)
        print(
            f"\nAll patients, {name}: {len(model.rules_)} rules; importance of variables ", end=""
        )
        print(", ".join(f"{covariate} {value:g}" for covariate, value in found))
        top = top_rules(model, chosen.rules, frame)
        print(top.round(2).to_string(index=False))
        print(f"objective {model.objective_:.5f}, above the optimum by {model.gap_:.5f}")
        if chosen.out:
            top.to_csv(chosen.out / f"rules-{name.split()[-1]}.csv", index=False)
            told = {
                c: float(v) for c, v in zip(SCHEMA.names, model.feature_importances_, strict=True)
            }
            told |= {"rules": len(model.rules_), "objective": model.objective_, "gap": model.gap_}
            pd.Series(told).to_csv(chosen.out / f"model-{name.split()[-1]}.csv", header=False)


if __name__ == "__main__":
    main()
