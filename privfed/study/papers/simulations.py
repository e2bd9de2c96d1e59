"""The simulations of Wan, Tanioka and Shimokawa 2026, Section 3.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from privfed.engines.local import LocalDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitClassifier
from privfed.study.papers.table import Measured, repeated
from privfed.tables.schema import Column, Schema

RECORDS, FEATURES, BOUND = 1_000, 10, 5.0
NAMES = [f"x{number}" for number in range(1, FEATURES + 1)]
SCHEMA = Schema(
    tuple(Column(name, "number", -BOUND, BOUND) for name in NAMES), Column("y", "integer", 0, 1)
)
SIZES = {
    "balanced": (0.2, 0.2, 0.2, 0.2, 0.2),
    "moderate": (0.1, 0.15, 0.2, 0.25, 0.3),
    "severe": (0.05, 0.1, 0.15, 0.25, 0.45),
}
PREVALENCES = {
    "balanced": (0.5, 0.5, 0.5, 0.5, 0.5),
    "moderate": (0.25, 0.375, 0.5, 0.625, 0.75),
    "severe": (0.125, 0.25, 0.375, 0.875, 0.875),
}


def linear_predictor(model: int, X: np.ndarray) -> np.ndarray:
    """Return log odds of models 1 and 2 (Section 3.1); X has shape (records, features)."""
    if model == 1:
        return np.asarray(X[:, :5] @ np.array([5.0, -4, 3, -2, 1]))
    bumps = 10 * np.exp(-2 * X[:, 0] ** 2) - 10 * np.exp(-2 * X[:, 1] ** 2)
    waves = 6 * np.sin(X[:, 2]) - 4 * np.sin(X[:, 3]) + 2 * np.sin(X[:, 4])
    return np.asarray(bumps + waves)


def draw(model: int, records: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw records of a model."""
    X = rng.normal(size=(records, FEATURES))
    frame = pd.DataFrame(X, columns=NAMES)
    frame["y"] = (rng.random(records) < expit(linear_predictor(model, X))).astype(int)
    return frame


def split(frame: pd.DataFrame, fractions: tuple[float, ...]) -> pd.DataFrame:
    """Partition a table among clients by fractions."""
    counts = np.diff(np.round(np.cumsum([0.0, *fractions]) * len(frame)).astype(int))
    return frame.assign(client=[f"c{k:02d}" for k in np.repeat(np.arange(len(fractions)), counts)])


def with_prevalences(
    model: int, prevalences: tuple[float, ...], rng: np.random.Generator
) -> pd.DataFrame:
    """Draw a table whose clients have different prevalences."""
    pool = draw(model, 8 * RECORDS, rng)
    classes = {label: list(pool.index[pool["y"] == label]) for label in (0, 1)}
    parts = []
    for number, prevalence in enumerate(prevalences):
        size = RECORDS // len(prevalences)
        ones = round(prevalence * size)
        rows = [classes[1].pop() for _ in range(ones)]
        rows += [classes[0].pop() for _ in range(size - ones)]
        parts.append(pool.loc[rows].assign(client=f"c{number:02d}"))
    return pd.concat(parts, ignore_index=True)


def cells(model: int, rng: np.random.Generator) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield scenario, setting, training table; the first two scenarios share their records."""
    frame = draw(model, RECORDS, rng)
    for clients in (2, 5, 10, 20):
        yield "clients", f"M={clients}", split(frame, (1 / clients,) * clients)
    for name in ("moderate", "severe"):
        yield "sizes", name, split(frame, SIZES[name])
    for name, prevalences in PREVALENCES.items():
        yield "prevalence", name, with_prevalences(model, prevalences, rng)


def scores(model: Any, test: pd.DataFrame) -> dict[str, float]:
    """Score a model on a test table."""
    return scored(test["y"], model.predict_proba(test[NAMES])[:, 1])


def scored(y: pd.Series, probability: np.ndarray) -> dict[str, float]:
    """Return AUC, accuracy and F1 of probabilities, shape (records,)."""
    predicted = probability > 0.5
    return {
        "auc": float(roc_auc_score(y, probability)),
        "accuracy": float(accuracy_score(y, predicted)),
        "f1": float(f1_score(y, predicted)),
    }


def federated(train: pd.DataFrame, learner: Any, seed: int) -> Any:
    """Fit a learner through gates under its published policy."""
    gates = LocalDisclosure.from_frame(
        train, target="y", client="client", schema=SCHEMA, policy=learner.published(), seed=seed
    )
    return learner.fit(gates)


def paired(model: int, number: int) -> Iterator[tuple[str, float, float]]:
    """Yield each cell's name, federated and centralized AUC on the same records by the paper's settings."""
    rng = np.random.default_rng([model, number])
    test = draw(model, RECORDS, rng)
    central = None
    for scenario, setting, train in cells(model, rng):
        if central is None or scenario == "prevalence":  # the other scenarios share records
            pooled = UngatedDisclosure.from_frame(train.drop(columns="client"), SCHEMA)
            central = RuleFitClassifier.paper(random_state=number).fit(pooled)
        shared = federated(train, RuleFitClassifier.paper(random_state=number), number)
        row = f"model {model}, {scenario} {setting}"
        yield row, scores(shared, test)["auc"], scores(central, test)["auc"]


def figure_2(
    data: Mapping[str, pd.DataFrame], repetitions: int, scenarios: int | None = None
) -> Iterator[Measured]:
    """Yield federated less centralized AUC on the same records, both by the paper's settings, which has only a plot.

    ``scenarios``: number of cells of each model, all by default.
    """
    for model in (1, 2):
        numbers = repeated(range(repetitions), f"model {model}")
        runs = [list(islice(paired(model, number), scenarios)) for number in numbers]
        for cell in zip(*runs, strict=True):
            row, shared, central = zip(*cell, strict=True)
            yield Measured(row[0], "centralized AUC", None, central)
            differences = [a - b for a, b in zip(shared, central, strict=True)]
            yield Measured(row[0], "federated less centralized", None, differences)
