"""privfed's private engine: whole (a forest), as rule models of 20 or 10 terms, with masked sums, and by its synthetic table."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from peers.problem import DELTA, Problem
from privfed import Column, LocalDisclosure, Schema
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    RuleFitClassifier,
    RuleFitRegressor,
)

OWNERS = 5


def fitted(problem: Problem, model: Any, masked: bool = False) -> Any:
    """Learn from five owners' records, dealt at random, through gates."""
    features = [
        Column(one.name, "number", *one.bounds)
        if one.bounds
        else Column(one.name, "category", categories=one.categories)
        for one in problem.features
    ]
    target = (
        Column("y", "number", *problem.target) if problem.target else Column("y", "integer", 0, 1)
    )
    owners = [f"c{k}" for k in range(OWNERS)]
    policy = model.private(str(problem.epsilon), str(DELTA))
    if masked:
        policy = policy.masked_among(owners)
    dealt = np.random.default_rng(problem.seed).integers(0, OWNERS, len(problem.train))
    dealt[:OWNERS] = np.arange(OWNERS)
    gates = LocalDisclosure.from_frame(
        problem.train.assign(owner=[owners[k] for k in dealt]),
        "y",
        client="owner",
        schema=Schema(tuple(features), target),
        policy=policy,
        seed=problem.seed,
    )
    return model.fit(gates)


def predicted(model: Any, table: pd.DataFrame | np.ndarray) -> np.ndarray:
    """Numbers, or chances of class 1."""
    return np.asarray(
        model.predict_proba(table)[:, 1]
        if hasattr(model, "predict_proba")
        else model.predict(table)
    )


def _forest(problem: Problem) -> Any:
    return (FedForestRegressor if problem.target else FedForestClassifier)(
        random_state=problem.seed
    )


def whole(problem: Problem) -> np.ndarray:
    """The engine as it is."""
    return predicted(fitted(problem, _forest(problem)), problem.test)


def masked(problem: Problem) -> np.ndarray:
    """The same with one noise for all owners, nobody colluding."""
    return predicted(fitted(problem, _forest(problem), masked=True), problem.test)


def short(problem: Problem, max_terms: int = 20, stable: bool = False) -> np.ndarray:
    """Rules and lines, twenty terms."""
    kind = RuleFitRegressor if problem.target else RuleFitClassifier
    model = kind(random_state=problem.seed, max_terms=max_terms, stable=stable)
    return predicted(fitted(problem, model), problem.test)


def synthetic(problem: Problem) -> np.ndarray:
    """A boosted classifier or regressor trained on as many made-up records, which cost no budget."""
    made = fitted(problem, _forest(problem)).synthesize(len(problem.train), problem.seed)
    return boosted(problem, made)


def fuzzy(problem: Problem, depth: int | None = None) -> np.ndarray:
    """The fuzzy tree, whose leaves are lines."""
    return predicted(fitted(problem, FuzzyTreeRegressor(max_depth=depth)), problem.test)


def line(problem: Problem) -> np.ndarray:
    """The fuzzy tree that may not split."""
    return fuzzy(problem, 0)


def boosted(problem: Problem, made: pd.DataFrame) -> np.ndarray:
    """What scikit-learn's histogram boosting, with its defaults, predicts from a synthetic table."""
    x, y = problem.scaled(made)[:, 1:], made["y"].to_numpy(float)
    if problem.target is None and len(set(y)) < 2:
        return np.full(len(problem.test), y[0])
    kind = HistGradientBoostingRegressor if problem.target else HistGradientBoostingClassifier
    return predicted(kind(random_state=problem.seed).fit(x, y), problem.scaled(problem.test)[:, 1:])


METHODS = {
    "ours": whole,
    "ours, 20 terms": short,
    "ours, 10 terms": partial(short, max_terms=10),
    "ours, 10 stable terms": partial(short, max_terms=10, stable=True),
    "ours, masked": masked,
    "ours, synthetic table": synthetic,
    "ours, fuzzy tree": fuzzy,
    "ours, line": line,
}
ALONE = {"ours, fuzzy tree": "numbers", "ours, line": "numbers"}
