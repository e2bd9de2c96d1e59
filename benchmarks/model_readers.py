"""What readers of a model alone get: python benchmarks/model_readers.py

LiRA and RMIA, online and offline, with 64 shadow models of random halves. Each shadow is the target
once, with the 63 others as its shadows; figures are means over the 64. scikit-learn's diabetes and
breast cancer, a forest and a tree of scikit-learn and this project's RuleFit (of pooled records). Beside
them what the leaves of one such model say.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from result_rows import arguments
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from privfed.attacks.roc import RocCurve
from privfed.attacks.shadow_models import WAYS, Shadows, Train, Way, membership_scores, shadows
from privfed.attacks.small_groups import read_leaves
from privfed.engines.local import LocalDisclosure
from privfed.learners.baselines import CentralRuleFitRegressor
from privfed.tables.schema import Schema

SHADOWS = 64


def judged(known: Shadows, way: Way) -> tuple[float, float]:
    """Mean area and rate at 1 % false positives over all targets."""
    rates = []
    for target, (scores, inside) in enumerate(zip(known.scores, known.inside, strict=True)):
        found = membership_scores(scores, known.without(target), way=way)
        curve = RocCurve.of(found[inside], found[~inside])
        rates.append((curve.auc, curve.at(0.01)))
    area, rate = np.mean(rates, axis=0)
    return float(area), float(rate)


def read(name: str, train: Train, x: np.ndarray, y: np.ndarray) -> None:
    begun = time.perf_counter()
    known = shadows(train, x=x, y=y, number=SHADOWS, time_limit=200)
    told = [f"{way} {area:.3f} / {rate:.2f}" for way in WAYS for area, rate in [judged(known, way)]]
    spent = time.perf_counter() - begun
    print(f"{name}: {', '.join(told)} (AUC / TPR at 1 %), {spent:.0f} s", flush=True)


def leaves(name: str, model: Any) -> None:
    told = [f"{one.metric} {one.value:g} of {one.of:g}" for one in read_leaves(model)]
    print(f"{name}: {', '.join(told)}")


def rule_fit(frame: pd.DataFrame, target: str) -> Train:
    schema = Schema.infer(frame, target)

    def train(x: np.ndarray, y: np.ndarray) -> Any:
        own = pd.DataFrame(x, columns=frame.columns.drop(target))
        own[target], own["at"] = y, "all"
        learner = CentralRuleFitRegressor()
        return learner.fit(
            LocalDisclosure.from_frame(
                own, target, client="at", schema=schema, policy=learner.published(), seed=0
            )
        )

    return train


def main() -> None:
    diabetes = load_diabetes(as_frame=True, scaled=False).frame
    x, y = diabetes.drop(columns="target").to_numpy(), diabetes["target"].to_numpy()
    a, b = load_breast_cancer(return_X_y=True)

    def forest(x: np.ndarray, y: np.ndarray) -> Any:
        return RandomForestRegressor(100, random_state=0).fit(x, y)

    def votes(x: np.ndarray, y: np.ndarray) -> Any:
        return RandomForestClassifier(100, random_state=0).fit(x, y)

    def tree(x: np.ndarray, y: np.ndarray) -> Any:
        return DecisionTreeRegressor(min_samples_leaf=10, random_state=0).fit(x, y)

    read("diabetes, forest", forest, x, y)
    read("diabetes, RuleFit", rule_fit(diabetes, "target"), x, y)
    read("diabetes, tree of leaves of 10", tree, x, y)
    read("breast cancer, forest", votes, a, b)
    leaves("diabetes, forest", forest(x, y))
    leaves("diabetes, tree of leaves of 10", tree(x, y))
    leaves("breast cancer, forest", votes(a, b))


if __name__ == "__main__":
    arguments(__doc__).parse_args()
    warnings.simplefilter("ignore")
    main()
