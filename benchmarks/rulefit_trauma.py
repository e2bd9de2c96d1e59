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

import numpy as np
import pandas as pd
from result_rows import arguments

from privfed.learners import RuleFitClassifier
from privfed.study.papers.trauma import READINGS, SCHEMA, fitted, one_split, papers_rules

DATA = Path(os.environ.get("PRIVFED_DATA", Path(__file__).parents[2] / "shared" / "data"))


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
