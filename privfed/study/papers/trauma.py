"""Trauma, three hospitals and 371 patients: Wan, Tanioka and Shimokawa 2026, Section 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from privfed.engines.local import LocalDisclosure
from privfed.learners import RuleFitClassifier
from privfed.learners.baselines import BayesianInference
from privfed.study.papers.table import Measured, repeated
from privfed.tables.schema import Column, Schema

RULES = 82  #: Number of rules in the paper
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
#: Interpretations of what the paper leaves open, as changes of its settings; it counts 82 rules.
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
    """Fit a learner through gates under its published policy."""
    gates = LocalDisclosure.from_frame(
        train, "mortality", client="hospital", schema=SCHEMA, policy=learner.published(), seed=seed
    )
    return learner.fit(gates)


def one_split(frame: pd.DataFrame, seed: int) -> dict[str, float]:
    """Return Figure 4's row: AUC and importances of RuleFit and BFI, each hospital split 70/30."""
    parts = [
        train_test_split(records, test_size=0.3, random_state=seed)
        for _, records in frame.groupby("hospital")
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
    """Return feature importances, maximum 1; a linear model's are |coefficient| times standard deviation.

    Friedman and Popescu 2008, Section 6.1, define them so for linear terms. The standard deviation is of
    the training part: an evaluation, and no release.
    """
    if not isinstance(model, BayesianInference):
        return np.asarray(model.feature_importances_)
    sizes = np.abs(model.weights_[1:]) * train[list(SCHEMA.names)].std().to_numpy()
    return np.asarray(sizes / sizes.max())


def papers_rules(frame: pd.DataFrame) -> pd.DataFrame:
    """Return support of the paper's five rules, and mortality inside and outside them.

    ``support`` is of all patients (Eq. 2), ``hospitals`` the mean of the three hospitals' supports.
    """
    rows = []
    for rule in TABLE_1:
        matches = np.asarray(frame.eval(rule.replace("&", "and")), dtype=bool)
        died = frame["mortality"].to_numpy()
        by_hospital = pd.Series(matches).groupby(frame["hospital"].to_numpy()).mean()
        rows.append({"rule": rule, "support": matches.mean(), "hospitals": by_hospital.mean(),
                     "inside": died[matches].mean(), "outside": died[~matches].mean()})  # fmt: skip
    return pd.DataFrame(rows)


def table_1(data: Mapping[str, pd.DataFrame], repetitions: int) -> Iterator[Measured]:
    """Yield supports of the paper's five rules, and the number of rules by two interpretations of its settings."""
    frame = data["trauma"]
    supports = papers_rules(frame).set_index("rule")
    for rule, (_, _, support) in TABLE_1.items():
        for column, name in (("support", "support"), ("hospitals", "mean of hospitals' supports")):
            yield Measured(rule, name, support, [float(supports[column][rule])])
    for reading in ("Algorithm 1 to the letter", "both"):
        models = [
            fitted(RuleFitClassifier.paper(random_state=seed, **READINGS[reading]), frame, seed)
            for seed in repeated(range(repetitions), f"rules, {reading}")
        ]
        name = "subsamples, leaves of five" if reading == "both" else reading
        yield Measured("all patients", f"rules, {name}", RULES, [len(m.rules_) for m in models])


def figure_4(data: Mapping[str, pd.DataFrame], repetitions: int) -> Iterator[Measured]:
    """Yield AUC less BFI's on the same split, and importances of the features; the paper has only a plot."""
    rows = [one_split(data["trauma"], seed) for seed in repeated(range(repetitions), "splits")]
    for name, label in (("paper", "the paper's settings"), ("rulefit", "our defaults")):
        yield Measured(label, "AUC", None, [row[name] for row in rows])
        yield Measured(label, "AUC less BFI's", None, [row[name] - row["bfi"] for row in rows])
        for covariate in SCHEMA.names:
            values = [row[f"{name} {covariate}"] for row in rows]
            yield Measured(label, f"importance of {covariate}", None, values)
